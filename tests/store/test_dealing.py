"""Bits that a sample deals to the blocks of column tables.

Also the thresholds of each query, and what the planner expects of them.
"""

import itertools
from functools import cache

import column_sets
import numpy as np
import pytest
from speeds import slow

import fpstore
from fpstore.base.width import Width
from fpstore.design.costs import cheapest, column_work
from fpstore.design.covering import covers
from fpstore.design.dealing import deal
from fpstore.design.families import design
from fpstore.design.sample import SAMPLE_SIZE, EvenRows, Sample
from fpstore.errors import InputError

COUNT = 1 << 15


@cache
def pictures(width):
    """Return fingerprints like perceptual hashes.

    Half of the bits are ones, and neighbours are alike.
    """
    return column_sets.kernel_rows(
        column_sets.make_set("balanced", width, COUNT, np.random.default_rng(8))
    )


def sample_of(rows, width):
    return Sample(np.random.default_rng(9).permutation(rows), Width(width))


@pytest.mark.parametrize(
    ("width", "blocks", "bucket"),
    [(64, 4, 16), slow(64, 5, 12), slow(64, 6, 8), slow(256, 16, 16), slow(256, 7, 18)],
)
def test_dealt_blocks_are_exact_and_only_an_order_of_the_bits(width, blocks, bucket):
    radius = width // 6
    dealt = deal(blocks, bucket, radius, sample_of(pictures(width), width))
    assert dealt.name == f"dealt-{blocks}-{bucket}"
    assert covers(dealt.tables, radius)
    assert (
        dealt.tables[0].permutation
        == design(f"columns-{blocks}-{bucket}", radius, width).tables[0].permutation
    )
    assert deal(blocks, bucket, radius, sample_of(pictures(width), width)) == dealt, (
        "the same sample, the same design"
    )
    used = set()
    for place, (_, table) in enumerate(dealt.ring):
        assert table.tag.isdisjoint(table.leading)
        block = table.tag | dealt.ring[(place + 1) % blocks][1].leading
        assert used.isdisjoint(block)
        used |= block


@pytest.mark.parametrize(("width", "blocks", "radius"), [(64, 4, 10), slow(256, 16, 31)])
def test_a_look_up_in_dealt_blocks_meets_fewer(width, blocks, radius):
    sample = sample_of(pictures(width), width)
    contiguous, dealt = (
        design(f"columns-{blocks}-16", radius, width),
        deal(blocks, 16, radius, sample),
    )
    before, after = (
        column_work(d, COUNT, d.radius, sample).candidates for d in (contiguous, dealt)
    )
    assert after < 0.9 * before


