"""Something else in place of a file of a store.

An error that says so, never a wait, and repair takes what is left.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket

import pytest
from commandline import run
from repairing import content, files_of, make
from speeds import crossed

import fpstore
from fpstore.disk.files import open_folder
from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.manifest import set_merge_error
from fpstore.format.mapping import PLACES_FILES

FILES = [
    "manifest.json",
    *(
        f"gen-00000001/{name}"
        for name in ("table-000.fpt", "table-001.fpt", "ids.mdb", "log", *DICTIONARY_FILES)
    ),
]
WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = make(tmp_path_factory.mktemp("good") / "s")
    assert set(FILES) < set(files_of(path))
    return path, content(path)


def put(file, what):
    file.unlink()
    if what == "folder":
        file.mkdir()
    elif what == "loop":
        file.symlink_to(file.name)
    elif what == "nowhere":
        file.symlink_to("nothing")
    elif what == "pipe":
        os.mkfifo(file)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(file.parent):
            made.bind(file.name)


@pytest.fixture(autouse=True)
def no_wait():
    """End a test run that waits, instead of holding it up."""
    signal.alarm(WAIT_SECONDS)
    yield
    signal.alarm(0)


@pytest.mark.parametrize(
    ("name", "what"), crossed(FILES, ["missing", "folder", "loop", "nowhere", "pipe", "socket"])
)
def test_something_else_in_place_of_a_file(good, tmp_path, name, what):
    path, right = good
    copy = shutil.copytree(path, tmp_path / "s")
    put(copy / name, what)
    for mode in ("r", "r+"):
        with pytest.raises(
            (fpstore.CorruptStoreError, fpstore.StoreNotFoundError), match=name.split("/")[-1]
        ):
            fpstore.open(copy, mode)
    result = run("verify", copy, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert not report["ok"]
    assert name.split("/")[-1] in report["faults"][0]["message"]
    repaired = fpstore.repair(copy)
    if name not in ("gen-00000001/log", "gen-00000001/ids.mdb", "gen-00000001/strings.mdb"):
        assert repaired.complete or name == "manifest.json"
        assert content(repaired.output) == right
    else:
        assert not repaired.complete
    fpstore.repair(copy, in_place=True)
    assert content(copy) is not None


def test_a_pipe_in_place_of_the_lock(good, tmp_path):
    path, right = good
    copy = shutil.copytree(path, tmp_path / "s")
    put(copy / "writer.lock", "pipe")
    assert content(copy) == right
    assert fpstore.repair(copy).sound
    # a lock is taken on a pipe too; what matters is that nothing waits
    with contextlib.suppress(fpstore.FpstoreError):
        fpstore.open(copy, "r+").close()


# --- Links ----------------------------------------------------------------------------------------

READ = [
    "manifest.json",
    "gen-00000001",
    *(f"gen-00000001/{name}" for name in (*map(os.path.basename, FILES[1:]), *PLACES_FILES)),
]
WRITTEN = [
    "writer.lock",
    "merge.error",
    "manifest.json.tmp",
    "gen-00000002",
    "gen-00000002.tmp",
    "gen-00000002.joined",
    "gen-00000009",
]
SECRET = "what nobody may read through a link"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a store that is changed in no time, and another one to be joined to it."""
    folder = tmp_path_factory.mktemp("small")
    for name, first in (("s", 1), ("other", 900)):
        options = {
            "design": "blocks-2-1",
            "radius": 1,
            "block_bytes": 128,
            "fingerprinter": fpstore.SimHash(),
        }
        fpstore.build(
            folder / name,
            range(first, first + 40),
            [f"{name} {i}" for i in range(40)],
            threads=1,
            **options,
        ).close()
        with fpstore.open(folder / name, "r+") as store:
            store.insert([first + 70], [f"{name} more"])
    assert {*READ, "writer.lock"} <= {
        str(path.relative_to(folder / "s")) for path in (folder / "s").rglob("*")
    }
    return folder


