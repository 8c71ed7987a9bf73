"""Reading files with ``pread`` instead of a mapping: a place that cannot be read is an error that names it, not a signal."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fpstore.errors import CorruptStoreError, StorageError

UNREADABLE = (errno.EIO, getattr(errno, "EUCLEAN", errno.EIO), getattr(errno, "EBADMSG", errno.EIO))


def read_at(descriptor: int, path: Path, start: int, count: int) -> bytes:
    """Return ``count`` bytes from ``start`` on; fewer only at the end of the file.

    Raises
    ------
    CorruptStoreError
        The disk cannot read a place of the file.
    StorageError
        The system refuses the read for another reason.
    """
    parts = []
    while count > 0:
        try:
            part = os.pread(descriptor, count, start)
        except OSError as error:
            raise unreadable(path, start, error) from error
        if not part:
            break
        parts.append(part)
        start, count = start + len(part), count - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_if_possible(descriptor: int, path: Path, start: int, count: int) -> bytes:
    """Return ``count`` bytes from ``start`` on; fewer at the end of the file, none if the disk cannot read them."""
    try:
        return read_at(descriptor, path, start, count)
    except CorruptStoreError:
        return b""


def unreadable(path: Path, start: int, error: OSError) -> CorruptStoreError | StorageError:
    """Return the error for a place that cannot be read."""
    message = f"{path}: cannot be read at byte {start} ({error.strerror})"
    if error.errno in UNREADABLE:
        return CorruptStoreError(f"{message}: run fpstore repair", path=path, got=start)
    return StorageError(message, path=path, got=start)
