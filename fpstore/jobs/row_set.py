"""Sets of fingerprints with ids, from callers and corpora; strings lie in a temporary file."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import NO_WORDS, distinct_places, list_lims, stable_order
from fpstore.base.strings import StringColumn
from fpstore.base.width import Width, row_places
from fpstore.disk.temporary import SpillFile
from fpstore.errors import InputError
from fpstore.io.check import check_fingerprints, check_id, check_ids, is_single_fingerprint
from fpstore.io.source import IdColumn
from fpstore.query.id_lookup import IdLookup, InMemoryIds, SizedIds, ids_at, ids_in_slices


class SpooledIds:
    """Ids in the order of their rows; the number of an id is its place.

    Integers stay in memory. The first strings move all ids to a file without a name, and integers
    become strings.
    """

    def __init__(self) -> None:
        self._integers: list[Words] = []
        self._file: SpillFile | None = None
        self._ends: list[Words] = []
        self._data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def add(self, ids: IdColumn) -> None:
        if ids is None:
            return
        if isinstance(ids, np.ndarray) and self._file is None:
            self._integers.append(ids)
            return
        waiting, self._integers = [*self._integers, ids], []
        file = self._file = self._file or SpillFile(None)
        for column in waiting:
            strings = (
                column
                if isinstance(column, StringColumn)
                else StringColumn.from_strings([str(n) for n in column.tolist()])
            )
            self._ends.append(strings.ends + np.uint64(file.size))
            file.append(np.frombuffer(strings.data, np.uint8))

    def finish(self) -> None:
        self.integers = None if self._file else np.concatenate([NO_WORDS, *self._integers])
        ends: Words = np.concatenate([np.zeros(1, np.uint64), *self._ends])
        self._starts, self._stops = ends[:-1], ends[1:]
        if self._file is not None and self._file.size:
            self._data = self._file.map()
            self._file.close()  # the mapping remains

    def __len__(self) -> int:
        return len(self._stops) if self.integers is None else len(self.integers)

    def ids_within(self, numbers: Words, most: int | None) -> SizedIds | None:
        if self.integers is not None:
            return SizedIds(self.integers[numbers])
        starts, stops = self._starts[numbers], self._stops[numbers]
        size = int((stops - starts).sum())
        if most is not None and size > most:
            return None
        return SizedIds(
            [
                self._data[a:b].tobytes().decode()
                for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
            ],
            size,
        )


def id_kind(ids: SpooledIds | None) -> str:
    """Return "integer" or "string"; "none" if there are no ids."""
    return "none" if ids is None else "string" if ids.integers is None else "integer"


def id_column(ids: SpooledIds | None) -> IdColumn:
    if ids is None or ids.integers is not None:
        return None if ids is None else ids.integers
    values = ids_at(ids, np.arange(len(ids), dtype=np.uint64))
    return StringColumn.from_strings(values) if isinstance(values, list) else values


class RowSet:
    """Distinct rows of a width, ascending, each with the places of its ids in ``ids``."""

    def __init__(self, rows: Words, ids: IdLookup, width: Width) -> None:
        self.width = width
        self.rows, places = distinct_places(rows)
        self._lims = list_lims(np.bincount(places, minlength=len(self.rows)))
        self._ids, self._order = ids, stable_order(places).astype(np.uint64)

    def digest(self) -> str:
        """Return a hash of the rows and ids, in hexadecimal digits."""
        digest = blake2b(digest_size=8)
        for _, (ids,) in ids_in_slices([(self._ids, self._order)]):
            if isinstance(ids, list):
                column = StringColumn.from_strings(ids)
                digest.update(column.data)
                ids = column.ends
            digest.update(np.ascontiguousarray(ids).data)
        digest.update(self.rows.data)
        digest.update(self._lims.data)
        return digest.hexdigest()

    @property
    def has_single_ids(self) -> bool:
        return len(self.rows) == int(self._lims[-1])

    def stored_id_numbers(self, rows: Words) -> tuple[Lims, Words]:
        """Return the lims and the numbers of the ids of fingerprints of the set."""
        places = row_places(self.rows, rows)
        sizes = np.diff(self._lims)[places]
        lims = list_lims(sizes)
        return lims, self._order[
            np.arange(int(lims[-1])) + np.repeat(self._lims[places] - lims[:-1], sizes)
        ]

    def ids_within(self, numbers: Words, most: int | None) -> SizedIds | None:
        return self._ids.ids_within(numbers, most)


def read_row_set(other: Any, ids: Any, width: Width) -> RowSet:
    """Read one fingerprint, an array or a reader; without ids, the ids are row numbers.

    Raises InputError if fingerprints or ids are invalid.
    """
    from fpstore.io.reader import Reader

    lookup: IdLookup | None = None
    if isinstance(other, Reader):
        if ids is not None:
            raise InputError("a reader has ids of its own")
        pieces, spooled = [width.empty(0)], SpooledIds()
        for batch in other.columns_of_width(width):
            pieces.append(batch.fingerprints)
            spooled.add(batch.ids)
        spooled.finish()
        rows, lookup = np.concatenate(pieces), spooled if other.has_ids else None
    else:
        is_single = is_single_fingerprint(other, width)
        rows = check_fingerprints([other] if is_single else other, width)
        checked = (
            None if ids is None else check_ids([check_id(ids)] if is_single else ids, len(rows))
        )
        lookup = None if checked is None else InMemoryIds(checked)
    if lookup is None:
        lookup = InMemoryIds(np.arange(len(rows), dtype=np.uint64))
    return RowSet(rows, lookup, width)
