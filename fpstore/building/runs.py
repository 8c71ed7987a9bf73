"""Runs: rows that did not fit into memory, in files, each in parts by their leading bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fpstore.base.aliases import Words
from fpstore.building.external_sort import COPY_ROWS
from fpstore.building.parts import Numbers, Rows
from fpstore.disk.output import open_written, read_into, write_whole

RUN_BITS = 8


class Run:
    """A file of rows in parts by their leading RUN_BITS bits.

    Parameters
    ----------
    path : Path
        The file to create.
    keys, numbers : ndarray
        Of the rows, in parts; arrays that begin with a page.
    ends : ndarray of uint64
        Where each part ends.
    """

    def __init__(self, path: Path, keys: Words, numbers: Numbers, ends: Words) -> None:
        self._path, self.rows = path, len(keys)
        self._starts = np.concatenate([np.zeros(1, np.uint64), ends])
        self.sizes: Words = np.diff(self._starts)
        self._numbers_at = write_whole(path, [keys.view(np.uint8), numbers.view(np.uint8)])[1]
        self._descriptor = open_written(path)

    def read(self, part: int, keys: Words, numbers: Numbers) -> None:
        """Read a part into arrays of its length."""
        self._read(int(self._starts[part]), keys, numbers)

    def _read(self, start: int, keys: Words, numbers: Numbers) -> None:
        read_into(self._descriptor, 8 * start, keys.view(np.uint8))
        read_into(self._descriptor, self._numbers_at + 4 * start, numbers.view(np.uint8))

    def pieces(self, part: int | None = None) -> Iterator[Rows]:
        """Yield the rows, or those of a part, in pieces."""
        start, end = (0, self.rows) if part is None else (int(self._starts[part]), int(self._starts[part + 1]))
        for at in range(start, end, COPY_ROWS):
            count = min(COPY_ROWS, end - at)
            keys, numbers = np.empty(count, np.uint64), np.empty(count, np.uint32)
            self._read(at, keys, numbers)
            yield Rows(keys, numbers)

    def close(self) -> None:
        """Remove the file."""
        os.close(self._descriptor)
        self._path.unlink()
