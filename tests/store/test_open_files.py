"""When a process may open no more files, each operation says so and what to do, and works once it may again."""

import errno
import os
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
from building import run_python

import fpstore
from fpstore.care.repair import RepairReport
from fpstore.care.reports import is_damage
from fpstore.change import merge as merging
from fpstore.disk.refusals import refused
from fpstore.format.manifest import publish_manifest

# Each attempt runs in a process of its own, which may open one file more than the attempt before.
SWEEP = """
    import os, resource, shutil, sys
    from pathlib import Path
    import numpy as np
    import fpstore

    name, stores, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    path, other, damaged = folder / "s", stores / "other", stores / "damaged"
    fingerprints = np.random.default_rng(1).integers(0, 2**64, 500, np.uint64)

    def opened(mode="r"):
        return fpstore.open(path, mode)

    def probe():
        with opened() as store:
            store.probe_many(fingerprints[:50], threads=2).read_ids()

    def insert():
        with opened("r+") as store:
            store.insert([1], ["one"])

    def merge():
        with opened("r+") as store:
            store.merge(threads=2)

    def redesign():
        with opened("r+") as store:
            store.redesign("flip-2", memory="64MiB")

    def join():
        with opened("r+") as store:
            store.absorb(other, threads=1)

    def build():
        fpstore.build(folder / "new", fingerprints, overwrite=True).close()

    def backup():
        with opened() as store:
            store.backup(folder / "backup", overwrite=True)

    def verify():
        with opened() as store:
            report = store.verify()
            assert report.ok, report.faults

    def split():
        with opened() as store:
            store.split(folder / "parts", 1, overwrite=True)

    def repair():
        shutil.rmtree(folder / "repaired", ignore_errors=True)
        report = fpstore.repair(damaged, folder / "repaired", lost=folder / "lost")
        assert report.complete and not report.sound

    def repair_sound():
        report = fpstore.repair(path, folder / "repaired")
        assert report.sound, report.faults

    def attempt(more):
        operation = globals()[name]
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1 + more, HARD))
        try:
            operation()
            return 0
        except fpstore.StorageError as error:
            assert "ulimit -n" in str(error), error
            assert "\\n" not in str(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, (HARD, HARD))
        operation()
        return 3

    def fresh():
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(stores / "s", path)

    fresh()
    globals()[name]()  # all modules are imported now
    HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    refusals = 0
    for more in range(0, 400, int(sys.argv[4])):
        fresh()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = attempt(more)
            except BaseException:
                import traceback
                resource.setrlimit(resource.RLIMIT_NOFILE, (HARD, HARD))
                traceback.print_exc()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 3), f"{status} with {more} more open files"
        refusals += status == 3
        if status == 0:
            break
    print(refusals)
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(1)
    fingerprints = rng.integers(0, 2**64, 500, np.uint64)
    names = [f"document {i}" for i in range(500)]
    for name in ("s", "other", "damaged"):
        path = folder / name
        fpstore.build(path, fingerprints, names, design="manku-4").close()
        with fpstore.open(path, "r+") as store:
            store.insert(fingerprints[:5] ^ np.uint64(1), ["more"] * 5)
            store.merge()
            store.insert(fingerprints[:5] ^ np.uint64(2), ["most"] * 5)
    with next((folder / "damaged").glob("gen-*/table-001.fpt")).open("r+b") as file:
        file.seek(4200)
        file.write(b"damaged")
    return folder


QUICK = ("probe", "insert", "build", "backup", "verify", "repair", "repair_sound")


@pytest.mark.parametrize(
    ("operation", "step"),
    [
        *((name, 9) for name in QUICK),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in (*QUICK, "merge", "redesign", "join", "split")),
    ],
)
def test_no_more_open_files(stores, tmp_path, operation, step):
    code, out, err = run_python(SWEEP, operation, stores, tmp_path, step)
    assert (code, err) == (0, ""), err
    assert int(out) > 5 // step


def test_no_more_open_files_when_the_new_generation_is_in_place(stores, tmp_path, monkeypatch):
    """The last sync of a merge opens folders too; the error did not say what to do."""
    path = shutil.copytree(stores / "s", tmp_path / "s")

    def refuse(*arguments):
        publish_manifest(*arguments)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with fpstore.open(path, "r+") as store:
        monkeypatch.setattr(merging, "publish_manifest", refuse)
        with pytest.raises(fpstore.StorageError, match=r"ulimit -n\); the new generation is in place"):
            store.merge(threads=1)
        assert store.stats()["delta"]["changes"] == 0


MANY = """
    import resource, sys
    import fpstore

    resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
    stores = []
    try:
        while True:
            stores.append(fpstore.open(sys.argv[1]))
    except fpstore.StorageError as error:
        assert "ulimit -n" in str(error), error
    found = [store.probe(next(iter(stores[0].scan([5], 40)))[0].fingerprint) for store in stores]
    assert all(matches == found[0] for matches in found)
    for store in stores:
        store.close()
    fpstore.open(sys.argv[1]).close()
    print(len(stores))
"""


def test_stores_opened_until_the_limit(stores):
    """Those that are open go on, and closing them makes room."""
    code, out, err = run_python(MANY, stores / "s")
    assert (code, err) == (0, ""), err
    assert int(out) >= 4


@pytest.mark.parametrize("verb", [["stats"], ["backup", "new"], ["merge"]])
def test_the_command_line_says_it_in_one_line(stores, tmp_path, verb):
    command, *arguments = verb
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fpstore", command, stores / "s", *arguments],
        capture_output=True, text=True, cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "ulimit -n" in done.stderr


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_no_damage(number):
    """Neither this process's nor the whole system's: verify and repair stop, and do not call the store damaged."""
    error = refused("store", OSError(number, os.strerror(number)), "; nothing was changed")
    assert str(error).startswith(f"store: {os.strerror(number)}: close other stores")
    assert str(error).endswith("; nothing was changed")
    assert error.errno == number
    assert not is_damage(error)


def test_what_is_damage_and_what_is_this_process():
    assert is_damage(refused("store", OSError(errno.EACCES, os.strerror(errno.EACCES))))
    assert is_damage(fpstore.CorruptStoreError("store: damaged"))
    assert is_damage(fpstore.StoreNotFoundError("store: missing"))
    with pytest.raises(fpstore.MemoryLimitError):  # no fault of the store to be reported and passed over
        RepairReport().note(fpstore.MemoryLimitError("store: no memory"))
    assert not is_damage(fpstore.MemoryLimitError("store: no memory"))
    assert not is_damage(fpstore.ClosedStoreError("store: closed"))
    assert str(refused("store", OSError("no number"))) == "store: no number"
