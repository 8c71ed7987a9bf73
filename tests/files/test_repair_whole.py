"""Repair: settings that are lost, and where the new store goes."""

import dataclasses
import importlib
import itertools
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from building import listing, run_python
from commandline import run
from damage import rewrite
from repairing import (
    FINGERPRINTS,
    GENERATION,
    bytes_of,
    content,
    damage_block,
    make,
    repaired,
)

import fpstore
from fpstore.disk.locks import WriterLock
from fpstore.format.id_map import IDS_FILE
from fpstore.format.layout import table_name
from fpstore.format.log import LOG_FILE
from fpstore.format.manifest import MANIFEST_FILE

# --- Settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("design", "identity"),
    [(design, identity) for design in ("blocks-3-1", "flip-2", "manku-10") for identity in (True, False)] + [("custom", True)],
)
def test_a_lost_manifest_of_a_store_that_was_never_changed(tmp_path, design, identity):
    """The design follows from the tables; the radius is the largest that it covers."""
    custom = [
        {"permutation": list(range(64)), "prefix_bits": 40},
        {"permutation": [*range(40, 64), *range(40)], "prefix_bits": 24},
    ]
    radius = {"manku-10": 3, "custom": 1}.get(design, 2)
    path = make(tmp_path / "s", "integer", changes=False, radius=radius, design=custom if design == "custom" else design)
    right = content(path)
    with fpstore.open(path) as store:
        before = store.design
    (path / MANIFEST_FILE).unlink()
    if not identity:
        (path / GENERATION / table_name(0)).unlink()
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


def test_a_lost_manifest_of_a_store_with_changes(tmp_path):
    """The header of the log says what the ids are, and how many there were."""
    path = make(tmp_path / "s", "integer")
    right = content(path)
    (path / MANIFEST_FILE).unlink()
    report, held = repaired(path, right)
    assert held == right
    assert report.losses == ["the settings: what made the fingerprints is not known, nor the radius that was asked for"]
    with fpstore.open(report.output) as store:
        assert (len(store.design.tables), store.radius, store.fingerprinter) == (3, 2, None)
        assert store.stats()["id_kind"] == "integer"


def test_rows_go_on_where_they_ended(tmp_path):
    path = make(tmp_path / "s", "row")
    right = content(path)
    (path / GENERATION / table_name(0)).unlink()
    report, held = repaired(path, right)
    for where in (report.output,):
        with fpstore.open(where, "r+") as store:
            store.insert([123456789])
            assert store[123456789] == [max(i for _, i in held) + 1]


# --- Where the new store goes ---------------------------------------------------------------------


def test_in_place_keeps_the_damaged_store(tmp_path):
    path = make(tmp_path / "s")
    right = content(path)
    (path / GENERATION / table_name(1)).unlink()
    for number in range(1, 4):
        damage_block(path / GENERATION / table_name(0), 1)
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
    (path / GENERATION / IDS_FILE).unlink()
    (tmp_path / "s.lost.tsv").write_text("of an earlier repair")
    report = fpstore.repair(tmp_path / "links" / "current", in_place=True)
    assert (report.output, report.damaged) == (str(path), str(tmp_path / "s.damaged"))
    assert (tmp_path / "links" / "current").is_symlink()
    assert content(tmp_path / "links" / "current") < right
    assert listing(tmp_path) == ["links", "s", "s.damaged", "s.lost-2.tsv", "s.lost.tsv"]
    assert (tmp_path / "s.lost.tsv").read_text() == "of an earlier repair"


@pytest.mark.parametrize(
    ("options", "store", "lost"),
    [
        ({"output": "new"}, "new", "new.lost.tsv"),
        ({"output": "new", "lost": "lost"}, "new", "lost"),
        ({}, "s.repaired", "s.lost.tsv"),
        ({"in_place": True}, "s.damaged", "s.lost.tsv"),
    ],
)
def test_a_new_store_is_never_there_without_its_list_of_losses(tmp_path, monkeypatch, options, store, lost):
    """The list came after the store: a kill between left none, and the same command was refused."""
    good = make(tmp_path / "s", changes=False)
    (good / GENERATION / IDS_FILE).unlink()
    states = []
    for last in itertools.count(1):
        folder = tmp_path / f"killed-{last}"
        shutil.copytree(good, folder / "s")
        monkeypatch.chdir(folder)
        child = os.fork()
        if not child:
            calls = itertools.count(1)
            for name, rename in {"rename": Path.rename, "replace": Path.replace}.items():

                def killed(self, target, done=rename):
                    result = done(self, target)
                    if next(calls) == last:  # noqa: B023 - this process ends in this turn
                        os._exit(0)
                    return result

                monkeypatch.setattr(Path, name, killed)
            try:
                fpstore.repair("s", **options)
            finally:
                os._exit(1)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            break
        left = {name for name in listing(folder) if name != "s" and not name.startswith(".")}
        states.append(left)
        assert left in ({lost}, {lost, store})
        rows = Path(lost).read_text()
        assert len(rows.splitlines()) > 10
        if store not in left or options.get("in_place"):
            fpstore.repair("s", **options)
        assert listing(folder) == sorted({"s", store, lost})
        assert Path(lost).read_text() == rows
    assert (states[0], states[-1]) == ({lost}, {lost, store})


