"""The items that a caller passes to an index, as rows and keys without document numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arguments import is_iterable
from fpstore.base.strings import StringColumn
from fpstore.base.width import WORD_BITS
from fpstore.errors import InputError
from fpstore.hashing.bands import MinHashSketcher
from fpstore.hashing.base import Hashed, check_items
from fpstore.hashing.readers import HashingReader
from fpstore.hashing.registry import check_sketcher
from fpstore.hashing.sketcher import Sketched, Sketcher
from fpstore.hashing.wrapper import Wrapper
from fpstore.io.check import check_ids
from fpstore.lsh.keys import DOCUMENT_WIDTH, band_keys, document_rows

PIECE_BYTES = 1 << 23  # of rows with keys that are made, written or read at once


@dataclass(frozen=True)
class Items:
    """Items: rows of document number 0 with their signatures, and the keys of each.

    ``keys`` are those of its bands, shape (n, bands), and ``probe_keys`` those that a probe looks
    up, of which an item may have more.
    """

    rows: Words
    keys: Words
    probe_keys: Words

    @classmethod
    def from_sketches(cls, sketched: Sketched, bands: tuple[int, int]) -> Items:
        """Return the items of a batch of sketches that are not empty."""
        filled = sketched.known
        signatures = sketched.signatures[filled]
        keys = band_keys(sketched.sketches[filled], *bands)
        return cls(document_rows(np.zeros(len(signatures), np.uint64), signatures), keys, keys)

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def none(cls, bands: int) -> Items:
        """Return no items."""
        keys = np.empty((0, bands), np.uint64)
        return cls(np.empty((0, DOCUMENT_WIDTH.words), np.uint64), keys, keys)

    @classmethod
    def concatenate(cls, parts: Sequence[Items]) -> Items:
        """Return the items of several batches, in order."""
        columns = zip(*((part.rows, part.keys, part.probe_keys) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def take(self, places: slice | npt.NDArray[np.intp]) -> Items:
        return Items(self.rows[places], self.keys[places], self.probe_keys[places])


@dataclass(frozen=True)
class ItemBatch:
    """Items that are not empty, and their ids."""

    items: Items
    ids: Words | list[str] | StringColumn

    @classmethod
    def from_rows(cls, rows: Words, ids: Any) -> ItemBatch:
        """Copy the items of rows that have their keys behind them."""
        keys = rows[:, DOCUMENT_WIDTH.words :]
        return cls(Items(rows[:, : DOCUMENT_WIDTH.words].copy(), keys, keys), ids)


class ItemSource:
    """Items with ids, in pieces. Without ids, an item's id is its place.

    ``bands`` are their number and the values of each.
    """

    def __init__(
        self,
        items: Iterable[Any],
        ids: Any,
        hasher: Sketcher[Any],
        bands: tuple[int, int],
        threads: int,
    ) -> None:
        self._items, self._ids, self._hasher = items, ids, hasher
        self._bands, self._threads = bands, threads
        self.row_numbers = ids is None
        self.next_row = 0  # items so far, with empty ones

    def __iter__(self) -> Iterator[ItemBatch]:
        ids_left = None if self._ids is None else _iterate_ids(self._ids)
        number, rows = self._bands
        for sketched in self._hasher.sketched(self._items, number * rows, self._threads):
            first, count = self.next_row, len(sketched.known)
            ids = (
                np.arange(first, first + count, dtype=np.uint64)
                if ids_left is None
                else _take_ids(ids_left, count, first)
            )
            self.next_row += count
            places = np.flatnonzero(sketched.known)
            yield ItemBatch(Items.from_sketches(sketched, self._bands), ids_at_places(ids, places))
        if ids_left is not None and next(ids_left, None) is not None:
            raise InputError(f"there are more ids than items ({self.next_row})")


class TextSource:
    """The texts of a reader, with the ids that it has, in pieces.

    Rows and keys are made by its threads, as it reads.
    """

    def __init__(
        self, reader: HashingReader, hasher: Sketcher[Any], bands: tuple[int, int]
    ) -> None:
        self._reader = reader.with_hashing(
            partial(rows_with_keys, hasher, bands), piece_rows(bands[0])
        )
        self.row_numbers = reader.row_numbers

    @property
    def next_row(self) -> int:
        """The number of the row after those read so far, with those that are left out."""
        return self._reader.next_row

    def __iter__(self) -> Iterator[ItemBatch]:
        for batch in self._reader.columns():
            if len(batch.fingerprints):
                assert batch.ids is not None
                yield ItemBatch.from_rows(batch.fingerprints, batch.ids)


def piece_rows(bands: int) -> int:
    """Return how many rows with their keys take :data:`PIECE_BYTES`."""
    return PIECE_BYTES // (WORD_BITS // 8 * (DOCUMENT_WIDTH.words + bands))


def rows_with_keys(hasher: Sketcher[Any], bands: tuple[int, int], texts: Sequence[Any]) -> Hashed:
    """Return the rows of texts, each with its keys behind it."""
    number, band_rows = bands
    # A MinHash takes texts as readers yield them: a tuple for several columns.
    batches = [texts] if isinstance(hasher, MinHashSketcher) else hasher.batches(texts)
    sketches = [hasher.sketch_batch(batch, number * band_rows) for batch in batches]
    filled = np.concatenate([sketched.known for sketched in sketches])
    rows = np.zeros((len(filled), DOCUMENT_WIDTH.words + number), np.uint64)
    items = [Items.from_sketches(sketched, bands) for sketched in sketches]
    rows[filled] = np.concatenate([np.hstack((batch.rows, batch.keys)) for batch in items])
    whole_pages = [batch.whole_pages for batch in sketches if batch.whole_pages is not None]
    return Hashed(rows, filled, np.concatenate(whole_pages) if whole_pages else None)


def choose_hasher(hasher: Any, items: Any) -> Sketcher[Any]:
    """Return the hasher of an index; by default the MinHash of the reader."""
    if not isinstance(items, HashingReader):
        own = check_sketcher(hasher)
        check_items(items, own.items)
        return own
    fingerprinter = items.fingerprinter
    if fingerprinter.items not in ("texts", "rows"):
        raise InputError(
            "an index is built of a reader of texts, TextReader or DocumentReader, got "
            f"{type(items).__name__}"
        )
    if hasher is None:
        return check_sketcher(fingerprinter)
    if isinstance(fingerprinter, Wrapper) and hasher != fingerprinter:
        raise InputError(
            f"the reader makes its texts ready by {fingerprinter.name}: leave hasher out, "
            "which is then that of the reader"
        )
    return check_sketcher(hasher)


def ids_at_places(ids: Any, places: Any) -> Any:
    return [ids[place] for place in places.tolist()] if isinstance(ids, list) else ids[places]


def _iterate_ids(ids: Any) -> Iterator[Any]:
    if not is_iterable(ids, str):
        raise InputError(f"ids must be one for each item, got {type(ids).__name__}", argument="ids")
    return iter(
        ids.tolist()
        if hasattr(ids, "tolist")
        else ids.to_pylist()
        if hasattr(ids, "to_pylist")
        else ids
    )


def _take_ids(ids_left: Iterator[Any], count: int, before: int) -> Words | list[str]:
    ids = list(islice(ids_left, count))
    if len(ids) < count:
        raise InputError(f"there are fewer ids ({before + len(ids)}) than items")
    return check_ids(ids, count)
