"""Threads that do the work of one call, and end with it.

An interrupt may leave the locks of `threading` and `concurrent.futures` taken for good: those of
conditions, which futures and the starts of threads have. What is here takes locks only in calls
that no interrupt divides.
"""

from __future__ import annotations

import _thread
import atexit
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Generic, Self, TypeVar, cast
from weakref import ref

from fpstore.errors import InputError

T = TypeVar("T")
Item = TypeVar("Item")


WAIT_SECONDS = 0.5


class _End:
    """Something that ends once, and can be waited for."""

    def __init__(self) -> None:
        self.has_come = False
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        self.has_come = True
        self._lock.release()

    def wait(self) -> None:
        """Wait for the end.

        A signal that comes just before a wait begins does not wake it, so each wait is short. The
        flag counts: an interrupt may come when the lock has been taken here.
        """
        while not self.has_come:
            if self._lock.acquire(timeout=WAIT_SECONDS):
                self._lock.release()


class Job(Generic[T]):
    """Work that a thread of a pool does."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._value: T | None = None
        self._error: BaseException | None = None
        self._end = _End()

    def run(self, caught: type[BaseException] = BaseException) -> None:
        """Do the work; `result` raises an error that is caught."""
        try:
            assert self._work is not None
            self._value = self._work()
        except caught as error:
            self._error = error
        self._finish()
        del self  # the error has this frame, and would be kept by the job in it

    def cancel(self) -> None:
        """Drop the work, which has not begun."""
        self._error = CancelledError()
        self._finish()

    def _finish(self) -> None:
        self._work = None
        self._end.set()

    def result(self) -> T:
        """Wait for the result of the work, or raise its error."""
        self._end.wait()
        try:
            if self._error is not None:
                raise self._error
            return cast(T, self._value)
        finally:
            del self  # as in `run`


class Pool:
    """Threads that end with a ``with`` block; an exception there cancels the work that waits.

    If the system has no more threads, fewer threads do the work, or the caller does.
    """

    def __init__(self, threads: int) -> None:
        self._wanted = threads
        self._waiting: SimpleQueue[object] = SimpleQueue()
        self._threads: list[int] = []
        self._ends: list[_End] = []
        self._process = os.getpid()
        # The word that ends the threads. They get it too if nobody has the pool: by a call of C,
        # because Python drops an interrupt that meets a function there.
        self._end_word = ref(self, self._waiting.put)

    def submit(self, work: Callable[..., T], /, *arguments: Any, **options: Any) -> Job[T]:
        job = Job[T](partial(work, *arguments, **options))
        if len(self._threads) < self._wanted:
            self._start_thread()
        if self._threads:
            self._waiting.put(job)
        else:
            job.run(Exception)
        return job

    def _start_thread(self) -> None:
        _open.add(self._end_word)
        del self._ends[len(self._threads) :]  # an interrupt came before the thread was started
        self._ends.append(_End())
        arguments = [(self._waiting, self._ends[-1])]
        try:
            # one call: the thread is in the list if, and only if, it was started
            self._threads.extend(map(_thread.start_new_thread, [_run], arguments))
        except RuntimeError:  # the system has no more threads
            self._wanted = len(self._threads)

    def result(self, job: Job[T]) -> T:
        """Wait for a result; InputError in the child of a fork, which lacks the threads."""
        if self._process != os.getpid():
            raise InputError(
                "this was begun in another process, whose threads a child lacks: begin it anew in "
                "this one"
            )
        return job.result()

    def shutdown(self, cancel: bool = False) -> None:
        """Wait for the work and for the ends of the threads; with ``cancel``, drop what waits.

        What is submitted later is done by the caller.
        """
        if self._process != os.getpid():
            return
        self._wanted = 0
        if cancel:
            self.cancel()
        self._waiting.put(self._end_word)
        for end, _ in zip(self._ends, self._threads, strict=False):
            end.wait()
        self._threads.clear()
        _open.discard(self._end_word)

    def cancel(self) -> None:
        """Drop the jobs that wait for a thread."""
        while True:
            try:
                job = self._waiting.get_nowait()
            except Empty:
                return
            if isinstance(job, Job):
                job.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.shutdown(cancel=error is not None)
        except BaseException:  # an interrupt while it waited
            self.shutdown(cancel=True)
            raise


# Threads that still work when the interpreter ends would meet it half gone.
_open: set[ref[Pool]] = set()


@atexit.register
def _end_all() -> None:
    for reference in list(_open):
        if (pool := reference()) is not None:
            pool.shutdown()  # its owner may be a daemon, and wait for the work


def _run(waiting: SimpleQueue[object], end: _End) -> None:
    """Do jobs in a thread of a pool, which it does not hold, until the word to end."""
    while isinstance(job := waiting.get(), Job):
        job.run()
        del job
    _open.discard(cast("ref[Pool]", job))
    waiting.put(job)  # for the next thread
    end.set()


class Worker:
    """A thread that does one job while its caller goes on, and ends with a ``with`` block.

    Without ``thread``, the caller does the job at once. What a job writes to may be closed behind
    the block: an interrupt there is raised when the thread has ended. An exception in the block
    drops a job that has not begun.
    """

    def __init__(self, thread: bool) -> None:
        self._pool = Pool(1) if thread else None
        self._job: Job[object] | None = None

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
            job.result()

    def end(self) -> None:
        """End the thread."""
        interrupt: BaseException | None = None
        while self._pool is not None:
            try:
                self._pool.shutdown(cancel=True)
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
