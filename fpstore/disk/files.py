"""Opening the files of a store, and reading and writing them at places: one that cannot be read is an error, not a signal."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fpstore.disk.refusals import refused
from fpstore.errors import CorruptStoreError, StorageError, StoreNotFoundError

RUN_REPAIR = "run fpstore repair"
UNREADABLE = (errno.EIO, getattr(errno, "EUCLEAN", errno.EIO), getattr(errno, "EBADMSG", errno.EIO))
_MISSING = (errno.ENOENT, errno.ENOTDIR)
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)


def open_file(path: Path, flags: int = os.O_RDONLY, folder: int | None = None) -> int:
    """Open a file of a store and return its descriptor; anything else that has its name is damage, and is not waited for.

    Parameters
    ----------
    path : Path
    flags : int
        As of ``os.open``.
    folder : int, optional
        The descriptor of the open folder that the file lies in, whatever the path names now.

    Raises
    ------
    StoreNotFoundError
        There is none.
    CorruptStoreError
        It is a folder, a pipe, a device, or a link that leads nowhere.
    StorageError
        The system refuses the read for another reason.
    """
    try:
        # A pipe that nobody writes to would keep a plain open waiting.
        flags |= os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path if folder is None else path.name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in _MISSING:
            raise missing(path) from error
        if error.errno in _NOT_A_FILE:
            raise not_a_file(path) from error
        raise refused(path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise not_a_file(path)
    return descriptor


def missing(path: Path) -> StoreNotFoundError:
    """Return the error for a file of a store that is not there."""
    return StoreNotFoundError(f"{path}: missing: {RUN_REPAIR}", path=path)


def not_a_file(path: Path) -> CorruptStoreError:
    """Return the error for something else than a file."""
    return CorruptStoreError(f"{path}: not a regular file: {RUN_REPAIR}", path=path)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a file of a store for reading, and yield its descriptor; errors as of :func:`open_file`."""
    descriptor = open_file(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(descriptor: int, path: Path, start: int, count: int) -> bytes:
    """Return ``count`` bytes from ``start`` on; fewer only at the end of the file.

    Raises
    ------
    CorruptStoreError
        The disk cannot read a place of the file.
    StorageError
        The system refuses the read for another reason.
    """
    parts: list[bytes] = []
    while count > 0:
        try:
            part = os.pread(descriptor, count, start)
        except OSError as error:
            raise unreadable(path, start, error) from error
        if len(part) == count and not parts:
            return part
        if not part:
            break
        parts.append(part)
        start, count = start + len(part), count - len(part)
    return b"".join(parts)


def write_all(descriptor: int, data: bytes | memoryview, at: int) -> None:
    """Write all of the data at a place.

    Raises
    ------
    OSError
    """
    view = memoryview(data)
    while len(view):
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def allocate(path: Path, size: int) -> None:
    """Create a file of a size with room on the disk: a mapped hole that finds none would end the process."""
    with path.open("xb") as made:
        os.posix_fallocate(made.fileno(), 0, size)


def read_if_possible(descriptor: int, path: Path, start: int, count: int) -> bytes:
    """Return ``count`` bytes from ``start`` on; fewer at the end of the file, none if the disk cannot read them."""
    try:
        return read_at(descriptor, path, start, count)
    except CorruptStoreError:
        return b""


def disk_bytes(status: os.stat_result) -> int:
    """Return the bytes that a file takes on disk: without its holes, and without what the disk adds to its end."""
    return min(status.st_size, status.st_blocks * 512)


def unreadable(path: Path, start: int, error: OSError) -> CorruptStoreError | StorageError:
    """Return the error for a place that cannot be read."""
    message = f"{path}: cannot be read at byte {start} ({error.strerror})"
    if error.errno in UNREADABLE:
        return CorruptStoreError(f"{message}: {RUN_REPAIR}", path=path, got=start)
    return StorageError(message, path=path, got=start)
