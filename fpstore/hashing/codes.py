"""Hashes of binary vectors and of vectors of small integers: samples of bits, and unary codes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Flags
from fpstore.base.arguments import check_whole
from fpstore.hashing.law import Law, Reals
from fpstore.hashing.sketcher import MAX_SIGNATURE_BITS, Signed, Values
from fpstore.hashing.vector_base import Block, VectorFingerprinter, derive_seed
from fpstore.hashing.words import draws, packed

MAX_BITS = 1 << 20
_MAX_VALUE = 1 << 31
_FRACTION = 32  # bits behind the point
_UNRELATED_BITS = 0.4  # the share of bits that differ in unrelated descriptors


class CodeHash(VectorFingerprinter):
    """The base of hashers whose hash values are bits of a long code of a vector.

    Value i is the bit at the position ``word(i) % code_bits``, where word is SplitMix64 of the
    seed. The signature has the bits at other positions, one in each of 224 equal parts of the code.
    """

    @property
    @abstractmethod
    def code_bits(self) -> int:
        """Bits of the code, in which vectors differ as often as their distance says."""

    @abstractmethod
    def bits(self, block: Block, places: npt.NDArray[np.int64]) -> Flags:
        """Return the bits of the codes of vectors at positions, shape (n, positions)."""

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return bits at random positions."""
        words = draws(self.seed, np.arange(functions.start, functions.stop, dtype=np.uint64))
        places = (words % np.uint64(self.code_bits)).astype(np.int64)
        values = self.bits(self.block(items), places).astype(np.uint32)
        return Values(values, np.ones(len(values), np.bool_))

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return bits at positions of another seed."""
        places = _stratified_places(derive_seed(self.seed), MAX_SIGNATURE_BITS, self.code_bits)
        bits = self.bits(self.block(items), np.array(places, np.int64))
        return Signed(packed(bits), np.ones(len(bits), np.bool_))


@dataclass(frozen=True, kw_only=True)
class BitSample(CodeHash):
    """A sample of the bits of binary vectors.

    The distance of fingerprints estimates the Hamming distance of the vectors.

    If two vectors differ in D of `dimension` bits, their fingerprints differ in ``D * width /
    dimension`` on average over seeds. The distance is hypergeometric: its variance is ``width * p
    * (1 - p) * (dimension - width) / (dimension - 1)`` with ``p = D / dimension``.

    Version 1 is, exactly: position i of a vector has the random word i of the seed (SplitMix64),
    and bit j of the fingerprint is the bit at the position with the j-th smallest word. So the
    first bits of a wide fingerprint are the narrow one.

    A vector is an array of bool, shape (dimension,), or of integers 0 and 1, or packed: an array of
    uint8, shape (ceil(dimension / 8),), bit 0 the highest of the first byte, as `numpy.packbits`
    makes them and FAISS takes them. Many are rows of such an array, a column of Arrow that holds
    lists, or an iterable. Every vector has a fingerprint.

    In an index, for vectors of more than 256 bits or for radii that are too large for a store, a
    hash value is the bit at a random position, with repetition.

    Parameters
    ----------
    dimension : int
        Bits of a vector, from `width` to 2^20.
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
    P. Indyk and R. Motwani, *Approximate nearest neighbors: towards removing the curse of
    dimensionality*, STOC 1998, section 4.2; in a fingerprint without repetition.

    Examples
    --------
    >>> import numpy as np
    >>> from fpstore import BitSample
    >>> vectors = np.random.default_rng(1).random((2, 1024)) < 0.5
    >>> vectors[1] = vectors[0]
    >>> vectors[1, :64] ^= True
    >>> hasher = BitSample(dimension=1024, width=256)
    >>> a, b = hasher.fingerprints(vectors)
    >>> int(np.bitwise_count(a ^ b).sum())  # 64 * 256 / 1024 = 16 on average
    18
    >>> bool((hasher.fingerprints(np.packbits(vectors, axis=1)) == [a, b]).all())
    True
    >>> hasher.law.collision(64), hasher.law.measure
    (0.9375, 'Hamming distance')
    """

    name: ClassVar[str] = "bit-sample"

    def __post_init__(self) -> None:
        self._check(least=self.width, most=MAX_BITS)

    @property
    def law(self) -> BitLaw:
        """The law of the Hamming distance."""
        return BitLaw("Hamming distance", self.code_bits, _UNRELATED_BITS * self.dimension)

    @property
    def code_bits(self) -> int:
        """Bits of a vector."""
        return self.dimension

    @property
    def _packed_bytes(self) -> int:
        return -(-self.dimension // 8)

    def _problem(self, values: Array) -> str:
        columns, kind = values.shape[-1], values.dtype.kind
        if columns == self.dimension and kind in "biu":
            return ""
        if columns == self._packed_bytes and values.dtype == np.uint8:
            return ""
        return (
            f"{columns} numbers of type {values.dtype}, binary vectors of {self.dimension} bits "
            "have as many of type bool, or "
            f"{self._packed_bytes} of uint8"
        )

    def _hash(self, block: Block) -> tuple[npt.NDArray[np.uint8], Flags]:
        bits = self.bits(block, _sample_places(self.dimension, self.width, self.seed))
        return packed(bits), np.ones(len(bits), np.bool_)

    def bits(self, block: Block, places: npt.NDArray[np.int64]) -> Flags:
        """Return the bits of vectors at positions, shape (n, positions).

        InputError for a component that is no bit.
        """
        values = block.values
        if values.shape[1] != self.dimension:
            bits: Flags = values[:, places >> 3] & (0x80 >> (places & 7)).astype(np.uint8) != 0
            return bits
        if values.dtype.kind != "b" and (wrong := (values != 0) & (values != 1)).any():
            place, column = map(int, np.argwhere(wrong)[0])
            raise block.error_at(
                place, f"component {column} is {values[place, column]}: bits are 0 or 1"
            )
        nonzero: Flags = values[:, places] != 0
        return nonzero

    def _measures(self, vector: Array, others: Array) -> Reals:
        differing = np.bitwise_count(self._pack(vector[None]) ^ self._pack(others)).sum(1)
        distances: Reals = differing.astype(np.float64)
        return distances

    def _pack(self, rows: Array) -> Array:
        if rows.shape[1] == self.dimension:
            return np.packbits(rows != 0, axis=1)
        rows = rows.copy()
        if self.dimension % 8:
            # the last byte has bits behind the vector
            rows[:, -1] &= np.uint8(0xFF << (8 - self.dimension % 8) & 0xFF)
        return rows


@lru_cache(maxsize=8)
def _sample_places(dimension: int, width: int, seed: int) -> npt.NDArray[np.int64]:
    words = draws(seed, np.arange(dimension, dtype=np.uint64))
    return np.argsort(words, kind="stable")[:width].astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Unary(CodeHash):
    """Unary codes of vectors of bounded integers.

    The distance of fingerprints is, or estimates, the Manhattan distance.

    The unary code of a component x has ``high - low`` bits, the first ``x - low`` of them 1. So the
    codes of two vectors, of ``N = dimension * (high - low)`` bits, differ in as many bits as their
    Manhattan distance says.

    - If N is at most `width`, the fingerprint is this code, and distances are equal.
    - Otherwise it is a sample of the code, one bit of each of `width` equal parts. The distance H
      of fingerprints estimates the Manhattan distance L: on average over seeds, H is ``L * width /
      N``; and for every seed, the two differ by less than 2 for each component in which the vectors
      differ.

    Version 1 is, exactly: the components follow one another in the code, without gaps. With N
    greater than `width`, bit j of the fingerprint is the bit ``(j * 2^32 + u) * N // (width *
    2^32)`` of the code, where u is the upper half of the random word j of the seed (SplitMix64).
    With a smaller N, bit j is bit j, and the other bits are 0.

    Vectors are rows of an array of integers, lists, or a column of Arrow that holds lists. Every
    vector has a fingerprint. Round real numbers to a grid first, such as ``np.rint(x *
    100).astype(int)``: that changes each component by at most half a step.

    In an index, a hash value is a random bit of the code, which says whether a component exceeds a
    number. Two vectors agree in a value with the probability 1 - L / N.

    Parameters
    ----------
    dimension : int
        Components of a vector, 1 to 65,536.
    low, high : int
        The least and the greatest value of a component, within 2^31 of 0; low < high.
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
    A. Gionis, P. Indyk and R. Motwani, *Similarity search in high dimensions via hashing*, VLDB
    1999, section 3.2.

    Examples
    --------
    >>> from fpstore import Unary
    >>> hasher = Unary(dimension=4, low=0, high=16)
    >>> a, b = hasher.fingerprints([[3, 0, 16, 8], [5, 0, 15, 8]]).tolist()
    >>> (a ^ b).bit_count()  # 2 + 0 + 1 + 0
    3
    >>> hasher.law.measure, hasher.law.collision(3)
    ('L1 distance', 0.953125)
    """

    name: ClassVar[str] = "unary"

    low: int
    high: int

    def __post_init__(self) -> None:
        self._check()
        self._keep(low=check_whole(self.low, -_MAX_VALUE, _MAX_VALUE - 1, "low"))
        self._keep(high=check_whole(self.high, self.low + 1, _MAX_VALUE, "high"))

    @property
    def law(self) -> BitLaw:
        """The law of the L1 distance. Vectors of uniform numbers differ in a third of the bits."""
        return BitLaw("L1 distance", self.code_bits, self.code_bits / 3)

    @property
    def code_bits(self) -> int:
        """Bits of the unary code of a vector."""
        return self.dimension * (self.high - self.low)

    def _problem(self, values: Array) -> str:
        if values.dtype.kind not in "iu":
            return (
                f"numbers of type {values.dtype}, unary codes are of integers: round them to a "
                "grid first"
            )
        if values.shape[-1] != self.dimension:
            return (
                f"has {values.shape[-1]} components, and the fingerprinter is for {self.dimension}"
            )
        return ""

    def _hash(self, block: Block) -> tuple[npt.NDArray[np.uint8], Flags]:
        columns, steps = _thresholds(self)
        bits = np.zeros((len(block), self.width), np.bool_)
        bits[:, : len(columns)] = self.exceed(block, columns, steps)
        return packed(bits), np.ones(len(bits), np.bool_)

    def bits(self, block: Block, places: npt.NDArray[np.int64]) -> Flags:
        """Return the bits of the codes of vectors at positions, shape (n, positions)."""
        columns, steps = np.divmod(places, self.high - self.low)
        return self.exceed(block, columns, steps + self.low)

    def _measures(self, vector: Array, others: Array) -> Reals:
        differences = others.astype(np.float64) - vector.astype(np.float64)
        distances: Reals = np.abs(differences).sum(1)
        return distances

    def exceed(
        self, block: Block, columns: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]
    ) -> Flags:
        """Return whether components of vectors exceed numbers, shape (n, columns).

        InputError for a component that is out of range.
        """
        values = block.values
        if len(values) and (values.min() < self.low or values.max() > self.high):
            place, column = map(int, np.argwhere((values < self.low) | (values > self.high))[0])
            reason = (
                f"component {column} is {values[place, column]}, out of the range from {self.low} "
                f"to {self.high}"
            )
            raise block.error_at(place, reason)
        exceeded: Flags = values[:, columns].astype(np.int64) > steps
        return exceeded


@lru_cache(maxsize=8)
def _thresholds(unary: Unary) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the component of each used bit, and the value that the component must exceed."""
    steps_per_column, width, code = unary.high - unary.low, unary.width, unary.code_bits
    places = _stratified_places(unary.seed, width, code) if code > width else list(range(code))
    columns, steps = zip(*(divmod(place, steps_per_column) for place in places), strict=True)
    return np.array(columns, np.int64), np.array(steps, np.int64) + unary.low


