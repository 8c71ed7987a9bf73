"""Rows of a key and a number in two arrays, sorted in memory by several threads: by digits, in parts that fit the cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.threads import in_order
from fpstore.base.width import WORD_BITS, words_of
from fpstore.building.columns import COPY_ROWS, SortedRows
from fpstore.disk.pages import own_pages

Numbers = npt.NDArray[Any]  # of 32 or 64 bits
Columns = tuple[Words, Numbers]

PART_ROWS = 1 << 14  # of a part that is sorted in the second-level cache
LEAST_BITS, MOST_BITS = 6, 12  # of a digit
LARGE_PART = 16  # a part with more than such a share of what a thread sorts is taken apart again
MOST_NUMBER = 2**32 - 1  # that takes 32 bits


def sort_room(count: int, words: int) -> Words:
    """Return an array for ``count`` rows of words; its memory goes back to the system when it is dropped."""
    array = own_pages(8 * count * words).view(np.uint64)
    return array if words == 1 else array.reshape(count, words)


def number_room(count: int, most: int) -> Numbers:
    """Return an array for ``count`` numbers up to ``most``."""
    kind = np.dtype(np.uint32 if most <= MOST_NUMBER else np.uint64)
    return own_pages(kind.itemsize * count).view(kind)


class NumberedRows(NamedTuple):
    """Keys, and a number of each; without numbers, they are numbered by their place, from ``first`` on."""

    keys: Words
    numbers: Numbers | None
    first: int = 0

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.keys)

    def cut(self, start: int, end: int) -> NumberedRows:
        """Return a slice of the rows."""
        return NumberedRows(self.keys[start:end], None if self.numbers is None else self.numbers[start:end], self.first + start)

    def room(self) -> Columns:
        """Return arrays for the keys and the numbers of as many rows."""
        most = self.first + self.size if self.numbers is None else np.iinfo(self.numbers.dtype).max
        return sort_room(self.size, words_of(self.keys)), number_room(self.size, int(most))


class Digits:
    """How many rows have each value of a digit of their keys (``sizes``), and where they end in order of the digit (``ends``).

    ``depth`` is the first bit of the digit; all its bits lie in one word.
    """

    def __init__(self, rows: NumberedRows, depth: int, bits: int, threads: int, stop: _kernel.Stop | None) -> None:
        step = -(-rows.size // threads) or 1
        self._slices = [rows.cut(start, min(start + step, rows.size)) for start in range(0, rows.size, step)]
        self._counts = [np.zeros(1 << bits, np.uint64) for _ in self._slices]
        self._depth, self._threads, self._stop = depth, threads, stop
        slices = zip(self._slices, self._counts, strict=True)
        do_all(threads, [partial(_kernel.count_parts, some.keys, depth, out, stop=stop) for some, out in slices])
        self.sizes: Words = np.sum([np.zeros(1 << bits, np.uint64), *self._counts], axis=0)
        self.ends: Words = np.cumsum(self.sizes)

    def scatter(self, out: Columns) -> None:
        """Move the rows to other arrays, in order of the digit."""
        at = self.ends - self.sizes
        work: list[Callable[[], object]] = []
        for some, counts in zip(self._slices, self._counts, strict=True):
            work.append(
                partial(_kernel.scatter_parts, some.keys, some.numbers, some.first, self._depth, at.copy(), out, stop=self._stop)
            )
            at += counts
        do_all(self._threads, work)


def sort_rows(rows: NumberedRows, out: Columns, threads: int, stop: _kernel.Stop | None = None, depth: int = 0) -> None:
    """Move rows to other arrays, sorted by their keys, stable; what they stood in may be in any order then.

    ``depth`` is a number of leading bits in which all keys agree.
    """
    all_bits = WORD_BITS * words_of(rows.keys)
    digits = _digits_at(rows, depth, threads, stop)
    if rows.size and int(digits.sizes.max()) == rows.size:  # a prefix that all have, or equal keys
        depth = min(_shared_bits(rows.keys), all_bits - 1)
        digits = _digits_at(rows, depth, threads, stop)
    digits.scatter(out)
    depth += len(digits.sizes).bit_length() - 1
    if depth == all_bits:
        return
    keys, numbers = out
    large = np.flatnonzero(digits.sizes > max(rows.size // (LARGE_PART * threads), PART_ROWS)).tolist()
    ends = digits.ends
    work: list[Callable[[], object]] = []
    step = max(rows.size // (4 * threads), 1)  # several for each thread: they do not take equally long
    for before, after in pairwise([-1, *large, len(ends)]):
        first = before + 1
        while first < after:
            start = int(ends[first] - digits.sizes[first])
            last = min(int(np.searchsorted(ends, np.uint64(start + step))), after - 1)
            some = slice(start, int(ends[last]))
            of_some = ends[first : last + 1] - np.uint64(start)
            work.append(partial(_kernel.sort_parts, keys[some], numbers[some], of_some, depth, stop=stop))
            first = last + 1
    do_all(threads, work)
    for part in large:
        start, end = int(ends[part] - digits.sizes[part]), int(ends[part])
        _sort_within((keys[start:end], numbers[start:end]), rows.cut(start, end), threads, stop, depth)


def _sort_within(rows: Columns, spare: NumberedRows, threads: int, stop: _kernel.Stop | None, depth: int) -> None:
    """Sort rows where they are; ``spare`` has room for their keys, and for the numbers if it has any."""
    room = spare.keys, np.empty_like(rows[1]) if spare.numbers is None else spare.numbers
    sort_rows(NumberedRows(*rows), room, threads, stop, depth)
    for start in range(0, spare.size, COPY_ROWS):
        if stop is not None and stop.is_set():
            raise InterruptedError
        for column, values in zip(rows, room, strict=True):
            column[start : start + COPY_ROWS] = values[start : start + COPY_ROWS]


def _digits_at(rows: NumberedRows, depth: int, threads: int, stop: _kernel.Stop | None) -> Digits:
    """Count digits that make parts small enough to be sorted in the cache, if keys are even."""
    bits = LEAST_BITS
    while bits < MOST_BITS and rows.size >> bits > PART_ROWS:
        bits += 1
    return Digits(rows, depth, min(bits, WORD_BITS - depth % WORD_BITS), threads, stop)


def _shared_bits(keys: Words) -> int:
    columns = keys.reshape(len(keys), -1).T
    for word, column in enumerate(columns):
        if differing := int(column.min()) ^ int(column.max()):
            return WORD_BITS * (word + 1) - differing.bit_length()
    return WORD_BITS * len(columns)


def grouped(keys: Words, numbers: Numbers, memory: Words) -> SortedRows:
    """Return sorted rows by their distinct keys; ``memory`` is for how many numbers each key has."""
    memory = memory.reshape(-1)
    if _kernel.are_distinct_keys(keys):
        return SortedRows(keys, None, numbers)
    key_count, number_count = _kernel.group_numbered(keys, numbers, memory)
    return SortedRows(keys[:key_count], memory[:key_count], numbers[:number_count])


def do_all(threads: int, work: Sequence[Callable[[], object]]) -> None:
    """Do some work in threads."""
    deque(in_order(lambda part: part(), work, threads if len(work) > 1 else 1, len(work)), maxlen=0)
