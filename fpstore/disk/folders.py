"""Folders: making them durable, removing them, and exchanging two in one step."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

import xxhash

from fpstore.disk.refusals import NOTHING_CHANGED, translate_refusals

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
ASIDE = "-old"
MAX_NAME_BYTES = 255
UNFINISHED = ".unfinished-"  # begins the names of folders with files that have not appeared
_TEMPORARY_BYTES = len("..12345678.tmp")  # around a name


def shorten_name(name: str, room: int) -> str:
    """Return a name that leaves room for some more bytes.

    A longer name becomes its beginning and a hash of all of it.
    """
    if len(os.fsencode(name)) + room <= MAX_NAME_BYTES:
        return name
    ending = f"~{xxhash.xxh64_hexdigest(os.fsencode(name))}"
    while len(os.fsencode(name)) + len(ending) + room > MAX_NAME_BYTES:
        name = name[:-1]
    return name + ending


def remove_tree(folder: Path) -> None:
    """Remove a folder and its contents, or a file or link of that name, as far as possible."""
    import shutil  # imports all the archive modules

    if folder.is_dir() and not folder.is_symlink():
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except OSError as error:
            # After an interrupt, rmtree may close a descriptor twice, and that error hides it.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise
    else:
        with suppress(OSError):
            folder.unlink()


def try_lock(descriptor: int, path: Path) -> bool:
    """Lock an open file or folder.

    False if another process has the lock, or has removed what has this path.
    """
    with suppress(FileNotFoundError, BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


@contextmanager
def temporary_folder(parent: Path, beginning: str, ending: str = "") -> Iterator[Path]:
    """Yield a new folder, and remove it at the end if it is still there.

    It is locked, so that `remove_abandoned` leaves it alone.
    """
    path, descriptor = _random_path(parent, beginning, ending), -1
    try:
        path.mkdir()
        while (descriptor := _lock_new(path)) < 0:
            path = _random_path(parent, beginning, ending)
            path.mkdir()
        yield path
    finally:
        try:
            remove_tree(path)
        except BaseException:  # an interrupt has met the removal
            remove_tree(path)
            raise
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _random_path(parent: Path, beginning: str, ending: str) -> Path:
    return parent / f"{beginning}{os.urandom(4).hex()}{ending}"


def _lock_new(path: Path) -> int:
    """Return a descriptor that holds the lock of a new folder.

    -1 if another process has removed the folder as abandoned.
    """
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        is_locked = True
        with suppress(OSError):  # a file system without locks: no process removes abandoned files
            is_locked = try_lock(descriptor, path)
        if is_locked:
            return descriptor
        os.close(descriptor)
    return -1


@contextmanager
def new_folder(path: Path, complete: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to ``path`` at the end of the block.

    It replaces a folder of that name, or the target of a link.

    ``complete`` is called with the temporary name of a complete folder, before it is renamed.
    """
    path = path.resolve()
    beginning = f".{shorten_name(path.name, _TEMPORARY_BYTES)}."
    remove_abandoned(path.parent, f"{escape(beginning)}{'[0-9a-f]' * 8}.tmp")
    with temporary_folder(path.parent, beginning, ".tmp") as temporary:
        yield temporary
        sync_folder(temporary)
        if complete is not None:
            complete(temporary)
        if path.is_dir() and any(path.iterdir()):
            exchange(temporary, path)  # the old one is removed at the end
        else:
            temporary.replace(path)
    sync_folder(path.parent)


def replace_path(new: Path, path: Path) -> None:
    """Give a complete file or folder its name, in place of an older one, which is removed.

    The target of a link is replaced, and not the link.
    """
    path = path.resolve()
    if new.is_dir() and path.is_dir() and any(path.iterdir()):
        exchange(new, path)
        remove_tree(new)
    else:
        new.replace(path)
    sync_folder(path.parent)


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove the temporary files and folders of a pattern that no process holds.

    Their processes were killed.
    """
    for path in folder.glob(pattern):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if try_lock(descriptor, path):
                    remove_tree(path)
            finally:
                os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(new: Path, old: Path) -> None:
    """Swap two folders in one step; afterwards ``new`` names the old one.

    If the file system cannot do that, use renames, and undo them if one is refused; the old folder
    may then stay aside.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "renameat2"):
            result = libc.renameat2(
                _AT_FDCWD,
                os.fsencode(new),
                _AT_FDCWD,
                os.fsencode(old),
                ctypes.c_uint(_RENAME_EXCHANGE),
            )
            if result == 0:
                return
            if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(old))
    aside = new.with_name(new.name + ASIDE)
    old.rename(aside)
    try:
        new.rename(old)
    except OSError:
        aside.rename(old)
        raise
    with suppress(OSError):  # the new one is in place, and the next build removes the other
        aside.rename(new)


def put_back(path: Path, beginning: str, is_store: Callable[[Path], bool]) -> None:
    """Put a store back that a killed process has set aside, where folders cannot be exchanged.

    ``beginning`` is that of the names of folders that were set aside.
    """
    if os.path.lexists(path):
        return
    for aside in path.parent.glob(f"{escape(beginning)}*{ASIDE}"):
        if is_store(aside):
            with translate_refusals(path, NOTHING_CHANGED):
                aside.rename(path)
            return
