"""Ctrl-C in the middle of changes.

The store and this process hold the same afterwards, and the thread may go on.
"""

import signal
import threading
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from speeds import crossed
from store_model import Model, content_of, words

import fpstore
from fpstore.change import merge as merging
from fpstore.change import writer as writing
from fpstore.change.committer import Committer
from fpstore.format.log_writer import LogWriter
from fpstore.query.delta import Delta
from fpstore.query.tracker import Tracker

CALLS = {
    "append": LogWriter,
    "sync_records": LogWriter,
    "publish": LogWriter,
    "take_back": LogWriter,
    "apply": Delta,
    "note_strings": Delta,
    "show": Tracker,
}
IDS = {"integer": list(range(100)), "string": [f"document {i}" for i in range(100)]}
CHANGES = {
    "insert": lambda s, ids: s.insert([1000, 1001], ids[50:52]),
    "probe_insert": lambda s, ids: s.probe_insert(1000, ids[50], 0),
    "probe_insert_many": lambda s, ids: s.probe_insert_many(words([1000, 1001]), ids[50:52], 0),
    "probe_upsert_many": lambda s, ids: s.probe_upsert_many(
        words([1 << 40, 1000, 1001]), [ids[50], ids[50], ids[51]], 0
    ),
    "delete": lambda s, ids: s.delete(ids=ids[3:5]),
}


def after(kind, change):
    """Return what the store holds after a change."""
    model, ids = Model(kind, zip([i << 20 for i in range(20)], IDS[kind], strict=False)), IDS[kind]
    model.insert([10, 11], ids[30:32])
    if change == "delete":
        model.delete_ids(ids[3:5])
    elif change == "probe_insert":
        model.insert([1000], ids[50:51])
    elif change is not None:
        model.insert([1000, 1001], ids[50:52])
    return model


@contextmanager
def interrupted(owner, name, moment):
    """Have SIGINT come inside a call of this thread, once, before or after its work.

    Yield the list of the times it came.
    """
    original, came = getattr(owner, name), []

    def come():
        if not came and threading.current_thread() is threading.main_thread():
            came.append(name)
            signal.raise_signal(signal.SIGINT)

    def call(*args, **kwargs):
        if moment == "before":
            come()
        result = original(*args, **kwargs)
        come()
        return result

    setattr(owner, name, call)
    try:
        yield came
    finally:
        setattr(owner, name, original)


def check_goes_on(path, store, models, reader=None):
    """Check that the store holds one of the models, and that all can be done with it still."""
    content = content_of(store)
    results = [model for model in models if model.content == content]
    assert results, content
    model = results[0]
    ids = IDS[model.kind]
    if reader is not None:
        assert content_of(reader) == content
    for rows, part in (([2000, 2001], ids[60:62]), ([2002], ids[50:51])):
        assert store.insert(rows, part) == model.insert(rows, part)
    store.probe_insert(2003, ids[63], 0)
    model.insert([2003], [ids[63]])
    assert content_of(store) == model.content
    assert store.verify().ok
    store.flush()
    with fpstore.open(path) as other:
        assert content_of(other) == model.content
    store.delete(ids=ids[60])
    model.delete_ids([ids[60]])
    store.merge()
    assert content_of(store) == model.content
    if reader is not None:
        assert content_of(reader) == model.content
    assert store.verify().ok
    store.close()
    with fpstore.open(path, "r+") as again:
        assert content_of(again) == model.content
        assert again.verify().ok


def build(path, kind):
    fpstore.build(path, words(i << 20 for i in range(20)), IDS[kind][:20], design="flip-2").close()
    with fpstore.open(path, "r+") as store:
        store.insert([10, 11], IDS[kind][30:32])
    return path


@pytest.mark.parametrize(
    ("sync", "kind", "change", "name", "moment"),
    crossed(
        ["commit", "batch"], list(IDS), list(CHANGES), list(CALLS), ["before", "after"], share=14
    ),
)
def test_control_c_between_the_commit_and_memory(tmp_path, sync, kind, change, name, moment):
    """Other strings were found under a number, or verify failed."""
    owner = CALLS[name]
    path = build(tmp_path / "s", kind)
    with fpstore.open(path, "r+", sync=sync) as store, fpstore.open(path) as reader:
        with interrupted(owner, name, moment) as came, suppress(KeyboardInterrupt):
            CHANGES[change](store, IDS[kind])
        assert came == [name] or name in (
            "sync_records",
            "publish",
            "note_strings",
            "apply",
            "take_back",
        )
        store.flush()
        check_goes_on(path, store, [after(kind, None), after(kind, change)], reader)


@pytest.mark.parametrize(
    ("kind", "name"), crossed(list(IDS), ["append", "sync_records", "apply", "publish", "show"])
)
def test_a_second_control_c_while_the_first_is_met(tmp_path, kind, name):
    """The change is taken back, or taken up anew; that is interrupted too."""
    path = build(tmp_path / "s", kind)
    with fpstore.open(path, "r+") as store:
        with (
            interrupted(Committer, "recover", "before"),
            interrupted(LogWriter, "take_back", "before"),
            interrupted(CALLS[name], name, "after"),
            suppress(KeyboardInterrupt),
        ):
            CHANGES["insert"](store, IDS[kind])
        store.flush()  # whether it has happened is known when the store is settled
        check_goes_on(path, store, [after(kind, None), after(kind, "insert")])


