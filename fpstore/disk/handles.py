"""How many files the process may have open."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_UNLIMITED = 1 << 30
_lock = threading.Lock()
_soft_limits: list[int] = []  # that users of many_files replaced; the first is the usual one


@contextmanager
def many_files() -> Iterator[None]:
    """Let the process have as many files open as the system allows (``ulimit -Hn``).

    The limit goes back with the last user.
    """
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        _soft_limits.append(soft)
        _set_limit(hard)
    try:
        yield
    finally:
        with _lock:
            soft_limit = _soft_limits.pop()
            if not _soft_limits:
                _set_limit(soft_limit)


def open_file_limit() -> int:
    """Return how many files may be open (``ulimit -n``) outside of :func:`many_files`."""
    with _lock:
        soft = _soft_limits[0] if _soft_limits else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _set_limit(files: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # the system allows fewer
        resource.setrlimit(
            resource.RLIMIT_NOFILE,
            (files if hard == resource.RLIM_INFINITY else min(files, hard), hard),
        )
