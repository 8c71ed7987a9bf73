"""The tracker by itself: which snapshot is current when there are records, merges, renames, forks and exceptions."""

import errno
import os
import shutil
import signal
import threading

import pytest
from living import Child, words
from repairing import flip

import fpstore
from fpstore.change import merge
from fpstore.format.log import END, SUPERSEDED, LogReader
from fpstore.format.log_writer import supersede_log
from fpstore.format.manifest import prepare_manifest, publish_manifest
from fpstore.query.delta import Delta
from fpstore.query.generation import Generation
from fpstore.query.tracker import Tracker, _trackers


def build(path, fingerprints=(1, 2, 3), **options):
    fpstore.build(path, words(fingerprints), radius=2, design="flip-2", threads=1, **options).close()
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
    """Return during(number, do): do something once, when so many records of a tracker are applied and the next one is not."""

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


# --- News -------------------------------------------------------------------------------------------


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


def test_each_record_is_applied_once(tracker, writer, during_apply):
    writer.insert([10])
    tracker.snapshot()
    applied = during_apply(99, None)
    writer.insert([11])
    of_the_writer = len(applied)
    snapshot = tracker.snapshot()
    assert [change.fingerprints.tolist() for change in applied[of_the_writer:]] == [[11]]
    assert snapshot.version == tracker.watched()["log"]["records"] == 2
    tracker.snapshot()
    assert len(applied) == of_the_writer + 1


def test_a_tracker_that_comes_later_reads_all_records(path, writer):
    for value in (10, 11, 12):
        writer.insert([value])
    writer.delete(fingerprints=[1, 11])
    tracker = Tracker(path)
    assert held(tracker.snapshot()) == [2, 3, 10, 12]
    assert tracker.watched()["log"]["records"] == 4
    writer.insert([13])
    assert held(tracker.snapshot()) == [2, 3, 10, 12, 13]
    tracker.close()


def test_the_writer_shows_its_own_snapshots(path):
    tracker = Tracker(path)
    mine = tracker.snapshot()
    tracker.show(mine)
    with fpstore.open(path, "r+") as store:
        store.insert([10])
    assert tracker.snapshot() is mine
    other = Tracker(path)
    tracker.show(other.snapshot())
    assert tracker.snapshot() is other.snapshot()
    other.close()
    tracker.close()


# --- A log that is superseded -----------------------------------------------------------------------


def test_a_superseded_log_leads_to_the_next_generation(path, tracker, writer):
    old = tracker.snapshot()
    os.utime(path / "manifest.json", (0, 0))
    since = tracker.watched()["generation_since"]
    writer.insert([10])
    writer.merge()
    writer.insert([11])
    snapshot = tracker.snapshot()
    assert (held(snapshot), snapshot.version) == ([1, 2, 3, 10, 11], 1)
    assert tracker.manifest.generation.number == snapshot.generation.record.number == 2
    assert tracker.watched()["log"]["records"] == 1
    assert since == 0 < tracker.watched()["generation_since"]
    assert held(old) == [1, 2, 3]  # whoever is asking still has its files
    for value in (12, 13):  # two generations behind
        writer.insert([value])
        writer.merge()
    assert held(tracker.snapshot()) == [1, 2, 3, 10, 11, 12, 13]
    assert tracker.manifest.generation.number == 4


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
def test_a_reader_opens_a_generation_that_is_announced_before_it_is_current(path, tracker, writer, monkeypatch, changes):
    """A question after the switch waits for nothing that could be done before it."""
    writer.insert([10])
    asked, bits = [], tracker.snapshot().delta.bits

    def publish(folder):
        asked.append(opened_in_the_question(monkeypatch, lambda: held(tracker.snapshot())))
        with monkeypatch.context() as patch:
            patch.setattr("fpstore.query.tracker.read_manifest", None)  # a generation that was met is not looked for again
            asked.append(held(tracker.snapshot()))  # it asks on while another thread opens
        tracker._coming._worker.wait()
        publish_manifest(folder)

    def copied(folder, manifest):
        prepare_manifest(folder, manifest)
        for value in range(changes):  # after the merge has begun
            writer.insert([20 + value])

    monkeypatch.setattr(merge, "prepare_manifest", copied)
    monkeypatch.setattr(merge, "publish_manifest", publish)
    writer.merge()
    now = [1, 2, 3, 10, *range(20, 20 + changes)]
    assert asked == [(0, now), now]
    writer.insert([11])
    assert opened_in_the_question(monkeypatch, lambda: held(tracker.snapshot())) == (0, sorted([*now, 11]))
    assert tracker.manifest.generation.number == 2
    assert tracker.snapshot().delta.bits is bits  # no sample was taken again
    assert tracker._coming is None


