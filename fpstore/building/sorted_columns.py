"""Sorted keys with their numbers, kept for several passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fpstore.aliases import Groups, Words
from fpstore.building.external_sort import COPY_ROWS, Column, SortedRows, in_pieces
from fpstore.format.histogram import KeySummary


class SortedColumns:
    """Distinct keys in ascending order with the numbers of each, in memory, or in files if a folder is given.

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
        self._keys, self._per_key, self._numbers = Column(keys, words), Column(counts), Column(numbers)
        self.summary = KeySummary()

    def add(self, part: SortedRows) -> None:
        """Add the next keys and their numbers."""
        for keys in in_pieces([part.keys]):
            self.summary.add(keys)
        self._keys.append(part.keys)
        self._per_key.append(part.per_key)
        self._numbers.append(part.ids)

    @property
    def count(self) -> int:
        """The number of distinct keys."""
        return self.summary.count

    def groups(self) -> Iterator[Groups]:
        """Yield (keys, how many numbers each has, the numbers), ascending."""
        taken = 0
        for keys, per_key in zip(self._keys.pieces(), self._per_key.pieces(), strict=True):
            for piece, counts in _few_numbers(keys, per_key):
                numbers = self._numbers.part(taken, int(counts.sum()))
                taken += len(numbers)
                yield piece, counts, numbers

    def close(self) -> None:
        """Drop everything."""
        for column in (self._keys, self._per_key, self._numbers):
            column.close()


def _few_numbers(keys: Words, per_key: Words) -> Iterator[tuple[Words, Words]]:
    """Cut keys and their counts so that no piece has more than COPY_ROWS numbers, unless a single key has them."""
    ends = np.cumsum(per_key)
    start = taken = 0
    while start < len(keys):
        end = max(int(np.searchsorted(ends, taken + COPY_ROWS, side="right")), start + 1)
        yield keys[start:end], per_key[start:end]
        start, taken = end, int(ends[end - 1])
