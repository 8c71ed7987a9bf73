"""Repair uses a log that fits its store and generation, and keeps every intact record."""

import json
import shutil

import numpy as np
import pytest
from damage import rewrite
from repairing import (
    COUNT,
    FINGERPRINTS,
    GENERATION,
    MORE,
    current,
    damage_block,
    damaged,
    flip,
    ids_of,
    make,
    repaired,
)
from small_stores import content, rows_of
from speeds import crossed, slow

import fpstore
from fpstore.format.layout import table_name
from fpstore.format.log import BOOT, END, HEADER_BYTES, LOG_FILE, LogHeader, LogReader
from fpstore.format.log_writer import LogWriter, set_end
from fpstore.format.manifest import MANIFEST_FILE, read_manifest
from fpstore.format.record import Change, Totals, pack_change

NO_LOG = "the log: all that was inserted or deleted since the last merge, if anything was"


def records_of(path):
    """Return (place, end, change) of each record of the log."""
    manifest, file = read_manifest(path), path / current(path) / LOG_FILE
    log = LogReader(file, LogHeader.from_manifest(manifest))
    results = [(place, r.end, r.change) for place, _, r in log.later_records(HEADER_BYTES)]
    log.close()
    return results


def merged_twice(path):
    """Return a changed store of generation 2, the log of generation 1, and the store's content."""
    make(path, "string")
    old = (path / GENERATION / LOG_FILE).read_bytes()
    with fpstore.open(path, "r+") as store:
        store.merge()
        store.delete(fingerprints=FINGERPRINTS[10:30])
        store.insert(MORE[:20] ^ np.uint64(1), ids_of("string", 5000, 20))
    return old, content(path)


def test_the_log_of_an_earlier_generation_is_not_used(tmp_path):
    path = tmp_path / "s"
    old, right = merged_twice(path)
    with fpstore.open(path) as store:
        base = store.snapshot().generation.record
    (path / current(path) / LOG_FILE).write_bytes(old)
    with pytest.raises(fpstore.CorruptStoreError, match="the log of generation 1"):
        fpstore.open(path)
    report, held = repaired(path, right)
    assert not report.complete
    assert report.losses == [NO_LOG]
    assert any("log of generation 1" in fault["message"] for fault in report.faults)
    assert len(held) == base.ids
    assert not any("applied" in action for action in report.actions)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("with_manifest", [True, False])
def test_the_log_of_another_store_is_not_used(tmp_path, with_manifest):
    path, other = make(tmp_path / "s", "string"), tmp_path / "other"
    right = content(path)
    fpstore.build(other, FINGERPRINTS[:50], ids_of("string", 0, 50), radius=2).close()
    with fpstore.open(other, "r+") as store:
        store.delete(fingerprints=FINGERPRINTS[:40])
        store.insert([5], ["foreign"])
    shutil.copyfile(other / GENERATION / LOG_FILE, path / GENERATION / LOG_FILE)
    if not with_manifest:
        (path / MANIFEST_FILE).unlink()
        with pytest.raises(fpstore.CorruptStoreError, match="nothing can be recovered"):
            fpstore.repair(path)
        return
    report, held = repaired(path, right)
    assert NO_LOG in report.losses
    assert any("the log of another store" in fault["message"] for fault in report.faults)
    assert held == {(int(f), f"document {i}") for i, f in enumerate(FINGERPRINTS)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "number"), crossed(["string", "row", "integer"], [1, 10, 31]))
def test_a_record_in_the_middle_that_is_lost(tmp_path, kind, number):
    """All others are applied, with the right strings."""
    path = make(tmp_path / "s", kind)
    right, records = content(path), records_of(path)
    place, _, change = records[number - 1]
    flip(path / GENERATION / LOG_FILE, place + 60)
    with pytest.raises(fpstore.CorruptStoreError, match=rf"log is damaged at byte {place} "):
        fpstore.open(path)
    report, held = repaired(path, right)
    lost = set(change.fingerprints.tolist())
    assert {f for f, _ in right - held} == lost
    assert held < right
    assert report.losses[0].startswith(
        f"log record {number}: what it inserted is missing, what it deleted is back; "
    )
    assert f"applied {len(records) - 1} log records" in report.actions


def test_several_records_that_are_lost_and_the_last(tmp_path):
    path = make(tmp_path / "s", "string")
    right, records = content(path), records_of(path)
    for number in (3, 4, 7, len(records)):
        flip(path / GENERATION / LOG_FILE, records[number - 1][0] + 41)
    report, held = repaired(path, right)
    lost = {
        f
        for number in (3, 4, 7, len(records))
        for f in records[number - 1][2].fingerprints.tolist()
    }
    assert {f for f, _ in right - held} == lost
    assert report.losses[0].startswith("log records 3 to 4, 7: ")
    assert report.losses[1].startswith(f"log records after {len(records) - 1}: ")


