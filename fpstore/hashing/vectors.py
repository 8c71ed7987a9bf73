"""Hyperplane hashing: fingerprints whose distance estimates the angle between vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Counts, Flags
from fpstore.base.arguments import check_number, check_whole
from fpstore.base.threads import cached_property
from fpstore.errors import InputError, show
from fpstore.hashing.binomial import binomial_cdf, least_radius
from fpstore.hashing.hyperplanes import hyperplanes
from fpstore.hashing.law import MAX_VALUES, Law, Reals
from fpstore.hashing.probing import (
    Choices,
    band_changes,
    hit_probability,
    normal_cdf,
    normal_quantile,
    probing_sequence,
    stratified,
)
from fpstore.hashing.sketcher import MAX_SIGNATURE_BITS, Signed, Values
from fpstore.hashing.vector_base import Block, VectorFingerprinter, derive_seed
from fpstore.hashing.words import packed

_SMALL = 1e-20  # a vector whose squared length in float32 is less may have lost it to underflow
_PLANE_BATCH = 64  # planes are drawn in multiples, so few counts of planes need matrices
_NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True)
class HyperplaneHash(VectorFingerprinter):
    """Signs of random projections: fingerprints of float vectors, such as embeddings.

    Each bit belongs to a random hyperplane through the origin, and says on which side of it the
    vector lies. A plane separates two vectors with the probability θ / π, where θ is the angle
    between them. So the distance of two fingerprints is binomial, with `width` trials of this
    probability: its mean is ``width * θ / π``. Only directions count: a positive factor changes
    nothing.

    Version 1 is, exactly: bit j is 1 if the sum of ``weight(j, i) * component(i)``, as a real
    number without any rounding, is greater than 0. The weights are whole numbers from a recipe in
    integers, and nearly normal (see `Notes`). So a fingerprint depends on the vector alone: not on
    the platform, the library that multiplies matrices, threads, batches, or whether the same
    numbers come as float16, float32 or float64. The first bits of a wide fingerprint are the narrow
    one of the same seed.

    A vector of zeros has no direction and so no fingerprint; `is_empty` recognizes it.

    In an index, a hash value is a bit of such a fingerprint, and the signature is that of another
    seed, so that it is independent. Keys of one bit for each value need many rows. With `probes`, a
    look-up also asks for the keys that differ in the planes nearest to the vector, which finds with
    a tenth of the bands what one look-up in each finds.

    Vectors are taken from arrays of shape (n, dimension), also mapped ones (``numpy.load(path,
    mmap_mode="r")``), from columns of Arrow that hold lists, and from iterables of vectors. Their
    numbers are float16, float32, float64 or integers; int64 and uint64 are rounded to float64.

    Parameters
    ----------
    dimension : int
        Components of a vector, 1 to 65,536.
    width : {32, 64, 128, 256}
        Bits of a fingerprint.
    seed : int
        0 to 2^64 - 1. Fingerprints of different seeds cannot be compared.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range.

    Notes
    -----
    M. Charikar, *Similarity estimation techniques from rounding algorithms*, STOC 2002, section 3.

    A weight is the sum of 64 uniform numbers of 16 bits less its mean. For vectors with two
    components other than 0 the probability differs from θ / π by less than 0.0003; more components
    make this less. Weights of 1 and -1 would not do: the vectors (1, 0, 0, ...) and (2, 1, 0, ...),
    which are 27 degrees apart, would never differ.

    Probes: Q. Lv, W. Josephson, Z. Wang, M. Charikar, K. Li, *Multi-probe LSH*, VLDB 2007, sections
    4.4 and 4.5; the recall with probes is a mean over 1,024 drawn bands, within 0.02.

    Examples
    --------
    >>> import numpy as np
    >>> from fpstore import HyperplaneHash
    >>> vectors = np.random.default_rng(1).normal(size=(3, 384)).astype(np.float32)
    >>> vectors[1] = vectors[0] + 0.1 * vectors[1]
    >>> hasher = HyperplaneHash(dimension=384)
    >>> a, b, c = hasher.fingerprints(vectors).tolist()
    >>> (a ^ b).bit_count() < 10 < (a ^ c).bit_count()
    True
    >>> hasher.sketches(vectors, count=200).shape
    (3, 200)
    >>> round(hasher.law.collision(0.9), 3)
    0.856
    """

    name: ClassVar[str] = "hyperplane"
    has_probes: ClassVar[bool] = True

    @property
    def law(self) -> AngleLaw:
        """The law of the cosine similarity."""
        return AngleLaw()

    def empty_message(self, item: Any) -> str:
        """Return the message that a vector has no direction."""
        return (
            "all components of the vector are 0, so it has no fingerprint: leave it out "
            "(is_empty() finds such vectors)"
        )

    def recall(self, cosine: float, radius: int) -> float:
        """Return the share of pairs of vectors at an angle that have fingerprints within a radius.

        Parameters
        ----------
        cosine : float
            The cosine of the angle, -1 to 1.
        radius : int
            0 to the width.

        Returns
        -------
        float
            The probability that a binomial variable of `width` trials, each with the probability
            ``arccos(cosine) / π``, is at most the radius.

        Raises
        ------
        InputError
            An argument is out of range.

        Examples
        --------
        >>> from fpstore import HyperplaneHash
        >>> round(HyperplaneHash(dimension=384).recall(0.95, 10), 3)
        0.945
        """
        radius = check_whole(radius, 0, self.width, "radius")
        return binomial_cdf(radius, self.width, differing_share(cosine))

    def radius(self, cosine: float, recall: float) -> int:
        """Return the least radius that finds a share of the pairs of vectors at an angle.

        Parameters
        ----------
        cosine : float
            The cosine of the angle, -1 to 1.
        recall : float
            The share, between 0 and 1.

        Returns
        -------
        int
            0 to the width.

        Raises
        ------
        InputError
            An argument is out of range.

        Examples
        --------
        >>> from fpstore import HyperplaneHash
        >>> HyperplaneHash(dimension=384, width=256).radius(0.95, 0.99)
        38
        """
        return least_radius(recall, self.width, differing_share(cosine))

    def _problem(self, values: Array) -> str:
        return real_problem(values, self.dimension)

    def _hash(self, block: Block) -> tuple[npt.NDArray[np.uint8], Flags]:
        sides, known = self.sides(block, self.width)
        return packed(sides), known

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the sides of the planes of functions, 0 or 1."""
        sides, known = self.sides(self.block(items), _round_to_batch(functions.stop))
        return Values(sides[:, functions.start : functions.stop].astype(np.uint32), known)

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the first bits of fingerprints of another seed."""
        sides, known = self._signer.sides(self.block(items), self._signer.width)
        return Signed(packed(sides[:, :MAX_SIGNATURE_BITS]), known)

    def probes(self, item: Any, bands: int, rows: int, count: int) -> Counts:
        """Return the values of each band, also with other sides of the nearest planes.

        See `Sketcher.probes`.
        """
        self._check_bands(bands, rows, count)
        block = self.block([item])
        values, known = self.values(block, range(bands * rows))
        if not known.all():
            raise InputError(self.empty_message(item), got=show(item))
        planes = hyperplanes(self.dimension, _round_to_batch(bands * rows), self.seed)
        normals = planes.normals[: bands * rows].astype(np.float64)
        sums = np.abs(normals @ block.values[0].astype(np.float64)).reshape(bands, rows)
        changes = band_changes(_sequence(rows, count), sums, count)
        return values.reshape(bands, 1, rows) ^ changes.astype(np.uint32)

    @cached_property
    def _signer(self) -> HyperplaneHash:
        return HyperplaneHash(dimension=self.dimension, width=256, seed=derive_seed(self.seed))

    def _measures(self, vector: Array, others: Array) -> Reals:
        """Return cosines; 0 for a vector of zeros."""
        (direction,) = _unit_vectors(vector[None])
        cosines: Reals = np.clip(_unit_vectors(others) @ direction, -1.0, 1.0)
        return cosines

    def sides(self, block: Block, planes: int) -> tuple[Flags, Flags]:
        """Return the sides of vectors, shape (n, planes), and which vectors have a direction."""
        kind, size = block.values.dtype.kind, block.values.dtype.itemsize
        fits_float32 = size <= (4 if kind == "f" else 2)
        values = np.ascontiguousarray(block.values, np.float32 if fits_float32 else np.float64)
        with np.errstate(all="ignore"):
            singles = values.astype(np.float32, copy=False)
            squares = np.vecdot(singles, singles)
        for place in np.flatnonzero(~np.isfinite(squares)).tolist():
            wrong = np.flatnonzero(~np.isfinite(values[place]))
            if len(wrong):
                raise block.error_at(
                    place,
                    f"component {wrong[0]} is {values[place, wrong[0]]}: vectors have finite "
                    "numbers",
                )
        known = squares > _SMALL
        for place in np.flatnonzero(~known).tolist():
            known[place] = values[place].any()
        sides = hyperplanes(self.dimension, planes, self.seed).sides(
            values, singles, squares, known
        )
        sides[~known] = False
        return sides, known


def real_problem(values: Array, dimension: int) -> str:
    """Return why an array has no vectors of real numbers of a dimension, or an empty str."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if not (kind in "iu" or (kind == "f" and size <= 8)):
        return f"numbers of type {values.dtype}, vectors have float16, float32, float64 or integers"
    if values.shape[-1] != dimension:
        return f"has {values.shape[-1]} components, and the fingerprinter is for {dimension}"
    return ""


