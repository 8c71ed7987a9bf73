"""Joins of a store with another one, with fingerprints and with files, against brute force; by probes and by tables."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from column_sets import KINDS, as_given, make_set
from commandline import failure, fine, run
from speeds import crossed

import fpstore
from fpstore.base.width import WIDTHS, Width
from fpstore.errors import InputError
from fpstore.io import open_reader
from fpstore.jobs import pairs as jobs_pairs
from fpstore.query.snapshot import Snapshot


def wanted(stored, others, radius):
    """Return (id, id, distance) of all pairs of (fingerprint, id)."""
    return sorted((i, j, (f ^ g).bit_count()) for f, i in stored for g, j in others if (f ^ g).bit_count() <= radius)


def found(batches):
    out = []
    for batch in batches:
        for part in batch.rows_of_ids():
            ids = (part[name] if isinstance(part[name], list) else part[name].tolist() for name in ("id_a", "id_b"))
            out += zip(*ids, part["distance"].tolist(), strict=True)
    return sorted(out)


WAYS = ["chosen", "probes", "tables"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Ask in the way that the estimates choose, by probes where the tables serve the radius, or by a join of tables."""
    if request.param == "probes":
        monkeypatch.setattr(jobs_pairs, "join_nanoseconds", lambda *_: float("inf"))
    elif request.param == "tables":
        monkeypatch.setattr(jobs_pairs, "probe_nanoseconds", lambda *_: float("inf"))
    return request.param


@pytest.mark.parametrize(("width", "kind", "way"), crossed(WIDTHS, KINDS, WAYS, share=5), indirect=["way"])
def test_pairs_of_a_store_and_fingerprints(tmp_path, width, kind, way):
    rng = np.random.default_rng([width, len(kind)])
    rows = as_given(make_set(kind, width, 500, rng))
    values, size = Width(width).numbers(rows), Width(width)
    stored = [(value, f"s{n}") for n, value in enumerate(values) if n % 3]
    others = [(value, f"o{n}") for n, value in enumerate(values) if n % 3 == 0 or n % 7 == 0]
    others += others[:9]
    others = [(value, f"{name}.{n}") for n, (value, name) in enumerate(others)]
    for a, b in ((stored, others), (others, stored)):
        with fpstore.build(tmp_path / f"s{len(a)}", [v for v, _ in a], [i for _, i in a], width=width, radius=4) as store:
            for radius in (None, 0, 3, 7):
                pairs = store.join([v for v, _ in b], radius, ids=[i for _, i in b], threads=2)
                assert found(pairs) == wanted(a, b, 4 if radius is None else radius), radius
            assert found(store.join(size.outside(size.rows([v for v, _ in b])))) == wanted(
                a, [(v, n) for n, (v, _) in enumerate(b)], 4
            )


def test_pairs_of_two_stores_with_changes(tmp_path, way):
    values = make_set("clustered", 64, 900, np.random.default_rng(5))[:, 0].tolist()
    a = [(value, f"a{n}") for n, value in enumerate(values[:500])]
    b = [(value, n) for n, value in enumerate(values[400:])]
    fpstore.build(tmp_path / "a", [v for v, _ in a[:300]], [i for _, i in a[:300]]).close()
    fpstore.build(tmp_path / "b", [v for v, _ in b[:400]], [i for _, i in b[:400]]).close()
    with fpstore.open(tmp_path / "a", "r+") as one, fpstore.open(tmp_path / "b", "r+") as two:
        one.insert([v for v, _ in a[300:]], [i for _, i in a[300:]])
        two.insert([v for v, _ in b[400:]], [i for _, i in b[400:]])
        one.delete(ids=[i for _, i in a[:50]])
        for radius in (0, 2, 5):
            pairs = one.join(two, radius)
            turned = two.join(one, radius)
            assert found(pairs) == wanted(a[50:], b, radius)
            assert found(turned) == wanted(b, a[50:], radius)
        batch = next(one.join(two, 2))
        assert all((int(f) ^ int(g)).bit_count() == d for f, g, d in zip(batch.a, batch.b, batch.distances, strict=True))
        held = {v for v, _ in a[50:]}
        assert all(int(f) in held for f in batch.a)


def test_empty_sides(tmp_path):
    with fpstore.build(tmp_path / "e", []) as empty, fpstore.build(tmp_path / "s", [5, 6]) as store:
        assert found(empty.join(store)) == found(store.join(empty)) == found(store.join([])) == []
        assert found(store.join(7, 1)) == [(0, 0, 1), (1, 0, 1)]
        assert found(store.join(7, 1, ids="x")) == [(0, "x", 1), (1, "x", 1)]


