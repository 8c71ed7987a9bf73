"""Samples of bits: for Hamming distances beyond 256 bits, and of unary codes for L1 distances of integers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Flags, Words
from fpstore.base.arguments import check_whole
from fpstore.base.threads import cached_property
from fpstore.families.base import MOST_WIDTH, Reals, Signed, Values, check_many
from fpstore.families.vectors import VectorFamily, derived_seed
from fpstore.hashing.codes import MOST_BITS, BitSample, Unary
from fpstore.hashing.vector_base import Block, draws, packed

_LEAST_BITS = 256
_BACKGROUND_SHARE = 0.4  # of the bits in which unrelated descriptors differ, which are not all even


class BitFamily(VectorFamily):
    """The common part of families whose hash values are bits of a long code, each at a random position of its own."""

    is_distance: ClassVar[bool] = True

    seed: int

    @property
    @abstractmethod
    def code_bits(self) -> int:
        """Bits of the code, in which vectors differ as often as their distance says."""

    @abstractmethod
    def bits(self, block: Block, places: npt.NDArray[np.int64]) -> Flags:
        """Return the bits of the codes of vectors at some positions, shape (n, positions)."""

    @property
    def limits(self) -> tuple[float, float]:
        """0 and the number of bits of a code."""
        return 0.0, float(self.code_bits)

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return bits at some positions."""
        numbers = np.arange(functions.start, functions.stop, dtype=np.uint64)
        return Values(
            self._at(items, draws(self.seed, numbers)).astype(np.uint32),
            np.ones(len(items), np.bool_),
        )

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return bits at other positions: one in each of 224 equal parts of the code."""
        parts = np.arange(MOST_WIDTH, dtype=np.uint64)
        inside = draws(derived_seed(self.seed), parts) >> np.uint64(32)
        places = [
            ((int(part) << 32) + drawn) * self.code_bits // (MOST_WIDTH << 32)
            for part, drawn in enumerate(inside.tolist())
        ]
        return Signed(
            packed(self.bits(self.block(items), np.array(places, np.int64))),
            np.ones(len(items), np.bool_),
        )

    def collision(self, similarity: float) -> float:
        """Return the share of the bits that do not differ."""
        return 1 - self._measured(similarity) / self.code_bits

    def differing(self, similarity: float) -> float:
        """Return the share of the bits that differ."""
        return self._measured(similarity) / self.code_bits

    def estimate(self, distances: Any) -> Reals:
        """Return the distances that distances of signatures stand for."""
        return self._distances(distances).astype(np.float64) * (self.code_bits / self.width)

    def _at(self, items: Sequence[Any], words: Words) -> Flags:
        return self.bits(self.block(items), (words % np.uint64(self.code_bits)).astype(np.int64))


@dataclass(frozen=True, kw_only=True)
class BitSampling(BitFamily):
    """Bit sampling: a hash value is the bit of a binary vector at a random position.

    For binary vectors of more than 256 bits, such as the descriptors of pictures that BRISK makes
    (512 bits), or for 256 bits (ORB) where the radius is too large for a store. Vectors are taken
    as `fpstore.BitSample` takes them: packed in uint8, or as bool. Value i is the bit at the
    position ``word(i) % dimension``, where word is SplitMix64 of the seed.

    Parameters
    ----------
    dimension : int
        Bits of a vector, 256 to 2^20.
    seed : int
        0 to 2^64 - 1.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range.

    Notes
    -----
    P. Indyk and R. Motwani, *Approximate nearest neighbors: towards removing the curse of dimensionality*, STOC 1998, section
    4.2.

    Examples
    --------
    >>> from fpstore.families import BitSampling
    >>> family = BitSampling(dimension=512)
    >>> family.collision(64), family.measure
    (0.875, 'Hamming distance')
    """

    name: ClassVar[str] = "bit-sampling"
    version: ClassVar[int] = 1
    measure: ClassVar[str] = "Hamming distance"

    dimension: int
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "dimension", check_whole(self.dimension, _LEAST_BITS, MOST_BITS, "dimension")
        )
        object.__setattr__(self, "seed", self.reader.seed)

    @property
    def background(self) -> float:
        """Four tenths of the bits."""
        return _BACKGROUND_SHARE * self.dimension

    @property
    def code_bits(self) -> int:
        """Bits of a vector."""
        return self.dimension

    @cached_property
    def reader(self) -> BitSample:
        """A fingerprinter that takes the same vectors."""
        return BitSample(dimension=self.dimension, seed=self.seed)

    def bits(self, block: Block, places: npt.NDArray[np.int64]) -> Flags:
        """Return the bits of vectors at some positions."""
        return self.reader.bits(block, places)

    def similarities(self, item: Any, others: Sequence[Any]) -> Reals:
        """Return the Hamming distances of a vector and others."""
        check_many(others, self.items)
        if not len(others):
            return np.empty(0)
        one, rest = (self._packed(rows) for rows in self.rows(item, others))
        distances: Reals = np.bitwise_count(one ^ rest).sum(1).astype(np.float64)
        return distances

    def _packed(self, rows: Array) -> Array:
        if rows.shape[1] == self.dimension:
            return np.packbits(rows != 0, axis=1)
        rows = rows.copy()
        if self.dimension % 8:
            # the bits behind the last are no bits of the vector
            rows[:, -1] &= np.uint8(0xFF << (8 - self.dimension % 8) & 0xFF)
        return rows


@dataclass(frozen=True, kw_only=True)
class UnarySampling(BitFamily):
    """Samples of unary codes.

    A hash value says whether a component of a vector of integers exceeds a number.

    The component and the number are those of a random bit of the unary code of the vector, as
    `fpstore.Unary` has it. Two vectors agree in a value with the probability 1 - L / N, where L is
    their L1 distance, and N = dimension * (high - low) the number of bits of a code. Value i is the
    bit ``word(i) % N``, where word is SplitMix64 of the seed.

    Parameters
    ----------
    dimension : int
        Components of a vector, 1 to 65,536.
    low, high : int
        The least and the greatest value of a component, within 2^31 of 0; low < high.
    seed : int
        0 to 2^64 - 1.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range.

    Notes
    -----
    A. Gionis, P. Indyk, R. Motwani, *Similarity search in high dimensions via hashing*, VLDB 1999, section 3.2.

    Examples
    --------
    >>> from fpstore.families import UnarySampling
    >>> family = UnarySampling(dimension=4, low=0, high=16)
    >>> family.similarities([3, 0, 16, 8], [[5, 0, 15, 8]]).tolist(), family.collision(3)
    ([3.0], 0.953125)
    """

    name: ClassVar[str] = "unary-sampling"
    version: ClassVar[int] = 1
    measure: ClassVar[str] = "L1 distance"

    dimension: int
    low: int
    high: int
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in self.reader.parameters.items():
            if name != "width":
                object.__setattr__(self, name, value)

    @property
    def background(self) -> float:
        """A third of the bits of a code, in which vectors of uniform numbers differ."""
        return self.code_bits / 3

    @property
    def code_bits(self) -> int:
        """Bits of the unary code of a vector."""
        return self.dimension * (self.high - self.low)

    @cached_property
    def reader(self) -> Unary:
        """A fingerprinter that takes the same vectors."""
        return Unary(dimension=self.dimension, low=self.low, high=self.high, seed=self.seed)

    def bits(self, block: Block, places: npt.NDArray[np.int64]) -> Flags:
        """Return the bits of the codes of vectors at some positions."""
        columns, steps = np.divmod(places, self.high - self.low)
        return self.reader.exceed(block, columns, steps + self.low)

    def similarities(self, item: Any, others: Sequence[Any]) -> Reals:
        """Return the L1 distances of a vector and others."""
        check_many(others, self.items)
        if not len(others):
            return np.empty(0)
        one, rest = (rows.astype(np.float64) for rows in self.rows(item, others))
        distances: Reals = np.abs(rest - one).sum(1)
        return distances


def family_of(hasher: BitSample | Unary) -> BitFamily:
    """Return the family whose values are bits of the same codes."""
    if isinstance(hasher, BitSample):
        return BitSampling(dimension=hasher.dimension, seed=hasher.seed)
    return UnarySampling(
        dimension=hasher.dimension, low=hasher.low, high=hasher.high, seed=hasher.seed
    )
