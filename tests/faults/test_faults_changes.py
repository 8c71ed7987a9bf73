"""A change that is killed at any of its writes, or refused any of them.

What was acknowledged is there, and nothing half done.
"""

import errno
import os

import numpy as np
import pytest
from faultline import ERRORS, MODES, states

import fpstore

# What each scenario defines: build() makes the store and what else there is; steps are [(change,
# model)]: change(store, root) does it, and model(rows) to the expected set of (fingerprint, id).
SETUP = """
import contextlib, ctypes, json, os, signal, numpy as np, fpstore
from inline_pool import InlinePool
from forks import reader as reader_of
from small_stores import content, rows_of
from pathlib import Path
from fpstore.change import merge as merges
from fpstore.change.writer import StoreWriter
from fpstore.building import generation_writer

generation_writer.Pool = InlinePool
rng = np.random.default_rng(3)
fresh = iter(rng.integers(0, 2**64, 4000, np.uint64).tolist())
take = lambda count: [next(fresh) for _ in range(count)]
strings = False
name = lambda number: f"document {number}" if strings else number
started = True  # whether the store was open for writing before
kept = None  # what is in the file after each step, where others see less
opening = {}
EXTRA = (next(fresh), 10**6)
outputs = {}  # stores that the steps make beside it, and which rows they have
resume = lambda acknowledged: min(acknowledged, len(steps) - 1)  # the step to go on with
disarm = ctypes.CDLL(None).fpfault_disarm

def insert(pairs, **options):
    keys, ids = [k for k, _ in pairs], [name(i) for _, i in pairs]
    new = set(zip(keys, ids))
    return lambda store, root: store.insert(keys, ids, **options), lambda rows: rows | new

def build(path, rows, design="flip-2"):
    keys, ids = [k for k, _ in rows], [i for _, i in rows]
    fpstore.build(path, keys, ids, radius=3, design=design, threads=1).close()

def reached():
    return len((root.parent / "acknowledged").read_bytes())

def acknowledge():
    with (root.parent / "acknowledged").open("ab") as file:
        file.write(b".")

def carry_on(store, root, at):
    # Every step may be done again: none changes what is there already.
    for change, _ in steps[at:]:
        change(store, root)

@contextlib.contextmanager
def another_reader(path):
    # A process that has the store open since before; ask() returns what it finds.
    child = reader_of(path, rows_of)
    try:
        yield child.ask
    finally:
        child.end()
"""
BUILT = """
before = [(key, name(number)) for number, key in enumerate(take(60))]
build(root / "s", before)
if started:
    with fpstore.open(root / "s", "r+") as store:
        pass
expected = [set(before)]
def expect():
    for _, model in steps:
        expected.append(model(expected[-1]))
"""
OPERATION = """
path = root / "s"
(root.parent / "acknowledged").write_bytes(b"")
store = fpstore.open(path, "r+", **opening) if started else None
reader = fpstore.open(path)
with another_reader(path) as ask:
    arm()
    finished = False
    try:
        if store is None:
            store = fpstore.open(path, "r+", **opening)
        for change, _ in steps:
            change(store, root)
            acknowledge()
        finished = True
        store.close()
    except fpstore.FpstoreError as error:
        disarm()
        done = reached()
        problem = f"after {done}: {type(error).__name__} {error}"
        now = ask()
        allowed = expected[min(done + ("is in place" in str(error)), len(expected) - 1)]
        assert now == allowed, f"{problem}: +{len(now - allowed)} -{len(allowed - now)} rows"
        assert rows_of(reader) == now, "a reader of this process"
        if store is None:
            store = fpstore.open(path, "r+", **opening)
        if not finished:
            assert rows_of(store) == now or "sync" in opening, problem
            store.insert(EXTRA[0], name(EXTRA[1]), sync="commit")
            assert name(EXTRA[1]) in store[EXTRA[0]]
            assert ask() == rows_of(reader) == rows_of(store), "after the next insert"
            assert EXTRA[0] in reader
            carry_on(store, root, min(done, len(steps) - 1))
            last = expected[-1] | {(EXTRA[0], name(EXTRA[1]))}
            assert ask() == rows_of(reader) == rows_of(store) == last, problem
        store.close()
        report = reader.verify()
        assert report.ok, report.faults
        reader.close()
        raise
    else:
        disarm()
        assert ask() == rows_of(reader) == expected[-1]
        reader.close()
"""
CHECK = """
path = root / "s"
acknowledged = reached()
extra = {(EXTRA[0], name(EXTRA[1]))}
seen = content(path)
found = content(path, "r+")  # which finds what was written and not told
if outcome.kind == "killed":
    this_or_next = slice(acknowledged, acknowledged + 2)
    assert seen in expected[this_or_next], f"acknowledged {acknowledged}: {len(seen)} rows are seen"
    assert found in (kept or expected)[this_or_next], f"acknowledged {acknowledged}: {len(found)}"
    state = "old" if found == expected[0] else "new" if found == expected[-1] else "between"
else:
    assert seen == found
    more = outcome.kind != "ok" and found == expected[-1] | extra
    assert found == expected[-1] or more, len(found)
    state = "new"
if outcome.kind == "error":
    read_only = (outcome.type, outcome.mode) == ("ReadOnlyError", "EROFS")
    assert outcome.type == "StorageError" or read_only, outcome
    assert outcome.message.startswith(str(root)), outcome.message
    assert "\\n" not in outcome.message
for output in outputs:
    if (root / output).exists():
        content(root / output)
assert content(path) == found
with fpstore.open(path, "r+") as store:
    if outcome.kind == "killed":
        carry_on(store, root, resume(acknowledged))
    assert rows_of(store) == expected[-1] | (found & extra)
assert content(path) == expected[-1] | (found & extra)
for output, has in outputs.items():
    wanted = {row for row in expected[-1] | (found & extra) if has(row[0])}
    assert content(root / output) == wanted, output
here = sorted(os.listdir(path))
generations = [entry for entry in here if entry.startswith("gen-")]
assert len(generations) == 1 and here == [generations[0], "manifest.json", "writer.lock"], here
files = os.listdir(path / generations[0])
files = {entry for entry in files if not entry.startswith(("table-", "filter-"))}
of_ids = {"strings.mdb", "hashes.fpt", "numbers.mdb", "places.fpt", "places.mdb"}
assert files - of_ids == {"ids.mdb", "log"}, files
for folder in (path, path / generations[0], root, root / "out"):
    left = [entry for entry in os.listdir(folder) if ".tmp" in entry] if folder.exists() else []
    assert not left or outcome.call in ("unlink", "unlinkat", "rmdir"), left
"""
CHANGES = """
fresh_keys = take(30)
centre = next(fresh)
old = [k for k, _ in before]
steps = [
    insert([(k, 100 + i) for i, k in enumerate(fresh_keys)]),
    insert([(old[0], 7777)]),
    (lambda store, root: store.probe_insert(centre, name(500)),
     lambda rows: rows | {(centre, name(500))}),
    (lambda store, root: store.probe_insert_many(
        [centre ^ 1, centre ^ (63 << 40)], [name(501), name(502)]),
     lambda rows: rows | {(centre ^ (63 << 40), name(502))}),
    (lambda store, root: store.probe_upsert(old[20] ^ (63 << 40), name(20)),
     lambda rows: {row for row in rows if row[1] != name(20)} | {(old[20] ^ (63 << 40), name(20))}),
    (lambda store, root: store.probe_upsert(centre ^ 3, name(22)),
     lambda rows: {row for row in rows if row[1] != name(22)}),
    (lambda store, root: store.probe_upsert_many(
        [old[30] ^ (63 << 40), centre ^ 5, centre ^ (63 << 20), old[31] ^ (63 << 40)],
        [name(n) for n in (30, 31, 503, 30)]),
     lambda rows: {row for row in rows if row[1] not in (name(30), name(31))}
     | {(old[31] ^ (63 << 40), name(30)), (centre ^ (63 << 20), name(503))}),
    (lambda store, root: store.delete(ids=[name(3), name(101), name(7777)]),
     lambda rows: {row for row in rows if row[1] not in (name(3), name(101), name(7777))}),
    (lambda store, root: store.delete(fingerprints=[old[9], fresh_keys[4]]),
     lambda rows: {row for row in rows if row[0] not in (old[9], fresh_keys[4])}),
]
expect()
"""
FIRST = """
steps = [insert([(next(fresh), 100)])]
expect()
"""
# What others see after each step; what is in the file outlives the process.
BATCH = """
opening = {"sync": "none"}
parts = [[(k, 100 * p + i) for i, k in enumerate(take(5))] for p in range(1, 3)]
steps = [insert(parts[0]), insert(parts[1]), (lambda store, root: store.flush(), None)]
expected = [expected[0]] * 3 + [expected[0] | {(k, name(i)) for k, i in parts[0] + parts[1]}]
kept = [expected[0], expected[0] | {(k, name(i)) for k, i in parts[0]}, expected[3], expected[3]]
resume = lambda acknowledged: 0
"""
# The delta adds, removes and wipes, also ids of fingerprints that stay.
DELTA = """
old = [k for k, _ in before]
first = [(k, 200 + i) for i, k in enumerate(take(20))]
second = [(k, 300 + i) for i, k in enumerate(take(10))]
with fpstore.open(root / "s", "r+") as store:
    added = [*first, (old[0], 900), (old[1], 901)]
    store.insert([k for k, _ in added], [name(i) for _, i in added])
    store.delete(ids=[name(1), name(900)])
    store.delete(fingerprints=[old[5], first[3][0]])
    expected = [rows_of(store)]
merge = (lambda store, root: store.merge(threads=1), lambda rows: rows)
steps = [merge]
"""
MERGE = (
    DELTA
    + """
steps += [insert([(next(fresh), 700)]), merge]
expect()
"""
)
# While the merge is under way: strings that are new, one that has no number any more, and one that
# is in use.
MEANWHILE = (
    DELTA
    + """
more = [(k, name(i)) for k, i in second] + [(old[5], name(5)), (old[8], name(8))]
gone = [old[7], second[2][0]]
asked, written = StoreWriter.merge, merges.Merge._write
def merge(self, *arguments, **how):
    merges.Merge.writer = self
    asked(self, *arguments, **how)
def write(self, *arguments):
    found = written(self, *arguments)
    with self.writer.turn:
        ids = [i for _, i in more] if strings else np.array([i for _, i in more], np.uint64)
        self.writer.insert(np.array([k for k, _ in more], np.uint64), ids, "commit")
        acknowledge()
        self.writer.delete_fingerprints(np.array(gone, np.uint64), "commit")
        acknowledge()
    return found
StoreWriter.merge, merges.Merge._write = merge, write
expected.append(expected[0] | set(more))
expected.append({row for row in expected[1] if row[0] not in gone})
expected.append(expected[2])
"""
)
OTHERS = (
    DELTA
    + """
others = {}
for other, design in (("same", "flip-2"), ("different", "manku-4")):
    rows = [(k, name(5000 + i)) for i, k in enumerate(take(30))] + [(old[2], name(6000))]
    build(root / other, rows, design)
    others[other] = set(rows)
with fpstore.open(root / "same", "r+") as store:
    store.insert([old[3]], [name(6001)])
    others["same"].add((old[3], name(6001)))
join = lambda store, root: store.absorb(root / "same", root / "different", threads=1)
steps = [(join, lambda rows: rows.union(*others.values()))]
expect()
"""
)
SPLIT = (
    DELTA
    + """
def split(store, root):
    store.split(root / "out", 1, overwrite=True, threads=1)
steps = [(split, lambda rows: rows)]
outputs = {"out/0.fps": lambda key: not key >> 63, "out/1.fps": lambda key: key >> 63}
expect()
"""
)
BACKUP = (
    DELTA
    + """
steps = [(lambda store, root: store.backup(root / "copy", overwrite=True), lambda rows: rows)]
outputs = {"copy": lambda key: True}
expect()
"""
)
STRINGS = "strings = True\n"
FEWER = ("kill", "EIO")
ALL = (*MODES, "EROFS", "ENOSPC-from", "EIO-from")
KILLS = ("kill", "kill-after", "torn")


