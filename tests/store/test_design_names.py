"""Designs by their names, and the tables that a manifest has."""

import numpy as np
import pytest
from speeds import SOME_WIDTHS

import fpstore
from fpstore.design.families import Design, design
from fpstore.errors import CorruptStoreError, InputError


def tables_of(name, radius, width=64):
    return [table.to_json() for table in design(name, radius, width).tables]


COLUMNS = tables_of("columns-4", 8)


@pytest.mark.parametrize(
    "tables",
    [
        COLUMNS[:3] + tables_of("flip-4", 8)[:1],  # of both kinds
        [*COLUMNS[:3], {**COLUMNS[3], "flips": 3}],
        [*COLUMNS[:3], {**COLUMNS[3], "permutation": "xy"}],
        [*COLUMNS[:3], {**COLUMNS[3], "prefix_bits": 7}],
        [*COLUMNS[:3], {**COLUMNS[3], "prefix_bits": 20}],
        [*COLUMNS[:3], {**COLUMNS[3], "kind": "rows"}],
        [{**tables_of("columns-8", 15, 128)[0], "flips": 1}],
    ],
)
def test_tables_that_cannot_be_probed_are_damage(tables):
    with pytest.raises(CorruptStoreError, match="malformed"):
        Design.from_json({"name": "columns-4", "radius": 8, "tables": tables})


def test_too_many_fingerprints_for_a_column_table_are_refused():
    made = design("columns-4", 8)
    assert made.lookups(2**32 - 1)
    with pytest.raises(InputError, match="columns-4 is to have 4294967296"):
        made.lookups(2**32)


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_one_block_of_columns(tmp_path, width):
    """Above 64 bits its tag was the bucket."""
    rows = np.random.default_rng(width).integers(0, 256, (500, width // 8), np.uint8)
    with fpstore.build(tmp_path / "s", rows, width=width, radius=3, design="columns-1-12") as store:
        assert store.design.ring[0][1].tag == frozenset(range(12, 28))
        matches, expected = store.probe_many(rows, 3), store.scan(rows, 3)
        assert matches.rows.tolist() == expected.rows.tolist()
        assert matches.fingerprints.tolist() == expected.fingerprints.tolist()


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
