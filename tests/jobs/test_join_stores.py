"""Pairs of stores, of documents that share a fingerprint, and of two sides, against brute force."""

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from column_sets import KINDS, kernel_rows, make_set
from commandline import TEXT, TEXT_AND_ID, failure, fine, run
from inputs import json_lines
from speeds import crossed, slow

import fpstore
from fpstore import MinHash
from fpstore.base.arrays import nth_combinations
from fpstore.base.width import WIDTHS, Width
from fpstore.errors import InputError
from fpstore.io import open_reader
from fpstore.jobs import pairs as jobs_pairs
from fpstore.query.store_snapshot import StoreSnapshot


def wanted(stored, others, radius):
    """Return (id, id, distance) of all pairs of (fingerprint, id)."""
    return sorted(
        (i, j, (f ^ g).bit_count())
        for f, i in stored
        for g, j in others
        if (f ^ g).bit_count() <= radius
    )


def found(batches):
    out = []
    for batch in batches:
        for part in batch.rows_of_ids():
            ids = (
                part[name] if isinstance(part[name], list) else part[name].tolist()
                for name in ("id_a", "id_b")
            )
            out += zip(*ids, part["distance"].tolist(), strict=True)
    return sorted(out)


WAYS = ["chosen", "probes", "tables"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Ask as the estimates choose, by probes where the tables serve the radius, or by tables."""
    if request.param == "probes":
        monkeypatch.setattr(jobs_pairs, "join_nanoseconds", lambda *_: float("inf"))
    elif request.param == "tables":
        monkeypatch.setattr(StoreSnapshot, "probe_nanoseconds", lambda *_: float("inf"))
    return request.param


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("width", "kind", "way"), crossed(WIDTHS, KINDS, WAYS, share=6), indirect=["way"]
)
def test_pairs_of_a_store_and_fingerprints(tmp_path, width, kind, way):
    rng = np.random.default_rng([width, len(kind)])
    rows = kernel_rows(make_set(kind, width, 500, rng))
    values, size = Width(width).numbers(rows), Width(width)
    stored = [(value, f"s{n}") for n, value in enumerate(values) if n % 3]
    others = [(value, f"o{n}") for n, value in enumerate(values) if n % 3 == 0 or n % 7 == 0]
    others += others[:9]
    others = [(value, f"{name}.{n}") for n, (value, name) in enumerate(others)]
    for a, b in ((stored, others), (others, stored)):
        with fpstore.build(
            tmp_path / f"s{len(a)}", [v for v, _ in a], [i for _, i in a], width=width, radius=4
        ) as store:
            for radius in (None, 0, 3, 7):
                pairs = store.join([v for v, _ in b], radius, ids=[i for _, i in b], threads=2)
                assert found(pairs) == wanted(a, b, 4 if radius is None else radius), radius
            assert found(store.join(size.to_array(size.rows([v for v, _ in b])))) == wanted(
                a, [(v, n) for n, (v, _) in enumerate(b)], 4
            )


@pytest.mark.sampled(1)
def test_pairs_of_two_stores_with_changes(tmp_path, way):
    values = make_set("clustered", 64, 900, np.random.default_rng(5))[:, 0].tolist()
    a = [(value, f"a{n}") for n, value in enumerate(values[:500])]
    b = [(value, n) for n, value in enumerate(values[400:])]
    fpstore.build(tmp_path / "a", [v for v, _ in a[:300]], [i for _, i in a[:300]]).close()
    fpstore.build(tmp_path / "b", [v for v, _ in b[:400]], [i for _, i in b[:400]]).close()
    with fpstore.open(tmp_path / "a", "r+") as single, fpstore.open(tmp_path / "b", "r+") as two:
        single.insert([v for v, _ in a[300:]], [i for _, i in a[300:]])
        two.insert([v for v, _ in b[400:]], [i for _, i in b[400:]])
        single.delete(ids=[i for _, i in a[:50]])
        for radius in (0, 2, 5):
            assert found(single.join(two, radius)) == wanted(a[50:], b, radius)
            assert found(two.join(single, radius)) == wanted(b, a[50:], radius)
        batch = next(single.join(two, 2))
        assert all(
            (int(f) ^ int(g)).bit_count() == d
            for f, g, d in zip(batch.a, batch.b, batch.distances, strict=True)
        )


def test_empty_sides_readers_and_what_is_refused(tmp_path):
    lines, bare = tmp_path / "a.tsv", tmp_path / "b.txt"
    lines.write_text("0000000000000004\tx\n0000000000000002\ty\n")
    bare.write_text("0000000000000004\n")
    with (
        fpstore.build(tmp_path / "e", []) as empty,
        fpstore.build(tmp_path / "s", [5, 9]) as store,
        fpstore.build(tmp_path / "w", [5], width=128) as wide,
    ):
        assert found(empty.join(store)) == found(store.join(empty)) == found(store.join([])) == []
        assert found(store.join(8, 1)) == [(1, 0, 1)]
        assert found(store.join(8, 1, ids="x")) == [(1, "x", 1)]
        assert found(store.join(open_reader(lines), 1)) == [(0, "x", 1)]
        assert found(store.join(open_reader(bare), 1)) == [(0, 0, 1)]
        expected = (
            r"s: join takes an open store or reader, not a path: pass fpstore\.open\(path\) .* or "
            r"fpstore\.io\.open_reader\(path"
        )
        for other, arguments, message in (
            (wide, {}, "this store holds 64 bits, and the other one 128"),
            (store, {"ids": [1, 2]}, "a store has its own"),
            ([1, 2], {"ids": [1]}, "1 id for 2 fingerprints"),
            ([1.5], {}, "position 0: a fingerprint is an int"),
            (
                open_reader(lines, width=128),
                {},
                "the reader was opened for fingerprints of 128 bits",
            ),
            (open_reader(lines), {"ids": ["a", "b"]}, "a reader has ids of its own"),
            (tmp_path / "s", {}, expected),
            (str(tmp_path / "s"), {}, expected),
        ):
            with pytest.raises(InputError, match=message):
                next(store.join(other, **arguments))


def test_the_cheaper_way_is_taken(tmp_path, monkeypatch):
    """Few queries are looked up, and as many as there are fingerprints are joined."""
    rows = np.random.default_rng(1).integers(0, 2**64, 20_000, np.uint64)
    calls = []
    monkeypatch.setattr(jobs_pairs, "pairs_between", lambda *_: calls.append("tables") or iter(()))
    monkeypatch.setattr(
        StoreSnapshot, "probe_in_parts", lambda *_: calls.append("probes") or iter(())
    )
    with fpstore.build(tmp_path / "s", rows) as store:
        for others in (rows[:5] ^ np.uint64(1), rows ^ np.uint64(1)):
            list(store.join(others))
    assert calls == ["probes", "tables"]


def test_command_line(folder: Path) -> None:
    lines = fine("join", "crawl.fps", "monday.fps", "-r", 3, "--quiet").splitlines()
    # it is four bits away
    assert not any("00ff07ff00ff00fe" in line and line.endswith("\ta\tb-new") for line in lines)
    assert "00ff00ff00ff00ff\t00ff07ff00ff00ff\t3\ta\ta-new" in lines
    with fpstore.open("crawl.fps") as store, fpstore.open("monday.fps") as other:
        assert len(lines) == sum(
            len(part["id_a"]) for batch in store.join(other, 3) for part in batch.rows_of_ids()
        )
    columns = ("--fingerprint-field", "hash", "--id-field", "url")
    lines = fine("join", "crawl.fps", "crawl.jsonl", *columns, "--json", "-r", 0, "-q").splitlines()
    rows = list(map(json.loads, lines))
    assert {(row["id_a"], row["id_b"]) for row in rows} >= {
        ("a", "a"),
        ("a", "a again"),
        ("far", "far"),
    }
    fine("join", "crawl.fps", "new.tsv", "-o", "pairs.parquet", "--quiet")
    assert pq.read_table("pairs.parquet").column_names == ["a", "b", "distance", "id_a", "id_b"]
    assert (
        "is for files, and OTHER is a store"
        in run("join", "crawl.fps", "monday.fps", "--decimal").stderr
    )
    assert "no such file" in failure("join", "crawl.fps", "nothing.tsv")
    assert run("join", "crawl.fps", "monday.fps").stderr.endswith("pairs of fingerprints\n")


def test_texts_are_hashed_as_the_store_hashes_them(folder: Path) -> None:
    fine("build", "pages.fps", "corpus.parquet", *TEXT_AND_ID, "--method", "minhash", "--quiet")
    rows = [
        {"title": t, "body": b}
        for t, b in (
            (TEXT, "other"),
            ("none of it", None),
            ("\u00a0", TEXT + "and one ending"),
            (None, TEXT),
        )
    ]
    Path("texts.jsonl").write_text(json_lines(rows))
    fingerprinter, stored = MinHash(), pq.read_table("corpus.parquet")
    for column in ("title", "body"):
        known = [
            (n, row[column]) for n, row in enumerate(rows) if row[column] not in (None, "\u00a0")
        ]
        wanted = {
            (
                key,
                n,
                int(
                    np.bitwise_count(
                        np.bitwise_xor(*fingerprinter.fingerprints([text, other]))
                    ).sum()
                ),
            )
            for key, text in zip(
                *(stored[name].to_pylist() for name in ("id", "text")), strict=True
            )
            for n, other in known
        }
        result = run(
            "join", "pages.fps", "texts.jsonl", "--text-field", column, "--radius", 50, "--json"
        )
        got = [json.loads(line) for line in result.stdout.splitlines()]
        assert (
            {(row["id_a"], row["id_b"], row["distance"]) for row in got}
            == {item for item in wanted if item[2] <= 50}
            != set()
        )
        assert f"{2 if column == 'title' else 1} row" in result.stderr
    assert "takes no columns of texts" in failure(
        "join", "crawl.fps", "texts.jsonl", "--text-field", "title"
    )
    assert "--decimal is for fingerprints" in failure(
        "join", "pages.fps", "texts.jsonl", "--text-field", "title", "--decimal", code=2
    )
    assert "is for files, and OTHER is a store" in failure(
        "join", "pages.fps", "pages.fps", "--text-field", "title", code=2
    )
    assert "--encoding is for" in failure(
        "join", "crawl.fps", "new.tsv", "--encoding", "utf-8", code=2
    )


def wanted_rows(held, radius):
    """Return all unordered pairs of rows within the radius, with their distance."""
    return sorted(
        ((a ^ b).bit_count(), *sorted([(a, i), (b, j)]))
        for (i, a), (j, b) in combinations(sorted(held), 2)
        if (a ^ b).bit_count() <= radius
    )


def found_rows(store, radius, **options):
    """Return the same of a store, and check what the columns say of each other."""
    out = []
    for batch in store.pairs(radius, duplicates=True, **options):
        assert all((pair.a == pair.b) == (pair.distance == 0) for pair in batch)
        for part in batch.rows_of_ids():
            assert len(part["distance"]) <= 1 << 16
            sides = [part[side] for side in "ab"]
            a, b = (
                [int.from_bytes(bytes(row)) for row in side] if side.ndim > 1 else side.tolist()
                for side in sides
            )
            ids = [
                [item if isinstance(item, str) else int(item) for item in part[f"id_{side}"]]
                for side in "ab"
            ]
            out += [
                (d, *sorted([(f, i), (g, j)]))
                for d, f, g, i, j in zip(part["distance"].tolist(), a, b, *ids, strict=True)
            ]
    return sorted(out)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("width", "kind"), [slow(32, int), (64, int), slow(128, int), (256, str)])
def test_all_pairs_of_rows_after_changes(tmp_path, width, kind):
    """Few fingerprints, many of them near each other, most with several ids."""
    rng = np.random.default_rng([width, kind is str])
    base = [int.from_bytes(rng.bytes(width // 8), "big") for _ in range(20)]
    values = [
        base[i] ^ 1 << int(bit)
        for i, bit in zip(rng.integers(0, 20, 240), rng.integers(0, 5, 240), strict=True)
    ]
    outside = Width(width).to_array(Width(width).rows(values))
    ids = [f"d{i}" for i in range(240)] if kind is str else np.arange(240, dtype=np.uint64)
    rows = list(zip(list(ids) if kind is str else ids.tolist(), values, strict=True))
    fpstore.build(tmp_path / "s", outside[:150], ids[:150], width=width, radius=2).close()
    with fpstore.open(tmp_path / "s", "r+", sync="none") as store:
        held = dict(rows[:150])
        for step in ("built", "inserted", "deleted", "merged"):
            if step == "inserted":
                store.insert(outside[150:], ids[150:])
                held.update(rows[150:])
            elif step == "deleted":
                gone = [rows[n][0] for n in rng.permutation(240)[:100].tolist()]
                store.delete(ids=gone)
                held = {i: f for i, f in held.items() if i not in set(gone)}
            elif step == "merged":
                store.merge()
            for radius in (0, 1, 3):
                assert found_rows(store, radius, threads=2) == wanted_rows(held.items(), radius), (
                    step,
                    radius,
                )
        assert wanted_rows(held.items(), 0)
        assert not list(store.pairs(0))


def test_many_ids_come_in_bounded_parts(tmp_path, set_limits):
    rng = np.random.default_rng(3)
    sizes = [1, 2, 20, 3, 1, 7, 7, 7, 12, 2]
    values = np.repeat(np.arange(len(sizes), dtype=np.uint64) << np.uint64(20), sizes)[
        rng.permutation(sum(sizes))
    ]
    fpstore.build(tmp_path / "s", values, radius=0).close()
    rows = list(enumerate(values.tolist()))
    for most in (1, 2, 9, 1000):
        set_limits(id_pairs=most)
        with fpstore.open(tmp_path / "s") as store:
            batches = list(store.pairs(0, duplicates=True))
            of_one = [n for n in sizes if n > 1]
            assert sum(map(len, batches)) == len(of_one)
            assert all(len(batch) == 1 or batch.ids_a().lims[-1] <= most + 1 for batch in batches)
            assert all(len(batch.to_arrow()) <= most for batch in batches)
            assert found_rows(store, 0) == wanted_rows(rows, 0)
            table = [row for batch in batches for row in batch.to_arrow().to_pylist()]
            assert len(table) == sum(n * (n - 1) // 2 for n in of_one)


def test_the_ids_of_a_huge_group_are_a_stream(tmp_path):
    """2 * 10^10 pairs, of which only the first are made.

    A batch has 65,536 of them, also as a table.
    """
    with fpstore.build(tmp_path / "s", np.full(200_000, 77, np.uint64), radius=0) as store:
        batches = store.pairs(0, duplicates=True)
        first, second = next(batches), next(batches)
        assert (list(first), list(second)) == ([(77, 77, 0)], [])
        assert first.to_arrow()["id_a"].to_pylist() == [0] * 65_536
        assert first.to_arrow()["id_b"].to_pylist() == list(range(1, 65_537))
        assert second.to_arrow()["id_b"].to_pylist() == list(range(65_537, 131_073))
        assert set(second.to_arrow()["a"].to_pylist()) == {77}
        assert (len(first.ids_a().ids), len(second.ids_a().ids)) == (200_000, 0)


@pytest.mark.full
@pytest.mark.parametrize("strings", [False, True])
def test_batches_of_crowds_are_bounded(tmp_path, set_limits, strings):
    """No batch has more than 1,000 pairs of ids, though 300 documents are near 200 others."""
    set_limits(id_pairs=1000)
    values = np.repeat(
        np.array([0, 1, 16, 17, 7 << 40, 7 << 40 | 1], np.uint64), [300, 200, 1, 3, 40, 30]
    )
    ids = (
        [f"document {n}" for n in range(len(values))]
        if strings
        else np.arange(len(values), dtype=np.uint64)
    )
    with fpstore.build(tmp_path / "s", values, ids, radius=1) as store:
        near = {
            (0, 1): 300 * 200,
            (16, 17): 3,
            (0, 16): 300,
            (1, 17): 600,
            (7 << 40, 7 << 40 | 1): 1200,
        }
        for batches in (store.pairs(1), store.join(store, 1), store.join(values, 1, ids=ids)):
            rows, pairs = [], []
            for batch in batches:
                table = batch.to_arrow()
                assert len(table) <= 1000
                rows += zip(
                    *(table[name].to_pylist() for name in ("a", "b", "id_a", "id_b")), strict=True
                )
                pairs += [(pair.a, pair.b) for pair in batch if pair.a < pair.b]
            assert sorted(pairs) == sorted(near)
            assert len(rows) == len(set(rows))
            ascending = [row for row in rows if row[0] < row[1]]
            assert Counter((a, b) for a, b, *_ in ascending) == near
            of = dict(zip(list(ids), values.tolist(), strict=True))
            assert all((of[id_a], of[id_b]) == (a, b) for a, b, id_a, id_b in rows)


def test_numbers_of_combinations():
    for size in (2, 3, 4, 10, 1000, 2**20 + 1, 2**31 - 1):
        total = size * (size - 1) // 2
        near_ends = [
            0,
            1,
            total // 3,
            total // 2,
            total - 2,
            total - 1,
            *(n * (size - 1) for n in range(40)),
        ]
        numbers = (
            np.arange(total) if total < 10**6 else np.unique([n for n in near_ends if n < total])
        )
        first, second = nth_combinations(numbers, np.full(len(numbers), size))
        assert ((first >= 0) & (first < second) & (second < size)).all()
        # The number of those with a lesser first one, and of those before the second.
        i, j = first.astype(object), second.astype(object)
        assert (i * size - i * (i + 1) // 2 + j - i - 1).tolist() == numbers.tolist()


def test_the_verb(tmp_path):
    source = tmp_path / "in.tsv"
    source.write_text(
        "0000000000000008\ta\n000000000000000b\tb\n0000000000000008\tc\n0000000000000008\td\n"
    )
    path = tmp_path / "s"
    fine("build", path, source, "--quiet")
    same = [
        f"0000000000000008\t0000000000000008\t0\t{pair[0]}\t{pair[1]}"
        for pair in ("ac", "ad", "cd")
    ]
    assert fine("pairs", path, "-r", 0, "--duplicates", "-q").splitlines() == same
    near = [f"0000000000000008\t000000000000000b\t2\t{item}\tb" for item in "acd"]
    done = run("pairs", path, "--duplicates")
    assert done.stdout.splitlines() == [*same, *near]
    assert done.stderr == "fpstore: 1 pair of fingerprints; 1 fingerprint of several documents\n"
    fine("pairs", path, "--duplicates", "-q", "-o", tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet")["id_b"].to_pylist() == [
        "c",
        "d",
        "d",
        "b",
        "b",
        "b",
    ]
    done = run("pairs", path, "-r", 1).stderr
    assert done.endswith(
        "not listed: 2 documents with the fingerprint of another one: fpstore cluster brings them "
        "together, "
        "--duplicates pairs them\n"
    )
