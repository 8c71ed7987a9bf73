"""Documents that share a fingerprint, as pairs, against brute force over all rows."""

from collections import Counter
from itertools import combinations

import numpy as np
import pyarrow.parquet as pq
import pytest
from commandline import fine, run
from speeds import SOME_WIDTHS

import fpstore
from fpstore.base.width import Width
from fpstore.jobs.pairs import _combination


def rows_near(width, rng, count):
    """Return (fingerprint, id) rows: few fingerprints, many of them near each other, most with several ids."""
    base = [int.from_bytes(rng.bytes(width // 8), "big") for _ in range(count // 12)]
    numbers = [
        base[i] ^ 1 << int(bit) for i, bit in zip(rng.integers(0, len(base), count), rng.integers(0, 5, count), strict=True)
    ]
    return list(enumerate(numbers))


def wanted(held, radius):
    """Return all unordered pairs of rows within the radius, with their distance."""
    return sorted(
        ((a ^ b).bit_count(), *sorted([(a, i), (b, j)]))
        for (i, a), (j, b) in combinations(sorted(held), 2)
        if (a ^ b).bit_count() <= radius
    )  # fmt: skip


def found(store, radius, **options):
    """Return the same of a store, and check what the columns say of each other."""
    width, out = Width(store.width), []
    for batch in store.pairs(radius, duplicates=True, **options):
        assert all((pair.a == pair.b) == (pair.distance == 0) for pair in batch)
        for part in batch.rows_of_ids():
            assert len(part["distance"]) <= 1 << 16
            a, b = (numbers_of(width, part[side]) for side in "ab")
            ids = [list(map(plain, part[f"id_{side}"])) for side in "ab"]
            out += [(d, *sorted([(f, i), (g, j)])) for d, f, g, i, j in zip(part["distance"].tolist(), a, b, *ids, strict=True)]
    return sorted(out)


def numbers_of(width, values):
    return [int.from_bytes(bytes(row), "big") for row in values] if width.bits > 64 else values.tolist()


def plain(value):
    return value if isinstance(value, str) else int(value)


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_all_pairs_of_rows_after_changes(tmp_path, width, kind):
    rng = np.random.default_rng([width, kind is str])
    rows = [(f"d{i}" if kind is str else i, f) for i, f in rows_near(width, rng, 240)]
    outside = Width(width).outside(Width(width).rows(f for _, f in rows))
    ids = [i for i, _ in rows]
    given = ids if kind is str else np.array(ids, np.uint64)
    fpstore.build(tmp_path / "s", outside[:150], given[:150], width=width, radius=2).close()
    with fpstore.open(tmp_path / "s", "r+", sync="none") as store:
        held = dict(rows[:150])
        for step in ("built", "inserted", "deleted", "merged"):
            if step == "inserted":
                store.insert(outside[150:], given[150:])
                held.update(rows[150:])
            elif step == "deleted":
                gone = [ids[n] for n in rng.permutation(240)[:100].tolist()]
                store.delete(ids=gone)
                held = {i: f for i, f in held.items() if i not in set(gone)}
            elif step == "merged":
                store.merge()
            for radius in (0, 1, 3):
                assert found(store, radius, threads=2) == wanted(held.items(), radius), (step, radius)
        assert wanted(held.items(), 0)
        assert not list(store.pairs(0))


def test_many_ids_come_in_bounded_parts(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    sizes = [1, 2, 50, 3, 1, 7, 7, 7, 20, 2]
    values = np.repeat(np.arange(len(sizes), dtype=np.uint64) << np.uint64(20), sizes)[rng.permutation(sum(sizes))]
    fpstore.build(tmp_path / "s", values, radius=0).close()
    rows = list(enumerate(values.tolist()))
    for most in (1, 2, 9, 1000):
        monkeypatch.setattr("fpstore.jobs.pairs.MOST_ROWS", most)
        with fpstore.open(tmp_path / "s") as store:
            batches = list(store.pairs(0, duplicates=True))
            of_one = [n for n in sizes if n > 1]
            assert sum(map(len, batches)) == len(of_one)
            assert all(len(batch) == 1 or batch.ids_a().lims[-1] <= most + 1 for batch in batches)
            assert all(len(batch.to_arrow()) <= most for batch in batches)
            assert found(store, 0) == wanted(rows, 0)
            table = [row for batch in batches for row in batch.to_arrow().to_pylist()]
            assert len(table) == sum(n * (n - 1) // 2 for n in of_one)


def test_the_ids_of_a_huge_group_are_a_stream(tmp_path):
    """2 * 10^10 pairs, of which only the first are made: a batch has 65,536 of them, also as a table."""
    with fpstore.build(tmp_path / "s", np.full(200_000, 77, np.uint64), radius=0) as store:
        batches = store.pairs(0, duplicates=True)
        first, second = next(batches), next(batches)
        assert (list(first), list(second)) == ([(77, 77, 0)], [])
        assert first.to_arrow()["id_a"].to_pylist() == [0] * 65_536
        assert first.to_arrow()["id_b"].to_pylist() == list(range(1, 65_537))
        assert second.to_arrow()["id_b"].to_pylist() == list(range(65_537, 131_073))
        assert set(second.to_arrow()["a"].to_pylist()) == {77}
        assert (len(first.ids_a().ids), len(second.ids_a().ids)) == (200_000, 0)


@pytest.mark.parametrize("strings", [False, True])
def test_batches_of_crowds_are_bounded(tmp_path, monkeypatch, strings):
    """Of 300 documents and 200 whose fingerprint is near, and of others, no batch has more than 1,000 pairs of ids."""
    monkeypatch.setattr("fpstore.jobs.pairs.MOST_ROWS", 1000)
    values = np.repeat(np.array([0, 1, 16, 17, 7 << 40, 7 << 40 | 1], np.uint64), [300, 200, 1, 3, 40, 30])
    ids = [f"document {n}" for n in range(len(values))] if strings else np.arange(len(values), dtype=np.uint64)
    with fpstore.build(tmp_path / "s", values, ids, radius=1) as store:
        near = {(0, 1): 300 * 200, (16, 17): 3, (0, 16): 300, (1, 17): 600, (7 << 40, 7 << 40 | 1): 1200}
        for batches in (store.pairs(1), store.join(store, 1), store.join(values, 1, ids=ids)):
            rows, pairs = [], []
            for batch in batches:
                table = batch.to_arrow()
                assert len(table) <= 1000
                rows += zip(*(table[name].to_pylist() for name in ("a", "b", "id_a", "id_b")), strict=True)
                pairs += [(pair.a, pair.b) for pair in batch if pair.a < pair.b]
            assert sorted(pairs) == sorted(near)
            assert len(rows) == len(set(rows))
            ascending = [row for row in rows if row[0] < row[1]]
            assert Counter((a, b) for a, b, *_ in ascending) == near
            of = dict(zip(list(ids), values.tolist(), strict=True))
            assert all((of[id_a], of[id_b]) == (a, b) for a, b, id_a, id_b in rows)


@pytest.mark.parametrize("size", [2, 3, 4, 10, 1000, 2**20 + 1, 2**31 - 1])
def test_numbers_of_combinations(size):
    total = size * (size - 1) // 2
    near_ends = [0, 1, total // 3, total // 2, total - 2, total - 1, *(n * (size - 1) for n in range(40))]
    numbers = np.arange(total) if total < 10**6 else np.unique([n for n in near_ends if n < total])
    first, second = _combination(numbers, np.full(len(numbers), size))
    assert ((first >= 0) & (first < second) & (second < size)).all()
    # The number of those with a lesser first one, and of those before the second.
    i, j = first.astype(object), second.astype(object)
    assert (i * size - i * (i + 1) // 2 + j - i - 1).tolist() == numbers.tolist()


def test_joins_pair_the_ids_of_both_sides(tmp_path):
    """Equal fingerprints there are of two sets: each id of the one with each of the other."""
    with fpstore.build(tmp_path / "s", [5, 5, 9], ["a", "b", "c"], radius=0) as store:
        (batch,) = store.join([5, 5], 0, ids=["x", "y"])
        (part,) = batch.rows_of_ids()
        assert sorted(zip(part["id_a"], part["id_b"], strict=True)) == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


def test_the_verb(tmp_path):
    source = tmp_path / "in.tsv"
    source.write_text("0000000000000008\ta\n000000000000000b\tb\n0000000000000008\tc\n0000000000000008\td\n")
    path = tmp_path / "s"
    fine("build", path, source, "--quiet")
    same = [f"0000000000000008\t0000000000000008\t0\t{pair[0]}\t{pair[1]}" for pair in ("ac", "ad", "cd")]
    assert fine("pairs", path, "-r", 0, "--duplicates", "-q").splitlines() == same
    near = [f"0000000000000008\t000000000000000b\t2\t{one}\tb" for one in "acd"]
    told = run("pairs", path, "--duplicates")
    assert told.stdout.splitlines() == [*same, *near]
    assert told.stderr == "fpstore: 1 pair of fingerprints; 1 fingerprint of several documents\n"
    fine("pairs", path, "--duplicates", "-q", "-o", tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet")["id_b"].to_pylist() == ["c", "d", "d", "b", "b", "b"]
    told = run("pairs", path, "-r", 1).stderr
    assert told.endswith(
        "2 documents with the fingerprint of another one: fpstore cluster brings them together, --duplicates pairs them\n"
    )
