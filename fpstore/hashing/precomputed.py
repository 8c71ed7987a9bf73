"""Sketches that another package has made: minima of hash functions, a row for each document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpstore.base.aliases import Array, Words
from fpstore.base.arguments import check_whole
from fpstore.errors import InputError, show
from fpstore.hashing.base import batched, check_items
from fpstore.hashing.law import JaccardLaw, Reals
from fpstore.hashing.sketcher import MAX_SIGNATURE_BITS, Signed, Sketcher, Values, mixed_bits
from fpstore.hashing.words import mix, packed

_MIN_COUNT, _MAX_COUNT = 8, 1 << 14
_BATCH_NUMBERS = 1 << 20
_EMPTY_SET_MINIMA = (2**32 - 1, 2**64 - 1)


@dataclass(frozen=True, kw_only=True)
class PrecomputedMinHash(Sketcher[Any]):
    """MinHash signatures of other packages, for an index without hashing the texts again.

    An item is an array of `count` least values, uint64 or uint32: `hashvalues` of a `MinHash` of
    datasketch, or the result of `digest` of a MinHash of rensa. Several items are the rows of an
    array. All must come from the same functions. An item whose values are all the largest number,
    2^32 - 1 or 2^64 - 1, is an empty set, and has no content.

    A hash value is 32 bits of the mixed least value. The signature has a bit of each of the last
    values, up to 224 of them. With fewer than 224 values more than the keys take, some values serve
    both. Then pairs that share a key differ in slightly fewer bits, so a plan finds no less than it
    says, and slightly more false candidates are near.

    Parameters
    ----------
    count : int
        Least values of an item, 8 to 16,384. The signature has as many bits, up to 224 and a
        multiple of 8.

    Raises
    ------
    InputError
        The count has the wrong type or is out of range.

    Notes
    -----
    A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997. P. Li, A. C.
    König, *b-Bit minwise hashing*, WWW 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from fpstore.hashing import PrecomputedMinHash
    >>> hasher = PrecomputedMinHash(count=128)
    >>> generator = np.random.default_rng(1)
    >>> minima = generator.integers(0, 2**32, (2, 128), np.uint64)  # of two documents
    >>> hasher.sketches(minima, count=40).shape, hasher.signature_bits
    ((2, 40), 128)
    """

    name: ClassVar[str] = "precomputed-minhash"
    version: ClassVar[int] = 1
    items: ClassVar[str] = "sketches"

    count: int

    def __post_init__(self) -> None:
        self._keep(count=check_whole(self.count, _MIN_COUNT, _MAX_COUNT, "count"))

    @property
    def signature_bits(self) -> int:
        """Bits of a signature."""
        return min(self.count // 8 * 8, MAX_SIGNATURE_BITS)

    @property
    def law(self) -> JaccardLaw:
        """The law of the Jaccard similarity; unrelated texts have 0.02 by three words."""
        return JaccardLaw(0.02)

    @property
    def most_values(self) -> int:
        """The values of an item: `count`."""
        return self.count

    def batches(self, items: Iterable[Any]) -> Iterator[Sequence[Any]]:
        """Cut sketches into arrays of about a million numbers."""
        check_items(items, self.items)
        rows = max(_BATCH_NUMBERS // self.count, 1)
        if isinstance(items, np.ndarray):
            parts: Iterator[Any] = (
                items[start : start + rows] for start in range(0, len(items), rows)
            )
        else:
            parts = batched(items, lambda _: 1, rows)
        return (self._check_rows(part, number * rows) for number, part in enumerate(parts))  # type: ignore[misc]  # an array is no Sequence

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the values of the functions, mixed."""
        minima = self._minima(items)
        return Values(
            mix(minima[:, functions.start : functions.stop]).astype(np.uint32),
            self._is_filled(minima),
        )

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return a bit of each of the last values."""
        minima = self._minima(items)
        return Signed(
            packed(mixed_bits(minima[:, self.count - self.signature_bits :])),
            self._is_filled(minima),
        )

    def similarities(self, item: Any, others: Sequence[Any]) -> Reals:
        """Return the shares of equal values, which estimate Jaccard similarities."""
        (batch,) = self.batches([item])
        minima = self._minima(batch)
        shares = [(self._minima(part) == minima).mean(1) for part in self.batches(others)]
        return np.concatenate([np.empty(0), *shares])

    def _minima(self, items: Any) -> Words:
        rows: Words = (
            items
            if isinstance(items, np.ndarray) and items.dtype == np.uint64
            else self._check_rows(items, 0)
        )
        return rows

    def _is_filled(self, minima: Words) -> Any:
        return ~np.logical_or.reduce([(minima == value).all(1) for value in _EMPTY_SET_MINIMA])

    def _check_rows(self, rows: Any, first: int) -> Words:
        array = _as_array(rows)
        if array is not None and not self._problem(array):
            return array.astype(np.uint64, copy=False)
        for place, row in enumerate(rows):
            array = _as_array([row])
            problem = "no array of whole numbers" if array is None else self._problem(array)
            if problem:
                raise InputError(
                    f"item {first + place}: {problem}; got {show(row)}", got=first + place
                )
        raise InputError(
            f"items {first} to {first + len(rows) - 1} have different types: make them one array",
            got=first,
        )

    def _problem(self, rows: Array) -> str:
        if rows.ndim != 2 or rows.shape[1] != self.count:
            return (
                f"has shape {rows.shape[1:]}, and the hasher is for sketches of {self.count} values"
            )
        if rows.dtype.kind == "u" or (rows.dtype.kind == "i" and (rows >= 0).all()):
            return ""
        return (
            f"has numbers of type {rows.dtype}, least values are whole numbers from 0: uint64 or "
            "uint32"
        )


def _as_array(rows: Any) -> Array | None:
    try:
        return np.asarray(rows)
    except (ValueError, TypeError, OverflowError):
        return None
