"""Waiting for other threads in a way that Ctrl-C can interrupt: Python misses one that comes just before it waits for a lock."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
WAIT_SECONDS = 0.05  # between two checks for signals


def as_ended(jobs: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """Yield jobs in the order in which they end."""
    from concurrent.futures import FIRST_COMPLETED, wait

    left = set(jobs)
    while left:
        done, left = wait(left, WAIT_SECONDS, FIRST_COMPLETED)
        yield from done


def result(job: Future[T]) -> T:
    """Return the result of a job, or raise its exception."""
    from concurrent.futures import wait

    while not job.done():
        wait([job], WAIT_SECONDS)
    return job.result()


def is_held(lock: threading.RLock) -> bool:
    """Whether this thread holds a lock; exact even when an interrupt comes, unlike a variable kept beside the lock."""
    held: bool = lock._is_owned()  # type: ignore[attr-defined]
    return held
