"""The journal of a generation: one LMDB environment that a writer appends to while any number of processes read.

It holds the log of changes since the generation was made (docs/format.md, "Journal"). LMDB's traps are dealt with here: one open
environment per process and file, fork, a table of readers of which some died, and a map of fixed size.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

import lmdb

from fpstore.disk import lmdb_pages as pages
from fpstore.disk import sealed as environment
from fpstore.disk.locks import LOCK_FILE, keep_writers_away
from fpstore.disk.refusals import refused
from fpstore.disk.sealed import translated
from fpstore.errors import ClosedStoreError, CorruptStoreError, FpstoreError, StorageError, StoreNotFoundError

META = b"meta"
LOG = b"log"
STATE_KEY = b"state"
MOVED_KEY = b"moved"
MAX_READERS = 1022  # 64 bytes each in the lock file
LOCK_BYTES = 1 << 16
PAGE = 4096
SPARE_BYTES = 1 << 20  # of the map, kept for the last transaction
LEAST_MAP_BYTES = 4 << 20
DEFAULT_MAP_BYTES = 64 << 30  # address space, not disk
CHECK_ATTEMPTS = 100  # a busy writer may commit while pages are looked at
MOST_NUMBER = 2**64 - 2  # no record has a higher one
PAUSE_SECONDS = 0.002

# Held while a transaction writes; taken before a fork, as the lock of readers is.
write_lock = threading.RLock()
_open: WeakValueDictionary[tuple[int, int], _Environment] = WeakValueDictionary()


class Change(NamedTuple):
    """What a journal holds after those records that were seen before."""

    transaction: int
    state: bytes | None
    moved: bytes | None
    records: list[bytes]


class _Environment:
    """The one LMDB handle of this process for a file; it is exchanged when a writer comes to a file that is only read."""

    def __init__(self, path: Path, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self.excludes = -1  # the descriptor of the lock that keeps writers away, for a reader without a place in the table
        self.failed = False  # LMDB lets nobody use a handle again that could not write a last page
        self.copies: list[Path] = []  # being written, without the lock of all reading
        self.handle = self._opened()

    def _opened(self) -> lmdb.Environment:
        lock = True
        if not _can_register(self.path, self.writable) and not self.writable:
            self.excludes = keep_writers_away(self.path.parent.parent)
            lock = False
        pages.check(self.path)
        with translated(self.path):
            handle = lmdb.open(
                os.fsencode(self.path), subdir=False, readonly=not self.writable, lock=lock, max_dbs=4, map_size=0,
                readahead=False, create=False, max_readers=MAX_READERS,
            )  # fmt: skip
            try:
                for _ in range(CHECK_ATTEMPTS):
                    with handle.begin() as transaction:
                        if pages.check(self.path, transaction.id()):  # LMDB itself would end the process at a damaged page
                            break
                self.meta, self.log = (handle.open_db(name, create=False) for name in (META, LOG))
            except BaseException:
                handle.close()
                raise
            return handle

    def make_writable(self) -> None:
        if not self.writable:
            self.writable = True
            try:
                self.open_again()
            except BaseException:
                self.writable = False  # the readers of this process go on
                raise

    def open_again(self) -> None:
        self.failed = True
        while self.copies:
            time.sleep(PAUSE_SECONDS)
        self.close()
        self.handle = self._opened()
        self.failed = False

    def close(self) -> None:
        self.handle.close()
        if self.excludes >= 0:
            os.close(self.excludes)
            self.excludes = -1

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self.close()


def make_lock_file(path: Path) -> None:
    """Let the lock file of a journal have its space: LMDB maps it, and a page that a full disk has no room for ends a process.

    Raises
    ------
    OSError
    """
    descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
    try:
        if os.fstat(descriptor).st_size < LOCK_BYTES:
            os.posix_fallocate(descriptor, 0, LOCK_BYTES)
    finally:
        os.close(descriptor)


def _can_register(path: Path, needed: bool) -> bool:
    """Whether this process may write to LMDB's lock file, where readers have their places.

    Raises
    ------
    StorageError
        There is no space for it, and this process needs it.
    """
    try:
        make_lock_file(path)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            return False
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and not needed:
            with suppress(OSError):  # else there is no lock to keep writers away with
                (path.parent.parent / LOCK_FILE).touch()
                return False
        raise refused(path, error) from error
    return True


def lock_path(path: Path) -> Path:
    """Return the path of the lock file that LMDB keeps beside an environment."""
    return path.with_name(path.name + "-lock")


# --- fork ------------------------------------------------------------------------------------------


def _before_fork() -> None:
    write_lock.acquire()


def _after_fork_in_parent() -> None:
    write_lock.release()


def _after_fork_in_child() -> None:
    """LMDB forbids the use of the parent's handles; so the child opens its own."""
    global write_lock
    write_lock = threading.RLock()
    inherited = list(_open.values())
    _open.clear()
    for shared in inherited:
        shared.close()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


