"""Filters of tables: the answers are the same, with fewer blocks opened."""

from itertools import product
from math import comb

import numpy as np
import pytest
from filtering import (
    STORED,
    N,
    as_fingerprints,
    assert_alike,
    files_of,
    flipped,
    generation_of,
    inner,
    random_rows,
    shapes_of,
)
from speeds import crossed

import fpstore
from fpstore import _kernel
from fpstore.base.width import WIDTHS
from fpstore.design.blocks import BlockPacking
from fpstore.design.costs import time_space_cost
from fpstore.design.estimates import Requirements, choose_filters, estimate
from fpstore.design.families import MAX_VARIANTS, Design, design
from fpstore.design.filters import (
    MAX_FINGERPRINTS,
    MAX_PREFIX_BITS,
    MIN_FINGERPRINTS,
    filter_shapes,
)
from fpstore.format.filter import filter_cutter, filter_name

BLOCK_DESIGNS = ["manku-4", "manku-10", "flip-1", "flip-2", "striped-4-1", "scan"]
SIZES = [0, 1, 16, 17, 64, 300, 1_000]


# --- Answers --------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("width", "made"),
    crossed(WIDTHS, [*product(BLOCK_DESIGNS, ["huffman", "elias-fano"]), ("columns-4", "huffman")]),
)
def test_answers_are_the_same(tmp_path, width, made):
    name, codec = made
    for count in SIZES:
        rows = random_rows(count, width, count)
        rows[count // 2 :] = flipped(rows[: count - count // 2], 3, 1)  # families
        stored = as_fingerprints(rows, width)
        near = (
            as_fingerprints(
                flipped(rows[np.random.default_rng(2).integers(0, count, 200)], 4, 3), width
            )
            if count
            else stored
        )
        queries = np.concatenate(
            [near, as_fingerprints(random_rows(200, width, 4), width), stored[:100]]
        )
        options = {"width": width, "design": name, "codec": codec}
        with (
            fpstore.build(
                tmp_path / f"{count}-without.fps", stored, filter=False, **options
            ) as plain,
            fpstore.build(tmp_path / f"{count}.fps", stored, filter=True, **options) as store,
        ):
            assert not generation_of(plain).filters
            for radius in (0, 1, 3):
                expected = plain.probe_many(queries, radius)
                assert_alike(store.probe_many(queries, radius), expected)
                assert_alike(store.probe_many(queries, radius, threads=2), expected)
                for i in [0, 1, 150, len(queries) - 1]:
                    query = int.from_bytes(np.atleast_1d(queries[i]).byteswap().tobytes())
                    assert store.probe(query, radius) == plain.probe(query, radius)


@pytest.fixture(scope="module", params=WIDTHS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Return a width, two stores of 20,000 fingerprints without and with filters, and queries."""
    folder, width = tmp_path_factory.mktemp("pair"), request.param
    rows = random_rows(20_000, width, 1)
    queries = as_fingerprints(
        np.concatenate([flipped(rows[:4_000], 3, 2), random_rows(4_000, width, 3)]), width
    )[::-1]
    options = {"width": width, "design": "flip-2"}
    with (
        fpstore.build(
            folder / "without.fps", as_fingerprints(rows, width), filter=False, **options
        ) as plain,
        fpstore.build(
            folder / "with.fps", as_fingerprints(rows, width), filter=True, **options
        ) as store,
    ):
        yield width, plain, store, queries


@pytest.mark.sampled(2)
def test_every_order_of_look_ups(pair, isa):
    """Batches have sizes around those at which groups, sorts and full queues of look-ups begin."""
    width, plain, store, queries = pair
    plain_prober, prober = generation_of(plain).prober(3), generation_of(store).prober(3)
    for count in [0, 1, 2, 31, 32, 33, 127, 128, 2_048, 4_095, 4_096, 8_000]:
        batch = inner(queries[:count], width)
        expected = plain_prober.probe(batch, 3)
        for order in ("best", "asked", "near", "sorted"):
            got = prober.probe(batch, 3, order=order)
            assert all(np.array_equal(a, b) for a, b in zip(got[:3], expected[:3], strict=True)), (
                order
            )


@pytest.mark.sampled(7)
@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("order", ["best", "asked", "near", "sorted"])
def test_threads_share_the_pages_that_are_verified(tmp_path, order, threads):
    """All begin with a filter of which no page has been read."""
    queries = as_fingerprints(
        np.concatenate([flipped(random_rows(N, 64, 1)[:2_000], 3, 2), random_rows(2_000, 64, 3)])
    )
    with (
        fpstore.build(tmp_path / "without.fps", STORED, design="flip-2", filter=False) as plain,
        fpstore.build(tmp_path / "with.fps", STORED, design="flip-2", filter=True) as store,
    ):
        expected = generation_of(plain).prober(3).probe(queries, 3)
        got = generation_of(store).prober(3).probe(queries, 3, order=order, threads=threads)
        assert all(np.array_equal(a, b) for a, b in zip(got[:3], expected[:3], strict=True))


def test_all_fingerprints_with_one_prefix(tmp_path):
    """One bucket has everything, and all others are empty."""
    stored = np.unique(
        np.random.default_rng(6).integers(0, 2**20, 3_000, dtype=np.uint64)
    ) | np.uint64(0xABCD << 48)
    queries = np.concatenate(
        [stored[:300] ^ np.uint64(1 << 60), stored[:300] ^ np.uint64(5), ~stored[:300]]
    )
    with (
        fpstore.build(tmp_path / "without.fps", stored, design="flip-2", filter=False) as plain,
        fpstore.build(tmp_path / "with.fps", stored, design="flip-2", filter=True) as store,
    ):
        assert generation_of(store).filters
        for radius in range(4):
            assert_alike(store.probe_many(queries, radius), plain.probe_many(queries, radius))


# --- Blocks opened --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["manku-10", "flip-2"])
def test_look_ups_that_find_nothing_open_few_blocks(tmp_path, name):
    """At this size prefixes are long: without a filter, nearly each look-up opens a block."""
    rows, queries = (
        as_fingerprints(random_rows(400_000, 64, 1)),
        as_fingerprints(random_rows(500, 64, 2)),
    )
    with (
        fpstore.build(tmp_path / "without.fps", rows, design=name, filter=False) as plain,
        fpstore.build(tmp_path / "with.fps", rows, design=name, filter=True) as store,
    ):
        for order in ("asked", "near", "sorted"):
            opened, fewer = (
                generation_of(s).prober(3).probe(queries, 3, order=order)[3] for s in (plain, store)
            )
            assert opened > 4_000
            assert fewer < 0.3 * opened


def test_the_share_that_passes_is_as_estimated(tmp_path):
    """Of one table, a look-up at a time: each that passes opens a block."""
    with fpstore.build(tmp_path / "s", STORED, design="flip-2", filter=True) as store:
        generation = generation_of(store)
        for table, shape in shapes_of(store).items():
            prober = _kernel.Prober()
            kernel = generation.filters[table].kernel
            prober.add(
                generation.tables[table].kernel,
                shape.prefix_bits,
                0,
                np.zeros(1, np.uint64),
                kernel,
            )
            queries = as_fingerprints(random_rows(20_000, 64, 2))
            opened = prober.probe(queries, 3, order="asked")[3]
            expected = shape.passing_share(N / 2**shape.prefix_bits)
            assert opened / len(queries) == pytest.approx(expected, rel=0.2)
            assert kernel.passing == pytest.approx(expected, rel=0.2)


# --- Shapes ---------------------------------------------------------------------------------------


def variants(bits: int, flips: int) -> int:
    return sum(comb(bits, i) for i in range(flips + 1))


MADE = [
    design(*given)
    for given in [
        ("manku-4", 3),
        ("manku-10", 3),
        ("flip-1", 3),
        ("flip-2", 3),
        ("flip-2", 7),
        ("flip-3", 10),
    ]
]
COUNTS = [
    0,
    1,
    MIN_FINGERPRINTS - 1,
    MIN_FINGERPRINTS,
    1_000,
    2**16 - 1,
    2**16,
    2**22,
    2**26,
    2**27,
    2**31,
    MAX_FINGERPRINTS,
    2**40,
]


def test_shapes_are_within_the_limits_of_their_tables():
    for made, count in product(MADE, COUNTS):
        check_shapes(made, count)


def check_shapes(made: Design, count: int):
    shapes = filter_shapes(made, count)
    assert MIN_FINGERPRINTS <= count <= MAX_FINGERPRINTS or not shapes
    for table, shape in shapes.items():
        spec, log2_count = made.tables[table], count.bit_length() - 1
        # with shorter ones, nearly all pass
        assert log2_count <= shape.prefix_bits <= min(spec.prefix_bits, MAX_PREFIX_BITS)
        assert shape.bucket_bits <= min(shape.prefix_bits, log2_count)
        assert shape.prefix_bits - shape.bucket_bits <= 32
        assert variants(shape.prefix_bits, spec.flips) <= MAX_VARIANTS or not spec.flips
        assert 0 < shape.passing_share(count / 2**shape.prefix_bits) < 1
        assert count * shape.bits_per_prefix / 64 < 2**32
        if count <= 2**27:  # what the format takes
            assert len(filter_cutter(made, table, count, 7, shape).header) == _kernel.HEADER_BYTES


def test_which_tables_have_none():
    assert len(filter_shapes(design("manku-10", 3), 2**22)) == 10
    assert filter_shapes(design("manku-10", 3), 2**28) == {}  # nearly all prefixes occur
    # so many flips that longer prefixes would be too many look-ups
    assert filter_shapes(design("flip-1", 7), 2**24) == {}
    assert (
        filter_shapes(design("columns-4", 3), 2**22)
        == filter_shapes(design("scan", 3), 2**22)
        == {}
    )
    tables = design("manku-4", 3).tables
    # a probe of radius 0 goes to the first table
    assert set(filter_shapes(Design("s", 0, tables), 2**12)) <= {0}
    assert len(filter_shapes(Design("s", 3, tables), 2**12)) == 4


def test_look_ups_go_by_the_bits_that_the_filters_know():
    flip = design("flip-2", 3)
    assert [(x.prefix_bits, x.filtered) for x in flip.lookups(2**26)] == [(24, False), (24, False)]
    assert [
        (x.prefix_bits, x.filtered) for x in flip.lookups(2**26, filter_bits={0: 29, 1: 28})
    ] == [(29, True), (28, True)]
    assert [(x.prefix_bits, x.filtered) for x in flip.lookups(2**26, filter_bits={1: 29})] == [
        (24, False),
        (29, True),
    ]
    manku = design("manku-4", 3)  # without flips, by the whole prefix
    bits = [table.prefix_bits for table in manku.tables]
    assert [
        x.prefix_bits for x in manku.lookups(2**12, filter_bits=dict.fromkeys(range(4), 13))
    ] == bits
    assert flip.lookups(2**26, 0, {0: 29}) == (flip.lookups(2**26, 0)[0].__class__(0, 64, 0, True),)


@pytest.mark.parametrize("made", MADE, ids=lambda made: f"{made.name}, radius {made.radius}")
def test_every_radius_can_be_looked_up(made):
    for count in (2**10, 2**16, 2**22, 2**26):
        shapes = filter_shapes(made, count)
        bits = {table: shape.prefix_bits for table, shape in shapes.items()}
        for radius in range(made.radius + 1):
            for look in made.lookups(count, radius, bits):
                assert look.variant_count <= MAX_VARIANTS
                assert not look.filtered or bits[look.table] <= look.prefix_bits


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["manku-4", "flip-1", "flip-2"])
def test_files_have_the_bytes_that_are_estimated(tmp_path, name, width):
    stored = as_fingerprints(random_rows(20_000, width, 1), width)
    with fpstore.build(tmp_path / "s", stored, width=width, design=name, filter=True) as store:
        for table, shape in shapes_of(store).items():
            assert files_of(store.path)[filter_name(table)] == pytest.approx(
                shape.file_bytes(20_000), rel=0.02
            )


@pytest.mark.parametrize(
    "blocks", [BlockPacking(512, codec) for codec in ("huffman", "elias-fano")]
)
@pytest.mark.parametrize("made", MADE, ids=lambda made: f"{made.name}, radius {made.radius}")
def test_auto_takes_filters_where_they_pay_for_their_bytes(made, blocks):
    """All of a design or none, by time and bytes as `auto` weighs designs."""
    for count in (100, 2**12, 2**20, 2**26):
        assert choose_filters(made, count, blocks._replace(filter=False)) == {}
        every = choose_filters(made, count, blocks._replace(filter=True))
        assert every == filter_shapes(made, count)
        plans = [
            estimate(made, count, Requirements(made.width, blocks=blocks._replace(filter=wanted)))
            for wanted in (True, False)
        ]
        costs = [time_space_cost(p.mean_microseconds, p.bytes_per_fingerprint) for p in plans]
        assert [p.filters for p in plans] == [len(every), 0]
        assert choose_filters(made, count, blocks) == (every if costs[0] < costs[1] else {})


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["yes", None, 1, 0, "True", []])
def test_other_words_are_refused(tmp_path, wanted):
    for call in (
        lambda: fpstore.build(tmp_path / "a.fps", STORED, filter=wanted),
        lambda: fpstore.plan(N, filter=wanted),
    ):
        with pytest.raises(fpstore.InputError, match="filter must be True, False or 'auto'"):
            call()
    assert not list(tmp_path.iterdir())


def test_a_filter_of_more_bits_than_a_look_up_is_refused(tmp_path):
    with fpstore.build(tmp_path / "s", STORED, design="flip-2", filter=True) as store:
        generation = generation_of(store)
        table, filtered = generation.tables[0].kernel, generation.filters[0].kernel
        bits, masks = filtered.shape[0], np.zeros(1, np.uint64)
        prober = _kernel.Prober()
        with pytest.raises(ValueError, match="no more bits"):
            prober.add(table, bits - 1, 0, masks, filtered)
        assert prober.probe(masks, 3)[0].tolist() == [0, 0]  # nothing was added
        prober.add(table, bits, 0, masks, filtered)
