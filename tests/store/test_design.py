"""Designs cover what they promise, by enumeration.

Every way that errors can fall over the classes of bits.
"""

import itertools
from functools import lru_cache
from math import comb

import brute_force
import numpy as np
import pytest
import tableimage
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import slow

from fpstore import InputError, TableSpec, _kernel
from fpstore.design.covering import covers
from fpstore.design.families import MANKU, Design, _cut, design, lookup_radius
from fpstore.design.tables import identity_permutation

SIZES = (0, 2**10, 2**24, 2**34)
IDENTITY = identity_permutation(64)
LOOKUP_RADIUS = lookup_radius(64)

# name, largest radius that is tried
NAMED = [
    *((name, most) for name, (_, most) in MANKU.items()),
    ("blocks-1-1", 7),
    ("blocks-2-1", 7),
    ("blocks-3-1", 7),
    ("blocks-3-2", 7),
    ("blocks-4-2", 7),
    ("blocks-5-3", 6),
    ("blocks-8-1", 7),
    ("blocks-9-2", 7),
    ("blocks-7-3", 7),
    ("striped-4-1", 5),
    ("striped-5-2", 4),
    ("striped-6-3", 3),
    ("nested-2-2", 1),
    ("nested-3-3", 2),
    ("nested-4-6", 3),
    ("nested-5-5", 4),
]
CASES = [
    *((name, radius) for name, most in NAMED for radius in range(most + 1)),
    *((f"flip-{count}", radius) for radius in range(8) for count in range(1, radius + 2)),
    *((f"flip-{count}", radius) for radius in (8, 11, LOOKUP_RADIUS) for count in range(1, 7)),
    *(("scan", radius) for radius in (1, 3)),
]
ROTATED = bytes((i + 20) % 64 for i in range(64))
SHUFFLED = bytes(np.random.default_rng(3).permutation(64).astype(np.uint8))
LEFT_OUT = bytes([*range(24, 64), *range(24)])
UNEVEN = Design(
    "uneven",
    4,
    (
        TableSpec(IDENTITY, 24, 1),
        TableSpec(LEFT_OUT, 20, 1),
        TableSpec(bytes([*range(44, 64), *range(44)]), 20, 0),
    ),
)


def specs(made):
    return [(t.leading, t.flips) for t in made.tables]


def classes(tables):
    """Group the 64 bits by the tables that they lead in.

    Membership (classes, tables) and size of each class.
    """
    members = {}
    for bit in range(64):
        key = tuple(bit in leading for leading, _ in tables)
        members.setdefault(key, []).append(bit)
    return np.array(list(members), dtype=np.int64).reshape(len(members), len(tables)), list(
        members.values()
    )


@lru_cache(maxsize=64)
def placements(class_count, errors):
    """Every way to put this many like errors on the classes, as counts per class."""
    rows = comb(class_count + errors - 1, errors)
    assert rows < 2_000_000
    chosen = np.fromiter(
        itertools.chain.from_iterable(
            itertools.combinations_with_replacement(range(class_count), errors)
        ),
        np.int64,
        rows * errors,
    ).reshape(rows, errors)
    counts = np.zeros((rows, class_count), np.int64)
    np.add.at(counts, (np.repeat(np.arange(rows), errors), chosen.reshape(-1)), 1)
    return counts


def possible(tables, errors):
    """Return the placements that the sizes of classes allow, each with the tables that meet it."""
    membership, bits = classes(tables)
    counts = placements(len(bits), errors)
    counts = counts[(counts <= [len(part) for part in bits]).all(axis=1)]
    met = counts.astype(np.float32) @ membership.astype(np.float32) <= [
        flips for _, flips in tables
    ]
    return counts, met


def exact(tables, radius):
    return all(possible(tables, errors)[1].any(axis=1).all() for errors in range(radius + 1))


def looked_up(made, size, radius):
    """Return the look-ups, and for each table the source bits of its prefix and the flips."""
    lookups = made.lookups(size, radius)
    tables = []
    for lookup in lookups:
        spec = made.tables[lookup.table]
        assert lookup.prefix_bits <= (64 if radius == 0 else spec.prefix_bits)
        assert lookup.flips <= spec.flips
        tables.append((frozenset(spec.permutation[: lookup.prefix_bits]), lookup.flips))
    return lookups, tables


