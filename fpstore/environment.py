"""LMDB environments, opened once per process and path: the only file that imports lmdb.

LMDB allows one open handle per process and file, forbids the use of a handle after ``fork``, and needs a map size fixed in
advance. Here handles are shared and counted, a forked child opens its own, and a writer that has the file to itself grows the map
when it is full.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import lmdb

from fpstore.errors import ClosedStoreError, CorruptStoreError, StorageError, StoreNotFoundError

T = TypeVar("T")

FIRST_MAP_BYTES = 1 << 24
BATCH_ITEMS = 256
FULL_BYTES = 1 << 16  # a disk with less room than this is called full
# One lock around all reading: it is short, mostly under the GIL anyway, and so nobody closes or forks in the middle of a read.
_lock = threading.RLock()
_shared: WeakValueDictionary[tuple[int, int], lmdb.Environment] = WeakValueDictionary()


def _after_fork_in_child() -> None:
    """Close the parent's handles, which LMDB forbids to use and which would keep their files from being opened again."""
    global _lock
    _lock = threading.RLock()
    inherited = list(_shared.values())
    _shared.clear()
    for environment in inherited:
        environment.close()


# The lambdas look up the lock of the process that forks, which may be a child itself.
os.register_at_fork(before=lambda: _lock.acquire(), after_in_parent=lambda: _lock.release(), after_in_child=_after_fork_in_child)


@contextmanager
def translated(path: Path, *but: type[lmdb.Error]) -> Iterator[None]:
    """Turn LMDB's errors into fpstore's, except those named, which are left to the caller."""
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


def _translate(path: Path, error: lmdb.Error) -> CorruptStoreError | StorageError:
    if isinstance(error, DAMAGED):
        return CorruptStoreError(f"{path}: LMDB file is damaged ({error})", path=path)
    return StorageError(f"{path}: {_reason(path, error)}", path=path)


def _reason(path: Path, error: lmdb.Error) -> str:
    """LMDB calls a write that a full disk cut short an input/output error."""
    with suppress(OSError):
        disk = os.statvfs(path.parent)
        if "Input/output error" in str(error) and disk.f_bavail * disk.f_frsize < FULL_BYTES:
            return f"{os.strerror(errno.ENOSPC)}: free some space; nothing was changed"
    return str(error).removeprefix(f"{path}: ")


