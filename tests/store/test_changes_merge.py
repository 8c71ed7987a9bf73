"""Merges: what they leave, what goes on beside them, and how they end early."""

import errno
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from background import threads_of
from forks import wait_for
from sets import make_set
from speeds import crossed
from store_model import Model, check_merged, content_of, words
from systemcalls import at_calls, failing_calls

import fpstore
from fpstore.building.generation_writer import TrackedWork
from fpstore.change.merge import Merge

OPTIONS = {"radius": 3, "design": "flip-2", "block_bytes": 128, "filter": True}


def build(path, fingerprints, ids=None):
    fpstore.build(path, words(fingerprints), ids, **OPTIONS).close()
    return path


@pytest.fixture
def path(tmp_path):
    return build(tmp_path / "s.fps", make_set("families"))


@pytest.fixture
def named(tmp_path):
    return build(tmp_path / "n.fps", range(0, 6000, 100), [f"n{i}" for i in range(60)])


def listing(path):
    return sorted(entry.name for entry in path.rglob("*") if not entry.name.endswith("-lock"))


class Hold:
    """Stops a merge at one place until it may go on."""

    def __init__(self, monkeypatch, owner, name, before=False):
        self.reached, self.go = threading.Event(), threading.Event()
        original = getattr(owner, name)

        def held(*args, **kwargs):
            if before:
                self.stop()
            result = original(*args, **kwargs)
            if not before:
                self.stop()
            return result

        monkeypatch.setattr(owner, name, held)

    def stop(self):
        if not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(30)


def in_a_thread(work):
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


# --- What is left ---------------------------------------------------------------------------------


def test_nothing_is_left_of_the_old_generation(path):
    with fpstore.open(path, "r+") as store:
        assert "gen-00000001" in listing(path)
        for number in range(2, 6):
            store.insert([number])
            store.merge()
            files = [
                "ids.mdb",
                "log",
                "table-000.fpt",
                "table-001.fpt",
                "filter-000.fpf",
                "filter-001.fpf",
            ]
            assert listing(path) == sorted(
                [f"gen-{number:08}", *files, "manifest.json", "writer.lock"]
            )
            assert store.stats()["generation"] == number
            assert store.stats()["delta"]["changes"] == 0


def test_a_merge_of_nothing_does_nothing(path):
    with fpstore.open(path, "r+") as store:
        store.merge()
        assert store.stats()["generation"] == 1
        store.insert(make_set("families")[:5], range(5))  # all known
        store.merge()
        assert store.stats()["generation"] == 1


def test_changes_that_cancel_out_are_merged(path):
    before = listing(path)
    with fpstore.open(path, "r+") as store:
        content = content_of(store)
        store.insert(12345)
        store.delete(fingerprints=12345)
        store.merge()
        assert content_of(store) == content
        assert store.verify().ok
        assert len(listing(path)) == len(before)


def test_a_merge_reports_its_progress(path):
    messages = []
    with fpstore.open(path, "r+") as store:
        store.insert([1, 2, 3])
        store.merge(progress=lambda *step: messages.append(step), threads=1)
        phases = {phase for phase, _, _ in messages}
        assert phases == {"merging"}
        assert messages[-1][1] == messages[-1][2] == 2 * len(store)


def test_what_a_dead_writer_left_is_removed(path):
    with fpstore.open(path, "r+") as store:
        store.insert(1)
    before = listing(path)
    for name in ("gen-00000002", "gen-00000002.tmp", "gen-00000007.tmp"):
        (path / name).mkdir()
        (path / name / "table-000.fpt").write_bytes(b"x")
    (path / "manifest.json.tmp").write_bytes(b"x")
    with fpstore.open(path) as store:
        assert 1 in store
    with fpstore.open(path, "r+") as store:
        assert listing(path) == before
        store.merge()
        assert 1 in store


# --- Beside a merge -------------------------------------------------------------------------------

PLACES = {
    "before the write": (Merge, "_write", True),
    "after the write": (Merge, "_write", False),
    "before the log": ("fpstore.change.merge", "create_log", True),
    "after the first copy": (Merge, "_copy_log", False),
}


def hold(monkeypatch, place):
    owner, name, before = PLACES[place]
    if isinstance(owner, str):
        import fpstore.change.merge as owner
    return Hold(monkeypatch, owner, name, before)