@pytest.mark.full
def test_reduced_lookups_meet_every_placement_of_errors():
    for made in [*(design(*case) for case in CASES), UNEVEN]:
        design_radius, done = made.radius, set()
        for radius, size in itertools.product(range(design_radius + 1), SIZES):
            try:
                _, tables = looked_up(made, size, radius)
            except InputError as error:
                assert "look-ups in table" in str(error)
                continue
            if (radius, *tables) not in done:
                done.add((radius, *tables))
                assert exact(tables, radius), (made, radius, size)
        assert {radius for radius, *_ in done} == set(range(design_radius + 1))


# --- Coverage -------------------------------------------------------------------------------------


def test_smaller_radius_takes_fewer_lookups():
    assert len(design("manku-20", 3).lookups(2**24, 1)) < 20
    assert sum(x.variant_count for x in design("flip-2", 3).lookups(2**24, 1)) == 2
    assert [(x.table, x.prefix_bits) for x in design("flip-4", 7).lookups(2**24, 0)] == [(0, 64)]


def test_effective_prefix_follows_the_size_where_there_are_flips():
    made = design("flip-2", 3)
    prefixes = [made.lookups(1 << bits)[0].prefix_bits for bits in (0, 3, 10, 24, 30, 40)]
    assert prefixes == sorted(prefixes)
    assert prefixes[0] == 0
    assert prefixes[-1] == 32
    assert all(x.prefix_bits == 16 for size in SIZES for x in design("manku-4", 3).lookups(size))


def test_too_many_lookups_are_refused():
    with pytest.raises(InputError, match="look-ups in table 0 at radius 7"):
        design("flip-1", 7).lookups(2**34)


# --- One report for each match, by the kernel -----------------------------------------------------


