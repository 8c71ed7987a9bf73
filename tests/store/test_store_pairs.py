"""Pairs and clusters of a store against brute force, with changes, many ids, and verbs."""

import json
from itertools import combinations

import near_pairs
import numpy as np
import pyarrow.parquet as pq
import pytest
from column_sets import make_set
from commandline import fine, run
from speeds import SOME_WIDTHS, slow

import fpstore
from fpstore import ImageHash, SimHash
from fpstore.errors import ClosedStoreError, InputError


@pytest.fixture
def store(tmp_path):
    """Return a store with changes, and what it holds: (fingerprint, id)."""
    rows = make_set("clustered", 64, 600, np.random.default_rng(5))[:, 0]
    ids = [f"d{i}" for i in range(len(rows))]
    fpstore.build(tmp_path / "s", rows[:400], ids[:400], radius=3).close()
    opened = fpstore.open(tmp_path / "s", "r+", sync="none")
    opened.insert(rows[400:], ids[400:])
    opened.insert(rows[:50], [f"again{i}" for i in range(50)])
    opened.delete(ids=ids[60:90])
    held = [
        *zip(rows.tolist(), ids, strict=True),
        *((int(rows[i]), f"again{i}") for i in range(50)),
    ]
    with opened:
        yield opened, [(f, i) for f, i in held if i not in set(ids[60:90])]


@pytest.mark.parametrize("radius", [None, slow(0), 4])
def test_pairs_and_clusters_of_a_store_with_changes(store, radius):
    opened, held = store
    near = 3 if radius is None else radius
    stored = sorted({f for f, _ in held})
    expected = {
        (f, g, (f ^ g).bit_count())
        for f, g in combinations(stored, 2)
        if (f ^ g).bit_count() <= near
    }
    batches = list(opened.pairs(radius, threads=2))
    results = [tuple(pair) for batch in batches for pair in batch]
    assert len(results) == len(expected) == sum(map(len, batches))
    assert set(results) == expected
    wanted = {f: sorted(i for g, i in held if g == f) for f in stored}
    for batch in batches:
        assert batch[0] == next(iter(batch))
        assert batch[-1] == list(batch)[-1]
        assert batch[1:] == list(batch)[1:]
        for number, side, ids in ((0, batch.a, batch.ids_a()), (1, batch.b, batch.ids_b())):
            for f, place in zip(side.tolist(), ids.places.tolist(), strict=True):
                assert sorted(ids.ids[ids.lims[place] : ids.lims[place + 1]]) == wanted[f]
            assert len(ids.lims) == len({pair[number] for pair in batch}) + 1
    results = opened.clusters(radius)
    distances = near_pairs.brute(np.array([f for f, _ in held], np.uint64))
    components = near_pairs.wanted_groups(distances, near)
    assert {frozenset(members) for members in results} == {
        frozenset(held[place][1] for place in places) for places in components
    }
    assert len(results) == len(list(results)) == len(results[:])
    assert results.documents == len(held)
    assert results.duplicates == sum(len(members) - 1 for members in results)
    columns = results.columns()
    assert columns["representative"] == [members[0] for members in results for _ in members]
    assert columns["id"] == [name for members in results for name in members]
    assert columns["cluster"].tolist() == [c for c, members in enumerate(results) for _ in members]


@pytest.mark.parametrize("values", [[], [5], [5, 255 << 40]])
def test_greedy_groups_where_nothing_is_near(tmp_path, values):
    with fpstore.build(tmp_path / "s", values) as store:
        assert (
            list(store.clusters(group="greedy", keep="central"))
            == list(store.clusters(group="greedy"))
            == []
        )


def test_groups_of_pictures_have_no_chains_by_default(tmp_path):
    chain = [0, 0b1111, 0b11111111]
    for name, fingerprinter, expected in (
        ("p", ImageHash(), [[0, 1]]),
        ("t", SimHash(), [[0, 1, 2]]),
        ("n", None, [[0, 1, 2]]),
    ):
        with fpstore.build(tmp_path / name, chain, radius=4, fingerprinter=fingerprinter) as store:
            assert list(store.clusters()) == expected
            assert list(store.clusters(group="connected")) == [[0, 1, 2]]
        lines = fine("cluster", str(tmp_path / name), "-q").splitlines()
        assert [int(line.split("\t")[0]) for line in lines] == expected[0]
    assert len(fine("cluster", str(tmp_path / "p"), "--group", "connected", "-q").splitlines()) == 3


def test_groupings_that_are_refused(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 2, 3], [5, 5, 6]) as store:
        assert list(store.clusters(1)) == [[5, 6]]
        for arguments in ({"group": "greedy"}, {"keep": "central"}):
            with pytest.raises(
                InputError,
                match="needs documents of one fingerprint each, but some have several: 1 "
                "fingerprint more than documents",
            ):
                store.clusters(1, **arguments)


def test_integer_ids_in_order(tmp_path):
    with fpstore.build(
        tmp_path / "s", [5, 4, 1 << 40, 5, 1 << 41 | 1 << 50], ids=[9, 3, 7, 2, 8]
    ) as store:
        assert list(store.clusters(1)) == [[2, 3, 9]]
        assert list(store.clusters(3)) == [[2, 3, 7, 8, 9]]
        assert store.clusters(1)[0] == [2, 3, 9]
        assert store.clusters(1)[-1:] == [[2, 3, 9]]


