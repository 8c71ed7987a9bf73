"""The tables of a join: a set in the order of the buckets of a table, all of it or the rows of some buckets."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.building.external_sort import COPY_ROWS, in_pieces
from fpstore.design.tables import TableSpec, identity
from fpstore.disk.temporary import array_on_disk
from fpstore.width import WORD_BITS, leading_words, place_of, row_of_number, rows_like, words_of

SAMPLED_ROWS = 1 << 12  # by which a table is cut into spans of about as many rows


class Span(NamedTuple):
    """Successive buckets of a table: from the first to that before the end."""

    first: int
    end: int


class SortedTable(NamedTuple):
    """Rows in the order of the buckets of a table, where each bucket begins, and the tags."""

    rows: Words
    starts: Words
    tags: npt.NDArray[np.uint16]


class TableSorter:
    """Sorts a set for one table after the other, in the same arrays.

    Parameters
    ----------
    rows : Words
        Distinct rows, ascending.
    writable : bool
        Return a copy even for the table in the order of the rows, because the caller writes to it.
    memory : int
        Bytes. If the arrays would take more, they are in temporary files.
    """

    def __init__(self, rows: Words, writable: bool, memory: int) -> None:
        self._rows = rows
        self._writable = writable
        room = len(rows) + _kernel.TAG_ROOM
        if 2 * rows.nbytes + 2 * room <= memory:
            self._out, self._scratch = (rows_like(rows, len(rows)) for _ in range(2))
            self._tags: npt.NDArray[np.uint16] = np.empty(room, np.uint16)
        else:
            self._out, self._scratch = (array_on_disk(rows.shape, np.uint64) for _ in range(2))
            self._tags = array_on_disk((room,), np.uint16)

    def sorted(self, table: TableSpec) -> SortedTable:
        """Return the rows in the order of a table's buckets; what was returned before must not be used any more."""
        ordered = self._rows
        if table.permutation != identity(table.width.bits):
            ordered = self._out
            _kernel.permute_sort(
                self._rows, np.frombuffer(table.permutation, np.uint8), ordered, self._scratch, max(table.prefix_bits, 1)
            )
        elif self._writable:
            ordered = self._out
            ordered[:] = self._rows
        return _indexed(ordered, table, self._tags)


class SpanSorter:
    """Sorts spans of the tables of a set, one after the other, in the same arrays: new ones would cost as much as the sorting.

    Parameters
    ----------
    rows : Words
        Distinct rows, ascending.
    writable : bool
        As for :class:`TableSorter`.
    """

    def __init__(self, rows: Words, writable: bool) -> None:
        self._rows, self._writable = rows, writable
        self._kept = rows_like(rows, min(len(rows), COPY_ROWS))
        self._out, self._scratch = rows_like(rows, 0), rows_like(rows, 0)
        self._tags = np.empty(0, np.uint16)

    def _grow(self, least: int, used: int) -> None:
        """Make room for so many rows, and keep those that are used."""
        out = rows_like(self._rows, least)
        out[:used] = self._out[:used]
        self._out, self._scratch = out, rows_like(self._rows, least)

    def sorted(self, table: TableSpec, span: Span, expected: int, stop: _kernel.Stop | None = None) -> SortedTable:
        """Return the rows in some buckets of a table, in the order of its buckets; the other buckets are empty.

        What was returned before must not be used any more.

        Parameters
        ----------
        table : TableSpec
        span : Span
        expected : int
            About how many rows they are.
        stop : Stop, optional
            When another thread sets it, this ends soon with InterruptedError.
        """
        words = words_of(self._rows)
        shift = WORD_BITS * words - table.prefix_bits
        bounds = row_of_number(span.first << shift, words), row_of_number((span.end << shift) - 1, words)
        in_order = table.permutation == identity(table.width.bits)
        if in_order and not self._writable:
            some = self._rows[place_of(self._rows, bounds[0]) : place_of(self._rows, bounds[1], "right")]
            return self._indexed(some, table, stop)
        permutation = np.frombuffer(table.permutation, np.uint8)
        count = 0
        for piece in in_pieces([self._rows]):
            if stop is not None and stop.is_set():
                raise InterruptedError
            more = _kernel.permute_select(piece, permutation, *bounds, self._kept)
            if count + more > len(self._out):
                self._grow(max(count + more, expected) * 9 // 8, count)
            self._out[count : count + more] = self._kept[:more]
            count += more
        ordered = self._out[:count]
        if not in_order:
            _kernel.sort_keys(ordered, self._scratch[:count], max(table.prefix_bits, 1), stop)
        return self._indexed(ordered, table, stop)

    def _indexed(self, ordered: Words, table: TableSpec, stop: _kernel.Stop | None) -> SortedTable:
        room = len(ordered) + _kernel.TAG_ROOM
        if room > len(self._tags):
            self._tags = np.empty(room * 9 // 8, np.uint16)
        return _indexed(ordered, table, self._tags[:room], stop)


def spans_of(rows: Words, table: TableSpec, count: int) -> list[Span]:
    """Return at most so many spans of the buckets of a table, which have about as many rows each."""
    sample = np.ascontiguousarray(rows[:: len(rows) // SAMPLED_ROWS + 1])
    permuted = rows_like(sample, len(sample))
    words = words_of(rows)
    everything = row_of_number(0, words), row_of_number((1 << WORD_BITS * words) - 1, words)
    _kernel.permute_select(sample, np.frombuffer(table.permutation, np.uint8), *everything, permuted)
    shift = np.uint64(WORD_BITS - table.prefix_bits)
    buckets = np.sort(leading_words(permuted) >> shift) if table.prefix_bits else np.zeros(len(permuted), np.uint64)
    cuts = buckets[np.arange(1, count) * len(buckets) // count] if len(buckets) else buckets
    bounds = sorted({0, *cuts.tolist(), 1 << table.prefix_bits})
    return [Span(*span) for span in pairwise(bounds)]


def _indexed(ordered: Words, table: TableSpec, tags: npt.NDArray[np.uint16], stop: _kernel.Stop | None = None) -> SortedTable:
    starts = np.empty((1 << table.prefix_bits) + 1, np.uint64)
    _kernel.index_rows(ordered, table.prefix_bits, starts, tags, stop)
    return SortedTable(ordered, starts, tags)
