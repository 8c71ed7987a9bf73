"""Column tables and row files: a writer that takes sorted keys or rows in a stream, and a reader over a memory map."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Words
from fpstore.base.arguments import printable
from fpstore.design.tables import TAG_BITS, row_bucket_bits
from fpstore.disk.files import read_at, write_all
from fpstore.disk.pages import LAZY, in_memory, map_cached
from fpstore.disk.refusals import refusing
from fpstore.errors import CorruptStoreError
from fpstore.format.column_file import ROWS, ColumnFile

FEED_KEYS = 1 << 17
SECTION_BYTES = 1 << 20  # of a section, kept until they are written together


class ColumnLayout(NamedTuple):
    """The facts that the writer needs before the first key.

    ``permutation`` has a byte for each of the ``width`` bits, ``threshold`` is -1 for a table that is not looked up.
    """

    kind: int
    width: int
    fingerprint_count: int
    set_digest: int
    permutation: bytes
    bucket_bits: int = 16
    tag_bits: int = TAG_BITS
    threshold: int = -1
    table: int = 0
    table_count: int = 1

    @classmethod
    def rows(cls, width: int, count: int, set_digest: int, bucket_bits: int | None = None) -> ColumnLayout:
        """Return the layout of a row file; how many buckets there are follows from the count."""
        buckets = row_bucket_bits(count) if bucket_bits is None else bucket_bits
        return cls(ROWS, width, count, set_digest, bytes(range(width)), buckets, tag_bits=0)

    def cutter(self) -> _kernel.ColumnCutter:
        """Return the encoder of the header and the sections of a file; ValueError if a field is out of range."""
        return _kernel.ColumnCutter(
            self.kind, self.width, self.fingerprint_count, self.set_digest, np.frombuffer(self.permutation, np.uint8),
            self.bucket_bits, self.tag_bits, self.threshold + 1, self.table, self.table_count,
        )  # fmt: skip


class ColumnWriter:
    """Writes one column table or row file: :meth:`feed` sorted keys or rows, then :meth:`finish`.

    Keys are permuted fingerprints, or references from ``_kernel.reference_keys``; rows are an array of shape (n, words). What is
    kept in memory is the directory, and eight bytes for each page that was written.

    Parameters
    ----------
    path : Path
        The file to create.
    layout : ColumnLayout
        The count and the digest must be those of the fingerprints that will be fed.

    Raises
    ------
    ValueError
        A field of the layout is out of range.
    """

    def __init__(self, path: Path, layout: ColumnLayout) -> None:
        self._path, self._layout = path, layout
        self._cutter = layout.cutter()
        self._fed = 0
        self._file = path.open("x+b", buffering=0)
        os.ftruncate(self._file.fileno(), self._cutter.file_bytes)
        self._pages = _PageSums(self._file.fileno(), path, self._cutter)
        self._tags = _Section(self._pages, self._cutter.tags_offset)
        self._rest = _Section(self._pages, self._cutter.rest_offset)

    def feed(self, entries: Words) -> None:
        """Append keys, or rows, in ascending order.

        Raises
        ------
        InputError
            They do not ascend.
        CorruptStoreError
            They are more than the layout says.
        """
        self._fed += len(entries)
        if self._fed > self._layout.fingerprint_count:
            raise self._miscounted()
        for start in range(0, len(entries), FEED_KEYS):
            part = entries[start : start + FEED_KEYS]
            if self._layout.kind == ROWS:
                self._cutter.count(part)
                self._tags.write(part.reshape(-1).view(np.uint8))
            else:
                tags, rest = self._cutter.cut(part)
                self._tags.write(tags)
                self._rest.write(rest)

    def finish(self) -> None:
        """Write the directory, the checksums and the header: the file is complete, but durable only after :meth:`sync`."""
        if self._fed != self._layout.fingerprint_count:
            raise self._miscounted()
        directory = _Section(self._pages, _kernel.HEADER_BYTES)
        directory.write(self._cutter.directory().view(np.uint8))
        for section in (directory, self._tags, self._rest):
            section.flush()
        write_at(self._file.fileno(), self._path, self._cutter.checksums_offset, self._pages.finish().view(np.uint8))
        write_at(self._file.fileno(), self._path, 0, np.frombuffer(self._cutter.header, np.uint8))

    def sync(self) -> None:
        """Make the file durable and close it."""
        os.fsync(self._file.fileno())
        self._file.close()

    def abort(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def _miscounted(self) -> CorruptStoreError:
        return CorruptStoreError(f"{self._path}: it would hold {self._fed} entries instead of {self._layout.fingerprint_count}")


class _PageSums:
    """The checksums of pages: of those that are written as a whole at once, of the others when the file is complete."""

    def __init__(self, descriptor: int, path: Path, cutter: _kernel.ColumnCutter) -> None:
        self._descriptor, self._path, self._seed, self._end = descriptor, path, cutter.seed, cutter.checksums_offset
        pages = (cutter.file_bytes - cutter.checksums_offset) // 8
        self._sums = np.zeros(pages, np.uint64)
        self._known = np.zeros(pages, bool)

    def write(self, at: int, data: Bytes) -> None:
        """Write bytes of the file that are written once."""
        write_at(self._descriptor, self._path, at, data)
        size = _kernel.PAGE_BYTES
        whole = data[-at % size :]
        whole = whole[: len(whole) // size * size]
        first = (at + size - 1) // size - _kernel.HEADER_BYTES // size
        self._sums[first : first + len(whole) // size] = _kernel.page_checksums(whole, self._seed, first)
        self._known[first : first + len(whole) // size] = True

    def finish(self) -> Words:
        """Return all checksums."""
        for page in np.flatnonzero(~self._known).tolist():
            at = _kernel.HEADER_BYTES + page * _kernel.PAGE_BYTES
            data = read_at(self._descriptor, self._path, at, min(_kernel.PAGE_BYTES, self._end - at))
            self._sums[page] = _kernel.page_checksums(np.frombuffer(data, np.uint8), self._seed, page)[0]
        return self._sums


class _Section:
    """A part of a file that is written in order, in large pieces that end with a page."""

    def __init__(self, pages: _PageSums, at: int) -> None:
        self._pages, self._at = pages, at
        self._parts: list[Bytes] = []
        self._bytes = 0

    def write(self, data: Bytes) -> None:
        """Append bytes, of which the last wait until there are more."""
        self._parts.append(data)
        self._bytes += len(data)
        whole = self._bytes - (self._at + self._bytes) % _kernel.PAGE_BYTES
        if self._bytes >= SECTION_BYTES and whole > 0:  # a first part may end inside the page in which it begins
            self._put(whole)

    def flush(self) -> None:
        """Write the rest."""
        if self._bytes:
            self._put(self._bytes)

    def _put(self, count: int) -> None:
        data = np.concatenate(self._parts)
        self._pages.write(self._at, data[:count])
        self._at += count
        self._bytes -= count
        self._parts = [data[count:].copy()]  # a copy of its own, as the rest is caller's memory or much larger


def write_at(descriptor: int, path: Path, at: int, data: Bytes) -> None:
    """Write all bytes at a place of a file."""
    with refusing(path):
        write_all(descriptor, data.data, at)


class ColumnReader:
    """A column table or a row file, mapped for probes; pages are verified when they are first used.

    Parameters
    ----------
    path : Path
    pages : str
        See :func:`fpstore.open`.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """

    def __init__(self, path: Path, pages: str = LAZY) -> None:
        self.path = path
        self.file = ColumnFile(path)  # so that a header that cannot be read is an error, not a signal
        self._bytes = in_memory(path, self.file.fileno(), pages, mmap.MADV_RANDOM)
        self.kernel = _kernel.ColumnTable(self._bytes, printable(path))

    def in_order(self) -> _kernel.ColumnTable:
        """Return the table for a scan, through a separate mapping for which the system reads ahead."""
        return _kernel.ColumnTable(in_memory(self.path, self.file.fileno(), LAZY, mmap.MADV_NORMAL), printable(self.path))

    def map_cached(self) -> None:
        """See :func:`fpstore.disk.pages.map_cached`."""
        map_cached(self.file.fileno(), self._bytes)

    @property
    def directory(self) -> npt.NDArray[np.uint32]:
        """Where the entries of each bucket begin, and where the last ends; not verified."""
        at = self.kernel.directory_offset
        return self._bytes[at : at + 4 * ((1 << self.kernel.bucket_bits) + 1)].view(np.uint32)
