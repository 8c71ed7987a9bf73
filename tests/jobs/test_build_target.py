"""Where a store is built: stores, files, links and folders that are there already."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from building import build, listing

import fpstore
from fpstore.building import target as target_module
from fpstore.building.target import Target, sorting_folder
from fpstore.disk.locks import LOCK_FILE


def test_an_existing_store_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "s"
    build(path, [1, 2, 3])
    with pytest.raises(fpstore.StoreExistsError, match="overwrite=True"):
        fpstore.build(path, [4])
    with fpstore.open(path) as old:
        assert 1 in old
        with fpstore.build(path, [4, 5], overwrite=True) as new:
            assert (len(new), 4 in new, 1 in new) == (2, True, False)
            assert old.probe(1, 0)[0].ids == [0]  # still the whole old store
            assert old.verify().ok
            assert new.verify().ok
    assert listing(tmp_path) == ["s"]
    assert listing(path) == ["gen-00000001", "manifest.json", "writer.lock"]


@pytest.mark.parametrize("what", ["file", "folder", "full folder", "dangling link"])
def test_what_is_no_store_is_never_replaced(tmp_path, what):
    path = tmp_path / "s"
    if what == "file":
        path.write_text("precious")
    elif what == "dangling link":
        path.symlink_to("nowhere")
    else:
        path.mkdir()
        if what == "full folder":
            (path / "precious").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(fpstore.StoreExistsError, match="exists"):
            fpstore.build(path, [1], overwrite=overwrite)
    assert listing(tmp_path) == ["s"]
    assert path.is_symlink() == (what == "dangling link")


def test_overwrite_through_a_link_replaces_the_store_it_names(tmp_path):
    (tmp_path / "real").mkdir()
    build(tmp_path / "real" / "store", [1])
    (tmp_path / "link").symlink_to("real/store")
    with fpstore.build(tmp_path / "link", [2], overwrite=True) as store:
        assert 2 in store
    assert (tmp_path / "link").is_symlink()
    with fpstore.open(tmp_path / "real" / "store") as store:
        assert (1 in store, 2 in store) == (False, True)
    assert listing(tmp_path) == ["link", "real"]
    assert listing(tmp_path / "real") == ["store"]


def test_missing_parents_and_odd_names(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("missing/s", "file/s"):
        with pytest.raises(fpstore.StorageError, match="no such folder"):
            fpstore.build(tmp_path / name, [1])
        assert listing(tmp_path) == ["file"]
    names = ["a b", "*", "[x]", "Grüße", ".hidden", "x" * 200]
    for name in names:
        build(tmp_path / name, [1], overwrite=True)  # which needs no store
        build(tmp_path / name, [2], overwrite=True)
    assert listing(tmp_path) == sorted([*names, "file"])


def test_a_read_only_parent(tmp_path, with_mode):
    parent = tmp_path / "parent"
    parent.mkdir()
    build(parent / "old", [1])
    with with_mode(parent, 0o555):
        for name in ("new", "old"):
            with pytest.raises(fpstore.StorageError, match=f"{name}: cannot write beside it"):
                fpstore.build(parent / name, [1], overwrite=True)
    assert listing(parent) == ["old"]


@pytest.mark.parametrize(
    "when", ["before it is opened", "before it is locked", "while it is locked"]
)
def test_a_new_folder_that_another_builder_takes_for_abandoned(tmp_path, monkeypatch, when):
    """Between its making and its lock nothing tells a new folder from an abandoned one.

    Then another is made.
    """
    flock, real_open = fcntl.flock, os.open
    taken = {}

    def take(folder):
        if not taken:
            other = taken[folder] = real_open(folder, os.O_RDONLY)
            flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if when != "while it is locked":
                folder.rmdir()
                os.close(other)

    def opened(path, *args, **options):
        if when == "before it is opened" and ".s.tmp-" in str(path):
            take(Path(path))
        return real_open(path, *args, **options)

    def locked(descriptor, operation):
        if when != "before it is opened":
            take(Path(f"/proc/self/fd/{descriptor}").readlink())
        flock(descriptor, operation)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(fcntl, "flock", locked)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with Target(tmp_path / "s", False) as folder:
        (other,) = taken.values()
        assert folder not in taken
        assert folder.is_dir()
    if when == "while it is locked":
        os.close(other)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [name for name in listing(tmp_path) if tmp_path / name not in taken] == ["s"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_store_is_durable_before_it_is_named_and_then_its_name(tmp_path, monkeypatch, overwrite):
    """Files are synced as they are put in place, then each folder, and the parent last."""
    path = tmp_path / "s"
    if overwrite:
        build(path, [1])
    synced, at_publication = {}, []
    fsync, publish = os.fsync, Path.rename if not overwrite else target_module.exchange

    def state(status):
        return (status.st_ino, status.st_size, status.st_mtime_ns)

    def noted_fsync(descriptor):
        fsync(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = state(status)

    def noted_publish(source, target):
        assert target == path
        # it has no content
        at_publication.extend([source, *(p for p in source.rglob("*") if p.name != LOCK_FILE)])
        states = {p: state(p.stat()) for p in at_publication}
        assert {p: synced.get(p.stat().st_ino) for p in at_publication} == states
        synced.clear()
        return publish(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    if overwrite:
        monkeypatch.setattr(target_module, "exchange", noted_publish)
    else:
        monkeypatch.setattr(Path, "rename", noted_publish)
    fpstore.build(path, [1, 2, 3], ["a", "b", "c"], design="manku-4", overwrite=overwrite).close()
    tables = [f"table-00{i}.fpt" for i in range(4)]
    files = [
        "gen-00000001",
        "hashes.fpt",
        "log",
        "manifest.json",
        "places.fpt",
        *LMDB_FILES,
        *tables,
    ]
    assert sorted(p.name for p in at_publication[1:]) == sorted(files)
    assert list(synced) == [tmp_path.stat().st_ino]


LMDB_FILES = ["ids.mdb", "strings.mdb", "numbers.mdb", "places.mdb"]


def test_what_cannot_be_made_durable_is_no_store(tmp_path, monkeypatch):
    fsync, failed = os.fsync, []

    def failing(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == failed[-1]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    others = ["hashes.fpt", "places.fpt", "log", "manifest.json.tmp", "gen-00000001"]
    for name in ("table-000.fpt", "table-003.fpt", *LMDB_FILES, *others):
        failed.append(name)
        with pytest.raises(fpstore.StorageError, match="Input/output error"):
            fpstore.build(tmp_path / "s", [1, 2, 3], ["a", "b", "c"], design="manku-4")
        assert listing(tmp_path) == [], name


def test_sort_is_not_taken_for_abandoned_by_a_build_of_its_store(tmp_path):
    with sorting_folder(tmp_path / "s") as folder:
        build(tmp_path / "s", [1, 2, 3])
        assert folder.is_dir()
    assert [entry.name for entry in tmp_path.iterdir()] == ["s"]
