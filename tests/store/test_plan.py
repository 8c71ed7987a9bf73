"""The planner: its arithmetic against exact numbers, its sizes against real tables, its budgets and errors."""

import math
import sys
from itertools import pairwise

import brute_force
import numpy as np
import pytest
import tableimage
from commandline import fine
from speeds import crossed, slow

import fpstore
from fpstore import InputError, _kernel, plan
from fpstore.design.blocks import CODECS, DEFAULT_BLOCK_BYTES, HUFFMAN, Blocks
from fpstore.design.costs import SPEED_FOR_TWICE_THE_BYTES, work
from fpstore.design.covering import covers
from fpstore.design.estimates import Requirements, estimate, filters_of, limit_bits, table_bits
from fpstore.design.families import MANKU, MAX_VARIANTS, design
from fpstore.design.planner import MORE_BYTES, MORE_TIME, candidates_for, choose, cost, knee

GIB = 1 << 30

# --- Sizes ----------------------------------------------------------------------------------------


def exact_limit(n):
    """Count the bits of log2 C(2^64, n), from the exact integer."""
    sets = math.comb(2**64, n)
    top = sets.bit_length() - 64
    return (top + math.log2(sets >> top)) / n if top > 0 else math.log2(sets) / n


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 100, 1000, 5000])
def test_the_limit_is_exact(n):
    assert limit_bits(n) == pytest.approx(exact_limit(n), abs=1e-9)


@pytest.mark.parametrize(("log2_n", "bits"), [(20, 45.4), (23, 42.4), (26, 39.4), (30, 35.4), (33, 32.4), (34, 31.4)])
def test_the_limit_at_the_sizes_of_the_design_page(log2_n, bits):
    assert round(limit_bits(1 << log2_n), 1) == bits


def test_the_limit_falls_as_sets_grow():
    limits = [limit_bits(1 << log2_n) for log2_n in range(41)]
    assert limits[0] == 64
    assert all(a > b for a, b in pairwise(limits))
    assert all(0.9 < a - b <= 1.0000001 for a, b in pairwise(limits[10:]))  # a bit for each doubling
    assert limit_bits(0) == 0


