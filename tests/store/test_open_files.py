"""Each operation reports that no more files may be opened, and works once they may."""

import errno
import os
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
from building import run_python
from speeds import slow

import fpstore
from fpstore.care.repair import RepairReport
from fpstore.disk.refusals import refusal_error

# Each attempt runs in a process of its own, which may open one file more than the attempt before.
SWEEP = """
    import os, resource, shutil, sys
    from pathlib import Path
    import numpy as np
    import fpstore

    name, stores, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    path, other, damaged = folder / "s", stores / "other", stores / "damaged"
    fingerprints = np.random.default_rng(1).integers(0, 2**64, 500, np.uint64)
    queries = fingerprints[:50]

    def use(work, mode="r"):
        with fpstore.open(path, mode) as store:
            return work(store)

    def repair():
        shutil.rmtree(folder / "repaired", ignore_errors=True)
        report = fpstore.repair(damaged, folder / "repaired", lost=folder / "lost")
        assert report.complete and not report.sound

    def repair_sound():
        assert not fpstore.repair(path, folder / "repaired").faults

    operation = {
        "probe": lambda: use(lambda store: store.probe_many(queries, threads=2).read_ids()),
        "insert": lambda: use(lambda store: store.insert([1], ["one"]), "r+"),
        "merge": lambda: use(lambda store: store.merge(threads=2), "r+"),
        "redesign": lambda: use(lambda store: store.redesign("flip-2", memory="64MiB"), "r+"),
        "join": lambda: use(lambda store: store.absorb(other, threads=1), "r+"),
        "build": lambda: fpstore.build(folder / "new", fingerprints, overwrite=True).close(),
        "backup": lambda: use(lambda store: store.backup(folder / "backup", overwrite=True)),
        "split": lambda: use(lambda store: store.split(folder / "parts", 1, overwrite=True)),
        "verify": lambda: use(lambda store: print(end=str(store.verify().faults or ""))),
        "repair": repair,
        "repair_sound": repair_sound,
    }[name]

    def attempt(more):
        # The limit is of numbers, and the numbers of open files have gaps.
        free = [os.dup(2) for _ in range(more + 1)]
        for number in free:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], HARD))
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
    operation()  # all modules are imported now
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


QUICK = ("insert", "build", "backup", "repair")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("operation", "step"),
    [
        *((name, 20) for name in QUICK),
        *(
            slow(name, 1)
            for name in (
                *QUICK,
                "probe",
                "verify",
                "repair_sound",
                "merge",
                "redesign",
                "join",
                "split",
            )
        ),
    ],
)
def test_no_more_open_files(stores, tmp_path, operation, step):
    code, out, err = run_python(SWEEP, operation, stores, tmp_path, step)
    assert (code, err) == (0, ""), err
    assert int(out) > 5 // step


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
    stores.pop().close()
    found = [store.probe(next(iter(stores[0].scan([5], 40)))[0].fingerprint) for store in stores]
    assert all(matches == found[0] for matches in found)
    for store in stores:
        store.close()
    fpstore.open(sys.argv[1]).close()
    print(len(stores))
"""


@pytest.mark.full
def test_stores_opened_until_the_limit(stores):
    """Those that are open go on, and closing them makes room."""
    code, out, err = run_python(MANY, stores / "s")
    assert (code, err) == (0, ""), err
    assert int(out) >= 3


@pytest.mark.full
def test_the_command_line_says_it_in_one_line(stores, tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fpstore", "backup", stores / "s", "new"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14)),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "ulimit -n" in done.stderr


def is_noted(error):
    """Return whether a repair notes an error as damage and goes on."""
    report = RepairReport()
    try:
        report.note(error)
    except type(error):
        return False
    return [fault["message"] for fault in report.faults] == [str(error)]


def test_what_is_damage_and_what_is_this_process():
    # neither this process's nor the whole system's limit is damage
    for number in (errno.EMFILE, errno.ENFILE):
        error = refusal_error(
            "store", OSError(number, os.strerror(number)), "; nothing was changed"
        )
        assert re.fullmatch(
            f"store: {os.strerror(number)}: close other stores.*; nothing was changed", str(error)
        )
        assert (error.errno, is_noted(error)) == (number, False)
    assert is_noted(refusal_error("store", OSError(errno.EACCES, os.strerror(errno.EACCES))))
    assert is_noted(fpstore.CorruptStoreError("store: damaged"))
    assert is_noted(fpstore.StoreNotFoundError("store: missing"))
    assert not is_noted(fpstore.MemoryLimitError("store: no memory"))
    assert not is_noted(fpstore.ClosedStoreError("store: closed"))
    assert str(refusal_error("store", OSError("no number"))) == "store: no number"
