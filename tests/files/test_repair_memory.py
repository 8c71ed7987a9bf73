"""Repair in a budget that holds next to nothing, in many small pieces, with the same result."""

from pathlib import Path

import pytest
from building import listing, tiny  # noqa: F401 - a fixture
from repairing import GENERATION, content, damage_block, make, repaired
from speeds import crossed

import fpstore
from fpstore.format.layout import table_name
from fpstore.format.mapping import IDS_FILE

MEMORY = 64 << 20


@pytest.fixture
def in_pieces(tiny, monkeypatch):  # noqa: F811
    """Cut all work into small pieces."""
    monkeypatch.setattr("fpstore.care.recovered_set.PIECE_ROWS", 5)
    monkeypatch.setattr("fpstore.care.intact_records.FOUND_AT_ONCE", 3)
    monkeypatch.setattr("fpstore.care.recovered_rows.BATCH_ROWS", 30)
    monkeypatch.setattr("fpstore.care.recovered_rows.BATCH_STRINGS", 7)


@pytest.mark.parametrize(("kind", "changes", "whole"), crossed(["string", "row", "integer"], [False, True], [True, False]))
def test_without_the_first_table(tmp_path, in_pieces, kind, changes, whole):
    path = make(tmp_path / "s", kind, changes=changes)
    right = content(path)
    if whole:
        (path / GENERATION / table_name(0)).unlink()
    for block in (0, 3, 4, 9):
        if not whole:
            damage_block(path / GENERATION / table_name(0), block)
        damage_block(path / GENERATION / table_name(1), block + 2)
    report, held = repaired(path, right, memory=MEMORY)
    assert report.complete
    assert held == right
    assert listing(tmp_path) == ["s", "s.repaired"]


@pytest.mark.parametrize("kind", ["string", "row"])
def test_without_ids(tmp_path, in_pieces, kind):
    """Every fingerprint and every id that nothing else has is listed once."""
    path = make(tmp_path / "s", kind)
    right = content(path)
    (path / GENERATION / IDS_FILE).unlink()
    report, held = repaired(path, right, memory=MEMORY)
    rows = [tuple(line.split("\t")) for line in Path(report.lost_file).read_text().splitlines()]
    assert len(rows) == len(set(rows))
    listed = {i for what, _, i in rows if what == "id"}
    assert listed >= {str(i) for _, i in right} - {str(i) for _, i in held}
    assert not listed & {str(i) for _, i in held}
    assert {int(f, 16) for what, f, _ in rows if what in ("fingerprint", "ids")} >= {f for f, _ in right - held}
    assert listing(tmp_path) == ["s", "s.lost.tsv", "s.repaired"]


def test_row_numbers_that_take_more_than_the_budget(tmp_path):
    """A repair went through all numbers up to the highest, to list those that nothing has."""
    fpstore.build(tmp_path / "s", list(range(500)), design="flip-1", radius=0, width=256).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert([7 << 200], [2**62])
        store.merge()
    next((tmp_path / "s").rglob(IDS_FILE)).unlink()
    report = fpstore.repair(tmp_path / "s", memory=MEMORY)
    assert "which ids are lost: not listed, as that takes 8 bytes of memory" in " ".join(report.losses)
