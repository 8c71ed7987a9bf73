"""What threads share: locks that know their thread, and properties that are computed once."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING, Any


def is_held(lock: threading.RLock) -> bool:
    """Whether this thread holds a lock.

    Exact even when an interrupt comes, unlike a variable kept beside the lock.
    """
    is_owner: bool = lock._is_owned()  # type: ignore[attr-defined]
    return is_owner


def wait_for(thread: threading.Thread | None) -> None:
    """Wait for the end of a thread, unless it was never started, or is this one."""
    if thread is not None and thread.is_alive() and thread is not threading.current_thread():
        thread.join()


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801 - it stands for functools.cached_property
        """A property that is computed at its first use, and kept.

        Two threads may compute it at the same time. In Python 3.11, the one of functools holds a
        lock instead, one for all objects, which a fork can leave held in the child.
        """

        def __init__(self, compute):
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value


def clear_after_fork(cached: Any) -> None:
    """Clear a cached function in the child of a fork, and at the end of the process.

    What is registered for forks lives longer than modules, and would keep what is cached.
    """
    os.register_at_fork(after_in_child=cached.cache_clear)
    atexit.register(cached.cache_clear)
