"""Repair of stores of every width: sets whose leading words tie often, and each kind of damage."""

import os
import shutil
from pathlib import Path

import pytest
from repairing import GENERATION, content, damage_block, flip
from speeds import SOME_WIDTHS, slow
from wide import alike_numbers

import fpstore
from fpstore.format.dictionary import NUMBERS_FILE
from fpstore.format.layout import table_name
from fpstore.format.log import LOG_FILE
from fpstore.format.manifest import MANIFEST_FILE
from fpstore.format.mapping import IDS_FILE
from fpstore.format.strings import STRINGS_FILE
from fpstore.store import snapshot_of

COUNT = 600
KINDS = {32: "integer", 64: "row", 128: "string", 256: "integer"}


def ids_of(kind, start, count):
    if kind == "row":
        return None
    return [f"d{i}" for i in range(start, start + count)] if kind == "string" else list(range(start, start + count))


@pytest.fixture(scope="module", params=SOME_WIDTHS)
def good(request, tmp_path_factory):
    """Return a store with changes, its width, and what it holds."""
    bits, path = request.param, tmp_path_factory.mktemp("good") / "s"
    numbers, kind = alike_numbers(bits), KINDS[request.param]
    first, more = numbers[:-60], numbers[-60:]
    options = {"radius": 2, "design": "blocks-3-1", "block_bytes": 128, "width": bits}
    fpstore.build(path, first, ids_of(kind, 0, len(first)), **options).close()
    with fpstore.open(path, "r+") as store:
        for start in range(0, 60, 6):
            store.insert(more[start : start + 6], ids_of(kind, COUNT + start, 6))
        store.delete(fingerprints=first[:5])
        store.insert(first[3:8], ids_of(kind, 10, 5))
    return path, bits, content(path)


@pytest.fixture
def store(good, tmp_path):
    path, bits, right = good
    return shutil.copytree(path, tmp_path / "s"), bits, right


