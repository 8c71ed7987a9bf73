"""Others see what a writer does: when, in which processes, and what is left when it is killed."""

import os
import signal
import threading
import time

import pytest
from background import wait_for_threads
from disks import held_files
from forks import Child, reader, wait_for
from store_model import content_of, words
from systemcalls import at_first_call

import fpstore
from fpstore.change import merge
from fpstore.change.committer import Committer
from fpstore.format.log_writer import LogWriter


@pytest.fixture
def path(tmp_path):
    fpstore.build(
        tmp_path / "s.fps", words([1, 2, 3]), radius=2, design="flip-2", block_bytes=128
    ).close()
    return tmp_path / "s.fps"


# --- When others see what -------------------------------------------------------------------------


def seen(store, *fingerprints):
    return [fingerprint in store for fingerprint in fingerprints]


def test_commits_are_seen_at_once(path):
    child = reader(path, seen)
    with fpstore.open(path) as near, fpstore.open(path, "r+") as store:
        for value in range(100, 130):
            store.insert(value)
            assert seen(near, value) == child.ask(value) == [True]
            store.delete(fingerprints=value - 1)
            assert seen(near, value - 1, value) == child.ask(value - 1, value) == [False, True]
            if value % 10 == 0:
                store.merge()
    assert child.end() == 0


def test_batches_are_seen_a_little_later(path):
    child = reader(path, seen)
    with fpstore.open(path, "r+", sync="batch") as store:
        started = time.monotonic()
        store.insert([100, 101])
        assert seen(store, 100, 101) == [True, True]
        now = child.ask(100, 101)
        if time.monotonic() - started < 0.09:
            assert now == [False, False]
        wait_for(lambda: child.ask(100, 101) == [True, True])
        store.insert(words(range(200, 10_200)))
        assert child.ask(200, 10_199) == [True, True]
    assert child.end() == 0


def test_without_sync_they_are_seen_after_a_flush(path):
    child = reader(path, seen)
    with fpstore.open(path, "r+", sync="none") as store:
        store.insert(100)
        store.delete(fingerprints=1)
        time.sleep(0.2)
        assert child.ask(1, 100) == [True, False]
        store.flush()
        assert child.ask(1, 100) == [False, True]
        store.insert(101)
        store.insert(102, sync="commit")  # what came before comes with it
        assert child.ask(101, 102) == [True, True]
        store.insert(103)
        store.merge()
        assert child.ask(103) == [True]
        store.insert(104)
    assert child.ask(104) == [True]
    assert child.end() == 0


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_a_commit_of_what_is_so_already_makes_it_durable(path, set_limits, sync):
    """It returned at once, though what it rests on could still be lost with the machine."""
    set_limits(commit_seconds=1000.0)
    with fpstore.open(path, "r+") as store, fpstore.open(path) as other:
        for value, change in enumerate(
            (
                lambda value: store.insert([value], [value], sync="commit"),
                lambda value: store.probe_insert(value, value, sync="commit"),
                lambda value: store.probe_insert(value, value, always=True, sync="commit"),
                lambda value: store.probe_insert_many([value], [value], sync="commit"),
                lambda value: store.delete(fingerprints=[value - 1], sync="commit"),
                lambda value: store.delete(ids=[value - 1], sync="commit"),
            ),
            2**40,
        ):
            store.insert(
                [value - 1, value], [value - 1, value], sync="commit" if value == 2**40 else sync
            )
            store.insert(value, value, sync=sync)
            store.delete(fingerprints=value - 1, sync=sync)
            store.insert(value + 2**50, value + 2**50, sync=sync)
            assert seen(other, value + 2**50) == [False]
            change(value)
            assert seen(other, value - 1, value, value + 2**50) == [False, True, True]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sync", ["commit", "none"])
def test_unpublished_rows_of_killed_writer_wait_for_next_writer(path, sync):
    """Only a writer can make it durable: docs/guides/operating.md, "Durability"."""

    def work(pipe):
        store = fpstore.open(path, "r+", sync=sync)
        store.insert(100, sync="commit")
        # With "commit", the process dies when the record is written and synced, and nobody has been
        # told.
        with at_first_call("pwritev", "/log", after=lambda: os.kill(os.getpid(), signal.SIGKILL)):
            store.insert(101)
        pipe.send("returned")
        pipe.recv()

    with fpstore.open(path) as before:
        child = Child(work)
        if sync == "none":
            assert child.receive() == "returned"
        else:
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.kill() == []
        with fpstore.open(path) as after:
            assert seen(before, 100, 101) == seen(after, 100, 101) == [True, False]
            assert len(before) == len(after) == 4
            assert after.verify().ok
            after.backup(path.with_name("copy.fps"))
            with fpstore.open(path, "r+") as store:
                assert seen(before, 100, 101) == seen(after, 100, 101) == [True, True]
                store.insert(102)  # which does not overwrite it
                assert content_of(store) == content_of(before) == content_of(after)
                assert (len(store), store.verify().ok) == (6, True)
    with fpstore.open(path.with_name("copy.fps"), "r+") as copy:
        assert seen(copy, 100, 101) == [True, False]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sync", ["commit", "batch", "none"])
