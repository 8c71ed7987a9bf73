"""Sorts the rows of sets into the buckets of a table of a join, or into parts of these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
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


class PartSorter:
    """Scatters sets by the leading bits of their buckets, for one table after the other.

    What a part has is sorted when it is searched. Each set is scattered in the same array for all
    tables: a new one would cost as much as the work. If the caller writes to rows, a search has
    copies even of the table in the order of the rows.
    """

    def __init__(self, sides: Sequence[Words], writable: bool, resources: Resources) -> None:
        self._sides, self._writable, self._resources = sides, writable, resources
        self._out = [empty_rows_like(rows, 0) for rows in sides]

    def count(self, table: TableSpec) -> Lims | None:
        """Return the lims of the parts of a table, in rows of all sets.

        None if it has too few rows, or there is no memory for the largest part.
        """
        rows = max(map(len, self._sides))
        if rows < MIN_PARTS * PART_ROWS:
            return None
        self.part_bits = min((rows // PART_ROWS).bit_length(), table.prefix_bits, MAX_PART_BITS)
        self._permutation = np.frombuffer(table.permutation, np.uint8)
        self._in_order = table.permutation == identity_permutation(table.width.bits)
        count = partial(_kernel.count_permuted, permutation=self._permutation, bits=self.part_bits)
        self._counts = [
            run(count, self._slices(side), self._resources.threads) for side in self._sides
        ]
        sizes: Words = np.sum([np.sum(counts, axis=0) for counts in self._counts], axis=0)
        return list_lims(sizes) if self._room(int(sizes.max())) >= int(sizes.max()) else None

    def _slices(self, rows: Words) -> list[Words]:
        step = max(-(-len(rows) // self._resources.threads), 1)
        return [rows[start : start + step] for start in range(0, max(len(rows), 1), step)]

    def _room(self, largest: int) -> int:
        """Return how many rows can be scattered, beside the largest part for each thread."""
        row_bytes = 8 * row_words(self._sides[0])
        part_bytes = largest * (
            TAG_BYTES if self._in_order and not self._writable else row_bytes + TAG_BYTES
        )
        left = self._resources.memory - self._resources.threads * part_bytes
        return left if self._in_order else left // row_bytes

    def groups(self, lims: Lims) -> Iterator[slice]:
        """Yield successive parts for which there is memory at the same time."""
        room = int(lims[-1]) if self._in_order else self._room(int(np.diff(lims).max()))
        return spans(lims, max(room, 1))

    def scatter(self, parts: slice) -> list[PartedRows]:
        """Return the rows of some parts of each set; this overwrites earlier results."""
        return [self._scatter_side(number, parts) for number in range(len(self._sides))]

    def _scatter_side(self, number: int, parts: slice) -> PartedRows:
        rows, counts = self._sides[number], self._counts[number]
        sizes: Words = np.sum(counts, axis=0)
        lims = list_lims(sizes[parts])
        starts, total = lims.astype(np.uint64), int(lims[-1])
        if self._in_order:
            first = int(sizes[: parts.start].sum())
            return PartedRows(rows[first : first + total], starts, True)
        if len(self._out[number]) < total:
            self._out[number] = empty_rows_like(rows, 0)
            self._out[number] = empty_rows_like(rows, total)
        at, work = starts[:-1], []
        for piece, of_piece in zip(self._slices(rows), counts, strict=True):
            work.append((piece, at))
            at = at + of_piece[parts]

        def scatter(piece: tuple[Words, Words], stop: _kernel.Stop | None) -> None:
            _kernel.scatter_permuted(
                piece[0],
                self._permutation,
                self.part_bits,
                parts.start,
                piece[1],
                self._out[number],
                stop,
            )

        run(scatter, work, self._resources.threads)
        return PartedRows(self._out[number], starts, False)


def _index_table(ordered: Words, table: TableSpec, room: Words) -> SortedTable:
    """Return a table with the begins of its buckets and its tags, which are put into ``room``.

    ``room`` has place for the rows and ``_kernel.TAG_ROOM`` more.
    """
    starts = np.empty((1 << table.prefix_bits) + 1, np.uint64)
    tags = room.reshape(-1).view(np.uint16)[: len(ordered) + _kernel.TAG_ROOM]
    _kernel.index_rows(ordered, table.prefix_bits, starts, tags)
    return SortedTable(ordered, starts, tags)
