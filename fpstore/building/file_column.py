"""A column in a file, which is written to its end before it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.threads import ahead
from fpstore.building.external_sort import COPY_ROWS
from fpstore.disk.output import Output, open_written, read_into
from fpstore.disk.pages import own_pages

Array = npt.NDArray[Any]


class FileColumn:
    """A column of rows of words: :meth:`append` them all, then read them; past the page cache where that is possible.

    Parameters
    ----------
    path : Path
        The file, which is created with the first row.
    words : int
        Of a row; the words have the type of those that are added.

    Attributes
    ----------
    path : Path
    rows : int
    """

    def __init__(self, path: Path, words: int = 1) -> None:
        self.path, self._words = path, words
        self._output: Output | None = None
        self._descriptor = -1
        self._type: np.dtype[Any] = np.dtype(np.uint64)
        self.rows = 0

    def append(self, part: Array) -> None:
        """Add rows at the end."""
        if self._output is None:
            self._output, self._type = Output(self.path), part.dtype
        self._output.write(np.ascontiguousarray(part, self._type).reshape(-1).view(np.uint8))
        self.rows += len(part)

    def finish(self) -> None:
        """Complete the file: rows are read from now on, also by several threads."""
        if self._descriptor < 0 and self._output is not None:
            self._output.finish(b"")
            self._output.close()
            self._descriptor = open_written(self.path)

    def read(self, start: int, rows: Array) -> None:
        """Read successive rows into an array, once the file is complete."""
        read_into(self._descriptor, start * self._type.itemsize * self._words, rows.reshape(-1).view(np.uint8))

    def part(self, start: int, rows: int) -> Array:
        """Return successive rows."""
        self.finish()
        out = own_pages(rows * self._type.itemsize * self._words).view(self._type)
        if rows:
            self.read(start, out)
        return out if self._words == 1 else out.reshape(rows, self._words)

    def pieces(self, rows: int = COPY_ROWS) -> Iterator[Array]:
        """Yield the rows in order, at most ``rows`` at a time, which are read ahead."""
        return ahead(self.part(start, min(rows, self.rows - start)) for start in range(0, self.rows, rows))

    def whole(self) -> Array:
        """Return all rows in one array."""
        return self.part(0, self.rows)

    def close(self) -> None:
        """Drop the rows."""
        if self._output is not None:
            self._output.close()
            self._output = None
            self.path.unlink()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
