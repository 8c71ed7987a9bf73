"""What a caller gives to an index.

Items with their ids, or a reader of texts, as rows and keys without numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import is_iterable
from fpstore.base.strings import StringColumn
from fpstore.base.width import WORD_BITS
from fpstore.errors import InputError
from fpstore.hashing.bands import MinHashSketcher
from fpstore.hashing.base import Hashed, check_items
from fpstore.hashing.readers import HashingReader
from fpstore.hashing.registry import sketcher
from fpstore.hashing.sketcher import Sketched, Sketcher
from fpstore.hashing.wrapper import Wrapper
from fpstore.io.check import check_ids
from fpstore.lsh.answers import Asked
from fpstore.lsh.keys import DOCUMENT_WIDTH, band_keys, document_rows

PIECE_BYTES = 1 << 23  # of rows with keys that are made, written or read at once


class Given(NamedTuple):
    """Some items that are not empty, and their ids."""

    asked: Asked
    ids: Words | list[str] | StringColumn


def asked_of(sketched: Sketched, bands: tuple[int, int]) -> Asked:
    """Return the rows and the keys of the items that are not empty."""
    known = sketched.known
    signatures = sketched.signatures[known]
    keys = band_keys(sketched.sketches[known], *bands)
    return Asked(document_rows(np.zeros(len(signatures), np.uint64), signatures), keys, keys)


class GivenItems:
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
        self._items, self._ids, self._hasher, self._bands, self._threads = (
            items,
            ids,
            hasher,
            bands,
            threads,
        )
        self.row_numbers = ids is None
        self.next_row = 0  # items so far, with empty ones

    def __iter__(self) -> Iterator[Given]:
        left, (number, rows) = None if self._ids is None else _ids_in_order(self._ids), self._bands
        for sketched in self._hasher.sketched(self._items, number * rows, self._threads):
            first, count = self.next_row, len(sketched.known)
            ids = (
                np.arange(first, first + count, dtype=np.uint64)
                if left is None
                else _taken_ids(left, count, first)
            )
            self.next_row += count
            yield Given(
                asked_of(sketched, self._bands), at_places(ids, np.flatnonzero(sketched.known))
            )
        if left is not None and next(left, None) is not None:
            raise InputError(f"there are more ids than items ({self.next_row})")


class GivenTexts:
    """The texts of a reader, with the ids that it has, in pieces.

    Rows and keys are made by its threads, as it reads.
    """

    def __init__(
        self, reader: HashingReader, hasher: Sketcher[Any], bands: tuple[int, int]
    ) -> None:
        self._reader = reader.making(
            partial(rows_with_keys, hasher, bands), rows_of_piece(bands[0])
        )
        self.row_numbers = reader.row_numbers

    @property
    def next_row(self) -> int:
        """The number of the row after those read so far, with those that are left out."""
        return self._reader.next_row

    def __iter__(self) -> Iterator[Given]:
        for batch in self._reader.columns():
            if len(batch.fingerprints):
                assert batch.ids is not None
                yield given_of(batch.fingerprints, batch.ids)


def rows_of_piece(bands: int) -> int:
    """Return how many rows with as many keys take some megabytes."""
    return PIECE_BYTES // (WORD_BITS // 8 * (DOCUMENT_WIDTH.words + bands))


def rows_with_keys(hasher: Sketcher[Any], bands: tuple[int, int], texts: Sequence[Any]) -> Hashed:
    """Return the rows of texts, each with its keys behind it."""
    number, rows_of_band = bands
    # A MinHash takes texts as readers have them: of several columns, as tuples.
    batches = [texts] if isinstance(hasher, MinHashSketcher) else hasher.batches(texts)
    made = [hasher.both(batch, number * rows_of_band) for batch in batches]
    known = np.concatenate([sketched.known for sketched in made])
    rows = np.zeros((len(known), DOCUMENT_WIDTH.words + number), np.uint64)
    rows[known] = np.concatenate([np.hstack(asked_of(sketched, bands)[:2]) for sketched in made])
    whole_pages = [sketched.whole_pages for sketched in made if sketched.whole_pages is not None]
    return Hashed(rows, known, np.concatenate(whole_pages) if whole_pages else None)


def given_of(rows: Words, ids: Any) -> Given:
    """Return items of rows with keys behind them; the rows are a copy."""
    keys = rows[:, DOCUMENT_WIDTH.words :]
    return Given(Asked(rows[:, : DOCUMENT_WIDTH.words].copy(), keys, keys), ids)


def chosen_hasher(hasher: Any, items: Any) -> Sketcher[Any]:
    """Return the hasher that a caller gives; of a reader, by default, the MinHash that it has."""
    if not isinstance(items, HashingReader):
        known = sketcher(hasher)
        check_items(items, known.items)
        return known
    maker = items.fingerprinter
    if maker.items not in ("texts", "rows"):
        raise InputError(
            "an index is built of a reader of texts, TextReader or DocumentReader, got "
            f"{type(items).__name__}"
        )
    if hasher is None:
        return sketcher(maker)
    if isinstance(maker, Wrapper) and hasher != maker:
        raise InputError(
            f"the reader makes its texts ready by {maker.name}: leave hasher out, which is then "
            "that of the reader"
        )
    return sketcher(hasher)


def at_places(ids: Any, places: Any) -> Any:
    """Return the ids at some places."""
    return [ids[place] for place in places.tolist()] if isinstance(ids, list) else ids[places]


def _ids_in_order(ids: Any) -> Iterator[Any]:
    """Return an iterator over ids; InputError for what cannot be many ids."""
    if not is_iterable(ids, str):
        raise InputError(f"ids must be one for each item, got {type(ids).__name__}", argument="ids")
    return iter(
        ids.tolist()
        if hasattr(ids, "tolist")
        else ids.to_pylist()
        if hasattr(ids, "to_pylist")
        else ids
    )


def _taken_ids(left: Iterator[Any], count: int, before: int) -> Words | list[str]:
    """Return the ids of the next items."""
    some = list(islice(left, count))
    if len(some) < count:
        raise InputError(f"there are fewer ids ({before + len(some)}) than items")
    return check_ids(some, count)
