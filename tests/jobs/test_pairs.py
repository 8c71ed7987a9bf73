"""All pairs and clusters against brute force.

Every width, radius and design of a join, in small and large steps.
"""

import tracemalloc

import numpy as np
import pytest
from column_sets import KINDS, kernel_rows, make_set
from forks import forked
from isas import ISAS
from near_pairs import brute, wanted_pairs, wanted_sets
from speeds import SOME_WIDTHS, crossed, slow

from fpstore.base.resources import Resources
from fpstore.base.width import WIDTHS, Width, row_places
from fpstore.design.families import lookup_radius
from fpstore.design.joins import (
    DEALING_NANOSECONDS,
    SAMPLED_FROM,
    dealt_design,
    designs,
    join_work,
    plan_join,
    scan_design,
    varying_bits,
    work_nanoseconds,
)
from fpstore.design.sample import SAMPLE_SIZE, Sample
from fpstore.errors import InputError
from fpstore.jobs.joining import connect_rows, pairs_between, pairs_within
from fpstore.jobs.pairs import join_design
from fpstore.jobs.sorting import LINK_BYTES


def found_pairs(rows, design, threads=1, memory=1 << 40):
    out = []
    for part in pairs_within(rows, design, Resources(memory, threads)):
        places = (row_places(rows, side).tolist() for side in (part.a, part.b))
        out += zip(*places, part.distances.tolist(), strict=True)
    return sorted(out)


def some_designs(count, radius, width, bits=None):
    """Return the designs proposed for sets of several sizes that have few enough buckets."""
    made = {d.name: d for n in (count, 1 << 14, 1 << 20) for d in designs(n, radius, width, bits)}
    return [d for d in made.values() if d.tables[0].prefix_bits <= 14]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_pairs_and_sets(set_limits, width, kind):
    rng = np.random.default_rng([width, len(kind)])
    rows = kernel_rows(make_set(kind, width, 400, rng))
    distances = brute(rows)
    radii = (0, 1, 3, 4, 7, 12, lookup_radius(width) + 1)
    # each with each width, and with each kind
    for radius in radii[(WIDTHS.index(width) + KINDS.index(kind)) % 4 :: 4]:
        pairs, sets = wanted_pairs(distances, radius), wanted_sets(distances, radius)
        part = some_designs(len(rows), radius, width)
        bits = varying_bits(rows, Width(width))
        sample = Sample(rows, Width(width))
        more = some_designs(len(rows), radius, width, bits)
        chosen = [
            design for all_of in (part, more) for design in rng.permutation(all_of)[:2].tolist()
        ]
        chosen += [
            dealt_design(design, sample, bits)
            for design in chosen[-1:]
            if design.tables[0].prefix_bits
        ]
        for place, design in enumerate(chosen):
            set_limits(join_part_rows=(10, 1 << 14)[place % 2])  # in parts, or as a whole
            assert found_pairs(rows, design) == pairs, (radius, design.name)
            assert connect_rows(rows, design).tolist() == sets, (radius, design.name)


def found_between(rows, others, design, threads=1, memory=1 << 40):
    out = []
    for part in pairs_between(rows, others, design, Resources(memory, threads)):
        places = row_places(rows, part.a).tolist(), row_places(others, part.b).tolist()
        out += zip(*places, part.distances.tolist(), strict=True)
    return sorted(out)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", [0, *map(slow, (1, 2))])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_pairs_of_two_sets(set_limits, width, kind, part):
    rng = np.random.default_rng([width, len(kind), 2, part])
    all_rows = kernel_rows(make_set(kind, width, 500, rng))
    subset = rng.random(len(all_rows)) < 0.4
    places = np.arange(len(all_rows))
    none, single = places[:0], places[:1]
    sides = [
        (places[subset], places[~subset]),
        (places, places[subset]),
        (single, places),
        (none, places),
        (places, none),
    ]
    distances = brute(all_rows)
    radii = (0, 1, 3, 7, 12, lookup_radius(width) + 1)
    for radius in radii[(WIDTHS.index(width) + KINDS.index(kind) + part) % 3 :: 3]:
        designs_here = some_designs(len(all_rows), radius, width)
        for own, other in sides:
            design = designs_here[int(rng.integers(len(designs_here)))]
            set_limits(join_part_rows=int(rng.choice([10, 1 << 14])))
            memory = int(rng.choice([1 << 12, 1 << 40]))
            between = distances[np.ix_(own, other)]
            a, b = np.nonzero(between <= radius)
            wanted = list(zip(a.tolist(), b.tolist(), between[a, b].tolist(), strict=True))
            rows, others = (
                np.ascontiguousarray(all_rows[own]),
                np.ascontiguousarray(all_rows[other]),
            )
            assert found_between(rows, others, design, 1, memory) == wanted, (radius, design.name)


