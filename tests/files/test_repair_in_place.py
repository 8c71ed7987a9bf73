"""Repair in place, as it is interrupted and as others are in its way."""

import os
import shutil
from pathlib import Path

import pytest
from building import listing
from repairing import GENERATION, bytes_of, content, damage_block, make

import fpstore
from fpstore.care import in_place
from fpstore.disk import folders
from fpstore.format.id_map import IDS_FILE
from fpstore.format.layout import table_name


def killed(path, monkeypatch, where):
    """Repair in place in a child that ends at a call, as if it was killed."""
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(*where)
        try:
            fpstore.repair(path, in_place=True)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def stop(*args, **kwargs):
    os._exit(0)


def spoiled(tmp_path):
    path = make(tmp_path / "s", changes=False)
    right = content(path)
    damage_block(path / GENERATION / table_name(0), 1)
    return path, right, bytes_of(path)


def without_lock(files):
    return {**files, "writer.lock": b""}


def test_the_damaged_store_outlives_a_repair_that_is_killed_after_the_exchange(tmp_path, monkeypatch):
    path, right, before = spoiled(tmp_path)
    killed(path, monkeypatch, (in_place.InPlace, "_put_aside", stop))
    assert content(path) == right
    assert listing(tmp_path) == [".s.repairing", "s"]
    report = fpstore.repair(path, in_place=True)
    assert report.sound
    assert report.damaged == str(tmp_path / "s.damaged")
    assert "an earlier repair was interrupted" in report.actions[0]
    assert without_lock(bytes_of(tmp_path / "s.damaged")) == without_lock(before)
    assert listing(tmp_path) == ["s", "s.damaged"]
    assert content(path) == right


def test_the_new_store_of_a_repair_that_is_killed_before_the_exchange_goes(tmp_path, monkeypatch):
    path, right, before = spoiled(tmp_path)
    for where in ((in_place, "exchange", stop), (in_place, "write_all", stop), (in_place.InPlace, "swap", stop)):
        with monkeypatch.context() as patch:
            killed(path, patch, where)
        assert listing(tmp_path) == [".s.repairing", "s"]
        assert without_lock(bytes_of(path)) == without_lock(before)
    report = fpstore.repair(path, in_place=True)
    assert report.complete
    assert content(path) == right
    assert listing(tmp_path) == ["s", "s.damaged"]


@pytest.mark.parametrize("call", ["mkdir", "touch", "unlink"])
def test_a_repair_that_is_killed_while_its_folder_is_made_or_removed(tmp_path, monkeypatch, call):
    """The folder was there without its marker, and every later repair refused it."""
    path, right, _ = spoiled(tmp_path)
    done = getattr(Path, call)

    def last(self, *args, **kwargs):
        mine = ".s.repairing" in (self.name, self.parent.name)
        if call != "touch" or not mine:
            done(self, *args, **kwargs)
        if mine:
            os._exit(0)

    killed(path, monkeypatch, (Path, call, last))
    assert listing(tmp_path) == [".s.repairing", "s", *(["s.damaged"] if call == "unlink" else [])]
    assert listing(tmp_path / ".s.repairing") == []
    assert fpstore.repair(path, in_place=True).complete
    assert content(path) == right
    assert listing(tmp_path) == ["s", "s.damaged"]


def test_half_of_a_new_store_goes_that_a_killed_repair_was_removing(tmp_path, monkeypatch):
    """Without its manifest it was taken for the damaged store, and kept."""
    path, right, before = spoiled(tmp_path)

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    def half(folder):
        next(folder.rglob("manifest.json")).unlink()
        os._exit(0)

    with monkeypatch.context() as patch:
        patch.setattr(in_place, "exchange", refuse)
        killed(path, patch, (in_place, "remove_tree", half))
    assert listing(tmp_path / ".s.repairing") == [in_place.MARKER, "store"]
    assert without_lock(bytes_of(path)) == without_lock(before)
    assert fpstore.repair(path, in_place=True).complete
    assert content(path) == right
    assert listing(tmp_path) == ["s", "s.damaged"]


@pytest.mark.parametrize("renames", [1, 2])
def test_a_repair_that_is_killed_between_renames_where_folders_cannot_be_exchanged(tmp_path, monkeypatch, renames):
    path, right, before = spoiled(tmp_path)
    rename, left = Path.rename, [renames]

    def counted(self, target):
        if path in (Path(target), self) or self.name.endswith(folders.ASIDE):
            if not left[0]:
                os._exit(0)
            left[0] -= 1
        return rename(self, target)

    monkeypatch.setattr(folders.sys, "platform", "other")
    killed(path, monkeypatch, (Path, "rename", counted))
    assert path.exists() == (renames == 2)
    report = fpstore.repair(path, in_place=True)
    assert content(path) == right
    assert without_lock(bytes_of(tmp_path / "s.damaged")) == without_lock(before)
    assert report.damaged == str(tmp_path / "s.damaged")
    assert listing(tmp_path) == ["s", "s.damaged"]


def test_the_damaged_store_is_kept_when_it_cannot_be_put_aside(tmp_path, monkeypatch):
    path, right, before = spoiled(tmp_path)

    def refuse(path, ending, suffix=""):
        if ending == ".damaged":
            raise PermissionError(13, "Permission denied")
        return path.with_name("lost")

    with monkeypatch.context() as patch:
        patch.setattr(in_place, "free_name", refuse)
        with pytest.raises(fpstore.StorageError, match="Permission denied"):
            fpstore.repair(path, in_place=True)
    assert content(path) == right
    assert without_lock(bytes_of(tmp_path / ".s.repairing" / "store")) == without_lock(before)
    assert fpstore.repair(path, in_place=True).damaged == str(tmp_path / "s.damaged")
    assert listing(tmp_path) == ["s", "s.damaged"]


@pytest.mark.parametrize("what", ["folder", "store", "file", "link"])
def test_what_no_repair_has_made_is_never_removed(tmp_path, what):
    path, _, before = spoiled(tmp_path)
    other = tmp_path / ".s.repairing"
    if what == "folder":
        other.mkdir()
        (other / "mine").write_text("mine")
    elif what == "store":
        shutil.copytree(path, other)
    elif what == "file":
        other.write_text("mine")
    else:
        (tmp_path / "elsewhere").mkdir()
        other.symlink_to(tmp_path / "elsewhere")
    kept = listing(tmp_path)
    with pytest.raises(fpstore.StoreExistsError, match="no repair has made it: move it away"):
        fpstore.repair(path, in_place=True)
    assert listing(tmp_path) == kept
    assert without_lock(bytes_of(path)) == without_lock(before)


@pytest.mark.parametrize("character", ["x", "é", "指"])
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
    # The second list of what was lost is the same as the first.
    assert set(listing(tmp_path)) == {name, Path(damaged).name, Path(report.output).name, Path(report.lost_file).name}


@pytest.mark.parametrize("where", ["nowhere/lost.tsv", "folder", "file/lost.tsv"])
@pytest.mark.parametrize("options", [{}, {"in_place": True}])
def test_a_list_that_cannot_be_written_is_refused_before_anything_is_built(tmp_path, monkeypatch, where, options):
    path, _, before = spoiled(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("fpstore.building.builder.build_into", stop)
    with pytest.raises(fpstore.StorageError, match=where.split("/")[0]):
        fpstore.repair(path, lost=tmp_path / where, **options)
    assert listing(tmp_path) == ["file", "folder", "s"]
    assert without_lock(bytes_of(path)) == without_lock(before)