@pytest.mark.parametrize(("place", "sync"), crossed(list(PLACES), ["commit", "batch", "none"]))
def test_changes_during_a_merge_are_kept(tmp_path, path, monkeypatch, place, sync):
    stored = make_set("families")
    model = Model("row", zip(stored.tolist(), range(len(stored)), strict=True), len(stored))
    held = hold(monkeypatch, place)
    with fpstore.open(path, "r+", sync=sync) as store, fpstore.open(path) as other:
        for s in (store, model):
            s.insert([1, 2, 3])
        store.delete(ids=[0, 1])
        model.delete_ids([0, 1])
        merging = in_a_thread(store.merge)
        assert held.reached.wait(30)
        for s in (store, model):
            s.insert([4, 5, int(stored[0])])
        for gone in ([1, 4], stored[5:20].tolist()):
            store.delete(fingerprints=words(gone))
            model.delete_fingerprints(gone)
        assert content_of(store) == model.content
        assert store.stats()["generation"] == 1
        held.go.set()
        merging.result(60)
        assert store.stats()["generation"] == 2
        store.flush()
        for s in (store, other):
            assert content_of(s) == model.content
            assert s.verify().ok
        store.insert(9)
        model.insert([9])
        store.merge()
        assert content_of(other) == model.content
        check_merged(path, model, store, tmp_path)
    with fpstore.open(path) as again:
        assert content_of(again) == model.content


@pytest.mark.parametrize(
    ("place", "again"), crossed(list(PLACES), [["n0", "new", "n58", "n2"], ["n59"]])
)
def test_strings_that_come_into_use_again_during_a_merge(named, monkeypatch, place, again):
    held = hold(monkeypatch, place)
    gone = [*(f"n{i}" for i in range(0, 60, 2)), "n59"]
    with fpstore.open(named, "r+") as store, fpstore.open(named) as other:
        assert store.delete(ids=gone).removed == 31
        merging = in_a_thread(store.merge)
        assert held.reached.wait(30)
        inserted = dict(zip([7, 8, 9, 100], again, strict=False))
        assert store.insert([*inserted], again) == len(again)
        held.go.set()
        merging.result(60)
        wanted = {100 * i: {f"n{i}"} for i in range(1, 59, 2)}
        for fingerprint, name in inserted.items():
            wanted.setdefault(fingerprint, set()).add(name)
        for _ in range(2):
            for s in (store, other):
                assert content_of(s) == wanted
                assert s.ids[again[0]] == [7]
                assert "n4" not in s.ids
                assert s.verify().ok
            store.insert(7, "n1")
            wanted[7] = {again[0], "n1"}
            store.merge()


LONG = random.Random(3).randbytes(30_000).hex()  # which does not compress much


def test_strings_out_of_use_are_dropped_and_may_come_again(named):
    with fpstore.open(named, "r+") as store, fpstore.open(named) as other:
        store.insert(1, LONG)
        store.merge()
        large = store.stats()["bytes"]["total"]
        assert other[1] == [LONG]
        store.delete(ids=[LONG, "n3"])
        store.merge()
        assert store.stats()["bytes"]["total"] < large - 25_000
        assert store.insert(300, "n3") == 1
        assert store.insert(301, "n3") == 1
        assert other.ids["n3"] == [300, 301]
        store.merge()
        assert other[300] == store[301] == ["n3"]
        assert store.verify().ok
        store.delete(fingerprints=words(content_of(store)))
        store.merge()
        assert content_of(other) == {}
        assert store.insert(5, "n3") == 1
        assert other[5] == ["n3"]


def test_a_dictionary_that_is_in_use_is_taken_over(named):
    with fpstore.open(named, "r+") as store:
        store.insert(1, "more")
        store.merge()
        files = [next(named.glob("gen-*/strings.mdb")).stat().st_ino]
        for value in (2, 3):
            store.insert(value, "more")
            store.merge()
            files.append(next(named.glob("gen-*/strings.mdb")).stat().st_ino)
            assert store[value] == ["more"]
            assert store.verify().ok
    assert len(set(files)) == 1


# --- In the background ----------------------------------------------------------------------------


def test_merges_in_the_background(path, set_limits):
    set_limits(merge_changes=50)
    with fpstore.open(path, "r+", merge_at=0.1) as store, fpstore.open(path) as other:
        before = len(store)
        for value in range(1000, 1400):
            store.insert(value)
        wait_for(lambda: store.stats()["generation"] > 1)
        assert (len(store), len(other)) == (before + 400, before + 400)
        store.delete(fingerprints=words(range(1000, 1400)))
        assert len(other) == before
    with fpstore.open(path) as store:
        assert len(store) == before
        assert store.verify().ok
    assert sum(name.startswith("gen-") for name in listing(path)) == 1