@pytest.mark.parametrize("at", [slow(0), slow(10), 16, *map(slow, (31, 33, 48, 80, 87))])
def test_a_damaged_header_of_the_log_with_an_intact_manifest(changed, tmp_path, at):
    """The manifest says which store and generation it was: the records vouch for themselves."""
    path, right = changed
    copy = damaged(path, tmp_path)
    flip(copy / current(copy) / LOG_FILE, at, 1)
    report, held = repaired(copy, right)
    assert report.complete, report.losses
    assert held == right
    assert any("the header of the log is damaged" in fault["message"] for fault in report.faults)


def test_a_header_of_the_log_that_is_gone(changed, tmp_path):
    path, right = changed
    copy = damaged(path, tmp_path)
    log = copy / current(copy) / LOG_FILE
    log.write_bytes(bytes(HEADER_BYTES) + log.read_bytes()[HEADER_BYTES:])
    report, held = repaired(copy, right)
    assert held == right
    assert report.losses == [
        (
            f"log records after {len(records_of(path))}, if there were any: what they inserted is "
            "missing, what they deleted is back"
        )
    ]


@pytest.mark.parametrize("every", [21, slow(1)])
def test_end_word_that_names_an_earlier_record_is_damage(tmp_path, every):
    """One flipped bit must not let a log end early, where a record ends."""
    fpstore.build(tmp_path / "s", [1, 2, 3], [1, 2, 3], radius=1).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        for i in range(64):
            store.insert([100 + i], [100 + i])
    right = content(tmp_path / "s")
    log = tmp_path / "s" / GENERATION / LOG_FILE
    refused = 0
    for bit in range(0, 63, every):
        flip(log, 8 * END + bit // 8, bit % 8)
        with pytest.raises(fpstore.CorruptStoreError, match="the log is damaged at byte 512"):
            fpstore.open(tmp_path / "s")
        refused += 1
        _, held = repaired(tmp_path / "s", right)
        assert held == right
        flip(log, 8 * END + bit // 8, bit % 8)
    assert refused == len(range(0, 63, every))
    # it says that another generation is current, and the manifest that it is not
    flip(log, 8 * END + 7, 7)
    flip(log, 8 * BOOT, 0)
    assert content(tmp_path / "s") == right


def test_a_log_that_is_cut_inside_a_record_ends_in_an_error(tmp_path):
    """Nothing waits for bytes that the file does not have."""
    path = make(tmp_path / "s", "string")
    right, records = content(path), records_of(path)
    log = path / GENERATION / LOG_FILE
    data = log.read_bytes()
    for cut in (records[-1][1] - 9, records[5][0] + 50, HEADER_BYTES):
        log.write_bytes(data[:cut])
        with pytest.raises(fpstore.CorruptStoreError, match="log is damaged at byte"):
            fpstore.open(path)
        report, _ = repaired(path, right)
        whole = sum(end <= cut for _, end, _ in records)
        assert report.losses[0].startswith(f"log records after {whole}: ")


def test_records_behind_the_end_and_a_gap_do_not_come_back(tmp_path):
    """They were taken back: their call ended with an error."""
    path = make(tmp_path / "s", "integer")
    right, records = content(path), records_of(path)
    log = path / GENERATION / LOG_FILE
    place = records[-2][0]
    set_end(log, place)
    # the one before the last was taken back, and what came behind it is still there
    flip(log, place)
    damage_block(path / GENERATION / table_name(0), 0)
    gone = {f for r in records[-2:] for f in r[2].fingerprints.tolist()}
    report, _ = repaired(path, {(f, i) for f, i in right if f not in gone})
    assert report.complete, report.losses


# --- The manifest ---------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [0, slow(1)])
def test_a_lost_manifest_of_a_store_that_was_never_changed(tmp_path, table):
    path = make(tmp_path / "s", "integer", changes=False)
    right = content(path)
    assert fpstore.repair(path, radius=2).sound
    (path / GENERATION / table_name(table)).unlink()
    with pytest.raises(fpstore.InputError, match="the manifest of this store is intact"):
        fpstore.repair(path, radius=2)
    (path / MANIFEST_FILE).unlink()
    report, held = repaired(path, right, radius=1)
    assert held == right
    assert report.losses == [
        (
            "the settings: the new store answers radius 1 (radius=), has no index by id, "
            "and does not know what made its fingerprints"
        )
    ]
    with fpstore.open(report.output) as store:
        assert (store.radius, store.fingerprinter) == (1, None)
        assert store.probe(int(FINGERPRINTS[0]) ^ 1, 1)[0].distance <= 1


@pytest.mark.parametrize(
    "what",
    [
        "truncated",
        "missing keys",
        "folder",
        *map(slow, ("not json", "checksum", "other keys", "empty")),
    ],
)
def test_a_manifest_that_cannot_be_used(changed, tmp_path, what):
    path, right = changed
    copy = damaged(path, tmp_path)
    file = copy / MANIFEST_FILE
    text = file.read_text()
    if what == "truncated":
        file.write_text(text[:200])
    elif what == "not json":
        file.write_bytes(b"\0\1\2" * 100)
    elif what == "checksum":
        file.write_text(text.replace('"radius": 2', '"radius": 3'))
    elif what == "other keys":
        rewrite(copy, lambda content: content.update(more=1))
    elif what == "missing keys":
        rewrite(copy, lambda content: content.pop("design"))
    elif what == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
        file.mkdir()
    with pytest.raises((fpstore.CorruptStoreError, fpstore.StoreNotFoundError)):
        fpstore.open(copy)
    report, held = repaired(copy, right)
    assert held == right
    assert [loss.split(":")[0] for loss in report.losses] == ["the settings"]


def test_an_older_manifest_of_the_same_store(tmp_path):
    """The generation that it speaks of is not there.

    The one that is there is kept, and what no merge changes is taken.
    """
    path = make(tmp_path / "s", "string")
    old = (path / MANIFEST_FILE).read_bytes()
    with fpstore.open(path, "r+") as store:
        fingerprinter = store.fingerprinter
        store.merge()
        store.insert([9], ["later"])
    right = content(path)
    (path / MANIFEST_FILE).write_bytes(old)
    report, held = repaired(path, right)
    assert report.complete, report.losses
    assert held == right
    with fpstore.open(report.output) as store:
        assert store.fingerprinter == fingerprinter


def test_a_superseded_generation_is_kept_when_it_is_the_only_one(tmp_path):
    path = make(tmp_path / "s", "string")
    before = content(path)
    shutil.copytree(path / GENERATION, tmp_path / "kept")
    with fpstore.open(path, "r+") as store:
        store.merge()
        store.insert([9], ["later"])
    right = content(path)
    shutil.move(tmp_path / "kept", path / GENERATION)
    flip(path / GENERATION / LOG_FILE, 8 * END + 7, 7)
    (path / MANIFEST_FILE).unlink()
    report, held = repaired(path, right)
    assert held == right  # of two, that which is not superseded
    shutil.rmtree(path / "gen-00000002")
    report = fpstore.repair(path, tmp_path / "older")
    assert content(report.output) == before
    assert not report.complete
    assert any("what an earlier one held" in loss for loss in report.losses)


def test_a_repaired_store_has_an_identity_of_its_own(tmp_path):
    path = make(tmp_path / "s", "string")
    damage_block(path / GENERATION / table_name(0), 1)
    report = fpstore.repair(path)
    identities = [
        json.loads((p / MANIFEST_FILE).read_text())["identity"]
        for p in (path, tmp_path / "s.repaired")
    ]
    assert len(set(identities)) == 2
    with fpstore.open(report.output, "r+") as store:
        store.insert([1], ["one"])
        assert {f for f, _ in rows_of(store)} >= set(FINGERPRINTS[6:].tolist())
        assert len(store) > COUNT


@pytest.mark.full
def test_strings_whose_numbers_exceed_the_size_of_the_file(tmp_path):
    """A store that has had many strings numbers new ones on, also when few are left."""
    path = tmp_path / "s"
    fpstore.build(path, FINGERPRINTS[:3], ["a", "b", "c"], radius=2, design="flip-2").close()
    many = np.random.default_rng(3).integers(0, 2**64, 100_000, np.uint64)
    with fpstore.open(path, "r+", sync="none") as store:
        store.insert(many, [f"d{i}" for i in range(len(many))])
        store.delete(fingerprints=many[:-2])
        store.merge()
    right = content(path)
    damage_block(path / current(path) / table_name(0), 0)
    report, held = repaired(path, right)
    assert held == right
    assert report.complete


@pytest.mark.parametrize("number", [slow(1), 2])
def test_manifest_of_a_store_of_equal_fingerprints_is_not_used(tmp_path, number):
    """Its tables are the same: the log says that it is another one."""
    paths = tmp_path / "s", tmp_path / "other"
    for path, kind in zip(paths, ("string", "integer"), strict=True):
        make(path, kind, changes=number == 2)
    right = content(paths[0])
    shutil.copyfile(paths[1] / MANIFEST_FILE, paths[0] / MANIFEST_FILE)
    with pytest.raises(fpstore.CorruptStoreError, match="belong to different stores: remove"):
        fpstore.repair(paths[0])
    (paths[0] / MANIFEST_FILE).unlink()
    assert repaired(paths[0], right)[1] == right


def test_a_record_with_bits_below_the_width_is_not_applied(tmp_path):
    """Its checksum is right, but no writer of 32 bits has logged it."""
    path = tmp_path / "s"
    rows = np.arange(50, dtype=np.uint32) * 1001
    fpstore.build(path, rows, np.arange(50, dtype=np.uint64), width=32).close()
    manifest = read_manifest(path)
    writer = LogWriter(path / current(path) / LOG_FILE, LogHeader.from_manifest(manifest))
    fingerprints, id_ = np.array([3], np.uint64), np.array([77], np.uint64)
    forged = Change(Totals(51, 51, 78, "integer"), np.zeros(1, np.uint8), fingerprints, id_, [])
    writer.append(pack_change(forged), durable=True)
    writer.publish()
    writer.close()
    with pytest.raises(fpstore.CorruptStoreError, match="a fingerprint of records 1 to 1"):
        fpstore.open(path)
    report = fpstore.repair(path, tmp_path / "new")
    assert not report.complete
    with fpstore.open(tmp_path / "new") as store:
        assert list(store) == rows.tolist()
