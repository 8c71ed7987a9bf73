"""String ids of a build: spooled to files, numbered by a sort of their hashes, written by number.

The zstandard dictionary of a store's strings is trained on a sample of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import finalize

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Groups, Lims, Words
from fpstore.base.arguments import MAX_ID_BYTES
from fpstore.base.arrays import list_lims
from fpstore.base.strings import STRINGS_BYTES, StringColumn
from fpstore.building.columns import COPY_ROWS, Column
from fpstore.building.external_sort import Sorter
from fpstore.disk.files import write_all
from fpstore.disk.temporary import array_on_disk, nameless_file
from fpstore.errors import InputError
from fpstore.format.strings import StringLayout, StringWriter, strings_per_record

LEVEL = 3
MAX_DICTIONARY_BYTES = 1 << 16
DICTIONARY_SHARE = 100  # the strings are at least this many times as large as the dictionary
# about the size of the sample on which a dictionary is trained: one of four times the size takes
# four times as long, and saves nothing
SAMPLE_BYTES = 1 << 20
SPOTS, SPOT_BYTES = 1 << 9, 1 << 11  # where strings are taken for a sample
# per row in memory: the four columns, the sorted arrays that they are views of, and the next sort
ROW_BYTES = 96


class StringSpool:
    """The string ids of the rows of a build.

    After :meth:`add`, :meth:`resolve` gives each row the number of its distinct string, in the
    order of first appearance. Then read the :meth:`numbers` of rows and the :meth:`groups` of the
    hashes, and :meth:`write` the ``count`` strings.
    """

    def __init__(self, folder: Path, memory: int, rows: int | None, threads: int) -> None:
        self._folder = folder
        self._data = nameless_file(folder)
        self._close = finalize(self, self._data.close)
        # Where the string of each row ends; the distinct hashes, how many strings each has, the
        # rows where they come first.
        self._ends, self._hashes, self._counts, self._first_rows = (Column() for _ in range(4))
        self._in_memory, self._memory = True, memory
        self._sorter = Sorter(memory, folder, rows, threads=threads)
        self._numbers: Words | None = None  # of the rows, in a file; None: the row is the number
        self._bytes = 0
        self.rows = self.count = 0

    def add(self, column: StringColumn) -> None:
        """Append the ids of successive rows."""
        if (longest := int(column.sizes.max(initial=0))) > MAX_ID_BYTES:
            raise InputError(
                f"a string id takes at most {MAX_ID_BYTES} bytes of UTF-8, got one of {longest}"
            )
        write_all(self._data.fileno(), column.data, self._bytes)
        self._ends.append(column.ends + np.uint64(self._bytes))
        self._bytes += len(column.data)
        self._sorter.add(
            column.hashes(), np.arange(self.rows, self.rows + len(column), dtype=np.uint64)
        )
        self.rows += len(column)
        if self._in_memory and self.rows * ROW_BYTES > self._memory:
            self._in_memory = False
            for spilled in self._columns():
                spilled.spill(self._folder)

    def _columns(self) -> tuple[Column, ...]:
        return self._ends, self._hashes, self._counts, self._first_rows

    # Numbers

    def resolve(self, tick: Callable[[int], None]) -> None:
        """Find the rows that have equal strings; call ``tick`` with the number of rows sorted."""
        for part in self._sorter.groups(tick):
            counts, rows = part.counts, part.ids.astype(np.uint64, copy=False)
            if (several := counts > 1).any():
                if self._numbers is None:
                    self._numbers = self._rows()
                # one of the rows of a string stays
                kept = np.repeat(~several, counts.astype(np.int64))
                shared, lims = rows[~kept], list_lims(counts[several])
                first = self._find_first(shared, lims)
                self._numbers[shared] = first
                kept[~kept] = first == shared
                rows = rows[kept]
                counts[several] = np.add.reduceat(first == shared, lims[:-1], dtype=np.uint64)
            self._hashes.append(part.keys)
            self._counts.append(counts)
            self._first_rows.append(rows)
        self.count = self.rows
        if self._numbers is not None:
            self._number(self._numbers, tick)

    def _rows(self) -> Words:
        """Return an array of all row numbers, in a file to save memory."""
        rows: Words = array_on_disk((self.rows,), np.uint64, self._folder)
        for start in range(0, self.rows, COPY_ROWS):
            end = min(start + COPY_ROWS, self.rows)
            rows[start:end] = np.arange(start, end, dtype=np.uint64)
        return rows

    def _find_first(self, rows: Words, lims: Lims) -> Words:
        """Return the first row with the same string, for the rows of each of some hashes."""
        data, ends = self._map_files()
        first = np.repeat(rows[lims[:-1]], np.diff(lims))
        equal = _kernel.equal_strings(data, ends, rows, lims.view(np.uint64))
        for group in np.unique(
            np.searchsorted(lims, np.flatnonzero(equal == 0), side="right") - 1
        ).tolist():
            first_rows: dict[bytes, int] = {}
            for at in range(int(lims[group]), int(lims[group + 1])):
                row = int(rows[at])
                string = data[int(ends[row - 1]) if row else 0 : int(ends[row])].tobytes()
                first[at] = first_rows.setdefault(string, row)
        return first

    def _number(self, first: Words, tick: Callable[[int], None]) -> None:
        """Turn the first row of each row's string, in place, into the string's number."""
        self.count = 0
        for start in range(0, self.rows, COPY_ROWS):
            heads = np.array(first[start : start + COPY_ROWS])
            is_first = heads == np.arange(start, start + len(heads), dtype=np.uint64)
            count = int(np.count_nonzero(is_first))
            first[start : start + len(heads)][is_first] = np.arange(
                self.count, self.count + count, dtype=np.uint64
            )
            again = np.flatnonzero(~is_first)
            first[start + again] = first[heads[again]]
            self.count += count
            tick(0)

    def _map_files(self) -> tuple[npt.NDArray[np.uint8], Words]:
        return np.memmap(self._data, np.uint8, "r"), self._ends.map()

    def numbers(self, start: int, end: int) -> Words:
        return (
            np.arange(start, end, dtype=np.uint64)
            if self._numbers is None
            else np.array(self._numbers[start:end])
        )

    def groups(self) -> Iterator[Groups]:
        """Yield (hashes, how many strings have each, their numbers), by hash."""
        start = 0
        for hashes, counts in zip(self._hashes.pieces(), self._counts.pieces(), strict=True):
            rows = self._first_rows.part(start, int(counts.sum()))
            start += len(rows)
            yield hashes, counts, self.numbers_at(rows)

    def numbers_at(self, rows: Words) -> Words:
        return rows if self._numbers is None else np.array(self._numbers[rows])

    def hashes(self) -> Iterator[Words]:
        """Yield the distinct hashes, ascending."""
        return self._hashes.pieces()

    # Strings

    def write(self, path: Path, threads: int, tick: Callable[[], None]) -> dict[str, int]:
        """Write the strings in the order of their numbers; return the shape of the file."""
        sample = StringSample()
        for strings in self._sample_spots():
            sample.add(strings)
        layout = sample.layout(self.count)
        del sample
        _kernel.trim()  # what the sorts and the sample took
        writer = StringWriter(path, layout, threads)
        try:
            for strings in self.strings():
                writer.add(strings)
                tick()
            return writer.finish()
        except BaseException:
            writer.abort()
            raise

    def _sample_spots(self) -> Iterator[StringColumn]:
        size = SPOT_BYTES * self.rows // max(self._bytes, 1) + 1
        for first in range(0, self.rows, max(self.rows // SPOTS, size)):
            before = max(first - 1, 0)
            ends = self._ends.part(before, min(first + size, self.rows) - before)
            low = int(ends[0]) if first else 0
            ends = ends[1:] if first else ends
            count = max(int(np.searchsorted(ends, np.uint64(low + SPOT_BYTES), side="right")), 1)
            strings = self._column(low, ends[:count])
            if self._numbers is not None:  # each string of a spot once
                _, places = np.unique(self.numbers(first, first + count), return_index=True)
                strings = strings.take(np.sort(places))
            yield strings

    def _column(self, low: int, ends: Words) -> StringColumn:
        """Read the strings that end at these places of the file; the first starts at ``low``."""
        return StringColumn(
            os.pread(self._data.fileno(), int(ends[-1]) - low, low), ends - np.uint64(low)
        )

    def strings(self) -> Iterator[StringColumn]:
        """Yield the strings of successive numbers."""
        start = low = count = 0
        for ends in self._pieces():
            strings = self._column(low, ends)
            # the first row with a string has a larger number than all rows before
            if self._numbers is not None:
                numbers = self.numbers(start, start + len(ends))
                highest = np.maximum.accumulate(
                    np.append(np.int64(count - 1), numbers.astype(np.int64))
                )
                strings = strings.filter(highest[1:] > highest[:-1])
                count = int(highest[-1]) + 1
            yield strings
            start, low = start + len(ends), int(ends[-1])

    def _pieces(self) -> Iterator[Words]:
        at = 0
        for ends in self._ends.pieces():
            while len(ends):
                size = max(
                    int(np.searchsorted(ends, np.uint64(at + STRINGS_BYTES), side="right")), 1
                )
                yield ends[:size]
                ends, at = ends[size:], int(ends[size - 1])

    def close(self) -> None:
        """Remove the temporary files."""
        self._close()
        self._numbers = None
        for column in self._columns():
            column.close()


class StringSample:
    """Uncompressed records of a set of strings, about evenly spread; SAMPLE_BYTES at most."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self._step = 1  # every ``_step``-th record is taken
        self._strings = self._bytes = self._sample_bytes = 0

    def add(self, strings: StringColumn) -> None:
        """Sample the next strings, in groups as large as a record; empty strings do not count."""
        strings = strings.filter(strings.sizes > 0)
        self._strings += len(strings)
        self._bytes += len(strings.data)
        per_record, start = strings_per_record(self._strings, self._bytes), 0
        while start < len(strings):
            self.records.append(
                strings.slice(start, min(start + per_record, len(strings))).join_separated()
            )
            self._sample_bytes += len(self.records[-1])
            while self._sample_bytes > SAMPLE_BYTES and len(self.records) > 1:
                del self.records[1::2]
                self._step *= 2
                self._sample_bytes = sum(map(len, self.records))
            start += self._step * per_record

    def layout(self, count: int) -> StringLayout:
        """Return a layout for ``count`` such strings, with a dictionary trained on the sample."""
        per_record = strings_per_record(self._strings, self._bytes)
        return StringLayout(
            per_record, count, self._train(self._bytes * count // max(self._strings, 1))
        )

    def _train(self, total_bytes: int) -> bytes:
        """Train a dictionary for strings of a total size; b"" if they are too few."""
        import zstandard

        size = min(MAX_DICTIONARY_BYTES, total_bytes // DICTIONARY_SHARE)
        if size < 1 << 8:
            return b""
        try:
            return zstandard.train_dictionary(size, list(self.records), level=LEVEL).as_bytes()
        except zstandard.ZstdError:  # there is nothing to learn
            return b""
