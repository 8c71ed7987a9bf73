"""Repair: what is intact of a damaged store is in the new one, and what is not is in the report."""

import gc
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
from building import listing, tiny  # noqa: F401 - a fixture
from damage import records_of
from repairing import (
    COUNT,
    GENERATION,
    current,
    damage_block,
    damaged,
    files_of,
    flip,
    lost_rows,
    make,
    repaired,
)
from small_stores import content
from speeds import crossed, slow

import fpstore
from fpstore import _kernel
from fpstore.care import intact
from fpstore.format.dictionary import NUMBERS_FILE
from fpstore.format.layout import table_name
from fpstore.format.log import LOG_FILE
from fpstore.format.manifest import MANIFEST_FILE
from fpstore.format.mapping import IDS_FILE
from fpstore.format.strings import LAYOUT_KEYS, STRINGS_FILE

# --- Nothing wrong --------------------------------------------------------------------------------


def id_record(generation, block):
    return generation.ids.file.get(generation.identity.key_of(block), block)


def test_a_sound_store_is_left_alone(changed, tmp_path):
    path = damaged(changed[0], tmp_path)
    for leftover in ("gen-00000009", "gen-00000009.tmp"):
        (path / leftover).mkdir()
        (path / leftover / "table-000.fpt").write_bytes(b"of a merge that died")
    for options in ({}, {"in_place": True}):
        report = fpstore.repair(path, **options)
        assert report.sound
        assert report.complete
        assert listing(tmp_path) == ["s"]


@pytest.mark.full
@pytest.mark.parametrize("name", [slow(IDS_FILE), LOG_FILE])
def test_repair_closes_files_at_its_end_without_the_collector(changed, tmp_path, name):
    path = damaged(changed[0], tmp_path)
    file = path / current(path) / name
    os.truncate(file, file.stat().st_size - 1 if name == IDS_FILE else 100)
    gc.collect()
    before = sorted(Path("/proc/self/fd").iterdir())
    gc.disable()
    try:
        assert not fpstore.repair(path).sound
        assert sorted(Path("/proc/self/fd").iterdir()) == before
    finally:
        gc.enable()


# --- One file -------------------------------------------------------------------------------------


PARTS = [
    "manifest.json",
    "ids.mdb",
    "strings.mdb",
    "hashes.fpt",
    "numbers.mdb",
    "log",
    "table-000.fpt",
    "table-001.fpt",
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("part", "left"),
    crossed(
        PARTS, ["nothing", "no byte", "4095 bytes", "5000 bytes", "half", "all but a byte"], share=8
    ),
)
def test_a_file_deleted_or_cut_short(changed, tmp_path, part, left):
    path, right = changed
    name = part if part == "manifest.json" else f"{current(path)}/{part}"
    if not (path / name).exists():
        return  # row numbers need no dictionary
    size = (path / name).stat().st_size
    copy = damaged(path, tmp_path)
    if left == "nothing":
        (copy / name).unlink()
    else:
        length = {
            "no byte": 0,
            "4095 bytes": 4095,
            "5000 bytes": 5000,
            "half": size // 2,
            "all but a byte": size - 1,
        }[left]
        # a manifest does not need the line break that ends it
        os.truncate(copy / name, min(length, size - 2))
    report, held = repaired(copy, right)
    assert not report.sound
    if part.endswith(".fpt") or part == NUMBERS_FILE:  # what they say can be made again
        assert report.complete
        assert held == right
        with fpstore.open(path) as old, fpstore.open(report.output) as new:
            assert (new.design, new.radius, new.fingerprinter) == (
                old.design,
                old.radius,
                old.fingerprinter,
            )
            assert new.stats()["block_bytes"] == 128
            assert new.stats()["id_kind"] == old.stats()["id_kind"]


def sections(file):
    """Return places in each part of a file.

    Heads of pages and sections, and some that are not zero.
    """
    data = file.read_bytes()
    places = [i for i in range(len(data)) if data[i]]
    return sorted(
        {
            *random.Random(5).sample(places, 3),
            *(p for p in (12, 44, 200, 4096 + 12, 8192 + 12) if p < len(data)),
        }
    )


@pytest.mark.full
@pytest.mark.parametrize("start", [0, *map(slow, range(1, 6))])
def test_flips_in_each_file(changed, tmp_path, start):
    path, right = changed
    noticed = 0
    for number, name in enumerate(files_of(path)):
        for at in sections(path / name)[(start + number) % 6 :: 6]:
            copy = damaged(path, tmp_path)
            flip(copy / name, at, at % 8)
            report, held = repaired(copy, right)
            noticed += not report.sound
            if name.endswith(".fpt"):
                assert held == right
                assert not report.sound
    assert noticed > 4