def test_what_is_refused(tmp_path):
    with fpstore.build(tmp_path / "s", [5, 6]) as store, fpstore.build(tmp_path / "w", [5], width=128) as wide:
        for other, arguments, message in (
            (wide, {}, "this store holds 64 bits, and the other one 128"),
            (store, {"ids": [1, 2]}, "a store has its own"),
            ([1, 2], {"ids": [1]}, "1 id for 2 fingerprints"),
            ([1.5], {}, "fingerprints must be"),
            ([1], {"radius": 65}, "radius"),
        ):
            with pytest.raises(InputError, match=message):
                store.join(other, **arguments)


def test_a_reader(tmp_path):
    (tmp_path / "a.tsv").write_text("0000000000000004\tx\n0000000000000006\ty\n")
    (tmp_path / "b.txt").write_text("0000000000000004\n")
    with fpstore.build(tmp_path / "s", [5, 9]) as store:
        assert found(store.join(open_reader(tmp_path / "a.tsv"), 1)) == [(0, "x", 1)]
        assert found(store.join(open_reader(tmp_path / "b.txt"), 1)) == [(0, 0, 1)]
        with pytest.raises(InputError, match="the reader was opened for fingerprints of 128 bits"):
            store.join(open_reader(tmp_path / "a.tsv", width=128))
        with pytest.raises(InputError, match="a reader has ids of its own"):
            store.join(open_reader(tmp_path / "a.tsv"), ids=["a", "b"])


def test_the_cheaper_way_is_taken(tmp_path, monkeypatch):
    """Few queries are looked up, and as many as there are fingerprints are joined."""
    rows = np.random.default_rng(1).integers(0, 2**64, 20_000, np.uint64)
    asked = []
    monkeypatch.setattr(jobs_pairs, "pairs_between", lambda *_: asked.append("tables") or iter(()))
    monkeypatch.setattr(Snapshot, "probe_in_parts", lambda *_: asked.append("probes") or iter(()))
    with fpstore.build(tmp_path / "s", rows) as store:
        for others in (rows[:5] ^ np.uint64(1), rows ^ np.uint64(1)):
            list(store.join(others))
    assert asked == ["probes", "tables"]


def test_command_line(folder: Path) -> None:
    lines = fine("join", "crawl.fps", "monday.fps", "-r", 3, "--quiet").splitlines()
    assert not any("00ff07ff00ff00fe" in line and line.endswith("\ta\tb-new") for line in lines)  # it is four bits away
    assert "00ff00ff00ff00ff\t00ff07ff00ff00ff\t3\ta\ta-new" in lines
    with fpstore.open("crawl.fps") as store, fpstore.open("monday.fps") as other:
        assert len(lines) == sum(len(part["id_a"]) for batch in store.join(other, 3) for part in batch.rows_of_ids())
    rows = [json.loads(line) for line in fine("join", "crawl.fps", "crawl.jsonl", "--fingerprint-field", "hash", "--id-field",
            "url", "--json", "-r", 0, "-q").splitlines()]  # fmt: skip
    assert {(row["id_a"], row["id_b"]) for row in rows} >= {("a", "a"), ("a", "a again"), ("far", "far")}
    fine("join", "crawl.fps", "new.tsv", "-o", "pairs.parquet", "--quiet")
    assert pq.read_table("pairs.parquet").column_names == ["a", "b", "distance", "id_a", "id_b"]
    assert "is for files, and OTHER is a store" in run("join", "crawl.fps", "monday.fps", "--decimal").stderr
    assert "no such file" in failure("join", "crawl.fps", "nothing.tsv")
    assert run("join", "crawl.fps", "monday.fps").stderr.endswith("pairs of fingerprints\n")


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_path_in_place_of_the_other_side_says_how_to_open_it(tmp_path, as_path):
    with fpstore.build(tmp_path / "s", [1, 2]) as store:
        other = as_path(tmp_path / "s")
        told = r"s: join takes what is open, not a path: pass fpstore\.open\(path\) .* or fpstore\.io\.open_reader\(path"
        with pytest.raises(InputError, match=told):
            next(store.join(other))
        with fpstore.open(other) as opened:
            assert len(next(store.join(opened))) > 0
