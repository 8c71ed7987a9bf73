"""Sealed LMDB files: opened once per process and inode, shared through weak references; the only file that imports lmdb.

LMDB allows one open handle per process and file, forbids the use of a handle after ``fork``, and needs a map size fixed in
advance. So readers share one handle, which is closed with the last of them, a forked child opens its own, and a writer that has
the file to itself grows the map when it is full.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet, WeakValueDictionary, finalize

import lmdb
import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import printable
from fpstore.base.width import rows_to_numbers, words_of
from fpstore.disk.closing import close_file
from fpstore.disk.files import RUN_REPAIR, disk_bytes, missing, open_file
from fpstore.disk.fork import around_fork
from fpstore.disk.refusals import TOO_MANY_FILES, refused
from fpstore.disk.seal import PAD_BYTES, CheckedPages, seal, tail_bytes
from fpstore.errors import ClosedStoreError, CorruptStoreError, StorageError, StoreNotFoundError

T = TypeVar("T")

FIRST_MAP_BYTES = 1 << 24
WORD_BYTES = 8
BATCH_ITEMS = 256
KEYS_AT_ONCE = 128  # few enough that their buffers do not trigger the garbage collector
CHECKED_AT_OPEN = 4 << 20  # a file of at most this many bytes is checked whole when it is opened
MOST_MARKS = 1 << 26  # keys of which it is noted that they have been checked
FULL_BYTES = 1 << 16  # a disk with less room than this is called full
# One lock around all reading, so that no thread closes or forks in the middle of a read. Reads are short and mostly hold the GIL.
_lock = threading.RLock()
_forks = 0  # between the first process and this one
_shared: WeakValueDictionary[tuple[int, int], lmdb.Environment] = WeakValueDictionary()
_writing: WeakSet[SealedWriter] = WeakSet()
_waited_for: list[SealedWriter] = []  # by the thread that forks


def _before_fork() -> None:
    """Wait until nothing is read or written."""
    _lock.acquire()
    for writer in list(_writing):
        writer.turn.acquire()
        _waited_for.append(writer)


def _after_fork() -> None:
    while _waited_for:
        _waited_for.pop().turn.release()
    _lock.release()


def _after_fork_in_child() -> None:
    """Close the parent's handles: LMDB forbids their use, and they would keep their files from being opened again."""
    global _forks, _lock
    _forks += 1
    _lock = threading.RLock()
    inherited = [*_shared.values(), *(writer.environment for writer in _waited_for)]
    _shared.clear()
    _waited_for.clear()
    for environment in inherited:
        environment.close()


around_fork(before=_before_fork, in_parent=_after_fork, in_child=_after_fork_in_child)


@contextmanager
def translated(path: Path, *but: type[lmdb.Error]) -> Iterator[None]:
    """Turn LMDB's errors into fpstore's, except those named, which the caller handles."""
    try:
        yield
    except but:
        raise
    except lmdb.Error as error:
        raise _translate(path, error) from error


DAMAGED = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
    lmdb.BadTxnError,
    lmdb.PanicError,
    lmdb.BadDbiError,
    lmdb.BadValsizeError,
)


def _translate(path: Path, error: lmdb.Error) -> CorruptStoreError | StorageError | StoreNotFoundError:
    if isinstance(error, DAMAGED):
        return CorruptStoreError(f"{path}: LMDB file is damaged ({error})", path=path)
    if os.strerror(errno.ENOENT) in str(error):
        return missing(path)
    for number in TOO_MANY_FILES:
        if os.strerror(number) in str(error):
            return refused(path, OSError(number, os.strerror(number)))
    return StorageError(f"{path}: {_reason(path, error)}", path=path)


def _reason(path: Path, error: lmdb.Error) -> str:
    """Return the reason of an error. LMDB reports a write cut short by a full disk or a limit as an input/output error."""
    full = os.strerror(errno.ENOSPC) in str(error)
    with suppress(OSError):
        if os.strerror(errno.EIO) in str(error):
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            if limit != resource.RLIM_INFINITY and path.stat().st_size + FULL_BYTES > limit:
                return os.strerror(errno.EFBIG)
            disk = os.statvfs(path.parent)
            full |= disk.f_bavail * disk.f_frsize < FULL_BYTES
    if full:
        return f"{os.strerror(errno.ENOSPC)}: free some space; nothing was changed"
    return str(error).removeprefix(f"{path}: ")


