"""The ids of fingerprints: row numbers, integers and strings, by every way to get at them."""

import random

import numpy as np
import pytest
import reference_store
from sets import MAX
from speeds import slow

import fpstore
from fpstore import Match


def test_few_ids(tmp_path):
    """Row numbers by default, each once, in their order or that of the first appearance."""
    for name, fingerprints, ids, wanted in (
        ("rows", [5, 3, 5, 9, 3, 5], None, {3: [1, 4], 5: [0, 2, 5], 9: [3]}),
        ("integers", [7, 7, 7, 8, 7, 8], [5, MAX, 5, 5, 0, 5], {7: [0, 5, MAX], 8: [5]}),
        (
            "strings",
            [1, 1, 0, 1, MAX, 1],
            ["b", "a", "d", "b", "d", "c"],
            {0: ["d"], 1: ["b", "a", "c"], MAX: ["d"]},
        ),
    ):
        with fpstore.build(tmp_path / name, fingerprints, ids) as store:
            assert {fingerprint: store[fingerprint] for fingerprint in store} == wanted
            # ascending, and not the ids of the fingerprints 0, 1, 2, ...
            assert list(store) == list(wanted)
            assert {type(fingerprint) for fingerprint in store} == {int}
            assert [store.probe(fingerprint, 0) for fingerprint in wanted] == [
                [Match(f, 0, w)] for f, w in wanted.items()
            ]
            assert (len(store), store.stats()["ids"]) == (
                len(wanted),
                sum(map(len, wanted.values())),
            )


@pytest.mark.parametrize("spread", [1, slow(2**20), 2**40, MAX])
def test_integer_ids(tmp_path, spread):
    rng = random.Random(spread)
    rows = [(rng.randrange(300) << 32, rng.randrange(spread)) for _ in range(3000)]
    wanted = {}
    for fingerprint, number in rows:
        wanted.setdefault(fingerprint, set()).add(number)
    fingerprints, ids = zip(*rows, strict=True)
    with fpstore.build(tmp_path / "s", fingerprints, ids, block_bytes=128) as store:
        check_ids(store, wanted)
    assert reference_store.read_store(tmp_path / "s") == {
        f: sorted(numbers) for f, numbers in wanted.items()
    }


def check_ids(store, wanted):
    """Compare every way to get at ids; ``wanted`` maps fingerprints to sets."""
    stored = np.array(sorted(wanted), np.uint64)
    assert len(store) == len(stored)
    for fingerprint, ids in list(wanted.items())[::7]:
        assert sorted(store[fingerprint]) == sorted(ids)
    queries = np.concatenate([stored[::-1], stored[:10]])  # any order, some of them twice
    lims, ids = store.ids_of(queries)
    got = [sorted(ids[a:b]) for a, b in zip(lims[:-1].tolist(), lims[1:].tolist(), strict=True)]
    assert got == [sorted(wanted[f]) for f in queries.tolist()]
    matches = store.probe_many(stored, 0)
    assert [[(m.fingerprint, sorted(m.ids)) for m in part] for part in matches] == [
        [(f, sorted(wanted[f]))] for f in stored.tolist()
    ]
    seen = {}
    for fingerprints, lims, ids in store.items():
        assert len(lims) == len(fingerprints) + 1
        for i, fingerprint in enumerate(fingerprints.tolist()):
            seen[fingerprint] = set(ids[lims[i] : lims[i + 1]])
    assert seen == wanted
    assert list(seen) == stored.tolist()
    assert store.stats()["ids"] == sum(map(len, wanted.values()))
    assert store.verify().ids == store.stats()["ids"]


def test_a_record_that_is_larger_than_all_later_ones(tmp_path):
    """Only a file whose largest record is known may have such a length; it is written first."""
    ids = np.random.default_rng(1).integers(0, 2**63, 30_000, np.uint64)
    fingerprints = np.concatenate(
        [np.zeros(len(ids), np.uint64), np.arange(1, 5000, dtype=np.uint64) << np.uint64(48)]
    )
    ids = np.concatenate([ids, np.arange(4999, dtype=np.uint64)])
    with fpstore.build(tmp_path / "s", fingerprints, ids, block_bytes=128, threads=1) as store:
        assert store[0] == np.unique(ids[:30_000]).tolist()
        assert store.verify().ok


def test_many_ids_of_one_fingerprint(tmp_path):
    ids = np.arange(100_000, dtype=np.uint64)
    with fpstore.build(tmp_path / "s", np.full(100_000, 9, np.uint64), ids) as store:
        assert store[9] == ids.tolist()
        assert store.probe(8, 1)[0].ids == ids.tolist()
        assert len(store) == 1


# --- Iterating ------------------------------------------------------------------------------------


def test_ids_of_the_other_kind_are_not_found(tmp_path):
    """A number of a string is no id."""
    for number, (ids, others) in enumerate(
        ((["a", "b"], [0, 1]), ([0, 1], ["a", "0"]), (None, ["a", "1"]))
    ):
        with fpstore.build(tmp_path / f"{number}", [10, 20], ids) as store:
            assert [column.tolist() for column in store.fingerprints_of(others)] == [[0, 0, 0], []]
            assert not any(item in store.ids for item in others)


def test_iterating_a_store_that_changes(tmp_path):
    stored = np.random.default_rng(1).integers(0, 2**64, 3000, dtype=np.uint64)
    fpstore.build(tmp_path / "s", stored).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert([3, 7], [9000, 9001])
        store.delete(fingerprints=stored[:100])
        expected = sorted({3, 7, *stored[100:].tolist()})
        started = iter(store)
        assert next(started) == expected[0]
        store.delete(fingerprints=[7])
        assert [expected[0], *started] == expected  # as it was when it began
        assert list(store) == [fingerprint for fingerprint in expected if fingerprint != 7]
    with pytest.raises(fpstore.ClosedStoreError):
        iter(store)


def test_what_has_no_order_of_its_own_is_not_iterated(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 2]) as store:
        for wrong in (
            lambda: iter(store.ids),
            lambda: reversed(store.ids),
            lambda: reversed(store),
        ):
            with pytest.raises(TypeError):
                wrong()


# --- Many strings ---------------------------------------------------------------------------------


def test_ids_of_no_length_are_refused(tmp_path):
    with (
        fpstore.build(tmp_path / "s", [1]) as store,
        pytest.raises(fpstore.InputError, match="ids must be a list or an array"),
    ):
        store.fingerprints_of(np.array(0, np.uint64))
