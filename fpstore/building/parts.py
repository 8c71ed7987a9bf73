"""Rows of a fingerprint of one word and a number below 2^32 in two arrays, sorted in parts by several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.threads import Pool
from fpstore.building.external_sort import NumberedRows
from fpstore.disk.pages import own_pages

Numbers = npt.NDArray[np.uint32]
Work = Callable[[], object]

PART_ROWS = 1 << 14  # of a part that is sorted in the second-level cache
LEAST_BITS, MOST_BITS = 6, 12
LARGE_PART = 16  # a part with more than such a share of all rows would need much memory to be sorted


class Rows(NamedTuple):
    """Rows; without numbers they are numbered by their place, from ``first`` on."""

    keys: Words
    numbers: Numbers | None
    first: int = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.keys)

    def cut(self, start: int, end: int) -> Rows:
        """Return some of them."""
        return Rows(self.keys[start:end], None if self.numbers is None else self.numbers[start:end], self.first + start)


def room_for(rows: int) -> tuple[Words, Numbers]:
    """Return arrays for the keys and the numbers of so many rows, which begin with a page."""
    return own_pages(8 * rows).view(np.uint64), own_pages(4 * rows).view(np.uint32)


class Parts:
    """Rows, and how many of them have each value of a digit of their keys: the bits from ``depth`` on.

    Parameters
    ----------
    rows : Rows
    depth : int
        Bits in which all keys agree.
    bits : int
    threads : int
    stop : _kernel.Stop or None
        Ends the work of other threads.
    """

    def __init__(self, rows: Rows, depth: int, bits: int, threads: int, stop: _kernel.Stop | None = None) -> None:
        step = -(-len(rows) // threads) or 1
        self._slices = [rows.cut(start, min(start + step, len(rows))) for start in range(0, len(rows), step)]
        self._counts = [np.zeros(1 << bits, np.uint64) for _ in self._slices]
        self._rows, self._depth, self._bits, self._threads, self._stop = rows, depth, bits, threads, stop
        count = [
            partial(_kernel.count_parts, piece.keys, depth, out, stop=stop)
            for piece, out in zip(self._slices, self._counts, strict=True)
        ]
        do_all(threads, count)
        self.sizes: Words = np.sum([np.zeros(1 << bits, np.uint64), *self._counts], axis=0)
        self.ends: Words = np.cumsum(self.sizes)

    def scattered(self) -> tuple[Words, Numbers]:
        """Return the keys and the numbers of the rows in order of the digit."""
        out = room_for(len(self._rows))
        at = self.ends - self.sizes
        work: list[Work] = []
        for piece, counts in zip(self._slices, self._counts, strict=True):
            scatter = partial(_kernel.scatter_parts, stop=self._stop)
            work.append(partial(scatter, piece.keys, piece.numbers, piece.first, self._depth, at.copy(), out))
            at += counts
        do_all(self._threads, work)
        return out

    def sorted(self) -> tuple[Words, Numbers]:
        """Return the keys and the numbers of the rows in order of the keys."""
        keys, numbers = self.scattered()
        work: list[Work] = []
        start = first = 0
        step = max(len(keys) // (4 * self._threads), 1)  # several for each thread: they do not take equally long
        while start < len(keys):
            last = min(int(np.searchsorted(self.ends, np.uint64(start + step))), len(self.ends) - 1)
            end = int(self.ends[last])
            ends = self.ends[first : last + 1] - np.uint64(start)
            sort = partial(_kernel.sort_parts, stop=self._stop)
            work.append(partial(sort, keys[start:end], numbers[start:end], ends, self._depth + self._bits))
            start, first = end, last + 1
        do_all(self._threads, work)
        return keys, numbers

    @property
    def begin_alike(self) -> bool:
        """Whether a part has so many of the rows that sorting it as one would take much memory."""
        return int(self.sizes.max()) > max(len(self._rows) // (LARGE_PART * self._threads), PART_ROWS)


def parts_of(rows: Rows, depth: int, threads: int, stop: _kernel.Stop | None = None) -> Parts:
    """Return rows in parts that are small enough to be sorted in the cache, if their keys are even."""
    bits = LEAST_BITS
    while bits < MOST_BITS and len(rows) >> bits > PART_ROWS:
        bits += 1
    return Parts(rows, depth, bits, threads, stop)


def grouped(keys: Words, numbers: Numbers, room: Words) -> NumberedRows:
    """Return sorted rows by their distinct keys; ``room`` is for how many numbers each has."""
    if _kernel.are_distinct_keys(keys):
        return NumberedRows(keys, None, numbers, room)
    key_count, number_count = _kernel.group_numbered(keys, numbers, room)
    return NumberedRows(keys[:key_count], room[:key_count], numbers[:number_count], room)


def do_all(threads: int, work: Sequence[Work]) -> None:
    """Do some work in threads."""
    if threads == 1 or len(work) < 2:
        for part in work:
            part()
        return
    with Pool(min(threads, len(work))) as pool:
        for job in [pool.submit(part) for part in work]:
            job.result()