def test_bits_that_never_vary_are_spread():
    """Two of four blocks hardly vary; dealt, all do."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 2**64, COUNT, dtype=np.uint64) & np.uint64(
        0xFFFF_FFFF_FFFF_0000 ^ 0x0FFF_0000
    )
    dealt = deal(4, 16, 10, sample_of(rows, 64))
    constant = set(range(36, 48)) | set(range(48, 64))
    assert [len(constant & table.leading) for _, table in dealt.ring[2:]] == [14, 14]


def test_names_of_dealt_designs():
    assert design("dealt-4", 8) == design("dealt-4-16", 8).__class__(
        "dealt-4", 8, design("dealt-4-16", 8).tables
    )
    with pytest.raises(InputError, match="dealt-M-B at 64 bits needs at least 4 blocks, got M=3"):
        design("dealt-3-16", 8)
    with pytest.raises(InputError, match="dealt-M-B at 256 bits needs at least 2 blocks, got M=1"):
        design("dealt-1", 8, 256)


@pytest.mark.parametrize(
    ("width", "name", "radius"), [(64, "dealt-4-16", 10), slow(256, "dealt-16", 31)]
)
def test_a_dealt_store_answers_as_brute_force_does(tmp_path, width, name, radius):
    rows = pictures(width)
    rng = np.random.default_rng(4)
    words = rows.reshape(len(rows), -1)
    queries = column_sets.kernel_rows(column_sets.make_queries(words, width, 30, radius, rng))
    with fpstore.build(
        tmp_path / "s", Width(width).to_array(rows), width=width, radius=radius, design=name
    ) as store:
        assert (
            store.design.name == "dealt-4-16" if width == 64 else store.design.name == "dealt-16-16"
        )
        assert store.design.tables != design(name, radius, width).tables, "dealt by the sample"
        matches = store.probe_many(Width(width).to_array(queries))
        expected = store.scan(Width(width).to_array(queries), radius)
        assert np.array_equal(matches.lims, expected.lims)
        assert np.array_equal(matches.distances, expected.distances)
        assert sum(map(len, matches)) > 20
        before = store.design.tables
    with fpstore.open(tmp_path / "s", mode="r+") as store:
        store.insert(Width(width).to_array(queries))
        store.merge()
        assert store.design.tables == before
        assert store.verify().ok
        store.redesign(name)
        assert store.design.name.startswith("dealt")
        store.redesign(f"columns-{len(store.design.ring)}")
        assert store.design.name.startswith("columns")
        assert all(map(len, store.probe_many(Width(width).to_array(queries))))


@pytest.mark.full
def test_a_plan_by_a_sample_compares_dealt_bits():
    plans = fpstore.plan(1 << 24, 8, sample=pictures(64))
    assert any(p.name.startswith("dealt") for p in plans)
    assert not any(p.name.startswith("dealt") for p in fpstore.plan(1 << 24, 8))


def test_the_cheapest_thresholds_are_those_of_all():
    rng, queries = np.random.default_rng(1), 6
    for _ in range(5):
        tables, total = int(rng.integers(1, 5)), int(rng.integers(1, 7))
        most = int(rng.integers(-(-total // tables), total + 1))
        costs = [np.cumsum(rng.random((queries, most + 1)), axis=1) for _ in range(tables)]
        chosen = cheapest(costs, total)
        assert (chosen >= -1).all()
        assert ((chosen + 1).sum(axis=1) == total).all()
        every = [a for a in itertools.product(range(most + 1), repeat=tables) if sum(a) == total]
        for query in range(queries):
            least = min(
                sum(cost[query, a] for cost, a in zip(costs, allowed, strict=True))
                for allowed in every
            )
            assert sum(
                cost[query, t + 1] for cost, t in zip(costs, chosen[query], strict=True)
            ) == pytest.approx(least)


@pytest.mark.full
def test_the_model_expects_what_the_kernel_counts(tmp_path):
    rows = pictures(64)
    sample = sample_of(rows, 64)
    with fpstore.build(tmp_path / "s", rows, radius=10, design="dealt-4-16") as store:
        expected = column_work(store.design, len(rows), 10, sample)
        counted = (
            store.snapshot().generation.prober(10).probe(rows[:: len(rows) // 4096].copy(), 10)[3]
        )
    lookups, candidates, survivors = (count / 4096 for count in counted)
    assert expected.lookups == pytest.approx(lookups, rel=0.2)
    assert expected.candidates == pytest.approx(candidates, rel=0.2)
    assert expected.copies == pytest.approx(survivors, rel=0.3)


def test_a_sample_too_small_deals_in_turn(tmp_path):
    rows = np.arange(100, dtype=np.uint64)
    assert len(rows) < SAMPLE_SIZE
    with fpstore.build(tmp_path / "s", rows, radius=8, design="dealt-4-16") as store:
        assert store.design.tables == design("dealt-4-16", 8).tables
        assert len(store.probe(5)) == 100


@pytest.mark.sampled(1)
@pytest.mark.parametrize("count", [1000, 1 << 17])
def test_few_entries_in_a_bucket_are_no_skew(tmp_path, count):
    """Random bits fill buckets unevenly, the more so the fewer entries there are."""
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 2**64, count, np.uint64)
    with fpstore.build(tmp_path / "even", rows, radius=8, design="columns-4") as store:
        assert not any(table.is_skewed(1.25) for table in store.snapshot().generation.tables)
    # a quarter of the set in a sixteenth of the buckets
    rows[: count // 4] &= np.uint64(0x0FFF_FFFF_FFFF_FFFF)
    with fpstore.build(tmp_path / "uneven", rows, radius=8, design="columns-4") as store:
        skewed = [table.is_skewed(1.25) for table in store.snapshot().generation.tables]
        assert skewed == [True, False, False, False]


def test_even_rows_of_a_stream():
    """However the stream is cut, from 0 rows to many times as many as are kept."""
    rng = np.random.default_rng(7)
    for count in (0, 1, SAMPLE_SIZE, 2 * SAMPLE_SIZE, 2 * SAMPLE_SIZE + 1, 5 * SAMPLE_SIZE + 3):
        rows, kept = np.arange(count, dtype=np.uint64), EvenRows(1)
        for part in np.split(rows, np.sort(rng.integers(0, count + 1, 6))):
            kept.add(part)
        result = kept.rows()
        assert min(count, SAMPLE_SIZE) <= len(result) <= 2 * SAMPLE_SIZE + 1
        assert len(set(np.diff(result).tolist())) <= 1
        assert not len(result) or result[0] == 0


@pytest.mark.full
@pytest.mark.parametrize("design", [slow("auto"), "dealt-4-16"])
def test_skew_is_seen_beside_frequent_fingerprints_and_in_merges(tmp_path, design):
    """The sample was of rows, and a merge had one fingerprint of each block."""
    # half of the bits are constant
    low = np.unique(np.random.default_rng(3).integers(0, 2**32, 21845, np.uint64))
    once = fpstore.build(tmp_path / "once", low, radius=8, design=design).design
    assert (
        fpstore.build(tmp_path / "twice", np.repeat(low, 2), radius=8, design=design).design == once
    )
    fpstore.build(tmp_path / "merged", low[:100], radius=8, design="flip-2").close()
    with fpstore.open(tmp_path / "merged", "r+") as store:
        store.insert(low)
        store.redesign(design)
        assert store.design == once
        store.redesign("flip-2")
        store.redesign(design)
        assert store.design == once
