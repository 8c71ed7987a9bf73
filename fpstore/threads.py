"""Threads and signals: waiting so that a Ctrl-C acts, and threads that an interrupt cannot lose.

The parts of ``threading`` and ``concurrent.futures`` that are written in Python keep a lock forever if a signal comes while they
take it. The classes here wait with ``SimpleQueue``, which is made for signals.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from fpstore.errors import StorageError

T = TypeVar("T")
Item = TypeVar("Item")
WAIT_SECONDS = 0.05  # between two checks for signals


def is_held(lock: threading.RLock) -> bool:
    """Whether this thread holds a lock; exact even when an interrupt comes, unlike a variable kept beside the lock."""
    held: bool = lock._is_owned()  # type: ignore[attr-defined]
    return held


def _wait(wakes: SimpleQueue[None]) -> None:
    with suppress(Empty):
        wakes.get(timeout=WAIT_SECONDS)


class Worker:
    """A thread that is waited for even if an interrupt came while it was started.

    ``threading.Thread.start`` waits until the thread runs. An interrupt meanwhile leaves a thread that nobody knows to have
    started: it works on beside whatever the caller does next, and is cut off when the interpreter ends.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work: Callable[[], object] | None = work
        self._process = os.getpid()
        self._running = False
        self._thread = 0
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def start(self) -> None:
        """Start the thread.

        Raises
        ------
        RuntimeError
            The system has no more threads.
        """
        start, run, nothing = _thread.start_new_thread, self._run, ()
        try:
            # Python runs no signal handler between an assignment and the call that follows.
            self._running = True
            start(run, nothing)
        except RuntimeError:
            self._running = False
            raise

    def _run(self) -> None:
        self._thread = threading.get_ident()
        try:
            assert self._work is not None
            self._work()
        finally:
            self._work = None
            self._running = False
            self._wakes.put(None)

    def is_alive(self) -> bool:
        """Whether the thread was started and has not ended; false in the child of a fork."""
        return self._running and self._process == os.getpid()

    def wait(self) -> None:
        """Wait until the thread has ended, if it is not this one."""
        while self.is_alive() and self._thread != threading.get_ident():
            _wait(self._wakes)


class Job(Generic[T]):
    """Some work of a pool."""

    def __init__(self, work: Callable[[], T], wakes: SimpleQueue[None]) -> None:
        self._work: Callable[[], T] | None = work
        self._wakes = wakes
        self._error: BaseException | None = None
        self._result: T
        self.is_done = False

    def run(self) -> None:
        """Do the work."""
        assert self._work is not None
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._end()

    def cancel(self) -> None:
        """Forget the work: its result is InterruptedError."""
        self._error = InterruptedError("cancelled")
        self._end()

    def _end(self) -> None:
        self._work = None  # what it holds is released now
        self.is_done = True
        self._wakes.put(None)

    def result(self) -> T:
        """Wait for the result, and return it or raise the exception of the work."""
        while not self.is_done:
            _wait(self._wakes)
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self  # the exception refers to this frame
        return self._result


class Pool:
    """Threads that do some work and end with a ``with`` block."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._workers: list[Worker] = []
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def submit(self, work: Callable[..., T], *arguments: Any, **named: Any) -> Job[T]:
        """Have a thread do some work. If the system has no more threads, those that were started do it.

        Raises
        ------
        StorageError
            It has none at all.
        """
        job = Job(lambda: work(*arguments, **named), self._wakes)
        self._jobs.put(job)
        if len(self._workers) < self._threads:
            self._start()
        return job

    def _start(self) -> None:
        worker = Worker(self._work)
        _pools.add(self)
        self._workers.append(worker)
        try:
            worker.start()
        except RuntimeError as error:
            self._workers.remove(worker)
            if not self._workers:
                raise StorageError(f"the system refuses another thread ({error}): end other programs") from error
            self._threads = len(self._workers)  # those that it has allowed do the work

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # now, not when there is another
        self._jobs.put(None)  # the sign to end is for all

    def as_done(self, jobs: Iterable[Job[T]]) -> Iterator[Job[T]]:
        """Yield jobs in the order in which they end."""
        left = list(jobs)
        while left:
            done = [job for job in left if job.is_done]
            left = [job for job in left if job not in done]
            yield from done
            if not done:
                _wait(self._wakes)

    def cancel(self) -> None:
        """Forget the work that waits for a thread."""
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:  # after the sign to end there is no work
                job.cancel()

    def shutdown(self) -> None:
        """Wait until all work is done and the threads have ended; an interrupt is raised then."""
        interrupt: BaseException | None = None
        while self in _pools:
            try:
                self._jobs.put(None)
                for worker in self._workers:
                    worker.wait()
                _pools.discard(self)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()


def in_order(work: Callable[[Item], T], items: Iterable[Item], threads: int, waiting: int = 1) -> Iterator[tuple[Item, T]]:
    """Yield each item with what some work makes of it, in order; threads do it while items are taken.

    Parameters
    ----------
    work : callable
    items : iterable
    threads : int
        With 1, the work is done by this thread, when its result is asked for.
    waiting : int
        For each thread, how many items are taken before the first result must be there.
    """
    if threads == 1:
        for item in items:
            yield item, work(item)
        return
    jobs: deque[tuple[Item, Job[T]]] = deque()
    with Pool(threads) as pool:
        try:
            for item in items:
                jobs.append((item, pool.submit(work, item)))
                if len(jobs) > waiting * threads:
                    first, job = jobs.popleft()
                    yield first, job.result()
            while jobs:
                first, job = jobs.popleft()
                yield first, job.result()
        except BaseException:
            pool.cancel()
            raise


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items, of which a thread makes the next one meanwhile."""
    with Pool(1) as pool:
        job: Job[list[T]] = pool.submit(_next_of, items)
        while found := job.result():
            job = pool.submit(_next_of, items)
            yield found.pop()


def _next_of(items: Iterator[T]) -> list[T]:
    return list(islice(items, 1))


_pools: set[Pool] = set()


@atexit.register
def _shut_down() -> None:
    """Let threads end their work before the interpreter cuts them off: an interrupt may have left a ``with`` block at once."""
    for pool in list(_pools):
        pool.shutdown()