def near(made, lookups_tables, radius, rng, most=1500):
    """Return a query and fingerprints around it, at least one per placement of the errors."""
    query = int(rng.integers(0, 2**64, dtype=np.uint64))
    _, bits = classes([*specs(made), *lookups_tables])
    counts = [placements(len(bits), errors) for errors in range(radius + 1)]
    collected = set()
    for part in counts:
        part = part[(part <= [len(b) for b in bits]).all(axis=1)]
        chosen = rng.choice(len(part), min(len(part), most // (radius + 1)), replace=False)
        for row in part[chosen]:
            mask = 0
            for place, errors in enumerate(row):
                for bit in rng.choice(bits[place], errors, replace=False):
                    mask |= 1 << (63 - int(bit))
            collected.add(query ^ mask)
    return query, np.array(sorted(collected), np.uint64)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("most", [120, slow(1500)])
@pytest.mark.parametrize(
    ("name", "radius"),
    [
        ("manku-20", 3),
        ("striped-5-2", 3),
        ("nested-3-3", 2),
        ("flip-2", 3),
        ("scan", 5),
        ("uneven", 4),
        *(slow(name, most) for name, (_, most) in MANKU.items() if name != "manku-20"),
        *(
            slow(*case)
            for case in (
                ("blocks-4-2", 5),
                ("blocks-9-2", 7),
                ("striped-4-1", 5),
                ("nested-4-6", 3),
            )
        ),
        *(
            slow(f"flip-{count}", radius)
            for radius in (1, 3, 7)
            for count in range(1, radius + 2)
            if count != 2 or radius != 3
        ),
        *(slow(*case) for case in (("flip-4", 10), ("flip-5", 12))),
    ],
)
def test_kernel_reports_each_placement_exactly_once(name, radius, most):
    made = UNEVEN if name == "uneven" else design(name, radius)
    rng = np.random.default_rng(len(made.tables) * 10 + radius)
    for size in (2**5, 2**10, 2**24):
        for smaller in {radius, max(radius - 2, 0)}:
            lookups, tables = looked_up(made, size, smaller)
            query, fingerprints = near(
                made, tables, min(radius + 1, 7) if radius < 8 else radius, rng, most
            )
            prober = _kernel.Prober()
            for lookup in lookups:
                permutation = np.frombuffer(made.tables[lookup.table].permutation, np.uint8)
                image = tableimage.build(fingerprints, permutation, 256)
                prober.add(
                    tableimage.open_table(image), lookup.prefix_bits, lookup.flips, lookup.masks
                )
            lims, matches, distances, _, _ = prober.probe(np.array([query], np.uint64), smaller)
            expected, expected_distances = brute_force.brute_force(fingerprints, query, smaller)
            assert len(expected) > smaller
            assert matches.tolist() == expected.tolist(), (size, smaller)
            assert distances.tolist() == expected_distances.tolist()
            assert lims.tolist() == [0, len(expected)]


# --- covers() -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "radius"), [*((n, most) for n, (_, most) in MANKU.items()), ("flip-3", 5)]
)
def test_covers_sees_a_missing_table(name, radius):
    tables = design(name, radius).tables
    assert covers(tables, radius)
    assert not covers(tables, radius + 1)
    for left_out in range(len(tables)):
        fewer = [t for i, t in enumerate(tables) if i != left_out]
        assert covers(fewer, radius) == exact([(t.leading, t.flips) for t in fewer], radius)
        assert not covers(fewer, radius)


@given(
    st.lists(
        st.tuples(st.permutations(range(8)), st.integers(1, 6), st.integers(0, 3)),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 5),
)
@settings(max_examples=150)
def test_covers_agrees_with_enumeration(shapes, radius):
    tables = []
    for order, leading_count, flips in shapes:
        bits = [bit for block in order for bit in range(block * 8, block * 8 + 8)]
        tables.append(TableSpec(bytes(bits), leading_count * 8, flips))
    assert covers(tables, radius) == exact([(t.leading, t.flips) for t in tables], radius)


@pytest.mark.parametrize("count", [7, 8])
def test_covers_decides_large_nested_designs(count):
    """So many classes that enumerating placements takes seconds, once for each table left out."""
    tables = design(f"nested-{count}-{count}", count - 1).tables
    assert covers(tables, count - 1)
    assert not covers(tables, count)
    assert not any(covers(tables[:i] + tables[i + 1 :], count - 1) for i in range(len(tables)))


def test_covers_knows_how_many_bits_a_class_has():
    shifted = TableSpec(bytes([*range(1, 64), 0]), 2, 1)
    for shapes, radius, covered in (
        ([(2, 2)], 7, True),
        ([(64, 0)], 0, True),
        ([(64, 0)], 1, False),
        ([(0, 0)], 7, True),
        ([(64, 7)], 7, True),
        ([(64, 6)], 7, False),
    ):
        assert covers([TableSpec(IDENTITY, *shape) for shape in shapes], radius) == covered, (
            shapes,
            radius,
        )
    assert covers([TableSpec(IDENTITY, 2, 1), shifted], 2)
    assert not covers([TableSpec(IDENTITY, 2, 1), shifted], 3)
    assert not covers(UNEVEN.tables, 5)


# --- The shapes of the paper ----------------------------------------------------------------------


def test_designs_of_the_paper():
    for name, radius, table_count, prefixes in (
        ("manku-4", 3, 4, {16}),
        ("manku-10", 3, 10, {25, 26}),
        ("manku-16", 3, 16, {28}),
        ("manku-20", 3, 20, {31, 32, 33}),
        ("manku-28", 6, 28, {16}),
    ):
        made = design(name, radius)
        assert len(made.tables) == table_count
        assert {t.prefix_bits for t in made.tables} == prefixes
        assert not any(t.flips for t in made.tables)
        with pytest.raises(
            InputError, match=f"{name} is exact up to radius {radius}, got {radius + 1}"
        ):
            design(name, radius + 1)


def test_block_lengths():
    for block_count, bits in ((1, 64), (5, 64), (6, 64), (7, 48), (64, 64)):
        lengths = [len(block) for block in _cut(range(bits), block_count)]
        assert (len(lengths), sum(lengths)) == (block_count, bits)
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] - lengths[-1] <= 1


# --- Permutations ---------------------------------------------------------------------------------


