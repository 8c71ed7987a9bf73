"""Faults that a writer must not have.

Changes in another store, changes lost at the end of a process, locks kept.
"""

import os
import shutil
import struct
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from background import threads_of, wait_for_threads
from commandline import run
from small_stores import FINGERPRINTS, RNG, build, pairs, rows_of
from speeds import crossed, slow
from store_model import CHANGES
from systemcalls import at_first_call

import fpstore
from fpstore.format.log import end_word


def run_python(script, *arguments):
    """Run a process to its normal end, silently."""
    process = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


# --- Stores that are renamed and replaced ---------------------------------------------------------


def test_a_writer_whose_store_is_renamed_goes_on_in_it(tmp_path):
    a, moved = build(tmp_path / "a", 0, 100), tmp_path / "moved"
    with fpstore.open(a, "r+") as writer, fpstore.open(a) as reader:
        a.rename(moved)
        build(a, 100, 200)
        writer.insert(FINGERPRINTS[200:210], list(range(200, 210)))
        writer.merge(threads=1)
        writer.insert(FINGERPRINTS[210:220], list(range(210, 220)))
        writer.merge(threads=1)
        assert rows_of(writer) == rows_of(reader) == pairs(0, 100) | pairs(200, 220)
        for store, copy in ((writer, tmp_path / "copy"), (reader, tmp_path / "other copy")):
            store.backup(copy)
            with fpstore.open(copy) as copied:
                assert rows_of(copied) == pairs(0, 100) | pairs(200, 220)
    with fpstore.open(a) as store:
        assert rows_of(store) == pairs(100, 200)
        assert store.verify().ok
    with fpstore.open(moved, "r+") as store:
        assert rows_of(store) == pairs(0, 100) | pairs(200, 220)
        assert store.verify().ok


def test_a_store_is_replaced_while_it_is_read(tmp_path):
    """Readers keep what they have opened; whoever opens it anew has the new one."""
    path = build(tmp_path / "s", 0, 100)
    with fpstore.open(path, "r+") as store:
        store.insert(FINGERPRINTS[200:210], list(range(200, 210)))
    with fpstore.open(path) as reader:
        for start in (100, 300):
            build(path, start, start + 50, overwrite=True)
            assert rows_of(reader) == pairs(0, 100) | pairs(200, 210)
            with fpstore.open(path, "r+") as store:
                store.insert(FINGERPRINTS[500:501], [500])
                assert rows_of(store) == pairs(start, start + 50) | pairs(500, 501)
            assert rows_of(reader) == pairs(0, 100) | pairs(200, 210)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["s"]


def test_no_writer_gets_in_while_a_store_is_replaced(tmp_path):
    """From the start to the end of the build, also when nobody has ever written to the store."""
    path = build(tmp_path / "s", 0, 100)
    refused = []

    def parts():
        yield FINGERPRINTS[100:200]
        with fpstore.open(path) as reader:
            assert rows_of(reader) == pairs(0, 100)
        with pytest.raises(fpstore.StoreLockedError) as caught:
            fpstore.open(path, "r+")
        refused.append(str(caught.value))
        yield FINGERPRINTS[200:250]

    fpstore.build(path, parts(), design="flip-2", threads=1, overwrite=True).close()
    assert refused
    with fpstore.open(path, "r+") as store:
        assert len(store) == 150


def test_writer_whose_store_is_replaced_while_locking_is_refused(tmp_path):
    """And it gives the lock back at once, though the error is kept."""
    path = build(tmp_path / "s", 0, 100)

    def replace():
        path.rename(tmp_path / "moved")
        build(path, 100, 200)

    with (
        at_first_call("open", "writer.lock", before=replace),
        pytest.raises(
            fpstore.StoreNotFoundError, match="was replaced while it was opened: open it again"
        ) as caught,
    ):
        fpstore.open(path, "r+")
    for place, start in ((path, 100), (tmp_path / "moved", 0)):
        with fpstore.open(place, "r+") as store:
            assert rows_of(store) == pairs(start, start + 100)
    assert caught.tb is not None


