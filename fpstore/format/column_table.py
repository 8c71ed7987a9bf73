"""Column tables and row files, which are not coded: one reader, and one writer that streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import NO_WORDS
from fpstore.base.threads import cached_property
from fpstore.base.width import WORD_BITS, Width, is_ascending, leading_words
from fpstore.design import tables
from fpstore.design.families import Design
from fpstore.design.tables import TAG_BITS, TableSpec
from fpstore.disk.files import read_at, write_all
from fpstore.disk.mapped import LAZY, StoredFile
from fpstore.errors import CorruptStoreError, StorageError
from fpstore.format.layout import (
    COLUMN_KINDS,
    KIND_COPIES,
    KIND_REFERENCES,
    KIND_ROWS,
    ColumnLayout,
    check_facts,
)

FEED_KEYS = 1 << 17
SECTION_BYTES = 1 << 20  # of a section, held until they are written together
PIECE_ENTRIES = 1 << 17
PIECE_PAGES = 1 << 8
SPARSE = 16  # blocks of ids between keys that are read one by one: these take about as long to read
Range = tuple[int, int]
UNREADABLE = (CorruptStoreError, StorageError)
NO_BYTES = np.empty(0, np.uint8)


class IntactRun(NamedTuple):
    """Successive entries whose pages and words of the directory are intact."""

    first: int
    end: int
    bucket: int  # the words of the directory from here on are intact, up to end_bucket
    end_bucket: int


class ColumnTable(StoredFile):
    """A column table or a row file; pages that are read are compared with their checksums.

    For the parameters see :class:`fpstore.format.packed_table.PackedTable`.
    """

    def __init__(self, path: Path, pages: str | None = LAZY) -> None:
        super().__init__(path)
        self.header = _kernel.ColumnParts(self.start(), self.size, printable(path))
        self.file_bytes = self.header.file_bytes
        self._words = Width(self.header.width).words
        self._is_rows = self.header.kind == KIND_ROWS
        self._entry_bytes = 8 * self._words if self._is_rows else 2
        self._rest_bytes = -(-self.header.rest_bits // 8)
        if pages is not None:
            self.kernel = _kernel.ColumnTable(self.map_for_probes(pages), printable(path))

    @cached_property
    def for_scans(self) -> _kernel.ColumnTable:
        """The table for scans, through a separate mapping for which the system reads ahead."""
        return _kernel.ColumnTable(self.map_for_scans(), printable(self.path))

    @property
    def spec(self) -> TableSpec:
        header = self.header
        if self._is_rows:  # how many buckets there are follows from their count
            return TableSpec(header.permutation, TAG_BITS, 0, tables.ROWS)
        return TableSpec(
            header.permutation,
            header.bucket_bits,
            header.threshold,
            COLUMN_KINDS[header.kind],
            header.tag_bits,
        )

    @property
    def is_reference(self) -> bool:
        """Whether its entries lead to the rows of the first table."""
        return self.header.kind == KIND_REFERENCES

    @property
    def index_bytes(self) -> int:
        """The size of the directory, which leads to entries."""
        return self.header.tags_offset - self.header.directory_offset

    def is_skewed(self, bound: float) -> bool:
        """Whether a look-up meets over ``bound`` times the entries that it would in random bits."""
        counts = np.diff(self.directory.astype(np.float64))
        n = float(counts.sum())
        return n > 0 and float(counts @ (counts - 1)) * len(counts) > bound * n * n

    # Checks

    def check_place(
        self, design: Design, table: int, fingerprint_count: int, set_digest: int
    ) -> None:
        """Refuse an intact file that belongs to another place in the design or another set."""
        check_facts(
            self.path,
            self.header,
            **ColumnLayout.from_design(design, table, fingerprint_count, set_digest)._asdict(),
        )

    # Reading

    def _fault(
        self, fault: str, expected: object = None, got: object = None, entry: int | None = None
    ) -> CorruptStoreError:
        where = self.path if entry is None else f"{self.path}, entry {entry}"
        return CorruptStoreError(
            f"{where}: {fault}", path=self.path, block=entry, expected=expected, got=got
        )

    def _pages(self, first: int, end: int) -> tuple[Bytes, npt.NDArray[np.intp]]:
        """Return the bytes of successive pages, and which of them differ from their checksums."""
        header, size = self.header, _kernel.PAGE_BYTES
        at = _kernel.HEADER_BYTES + size * first
        data = self.read_padded(at, min(size * (end - first), header.checksums_offset - at))
        stored = self.read_padded(header.checksums_offset + 8 * first, 8 * (end - first)).view(
            np.uint64
        )
        return data, np.flatnonzero(_kernel.page_checksums(data, header.seed, first) != stored)

    def _read(self, at: int, count: int) -> Bytes:
        """Return bytes behind the header; CorruptStoreError unless all their pages are intact."""
        if not count:
            return NO_BYTES
        start, size = at - _kernel.HEADER_BYTES, _kernel.PAGE_BYTES
        first = start // size
        data, wrong = self._pages(first, -(-(start + count) // size))
        if len(wrong):
            page = first + int(wrong[0])
            raise CorruptStoreError(
                f"{self.path}, page {page}: page checksum differs", path=self.path, block=page
            )
        start -= size * first
        return data[start : start + count]

    @property
    def _directory_words(self) -> int:
        return (1 << self.header.bucket_bits) + 1

    @cached_property
    def directory(self) -> Counts:
        """Where the entries of each bucket begin, and where the last ends."""
        words = self._read_directory(0, self._directory_words)
        if words[0] or words[-1] != self.header.count or (words[1:] < words[:-1]).any():
            raise self._fault("directory does not match the entries")
        return words

    def _columns(self, first: int, end: int) -> tuple[Bytes, Bytes]:
        header, size = self.header, self._rest_bytes
        tags = self._read(header.tags_offset + 2 * first, 2 * (end - first))
        return tags, self._read(header.rest_offset + size * first, size * (end - first))

    def _keys(
        self, first: int, columns: tuple[Bytes, Bytes], directory: Counts, bucket: int = 0
    ) -> Words:
        """Return the keys of entries.

        ``directory`` is a part of the directory from ``bucket`` on, with all buckets of the
        entries.
        """
        end = first + len(columns[0]) // 2
        low = int(np.searchsorted(directory, first, "right")) - 1
        high = int(np.searchsorted(directory, end, "left"))
        return self.header.decode(first, *columns, bucket + low, directory[low : high + 1])

    def decode(self, first: int, end: int) -> Words:
        """Return the keys of entries, or the rows of a row file."""
        if self._is_rows:
            return self._rows(first, end)
        return self._keys(first, self._columns(first, end), self.directory)

    def _rows(self, first: int, end: int) -> Words:
        each = self._entry_bytes
        words = self._read(self.header.tags_offset + each * first, each * (end - first))
        return words.view(np.uint64).reshape(-1, self._words)

    def _parts(self, first: int, end: int) -> Iterator[Range]:
        for start in range(first, end, PIECE_ENTRIES):
            yield start, min(start + PIECE_ENTRIES, end)

    # Blocks of ids

    def _entry_range(self, start: int, end: int) -> Range:
        size, count = _kernel.ROWS_IN_BLOCK, self.header.count
        return min(start * size, count), min(end * size, count)

    def pieces(self, start: int = 0) -> Iterator[tuple[Words, Counts]]:
        """Yield (keys or rows, entry counts of their blocks of ids) in order, in bounded pieces.

        They begin with block ``start``.
        """
        for first, end in self._parts(*self._entry_range(start, self.header.block_count)):
            yield self.decode(first, end), block_counts(end - first)

    def read_keys(self, start: int, end: int) -> Words:
        """Return the last entries of successive blocks of ids."""
        size = _kernel.ROWS_IN_BLOCK
        keys = [Width(self.header.width).empty(0)]
        for first, behind in self._parts(*self._entry_range(start, end)):
            entries = self.decode(first, behind)
            keys += [entries[size - 1 :: size], entries[len(entries) - len(entries) % size :][-1:]]
        return np.concatenate(keys)

    @property
    def block_keys(self) -> Words:
        """The last entry of each block of ids."""
        return self.read_keys(0, self.header.block_count)

    def sample_keys(self, step: int) -> Words:
        """Return the last entry of every ``step``-th block of ids that can be read.

        A store takes a sample when it is opened. Whatever needs a damaged part reports the damage.
        """
        count, keys = self.header.block_count, [Width(self.header.width).empty(0)]
        at_once = step if step >= SPARSE else step * SPARSE
        with suppress(*UNREADABLE):
            _ = self._is_rows or self.directory
            for block in range(0, count, at_once):
                with suppress(*UNREADABLE):
                    keys.append(
                        self.read_keys(
                            block, block + 1 if step == at_once else min(block + at_once, count)
                        )[::step]
                    )
        return np.concatenate(keys)

    # The intact parts of a damaged file

    @cached_property
    def intact_runs(self) -> Sequence[IntactRun]:
        """The entries that can be read, in order; the first use reads the whole file."""
        header = self.header
        good = self._intact_pages(0, (header.file_bytes - header.checksums_offset) // 8)
        whole = _intact_entries(good, header.tags_offset, self._entry_bytes, header.count)
        if self._is_rows:
            return [IntactRun(first, end, 0, 0) for first, end in whole]
        if self._rest_bytes:
            whole = [
                (low, high)
                for low, high, _ in _intersections(
                    whole, _intact_entries(good, header.rest_offset, self._rest_bytes, header.count)
                )
            ]
        buckets: list[Range] = []
        ranges: list[Range] = []
        for first, end in _intact_entries(good, header.directory_offset, 4, self._directory_words):
            part = self._read_directory(first, end)
            if (
                (part[1:] >= part[:-1]).all()
                and part[0] >= (ranges[-1][1] if ranges else 0)
                and part[-1] <= header.count
            ):
                ranges.append((int(part[0]), int(part[-1])))
                buckets.append((first, end))
        return [
            IntactRun(low, high, *buckets[place])
            for low, high, place in _intersections(whole, ranges)
        ]

    def _read_directory(self, first: int, end: int) -> Counts:
        return self._read(self.header.directory_offset + 4 * first, 4 * (end - first)).view(
            np.uint32
        )

    def _intact_pages(self, first: int, end: int) -> npt.NDArray[np.bool_]:
        """Return which of successive pages can be read and have the right checksums."""
        if end - first <= PIECE_PAGES:
            with suppress(*UNREADABLE):
                good = np.ones(end - first, bool)
                good[self._pages(first, end)[1]] = False
                return good
        if end - first == 1:
            return np.zeros(1, bool)
        middle = (first + end) // 2
        return np.concatenate([self._intact_pages(first, middle), self._intact_pages(middle, end)])

    def read_run(self, run: IntactRun) -> Iterator[tuple[int, Words]]:
        """Yield (number of the first, keys or rows) of an intact run, in bounded pieces.

        A part of a run of ``intact_runs`` will do.
        """
        for first, end in self._parts(run.first, run.end):
            if self._is_rows:
                yield first, self._rows(first, end)
                continue
            yield (
                first,
                self._keys(
                    first,
                    self._columns(first, end),
                    self._read_directory(run.bucket, run.end_bucket),
                    run.bucket,
                ),
            )

    # Everything

    def verify(self, tick: Callable[[int], None] = lambda rows: None) -> int:
        """Read and check everything except where references lead.

        ``tick`` is called with the number of entries of each piece.

        Return the sum of the hashes of keys or fingerprints, which :func:`check_references`
        compares for references.
        """
        self.check_size()
        header, directory = self.header, self.directory
        permutation = (
            np.frombuffer(header.permutation, np.uint8) if header.kind == KIND_COPIES else None
        )
        buckets = np.zeros(len(directory) - 1, np.int64)
        last = empty = Width(header.width).empty(0) if self._is_rows else NO_WORDS
        digest = 0
        for first, end in self._parts(0, header.count):
            entries = (
                self._rows(first, end) if self._is_rows else self._read_checked_keys(first, end)
            )
            joined = np.concatenate([last, entries])
            wrong = np.flatnonzero(~is_ascending(joined))
            if len(wrong):
                raise self._fault(
                    "entries out of order", entry=first - len(last) + int(wrong[0]) + 1
                )
            if self._is_rows:
                numbers = leading_words(entries) >> np.uint64(WORD_BITS - header.bucket_bits)
                buckets += np.bincount(numbers.astype(np.int64), minlength=len(buckets))
            digest += (
                _kernel.digest(entries)
                if permutation is None
                else _kernel.digest(entries, permutation)
            )
            last = entries[-1:] if len(entries) else empty
            tick(end - first)
        if self._is_rows and (np.diff(directory.astype(np.int64)) != buckets).any():
            raise self._fault("directory does not match the entries")
        self._check_padding()
        digest %= 2**64
        if header.kind != KIND_REFERENCES and digest != header.set_digest:
            raise self._fault(
                "the table holds another set of fingerprints than its header says",
                header.set_digest,
                digest,
            )
        return digest

    def _read_checked_keys(self, first: int, end: int) -> Words:
        """Return keys, and check the bits behind the fingerprint or the row number in each key."""
        header = self.header
        columns = self._columns(first, end)
        keys = self._keys(first, columns, self.directory)
        if header.rest_bits % 8:
            above = columns[1][self._rest_bytes - 1 :: self._rest_bytes] >> np.uint8(
                header.rest_bits % 8
            )
            self._check_each(above == 0, first, "padding is not zero")
        if header.kind == KIND_COPIES and header.width < WORD_BITS:
            self._check_each(keys << np.uint64(header.width) == 0, first, "padding is not zero")
        if header.kind == KIND_REFERENCES:
            self._check_each(
                self.row_numbers(keys) < header.count, first, "a reference leads to no row"
            )
        return keys

    def row_numbers(self, keys: Words) -> Words:
        """Return the numbers of the rows that references lead to."""
        header = self.header
        shift = np.uint64(WORD_BITS - TAG_BITS - header.bucket_bits - header.rest_bits)
        numbers: Words = keys >> shift & np.uint64((1 << header.rest_bits) - 1)
        return numbers

    def _check_each(self, valid: npt.NDArray[np.bool_], first: int, fault: str) -> None:
        wrong = np.flatnonzero(~valid)
        if len(wrong):
            raise self._fault(fault, entry=first + int(wrong[0]))

    def _check_padding(self) -> None:
        header = self.header
        ends = (
            (header.directory_offset + 4 * self._directory_words, header.tags_offset),
            (header.tags_offset + self._entry_bytes * header.count, header.rest_offset),
            (header.rest_offset + self._rest_bytes * header.count, header.checksums_offset),
        )
        for at, end in ends:
            if self._read(at, end - at).any():
                raise self._fault("padding is not zero")


def check_references(
    tables: Sequence[tuple[ColumnTable, int]],
    rows: ColumnTable,
    tick: Callable[[int], None] = lambda rows: None,
) -> list[CorruptStoreError]:
    """Return the faults of tables of references, each with its :meth:`ColumnTable.verify` result.

    The rows determine the references. So the rows are read once, in order, and sums are compared.
    """
    sums = [0] * len(tables)
    for start in range(0, rows.header.count, PIECE_ENTRIES):
        part = rows.decode(start, min(start + PIECE_ENTRIES, rows.header.count))
        for place, (table, _) in enumerate(tables):
            permutation = np.frombuffer(table.header.permutation, np.uint8)
            keys = _kernel.reference_keys(
                part, start, rows.header.count, permutation, table.header.bucket_bits
            )
            sums[place] += _kernel.digest(keys)
        tick(len(part))
    return [
        CorruptStoreError(
            f"{table.path}: a reference leads to a row of another bucket or tag", path=table.path
        )
        for (table, digest), expected in zip(tables, sums, strict=True)
        if digest != expected % 2**64
    ]


def block_counts(entries: int) -> Counts:
    """Return the entry count of each block of ids of successive entries."""
    size = _kernel.ROWS_IN_BLOCK
    counts = np.full(-(-entries // size), size, np.uint32)
    if entries % size:
        counts[-1] = entries % size
    return counts


def _intact_entries(good: npt.NDArray[np.bool_], at: int, each: int, count: int) -> list[Range]:
    """Return the runs of entries of a section that lie wholly in intact pages."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]]).astype(np.int8)))
    start = at - _kernel.HEADER_BYTES
    lows = -(-(edges[::2] * _kernel.PAGE_BYTES - start) // each)
    highs = (edges[1::2] * _kernel.PAGE_BYTES - start) // each
    lows, highs = np.clip(lows, 0, count), np.clip(highs, 0, count)
    filled = lows < highs
    return list(zip(lows[filled].tolist(), highs[filled].tolist(), strict=True))


def _intersections(
    first: Sequence[Range], second: Sequence[Range]
) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, index in the second list) of the overlaps of two ascending lists."""
    i = j = 0
    while i < len(first) and j < len(second):
        low, high = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if low < high:
            yield low, high, j
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1


# --- Writing ------------------------------------------------------------------------------------


class ColumnWriter:
    """Writes one column table or row file: :meth:`feed` sorted keys or rows, then :meth:`finish`.

    Keys are permuted fingerprints, or references from ``_kernel.reference_keys``; rows have the
    shape (n, words). The count and the digest of the layout must be of the fingerprints that will
    be fed. The writer holds the directory in memory, and eight bytes for each page.
    """

    def __init__(self, path: Path, layout: ColumnLayout) -> None:
        self._path, self._layout = path, layout
        self._cutter = layout.cutter()
        self._fed = 0
        self._file = path.open("x+b", buffering=0)
        os.ftruncate(self._file.fileno(), self._cutter.file_bytes)
        # A page that is written in one call gets its checksum there; any other when the file is
        # complete.
        self._sums = np.zeros(
            (self._cutter.file_bytes - self._cutter.checksums_offset) // 8, np.uint64
        )
        self._summed = np.zeros(len(self._sums), bool)
        self._tags, self._rest = (
            _Section(self._cutter.tags_offset),
            _Section(self._cutter.rest_offset),
        )

    def feed(self, entries: Words) -> Counts:
        """Append keys, or rows, in ascending order.

        Return the entry counts of the blocks of ids that were completed.
        """
        before, self._fed = self._fed, self._fed + len(entries)
        if self._fed > self._layout.fingerprint_count:
            raise self._count_error()
        for start in range(0, len(entries), FEED_KEYS):
            part = entries[start : start + FEED_KEYS]
            if self._layout.kind == KIND_ROWS:
                self._cutter.count(part)
                self._write(*self._tags.add(part.reshape(-1).view(np.uint8)))
            else:
                tags, rest = self._cutter.cut(part)
                self._write(*self._tags.add(tags))
                self._write(*self._rest.add(rest))
        size = _kernel.ROWS_IN_BLOCK  # the last block is completed by finish()
        return np.full(
            max((self._fed - 1) // size, 0) - max((before - 1) // size, 0), size, np.uint32
        )

    def finish(self) -> Counts:
        """Write the directory, the checksums and the header.

        Return the entry count of the last block of ids, if any. The file is complete, but durable
        only after :meth:`sync`.
        """
        if self._fed != self._layout.fingerprint_count:
            raise self._count_error()
        self._write(_kernel.HEADER_BYTES, self._cutter.directory().view(np.uint8))
        self._write(*self._tags.take())
        self._write(*self._rest.take())
        end = self._cutter.checksums_offset
        for page in np.flatnonzero(~self._summed).tolist():
            at = _kernel.HEADER_BYTES + page * _kernel.PAGE_BYTES
            data = read_at(self._file.fileno(), self._path, at, min(_kernel.PAGE_BYTES, end - at))
            self._sums[page] = _kernel.page_checksums(
                np.frombuffer(data, np.uint8), self._cutter.seed, page
            )[0]
        write_all(self._file.fileno(), self._sums.view(np.uint8).data, end)
        write_all(self._file.fileno(), self._cutter.header, 0)
        return np.array(
            [(self._fed - 1) % _kernel.ROWS_IN_BLOCK + 1] if self._fed else [], np.uint32
        )

    def sync(self) -> None:
        """Make the file durable and close it."""
        os.fsync(self._file.fileno())
        self._file.close()

    def abort(self) -> None:
        self._file.close()

    def _write(self, at: int, data: Bytes) -> None:
        """Write bytes, each of which is written once, and sum their whole pages."""
        write_all(self._file.fileno(), data.data, at)
        size = _kernel.PAGE_BYTES
        whole = data[-at % size :]
        whole = whole[: len(whole) // size * size]
        first = (at + size - 1) // size - _kernel.HEADER_BYTES // size
        self._sums[first : first + len(whole) // size] = _kernel.page_checksums(
            whole, self._cutter.seed, first
        )
        self._summed[first : first + len(whole) // size] = True

    def _count_error(self) -> CorruptStoreError:
        return CorruptStoreError(
            f"{self._path}: it would hold {self._fed} entries instead of "
            f"{self._layout.fingerprint_count}"
        )


class _Section:
    """A part of a file that is written in order, in large pieces that end with a page."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._parts = [NO_BYTES]
        self._bytes = 0

    def add(self, data: Bytes) -> tuple[int, Bytes]:
        """Append bytes; return (place, bytes) to be written now, perhaps none."""
        self._parts.append(data)
        self._bytes += len(data)
        whole = self._bytes - (self._at + self._bytes) % _kernel.PAGE_BYTES
        # a first part may end inside the page in which it begins
        if self._bytes < SECTION_BYTES or whole <= 0:
            return self._at, NO_BYTES
        return self.take(whole)

    def take(self, count: int | None = None) -> tuple[int, Bytes]:
        """Return (place, bytes) of the first ``count`` bytes that wait, by default of all."""
        data, at = np.concatenate(self._parts), self._at
        piece, waiting = data[:count], data[len(data) if count is None else count :]
        self._at, self._bytes = at + len(piece), len(waiting)
        # a copy, because the array is the caller's memory or part of a much larger one
        self._parts = [waiting.copy()]
        return at, piece
