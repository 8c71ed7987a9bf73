"""Readers of a store that changes.

In threads, after other processes died, many at once, and for a long time.
"""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from forks import Child, reader
from sets import make_set
from speeds import slow
from store_model import content_of, words

import fpstore

OPTIONS = {"radius": 2, "design": "flip-2", "block_bytes": 128}


def build(path, fingerprints, ids=None, **options):
    fpstore.build(path, words(fingerprints), ids, **OPTIONS, **options).close()
    return path


@pytest.fixture
def path(tmp_path):
    return build(tmp_path / "s.fps", make_set("families"))


def seen(store, *fingerprints):
    return [fingerprint in store for fingerprint in fingerprints]


def generations(path):
    return [entry.name for entry in path.iterdir() if entry.name.startswith("gen-")]


# --- Threads --------------------------------------------------------------------------------------

PAIRS = np.unique(np.random.default_rng(2).integers(0, 2**64, 40, np.uint64))


def ask_for_pairs(store, stop):
    """Ask for fingerprints that are inserted and deleted together.

    Return how often they were there and not.
    """
    twins = np.stack([PAIRS, ~PAIRS], 1)
    counts = [0, 0]
    while not stop.is_set() or not all(counts):
        for columns in (twins, twins[:, ::-1]):
            matches = store.probe_many(columns.ravel(), 0, threads=1)
            there = (np.diff(matches.lims) > 0).reshape(-1, 2)
            assert (there[:, 0] == there[:, 1]).all()
            lims, ids = matches.read_ids()
            assert (np.diff(lims) == 1).all()
            assert sorted(ids.tolist()) == sorted(
                np.repeat(np.flatnonzero(there[:, 0]) + 1000, 2).tolist()
            )
            counts[0] += int(there[:, 0].sum())
            counts[1] += int((~there[:, 0]).sum())
        content = content_of(store)
        assert all((pair in content) == (pair ^ (2**64 - 1) in content) for pair in PAIRS.tolist())
        assert len(store.snapshot().with_ids(words([1003]))[0]) in (0, 2)
        if stop.wait(0):
            break
    return counts


@pytest.mark.parametrize("others", [slow("writer"), slow("reader"), "both"])
def test_threads_see_consistent_moments(path, others):
    stop = threading.Event()
    rng = np.random.default_rng(3)
    with (
        fpstore.open(path, "r+") as store,
        fpstore.open(path) as other,
        ThreadPoolExecutor(4) as pool,
    ):
        options = {"writer": [store] * 3, "reader": [other] * 3, "both": [store, other, other]}[
            others
        ]
        results = [pool.submit(ask_for_pairs, each, stop) for each in options]
        try:
            for step in range(40):
                chosen = np.flatnonzero(rng.random(len(PAIRS)) < 0.5)
                values = np.concatenate([PAIRS[chosen], ~PAIRS[chosen]])
                ids = np.concatenate([chosen, chosen]) + 1000
                if step % 3 == 0:
                    store.insert(values, ids)
                elif step % 3 == 1:
                    store.delete(fingerprints=values)
                elif step % 2 == 0:
                    store.delete(ids=ids)
                else:
                    store.probe_insert_many(values, ids, radius=0)
                if step % 10 == 9:
                    store.merge()
        finally:
            stop.set()
        for result in results:
            result.result()
        assert store.verify().ok


# --- Stores that were never changed ---------------------------------------------------------------


# --- Readers that die, and many -------------------------------------------------------------------


def test_readers_that_are_killed_leave_nothing(path):
    with fpstore.open(path, "r+") as store:
        store.insert(1)
        children = [reader(path, seen) for _ in range(3)]
        assert all(child.ask(1) == [True] for child in children)
        store.merge()
        store.insert(2)
        assert all(child.ask(2) == [True] for child in children[:2])
        for child in children:
            child.kill()
        for value in range(3, 6):
            store.insert(value)
            store.merge()
        assert generations(path) == ["gen-00000005"]


def test_a_writer_removes_only_folders_of_generations(path):
    ours = ["gen-00000009", "gen-00000009.tmp", "gen-00000009.joined", "gen-123456789"]
    others = ["gen-notes", "gen-1", "gen-00000009.bak", "gen-0000000٩"]
    for name in (*ours, *others):
        (path / name).mkdir()
    fpstore.open(path, "r+").close()
    assert sorted(generations(path)) == sorted(["gen-00000001", *others])


# --- For a long time ------------------------------------------------------------------------------


def held(store, value):
    """Return whether a fingerprint is there, and what the process holds.

    Descriptors, and maps of files that are gone.
    """
    there = value in store
    gc.collect()
    maps = [
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if ".fps" in line and "deleted" in line
    ]
    return there, len(os.listdir("/proc/self/fd")), len(maps)  # noqa: PTH208


@pytest.mark.full
@pytest.mark.parametrize("ids", ["strings", slow("rows")])
def test_a_reader_that_follows_gives_everything_back(path, tmp_path, ids):
    if ids == "strings":
        path = build(
            tmp_path / "named.fps",
            make_set("families"),
            [f"n{i}" for i in range(len(make_set("families")))],
        )
    child = reader(path, held)  # before this process opens it: a fork has the maps of both
    with fpstore.open(path, "r+") as store:
        counts = []
        for value in range(4):
            store.insert(value, f"new {value}" if ids == "strings" else None)
            store.merge()
            there, *rest = child.ask(value)
            assert there
            counts.append((rest, held(store, value)[1:]))
        for who in (0, 1):
            descriptors, maps = zip(*(count[who] for count in counts[2:]), strict=True)
            assert max(descriptors) - min(descriptors) <= 2, descriptors
            assert max(maps) <= 2, maps
    assert child.end() == 0


def test_a_closed_writer_gives_everything_back(path):
    def work(pipe):
        counts = []
        for value in range(4):
            with fpstore.open(path, "r+", sync="batch") as store:
                store.insert(value)
                store.merge()
                store.insert(value + 100)
            gc.collect()
            counts.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
        pipe.send(counts)

    child = Child(work)
    counts = child.receive()
    assert counts[1:] == [counts[0]] * 3
    assert child.end() == 0
