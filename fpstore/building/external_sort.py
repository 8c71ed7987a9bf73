"""The sort of rows of a key and a number in a fixed memory budget.

In memory, several threads sort by digits, in parts that fit the cache. What does not fit goes to
sorted runs in a file, which are merged part by part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Array, Words
from fpstore.base.pools import map_in_order
from fpstore.base.width import WORD_BITS, row_order, row_place, row_places, row_words
from fpstore.building.columns import COPY_ROWS, SortedRows
from fpstore.disk.mapped import page_aligned
from fpstore.disk.temporary import SpillFile

Numbers = npt.NDArray[Any]  # of 32 or 64 bits
Columns = tuple[Words, Numbers]

PART_ROWS = 1 << 14  # of a part that is sorted in the second-level cache
MIN_BITS, MAX_BITS = 6, 12  # of a digit
LARGE_PART = 16  # a part with more than this share of a thread's rows is divided again
MAX_NUMBER = 2**32 - 1  # the largest number that takes 32 bits

# Bytes per row of one word while rows are sorted in memory, of keys with numbers or of keys alone:
# the rows, and the arrays that they are moved to.
PAIR_BYTES = 32
SORT_BYTES = 16
SAMPLE_STEP = 512  # one in so many rows of a sorted run is kept as a sample


# In memory


def sort_buffer(count: int, words: int) -> Words:
    """Return an array for ``count`` rows of words.

    Its memory goes back to the system when it is dropped.
    """
    array = page_aligned(8 * count * words).view(np.uint64)
    return array if words == 1 else array.reshape(count, words)


def number_buffer(count: int, most: int) -> Numbers:
    """Return an array for ``count`` numbers up to ``most``."""
    kind = np.dtype(np.uint32 if most <= MAX_NUMBER else np.uint64)
    return page_aligned(kind.itemsize * count).view(kind)


class NumberedRows(NamedTuple):
    """Keys, and a number of each.

    Without numbers, they are numbered by their place, from ``first`` on.
    """

    keys: Words
    numbers: Numbers | None
    first: int = 0

    @property
    def size(self) -> int:
        return len(self.keys)

    def part(self, start: int, end: int) -> NumberedRows:
        return NumberedRows(
            self.keys[start:end],
            None if self.numbers is None else self.numbers[start:end],
            self.first + start,
        )

    def buffers(self) -> Columns:
        """Return arrays for the keys and the numbers of as many rows."""
        most = self.first + self.size if self.numbers is None else np.iinfo(self.numbers.dtype).max
        return sort_buffer(self.size, row_words(self.keys)), number_buffer(self.size, int(most))


class DigitCounts:
    """A digit of the keys: how many rows have each value (``sizes``), and their ``ends``.

    ``depth`` is the first bit of the digit; all its bits lie in one word.
    """

    def __init__(
        self, rows: NumberedRows, depth: int, bits: int, threads: int, stop: _kernel.Stop | None
    ) -> None:
        step = -(-rows.size // threads) or 1
        self._slices = [
            rows.part(start, min(start + step, rows.size)) for start in range(0, rows.size, step)
        ]
        self._counts = [np.zeros(1 << bits, np.uint64) for _ in self._slices]
        self._depth, self._threads, self._stop = depth, threads, stop
        slices = zip(self._slices, self._counts, strict=True)
        run_parts(
            threads,
            [
                partial(_kernel.count_parts, part.keys, depth, out, stop=stop)
                for part, out in slices
            ],
        )
        self.sizes: Words = np.sum([np.zeros(1 << bits, np.uint64), *self._counts], axis=0)
        self.ends: Words = np.cumsum(self.sizes)

    def scatter(self, out: Columns) -> None:
        """Move the rows to other arrays, in order of the digit."""
        at = self.ends - self.sizes
        work: list[Callable[[], object]] = []
        for part, counts in zip(self._slices, self._counts, strict=True):
            work.append(
                partial(
                    _kernel.scatter_parts,
                    part.keys,
                    part.numbers,
                    part.first,
                    self._depth,
                    at.copy(),
                    out,
                    stop=self._stop,
                )
            )
            at += counts
        run_parts(self._threads, work)


def sort_rows(
    rows: NumberedRows, out: Columns, threads: int, stop: _kernel.Stop | None = None, depth: int = 0
) -> None:
    """Move rows to other arrays in a stable sort by their keys; the first arrays get any order.

    ``depth`` is a number of leading bits in which all keys agree.
    """
    all_bits = WORD_BITS * row_words(rows.keys)
    digits = _count_digits(rows, depth, threads, stop)
    if rows.size and int(digits.sizes.max()) == rows.size:  # a prefix that all have, or equal keys
        depth = min(_common_prefix_bits(rows.keys), all_bits - 1)
        digits = _count_digits(rows, depth, threads, stop)
    digits.scatter(out)
    depth += len(digits.sizes).bit_length() - 1
    if depth == all_bits:
        return
    keys, numbers = out
    large = np.flatnonzero(
        digits.sizes > max(rows.size // (LARGE_PART * threads), PART_ROWS)
    ).tolist()
    ends = digits.ends
    work: list[Callable[[], object]] = []
    # several for each thread: they do not take equally long
    step = max(rows.size // (4 * threads), 1)
    for before, after in pairwise([-1, *large, len(ends)]):
        first = before + 1
        while first < after:
            start = int(ends[first] - digits.sizes[first])
            last = min(int(np.searchsorted(ends, np.uint64(start + step))), after - 1)
            rows_of_parts = slice(start, int(ends[last]))
            part_ends = ends[first : last + 1] - np.uint64(start)
            work.append(
                partial(
                    _kernel.sort_parts,
                    keys[rows_of_parts],
                    numbers[rows_of_parts],
                    part_ends,
                    depth,
                    stop=stop,
                )
            )
            first = last + 1
    run_parts(threads, work)
    for part in large:
        start, end = int(ends[part] - digits.sizes[part]), int(ends[part])
        _sort_within(
            (keys[start:end], numbers[start:end]), rows.part(start, end), threads, stop, depth
        )


def _sort_within(
    rows: Columns, spare: NumberedRows, threads: int, stop: _kernel.Stop | None, depth: int
) -> None:
    """Sort rows where they are.

    ``spare`` has room for their keys, and for the numbers if it has any.
    """
    out = spare.keys, np.empty_like(rows[1]) if spare.numbers is None else spare.numbers
    sort_rows(NumberedRows(*rows), out, threads, stop, depth)
    for start in range(0, spare.size, COPY_ROWS):
        if stop is not None and stop.is_set():
            raise InterruptedError
        for column, values in zip(rows, out, strict=True):
            column[start : start + COPY_ROWS] = values[start : start + COPY_ROWS]


def _count_digits(
    rows: NumberedRows, depth: int, threads: int, stop: _kernel.Stop | None
) -> DigitCounts:
    """Count digits that make parts small enough to be sorted in the cache, if keys are even."""
    bits = MIN_BITS
    while bits < MAX_BITS and rows.size >> bits > PART_ROWS:
        bits += 1
    return DigitCounts(rows, depth, min(bits, WORD_BITS - depth % WORD_BITS), threads, stop)


def _common_prefix_bits(keys: Words) -> int:
    columns = keys.reshape(len(keys), -1).T
    for word, column in enumerate(columns):
        if differing := int(column.min()) ^ int(column.max()):
            return WORD_BITS * (word + 1) - differing.bit_length()
    return WORD_BITS * len(columns)


def group_rows(keys: Words, numbers: Numbers, memory: Words) -> SortedRows:
    """Group sorted rows by key; ``memory`` takes how many numbers each key has."""
    memory = memory.reshape(-1)
    if _kernel.are_distinct_keys(keys):
        return SortedRows(keys, None, numbers)
    key_count, number_count = _kernel.group_numbered(keys, numbers, memory)
    return SortedRows(keys[:key_count], memory[:key_count], numbers[:number_count])


def run_parts(threads: int, work: Sequence[Callable[[], object]]) -> None:
    deque(
        map_in_order(lambda part: part(), work, threads if len(work) > 1 else 1, len(work)),
        maxlen=0,
    )


# In runs


def pair_bytes(words: int) -> int:
    """Return the bytes per row of a sort with numbers, for keys of ``words``."""
    return PAIR_BYTES * (words + 1) // 2


def sort_bytes(words: int) -> int:
    """Return the bytes per key of a sort of keys alone, for keys of ``words``."""
    return SORT_BYTES * words


class Slice(NamedTuple):
    """Successive rows of a run."""

    run: int
    start: int
    end: int


Slices = list[Slice]  # a part: slices of all runs, with no row of another part between theirs


class Runs:
    """Sorted runs of rows in a file without a name, which are merged part by part.

    Bounds that are evenly chosen among the keys cut them, so that each part fits into memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = SpillFile(folder)
        # where the arrays of each run are
        self._places: list[list[tuple[int, np.dtype[Any]]]] = []
        self._sizes: list[int] = []
        self._samples: list[Words] = []
        self._words = 1

    def append(self, columns: Sequence[Array]) -> None:
        """Add a run of keys, which may have numbers."""
        keys = columns[0]
        self._words = row_words(keys)
        self._places.append([])
        for column in columns:
            self._places[-1].append((self._file.align(), column.dtype))
            for start in range(0, len(column), COPY_ROWS):
                self._file.append(column[start : start + COPY_ROWS].reshape(-1).view(np.uint8))
        self._sizes.append(len(keys))
        self._samples.append(keys[::SAMPLE_STEP].copy())

    def parts(self, most: int) -> list[Slices]:
        """Return the parts, in order; a part has at most ``most`` rows, unless all have one key."""
        samples = np.concatenate(self._samples)
        samples = samples[row_order(samples)]
        # Each run adds less than a step to the rows between two bounds, or is shorter than that.
        step = max(most // SAMPLE_STEP - len(self._sizes), most // SAMPLE_STEP // 2, 1)
        bounds = samples[step::step]
        cuts = [[0, *self._find_bounds(run, bounds), size] for run, size in enumerate(self._sizes)]
        slices = [
            [Slice(run, start, end) for start, end in pairwise(run_cuts)]
            for run, run_cuts in enumerate(cuts)
        ]
        return [part for part in map(list, zip(*slices, strict=True)) if count_rows(part)]

    def _find_bounds(self, run: int, bounds: Words) -> Iterator[int]:
        """Yield the first row of a run that is not below each bound, between two samples."""
        for at, sample in enumerate(row_places(self._samples[run], bounds).tolist()):
            first = max((sample - 1) * SAMPLE_STEP + 1, 0)
            between = sort_buffer(min(sample * SAMPLE_STEP, self._sizes[run]) - first, self._words)
            self.read(Slice(run, first, first + len(between)), [between])
            yield first + row_place(between, bounds[at : at + 1])

    def read(self, rows: Slice, columns: Sequence[Array]) -> None:
        """Read rows of a run into arrays, whose numbers may have more bits."""
        for (at, kind), out in zip(self._places[rows.run], columns, strict=False):
            array = out if out.dtype == kind else np.empty(out.shape, kind)
            row_bytes = kind.itemsize * row_words(out)
            self._file.read(at + rows.start * row_bytes, array.reshape(-1).view(np.uint8))
            if array is not out:
                out[:] = array

    def close(self) -> None:
        self._file.close()


def count_rows(part: Slices) -> int:
    return sum(rows.end - rows.start for rows in part)


def stop_between(pieces: Iterator[Words], stop: _kernel.Stop | None) -> Iterator[Words]:
    """Yield the pieces, with InterruptedError in place of the next once ``stop`` is set.

    A generator of pieces is closed then, so that a thread that reads ahead ends before the error is
    handled.
    """
    for piece in pieces:
        if stop is not None and stop.is_set():
            if isinstance(pieces, Generator):
                pieces.close()
            raise InterruptedError
        yield piece


class Sorter:
    """Sorts rows of a key and a number in a budget.

    :meth:`add` them in any order, then iterate over :meth:`groups`, once. Rows that do not fit into
    memory go to sorted runs. ``rows`` is the number of rows to come, if it is known.
    """

    def __init__(
        self,
        memory: int,
        folder: Path | None,
        rows: int | None = None,
        words: int = 1,
        threads: int = 1,
        stop: _kernel.Stop | None = None,
    ) -> None:
        self._folder, self._threads, self._stop = folder, threads, stop
        self._most = max(memory // pair_bytes(words), 1)  # rows in memory
        self._words = words
        self._largest_number = 0
        self._has_numbers = False  # otherwise rows are numbered by their place
        self._keys, self._numbers = self._buffers(min(rows or 0, self._most))
        self._in_memory = 0  # rows
        self._runs: Runs | None = None
        self.rows = 0

    @property
    def spilled(self) -> bool:
        """Whether the rows did not fit into the budget."""
        return self._runs is not None

    def add(self, keys: Words, numbers: Array | None) -> None:
        """Append rows, all with numbers or all without: then their places are their numbers."""
        self._has_numbers |= numbers is not None
        largest = int(numbers.max(initial=0)) if numbers is not None else self.rows + len(keys)
        if largest > MAX_NUMBER >= self._largest_number:
            self._largest_number = largest
            self._grow(len(self._keys))
        done = 0
        while done < len(keys):
            if self._in_memory == self._most:
                self._spill()
            start = self._in_memory
            end = min(start + len(keys) - done, start + COPY_ROWS, self._most)
            if end > len(self._keys):
                self._grow(max(end, min(end * 3 // 2, self._most)))
            self._keys[start:end] = keys[done : done + end - start]
            if numbers is not None:
                self._numbers[start:end] = numbers[done : done + end - start]
            self._in_memory, self.rows, done = end, self.rows + end - start, done + end - start

    def _buffers(self, rows: int) -> tuple[Words, Array]:
        return sort_buffer(rows, self._words), number_buffer(rows, self._largest_number)

    def _grow(self, rows: int) -> None:
        keys, numbers = self._buffers(rows)
        for start in range(0, self._in_memory, COPY_ROWS):
            piece = slice(start, min(start + COPY_ROWS, self._in_memory))
            keys[piece] = self._keys[piece]
            if self._has_numbers:
                numbers[piece] = self._numbers[piece]
        self._keys, self._numbers = keys, numbers

    def _rows_in_memory(self) -> NumberedRows:
        count = self._in_memory
        numbers = self._numbers[:count] if self._has_numbers else None
        return NumberedRows(self._keys[:count], numbers, self.rows - count)

    def _spill(self) -> None:
        rows = self._rows_in_memory()
        out = rows.buffers()
        sort_rows(rows, out, self._threads, self._stop)
        if self._runs is None:
            self._runs = Runs(self._folder)
        self._runs.append(out)
        self._in_memory = 0

    def groups(self, tick: Callable[[int], None]) -> Iterator[SortedRows]:
        """Yield the sorted rows in parts, grouped by key.

        Call ``tick`` with the number of rows sorted.
        """
        if self._runs is not None:
            yield from self._merge_runs(self._runs, tick)
        elif self.rows:
            rows, (self._keys, self._numbers) = self._rows_in_memory(), self._buffers(0)
            yield self._sort_and_group(rows, self._threads)
            tick(self.rows)

    def _sort_and_group(self, rows: NumberedRows, threads: int) -> SortedRows:
        out = rows.buffers()
        sort_rows(rows, out, threads, self._stop)
        return group_rows(*out, rows.keys)

    def _merge_runs(self, runs: Runs, tick: Callable[[int], None]) -> Iterator[SortedRows]:
        if self._in_memory:
            self._spill()
        self._keys, self._numbers = self._buffers(0)
        waiting = 2 * self._threads + 1  # parts in memory at once: threads sort some, others wait
        parts = runs.parts(self._most // waiting)
        threads = self._threads if max(map(count_rows, parts)) * waiting <= self._most else 1
        for part, rows in map_in_order(
            partial(self._part, runs, self._threads // threads), parts, threads
        ):
            yield rows
            tick(count_rows(part))
        runs.close()

    def _part(self, runs: Runs, threads: int, part: Slices) -> SortedRows:
        keys, numbers = self._buffers(count_rows(part))
        start = 0
        for rows in part:
            end = start + rows.end - rows.start
            runs.read(rows, [keys[start:end], numbers[start:end]])
            start = end
        return self._sort_and_group(NumberedRows(keys, numbers), threads)