def test_a_file_that_may_not_be_read_is_no_damage(tmp_path, with_mode):
    path = make(tmp_path / "s", changes=False)
    with with_mode(path / GENERATION / IDS_FILE, 0), pytest.raises(fpstore.StorageError, match="Permission denied"):
        fpstore.repair(path)
    assert listing(tmp_path) == ["s"]


@pytest.mark.parametrize("kind", ["string", "row"])
@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_what_is_recovered_reaches_the_builder_once_and_in_parts(monkeypatch, kind, rows):
    """The builder would take a row twice without a word, and only be slower."""
    repair = importlib.import_module("fpstore.care.found_content")
    monkeypatch.setattr(repair, "BATCH_ROWS", rows)
    sizes, start, parts = [1, 2, 0, 5, 1, 1, 1, 9], 0, []
    for size in sizes:
        ids = [f"n{i}" for i in range(start, start + size)] if kind == "string" else np.arange(start, start + size)
        parts.append(repair.Part(np.arange(start, start + size, dtype=np.uint64) * 3, ids))
        start += size
    batches = list(repair.batches(iter(parts)))
    assert [value for batch in batches for value in batch.fingerprints.tolist()] == [3 * i for i in range(20)]
    ids = [name for batch in batches for name in (batch.ids.texts() if kind == "string" else batch.ids)]
    assert ids == ([f"n{i}" for i in range(20)] if kind == "string" else [*range(20)])
    assert all(len(batch.fingerprints) >= rows for batch in batches[:-1])
    assert len(batches) == {1: 7, 4: 2, 1000: 1}[rows]


def test_another_path(tmp_path):
    path = make(tmp_path / "s")
    right = content(path)
    (path / GENERATION / IDS_FILE).unlink()
    report = fpstore.repair(path, tmp_path / "new", lost=tmp_path / "lost", threads=1, memory="64MiB")
    assert (report.output, report.lost_file) == (str(tmp_path / "new"), str(tmp_path / "lost"))
    assert content(tmp_path / "new") < right
    assert listing(tmp_path) == ["lost", "new", "s"]
    other = tmp_path / "other"
    other.mkdir()
    assert fpstore.repair(path, other / "new").lost_file == str(other / "new.lost.tsv")
    assert listing(tmp_path) == ["lost", "new", "other", "s"]
    with pytest.raises(fpstore.StorageError, match=r"choose another place for the list of losses .*--lost"):
        fpstore.repair(path, other / "newer", lost=tmp_path / "no" / "lost")


def test_a_repair_in_place_names_no_path_of_its_own(tmp_path):
    path = make(tmp_path / "s")
    (path / GENERATION / IDS_FILE).unlink()
    actions = fpstore.repair(path, in_place=True).actions
    assert not [action for action in actions if ".repairing" in action]
    assert [action for action in actions if action.startswith("wrote a new store: ")]


def test_what_is_refused(tmp_path):
    path = make(tmp_path / "s")
    before = bytes_of(path)
    (tmp_path / "empty").mkdir()
    for name, message in (("nothing", "no such store"), ("empty", "not an fpstore store")):
        with pytest.raises(fpstore.StoreNotFoundError, match=message):
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
    (path / GENERATION / table_name(0)).unlink()
    (tmp_path / "s.repaired").mkdir()
    with pytest.raises(fpstore.StoreExistsError, match=r"s.repaired exists: move it away"):
        fpstore.repair(path)
    for table in range(1, 3):
        os.truncate(path / GENERATION / table_name(table), 100)
    (path / MANIFEST_FILE).unlink()
    (path / GENERATION / LOG_FILE).unlink()
    (tmp_path / "s.repaired").rmdir()
    with pytest.raises(fpstore.CorruptStoreError, match="nothing can be recovered"):
        fpstore.repair(path)
    assert listing(tmp_path) == ["empty", "s"]
    assert before


def test_a_newer_store_is_not_repaired(tmp_path):
    path = make(tmp_path / "s", changes=False)
    rewrite(path, lambda content: content.update(format_version=99))
    (path / GENERATION / table_name(1)).unlink()
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
    assert re.search("^lost: 7 fingerprints with no id left", result.stdout, re.MULTILINE)
    assert re.search("^done: .*the damaged one is .*broken.fps.damaged$", result.stdout, re.MULTILINE)
    assert run("repair", "crawl.fps", "--yes", "-o", "x").exit_code == 2
