"""Replacing a store by a new one, keeping the old one beside it, and keeping writers away meanwhile."""

from __future__ import annotations

import fcntl
import itertools
import os
from pathlib import Path

from fpstore.disk.folders import exchange, sync_folder
from fpstore.disk.locks import LOCK_FILE, WriterLock
from fpstore.disk.refusals import refused
from fpstore.errors import StoreLockedError


def free_name(path: Path, ending: str, suffix: str = "") -> Path:
    """Return the first name beside a path that is free: without a number, or numbered from 2 on."""
    for number in itertools.count(1):
        free = path.with_name(f"{path.name}{ending}{'' if number == 1 else f'-{number}'}{suffix}")
        if not (free.exists() or free.is_symlink()):
            return free
    raise AssertionError


def take_lock(path: Path) -> WriterLock:
    """Become a store's single writer.

    Raises
    ------
    StoreLockedError, StorageError
    """
    try:
        return WriterLock(path)
    except OSError as error:
        raise refused(path, error, "; nothing was changed") from error


def keep_still(path: Path) -> int | None:
    """Keep writers away without changing a byte; return the descriptor of the lock, or None if there is no lock file.

    Raises
    ------
    StoreLockedError
        The store has a writer.
    StorageError
    """
    if not (path / LOCK_FILE).exists():
        return None
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise refused(path / LOCK_FILE, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreLockedError(
            f"{path}: process {holder} has it open for writing: close it there first", path=path, got=holder
        ) from None
    return descriptor


def swap(new: Path, old: Path) -> Path:
    """Replace a store by another one; return the path where the old one is kept."""
    aside = free_name(old, ".damaged")
    exchange(new, old)
    new.rename(aside)
    sync_folder(old.parent)
    return aside
