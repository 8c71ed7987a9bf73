"""A sharded store answers as the one store of all its rows."""

import pickle

import numpy as np
import pytest
from shards import (
    KINDS,
    assert_equal,
    assert_ids_equal,
    both,
    content_of,
    ids_of,
    pairs_in,
    queries_of,
    rows_of,
)
from speeds import crossed, slow

import fpstore
from fpstore.base.width import WIDTHS

CUTS = {"one": [], "even": [70, 140], "empty": [0, 90, 90], "many": list(range(17, 200, 20))}


@pytest.fixture(
    params=[pytest.param(case.values, marks=case.marks) for case in crossed(WIDTHS, KINDS)],
    ids=str,
    scope="module",
)
def stores(request, tmp_path_factory):
    bits, kind = request.param
    values = rows_of(bits, 210, 1)
    sharded, whole = both(
        tmp_path_factory.mktemp("stores"),
        values,
        ids_of(kind, len(values)),
        CUTS["even"],
        width=bits,
    )
    with sharded, whole:
        yield sharded, whole, values


@pytest.mark.sampled(1)
def test_content_is_equal(stores):
    sharded, whole, values = stores
    assert isinstance(sharded, fpstore.ShardedStore)
    assert (len(sharded), len(sharded.ids), list(sharded)) == (
        len(whole),
        len(whole.ids),
        list(whole),
    )
    assert (sharded.radius, sharded.width, sharded.fingerprinter) == (
        whole.radius,
        whole.width,
        whole.fingerprinter,
    )
    assert content_of(sharded) == content_of(whole)
    for value in [*values[:20], values[0] ^ 1 << 9]:
        assert (value in sharded) == (value in whole)
        if value in whole:
            assert sharded[value] == whole[value]
    with pytest.raises(KeyError):
        sharded[next(n for n in range(1 << 16) if n not in whole)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("radius", [None, 0, 1, 5])
@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
def test_probes_are_equal(stores, radius):
    sharded, whole, values = stores
    queries = queries_of(values, whole.width)
    assert_equal(sharded.probe_many(queries, radius), whole.probe_many(queries, radius))
    assert_equal(sharded.probe_many([], radius), whole.probe_many([], radius))
    for limit in (1, 2, 1000):
        assert_equal(
            sharded.probe_many(queries, radius, limit=limit, threads=2),
            whole.probe_many(queries, radius, limit=limit),
        )
    for query in queries[::7]:
        assert sharded.probe(query, radius) == whole.probe(query, radius)
        few, wanted = sharded.probe(query, radius, limit=2), whole.probe(query, radius, limit=2)
        assert (few, few.more) == (wanted, wanted.more)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("matches", [1, 40, 1 << 22])
def test_batches_have_the_matches_of_all_queries_in_order(stores, matches):
    sharded, whole, values = stores
    queries = queries_of(values, whole.width)
    parts = list(sharded.probe_batches(queries, matches=matches))
    assert all(len(part) == 1 or len(part.rows) <= matches for part in parts)
    assert [item for part in parts for item in part] == list(whole.probe_many(queries))


@pytest.mark.sampled(1)
def test_scans_and_nearest_are_equal(stores):
    sharded, whole, values = stores
    queries = queries_of(values, whole.width)
    for radius, limit in ((0, None), (9, None), (whole.width, 3), (whole.width, None)):
        assert_equal(
            sharded.scan(queries, radius, limit=limit), whole.scan(queries, radius, limit=limit)
        )
    for count, most in ((1, None), (4, None), (4, 6), (1000, None)):
        assert_equal(
            sharded.nearest_many(queries, count, max_radius=most),
            whole.nearest_many(queries, count, max_radius=most),
        )
    assert sharded.nearest(queries[0], 5) == whole.nearest(queries[0], 5)


def test_ids_resolve(stores):
    sharded, whole, values = stores
    stored = list(dict.fromkeys(values))
    assert_ids_equal(sharded.ids_of(stored), whole.ids_of(stored))
    ids = content_of(whole)[-1][1]
    known = sorted({item for _, item in content_of(whole)})
    missing = ["nowhere", "other"] if isinstance(ids, str) else [10**9, 10**9 + 1]
    part = [*known[::3], missing[0], known[0], *known[:2], missing[1]]
    mine_lims, mine_rows = sharded.fingerprints_of(part)
    lims, rows = whole.fingerprints_of(part)
    assert np.array_equal(mine_lims, lims)
    assert np.array_equal(mine_rows, rows)
    assert mine_rows.dtype == rows.dtype
    assert sharded.ids[known[1]] == whole.ids[known[1]]
    assert (known[2] in sharded.ids, missing[0] in sharded.ids) == (True, False)
    with pytest.raises(KeyError):
        sharded.ids[missing[0]]
    with pytest.raises(KeyError):
        sharded.ids_of([next(n for n in range(1 << 16) if n not in whole)])
    wrong = 3 if isinstance(ids, str) else "a string"
    with pytest.raises(fpstore.InputError, match="the ids of this store are"):
        sharded.ids[wrong]


@pytest.mark.sampled(1)
def test_jobs_are_equal(stores, tmp_path):
    sharded, whole, values = stores
    for radius in (None, 1, 6):
        assert pairs_in(sharded.pairs(radius)) == pairs_in(whole.pairs(radius))
    assert pairs_in(sharded.pairs(duplicates=True)) == pairs_in(whole.pairs(duplicates=True))
    for keep in ("first", "smallest"):
        assert list(sharded.clusters(keep=keep)) == list(whole.clusters(keep=keep))
    others = queries_of(values, whole.width)
    wanted = pairs_in(whole.join(others))
    assert pairs_in(sharded.join(others)) == wanted
    with fpstore.build(tmp_path / "other.fps", others, width=whole.width) as other:
        assert pairs_in(sharded.join(other)) == wanted
        assert pairs_in(other.join(sharded)) == pairs_in(other.join(whole))
    assert pairs_in(sharded.join(sharded, 1)) == pairs_in(whole.join(whole, 1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "kind"), crossed(list(CUTS), KINDS))
def test_any_number_of_shards(tmp_path, kind, name):
    values = rows_of(64, 210, 2)
    sharded, whole = both(tmp_path, values, ids_of(kind, len(values), 5), CUTS[name])
    with sharded, whole:
        queries = queries_of(values, 64)
        assert_equal(sharded.probe_many(queries), whole.probe_many(queries))
        assert content_of(sharded) == content_of(whole)
        assert list(sharded.clusters()) == list(whole.clusters())
        assert len(sharded) == len(whole)
        assert sharded.verify().ok


def test_shards_of_leading_bits(tmp_path):
    """What is in order of the fingerprints is not read to be counted, and answers are the same."""
    values = sorted(rows_of(64, 300, 3))
    sharded, whole = both(tmp_path, values, list(range(300, 0, -1)), [100, 200])
    with sharded, whole:
        assert_equal(
            sharded.probe_many(queries_of(values, 64)), whole.probe_many(queries_of(values, 64))
        )
        assert content_of(sharded) == content_of(whole)
        assert len(sharded) == len(whole)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["integer", "string"])
