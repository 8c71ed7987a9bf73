"""The planner: exact arithmetic, sizes against real tables, budgets and errors."""

import math
import sys

import brute_force
import numpy as np
import pytest
import tableimage
from commandline import fine
from speeds import crossed, slow

import fpstore
from fpstore import InputError, _kernel, plan
from fpstore.design.blocks import CODECS, DEFAULT_BLOCK_BYTES, HUFFMAN, BlockPacking
from fpstore.design.costs import (
    BATCH_QUERIES,
    SPEED_FOR_TWICE_THE_BYTES,
    block_work,
    scan_nanoseconds,
)
from fpstore.design.covering import covers
from fpstore.design.estimates import Requirements, choose_filters, estimate, limit_bits, table_bits
from fpstore.design.families import MANKU, MAX_VARIANTS, design
from fpstore.design.planner import (
    MORE_BYTES,
    MORE_TIME,
    best_plan,
    candidates_for,
    choose,
    cost,
    crossover,
)
from fpstore.format.manifest import read_manifest

GIB = 1 << 30

# --- Sizes ----------------------------------------------------------------------------------------


def exact_limit(n):
    """Count the bits of log2 C(2^64, n), from the exact integer."""
    sets = math.comb(2**64, n)
    top = sets.bit_length() - 64
    return (top + math.log2(sets >> top)) / n if top > 0 else math.log2(sets) / n


def test_the_limit_is_exact():
    for n in (1, 2, 3, 7, 10, 100, 1000, 5000):
        assert limit_bits(n) == pytest.approx(exact_limit(n), abs=1e-9)
    # as on the design page
    for log2_n, bits in ((20, 45.4), (23, 42.4), (26, 39.4), (30, 35.4), (33, 32.4), (34, 31.4)):
        assert round(limit_bits(1 << log2_n), 1) == bits
    assert limit_bits(0) == 0


@pytest.mark.parametrize(
    ("log2_n", "codec", "block_bytes"),
    crossed([16, 18, 20], list(CODECS), [128, 256, 512, 1024, 2048, 4096], share=9),
)
def test_table_sizes_are_those_of_real_tables(log2_n, codec, block_bytes):
    n = 1 << log2_n
    fingerprints = np.unique(np.random.default_rng(1).integers(0, 2**64, n, np.uint64))
    assert len(fingerprints) == n
    lengths = None if codec == HUFFMAN else tableimage.NO_CODE
    real = len(tableimage.build(fingerprints, block_bytes=block_bytes, lengths=lengths)) * 8 / n
    blocks = real * n / 8 / block_bytes
    # a block leaves room for up to an entry, half in the mean; the last one for all
    rounding = blocks / n / 2 + 1 / blocks
    assert table_bits(n, BlockPacking(block_bytes, codec)) == pytest.approx(real, rel=rounding)


# --- Plans ----------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("n", "radius"), crossed([0, 1, 2, 1000, 1 << 24, 1 << 33], [0, 1, 2, 3, 4, 8, 12, 16, 17, 64])
)
def test_every_plan_is_exact(n, radius):
    plans = plan(n, radius)
    assert plans
    for p in plans:
        assert p.design.radius == radius
        assert covers(p.design.tables, radius)
        bits = {
            table: shape.prefix_bits
            for table, shape in choose_filters(
                p.design, n, BlockPacking(DEFAULT_BLOCK_BYTES)
            ).items()
        }
        assert p.filters == len(bits)
        assert p.lookups == sum(x.variant_count for x in p.design.lookups(n, filter_bits=bits)) > 0
        assert p.bytes_per_fingerprint > 0
        assert p.disk_bytes >= int(n * p.bytes_per_fingerprint)
        assert p.microseconds > 0
        assert p.cold_milliseconds > 0
        assert p.fits == (p.reason == "")
        assert p.name == p.design.name
    assert len({p.design.tables for p in plans}) == len(plans)


def test_candidates_hold_the_named_designs():
    for radius in (0, 3, 5):
        tables = {made.tables for made in candidates_for(radius)}
        named = [name for name, (_, most) in MANKU.items() if radius <= most] + [
            f"flip-{n}" for n in range(1, radius + 2)
        ]
        assert {design(name, radius).tables for name in named} <= tables


def test_estimated_size_is_that_of_a_real_store(tmp_path):
    fingerprints = np.random.default_rng(3).integers(0, 2**64, 1 << 18, np.uint64)
    with fpstore.build(tmp_path / "s", fingerprints, design="flip-2", filter=True) as store:
        stats = store.stats()
    made = estimate(
        design("flip-2", 3),
        1 << 18,
        Requirements(blocks=BlockPacking(DEFAULT_BLOCK_BYTES, filter=True)),
    )
    sizes = stats["bytes"]
    assert made.bytes_per_fingerprint * (1 << 18) == pytest.approx(
        sizes["tables"] + sizes["filters"], rel=0.02
    )
    assert stats["bytes"]["total"] <= made.disk_bytes <= 1.1 * stats["bytes"]["total"]


