"""The base of hashers of vectors: vectors are checked and cut into blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Flags
from fpstore.base.arguments import check_whole, is_iterable
from fpstore.base.width import WIDTHS, Width, check_width
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter, Hashed, batched, check_items
from fpstore.hashing.law import Reals
from fpstore.hashing.sketcher import Sketcher
from fpstore.hashing.words import draws
from fpstore.io.check import has_masked_values, refuse_masked_values

MAX_DIMENSIONS = 1 << 16
_BLOCK_NUMBERS = 1 << 20  # of a block


class Block(Sequence[Any]):
    """Vectors as rows of an array, and the position of the first among all vectors."""

    def __init__(self, values: Array, first: int = 0) -> None:
        self.values, self.first = values, first

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        return self.values[place]

    def error_at(self, place: int, reason: str) -> InputError:
        """Return the error for the vector at ``place`` in the block."""
        return InputError(f"vector {self.first + place}: {reason}", got=self.first + place)


class VectorHasher(Sketcher[Any]):
    """The base of hashers of vectors: how vectors are checked and cut into blocks."""

    items: ClassVar[str] = "vectors"
    version: ClassVar[int] = 1

    dimension: int
    seed: int

    def _check_parameters(self, least: int = 1, most: int = MAX_DIMENSIONS) -> None:
        self._keep(dimension=check_whole(self.dimension, least, most, "dimension"))
        self._keep(seed=check_whole(self.seed, 0, 2**64 - 1, "seed"))

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
            items = refuse_masked_values(items)
            if items.ndim < 2 and not (items.ndim == 1 and items.dtype.kind == "O"):
                raise InputError(
                    "expected vectors as the rows of an array of shape "
                    f"(n, {self.dimension}), got one of shape {items.shape}: wrap a single vector "
                    "in a list",
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
                f"expected an iterable of vectors, such as an array of shape (n, {self.dimension}) "
                "or a column of Arrow, "
                f"got {type(items).__name__} (a file.npy: numpy.load(path, mmap_mode='r'))",
                got=type(items),
            )
        return self._check_blocks(arrays, first)

    def _check_blocks(self, arrays: Iterable[Any], first: int) -> Iterator[Block]:
        for array in arrays:
            block = Block(self._checked(array, first), first)
            yield block
            first += len(block)

    def empty_message(self, item: Any) -> str:
        """Return the message that a vector has no fingerprint."""
        return (
            f"the vector {show(item)} has no fingerprint: leave it out (is_empty() finds such "
            "vectors)"
        )

    def block(self, items: Sequence[Any]) -> Block:
        """Return vectors as a block."""
        return items if isinstance(items, Block) else Block(self._checked(items, 0))

    def similarities(self, item: Any, others: Sequence[Any]) -> Reals:
        """Return the similarities, or distances, of a vector and others."""
        check_items(others, self.items)
        if not len(others):
            return np.empty(0)
        (vector,) = self.block([item]).values
        return self._measures(
            vector, np.concatenate([block.values for block in self.batches(others)])
        )

    @property
    def _block_rows(self) -> int:
        return max(_BLOCK_NUMBERS // max(self.dimension, WIDTHS[-1]), 1)

    @abstractmethod
    def _problem(self, values: Array) -> str:
        """Return why an array has no vectors of the dimension and the type, or an empty str."""

    @abstractmethod
    def _measures(self, vector: Array, others: Array) -> Reals:
        """Return the measure of a vector, shape (dimension,), and others, shape (n, dimension)."""

    def _checked(self, values: Any, first: int) -> Array:
        """Return vectors as an array of two dimensions.

        InputError has the position of the first wrong vector.
        """
        array = _as_array(values)
        if array is not None and array.ndim == 2:
            problem = self._problem(array)
            if not problem:
                return array
            if array is values:
                raise InputError(f"vector {first}: {problem}", got=first)
        for place, vector in enumerate(values):
            array = _as_array(vector)
            if has_masked_values(vector):
                raise InputError(
                    f"vector {first + place}: it has masked values: leave it out", got=first + place
                )
            if array is None or array.ndim != 1:
                problem = "not a vector of numbers"
            else:
                problem = self._problem(array)
            if problem:
                raise InputError(
                    f"vector {first + place}: {problem}; got {show(vector)}", got=first + place
                )
        raise InputError(
            f"vectors {first} to {first + len(values) - 1} have different types: make them one "
            "array",
            got=first,
        )


@dataclass(frozen=True, kw_only=True)
class VectorFingerprinter(VectorHasher, Fingerprinter[Any]):
    """The base of fingerprinters of vectors."""

    items: ClassVar[str] = "vectors"

    dimension: int
    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        self._check()

    def _check(self, least: int = 1, most: int = MAX_DIMENSIONS) -> None:
        self._keep(width=check_width(self.width).bits)
        self._check_parameters(least, most)

    def hashed(self, items: Sequence[Any]) -> Hashed:
        """Return the fingerprints of vectors: a block of `batches`, an array of rows, or a list."""
        if not len(items):
            return Hashed(Width(self.width).empty(0), np.empty(0, np.bool_))
        data, known = self._hash(self.block(items))
        return Hashed(Width(self.width).from_bytes(data), known)

    @abstractmethod
    def _hash(self, block: Block) -> tuple[npt.NDArray[np.uint8], Flags]:
        """Return the bytes of fingerprints, shape (n, width / 8), and which vectors have them."""


def _as_array(values: Any) -> Array | None:
    try:
        if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "O":
            values = list(values)  # of arrays, as a column of pandas has them
        if not isinstance(values, np.ndarray) and isinstance(values, Iterable):
            values = [
                refuse_masked_values(value) if isinstance(value, np.ndarray) else value
                for value in values
            ]
        return refuse_masked_values(np.asanyarray(values))
    except (ValueError, TypeError, OverflowError):  # of different lengths, or not numbers
        return None


def derive_seed(seed: int) -> int:
    """Return a seed for functions that are independent of the functions of this seed."""
    return int(draws(seed, np.array([2**63], np.uint64))[0])