def test_the_same_rows_in_two_shards_are_there_once(tmp_path, kind):
    values, ids = rows_of(64, 60, 5), ids_of(kind, 60)
    sharded, whole = both(tmp_path, values * 2, ids * 2, [60])
    with sharded, whole:
        assert content_of(sharded) == content_of(whole)
        assert (len(sharded), len(sharded.ids)) == (len(whole), len(whole.ids))
        assert_equal(sharded.probe_many(values), whole.probe_many(values))
        assert [sharded.probe(value) for value in values] == [
            whole.probe(value) for value in values
        ]
        assert_ids_equal(sharded.fingerprints_of(ids), whole.fingerprints_of(ids))
        assert sharded.ids[ids[0]] == whole.ids[ids[0]]
        assert list(sharded.clusters()) == list(whole.clusters())


def test_the_nearest_are_kept_while_shards_are_asked(tmp_path, set_limits):
    """Whether a query has more matches is known before all shards have been asked, and stays so."""
    values = rows_of(64, 120, 9)
    sharded, whole = both(tmp_path, values, None, [30, 60, 90])
    set_limits(shard_matches=20)
    with sharded, whole:
        for limit in (1, 3):
            assert_equal(
                sharded.probe_many(values, limit=limit), whole.probe_many(values, limit=limit)
            )
            assert_equal(sharded.scan(values, 9, limit=limit), whole.scan(values, 9, limit=limit))