def test_plans_that_fit_come_first_and_best_first():
    plans = plan(1 << 24, 3, disk_budget=GIB // 2, memory_budget=GIB // 4)
    fits = [p.fits for p in plans]
    assert fits == sorted(fits, reverse=True)
    assert 0 < sum(fits) < len(fits)
    assert [p.chosen for p in plans] == [True] + [False] * (len(plans) - 1)
    assert not [p for p in plan(1 << 24, 3, memory_budget=1) if p.chosen]  # of what does not fit
    for group in (True, False):
        times = [p.mean_microseconds for p in plans if p.fits == group and not p.chosen]
        assert times == sorted(times)


# --- The best plan --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("radius", "storage", "step"), crossed(range(17), ["hot", "cold"], [6, 1], share=7)
)
def test_auto_takes_the_balance(radius, storage, step):
    """No other design is far smaller for little more time.

    Half the bytes cost a factor of time, a quarter of the bytes its square, and so on.
    """
    times = SPEED_FOR_TWICE_THE_BYTES
    for log2_n in range(10, 35, step):
        plans = [
            p for p in plan(1 << log2_n, radius, storage=storage, memory_budget=1 << 62) if p.fits
        ]
        assert plans[0].chosen
        best = best_plan(plans, storage)
        if plans[0] != best:  # packed tables in place of columns that are hardly better
            assert (plans[0].design.ring, bool(best.design.ring)) == ((), True)
            assert plans[0].bytes_per_fingerprint <= MORE_BYTES * best.bytes_per_fingerprint
            assert cost(plans[0], storage) <= MORE_TIME * cost(best, storage)
        for other in plans:
            slower = cost(other, storage) / cost(best, storage)
            halvings = math.log2(best.bytes_per_fingerprint / other.bytes_per_fingerprint)
            assert slower >= times**halvings * (1 - 1e-9)
            if halvings > 1:
                # the rule in words: never twice the bytes of a design within so many times its
                # speed
                assert slower > times


def test_a_large_radius_takes_no_hundred_bytes():
    """It took 125 bytes per fingerprint at radius 5, and 215 at radius 7.

    Designs of 18 and 24 bytes are hardly slower.
    """
    for radius, log2_n in ((4, 20), (5, 22), (6, 24), (7, 20), (7, 24)):
        assert choose(1 << log2_n, radius).bytes_per_fingerprint < 30
    # there ten flips cost three times what fifteen tables do
    assert choose(1 << 24, 4).bytes_per_fingerprint < 90


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("entries_log2", "variant_count"), crossed([-2, 2, 6, 8, 12], [1, 16]))
def test_the_model_expects_the_blocks_that_a_probe_opens(entries_log2, variant_count):
    """Look-ups that span several blocks, as they come and sorted."""
    log2_n = 16
    rng = np.random.default_rng(7)
    fingerprints = np.unique(rng.integers(0, 2**64, 1 << log2_n, np.uint64))
    table = tableimage.open_table(tableimage.build(fingerprints))
    masks = np.arange(variant_count, dtype=np.uint64) << np.uint64(60)
    queries = rng.integers(0, 2**64, 2000, np.uint64)
    prober = _kernel.Prober()
    prober.add(table, log2_n - entries_log2, 4 * (variant_count > 1), masks)
    *_, opened, _ = prober.probe(queries, 3)
    lookups = len(queries) * variant_count
    expected = block_work(
        len(fingerprints), len(fingerprints) / table.block_count, 2.0**entries_log2, lookups
    )
    assert opened / lookups == pytest.approx(expected.blocks, rel=0.15)


