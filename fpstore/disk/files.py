"""Opening and closing the files and folders of a store, reading and writing at places.

An unreadable place is an error, not a signal.

A store may come from anybody, so no link in it is followed: a link at the name of a file or of a
folder is damage. Only the path of the store itself, which the user gives, may be a link.
"""

from __future__ import annotations

import _thread
import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fpstore.disk.refusals import refusal_error
from fpstore.errors import CorruptStoreError, StorageError, StoreNotFoundError

SLOW_BYTES = 1 << 20  # from this size on, a removed file is worth a thread that closes it
DROPPED_SECONDS = 0.05  # a mapping that is dropped together with a descriptor is gone by then
RUN_REPAIR = "run fpstore repair"
UNREADABLE = (errno.EIO, getattr(errno, "EUCLEAN", errno.EIO), getattr(errno, "EBADMSG", errno.EIO))
_MISSING = (errno.ENOENT, errno.ENOTDIR)
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
_NOT_A_FOLDER = (errno.ELOOP, errno.ENOTDIR)
_TO_OPEN_FILES = getattr(os, "O_PATH", os.O_RDONLY)
MODE = 0o664  # mode of new files, for every writer of a store


def open_file(
    path: Path, flags: int = os.O_RDONLY, folder: int | None = None, *, of_user: bool = False
) -> int:
    """Open a file of a store and return its descriptor.

    A link, a folder, a pipe or a device that has its name is damage, and is not waited for; so is a
    link to its folder, unless the user has named that (``of_user``). The file lies in the open
    ``folder``, if one is given, whatever the path names now.
    """
    above = -1
    try:
        if folder is None and not of_user:
            folder = above = open_folder(path.parent, _TO_OPEN_FILES)
        return open_regular(path, flags, folder)
    except OSError as error:
        if error.errno in _MISSING:
            raise missing_error(path) from error
        raise refusal_error(path, error) from error
    finally:
        if above >= 0:
            os.close(above)


def open_regular(path: Path, flags: int, folder: int | None = None, then: str = RUN_REPAIR) -> int:
    """Open a regular file in an open folder, or in one that the user has named.

    ``then`` says what to do about anything else.
    """
    try:
        # A plain open of a pipe without a writer would wait.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path if folder is None else path.name, flags, MODE, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            raise not_a_file_error(path, then) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise not_a_file_error(path, then)
    return descriptor


def open_folder(path: Path, flags: int = os.O_RDONLY, parent: int | None = None) -> int:
    """Open a folder of a store; ``parent`` is the descriptor of the folder around it.

    A link or a file of that name is damage.
    """
    try:
        flags |= os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path if parent is None else path.name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in _NOT_A_FOLDER:
            raise CorruptStoreError(f"{path}: not a folder: {RUN_REPAIR}", path=path) from error
        raise


def missing_error(path: Path) -> StoreNotFoundError:
    return StoreNotFoundError(f"{path}: missing: {RUN_REPAIR}", path=path)


def not_a_file_error(path: Path, then: str = RUN_REPAIR) -> CorruptStoreError:
    return CorruptStoreError(f"{path}: not a regular file: {then}", path=path)


@contextmanager
def open_descriptor(
    path: Path, flags: int = os.O_RDONLY, folder: int | None = None, *, of_user: bool = False
) -> Iterator[int]:
    descriptor = open_file(path, flags, folder, of_user=of_user)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(descriptor: int, path: Path, start: int, count: int) -> bytes:
    """Return ``count`` bytes from ``start`` on; fewer only at the end of the file.

    A place that cannot be read is damage.
    """
    parts: list[bytes] = []
    while count > 0:
        try:
            part = os.pread(descriptor, count, start)
        except OSError as error:
            message = f"{path}: cannot be read at byte {start} ({error.strerror})"
            if error.errno in UNREADABLE:
                raise CorruptStoreError(f"{message}: {RUN_REPAIR}", path=path, got=start) from error
            raise StorageError(message, path=path, got=start) from error
        if len(part) == count and not parts:
            return part
        if not part:
            break
        parts.append(part)
        start, count = start + len(part), count - len(part)
    return b"".join(parts)


def write_all(descriptor: int, data: bytes | memoryview, at: int) -> None:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def create_anew(path: Path | str, folder: int | None = None) -> int:
    """Remove the file or the link that has a name, create a file, and return its descriptor."""
    with suppress(FileNotFoundError):
        os.unlink(path, dir_fd=folder)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE, dir_fd=folder)


def write_anew(path: Path | str, data: bytes, folder: int | None = None) -> None:
    """Write a durable file as :func:`create_anew` does; the caller makes its name durable."""
    descriptor = create_anew(path, folder)
    try:
        write_all(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_if_possible(descriptor: int, path: Path, start: int, count: int) -> bytes:
    """Return ``count`` bytes from ``start`` on.

    Fewer at the end of the file, none if the disk cannot read them.
    """
    try:
        return read_at(descriptor, path, start, count)
    except CorruptStoreError:
        return b""


def data_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of the first bytes of a file that are not holes."""
    end = 0
    while end < size:
        try:
            start = min(os.lseek(descriptor, end, os.SEEK_DATA), size)
        except OSError as error:
            if error.errno != errno.ENXIO:  # the file system does not know its holes
                yield end, size
            return  # otherwise only a hole is left
        # a log may go on behind the copied part
        end = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        yield start, end


def disk_bytes(status: os.stat_result) -> int:
    """Return the bytes that a file takes on disk, without its holes and the disk's padding."""
    return min(status.st_size, status.st_blocks * 512)


# Closing

_closing: set[int] = set()  # descriptors that threads will close


def close_file(descriptor: int) -> None:
    """Close a descriptor. A thread does so if the file is large and a merge has removed it.

    The last close or unmapping of a removed file gives its blocks back, which takes a millisecond
    for each MB (ext4). A question that drops a generation would wait for all of its files. So a
    thread closes a descriptor of each, after all else that has the file open.
    """
    status = os.fstat(descriptor)
    if status.st_nlink or status.st_size < SLOW_BYTES:
        os.close(descriptor)
        return
    try:
        _closing.add(descriptor)
        # not threading.Thread: a finalizer must not wait for a lock that its own thread may hold
        _thread.start_new_thread(_close_later, (descriptor,))
    except BaseException as error:
        _close(descriptor)
        # the system has no more threads, or the interpreter ends
        if not isinstance(error, RuntimeError | MemoryError):
            raise


def _close_later(descriptor: int) -> None:
    time.sleep(DROPPED_SECONDS)
    _close(descriptor)


def _close(descriptor: int) -> None:
    """Close a descriptor that is left; whoever comes second does nothing."""
    with suppress(KeyError):
        _closing.remove(descriptor)
        os.close(descriptor)


def _after_fork_in_child() -> None:
    """Close what threads of the parent would have closed."""
    while _closing:
        os.close(_closing.pop())


os.register_at_fork(after_in_child=_after_fork_in_child)
