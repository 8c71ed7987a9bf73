"""System errors as FpstoreErrors that say what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

from fpstore.errors import FpstoreError, StorageError

TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
FULL = (errno.ENOSPC, errno.EDQUOT)
NOTHING_CHANGED = "; nothing was changed"  # a consequence, for `then`


def is_system_error(error: BaseException) -> TypeGuard[OSError]:
    """Whether the system has raised an error, and not fpstore."""
    return isinstance(error, OSError) and not isinstance(error, FpstoreError)


def refusal_error(place: object, error: OSError, then: str = "") -> StorageError:
    """Return an error of the system as a StorageError that says what to do.

    ``then`` states the consequence.
    """
    reason = error.strerror or str(error)
    if error.errno in TOO_MANY_FILES:
        reason += ": close other stores and files, or raise the limit (ulimit -n)"
    elif error.errno in FULL:
        reason += ": free some space"
    return StorageError(f"{place}: {reason}{then}", path=place, errno=error.errno)


@contextmanager
def translate_refusals(place: object, then: str = "") -> Iterator[None]:
    """Turn what the system refuses inside into StorageError; see :func:`refusal_error`."""
    try:
        yield
    except OSError as error:
        if is_system_error(error):
            raise refusal_error(place, error, then) from error
        raise


def with_path(error: FpstoreError, shown: Path, path: Path) -> FpstoreError:
    """Return an error that names a path instead of another one that leads to the same place."""
    old, new = str(shown), str(path)
    if old not in str(error):
        return error
    facts = {
        name: Path(str(fact).replace(old, new)) if name == "path" else fact
        for name, fact in vars(error).items()
    }
    return type(error)(str(error).replace(old, new), **facts)
