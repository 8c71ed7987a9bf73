"""The set of a damaged store, put together from the intact blocks of all tables, and the ids of each block."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import lims_of
from fpstore.base.width import comparable, row_of_number, rows_to_numbers
from fpstore.building.external_sort import Sorter
from fpstore.care.damaged_store import DamagedStore
from fpstore.care.intact_records import IdRecords, RowFile
from fpstore.design.tables import REFERENCES, ROWS, identity
from fpstore.errors import CorruptStoreError, StorageError
from fpstore.format.column_table import ColumnTable, block_counts
from fpstore.format.packed_table import PackedTable
from fpstore.format.table import Table

Comparable = npt.NDArray[Any]
NONE = np.empty(0, np.uint64)
PIECE_ROWS = 1 << 16


class IntactBlocks(NamedTuple):
    """Successive intact blocks of a table: the number of the first, their entries, how many each has."""

    first: int
    values: Words
    counts: npt.NDArray[np.uint32]


class Gap(NamedTuple):
    """Damaged blocks of the first table: their numbers, and the least and the greatest fingerprint they may have held.

    The fingerprints are numbers of whole words, as the kernel knows them.
    """

    first: int
    end: int
    low: int
    high: int


class IdentifiedRows(NamedTuple):
    """Successive fingerprints, the number of ids of each, the ids; without ``known``, their ids in the tables are lost."""

    values: Words
    counts: Words
    ids: Words
    known: bool


def rows_of(values: Words, record: tuple[Words, Words] | None) -> IdentifiedRows:
    """Return a block with its ids, if its record is intact."""
    if record is None or len(record[0]) != len(values):
        return IdentifiedRows(values, np.zeros(len(values), np.uint64), NONE, False)
    return IdentifiedRows(values, *record, True)


def ids_at(record: tuple[Words, Words] | None, start: int, end: int) -> tuple[Words, Words] | None:
    """Return the part of a record for the fingerprints from one rank in the block to before another; None if it has no such."""
    if record is None or len(record[0]) < end:
        return None
    counts, ids = record
    lims = lims_of(counts)
    return counts[start:end], ids[lims[start] : lims[end]]


class RecoveredSet:
    """The fingerprints of the tables: intact blocks of the first table, and the entries of other tables in its gaps."""

    def __init__(self, store: DamagedStore, folder: Path, memory: int) -> None:
        words, first = store.design.width.words, identity(store.design.width.bits)
        self._identity = next((table for table in store.tables if table.header.permutation == first), None)
        self.block_count = None if self._identity is None else self._identity.header.block_count
        self._words, self._highest = words, 2 ** (64 * words) - 1
        self.count = self._digest = 0
        self._fillers = RowFile(folder / "fillers", words)  # what other tables have in the gaps
        lows, highs = array("Q"), array("Q")
        for part in self._parts():
            if isinstance(part, IntactBlocks):
                self._note(part.values)
            else:
                lows.extend(row_of_number(part.low, words).reshape(-1).tolist())
                highs.extend(row_of_number(part.high, words).reshape(-1).tolist())
        self.has_gaps = bool(lows)
        if self.has_gaps:
            self._fill(store, comparable(self._rows(lows)), comparable(self._rows(highs)), Sorter(memory, folder, words=words))
        self.complete = (self.count, self._digest) == (store.count, store.digest)

    def _rows(self, words: array[int]) -> Words:
        rows = np.array(words, np.uint64)
        return rows if self._words == 1 else rows.reshape(-1, self._words)

    def _note(self, values: Words) -> None:
        self.count += len(values)
        self._digest = (self._digest + _kernel.digest(values)) % 2**64

    def _parts(self) -> Iterator[IntactBlocks | Gap]:
        """Yield the intact blocks of the first table, and the gaps between them."""
        block, low = 0, 0
        for piece in () if self._identity is None else intact_blocks(self._identity):
            first, last = rows_to_numbers(piece.values[[0, -1]])
            if piece.first > block:
                yield Gap(block, piece.first, low, first - 1)
            yield piece
            block, low = piece.first + len(piece.counts), last + 1
        if self.block_count is None or block < self.block_count:
            yield Gap(block, self.block_count or 0, low, self._highest)

    def _fill(self, store: DamagedStore, lows: Comparable, highs: Comparable, sorter: Sorter) -> None:
        """Take the rows in the gaps from other tables, until one table had all its rows."""
        others = [table for table in store.tables if table is not self._identity and table.spec.kind != REFERENCES]
        if isinstance(self._identity, ColumnTable):
            others.insert(0, self._identity)  # of blocks of ids that are damaged in part
        for table in others:
            read = 0
            for values in intact_rows(table):
                compared = comparable(values)
                place = np.searchsorted(lows, compared, side="right") - 1
                inside = values[(place >= 0) & (compared <= highs[np.maximum(place, 0)])]
                sorter.add(inside, np.zeros(len(inside), np.uint64))
                read += len(values)
            if read == store.count:
                break
        for group in sorter.groups(lambda rows: None):
            self._note(group.keys)
            self._fillers.append(group.keys)

    def rows(self, records: IdRecords) -> Iterator[IdentifiedRows]:
        """Yield everything with its ids, ascending, in blocks or in pieces of about the size of a block."""
        for part in self._parts():
            if isinstance(part, Gap):
                placed = self._identity is not None and self._identity.spec.kind == ROWS and len(records) == self.block_count
                yield from self._placed_rows(part, records) if placed else self._gap_rows(part, records)
                continue
            ends = np.cumsum(part.counts, dtype=np.int64)
            keys = part.values[ends - 1]
            numbers, found = records.keys.find(keys)
            for end, count, number, there in zip(
                ends.tolist(), part.counts.tolist(), numbers.tolist(), found.tolist(), strict=True
            ):
                yield rows_of(part.values[end - count : end], records.ids(number) if there else None)

    def _placed_rows(self, gap: Gap, records: IdRecords) -> Iterator[IdentifiedRows]:
        """Yield the rows of a row file that are left in a gap: each has its place, and so its ids in the record of its block.

        It takes a record for each block of the file.
        """
        table, size = self._identity, _kernel.ROWS_IN_BLOCK
        assert isinstance(table, ColumnTable)
        for run in table.known[bisect_right(table.known, gap.first * size, key=lambda run: run.end) :]:
            for block in range(max(run.first // size, gap.first), min(-(-run.end // size), gap.end)):
                record = records.ids(block)
                part = run._replace(first=max(run.first, block * size), end=min(run.end, (block + 1) * size))
                for start, values in table.read_known(part):
                    at = start - block * size
                    yield rows_of(values, ids_at(record, at, at + len(values)))

    def _gap_rows(self, gap: Gap, records: IdRecords) -> Iterator[IdentifiedRows]:
        """Yield the rows that were found in a gap.

        Where no fingerprint is missing, as many up to the key of a record as the record is for have its ids. Otherwise it takes
        a record for each block of the gap: then all are known that lie between the keys of two blocks, and if their number is
        right, none is missing.
        """
        start, end = self._fillers.below(gap.low), self._fillers.below(gap.high, inclusive=True)
        numbers = range(records.keys.below(gap.low), records.keys.below(gap.high, inclusive=True))
        for number in numbers if self.complete or len(numbers) == gap.end - gap.first else ():
            record = records.ids(number)
            stop = self._fillers.below(rows_to_numbers(records.keys.read(number, number + 1))[0], inclusive=True)
            first = stop - (0 if record is None else len(record[0]))
            if first < start or not (self.complete or first == start):
                first, record = stop, None
            yield from self._without_ids(start, first)
            yield rows_of(self._fillers.read(first, stop), record)
            start = stop
        yield from self._without_ids(start, end)

    def _without_ids(self, start: int, end: int) -> Iterator[IdentifiedRows]:
        return (rows_of(self._fillers.read(at, min(at + PIECE_ROWS, end)), None) for at in range(start, end, PIECE_ROWS))


def intact_blocks(table: Table) -> Iterator[IntactBlocks]:
    """Yield every block of a table that can be read, in order; of a column table, blocks of ids."""
    if isinstance(table, ColumnTable):
        size, count = _kernel.ROWS_IN_BLOCK, table.header.count
        for run in table.known:
            first = -(-run.first // size) * size
            end = run.end if run.end == count else run.end // size * size
            for start, values in table.read_known(run._replace(first=first, end=max(end, first))):
                yield IntactBlocks(start // size, values, block_counts(len(values)))
        return
    start, end, bad = 0, table.header.block_count, table.header.block_count
    while start < end:
        try:
            values, counts, after = table.decode(start, bad)
        except (CorruptStoreError, StorageError) as error:
            found = error.block
            bad = found if isinstance(found, int) and start <= found < bad else start
        else:
            yield IntactBlocks(start, values, counts)
            start = after
        if start == bad:
            start, bad = bad + 1, end


def intact_rows(table: Table) -> Iterator[Words]:
    """Yield every fingerprint of a table that can be read, in the order of the table, in pieces."""
    permutation = np.frombuffer(table.header.permutation, np.uint8)
    if isinstance(table, PackedTable):
        pieces = (piece.values for piece in intact_blocks(table))
    else:
        pieces = (values for run in table.known for _, values in table.read_known(run))
    for values in pieces:
        yield _kernel.permute(values, permutation, True)