class Reader:
    """A read-only environment that never changes while it is open (a finished generation or a closed store file).

    Parameters
    ----------
    path : Path
    databases : sequence of bytes
        Named databases that may be asked for. LMDB shows a handle only to transactions begun after it was opened, so all are
        opened at once.
    """

    def __init__(self, path: Path, databases: Sequence[bytes] = ()) -> None:
        self.path = path
        self._names = databases
        self._closed = False
        self._pid = 0  # the process that the rest belongs to
        self._inode: tuple[int, int] | None = None
        self._environment: lmdb.Environment | None = None
        self._transaction: lmdb.Transaction | None = None
        self._databases: dict[bytes | None, Any] = {}
        with _lock:
            self._open()

    def _open(self) -> None:
        try:
            status = self.path.stat()
        except OSError as error:
            raise StoreNotFoundError(f"{self.path}: missing ({error.strerror})", path=self.path) from error
        inode = (status.st_dev, status.st_ino)
        if self._inode not in (None, inode):
            raise StorageError(f"{self.path}: was replaced before this process read it: open the store again", path=self.path)
        environment = _shared.get(inode)
        databases: dict[bytes | None, Any] = {None: None}
        with translated(self.path):
            if environment is None:
                if status.st_size < 8192:
                    raise CorruptStoreError(f"{self.path}: LMDB file is cut short ({status.st_size} bytes)", path=self.path)
                environment = lmdb.open(
                    os.fsencode(self.path), subdir=False, readonly=True, lock=False, max_dbs=4, readahead=False
                )
            # Before any page but the first two is read: a page behind the end of the file would end the process.
            used = (int(environment.info()["last_pgno"]) + 1) * int(environment.stat()["psize"])
            if used > status.st_size:
                raise CorruptStoreError(
                    f"{self.path}: LMDB file is cut short ({status.st_size} bytes)",
                    path=self.path, expected=used, got=status.st_size,
                )  # fmt: skip
            for name in self._names:
                with suppress(lmdb.NotFoundError):
                    databases[name] = environment.open_db(name, create=False)
            self._transaction = environment.begin()
        _shared[inode] = self._environment = environment
        self._databases, self._inode, self._pid = databases, inode, os.getpid()

    def _ready(self, database: bytes | None) -> tuple[Any, Any]:
        """Return the transaction and the handle of a database, opened in this process; the caller holds the lock."""
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self._pid != os.getpid():
            self._open()
        if database not in self._databases:
            assert database is not None
            raise CorruptStoreError(f"{self.path}: database {database.decode()} is missing", path=self.path)
        return self._transaction, self._databases[database]

    @property
    def file_bytes(self) -> int:
        """Size of the file on disk."""
        return self.path.stat().st_size

    def get(self, key: bytes, database: bytes | None = None) -> bytes | None:
        """Return the value of a key, or None; CorruptStoreError when there is no such database."""
        with _lock:
            transaction, handle = self._ready(database)
            try:
                value: bytes | None = transaction.get(key, db=handle)
            except lmdb.Error as error:
                raise _translate(self.path, error) from error
            return value

    def get_many(self, keys: Sequence[bytes], database: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """Return (key, value) of those keys that exist, in the order given."""
        with _lock, translated(self.path):
            transaction, handle = self._ready(database)
            return list(transaction.cursor(db=handle).getmulti(keys))

    def items(self, database: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order."""
        last = b""
        while True:
            with _lock, translated(self.path):
                transaction, handle = self._ready(database)
                cursor = transaction.cursor(db=handle)
                # The first key is greater than the empty one; later the one after the last.
                found = cursor.set_range(last) and (cursor.key() > last or cursor.next())
                batch = list(islice(cursor.iternext(), BATCH_ITEMS)) if found else []
            for key, value in batch:
                if key <= last:
                    raise CorruptStoreError(f"{self.path}: keys are out of order", path=self.path, expected=last, got=key)
                yield key, value
                last = key
            if not batch:
                return

    def close(self) -> None:
        """Give the handle back; the file is closed with the last reader of it. Closing twice is allowed."""
        with _lock:
            self._closed = True
            self._databases, self._transaction, self._environment = {}, None, None


class Writer:
    """An environment being written by this process alone; the map grows as needed, and :meth:`finish` makes it durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with translated(path):
            self._environment = lmdb.open(
                os.fsencode(path),
                subdir=False,
                lock=False,
                sync=False,
                metasync=False,
                max_dbs=4,
                map_size=FIRST_MAP_BYTES,
            )
        self._databases: dict[bytes, object] = {}

    def run(self, work: Callable[[lmdb.Transaction], T]) -> T:
        """Run ``work(transaction)`` and commit; when the map is full it is grown and the work is run again."""
        while True:
            try:
                with translated(self.path, lmdb.MapFullError), self._environment.begin(write=True) as transaction:
                    return work(transaction)
            except lmdb.MapFullError:
                self._environment.set_mapsize(self._environment.info()["map_size"] * 2)

    def database(self, name: bytes) -> object:
        """Return the handle of a named database, created when missing."""
        if name not in self._databases:
            with translated(self.path):
                self._databases[name] = self._environment.open_db(name)
        return self._databases[name]

    def finish(self) -> None:
        """Sync and close."""
        with translated(self.path):
            self._environment.sync(True)
        self._environment.close()

    def abort(self) -> None:
        """Close without syncing."""
        self._environment.close()
