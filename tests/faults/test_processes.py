"""Many readers: processes, forks, threads, pickles, and a store that nobody may write to."""

import copy
import gc
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from disks import held_files
from forks import forked
from sets import cut_batches
from speeds import slow

import fpstore

RNG = np.random.default_rng(9)
CENTRES = RNG.integers(0, 2**64, 200, np.uint64)
FINGERPRINTS = np.concatenate(
    [CENTRES, CENTRES ^ (np.uint64(1) << RNG.integers(0, 64, 200, np.uint64))]
)
STRINGS = [f"document {i}" for i in range(len(FINGERPRINTS))]


@pytest.fixture(autouse=True)
def small_batches(set_limits):
    cut_batches(set_limits, 50, 3)


@pytest.fixture(params=[slow("rows"), "strings"])
def store(tmp_path, request):
    ids = STRINGS if request.param == "strings" else None
    with fpstore.build(
        tmp_path / "s", FINGERPRINTS, ids, design="manku-4", block_bytes=128
    ) as store:
        yield store


def answers(store, threads=2):
    """Everything that reads: tables and ids, in threads."""
    matches = store.probe_many(FINGERPRINTS, 3, threads=threads)
    lims, ids = matches.read_ids()
    scanned = store.scan(FINGERPRINTS[:5], 9, threads=threads)
    first = int(FINGERPRINTS[0])
    return (
        matches.lims.tolist(),
        matches.fingerprints.tolist(),
        (lims.tolist(), list(ids)),
        scanned.fingerprints.tolist(),
        (store[first], store.probe(first), first in store, len(store)),
        store.verify().ok,
    )


# --- Forks ----------------------------------------------------------------------------------------


def test_a_store_survives_a_fork(store):
    expected = answers(store)
    assert expected[-1]
    assert forked(lambda: (answers(store), forked(lambda: answers(store)))) == (expected, expected)
    assert answers(store) == expected


def test_closing_in_the_child_leaves_the_parent_alone(store):
    expected = answers(store)

    def close():
        answers(store)
        store.close()
        with pytest.raises(fpstore.ClosedStoreError):
            len(store)
        return "closed"

    assert forked(close) == "closed"
    assert forked(lambda: store.close()) is None  # without a read before it
    assert answers(store) == expected


def test_closing_in_the_parent_leaves_the_child_alone(store):
    expected = answers(store)
    forked_read, forked_write = os.pipe()
    closed_read, closed_write = os.pipe()

    def read_later():
        os.write(forked_write, b"x")
        os.read(closed_read, 1)
        return answers(store)

    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(forked, read_later)
        os.read(forked_read, 1)
        store.close()
        os.write(closed_write, b"x")
        assert child.result() == expected
    for descriptor in (forked_read, forked_write, closed_read, closed_write):
        os.close(descriptor)


def test_first_reads_of_a_child_in_many_threads(store):
    expected = answers(store)

    def work():
        start = threading.Barrier(8)

        def one(_):
            start.wait()
            return answers(store, threads=1)

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(one, range(8)))

    assert forked(work) == [expected] * 8


@pytest.mark.full
def test_forks_in_the_middle_of_reads(tmp_path, store):
    """No lock that another thread holds at the fork may stop the child."""
    expected = answers(store)
    stop = threading.Event()

    def read():
        while not stop.is_set():
            assert answers(store, threads=1) == expected
            fpstore.open(tmp_path / "s").close()

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(4):
                assert forked(lambda: answers(store, threads=1)) == expected
        finally:
            stop.set()
        for reader in readers:
            reader.result()


# --- Processes ------------------------------------------------------------------------------------


def test_a_pickled_store_is_opened_again(store):
    expected = answers(store)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with pickle.loads(pickle.dumps(store, protocol)) as again:
            assert answers(again) == expected
    for make in (copy.copy, copy.deepcopy):
        with make(store) as again:
            assert answers(again) == expected
        assert answers(store) == expected
    store.close()
    with pytest.raises(fpstore.ClosedStoreError):
        pickle.dumps(store)


def test_pairs_are_pickled_with_their_ids(store):
    other = fpstore.build(
        store.path.with_name("other.fps"), FINGERPRINTS[:5], [f"o{n}" for n in range(5)]
    )
    for pairs in (next(store.pairs(20)), next(store.join(other, 20))):
        pickled = pickle.dumps(pairs)
        again = pickle.loads(pickled)
        assert list(again) == list(pairs)
        assert again.to_arrow().equals(pairs.to_arrow())
        assert list(pickle.loads(pickle.dumps(again))) == list(pairs)


# --- Threads --------------------------------------------------------------------------------------


def test_one_store_in_many_threads(store):
    expected = answers(store)
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: answers(store), range(18))) == [expected] * 18


def read_until_closed(store, started):
    """Read and read; return the error that ends it."""
    fingerprint = int(FINGERPRINTS[7])
    answers(store)
    started.wait()
    try:
        while True:
            assert store[fingerprint] == store.probe(fingerprint, 0)[0].ids
            assert len(store.probe_many(FINGERPRINTS[:40], threads=1).read_ids()[0]) > 40
            store.scan(FINGERPRINTS[:2], 3, threads=1)
    except Exception as error:
        return error


@pytest.mark.full
def test_closing_under_reading_threads(tmp_path, store):
    """Readers end with the error for a closed store: no crash, and nothing stays open."""
    for _ in range(8):
        opened = fpstore.open(tmp_path / "s")
        started = threading.Barrier(5)
        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read_until_closed, opened, started) for _ in range(4)]
            started.wait()
            opened.close()
            errors = [reader.result() for reader in readers]
        assert {type(error) for error in errors} == {fpstore.ClosedStoreError}
    store.close()
    del errors, readers
    gc.collect()  # the frames of the errors
    assert held_files(tmp_path) == []


def test_every_file_of_a_store_that_is_dropped_is_given_back(tmp_path, store):
    answers(store)
    store.close()
    again = fpstore.open(tmp_path / "s")
    answers(again)
    strings = again.snapshot().generation.dictionary is not None
    names = {Path(name).name for name in held_files(tmp_path)}
    assert names >= {"ids.mdb", *({"numbers.mdb", "places.mdb", "strings.mdb"} if strings else ())}
    del again
    assert held_files(tmp_path) == []


@pytest.mark.full
def test_a_store_is_opened_while_another_one_replaces_it(tmp_path):
    path, replaced = tmp_path / "s", threading.Event()
    sets = [list(range(10, 60)), list(range(1000, 1080))]

    def build(number):
        rows = sets[number % 2]
        ids = [f"document {row}" for row in rows]
        fpstore.build(path, rows, ids, threads=1, overwrite=True).close()

    def replace():
        try:
            for number in range(1, 40):
                build(number)
        finally:
            replaced.set()

    build(0)
    sizes = set()
    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace)
        while not replaced.is_set():
            with fpstore.open(path) as store:
                sizes.add(len(store))
        replacing.result()
    assert sizes == {50, 80}
    assert held_files(tmp_path) == []
