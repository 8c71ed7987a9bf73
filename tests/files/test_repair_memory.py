"""Repair in a budget that holds next to nothing: all goes through files, in many small pieces, with the same result."""

import importlib
from pathlib import Path

import pytest
from building import listing, tiny  # noqa: F401 - a fixture
from repairing import content, damage_block, make, repaired
from speeds import crossed

import fpstore
from fpstore.care import word_array as wordarray
from fpstore.care.word_array import WordArray
from fpstore.format.id_map import IDS_FILE
from fpstore.format.layout import table_name

GENERATION = "gen-00000001"
MEMORY = 64 << 20
CONTENT = importlib.import_module("fpstore.care.found_content")
STEP = 150  # numbers that are looked at together


@pytest.fixture
def spilling(tiny, monkeypatch):  # noqa: F811
    """Put every word array into a file, and cut all work into small pieces."""
    began = WordArray.__init__
    monkeypatch.setattr(WordArray, "__init__", lambda self, folder, room: began(self, folder, 0))
    monkeypatch.setattr(wordarray, "MARKED", 8)
    monkeypatch.setattr("fpstore.care.found_set.PIECE_ROWS", 5)
    monkeypatch.setattr(CONTENT, "PIECE_NUMBERS", 7)
    monkeypatch.setattr(CONTENT, "NUMBERS_SHARE", MEMORY // STEP)
    monkeypatch.setattr(CONTENT, "BATCH_ROWS", 30)
    monkeypatch.setattr(CONTENT, "BATCH_BYTES", 100)
    monkeypatch.setattr("fpstore.care.lost_file.HELD_ROWS", 3)


@pytest.mark.parametrize(("kind", "changes", "whole"), crossed(["string", "row", "integer"], [False, True], [True, False]))
def test_without_the_first_table(tmp_path, spilling, kind, changes, whole):
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
@pytest.mark.parametrize("changes", [False, True])
def test_without_ids(tmp_path, spilling, kind, changes):
    """Every fingerprint and every id that nothing else has is listed once."""
    path = make(tmp_path / "s", kind, changes=changes)
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


def test_with_some_of_the_fingerprints_of_damaged_blocks(tmp_path, spilling):
    path = make(tmp_path / "s", "string", changes=False, design="flip-2", radius=2)
    right = content(path)
    for table in range(2):
        for block in (2, 3, 4, 7, 11):
            damage_block(path / GENERATION / table_name(table), block)
    report, held = repaired(path, right, memory=MEMORY)
    assert not report.complete
    rows = [line.split("\t") for line in Path(report.lost_file).read_text().splitlines()]
    assert {i for what, _, i in rows if what == "id"} == {i for _, i in right - held}


def test_a_list_that_cannot_be_written_leaves_nothing(tmp_path, spilling):
    """The list is written while the new store is, so there is no new store without it."""
    path = make(tmp_path / "s", "string")
    (path / GENERATION / IDS_FILE).unlink()
    with pytest.raises(fpstore.StorageError, match="no such file or folder"):
        fpstore.repair(path, lost=tmp_path / "nowhere" / "lost.tsv")
    assert listing(tmp_path) == ["s"]
