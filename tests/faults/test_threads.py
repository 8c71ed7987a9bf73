"""Threads are not missed where there are no more of them.

The system or the interpreter refuses them, or the process is the child of a fork.
"""

import os
import threading
from concurrent.futures import CancelledError
from contextlib import contextmanager

import numpy as np
import pytest
from background import threads_of
from building import run_python
from forks import forked
from speeds import slow

import fpstore
from fpstore.base.pools import Pool, Worker, map_in_order

FEW_THREADS = """
    import _thread, sys, threading
    import numpy as np
    import fpstore

    threads = int(sys.argv[2])
    start, ends = _thread.start_new_thread, []

    def started(work, arguments):
        if not work.__module__.endswith("pools"):
            return start(work, arguments)
        if sum(not end.has_come for end in ends) >= threads:
            threading.stack_size(1 << 46)  # which the system does not have
        try:
            number = start(work, arguments)
        finally:
            threading.stack_size(0)
        ends.append(arguments[1])
        return number

    _thread.start_new_thread = started
    fingerprints = np.arange(10_000, dtype=np.uint64)
    fpstore.build(sys.argv[1], fingerprints, design="manku-4", threads=3).close()
    store = fpstore.open(sys.argv[1], "r+")
    store.insert([2**63], [5])
    store.merge(threads=3)
    found = store.probe_many(fingerprints, threads=3)
    print(store.verify().ok, len(found.fingerprints) > 10_000)
"""


@pytest.mark.full
@pytest.mark.parametrize("threads", [slow(0), 1, slow(2)])
def test_work_is_done_by_the_threads_that_the_system_allows(tmp_path, threads):
    """One thread that could not start ended a build with an error, whatever others there were."""
    assert run_python(FEW_THREADS, tmp_path / "s", threads) == (0, "True True\n", "")


PROBING_AT_EXIT = """
    import sys, threading
    import numpy as np
    import fpstore

    fingerprints = np.random.default_rng(1).integers(0, 2**63, 200_000, dtype=np.uint64)
    store = fpstore.build(sys.argv[1], fingerprints)
    queries = np.random.default_rng(2).integers(0, 2**63, 20_000, dtype=np.uint64)
    probed = threading.Event()

    def probe():
        while True:
            store.probe_many(queries, threads=int(sys.argv[2]))
            probed.set()

    threading.Thread(target=probe, daemon=True).start()
    probed.wait()
"""


@pytest.mark.full
@pytest.mark.parametrize("threads", [slow(1), 2])
def test_daemon_thread_that_probes_does_not_abort_the_process(tmp_path, monkeypatch, threads):
    """The process was aborted.

    Python unwinds the stack of such a thread when it wants the GIL, through the kernel.
    """
    monkeypatch.delenv("FPSTORE_SHOW_LEAKS", raising=False)  # it holds its store to the end
    assert run_python(PROBING_AT_EXIT, tmp_path / "s", threads) == (0, "", "")


@contextmanager
def no_more_threads():
    threading.stack_size(1 << 46)  # which the system does not have
    try:
        yield
    finally:
        threading.stack_size(0)


def test_work_without_a_thread_raises_interrupts_at_once():
    """An error is raised when the result is asked for."""

    def interrupt():
        raise KeyboardInterrupt

    with no_more_threads(), Pool(2) as pool:
        job = pool.submit(int, "no number")
        assert pool.submit(int, "7").result() == 7
        with pytest.raises(KeyboardInterrupt):
            pool.submit(interrupt)
    with pytest.raises(ValueError, match="no number"):
        job.result()


def test_waiting_work_is_dropped_when_an_error_leaves_the_block():
    started, done, jobs = threading.Event(), [], []

    def until_cancelled():
        started.set()
        while not (jobs and jobs[1]._end.has_come):
            os.sched_yield()
        done.append("first")

    with pytest.raises(ValueError, match="the reason"), Pool(1) as pool:  # noqa: PT012
        jobs += [pool.submit(until_cancelled), pool.submit(done.append, "second")]
        started.wait()
        raise ValueError("the reason")
    assert done == ["first"]
    assert jobs[0].result() is None
    with pytest.raises(CancelledError):
        jobs[1].result()


INTERRUPTED = """
    import faulthandler, os, sys, threading
    from fpstore.base.pools import Pool

    faulthandler.dump_traceback_later(60, exit=True)

    def work():
        with Pool(2) as pool:
            jobs = [pool.submit(divmod, number, 2) for number in range(4)]
            assert [job.result()[0] for job in jobs] == [0, 0, 1, 1]

    def interrupt_before(place):  # returns whether the work has so many instructions
        left = place

        def trace(frame, event, argument):
            nonlocal left
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            if event == "opcode":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            work()
        except KeyboardInterrupt:
            pass
        sys.settrace(None)
        return left < 0

    place = 0
    while interrupt_before(place):
        place += 1
        while len(sys._current_frames()) > 1:
            os.sched_yield()
    print(place > 300)
"""


def test_an_interrupt_before_any_instruction_leaves_no_thread():
    """A lock of the standard library stayed taken: about one Ctrl-C of 5,000 ended nothing."""
    assert run_python(INTERRUPTED) == (0, "True\n", "")


def test_ordered_work_of_threads_does_not_go_on_in_a_fork():
    """The child waited forever for threads that it lacks."""
    squares = map_in_order(lambda number: number**2, range(100), threads=2)
    assert next(squares) == (0, 0)

    def ask():
        with pytest.raises(fpstore.InputError, match="in another process"):
            list(squares)

    forked(ask)
    assert [square for _, square in squares] == [number**2 for number in range(1, 100)]


def test_insert_is_durable_at_once_when_no_thread_can_sync_later(tmp_path):
    """It raised after it had been made, and later ones waited for a thread that never was."""
    fpstore.build(tmp_path / "s", np.arange(100, dtype=np.uint64)).close()
    with (
        fpstore.open(tmp_path / "s", "r+", sync="batch") as store,
        fpstore.open(tmp_path / "s") as reader,
    ):
        with no_more_threads():
            assert store.insert([2**63], [1000]) == 1
        assert len(reader) == 101
        assert store.insert([2**62], [1001]) == 1
        assert len(threads_of("flush")) == 1


def test_what_a_worker_writes_to_is_closed_when_its_thread_has_ended(monkeypatch):
    """A second interrupt ended the wait, and a file was closed under the thread."""
    events, begun, may_end = [], threading.Event(), threading.Event()
    shutdown = Pool.shutdown

    def write():
        begun.set()
        may_end.wait()
        events.append("written")

    def interrupted(pool, *arguments, **options):
        if not may_end.is_set():
            events.append("interrupted")
            if events.count("interrupted") == 3:
                may_end.set()
            raise KeyboardInterrupt
        shutdown(pool, *arguments, **options)

    monkeypatch.setattr(Pool, "shutdown", interrupted)

    def copy():
        with Worker(True) as worker:
            worker.submit(write)
            begun.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy()
    assert events == ["interrupted"] * 3 + ["written"]


@pytest.mark.parametrize("thread", [False, True])
def test_a_worker_raises_the_error_of_its_last_job(thread):
    done = []

    def work():
        with Worker(thread) as worker:
            worker.submit(done.append, 1)
            worker.submit(divmod, 1, 0)

    with pytest.raises(ZeroDivisionError):
        work()
    assert done == [1]
