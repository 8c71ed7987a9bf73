"""Families of vectors: what they share, and random hyperplanes for the cosine similarity."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from fpstore.base.aliases import Counts
from fpstore.base.threads import cached_property
from fpstore.errors import InputError, show
from fpstore.families.base import MOST_WIDTH, Family, Reals, Signed, Values, check_many
from fpstore.families.probing import (
    changes_of,
    met,
    normal_cdf,
    normal_quantile,
    probing_sequence,
    stratified,
)
from fpstore.hashing.hyperplanes import hyperplanes
from fpstore.hashing.vector_base import Block, VectorFingerprinter, draws, packed
from fpstore.hashing.vectors import HyperplaneHash, share_of_bits

# of a weight, the sum of 64 uniform numbers of 16 bits
DEVIATION = math.sqrt(64 * (2**32 - 1) / 12)
_AT_ONCE = 64  # functions, so that few counts make matrices of their own
_NORMAL = NormalDist()


class VectorFamily(Family[Any]):
    """The common part of families of vectors.

    How vectors are read and checked, by a fingerprinter of such vectors.
    """

    items: ClassVar[str] = "vectors"

    @property
    @abstractmethod
    def reader(self) -> VectorFingerprinter:
        """A fingerprinter that takes such vectors."""

    def batches(self, items: Iterable[Any]) -> Iterator[Block]:
        """Cut vectors into blocks of about a million numbers."""
        check_many(items, self.items)
        if isinstance(items, np.ndarray) and items.ndim < 2 and items.dtype.kind != "O":
            reason = (
                f"expected vectors as the rows of an array, got one of shape {items.shape}: wrap "
                "a single vector in a list"
            )
            raise InputError(reason, got=items.shape)
        return self.reader.batches(items)

    def lack(self, item: Any) -> str:
        """Return the message that a vector has no direction."""
        return self.reader.lack(item)

    def block(self, items: Sequence[Any]) -> Block:
        """Return vectors as a block, if they are none."""
        return items if isinstance(items, Block) else next(self.reader.batches(items))

    def one(self, item: Any) -> Block:
        """Return a single vector as a block."""
        return self.block([item])

    def rows(self, item: Any, others: Sequence[Any]) -> tuple[Any, Any]:
        """Return a vector and others as arrays of a common form."""
        return self.one(item).values, np.concatenate(
            [block.values for block in self.batches(others)]
        )


def derived_seed(seed: int) -> int:
    """Return a seed for functions that are independent of those of this one."""
    return int(draws(seed, np.array([2**63], np.uint64))[0])


@dataclass(frozen=True, kw_only=True)
class RandomHyperplanes(VectorFamily):
    """Random hyperplanes: a hash value is the side of a plane through the origin on which a vector lies.

    Two vectors agree in a value with the probability 1 - θ / π, where θ is the angle between them.
    The values, 0 or 1, are the bits of `fpstore.HyperplaneHash`, exactly and on every platform. The
    signature is that of another seed, so that it is independent. A vector of zeros has no
    direction, and no content.

    Keys of one bit for each value need many rows. With `probes`, a look-up also asks for the keys
    that differ in the planes nearest to the vector, which finds with a tenth of the bands what one
    look-up in each finds.

    Parameters
    ----------
    dimension : int
        Components of a vector, 1 to 65,536.
    seed : int
        0 to 2^64 - 1.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range.

    Notes
    -----
    M. Charikar, *Similarity estimation techniques from rounding algorithms*, STOC 2002, section 3. Probes: Q. Lv, W. Josephson,
    Z. Wang, M. Charikar, K. Li, *Multi-probe LSH*, VLDB 2007, sections 4.4 and 4.5; the recall with probes is a mean over 1,024
    drawn bands, within 0.02.

    Examples
    --------
    >>> from fpstore.families import RandomHyperplanes
    >>> family = RandomHyperplanes(dimension=3)
    >>> family.sketches([[1, 2, 3], [2, 4, 6]], count=8).tolist()
    [[0, 1, 0, 1, 0, 1, 1, 0], [0, 1, 0, 1, 0, 1, 1, 0]]
    >>> round(family.collision(0.9), 3)
    0.856
    """

    name: ClassVar[str] = "hyperplanes"
    version: ClassVar[int] = 1
    measure: ClassVar[str] = "cosine similarity"
    has_probes: ClassVar[bool] = True

    dimension: int
    seed: int = 0

    def __post_init__(self) -> None:
        checked = self.reader
        object.__setattr__(self, "dimension", checked.dimension)
        object.__setattr__(self, "seed", checked.seed)

    @property
    def limits(self) -> tuple[float, float]:
        """-1 and 1."""
        return -1.0, 1.0

    @property
    def background(self) -> float:
        """0: a model may give unrelated texts or pictures more, which should be measured and given to `plan`."""
        return 0.0

    @cached_property
    def reader(self) -> HyperplaneHash:
        """The fingerprinter of which values are bits."""
        return HyperplaneHash(dimension=self.dimension, width=256, seed=self.seed)

    @cached_property
    def _signer(self) -> HyperplaneHash:
        return HyperplaneHash(dimension=self.dimension, width=256, seed=derived_seed(self.seed))

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the sides of some planes."""
        sides, known = self.reader.sides(self.block(items), _rounded(functions.stop))
        return Values(sides[:, functions.start : functions.stop].astype(np.uint32), known)

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the first bits of fingerprints of another seed."""
        sides, known = self._signer.sides(self.block(items), self._signer.width)
        return Signed(packed(sides[:, :MOST_WIDTH]), known)

    def collision(self, similarity: float) -> float:
        """Return 1 less the angle in half turns."""
        return 1 - share_of_bits(self._measured(similarity))

    def differing(self, similarity: float) -> float:
        """Return the angle in half turns."""
        return share_of_bits(self._measured(similarity))

    def estimate(self, distances: Any) -> Reals:
        """Return the cosines that distances of signatures stand for."""
        return np.cos(math.pi * self._distances(distances) / self.width)

    def similarities(self, item: Any, others: Sequence[Any]) -> Reals:
        """Return the cosines of a vector and others, 0 where one is a vector of zeros."""
        check_many(others, self.items)
        if not len(others):
            return np.empty(0)
        one, rest = (_of_length_one(rows.astype(np.float64)) for rows in self.rows(item, others))
        cosines: Reals = np.clip(rest @ one[0], -1.0, 1.0)
        return cosines

    def band_collision(self, similarity: float, rows: int, probes: int = 1) -> float:
        """Return the probability that a band agrees with one of several probes."""
        self._check_bands(1, rows, probes)
        return (
            self.collision(similarity) ** rows
            if probes == 1
            else _met(self._measured(similarity), rows, probes)
        )

    def probes(self, item: Any, bands: int, rows: int, count: int) -> Counts:
        """Return the values of each band, and those with other sides of the nearest planes.

        See `Family.probes`.
        """
        self._check_bands(bands, rows, count)
        block = self.one(item)
        found = self.values(block, range(bands * rows))
        if not found.known.all():
            raise InputError(self.lack(item), got=show(item))
        normals = hyperplanes(self.dimension, _rounded(bands * rows), self.seed).normals[
            : bands * rows
        ]
        sums = np.abs(normals.astype(np.float64) @ block.values[0].astype(np.float64)).reshape(
            bands, rows
        )
        changes = changes_of(_sequence(rows, count), sums, count)
        return found.values.reshape(bands, 1, rows) ^ changes.astype(np.uint32)


def _rounded(count: int) -> int:
    return max(-(-count // _AT_ONCE), 1) * _AT_ONCE


def _of_length_one(vectors: Reals) -> Reals:
    lengths = np.sqrt(np.vecdot(vectors, vectors))
    return vectors / np.where(lengths > 0, lengths, 1)[:, None]


@lru_cache(maxsize=64)
def _sequence(rows: int, count: int) -> Any:
    """Return the sets of planes to change, by the squares of the distances that the nearest planes of a band have on average."""
    quantiles = [_NORMAL.inv_cdf(0.5 + (place + 0.5) / (2 * rows)) ** 2 for place in range(rows)]
    return probing_sequence(np.array(quantiles)[:, None], count)


@lru_cache(maxsize=1024)
def _met(cosine: float, rows: int, probes: int) -> float:
    angle = math.acos(cosine)
    if angle == 0:
        return 1.0
    drawn = np.sort(normal_quantile((1 + stratified(rows)) / 2), axis=1)
    other = normal_cdf(-drawn / math.tan(angle))
    return met(np.stack([1 - other, other], axis=2), _sequence(rows, probes))