def test_a_merge_of_a_delta_that_is_large_enough(path, set_limits):
    set_limits(merge_changes=50)
    with fpstore.open(path, "r+") as store:
        count = len(store)
        for at, inserted, generation in (
            (0.1, 49, 1),
            (60 / count, 10, 1),
            (0.1, 1, 2),
            (0.1, 0, 2),
            (0.01, 49, 2),
            (0.01, 1, 3),
        ):
            store.insert(words(range(len(store), len(store) + inserted)))
            store.merge(at=at)
            assert store.stats()["generation"] == generation
        with pytest.raises(fpstore.InputError, match=r"^at "):
            store.merge(at=0)


def test_merge_of_a_large_delta_waits_for_a_background_merge(path, monkeypatch, set_limits):
    set_limits(merge_changes=50)
    held = hold(monkeypatch, "before the write")
    with fpstore.open(path, "r+", merge_at=0.01) as store:
        store.insert(words(range(1000, 1100)))
        assert held.reached.wait(30)
        waiting = in_a_thread(lambda: store.merge(at=0.01))
        held.go.set()
        waiting.result(60)
        assert store.stats()["generation"] == 2


@pytest.mark.parametrize("background", [True, False])
def test_closing_gives_up_a_merge(path, monkeypatch, set_limits, background):
    set_limits(merge_changes=50)
    reached = threading.Event()
    original = TrackedWork.tick

    def slow(self, rows=0):
        reached.set()
        time.sleep(0.3)
        original(self, rows)

    monkeypatch.setattr(TrackedWork, "tick", slow)
    store = fpstore.open(path, "r+", merge_at=0.01 if background else None)
    before = len(store)
    store.insert(words(range(1000, 1100)))
    merging = None if background else in_a_thread(store.merge)
    assert reached.wait(30)
    store.insert(5)
    assert len(threads_of("merge")) == background
    store.close()
    if merging is not None:
        with pytest.raises(fpstore.ClosedStoreError, match="closed during a merge"):
            merging.result(60)
    assert [name for name in listing(path) if name.startswith("gen-")] == ["gen-00000001"]
    assert threads_of("merge") == []
    monkeypatch.undo()
    with fpstore.open(path, "r+") as again:
        assert len(again) == before + 101
        again.merge()
        assert again.verify().ok


def test_two_merges_take_turns(path, monkeypatch):
    held = hold(monkeypatch, "before the write")
    with fpstore.open(path, "r+") as store:
        store.insert(1)
        first = in_a_thread(store.merge)
        assert held.reached.wait(30)
        second = in_a_thread(store.merge)
        store.insert(2)
        held.go.set()
        first.result(60)
        second.result(60)
        assert store.stats()["generation"] == 3
        assert 1 in store
        assert 2 in store


def is_for_writing(_, flags, *__, **___):
    return flags & os.O_RDWR


def test_join_that_cannot_be_taken_up_is_seen_by_its_own_process(tmp_path, path):
    """It is current, but the disk refuses everything from then on.

    The writer answers as every other process does.
    """
    build(tmp_path / "more", [1, 2], [10**6, 10**6 + 1])
    with fpstore.open(path, "r+") as store, fpstore.open(path) as other:
        expected = content_of(store) | {1: {10**6}, 2: {10**6 + 1}}
        with ExitStack() as stack:

            def rename_and_fill_the_disk(rename):
                rename()
                writes = failing_calls(
                    "open", "/log", when=lambda _, flags, *__, **___: flags & os.O_RDWR
                )
                stack.enter_context(writes)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            stack.enter_context(at_calls("rename", rename_and_fill_the_disk, "/manifest.json"))
            with pytest.raises(fpstore.StorageError, match="the new generation is in place"):
                store.absorb(tmp_path / "more")
            assert content_of(store) == content_of(other) == expected
            with pytest.raises(fpstore.StorageError, match="No space left"):
                store.insert(3, 5)
            assert content_of(store) == content_of(other) == expected
        store.insert(3, 5)
        assert 3 in store
        assert 3 in other
        assert store.verify().ok


# --- No memory -----------------------------------------------------------------------------------


def test_change_without_memory_loses_no_queued_change(path, monkeypatch):
    with fpstore.open(path, "r+", sync="none") as store, fpstore.open(path) as other:
        store.insert([1, 2, 3])
        store.delete(fingerprints=2)
        content = content_of(store)

        original = fpstore.query.delta.Delta.apply
        failures = [MemoryError()]

        def fail_once(self, *args, **kwargs):
            if failures:
                raise failures.pop()
            original(self, *args, **kwargs)

        monkeypatch.setattr("fpstore.query.delta.Delta.apply", fail_once)
        with pytest.raises(MemoryError):
            store.insert(5)
        assert content_of(store) == content
        store.flush()
        assert content_of(other) == content
