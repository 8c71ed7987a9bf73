"""Repair: what is intact of a damaged store is in the new one, and what is not is in the report."""

import dataclasses
import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from building import listing, rows_of, run_python
from commandline import run

import fpstore
from fpstore import delta as log
from fpstore import layout
from fpstore.journal import Journal
from fpstore.locks import WriterLock

COUNT = 700
FINGERPRINTS = np.random.default_rng(21).integers(0, 2**64, COUNT, np.uint64)
MORE = np.random.default_rng(22).integers(0, 2**64, 90, np.uint64)
FINGERPRINTER = {"name": "simhash", "version": 1}
GENERATION = "gen-00000001"


def ids_of(kind, start, count):
    if kind == "row":
        return None
    return (
        [f"document {start + i}" for i in range(count)] if kind == "string" else np.arange(start, start + count, dtype=np.uint64)
    )


def make(path, kind="string", changes=True, merge=False, **options):
    options = {"radius": 2, "design": "blocks-3-1", "block_bytes": 128, "fingerprinter": FINGERPRINTER, **options}
    fpstore.build(path, FINGERPRINTS, ids_of(kind, 0, COUNT), **options).close()
    if changes:
        with fpstore.open(path, "r+") as store:
            for step in range(0, 90, 3):
                store.insert(MORE[step : step + 3], ids_of(kind, COUNT + step, 3))
                if step == 45:
                    store.delete(fingerprints=FINGERPRINTS[:4])
                    store.insert(FINGERPRINTS[3:6], ids_of(kind, 10, 3))
                if step == 60 and merge:
                    store.merge()
    return path


def content(path):
    with fpstore.open(path) as store:
        report = store.verify()
        assert report.ok, report.faults
        return set(rows_of(store))


def bytes_of(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and not p.name.endswith("-lock")}


@pytest.fixture(scope="module", params=["string", "row", "merged"])
def good(request, tmp_path_factory):
    """Return a store that was changed, and what it holds."""
    kind = "string" if request.param == "merged" else request.param
    path = make(tmp_path_factory.mktemp("good") / "s", kind, merge=request.param == "merged")
    return path, content(path)


def repaired(path, right, **options):
    """Repair a damaged store; check the report against what the store held before, and return it with what is held now."""
    before = bytes_of(path)
    for name in (f"{path}.repaired", f"{path}.lost.tsv"):
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink(missing_ok=True)
    report = fpstore.repair(path, **options)
    assert bytes_of(path) == before
    if report.sound:
        assert (report.faults, report.losses, report.output) == ([], [], None)
        held = content(path)
        assert held == right
        return report, held
    assert report.faults
    assert report.output == f"{path}.repaired"
    held = content(report.output)
    assert (report.fingerprints, report.ids) == (len({f for f, _ in held}), len(held))
    rows = [line.split("\t") for line in Path(report.lost_file).read_text().splitlines()] if report.lost_file else []
    if report.complete:
        assert held == right
        assert rows == []
        return report, held
    told = " ".join(report.losses)
    if "log records" not in told and "journal" not in told:
        assert held <= right
        lost = {int(fingerprint, 16) for what, fingerprint, _ in rows if what in ("fingerprint", "ids", "name")}
        missing = {f for f, _ in right - held}
        unknown = re.search(r"(\d+) of \d+ fingerprints of the tables", told)
        assert len(missing - lost) <= (int(unknown[1]) if unknown else 0)
        gone = {int(fingerprint, 16) for what, fingerprint, _ in rows if what == "fingerprint"}
        assert not gone & {f for f, _ in held}
        if unknown is None and held != right:
            assert f"the store held {len(right)} ids, the new one has {len(held)}" in report.losses
    return report, held


def damaged(good, tmp_path):
    path = tmp_path / "s"
    if path.exists():
        shutil.rmtree(path)
    shutil.copytree(good, path)
    return path


def files_of(path):
    return sorted(name for name in bytes_of(path) if name != "writer.lock")


