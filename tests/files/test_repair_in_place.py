"""Repair: where the new store goes, what is refused, and repairs that are killed."""

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from building import listing, run_python
from commandline import run
from damage import rewrite
from repairing import GENERATION, bytes_of, damage_block, make
from resuming import calls_in_a_child
from small_stores import content
from speeds import crossed, slow

import fpstore
from fpstore.care import repair
from fpstore.disk import folders
from fpstore.disk.locks import WriterLock
from fpstore.format.layout import table_name
from fpstore.format.log import LOG_FILE
from fpstore.format.manifest import MANIFEST_FILE
from fpstore.format.mapping import IDS_FILE


def spoiled(tmp_path):
    """Return a damaged store of which nothing is lost, what it holds, and its bytes."""
    path = make(tmp_path / "s", changes=False)
    right = content(path)
    damage_block(path / GENERATION / table_name(0), 1)
    return path, right, bytes_of(path)


def without_lock(files):
    return {**files, "writer.lock": b""}


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


RENAMES = [(Path, "rename"), (Path, "replace"), (repair, "exchange")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("platform", "options"),
    [
        ("linux", {"in_place": True}),
        slow("other", {"in_place": True}),
        ("linux", {}),
        slow("other", {}),
        *(slow(platform, {"output": "new", "lost": "lost"}) for platform in ("linux", "other")),
    ],
)
def test_a_repair_that_is_killed_at_any_rename(tmp_path, monkeypatch, platform, options):
    """The store is whole in its place, the damaged or the new one.

    The new one is never there without its list of losses.
    """

    def repair_there():
        folders.sys.platform = platform
        fpstore.repair("s", **options)

    good = make(tmp_path / "s", changes=False)
    (good / GENERATION / IDS_FILE).unlink()
    lost = options.get("lost", "s.lost.tsv")
    for last in range(1, 20):
        folder = tmp_path / f"killed-{last}"
        shutil.copytree(good, folder / "s")
        before = without_lock(bytes_of(folder / "s"))
        monkeypatch.chdir(folder)
        if calls_in_a_child(repair_there, last, RENAMES, after=True) is not None:
            break
        stores = [
            path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
        ]
        assert before in [without_lock(bytes_of(store)) for store in stores]
        assert len(stores) == 1 or (folder / lost).exists()
        if options.get("in_place"):
            fpstore.repair("s", in_place=True)
            with fpstore.open("s") as store:
                assert store.verify().ok
            assert before in [without_lock(bytes_of(path)) for path in folder.glob("s.damaged*")]
        elif len(stores) == 1:
            fpstore.repair("s", **options)
            assert set(listing(folder)) == {
                "s",
                options.get("output", "s.repaired"),
                *(path.name for path in folder.glob("*lost*")),
            }
    assert 2 < last < 19


def test_a_refused_exchange_leaves_the_damaged_store_alone(tmp_path, monkeypatch):
    path, _, before = spoiled(tmp_path)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(repair, "exchange", refuse)
    with pytest.raises(fpstore.StorageError, match="Permission denied"):
        fpstore.repair(path, in_place=True)
    assert listing(tmp_path) == ["s"]
    assert without_lock(bytes_of(path)) == without_lock(before)


@pytest.mark.parametrize("character", [slow("x"), "é", slow("指")])
def test_a_name_of_255_bytes(tmp_path, character):
    name = character * (255 // len(character.encode()))
    path = make(tmp_path / name, changes=False)
    right = content(path)
    (path / GENERATION / IDS_FILE).unlink()
    report = fpstore.repair(path)
    assert not report.complete
    assert Path(report.lost_file).read_text()
    damaged = fpstore.repair(path, in_place=True).damaged
    assert content(path) < right
    assert {name, Path(damaged).name, Path(report.output).name, Path(report.lost_file).name} < set(
        listing(tmp_path)
    )


@pytest.mark.parametrize(
    ("options", "where"),
    crossed([{}, {"in_place": True}], ["nowhere/lost.tsv", "folder", "file/lost.tsv"]),
)
def test_unwritable_list_of_losses_is_refused_before_the_build(
    tmp_path, monkeypatch, where, options
):
    path, _, before = spoiled(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("fpstore.building.builder.build_into", None)
    with pytest.raises(fpstore.StorageError, match=where.split("/")[0]):
        fpstore.repair(path, lost=tmp_path / where, **options)
    assert listing(tmp_path) == ["file", "folder", "s"]
    assert without_lock(bytes_of(path)) == without_lock(before)


def test_a_file_that_may_not_be_read_is_no_damage(tmp_path, with_mode):
    path = make(tmp_path / "s", changes=False)
    with (
        with_mode(path / GENERATION / IDS_FILE, 0),
        pytest.raises(fpstore.StorageError, match="Permission denied"),
    ):
        fpstore.repair(path)
    assert listing(tmp_path) == ["s"]


def test_another_path(tmp_path):
    path = make(tmp_path / "s")
    right = content(path)
    (path / GENERATION / IDS_FILE).unlink()
    report = fpstore.repair(
        path, tmp_path / "new", lost=tmp_path / "lost", threads=1, memory="64MiB"
    )
    assert (report.output, report.lost_file) == (str(tmp_path / "new"), str(tmp_path / "lost"))
    assert content(tmp_path / "new") < right
    assert listing(tmp_path) == ["lost", "new", "s"]
    other = tmp_path / "other"
    other.mkdir()
    assert fpstore.repair(path, other / "new").lost_file == str(other / "new.lost.tsv")
    assert listing(tmp_path) == ["lost", "new", "other", "s"]
    with pytest.raises(
        fpstore.StorageError, match=r"choose another place for the list of losses \(lost=\)"
    ):
        fpstore.repair(path, other / "newer", lost=tmp_path / "no" / "lost")


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
    assert set(report) == {field.name for field in dataclasses.fields(fpstore.RepairReport)} | {
        "complete"
    }
    next(Path("broken.fps").rglob("ids.mdb")).unlink()
    result = run("repair", "broken.fps", "--yes")
    assert result.exit_code == 1
    assert result.stderr == "fpstore: broken.fps: repaired, but not all could be recovered\n"
    assert re.search("^fault: .*ids.mdb: missing", result.stdout, re.MULTILINE)
    assert re.search("^lost: 7 fingerprints with no id left", result.stdout, re.MULTILINE)
    assert re.search(
        "^done: .*the damaged one is .*broken.fps.damaged$", result.stdout, re.MULTILINE
    )
    assert run("repair", "crawl.fps", "--yes", "-o", "x").exit_code == 2