def test_a_writer_that_cannot_be_opened_keeps_nothing(tmp_path, monkeypatch):
    path = build(tmp_path / "s", 0, 100)
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def refuse(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("fpstore.change.writer.StoreWriter", refuse)
        with pytest.raises(MemoryError) as caught:
            fpstore.open(path, "r+")
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert caught.tb is not None  # what it refers to is not collected
    fpstore.open(path, "r+").close()


def test_a_merge_links_the_strings_of_its_own_store(tmp_path):
    a, moved = tmp_path / "a", tmp_path / "moved"
    fpstore.build(a, [1, 2], ["one", "two"], threads=1).close()
    with fpstore.open(a, "r+") as writer:
        a.rename(moved)
        fpstore.build(a, [1, 2], ["eins", "zwei"], threads=1).close()
        writer.insert([3], ["one"])  # no new string: the dictionary is taken over
        writer.merge(threads=1)
        assert rows_of(writer) == {(1, "one"), (2, "two"), (3, "one")}
    for path in (a, moved):
        with fpstore.open(path) as store:
            assert store.verify().ok
            assert len(store) == (3 if path == moved else 2)


# --- Processes that end without closing -----------------------------------------------------------

LEFT_OPEN = """
    import sys, threading
    import numpy as np, fpstore

    path, sync, how = sys.argv[1:]
    fingerprints = np.random.default_rng(17).integers(0, 2**64, 600, np.uint64)
    merge_at = 0.5 if how == "merging" else None
    store = fpstore.open(path, "r+", sync=sync, merge_at=merge_at)
    if how == "merging":
        more = np.random.default_rng(1).integers(0, 2**64, 70_000, np.uint64)
        store.insert(more, np.arange(1_000_000, 1_070_000, dtype=np.uint64))
    for start in range(100, 200, 10):
        store.insert(fingerprints[start : start + 10], list(range(start, start + 10)))
    store.delete(ids=[0])
    if how == "thread":
        thread = threading.Thread(target=lambda: store.probe(1))
        thread.start()
    elif how == "dropped":
        del store
        with fpstore.open(path, "r+") as again:
            assert len(again) == 199
    elif how == "class":
        class Keeper:
            kept = store
    elif how == "cycle":
        store.itself = store
        del store
    elif how == "error":
        sys.exit()
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("sync", "how"),
    crossed(
        ["commit", "batch", "none"],
        ["global", "dropped", "cycle", "class", "thread", "error", "merging"],
        share=7,
    ),
)
def test_a_store_left_without_close_loses_nothing(tmp_path, sync, how):
    """At the normal end of the interpreter, silently.

    No leaks are reported, and the lock is free.
    """
    path = build(tmp_path / "s", 0, 100)
    assert run_python(LEFT_OPEN, path, sync, how) == ""
    with fpstore.open(path, "r+") as store:
        rows = rows_of(store)
        assert pairs(0, 200) - pairs(0, 1) == {row for row in rows if row[1] < 1_000_000}
        assert len(rows) == 199 + (70_000 if how == "merging" else 0)
        log = path / f"gen-{store.stats()['generation']:08d}" / "log"
    # closed: without the space that was made ahead
    assert log.stat().st_size % 4096 or log.stat().st_size < 1 << 16


@pytest.mark.parametrize("sync", [slow("commit"), "batch", slow("none")])
def test_a_writer_that_is_dropped_gives_its_lock_back(tmp_path, sync):
    path = build(tmp_path / "s", 0, 100)
    for round_ in range(3):
        store = fpstore.open(path, "r+", sync=sync)
        store.insert(FINGERPRINTS[100 + round_ : 101 + round_], [100 + round_])
        assert len(threads_of("flush")) == (sync == "batch")
        del store
        wait_for_threads("flush")
    with fpstore.open(path, "r+") as store:
        assert rows_of(store) == pairs(0, 103)


# --- One call is one change -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "count"),
    [
        ("insert", 100_000),
        slow("insert", (1 << 20) + 1000),
        ("probe_insert_many", 50_000),
        slow("probe_insert_many", (1 << 20) + 1000),
    ],
)
def test_a_large_call_is_one_record(tmp_path, how, count):
    """Another process never sees a part of a file, whatever its size.

    Neither does the next writer after a writer that was cut off.
    """
    path = build(tmp_path / "s", 0, 10)
    many = np.unique(RNG.integers(0, 2**64, count + 100, np.uint64))[:count]
    ids = np.arange(1000, 1000 + count, dtype=np.uint64)
    with fpstore.open(path) as reader:
        with fpstore.open(path, "r+") as store:
            if how == "insert":
                assert store.insert(many, ids) == count
            else:
                assert store.probe_insert_many(many, ids, radius=0, threads=1).inserted.all()
            assert len(store) == len(reader) == 10 + count
            assert store.snapshot().version == 1
            assert store.delete(fingerprints=many).removed == count
            assert len(store) == len(reader) == 10
            assert store.snapshot().version == 2
        log = path / "gen-00000001" / "log"
        assert log.read_bytes().count(b"FPCHANGE") == 2
    os.truncate(log, 9 * count)
    # it was durable: it is not cut off silently
    with pytest.raises(fpstore.CorruptStoreError, match="damaged at byte 4096"):
        fpstore.open(path, "r+")
    # as a machine leaves it that stops while the first record is written
    with log.open("r+b") as file:
        file.seek(512)
        file.write(struct.pack("<QQ", end_word(4096), 1))
    for mode in ("r", "r+"):
        with fpstore.open(path, mode) as store:
            assert rows_of(store) == pairs(0, 10)


# --- Wrong use ------------------------------------------------------------------------------------

WRONG = [
    (["insert", "{store}", "{hashes}", "--suffix", ".md"], 2),
    (["insert", "{store}", "{missing}"], None),
    (["insert", "{store}"], 2),
    (["insert", "{store}", "{folder}"], None),
    (["insert", "{store}", "{hashes}", "--sync", "never"], 2),
    (["delete", "{store}"], 2),
    (["delete", "{store}", "--ids", "{missing}"], None),
    (["delete", "{store}", "--input", "{missing}"], None),
    (["absorb", "{store}", "{missing}"], None),
    (["absorb", "{store}", "{store}"], None),
    (["absorb", "{store}", "--renumber"], None),
    (["redesign", "{store}", "nonsense"], None),
]


def test_wrong_use_changes_nothing(tmp_path):
    path = build(tmp_path / "s", 0, 100)
    (tmp_path / "h.tsv").write_text("00000000000000ff\t7000\n")
    (tmp_path / "empty").mkdir()
    names = {
        "store": path,
        "hashes": tmp_path / "h.tsv",
        "missing": tmp_path / "missing.tsv",
        "folder": tmp_path / "empty",
    }
    before = contents(path)
    for arguments, status in WRONG:
        result = run(*(argument.format(**names) for argument in arguments))
        assert result.exit_code in ([status] if status else (1, 2)), arguments
        assert contents(path) == before


def contents(path):
    """Return all files but that of the lock, which says who had it last."""
    return {
        entry: entry.is_file() and entry.read_bytes()
        for entry in path.rglob("*")
        if entry.name != "writer.lock"
    }


# --- Locks and children ---------------------------------------------------------------------------


@pytest.mark.parametrize("times", [15, slow(1500)])
def test_a_store_is_reopened_while_children_are_forked(tmp_path, times):
    """A child between fork and exec has the descriptor of the lock too.

    The owner unlocks, and does not only close.
    """
    path = build(tmp_path / "s", 0, 100)
    end = threading.Event()
    started = []

    def run_children():
        while not end.is_set():
            started.append(subprocess.run(["true"]).returncode)
            child = os.fork()
            if child == 0:
                os._exit(0)
            started.append(os.waitpid(child, 0)[1])

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(run_children) for _ in range(2)]
        try:
            for _ in range(times):
                fpstore.open(path, "r+").close()
        finally:
            end.set()
        for job in jobs:
            job.result()
    assert len(started) > times // 30
    assert not any(started)


@pytest.mark.parametrize("how", ["close", slow("drop"), "kill"])
def test_a_child_that_lives_on_does_not_keep_the_lock(tmp_path, how):
    path = build(tmp_path / "s", 0, 100)
    store = fpstore.open(path, "r+")
    store.insert(FINGERPRINTS[100:101], [100])
    asking, answered = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.read(asking[0], 1)
            with fpstore.open(path) as reader:
                assert rows_of(reader) == pairs(0, 102)
            assert rows_of(store) == pairs(0, 102)  # reads on
            for change in CHANGES.values():
                with pytest.raises(
                    fpstore.ReadOnlyError,
                    match=f"process {os.getppid()}.*only that process may change it",
                ):
                    change(store)
            store.close()
            status = 0
        finally:
            os.write(answered[1], bytes([status]))
            os._exit(status)
    try:
        if how == "close":
            store.close()
        elif how == "drop":
            del store
        elif how == "kill":  # the lock of a dead process, as it is for another one
            other = build(path.with_name("sx"), 0, 10)
            run_python(
                "import fpstore, os, sys; store = fpstore.open(sys.argv[1], 'r+'); os._exit(0)",
                other,
            )
            store.close()
        with fpstore.open(path, "r+") as again:
            again.insert(FINGERPRINTS[101:102], [101])
            os.write(asking[1], b".")
            assert os.read(answered[0], 1) == b"\0"
    finally:
        os.write(asking[1], b".")
        os.waitpid(child, 0)
        for descriptor in (*asking, *answered):
            os.close(descriptor)
    with fpstore.open(path) as store:
        assert rows_of(store) == pairs(0, 102)


@pytest.mark.parametrize(("restored", "sync"), crossed([False, True], ["commit", "batch"]))
def test_writer_of_a_removed_store_acknowledges_nothing(tmp_path, sync, restored):
    """Rows went into files without a name, even when a copy had replaced the store."""
    path = build(tmp_path / "s", 0, 100)
    shutil.copytree(path, tmp_path / "copy")
    store = fpstore.open(path, "r+", sync=sync)
    shutil.rmtree(path)
    if restored:
        (tmp_path / "copy").rename(path)
    if sync == "batch":
        store.insert(FINGERPRINTS[100:101], [100])
        with pytest.raises(fpstore.StorageError, match="was removed or replaced"):
            store.flush()
    else:
        with pytest.raises(fpstore.StorageError, match="was removed or replaced"):
            store.insert(FINGERPRINTS[100:101], [100])
        assert len(store) == 100
        store.close()
    if restored:
        with fpstore.open(path) as other:
            assert len(other) == 100