def test_a_merge_that_fails_after_it_was_announced_leaves_readers_where_they_are(path, tracker, writer, monkeypatch):
    def refuse(folder):
        assert held(tracker.snapshot()) == [1, 2, 3, 10]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer.insert([10])
    with monkeypatch.context() as patch:
        patch.setattr(merge, "publish_manifest", refuse)
        with pytest.raises(fpstore.StorageError, match="nothing was merged"):
            writer.merge()
    assert not tracker.log.word & SUPERSEDED
    assert {entry.name for entry in path.iterdir()} >= {"gen-00000001", "manifest.json", "merge.error"}
    assert not [*path.glob("gen-00000002*"), *path.glob("manifest.json.*")]
    first = tracker.snapshot()
    assert tracker.snapshot() is first
    assert tracker._coming is None  # its files, which were removed, are not kept open
    writer.insert([11])
    assert held(tracker.snapshot()) == [1, 2, 3, 10, 11]
    writer.merge()
    writer.insert([12])
    assert held(tracker.snapshot()) == [1, 2, 3, 10, 11, 12]
    assert tracker.manifest.generation.number == 2


def test_a_superseded_log_without_another_generation_is_read_on(path, tracker):
    """Of a store that was replaced as a whole, whoever has it open reads what there is."""
    with fpstore.open(path, "r+") as store:
        store.insert([10])
        store.insert([11])
    log = tracker.log.path
    with log.open("r+b") as file:
        file.seek(8 * END)
        file.write((tracker.log.word | SUPERSEDED).to_bytes(8, "little"))
    first = tracker.snapshot()
    assert (held(first), tracker.manifest.generation.number) == ([1, 2, 3, 10, 11], 1)
    assert tracker.snapshot() is first
    later = Tracker(path)
    assert held(later.snapshot()) == [1, 2, 3, 10, 11]
    later.close()


def test_a_merge_between_the_manifest_and_the_log_is_noticed(path, monkeypatch):
    """The log that is opened is superseded already, and its generation not yet removed."""
    merges = []

    def opened(*arguments):
        if not merges:
            merges.append(path)
            with monkeypatch.context() as patch, fpstore.open(path, "r+") as store:
                patch.setattr("fpstore.change.committer.remove_tree", lambda folder: None)
                store.redesign("flip-1")
        return LogReader(*arguments)

    monkeypatch.setattr("fpstore.query.tracker.LogReader", opened)
    tracker = Tracker(path)
    assert tracker.manifest.generation.number == 1
    with fpstore.open(path, "r+") as store:
        store.insert([10])
    assert held(tracker.snapshot()) == [1, 2, 3, 10]
    assert tracker.manifest.generation.number == 2
    tracker.close()


@pytest.mark.parametrize("news", [False, True])
def test_a_store_that_is_replaced(path, tracker, writer, news):
    if news:
        writer.insert([10])
    writer.close()
    build(path, [7, 8], overwrite=True)
    for _ in range(2):
        assert held(tracker.snapshot()) == ([1, 2, 3, 10] if news else [1, 2, 3])
    assert not tracker.is_same()
    for ask in (tracker.check_same, tracker.here):
        with pytest.raises(fpstore.StorageError, match=r"s: was replaced or removed: open the store again"):
            ask()
    later = Tracker(path)
    assert held(later.snapshot()) == [7, 8]
    assert later.is_same()
    later.close()


# --- Folders ----------------------------------------------------------------------------------------


def test_a_store_that_is_renamed_is_followed(path, tracker, tmp_path):
    moved = tmp_path / "moved"
    assert (tracker.here(), tracker.is_same()) == (path, True)
    assert tracker.inside().samefile(path)
    path.rename(moved)
    build(path, [7, 8])
    with fpstore.open(moved, "r+") as store:
        store.insert([10])
        assert held(tracker.snapshot()) == [1, 2, 3, 10]
        store.merge()
        store.insert([11])
        assert held(tracker.snapshot()) == [1, 2, 3, 10, 11]
    assert (tracker.here(), tracker.is_same()) == (moved, False)
    assert tracker.inside().samefile(moved)
    with pytest.raises(fpstore.StorageError, match="was replaced or removed"):
        tracker.check_same()


