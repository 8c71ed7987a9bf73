"""What fingerprinters of vectors have in common.

Vectors cut into blocks, and random words that are the same everywhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Flags, Words
from fpstore.base.arguments import check_whole, is_iterable
from fpstore.base.width import Width, check_width
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter, Hashed, batched
from fpstore.io.check import has_masked, unmasked

STEP = np.uint64(0x9E3779B97F4A7C15)  # of the state of SplitMix64
MOST_DIMENSIONS = 1 << 16
_BLOCK_NUMBERS = 1 << 20  # of a block


class Block(Sequence[Any]):
    """Some vectors, as rows of an array, and the position of the first among all."""

    def __init__(self, values: Array, first: int = 0) -> None:
        self.values, self.first = values, first

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        return self.values[place]

    def error_at(self, place: int, reason: str) -> InputError:
        """Return the error for one of the vectors."""
        return InputError(f"vector {self.first + place}: {reason}", got=self.first + place)


@dataclass(frozen=True, kw_only=True)
class VectorFingerprinter(Fingerprinter[Any]):
    """The common part of fingerprinters of vectors."""

    items: ClassVar[str] = "vectors"
    version: ClassVar[int] = 1

    dimension: int
    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        self._check()

    def _check(self, least: int = 1, most: int = MOST_DIMENSIONS) -> None:
        self._keep(width=check_width(self.width).bits)
        self._keep(dimension=check_whole(self.dimension, least, most, "dimension"))
        self._keep(seed=check_whole(self.seed, 0, 2**64 - 1, "seed"))

    def hashed(self, items: Sequence[Any]) -> Hashed:
        """Return the fingerprints of some vectors.

        A block of `batches`, an array of rows, or a list.
        """
        if not len(items):
            return Hashed(Width(self.width).empty(0), np.empty(0, np.bool_))
        if not isinstance(items, Block):
            items = Block(self._checked(items, 0))
        data, known = self._hash(items)
        return Hashed(Width(self.width).from_bytes(data), known)

    def batches(self, items: Iterable[Any]) -> Iterator[Block]:
        """Cut vectors into blocks of about a million numbers."""
        return self.blocks(items, 0)

    def blocks(self, items: Iterable[Any], first: int) -> Iterator[Block]:
        """Cut vectors into blocks; ``first`` is the number of the first vector."""
        if hasattr(items, "to_arrow"):  # a column of Polars
            items = items.to_arrow()
        if type(items).__module__.partition(".")[0] == "pyarrow" and hasattr(items, "null_count"):
            from fpstore.io.arrow import arrays_of_column

            arrays: Iterable[Any] = arrays_of_column(items, self._block_rows)
        elif isinstance(items, np.ndarray):
            items = unmasked(items)
            if items.ndim < 2 and not (items.ndim == 1 and items.dtype.kind == "O"):
                raise InputError(
                    f"fingerprints() takes many vectors, an array of shape (n, {self.dimension}), "
                    f"got shape {items.shape}: "
                    "pass a single vector to fingerprint()",
                    got=items.shape,
                )
            arrays = (
                items[start : start + self._block_rows]
                for start in range(0, len(items), self._block_rows)
            )
        elif is_iterable(items, str, dict):
            arrays = batched(items, lambda _: 1, self._block_rows)
        else:
            raise InputError(
                f"fingerprints() takes an array of shape (n, {self.dimension}), a column of Arrow "
                "or an iterable of vectors, "
                f"got {type(items).__name__} (a file.npy: numpy.load(path, mmap_mode='r'))",
                got=type(items),
            )
        return self._checked_blocks(arrays, first)

    def _checked_blocks(self, arrays: Iterable[Any], first: int) -> Iterator[Block]:
        for array in arrays:
            block = Block(self._checked(array, first), first)
            yield block
            first += len(block)

    def lack(self, item: Any) -> str:
        """Say that a vector has no fingerprint."""
        return (
            f"the vector {show(item)} has no fingerprint: leave it out (is_empty() finds such "
            "vectors)"
        )

    @property
    def _block_rows(self) -> int:
        return max(_BLOCK_NUMBERS // max(self.dimension, self.width), 1)

    @abstractmethod
    def _problem(self, values: Array) -> str:
        """Say why an array of one dimension or two has a type or a number of columns that vectors cannot have, or nothing."""

    @abstractmethod
    def _hash(self, block: Block) -> tuple[npt.NDArray[np.uint8], Flags]:
        """Return the bytes of the fingerprints, shape (n, width / 8), and which vectors have one."""

    def _checked(self, values: Any, first: int) -> Array:
        """Return vectors as an array of two dimensions.

        InputError names the position of the first that is wrong.
        """
        array = _as_array(values)
        if array is not None and array.ndim == 2:
            problem = self._problem(array)
            if not problem:
                return array
            if array is values:
                raise InputError(f"vector {first}: {problem}", got=first)
        for place, vector in enumerate(values):
            one = _as_array(vector)
            if has_masked(vector):
                raise InputError(
                    f"vector {first + place}: it has masked values: leave it out", got=first + place
                )
            problem = (
                "not a vector of numbers" if one is None or one.ndim != 1 else self._problem(one)
            )
            if problem:
                raise InputError(
                    f"vector {first + place}: {problem}; got {show(vector)}", got=first + place
                )
        raise InputError(
            f"vectors {first} to {first + len(values) - 1} have different types: make them one "
            "array",
            got=first,
        )


def packed(bits: Flags) -> npt.NDArray[np.uint8]:
    """Return bits, shape (n, width), as bytes, the first bit the highest."""
    return np.packbits(np.ascontiguousarray(bits).reshape(-1)).reshape(
        len(bits), bits.shape[1] // 8
    )


def _as_array(values: Any) -> Array | None:
    try:
        if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "O":
            values = list(values)  # of arrays, as a column of pandas has them
        if not isinstance(values, np.ndarray) and isinstance(values, Iterable):
            values = [
                unmasked(value) if isinstance(value, np.ndarray) else value for value in values
            ]
        return unmasked(np.asanyarray(values))
    except (ValueError, TypeError, OverflowError):  # of different lengths, or not numbers
        return None


def mix(words: Words) -> Words:
    """Return words whose bits are mixed by the finalizer of SplitMix64; one-to-one."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def draws(seed: int, numbers: Words) -> Words:
    """Return the random words with these numbers, of any shape.

    The same on every platform, for ever.

    Number k of seed s is ``mix(mix(s) + (k + 1) * 0x9E3779B97F4A7C15)`` modulo 2^64: output k + 1
    of the generator of G. Steele, D. Lea and C. Flood, *Fast splittable pseudorandom number
    generators*, OOPSLA 2014, section 5.2, from the state ``mix(s)``. Each number is found by
    itself, so that the weights of a wide fingerprint begin with the weights of a narrow one.
    """
    start = mix(np.array([seed], np.uint64))
    return mix(start + (numbers + np.uint64(1)) * STEP)
