"""Locks of folders: a store's single writer, and a job that one process does at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet, finalize

from fpstore.disk.files import open_regular
from fpstore.errors import StoreLockedError

LOCK_FILE = "writer.lock"
THIS = "this process"


class FolderLock:
    """A lock on a file in a folder, that the system releases when the process dies.

    Parameters
    ----------
    folder : Path
    name : str
        Of the file, which is made if it is not there.
    refused : callable
        Called with the folder and the number of the process that has the lock; returns the error to raise.

    Raises
    ------
    CorruptStoreError
        Something else has the name of the file. It is not replaced: another process could have replaced it meanwhile.
    OSError
    """

    def __init__(self, folder: Path, name: str, refused: Callable[[Path, str], StoreLockedError]) -> None:
        self.path = folder / name
        self.owner = os.getpid()
        self._descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT, then="remove it")
        # Until somebody has the lock who can release it, an interrupt may drop it.
        self._given_back = finalize(self, os.close, self._descriptor)
        self._given_back.atexit = False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(self.path, self._descriptor):  # its last owner has removed it
                self._given_back()
                raise refused(folder, "")
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            self._given_back()
            raise refused(folder, holder) from None
        _held.add(self)
        with suppress(OSError):  # on a full disk the lock holds, but without the process number
            if os.fstat(self._descriptor).st_nlink == 1:  # of a hard link, the file elsewhere is left as it is
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{self.owner}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock. Releasing it twice is allowed."""
        if self._given_back.alive and self.owner == os.getpid():  # a child between fork and exec may hold the descriptor too
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._given_back()


class WriterLock(FolderLock):
    """The right to change a store: a lock on ``writer.lock``.

    Raises
    ------
    StoreLockedError
        Another writer has it; the message names the process.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, LOCK_FILE, _refused)


def process_name(number: str) -> str:
    """Return how a message names the process with a number, which is not known before it has noted it."""
    return THIS if number == str(os.getpid()) else f"process {number}" if number else "another process"


def _refused(folder: Path, holder: str) -> StoreLockedError:
    name = process_name(holder)
    then = "insert, delete and merge in that process, or wait until it has closed the store"
    if name == THIS:
        then = "use the store that is open, or close it first"
    told = f"{folder}: {name} has it open for writing, and there is one writer at a time: {then}"
    return StoreLockedError(told, path=folder, got=holder)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file is that which has this path now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


_held: WeakSet[FolderLock] = WeakSet()


def _after_fork_in_child() -> None:
    """Leave the locks to the parent."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_after_fork_in_child)
