"""Closing files that a merge has removed: a thread waits while the system frees them.

The last close or unmapping of a removed file gives its blocks back, which takes a millisecond for each MB (ext4). A question
that drops a generation would wait for all of its files. So a thread closes a descriptor of each after all else that has the
file open.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial

from fpstore.base.threads import Worker

SLOW_BYTES = 1 << 20  # from this size on, a file is worth a thread
DROPPED_SECONDS = 0.05  # what is dropped together with a descriptor, such as a mapping, is gone by then

_left: set[int] = set()  # descriptors that threads will close


def close_file(descriptor: int) -> None:
    """Close a descriptor; if its file was removed, in a thread, after the mappings that are dropped with it."""
    status = os.fstat(descriptor)
    if status.st_nlink or status.st_size < SLOW_BYTES:
        os.close(descriptor)
        return
    try:
        _left.add(descriptor)
        Worker(partial(_close_later, descriptor)).start()
    except BaseException as error:
        _close(descriptor)
        if not isinstance(error, RuntimeError | MemoryError):  # the system has no more threads, or the interpreter ends
            raise


def _close_later(descriptor: int) -> None:
    time.sleep(DROPPED_SECONDS)
    _close(descriptor)


def _close(descriptor: int) -> None:
    """Close a descriptor; a second call does nothing."""
    with suppress(KeyError):
        _left.remove(descriptor)
        os.close(descriptor)


def _after_fork_in_child() -> None:
    """Close the descriptors that threads of the parent would have closed."""
    while _left:
        os.close(_left.pop())


os.register_at_fork(after_in_child=_after_fork_in_child)
