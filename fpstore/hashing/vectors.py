"""Hyperplane hashing: fingerprints of vectors whose distance estimates the angle between the vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Flags
from fpstore.base.arguments import check_number, check_whole
from fpstore.hashing.binomial import binomial_cdf, least_radius
from fpstore.hashing.hyperplanes import hyperplanes
from fpstore.hashing.vector_base import Block, VectorFingerprinter, packed

_SMALL = 1e-20  # a vector whose squared length in float32 is less may have lost it to underflow


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
    components other than 0 the probability differs from θ / π by less than 0.0003, for those with
    more by less. Weights of 1 and -1 would not do: the vectors (1, 0, 0, ...) and (2, 1, 0, ...),
    which are 27 degrees apart, would never differ.

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
    """

    name: ClassVar[str] = "hyperplane"

    def lack(self, item: Any) -> str:
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
        return binomial_cdf(radius, self.width, share_of_bits(cosine))

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
        return least_radius(recall, self.width, share_of_bits(cosine))

    def _problem(self, values: Array) -> str:
        kind, size = values.dtype.kind, values.dtype.itemsize
        if not (kind in "iu" or (kind == "f" and size <= 8)):
            return (
                f"numbers of type {values.dtype}, vectors have float16, float32, float64 or "
                "integers"
            )
        if values.shape[-1] != self.dimension:
            return (
                f"has {values.shape[-1]} components, and the fingerprinter is for {self.dimension}"
            )
        return ""

    def _hash(self, block: Block) -> tuple[npt.NDArray[np.uint8], Flags]:
        sides, known = self.sides(block, self.width)
        return packed(sides), known

    def sides(self, block: Block, planes: int) -> tuple[Flags, Flags]:
        """Return on which sides of the first hyperplanes vectors lie, shape (n, planes), and which vectors have a direction."""
        kind, size = block.values.dtype.kind, block.values.dtype.itemsize
        short = size <= (4 if kind == "f" else 2)  # float32 holds all of them
        values = np.ascontiguousarray(block.values, np.float32 if short else np.float64)
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


def share_of_bits(cosine: object) -> float:
    """Return the probability that a bit differs, which is the angle in half turns.

    InputError if the value is no cosine.
    """
    return math.acos(check_number(cosine, -1, 1, "cosine")) / math.pi
