"""Backups: copies of a store in use, each of one moment, complete or not there."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from building import listing
from commandline import failure, fine
from forks import forked
from small_stores import rows_of
from speeds import slow

import fpstore
from fpstore.care import backup as backups
from fpstore.format.dictionary import NUMBERS_FILE
from fpstore.format.mapping import IDS_FILE
from fpstore.format.strings import STRINGS_FILE

RNG = np.random.default_rng(11)
FINGERPRINTS = RNG.integers(0, 2**64, 500, np.uint64)
STRINGS = [f"document {i}" for i in range(500)]


def content(path):
    """Return what a store holds, which must be sound."""
    with fpstore.open(path) as store:
        report = store.verify()
        assert report.ok, report.faults
        return (
            rows_of(store),
            len(store),
            store.radius,
            store.design,
            store.fingerprinter,
            store.stats()["id_kind"],
        )


@pytest.fixture
def path(tmp_path):
    fpstore.build(
        tmp_path / "s",
        FINGERPRINTS,
        STRINGS,
        radius=2,
        design="blocks-3-1",
        fingerprinter=fpstore.SimHash(seed=5),
    ).close()
    return tmp_path / "s"


def change(path):
    with fpstore.open(path, "r+") as store:
        store.insert([1, 2, 3], ["x", "y", "document 3"])
        store.delete(ids=["document 7", "x"])


def test_a_backup_holds_what_the_store_holds(path, tmp_path):
    """Built, changed, merged, and changed again; asked of a reader that stays open."""

    def merge():
        with fpstore.open(path, "r+") as writer:
            writer.delete(ids=STRINGS[100:200])  # so many that the dictionary is written anew
            writer.merge()

    with fpstore.open(path) as store:
        for number, step in enumerate(
            (lambda: None, lambda: change(path), merge, lambda: change(path))
        ):
            step()
            assert store.backup(tmp_path / f"b{number}") is None
            expected = rows_of(store)
            assert content(path)[0] == expected
            assert content(tmp_path / f"b{number}") == content(path)
    with fpstore.open(tmp_path / "b3", "r+") as store:
        store.insert([77], ["only in the copy"])
        store.merge()
    assert content(tmp_path / "b3")[0] != content(path)[0] == expected
    assert listing(tmp_path) == ["b0", "b1", "b2", "b3", "s"]


def test_holes_stay_holes(path, tmp_path):
    with fpstore.open(path) as store:
        store.backup(str(tmp_path / "b"))
    for name in (
        f"gen-00000001/{IDS_FILE}",
        f"gen-00000001/{STRINGS_FILE}",
        f"gen-00000001/{NUMBERS_FILE}",
    ):
        source, copy = (folder / name for folder in (path, tmp_path / "b"))
        assert source.read_bytes() == copy.read_bytes()
        assert copy.stat().st_blocks <= source.stat().st_blocks + 16
        assert copy.stat().st_blocks * 512 < copy.stat().st_size


@pytest.mark.parametrize("missing", ["copy_file_range", "SEEK_DATA"])
def test_where_the_system_cannot_copy_or_tell_holes(
    path, tmp_path, monkeypatch, set_limits, missing
):
    def refuse(*arguments):
        raise OSError(backups.errno.EXDEV, "not between these")

    monkeypatch.setattr(os, missing, refuse if missing == "copy_file_range" else 99)
    set_limits(backup_bytes=1000)
    with fpstore.open(path) as store:
        store.backup(tmp_path / "b")
    assert content(tmp_path / "b") == content(path)


def test_writer_backs_up_uncommitted_rows_and_its_child_does_not(path, tmp_path):
    new = (5, "not yet durable")
    with fpstore.open(path, "r+", sync="none") as store:
        store.insert(*([value] for value in new))
        forked(store.backup, tmp_path / "of the child")
        store.backup(tmp_path / "b")
        assert rows_of(store) == content(tmp_path / "b")[0]
    assert new in content(tmp_path / "b")[0]
    assert len(content(tmp_path / "of the child")[0]) == len(STRINGS)


def test_targets_that_are_refused(path, tmp_path):
    change(path)
    (tmp_path / "folder").mkdir()
    fpstore.build(tmp_path / "other", [1]).close()
    with fpstore.open(path) as store:
        expected = rows_of(store)
        for target in ("folder", "other", "s"):
            with pytest.raises((fpstore.StoreExistsError, fpstore.InputError)):
                store.backup(tmp_path / target)
        for target in ("s", "s/gen-00000001/b", "s/b"):
            with pytest.raises(
                fpstore.InputError, match="a backup cannot lie inside the store itself"
            ):
                store.backup(tmp_path / target, overwrite=True)
        with pytest.raises(fpstore.StoreExistsError, match="is not an fpstore store"):
            store.backup(tmp_path / "folder", overwrite=True)
        store.backup(tmp_path / "other", overwrite=True)
        assert rows_of(store) == expected == content(tmp_path / "other")[0]
    assert listing(tmp_path) == ["folder", "other", "s"]
    with pytest.raises(fpstore.ClosedStoreError):
        store.backup(tmp_path / "b")


def test_a_store_that_was_replaced_is_not_backed_up_as_another(path, tmp_path):
    with fpstore.open(path) as store:
        fpstore.build(path, [9], overwrite=True).close()
        with pytest.raises(fpstore.StorageError, match="was replaced"):
            store.backup(tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_missing_file_ends_a_backup(path, tmp_path):
    with fpstore.open(path) as store:
        (path / "gen-00000001" / "table-001.fpt").unlink()
        with pytest.raises(fpstore.StoreNotFoundError, match=r"table-001.fpt: missing"):
            store.backup(tmp_path / "b")
    assert listing(tmp_path) == ["s"]


WRITER = """
    import sys
    import numpy as np
    import fpstore

    path, ended = sys.argv[1], open(sys.argv[2], "w")
    with fpstore.open(path, "r+") as store:
        for step in range(int(sys.argv[3])):
            if step % 4 == 3:
                store.delete(ids=[f"n{step - 2}-{i}" for i in range(3)])
            else:
                fingerprints = np.arange(step * 5, step * 5 + 5, dtype=np.uint64)
                store.insert(fingerprints, [f"n{step}-{i}" for i in range(5)])
            print(step + 1, file=ended, flush=True)
            if step % 6 == 5:
                store.merge()