def differing_share(cosine: object) -> float:
    """Return the probability that a bit differs: the angle in half turns."""
    return math.acos(check_number(cosine, -1, 1, "cosine")) / math.pi


@dataclass(frozen=True)
class AngleLaw(Law):
    """The law of random hyperplanes: values differ with the angle in half turns."""

    measure = "cosine similarity"

    @property
    def limits(self) -> tuple[float, float]:
        """-1 and 1."""
        return -1.0, 1.0

    @property
    def background(self) -> float:
        """0. If a model gives unrelated items more, measure it, and pass it to `plan`."""
        return 0.0

    def collision(self, similarity: float) -> float:
        """Return 1 less the angle in half turns."""
        return 1 - self.differing(similarity)

    def differing(self, similarity: float) -> float:
        """Return the angle in half turns."""
        return differing_share(self._check_measure(similarity))

    def estimate(self, distances: npt.NDArray[np.intp], bits: int) -> Reals:
        """Return the cosines for distances of signatures."""
        return np.cos(math.pi * distances / bits)

    def band_collision(self, similarity: float, rows: int, probes: int = 1) -> float:
        """Return the probability that a band agrees with one of several probes."""
        check_whole(probes, 1, MAX_VALUES, "probes")
        if probes == 1:
            return super().band_collision(similarity, rows)
        rows = check_whole(rows, 1, MAX_VALUES, "rows")
        return _hit_probability(self._check_measure(similarity), rows, probes)


def _round_to_batch(count: int) -> int:
    return max(-(-count // _PLANE_BATCH), 1) * _PLANE_BATCH


def _unit_vectors(vectors: Array) -> Reals:
    reals = vectors.astype(np.float64)
    lengths = np.sqrt(np.vecdot(reals, reals))
    units: Reals = reals / np.where(lengths > 0, lengths, 1)[:, None]
    return units


@lru_cache(maxsize=64)
def _sequence(rows: int, count: int) -> Choices:
    """Return the sets of planes to change, by the mean squared distances of the nearest planes."""
    quantiles = [_NORMAL.inv_cdf(0.5 + (place + 0.5) / (2 * rows)) ** 2 for place in range(rows)]
    return probing_sequence(np.array(quantiles)[:, None], count)


@lru_cache(maxsize=1024)
def _hit_probability(cosine: float, rows: int, probes: int) -> float:
    angle = math.acos(cosine)
    if angle == 0:
        return 1.0
    distances = np.sort(normal_quantile((1 + stratified(rows)) / 2), axis=1)
    crossing = normal_cdf(-distances / math.tan(angle))
    return hit_probability(np.stack([1 - crossing, crossing], axis=2), _sequence(rows, probes))
