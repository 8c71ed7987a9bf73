"""Sorted keys with their numbers, kept for several passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fpstore.base.aliases import Groups, Words
from fpstore.base.threads import ahead
from fpstore.building.external_sort import COPY_ROWS, Column, NumberedRows, SortedRows, in_pieces
from fpstore.building.file_column import FileColumn
from fpstore.format.huffman import KeySummary


class SortedColumns:
    """Distinct keys in ascending order with the numbers of each, in memory, or in files if a folder is given.

    Numbers have as many bits as those that are added.

    Parameters
    ----------
    folder : Path or None
    name : str
        Begins the names of the files.
    words : int
        Words of a key.

    Attributes
    ----------
    summary : KeySummary
        Of the distinct keys.
    """

    def __init__(self, folder: Path | None, name: str, words: int = 1) -> None:
        keys, counts, numbers = (
            None if folder is None else folder / f"{name}-{what}.tmp" for what in ("keys", "counts", "numbers")
        )
        self._keys, self._per_key, self._numbers = column(keys, words), column(counts), column(numbers)
        self._parts: list[tuple[int, bool]] = []  # the keys of each part, and whether each of them has one number
        self.summary = KeySummary()

    def add(self, part: SortedRows | NumberedRows) -> None:
        """Add the next keys and their numbers."""
        for keys in in_pieces([part.keys]):
            self.summary.add(keys)
        self._keys.append(part.keys)
        if part.per_key is not None:
            self._per_key.append(part.per_key)
        self._numbers.append(part.ids)
        self._parts.append((len(part.keys), part.per_key is None))

    @property
    def count(self) -> int:
        """The number of distinct keys."""
        return self.summary.count

    def groups(self) -> Iterator[Groups]:
        """Yield (keys, how many numbers each has, the numbers), ascending."""
        return self._groups() if isinstance(self._keys, Column) else ahead(self._groups())

    def _groups(self) -> Iterator[Groups]:
        start = number = 0
        for counts in self._counts():
            keys = self._keys.part(start, len(counts))
            start += len(keys)
            for piece, per_key in _few_numbers(keys, counts):
                numbers = self._numbers.part(number, int(per_key.sum())).astype(np.uint64, copy=False)
                number += len(numbers)
                yield piece, per_key, numbers

    def _counts(self) -> Iterator[Words]:
        """Yield how many numbers each key has, in pieces that do not depend on the parts."""
        waiting: list[Words] = []
        rows = count = 0
        for keys, single in self._parts:
            done = 0
            while done < keys:
                size = min(keys - done, COPY_ROWS - rows)
                waiting.append(np.ones(size, np.uint64) if single else self._per_key.part(count, size))
                count += 0 if single else size
                done, rows = done + size, rows + size
                if rows == COPY_ROWS:
                    yield np.concatenate(waiting)
                    waiting, rows = [], 0
        if waiting:
            yield np.concatenate(waiting)

    def close(self) -> None:
        """Drop everything."""
        for kept in (self._keys, self._per_key, self._numbers):
            kept.close()


def column(path: Path | None, words: int = 1) -> Column | FileColumn:
    """Return a column in memory, or in a file if a path is given."""
    return Column(None, words) if path is None else FileColumn(path, words)


def _few_numbers(keys: Words, per_key: Words) -> Iterator[tuple[Words, Words]]:
    """Cut keys and their counts so that no piece has more than COPY_ROWS numbers, unless a single key has them."""
    ends = np.cumsum(per_key)
    start = taken = 0
    while start < len(keys):
        end = max(int(np.searchsorted(ends, taken + COPY_ROWS, side="right")), start + 1)
        yield keys[start:end], per_key[start:end]
        start, taken = end, int(ends[end - 1])