def test_threads_share_a_join_of_two_sets():
    rng = np.random.default_rng(3)
    rows = np.unique(rng.integers(0, 2**64, 1 << 17, dtype=np.uint64))
    others = np.unique(
        np.concatenate([rows[::500] ^ np.uint64(5), rng.integers(0, 2**64, 3000, dtype=np.uint64)])
    )
    design = plan_join(len(others), 3, 64, queries=len(rows))
    result = found_between(rows, others, design, 3)
    assert result == found_between(rows, others, design)
    planted = [(a, d) for a, b, d in result if others[b] == rows[a] ^ np.uint64(5)]
    assert planted == [(a, 2) for a in range(0, len(rows), 500)]


@pytest.mark.full
@pytest.mark.parametrize(("isa", "radius"), crossed(ISAS, [1, 3, 5]), indirect=["isa"])
def test_large_buckets(set_limits, isa, radius):
    """Parts of tags bring rows of a bucket together, in groups with more pairs than fit."""
    set_limits(join_pairs=1)
    rng = np.random.default_rng(radius)
    low = rng.integers(0, 2**12, 1800, np.uint64) | rng.integers(
        0, 4, 1800, np.uint64
    ) << np.uint64(40)
    rows = np.unique(low | rng.integers(0, 2, 1800, np.uint64) << np.uint64(60))
    distances = brute(rows)
    for design in some_designs(len(rows), radius, 64)[-4:]:
        assert found_pairs(rows, design) == wanted_pairs(distances, radius), design.name
        assert connect_rows(rows, design).tolist() == wanted_sets(distances, radius), design.name


def test_a_bucket_of_any_size(isa):
    """Each number of vectors of tags, and of rows in the last one."""
    rng = np.random.default_rng(3)
    every = np.arange(1 << 9, dtype=np.uint64) << np.uint64(53)
    every = np.concatenate([every, every + np.uint64(1)])
    for count in (*range(1, 12), *range(29, 36), *range(61, 68), *range(93, 100), *range(125, 140)):
        rows = np.sort(rng.choice(every, count, replace=False))
        assert found_pairs(rows, scan_design(1, 64)) == wanted_pairs(brute(rows), 1), count


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_few_rows(width):
    for count in (0, 1, 2, 3, 31, 32, 33, 64, 65):
        rows = kernel_rows(
            make_set("clustered", width, count, np.random.default_rng([width, count]))
        )
        distances = brute(rows)
        for radius in (0, 3, width):
            design = plan_join(len(rows), radius, width)
            assert found_pairs(rows, design) == wanted_pairs(distances, radius)
            assert connect_rows(rows, design).tolist() == wanted_sets(distances, radius)


@pytest.mark.full
@pytest.mark.parametrize("radius", [slow(0), 2, slow(5), 9])
def test_small_steps_and_threads(set_limits, radius):
    """A join goes on where it ran out of room, in every loop; threads find the same."""
    rows = kernel_rows(make_set("clustered", 64, 1500, np.random.default_rng(radius)))
    distances = brute(rows)
    set_limits(join_pairs=1, join_rows=100, join_part_rows=30)
    for design in some_designs(len(rows), radius, 64)[:3]:
        for threads in (1, 3):
            for memory in (1 << 40, 1 << 13):
                assert found_pairs(rows, design, threads, memory) == wanted_pairs(
                    distances, radius
                ), (design.name, threads)
                sets = connect_rows(rows, design, Resources(memory, threads))
                assert sets.tolist() == wanted_sets(distances, radius), design.name