def flip(file, at, bit=0):
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def current(path):
    return sorted(p.name for p in path.glob("gen-*"))[-1]


# --- Nothing wrong --------------------------------------------------------------------------------


def test_a_sound_store_is_left_alone(good, tmp_path):
    path = damaged(good[0], tmp_path)
    for leftover in ("gen-00000009", "gen-00000009.tmp"):
        (path / leftover).mkdir()
        (path / leftover / "table-000.fpt").write_bytes(b"of a merge that died")
    for options in ({}, {"in_place": True}):
        report = fpstore.repair(path, **options)
        assert report.sound
        assert report.complete
        assert listing(tmp_path) == ["s"]


# --- One file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["store.mdb", "ids.mdb", "names.mdb", "journal.mdb", "table-000.fpt", "table-001.fpt"])
def test_a_file_deleted_or_cut_short(good, tmp_path, part):
    path, right = good
    name = part if part == "store.mdb" else f"{current(path)}/{part}"
    if not (path / name).exists():
        pytest.skip("there is none")
    size = (path / name).stat().st_size
    for length in (None, 0, 4095, 5000, size // 2, size - 1):
        copy = damaged(path, tmp_path)
        if length is None:
            (copy / name).unlink()
        else:
            os.truncate(copy / name, min(length, size - 1))
        report, held = repaired(copy, right)
        assert not report.sound
        if "table" in part:
            assert held == right
            with fpstore.open(path) as old, fpstore.open(report.output) as new:
                assert (new.design, new.radius, new.fingerprinter) == (old.design, old.radius, old.fingerprinter)
                assert new.stats()["block_bytes"] == 128
                assert new.stats()["id_kind"] == old.stats()["id_kind"]


def sections(file):
    """Return places in each part of a file: heads of pages and sections, and some that are not zero."""
    data = file.read_bytes()
    some = [i for i in range(len(data)) if data[i]]
    return sorted({*random.Random(5).sample(some, 3), *(p for p in (12, 44, 200, 4096 + 12, 8192 + 12) if p < len(data))})


def test_flips_in_each_file(good, tmp_path):
    path, right = good
    noticed = 0
    for name in files_of(path):
        for at in sections(path / name):
            copy = damaged(path, tmp_path)
            flip(copy / name, at, at % 8)
            report, held = repaired(copy, right)
            noticed += not report.sound
            if name.endswith(".fpt"):
                assert held == right
                assert not report.sound
    assert noticed > 25


@pytest.mark.slow
def test_many_flips_in_each_file(good, tmp_path):
    path, right = good
    for name in files_of(path):
        data = (path / name).read_bytes()
        for at in [i for i in range(len(data)) if data[i] or i % 4096 < 64][::211]:
            copy = damaged(path, tmp_path)
            flip(copy / name, at, at % 8)
            repaired(copy, right)


# --- Tables ---------------------------------------------------------------------------------------


def damage_block(file, block):
    flip(file, 4096 + 128 * block + 40)


def test_tables_that_are_all_damaged_complete_each_other(good, tmp_path):
    path, right = good
    copy = damaged(path, tmp_path)
    for number in range(3):
        for block in (2 + number, 9 + 5 * number):
            damage_block(copy / current(path) / layout.table_name(number), block)
    report, held = repaired(copy, right)
    assert report.complete
    assert held == right
    assert "with the help of other tables" in " ".join(report.actions)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_one_table_is_enough(good, tmp_path, left):
    path, right = good
    copy = damaged(path, tmp_path)
    for number in range(3):
        if number != left:
            (copy / current(path) / layout.table_name(number)).unlink()
    report, held = repaired(copy, right)
    assert report.complete
    assert held == right


@pytest.mark.parametrize("kind", ["string", "row", "integer"])
@pytest.mark.parametrize("blocks", [[7], [0, 7, 8], [3, 4, 5]])
def test_fingerprints_that_no_table_has(tmp_path, kind, blocks):
    """With a single table, its damaged blocks are lost; their ids are known where ids are numbered."""
    path = make(tmp_path / "s", kind, changes=False, design="flip-1", radius=1)
    right = content(path)
    with fpstore.open(path) as store:
        table = store.view().generation.tables[0]
        entries = [set(table.kernel.decode(block, block + 1, 0)[0].tolist()) for block in blocks]
    gone = set.union(*entries)
    for block in blocks:
        damage_block(path / GENERATION / layout.table_name(0), block)
    report, held = repaired(path, right)
    assert right - held == {(f, i) for f, i in right if f in gone}
    assert f"{len(gone)} of {COUNT} fingerprints of the tables, which are not known" in report.losses
    rows = [line.split("\t") for line in Path(report.lost_file).read_text().splitlines()] if report.lost_file else []
    if kind != "integer":
        assert {i for what, _, i in rows if what == "id"} == {str(i) for f, i in right if f in gone}


@pytest.mark.parametrize("design", ["flip-1", "flip-2"])
def test_headers_are_made_again(tmp_path, design):
    """All headers are damaged; all but the lengths of the codes is known from elsewhere."""
    path = make(tmp_path / "s", "string", changes=False, design=design, radius=1)
    right = content(path)
    for at in (0, 8, 20, 28, 33, 40, 85, 130, 300, 4090):
        for file in (path / GENERATION).glob("table-*"):
            flip(file, at, 2)
        report, held = repaired(path, right)
        assert report.complete
        assert held == right
        assert "with a new header in place of the damaged one" in " ".join(report.actions)
        for file in (path / GENERATION).glob("table-*"):
            flip(file, at, 2)
    assert content(path) == right


def test_a_block_that_is_partly_known(tmp_path):
    """Two tables with damage: of a block of the identity table some fingerprints are known, but not which id is whose."""
    path = make(tmp_path / "s", "string", changes=False, design="flip-2", radius=2)
    right = content(path)
    with fpstore.open(path) as store:
        tables = store.view().generation.tables
        block = set(tables[0].kernel.decode(5, 6, 0)[0].tolist())
        spoiled = min(block)
        other = tables[1].kernel
        keys = tables[1].block_keys()
        from fpstore import _kernel

        permuted = _kernel.permute(np.array([spoiled], np.uint64), np.frombuffer(other.permutation, np.uint8))[0]
        where = int(np.searchsorted(keys, permuted))
    damage_block(path / GENERATION / layout.table_name(0), 5)
    damage_block(path / GENERATION / layout.table_name(1), where)
    report, held = repaired(path, right)
    assert {f for f, _ in right - held} == block
    assert "1 of 700 fingerprints of the tables, which are not known" in report.losses
    rows = [line.split("\t") for line in Path(report.lost_file).read_text().splitlines()]
    assert {int(f, 16) for what, f, _ in rows if what == "fingerprint"} == block - {spoiled}
    assert {i for what, _, i in rows if what == "id"} == {i for f, i in right if f in block}


# --- Ids and names --------------------------------------------------------------------------------


def test_ids_of_a_damaged_record_are_lost_and_no_others(tmp_path):
    path = make(tmp_path / "s", "string", changes=False)
    right = content(path)
    with fpstore.open(path) as store:
        generation = store.view().generation
        block = set(generation.tables[0].kernel.decode(4, 5, 0)[0].tolist())
        record = generation.ids._record(4)
    at = (path / GENERATION / layout.IDS_FILE).read_bytes().find(record)
    flip(path / GENERATION / layout.IDS_FILE, at + 20)
    report, held = repaired(path, right)
    assert {f for f, _ in right - held} == block
    assert f"{len(block)} fingerprints that have no id left, and are not in the new store" in report.losses
    rows = [line.split("\t") for line in Path(report.lost_file).read_text().splitlines()]
    assert {int(f, 16) for what, f, _ in rows if what == "fingerprint"} == block
    assert {i for what, _, i in rows if what == "id"} == {i for f, i in right if f in block}


def test_a_damaged_name(tmp_path):
    path = make(tmp_path / "s", "string", changes=False)
    right = content(path)
    at = (path / layout.STORE_FILE).read_bytes().find(b"document 123")
    flip(path / layout.STORE_FILE, at + 3)
    report, held = repaired(path, right)
    ((fingerprint, name),) = right - held
    assert name == "document 123"
    assert Path(report.lost_file).read_text() == f"name\t{fingerprint:016x}\t123\nfingerprint\t{fingerprint:016x}\t\n"


def test_two_files_at_once(good, tmp_path):
    """An id map and the identity table: its blocks are made again, so that the records that are left find their fingerprints."""
    path, right = good
    copy = damaged(path, tmp_path)
    folder = copy / current(path)
    with fpstore.open(path) as store:
        generation = store.view().generation
        record = generation.ids._record(6)
        block = set(generation.tables[0].kernel.decode(6, 7, 0)[0].tolist())
    flip(folder / layout.IDS_FILE, (folder / layout.IDS_FILE).read_bytes().find(record) + 18)
    os.truncate(folder / layout.table_name(0), 9000)
    report, held = repaired(copy, right)
    assert not report.complete
    assert {f for f, _ in right - held} <= block
    (folder / layout.table_name(1)).unlink()
    (copy / layout.STORE_FILE).unlink()
    report, held = repaired(copy, right)
    assert held


# --- Settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["blocks-3-1", "flip-2", "manku-10", "custom"])
@pytest.mark.parametrize("identity", [True, False])
def test_a_lost_store_file_of_a_store_that_was_never_changed(tmp_path, design, identity):
    """The design follows from the tables; the radius is the largest that it covers."""
    custom = [
        {"permutation": list(range(64)), "prefix_bits": 40},
        {"permutation": [*range(40, 64), *range(40)], "prefix_bits": 24},
    ]
    radius = {"manku-10": 3, "custom": 1}.get(design, 2)
    path = make(tmp_path / "s", "integer", changes=False, radius=radius, design=custom if design == "custom" else design)
    if design == "custom" and not identity:
        pytest.skip("which tables there were cannot be known")
    right = content(path)
    with fpstore.open(path) as store:
        before = store.design
    (path / layout.STORE_FILE).unlink()
    if not identity:
        (path / GENERATION / layout.table_name(0)).unlink()
    report, held = repaired(path, right)
    assert held == right
    with fpstore.open(report.output) as store:
        assert [t.permutation for t in store.design.tables] == [t.permutation for t in before.tables]
        assert not identity or store.design.tables == before.tables
        assert store.radius >= before.radius
        assert store.fingerprinter is None
        one = int(FINGERPRINTS[0])
        assert store.probe(one ^ 1, 1)[0].distance <= 1
    assert "what made the fingerprints is not known" in " ".join(report.losses)


def test_a_lost_store_file_of_a_store_with_a_journal(tmp_path):
    path = make(tmp_path / "s", "integer")
    right = content(path)
    (path / layout.STORE_FILE).unlink()
    report, held = repaired(path, right)
    assert report.complete
    assert held == right
    with fpstore.open(report.output) as store:
        assert (store.design.name, store.radius, store.fingerprinter) == ("blocks-3-1", 2, FINGERPRINTER)


def test_rows_go_on_where_they_ended(tmp_path):
    path = make(tmp_path / "s", "row")
    right = content(path)
    (path / GENERATION / layout.table_name(0)).unlink()
    report, held = repaired(path, right)
    for where in (report.output,):
        with fpstore.open(where, "r+") as store:
            store.insert([123456789])
            assert store[123456789] == [max(i for _, i in held) + 1]


# --- Journal --------------------------------------------------------------------------------------


def test_a_log_record_that_is_lost(tmp_path):
    """All others are applied, with the right strings."""
    path = make(tmp_path / "s", "string")
    right = content(path)
    journal = path / GENERATION / layout.JOURNAL_FILE
    with fpstore.open(path) as store:
        record = store._follower.journal.read(9).records[0]
    assert log.unpack(record, journal).number == 10
    data = journal.read_bytes()
    places = [m.start() for m in re.finditer(re.escape(record), data)]
    assert places
    for at in places:  # copies on pages that are not in use any more
        flip(journal, at + 80)
    report, held = repaired(path, right)
    inserted = log.unpack(record, journal)
    assert right - held == {(f, n.decode()) for f, n in zip(inserted.fingerprints.tolist(), inserted.names, strict=True)}
    assert held < right
    assert any(loss.startswith("log records 10: what they inserted is missing") for loss in report.losses)


def test_records_are_found_without_the_pages_above_them(good, tmp_path):
    path, right = good
    copy = damaged(path, tmp_path)
    journal = copy / current(path) / layout.JOURNAL_FILE
    data = bytearray(journal.read_bytes())
    data[: 2 * 4096] = bytes(2 * 4096)
    journal.write_bytes(data)
    report, held = repaired(copy, right)
    assert held == right
    (loss,) = report.losses
    assert re.match(r"log records after \d+, if there were any", loss)


def test_a_journal_of_which_nothing_is_left(tmp_path):
    path = make(tmp_path / "s", "string")
    right = content(path)
    (path / GENERATION / layout.JOURNAL_FILE).unlink()
    report, held = repaired(path, right)
    assert held == {(int(f), f"document {i}") for i, f in enumerate(FINGERPRINTS)}
    assert report.losses == ["the journal: all that was inserted or deleted since the last merge, if anything was"]


# --- Where the new store goes ---------------------------------------------------------------------


def test_in_place_keeps_the_damaged_store(tmp_path):
    path = make(tmp_path / "s")
    right = content(path)
    (path / GENERATION / layout.table_name(1)).unlink()
    for number in range(1, 4):
        damage_block(path / GENERATION / layout.table_name(0), 1)
        before = bytes_of(path)
        report = fpstore.repair(path, in_place=True)
        name = "s.damaged" if number == 1 else f"s.damaged-{number}"
        assert (report.output, report.damaged) == (str(path), str(tmp_path / name))
        after = bytes_of(tmp_path / name)
        assert {**after, "writer.lock": b""} == {**before, "writer.lock": b""}
        assert content(path) == right
    assert listing(tmp_path) == ["s", "s.damaged", "s.damaged-2", "s.damaged-3"]
    with fpstore.open(path, "r+") as store:
        store.insert([1], ["it can be changed"])


def test_in_place_through_a_link(tmp_path):
    path = make(tmp_path / "s", changes=False)
    right = content(path)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "current").symlink_to(path)
    (path / GENERATION / layout.IDS_FILE).unlink()
    (tmp_path / "s.lost.tsv").write_text("of an earlier repair")
    report = fpstore.repair(tmp_path / "links" / "current", in_place=True)
    assert (report.output, report.damaged) == (str(path), str(tmp_path / "s.damaged"))
    assert (tmp_path / "links" / "current").is_symlink()
    assert content(tmp_path / "links" / "current") < right
    assert listing(tmp_path) == ["links", "s", "s.damaged", "s.lost-2.tsv", "s.lost.tsv"]
    assert (tmp_path / "s.lost.tsv").read_text() == "of an earlier repair"


