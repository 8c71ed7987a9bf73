"""Checks of the arguments that users pass, before any work is done."""

from __future__ import annotations

import errno
import json
import operator
import os
import re
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

from fpstore.errors import InputError, StorageError, one_line, shorten, show

MAX_ID_BYTES = 1 << 16
SYNCS = ("commit", "batch", "none")


def printable(path: str | os.PathLike[str]) -> str:
    r"""Return a path on one line, in characters that any stream can print.

    A byte that is not UTF-8 reads ``\xff``.
    """
    return one_line(os.fspath(path))


def show_json(value: object) -> str:
    """Return a value as JSON has it, for a message.

    A decimal is how JSON's numbers are read exactly.
    """
    return show(json.dumps(value, default=float)).strip("'")


def check_path(value: object, argument: str = "path") -> Path:
    """Return an absolute path.

    InputError if it cannot be one or is a URI, StorageError if the system refuses it.
    """
    name = os.fspath(value) if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(name, str):
        advice = ": decode it with os.fsdecode" if isinstance(name, bytes) else ""
        raise InputError(
            f"{argument} must be a str or a pathlib.Path, got {show(value)}{advice}",
            got=value,
            argument=argument,
        )
    if not name:
        raise InputError(f"{argument} is empty", got=value)
    try:
        Path(name).stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise StorageError(f"{shorten(name)}: {error.strerror}", path=name) from error
        _refuse_uri(value, name)
    except ValueError as error:
        reason = (
            "a NUL character" if "\0" in name else "a character that the file system cannot encode"
        )
        raise InputError(
            f"{argument} {show(name)} cannot be a file name: it holds {reason}", got=value
        ) from error
    return Path(name).absolute()


def is_uri(value: object) -> bool:
    """Whether a str names a file or a folder by its URI, such as one of an object store."""
    return isinstance(value, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value) is not None


def _refuse_uri(value: object, name: str) -> None:
    """Raise InputError for a URI, and for a `Path` that was made of one."""
    if is_uri(value):
        advice = "name a copy on a disk, or plan tasks, which read and write object stores"
        raise InputError(
            f"{printable(name)}: is a URI, and a path is expected: {advice}", path=name
        )
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", name)
    if isinstance(value, Path) and scheme is not None and not os.path.lexists(scheme[0]):
        raise InputError(
            f"{printable(name)}: is a URI in a pathlib.Path, which unites its slashes: give a str",
            path=name,
        )


def is_iterable(value: object, *other_types: type) -> TypeGuard[Iterable[Any]]:
    """Return whether a value can be iterated.

    Bytes, arrays without a dimension and values of ``other_types`` do not count.
    """
    excluded = (bytes, bytearray, memoryview, *other_types)
    return (
        isinstance(value, Iterable)
        and not isinstance(value, excluded)
        and getattr(value, "shape", None) != ()
    )


def check_choice(value: object, choices: Sequence[str], argument: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise InputError(
            f"{argument} must be one of {', '.join(choices)}, got {show(value)}",
            expected=tuple(choices),
            got=value,
            argument=argument,
        )
    return value


def check_sync(value: object) -> str:
    return check_choice(value, SYNCS, "sync")


def check_flag(value: object, argument: str) -> bool:
    """Return a bool; refuse numbers and strings."""
    if not is_flag(value):
        raise InputError(
            f"{argument} must be True or False, got {show(value)}", got=value, argument=argument
        )
    return bool(value)


def check_whole(value: object, least: int, most: int, argument: str) -> int:
    """Return a whole number of Python or numpy from ``least`` to ``most``."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise InputError(
            f"{argument} must be a whole number from {least} to {_power(most)}, got {show(value)}",
            got=value,
            argument=argument,
        )
    return number


def check_number(value: object, least: float, most: float, argument: str) -> float:
    """Return a number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) <= most:
        raise InputError(
            f"{argument} must be a number from {least} to {most}, got {show(value)}",
            got=value,
            argument=argument,
        )
    return float(value)


def check_share(value: object, argument: str) -> float | None:
    """Return the value, which must be a positive, finite number or None."""
    if value is None:
        return None
    try:
        number = float(value) if hasattr(value, "__float__") and not is_flag(value) else 0.0
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise InputError(
            f"{argument} must be a positive number such as 0.1, got {show(value)}",
            got=value,
            argument=argument,
        )
    return number


def check_opening(mode: str, sync: str, merge_at: float | None) -> float | None:
    """Return ``merge_at``; InputError if a store cannot be opened with these."""
    check_choice(mode, ("r", "r+"), "mode")
    check_sync(sync)
    merge_at = check_share(merge_at, "merge_at")
    for name, is_chosen in {"sync": sync != "commit", "merge_at": merge_at is not None}.items():
        if is_chosen and mode == "r":
            raise InputError(
                f"{name} is for changing a store: open it with mode='r+', or leave {name} out",
                argument=name,
            )
    return merge_at


def check_progress(value: object) -> None:
    if value is not None and not callable(value):
        raise InputError(
            f"progress must be a function of (phase, done, total), got {show(value)}",
            got=value,
            argument="progress",
        )


def is_flag(value: object) -> bool:
    """Return whether a value is True or False, of Python or of numpy."""
    # numpy's, without importing it
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def _power(most: int) -> str:
    return {2**63 - 1: "2^63 - 1", 2**64 - 1: "2^64 - 1", 2**64: "2^64"}.get(most, str(most))