def test_permutations():
    for name, radius in NAMED:
        tables = design(name, radius).tables
        assert tables[0].permutation == IDENTITY
        assert len({t.permutation for t in tables}) == len(tables)
        for table in tables:
            assert sorted(table.permutation) == list(range(64))
            behind = table.permutation[table.prefix_bits :]
            assert list(behind) == sorted(behind)
            assert len(table.leading) == table.prefix_bits


def test_sort_bits_decide_the_order():
    """Keys that tie on those bits are in order, for a set sorted before it was permuted."""
    rng = np.random.default_rng(1)
    part = [
        rng.integers(0, 2**64, 500, np.uint64),
        rng.integers(0, 64, 500, np.uint64),  # differ only at the end
        rng.integers(0, 64, 500, np.uint64) << np.uint64(58),
        rng.integers(0, 2, 500, np.uint64) << rng.integers(0, 64, 500, np.uint64),
    ]
    known = {
        IDENTITY: 1,
        ROTATED: 44,
        bytes(reversed(range(64))): 63,
        SHUFFLED: None,
        bytes([*range(62), 63, 62]): None,
    }
    for spec in [
        *design("manku-20", 3).tables,
        *design("nested-4-4", 3).tables,
        *(TableSpec(p, 20) for p in known),
    ]:
        keys = _kernel.permute(
            np.unique(np.concatenate(part)), np.frombuffer(spec.permutation, np.uint8)
        )
        leading = keys >> np.uint64(64 - spec.sort_bits)
        assert np.array_equal(keys[np.argsort(leading, kind="stable")], np.sort(keys))
        assert 1 <= spec.sort_bits <= 64
        assert known.get(spec.permutation) in (None, spec.sort_bits)
        sorted_keys = keys.copy()
        _kernel.sort_keys(sorted_keys, np.empty_like(keys), spec.sort_bits)
        assert np.array_equal(sorted_keys, np.sort(keys))


def test_masks_are_all_flips_of_the_prefix():
    for name, radius, size in (("flip-2", 3, 2**20), ("flip-1", 3, 2**16), ("flip-3", 7, 2)):
        for lookup in design(name, radius).lookups(size):
            masks = lookup.masks.tolist()
            assert len(set(masks)) == len(masks) == lookup.variant_count
            assert masks == sorted(masks)
            assert all(mask.bit_count() <= lookup.flips for mask in masks)
            assert all(mask & (2 ** (64 - lookup.prefix_bits) - 1) == 0 for mask in masks)
            assert lookup.variant_count == sum(
                comb(lookup.prefix_bits, i) for i in range(lookup.flips + 1)
            )


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("manku-5", "unknown design 'manku-5': use auto, manku-4"),
        ("", "unknown design ''"),
        ("flip-", "unknown design"),
        ("flip-2-2", "unknown design"),
        ("blocks-4", "unknown design"),
        ("blocks-100-1", "unknown design"),
        ("flip-0", "flip-M at radius 3 needs 1 <= M <= 4, got M=0"),
        ("flip-5", "got M=5"),
        ("blocks-4-5", "1 <= C <= M"),
        ("blocks-4-0", "1 <= C <= M"),
        ("blocks-65-1", "1 <= C <= M"),
        ("blocks-20-10", "more than 500 tables"),
        ("nested-3-3", "exact up to radius 2, got 3"),
        ("nested-1-4", "A of 2 to 64"),
        ("nested-4-60", "B of 2 to the number of bits outside a block"),
        (
            "columns-9",
            (
                "9 blocks of 64 bits have 7 each, and the number of a bucket has 8 or more: use at "
                "most 8 blocks"
            ),
        ),
        (
            "dealt-4-17",
            "dealt-4-17: 4 blocks of 64 bits have 16 each, and the number of a bucket has 8 to 16",
        ),
    ],
)
def test_bad_names(name, message):
    with pytest.raises(InputError, match=message):
        design(name, 3)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ((bytes(64), 16), "each of 32, 64, 128 or 256 bits once"),
        ((bytes(range(63)), 16), "each of 32, 64, 128 or 256 bits once"),
        ((IDENTITY, 65), "prefix_bits must be 0 to 64, got 65"),
        ((IDENTITY, -1), "prefix_bits must be 0 to 64, got -1"),
        ((IDENTITY, 2, 3), "flips must be 0 to prefix_bits"),
    ],
)
def test_bad_tables(table, message):
    with pytest.raises(InputError, match=message):
        TableSpec(*table)


