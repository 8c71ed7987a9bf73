"""Sorting rows of a fingerprint of one word and a number, in memory or in files, by several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.threads import in_order
from fpstore.building.external_sort import COPY_ROWS, NumberedRows, PairSorter, SortedRows, pair_bytes
from fpstore.building.parts import Numbers, Parts, Rows, grouped, parts_of, room_for
from fpstore.building.runs import RUN_BITS, Run

MOST_NUMBER = 2**32 - 1


class NumberedSorter:
    """Sorts rows: :meth:`add` them in any order, then iterate over :meth:`groups`, once.

    Numbers take 32 bits. Rows with larger ones, and many fingerprints that begin alike, are left to a :class:`PairSorter`.

    Parameters
    ----------
    memory : int
        Budget in bytes. Beyond it, runs of rows in parts are written to files.
    folder : Path
        The folder for temporary files.
    rows : int or None
        The number of rows that will be added, if it is known.
    threads : int
    stop : _kernel.Stop or None
        Ends the sorts of other threads.

    Attributes
    ----------
    rows : int
        How many were added.
    """

    def __init__(self, memory: int, folder: Path, rows: int | None, threads: int, stop: _kernel.Stop | None = None) -> None:
        self._memory, self._folder, self._threads, self._stop = memory, folder, threads, stop
        self._most = max(memory // pair_bytes(1), 1)
        self._keys, self._numbers = room_for(min(rows or 0, self._most))
        self._numbered = False  # whether numbers were given: they are those of the rows otherwise
        self._runs: list[Run] = []
        self._pairs: PairSorter | None = None
        self._held = 0  # rows in memory
        self.rows = 0

    @property
    def spilled(self) -> bool:
        """Whether the rows did not fit into the budget."""
        return bool(self._runs) if self._pairs is None else self._pairs.spilled

    def add(self, fingerprints: Words, numbers: Words | None) -> None:
        """Append rows; without numbers, which none or all have, they are numbered by their place."""
        most = self.rows + len(fingerprints) - 1 if numbers is None else int(numbers.max(initial=0))
        if self._pairs is None and most > MOST_NUMBER:
            self._leave()
        self._numbered |= numbers is not None
        for start in range(0, len(fingerprints), COPY_ROWS):
            end = min(start + COPY_ROWS, len(fingerprints))
            given = None if numbers is None else numbers[start:end]
            if self._pairs is not None:
                self._pairs.add(fingerprints[start:end], _numbers(given, self.rows + start, end - start))
            else:
                self._add(fingerprints[start:end], given)
        self.rows += len(fingerprints)

    def _add(self, fingerprints: Words, numbers: Words | None) -> None:
        done = 0
        while done < len(fingerprints):
            if self._held == self._most:
                self._spill()
            start, end = self._held, min(self._held + len(fingerprints) - done, self._most)
            if end > len(self._keys):
                self._grow(end)
            self._keys[start:end] = fingerprints[done : done + end - start]
            if numbers is not None:
                self._numbers[start:end] = numbers[done : done + end - start]
            self._held, done = end, done + end - start

    def _grow(self, rows: int) -> None:
        keys, numbers = room_for(max(rows, min(rows * 3 // 2, self._most)))
        for start in range(0, self._held, COPY_ROWS):
            piece = slice(start, min(start + COPY_ROWS, self._held))
            keys[piece] = self._keys[piece]
            if self._numbered:
                numbers[piece] = self._numbers[piece]
        self._keys, self._numbers = keys, numbers

    def _in_memory(self) -> Rows:
        first = sum(run.rows for run in self._runs)
        return Rows(self._keys[: self._held], self._numbers[: self._held] if self._numbered else None, first)

    def _leave(self) -> None:
        """Leave all rows to a sorter of pairs."""
        self._pairs = pairs = PairSorter(self._memory, self._folder, None if self._runs else self._held)
        rows = self._in_memory()
        for run in self._runs:
            for piece in run.pieces():
                pairs.add(piece.keys, _numbers(piece.numbers, 0, 0))
            run.close()
        for start in range(0, len(rows), COPY_ROWS):
            piece = rows.cut(start, min(start + COPY_ROWS, len(rows)))
            pairs.add(piece.keys, _numbers(piece.numbers, piece.first, len(piece)))
        self._runs, self._held = [], 0
        self._keys, self._numbers = room_for(0)

    def _spill(self) -> None:
        """Write what is in memory to a file, in parts."""
        parts = Parts(self._in_memory(), 0, RUN_BITS, self._threads, self._stop)
        path = self._folder / f"run-{len(self._runs):04d}.tmp"
        self._runs.append(Run(path, *parts.scattered(), parts.ends))
        self._held = 0

    def groups(self, tick: Callable[[int], None]) -> Iterator[SortedRows | NumberedRows]:
        """Yield the sorted rows in parts, grouped by key; call ``tick`` with the number of rows sorted."""
        if self._pairs is None and not self._runs and self.rows:
            parts = parts_of(self._in_memory(), 0, self._threads, self._stop)
            if not parts.begin_alike:
                yield self._sorted(parts)
                tick(self.rows)
                return
            del parts
            self._leave()
        if self._pairs is not None:
            yield from self._pairs.groups(tick)
        elif self._runs:
            yield from self._of_runs(tick)

    def _sorted(self, parts: Parts) -> NumberedRows:
        keys, numbers = parts.sorted()
        room, self._keys, self._numbers, self._held = self._keys, *room_for(0), 0
        return grouped(keys, numbers, room)

    def _of_runs(self, tick: Callable[[int], None]) -> Iterator[SortedRows | NumberedRows]:
        """Yield the parts of the runs, each sorted."""
        if self._held:
            self._spill()
        self._keys, self._numbers = room_for(0)
        sizes: Words = np.sum([run.sizes for run in self._runs], axis=0)
        waiting = 2 * self._threads + 1  # parts in memory at once, of which a thread sorts some and others wait
        threads = self._threads if int(sizes.max()) * waiting <= self._most else 1
        for part, rows in in_order(self._part, np.flatnonzero(sizes).tolist(), threads):
            yield from self._large_part(part) if rows is None else [rows]
            tick(int(sizes[part]))
        for run in self._runs:
            run.close()

    def _part(self, part: int) -> NumberedRows | None:
        """Return a part of all runs, sorted; None if that takes much memory."""
        sizes = [int(run.sizes[part]) for run in self._runs]
        if sum(sizes) > self._most:
            return None
        keys, numbers = room_for(sum(sizes))
        start = 0
        for run, size in zip(self._runs, sizes, strict=True):
            run.read(part, keys[start : start + size], numbers[start : start + size])
            start += size
        parts = parts_of(Rows(keys, numbers), RUN_BITS, 1, self._stop)
        return None if parts.begin_alike else grouped(*parts.sorted(), keys)

    def _large_part(self, part: int) -> Iterator[SortedRows]:
        pairs = PairSorter(self._memory, self._folder)
        for run in self._runs:
            for piece in run.pieces(part):
                pairs.add(piece.keys, _numbers(piece.numbers, 0, 0))
        yield from pairs.groups(lambda rows: None)


def _numbers(given: Words | Numbers | None, first: int, count: int) -> Words:
    """Return numbers of 64 bits: those given, or those of successive rows."""
    return np.arange(first, first + count, dtype=np.uint64) if given is None else given.astype(np.uint64)
