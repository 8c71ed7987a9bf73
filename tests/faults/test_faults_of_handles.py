"""Stores that are renamed, dropped, forked, or without open files, and locks that nobody holds."""

import gc
import os
import resource
import threading
import weakref

import pytest
from forks import Child, wait_for
from small_stores import FINGERPRINTS, build, pairs, rows_of
from speeds import crossed, slow
from systemcalls import at_first_call

import fpstore
from fpstore.disk.locks import WriterLock


def test_store_renamed_while_open_absorbs_others_but_not_itself(tmp_path):
    a, moved = tmp_path / "a", tmp_path / "moved"
    build(a, 0, 100)
    build(tmp_path / "other", 100, 110)
    with fpstore.open(a, "r+") as store:
        a.rename(moved)
        store.absorb(tmp_path / "other", threads=1)
        build(a, 200, 210)
        store.absorb(a, threads=1)
        with pytest.raises(fpstore.InputError, match="cannot absorb itself"):
            store.absorb(moved, renumber=True)
        assert rows_of(store) == pairs(0, 110) | pairs(200, 210)


@pytest.mark.full
def test_store_dropped_in_its_own_merge_thread_releases_its_lock(tmp_path, set_limits):
    """The garbage collector may run in any thread.

    A close in that of the merge would wait for itself.
    """
    path = build(tmp_path / "s", 0, 100)
    set_limits(merge_changes=1)
    dropped, collected = threading.Event(), threading.Event()

    def collect():
        assert dropped.wait(30)
        gc.collect()
        collected.set()

    def use():
        store = fpstore.open(path, "r+", merge_at=0.001)
        store.cycle = store
        store.insert(FINGERPRINTS[100:101], [100])
        return weakref.ref(store)

    gc.disable()
    try:
        with at_first_call("mkdir", "gen-00000002.tmp", before=collect):  # by the merge
            reference = use()
            assert reference() is not None
            dropped.set()
            assert collected.wait(30)
    finally:
        gc.enable()
    assert reference() is None
    wait_for(lambda: is_free(path))
    with fpstore.open(path, "r+") as store:
        assert rows_of(store) == pairs(0, 101)


def is_free(path):
    try:
        WriterLock(path).release()
    except fpstore.StoreLockedError:
        return False
    return True


def test_a_lock_that_nobody_holds_is_released(tmp_path):
    """An interrupt may come when the lock is made and nobody has it yet."""
    lock = WriterLock(tmp_path)
    with pytest.raises(fpstore.StoreLockedError):
        WriterLock(tmp_path)
    del lock
    WriterLock(tmp_path).release()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("what", "kind"), crossed(["merged", "renamed"], [list, lambda ids: [f"n{i}" for i in ids]])
)
def test_a_child_reads_ids_of_what_was_merged_away_or_renamed(tmp_path, what, kind):
    path = tmp_path / "s"
    fpstore.build(path, FINGERPRINTS[:100], kind(range(100)), design="flip-1").close()
    with fpstore.open(path) as store:
        matches = store.probe_many(FINGERPRINTS[:5])
        expected = matches.read_ids()
        if what == "renamed":
            path.rename(tmp_path / "moved")
            # which takes its name
            fpstore.build(path, FINGERPRINTS[:100], kind(range(500, 600)), design="flip-1").close()
        child = Child(
            lambda pipe: (pipe.recv(), pipe.send(list(matches.read_ids()[1])), pipe.recv())
        )
        if what == "merged":
            with fpstore.open(path, "r+") as writer:
                writer.delete(fingerprints=FINGERPRINTS[:1])
                writer.merge(threads=1)
        child.pipe.send(None)
        assert child.receive() == list(expected[1]) == list(matches.read_ids()[1])
        child.pipe.send(None)
        child.end()


@pytest.mark.parametrize(
    "file", ["strings.mdb", *map(slow, ("ids.mdb", "numbers.mdb", "places.mdb"))]
)
def test_child_forked_during_a_write_reads_the_file_once_current(tmp_path, file):
    path = tmp_path / "s"
    fpstore.build(path, FINGERPRINTS[:100], [f"n{i}" for i in range(100)]).close()
    merging, go = threading.Event(), threading.Event()

    def progress(*_):
        if (path / "gen-00000002.tmp" / file).exists():
            merging.set()
            assert go.wait(60)

    def asked(pipe):
        reader = fpstore.open(path)
        pipe.send(reader.ids["n7"])
        pipe.recv()
        pipe.send([reader.ids["new"], store.ids["new"], fpstore.open(path).ids["new"]])

    with fpstore.open(path, "r+") as store:
        store.insert(FINGERPRINTS[100:101], ["new"])
        merge = threading.Thread(target=store.merge, kwargs={"progress": progress, "threads": 1})
        merge.start()
        assert merging.wait(60)
        child = Child(asked)
        assert child.receive() == [FINGERPRINTS[7]]
        go.set()
        merge.join()
        child.pipe.send(None)
        assert child.receive() == [[FINGERPRINTS[100]]] * 3
        child.end()


def test_merge_out_of_open_files_does_not_claim_to_be_in_place(tmp_path):
    path = tmp_path / "s"
    build(path, 0, 100)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def use_up():
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))

    with fpstore.open(path, "r+") as store:
        store.insert(FINGERPRINTS[100:101], [100])
        try:
            with (
                at_first_call("open", "manifest.json.tmp", before=use_up),
                pytest.raises(
                    fpstore.StorageError, match=r"Too many open files.*nothing was merged"
                ),
            ):
                store.merge(threads=1)
            store.insert(FINGERPRINTS[101:102], [101])  # which opens no file
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert [entry.name for entry in path.glob("gen-*")] == ["gen-00000001"]
        assert "Too many open files" in store.stats()["merge_error"]
        store.merge(threads=1)
        assert store.stats()["merge_error"] is None
        assert rows_of(store) == pairs(0, 102)
