"""Threads that do the work of one call, and end with it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Self, TypeVar

from fpstore.errors import InputError

T = TypeVar("T")
Item = TypeVar("Item")


WAIT_SECONDS = 0.5


def await_result(job: Future[T]) -> T:
    """Wait for a result.

    A signal that comes just before a wait begins does not wake it, so each wait is short.
    """
    while not job.done():
        wait([job], WAIT_SECONDS)
    return job.result()


class Pool(ThreadPoolExecutor):
    """Threads that end with a ``with`` block; an exception there cancels the work that waits.

    If the system has no more threads, fewer threads do the work, or the caller does.
    """

    def __init__(self, threads: int) -> None:
        # An interrupt that meets the start of a thread hides the thread from the executor.
        self._begun: list[threading.Thread] = []
        super().__init__(threads, initializer=_begin, initargs=(self._begun,))
        self._process = os.getpid()
        self._has_none = False

    def submit(self, work: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        if not self._has_none:
            try:
                return super().submit(work, *arguments, **options)
            except RuntimeError:
                self._has_none = True  # no thread takes the queued jobs
        job: Future[T] = Future()
        try:
            job.set_result(work(*arguments, **options))
        except Exception as error:
            job.set_exception(error)
        return job

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise

    def result(self, job: Future[T]) -> T:
        """Wait for a result; InputError in the child of a fork, which lacks the threads."""
        if self._process != os.getpid():
            raise InputError(
                "this was begun in another process, whose threads a child lacks: begin it anew in "
                "this one"
            )
        return await_result(job)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            for thread in self._begun:
                thread.join()

    def cancel(self) -> None:
        """Drop the jobs that wait for a thread."""
        self.shutdown(wait=False, cancel_futures=True)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.shutdown(cancel_futures=error is not None)
        except BaseException:  # an interrupt while it waited
            self.shutdown(cancel_futures=True)
            raise


def _begin(begun: list[threading.Thread]) -> None:
    begun.append(threading.current_thread())


class Worker:
    """A thread that does one job while its caller goes on, and ends with a ``with`` block.

    Without ``thread``, the caller does the job at once. What a job writes to may be closed behind
    the block: an interrupt there is raised when the thread has ended. An exception in the block
    drops a job that has not begun.
    """

    def __init__(self, thread: bool) -> None:
        self._pool = Pool(1) if thread else None
        self._job: Future[object] | None = None

    def submit(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do a job after the one before, whose error is raised."""
        self.wait()
        if self._pool is None:
            work(*arguments)
        else:
            self._job = self._pool.submit(work, *arguments)

    def wait(self) -> None:
        """Wait for the job, and raise its error."""
        job, self._job = self._job, None
        if job is not None:
            await_result(job)

    def end(self) -> None:
        """End the thread."""
        interrupt: BaseException | None = None
        while self._pool is not None:
            try:
                self._pool.shutdown(cancel_futures=True)
                break
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.end()


def map_in_order(
    work: Callable[[Item], T], items: Iterable[Item], threads: int, waiting: int = 1
) -> Iterator[tuple[Item, T]]:
    """Yield each item with the result of some work, in order.

    Threads do the work while items are taken.

    With one thread, the caller's does the work, when its result is asked for. Otherwise ``waiting``
    items are taken for each thread before the first result must be there.
    """
    if threads == 1:
        for item in items:
            yield item, work(item)
        return
    remaining = iter(items)
    with Pool(threads) as pool:
        jobs = deque(
            (item, pool.submit(work, item)) for item in islice(remaining, waiting * threads)
        )
        while jobs:
            for item in islice(remaining, 1):
                jobs.append((item, pool.submit(work, item)))
            first, job = jobs.popleft()
            yield first, pool.result(job)


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items; a thread makes the next one meanwhile."""
    with Pool(1) as pool:
        job = pool.submit(_take, items)
        while pair := pool.result(job):
            job = pool.submit(_take, items)
            yield pair.pop()


def _take(items: Iterator[T]) -> list[T]:
    return list(islice(items, 1))
