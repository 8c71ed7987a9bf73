"""The sorted keys of a table, from the sorted set, in memory or as sorted runs in a file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.building.columns import cut_pieces
from fpstore.building.external_sort import (
    Runs,
    Slices,
    count_rows,
    sort_buffer,
    sort_bytes,
    stop_between,
)
from fpstore.design.tables import REFERENCES, TableSpec

MIN_MEMORY = 4 << 20  # of a table, however small its share of the budget is
# for each word of a key: with less, a pass would read many small pieces of many runs
THREAD_MEMORY = 8 << 20
RUN_ARRAYS, PART_ARRAYS = 3, 2


class _RunBuffers(NamedTuple):
    """Arrays for a run: rows as they come, sorted keys, and scratch, which even keys hardly use."""

    rows: Words
    keys: Words
    scratch: Words


class TableKeys:
    """Starts any number of passes over the sorted keys of a table.

    ``rows`` starts the one pass over the ascending fingerprints. Keys that do not fit into memory
    are sorted in :class:`Runs`; a pass then sorts part after part of all runs.
    """

    def __init__(
        self,
        rows: Callable[[], Iterator[Words]],
        count: int,
        spec: TableSpec,
        folder: Path,
        resources: Resources,
        stop: _kernel.Stop,
    ) -> None:
        threads = min(resources.threads, max_threads(resources.memory, spec.key_words))
        self._rows, self._count, self._spec = rows, count, spec
        self._threads, self._stop = threads, stop
        self._words = spec.key_words
        # an eighth is for the index of the table and for buffers of files
        memory = max(resources.memory, MIN_MEMORY) // 8 * 7
        most = memory // (sort_bytes(self._words) // 2)  # rows of an array as large as that
        run_rows = most // RUN_ARRAYS
        if count > run_rows:
            run_rows //= _parts_in_memory(threads)
        self._run_rows = max(min(run_rows, count), 1)
        self._part_rows = most // (PART_ARRAYS * _parts_in_memory(threads))
        self._folder = folder
        self._buffers: list[_RunBuffers] = []
        self._runs: Runs | None = None
        self._parts: list[Slices] | None = None
        self._in_memory: Words | None = None  # all keys
        self._pass: Generator[Words, None, None] | None = None

    def __call__(self) -> Iterator[Words]:
        """Start a pass, which ends the one before; each piece of it is valid until the next."""
        if self._in_memory is None and self._parts is None:
            self._sort()
        if self._in_memory is not None:
            return iter([self._in_memory])
        self._end_pass()
        self._pass = self._merge_runs()
        return self._pass

    @property
    def is_on_disk(self) -> bool:
        """Whether the keys were more than memory holds."""
        return self._runs is not None

    def close(self) -> None:
        self._end_pass()
        self._in_memory = None
        if self._runs is not None:
            self._runs.close()

    def _end_pass(self) -> None:
        """Wait for the threads of a pass that has not come to its end."""
        if self._pass is not None:
            self._pass.close()
            self._pass = None

    # Runs

    def _sort(self) -> None:
        for (buffer, _), run in map_in_order(self._sort_run, self._unsorted_runs(), self._threads):
            if len(run) == self._count:
                self._in_memory = run
                return
            if self._runs is None:
                self._runs = Runs(self._folder)
            self._runs.append([run])
            self._buffers.append(buffer)
        self._buffers.clear()
        self._parts = [] if self._runs is None else self._runs.parts(self._part_rows)

    def _unsorted_runs(self) -> Iterator[tuple[_RunBuffers, int]]:
        """Yield buffers with the rows of a run, and the number of rows."""
        buffer, filled = None, 0
        for piece in self._source():
            done = 0
            while done < len(piece):
                if buffer is None:
                    buffer, filled = self._take_buffers(), 0
                size = min(len(piece) - done, self._run_rows - filled)
                buffer.rows[filled : filled + size] = piece[done : done + size]
                filled, done = filled + size, done + size
                if filled == self._run_rows:
                    yield buffer, filled
                    buffer = None
        if buffer is not None:
            yield buffer, filled

    def _source(self) -> Iterator[Words]:
        pieces = (
            reference_keys(self._rows, self._count, self._spec)
            if self._spec.kind == REFERENCES
            else self._rows()
        )
        return stop_between(pieces, self._stop)

    def _take_buffers(self) -> _RunBuffers:
        try:
            return self._buffers.pop()
        except IndexError:  # all are in use
            return _RunBuffers(
                *(sort_buffer(self._run_rows, self._words) for _ in range(RUN_ARRAYS))
            )

    def _sort_run(self, unsorted: tuple[_RunBuffers, int]) -> Words:
        rows, keys, scratch = (array[: unsorted[1]] for array in unsorted[0])
        if self._spec.kind == REFERENCES:
            _kernel.sort_keys(rows, scratch, None, self._stop)
            return rows
        permutation = np.frombuffer(self._spec.permutation, np.uint8)
        _kernel.permute_sort(rows, permutation, keys, scratch, self._spec.sort_bits, self._stop)
        return keys

    # Passes

    def _merge_runs(self) -> Generator[Words, None, None]:
        """Yield the sorted keys of the merged runs; each array is valid until the next one."""
        assert self._parts is not None
        largest = max(map(count_rows, self._parts), default=0)
        buffers: list[tuple[Words, Words]] = []

        def sort_part(part: Slices) -> tuple[tuple[Words, Words], int]:
            assert self._runs is not None
            try:
                buffer = buffers.pop()
            except IndexError:  # all are in use
                buffer = sort_buffer(largest, self._words), sort_buffer(largest, self._words)
            size = 0
            # Runs follow each other as the fingerprints do, and the sort is stable: the bits behind
            # those sorted by are in order.
            for rows in part:
                end = size + rows.end - rows.start
                self._runs.read(rows, [buffer[0][size:end]])
                size = end
            bits = None if self._spec.kind == REFERENCES else self._spec.sort_bits
            _kernel.sort_keys(buffer[0][:size], buffer[1][:size], bits, self._stop)
            return buffer, size

        for _, (buffer, size) in map_in_order(sort_part, self._parts, self._threads):
            yield buffer[0][:size]
            buffers.append(buffer)


def reference_keys(
    keys: Callable[[], Iterable[Words]], count: int, spec: TableSpec
) -> Iterator[Words]:
    """Yield the keys of a table of references in the order of the rows.

    ``keys`` starts a pass over all fingerprints.
    """
    permutation, first = np.frombuffer(spec.permutation, np.uint8), 0
    for piece in cut_pieces(keys()):
        yield _kernel.reference_keys(piece, first, count, permutation, spec.prefix_bits)
        first += len(piece)


def max_threads(memory: int, words: int) -> int:
    """Return how many threads can sort runs of keys of ``words`` in a budget."""
    return max(memory // (THREAD_MEMORY * words), 1)


def _parts_in_memory(threads: int) -> int:
    """Return how many runs or parts are in memory: one for each thread, and one that waits."""
    return threads + 1 if threads > 1 else 1