# --- Tables ---------------------------------------------------------------------------------------


def test_tables_that_are_all_damaged_complete_each_other(changed, tmp_path):
    path, right = changed
    copy = damaged(path, tmp_path)
    for number in range(3):
        for block in (2 + number, 9 + 5 * number):
            damage_block(copy / current(path) / table_name(number), block)
    report, held = repaired(copy, right)
    assert report.complete
    assert held == right
    assert "with the help of other tables" in " ".join(report.actions)


@pytest.mark.parametrize("left", [slow(0), 1, slow(2)])
def test_one_table_is_enough(changed, tmp_path, left):
    path, right = changed
    copy = damaged(path, tmp_path)
    for number in range(3):
        if number != left:
            (copy / current(path) / table_name(number)).unlink()
    report, held = repaired(copy, right)
    assert report.complete
    assert held == right


@pytest.mark.parametrize(
    ("kind", "blocks"), crossed(["string", "row", "integer"], [[7], [0, 7, 8], [3, 4, 5]])
)
def test_fingerprints_that_no_table_has(tmp_path, kind, blocks):
    """With a single table, its damaged blocks are lost.

    Their ids are known where ids are numbered.
    """
    path = make(tmp_path / "s", kind, changes=False, design="flip-1", radius=1)
    right = content(path)
    with fpstore.open(path) as store:
        table = store.snapshot().generation.tables[0]
        entries = [set(table.kernel.decode(block, block + 1, 0)[0].tolist()) for block in blocks]
    gone = set.union(*entries)
    for block in blocks:
        damage_block(path / GENERATION / table_name(0), block)
    report, held = repaired(path, right)
    assert right - held == {(f, i) for f, i in right if f in gone}
    assert (
        f"{len(gone)} of {COUNT} fingerprints of the tables, which are not known" in report.losses
    )
    rows = lost_rows(report)
    if kind != "integer":
        assert {i for what, _, i in rows if what == "id"} == {str(i) for f, i in right if f in gone}


@pytest.mark.parametrize("at", [8, slow(40), slow(130), 4090])
def test_tables_with_damaged_headers_come_from_others(tmp_path, at):
    path = make(tmp_path / "s", "string", changes=False)
    right = content(path)
    for number in range(2):
        flip(path / GENERATION / table_name(number), at, 2)
    report, held = repaired(path, right)
    assert report.complete
    assert held == right
    flip(path / GENERATION / table_name(2), at, 2)
    report, held = repaired(path, right)
    assert held == set()
    assert f"{COUNT} of {COUNT} fingerprints of the tables, which are not known" in report.losses


def test_a_block_that_is_partly_known(tmp_path):
    """Two tables with damage.

    Of a block of the identity table some fingerprints are known, but not which id is whose.
    """
    path = make(tmp_path / "s", "string", changes=False, design="flip-2", radius=2)
    right = content(path)
    with fpstore.open(path) as store:
        tables = store.snapshot().generation.tables
        block = set(tables[0].kernel.decode(5, 6, 0)[0].tolist())
        spoiled = min(block)
        other = tables[1].kernel
        keys = tables[1].block_keys
        permuted = _kernel.permute(
            np.array([spoiled], np.uint64), np.frombuffer(other.permutation, np.uint8)
        )[0]
        where = int(np.searchsorted(keys, permuted))
    damage_block(path / GENERATION / table_name(0), 5)
    damage_block(path / GENERATION / table_name(1), where)
    report, held = repaired(path, right)
    assert {f for f, _ in right - held} == block
    assert "1 of 700 fingerprints of the tables, which are not known" in report.losses
    rows = lost_rows(report)
    assert {int(f, 16) for what, f, _ in rows if what == "fingerprint"} == block - {spoiled}
    assert {i for what, _, i in rows if what == "id"} == {i for f, i in right if f in block}


# --- Ids and names --------------------------------------------------------------------------------


def test_ids_of_a_damaged_record_are_lost_and_no_others(tmp_path):
    path = make(tmp_path / "s", "string", changes=False)
    right = content(path)
    with fpstore.open(path) as store:
        generation = store.snapshot().generation
        block = set(generation.tables[0].kernel.decode(4, 5, 0)[0].tolist())
        record = id_record(generation, 4)
    at = (path / GENERATION / IDS_FILE).read_bytes().find(record)
    flip(path / GENERATION / IDS_FILE, at + 20)
    report, held = repaired(path, right)
    assert {f for f, _ in right - held} == block
    assert (
        f"{len(block)} fingerprints with no id left, and so not in the new store" in report.losses
    )
    assert any(re.search(r"^recovered \d+ of \d+ id records$", action) for action in report.actions)
    rows = lost_rows(report)
    assert {int(f, 16) for what, f, _ in rows if what == "fingerprint"} == block
    assert {i for what, _, i in rows if what == "id"} == {i for f, i in right if f in block}


