"""LMDB environments, opened once per process and path: the only file that imports lmdb.

LMDB allows one open handle per process and file, forbids the use of a handle after ``fork``, and needs a map size fixed in
advance. Here handles are shared and counted, a forked child opens its own, and a writer that has the file to itself grows the map
when it is full.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import lmdb

from fpstore.errors import CorruptStoreError, StorageError, StoreNotFoundError

T = TypeVar("T")

FIRST_MAP_BYTES = 1 << 24
_lock = threading.Lock()
_shared: dict[tuple[int, int, int], tuple[lmdb.Environment, int]] = {}


@contextmanager
def translated(path: Path, *but: type[lmdb.Error]) -> Iterator[None]:
    """Turn LMDB's errors into fpstore's, except those named, which are left to the caller."""
    try:
        yield
    except but:
        raise
    except (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.VersionMismatchError) as error:
        raise CorruptStoreError(f"{path}: LMDB file is damaged ({error})", path=path) from error
    except (lmdb.BadTxnError, lmdb.PanicError, lmdb.BadDbiError, lmdb.BadValsizeError) as error:
        raise CorruptStoreError(f"{path}: LMDB file cannot be read ({error})", path=path) from error
    except lmdb.Error as error:
        raise StorageError(f"{path}: {error}", path=path) from error


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
        self._environment: lmdb.Environment | None = None
        self._key: tuple[int, int, int] | None = None
        self._local = threading.local()
        self._databases: dict[bytes, object] = {}
        self._open()

    def _open(self) -> None:
        try:
            status = self.path.stat()
        except OSError as error:
            raise StoreNotFoundError(f"{self.path}: missing ({error.strerror})", path=self.path) from error
        if status.st_size < 8192:
            raise CorruptStoreError(f"{self.path}: LMDB file is cut short ({status.st_size} bytes)", path=self.path)
        key = (os.getpid(), status.st_dev, status.st_ino)
        with _lock, translated(self.path):
            environment, users = _shared.get(key, (None, 0))
            if environment is None:
                environment = lmdb.open(
                    str(self.path), subdir=False, readonly=True, lock=False, max_dbs=4, readahead=False, max_spare_txns=8
                )
            _shared[key] = (environment, users + 1)
        self._environment, self._key = environment, key
        self._local = threading.local()
        self._databases = {}
        for name in self._names:
            with suppress(lmdb.NotFoundError), translated(self.path, lmdb.NotFoundError):
                self._databases[name] = environment.open_db(name, create=False)
        if self._used_bytes() > status.st_size:
            self.close()
            raise CorruptStoreError(
                f"{self.path}: LMDB file is cut short ({status.st_size} bytes)", path=self.path, got=status.st_size
            )

    def _used_bytes(self) -> int:
        assert self._environment is not None
        with translated(self.path):
            return (int(self._environment.info()["last_pgno"]) + 1) * int(self._environment.stat()["psize"])

    @property
    def file_bytes(self) -> int:
        """Size of the file on disk."""
        return self.path.stat().st_size

    def transaction(self) -> lmdb.Transaction:
        """Return this thread's read transaction; the file is immutable, so one snapshot serves for ever."""
        if self._key is None or self._key[0] != os.getpid():
            self._open()
        transaction = getattr(self._local, "transaction", None)
        if transaction is None:
            assert self._environment is not None
            with translated(self.path):
                transaction = self._environment.begin(buffers=False)
            self._local.transaction = transaction
        return transaction

    def database(self, name: bytes) -> object:
        """Return the handle of a named database; CorruptStoreError when there is none."""
        self.transaction()
        if name not in self._databases:
            raise CorruptStoreError(f"{self.path}: database {name.decode()} is missing", path=self.path)
        return self._databases[name]

    def get(self, key: bytes, database: object = None) -> bytes | None:
        """Return the value of a key, or None."""
        with translated(self.path):
            return self.transaction().get(key, db=database)

    def items(self, database: object = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order."""
        with translated(self.path):
            yield from self.transaction().cursor(db=database)

    def close(self) -> None:
        """Give the handle back; the last user of the file closes it. A handle from before a fork is left to the parent."""
        key, self._key, self._environment = self._key, None, None
        self._local = threading.local()
        if key is None or key[0] != os.getpid():
            return
        with _lock:
            environment, users = _shared[key]
            if users > 1:
                _shared[key] = (environment, users - 1)
            else:
                del _shared[key]
                environment.close()


class Writer:
    """An environment being written by this process alone; the map grows as needed, and :meth:`finish` makes it durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with translated(path):
            self._environment = lmdb.open(
                str(path), subdir=False, lock=False, sync=False, metasync=False, max_dbs=4, map_size=FIRST_MAP_BYTES
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
