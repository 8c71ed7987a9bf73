"""The sorted keys of a table, made of the sorted set.

In memory, or as sorted runs in a file, which are merged in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.pools import in_order
from fpstore.base.resources import Resources
from fpstore.building.columns import in_pieces
from fpstore.building.external_sort import (
    Runs,
    Slices,
    size_of,
    sort_bytes,
    sort_room,
    unless_stopped,
)
from fpstore.design.tables import REFERENCES, TableSpec

LEAST_MEMORY = 4 << 20  # of a table, however small its share of the budget is
# for each word of a key: with less, a pass would read many small pieces of many runs
THREAD_MEMORY = 8 << 20
RUN_ARRAYS, PART_ARRAYS = 3, 2


class _Room(NamedTuple):
    """Arrays for a run: rows as they come, sorted keys, and scratch, little of which is touched where keys lie evenly."""

    rows: Words
    keys: Words
    scratch: Words


class TableKeys:
    """Starts passes over the sorted keys of a table, of any number.

    ``rows`` starts the one pass over the ascending fingerprints.

    What does not fit into memory is sorted in :class:`Runs`. A pass takes a part of all runs after
    the other, and sorts it.
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
        threads = min(resources.threads, most_threads(resources.memory, spec.key_words))
        self._rows, self._count, self._spec, self._threads, self._stop = (
            rows,
            count,
            spec,
            threads,
            stop,
        )
        self._words = spec.key_words
        # the rest is for the index of the table and for buffers of files
        memory = max(resources.memory, LEAST_MEMORY) // 8 * 7
        most = memory // (sort_bytes(self._words) // 2)  # rows of an array as large as that
        run_rows = most // RUN_ARRAYS
        if count > run_rows:
            run_rows //= _at_once(threads)
        self._run_rows = max(min(run_rows, count), 1)
        self._part_rows = most // (PART_ARRAYS * _at_once(threads))
        self._folder = folder
        self._rooms: list[_Room] = []
        self._runs: Runs | None = None
        self._parts: list[Slices] | None = None
        self._kept: Words | None = None
        self._pass: Generator[Words, None, None] | None = None

    def __call__(self) -> Iterator[Words]:
        """Start a pass, which ends the one before; each piece of it is valid until the next."""
        if self._kept is None and self._parts is None:
            self._sort()
        if self._kept is not None:
            return iter([self._kept])
        self._end_pass()
        self._pass = self._merged()
        return self._pass

    def close(self) -> None:
        """Drop the keys."""
        self._end_pass()
        self._kept = None
        if self._runs is not None:
            self._runs.close()

    def _end_pass(self) -> None:
        """Wait for the threads of a pass that has not come to its end."""
        if self._pass is not None:
            self._pass.close()
            self._pass = None

    # Runs

    def _sort(self) -> None:
        for (room, _), run in in_order(self._sorted_run, self._gathered(), self._threads):
            if len(run) == self._count:
                self._kept = run
                return
            if self._runs is None:
                self._runs = Runs(self._folder)
            self._runs.append([run])
            self._rooms.append(room)
        self._rooms.clear()
        self._parts = [] if self._runs is None else self._runs.parts(self._part_rows)

    def _gathered(self) -> Iterator[tuple[_Room, int]]:
        """Yield rooms filled with rows, and how many these are."""
        room, filled = None, 0
        for piece in self._source():
            done = 0
            while done < len(piece):
                if room is None:
                    room, filled = self._new_room(), 0
                size = min(len(piece) - done, self._run_rows - filled)
                room.rows[filled : filled + size] = piece[done : done + size]
                filled, done = filled + size, done + size
                if filled == self._run_rows:
                    yield room, filled
                    room = None
        if room is not None:
            yield room, filled

    def _source(self) -> Iterator[Words]:
        pieces = (
            reference_keys(self._rows, self._count, self._spec)
            if self._spec.kind == REFERENCES
            else self._rows()
        )
        return unless_stopped(pieces, self._stop)

    def _new_room(self) -> _Room:
        try:
            return self._rooms.pop()
        except IndexError:  # all are in use
            return _Room(*(sort_room(self._run_rows, self._words) for _ in range(RUN_ARRAYS)))

    def _sorted_run(self, gathered: tuple[_Room, int]) -> Words:
        rows, keys, scratch = (array[: gathered[1]] for array in gathered[0])
        if self._spec.kind == REFERENCES:
            _kernel.sort_keys(rows, scratch, None, self._stop)
            return rows
        permutation = np.frombuffer(self._spec.permutation, np.uint8)
        _kernel.permute_sort(rows, permutation, keys, scratch, self._spec.sort_bits, self._stop)
        return keys

    # Passes

    def _merged(self) -> Generator[Words, None, None]:
        assert self._parts is not None
        largest = max(map(size_of, self._parts), default=0)
        rooms: list[tuple[Words, Words]] = []

        def keys_of(part: Slices) -> tuple[tuple[Words, Words], int]:
            assert self._runs is not None
            try:
                room = rooms.pop()
            except IndexError:  # all are in use
                room = sort_room(largest, self._words), sort_room(largest, self._words)
            size = 0
            # Runs follow each other as the fingerprints do, and the sort is stable: the bits behind
            # those sorted by are in order.
            for some in part:
                end = size + some.end - some.start
                self._runs.read(some, [room[0][size:end]])
                size = end
            bits = None if self._spec.kind == REFERENCES else self._spec.sort_bits
            _kernel.sort_keys(room[0][:size], room[1][:size], bits, self._stop)
            return room, size

        for _, (room, size) in in_order(keys_of, self._parts, self._threads):
            yield room[0][:size]
            rooms.append(room)


def reference_keys(
    keys: Callable[[], Iterable[Words]], count: int, spec: TableSpec
) -> Iterator[Words]:
    """Yield the keys of a table of references in the order of the rows.

    ``keys`` starts a pass over all fingerprints.
    """
    permutation, first = np.frombuffer(spec.permutation, np.uint8), 0
    for piece in in_pieces(keys()):
        yield _kernel.reference_keys(piece, first, count, permutation, spec.prefix_bits)
        first += len(piece)


def most_threads(memory: int, words: int) -> int:
    """Return the number of threads that can sort runs of keys in a budget, by the number of words of a key."""
    return max(memory // (THREAD_MEMORY * words), 1)


def _at_once(threads: int) -> int:
    """Return the number of runs or parts in memory.

    One for each thread that sorts, and one that waits.
    """
    return threads + 1 if threads > 1 else 1