def test_matches_of_all_shards_are_bounded_together(tmp_path):
    """Each shard has few enough matches for a part of a batch.

    Together they have too many, and the part is given up.
    """
    sharded, whole = both(tmp_path, [1, 2, 4, 8], None, [1, 2, 3])
    with sharded, whole:
        query, snapshot = np.zeros(1, np.uint64), sharded.snapshot()
        assert snapshot.probe_columns(query, 3, 1, most=3) is None
        assert len(snapshot.probe_columns(query, 3, 1, most=4)[1]) == 4


def test_no_rows_at_all(tmp_path):
    sharded, whole = both(tmp_path, [], None, [0, 0])
    with sharded, whole:
        assert (len(sharded), list(sharded), list(sharded.items())) == (0, [], [])
        assert sharded.probe(7) == []
        assert_equal(sharded.probe_many([1, 2]), whole.probe_many([1, 2]))
        assert_equal(sharded.nearest_many([1, 2], 3), whole.nearest_many([1, 2], 3))
        assert list(sharded.pairs()) == list(sharded.join([1, 2])) == []
        assert len(sharded.clusters()) == 0
        assert sharded.verify().ok


def test_shards_with_changes_in_their_logs(tmp_path):
    values, ids = rows_of(64, 200, 4), ids_of("string", 200, 1)
    sharded, whole = both(tmp_path, values, ids, [100])
    sharded.close()
    whole.close()
    more, gone = rows_of(64, 40, 6), values[3]
    for path in (tmp_path / "one.fps", tmp_path / "S" / "shard-00001.fps"):
        with fpstore.open(path, "r+") as store:
            store.insert(more, [f"new {i % 9}" for i in range(20)] + ids[:20])
            store.delete(fingerprints=gone)
    with fpstore.open(tmp_path / "S" / "shard-00000.fps", "r+") as store:
        store.delete(fingerprints=gone)
    with (
        fpstore.ShardedStore.combine(tmp_path / "S") as sharded,
        fpstore.open(tmp_path / "one.fps") as whole,
    ):
        queries = queries_of(values + more, 64)
        assert_equal(sharded.probe_many(queries), whole.probe_many(queries))
        assert content_of(sharded) == content_of(whole)
        assert list(sharded.clusters()) == list(whole.clusters())
        assert sharded.verify().ok


def test_results_and_stores_are_pickled(tmp_path):
    values = rows_of(64, 100, 7)
    sharded, whole = both(tmp_path, values, ids_of("string", 100), [40])
    with sharded, whole:
        matches = sharded.probe_many(values)
        assert list(pickle.loads(pickle.dumps(matches))) == list(whole.probe_many(values))
        batch = next(sharded.pairs())
        assert list(pickle.loads(pickle.dumps(batch))) == list(batch)
        with pickle.loads(pickle.dumps(sharded)) as again:
            assert isinstance(again, fpstore.ShardedStore)
            assert again.probe(values[0]) == whole.probe(values[0])
    with pytest.raises(fpstore.ClosedStoreError):
        list(matches)


