"""What probe, probe_many and scan return, against brute force.

Every design, radius and kind of set.
"""

import brute_force
import numpy as np
import pytest
import tableimage
from hypothesis import strategies as st
from sets import MAX, make_set, queries_for
from speeds import crossed

import fpstore
from fpstore.design import families as design_module
from fpstore.design.blocks import CODECS

# probes beyond the store's radius are meant
pytestmark = pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")

KINDS = (
    *tableimage.KINDS,
    *("near", "half", "low-half", "few-prefixes", "families"),
    *("none", "one", "ends", "all-equal", "zero", "adjacent", "top", "powers"),
)
DESIGNS = (
    ("manku-4", 3),
    ("manku-20", 3),
    ("manku-28", 6),
    ("flip-2", 3),
    ("flip-1", 5),
    ("flip-5", 7),
)
OTHER_DESIGNS = (
    ("manku-10", 3),
    ("manku-16", 3),
    ("blocks-3-1", 4),
    ("blocks-9-2", 7),
    ("nested-3-3", 2),
    *((f"flip-{count}", 3) for count in (1, 3, 4)),
    *((f"flip-{count}", 7) for count in (1, 2, 8)),
    ("flip-1", 0),
    ("auto", 4),
)
CASES = [
    *crossed(DESIGNS, KINDS, tuple(CODECS), share=2 * len(DESIGNS)),
    *crossed(OTHER_DESIGNS, ("near", "families", "few-prefixes"), tuple(CODECS), share=6),
]


def same(matches, expected):
    lims, fingerprints, distances = expected
    assert matches.lims.dtype == np.int64
    assert matches.fingerprints.dtype == np.uint64
    assert matches.distances.dtype == np.uint8
    assert matches.lims.tolist() == lims.tolist()
    assert matches.fingerprints.tolist() == fingerprints.tolist()
    assert matches.distances.tolist() == distances.tolist()


def check(store, fingerprints, queries, radius):
    """Compare probe_many, scan and probe with brute force, as lists: sets, counts and order."""
    expected = brute_force.brute_force_many(fingerprints, queries.tolist(), radius)
    same(store.probe_many(queries, radius, threads=1), expected)
    same(store.probe_many(queries, radius, threads=2), expected)
    same(store.scan(queries, radius), expected)
    lims, found, distances = (column.tolist() for column in expected)
    for q in range(0, len(queries), 5):
        part = slice(lims[q], lims[q + 1])
        matches = store.probe(int(queries[q]), radius)
        assert [(m.fingerprint, m.distance) for m in matches] == list(
            zip(found[part], distances[part], strict=True)
        )
    return lims[-1]


# --- Oracle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "kind", "codec"), CASES)
def test_matches_are_those_of_brute_force(tmp_path, small_pieces, shape, kind, codec):
    name, radius = shape
    rng = np.random.default_rng(radius)
    fingerprints = make_set(kind)
    distinct = np.unique(fingerprints)
    queries = queries_for(distinct, rng)
    with fpstore.build(
        tmp_path / "s", fingerprints, radius=radius, design=name, block_bytes=256, codec=codec
    ) as store:
        assert len(store) == len(distinct)
        for smaller in range(radius + 1):
            check(store, distinct, queries, smaller)
        for larger in (radius + 1, 40, 64):
            check(store, distinct, queries[::4], larger)
        total = check(store, distinct, distinct[:40], radius)
        assert total >= min(len(distinct), 40)


@pytest.mark.parametrize(
    ("kind", "block_bytes"),
    crossed(["random", "near", "dense", "few-prefixes"], [128, 512, 1024, 2048, 4096], share=3),
)
def test_every_block_size(tmp_path, small_pieces, block_bytes, kind):
    distinct = np.unique(make_set(kind, 3000))
    queries = queries_for(distinct, np.random.default_rng(1))
    with fpstore.build(
        tmp_path / "s", distinct, radius=3, design="manku-10", block_bytes=block_bytes
    ) as store:
        for radius in (0, 2, 3, 5):
            check(store, distinct, queries, radius)


sets = st.one_of(
    tableimage.key_sets(200),
    st.builds(
        lambda centre, masks: np.unique(np.array([centre ^ m for m in masks], np.uint64)),
        st.integers(0, MAX),
        st.lists(
            st.lists(st.integers(0, 63), max_size=8).map(lambda b: sum({1 << i for i in b})),
            max_size=60,
        ),
    ),
)


def test_the_matches_of_a_query_are_at_its_number(store):
    queries = [3, 2**40, *next(iter(store.items()))[0][:3].tolist()]
    matches = store.probe_many(queries, 20, limit=2)
    each = list(matches)
    assert any(found.more for found in each)
    for query, found in enumerate(each):
        for again in (matches[query], matches[query - len(each)]):
            assert (again, again.more) == (found, found.more)
    for wrong in (len(each), -len(each) - 1):
        with pytest.raises(IndexError):
            matches[wrong]


def test_default_radius_is_the_stores(store):
    query = int(make_set("families")[3])
    assert store.probe(query) == store.probe(query, 3)
    assert store.probe_many([query]).lims.tolist() == store.probe_many([query], 3).lims.tolist()
    assert store.radius == 3
    assert store.design == design_module.design("flip-2", 3)


@pytest.mark.parametrize(("threads", "most"), crossed([1, 2], [1, 50, 1000, 1 << 22]))
def test_batches_hold_few_matches_and_are_together_all(tmp_path, threads, most):
    """Ten of a thousand queries have a hundred times the matches of the others."""
    rng = np.random.default_rng(7)
    fingerprints = rng.integers(0, 2**64, 4000, dtype=np.uint64)
    crowd = fingerprints[0] ^ np.array(
        [1 << i | 1 << j for i in range(40) for j in range(i)], np.uint64
    )
    with fpstore.build(tmp_path / "s", np.concatenate([fingerprints, crowd])) as store:
        queries = np.concatenate(
            [fingerprints[1:500], np.repeat(fingerprints[:1], 10), fingerprints[500:1000]]
        )
        whole = store.probe_many(queries, threads=1)
        batches = list(store.probe_batches(queries, threads=threads, matches=most))
        assert sum(map(len, batches)) == len(queries)
        assert np.array_equal(
            np.concatenate([np.diff(b.lims) for b in batches]), np.diff(whole.lims)
        )
        for column in ("fingerprints", "distances"):
            assert np.array_equal(
                np.concatenate([getattr(b, column) for b in batches]), getattr(whole, column)
            )
        assert all(len(b) == 1 or len(b.fingerprints) <= most for b in batches)
        assert next(iter(batches[0])) == store.probe(int(queries[0]))
        assert list(store.probe_batches([], matches=most)) == []


@pytest.mark.parametrize(("threads", "most"), crossed([1, 3], [1, 2, 50]))
def test_batches_bound_delta_matches_and_all_threads_together(tmp_path, threads, most):
    """The bound was kept by the tables alone, and by each thread for at least one match."""
    rng = np.random.default_rng(8)
    fingerprints = rng.integers(0, 2**64, 900, dtype=np.uint64)
    fpstore.build(tmp_path / "s", fingerprints[800:]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(fingerprints[:800])
        batches = list(store.probe_batches(fingerprints, threads=threads, matches=most))
        assert all(len(b) == 1 or len(b.fingerprints) <= most for b in batches)
        assert np.concatenate([b.fingerprints for b in batches]).tolist() == fingerprints.tolist()
