"""Columns of rows that may outgrow memory, and sorted keys with their numbers in such columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Groups, Words
from fpstore.base.arrays import list_lims, spans
from fpstore.base.pools import read_ahead
from fpstore.base.width import empty_rows
from fpstore.disk.mapped import page_aligned
from fpstore.disk.temporary import SpillFile
from fpstore.format.huffman import KeySummary

COPY_ROWS = 1 << 18  # rows that are copied, read or written between two checks for a stop


def cut_pieces(parts: Iterable[Array]) -> Iterator[Array]:
    """Cut successive parts into pieces of at most COPY_ROWS."""
    for part in parts:
        for start in range(0, len(part), COPY_ROWS):
            yield part[start : start + COPY_ROWS]


class Column:
    """Rows of words in memory, or in a nameless file of ``folder``: append them, then read them.

    The words have the type of the first rows.
    """

    def __init__(self, folder: Path | None = None, words: int = 1) -> None:
        self._words = words
        self._parts: list[Array] = []
        self._file = None if folder is None else SpillFile(folder)
        self._type: np.dtype[Any] = np.dtype(np.uint64)
        self.rows = 0

    def append(self, part: Array) -> None:
        """Add rows; in memory, without a copy of the array, which must not change afterwards."""
        if not self.rows:
            self._type = part.dtype
        part = np.ascontiguousarray(part, self._type)
        self.rows += len(part)
        if self._file is None:
            self._parts.append(part)
        else:
            self._file.append(part.reshape(-1).view(np.uint8))

    def spill(self, folder: Path) -> None:
        parts, self._parts = self._parts, []
        self._file, self.rows = SpillFile(folder), 0
        for part in parts:
            self.append(part)

    def part(self, start: int, rows: int) -> Array:
        if self._file is None:
            return self.whole()[start : start + rows]
        size = self._words * self._type.itemsize
        out = page_aligned(rows * size)
        self._file.read(start * size, out)
        return self._as_rows(out)

    def pieces(self) -> Iterator[Array]:
        """Yield the rows in order, at most COPY_ROWS at a time; rows in a file are read ahead."""
        if self._file is None:
            return cut_pieces(self._parts)
        starts = range(0, self.rows, COPY_ROWS)
        return read_ahead(self.part(start, min(COPY_ROWS, self.rows - start)) for start in starts)

    def whole(self) -> Array:
        if self._file is not None:
            return self.part(0, self.rows)
        if len(self._parts) != 1:
            self._parts = [
                np.concatenate([empty_rows(0, self._words), *self._parts], dtype=self._type)
            ]
        return self._parts[0]

    def map(self) -> Array:
        """Return all rows, one or more; rows in a file are read as they are looked at."""
        return self.whole() if self._file is None else self._as_rows(self._file.map())

    def _as_rows(self, data: npt.NDArray[np.uint8]) -> Array:
        rows = data.view(self._type)
        return rows if self._words == 1 else rows.reshape(-1, self._words)

    def close(self) -> None:
        self._parts = []
        if self._file is not None:
            self._file.close()


class SortedRows(NamedTuple):
    """Sorted rows: distinct keys, how many numbers each has, and all numbers in order."""

    keys: Words
    per_key: Words | None  # None if each key has one number
    ids: Words | npt.NDArray[np.uint32]

    @property
    def counts(self) -> Words:
        return np.ones(len(self.keys), np.uint64) if self.per_key is None else self.per_key


class SortedColumns:
    """Distinct keys in ascending order with their numbers; with a folder, in files."""

    def __init__(self, folder: Path | None, words: int = 1) -> None:
        self._keys, self._per_key = Column(folder, words), Column(folder)
        self._numbers = Column(folder)
        # the keys of each part, and whether each of them has one number
        self._parts: list[tuple[int, bool]] = []
        self._in_files = folder is not None
        self.summary = KeySummary()

    def add(self, part: SortedRows) -> None:
        for keys in cut_pieces([part.keys]):
            self.summary.add(keys)
        self._keys.append(part.keys)
        if part.per_key is not None:
            self._per_key.append(part.per_key)
        self._numbers.append(part.ids)
        self._parts.append((len(part.keys), part.per_key is None))

    @property
    def count(self) -> int:
        return self.summary.count

    def groups(self) -> Iterator[Groups]:
        """Yield (keys, how many numbers each has, the numbers), ascending.

        No piece has more than COPY_ROWS numbers, unless a single key has them.
        """
        return read_ahead(self._groups()) if self._in_files else self._groups()

    def _groups(self) -> Iterator[Groups]:
        start = number = 0
        for counts in self._counts():
            keys = self._keys.part(start, len(counts))
            start += len(keys)
            for span in spans(list_lims(counts), COPY_ROWS):
                numbers = self._numbers.part(number, int(counts[span].sum())).astype(
                    np.uint64, copy=False
                )
                number += len(numbers)
                yield keys[span], counts[span], numbers

    def _counts(self) -> Iterator[Words]:
        """Yield how many numbers each key has, in pieces that do not depend on the parts."""
        waiting: list[Words] = []
        rows = count = 0
        for keys, single in self._parts:
            done = 0
            while done < keys:
                size = min(keys - done, COPY_ROWS - rows)
                waiting.append(
                    np.ones(size, np.uint64) if single else self._per_key.part(count, size)
                )
                count += 0 if single else size
                done, rows = done + size, rows + size
                if rows == COPY_ROWS:
                    yield np.concatenate(waiting)
                    waiting, rows = [], 0
        if waiting:
            yield np.concatenate(waiting)

    def close(self) -> None:
        for column in (self._keys, self._per_key, self._numbers):
            column.close()
