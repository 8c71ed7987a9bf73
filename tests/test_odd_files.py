"""Something else in place of a file of a store: an error that says so, never a wait, and repair takes what is left."""

import contextlib
import json
import os
import shutil
import signal
import socket

import pytest
from commandline import run
from repairing import content, files_of, make
from speeds import crossed

import fpstore
from fpstore.format.dictionary import DICTIONARY_FILES

FILES = [
    "manifest.json",
    *(f"gen-00000001/{name}" for name in ("table-000.fpt", "table-001.fpt", "ids.mdb", "log", *DICTIONARY_FILES)),
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


@pytest.mark.parametrize(("name", "what"), crossed(FILES, ["missing", "folder", "loop", "nowhere", "pipe", "socket"], share=5))
def test_something_else_in_place_of_a_file(good, tmp_path, name, what):
    path, right = good
    copy = shutil.copytree(path, tmp_path / "s")
    put(copy / name, what)
    for mode in ("r", "r+"):
        with pytest.raises((fpstore.CorruptStoreError, fpstore.StoreNotFoundError), match=name.split("/")[-1]):
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
    repaired = fpstore.repair(copy, in_place=True)
    assert content(copy) is not None


@pytest.mark.parametrize("what", ["missing", "pipe", "folder"])
def test_something_else_in_place_of_the_lock(good, tmp_path, what):
    path, right = good
    copy = shutil.copytree(path, tmp_path / "s")
    put(copy / "writer.lock", what)
    assert content(copy) == right
    assert fpstore.repair(copy).sound
    if what == "missing":
        fpstore.open(copy, "r+").close()
    else:
        with contextlib.suppress(fpstore.FpstoreError):  # a lock is taken on a pipe too; what matters is that nothing waits
            fpstore.open(copy, "r+").close()


def test_verify_of_what_is_not_a_store(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("nothing", "empty"):
        result = run("verify", tmp_path / name, "--json")
        assert (result.exit_code, result.stdout) == (1, "")
        assert len(result.stderr.splitlines()) == 1