@pytest.mark.parametrize(("share", "linked"), [(1.2, False), (2.3, False), (3.2, True)])
def test_tables_in_parts_and_sorted_ones_share_the_memory(set_limits, share, linked):
    """A design flips bits in some of its tables; arrays of one kind do not outlive their table."""
    set_limits(join_part_rows=1 << 10)
    rows = np.unique(np.random.default_rng(5).integers(0, 2**64, 1 << 18, dtype=np.uint64))
    design = next(d for d in designs(1 << 12, 5, 64) if set(d.flips) == {0, 1})
    memory = int(share * rows.nbytes)
    tracemalloc.start()
    try:
        for _ in pairs_within(rows, design, Resources(memory, 1), linked=linked):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    links = LINK_BYTES * len(rows) if linked else 0  # the kernel has these
    assert peak <= memory - links + (1 << 18)  # begins of buckets, and small objects


def test_dealt_bits_are_found_by_a_sample():
    halves = np.random.default_rng(1).integers(0, 2**32, SAMPLE_SIZE + 100, dtype=np.uint64)
    digits = [f"{int(value):032b}" for value in halves]
    # each bit stands twice
    rows = np.unique(
        np.array([int("".join(d + d for d in digit), 2) for digit in digits], np.uint64)
    )
    sample = Sample(rows, Width(64))
    assert sample.is_skewed
    # it would take longer than the join
    assert not plan_join(1 << 12, 6, 64, sample).name.startswith("dealt")
    assert plan_join(1 << 24, 40, 64, sample).name == "scan"
    rows = rows[:600]
    distances = brute(rows)
    plain = next(design for design in some_designs(1 << 14, 6, 64) if len(design.tables) == 4)
    for design in (dealt_design(plain, sample), plan_join(1 << 24, 6, 64, sample)):
        assert design.name.startswith("dealt")
        assert found_pairs(rows, design) == wanted_pairs(distances, 6)


@pytest.mark.parametrize("count", [1 << 13, slow(1 << 16)])
def test_bits_that_tell_nothing_cost_nothing(count):
    """Fingerprints with few bits, anywhere and with exceptions, are not all compared."""
    rng = np.random.default_rng(count)
    low = rng.integers(0, 2**32, count, dtype=np.uint64)
    others = (
        [np.append(low, rng.integers(0, 2**64, 3, dtype=np.uint64))]
        if count >= SAMPLED_FROM
        else []
    )
    for values in (np.arange(count, dtype=np.uint64), low, low << np.uint64(20), *others):
        rows = np.unique(values)
        for radius in (1, 3):
            done = join_work(
                join_design(rows, radius, Width(64)), len(rows), Sample(rows, Width(64))
            )
            # some sets have many pairs
            near = np.bitwise_count(rows[:256, None] ^ rows[None, :]) <= radius
            assert (
                work_nanoseconds(done, len(rows))
                < 2 * DEALING_NANOSECONDS + 100 * len(rows) * near.sum() / 256
            )
            assert done.survivors < len(rows) / 4


def test_a_join_is_not_continued_in_another_process():
    rows = np.unique(np.random.default_rng(1).integers(0, 2**20, 1 << 17, dtype=np.uint64))
    pairs = pairs_within(
        rows, plan_join(len(rows), 2, 64, bits=range(44, 64)), Resources(1 << 40, 2)
    )
    next(pairs)

    def ask():
        with pytest.raises(InputError, match="in another process"):
            list(pairs)

    forked(ask)
    pairs.close()


def test_the_plan_is_a_scan_where_nothing_else_is_cheaper():
    assert plan_join(4, 3, 64).name == "scan"
    assert plan_join(1 << 20, 40, 64) == scan_design(40, 64)
    assert plan_join(1 << 22, 3, 64).name == "columns-4-16"