# --- The journal -----------------------------------------------------------------------------------


class Journal:
    """The journal of one generation, open for reading, or for appending by the process that holds the writer's lock.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, StorageError
    """

    def __init__(self, path: Path, writable: bool = False) -> None:
        self.path = path
        self._writable = writable
        self._closed = False
        self._shared: _Environment | None = None
        self._pid = 0
        with environment.lock():
            self._attach()

    def _attach(self) -> None:
        try:
            self._attach_file()
        except OSError as error:
            if isinstance(error, FpstoreError) and self.path.exists():
                raise
            if self.path.exists():
                raise refused(self.path, error) from error
            # A merge may remove it at any moment.
            raise StoreNotFoundError(f"{self.path}: missing ({error.strerror or error})", path=self.path) from error

    def _attach_file(self) -> None:
        status = self.path.stat()
        if status.st_size < 2 * PAGE:
            raise CorruptStoreError(f"{self.path}: the journal is cut short ({status.st_size} bytes)", path=self.path)
        inode = (status.st_dev, status.st_ino)
        shared = _open.get(inode)
        if shared is None:
            shared = _Environment(self.path, self._writable)
        elif self._writable:
            shared.make_writable()
        if shared.failed:
            shared.open_again()
        used = (int(shared.handle.info()["last_pgno"]) + 1) * PAGE
        if (size := self.path.stat().st_size) < used:
            shared.close()
            raise CorruptStoreError(
                f"{self.path}: the journal is cut short ({size} bytes, expected {used})", path=self.path, expected=used, got=size
            )
        _open[inode] = shared
        self._shared, self._pid = shared, os.getpid()

    def _here(self) -> _Environment:
        """Return the environment of this process; the caller holds the lock."""
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self._pid != os.getpid():
            self._writable = False
            self._attach()
        assert self._shared is not None
        if self._shared.failed:
            self._shared.open_again()
        return self._shared

    def transaction(self) -> int:
        """Return the number of the last transaction: it grows with every commit of any process."""
        with environment.lock():
            transaction = self._here().handle.begin()
            number: int = transaction.id()
            transaction.abort()
            return number

    @contextmanager
    def pinned(self) -> Iterator[int]:
        """Keep the pages of the last transaction from being used again meanwhile, and give its number."""
        with environment.lock(), translated(self.path):
            transaction = self._here().handle.begin()
        try:
            yield transaction.id()
        finally:
            with environment.lock():
                transaction.abort()

    def read(self, after: int) -> Change:
        """Return the state record and all log records with a number above ``after``, of one moment."""
        with environment.lock(), translated(self.path):
            here = self._here()
            with here.handle.begin() as transaction:
                records = []
                cursor = transaction.cursor(db=here.log)
                if cursor.set_range((after + 1).to_bytes(8, "big")):
                    records = list(cursor.iternext(keys=False, values=True))
                state, moved = (transaction.get(key, db=here.meta) for key in (STATE_KEY, MOVED_KEY))
                return Change(transaction.id(), state, moved, records)

    def append(self, number: int, record: bytes) -> None:
        """Add a log record; it is durable when this returns.

        Raises
        ------
        StorageError
            No space on the disk, or in the map: nothing was changed.
        """
        self.append_many([(number, record)])

    def append_many(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Add log records in one transaction.

        Raises
        ------
        StorageError
            No space on the disk, or in the map: nothing was changed.
        """
        with write_lock:
            self.check_room(sum(len(record) for _, record in records))
            with environment.lock():
                here = self._here()
            items = [(number.to_bytes(8, "big"), record) for number, record in records]

            def work(transaction: lmdb.Transaction) -> None:
                if transaction.get(MOVED_KEY, db=here.meta) is not None:
                    raise StorageError(f"{self.path}: is no longer the current journal: open the store again", path=self.path)
                _, added = transaction.cursor(here.log).putmulti(items, append=True)
                if added != len(items):  # LMDB passes over a key that is there
                    raise CorruptStoreError(f"{self.path}: it has a log record {items[added][0].hex()} already", path=self.path)

            self._write(here, work, lambda t: not items or t.get(items[-1][0], db=self._here().log) == items[-1][1])

    def check_room(self, record_bytes: int) -> int:
        """Refuse records for which the map has no room; return how many bytes it has room for.

        Raises
        ------
        StorageError
        """
        with environment.lock():
            info = self._here().handle.info()
        room = int(info["map_size"]) - SPARE_BYTES - (int(info["last_pgno"]) + 2) * PAGE
        if record_bytes > room:
            raise StorageError(
                f"{self.path}: the delta is full ({info['map_size']} bytes of map): merge it; nothing was changed", path=self.path
            )
        return room

    def move(self, record: bytes) -> None:
        """Say that another generation is current: the last transaction of a journal."""
        with write_lock:
            with environment.lock():
                here = self._here()
            self._write(
                here,
                lambda t: t.put(MOVED_KEY, record, db=here.meta),
                lambda t: t.get(MOVED_KEY, db=self._here().meta) == record,
            )

    def _write(
        self, here: _Environment, work: Callable[[lmdb.Transaction], object], is_done: Callable[[lmdb.Transaction], bool]
    ) -> None:
        with translated(self.path, lmdb.MapFullError):
            try:
                with here.handle.begin(write=True) as transaction:
                    work(transaction)
            except lmdb.MapFullError as error:
                raise StorageError(f"{self.path}: the delta is full: merge it; nothing was changed", path=self.path) from error
            except lmdb.Error:
                here.failed = True
                if not self._went_through(is_done):
                    raise

    def _went_through(self, is_done: Callable[[lmdb.Transaction], bool]) -> bool:
        """Whether a transaction that ended with an error is in the file all the same, and make it durable if it is."""
        try:
            with environment.lock():
                handle = self._here().handle
                with handle.begin() as transaction:
                    done = is_done(transaction)
                if done:
                    handle.sync(True)
                return done
        except (lmdb.Error, FpstoreError):
            return False

    def recover(self) -> None:
        """Let a transaction be seen that a writer committed and died before it could tell.

        LMDB does so when the next one writes, to which that transaction must be known then: it has taken a number.
        """
        with write_lock:
            with environment.lock():
                here = self._here()
            with translated(self.path), here.handle.begin(write=True) as transaction:
                transaction.abort()

    def register(self) -> None:
        """Take a place in the table of readers where there was no room for the table, so that a writer may come.

        Raises
        ------
        StorageError
            There still is none.
        """
        with environment.lock():
            here = self._here()
            if here.excludes >= 0 and _can_register(self.path, needed=True):
                here.open_again()

    def remove_dead_readers(self) -> int:
        """Free the places of readers that died, which would keep pages from being used again; return how many."""
        with environment.lock(), translated(self.path):
            return int(self._here().handle.reader_check())

    def readers(self) -> str:
        """Return LMDB's table of readers."""
        with environment.lock(), translated(self.path):
            return str(self._here().handle.readers())

    def copy(self, target: Path) -> None:
        """Write a consistent, compact, durable copy of the journal as it is now; writers go on."""
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o664)
        try:
            with environment.lock():
                here = self._here()
                here.copies.append(target)
            try:
                with translated(self.path):
                    here.handle.copyfd(descriptor, compact=True)
            finally:
                here.copies.remove(target)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @property
    def file_bytes(self) -> int:
        """Bytes that the file takes on disk; none where a merge or another store has taken its place."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return 0
        return min(status.st_size, status.st_blocks * 512)

    def close(self) -> None:
        """Give the handle back; the file is closed with the last journal of it in this process."""
        with environment.lock():
            self._closed = True
            self._shared = None


def create_journal(
    path: Path, state: bytes, records: Sequence[tuple[int, bytes]] = (), map_bytes: int = DEFAULT_MAP_BYTES
) -> None:
    """Write a durable journal; the caller makes its name durable."""
    with translated(path):
        handle = lmdb.open(
            os.fsencode(path),
            subdir=False,
            lock=False,
            max_dbs=4,
            map_size=max(map_bytes, LEAST_MAP_BYTES) + SPARE_BYTES,
            sync=False,
        )
        try:
            meta, log = handle.open_db(META), handle.open_db(LOG)
            with handle.begin(write=True) as transaction:
                transaction.put(STATE_KEY, state, db=meta)
                for number, record in records:
                    transaction.put(number.to_bytes(8, "big"), record, db=log, append=True)
            handle.sync(True)
        finally:
            handle.close()