@pytest.mark.parametrize(
    ("budget", "reason"),
    [("disk_budget", "over the disk budget"), ("memory_budget", "over the memory budget")],
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


def test_nothing_fits():
    with pytest.raises(
        InputError, match=r"no design fits the disk budget: scan is the smallest at \d+ bytes"
    ):
        choose(1 << 24, 3, Requirements(disk_budget=1000))


def test_a_small_memory_does_not_stop_a_build(monkeypatch):
    # The function fpstore.plan hides its module.
    monkeypatch.setattr(sys.modules["fpstore.design.planner"], "total_memory", lambda: 1000)
    assert not plan(1 << 24, 3)[0].fits
    assert choose(1 << 24, 3).fits
    assert choose(1 << 24, 3, Requirements(disk_budget=GIB // 4)).disk_bytes <= GIB // 4


@pytest.mark.full
def test_plan_command_reports_columns_that_packed_tables_replace():
    assert "auto takes flip-2 in place of columns-2, which is hardly better." in fine(
        "plan", "2^20"
    )
    assert "in place of" not in fine("plan", "2^24")
    assert "in place of" not in fine("plan", "2^20", "--prefer", "speed")


def test_plans_of_more_lookups_than_a_probe_allows_are_left_out():
    assert design("flip-1", 5).lookups(1 << 44)[0].variant_count <= MAX_VARIANTS
    with pytest.raises(
        InputError, match=f"needs 1099296 look-ups .* at most {MAX_VARIANTS} are allowed"
    ):
        design("flip-1", 5).lookups(1 << 45)
    for log2_n, there in ((44, True), (45, False)):
        assert ("flip-1" in {p.name for p in plan(1 << log2_n, 5)}) == there


def skewed_set(kind, n=1 << 15):
    rng = np.random.default_rng(5)
    if kind == "uniform":
        return rng.integers(0, 2**64, n, dtype=np.uint64)
    if kind == "leading half alike":
        return rng.integers(0, 2**32, n, dtype=np.uint64) | np.uint64(0xABCD1234 << 32)
    return rng.integers(0, 2**32, n, dtype=np.uint64) << np.uint64(32)


@pytest.mark.full
def test_candidate_estimate_of_a_skewed_set_equals_a_probe(tmp_path):
    fingerprints = skewed_set("leading half alike", 1 << 17)
    plans = {
        p.name: p
        for p in plan(
            len(fingerprints), 3, sample=np.random.default_rng(6).permutation(fingerprints)
        )
    }
    for name in ("manku-10", "striped-5-2"):
        met = 0
        for lookup in plans[name].design.lookups(len(fingerprints)):
            permuted = _kernel.permute(
                fingerprints,
                np.frombuffer(plans[name].design.tables[lookup.table].permutation, np.uint8),
            )
            leading = permuted >> np.uint64(64 - lookup.prefix_bits)
            _, counts = np.unique(leading, return_counts=True)
            met += float((counts.astype(float) ** 2).sum() / counts.sum())
        assert plans[name].candidates == pytest.approx(met, rel=0.1)


def test_a_uniform_sample_changes_nothing():
    fingerprints = skewed_set("uniform")
    assert plan(len(fingerprints), 3, sample=fingerprints) == plan(len(fingerprints), 3)
    assert plan(10, 3, sample=fingerprints[:10]) == plan(10, 3)
    assert plan(10, 3, sample=[]) == plan(10, 3)


@pytest.mark.full
def test_auto_builds_for_the_skew_of_the_set(tmp_path):
    fingerprints = skewed_set("leading half alike")
    with fpstore.build(tmp_path / "s", fingerprints) as store:
        assert store.design.name.startswith(("striped", "columns", "dealt"))
        queries = fingerprints[:50] ^ np.uint64(0b1000100000000000000000000000000000000000000001)
        expected = brute_force.brute_force_many(np.unique(fingerprints), queries, 3)
        matches = store.probe_many(queries)
        for column, wanted in zip(
            (matches.lims, matches.fingerprints, matches.distances), expected, strict=True
        ):
            assert np.array_equal(column, wanted)
        assert store.verify().ok


# --- What auto prefers, and where a scan becomes cheaper ------------------------------------------


@pytest.mark.parametrize(
    ("log2_n", "radius", "storage"),
    crossed([10, 20, 30], [1, 3, 7, 12, 20], ["hot", "cold"], share=5),
)
def test_speed_is_the_fastest_and_space_the_smallest_that_fits(log2_n, radius, storage):
    how = {"storage": storage, "memory_budget": 1 << 62, "disk_budget": (20 << log2_n) + (1 << 20)}
    speed, space, balance = (
        plan(1 << log2_n, radius, prefer=p, **how) for p in ("speed", "space", "balance")
    )
    fast, small = ([p for p in plans if p.fits] for plans in (speed, space))
    time = (lambda p: p.mean_microseconds) if storage == "hot" else (lambda p: p.cold_milliseconds)
    assert [p.chosen for p in speed] == [True] + [False] * (len(speed) - 1)
    assert time(speed[0]) == min(map(time, fast))
    assert (
        space[0].bytes_per_fingerprint
        == min(p.bytes_per_fingerprint for p in small)
        <= balance[0].bytes_per_fingerprint
    )
    assert time(space[0]) == min(
        time(p) for p in small if p.bytes_per_fingerprint == space[0].bytes_per_fingerprint
    )
    assert time(speed[0]) <= time(balance[0]) <= time(space[0])
    assert {p.name for p in speed} == {p.name for p in space} == {p.name for p in balance}


@pytest.mark.parametrize("n", [1000, 1 << 20])
def test_the_smallest_with_filters_has_filters(n):
    """It was a scan, which has none."""
    plans = plan(n, prefer="space", filter=True)
    assert plans[0].chosen
    assert plans[0].filters
    assert plans[0].bytes_per_fingerprint == min(
        p.bytes_per_fingerprint for p in plans if p.filters and p.fits
    )
    assert plan(10, prefer="space", filter=True)[0].name == "scan"  # no design has filters
    assert not plan(n, prefer="space")[0].filters


@pytest.mark.parametrize(("n", "radius"), crossed([0, 5, 1000, 1 << 24], [1, 3, 8, 16, 17, 64]))
def test_a_scan_is_a_plan(n, radius):
    (scan,) = (p for p in plan(n, radius) if p.name == "scan")
    assert (scan.lookups, scan.candidates) == (1, max(n, 1))
    assert scan.microseconds == scan_nanoseconds(n, 1, BATCH_QUERIES) / 1000
    assert [t.prefix_bits for t in scan.design.tables] == [0]
    if radius > 16:
        assert [p.name for p in plan(n, radius)] == ["scan"]


def test_a_tiny_set_and_a_huge_radius_take_a_scan(tmp_path):
    for n, radius in ((300, 3), (1 << 22, 17), (1 << 24, 40), (1 << 12, 12)):
        assert plan(n, radius)[0].name == "scan"
    with fpstore.build(tmp_path / "s", np.arange(300, dtype=np.uint64)) as store:
        assert store.design.name == "scan"
        assert [m.fingerprint for m in store.probe(7, 1)] == [7, 3, 5, 6, 15, 23, 39, 71, 135, 263]


@pytest.mark.parametrize("radius", [8, *map(slow, (1, 3, 12, 16))])
def test_the_crossing_is_where_the_fastest_plan_changes(radius):
    def scans(n, within):
        return plan(n, within, memory_budget=1 << 62, prefer="speed")[0].name == "scan"

    most = crossover(1 << 16, radius).fingerprints
    assert most > 0
    assert scans(most, radius)
    step = 10 ** (len(str(most)) - 2)  # two digits are given
    assert not scans(most + max(step, 1), radius)
    for n in (1000, 1 << 16):
        first = crossover(n, radius).radius
        assert first == 17 or scans(n, first)
        assert not scans(n, first - 1) or first == 17
    assert crossover(1 << 16, 20).fingerprints is None
    assert crossover(10, 0).fingerprints == 0


def test_a_merge_that_chooses_again_respects_the_preference(tmp_path):
    rng = np.random.default_rng(1)
    few, many = rng.integers(0, 2**64, 2000, np.uint64), rng.integers(0, 2**64, 30_000, np.uint64)
    names = {}
    for prefer in ("speed", "space", "balance"):
        path = tmp_path / prefer
        fpstore.build(path, few, prefer=prefer).close()
        assert read_manifest(path).auto["prefer"] == prefer
        with fpstore.open(path, "r+") as store:
            store.insert(many)
            store.merge()
            names[prefer] = store.design.name
            assert store.verify().ok
        assert read_manifest(path).auto["prefer"] == prefer
        assert names[prefer] == plan(32_000, 3, prefer=prefer)[0].name
    assert len(set(names.values())) > 1
    with fpstore.build(tmp_path / "named", few, design="flip-2", prefer="speed"):
        assert read_manifest(tmp_path / "named").auto is None


@pytest.mark.full
@pytest.mark.parametrize(
    ("width", "radius", "most"),
    [(64, 3, 160), (64, 8, 165), (128, 3, 185), (256, 3, 285), (256, 24, 120)],
)
def test_memory_of_a_change_is_what_a_plan_says(tmp_path, width, radius, most):
    """It was said to be 100 bytes; of 256 bits at radius 24, it was 708."""
    rng = np.random.default_rng(7)
    fingerprints = rng.integers(0, 256, (100_000, width // 8), np.uint8)
    with fpstore.build(tmp_path / "s", fingerprints[:0], radius=radius, width=width) as store:
        assert store.stats()["delta"]["memory"] == 0
    with fpstore.open(tmp_path / "s", "r+", sync="none") as store:
        for start in range(0, len(fingerprints), 10_000):
            store.insert(
                fingerprints[start : start + 10_000], [f"{start + i:040d}" for i in range(10_000)]
            )
        taken = store.stats()["delta"]["memory"] / store.stats()["delta"]["changes"]
    said = fpstore.plan(1 << 20, radius, width=width)[0].delta_bytes_per_change
    assert taken == pytest.approx(said[100_000], rel=0.02)
    assert taken < most


@pytest.mark.full
def test_memory_of_a_change_is_said_on_both_sides_of_an_index():
    """A plan said 117 bytes, where from 212,000 changes on each took 430."""
    said = fpstore.plan(1 << 20, 24, width=256)[0].delta_bytes_per_change
    assert list(said) == [10_000, 100_000, 300_000]
    assert 100 < said[100_000] < 120
    assert 420 < said[300_000] < 440
