"""Ctrl-C in work of other threads and in long work of Python.

Bounded by how much is still done after it.
"""

import os
import signal
import threading

import numpy as np
import pytest
import tableimage
from building import listing, run_python
from speeds import crossed, slow

import fpstore
from fpstore import _kernel
from fpstore.errors import CorruptStoreError
from fpstore.format.packed_table import PackedTable
from fpstore.query import delta

IDENTITY = np.arange(64, dtype=np.uint8)
ROWS = 3 * delta.APPLY_ROWS + 100

# --- Sorts ----------------------------------------------------------------------------------------


def sorts(rows):
    spare = np.empty_like(rows)
    return {
        "sort_keys": lambda stop: _kernel.sort_keys(rows, spare, 64, stop),
        "sort_pairs": lambda stop: _kernel.sort_pairs(rows, spare, stop=stop),
        "count_permuted": lambda stop: _kernel.count_permuted(rows, IDENTITY, 9, stop),
        "scatter_permuted": lambda stop: _kernel.scatter_permuted(
            rows, IDENTITY, 0, 0, np.zeros(1, np.uint64), spare, stop
        ),
        "permute_sort": lambda stop: _kernel.permute_sort(
            rows, IDENTITY[::-1].copy(), spare, np.empty_like(rows), 64, stop
        ),
        "permute_sort by few bits": lambda stop: _kernel.permute_sort(
            rows, IDENTITY, spare, np.empty_like(rows), 9, stop
        ),
        "sort_parts": lambda stop: _kernel.sort_parts(
            rows, spare, np.array([len(rows)], np.uint64), 0, stop
        ),
        "group_numbered": lambda stop: _kernel.group_numbered(
            rows, spare, np.empty_like(rows), stop
        ),
    }


@pytest.mark.parametrize("name", sorts(np.empty(0, np.uint64)))
def test_a_sort_of_another_thread_ends_when_it_is_stopped(name):
    rows = np.random.default_rng(1).integers(0, 2**64, 1 << 18, dtype=np.uint64)
    stop = _kernel.Stop()
    messages = []

    def work():
        try:
            sorts(rows)[name](stop)
        except InterruptedError as error:
            messages.append(str(error))

    for set_before in (False, True):
        if set_before:
            stop.set()
        assert stop.is_set() is set_before
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert messages == ["the call was stopped"]


