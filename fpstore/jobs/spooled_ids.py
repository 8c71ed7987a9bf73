"""Ids of rows that a caller or a file gives, for as long as a job lasts: strings lie in a temporary file, not in memory."""

from __future__ import annotations

from weakref import finalize

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.strings import StringColumn
from fpstore.disk.files import write_all
from fpstore.disk.refusals import refusing
from fpstore.disk.temporary import nameless_file
from fpstore.io.source import IdColumn
from fpstore.query.names import Named


class SpooledIds:
    """Ids in the order of their rows; the number of an id is its place.

    Integers stay in memory. Strings go to a file without a name, as soon as there is one: integers become strings then.
    """

    def __init__(self) -> None:
        self._integers: list[Words] = []
        self._ends: list[Words] = []
        self._bytes = 0

    def add(self, ids: IdColumn) -> None:
        """Append ids.

        Raises
        ------
        StorageError
            There is no space, or no folder for temporary files.
        """
        if isinstance(ids, np.ndarray) and not self._ends:
            self._integers.append(ids)
        elif ids is not None:
            if not self._ends:
                self._file = nameless_file()
                self._close = finalize(self, self._file.close)
            waiting, self._integers = [*self._integers, ids], []
            for column in waiting:
                self._write(column if isinstance(column, StringColumn) else StringColumn.of([str(n) for n in column.tolist()]))

    def _write(self, strings: StringColumn) -> None:
        with refusing("a temporary file"):
            write_all(self._file.fileno(), strings.data, self._bytes)
        self._ends.append(strings.ends + np.uint64(self._bytes))
        self._bytes += len(strings.data)

    def finish(self) -> None:
        """Note that all ids are there."""
        self.integers = None if self._ends else np.concatenate([np.empty(0, np.uint64), *self._integers])
        ends: Words = np.concatenate([np.zeros(1, np.uint64), *self._ends])
        self._starts, self._stops = ends[:-1], ends[1:]
        self._data: npt.NDArray[np.uint8] = np.memmap(self._file, np.uint8, "r") if self._bytes else np.empty(0, np.uint8)
        if self._ends:
            self._close()  # what is mapped stays

    def __len__(self) -> int:
        return len(self._stops) if self.integers is None else len(self.integers)

    def named_within(self, numbers: Words, most: int | None) -> Named | None:
        """Return the ids at some places; see :class:`fpstore.query.names.Names`."""
        if self.integers is not None:
            return Named(self.integers[numbers])
        starts, stops = self._starts[numbers], self._stops[numbers]
        size = int((stops - starts).sum())
        if most is not None and size > most:
            return None
        return Named([self._data[a:b].tobytes().decode() for a, b in zip(starts.tolist(), stops.tolist(), strict=True)], size)