def test_a_file_that_may_not_be_read_is_no_damage(tmp_path, with_mode):
    path = make(tmp_path / "s", changes=False)
    with with_mode(path / GENERATION / layout.IDS_FILE, 0), pytest.raises(fpstore.StorageError, match="Permission denied"):
        fpstore.repair(path)
    assert listing(tmp_path) == ["s"]


def test_another_path(tmp_path):
    path = make(tmp_path / "s")
    right = content(path)
    (path / GENERATION / layout.IDS_FILE).unlink()
    report = fpstore.repair(path, tmp_path / "new", lost=tmp_path / "lost", threads=1, memory="64MiB")
    assert (report.output, report.lost_file) == (str(tmp_path / "new"), str(tmp_path / "lost"))
    assert content(tmp_path / "new") < right
    assert listing(tmp_path) == ["lost", "new", "s"]


def test_what_is_refused(tmp_path):
    path = make(tmp_path / "s")
    before = bytes_of(path)
    (tmp_path / "empty").mkdir()
    for name in ("nothing", "empty"):
        with pytest.raises(fpstore.StoreNotFoundError, match="no such store"):
            fpstore.repair(tmp_path / name)
    with pytest.raises(fpstore.InputError):
        fpstore.repair(path, tmp_path / "t", in_place=True)
    lock = WriterLock(path)
    code, out, _ = run_python(
        """
        import sys, fpstore
        for options in ({}, {"in_place": True}):
            try:
                fpstore.repair(sys.argv[1], **options)
            except fpstore.StoreLockedError as error:
                print(error)
        """,
        path,
    )
    lock.release()
    assert (code, len(re.findall(f"process {os.getpid()} has it open for writing", out))) == (0, 2)
    (path / GENERATION / layout.table_name(0)).unlink()
    (tmp_path / "s.repaired").mkdir()
    with pytest.raises(fpstore.StoreExistsError, match=r"s.repaired exists: move it away"):
        fpstore.repair(path)
    for table in range(1, 3):
        os.truncate(path / GENERATION / layout.table_name(table), 100)
    (path / layout.STORE_FILE).unlink()
    (path / GENERATION / layout.JOURNAL_FILE).unlink()
    (tmp_path / "s.repaired").rmdir()
    with pytest.raises(fpstore.CorruptStoreError, match="nothing can be recovered"):
        fpstore.repair(path)
    assert listing(tmp_path) == ["empty", "s"]
    assert before


