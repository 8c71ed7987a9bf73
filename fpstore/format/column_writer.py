"""Writing column tables and row files: a writer that takes sorted keys or rows in a stream."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Words
from fpstore.disk.files import read_at, write_all
from fpstore.errors import CorruptStoreError
from fpstore.format.layout import ROWS, ColumnLayout

FEED_KEYS = 1 << 17
SECTION_BYTES = 1 << 20  # of a section, kept until they are written together


class ColumnWriter:
    """Writes one column table or row file: :meth:`feed` sorted keys or rows, then :meth:`finish`.

    Keys are permuted fingerprints, or references from ``_kernel.reference_keys``; rows have the shape (n, words). The count and
    the digest of the layout must be those of the fingerprints that will be fed. What is kept in memory is the directory, and
    eight bytes for each page that was written.
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

    def feed(self, entries: Words) -> Counts:
        """Append keys, or rows, in ascending order; return the entry counts of the blocks of ids that were completed."""
        before, self._fed = self._fed, self._fed + len(entries)
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
        size = _kernel.ROWS_IN_BLOCK  # the last block is completed by finish()
        return np.full(max((self._fed - 1) // size, 0) - max((before - 1) // size, 0), size, np.uint32)

    def finish(self) -> Counts:
        """Write the directory, the checksums and the header, and return the entry count of the last block of ids, if any.

        The file is complete, but durable only after :meth:`sync`.
        """
        if self._fed != self._layout.fingerprint_count:
            raise self._miscounted()
        directory = _Section(self._pages, _kernel.HEADER_BYTES)
        directory.write(self._cutter.directory().view(np.uint8))
        for section in (directory, self._tags, self._rest):
            section.flush()
        write_all(self._file.fileno(), self._pages.finish().view(np.uint8).data, self._cutter.checksums_offset)
        write_all(self._file.fileno(), self._cutter.header, 0)
        return np.array([(self._fed - 1) % _kernel.ROWS_IN_BLOCK + 1] if self._fed else [], np.uint32)

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
    """The checksums of pages: of a page that is written at once, as it is written; of others when the file is complete."""

    def __init__(self, descriptor: int, path: Path, cutter: _kernel.ColumnCutter) -> None:
        self._descriptor, self._path, self._seed, self._end = descriptor, path, cutter.seed, cutter.checksums_offset
        pages = (cutter.file_bytes - cutter.checksums_offset) // 8
        self._sums = np.zeros(pages, np.uint64)
        self._known = np.zeros(pages, bool)

    def write(self, at: int, data: Bytes) -> None:
        """Write bytes of the file that are written once."""
        write_all(self._descriptor, data.data, at)
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