def test_a_killed_process_loses_nothing(path, sync):
    """What was inserted is in the file when the call returns.

    Only when the machine stops, sync decides what is lost.
    """

    def work(pipe):
        store = fpstore.open(path, "r+", sync=sync)
        store.insert(words(range(100, 200)), sync="commit")
        for value in range(200, 220):
            store.insert([value, value + 1000])
            pipe.send(value)
        pipe.recv()

    child = Child(work)
    while child.receive() < 219:
        pass
    child.kill()
    with fpstore.open(path, "r+") as store:
        assert seen(store, *range(200, 220), *range(1200, 1220)) == [True] * 40
        assert len(store) == 3 + 100 + 40
        assert store.verify().ok


def test_a_batch_is_inserted_whole_or_not_at_all(path):
    def work(pipe):
        store = fpstore.open(path, "r+")
        pipe.send("open")
        for start in range(1 << 20, 1 << 30, 1 << 20):
            store.insert(words(range(start, start + 3000)))

    for pause in (0.001, 0.004, 0.01):
        child = Child(work)
        child.receive()
        time.sleep(pause)
        child.kill()
        with fpstore.open(path, "r+") as store:
            assert len(store) % 3000 == 3
            assert store.verify().ok
            store.delete(fingerprints=words(value for value in content_of(store) if value > 3))


# --- One writer -----------------------------------------------------------------------------------


def test_there_is_one_writer(path):
    def work(pipe):
        with fpstore.open(path, "r+") as store:
            store.insert(1000)
            pipe.send("open")
            pipe.recv()

    child = Child(work)
    child.receive()
    with pytest.raises(
        fpstore.StoreLockedError, match=f"process {child.pid} has it open for writing"
    ):
        fpstore.open(path, "r+")
    with fpstore.open(path) as store:  # readers are welcome
        assert 1000 in store
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    with fpstore.open(path, "r+") as store:
        assert 1000 in store
        own = "this process has it open .* use the store that is open"
        with pytest.raises(fpstore.StoreLockedError, match=own):
            fpstore.open(path, "r+")
        (path / "writer.lock").write_text("")  # as while another process notes its number
        for locked in (
            lambda: fpstore.open(path, "r+"),
            lambda: fpstore.repair(path, in_place=True),
        ):
            with pytest.raises(fpstore.StoreLockedError, match=": another process has it open for"):
                locked()
        store.insert(1001)
    fpstore.open(path, "r+").close()


@pytest.mark.full
def test_a_fork_in_the_middle_of_changes_can_close(path):
    with fpstore.open(path, "r+", sync="none") as store:
        stop = threading.Event()

        def change():
            for value in range(100, 10**6):
                if stop.is_set():
                    return
                store.insert(value, sync="commit" if value % 3 == 0 else None)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(12):
                child = Child(
                    lambda pipe: (pipe.send(1 in store), store.close(), pipe.send("closed"))
                )
                assert child.receive(20) is True
                assert child.receive(20) == "closed"
                assert child.end() == 0
        finally:
            stop.set()
            thread.join()


# --- A writer that dies between its commit and telling of it --------------------------------------


def die_instead_of(owner, name):
    """Have this process die where it would make a call."""
    setattr(owner, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))


def kill_in_a_merge(path, other, owner, name):
    """Insert 50 in another process that merges when this store has seen it, killed at a call."""

    def work(pipe):
        store = fpstore.open(path, "r+")
        store.insert(50)
        pipe.recv()
        die_instead_of(owner, name)
        store.merge()

    child = Child(work)
    wait_for(lambda: seen(other, 50) == [True])
    child.pipe.send("go")
    assert os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) == -signal.SIGKILL


def test_merge_announced_by_a_dead_writer_never_becomes_current(path):
    with fpstore.open(path) as other:
        kill_in_a_merge(path, other, merge, "publish_manifest")
        assert sorted(entry.name for entry in path.glob("*.json*")) == [
            "manifest.json",
            "manifest.json.tmp",
        ]
        for _ in range(2):
            assert seen(other, 50) == [True]
        wait_for_threads("open")
        assert any("/gen-00000002/" in name for name in held_files(path))
        with fpstore.open(path) as later, fpstore.open(path, "r+") as store:
            assert (
                other.stats()["generation"]
                == store.stats()["generation"]
                == later.stats()["generation"]
                == 1
            )
            assert [entry.name for entry in path.glob("gen-*")] == ["gen-00000001"]
            store.insert(101)
            assert (
                seen(store, 50, 101) == seen(other, 50, 101) == seen(later, 50, 101) == [True, True]
            )
            store.merge()
            store.insert(102)
            assert other.stats()["generation"] == 2
            assert content_of(store) == content_of(other) == content_of(later)
            assert store.verify().ok


@pytest.mark.sampled(1)
@pytest.mark.parametrize("told", ["before this process has it", "after this process has it"])
def test_a_merge_that_a_dead_writer_did_not_tell_of(path, told):
    with fpstore.open(path) as other:
        kill_in_a_merge(
            path,
            other,
            *(
                (Committer, "switch")
                if told == "before this process has it"
                else (LogWriter, "close")
            ),
        )
        assert other.stats()["generation"] == 2
        assert seen(other, 50) == [True]
        with fpstore.open(path, "r+") as store:
            assert store.stats()["generation"] == 2
            assert [entry.name for entry in path.glob("gen-*")] == ["gen-00000002"]
            store.insert(101)
            assert seen(store, 50, 101) == seen(other, 50, 101) == [True, True]
            assert store.verify().ok
            store.merge()
            assert other.stats()["generation"] == 3