def test_a_store_that_is_removed_is_read_on(path, tracker):
    snapshot = tracker.snapshot()
    supersede_log(tracker.log.path)  # as whoever removes a generation does
    shutil.rmtree(path)
    assert held(tracker.snapshot()) == [1, 2, 3]
    assert tracker.snapshot().generation is snapshot.generation
    assert not tracker.is_same()
    tracker.after_fork()  # nothing is left to be opened again
    with pytest.raises(fpstore.StorageError, match="was replaced or removed"):
        tracker.snapshot()


def test_what_cannot_be_opened_leaves_no_descriptor(path, tmp_path):
    before, known = sorted(os.listdir("/proc/self/fd")), len(_trackers)  # noqa: PTH208
    for name, error, said in (
        (tmp_path / "missing", fpstore.StoreNotFoundError, "no such store"),
        (tmp_path, fpstore.StoreNotFoundError, "not an fpstore store"),
        (path, fpstore.CorruptStoreError, "table-001"),
    ):
        flip(path / "gen-00000001" / "table-001.fpt", 40)
        with pytest.raises(error, match=said):
            Tracker(name)
        flip(path / "gen-00000001" / "table-001.fpt", 40)
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert len(_trackers) == known


# --- Closed, forked ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [None, ["a", "b", "c"]])
def test_a_closed_tracker_says_so_and_gives_everything_back(tmp_path, ids):
    path = build(tmp_path / "s", ids=ids)
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    tracker = Tracker(path)
    with fpstore.open(path, "r+") as writer:
        writer.insert([10], ids and ["d"])
    snapshot = tracker.snapshot()
    tracker.close()
    tracker.close()
    for _ in range(2):
        with pytest.raises(fpstore.ClosedStoreError, match="the store is closed"):
            tracker.snapshot()
    with pytest.raises(fpstore.ClosedStoreError):
        held(snapshot)
    del snapshot  # its delta has the identity table
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_fork_reads_the_log_again_and_keeps_the_open_files(path, tracker, writer):
    """Also when a thread of the parent was in the middle of a refresh: its lock is held, and the delta may be half changed."""
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


# --- Exceptions and handlers ------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_interrupt_between_records_loses_and_repeats_nothing(path, tracker, during_apply, monkeypatch, number):
    monkeypatch.setattr("fpstore.format.log.PIECE_BYTES", 64)  # else these records are applied as one
    first = tracker.snapshot()
    with fpstore.open(path, "r+") as store:
        store.insert([10])
        store.insert([10, 11])
        store.delete(fingerprints=[1])
    during_apply(number, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        tracker.snapshot()
    assert held(first) == [1, 2, 3]
    snapshot = tracker.snapshot()
    assert (held(snapshot), snapshot.version) == ([2, 3, 10, 11], 3)
    assert snapshot.delta is not first.delta  # of which some had been applied
    assert snapshot.generation is first.generation
    with fpstore.open(path, "r+") as store:
        store.insert([12])
    assert held(tracker.snapshot()) == [2, 3, 10, 11, 12]
    assert (held(snapshot), held(first)) == ([2, 3, 10, 11], [1, 2, 3])


def test_a_handler_in_the_middle_of_a_refresh_has_the_state_before_it(path, tracker, during_apply):
    before, found = tracker.snapshot(), []
    with fpstore.open(path, "r+") as store:
        store.insert([10])
    old = signal.signal(signal.SIGUSR1, lambda *_: found.append(tracker.snapshot()))
    try:
        during_apply(0, lambda: signal.raise_signal(signal.SIGUSR1))
        after = tracker.snapshot()
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert found == [before]
    assert held(after) == [1, 2, 3, 10]
    assert tracker.snapshot() is after


def test_another_thread_in_the_middle_of_a_refresh_waits_for_it(path, tracker, during_apply):
    """It asks after a change was made, so it may not have the state before."""
    found, began = [], threading.Event()

    def ask():
        began.set()
        found.append(held(tracker.snapshot()))

    thread = threading.Thread(target=ask)
    with fpstore.open(path, "r+") as store:
        store.insert([10])

    def start():
        thread.start()
        began.wait()

    during_apply(0, start)
    assert held(tracker.snapshot()) == [1, 2, 3, 10]
    thread.join()
    assert found == [[1, 2, 3, 10]]
