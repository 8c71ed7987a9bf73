"""Repair, verify and statistics of stores of every width: sets whose leading words tie often, and each kind of damage."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import reference
from repairing import GENERATION, content, damage_block, flip
from speeds import SOME_WIDTHS

import fpstore
from fpstore import _kernel
from fpstore.care.stats import distribution
from fpstore.format.dictionary import NUMBERS_FILE
from fpstore.format.id_map import IDS_FILE
from fpstore.format.layout import table_name
from fpstore.format.log import LOG_FILE
from fpstore.format.manifest import MANIFEST_FILE
from fpstore.format.packed_table import PackedTable
from fpstore.format.strings import STRINGS_FILE
from fpstore.store import snapshot_of

COUNT = 600
P1 = 0x9E3779B185EBCA87  # of XXH64
WIDTHS = (32, 64, 128, 256)
KINDS = {32: "integer", 64: "row", 128: "string", 256: "integer"}


def numbers_of(bits):
    """Return distinct numbers; of the wide ones, many share their leading words, and some all but the last."""
    rng = np.random.default_rng(bits)
    digits = rng.integers(0, 256, (COUNT, bits // 8), np.uint8)
    if bits > 64:
        digits[: COUNT // 2, :8] = rng.integers(0, 2, (COUNT // 2, 1), np.uint8) * 255
        digits[: COUNT // 4, : bits // 8 - 8] = 255
    return list(dict.fromkeys(int.from_bytes(row.tobytes(), "big") for row in digits))


def ids_of(kind, start, count):
    if kind == "row":
        return None
    return [f"d{i}" for i in range(start, start + count)] if kind == "string" else list(range(start, start + count))


@pytest.fixture(scope="module", params=SOME_WIDTHS)
def good(request, tmp_path_factory):
    """Return a store with changes, its width, and what it holds."""
    bits, path = request.param, tmp_path_factory.mktemp("good") / "s"
    numbers, kind = numbers_of(bits), KINDS[request.param]
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


@pytest.mark.parametrize("every", [1, 2, 7])
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


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_one_table_is_enough(store, kept):
    path, bits, right = store
    for table in {0, 1, 2} - {kept}:
        (path / GENERATION / table_name(table)).unlink()
    report, held, _ = repaired(path, bits, right)
    assert (report.complete, held) == (True, right)


@pytest.mark.parametrize("table", [0, 1, 2])
def test_damaged_headers(store, table):
    """The header of a table is made again from the manifest and the lengths of its codes."""
    path, bits, right = store
    for place in (36, 130):
        flip(path / GENERATION / table_name(table), place)
    for other in {0, 1, 2} - {table}:
        (path / GENERATION / table_name(other)).unlink()
    report, held, _ = repaired(path, bits, right)
    assert (report.complete, held) == (True, right)
    assert "with a new header" in " ".join(report.actions)


@pytest.mark.parametrize("lost", [(), (0,), (1, 2)], ids=["all tables", "no first table", "first table alone"])
def test_a_lost_manifest(store, lost):
    """The width follows from the headers of the tables."""
    path, bits, right = store
    (path / MANIFEST_FILE).unlink()
    for table in lost:
        (path / GENERATION / table_name(table)).unlink()
    report, held, _ = repaired(path, bits, right)
    assert held == right
    with fpstore.open(report.output) as new:
        assert len(new.design.tables[0].permutation) == bits
        assert lost == (1, 2) or (new.radius, len(new.design.tables)) == (2, 3)


@pytest.mark.parametrize("left", [0.3, 0.9])
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
    """Its header is damaged, so that nothing but its records says where it comes from."""
    path, bits, _ = store
    other = 128 if bits != 128 else 32
    with fpstore.build(tmp_path / "other", [1, 2, 3], ids_of(KINDS[bits], 0, 3), width=other, radius=2):
        pass
    with fpstore.open(tmp_path / "other", "r+") as changed:
        changed.insert([5, 6], ids_of(KINDS[bits], 7, 2))
    (path / MANIFEST_FILE).unlink()
    shutil.copyfile(tmp_path / "other" / GENERATION / LOG_FILE, path / GENERATION / LOG_FILE)
    report = fpstore.repair(path)
    assert "another store" in " ".join(report.faults)
    flip(path / GENERATION / LOG_FILE, 60)
    report = fpstore.repair(path, tmp_path / "again")
    assert "of another width" in " ".join(report.faults)
    assert content(tmp_path / "again")


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


def test_row_numbers_that_are_mostly_unused(tmp_path):
    """A repair went through all numbers up to the highest, to list those that nothing has."""
    with fpstore.build(tmp_path / "s", list(range(500)), design="flip-1", radius=0, width=256) as built:
        assert built.width == 256
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert([7 << 200], np.array([2**62], np.uint64))
        store.merge()
    (generation,) = (tmp_path / "s").glob("gen-*")
    (generation / IDS_FILE).unlink()
    report = fpstore.repair(tmp_path / "s")
    assert "which ids are lost: not listed" in " ".join(report.losses)


@pytest.mark.parametrize("design", ["scan", "auto"])
@pytest.mark.parametrize("bits", [128, 256])
def test_a_radius_above_64(tmp_path, bits, design):
    """The radius of a build was at most 64 at every width; here it is kept by a repair as well."""
    numbers, radius = numbers_of(bits)[-100:], bits * 2 // 3
    fpstore.build(tmp_path / "s", numbers, width=bits, radius=radius, design=design).close()
    (tmp_path / "s" / GENERATION / IDS_FILE).unlink()
    with fpstore.open(fpstore.repair(tmp_path / "s").output) as store:
        assert (store.radius, store.width) == (radius, bits)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_a_merge_that_chooses_a_design_keeps_the_width(tmp_path, bits):
    """It made tables for 64 bits: by name, and where `auto` chose again because the set had grown."""
    numbers = [number >> 8 << 8 for number in numbers_of(bits)]
    fpstore.build(tmp_path / "s", numbers[:10], width=bits, radius=2).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        for step, design in ((200, None), (300, "flip-2"), (400, "blocks-3-1"), (500, "auto")):
            store.insert(numbers[step - 200 : step])
            store.merge(design=design)
            assert (store.width, store.design.width.bits) == (bits, bits)
            assert design in (None, "auto", store.design.name)
            assert store.verify().ok
            assert all(number in store for number in numbers[:step])


def test_a_key_behind_the_leading_word_is_damaged(tmp_path):
    """A look-up trusted the words behind the leading word of a key, and missed what the next block has."""
    numbers = [(1 << 255) + i for i in range(0, 2000, 2)]
    path = tmp_path / "s"
    fpstore.build(path, numbers, width=256, radius=0, design="flip-1", block_bytes=128).close()
    kernel = PackedTable(path / GENERATION / table_name(0)).kernel
    blocks = kernel.block_count
    with fpstore.open(path) as store:
        place = kernel.keys_offset + 8 * blocks + 24 * (blocks // 2) + 16  # the last word of a key in the middle
        with (path / GENERATION / table_name(0)).open("r+b") as file:
            file.seek(place)
            file.write((2**64 - 1).to_bytes(8, "little"))
        missed = []
        for number in numbers:
            try:
                missed += [] if number in store else [number]
            except fpstore.CorruptStoreError:
                continue
        assert missed == []
        assert not store.verify().ok


def test_bits_behind_a_narrow_fingerprint_are_refused(tmp_path):
    """A block under a right checksum whose first entry had more than 32 bits: its distances were wrong."""
    path = tmp_path / "s"
    fpstore.build(path, numbers_of(32), width=32, radius=2, design="flip-1", block_bytes=128).close()
    file = path / GENERATION / table_name(0)
    kernel = PackedTable(file).kernel
    seed = _kernel.block_seed(
        np.frombuffer(kernel.permutation, np.uint8), np.frombuffer(kernel.code_bits, np.uint8), kernel.set_digest
    )
    data = bytearray(file.read_bytes())
    data[4096 + 8] |= 1
    checksum = reference.block_sum(data[4096 : 4096 + 128], (seed + kernel.key_of(0) * P1) % 2**64)
    data[4096 : 4096 + 4] = checksum.to_bytes(4, "little")
    file.write_bytes(data)
    with fpstore.open(path) as store:
        assert "bit streams do not fit" in store.verify().faults[0]["message"]
        with pytest.raises(fpstore.CorruptStoreError, match="block 0"):
            store.scan([0], 32)


def test_statistics(good):
    """The tails and the words behind them fill the blocks, whatever the width."""
    path, bits, right = good
    with fpstore.open(path) as store:
        stats = store.stats()
    table = distribution(PackedTable(path / GENERATION / table_name(0)))
    assert stats["fingerprints"] == len({number for number, _ in right})
    assert sum(table["h"].values()) == COUNT - 60 - 1
    assert max(table["h"]) < {32: 32, 64: 64}.get(bits, 65)
    assert (64 in table["h"]) == (bits > 64)
    assert 0.5 < table["fill"] <= 1
    assert 0 < stats["limit_bits_per_fingerprint"] < bits
