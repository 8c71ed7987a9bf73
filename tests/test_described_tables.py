"""Designs that are described table by table."""

import pytest

from fpstore.design.families import Design, design
from fpstore.errors import CorruptStoreError, InputError


def described(name, radius, width=64, **changes):
    tables = [table.to_json() for table in design(name, radius, width).tables]
    for place, change in changes.items():
        tables[int(place[1:])].update(change)
    return tables


def test_described_tables_of_every_kind_are_those_of_the_name():
    """Kind and bits of the tag were dropped, and the tables became blocks."""
    for name, radius, width in (("manku-4", 3, 64), ("columns-4", 8, 64), ("columns-16", 31, 256), ("dealt-6-10", 10, 128)):
        assert design(described(name, radius, width), radius, width).tables == design(name, radius, width).tables


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            described("columns-4", 8)[:3] + described("flip-4", 8)[:1],
            "of blocks, or of copies, or rows and then references",
        ),
        (described("columns-4", 8, t3={"flips": 3}), "flips of 4 column tables at radius 8 are 1, 1, 1, 2, got 1, 1, 1, 3"),
        (described("columns-4", 8, t1={"tags": 16}), "with permutation, prefix_bits, flips, kind, tag_bits"),
        (described("manku-4", 3, t1={"permutation": "xy"}), "a table description is a dict"),
    ],
)
def test_described_tables_that_cannot_be_probed_are_refused(tables, message):
    """Blocks and columns together were built, and could not be probed."""
    radius = 3 if "xy" in str(tables) else 8
    with pytest.raises(InputError, match=message):
        design(tables, radius)


def test_a_manifest_with_tables_of_both_kinds_is_damaged():
    data = {"name": "custom", "radius": 8, "tables": described("columns-4", 8)[:3] + described("flip-4", 8)[:1]}
    with pytest.raises(CorruptStoreError, match="malformed"):
        Design.from_json(data)


def test_more_fingerprints_than_a_column_table_has_are_refused_early():
    made = design("columns-4", 8)
    assert made.lookups(2**32 - 1)
    with pytest.raises(InputError, match="columns-4 is to have 4294967296"):
        made.lookups(2**32)