def record_key(key: int, words: int = 1) -> bytes:
    """Return the LMDB key of a number of so many words: its bytes, big-endian."""
    return key.to_bytes(WORD_BYTES * words, "big")


def record_keys(keys: Words) -> list[bytes]:
    """Return the LMDB keys of rows; see :func:`record_key`."""
    data = keys.astype(">u8").tobytes()
    size = WORD_BYTES * words_of(keys)
    return [data[at : at + size] for at in range(0, len(data), size)]


class _Handle:
    """What a reader has open."""

    environment: lmdb.Environment | None = None
    transaction: lmdb.Transaction | None = None


def _give_back(handle: _Handle, descriptor: int) -> None:
    """Close what a reader has open, under the lock: a fork in the middle would leave the file half closed in the child."""
    with _lock:
        handle.transaction = handle.environment = None
    close_file(descriptor)


class SealedReader:
    """A sealed LMDB file, open for reading; it never changes.

    Parameters
    ----------
    path : Path
    file_bytes : int, optional
        The size that the file must have; by default that of its pages and PAD_BYTES. The last 8 bytes are a digest.
    digest : int, optional
        The digest that the file must have, if it is known, so that no other file can take its place.
    largest : int
        The longest value in the file. LMDB has no checksums and follows the lengths it reads: a damaged one leads at most this
        far and two 16-bit offsets further, where the padding lies. Longer values are refused unread.
    key_words : int
        Words of a key: see :func:`record_key`.
    """

    def __init__(
        self, path: Path, file_bytes: int | None = None, digest: int | None = None, largest: int = 0, key_words: int = 1
    ) -> None:
        self.path = path
        self._name = printable(path)  # in messages of the kernel
        self._file_bytes = file_bytes
        self._digest = digest
        self._key_bytes = WORD_BYTES * key_words
        self._pages: CheckedPages
        self.in_memory: _kernel.SealedFile | None = None  # until it is closed
        self._whole = False  # every page has been checked
        self._largest, self._longest = largest, max(largest, PAD_BYTES // 2)
        self._reached = bytearray()  # by the number of a key: whether the pages on the way to it have been checked
        self._closed = False
        self._forks = -1  # the process that owns what follows, by its number of forks
        self._given_back: finalize[[_Handle, int], SealedReader] | None = None
        self._descriptor = -1  # of the file that was opened, even if the path names another one later
        self._handle = _Handle()
        with _lock:
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    def _open(self) -> None:
        if self._descriptor < 0:
            self._descriptor = open_file(self.path)
            self._given_back = finalize(self, _give_back, self._handle, self._descriptor)
        status = os.fstat(self._descriptor)
        inode = (status.st_dev, status.st_ino)
        if self._forks < 0:
            self._check_file(status.st_size)
        environment = _shared.get(inode)
        if environment is None:
            with translated(self.path):
                environment = lmdb.open(self._way(), subdir=False, readonly=True, lock=False, readahead=False)
        try:
            with translated(self.path):
                self._handle.transaction = environment.begin(buffers=True)
        except BaseException:
            if inode not in _shared:  # the error would keep the file open, and it can be opened only once
                environment.close()
            raise
        _shared[inode] = self._handle.environment = environment
        self._forks = _forks

    def _way(self) -> bytes:
        """Return a path of the very file that was opened: before a fork, a merge may have removed it, or the store was renamed.

        Raises
        ------
        StorageError
            There is none, where the system has no path that leads through a descriptor.
        """
        through = Path(f"/proc/self/fd/{self._descriptor}")
        if through.exists():
            return os.fsencode(through)
        try:
            if os.path.samestat(self.path.stat(), os.fstat(self._descriptor)):
                return os.fsencode(self.path)
        except OSError:
            pass
        raise StorageError(f"{self.path}: was replaced before this process read it: open the store again", path=self.path)

    def _check_file(self, size: int) -> None:
        """Refuse a file that is cut short, or of another store, or small and damaged, before LMDB reads it."""
        expected = self._file_bytes
        if expected in (None, size):
            self._pages = CheckedPages(self.path, self._descriptor, self._key_bytes)
        if expected is None:
            expected = self._pages.used + PAD_BYTES + tail_bytes(self._pages.used)
        if size != expected:
            raise CorruptStoreError(
                f"{self.path}: LMDB file is cut short or damaged ({size} bytes, expected {expected})",
                path=self.path,
                expected=expected,
                got=size,
            )
        if self._digest not in (None, got := self._pages.seal.digest):
            raise CorruptStoreError(
                f"{self.path}: LMDB file is damaged, or a file of another store (digest differs)",
                path=self.path,
                expected=self._digest,
                got=got,
            )
        if self._largest > (room := size - self._pages.used - PAD_BYTES - tail_bytes(self._pages.used)):
            raise CorruptStoreError(
                f"{self.path}: the longest value cannot have {self._largest} bytes, {room} are behind the pages: {RUN_REPAIR}",
                path=self.path,
                expected=self._largest,
                got=room,
            )
        if self._pages.used <= CHECKED_AT_OPEN:
            self._check_all()
        self.in_memory = self._pages.in_memory(size, self._longest, self._whole)

    def _check_all(self) -> None:
        """Check every page, once, before all of them are read."""
        if not self._whole:
            self._pages.seal.check_all()
            self._whole = True

    def _ready(self) -> Any:
        """Return the transaction, opened in this process; the caller holds the lock."""
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self._forks != _forks:
            self._open()
        return self._handle.transaction

    @property
    def entries(self) -> int:
        """The number of values, as the file says: not more than fit into its pages."""
        return self._pages.entries

    @property
    def file_bytes(self) -> int:
        """Bytes that the file takes on disk; its padding is a hole if the file system has holes."""
        status = os.fstat(self._descriptor) if self._descriptor >= 0 and not self._closed else self.path.lstat()
        return disk_bytes(status)

    def verify(self) -> None:
        """Check every page, without LMDB."""
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        CheckedPages(self.path, self._descriptor, self._key_bytes).seal.check_all()

    def _copied(self, value: memoryview[int]) -> bytes:
        if len(value) > self._longest:
            raise CorruptStoreError(
                f"{self.path}: LMDB file is damaged (a value of {len(value)} bytes)", path=self.path, got=len(value)
            )
        return bytes(value)

    def get(self, key: bytes, number: int | None = None) -> bytes | None:
        """Return the value of a key, or None.

        Parameters
        ----------
        key : bytes
        number : int, optional
            The rank of the key among all keys, by which is noted what has been found or checked already.
        """
        in_memory = self.in_memory
        if in_memory is not None and (found := in_memory.get(key, number)) is not None:
            return found
        with _lock:
            transaction: Any = self._handle.transaction if self._forks == _forks else self._ready()
            if not self._whole and not self._has_reached(number):
                self._pages.reach(int.from_bytes(key, "big"))
                self._note_reached(number)
            try:
                value = transaction.get(key)
            except lmdb.Error as error:
                raise _translate(self.path, error) from error
            if value is None:
                return None
            return self._copied(value)

    def get_many(self, keys: Words, numbers: Words, enough: int | None = None) -> list[bytes | None]:
        """Return the value of each key, or None; see :meth:`get`. Ascending keys are found fastest.

        With ``enough``, only those of the first keys are returned that have about so many bytes together.
        """
        out: list[bytes | None] = []
        taken = 0
        for start in range(0, len(keys), KEYS_AT_ONCE):
            if enough is not None and taken >= enough:
                break
            part = record_keys(keys[start : start + KEYS_AT_ONCE])
            with _lock, translated(self.path):
                transaction = self._ready()
                if not self._whole:
                    self._reach_many(keys[start : start + KEYS_AT_ONCE], numbers[start : start + KEYS_AT_ONCE])
                found = transaction.cursor().getmulti(part)
                values = _kernel.copied(found, self._longest, self._name)
                taken += sum(map(len, values))
                if len(found) != len(part):
                    there = dict(zip((bytes(key) for key, _ in found), values, strict=True))
                    out += map(there.get, part)
                else:
                    out += values
        return out

    def range(self, first: bytes, last: bytes) -> list[bytes]:
        """Return the values of all keys from one to another, both included."""
        with _lock, translated(self.path):
            transaction = self._ready()
            if not self._whole:
                self._pages.reach_range(int.from_bytes(first, "big"), int.from_bytes(last, "big"))
            cursor = transaction.cursor()
            if not cursor.set_range(first):
                return []
            found = list(takewhile(lambda item: bytes(item[0]) <= last, cursor.iternext()))
            return _kernel.copied(found, self._longest, self._name)

    def _has_reached(self, number: int | None) -> bool:
        return number is not None and number < len(self._reached) and self._reached[number] != 0

    def _note_reached(self, number: int | None) -> None:
        if number is not None and number < MOST_MARKS:
            if number >= len(self._reached):
                self._reached += bytes(number + 1 - len(self._reached))
            self._reached[number] = 1

    def _reach_many(self, rows: Words, numbers: Words) -> None:
        """Check the pages on the way to keys; ascending keys take fewer steps."""
        low = after = 0
        keys = rows_to_numbers(rows)
        for i in np.flatnonzero(~self._have_reached(numbers)).tolist():
            key = keys[i]
            if not low <= key < after:
                low, after = key, self._pages.reach(key)
            self._note_reached(int(numbers[i]))

    def _have_reached(self, numbers: Words) -> npt.NDArray[np.bool_]:
        known = np.frombuffer(self._reached, np.bool_)
        out = np.zeros(len(numbers), bool)
        noted = numbers < len(known)
        out[noted] = known[numbers[noted]]
        return out

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order."""
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        self._check_all()  # without the lock, since it takes long
        last = b""
        while True:
            with _lock, translated(self.path):
                cursor = self._ready().cursor()
                # First the key after the empty one, later the key after the last one.
                found = cursor.set_range(last) and (bytes(cursor.key()) > last or cursor.next())
                items = islice(cursor.iternext(), BATCH_ITEMS) if found else ()
                batch = [(bytes(key), self._copied(value)) for key, value in items]
            for key, value in batch:
                if key <= last:
                    raise CorruptStoreError(f"{self.path}: keys are out of order", path=self.path, expected=last, got=key)
                yield key, value
                last = key
            if not batch:
                return

    def close(self) -> None:
        """Release the handle; the file is closed with its last reader. Closing twice is allowed."""
        with _lock:
            self._closed, self._forks, self.in_memory = True, -1, None
            if self._given_back is not None:
                self._given_back()


class SealedWriter:
    """An LMDB file that only this process writes; the map grows as needed, and :meth:`finish` makes the file durable.

    Attributes
    ----------
    largest : int
        The length of the longest value that :meth:`append` has written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.largest = 0
        self.turn = threading.RLock()  # held while LMDB writes
        with _lock, translated(path):
            self.environment = lmdb.open(
                os.fsencode(path),
                subdir=False,
                lock=False,
                sync=False,
                metasync=False,
                map_size=FIRST_MAP_BYTES,
            )
            _writing.add(self)

    def run(self, work: Callable[[lmdb.Transaction], T]) -> T:
        """Run ``work(transaction)`` and commit; if the map is full, grow it and run the work again."""
        with self.turn:
            while True:
                try:
                    with translated(self.path, lmdb.MapFullError), self.environment.begin(write=True) as transaction:
                        return work(transaction)
                except lmdb.MapFullError:
                    self.environment.set_mapsize(self.environment.info()["map_size"] * 2)

    def append(self, keys: Words, values: list[bytes]) -> None:
        """Write values under ascending keys, which are above all that were written before."""
        items = list(zip(record_keys(keys), values, strict=True))
        self.run(lambda transaction: transaction.cursor().putmulti(items, append=True))
        self.largest = max(self.largest, max(map(len, values), default=0))

    def finish(self, largest: int = 0) -> tuple[int, int]:
        """Sync and close the file, pad it with a hole for reads of damaged lengths, and return its size and digest.

        Parameters
        ----------
        largest : int
            The length of the longest value that :meth:`run` has written.
        """
        largest = max(largest, self.largest)
        with self.turn:
            with translated(self.path):
                self.environment.sync(True)
            page = int(self.environment.stat()["psize"])
            used = (int(self.environment.info()["last_pgno"]) + 1) * page
        self.abort()
        return seal(self.path, used, -(-largest // page) * page)

    def abort(self) -> None:
        """Close without syncing."""
        with _lock, self.turn:
            self.environment.close()
            _writing.discard(self)
