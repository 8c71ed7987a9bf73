"""Signal handlers that use a store during a call of the same thread, and children of forks."""

import shutil
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from forks import Child
from speeds import crossed
from systemcalls import at_first_call

import fpstore
from fpstore.base.pools import Pool
from fpstore.base.threads import is_held

ROWS = 1 << 13


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
    """Change a store again and again until a handler has been refused in the middle of it.

    Return what it was told.
    """
    messages = []

    def handler(*_):
        try:
            use()
        except fpstore.StoreLockedError as error:
            messages.append(str(error))

    with handled(handler):
        while not messages:
            change()
    return messages[0]


@pytest.fixture
def store(tmp_path):
    with fpstore.build(tmp_path / "s", np.arange(1000, dtype=np.uint64)) as made:
        made.close()
    with fpstore.open(tmp_path / "s", "r+", sync="none") as opened:
        yield opened


@pytest.fixture
def inside(store):
    """Return a function that makes a call only in the middle of a change.

    Elsewhere a handler may change the store.
    """
    return lambda call: call() if is_held(store._writer.turn) else None


@pytest.mark.parametrize("use", ["insert", "probe_insert", "delete", "merge", "flush", "close"])
def test_handler_during_a_change_may_not_change_or_close_store(store, inside, use):
    """It left two documents with one id, and a store that could never be merged."""
    calls = {
        "insert": lambda: store.insert([2**63]),
        "probe_insert": lambda: store.probe_insert(2**62, 2**40),
        "delete": lambda: store.delete(fingerprints=[2**63]),
    }
    rng = np.random.default_rng(1)
    output = until_refused(
        lambda: store.insert(rng.integers(0, 2**61, ROWS, dtype=np.uint64)),
        lambda: inside(calls.get(use, getattr(store, use))),
    )
    assert "in the middle of a change" in output
    assert sum(len(part) for part, _, _ in store.items()) == len(store)
    assert store.verify().ok
    store.merge()
    assert store.verify().ok


@pytest.mark.parametrize("use", ["merge", "close"])
def test_handler_during_a_merge_is_refused_without_a_deadlock(store, use):
    """It would wait for itself."""
    rng = np.random.default_rng(2)

    def change():
        store.insert(rng.integers(0, 2**61, ROWS, dtype=np.uint64))
        store.merge()

    def in_the_merge():
        if store._writer.under_way is not None:
            getattr(store, use)()

    assert "in the middle of a change" in until_refused(change, in_the_merge)
    assert store.verify().ok


SIDE_CALLS = {
    "insert": lambda s: s.insert([2**63 + 1], [7]),
    "delete": lambda s: s.delete(fingerprints=[2**63]),
    "merge": lambda s: s.merge(),
    "close": lambda s: s.close(),
}


def in_a_handler(work):
    """Return a function that raises a signal, whose handler does some work."""

    def come(*_):
        old = signal.signal(signal.SIGUSR1, lambda *_: work())
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, old)

    return come


@pytest.mark.parametrize(("call", "use"), crossed(["flush", "close", "backup"], list(SIDE_CALLS)))
def test_a_handler_in_a_flush_a_close_or_a_backup_is_refused(
    store, tmp_path, monkeypatch, call, use
):
    """Nothing is lost, and nobody waits for himself."""
    path = store.path
    store.insert([2**63], [5])
    refused = []

    def ask():
        try:
            SIDE_CALLS[use](store)
        except fpstore.StoreLockedError as error:
            refused.append(str(error))

    handler = in_a_handler(ask)
    calls = {
        "flush": store.flush,
        "close": store.close,
        "backup": lambda: store.backup(tmp_path / "copy"),
    }
    with at_first_call("fdatasync", "/log", before=handler, after=handler):
        calls[call]()
    assert len(refused) == 2
    assert "in the middle of a change" in refused[0]
    monkeypatch.undo()
    store.close()
    for place in (path, tmp_path / "copy") if call == "backup" else (path,):
        with fpstore.open(place, "r+") as again:
            assert len(again) == 1001
            assert again[2**63] == [5]
            assert again.verify().ok
            again.insert([9], [9])


@pytest.mark.parametrize("use", ["insert", "delete", "merge", "close"])
def test_a_handler_while_a_backup_copies(store, tmp_path, use):
    """The copy is of the moment when it began; all but an end of the store may go on meanwhile."""
    store.insert([2**63], [5])
    done = []

    def ask():
        if not done:
            done.append(use)
            SIDE_CALLS[use](store)

    handler = in_a_handler(ask)
    store.backup(tmp_path / "copy", progress=lambda *_: handler())
    assert done == [use]
    with fpstore.open(tmp_path / "copy", "r+") as copy:
        assert len(copy) == 1001
        assert copy.verify().ok
    store.close()
    with fpstore.open(store.path, "r+") as again:
        assert len(again) == {"insert": 1002, "delete": 1000}.get(use, 1001)
        assert again.verify().ok


