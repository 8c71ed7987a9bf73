"""String ids of a build: kept in files as they come, numbered by a sort of their hashes, and written by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Words
from fpstore.building.external_sort import Column, PairSorter
from fpstore.errors import InputError
from fpstore.format.dictionary import hashes_of
from fpstore.format.strings import MAX_STRING_BYTES, SAMPLE_RECORDS, Sample, StringLayout, StringWriter, strings_per_record, train

PIECE_BYTES = 1 << 22  # of strings that are read at once


class StringSpool:
    """The string ids of the rows of a build.

    After :meth:`add`, :meth:`resolve` gives each row the number of its distinct string, in the order of first appearance. Then
    read the :meth:`numbers` of rows and the :meth:`groups` of the hashes, and :meth:`write` the strings.

    Parameters
    ----------
    folder : Path
        For temporary files.
    memory : int
        Budget in bytes for sorting.
    rows : int, optional
        The number of rows that will be added, if it is known.

    Attributes
    ----------
    rows : int
    count : int
        The number of distinct strings, after :meth:`resolve`.
    """

    def __init__(self, folder: Path, memory: int, rows: int | None) -> None:
        self._folder = folder
        self._data = folder / "strings.tmp"
        self._ends = Column(folder / "string-ends.tmp")  # where the string of each row ends
        self._sorter = PairSorter(memory, folder, rows)
        self._hashes, self._counts, self._first_rows = (Column(folder / f"{name}.tmp") for name in ("hashes", "counts", "firsts"))
        self._numbers: Words | None = None  # of the rows; None: the row is the number
        self._is_first: npt.NDArray[np.bool_] | None = None
        self._bytes = 0
        self.rows = self.count = 0

    def add(self, strings: Sequence[str]) -> None:
        """Append the ids of successive rows.

        Raises
        ------
        InputError
            One is too long.
        """
        self.add_encoded([string.encode() for string in strings])

    def add_encoded(self, encoded: Sequence[bytes]) -> None:
        """Append the ids of successive rows, in UTF-8; see :meth:`add`."""
        lengths = np.fromiter(map(len, encoded), np.uint64, len(encoded))
        if int(lengths.max(initial=0)) > MAX_STRING_BYTES:
            raise InputError(f"a string id takes at most {MAX_STRING_BYTES} bytes of UTF-8, got one of {int(lengths.max())}")
        with self._data.open("ab", buffering=0) as file:
            view = memoryview(b"".join(encoded))
            while len(view):
                view = view[file.write(view) :]
        self._ends.append(np.cumsum(lengths) + np.uint64(self._bytes))
        self._bytes += int(lengths.sum())
        self._sorter.add(hashes_of(encoded), np.arange(self.rows, self.rows + len(encoded), dtype=np.uint64))
        self.rows += len(encoded)

    # Numbers

    def resolve(self, tick: Callable[[int], None]) -> None:
        """Find the rows that have equal strings; call ``tick`` with the number of rows sorted."""
        first: Words | None = None  # for each row, the first that has its string
        for part in self._sorter.groups(tick):
            counts, rows = part.per_key, part.ids
            several = counts > 1
            if several.any():
                if first is None:
                    first = np.arange(self.rows, dtype=np.uint64)
                self._note_equal(counts, rows, first)
                heads = first[rows] == rows
                starts = np.cumsum(counts) - counts
                rows, counts = rows[heads], np.add.reduceat(heads, starts.astype(np.int64)).astype(np.uint64)
            self._hashes.append(part.keys)
            self._counts.append(counts)
            self._first_rows.append(rows)
        self.count = self.rows
        if first is not None:
            self._is_first = first == np.arange(self.rows, dtype=np.uint64)
            rank = np.cumsum(self._is_first, dtype=np.uint64) - np.uint64(1)
            self._numbers = rank[first]
            self.count = int(rank[-1]) + 1

    def _note_equal(self, counts: Words, rows: Words, first: Words) -> None:
        """Note for the rows of each hash which is the first that has the same string."""
        data, ends = self._mapped()
        lims = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        for key in np.flatnonzero(counts > 1).tolist():
            known: dict[bytes, int] = {}
            for row in rows[lims[key] : lims[key + 1]].tolist():
                string = data[int(ends[row - 1]) if row else 0 : int(ends[row])].tobytes()
                first[row] = known.setdefault(string, row)

    def _mapped(self) -> tuple[npt.NDArray[np.uint8], Words]:
        return np.memmap(self._data, np.uint8, "r"), self._ends.mapped()

    def numbers(self, start: int, end: int) -> Words:
        """Return the numbers of successive rows."""
        return np.arange(start, end, dtype=np.uint64) if self._numbers is None else self._numbers[start:end]

    def groups(self) -> Iterator[tuple[Words, Words, Words]]:
        """Yield (hashes, how many strings have each, their numbers), by hash."""
        start = 0
        for hashes, counts in zip(self._hashes.pieces(), self._counts.pieces(), strict=True):
            rows = self._first_rows.part(start, int(counts.sum()))
            start += len(rows)
            yield hashes, counts, self.numbers_at(rows)

    def numbers_at(self, rows: Words) -> Words:
        """Return the numbers of some rows."""
        return rows if self._numbers is None else self._numbers[rows]

    def hashes(self) -> Iterator[Words]:
        """Yield the distinct hashes, ascending."""
        return self._hashes.pieces()

    # Strings

    def write(self, path: Path, threads: int, tick: Callable[[], None]) -> dict[str, int]:
        """Write the strings in the order of their numbers; return the shape of the file.

        Parameters
        ----------
        path : Path
        threads : int
        tick : callable
            Called now and then.
        """
        per_record = strings_per_record(self.rows, self._bytes)
        sample = Sample()
        for strings in self._sample(per_record):
            sample.add(strings)
        writer = StringWriter(path, StringLayout(per_record, self.count, train(sample, self._bytes)), threads)
        try:
            for strings in self.strings():
                writer.add(strings)
                tick()
            return writer.finish()
        except BaseException:
            writer.abort()
            raise

    def _sample(self, per_record: int) -> Iterator[list[bytes]]:
        """Yield some records of strings, evenly spread."""
        step = max(self.rows // SAMPLE_RECORDS, per_record)
        if self.rows:
            data, ends = self._mapped()
            for start in range(0, self.rows, step):
                yield _cut(data, ends, start, min(start + per_record, self.rows))

    def strings(self) -> Iterator[list[bytes]]:
        """Yield the strings of successive numbers."""
        start, at = 0, 0
        for ends in self._pieces():
            with self._data.open("rb") as file:
                file.seek(at)
                data = file.read(int(ends[-1]) - at)
            lims = (ends - np.uint64(at)).tolist()
            strings = [data[a:b] for a, b in pairwise([0, *lims])]
            if self._is_first is not None:
                kept = self._is_first[start : start + len(strings)].tolist()
                strings = [string for string, is_first in zip(strings, kept, strict=True) if is_first]
            yield strings
            start, at = start + len(ends), int(ends[-1])

    def _pieces(self) -> Iterator[Words]:
        """Yield the ends of strings that have about PIECE_BYTES together."""
        at = 0
        for ends in self._ends.pieces():
            while len(ends):
                size = max(int(np.searchsorted(ends, np.uint64(at + PIECE_BYTES), side="right")), 1)
                yield ends[:size]
                ends, at = ends[size:], int(ends[size - 1])

    def close(self) -> None:
        """Remove the temporary files."""
        self._data.unlink(missing_ok=True)  # without rows there is none
        for column in (self._ends, self._hashes, self._counts, self._first_rows):
            column.close()


def _cut(data: npt.NDArray[np.uint8], ends: Words, start: int, end: int) -> list[bytes]:
    low = int(ends[start - 1]) if start else 0
    part = data[low : int(ends[end - 1])].tobytes()
    lims = (ends[start:end] - np.uint64(low)).tolist()
    return [part[a:b] for a, b in pairwise([0, *lims])]