"""


def states(base, steps):
    """Return what the writer above has committed after each step."""
    now, results = set(base), [set(base)]
    for step in range(steps):
        if step % 4 == 3:
            now -= {((step - 2) * 5 + i, f"n{step - 2}-{i}") for i in range(3)}
        else:
            now |= {(step * 5 + i, f"n{step}-{i}") for i in range(5)}
        results.append(set(now))
    return results


@pytest.mark.parametrize(("steps", "least"), [(60, 1), slow(3000, 20)])
def test_backups_beside_a_process_that_changes_and_merges(path, tmp_path, steps, least):
    """Each copy is a state that was current between start and end of the call."""
    base = content(path)[0]
    expected = states(base, steps)
    progress = tmp_path / "progress"
    progress.touch()

    def committed():
        return int((progress.read_text().split() or ["0"])[-1])

    code = [
        sys.executable,
        "-P",
        "-c",
        textwrap.dedent(WRITER),
        str(path),
        str(progress),
        str(steps),
    ]
    generations, during = set(), 0
    with subprocess.Popen(code) as writer:
        running = True
        while running:
            running = writer.poll() is None
            before = committed()
            with fpstore.open(path) as store:
                store.backup(tmp_path / "b", overwrite=True)
            after = committed()
            held = set(content(tmp_path / "b")[0])
            assert held in expected[before : after + 2], (before, after)
            generations.add(listing(tmp_path / "b")[0])
            during += running and before < steps
        assert writer.returncode == 0
    assert held == expected[-1] == set(content(path)[0])
    assert during >= least
    assert len(generations) > 1


@pytest.mark.parametrize("old", ["removed", "still there"])
def test_a_merge_between_opening_and_copying(path, tmp_path, monkeypatch, old):
    """What is open is copied: all that was committed before, whatever follows.

    What is gone is looked for again.
    """
    change(path)
    opened = backups._open_files
    calls, before = [], []

    def then_merge(*arguments):
        if old == "still there":
            files = opened(*arguments)
        if len(calls) < 3:
            calls.append(1)
            with fpstore.open(path, "r+") as writer:
                writer.insert([len(calls)], ["merged in the middle"])
                before.append(content(path))
                writer.merge()
        return opened(*arguments) if old == "removed" else files

    with fpstore.open(path) as store:
        monkeypatch.setattr(backups, "_open_files", then_merge)
        store.backup(tmp_path / "b")
    assert content(tmp_path / "b") == (content(path) if old == "removed" else before[0])
    assert len(calls) == (3 if old == "removed" else 1)


def test_the_verb(folder):
    out = fine("backup", "crawl.fps", "b.fps")
    assert out.startswith("b.fps: 7 fingerprints, 8 ids, radius 3, ")
    assert fine("export", "b.fps") == fine("export", "crawl.fps")
    assert "b.fps exists" in failure("backup", "crawl.fps", "b.fps")
    assert fine("backup", "crawl.fps", "b.fps", "--force", "-q") == ""
    assert json.loads(fine("backup", "crawl.fps", "b.fps", "--force", "--json")) == json.loads(
        fine("stats", "b.fps", "--json")
    )
    shutil.rmtree("b.fps")
    assert "no such store" in failure("backup", "b.fps", "c.fps")
