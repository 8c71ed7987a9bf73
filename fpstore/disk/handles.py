"""How many files the process may have open."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_UNLIMITED = 1 << 30
_lock = threading.Lock()
_raised: list[int] = []  # the limits that users have found; the first one is that of before


@contextmanager
def many_files() -> Iterator[None]:
    """Let the process have as many files open as the system allows (``ulimit -Hn``).

    The limit goes back with the last user.
    """
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        _raised.append(soft)
        _let(hard)
    try:
        yield
    finally:
        with _lock:
            found = _raised.pop()
            if not _raised:
                _let(found)


def usual_files() -> int:
    """Return how many files the process may have open, without what :func:`many_files` adds for a time (``ulimit -n``)."""
    with _lock:
        soft = _raised[0] if _raised else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _let(files: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # the system allows fewer
        resource.setrlimit(
            resource.RLIMIT_NOFILE,
            (files if hard == resource.RLIM_INFINITY else min(files, hard), hard),
        )
