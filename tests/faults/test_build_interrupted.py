"""Builds that fail, are interrupted or killed, or meet a full disk: all or nothing."""

import itertools
import signal
import threading

import numpy as np
import pytest
from building import build, listing, make_rows, pieces, run_python, tables_of
from small_stores import rows_in_order
from speeds import crossed, slow

import fpstore
from fpstore.building.generation_writer import TrackedWork

# --- Interruptions --------------------------------------------------------------------------------


class StopError(Exception):
    pass


def stopping_source(error):
    yield np.arange(1000, dtype=np.uint64)
    raise error


def test_a_failing_source_leaves_nothing(tmp_path):
    for error in (StopError(), KeyboardInterrupt(), fpstore.InputError("no"), SystemExit(3)):
        with pytest.raises(type(error)) as caught:
            fpstore.build(tmp_path / "s", stopping_source(error))
        assert caught.value is error
        assert listing(tmp_path) == []


def test_error_is_of_the_part_that_failed_even_if_it_ends_last():
    """A part that shares its own work fails.

    Another one is interrupted by that, and ends before it.
    """
    work, interrupted = TrackedWork(None), threading.Event()

    def fail():
        raise StopError

    def wait_until_stopped():
        try:
            while True:
                work.tick()
        finally:
            interrupted.set()

    with pytest.raises(StopError):
        work.run_in_threads(
            2,
            [
                lambda: work.run_in_threads(2, [fail, lambda: interrupted.wait(60)]),
                wait_until_stopped,
            ],
        )
    assert interrupted.is_set()


@pytest.mark.parametrize(("threads", "spilled"), crossed([1, 2], [False, True]))
def test_failing_callback_leaves_nothing_and_keeps_the_old_store(
    tmp_path, request, spilled, threads
):
    if spilled:
        request.getfixturevalue("tiny")
    fingerprints, ids = make_rows("clustered", 400)
    names = [f"name {i}" for i in ids.tolist()]
    path = tmp_path / "s"
    old = build(path, [1, 2, 3], ["x", "y", "z"])
    options = {"design": "manku-4", "threads": threads, "memory": "64MiB", "overwrite": True}
    calls = []
    build(
        tmp_path / "counted",
        fingerprints,
        names,
        progress=lambda *args: calls.append(args),
        **options,
    )
    assert {phase for phase, _, _ in calls} == {"reading", "sorting", "tables"}
    moments = [0, 1, 3, len(calls) // 3, len(calls) // 2, len(calls) - 2, len(calls) - 1]
    for at in moments[:: 3 if spilled else 1]:
        count = itertools.count()

        def progress(phase, done, total, at=at, count=count):
            if next(count) == at:
                raise StopError

        with pytest.raises(StopError):
            fpstore.build(path, fingerprints, names, progress=progress, **options)
        assert listing(tmp_path) == ["counted", "s"], at
        assert tables_of(path) == old[0]
        with fpstore.open(path) as store:
            assert rows_in_order(store) == old[1]


def test_progress_counts_rows(tmp_path):
    calls = []
    fingerprints, ids = make_rows("duplicates", 3000)
    build(
        tmp_path / "s",
        pieces(fingerprints),
        pieces(ids),
        progress=lambda *a: calls.append(a),
        design="flip-2",
    )
    phases = list(dict.fromkeys(phase for phase, _, _ in calls))
    assert phases == ["reading", "sorting", "tables"]
    for phase in phases:
        done = [d for p, d, _ in calls if p == phase]
        assert done[0] == 0
        assert done == sorted(done)
    totals = {phase: (done, total) for phase, done, total in calls}
    assert totals["reading"] == (3000, None)
    assert totals["sorting"] == (3000, 3000)
    distinct = len(np.unique(fingerprints))
    assert totals["tables"] == (2 * distinct, 2 * distinct)


KILLED = """
    import os, signal, sys, numpy as np, fpstore
    def source():
        yield np.arange(1000, dtype=np.uint64)
        os.kill(os.getpid(), signal.SIGKILL)
    fpstore.build(sys.argv[1], source())
"""


def test_what_a_killed_builder_left_is_removed_by_the_next(tmp_path):
    code, _, _ = run_python(KILLED, tmp_path / "s")
    assert code == -signal.SIGKILL
    (left,) = listing(tmp_path)
    assert left.startswith(".s.tmp-")
    build(tmp_path / "other", [1])
    assert listing(tmp_path) == [left, "other"]
    build(tmp_path / "s", [1])
    assert listing(tmp_path) == ["other", "s"]


LIVING = """
    import sys, numpy as np, fpstore
    def source():
        yield np.arange(1000, dtype=np.uint64)
        print("building", flush=True)
        sys.stdin.readline()
    try:
        fpstore.build(sys.argv[1], source(), overwrite=sys.argv[2] == "overwrite")
        print("built")
    except fpstore.StoreExistsError as error:
        print(error)
"""


@pytest.mark.full
@pytest.mark.parametrize("overwrite", [True, False])
def test_what_a_living_builder_writes_is_left_alone(tmp_path, overwrite):
    process = run_python(LIVING, tmp_path / "s", "overwrite" if overwrite else "keep", wait=False)
    try:
        assert process.stdout.readline() == "building\n"
        build(tmp_path / "s", [1])
        assert len(listing(tmp_path)) == 2
        out, err = process.communicate("\n", timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert err == ""
    assert listing(tmp_path) == ["s"]
    with fpstore.open(tmp_path / "s") as store:
        if overwrite:
            assert (out, len(store)) == ("built\n", 1000)
        else:
            assert "appeared while it was built: nothing was changed" in out
            assert len(store) == 1


INTERRUPTED = """
    import os, signal, sys, threading, numpy as np, fpstore
    sent = []
    def progress(phase, done, total):
        if phase == sys.argv[2] and done and not sent:
            if sys.argv[3] == "worker" and threading.get_ident() == threading.main_thread().ident:
                return
            sent.append(os.kill(os.getpid(), signal.SIGINT))
    keys = np.random.default_rng(1).integers(0, 2**64, 300_000, np.uint64)
    try:
        fpstore.build(sys.argv[1], keys, design="manku-20", threads=2, progress=progress)
    except KeyboardInterrupt:
        while len(sys._current_frames()) > 1:  # a thread that has told its end, and is about to
            os.sched_yield()
        print("interrupted")
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("phase", "thread"),
    [slow("reading", "main"), ("sorting", "main"), slow("tables", "main"), ("tables", "worker")],
)
def test_control_c_leaves_nothing(tmp_path, phase, thread):
    code, out, err = run_python(INTERRUPTED, tmp_path / "s", phase, thread)
    assert (code, out, err) == (0, "interrupted\n", "")
    assert listing(tmp_path) == []