@pytest.mark.parametrize(("kind", "moment"), crossed(list(IDS), ["before", "after"]))
def test_second_control_c_while_unlogged_rows_are_taken_back(tmp_path, kind, moment):
    path = build(tmp_path / "s", kind)
    with fpstore.open(path, "r+") as store:
        with (
            interrupted(writing, "probe_insert_in_order", "after") as first,
            interrupted(Tracker, "_take", moment) as second,
            suppress(KeyboardInterrupt),
        ):
            CHANGES["probe_insert_many"](store, IDS[kind])
        assert first
        assert second
        check_goes_on(path, store, [after(kind, None)])


CALLS_OF_A_MERGE = {
    "prepare_manifest": merging,
    "publish_manifest": merging,
    "Committer.switch": Committer,
    "Tracker.switch": Tracker,
    "show": Tracker,
    "supersede": LogWriter,
    "close": LogWriter,
    "remove_generation": merging,
    "create_log": merging,
}


@pytest.mark.parametrize(
    ("kind", "name", "moment"),
    crossed(list(IDS), list(CALLS_OF_A_MERGE), ["before", "after"], share=4),
)
def test_control_c_where_a_merge_makes_its_generation_current(tmp_path, kind, name, moment):
    owner, name = CALLS_OF_A_MERGE[name], name.rpartition(".")[2]
    path = build(tmp_path / "s", kind)
    with fpstore.open(path, "r+") as store, fpstore.open(path) as reader:
        with interrupted(owner, name, moment) as came, suppress(KeyboardInterrupt):
            store.merge()
        assert came == [name]
        assert content_of(store) == content_of(reader) == after(kind, None).content
        assert store.stats()["generation"] == reader.stats()["generation"]
        check_goes_on(path, store, [after(kind, None)], reader)


@pytest.mark.parametrize(("name", "moment"), crossed(["flush", "settle"], ["before", "after"]))
def test_control_c_while_a_store_is_closed(tmp_path, name, moment):
    """It is closed by the next try, and nobody is locked out."""
    path = build(tmp_path / "s", "integer")
    store = fpstore.open(path, "r+", sync="none")
    store.insert([1000, 1001], [50, 51])
    with interrupted(Committer, name, moment), pytest.raises(KeyboardInterrupt):
        store.close()
    store.close()
    with fpstore.open(path, "r+") as again:
        check_goes_on(path, again, [after("integer", "insert")])


def interrupt_often(work, count, seconds):
    """Repeat some work until SIGINTs of a timer have raised KeyboardInterrupt so many times."""
    armed, came = False, 0

    def stop(*_):
        nonlocal armed, came
        if armed:
            armed, came = False, came + 1
            raise KeyboardInterrupt

    def until_interrupted():
        while armed:  # an interrupt in a finalizer is printed and not raised
            work()

    old = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        while came < count:
            try:
                armed = True
                until_interrupted()
            except KeyboardInterrupt:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


# a file that was being opened
@pytest.mark.sampled(1)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("what", "sync", "kind"),
    crossed(
        ["insert", "probe_insert", "probe_insert_many", "delete", "flush", "merge"],
        ["commit", "batch", "none"],
        list(IDS),
        share=6,
    ),
)
def test_interrupts_anywhere_lock_nobody_out(tmp_path, what, sync, kind):
    """A note that a thread is in the middle of a change could stay behind.

    Then it could change the store no more.
    """
    path = build(tmp_path / "s", kind)
    rng = np.random.default_rng(1)
    name = str if kind == "string" else int
    calls = {
        "insert": lambda s, f: s.insert([f, f ^ 1], [name(f), name(f + 1)]),
        "probe_insert": lambda s, f: s.probe_insert(f, name(f)),
        "probe_insert_many": lambda s, f: s.probe_insert_many(
            [f, f ^ 1], [name(f), name(f + 1)], threads=1
        ),
        "delete": lambda s, f: (s.insert(f, name(f)), s.delete(fingerprints=[f])),
        "flush": lambda s, f: (s.insert(f, name(f)), s.flush()),
        "merge": lambda s, f: (s.insert(f, name(f)), s.merge(threads=1)),
    }
    count = 20 if what == "merge" else 200
    with fpstore.open(path, "r+", sync=sync) as store:
        fingerprints = iter(rng.integers(2**62, 2**63, 10**6).tolist())
        interrupt_often(
            lambda: calls[what](store, next(fingerprints)),
            count,
            0.003 if what == "merge" else 0.0003,
        )
        before = len(store)
        store.insert(12345, name(12345))
        assert len(store) == before + 1
        store.flush()
        content = content_of(store)
        assert store.verify().ok
        with fpstore.open(path) as other:
            assert content_of(other) == content
        store.merge()
        assert content_of(store) == content
        assert store.verify().ok
    with fpstore.open(path, "r+") as again:
        assert content_of(again) == content
        assert again.verify().ok
