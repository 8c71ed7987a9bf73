"""nearest() and limit= against brute force: every design, kind of set and instruction set.

Small and living stores.
"""

import pickle

import numpy as np
import pytest
import tableimage
from brute_force import brute_force
from sets import queries_for
from speeds import crossed, slow

import fpstore
from fpstore.design.costs import scan_nanoseconds
from fpstore.design.estimates import probe_nanoseconds
from fpstore.query.nearest import _radii

SIZES = (0, 1, 3, 90, 400)
KINDS = ("random", "clustered", "dense", "skewed")


def made(kind, n, seed=1):
    return np.unique(tableimage.make_keys(kind, seed, n)) if n else np.empty(0, np.uint64)


def queries_of(fingerprints):
    return queries_for(fingerprints, np.random.default_rng(2), 8)


def nearest(fingerprints, query, radius=64):
    return [
        *zip(*(column.tolist() for column in brute_force(fingerprints, query, radius)), strict=True)
    ]


def rows(matches):
    return [[(m.fingerprint, m.distance) for m in row] for row in matches]


@pytest.mark.parametrize(
    ("size", "kind", "design"),
    crossed(SIZES, KINDS, ["flip-2", "manku-10", "scan", "auto", "columns-4-12"], share=5),
)
def test_nearest_and_limits_are_those_of_brute_force(tmp_path, kind, design, size):
    fingerprints = made(kind, size)
    queries = queries_of(fingerprints)
    every = [nearest(fingerprints, q) for q in queries]

    def within(radius):
        return [[m for m in row if m[1] <= radius] for row in every]

    with fpstore.build(tmp_path / "s", fingerprints, design=design, block_bytes=128) as store:
        for count in (1, 2, 7, size + 5):
            for radius in (None, 0, 3, 20):
                expected = [row[:count] for row in within(64 if radius is None else radius)]
                assert (
                    rows(store.nearest_many(queries, count, max_radius=radius, threads=2))
                    == expected
                )
            first = [(m.fingerprint, m.distance) for m in store.nearest(int(queries[0]), count)]
            assert first == every[0][:count]
            for radius in (1, 3, 30, 64):
                expected = within(radius)
                answers = [store.scan(queries, radius, limit=count)]
                if radius <= 3:
                    answers.append(store.probe_many(queries, radius, limit=count))
                    alone = store.probe(int(queries[0]), radius, limit=count)
                    assert [(m.fingerprint, m.distance) for m in alone] == expected[0][:count]
                    assert alone.more == (len(expected[0]) > count)
                for answer in answers:
                    assert rows(answer) == [row[:count] for row in expected]
                    assert answer.more.tolist() == [len(row) > count for row in expected]


def test_match_list_says_whether_a_limit_left_out_others(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 2, 3]) as store:
        whole, limited = store.probe(1), store.probe(1, limit=2)
        assert {
            type(item) for item in (whole, limited, store.nearest(1, 2), *store.probe_many([1]))
        } == {fpstore.MatchList}
        assert [item.more for item in (whole, limited, store.nearest(1, 2))] == [
            False,
            True,
            False,
        ]
        assert [item.more for item in store.probe_many([1, 40], limit=2)] == [True, False]
        assert (
            store.probe_many([1, 2]).more.tolist()
            == store.nearest_many([1, 1], 2).more.tolist()
            == [False, False]
        )
        assert whole[:2] == limited == list(limited)
        assert pickle.loads(pickle.dumps(limited)).more


@pytest.mark.parametrize("radius", [3, slow(10), 40])
def test_a_changing_store_answers_as_its_content_says(tmp_path, radius):
    """Deleted fingerprints are not among the nearest, and added ones are.

    A result keeps its moment.
    """
    base, added = made("clustered", 500), made("clustered", 300, seed=9)
    with fpstore.build(tmp_path / "s", base, radius=radius) as store:
        queries = queries_of(base)
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(added, np.arange(len(added)) + 10_000)
        gone = np.concatenate([rows_near(base, queries), added[::3]])
        store.delete(fingerprints=gone)
        content = np.setdiff1d(np.union1d(base, added), gone)
        before = store.nearest_many(queries, 4)
        for count in (1, 4, 2000):
            assert rows(store.nearest_many(queries, count)) == [
                nearest(content, q)[:count] for q in queries
            ]
            for within in (2, radius):
                expected = [nearest(content, q, within) for q in queries]
                for item in (
                    store.probe_many(queries, within, limit=count),
                    store.scan(queries, within, limit=count),
                ):
                    assert rows(item) == [row[:count] for row in expected]
                    assert item.more.tolist() == [len(row) > count for row in expected]
        expected = rows(before)
        store.delete(fingerprints=content[:200])
        assert rows(before) == expected
        store.merge()
        content = content[200:]
        assert rows(store.nearest_many(queries, 3)) == [nearest(content, q)[:3] for q in queries]
        assert store.verify().ok