def test_json_round_trip():
    for name, radius in (("manku-20", 3), ("flip-3", 7)):
        made = design(name, radius)
        assert Design.from_json(made.to_json()) == made
    assert Design.from_json(UNEVEN.to_json()) == UNEVEN


def test_striped_blocks_deal_the_bits():
    tables = design("striped-5-2", 3).tables
    assert (tables[0].permutation, tables[0].prefix_bits, tables[0].flips) == (
        bytes(range(64)),
        64,
        0,
    )
    assert len(tables) == 11
    for table in tables[1:]:
        # Of any run of 32 bits about half lead.
        for start in range(0, 64, 8):
            run = {(start + i) % 64 for i in range(32)}
            assert abs(len(run & table.leading) - table.prefix_bits / 2) < 2
    # The identity table is for the order of the ids: no probe within the radius needs it.
    assert 0 not in {lookup.table for lookup in design("striped-5-2", 3).lookups(1 << 20)}


# --- A large radius: disjoint blocks cover it, and beyond 16 there is a scan ----------------------


@given(
    st.lists(st.tuples(st.integers(0, 16), st.integers(0, 5)), min_size=1, max_size=4),
    st.integers(0, 20),
    st.booleans(),
)
@settings(max_examples=200)
def test_covers_of_disjoint_blocks_is_that_of_the_general_search(shapes, radius, whole):
    """They are decided by a sum; a table that another one makes superfluous changes nothing."""
    tables, start = [TableSpec(identity_permutation(64), 64)] if whole else [], 0
    for length, flips in shapes:
        bits = [*range(start, start + length), *range(start), *range(start + length, 64)]
        tables.append(TableSpec(bytes(bits), length, min(flips, length)))
        start += length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fpstore.design.covering._disjoint_blocks", lambda tables: None)
        expected = covers(tables, radius)
    assert covers(tables, radius) == expected


def test_blocks_of_a_large_radius_cover_it_by_construction(monkeypatch):
    # the general search is not needed
    monkeypatch.setattr("fpstore.design.covering._drop_covered", None)
    for name in ("flip-1", "flip-4", "flip-9", "flip-17", "striped-4-1", "striped-8-1"):
        tables = design(name, lookup_radius(64)).tables
        assert covers(tables, lookup_radius(64))
        assert not name.startswith("flip") or not covers(tables, lookup_radius(64) + 1)


def test_a_scan_covers_every_radius():
    for radius in (0, 1, 3, 17, 64):
        made = design("scan", radius)
        assert [(t.permutation, t.prefix_bits, t.flips) for t in made.tables] == [
            (identity_permutation(64), 0, 0)
        ]
        assert covers(made.tables, 64)
        for smaller in range(1, radius + 1):
            assert made.scans(1 << 20, smaller)
            assert [(x.prefix_bits, x.variant_count) for x in made.lookups(1 << 20, smaller)] == [
                (0, 1)
            ]
        assert not made.scans(1 << 20, 0)


def test_above_radius_16_there_is_only_a_scan():
    for name in ("flip-4", "manku-4", "blocks-8-1", "nested-9-9"):
        with pytest.raises(
            InputError, match="above radius 16, look-ups cost more than a scan: use scan or auto"
        ):
            design(name, 17)


def test_flip_thresholds():
    for radius, count in ((r, n) for r in range(lookup_radius(64) + 1) for n in range(1, r + 2)):
        tables = design(f"flip-{count}", radius).tables
        assert len(tables) == count
        assert sum(t.flips + 1 for t in tables) == radius + 1
        assert max(t.flips for t in tables) - min(t.flips for t in tables) <= 1
        leading = [t.leading for t in tables]
        assert sum(map(len, leading)) == 64
        assert frozenset.union(*leading) == frozenset(range(64))
    assert [t.flips for t in design("flip-2", 3).tables] == [1, 1]
