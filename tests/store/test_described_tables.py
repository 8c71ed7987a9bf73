"""Designs that are described table by table."""

import numpy as np
import pytest
from speeds import SOME_WIDTHS

import fpstore
from fpstore.design.families import Design, design
from fpstore.errors import CorruptStoreError, InputError


def described(name, radius, width=64, **changes):
    tables = [table.to_json() for table in design(name, radius, width).tables]
    for place, change in changes.items():
        tables[int(place[1:])].update(change)
    return tables


def test_described_tables_of_every_kind_are_those_of_the_name():
    """Kind and bits of the tag were dropped, and the tables became blocks."""
    for name, radius, width in (
        ("manku-4", 3, 64),
        ("columns-4", 8, 64),
        ("columns-16", 31, 256),
        ("dealt-6-10", 10, 128),
    ):
        assert (
            design(described(name, radius, width), radius, width).tables
            == design(name, radius, width).tables
        )


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            described("columns-4", 8)[:3] + described("flip-4", 8)[:1],
            "of blocks, or of copies, or rows and then references",
        ),
        (
            described("columns-4", 8, t3={"flips": 3}),
            "flips of 4 column tables at radius 8 are 1, 1, 1, 2, got 1, 1, 1, 3",
        ),
        (
            described("columns-4", 8, t1={"tags": 16}),
            "permutation .source bits. and prefix_bits, flips, kind, tag_bits",
        ),
        (described("manku-4", 3, t1={"permutation": "xy"}), "a table description is a dict"),
    ],
)
def test_described_tables_that_cannot_be_probed_are_refused(tables, message):
    """Blocks and columns together were built, and could not be probed."""
    radius = 3 if "xy" in str(tables) else 8
    with pytest.raises(InputError, match=message):
        design(tables, radius)


def test_a_manifest_with_tables_of_both_kinds_is_damaged():
    data = {
        "name": "custom",
        "radius": 8,
        "tables": described("columns-4", 8)[:3] + described("flip-4", 8)[:1],
    }
    with pytest.raises(CorruptStoreError, match="malformed"):
        Design.from_json(data)


def test_more_fingerprints_than_a_column_table_has_are_refused_early():
    made = design("columns-4", 8)
    assert made.lookups(2**32 - 1)
    with pytest.raises(InputError, match="columns-4 is to have 4294967296"):
        made.lookups(2**32)


def wide(**changes):
    rows = {"permutation": list(range(128)), "prefix_bits": 16, "kind": "rows", **changes}
    return [
        rows,
        {
            "permutation": list(range(128)),
            "prefix_bits": 12,
            "flips": 1,
            "kind": "references",
            "tag_bits": 16,
        },
    ]


def one(width, **changes):
    return [
        {
            "permutation": list(range(width)),
            "prefix_bits": 12,
            "flips": 1,
            "kind": "copies",
            **changes,
        }
    ]


@pytest.mark.parametrize(
    ("width", "tables", "message"),
    [
        (128, wide(flips=1), "a table of rows has the identity permutation, 16 prefix_bits"),
        (128, wide(prefix_bits=8), "a table of rows has"),
        (128, wide(tag_bits=5), "a table of rows has"),
        (
            64,
            one(64, prefix_bits=7),
            "has 8 to 19 prefix_bits, and with tag_bits at most 64, got 7 and 0",
        ),
        (64, one(64, prefix_bits=20), "got 20 and 0"),
        (32, one(32, prefix_bits=19, tag_bits=16), "with tag_bits at most 32, got 19 and 16"),
        (128, one(128), "column tables of 128 bits are references and rows, got copies"),
        (64, one(64, kind="rows"), "column tables of 64 bits are copies, got rows"),
        (64, one(64, prefix_bits=float("inf")), "a table description is a dict"),
        (64, one(64, prefix_bits=12.5), "a table description is a dict"),
        (64, one(64, flips=True), "a table description is a dict"),
        (64, one(64, flips="1"), "a table description is a dict"),
    ],
)
def test_tables_of_which_there_is_no_file_are_refused(tmp_path, width, tables, message):
    """A build made them, or ended with an error of the kernel; a repair lost what they had."""
    with pytest.raises(InputError, match=message):
        fpstore.build(tmp_path / "s", [1, 2], width=width, radius=1, design=tables)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_one_block_of_columns(tmp_path, width):
    """Above 64 bits its tag was the bucket."""
    rows = np.random.default_rng(width).integers(0, 256, (500, width // 8), np.uint8)
    with fpstore.build(tmp_path / "s", rows, width=width, radius=3, design="columns-1-12") as store:
        assert store.design.ring[0][1].tag == frozenset(range(12, 28))
        found, expected = store.probe_many(rows, 3), store.scan(rows, 3)
        assert found.rows.tolist() == expected.rows.tolist()
        assert found.fingerprints.tolist() == expected.fingerprints.tolist()


def test_numbers_in_names_are_written_in_one_way():
    for name in ("columns-\u0663-8", "columns-04-08", "flip-02"):
        with pytest.raises(InputError, match="unknown design"):
            design(name, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "radius", "width"), [("striped-31-2", 64, 256), ("blocks-9-5", 16, 64)]
)
def test_a_proof_ends(name, radius, width):
    """Which flips a radius needs was looked for without an end.

    What is left is exact all the same.
    """
    made = design(name, radius, width)
    assert len(made.lookups(1 << 20, radius)) <= len(made.tables)


def test_tables_that_take_too_long_to_prove_are_refused():
    rng = np.random.default_rng(1)
    orders = [list(range(64)), *(rng.permutation(64).tolist() for _ in range(39))]
    with pytest.raises(InputError, match="takes too long to prove"):
        design([{"permutation": order, "prefix_bits": 16, "flips": 2} for order in orders], 10)
