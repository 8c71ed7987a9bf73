"""Sorts the rows of sets into the buckets of a table of a join, or into parts of these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import list_lims, spans
from fpstore.base.resources import Resources
from fpstore.base.width import empty_rows_like, row_words
from fpstore.design.tables import TableSpec, identity_permutation
from fpstore.disk.temporary import array_on_disk
from fpstore.query.batches import run

PART_ROWS = 1 << 14  # about: the second-level cache has room for them, and for their sorted copy
MIN_PARTS = 8  # of a table; the cache has smaller ones whole
MAX_PART_BITS = 11  # a scatter has a line of the cache for each part
TAG_BYTES = 2
LINK_BYTES = 8  # for each row of a whole table that is linked, besides the sorting


class Span(NamedTuple):
    """Successive buckets of a table."""

    first: int
    end: int  # the bucket behind the last


class SortedTable(NamedTuple):
    """Rows in the order of the buckets of a table, where each bucket begins, and the tags."""

    rows: Words
    starts: Words
    tags: npt.NDArray[np.uint16]


class PartedRows(NamedTuple):
    """Rows of parts of a table, and where each begins; in their parts, they may be in order."""

    rows: Words
    starts: Words
    ordered: bool

    def part(self, first: int, end: int) -> PartedRows:
        return self._replace(starts=self.starts[first : end + 1])


class TableSorter:
    """Brings sets of distinct, ascending rows into the order of one table after the other.

    All tables share the same arrays: new ones would cost as much as the work. So the next table
    overwrites a table, and nothing may use that any more. Arrays for whole tables are in temporary
    files if they would take more than the memory. Where rows are linked, the search writes to them,
    and has copies even of the table in the order of the rows.
    """

    def __init__(self, sides: Sequence[Words], linked: bool, resources: Resources) -> None:
        self._sides, self._linked, self._resources = sides, linked, resources
        self._out = empty_rows_like(sides[0], 0)
        self._scratch: Words | None = None  # while tables are sorted as a whole
        self._on_disk = False

    def parts(self, table: TableSpec) -> PartedTable | None:
        """Return a table in parts by the leading bits of its buckets, which need not be sorted.

        None if it has too few rows, or there is no memory for the largest part.
        """
        rows = max(map(len, self._sides))
        if rows < MIN_PARTS * PART_ROWS:
            return None
        bits = min((rows // PART_ROWS).bit_length(), table.prefix_bits, MAX_PART_BITS)
        parted = PartedTable(table, self._sides, bits, self._linked, self._resources)
        return parted if parted.groups else None

    def scatter(self, table: PartedTable, group: slice) -> list[PartedRows]:
        """Return the rows of a group of parts of each set; this overwrites other results."""
        self._scratch = None
        if self._on_disk or len(self._out) < table.room:
            self._out = empty_rows_like(self._out, 0)  # freed before its successor is allocated
            self._out, self._on_disk = empty_rows_like(self._out, table.room), False
        return table.scatter(group, self._out)

    def whole(self, table: TableSpec) -> list[SortedTable]:
        """Return the rows of each set in the order of a table's buckets."""
        if self._scratch is None:
            self._scratch = self._reserve_whole()
        tables, row, scratch_row = [], 0, 0
        for rows in self._sides:
            room = len(rows) + _kernel.TAG_ROOM
            out = self._out[row : row + len(rows)]
            scratch = self._scratch[scratch_row : scratch_row + room]
            tables.append(self._sort(rows, table, out, scratch))
            row, scratch_row = row + len(rows), scratch_row + room
        return tables

    def _reserve_whole(self) -> Words:
        """Have room for the rows of whole tables; return the scratch memory for sorting them."""
        rows = self._sides[0]
        count = sum(map(len, self._sides))
        room = count + len(self._sides) * _kernel.TAG_ROOM
        memory = self._resources.memory - (LINK_BYTES * count if self._linked else 0)
        self._on_disk = 2 * 8 * row_words(rows) * count > memory
        if self._on_disk or len(self._out) != count:
            self._out = empty_rows_like(rows, 0)  # freed before its successor is allocated
            self._out = self._array(count)
        return self._array(room)

    def _array(self, count: int) -> Words:
        rows = self._sides[0]
        return (
            array_on_disk((count, *rows.shape[1:]), np.uint64)
            if self._on_disk
            else empty_rows_like(rows, count)
        )

    def _sort(self, rows: Words, table: TableSpec, out: Words, scratch: Words) -> SortedTable:
        ordered = rows
        if table.permutation != identity_permutation(table.width.bits):
            ordered = out
            _kernel.permute_sort(
                rows,
                np.frombuffer(table.permutation, np.uint8),
                ordered,
                scratch,
                max(table.prefix_bits, 1),
            )
        elif self._linked:
            ordered = out
            ordered[:] = rows
        return _index_table(ordered, table, scratch)