def check_outcomes(outcomes):
    assert outcomes[0].kind == "ok"
    for o in outcomes[1:]:
        # it did not succeed: there was no such file
        missing = o.mode == "kill-after" and o.call.startswith("unlink")
        assert (o.kind == "killed") == (o.mode in KILLS) or (missing and o.kind == "ok"), o


@pytest.mark.full
@pytest.mark.parametrize(
    ("texts", "modes", "every"),
    [
        pytest.param(BUILT + CHANGES, ("kill", "torn", *ERRORS), 41, id="changes"),
        pytest.param(
            STRINGS + BUILT + CHANGES, FEWER, 37, id="changes of strings", marks=pytest.mark.slow
        ),
        pytest.param(
            "started = False\n" + BUILT + FIRST, ("kill", "torn", *ERRORS), 43, id="first"
        ),
        pytest.param(BUILT + BATCH, ("kill", *ERRORS), 37, id="batch"),
        pytest.param(BUILT + MERGE, FEWER, 79, id="merge"),
        pytest.param(STRINGS + BUILT + MEANWHILE, FEWER, 89, id="changes in a merge"),
        pytest.param(BUILT + OTHERS, FEWER, 83, id="others"),
        pytest.param(STRINGS + BUILT + SPLIT, FEWER, 131, id="split"),
        pytest.param(BUILT + BACKUP, FEWER, 61, id="backup"),
    ],
)
def test_a_fault_at_calls_of_a_change(sweep, texts, modes, every):
    _, outcomes = sweep(SETUP + texts, OPERATION, CHECK, modes, every)
    check_outcomes(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", STRINGS], ids=["integers", "strings"])
@pytest.mark.parametrize(
    ("change", "every"),
    [(CHANGES, 1), (BATCH, 1), (MERGE, 1), (MEANWHILE, 2), (OTHERS, 2), (SPLIT, 3), (BACKUP, 1)],
)
def test_a_fault_of_any_kind_at_any_call_of_a_change(sweep, kind, change, every):
    _, outcomes = sweep(SETUP + kind + BUILT + change, OPERATION, CHECK, ALL, every)
    check_outcomes(outcomes)
    assert states(outcomes, "killed") >= ({"old"} if change in (SPLIT, BACKUP) else {"old", "new"})


@pytest.mark.slow
def test_a_fault_of_any_kind_at_the_first_opening(sweep):
    _, outcomes = sweep(SETUP + "started = False\n" + BUILT + FIRST, OPERATION, CHECK, ALL)
    check_outcomes(outcomes)


def test_a_sync_that_is_refused_after_it_was_made(tmp_path, monkeypatch):
    """The change has not happened, also for who opens the store later; the next one is made."""
    path = tmp_path / "s"
    rows = np.random.default_rng(1).integers(0, 2**64, 100, np.uint64)
    fpstore.build(path, rows).close()
    refusals = []

    def refusing(call):
        def refuse_once(*arguments):
            done = call(*arguments)
            if refusals:
                refusals.pop()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return done

        return refuse_once

    monkeypatch.setattr(os, "fdatasync", refusing(os.fdatasync))
    monkeypatch.setattr(os, "pwritev", refusing(os.pwritev))  # writes and syncs in one call
    with fpstore.open(path, "r+") as store, fpstore.open(path) as reader:
        for change in (
            lambda: store.insert([5]),
            lambda: store.probe_insert_many([6], [200]),
            lambda: store.delete(ids=3),
        ):
            refusals.append(1)
            with pytest.raises(fpstore.StorageError, match="Input/output error"):
                change()
            assert len(store) == len(reader) == 100
        store.insert([7], [300])
        assert len(store) == len(reader) == 101
        store.insert([8], [301], sync="none")
        refusals.append(1)
        with pytest.raises(fpstore.StorageError, match="Input/output error"):
            store.flush()
        assert 8 in store
        assert 8 not in reader
        store.flush()
        assert 8 in reader
        assert store.verify().ok
    with fpstore.open(path, "r+") as store:
        assert len(store) == 102
        assert 5 not in store
        assert store.verify().ok


def test_group_that_failed_to_sync_comes_before_the_next_change(tmp_path, monkeypatch, set_limits):
    """The changes of a group are made, but not yet durable.

    So only the next change can be refused.
    """
    set_limits(commit_rows={"none": 2})
    path = tmp_path / "s"
    fpstore.build(path, [1, 2, 3]).close()

    def refuse(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with fpstore.open(path, "r+", sync="none") as store, fpstore.open(path) as reader:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", refuse)
            assert store.insert([5, 6]) == 2
            for _ in range(2):
                with pytest.raises(fpstore.StorageError, match="Input/output error"):
                    store.insert([7])
            assert (len(store), len(reader)) == (5, 3)
        store.insert([8])
        assert (len(store), len(reader)) == (6, 5)
