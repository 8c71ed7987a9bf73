"""Sealed files: LMDB files that never change again, ended by checksums of their pages.

LMDB writes them (this is the only file that imports it) and the kernel reads them, without LMDB: it
checks each page before it follows it. After the pages and a hole, a sealed file has the XXH64 of
each 4 KiB of the pages (level 1), the XXH64 of each 512 of these (level 2), and last the digest:
the XXH64 of level 2, seeded with the number of sealed bytes (docs/format.md is normative).
"""

from __future__ import annotations

import errno
import os
import resource
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet, finalize

import xxhash

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import printable
from fpstore.base.width import row_words, rows_to_numbers
from fpstore.disk.files import (
    RUN_REPAIR,
    close_file,
    data_ranges,
    disk_bytes,
    missing_error,
    open_descriptor,
    open_file,
    read_at,
    read_if_possible,
    write_all,
)
from fpstore.disk.refusals import NOTHING_CHANGED, TOO_MANY_FILES, refusal_error, translate_refusals
from fpstore.errors import ClosedStoreError, CorruptStoreError, StorageError

if TYPE_CHECKING:
    import lmdb  # which a reader does not need

WORD_BYTES = 8
CHUNK_BYTES = 4096
GROUP_CHUNKS = 512
HASH_BYTES = DIGEST_BYTES = 8
PAD_BYTES = 1 << 18
HASHED_BYTES = GROUP_CHUNKS * CHUNK_BYTES
MIN_LONGEST_VALUE = PAD_BYTES // 2  # values up to this size are read from every file
CHECKED_AT_OPEN = 4 << 20  # a file of at most this many bytes is checked whole when it is opened
BATCH_ITEMS = 256
FIRST_MAP_BYTES = 1 << 24
FULL_BYTES = 1 << 16  # a disk with less room than this is called full

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
            room = file.room - PAD_BYTES
            problem = (
                "is damaged: the longest value cannot have {expected} bytes, {got} are behind the "
                "pages"
            )
            self._require(shape["largest"] <= room, problem, shape["largest"], room)
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

PAGE_HEAD, NODE_HEAD = 16, 8  # bytes of a page before its pointers, and of a node before its key
PAGE_SIZE_AT = 40  # in a metadata page
PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)
LEAF = b"\x02\x00"
# by this a value may be larger than all blocks on disk: a file system may compress them
MAX_SPARSE = 4
BIG = 1  # flag of a node: its value lies on pages of its own


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
            if len(data) < PAGE_HEAD or data[10:12] != LEAF:
                continue
            for key, start, length, big in _leaf_nodes(data):
                at = page * page_bytes + start
                if big:
                    (first,) = struct.unpack_from("<Q", data, start)
                    at = first * page_bytes + PAGE_HEAD
                if len(key) == key_bytes and length <= longest and at + length <= status.st_size:
                    yield Item(key, at, length)


