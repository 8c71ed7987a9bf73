"""Threads and signals: waiting so that a Ctrl-C acts, and threads that an interrupt cannot lose.

The main thread may be interrupted behind every step of Python code. ``threading`` and
``concurrent.futures`` are Python code: they keep a lock forever, or lose a thread, if an interrupt
comes inside them. The classes here use what is a single step: to start a thread and note it, to
take a lock for a while, to put into and take from a ``SimpleQueue``.

CPython 3.13 has a fault (its issue 130279): an interrupt between two rounds of a loop passes by the
``with`` and ``try`` of the function, if the loop is a ``while`` with a condition, or its body ends
with an ``if``. So no block that must be left in order has such a loop; a test looks for them in the
whole package.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from fpstore.errors import InputError

T = TypeVar("T")
Item = TypeVar("Item")
WAIT_SECONDS = 0.05  # between two checks for signals


def is_held(lock: threading.RLock) -> bool:
    """Whether this thread holds a lock.

    Exact even when an interrupt comes, unlike a variable kept beside the lock.
    """
    held: bool = lock._is_owned()  # type: ignore[attr-defined]
    return held


class Job(Generic[T]):
    """Work that some thread does once, and its result."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._process = os.getpid()
        self._end = threading.Lock()
        self._end.acquire()
        self._result: T
        self.error: BaseException | None = None
        self.is_done = False

    def run(self) -> None:
        """Do the work in this thread."""
        assert self._work is not None
        try:
            self._result = self._work()
        except BaseException as error:
            self.error = error
        self._work = None  # what it holds is released now
        self.is_done = True
        self._end.release()

    def cancel(self) -> None:
        """Forget the work: its result is InterruptedError."""
        self._work = _cancelled
        self.run()

    def result(self) -> T:
        """Wait for the result, and return it or raise the exception of the work.

        InputError in the child of a fork.
        """
        if self._process != os.getpid():
            raise InputError(
                "this was begun in another process, whose threads a child lacks: begin it anew in "
                "this one"
            )
        while not self.is_done:
            self._end.acquire(timeout=WAIT_SECONDS)
        if self.error is not None:
            try:
                raise self.error
            finally:
                del self  # the exception refers to this frame
        return self._result


def _cancelled() -> Any:
    raise InterruptedError("cancelled")


class Worker(Job[object]):
    """Work with a thread of its own, which is waited for even if an interrupt came while it was started."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(work)
        self._thread = 0
        self._started: list[int] = []

    def start(self) -> None:
        """Start the thread; RuntimeError if the system has no more threads, or if the interpreter ends."""
        # One step: without an interrupt between the start and the note of it.
        self._started.extend(map(_thread.start_new_thread, (self._run_alone,), ((),)))

    def _run_alone(self) -> None:
        self._thread = threading.get_ident()
        self.run()
        if self.error is not None:
            raise self.error  # Python shows it

    def is_alive(self) -> bool:
        """Whether the thread was started and has work left; false in the child of a fork."""
        return bool(self._started) and not self.is_done and self._process == os.getpid()

    def wait(self) -> None:
        """Wait until the work is done, if it is not the work of this thread."""
        while self.is_alive() and self._thread != threading.get_ident():
            self._end.acquire(timeout=WAIT_SECONDS)


class Pool:
    """Threads that do some work and end with a ``with`` block.

    An exception there cancels the work that waits for a thread.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._workers: list[Worker] = []
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._is_cancelled = False

    def submit(self, work: Callable[..., T], *arguments: Any, **named: Any) -> Job[T]:
        """Have a thread do some work.

        If no more threads can be started, the others do it, or this thread at once.
        """
        job = Job(partial(work, *arguments, **named))
        if len(self._workers) < self._threads:
            self._start()
        if self._workers:
            self._jobs.put(job)
            return job
        job.run()
        if not isinstance(job.error, Exception | None):  # an interrupt of this thread
            job.result()
        return job

    def _start(self) -> None:
        worker = Worker(self._work)
        _pools.add(self)
        self._workers.append(worker)
        try:
            worker.start()
        except RuntimeError:
            self._workers.remove(worker)
            self._threads = len(self._workers)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._is_cancelled:
                job.cancel()
            else:
                job.run()
            del job  # now, not when there is another
        self._jobs.put(None)  # the sign to end is for all

    def cancel(self) -> None:
        """Forget the work that waits for a thread."""
        self._is_cancelled = True

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.cancel()
        self.shutdown()


class Beside:
    """A thread that does one piece of work beside its caller.

    Without ``thread``, the caller does it at once.
    """

    def __init__(self, thread: bool) -> None:
        self._pool = Pool(1) if thread else None
        self._job: Job[object] | None = None

    def do(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do some work once the work before is done; raise the error of that."""
        self.wait()
        if self._pool is None:
            work(*arguments)
        else:
            self._job = self._pool.submit(work, *arguments)

    def wait(self) -> None:
        """Wait for the work, and raise its error."""
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def end(self) -> None:
        """End the thread; work that has not begun is forgotten."""
        if self._pool is not None:
            self._pool.cancel()
            self._pool.shutdown()


def in_order(
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
    left = iter(items)
    with Pool(threads) as pool:
        jobs = deque((item, pool.submit(work, item)) for item in islice(left, waiting * threads))
        for item in left:
            jobs.append((item, pool.submit(work, item)))
            first, job = jobs.popleft()
            yield first, job.result()
        for _ in range(len(jobs)):
            first, job = jobs.popleft()
            yield first, job.result()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items; a thread makes the next one meanwhile."""
    with Pool(1) as pool:
        job: Job[list[T]] = pool.submit(_next_of, items)
        while True:
            found = job.result()
            if not found:
                return
            job = pool.submit(_next_of, items)
            yield found.pop()


def _next_of(items: Iterator[T]) -> list[T]:
    return list(islice(items, 1))


_pools: set[Pool] = set()


@atexit.register
def _shut_down() -> None:
    """Let threads end their work before the interpreter cuts them off.

    An interrupt may have left a ``with`` block at once.
    """
    for pool in list(_pools):
        pool.shutdown()


if TYPE_CHECKING:
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
