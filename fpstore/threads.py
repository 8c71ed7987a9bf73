"""Threads and signals: waiting so that a Ctrl-C acts, and starting threads so that a handler cannot wait for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fpstore.errors import StoreLockedError

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


_here = threading.local()


def is_starting() -> bool:
    """Whether this thread is starting or ending threads, which a signal handler has interrupted.

    Python holds locks meanwhile for which the handler would wait forever if it started threads too.
    """
    starting: bool = getattr(_here, "starting", False)
    return starting


class Pool:
    """Threads that work until the end of a ``with`` block. In a handler that interrupted the start of others, it is refused.

    Raises
    ------
    StoreLockedError
    """

    def __init__(self, threads: int, initializer: Callable[[], object] | None = None) -> None:
        from concurrent.futures import ThreadPoolExecutor

        if is_starting():
            raise StoreLockedError(
                "this thread is starting or ending threads, which a signal handler has interrupted: build or merge when that "
                "call has ended"
            )
        self._executor = ThreadPoolExecutor(threads, initializer=initializer)

    def submit(self, work: Callable[..., T], *arguments: Any, **named: Any) -> Future[T]:
        """Have a thread do some work."""
        try:
            _here.starting = True
            return self._executor.submit(work, *arguments, **named)
        finally:
            _here.starting = False

    def shutdown(self, cancel_futures: bool = False) -> None:
        """Wait for the threads to end."""
        try:
            _here.starting = True
            self._executor.shutdown(wait=True, cancel_futures=cancel_futures)
        finally:
            _here.starting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()
