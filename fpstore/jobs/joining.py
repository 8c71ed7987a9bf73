"""Joins: the pairs within a radius of a set in memory, in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.design.joins import JoinDesign
from fpstore.design.tables import TableSpec, identity
from fpstore.threads import Job, Pool
from fpstore.width import Distances, rows_like

BATCH_PAIRS = 1 << 18
LEAST_ROWS = 1 << 15  # of a part of a table that a thread takes
PARTS = 4  # of a table for each thread


class PairColumns(NamedTuple):
    """Pairs as rows, and their distances."""

    a: Words
    b: Words
    distances: Distances


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
    """

    def __init__(self, rows: Words, writable: bool = False) -> None:
        self._rows = rows
        self._writable = writable
        self._out, self._scratch = (rows_like(rows, len(rows)) for _ in range(2))
        self._tags = np.empty(len(rows) + _kernel.TAG_ROOM, np.uint16)

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
        starts = np.empty((1 << table.prefix_bits) + 1, np.uint64)
        _kernel.index_rows(ordered, table.prefix_bits, starts, self._tags)
        return SortedTable(ordered, starts, self._tags)


def pairs_within(rows: Words, design: JoinDesign, threads: int = 1) -> Iterator[PairColumns]:
    """Yield the pairs of a set in memory.

    Parameters
    ----------
    rows : Words
        Distinct rows, ascending.
    design : JoinDesign
    threads : int
        They share the buckets of a table; each table is sorted by one, and a design of one bucket is compared by one.
    """
    sorter = TableSorter(rows)
    for number, spec in enumerate(design.tables):
        yield from _met(design, number, sorter.sorted(spec), None, threads)


def pairs_between(rows: Words, others: Words, design: JoinDesign, threads: int = 1) -> Iterator[PairColumns]:
    """Yield the pairs of a row of one set in memory and a row of another, in this order.

    Parameters
    ----------
    rows, others : Words
        Distinct rows, ascending. It is faster if the first are fewer.
    design : JoinDesign
    threads : int
        As for :func:`pairs_within`.
    """
    sorter, other = TableSorter(rows), TableSorter(others)
    for number, spec in enumerate(design.tables):
        yield from _met(design, number, sorter.sorted(spec), other.sorted(spec), threads)


def _met(
    design: JoinDesign, number: int, table: SortedTable, opposite: SortedTable | None, threads: int
) -> Iterator[PairColumns]:
    """Yield the pairs of one table."""
    spec, count = design.tables[number], len(table.rows)
    parts = max(min(count // LEAST_ROWS, PARTS * threads), 1) if threads > 1 else 1
    wanted = np.arange(1, parts, dtype=np.uint64) * np.uint64(count) // np.uint64(parts)
    inner = np.searchsorted(table.starts, wanted).tolist()
    bounds = [0, *inner, 1 << spec.prefix_bits]
    joins = [_join(design, number, table, opposite, span) for span in pairwise(bounds) if span[0] < span[1]]
    yield from _streamed(joins, threads)


def _join(
    design: JoinDesign, number: int, table: SortedTable, opposite: SortedTable | None, span: tuple[int, int]
) -> _kernel.PairJoin:
    spec, upto = design.tables[number], number + 1
    return _kernel.PairJoin(
        *table, np.frombuffer(spec.permutation, np.uint8), design.bucket_masks[:upto], design.tag_masks[:upto],
        list(design.flips[:upto]), list(design.both[:upto]), spec.tag_bits, design.radius, *span, opposite,
    )  # fmt: skip


def _streamed(joins: list[_kernel.PairJoin], threads: int) -> Iterator[PairColumns]:
    if threads == 1 or len(joins) == 1:
        for join in joins:
            while not join.done:
                yield PairColumns(*join.more(BATCH_PAIRS))
        return
    stop = _kernel.Stop()
    waiting = deque(joins)
    running: deque[tuple[_kernel.PairJoin, Job[tuple[Words, Words, Distances]]]] = deque()
    with Pool(threads) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < threads:
                    join = waiting.popleft()
                    running.append((join, pool.submit(join.more, BATCH_PAIRS, stop=stop)))
                join, job = running.popleft()
                columns = PairColumns(*job.result())
                if not join.done:
                    running.append((join, pool.submit(join.more, BATCH_PAIRS, stop=stop)))
                yield columns
        except BaseException:
            stop.set()
            pool.cancel()
            raise
