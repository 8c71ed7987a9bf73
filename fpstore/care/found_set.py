"""What can be recovered of a damaged store: which set its tables hold together, and which ids belong to which fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.width import Width, comparable, row_of_number, rows_to_numbers
from fpstore.building.external_sort import Sorter
from fpstore.building.target import sorting_folder
from fpstore.care.found_places import ByPlace, Hole, Unit, rows_of_references, unit_of
from fpstore.care.salvage import Blocks, IdRecords, intact_blocks, known_values
from fpstore.care.word_array import SortedArray, WordArray
from fpstore.design.tables import identity
from fpstore.format.column_table import ColumnTable
from fpstore.format.layout import REFERENCES
from fpstore.format.packed_table import PackedTable
from fpstore.format.table import Table

GAP_WORDS = 2  # beside those of two fingerprints
PIECE_ROWS = 1 << 16


class Gap(NamedTuple):
    """Damaged blocks of the identity table: their numbers, and the least and the greatest fingerprint they may have held.

    The fingerprints are numbers of whole words, as the kernel knows them.
    """

    first: int
    end: int
    low: int
    high: int


class FoundSet:
    """The fingerprints of a damaged store: intact blocks of the identity table, and what other tables have of the others.

    Parameters
    ----------
    tables : sequence of Table
        Those with a sound header, all of the same set.
    count, digest : int
        Of the whole set.
    width : Width
        Of its fingerprints.
    target : Path
        The new store: temporary files go beside it.
    memory : int
        Budget in bytes. Half of it is for the time of the search.
    """

    def __init__(self, tables: Sequence[Table], count: int, digest: int, width: Width, target: Path, memory: int) -> None:
        self._identity = next((table for table in tables if table.header.permutation == identity(width.bits)), None)
        self._digest, self._words = digest, width.words
        self._highest = 2 ** (64 * width.words) - 1
        self._target, self._memory = target, memory
        self._folder = folder = target.parent
        self.count = self._sum = 0
        self._gaps = WordArray(folder, memory // 16)
        for gap in self._find_gaps():
            if gap.low <= gap.high:
                bounds = [row_of_number(number, self._words).reshape(-1) for number in (gap.low, gap.high)]
                self._gaps.append(np.concatenate([np.array([gap.first, gap.end], np.uint64), *bounds]))
        self._intact = self.count, self._sum
        self._extras = self._no_extras()
        self.expected = count
        for values in self._helpers(tables):
            if self.complete or not len(self._gaps):
                break
            self._fill(values)

    def _helpers(self, tables: Sequence[Table]) -> Iterator[Iterator[Words]]:
        """Yield the fingerprints of each source that may fill the gaps, in pieces."""
        if isinstance(self._identity, ColumnTable):
            yield known_values(self._identity)  # of blocks that are damaged in part
        references: list[ColumnTable] = []
        for table in tables:
            if isinstance(table, ColumnTable) and table.header.kind == REFERENCES:
                references.append(table)
            elif table is not self._identity:
                yield known_values(table)
        if references:
            rows = self._identity if isinstance(self._identity, ColumnTable) else None
            yield rows_of_references(references, rows, self._memory // 4)

    def _no_extras(self) -> SortedArray:
        return SortedArray(self._folder, self._memory // 8, self._words)

    @property
    def complete(self) -> bool:
        """Whether this is the very set that the store held."""
        return self.count == self.expected and self._sum == self._digest

    @property
    def has_gaps(self) -> bool:
        """Whether blocks of the identity table are damaged or missing."""
        return len(self._gaps) > 0

    @property
    def memory(self) -> int:
        """Bytes that this takes."""
        return self._gaps.memory + self._extras.memory

    def close(self) -> None:
        """Give memory and temporary files back."""
        self._gaps.close()
        self._extras.close()

    def _find_gaps(self) -> Iterator[Gap]:
        table = self._identity
        if table is None:
            yield Gap(0, 0, 0, self._highest)
            return
        block, low = 0, 0
        for piece in intact_blocks(table):
            first, last = rows_to_numbers(piece.values[[0, -1]])
            if piece.first > block:
                yield Gap(block, piece.first, low, first - 1)
            self._note(piece.values)
            block, low = piece.first + len(piece.counts), last + 1
        if block < table.header.block_count:
            yield Gap(block, table.header.block_count, low, self._highest)

    def _note(self, values: Words) -> None:
        self.count += len(values)
        self._sum = (self._sum + _kernel.digest(values)) % 2**64

    def _fill(self, pieces: Iterator[Words]) -> None:
        """Take from elsewhere what falls into the gaps."""
        gaps = self._gaps.read(0, len(self._gaps)).reshape(-1, GAP_WORDS + 2 * self._words)[:, GAP_WORDS:]
        lows, highs = (comparable(self._rows(part)) for part in np.hsplit(gaps, 2))
        del gaps
        with sorting_folder(self._target) as folder:
            sorter = Sorter(self._memory // 2, folder, words=self._words)
            for values in pieces:
                compared = comparable(values)
                place = np.searchsorted(lows, compared, side="right") - 1
                inside = values[(place >= 0) & (compared <= highs[np.maximum(place, 0)])]
                sorter.add(inside, np.zeros(len(inside), np.uint64))
            if not sorter.rows:
                return
            for values in self._extras_between(0, len(self._extras)):
                sorter.add(values, np.zeros(len(values), np.uint64))
            self._extras.close()
            self._extras = self._no_extras()
            self.count, self._sum = self._intact
            for group in sorter.groups(lambda rows: None):
                self._note(group.keys)
                self._extras.append(group.keys)

    def _rows(self, words: Words) -> Words:
        """Return words as rows."""
        return words.reshape(-1).copy() if self._words == 1 else words.reshape(-1, self._words)

    def _extras_between(self, start: int, end: int) -> Iterator[Words]:
        for at in range(start, end, PIECE_ROWS):
            yield self._extras.read(at, min(at + PIECE_ROWS, end))

    def _places(self, gap: Gap) -> tuple[int, int]:
        """Return where what other tables have in a gap begins and ends."""
        return self._extras.below(gap.low), self._extras.below(gap.high, inclusive=True)

    def _each_gap(self) -> Iterator[Gap]:
        size = GAP_WORDS + 2 * self._words
        for at in range(0, len(self._gaps), size):
            gap = self._gaps.read(at, at + size)
            yield Gap(*gap[:GAP_WORDS].tolist(), *rows_to_numbers(self._rows(gap[GAP_WORDS:])))

    def parts(self) -> Iterator[Blocks | Gap]:
        """Yield intact blocks, and the gaps, in order."""
        gaps = self._each_gap()
        gap = next(gaps, None)
        if self._identity is not None:
            for piece in intact_blocks(self._identity):
                if gap is not None and gap.first < piece.first:
                    yield gap
                    gap = next(gaps, None)
                yield piece
        if gap is not None:
            yield gap

    @property
    def block_count(self) -> int | None:
        """How many blocks the identity table had, if that is known."""
        return None if self._identity is None else self._identity.header.block_count

    def units(self, records: IdRecords) -> Iterator[Unit]:
        """Yield everything with its ids, ascending."""
        at = 0  # the first record whose key is not less than what was yielded
        for part in self.parts():
            if isinstance(part, Gap):
                yield from self._gap_units(part, records)
                at = records.keys.below(part.high, inclusive=True)
                continue
            ends = np.cumsum(part.counts, dtype=np.int64)
            starts = ends - part.counts
            for start, end, key in zip(starts.tolist(), ends.tolist(), rows_to_numbers(part.values[ends - 1]), strict=True):
                while at < len(records) and records.keys[at] < key:
                    at += 1
                known = at < len(records) and records.keys[at] == key
                yield unit_of(part.values[start:end], records.get(at) if known else None)

    def _gap_units(self, gap: Gap, records: IdRecords) -> Iterator[Unit]:
        start, end = self._places(gap)
        if self.complete:
            yield from self._units_before_keys(gap, start, end, records)
        elif isinstance(self._identity, ColumnTable):
            size, count = _kernel.ROWS_IN_BLOCK, self._identity.header.count
            hole = Hole(gap.first * size, min(gap.end * size, count), start, end, gap.low, gap.high)
            yield from ByPlace(self._identity, self._extras, records).units(hole)
        elif self._identity is not None:
            yield from self._units_between_keys(self._identity, gap, start, end, records)
        else:
            yield from self._without_ids(start, end)

    def _units_before_keys(self, gap: Gap, start: int, end: int, records: IdRecords) -> Iterator[Unit]:
        """Yield a gap of which no fingerprint is missing: as many as a record is for, up to its key, have its ids."""
        for number in range(records.keys.below(gap.low), records.keys.below(gap.high, inclusive=True)):
            record = records.get(number)
            stop = self._extras.below(records.keys[number], inclusive=True)
            first = stop - (0 if record is None else len(record[0]))
            if first >= start:
                yield from self._without_ids(start, first)
                yield unit_of(self._extras.read(first, stop), record)
                start = stop
        yield from self._without_ids(start, end)

    def _units_between_keys(self, identity: PackedTable, gap: Gap, start: int, end: int, records: IdRecords) -> Iterator[Unit]:
        """Yield a gap of which some is missing: a block has its ids if as many as it had lie between two keys."""
        for block in range(gap.first, gap.end):
            (key,) = rows_to_numbers(identity.block_keys[block : block + 1])
            stop = end if block + 1 == gap.end else min(max(self._extras.below(key, inclusive=True), start), end)
            number = records.keys.below(key)
            record = records.get(number) if number < len(records) and records.keys[number] == key else None
            if record is not None and len(record[0]) == stop - start:
                yield unit_of(self._extras.read(start, stop), record)
            else:
                yield from self._without_ids(start, stop)
            start = stop

    def _without_ids(self, start: int, end: int) -> Iterator[Unit]:
        return (unit_of(values, None) for values in self._extras_between(start, end))
