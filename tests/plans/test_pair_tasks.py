"""Pairs and joins by tasks.

The rows are those of one process, however stores are sharded and tables are cut.
"""

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_plans import plan_join, plan_pairs, plan_probe
from speeds import crossed
from text_corpora import finished

import fpstore
from fpstore.base.width import Width, distinct_rows
from fpstore.design.joins import designs, scan_design
from fpstore.errors import InputError
from fpstore.io.check import check_fingerprints
from fpstore.jobs.joining import UNBOUNDED, pairs_within
from fpstore.plans.shuffle import slice_places, table_keys
from fpstore.plans.slicing import Slicing, plan_slicing


def near_rows(count, width, radius, seed=1):
    """Return fingerprints as users give them, many near others and some equal."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (count, width // 8), np.uint8)
    for place in range(1, count, 3):
        rows[place] = rows[rng.integers(place)]
        for bit in rng.integers(0, width, rng.integers(0, radius + 2)):
            rows[place, bit // 8] ^= 1 << (bit % 8)
    if width > 64:
        return rows
    return rows.view(f">u{width // 8}").reshape(-1).astype(f"u{width // 8}")


def ids_of(kind, count, name="u"):
    return {
        "row": None,
        "int": np.arange(count, dtype=np.uint64) // 2 + 10**12,
        "string": [f"{name}{n // 2}" for n in range(count)],
    }[kind]


def store_of(path, rows, ids, width, shards):
    """Build a store, or a sharded one.

    Rows are dealt to its shards, so that equal ones are in several; the last one is empty.
    """
    if not shards:
        return fpstore.build(path, rows, ids, width=width)
    path.mkdir()
    for shard in range(shards):
        part = slice(shard, None, max(shards - 1, 1)) if shard < max(shards - 1, 1) else slice(0, 0)
        fpstore.build(
            path / f"shard-{shard:05d}.fps",
            rows[part],
            None if ids is None else ids[part],
            width=width,
        ).close()
    return fpstore.ShardedStore.combine(path)


def lines(batches):
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_arrow().to_pylist())


def written(folder):
    files = sorted(folder.glob("*.parquet"))
    return sorted(tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist())


RADII = [(64, radius) for radius in range(9)] + [
    (32, 0),
    (32, 3),
    (32, 6),
    (128, 5),
    (128, 12),
    (256, 3),
    (256, 10),
    (256, 45),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("asked", "slice_rows", "shards"), crossed(RADII, [1 << 20, 200, 20], [0, 3], share=6)
)
def test_all_pairs_equal_one_process(tmp_path, asked, slice_rows, shards):
    width, radius = asked
    rows = near_rows(400, width, radius)
    with store_of(tmp_path / "s", rows, None, width, shards) as store:
        wanted = lines(store.pairs(radius))
        plan = plan_pairs(
            tmp_path / "plan", store, tmp_path / "pairs", radius=radius, slice_rows=slice_rows
        )
        assert finished(plan) == {"pairs": len(wanted)}
    assert written(tmp_path / "pairs") == wanted
    assert len(wanted) > 40 or radius == 0
    if slice_rows == 20 and radius < 20:
        assert len(plan) > 10


@pytest.mark.full
@pytest.mark.parametrize(
    ("asked", "size", "shards"),
    crossed(RADII, [1 << 20, 150, 30], [(0, 3), (2, 0), (4, 2)], share=12),
)
def test_a_join_equals_one_process(tmp_path, asked, size, shards):
    width, radius = asked
    rows = near_rows(500, width, radius)
    sides = rows[:200], np.concatenate([rows[150:], rows[:20]])  # some fingerprints are in both
    with (
        store_of(tmp_path / "a", sides[0], ids_of("string", 200), width, shards[0]) as store,
        store_of(tmp_path / "b", sides[1], ids_of("int", 370), width, shards[1]) as other,
    ):
        for number, (item, another) in enumerate(
            [(store, other), (other, store)][: 1 if size < 100 else 2]
        ):
            wanted = lines(item.join(another, radius))
            plan = plan_join(
                tmp_path / f"p{number}",
                item,
                another,
                tmp_path / f"o{number}",
                radius=radius,
                slice_rows=size,
            )
            assert finished(plan) == {"pairs": len(wanted)}
            assert written(tmp_path / f"o{number}") == wanted
            assert len(wanted) > 50


@pytest.mark.full
@pytest.mark.parametrize("kind", ["row", "int", "string"])
@pytest.mark.parametrize("shards", [0, 3])
def test_ids_are_those_of_the_store(tmp_path, kind, shards):
    """Row numbers, or ids of several rows; rows of one document may have the same fingerprint."""
    rows = near_rows(300, 64, 3)
    with store_of(tmp_path / "s", rows, ids_of(kind, 300), 64, shards) as store:
        finished(plan_pairs(tmp_path / "p", store, tmp_path / "o", radius=3, slice_rows=40))
        assert written(tmp_path / "o") == lines(store.pairs(3)) != []
        finished(plan_join(tmp_path / "q", store, store, tmp_path / "j", radius=3, slice_rows=40))
        assert written(tmp_path / "j") == lines(store.join(store, 3)) != []


@pytest.mark.full
@pytest.mark.parametrize("counts", [(0, 0), (0, 50), (50, 0), (1, 1)])
def test_stores_of_no_rows(tmp_path, counts):
    rows = near_rows(50, 64, 2)
    with (
        store_of(tmp_path / "a", rows[: counts[0]], None, 64, 2) as store,
        store_of(tmp_path / "b", rows[: counts[1]], None, 64, 0) as other,
    ):
        for number, slice_rows in enumerate((None, 1)):
            result = tmp_path / f"o{number}", tmp_path / f"j{number}"
            finished(plan_pairs(tmp_path / f"p{number}", other, result[0], slice_rows=slice_rows))
            assert written(result[0]) == lines(other.pairs())
            finished(
                plan_join(tmp_path / f"q{number}", store, other, result[1], slice_rows=slice_rows)
            )
            assert written(result[1]) == lines(store.join(other))


def test_a_store_with_changes_and_many_parts(tmp_path, set_limits):
    """Parts of a large store are sent by several tasks, in pieces of bounded memory."""
    set_limits(plan_pair_rows=6000, plan_pair_bytes=8)
    rows = near_rows(8000, 64, 2)
    fpstore.build(tmp_path / "s", rows[:6000]).close()
    with fpstore.open(tmp_path / "s", "r+") as changed:
        changed.insert(rows[6000:])
        changed.delete(ids=list(range(100)))
    with fpstore.open(tmp_path / "s") as store:
        plan = plan_pairs(tmp_path / "p", store, tmp_path / "o", radius=2, slice_rows=2000)
        assert plan.status()[0].tasks == 2
        finished(plan)
        assert written(tmp_path / "o") == lines(store.pairs(2))


@pytest.mark.full
def test_parts_of_a_store_have_each_fingerprint_once(tmp_path, set_limits):
    from fpstore.plans import pairs

    set_limits(plan_pair_bytes=8)
    with fpstore.build(
        tmp_path / "s", np.arange(400_000, dtype=np.uint64) << np.uint64(40)
    ) as store:
        for parts in (1, 2, 3):
            results = [[*pairs.part_pieces(store.snapshot(), part, parts)] for part in range(parts)]
            assert sum(map(len, results)) > 3
            rows = np.sort(np.concatenate([piece for subset in results for piece in subset]))
            assert np.array_equal(rows, np.concatenate([*store.snapshot().fingerprints()]))


def test_widths_differ(tmp_path):
    for width in (32, 64):
        store_of(tmp_path / f"{width}.fps", near_rows(10, width, 2), None, width, 0).close()
    with pytest.raises(InputError, match="this store holds 64 bits, and the other one 32"):
        plan_join(tmp_path / "p", tmp_path / "64.fps", tmp_path / "32.fps", tmp_path / "o")
    assert not (tmp_path / "p").exists()
    assert not (tmp_path / "o").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["pairs", "join", "probe"])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_file_that_is_gone_or_cut_is_not_complete(tmp_path, what, damage):
    """The result that is named is the only one to remove."""
    rows, query_files = (
        near_rows(300, 64, 2),
        [tmp_path / f"asked-{number}.npy" for number in range(3)],
    )
    for path, part in zip(query_files, np.array_split(rows, 3), strict=True):
        np.save(path, part)
    with fpstore.build(tmp_path / "s", rows) as store:
        places = (
            tmp_path / "p",
            store,
            *{"join": [store], "probe": [query_files]}.get(what, []),
            tmp_path / "o",
        )
        more = {"part_bytes": 1} if what == "probe" else {"slice_rows": 20}
        plan = {"pairs": plan_pairs, "join": plan_join, "probe": plan_probe}[what](
            *places, output_format="csv", **more
        )
        for index in range(len(plan)):
            plan.run(index)
        files = sorted((tmp_path / "o").glob("*.csv"))
        stage, data = plan.status()[-1], [file.read_bytes() for file in files]
        assert len(files) == stage.tasks > 2
        if damage == "cut":
            files[1].write_bytes(data[1][:-1])
        else:
            files[1].unlink()
        wrong = {"gone": "is gone: remove", "cut": "has another length now: remove it, and"}[damage]
        named = f"results/{stage.stage}-00001.pieces"
        with pytest.raises(InputError) as raised:
            plan.finish()
        assert (
            str(raised.value)
            == f"{files[1]}: was written, and {wrong} {named} in the plan, and run again"
        )
        assert b'"complete": false' in (tmp_path / "o" / "_fpstore.json").read_bytes()
        (tmp_path / "p" / named).unlink()
        files[1].unlink(missing_ok=True)
        assert [plan.run(index) for index in range(len(plan))].count(True) == 1
        plan.finish()
        assert [file.read_bytes() for file in files] == data
        assert b'"complete": true' in (tmp_path / "o" / "_fpstore.json").read_bytes()


@pytest.mark.parametrize(
    ("width", "radius"), [(64, 4), (64, 6), (64, 8), (64, 16), (128, 12), (256, 10), (256, 30)]
)
@pytest.mark.parametrize("queries", [None, 1 << 27])
def test_many_rows_are_cut(width, radius, queries):
    """Radius 4 and more had one slice of all rows in each table whose buckets may differ."""
    result = plan_slicing(1 << 33, radius, width, 1 << 25, queries)
    assert all(bits >= min(8, width // (radius + 1)) for bits in result.bits)
    assert not any(result.design.flips)
    assert len(result.design.tables) == len(result.bits) == radius + 1
    assert result.whole == ((width, radius) != (256, 10))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("width", "radius", "bits"), [(32, 3, 2), (64, 4, 3), (64, 8, 2), (128, 12, 3), (256, 10, 4)]
)
def test_slices_that_are_joined_as_a_whole(width, radius, bits):
    """Each pair comes from one slice of one table, also if it agrees in several."""
    rows = distinct_rows(check_fingerprints(near_rows(2000, width, radius), Width(width)))
    exact = [
        item
        for item in designs(1 << 33, radius, width)
        if item.tables[0].prefix_bits and not any(item.flips)
    ]
    slicing, collected = Slicing(exact[0], [bits] * (radius + 1), True), []
    for table in range(radius + 1):
        for part in slice_places(table_keys(slicing.design, table, rows), bits):
            collected += [
                pair
                for pairs in slicing.pairs([rows[part]], table, UNBOUNDED)
                for pair in as_lines(pairs)
            ]
    wanted = [
        pair for pairs in pairs_within(rows, scan_design(radius, width)) for pair in as_lines(pairs)
    ]
    assert sorted(collected) == sorted(wanted)
    assert len(wanted) > 200


def as_lines(pairs):
    return [*zip(pairs.a.tolist(), pairs.b.tolist(), pairs.distances.tolist(), strict=True)]


def test_all_ways_to_cut_are_tested():
    """By the cases above."""
    results = {(False, False), (True, False), (True, True)}
    for width, radius in RADII:
        for slice_rows in (200, 20):
            slicing = plan_slicing(600, radius, width, slice_rows)
            results.discard((all(slicing.bits), slicing.whole))
            assert Width(width) == slicing.design.width
    assert not results