def _leaf_nodes(data: bytes) -> Iterator[tuple[bytes, int, int, bool]]:
    """Yield (key, start, size, whether the value lies elsewhere) of each whole node of a leaf."""
    count = min(
        max((int.from_bytes(data[12:14], "little") - PAGE_HEAD) // 2, 0),
        (len(data) - PAGE_HEAD) // 2,
    )
    for at in range(PAGE_HEAD, PAGE_HEAD + 2 * count, 2):
        pointer = int.from_bytes(data[at : at + 2], "little")
        if pointer + NODE_HEAD > len(data):
            continue
        low, high, flags, key_bytes = struct.unpack_from("<HHHH", data, pointer)
        start, size = pointer + NODE_HEAD + key_bytes, low | high << 16
        if start + (8 if flags & BIG else size) <= len(data):
            yield data[pointer + NODE_HEAD : start], start, size, bool(flags & BIG)


def _page_bytes(path: Path, descriptor: int) -> int:
    """Return the size of pages by the metadata, if that is plausible."""
    for start in (0, *PAGE_SIZES):
        data = read_if_possible(descriptor, path, start + PAGE_SIZE_AT, 4)
        if len(data) == 4 and (size := int.from_bytes(data, "little")) in PAGE_SIZES:
            return size
    return PAGE_SIZES[0]


# --- Writing ---


class SealedWriter:
    """An LMDB file that only this process writes.

    The map grows as needed, and :meth:`finish` seals it and makes it durable.

    LMDB forbids the use of a handle after a fork: a fork waits until nothing is being written, and
    a child closes the handles of its parent.
    """

    def __init__(self, path: Path) -> None:
        import lmdb

        self.path = path
        self._largest = 0
        self.turn = threading.RLock()  # held while LMDB writes
        with _translate_lmdb_errors(path):
            self.environment = lmdb.open(
                os.fsencode(path),
                subdir=False,
                lock=False,
                sync=False,
                metasync=False,
                map_size=FIRST_MAP_BYTES,
            )
        _writing.add(self)

    def append(self, keys: Words, values: list[bytes]) -> None:
        """Write values under ascending keys, which are above all that were written before.

        If the map is full, it grows.
        """
        import lmdb

        data, size = keys.astype(">u8").tobytes(), WORD_BYTES * row_words(keys)
        starts = range(0, len(data), size)
        self._largest = max(self._largest, max(map(len, values), default=0))
        with self.turn:
            while True:
                try:
                    with (
                        _translate_lmdb_errors(self.path, lmdb.MapFullError),
                        self.environment.begin(write=True) as transaction,
                    ):
                        # pairs one by one: many tuples at once would wake the garbage collector
                        items = zip((data[at : at + size] for at in starts), values, strict=True)
                        transaction.cursor().putmulti(items, append=True)
                    return
                except lmdb.MapFullError:
                    self.environment.set_mapsize(self.environment.info()["map_size"] * 2)

    def finish(self) -> dict[str, int]:
        """Sync, seal and close the file, padded with a hole for reads of damaged lengths.

        Return its shape for a reader.
        """
        with self.turn:
            with _translate_lmdb_errors(self.path):
                self.environment.sync(True)
            page = int(self.environment.stat()["psize"])
            used = (int(self.environment.info()["last_pgno"]) + 1) * page
        self.abort()
        size, digest = seal(self.path, used, -(-self._largest // page) * page)
        return {"bytes": size, "digest": digest, "largest": self._largest}

    def abort(self) -> None:
        """Close without syncing."""
        with self.turn:
            self.environment.close()
            _writing.discard(self)


_writing: WeakSet[SealedWriter] = WeakSet()
_paused: list[SealedWriter] = []  # by the thread that forks


def _before_fork() -> None:
    for writer in list(_writing):
        writer.turn.acquire()
        _paused.append(writer)


def _after_fork(in_child: bool) -> None:
    while _paused:
        writer = _paused.pop()
        if in_child:
            writer.environment.close()
        writer.turn.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(False),
    after_in_child=lambda: _after_fork(True),
)


def seal(path: Path, used: int, room: int = 0) -> tuple[int, int]:
    """Pad a file after its ``used`` bytes, append checksums, and return its size and digest."""
    with open_descriptor(path, os.O_RDWR) as descriptor:
        first = b"".join(
            _hashes(read_at(descriptor, path, start, min(used - start, HASHED_BYTES)), CHUNK_BYTES)
            for start in range(0, used, HASHED_BYTES)
        )
        second = _hashes(first, GROUP_CHUNKS * HASH_BYTES)
        digest = xxhash.xxh64_intdigest(second, used)
        tail = first + second + digest.to_bytes(DIGEST_BYTES, "little")
        size = used + room + PAD_BYTES + len(tail)
        os.ftruncate(descriptor, used)
        os.ftruncate(descriptor, size)
        write_all(descriptor, tail, size - len(tail))
        os.fsync(descriptor)
    return size, digest


def _hashes(data: bytes, part_bytes: int) -> bytes:
    view = memoryview(data)
    parts = (view[at : at + part_bytes] for at in range(0, len(data), part_bytes))
    return b"".join(xxhash.xxh64_intdigest(part).to_bytes(HASH_BYTES, "little") for part in parts)


@contextmanager
def _translate_lmdb_errors(path: Path, *passed: type[lmdb.Error]) -> Iterator[None]:
    """Turn errors of LMDB into those of fpstore; ``passed`` ones are for the caller."""
    import lmdb

    try:
        yield
    except passed:
        raise
    except lmdb.Error as error:
        number = _error_number(path, error)
        if number == errno.ENOENT:
            raise missing_error(path) from error
        if number:
            then = NOTHING_CHANGED if number == errno.ENOSPC else ""
            raise refusal_error(path, OSError(number, os.strerror(number)), then) from error
        raise StorageError(f"{path}: {str(error).removeprefix(f'{path}: ')}", path=path) from error


def _error_number(path: Path, error: lmdb.Error) -> int:
    """Return the number of an error of the system, or 0.

    LMDB reports a write cut short by a full disk or a limit as EIO.
    """
    numbers = (errno.ENOENT, *TOO_MANY_FILES, errno.ENOSPC, errno.EIO)
    number = next((number for number in numbers if os.strerror(number) in str(error)), 0)
    with suppress(OSError):
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if (
            number == errno.EIO
            and limit != resource.RLIM_INFINITY
            and path.stat().st_size + FULL_BYTES > limit
        ):
            return errno.EFBIG
        disk = os.statvfs(path.parent)
        if number == errno.EIO and disk.f_bavail * disk.f_frsize < FULL_BYTES:
            return errno.ENOSPC
    return number