def test_rows_deleted_before_their_id_record_broke_are_not_lost(tmp_path):
    path = make(tmp_path / "s", "string", changes=False)
    with fpstore.open(path, "r+") as store:
        generation = store.snapshot().generation
        block = generation.tables[0].kernel.decode(4, 5, 0)[0].tolist()
        record = id_record(generation, 4)
        store.delete(fingerprints=block[:2])
        store.insert(block[1:2], ["new"])
    right = content(path)
    file = path / GENERATION / IDS_FILE
    flip(file, file.read_bytes().find(record) + 20)
    report, held = repaired(path, right)
    assert right - held == {(f, i) for f, i in right if f in block[2:]}
    rows = lost_rows(report)
    assert {int(f, 16) for what, f, _ in rows if what != "id"} == set(block[2:])


def test_a_damaged_record_of_strings(tmp_path):
    """All strings of a damaged record are lost, and those of no other record.

    Each is reported with its fingerprint and its number.
    """
    path = make(tmp_path / "s", "string", changes=False)
    right = content(path)
    file = path / GENERATION / STRINGS_FILE
    with fpstore.open(path) as store:
        strings = store.snapshot().generation.dictionary.strings
        record, per_record = next(strings.records())[1][2], strings.per_record
    assert 1 < per_record < COUNT // 4
    numbers = range(2 * per_record, 3 * per_record)
    data = file.read_bytes()
    for place in re.finditer(re.escape(record), data):  # also on a page that is not in use any more
        flip(file, place.start() + 30)
    report, held = repaired(path, right)
    lost = {name: fingerprint for fingerprint, name in right - held}
    assert set(lost) == {f"document {i}" for i in numbers}
    rows = set(lost_rows(report))
    of = {i: f"{lost[f'document {i}']:016x}" for i in numbers}
    assert rows == {("name", of[i], f"{i}") for i in numbers}
    assert f"{per_record} ids with a lost string" in report.losses


@pytest.mark.parametrize("damaged_copies", [1, 2])
def test_strings_without_what_their_records_share(tmp_path, damaged_copies):
    """One copy of it is enough."""
    path = make(tmp_path / "s", "string", changes=False)
    right = content(path)
    file = path / GENERATION / STRINGS_FILE
    records = records_of(file)
    at = [
        file.read_bytes().find(key + records[key])
        for key in (number.to_bytes(8, "big") for number in LAYOUT_KEYS)
    ]
    assert min(at) > 0
    for place in at[:damaged_copies]:
        flip(file, place + 9)
    report, held = repaired(path, right)
    assert not report.sound
    assert report.complete is (damaged_copies == 1)
    assert held == (right if damaged_copies == 1 else set())
    if damaged_copies == 2:
        rows = lost_rows(report)
        assert sorted(int(i) for what, _, i in rows if what == "name") == list(range(COUNT))


@pytest.mark.parametrize("kind", ["string", slow("integer")])
def test_id_records_are_found_by_their_keys(tmp_path, kind):
    """Without the identity table nothing else says which block a record is for."""
    path = make(tmp_path / "s", kind, changes=False)
    right = content(path)
    folder = path / GENERATION
    with fpstore.open(path) as store:
        generation = store.snapshot().generation
        gone = set(generation.tables[0].kernel.decode(3, 4, 0)[0].tolist())
        record = id_record(generation, 3)
    (folder / table_name(0)).unlink()
    report, held = repaired(path, right)
    assert report.complete
    assert held == right
    flip(folder / IDS_FILE, (folder / IDS_FILE).read_bytes().find(record) + 18)
    report, held = repaired(path, right)
    assert not report.complete
    assert {f for f, _ in right - held} == gone


def test_a_table_under_the_name_of_another(changed, tmp_path):
    """It is told, and the table whose name it has is made anew."""
    path, right = changed
    copy = damaged(path, tmp_path)
    folder = copy / current(copy)
    (folder / table_name(1)).write_bytes((folder / table_name(0)).read_bytes())
    report, held = repaired(copy, right)
    assert report.complete
    assert held == right
    assert any(
        fault["message"].endswith(f"{table_name(1)}: it is table 0") for fault in report.faults
    )