def link(store, name, victims, what):
    """Put a link in place of a name of the format, to a copy of what was there, or to a folder.

    Return what it leads to.
    """
    place, victim = store / name, victims / "victim"
    victims.mkdir()
    if what == "folder" and not (store / name).is_dir():
        victim.mkdir()
        (victim / "log").write_text(SECRET)
    elif place.exists() and place.stat().st_size:
        shutil.move(place, victim)
    else:
        victim.write_text(SECRET)
    if place.exists():
        place.unlink()
    place.symlink_to(victim)
    return victim


def read_all(path, other):
    with fpstore.open(path) as store:
        store.probe(3)
        list(store.items())
        assert SECRET not in repr(store.stats())
        assert store.verify().ok
    assert run("report", path, "-o", path.with_name("report.html")).exit_code == 0


def write_all(path, other):
    with fpstore.open(path, "r+") as store:
        store.insert([5000], ["new"])
        store.merge(threads=1)
        store.delete(fingerprints=[5000])
        store.absorb(other, threads=1)


def fail_to_merge(path, other):
    with fpstore.open(path, "r+") as store:
        folder = open_folder(path)
        set_merge_error(folder, "the disk is full")
        os.close(folder)
        assert SECRET not in repr(store.stats())


def back_up(path, other):
    with fpstore.open(path) as store:
        store.backup(path.with_name("backup"))


USES = {
    "read": read_all,
    "write": write_all,
    "fail to merge": fail_to_merge,
    "back up": back_up,
    "replace": lambda path, other: fpstore.build(path, [1, 2], overwrite=True).close(),
    "repair": lambda path, other: fpstore.repair(path),
    "repair in place": lambda path, other: fpstore.repair(path, in_place=True),
}


def state(folder):
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.is_file() else None,
            path.lstat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("use", "what"), crossed(list(USES), ["file", "folder"]))
def test_a_link_is_never_followed(small, tmp_path, use, what):
    """Not at any name of the format.

    Nothing outside the store is read or changed, and what is refused is said.
    """
    for number, name in enumerate([*READ, *WRITTEN]):
        folder = tmp_path / str(number)
        path = shutil.copytree(small / "s", folder / "s")
        link(path, name, folder / "outside", what)
        before = state(folder / "outside")
        refused = None
        try:
            USES[use](path, small / "other")
        except fpstore.FpstoreError as error:
            refused = str(error)
            assert "\n" not in refused
        assert state(folder / "outside") == before, (name, refused)
        if name == "writer.lock":
            assert (refused or "").endswith("remove it") == (
                use in ("write", "fail to merge", "repair in place")
            ), refused
        elif name in WRITTEN:
            assert refused is None, (name, refused)
        elif use in ("read", "write", "fail to merge", "back up"):
            assert re.search(
                "not a (regular file|folder)|manifest.json is missing", refused or ""
            ), (name, refused)
        shutil.rmtree(folder)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_stray_file_or_folder_at_a_name_of_the_writer(small, tmp_path, what):
    """What a writer may remove it removes.

    That nobody may know why the last merge failed is said.
    """
    for number, name in enumerate(WRITTEN[1:]):
        path = shutil.copytree(small / "s", tmp_path / str(number) / "s")
        if what == "folder":
            (path / name).mkdir()
            (path / name / "more").write_text("more")
        else:
            (path / name).write_text("more")
        read_all(path, None)
        write_all(path, small / "other")
        stays = (name, what) == ("merge.error", "folder")
        assert (path / name).exists() == stays, name
        with fpstore.open(path) as store:
            assert (
                "merge.error is not a regular file: remove it"
                in (store.stats()["merge_error"] or "")
            ) == stays


def test_a_hard_link_is_neither_written_nor_shown(small, tmp_path):
    """An archive can hold hard links.

    `writer.lock` and `merge.error` were other names of files elsewhere.
    """
    path = shutil.copytree(small / "s", tmp_path / "s")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("writer.lock", "merge.error"):
        (path / name).unlink(missing_ok=True)
        os.link(victim, path / name)
    with fpstore.open(path, "r+") as store:
        assert store.stats()["merge_error"] == "unknown: merge.error is a hard link: remove it"
        store.merge()
    assert victim.read_text() == "precious"
