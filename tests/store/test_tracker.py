"""The tracker by itself.

Which snapshot is current when there are records, merges, renames, forks and exceptions.
"""

import shutil
import threading

import pytest
from background import wait_for_threads
from forks import Child
from store_model import words
from systemcalls import at_first_call

import fpstore
from fpstore.query.delta import Delta
from fpstore.query.generation import Generation
from fpstore.query.tracker import Tracker


def build(path, fingerprints=(1, 2, 3), **options):
    fpstore.build(
        path, words(fingerprints), radius=2, design="flip-2", threads=1, **options
    ).close()
    return path


@pytest.fixture
def path(tmp_path):
    return build(tmp_path / "s")


@pytest.fixture
def tracker(path):
    tracker = Tracker(path)
    yield tracker
    tracker.close()


@pytest.fixture
def writer(path):
    with fpstore.open(path, "r+") as store:
        yield store


def held(snapshot):
    """Return the fingerprints of a snapshot."""
    return [value for fingerprints, *_ in snapshot.items() for value in fingerprints.tolist()]


@pytest.fixture
def during_apply(monkeypatch):
    """Return during(number, do).

    Do something once, when so many records of a tracker are applied and the next one is not.
    """

    def during(number, do):
        original, calls = Delta.apply, []

        def apply(self, change):
            calls.append(change)
            if len(calls) == number + 1:
                do()
            original(self, change)

        monkeypatch.setattr(Delta, "apply", apply)
        return calls

    return during


# --- News -----------------------------------------------------------------------------------------


def test_without_news_the_snapshot_is_the_same(tracker, writer):
    first = tracker.snapshot()
    assert tracker.snapshot() is first
    assert (held(first), first.version) == ([1, 2, 3], 0)
    writer.insert([10])
    second = tracker.snapshot()
    assert tracker.snapshot() is second
    assert (held(second), second.version) == ([1, 2, 3, 10], 1)
    writer.delete(fingerprints=[2])
    assert held(tracker.snapshot()) == [1, 3, 10]
    assert (held(first), held(second)) == ([1, 2, 3], [1, 2, 3, 10])  # each as of its moment
    assert tracker.snapshot().delta is first.delta


# --- A log that is superseded ---------------------------------------------------------------------


def opened_in_the_question(monkeypatch, ask):
    """Return how many generations a question opens in its own thread, and its answer."""
    asking, opened = threading.get_ident(), []
    monkeypatch.setattr(
        "fpstore.query.tracker.Generation",
        lambda *arguments: opened.append(threading.get_ident() == asking) or Generation(*arguments),
    )
    answer = ask()
    monkeypatch.setattr("fpstore.query.tracker.Generation", Generation)
    return sum(opened), answer


@pytest.mark.parametrize("changes", [0, 5])
def test_reader_opens_announced_generation_before_it_is_current(
    path, tracker, writer, monkeypatch, changes
):
    """A question after the switch waits for nothing that could be done before it."""
    writer.insert([10])
    calls, bits = [], tracker.snapshot().delta.bits

    def ask():
        calls.append(opened_in_the_question(monkeypatch, lambda: held(tracker.snapshot())))
        with monkeypatch.context() as patch:
            # a generation that was met is not looked for again
            patch.setattr("fpstore.query.tracker.read_manifest", None)
            calls.append(held(tracker.snapshot()))  # it asks on while another thread opens
        wait_for_threads("open")

    def insert():  # after the merge has begun
        for value in range(changes):
            writer.insert([20 + value])

    with (
        at_first_call("fsync", "manifest.json.tmp", after=insert),
        at_first_call("rename", "/manifest.json", before=ask),
    ):
        writer.merge()
    now = [1, 2, 3, 10, *range(20, 20 + changes)]
    assert calls == [(0, now), now]
    writer.insert([11])
    assert opened_in_the_question(monkeypatch, lambda: held(tracker.snapshot())) == (
        0,
        sorted([*now, 11]),
    )
    assert tracker.manifest.generation.number == 2
    assert tracker.snapshot().delta.bits is bits  # no sample was taken again
    assert not tracker.has_announcement


def test_a_merge_between_the_manifest_and_the_log_is_noticed(path, monkeypatch):
    """The log that is opened is superseded already, and its generation not yet removed."""

    def merge_and_keep_the_old():
        with monkeypatch.context() as patch, fpstore.open(path, "r+") as store:
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            store.redesign("flip-1")
        assert (path / "gen-00000001" / "table-000.fpt").exists()

    with at_first_call("open", "gen-00000001/log", before=merge_and_keep_the_old):
        tracker = Tracker(path)
    assert tracker.manifest.generation.number == 1
    with fpstore.open(path, "r+") as store:
        store.insert([10])
    assert held(tracker.snapshot()) == [1, 2, 3, 10]
    assert tracker.manifest.generation.number == 2
    tracker.close()


# --- Closed, forked -------------------------------------------------------------------------------


def test_a_fork_reads_the_log_again_and_keeps_the_open_files(path, tracker, writer):
    """Also when a thread of the parent was in the middle of a refresh.

    Its lock is held, and the delta may be half changed.
    """
    writer.insert([10])
    before = tracker.snapshot()
    locked, release = threading.Event(), threading.Event()

    def hold():
        with tracker._lock:
            locked.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait()

    def work(pipe):
        snapshot = tracker.snapshot()
        same = snapshot.generation is before.generation, snapshot.delta is before.delta
        pipe.send((same, held(snapshot), held(before)))
        pipe.recv()
        pipe.send(held(tracker.snapshot()))
        pipe.recv()

    child = Child(work)
    release.set()
    thread.join()
    assert child.receive() == ((True, False), [1, 2, 3, 10], [1, 2, 3, 10])
    assert tracker.snapshot() is before
    writer.insert([11])
    writer.merge()
    child.pipe.send("merged")
    assert child.receive() == held(tracker.snapshot()) == [1, 2, 3, 10, 11]
    assert child.end() == 0


# --- Exceptions and handlers ----------------------------------------------------------------------


def test_another_thread_in_the_middle_of_a_refresh_waits_for_it(path, tracker, during_apply):
    """It asks after a change was made, so it may not have the state before."""
    collected, began = [], threading.Event()

    def ask():
        began.set()
        collected.append(held(tracker.snapshot()))

    thread = threading.Thread(target=ask)
    with fpstore.open(path, "r+") as store:
        store.insert([10])

    def start():
        thread.start()
        began.wait()

    during_apply(0, start)
    assert held(tracker.snapshot()) == [1, 2, 3, 10]
    thread.join()
    assert collected == [[1, 2, 3, 10]]
