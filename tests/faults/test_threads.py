"""Threads: they are not lost when an interrupt comes, nor missed where the system or the interpreter has no more of them."""

import dis
import os
import sys
import threading
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from types import CodeType

import numpy as np
import pytest
from building import run_python
from living import forked
from speeds import slow

import fpstore
from fpstore.base.threads import Pool, in_order

STARTED = """
    import gc, signal, time
    from fpstore.base.threads import Pool

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    gc.disable()  # an interrupt that comes in a finalizer is not raised
    interrupted = 0

    def work(working, stopped):
        working.append(1)
        while not stopped:
            time.sleep(0.0001)
        working.pop()

    def wait(working):
        while len(working) < 2:
            time.sleep(0)

    for number in range(600):
        working, stopped, pool = [], [], Pool(2)
        try:
            signal.setitimer(signal.ITIMER_REAL, (1 + number % 250) * 1e-6)
            with pool:
                try:
                    for _ in range(2):
                        pool.submit(work, working, stopped)
                    wait(working)
                finally:
                    stopped += [1]
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
        pool.shutdown()  # the interrupt may have come as the block was left
        assert working == []
    print("interrupted", interrupted > 30)
"""


def test_an_interrupt_never_loses_a_thread_that_is_being_started():
    """A thread that nobody knew to have started worked on, and was cut off with what it held when the interpreter ended."""
    assert run_python(STARTED) == (0, "interrupted True\n", "")


def is_cleanup(handler):
    """Whether the instructions of a handler are those of a ``with``, a ``finally``, or an ``except`` that meets an interrupt."""
    begin = list(takewhile(lambda i: "JUMP" not in i.opname, handler))
    if begin[0].opname != "PUSH_EXC_INFO":  # of a generator, or of the variable of a comprehension
        return False
    matched = [i.argval for i in begin if i.opname.startswith("LOAD_")]
    return all(i.opname != "CHECK_EXC_MATCH" for i in begin) or not {
        "BaseException",
        "KeyboardInterrupt",
    }.isdisjoint(matched)


def passed_by(code):
    """Yield the lines of the loops from whose end an interrupt would not come to the block that they stand in."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from passed_by(constant)
    if not code.co_exceptiontable:
        return
    bytecode = dis.Bytecode(code)
    instructions = list(bytecode)
    place = {instruction.offset: number for number, instruction in enumerate(instructions)}

    def handlers(offset):
        return [
            entry.target
            for entry in bytecode.exception_entries
            if entry.start <= offset < entry.end
        ]

    for jump in instructions:
        around = handlers(jump.argval) if jump.opname == "JUMP_BACKWARD" else []
        if around != handlers(jump.offset) and any(
            is_cleanup(instructions[place[target] :]) for target in around
        ):
            yield f"{code.co_filename}:{jump.positions.lineno}"


@pytest.mark.skipif(
    sys.version_info < (3, 13),
    reason="older interpreters look up the handlers of where the loop begins",
)
def test_an_interrupt_between_two_rounds_of_a_loop_comes_to_the_block_around_it():
    """CPython 3.13 leaves the jump back of some loops out of the table of handlers.

    A lock was kept, threads were not stopped.
    """
    if not list(passed_by(compile("with one:\n    while two:\n        pass", "example", "exec"))):
        pytest.skip("this one has the jump back of every loop in the table of handlers")
    modules = Path(fpstore.__file__).parent.rglob("*.py")
    assert [
        line for path in modules for line in passed_by(compile(path.read_text(), path, "exec"))
    ] == []


FEW_THREADS = """
    import sys, threading
    import numpy as np
    import fpstore
    from fpstore.base.threads import Pool

    threads = int(sys.argv[2])
    start = Pool._start

    def started(pool):
        if len(pool._workers) == threads:
            threading.stack_size(1 << 46)  # which the system does not have
        try:
            start(pool)
        finally:
            threading.stack_size(0)

    Pool._start = started
    fingerprints = np.arange(10_000, dtype=np.uint64)
    fpstore.build(sys.argv[1], fingerprints, design="manku-4", threads=3).close()
    store = fpstore.open(sys.argv[1], "r+")
    store.insert([2**63], [5])
    store.merge(threads=3)
    found = store.probe_many(fingerprints, threads=3)
    print(store.verify().ok, len(found.fingerprints) > 10_000)
    Pool._start = start  # what the package holds keeps the names of this program, and with them the store, beyond its end
"""


@pytest.mark.full
@pytest.mark.parametrize("threads", [slow(0), 1, slow(2)])
def test_work_is_done_by_the_threads_that_the_system_allows(tmp_path, threads):
    """A thread that could not be started ended a build with an error, however many others there were."""
    assert run_python(FEW_THREADS, tmp_path / "s", threads) == (0, "True True\n", "")


PROBING_AT_EXIT = """
    import sys, threading
    import numpy as np
    import fpstore

    store = fpstore.build(sys.argv[1], np.random.default_rng(1).integers(0, 2**63, 200_000, dtype=np.uint64))
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
def test_a_daemon_thread_that_probes_does_not_end_the_process_with_an_error(
    tmp_path, monkeypatch, threads
):
    """Python unwinds the stack of such a thread when it wants the GIL, through the kernel, which was an abort."""
    monkeypatch.delenv("FPSTORE_SHOW_LEAKS", raising=False)  # it holds its store to the end
    assert run_python(PROBING_AT_EXIT, tmp_path / "s", threads) == (0, "", "")


@contextmanager
def no_more_threads():
    threading.stack_size(1 << 46)  # which the system does not have
    try:
        yield
    finally:
        threading.stack_size(0)


def test_an_interrupt_of_work_without_a_thread_is_raised_at_once_and_an_error_when_it_is_asked_for():
    def interrupt():
        raise KeyboardInterrupt

    with no_more_threads(), Pool(2) as pool:
        job = pool.submit(int, "no number")
        assert pool.submit(int, "7").result() == 7
        with pytest.raises(KeyboardInterrupt):
            pool.submit(interrupt)
    with pytest.raises(ValueError, match="no number"):
        job.result()


def test_work_that_waits_for_a_thread_is_forgotten_when_an_error_leaves_the_block():
    started, done, jobs = threading.Event(), [], []

    def until_cancelled(pool):
        started.set()
        while not pool._is_cancelled:
            os.sched_yield()
        done.append("first")

    with pytest.raises(ValueError, match="the reason"), Pool(1) as pool:  # noqa: PT012
        jobs += [pool.submit(until_cancelled, pool), pool.submit(done.append, "second")]
        started.wait()
        raise ValueError("the reason")
    assert done == ["first"]
    assert jobs[0].result() is None
    with pytest.raises(InterruptedError):
        jobs[1].result()


def test_what_threads_do_in_order_is_not_continued_in_the_child_of_a_fork():
    """The child waited forever for threads that it lacks."""
    squares = in_order(lambda number: number**2, range(100), threads=2)
    assert next(squares) == (0, 0)

    def ask():
        with pytest.raises(fpstore.InputError, match="in another process"):
            list(squares)

    forked(ask)
    assert [square for _, square in squares] == [number**2 for number in range(1, 100)]


def test_an_insert_is_made_durable_at_once_when_no_thread_can_do_it_later(tmp_path):
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
        assert store._writer.committer._flusher.is_alive()