def test_a_newer_store_is_not_repaired(tmp_path, monkeypatch):
    path = make(tmp_path / "s", changes=False)
    monkeypatch.setattr(layout, "FORMAT_VERSION", 0)
    (path / GENERATION / layout.table_name(1)).unlink()
    with pytest.raises(fpstore.FormatVersionError, match="upgrade fpstore"):
        fpstore.repair(path)


def test_the_verb(folder):
    assert run("repair", "crawl.fps").stdout == "crawl.fps: sound: nothing to repair\n"
    run("build", "broken.fps", "crawl.tsv", "--design", "flip-2")
    sorted(Path("broken.fps").rglob("table-*"))[-1].unlink()
    result = run("repair", "broken.fps", "-o", "new.fps", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["complete"]
    assert set(report) == {field.name for field in dataclasses.fields(fpstore.RepairReport)} | {"complete"}
    next(Path("broken.fps").rglob("ids.mdb")).unlink()
    result = run("repair", "broken.fps", "--yes")
    assert result.exit_code == 1
    assert result.stderr == "fpstore: broken.fps: repaired, but not all could be recovered\n"
    assert re.search("^fault: .*ids.mdb: missing", result.stdout, re.MULTILINE)
    assert re.search("^lost: 7 fingerprints that have no id left", result.stdout, re.MULTILINE)
    assert re.search("^done: .*the damaged one is .*broken.fps.damaged$", result.stdout, re.MULTILINE)
    assert run("repair", "crawl.fps", "--yes", "-o", "x").exit_code == 2


def test_uncommitted_pages_do_not_come_back(tmp_path):
    """Records are taken from the last transaction where it can be followed."""
    path = make(tmp_path / "s", "integer")
    right = content(path)
    journal = Journal(path / GENERATION / layout.JOURNAL_FILE)
    count = len(journal.read(0).records)
    journal.close()
    damage_block(path / GENERATION / layout.table_name(0), 0)
    report, held = repaired(path, right)
    assert f"applied {count} log records" in report.actions
    assert held == right