def rows_near(fingerprints, queries):
    return np.unique([nearest(fingerprints, q)[i][0] for q in queries for i in (0, 2)]).astype(
        np.uint64
    )


def test_many_queries_keep_to_the_limit_in_parts(tmp_path, set_limits):
    """A part with too many matches is halved, down to one query."""
    set_limits(nearest_matches=100)
    fingerprints = made("dense", 500)
    queries = np.tile(fingerprints[:40], 10)
    with fpstore.build(tmp_path / "s", fingerprints, design="flip-2") as store:
        matches = store.probe_many(queries, 3, limit=5)
        assert rows(matches) == [nearest(fingerprints, q, 3)[:5] for q in queries]
        assert matches.more.all()


def test_the_kernel_leaves_out_what_is_absent(tmp_path):
    fingerprints = made("random", 3000)
    absent = fingerprints[::7].copy()
    with fpstore.build(tmp_path / "s", fingerprints, block_bytes=128) as store:
        table = store.snapshot().generation.tables[0].kernel
        queries = queries_of(fingerprints)
        lims, matches, distances, more = table.nearest(queries, 22, 3, 0, table.block_count, absent)
        for q, query in enumerate(queries):
            expected = nearest(np.setdiff1d(fingerprints, absent), query, 22)
            part = slice(lims[q], lims[q + 1])
            assert (
                list(zip(matches[part].tolist(), distances[part].tolist(), strict=True))
                == expected[:3]
            )
            assert more[q] == (len(expected) > 3)
        with pytest.raises(ValueError, match="limit"):
            table.nearest(queries, 22, 0, 0, 1, absent)
        with pytest.raises(IndexError):
            table.nearest(queries, 22, 1, 0, table.block_count + 1, absent)


@pytest.mark.parametrize(
    ("queries", "design", "width", "radius"),
    [
        (1, "columns-4", 64, 16),
        (1000, "columns-16", 256, 64),
        (1, "columns-16", 256, 64),
        slow(1000, "columns-4", 64, 16),
        slow(1, "flip-4", 64, 16),
        (1000, "flip-4", 64, 16),
    ],
)
def test_radii_grow_as_far_as_they_cost_less_than_a_scan(tmp_path, design, width, radius, queries):
    """Column tables were taken for tables of blocks, and one query for one of a batch."""
    rows = np.random.default_rng(3).integers(0, 256, (1 << 16, width // 8), np.uint8)
    with fpstore.build(tmp_path / "s", rows, width=width, radius=radius, design=design) as store:
        snapshot = store.snapshot()
        tried, generation = list(_radii(snapshot, width, queries)), snapshot.generation
        blocks, words = generation.manifest.blocks, generation.design.width.words
        costs = [
            probe_nanoseconds(generation.design, 1 << 16, r, queries, blocks)
            for r in range(radius + 1)
        ]
        scan = scan_nanoseconds(1 << 16, words, queries)
        assert tried == list(range(len(tried)))
        assert sum(costs[: len(tried)]) <= scan
        assert (
            len(tried) > radius
            or sum(costs[: len(tried) + 1]) > scan
            or generation.scans(len(tried))
        )
        if design == "columns-16":
            assert len(tried) >= 25


@pytest.mark.parametrize("design", ["flip-2", "columns-4-12", "scan"])
def test_no_queries(tmp_path, design):
    """The time of a scan was shared among none."""
    with fpstore.build(tmp_path / "s", made("random", 1000), design=design) as store:
        assert len(store.nearest_many(np.empty(0, np.uint64), 3)) == 0
