"""Locks of folders: a store's single writer, and a job that one process does at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet, finalize

from fpstore.disk.files import open_regular
from fpstore.disk.folders import try_lock
from fpstore.errors import StoreLockedError

LOCK_FILE = "writer.lock"
THIS_PROCESS = "this process"


class FolderLock:
    """A lock on a file in a folder, which is made if it is not there.

    The system releases the lock when the process dies.

    ``refused`` makes the error from the folder and the number of the process that has the lock. If
    something else has the name of the file, that is damage. It is not replaced: another process
    could have replaced it meanwhile.
    """

    def __init__(
        self, folder: Path, name: str, refused: Callable[[Path, str], StoreLockedError]
    ) -> None:
        self.path = folder / name
        self.owner = os.getpid()
        self._descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT, then="remove it")
        # Until the caller can release the lock, an interrupt may drop this object.
        self._closing = finalize(self, os.close, self._descriptor)
        self._closing.atexit = False
        if not try_lock(self._descriptor, self.path):
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            self._closing()
            raise refused(folder, holder)
        _locks.add(self)
        with suppress(OSError):  # on a full disk the lock holds, but without the process number
            # the other name of a hard link keeps its content
            if os.fstat(self._descriptor).st_nlink == 1:
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{self.owner}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock. Releasing it twice is allowed."""
        # a child between fork and exec may hold the descriptor too
        if self._closing.alive and self.owner == os.getpid():
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._closing()


class WriterLock(FolderLock):
    """The right to change a store.

    StoreLockedError, which names the process, if another writer has it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, LOCK_FILE, _locked_error)


def process_name(number: str) -> str:
    """Return how a message names a process; without a number, its lock does not have one yet."""
    return (
        THIS_PROCESS
        if number == str(os.getpid())
        else f"process {number}"
        if number
        else "another process"
    )


def _locked_error(folder: Path, holder: str) -> StoreLockedError:
    name = process_name(holder)
    then = "insert, delete and merge in that process, or wait until it has closed the store"
    if name == THIS_PROCESS:
        then = "use the store that is open, or close it first"
    message = f"{folder}: {name} has it open for writing, and there is one writer at a time: {then}"
    return StoreLockedError(message, path=folder, got=holder)


_locks: WeakSet[FolderLock] = WeakSet()


def _after_fork_in_child() -> None:
    """Leave the locks to the parent."""
    for lock in list(_locks):
        lock.release()


os.register_at_fork(after_in_child=_after_fork_in_child)