def test_a_table_of_another_store_with_as_many_fingerprints(tmp_path):
    """Its blocks are intact.

    Nothing is taken from it, also where no table of the store's own has what is missing.
    """
    path, other = make(tmp_path / "s", changes=False), tmp_path / "other"
    right = content(path)
    strangers = np.random.default_rng(77).integers(0, 2**64, COUNT, np.uint64)
    fpstore.build(other, strangers, radius=2, design="blocks-3-1", block_bytes=128).close()
    name = table_name(1)
    (path / GENERATION / name).write_bytes((other / GENERATION / name).read_bytes())
    (path / GENERATION / table_name(2)).unlink()
    damage_block(path / GENERATION / table_name(0), 5)
    report, held = repaired(path, right)
    assert held < right
    assert any("a file of another store" in fault["message"] for fault in report.faults)
    assert "fingerprint\t" not in Path(report.lost_file).read_text()  # nothing is known of them
    gone = len(right - held)
    assert f"{gone} of {COUNT} fingerprints of the tables, which are not known" in report.losses


# --- In a budget that holds next to nothing -------------------------------------------------------

MEMORY = 64 << 20


@pytest.fixture
def in_pieces(tiny, set_limits):  # noqa: F811
    """Cut all work into small pieces."""
    set_limits(repair_piece_rows=5, repair_records=3, repair_batch_rows=30, repair_strings=7)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "changes", "whole"),
    crossed(["string", "row", "integer"], [False, True], [True, False], share=6),
)
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


@pytest.mark.parametrize("kind", ["string", slow("row")])
def test_without_ids(tmp_path, in_pieces, kind):
    """Every fingerprint and every id that nothing else has is listed once."""
    path = make(tmp_path / "s", kind)
    right = content(path)
    (path / GENERATION / IDS_FILE).unlink()
    report, held = repaired(path, right, memory=MEMORY)
    rows = lost_rows(report)
    assert len(rows) == len(set(rows))
    listed = {i for what, _, i in rows if what == "id"}
    assert listed >= {str(i) for _, i in right} - {str(i) for _, i in held}
    assert not listed & {str(i) for _, i in held}
    assert {int(f, 16) for what, f, _ in rows if what in ("fingerprint", "ids")} >= {
        f for f, _ in right - held
    }
    assert listing(tmp_path) == ["s", "s.lost.tsv", "s.repaired"]


def test_row_numbers_that_take_more_than_the_budget(tmp_path):
    """A repair went through all numbers up to the highest, to list those that nothing has."""
    fpstore.build(tmp_path / "s", list(range(500)), design="flip-1", radius=0, width=256).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert([7 << 200], [2**62])
        store.merge()
    next((tmp_path / "s").rglob(IDS_FILE)).unlink()
    report = fpstore.repair(tmp_path / "s", memory=MEMORY)
    assert "which ids are lost: not listed, as that takes 8 bytes of memory" in " ".join(
        report.losses
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [IDS_FILE, STRINGS_FILE])
@pytest.mark.parametrize("with_manifest", [True, False])
def test_a_file_that_is_mostly_a_hole(tmp_path, name, with_manifest):
    """Of 8 TiB in name only, a repair read all, and held a checksum of each page."""
    path = make(tmp_path / "s", "string", changes=False)
    right = content(path)
    os.truncate(path / GENERATION / name, 1 << 43)
    if not with_manifest:
        (path / MANIFEST_FILE).unlink()
    report = fpstore.repair(path)
    assert not report.sound
    assert content(report.output) == right
    if with_manifest:
        assert f"{name}: 8,796,093,022,208 bytes, most of them a hole" in str(report.faults)


def test_a_value_that_is_mostly_a_hole(tmp_path, monkeypatch):
    """A record of any length can be forged where the file has nothing."""
    path = make(tmp_path / "s", "string", changes=False)
    file, calls = path / GENERATION / IDS_FILE, []
    data = file.read_bytes()
    page = next(at for at in range(8192, len(data), 4096) if data[at + 10 : at + 12] == b"\2\0")
    node = page + int.from_bytes(data[page + 16 : page + 18], "little")
    forged = (
        (1 << 30).to_bytes(4, "little")
        + b"\1\0"
        + data[node + 6 : node + 16]
        + (1 << 20).to_bytes(8, "little")
    )
    with file.open("r+b") as opened:
        opened.seek(node)
        opened.write(forged)
        opened.truncate(1 << 35)
    read = intact.read_if_possible
    monkeypatch.setattr(
        intact, "read_if_possible", lambda *where: calls.append(where[3]) or read(*where)
    )
    for _ in range(2):
        assert not fpstore.repair(path, tmp_path / f"new {len(calls)}").complete
        assert max(calls) < 1 << 20
        (path / MANIFEST_FILE).unlink(missing_ok=True)
