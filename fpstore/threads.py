"""Threads and interrupts. Waiting for other threads so that a Ctrl-C acts: Python does not notice one that comes just before a lock is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
WAIT_SECONDS = 0.05  # between two looks for signals


def as_ended(jobs: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """Yield jobs as they end."""
    from concurrent.futures import FIRST_COMPLETED, wait

    left = set(jobs)
    while left:
        done, left = wait(left, WAIT_SECONDS, FIRST_COMPLETED)
        yield from done


def result(job: Future[T]) -> T:
    """Return what a job came to, or raise what it raised."""
    from concurrent.futures import wait

    while not job.done():
        wait([job], WAIT_SECONDS)
    return job.result()


def is_held(lock: threading.RLock) -> bool:
    """Whether this thread holds a lock. It says so exactly while it does, whatever interrupts come, unlike a note of its own."""
    held: bool = lock._is_owned()  # type: ignore[attr-defined]
    return held
