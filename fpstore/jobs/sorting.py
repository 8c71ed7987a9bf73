"""Sorts the rows of a set into the buckets of a table of a join, all of them or a span."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.width import (
    WORD_BITS,
    empty_rows_like,
    leading_words,
    number_to_row,
    row_place,
    row_words,
)
from fpstore.building.columns import COPY_ROWS, cut_pieces
from fpstore.design.tables import TableSpec, identity_permutation
from fpstore.disk.temporary import array_on_disk

SAMPLED_ROWS = 1 << 12  # by which a table is cut into spans of about as many rows
ROOM = 9  # eighths of the rows that a span is expected to have, for which there is room
MAX_SHARES = 2  # of equal shares of the rows, that one bucket may hold


class Span(NamedTuple):
    """Successive buckets of a table."""

    first: int
    end: int  # the bucket behind the last


class SortedTable(NamedTuple):
    """Rows in the order of the buckets of a table, where each bucket begins, and the tags."""

    rows: Words
    starts: Words
    tags: npt.NDArray[np.uint16]


class TableSorter:
    """Sorts a set of distinct, ascending rows for one table after the other, in the same arrays.

    The arrays are in temporary files if they would take more than ``memory``. If the caller writes
    to the result, even the table in the order of the rows is a copy.
    """

    def __init__(self, rows: Words, writable: bool, memory: int) -> None:
        self._rows = rows
        self._writable = writable
        room = len(rows) + _kernel.TAG_ROOM
        if 2 * rows.nbytes <= memory:
            self._out, self._scratch = empty_rows_like(rows, len(rows)), empty_rows_like(rows, room)
        else:
            self._out, self._scratch = (
                array_on_disk((count, *rows.shape[1:]), np.uint64) for count in (len(rows), room)
            )

    def sort(self, table: TableSpec) -> SortedTable:
        """Return the rows in the order of a table's buckets; this overwrites earlier results."""
        ordered = self._rows
        if table.permutation != identity_permutation(table.width.bits):
            ordered = self._out
            _kernel.permute_sort(
                self._rows,
                np.frombuffer(table.permutation, np.uint8),
                ordered,
                self._scratch,
                max(table.prefix_bits, 1),
            )
        elif self._writable:
            ordered = self._out
            ordered[:] = self._rows
        return _index_table(ordered, table, self._scratch)


class SpanSorter:
    """Sorts spans of the tables of a set, one after the other, in the same arrays.

    New arrays would cost as much as the sorting.
    """

    def __init__(self, rows: Words, writable: bool) -> None:
        self._rows, self._writable = rows, writable
        self._selected = empty_rows_like(rows, min(len(rows), COPY_ROWS))
        self._out, self._scratch = empty_rows_like(rows, 0), empty_rows_like(rows, 0)

    def _scratch_for(self, count: int) -> Words:
        """Return the scratch of the sort, which the tags of the rows take over."""
        if len(self._scratch) < count + _kernel.TAG_ROOM:
            self._scratch = empty_rows_like(self._rows, count + _kernel.TAG_ROOM)
        return self._scratch

    def sort(
        self, table: TableSpec, span: Span, expected: int, stop: _kernel.Stop | None = None
    ) -> SortedTable:
        """Return the rows in a span of a table, about ``expected``; other buckets are empty.

        This overwrites earlier results. If another thread sets the stop, it raises
        InterruptedError.
        """
        words = row_words(self._rows)
        shift = WORD_BITS * words - table.prefix_bits
        bounds = (
            number_to_row(span.first << shift, words),
            number_to_row((span.end << shift) - 1, words),
        )
        in_order = table.permutation == identity_permutation(table.width.bits)
        if in_order and not self._writable:
            rows = self._rows[
                row_place(self._rows, bounds[0]) : row_place(self._rows, bounds[1], "right")
            ]
            return _index_table(rows, table, self._scratch_for(len(rows)), stop)
        permutation = np.frombuffer(table.permutation, np.uint8)
        count = 0
        for piece in cut_pieces([self._rows]):
            if stop is not None and stop.is_set():
                raise InterruptedError
            selected = _kernel.permute_select(piece, permutation, *bounds, self._selected)
            if count + selected > len(self._out):
                out = empty_rows_like(self._rows, max(count + selected, expected) * ROOM // 8)
                out[:count] = self._out[:count]
                self._out, self._scratch = (
                    out,
                    empty_rows_like(self._rows, len(out) + _kernel.TAG_ROOM),
                )
            self._out[count : count + selected] = self._selected[:selected]
            count += selected
        ordered = self._out[:count]
        if not in_order:
            _kernel.sort_keys(ordered, self._scratch[:count], max(table.prefix_bits, 1), stop)
        return _index_table(ordered, table, self._scratch_for(count), stop)


def sample_spans(rows: Words, table: TableSpec, count: int) -> list[Span] | None:
    """Return about ``count`` spans of the buckets of a table, with about as many rows each.

    None if one bucket has far more.
    """
    sample = np.ascontiguousarray(rows[:: len(rows) // SAMPLED_ROWS + 1])
    permuted = empty_rows_like(sample, len(sample))
    words = row_words(rows)
    everything = number_to_row(0, words), number_to_row((1 << WORD_BITS * words) - 1, words)
    _kernel.permute_select(
        sample, np.frombuffer(table.permutation, np.uint8), *everything, permuted
    )
    shift = np.uint64(WORD_BITS - table.prefix_bits)
    buckets = (
        np.sort(leading_words(permuted) >> shift)
        if table.prefix_bits
        else np.zeros(len(permuted), np.uint64)
    )
    cuts = buckets[np.arange(1, count) * len(buckets) // count] if len(buckets) else buckets
    bounds = sorted({0, *cuts.tolist(), 1 << table.prefix_bits})
    if len(bounds) == 2 or np.unique(cuts, return_counts=True)[1].max() > MAX_SHARES:
        return None
    return [Span(*span) for span in pairwise(bounds)]


def _index_table(
    ordered: Words, table: TableSpec, room: Words, stop: _kernel.Stop | None = None
) -> SortedTable:
    """Return a table with the begins of its buckets and its tags, which are put into ``room``.

    ``room`` has place for the rows and ``_kernel.TAG_ROOM`` more.
    """
    starts = np.empty((1 << table.prefix_bits) + 1, np.uint64)
    tags = room.reshape(-1).view(np.uint16)[: len(ordered) + _kernel.TAG_ROOM]
    _kernel.index_rows(ordered, table.prefix_bits, starts, tags, stop)
    return SortedTable(ordered, starts, tags)