def test_a_job_is_resumed(tmp_path):
    values = rows_of(64, 200, 8)
    sharded, whole = both(tmp_path, values, None, [90])
    with sharded, whole:
        begun = sharded.pairs(resume=tmp_path / "work")
        next(begun)
        begun.close()
        assert (tmp_path / "work").is_dir()
        with pytest.raises(fpstore.InputError):
            list(whole.pairs(resume=tmp_path / "work"))
        assert pairs_in(sharded.pairs(resume=tmp_path / "work")) == pairs_in(whole.pairs())


def test_shards_that_are_not_kept_open(tmp_path, monkeypatch):
    """Without room for open files, each question opens the shards one after the other."""
    values = rows_of(64, 200, 9)
    sharded, whole = both(tmp_path, values, ids_of("string", 200), CUTS["many"])
    sharded.close()
    monkeypatch.setattr("fpstore.query.sharded._descriptors", lambda manifest: 1 << 40)
    with fpstore.open(tmp_path / "S") as sharded, whole:
        queries = queries_of(values, 64)
        assert_equal(sharded.probe_many(queries), whole.probe_many(queries))
        assert content_of(sharded) == content_of(whole)
        assert list(sharded.clusters()) == list(whole.clusters())
        assert pairs_in(sharded.pairs()) == pairs_in(whole.pairs())
        assert not sharded.snapshot().open_shards


@pytest.mark.sampled(1)
@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
@pytest.mark.parametrize("seed", [*range(6), *(slow(seed) for seed in range(6, 200))])
def test_any_rows_in_any_shards(tmp_path, seed):
    """Widths, kinds of ids, numbers of rows, starts of shards, radii and designs are drawn."""
    rng = np.random.default_rng(seed)
    bits, kind, count = (
        int(rng.choice(WIDTHS)),
        str(rng.choice(KINDS)),
        int(rng.choice([1, 2, 7, 40, 150])),
    )
    values = rows_of(bits, count, seed)
    values = sorted(values) if rng.random() < 0.3 else values
    options = {
        "width": bits,
        "radius": int(rng.choice([0, 1, 3, 6])),
        "design": str(rng.choice(["auto", "scan"])),
    }
    options |= {"index_ids": True} if kind == "integer" and rng.random() < 0.5 else {}
    cuts = sorted(rng.integers(0, count + 1, int(rng.integers(0, 6))).tolist())
    sharded, whole = both(tmp_path, values, ids_of(kind, count, seed), cuts, **options)
    with sharded, whole:
        queries = [*queries_of(values, bits, 30), *values[:3]]
        for radius in (None, 0, 2, bits):
            limit = int(rng.integers(1, 5))
            assert_equal(sharded.probe_many(queries, radius), whole.probe_many(queries, radius))
            assert_equal(
                sharded.probe_many(queries, radius, limit=limit),
                whole.probe_many(queries, radius, limit=limit),
            )
            assert sharded.probe(queries[0], radius) == whole.probe(queries[0], radius)
        assert_equal(
            sharded.nearest_many(queries, limit * 9), whole.nearest_many(queries, limit * 9)
        )
        assert content_of(sharded) == content_of(whole)
        known = sorted({item for _, item in content_of(whole)})
        for case, wanted in zip(
            sharded.fingerprints_of(known), whole.fingerprints_of(known), strict=True
        ):
            assert np.array_equal(case, wanted)
        radius = int(rng.integers(0, 8))
        assert pairs_in(sharded.pairs(radius, duplicates=True)) == pairs_in(
            whole.pairs(radius, duplicates=True)
        )
        assert pairs_in(sharded.join(queries, radius)) == pairs_in(whole.join(queries, radius))
        assert list(sharded.clusters(radius, group="connected")) == list(
            whole.clusters(radius, group="connected")
        )
        if kind == "row":
            central = {"group": "greedy", "keep": "central"}
            assert list(sharded.clusters(radius, **central)) == list(
                whole.clusters(radius, **central)
            )
        assert sharded.verify().ok