class PartedTable:
    """The parts of a table by the leading bits of its buckets.

    Attributes
    ----------
    bits : int
    lims : ndarray of int64, shape (2**bits + 1,)
        Of the parts, in rows of all sets.
    groups : list of slice
        Successive parts for which there is memory at the same time, beside the largest part for
        each thread. Empty if there is none for the largest part.
    room : int
        The rows of the largest group that are scattered: none if the table has the order of the
        rows.
    """

    def __init__(
        self,
        table: TableSpec,
        sides: Sequence[Words],
        bits: int,
        linked: bool,
        resources: Resources,
    ) -> None:
        self.bits, self._sides, self._threads = bits, sides, resources.threads
        self._permutation = np.frombuffer(table.permutation, np.uint8)
        self._in_order = table.permutation == identity_permutation(table.width.bits)
        count = partial(_kernel.count_permuted, permutation=self._permutation, bits=bits)
        self._counts = [run(count, self._slices(side), self._threads) for side in sides]
        sizes: Words = np.sum([np.sum(counts, axis=0) for counts in self._counts], axis=0)
        self.lims = list_lims(sizes)
        total, largest, row_bytes = int(self.lims[-1]), int(sizes.max()), 8 * row_words(sides[0])
        part_bytes = largest * (
            TAG_BYTES if self._in_order and not linked else row_bytes + TAG_BYTES
        )
        left = resources.memory - self._threads * part_bytes
        most = left // row_bytes
        if self._in_order:  # nothing is scattered
            most = total if left >= 0 else 0
        self.groups = list(spans(self.lims, most)) if most >= largest else []
        self.room = max(
            (
                int(self.lims[group.stop] - self.lims[group.start])
                for group in self.groups
                if not self._in_order
            ),
            default=0,
        )

    def _slices(self, rows: Words) -> list[Words]:
        step = max(-(-len(rows) // self._threads), 1)
        return [rows[start : start + step] for start in range(0, max(len(rows), 1), step)]

    def scatter(self, parts: slice, out: Words) -> list[PartedRows]:
        """Return the rows of successive parts of each set, which are written to ``out``."""
        sides, row = [], 0
        for rows, counts in zip(self._sides, self._counts, strict=True):
            side = self._scatter_side(rows, counts, parts, out[row:])
            sides.append(side)
            row += int(side.starts[-1])
        return sides

    def _scatter_side(
        self, rows: Words, counts: Sequence[Words], parts: slice, out: Words
    ) -> PartedRows:
        sizes: Words = np.sum(counts, axis=0)
        lims = list_lims(sizes[parts])
        starts, total = lims.astype(np.uint64), int(lims[-1])
        if self._in_order:
            first = int(sizes[: parts.start].sum())
            return PartedRows(rows[first : first + total], starts, True)
        at, work = starts[:-1], []
        for piece, of_piece in zip(self._slices(rows), counts, strict=True):
            work.append((piece, at))
            at = at + of_piece[parts]
        rows_of_parts = out[:total]

        def scatter(piece: tuple[Words, Words], stop: _kernel.Stop | None) -> None:
            _kernel.scatter_permuted(
                piece[0],
                self._permutation,
                self.bits,
                parts.start,
                piece[1],
                rows_of_parts,
                stop,
            )

        run(scatter, work, self._threads)
        return PartedRows(rows_of_parts, starts, False)


def _index_table(ordered: Words, table: TableSpec, room: Words) -> SortedTable:
    """Return a table with the begins of its buckets and its tags, which are put into ``room``.

    ``room`` has place for the rows and ``_kernel.TAG_ROOM`` more.
    """
    starts = np.empty((1 << table.prefix_bits) + 1, np.uint64)
    tags = room.reshape(-1).view(np.uint16)[: len(ordered) + _kernel.TAG_ROOM]
    _kernel.index_rows(ordered, table.prefix_bits, starts, tags)
    return SortedTable(ordered, starts, tags)