@pytest.mark.parametrize(
    ("joined", "use", "threads"),
    crossed(
        [False, True],
        ["close", "merge", "merge if due", "insert", "flush", "delete", "backup"],
        [1, 2],
        share=3,
    ),
)
def test_progress_of_a_merge_may_not_call_what_waits_for_it(store, tmp_path, joined, use, threads):
    """In threads of the merge too: they would wait for each other.

    Only a merge of this store alone goes on beside inserts.
    """
    fpstore.build(tmp_path / "other", [2**62, 2**61], [70, 80]).close()
    store.insert([2**63], [5])
    calls = {
        **SIDE_CALLS,
        "flush": lambda s: s.flush(),
        "backup": lambda s: s.backup(tmp_path / "copy", overwrite=True),
    }
    calls["merge if due"] = lambda s: s.merge(at=0.5)  # also where it is not due
    refused, taken, requests = set(), set(), set()

    def progress(*_):
        requests.add(threading.get_ident())
        try:
            calls[use](store)
        except fpstore.StoreLockedError:
            refused.add(threading.get_ident())
        else:
            taken.add(threading.get_ident())

    if joined:
        store.absorb(tmp_path / "other", progress=progress, threads=threads)
    else:
        store.merge(progress=progress, threads=threads)
    assert requests - {threading.get_ident()}
    if joined or use in ("merge", "merge if due", "close"):
        assert (refused, taken) == (requests, set())
    else:
        assert taken
    assert store.verify().ok
    content = list(store)
    assert len(content) == len(store)
    store.close()
    with fpstore.open(store.path, "r+") as again:
        assert list(again) == content
        assert again.verify().ok


@pytest.mark.parametrize(
    ("call", "use", "inside"),
    crossed(
        ["probe_many", "merge"],
        ["probe_many", "scan", "merge", "merge of another", "build"],
        ["submit", "shutdown"],
        share=3,
    ),
)
def test_a_handler_that_wants_threads_while_threads_are_started(
    store, tmp_path, monkeypatch, call, use, inside
):
    """It waited forever for a lock of the module that starts threads, which its own thread held."""
    queries = np.arange(1024, dtype=np.uint64)
    fpstore.build(tmp_path / "other", [1, 2]).close()
    other = fpstore.open(tmp_path / "other", "r+")
    other.insert([3])
    store.insert([2**63], [5])
    known = len(store.probe_many(queries, threads=1).fingerprints)
    calls, messages = [], []
    uses = {
        "probe_many": lambda: len(store.probe_many(queries, threads=2).fingerprints),
        "scan": lambda: len(store.scan(queries[:600], 1, threads=2)),
        "merge": store.merge,
        "merge of another": other.merge,
        "build": lambda: fpstore.build(
            tmp_path / "built", queries, design="manku-4", threads=2
        ).close(),
    }

    def ask():
        try:
            messages.append(uses[use]())
        except fpstore.StoreLockedError as error:
            messages.append(str(error))

    handler, method = in_a_handler(ask), getattr(Pool, inside)

    def interrupted(*args, **kwargs):
        if not calls and threading.current_thread() is threading.main_thread():
            calls.append(1)
            handler()
        return method(*args, **kwargs)

    monkeypatch.setattr(Pool, inside, interrupted)
    if call == "probe_many":
        assert len(store.probe_many(queries, threads=2).fingerprints) == known
    else:
        store.merge(threads=2)
    assert calls == [1]
    if use == "merge" and call == "merge":
        assert "signal handler" in messages[0]
    else:
        assert messages == [{"probe_many": known, "scan": 600}.get(use)]
    assert (tmp_path / "built").exists() == (use == "build")
    assert store.verify().ok
    assert other.stats()["delta"]["changes"] == (0 if use == "merge of another" else 1)
    other.close()


@pytest.mark.parametrize("how", ["overwritten", "removed"])
def test_child_whose_store_was_replaced_raises_at_every_call(tmp_path, how):
    """The first call said so, and the next ones answered."""
    path = tmp_path / "s"
    fpstore.build(path, [1, 2, 3], ids=[10, 20, 30]).close()
    with fpstore.open(path, "r+") as writer:
        writer.insert([4], [40])
    with fpstore.open(path) as reader:
        assert reader[1] == [10]
        if how == "overwritten":
            fpstore.build(path, [1, 2], ids=[100, 200], overwrite=True).close()
        else:
            shutil.rmtree(path)
        asking = [
            lambda: reader[1],
            lambda: len(reader),
            lambda: reader.probe(1),
            lambda: reader.stats(),
            lambda: 1 in reader,
        ]

        def work(pipe):
            messages = []
            for ask in 2 * asking:
                try:
                    messages.append(repr(ask()))
                except fpstore.FpstoreError as error:
                    messages.append(type(error).__name__)
            reader.close()
            pipe.send(messages)

        child = Child(work)
        assert set(child.receive()) == {"StorageError"}
        assert child.end() == 0
        assert reader[1] == [10]
