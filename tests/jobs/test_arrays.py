"""Orders and distinct values of long arrays are those of NumPy; groups are right, whatever the parts they are taken in."""

import numpy as np
import pytest

import fpstore
from fpstore.base import arrays
from fpstore.base.arrays import lims_of, spans
from fpstore.jobs import grouping
from fpstore.jobs.grouping import Members, distances_to_majority, represented


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def some_arrays(rng, count):
    yield rng.integers(0, 5, count).astype(np.uint64)
    yield rng.integers(0, 2**64, count, dtype=np.uint64)
    yield rng.integers(-3, 4, count)
    yield rng.integers(-(2**63), 2**63 - 1, count)
    yield rng.integers(0, 2**32, count, dtype=np.uint32)
    yield rng.choice([-np.inf, -1.5, -0.0, 0.0, 1e-300, 2.0, np.inf], count)
    yield rng.integers(0, 2, count).astype(bool)


def test_orders_are_those_of_numpy(rng):
    for count in (0, 1, 2, 50):
        for values in some_arrays(rng, count):
            order = arrays.stable_order(values)
            assert order.tolist() == np.argsort(values, kind="stable").tolist(), values.dtype
            ascending = values[order]
            first = np.append(True, ascending[1:] != ascending[:-1])[:count]
            assert arrays.differs(ascending).tolist() == first.tolist()


def test_distinct_rows_are_those_of_numpy(rng):
    for words in (1, 2, 4):
        for count in (0, 1, 60):
            shape = count if words == 1 else (count, words)
            rows = rng.choice(np.array([0, 1, 2**63, 2**64 - 1], np.uint64), shape)
            distinct, which = arrays.distinct_places(rows)
            wanted, numbers = np.unique(rows.reshape(count, words), axis=0, return_inverse=True)
            assert distinct.reshape(-1, words).tolist() == wanted.tolist()
            assert which.tolist() == numbers.reshape(-1).tolist()
            assert distinct.shape[1:] == rows.shape[1:]


def test_unsigned_sizes_are_added_exactly():
    """NumPy adds unsigned and signed numbers as floats, which have 53 bits."""
    assert lims_of(np.array([1 << 60, 1], np.uint64)).tolist() == [0, 1 << 60, (1 << 60) + 1]


def test_lists(rng):
    sizes = rng.integers(1, 12, 40)
    lims = lims_of(sizes)
    assert arrays.lists_of(lims).tolist() == np.repeat(np.arange(40), sizes).tolist()
    assert arrays.lists_of(np.zeros(1, np.int64)).tolist() == []
    for most in (1, 7, 1 << 20):
        cut = list(spans(lims, most))
        assert [n for span in cut for n in range(span.start, span.stop)] == list(range(40))
        assert all(lims[s.stop] - lims[s.start] <= most or s.stop == s.start + 1 for s in cut)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_groups(piece, monkeypatch, rng):
    """The first of least rank comes first, and the others stay in order; each bit of the majority is counted."""
    monkeypatch.setattr(grouping, "PIECE", piece)
    lims = lims_of(rng.integers(2, 12, 40))
    documents = np.arange(lims[-1], dtype=np.uint64) * np.uint64(3)
    ranks = rng.integers(0, 3, len(documents))
    wanted, far = [], []
    rows = rng.integers(0, 2**64, len(documents), dtype=np.uint64)
    for start, end in zip(lims[:-1].tolist(), lims[1:].tolist(), strict=True):
        best = min(range(start, end), key=lambda place: (ranks[place], place))
        wanted += [documents[best], *(documents[place] for place in range(start, end) if place != best)]
        bits = [[int(row) >> bit & 1 for bit in range(64)] for row in rows[start:end]]
        majority = [2 * sum(column) > end - start for column in zip(*bits, strict=True)]
        far += [sum(one != most for one, most in zip(row, majority, strict=True)) for row in bits]
    assert represented(Members(lims, documents), ranks).documents.tolist() == wanted
    assert distances_to_majority(rows, lims).tolist() == far


@pytest.mark.parametrize("strings", [False, True])
def test_clusters_in_any_pieces(monkeypatch, tmp_path, rng, strings):
    base = rng.integers(0, 2**64, 300, dtype=np.uint64)
    rows = np.concatenate([base, base[:200] ^ np.uint64(1), base[:100] ^ np.uint64(8), base[:50]])
    rng.shuffle(rows)
    ids = [f"é{n}" for n in rng.permutation(len(rows))] if strings else rng.permutation(len(rows)).astype(np.uint64)
    asked = [(group, rule) for group in ("connected", "greedy") for rule in ("first", "smallest", "central")]
    with fpstore.build(tmp_path / "s", rows, ids) as store:
        wanted = [list(store.clusters(group=group, keep=rule)) for group, rule in asked]
        assert wanted[0]
        for size in (1, 3, 100):
            monkeypatch.setattr(grouping, "PIECE", size)
            assert [list(store.clusters(group=group, keep=rule)) for group, rule in asked] == wanted
