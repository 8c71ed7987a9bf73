"""Bit sampling: fingerprints of binary vectors that are wider than a fingerprint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.hashing.base import Flags
from fpstore.hashing.draws import draws
from fpstore.hashing.vector_base import Array, Block, VectorFingerprinter, check_bits, check_dimension, check_seed, packed

MOST_BITS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class BitSample(VectorFingerprinter):
    """A sample of the bits of binary vectors: the distance of fingerprints estimates the Hamming distance of the vectors.

    Of vectors that differ in D of `dimension` bits, the fingerprints differ in ``D * width / dimension`` on average over
    seeds. Their distance is hypergeometric: its variance is
    ``width * p * (1 - p) * (dimension - width) / (dimension - 1)`` with ``p = D / dimension``.

    Version 1 is, exactly: position i of a vector has the random word i of the seed (SplitMix64), and bit j of the fingerprint
    is the bit at the position with the j-th smallest word. So the first bits of a wide fingerprint are the narrow one.

    A vector is an array of bool, shape (dimension,), or of integers 0 and 1, or packed: an array of uint8, shape
    (ceil(dimension / 8),), bit 0 the highest of the first byte, as `numpy.packbits` makes them and FAISS takes them. Many are
    rows of such an array, a column of Arrow that holds lists, or an iterable. Every vector has a fingerprint.

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
    P. Indyk and R. Motwani, *Approximate nearest neighbors: towards removing the curse of dimensionality*, STOC 1998,
    section 4.2; here without repetition.

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
    """

    name: ClassVar[str] = "bit-sample"
    version: ClassVar[int] = 1

    dimension: int
    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_bits(self.width))
        object.__setattr__(self, "dimension", check_dimension(self.dimension, self.width, MOST_BITS))
        object.__setattr__(self, "seed", check_seed(self.seed))

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal fingerprinter."""
        return asdict(self)

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
            f"{columns} numbers of type {values.dtype}, binary vectors of {self.dimension} bits have as many of type bool, or "
            f"{self._packed_bytes} of uint8"
        )

    def _hash(self, block: Block) -> tuple[npt.NDArray[np.uint8], Flags]:
        values, places = block.values, _places(self.dimension, self.width, self.seed)
        if values.shape[1] == self.dimension:
            _check_bits(block)
            bits = values[:, places] != 0
        else:
            bits = values[:, places >> 3] & (0x80 >> (places & 7)).astype(np.uint8) != 0
        return packed(bits), np.ones(len(values), np.bool_)


def _check_bits(block: Block) -> None:
    if block.values.dtype.kind == "b":
        return
    wrong = (block.values != 0) & (block.values != 1)
    if wrong.any():
        place, column = map(int, np.argwhere(wrong)[0])
        raise block.refuse(place, f"component {column} is {block.values[place, column]}: bits are 0 or 1")


@lru_cache(maxsize=8)
def _places(dimension: int, width: int, seed: int) -> npt.NDArray[np.int64]:
    return np.argsort(draws(seed, np.arange(dimension, dtype=np.uint64)), kind="stable")[:width].astype(np.int64)