def _stratified_places(seed: int, parts: int, code: int) -> list[int]:
    """Return random positions in a code, one in each of its equal parts."""
    offsets = draws(seed, np.arange(parts, dtype=np.uint64)) >> np.uint64(64 - _FRACTION)
    return [
        ((part << _FRACTION) + offset) * code // (parts << _FRACTION)
        for part, offset in enumerate(offsets.tolist())
    ]


@dataclass(frozen=True)
class BitLaw(Law):
    """The law of random bits of a code: values differ with the share of the bits that differ.

    Parameters
    ----------
    measure : str
        The distance, which is the number of bits of the code that differ.
    code_bits : int
        Bits of the code.
    unrelated : float
        The distance of unrelated vectors.
    """

    is_distance: ClassVar[bool] = True

    measure: str
    code_bits: int
    unrelated: float

    @property
    def limits(self) -> tuple[float, float]:
        """0 and the number of bits of a code."""
        return 0.0, float(self.code_bits)

    @property
    def background(self) -> float:
        """The distance of unrelated vectors."""
        return self.unrelated

    def collision(self, similarity: float) -> float:
        """Return the share of the bits that do not differ."""
        return 1 - self.differing(similarity)

    def differing(self, similarity: float) -> float:
        """Return the share of the bits that differ."""
        return self._check_measure(similarity) / self.code_bits

    def estimate(self, distances: npt.NDArray[np.intp], bits: int) -> Reals:
        """Return the distances of vectors for distances of signatures."""
        return distances.astype(np.float64) * (self.code_bits / bits)
