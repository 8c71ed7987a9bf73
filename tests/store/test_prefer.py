"""What `auto` prefers, the scan beside the designs, and where it becomes cheaper."""

import json

import numpy as np
import pytest

import fpstore
from fpstore import InputError, plan
from fpstore.design.costs import BATCH_QUERIES, scan_nanoseconds
from fpstore.design.planner import crossover
from fpstore.format.manifest import read_manifest


@pytest.mark.parametrize("storage", ["hot", "cold"])
@pytest.mark.parametrize("radius", [1, 3, 7, 12, 20])
@pytest.mark.parametrize("log2_n", [10, 20, 30])
def test_speed_is_the_fastest_and_space_the_smallest_that_fits(log2_n, radius, storage):
    how = {"storage": storage, "memory_budget": 1 << 62, "disk_budget": (20 << log2_n) + (1 << 20)}
    speed, space, balance = (plan(1 << log2_n, radius, prefer=p, **how) for p in ("speed", "space", "balance"))
    fast, small = ([p for p in plans if p.fits] for plans in (speed, space))
    time = (lambda p: p.mean_microseconds) if storage == "hot" else (lambda p: p.cold_milliseconds)
    assert [p.chosen for p in speed] == [True] + [False] * (len(speed) - 1)
    assert time(speed[0]) == min(map(time, fast))
    assert space[0].bytes_per_fingerprint == min(p.bytes_per_fingerprint for p in small) <= balance[0].bytes_per_fingerprint
    assert time(space[0]) == min(time(p) for p in small if p.bytes_per_fingerprint == space[0].bytes_per_fingerprint)
    assert time(speed[0]) <= time(balance[0]) <= time(space[0])
    assert {p.name for p in speed} == {p.name for p in space} == {p.name for p in balance}


@pytest.mark.parametrize("n", [1000, 1 << 20])
def test_the_smallest_with_filters_has_filters(n):
    """It was a scan, which has none."""
    plans = plan(n, prefer="space", filter=True)
    assert plans[0].chosen
    assert plans[0].filters
    assert plans[0].bytes_per_fingerprint == min(p.bytes_per_fingerprint for p in plans if p.filters and p.fits)
    assert plan(10, prefer="space", filter=True)[0].name == "scan"  # no design has filters
    assert not plan(n, prefer="space")[0].filters


@pytest.mark.parametrize("prefer", ["fast", None, 1])
def test_an_unknown_preference_is_refused(tmp_path, prefer):
    with pytest.raises(InputError, match="prefer must be one of balance, speed, space"):
        plan(10, prefer=prefer)
    with pytest.raises(InputError, match="prefer must be one of balance, speed, space"):
        fpstore.build(tmp_path / "s", [1], prefer=prefer)


@pytest.mark.parametrize("radius", [1, 3, 8, 16, 17, 64])
@pytest.mark.parametrize("n", [0, 5, 1000, 1 << 24])
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


@pytest.mark.parametrize("radius", [1, 8, 16, *(pytest.param(radius, marks=pytest.mark.slow) for radius in (3, 12))])
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


def test_a_store_of_a_large_radius_lives(tmp_path):
    rng = np.random.default_rng(2)
    base = rng.integers(0, 2**64, 4000, np.uint64)
    for radius, design in ((10, "flip-4"), (16, "auto"), (40, "auto")):
        path = tmp_path / f"{radius}"
        fpstore.build(path, base, radius=radius, design=design).close()
        with fpstore.open(path, "r+") as store:
            added = base[:500] ^ np.uint64((1 << radius) - 1)
            store.insert(added, np.arange(500))
            store.delete(fingerprints=base[100:200])
            content = np.setdiff1d(np.union1d(base, added), base[100:200])
            for _ in range(2):
                queries = base[:40]
                found = store.probe_many(queries)
                for q, row in zip(queries, found, strict=True):
                    distances = np.bitwise_count(content ^ q)
                    assert {m.fingerprint for m in row} == set(content[distances <= radius].tolist())
                    assert len(row) == len({m.fingerprint for m in row})
                store.merge()
            assert store.probe_insert(int(base[0]) ^ 1, 9) != []
            assert json.loads((path / "manifest.json").read_text())["design"]["radius"] == radius
            assert store.verify().ok
