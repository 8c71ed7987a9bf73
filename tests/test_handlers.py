"""Signal handlers that use a store in the middle of a call of the same thread, and children of a fork."""

import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest

import fpstore
from fpstore.threads import is_held

ROWS = 1 << 18


@contextmanager
def handled(handler):
    """Run a handler after a millisecond, again and again."""
    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def until_refused(change, use):
    """Change a store again and again until a handler has been refused in the middle of it; return what it was told."""
    told = []

    def handler(*_):
        try:
            use()
        except fpstore.StoreLockedError as error:
            told.append(str(error))

    with handled(handler):
        while not told:
            change()
    return told[0]


@pytest.fixture
def store(tmp_path):
    with fpstore.build(tmp_path / "s", np.arange(1000, dtype=np.uint64)) as made:
        made.close()
    with fpstore.open(tmp_path / "s", "r+", sync="none") as opened:
        yield opened


@pytest.fixture
def inside(store):
    """Return a function that makes a call only in the middle of a change: elsewhere a handler may change the store."""
    return lambda call: call() if is_held(store._writer.turn) else None


@pytest.mark.parametrize("use", ["insert", "probe_insert", "delete", "merge", "flush", "close"])
def test_a_handler_in_the_middle_of_a_change_may_not_change_or_close_the_store(store, inside, use):
    """It left two documents with one id, and a store that could never be merged."""
    calls = {
        "insert": lambda: store.insert([2**63]),
        "probe_insert": lambda: store.probe_insert(2**62, 2**40),
        "delete": lambda: store.delete(fingerprints=[2**63]),
    }
    rng = np.random.default_rng(1)
    told = until_refused(
        lambda: store.insert(rng.integers(0, 2**61, ROWS, dtype=np.uint64)),
        lambda: inside(calls.get(use, getattr(store, use))),
    )
    assert "in the middle of a change" in told
    assert len(list(store)) == len(store)
    assert store.verify().ok
    store.merge()
    assert store.verify().ok


@pytest.mark.parametrize("use", ["merge", "close"])
def test_a_handler_in_the_middle_of_a_merge_is_refused_and_does_not_wait_for_itself(store, use):
    rng = np.random.default_rng(2)

    def change():
        store.insert(rng.integers(0, 2**61, ROWS, dtype=np.uint64))
        store.merge()

    def in_the_merge():
        if store._writer.merge_under_way is not None:
            getattr(store, use)()

    assert "in the middle of a change" in until_refused(change, in_the_merge)
    assert store.verify().ok


def test_a_child_never_answers_from_a_store_that_took_the_name(tmp_path):
    path = tmp_path / "s"
    fpstore.build(path, [1, 2, 3], ids=[10, 20, 30]).close()
    with fpstore.open(path, "r+") as writer:
        writer.insert([4], [40])
    reader = fpstore.open(path)
    assert reader[1] == [10]
    path.rename(tmp_path / "moved")
    fpstore.build(path, [1, 2], ids=[100, 200]).close()
    with fpstore.open(path, "r+") as writer:
        writer.insert([5], [500])
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = repr(reader[1])
        except fpstore.StorageError as error:
            answer = str(error)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        answer = told.read()
    assert os.waitpid(child, 0)[1] == 0
    assert "was replaced" in answer
    assert reader[1] == [10]
    reader.close()
