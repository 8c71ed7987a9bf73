"""Joins: the pairs within a radius, of a set or of two, in batches and in bounded memory."""

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

ROOM = 1 << 18  # pairs of a batch
LEAST_ROWS = 1 << 15  # of a part of a table that a thread takes


class PairColumns(NamedTuple):
    """Pairs as rows, and their distances."""

    a: Words
    b: Words
    distances: Distances


class Side(NamedTuple):
    """Rows in the order of the buckets of a table, where each bucket begins, and the tags."""

    rows: Words
    starts: Words
    tags: npt.NDArray[np.uint16]


class Room:
    """Arrays in which tables of a set are sorted, one after the other.

    Parameters
    ----------
    rows : Words
        Distinct rows, ascending.
    keep : bool
        Whether what is returned may be overwritten: it is never the rows themselves.
    """

    def __init__(self, rows: Words, keep: bool = False) -> None:
        self._rows = rows
        self._keep = keep
        self._out, self._scratch = (rows_like(rows, len(rows)) for _ in range(2))
        self._tags = np.empty(len(rows) + _kernel.TAG_ROOM, np.uint16)

    def sorted(self, table: TableSpec) -> Side:
        """Return the rows in the order of a table's buckets; what was returned before must not be used any more."""
        ordered = self._rows
        if table.permutation != identity(table.width.bits):
            ordered = self._out
            _kernel.permute_sort(
                self._rows, np.frombuffer(table.permutation, np.uint8), ordered, self._scratch, max(table.prefix_bits, 1)
            )
        elif self._keep:
            ordered = self._out
            ordered[:] = self._rows
        starts = np.empty((1 << table.prefix_bits) + 1, np.uint64)
        _kernel.index_rows(ordered, table.prefix_bits, starts, self._tags)
        return Side(ordered, starts, self._tags)


def pairs_within(rows: Words, design: JoinDesign, threads: int = 1) -> Iterator[PairColumns]:
    """Yield the pairs of a set in memory.

    Parameters
    ----------
    rows : Words
        Distinct rows, ascending.
    design : JoinDesign
    threads : int
    """
    room = Room(rows)
    for number, table in enumerate(design.tables):
        side = _kernel.JoinSide(*room.sorted(table))
        parts = max(min(len(rows) // LEAST_ROWS, 4 * threads), 1) if threads > 1 else 1
        buckets = 1 << table.prefix_bits
        bounds = [buckets * part // parts for part in range(parts + 1)]
        joins = [_join(design, number, side, first, end) for first, end in pairwise(bounds)]
        yield from _streamed(joins, threads)


def _join(design: JoinDesign, number: int, side: _kernel.JoinSide, first: int, end: int) -> _kernel.PairJoin:
    table, upto = design.tables[number], number + 1
    return _kernel.PairJoin(
        side, None, np.frombuffer(table.permutation, np.uint8), design.bucket_masks[:upto], design.tag_masks[:upto],
        list(design.flips[:upto]), list(design.both[:upto]), table.tag_bits, design.radius, first, end,
    )  # fmt: skip


def _streamed(joins: list[_kernel.PairJoin], threads: int) -> Iterator[PairColumns]:
    if threads == 1 or len(joins) == 1:
        for join in joins:
            while not join.done:
                yield PairColumns(*join.more(ROOM))
        return
    stop = _kernel.Stop()
    waiting = deque(joins)
    running: deque[tuple[_kernel.PairJoin, Job[tuple[Words, Words, Distances]]]] = deque()
    with Pool(threads) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < threads:
                    join = waiting.popleft()
                    running.append((join, pool.submit(join.more, ROOM, stop=stop)))
                join, job = running.popleft()
                columns = PairColumns(*job.result())
                if not join.done:
                    running.append((join, pool.submit(join.more, ROOM, stop=stop)))
                yield columns
        except BaseException:
            stop.set()
            pool.cancel()
            raise