@pytest.mark.parametrize("block_bytes", [128, 256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("log2_n", [18, pytest.param(20, marks=pytest.mark.slow)])
def test_table_sizes_are_those_of_real_tables(log2_n, codec, block_bytes):
    n = 1 << log2_n
    fingerprints = np.unique(np.random.default_rng(1).integers(0, 2**64, n, np.uint64))
    assert len(fingerprints) == n
    lengths = None if codec == HUFFMAN else tableimage.NO_CODE
    real = len(tableimage.build(fingerprints, block_bytes=block_bytes, lengths=lengths)) * 8 / n
    assert table_bits(n, Blocks(block_bytes, codec)) == pytest.approx(real, rel=0.012)


def test_table_bits_at_the_default_block_size():
    n = 1 << 20
    fingerprints = np.random.default_rng(2).integers(0, 2**64, n, np.uint64)
    real = len(tableimage.build(fingerprints)) * 8 / n
    assert table_bits(n) == pytest.approx(real, rel=0.002)


def test_table_bits_fall_with_the_size_of_set_and_block():
    for log2_n in range(12, 40):
        assert table_bits(1 << log2_n) > table_bits(1 << (log2_n + 1)) > limit_bits(1 << (log2_n + 1))
    sizes = [table_bits(1 << 24, Blocks(block_bytes)) for block_bytes in (128, 256, 512, 1024, 2048, 4096)]
    assert sizes == sorted(sizes, reverse=True)


# --- Plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0, 1, 2, 3, 4, 8, 12, 16, 17, 64])
@pytest.mark.parametrize("n", [0, 1, 2, 1000, 1 << 24, 1 << 33])
def test_every_plan_is_exact(n, radius):
    plans = plan(n, radius)
    assert plans
    for p in plans:
        assert p.design.radius == radius
        assert covers(p.design.tables, radius)
        bits = {table: shape.prefix_bits for table, shape in filters_of(p.design, n, Blocks(DEFAULT_BLOCK_BYTES)).items()}
        assert p.filters == len(bits)
        assert p.lookups == sum(x.variant_count for x in p.design.lookups(n, filter_bits=bits)) > 0
        assert p.bytes_per_fingerprint > 0
        assert p.disk_bytes >= int(n * p.bytes_per_fingerprint)
        assert p.microseconds > 0
        assert p.cold_milliseconds > 0
        assert p.fits == (p.reason == "")
        assert p.name == p.design.name
    assert len({p.design.tables for p in plans}) == len(plans)


@pytest.mark.parametrize("radius", [0, 3, 5])
def test_candidates_hold_the_named_designs(radius):
    tables = {made.tables for made in candidates_for(radius)}
    for name, (_, most) in MANKU.items():
        if radius <= most:
            assert design(name, radius).tables in tables
    for count in range(1, radius + 2):
        assert design(f"flip-{count}", radius).tables in tables


def test_estimated_size_is_that_of_a_real_store(tmp_path):
    fingerprints = np.random.default_rng(3).integers(0, 2**64, 1 << 18, np.uint64)
    with fpstore.build(tmp_path / "s", fingerprints, design="flip-2", filter=True) as store:
        stats = store.stats()
    made = estimate(design("flip-2", 3), 1 << 18, Requirements(blocks=Blocks(DEFAULT_BLOCK_BYTES, filter=True)))
    sizes = stats["bytes"]
    assert made.bytes_per_fingerprint * (1 << 18) == pytest.approx(sizes["tables"] + sizes["filters"], rel=0.02)
    assert stats["bytes"]["total"] <= made.disk_bytes <= 1.1 * stats["bytes"]["total"]


def test_plans_that_fit_come_first_and_best_first():
    plans = plan(1 << 24, 3, disk_budget=GIB // 2, memory_budget=GIB // 4)
    fits = [p.fits for p in plans]
    assert fits == sorted(fits, reverse=True)
    assert 0 < sum(fits) < len(fits)
    assert [p.chosen for p in plans] == [True] + [False] * (len(plans) - 1)
    for group in (True, False):
        times = [p.mean_microseconds for p in plans if p.fits == group and not p.chosen]
        assert times == sorted(times)


def test_cold_plans_are_ranked_by_reads():
    best, *others = [p for p in plan(1 << 30, 3, storage="cold") if p.fits]
    assert best.chosen
    times = [p.cold_milliseconds for p in others]
    assert times == sorted(times)


def test_nothing_is_chosen_of_what_does_not_fit():
    assert not [p for p in plan(1 << 24, 3, memory_budget=1) if p.chosen]


# --- The knee -------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["hot", "cold"])
@pytest.mark.parametrize("radius", range(17))
@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_auto_takes_the_balance(radius, storage, step):
    """No other design takes half the bytes and less than so many times the time, nor a quarter in less than the square, ..."""
    times = SPEED_FOR_TWICE_THE_BYTES
    for log2_n in range(10, 35, step):
        plans = [p for p in plan(1 << log2_n, radius, storage=storage, memory_budget=1 << 62) if p.fits]
        assert plans[0].chosen
        best = knee(plans, storage)
        if plans[0] != best:  # packed tables in place of columns that are hardly better
            assert (plans[0].design.ring, bool(best.design.ring)) == ((), True)
            assert plans[0].bytes_per_fingerprint <= MORE_BYTES * best.bytes_per_fingerprint
            assert cost(plans[0], storage) <= MORE_TIME * cost(best, storage)
        for other in plans:
            slower = cost(other, storage) / cost(best, storage)
            halvings = math.log2(best.bytes_per_fingerprint / other.bytes_per_fingerprint)
            assert slower >= times**halvings * (1 - 1e-9)
            if halvings > 1:
                assert slower > times  # the rule in words: never twice the bytes of a design within so many times its speed


@pytest.mark.parametrize(("radius", "most"), [(4, 30), (5, 30), (6, 30), (7, 30)])
@pytest.mark.parametrize("log2_n", [20, 22, 24])
def test_a_large_radius_takes_no_hundred_bytes(radius, most, log2_n):
    """It took 125 bytes per fingerprint at radius 5 and 215 at radius 7, where 18 and 24 are hardly slower."""
    best = choose(1 << log2_n, radius)
    if (radius, log2_n) == (4, 24):
        most = 90  # there ten flips cost three times what fifteen tables do
    assert best.bytes_per_fingerprint < most


def test_auto_does_not_depend_on_the_processor():
    chosen = _kernel.isa()
    found = []
    try:
        for isa in _kernel.available_isas():
            _kernel.select_isa(isa)
            found.append([plan(1 << 22, radius) for radius in range(8)])
    finally:
        _kernel.select_isa(chosen)
    assert all(plans == found[0] for plans in found)


@pytest.mark.parametrize(("entries_log2", "variant_count"), crossed([-2, 2, 6, 8, 12], [1, 16]))
def test_the_model_expects_the_blocks_that_a_probe_opens(entries_log2, variant_count):
    """Look-ups that span several blocks, as they come and sorted."""
    log2_n = 18
    rng = np.random.default_rng(7)
    fingerprints = np.unique(rng.integers(0, 2**64, 1 << log2_n, np.uint64))
    table = tableimage.open_table(tableimage.build(fingerprints))
    masks = np.arange(variant_count, dtype=np.uint64) << np.uint64(60)
    queries = rng.integers(0, 2**64, 2000, np.uint64)
    prober = _kernel.Prober()
    prober.add(table, log2_n - entries_log2, 4 * (variant_count > 1), masks)
    *_, opened, _ = prober.probe(queries, 3)
    lookups = len(queries) * variant_count
    expected = work(len(fingerprints), len(fingerprints) / table.block_count, 2.0**entries_log2, lookups)
    assert opened / lookups == pytest.approx(expected.blocks, rel=0.15)


@pytest.mark.parametrize(
    ("budget", "reason"), [("disk_budget", "over the disk budget"), ("memory_budget", "over the memory budget")]
)
def test_budgets_are_kept(budget, reason):
    sizes = []
    for size in (GIB * 64, GIB, GIB // 2, GIB // 4, 1):
        plans = plan(1 << 24, 3, **{"memory_budget": 1 << 60, budget: size})
        for p in plans:
            used = p.disk_bytes if budget == "disk_budget" else p.bytes_per_fingerprint * (1 << 24)
            assert p.fits == (used <= size)
            assert p.reason == ("" if p.fits else reason)
        sizes.append(sum(p.fits for p in plans))
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (len(plans), 0)


def test_a_tighter_budget_chooses_fewer_tables():
    counts = [len(choose(1 << 24, 3, Requirements(disk_budget=size)).design.tables) for size in (64 * GIB, GIB // 2, GIB // 4)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_nothing_fits():
    with pytest.raises(InputError, match=r"no design fits the disk budget: scan is the smallest at \d+ bytes"):
        choose(1 << 24, 3, Requirements(disk_budget=1000))


def test_a_small_memory_does_not_stop_a_build(monkeypatch):
    # The function fpstore.plan hides its module.
    monkeypatch.setattr(sys.modules["fpstore.design.planner"], "total_memory", lambda: 1000)
    assert not plan(1 << 24, 3)[0].fits
    assert choose(1 << 24, 3).fits
    assert choose(1 << 24, 3, Requirements(disk_budget=GIB // 4)).disk_bytes <= GIB // 4


def test_a_design_with_too_many_lookups_is_no_plan():
    for storage in ("hot", "cold"):
        assert "flip-1" in {p.name for p in plan(1 << 24, 7, storage=storage)}
        assert "flip-1" not in {p.name for p in plan(1 << 34, 7, storage=storage)}


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("radius", [0, 3, 5])
def test_tiny_sets(n, radius):
    assert choose(n, radius).fits
    assert choose(n, radius, Requirements(disk_budget=100_000)).fits
    assert all(p.fits for p in plan(n, radius))


def test_radius_zero_needs_one_table():
    assert len(choose(1 << 24, 0).design.tables) == 1


def test_the_command_line_tells_of_columns_that_packed_tables_replace():
    assert "auto takes flip-2 in place of columns-2, which is hardly better." in fine("plan", "2^20")
    assert "in place of" not in fine("plan", "2^24")
    assert "in place of" not in fine("plan", "2^20", "--prefer", "speed")


@pytest.mark.parametrize("n", [-1, 1.5, "3", None, True])
def test_bad_count(n):
    with pytest.raises(InputError, match="n must be a whole number from 0 to 2\\^64"):
        plan(n)


@pytest.mark.parametrize("radius", [-1, 65, 2.5, "3"])
def test_bad_radius(radius):
    with pytest.raises(InputError, match="radius must be a whole number from 0 to 64"):
        plan(10, radius)


def test_bad_storage():
    with pytest.raises(InputError, match="storage must be one of hot, cold, got 'warm'"):
        plan(10, storage="warm")


@pytest.mark.slow
@pytest.mark.parametrize("radius", [6, 7])
def test_every_plan_of_a_large_radius_is_exact(radius):
    plans = plan(1 << 33, radius)
    assert all(covers(p.design.tables, radius) for p in plans)
    names = {p.name for p in plans}
    assert ("flip-1" in names) == (radius == 6)  # at 7, more look-ups than a probe may make
    assert "flip-3" in names


def test_plans_of_more_lookups_than_a_probe_may_make_are_left_out():
    assert design("flip-1", 5).lookups(1 << 44)[0].variant_count <= MAX_VARIANTS
    with pytest.raises(InputError, match=f"needs 1099296 look-ups .* at most {MAX_VARIANTS} are allowed"):
        design("flip-1", 5).lookups(1 << 45)
    for log2_n, there in ((44, True), (45, False)):
        assert ("flip-1" in {p.name for p in plan(1 << log2_n, 5)}) == there


def skewed_set(kind, n=1 << 17):
    rng = np.random.default_rng(5)
    if kind == "uniform":
        return rng.integers(0, 2**64, n, dtype=np.uint64)
    if kind == "leading half alike":
        return rng.integers(0, 2**32, n, dtype=np.uint64) | np.uint64(0xABCD1234 << 32)
    return rng.integers(0, 2**32, n, dtype=np.uint64) << np.uint64(32)


@pytest.mark.parametrize("kind", ["leading half alike", slow("other half alike")])
def test_a_sample_shows_skew(kind):
    """What the plan expects of a look-up is what the kernel counts, and the best plan avoids it."""
    fingerprints = skewed_set(kind)
    n = len(fingerprints)
    blind, seeing = plan(n, 3), plan(n, 3, sample=np.random.default_rng(6).permutation(fingerprints))
    best = seeing[0]
    assert best.name.startswith(("striped", "columns", "dealt"))
    assert not [p for p in blind if p.name.startswith("striped")]
    by_name = {p.name: p for p in seeing}
    fastest = min(p.mean_microseconds for p in seeing)
    for name in ("manku-10", "flip-2"):
        assert by_name[name].mean_microseconds > 20 * fastest
        assert by_name[name].mean_microseconds > 10 * best.mean_microseconds  # which weighs bytes, too


def test_estimated_candidates_of_a_skewed_set_are_those_of_a_probe(tmp_path):
    fingerprints = skewed_set("leading half alike")
    plans = {p.name: p for p in plan(len(fingerprints), 3, sample=np.random.default_rng(6).permutation(fingerprints))}
    for name in ("manku-10", "striped-5-2"):
        met = 0
        for lookup in plans[name].design.lookups(len(fingerprints)):
            permuted = _kernel.permute(fingerprints, np.frombuffer(plans[name].design.tables[lookup.table].permutation, np.uint8))
            leading = permuted >> np.uint64(64 - lookup.prefix_bits)
            _, counts = np.unique(leading, return_counts=True)
            met += float((counts.astype(float) ** 2).sum() / counts.sum())
        assert plans[name].candidates == pytest.approx(met, rel=0.1)


def test_a_uniform_sample_changes_nothing():
    fingerprints = skewed_set("uniform")
    assert plan(len(fingerprints), 3, sample=fingerprints) == plan(len(fingerprints), 3)
    assert plan(10, 3, sample=fingerprints[:10]) == plan(10, 3)
    assert plan(10, 3, sample=[]) == plan(10, 3)


def test_auto_builds_for_the_skew_of_the_set(tmp_path):
    fingerprints = skewed_set("leading half alike", 1 << 15)
    with fpstore.build(tmp_path / "s", fingerprints) as store:
        assert store.design.name.startswith(("striped", "columns", "dealt"))
        queries = fingerprints[:50] ^ np.uint64(0b1000100000000000000000000000000000000000000001)
        expected = brute_force.brute_force_many(np.unique(fingerprints), queries, 3)
        found = store.probe_many(queries)
        for column, wanted in zip((found.lims, found.fingerprints, found.distances), expected, strict=True):
            assert np.array_equal(column, wanted)
        assert store.verify().ok
