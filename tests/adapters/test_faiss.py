"""The triple of `range_search`, beside brute force, and beside FAISS where it is installed."""

import pickle
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

from fpstore import InputError, ScanWarning
from fpstore.adapters.faiss import IndexBinary


def codes(d, count, seed=1):
    """Return random codes, of which half are near the others."""
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, 256, (count, d // 8), np.uint8)
    for row in range(count // 2):
        bits = np.unpackbits(rows[row])
        bits[generator.choice(d, generator.integers(0, 8), replace=False)] ^= 1
        rows[count // 2 + row] = np.packbits(bits)
    return rows


def distances(queries, rows):
    return np.bitwise_count(queries[:, None] ^ rows).sum(2)


def pairs(triple):
    lims, found, ids = triple
    assert [part.dtype for part in triple] == [np.uint64, np.float32, np.int64]
    bounds = lims.astype(int)
    assert bounds[-1] == len(found) == len(ids)
    return [
        sorted(zip(found[start:end].tolist(), ids[start:end].tolist(), strict=True))
        for start, end in pairwise(bounds)
    ]


def brute(queries, rows, ids, radius):
    table = distances(queries, rows)
    return [
        sorted((float(row[i]), int(ids[i])) for i in np.flatnonzero(row < radius)) for row in table
    ]


@pytest.mark.parametrize("d", [32, 64, 128, 256])
@pytest.mark.parametrize("radius", [-1, 0, 1, 4, 9])
def test_range_search(d, radius):
    rows, queries = codes(d, 80), codes(d, 40, seed=1)
    index = IndexBinary(d, max_distance=8)
    assert pairs(index.range_search(queries, radius)) == [[]] * len(queries)
    index.add(rows[:30])
    index.add(rows[30:])
    assert index.ntotal == 80
    assert pairs(index.range_search(queries, radius)) == brute(queries, rows, range(80), radius)
    assert pairs(index.range_search(queries[:0], radius)) == []
    assert index.remove_ids([0, 7, 7, 90]) == 2
    kept = np.delete(np.arange(80), [0, 7])
    assert pairs(index.range_search(queries, radius)) == brute(queries, rows[kept], kept, radius)


def test_every_radius_is_exact():
    rows = codes(64, 40)
    index = IndexBinary(64, max_distance=3)
    index.add(rows)
    for radius in (5, 30, 64, 65, 1000):
        with pytest.warns(ScanWarning) if radius == 5 else nullcontext():
            answer = index.range_search(rows, radius)
        assert pairs(answer) == brute(rows, rows, range(40), radius)


def test_codes_with_several_ids():
    rows = np.repeat(codes(128, 4), 3, axis=0)
    index = IndexBinary(128)
    ids = np.arange(12) * 1000 + 2**40
    index.add_with_ids(rows, ids)
    index.add_with_ids(rows, ids)  # once
    assert index.ntotal == 12
    assert pairs(index.range_search(rows, 3)) == brute(rows, rows, ids, 3)


@pytest.mark.parametrize("k", [1, 5, 30])
def test_search(k):
    rows, queries = codes(64, 20), codes(64, 9, seed=2)
    index = IndexBinary(64)
    nearest, ids = index.search(queries, k)
    assert (nearest == 2**31 - 1).all()
    assert (ids == -1).all()
    index.add(rows)
    nearest, ids = index.search(queries, k)
    assert (nearest.dtype, ids.dtype, nearest.shape) == (np.int32, np.int64, (9, k))
    table, stored = distances(queries, rows), min(k, 20)
    np.testing.assert_array_equal(nearest[:, :stored], np.sort(table, 1)[:, :stored])
    np.testing.assert_array_equal(
        np.take_along_axis(table, ids[:, :stored], 1), nearest[:, :stored]
    )
    assert (ids[:, stored:] == -1).all()
    assert (nearest[:, stored:] == 2**31 - 1).all()


@pytest.mark.parametrize("d", [64, 256])
def test_answers_are_those_of_faiss(d):
    faiss = pytest.importorskip("faiss")
    rows, queries = codes(d, 300), codes(d, 300, seed=1)[::7]
    index, other = (
        IndexBinary(d, max_distance=12),
        faiss.IndexBinaryIDMap2(faiss.IndexBinaryFlat(d)),
    )
    ids = np.arange(300, dtype=np.int64) * 3
    for each in (index, other):
        each.add_with_ids(rows, ids)
    for radius in (1, 4, 13):
        theirs = other.range_search(queries, radius)
        assert pairs(index.range_search(queries, radius)) == pairs(theirs)
    assert index.remove_ids(ids[:5]) == other.remove_ids(ids[:5])
    assert index.ntotal == other.ntotal
    assert pairs(index.range_search(rows[:9], 4)) == pairs(other.range_search(rows[:9], 4))
    for k in (1, 7):
        np.testing.assert_array_equal(index.search(queries, k)[0], other.search(queries, k)[0])


def test_the_index_is_kept_at_a_path_and_copied(tmp_path):
    rows = codes(64, 10)
    with IndexBinary(64, path=tmp_path / "i") as index:
        index.add(rows[:5])
    with IndexBinary(64, path=tmp_path / "i") as index:
        index.add(rows[5:])
        copy = pickle.loads(pickle.dumps(index))
        index.remove_ids([0])
    assert pairs(copy.range_search(rows, 1)) == brute(rows, rows, range(10), 1)
    with pytest.raises(InputError, match="the store has codes of 64 bits"):
        IndexBinary(128, path=tmp_path / "i")


def test_wrong_codes_and_ids_are_refused():
    index = IndexBinary(64)
    good = codes(64, 2)
    for wrong in (good[0], good[:, :4], good.astype(np.int64), good.tolist()):
        with pytest.raises(InputError, match=r"codes must be uint8 of shape \(n, 8\)"):
            index.range_search(wrong, 3)
    with pytest.raises(InputError):
        index.add_with_ids(good, [-1, 0])
    with pytest.raises(InputError):
        index.add_with_ids(good, [1])
    assert index.ntotal == 0
    with pytest.raises(InputError, match="width"):
        IndexBinary(48)