# The first sort of a worker sends the signal and begins when this process has been told: it is
# handed what ends it, and does.
INTERRUPTED = """
    import os, signal, sys, threading
    import numpy as np
    import fpstore
    from fpstore import _kernel
    from fpstore.building import external_sort as sorting
    from fpstore.building import table_keys

    path, what, name = sys.argv[1:]
    keys = np.random.default_rng(1).integers(0, 2**64, 200_000, dtype=np.uint64)
    if what in ("merge", "redesign"):
        store = fpstore.build(path, keys, design="manku-4")
        store.close()
        store = fpstore.open(path, "r+")
        store.insert(np.random.default_rng(2).integers(0, 2**64, 80_000, dtype=np.uint64))
    if what == "spilled":
        # The least budget holds 50,000 rows; a run has 66,111, and a part more.
        sorting.PAIR_BYTES = sorting.SORT_BYTES = (64 << 20) // 50_000
        table_keys.MIN_MEMORY = 680_000 * (sorting.SORT_BYTES // 2)
    sort, sent, ends = getattr(_kernel, name), threading.Lock(), []

    def interrupted(*arguments):
        stop = arguments[-1]
        if len(arguments[0]) < 1 << 16:  # sorted at once
            return sort(*arguments)
        if sent.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGINT)
        while not stop.is_set():
            pass
        end = "sorted"
        try:
            sort(*arguments)
        except InterruptedError:
            end = "stopped"
            raise
        finally:
            ends.append(end)

    setattr(_kernel, name, interrupted)
    try:
        if what in ("merge", "redesign"):
            store.redesign("manku-20", threads=2) if what == "redesign" else store.merge(threads=2)
        else:
            fpstore.build(path, keys, design="manku-10", threads=2, memory="64MiB")
    except KeyboardInterrupt:
        print("interrupted", sorted(set(ends)), len(sys._current_frames()))
    if what in ("merge", "redesign"):
        print(len(store), store.verify().ok)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("what", "name"),
    [
        slow("build", "permute_sort"),
        slow("spilled", "permute_sort"),
        ("spilled", "sort_keys"),
        slow("merge", "permute_sort"),
        ("redesign", "permute_sort"),
    ],
)
def test_control_c_ends_the_sorts_of_the_threads(tmp_path, what, name):
    code, out, err = run_python(INTERRUPTED, tmp_path / "s", what, name)
    said = "interrupted ['stopped'] 1\n"
    stored = what in ("merge", "redesign")
    assert (code, out, err) == (0, said + "280000 True\n" if stored else said, "")
    assert listing(tmp_path) == (["s"] if stored else [])


# --- Indexes --------------------------------------------------------------------------------------


def table_of(tmp_path, keys):
    path = tmp_path / "table"
    path.write_bytes(tableimage.build(keys, block_bytes=128))
    return path


@pytest.mark.parametrize(
    ("kind", "count"), crossed(["random", "skewed", "dense"], [0, 1, 20, 5000], share=4)
)
def test_an_index_that_is_checked(tmp_path, kind, count):
    """Whole, it passes; with one byte changed in any key or slot it does not."""
    path = table_of(
        tmp_path, tableimage.make_keys(kind, 3, count) if count else np.empty(0, np.uint64)
    )
    table = PackedTable(path, None)
    table.check_index()
    image = bytearray(path.read_bytes())
    rng = np.random.default_rng(1)
    slots = range(table.header.directory_offset, table.header.file_bytes, 8)
    # the last may be greater
    keys = range(table.header.keys_offset, table.header.directory_offset, 8)[:-1]
    for at in [*rng.permutation(slots)[:40].tolist(), *rng.permutation(keys)[:40].tolist()]:
        before = image[at : at + 8]
        image[at : at + 8] = bytes(8) if before != bytes(8) else b"\xff" * 8
        if at >= keys.stop or at >= table.header.keys_offset + 8:
            path.write_bytes(image)
            with pytest.raises(
                CorruptStoreError,
                match=r"key index is out of order|key directory does not match the keys",
            ):
                PackedTable(path, None).check_index()
        image[at : at + 8] = before


# --- Changes --------------------------------------------------------------------------------------


class Interrupting:
    """A delta of the kernel; a signal comes after so many calls of apply."""

    def __init__(self, kernel, calls):
        self._kernel, self._calls = kernel, calls

    def __getattr__(self, name):
        return getattr(self._kernel, name)

    def apply(self, *columns):
        self._kernel.apply(*columns)
        self._calls -= 1
        if not self._calls:
            os.kill(os.getpid(), signal.SIGINT)


def random_words(seed, count=ROWS):
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


@pytest.fixture
def base(tmp_path):
    fpstore.build(tmp_path / "s", random_words(9, 1000), random_words(8, 1000)).close()
    return tmp_path / "s"


def test_control_c_in_an_insert_leaves_the_store_as_it_was(base):
    with fpstore.open(base, "r+") as store:
        store.insert([1, 2], [3, 4])
        known = store.snapshot().delta
        known.kernel = Interrupting(known.kernel, 2)
        rows = random_words(1)
        with pytest.raises(KeyboardInterrupt):
            store.insert(rows, rows)
        assert known.kernel.operations == 2 + 2 * delta.APPLY_ROWS
        assert len(store) == len(list(store)) == 1002
        assert store.probe(int(rows[0]), 0) == []
        assert store.insert([5], [6]) == 1
        assert len(store) == len(list(store)) == 1003
        assert store.verify().ok
        assert store.insert(rows, rows) == ROWS
    with fpstore.open(base) as store:
        assert len(store) == 1003 + ROWS
        assert store.verify().ok


def test_control_c_while_a_large_delta_is_opened(base):
    rows = random_words(1)
    with fpstore.open(base, "r+") as writer:
        writer.insert(rows, rows)
    store = fpstore.open(base)
    known = store.snapshot().delta
    with fpstore.open(base, "r+") as writer:
        writer.insert(rows ^ np.uint64(1), rows)
    known.kernel = Interrupting(known.kernel, 2)
    with pytest.raises(KeyboardInterrupt):
        store.probe(int(rows[0]))
    assert known.kernel.operations == ROWS + 2 * delta.APPLY_ROWS
    assert len(store.probe(int(rows[-1]), 1)) == 2
    assert len(store) == len(list(store)) == 1000 + 2 * ROWS


def test_handler_reads_old_state_while_changes_are_taken_up(tmp_path):
    """It took them up a second time, and each new string had two numbers."""
    rows = random_words(1)
    path = tmp_path / "s"
    fpstore.build(path, [1], ["one"]).close()
    with fpstore.open(path, "r+") as writer:
        writer.insert([2], ["two"])
        with fpstore.open(path) as store:
            known = store.snapshot().delta
            writer.insert(rows, [f"row {i}" for i in range(ROWS)])
            seen = []
            known.kernel = Interrupting(known.kernel, 2)
            old = signal.signal(signal.SIGINT, lambda *_: seen.append(len(store)))
            try:
                assert len(store) == 2 + ROWS
            finally:
                signal.signal(signal.SIGINT, old)
            assert seen == [2]
            writer.insert([3], ["three"])
            assert store[int(rows[-1])] == [f"row {ROWS - 1}"]
            assert store[3] == ["three"]
