"""What column tables tell of each entry alone: its place, by which it has its ids, and the bits of a lost row.

Pages of a column table are damaged, not blocks of ids: the other entries of a block are known, and the numbers of their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.width import WORD_BITS, empty_rows, rows_to_numbers
from fpstore.care.salvage import IdRecords
from fpstore.care.word_array import SortedArray
from fpstore.design.tables import TAG_BITS
from fpstore.format.column_table import ColumnTable, Range

NONE = np.empty(0, np.uint64)
PIECE_ROWS = 1 << 16
LEAST_ROWS = 1 << 12  # lost rows for which the references are read at once
ALL = np.uint64(2**64 - 1)


class Unit(NamedTuple):
    """Successive fingerprints, how many ids each has, the ids; without ``known``, what ids they have in the tables is lost."""

    values: Words
    counts: Words
    ids: Words
    known: bool


def unit_of(values: Words, record: tuple[Words, Words] | None) -> Unit:
    """Return a block with its ids, if its record is intact."""
    if record is None or len(record[0]) != len(values):
        return Unit(values, np.zeros(len(values), np.uint64), NONE, False)
    return Unit(values, *record, True)


class Hole(NamedTuple):
    """Successive entries of which some are not known: their places, what was found of them, and the bounds of their values."""

    place: int
    behind: int
    start: int
    stop: int
    low: int
    high: int

    @property
    def whole(self) -> bool:
        """Whether all of them were found: then their places are known as well."""
        return self.stop - self.start == self.behind - self.place


class Placed(NamedTuple):
    """Successive fingerprints, the place of the first if it is known, and the number of their id record if that is proven."""

    values: Words
    place: int | None
    record: int | None = None


# Ids by the places of entries


class ByPlace:
    """What is found for damaged blocks of ids of a column table, with the ids of those entries whose places are known.

    Parameters
    ----------
    identity : ColumnTable
    found : SortedArray
        The fingerprints that are known in these blocks, from any table.
    records : IdRecords
    """

    def __init__(self, identity: ColumnTable, found: SortedArray, records: IdRecords) -> None:
        self._identity, self._found, self._records = identity, found, records
        self._count, self._size = identity.header.count, _kernel.ROWS_IN_BLOCK

    def units(self, hole: Hole) -> Iterator[Unit]:
        """Yield all that was found of a hole, ascending."""
        for values, place, number in self._placed(hole):
            if place is None:
                yield unit_of(values, None)
                continue
            for start, end in _cut(place, place + len(values), self._size):
                part = values[start - place : end - place]
                yield self._of_record(part, start, self._record_of(start, part) if number is None else number)

    def _placed(self, hole: Hole) -> Iterator[Placed]:
        left = hole
        for run in self._identity.known_between(hole.place, hole.behind):
            for number, values in self._identity.read_known(run):
                low, high = rows_to_numbers(values[[0, -1]])
                at = self._found.below(low)
                yield from self._of_hole(left._replace(behind=number, stop=at, high=low - 1))
                yield Placed(values, number)
                left = hole._replace(place=number + len(values), start=at + len(values), low=high + 1)
        yield from self._of_hole(left)

    def _of_hole(self, hole: Hole) -> Iterator[Placed]:
        """Yield what other tables have between two known entries."""
        if hole.whole:
            yield from self._pieces(hole, hole.place)
            return
        # The keys of id records are the last entries of blocks: if none is lost, they tell where each block ends.
        keys = self._records.keys
        first, ends = keys.below(hole.low), [end for _, end in _cut(hole.place, hole.behind, self._size)]
        if ends and ends[-1] % self._size and ends[-1] != self._count:
            ends.pop()
        if keys.below(hole.high, inclusive=True) - first != len(ends):
            yield from self._pieces(hole, None)
            return
        for number, end in enumerate(ends, first):
            stop = self._found.below(keys[number], inclusive=True)
            part = hole._replace(behind=end, stop=stop)
            yield from self._pieces(part, part.place if part.whole else None, number)
            hole = hole._replace(place=end, start=stop)
        yield from self._pieces(hole, hole.place if hole.whole else None)

    def _pieces(self, hole: Hole, place: int | None, record: int | None = None) -> Iterator[Placed]:
        for start in range(hole.start, hole.stop, PIECE_ROWS):
            values = self._found.read(start, min(start + PIECE_ROWS, hole.stop))
            yield Placed(values, None if place is None else place + start - hole.start, record)

    def _record_of(self, place: int, values: Words) -> int | None:
        """Return the number of the id record of the block at a place, if the one with the next key is proven to be that."""
        identity, keys, size = self._identity, self._records.keys, self._size
        number, end = keys.below(rows_to_numbers(values[-1:])[0]), self._end_of(place)
        if number == len(keys):
            return None
        # It is of this block or of a later one, as its key is not less than these values.
        run = next(identity.known_between(end - 1, min(end + size, self._count)), None)
        if run is None:
            return number if end == self._count or len(keys) == identity.header.block_count else None
        _, entry = next(identity.read_known(run._replace(end=run.first + 1)))
        known = rows_to_numbers(entry)[0]
        return number if (keys[number] == known if run.first == end - 1 else keys[number] < known) else None

    def _end_of(self, place: int) -> int:
        """Return the place behind the block of ids that has a place."""
        return min((place // self._size + 1) * self._size, self._count)

    def _of_record(self, values: Words, place: int, number: int | None) -> Unit:
        """Return some fingerprints of a block with their ids."""
        record = None if number is None else self._records.get(number)
        rank = place % self._size
        if record is None or len(record[0]) != self._end_of(place) - (place - rank):
            return unit_of(values, None)
        counts, ids = record
        start, own = int(counts[:rank].sum()), counts[rank : rank + len(values)]
        return Unit(values, own, ids[start : start + int(own.sum())], True)


def _cut(start: int, end: int, size: int) -> Iterator[Range]:
    """Cut a range at multiples of a size."""
    while start < end:
        behind = min((start // size + 1) * size, end)
        yield start, behind
        start = behind


# Rows from references


def rows_of_references(references: Sequence[ColumnTable], rows: ColumnTable | None, room: int) -> Iterator[Words]:
    """Yield the lost rows of a row file of which buckets and tags of the references that lead to them have every bit.

    Parameters
    ----------
    references : sequence of ColumnTable
        Tables of the same set.
    rows : ColumnTable or None
        The damaged row file.
    room : int
        Bytes of memory; the references are read again for each part of the rows for which that is enough.
    """
    count, words = references[0].header.count, references[0].spec.width.words
    head = {bit for table in references for bit in table.header.permutation[: table.header.bucket_bits + TAG_BITS]}
    if len(head) < WORD_BITS * words:
        return
    most = max(room // (4 * 8 * words), LEAST_ROWS)
    for places in _lost(rows, count, most):
        found, seen = np.zeros((len(places), words), np.uint64), np.zeros((len(places), words), np.uint64)
        for table in references:
            _gather(table, places, found, seen)
        yield found[(seen == ALL).all(axis=1)]


def _lost(rows: ColumnTable | None, count: int, most: int) -> Iterator[Words]:
    """Yield the numbers of the rows that cannot be read, ascending, so many at once."""
    waiting: list[Words] = []
    place = held = 0
    ends = [] if rows is None else [(run.first, run.end) for run in rows.known]
    for first, end in [*ends, (count, count)]:
        while place < first:
            behind = min(first, place + most - held)
            waiting.append(np.arange(place, behind, dtype=np.uint64))
            held, place = held + behind - place, behind
            if held == most:
                yield np.concatenate(waiting)
                waiting, held = [], 0
        place = end
    if waiting:
        yield np.concatenate(waiting)


def _gather(table: ColumnTable, places: Words, found: Words, seen: Words) -> None:
    """Add the bits that a table of references has of the rows at some places, and note which they are."""
    head = np.uint64(2**64 - 2 ** (WORD_BITS - TAG_BITS - table.header.bucket_bits))
    permutation = np.frombuffer(table.header.permutation, np.uint8)
    mask = _unpermuted(np.array([head]), permutation)[0]
    for run in table.known:
        for _, keys in table.read_known(run):
            numbers = table.row_numbers(keys)
            at = np.minimum(np.searchsorted(places, numbers), len(places) - 1)
            named = places[at] == numbers
            found[at[named]] |= _unpermuted(keys[named] & head, permutation)
            seen[at[named]] |= mask


def _unpermuted(heads: Words, permutation: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Words:
    """Return the bits of rows that are the first ones of permuted rows."""
    rows = np.zeros_like(empty_rows(len(heads), len(permutation) // WORD_BITS))
    rows[:, 0] = heads
    return _kernel.permute(rows, permutation, True)