def repaired(path, bits, right):
    """Repair; return the report and what is held, which the list of losses must account for."""
    report = fpstore.repair(path)
    assert not report.sound
    held = content(report.output)
    with fpstore.open(report.output) as new:
        assert (new.width, len(new)) == (bits, report.fingerprints)
        one = min(held)[0]
        assert (new.probe(one ^ 1, 1)[0].distance, one in new) == (0 if (one ^ 1) in new else 1, True)
    lines = Path(report.lost_file).read_text().splitlines() if report.lost_file else []
    named = [line.split("\t")[1] for line in lines]
    assert {len(text) for text in named if text} <= {bits // 4}
    if report.complete:
        assert (held, lines) == (right, [])
    missing = {fingerprint for fingerprint, _ in right - held}
    return report, held, missing - {int(text, 16) for text in named if text}


def damage_blocks(path, table, part=1):
    """Damage each block whose number is a multiple; return how many."""
    file = path / GENERATION / table_name(table)
    with fpstore.open(path) as opened:
        count = snapshot_of(opened).generation.tables[table].kernel.block_count
    for block in range(0, count, part):
        damage_block(file, block)
    return len(range(0, count, part))


@pytest.mark.parametrize("every", [1, slow(2), 7])
def test_blocks_of_the_first_table_come_from_the_others(store, every):
    path, bits, right = store
    assert damage_blocks(path, 0, every) >= 3
    report, held, unnamed = repaired(path, bits, right)
    assert (report.complete, held, unnamed) == (True, right, set())
    assert "with the help of other tables" in " ".join(report.actions)


def test_blocks_of_all_tables(store):
    """What is not in the blocks that are left of any table is lost, and no more."""
    path, bits, right = store
    for table in range(3):
        damage_blocks(path, table, 2)
    report, held, unnamed = repaired(path, bits, right)
    assert not report.complete
    assert held < right
    (told,) = (loss for loss in report.losses if "which are not known" in loss)
    assert len(unnamed) <= int(told.split()[0])


@pytest.mark.parametrize("kept", [slow(0), slow(1), 2])
def test_one_table_is_enough(store, kept):
    path, bits, right = store
    for table in {0, 1, 2} - {kept}:
        (path / GENERATION / table_name(table)).unlink()
    report, held, _ = repaired(path, bits, right)
    assert (report.complete, held) == (True, right)


def test_damaged_headers(store):
    """The header of a table is made again from the manifest and the lengths of its codes."""
    path, bits, right = store
    for place in (36, 130):
        flip(path / GENERATION / table_name(1), place)
    for other in (0, 2):
        (path / GENERATION / table_name(other)).unlink()
    report, held, _ = repaired(path, bits, right)
    assert (report.complete, held) == (True, right)
    assert "with a new header" in " ".join(report.actions)


def test_a_lost_manifest(store):
    """The width follows from the headers of the tables."""
    path, bits, right = store
    (path / MANIFEST_FILE).unlink()
    report, held, _ = repaired(path, bits, right)
    assert held == right
    with fpstore.open(report.output) as new:
        assert (len(new.design.tables[0].permutation), new.radius, len(new.design.tables)) == (bits, 2, 3)


@pytest.mark.parametrize("left", [slow(0.3), 0.9])
def test_a_log_cut_short(store, left):
    path, bits, right = store
    log = path / GENERATION / LOG_FILE
    end = len(log.read_bytes().rstrip(b"\0"))
    os.truncate(log, 4096 + int((end - 4096) * left))
    report, held, _ = repaired(path, bits, right)
    assert "log records after" in " ".join(report.losses)
    assert len(held & right) > 0.8 * len(right)


def test_a_record_of_the_log_is_lost(store):
    path, bits, right = store
    flip(path / GENERATION / LOG_FILE, 4096 + 120)
    report, held, _ = repaired(path, bits, right)
    assert any(loss.startswith("log record 1:") for loss in report.losses)
    assert len(right - held) == 6


def test_the_log_of_a_store_of_another_width_is_not_taken(store, tmp_path):
    """It has as many fingerprints, and no manifest says where it comes from."""
    path, bits, right = store
    other = 128 if bits != 128 else 32
    fpstore.build(tmp_path / "other", range(len(alike_numbers(bits)) - 60), width=other, radius=2).close()
    with fpstore.open(tmp_path / "other", "r+") as changed:
        changed.insert([1 << 30])
    (path / MANIFEST_FILE).unlink()
    shutil.copyfile(tmp_path / "other" / GENERATION / LOG_FILE, path / GENERATION / LOG_FILE)
    report = fpstore.repair(path)
    assert "another store" in " ".join(report.faults)
    assert {f for f, _ in content(report.output)} >= {f for f, _ in right} & set(alike_numbers(bits)[:-60])


def test_id_records_lost(store):
    """Every id of a lost record is lost, its fingerprints are named, and the others keep theirs."""
    path, bits, right = store
    file = path / GENERATION / IDS_FILE
    data = bytearray(file.read_bytes())
    leaves = [page for page in range(2, len(data) // 4096) if data[page * 4096 + 10] == 2]
    assert leaves
    page = leaves[0] * 4096
    upper = int.from_bytes(data[page + 14 : page + 16], "little")
    data[page + upper : page + upper + 700] = bytes(700)  # the nodes that were written last
    file.write_bytes(data)
    report, held, unnamed = repaired(path, bits, right)
    assert not report.complete
    assert held < right
    assert unnamed == set()
    assert len(held) > 0.3 * len(right)


def test_no_id_record_is_left(store):
    path, bits, right = store
    (path / GENERATION / IDS_FILE).unlink()
    _, held, unnamed = repaired(path, bits, right)
    assert unnamed == set()
    assert 0 < len(held) < 100  # what the log has
    assert held < right


@pytest.mark.parametrize("good", [128], indirect=True)
@pytest.mark.parametrize("name", [STRINGS_FILE, NUMBERS_FILE])
def test_strings_lost(store, name):
    path, bits, right = store
    (path / GENERATION / name).unlink()
    report, held, unnamed = repaired(path, bits, right)
    assert unnamed == set()
    assert report.complete == (name == NUMBERS_FILE)
    assert held <= right


@pytest.mark.parametrize("design", [slow("scan"), "auto"])
@pytest.mark.parametrize("bits", [128, 256])
def test_a_radius_above_64(tmp_path, bits, design):
    """The radius of a build was at most 64 at every width; here it is kept by a repair as well."""
    numbers, radius = alike_numbers(bits)[-100:], bits * 2 // 3
    fpstore.build(tmp_path / "s", numbers, width=bits, radius=radius, design=design).close()
    (tmp_path / "s" / GENERATION / IDS_FILE).unlink()
    with fpstore.open(fpstore.repair(tmp_path / "s").output) as store:
        assert (store.radius, store.width) == (radius, bits)
