"""Sealed files: LMDB files that never change, ended by checksums of their pages.

The kernel makes the pages, in order of the keys, and checks each one before it follows it. LMDB can
read the files, too. After the pages and a padding of zeros, a sealed file has the XXH64 of each
4 KiB of the pages (level 1), the XXH64 of each 512 of these (level 2), and last the digest: the
XXH64 of level 2, seeded with the number of sealed bytes (docs/format.md is normative).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from weakref import finalize

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import list_lims
from fpstore.base.width import rows_to_numbers
from fpstore.disk.files import (
    RUN_REPAIR,
    close_file,
    data_ranges,
    disk_bytes,
    open_file,
    read_if_possible,
)
from fpstore.disk.output import Output
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import ClosedStoreError, CorruptStoreError

WORD_BYTES = 8
CHUNK_BYTES = 4096
PADDING_BYTES = _kernel.PADDING_BYTES
MIN_LONGEST_VALUE = PADDING_BYTES // 2  # values up to this size are read from every file
CHECKED_AT_OPEN = 4 << 20  # a file of at most this many bytes is checked whole when it is opened
BATCH_ITEMS = 256

# --- Reading ---


class SealedReader:
    """A sealed file, open for reading; it never changes.

    The ``shape`` is what :meth:`SealedWriter.finish` returned: no other file can take its place. A
    key has ``key_words`` words.
    """

    def __init__(self, path: Path, shape: dict[str, int], key_words: int = 1) -> None:
        self.path = path
        self._last_key = (1 << 8 * WORD_BYTES * key_words) - 1
        self._descriptor = open_file(path)
        self._closing = finalize(self, close_file, self._descriptor)
        self._open = partial(
            open_seal, path, self._descriptor, key_words, max(shape["largest"], MIN_LONGEST_VALUE)
        )
        try:
            size = os.fstat(self._descriptor).st_size
            self._require(
                size == shape["bytes"],
                "is cut short or damaged ({got} bytes, expected {expected})",
                shape["bytes"],
                size,
            )
            file = self._open()
            problem = "is damaged, or a file of another store (digest differs)"
            self._require(file.digest == shape["digest"], problem, shape["digest"], file.digest)
            padding = file.padding_bytes - PADDING_BYTES
            problem = (
                "is damaged: the longest value cannot have {expected} bytes, {got} are behind the "
                "pages"
            )
            self._require(shape["largest"] <= padding, problem, shape["largest"], padding)
            if file.used <= CHECKED_AT_OPEN:
                file.check_all()
            self._file: _kernel.SealedFile | None = file
        except BaseException:
            self.close()
            raise

    def _require(self, fits: bool, problem: str, expected: int, got: int) -> None:
        if not fits:
            message = problem.format(expected=expected, got=got)
            raise CorruptStoreError(
                f"{self.path}: LMDB file {message}: {RUN_REPAIR}",
                path=self.path,
                expected=expected,
                got=got,
            )

    @property
    def file(self) -> _kernel.SealedFile:
        """The kernel's reader, which has the look-ups; ClosedStoreError once it is closed."""
        if self._file is None:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        return self._file

    @property
    def file_bytes(self) -> int:
        """Bytes that the file takes on disk; its padding is a hole if the file system has holes."""
        return disk_bytes(os.fstat(self._descriptor) if self._closing.alive else self.path.lstat())

    def verify(self) -> None:
        """Read the file again, and check every page and checksum."""
        _ = self.file
        self._open().check_all()

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yield (key, value) in the order of the keys."""
        self.file.check_all()
        first = 0
        while first <= self._last_key:
            rows, values = self.file.range(first, self._last_key, BATCH_ITEMS)
            keys = rows_to_numbers(rows)
            yield from zip(keys, values, strict=True)
            first = keys[-1] + 1 if len(keys) == BATCH_ITEMS else self._last_key + 1

    def close(self) -> None:
        """Close the file.

        Closing twice is allowed, and a thread that reads meanwhile can finish.
        """
        self._file = None
        self._closing()


def open_seal(
    path: Path, descriptor: int, key_words: int = 1, longest: int = 0
) -> _kernel.SealedFile:
    """Return the kernel's reader of an open file, after checks of its metadata and seal.

    It has a descriptor of its own.
    """
    with translate_refusals(path):
        own = os.dup(descriptor)
    return _kernel.SealedFile(own, printable(path), key_words, longest)


# --- Items of a damaged file ---

PAGE_HEAD, NODE_HEAD = _kernel.LMDB_PAGE_HEAD, _kernel.LMDB_NODE_HEAD  # bytes
PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)
# by this a value may be larger than all blocks on disk: a file system may compress them
MAX_SPARSE = 4


class Item(NamedTuple):
    """A key, and where its value lies in the file."""

    key: bytes
    start: int
    size: int


def salvaged_items(
    path: Path, descriptor: int, key_bytes: int, longest: int | None
) -> Iterator[Item]:
    """Yield the items with keys of this size on every page that can be read, in use or not.

    Nothing vouches for them.

    Values above the longest size that is expected are left out; if that is not known, values that
    are mostly a hole of the file.
    """
    status, page_bytes = os.fstat(descriptor), _page_bytes(path, descriptor)
    longest = MAX_SPARSE * disk_bytes(status) if longest is None else longest
    for data_start, data_end in data_ranges(descriptor, status.st_size):
        for page in range(data_start // page_bytes, -(-data_end // page_bytes)):
            data = read_if_possible(descriptor, path, page * page_bytes, page_bytes)
            if len(data) < PAGE_HEAD or _u16(data, _kernel.LMDB_FLAGS_AT) != _kernel.LMDB_LEAF:
                continue
            for key, start, length, is_big in _leaf_nodes(data):
                at = page * page_bytes + start
                if is_big:
                    (first,) = struct.unpack_from("<Q", data, start)
                    at = first * page_bytes + PAGE_HEAD
                if len(key) == key_bytes and length <= longest and at + length <= status.st_size:
                    yield Item(key, at, length)


def _leaf_nodes(data: bytes) -> Iterator[tuple[bytes, int, int, bool]]:
    """Yield (key, start, size, whether the value lies elsewhere) of each whole node of a leaf."""
    end = min(_u16(data, _kernel.LMDB_LOWER_AT), len(data)) - _kernel.LMDB_POINTER + 1
    for at in range(PAGE_HEAD, end, _kernel.LMDB_POINTER):
        pointer = _u16(data, at)
        if pointer + NODE_HEAD > len(data):
            continue
        low, high, flags, key_bytes = struct.unpack_from("<HHHH", data, pointer)
        start, size = pointer + NODE_HEAD + key_bytes, low | high << 16
        is_big = bool(flags & _kernel.LMDB_BIG_DATA)
        if start + (WORD_BYTES if is_big else size) <= len(data):
            yield data[pointer + NODE_HEAD : start], start, size, is_big


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _page_bytes(path: Path, descriptor: int) -> int:
    """Return the size of pages by the metadata, if that is plausible."""
    for start in (0, *PAGE_SIZES):
        data = read_if_possible(descriptor, path, start + _kernel.LMDB_PAGE_BYTES_AT, 4)
        if len(data) == 4 and (size := int.from_bytes(data, "little")) in PAGE_SIZES:
            return size
    return PAGE_SIZES[0]


# --- Writing ---


class SealedWriter:
    """Writes a sealed file: :meth:`append` values, then :meth:`finish`.

    What appends to the ``encoder`` itself calls :meth:`write_pages` then.
    """

    def __init__(self, path: Path, key_words: int = 1) -> None:
        self.encoder = _kernel.SealedEncoder(key_words)
        self._file = Output(path)
        self._file.write(np.zeros(2 * CHUNK_BYTES, np.uint8))  # the metadata pages, written last

    def append(self, keys: Words, values: Bytes, offsets: Words) -> None:
        """Append values under ascending keys, which are above all before.

        Value i is ``values[offsets[i]:offsets[i + 1]]``.
        """
        self.encoder.append(keys, values, offsets)
        self.write_pages()

    def append_list(self, keys: Words, values: list[bytes]) -> None:
        """Append one value for each of the ascending keys."""
        offsets = list_lims([len(value) for value in values]).astype(np.uint64)
        self.append(keys, np.frombuffer(b"".join(values), np.uint8), offsets)

    def write_pages(self) -> None:
        """Write the pages that the encoder has completed."""
        pages = self._file.reserve(self.encoder.pending_bytes)
        self._file.advance(self.encoder.move_pages(pages))

    def finish(self) -> dict[str, int]:
        """Complete the file, and make it durable: return its shape for a reader.

        Before the checksums is a padding for reads of damaged lengths.
        """
        encoder = self.encoder
        metadata, checksums = encoder.finish()
        self.write_pages()
        padding = -(-encoder.largest // CHUNK_BYTES) * CHUNK_BYTES + PADDING_BYTES
        self._file.finish(metadata, checksums, padding)
        self._file.sync()
        size = encoder.used_bytes + padding + len(checksums)
        return {"bytes": size, "digest": encoder.digest, "largest": encoder.largest}

    def abort(self) -> None:
        """Close without syncing."""
        self._file.close()