def test_the_representative_is_the_id_that_was_seen_first(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 0, 3, 7 << 40], ids=["z", "m", "a", "b"]) as store:
        assert list(store.clusters(1)) == [["z", "m", "a"]]
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(2, "k")
        assert list(store.clusters(1)) == [["z", "m", "a", "k"]]
        store.merge()
        assert list(store.clusters(1)) == [["z", "m", "a", "k"]]


def test_a_document_of_several_fingerprints_connects_them(tmp_path):
    far = 0xFFFF_0000_FFFF_0000
    with fpstore.build(
        tmp_path / "s", [1, far, 0, far + 1, 1 << 30 | 7 << 9], ids=["a", "a", "b", "c", "d"]
    ) as store:
        assert list(store.clusters(1)) == [["a", "b", "c"]]
        assert list(store.clusters(0)) == []


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_forms_of_every_width(tmp_path, width):
    values = [3, 1, 1 << (width - 1), (1 << width) - 1]
    with fpstore.build(tmp_path / "s", values, width=width, radius=2) as store:
        (batch,) = store.pairs()
        assert (
            [tuple(pair) for pair in batch]
            == [(1, 3, 1), (1, 1 << (width - 1), 2)]
            == [tuple(batch[0]), tuple(batch[1])]
        )
        assert batch.a.dtype == store.probe_many(values).fingerprints.dtype
        assert batch.distances.dtype == store.probe_many(values).distances.dtype
        assert list(store.clusters()) == [[0, 1, 2]]
        assert [len(b) for b in store.pairs(width)] == [6]


def test_pairs_are_of_one_moment(store):
    opened, held = store
    pairs = opened.pairs()
    new = max(f for f, _ in held) ^ 1
    opened.insert(new, "new")
    assert new not in {f for batch in pairs for pair in batch for f in pair[:2]}
    opened.close()
    for ask in (opened.pairs, opened.clusters):
        with pytest.raises(ClosedStoreError):
            ask()


def test_an_empty_store_has_none(tmp_path):
    with fpstore.build(tmp_path / "s", []) as store:
        assert (list(store.pairs()), list(store.clusters()), store.clusters().duplicates) == (
            [],
            [],
            0,
        )
        assert repr(store.clusters()) == "<fpstore.Clusters: 0 clusters of 0 among 0 documents>"


# On the command line


def test_the_verbs(tmp_path):
    source = tmp_path / "in.tsv"
    source.write_text(
        "0000000000000008\ta\n000000000000000b\tb\n0000000000000008\tc\n00000000ffff0000\td\n"
    )
    path = tmp_path / "s"
    fine("build", path, source, "--quiet")
    assert fine("pairs", path, "-r", 2, "-q") == (
        "0000000000000008\t000000000000000b\t2\ta\tb\n0000000000000008\t000000000000000b\t2\tc\tb\n"
    )
    rows = [json.loads(line) for line in fine("pairs", path, "--json", "--quiet").splitlines()]
    assert rows[0] == {
        "a": "0000000000000008",
        "b": "000000000000000b",
        "distance": 2,
        "id_a": "a",
        "id_b": "b",
    }
    done = run("pairs", path, "-r", 1)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert done.stderr.startswith(
        "fpstore: 0 pairs of fingerprints; not listed: 1 document with the fingerprint of another "
        "one: "
    )
    done = run("cluster", path)
    assert done.stdout == "a\t0\ta\nb\t0\ta\nc\t0\ta\n"
    assert (
        done.stderr == "fpstore: 4 documents, 1 cluster, the largest of 3 documents, 2 duplicates\n"
    )
    assert fine("cluster", path, "-r", 1, "--quiet") == "a\t0\ta\nc\t0\ta\n"
    fine("cluster", path, "-o", tmp_path / "c.parquet", "--quiet")
    assert pq.read_table(tmp_path / "c.parquet").to_pylist()[1] == {
        "id": "b",
        "cluster": 0,
        "representative": "a",
    }


def test_many_ids_of_a_pair_are_written_in_parts(tmp_path, set_limits):
    set_limits(id_pairs=7)
    path = tmp_path / "s"
    with fpstore.build(path, [1] * 5 + [3] * 4 + [1 << 60] * 2) as store:
        lines = fine("pairs", path, "--radius", 1, "-q").splitlines()
        assert len(store) == 3
    assert sorted(line.split("\t")[3:] for line in lines) == sorted(
        [str(a), str(b)] for a in range(5) for b in range(5, 9)
    )


@pytest.mark.parametrize("width", [64, 128])
def test_batches_are_cut_alike_with_and_without_look_ups(tmp_path, set_limits, width):
    set_limits(id_pairs=7)
    lone = [1 << bit for bit in range(width)]
    several = [0] * 5 + [1] * 3 + [1 << 40] * 2 + [1 << (width - 1)] * 4
    with fpstore.build(tmp_path / "s", lone + several, width=width) as store:
        batches = []
        for share in (1, 1 << 40):
            set_limits(shared_share=share)
            batches.append(
                [(list(batch), batch.to_arrow().to_pylist()) for batch in store.pairs(1)]
            )
    assert batches[0] == batches[1]
    assert sum(len(rows) for _, rows in batches[0]) == 5 * (width + 3 + 2 + 4)
