"""Designs of a large radius: disjoint blocks cover it by construction, and beyond radius 16 there is a scan."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpstore import InputError, TableSpec
from fpstore.design.covering import covers
from fpstore.design.families import design, lookup_radius
from fpstore.design.tables import identity


@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 5)), min_size=1, max_size=4), st.integers(0, 20), st.booleans())
@settings(max_examples=200, deadline=None)
def test_covers_of_disjoint_blocks_is_that_of_the_general_search(shapes, radius, whole):
    """They are decided by a sum; a table that another one makes superfluous changes nothing."""
    tables, start = [TableSpec(identity(64), 64)] if whole else [], 0
    for length, flips in shapes:
        bits = [*range(start, start + length), *range(start), *range(start + length, 64)]
        tables.append(TableSpec(bytes(bits), length, min(flips, length)))
        start += length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fpstore.design.covering._blocks_apart", lambda tables: None)
        expected = covers(tables, radius)
    assert covers(tables, radius) == expected


@pytest.mark.parametrize("name", ["flip-1", "flip-4", "flip-9", "flip-17", "striped-4-1", "striped-8-1"])
def test_blocks_of_a_large_radius_cover_it_by_construction(name, monkeypatch):
    tables = design(name, lookup_radius(64)).tables
    assert covers(tables, lookup_radius(64))
    assert not name.startswith("flip") or not covers(tables, lookup_radius(64) + 1)
    monkeypatch.setattr("fpstore.design.covering._worthwhile", None)  # the general search is not needed
    assert covers(tables, lookup_radius(64))


@pytest.mark.parametrize("radius", [0, 1, 3, 17, 64])
def test_a_scan_covers_every_radius(radius):
    made = design("scan", radius)
    assert [(t.permutation, t.prefix_bits, t.flips) for t in made.tables] == [(identity(64), 0, 0)]
    assert covers(made.tables, 64)
    for smaller in range(1, radius + 1):
        assert made.scans(1 << 20, smaller)
        assert [(x.prefix_bits, x.variant_count) for x in made.lookups(1 << 20, smaller)] == [(0, 1)]
    assert not made.scans(1 << 20, 0)


def test_above_radius_16_there_is_only_a_scan():
    for name in ("flip-4", "manku-4", "blocks-8-1", "nested-9-9"):
        with pytest.raises(InputError, match="above radius 16, look-ups cost more than a scan: use scan or auto"):
            design(name, 17)
    with pytest.raises(InputError, match="got radius 20: use scan or auto"):
        design([TableSpec(identity(64), 20, 19)], 20)
    assert design([TableSpec(identity(64), 20, 20)], 20).radius == 20


@pytest.mark.parametrize("radius", range(lookup_radius(64) + 1))
def test_flip_thresholds(radius):
    for count in range(1, radius + 2):
        tables = design(f"flip-{count}", radius).tables
        assert len(tables) == count
        assert sum(t.flips + 1 for t in tables) == radius + 1
        assert max(t.flips for t in tables) - min(t.flips for t in tables) <= 1
        leading = [t.leading for t in tables]
        assert sum(map(len, leading)) == 64
        assert frozenset.union(*leading) == frozenset(range(64))
    assert [t.flips for t in design("flip-2", 3).tables] == [1, 1]
