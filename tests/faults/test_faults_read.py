"""Files that become shorter while a store is open, and places that the disk cannot read.

Told, whatever the process maps.
"""

import shutil

import numpy as np
import pytest
from care_script import CARE_SCRIPT, run_script
from speeds import slow

import fpstore
from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.manifest import MANIFEST_FILE

COUNT = 3000
FINGERPRINTS = np.random.default_rng(41).integers(0, 2**64, COUNT, np.uint64)
STRINGS = [f"document {i}" for i in range(COUNT)]
FILES = [*(f"table-00{i}.fpt" for i in range(3)), "ids.mdb", *DICTIONARY_FILES, "manifest.json"]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return a store with strings, a journal, and a dictionary of its own."""
    path = tmp_path_factory.mktemp("good") / "s"
    fpstore.build(
        path, FINGERPRINTS[:2000], STRINGS[:2000], radius=2, design="blocks-3-1", block_bytes=128
    ).close()
    with fpstore.open(path, "r+") as store:
        store.insert(FINGERPRINTS[2000:2990], STRINGS[2000:2990])
        store.merge()
        store.insert(FINGERPRINTS[2990:], STRINGS[2990:])
    return path


@pytest.fixture
def copy(good, tmp_path):
    return shutil.copytree(good, tmp_path / "s")


def file_of(path, name):
    return path / name if name == MANIFEST_FILE else path / "gen-00000002" / name


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "share"),
    [("table-000.fpt", 2), ("ids.mdb", 0), ("strings.mdb", 2), *(slow(name, 2) for name in FILES)],
)
def test_a_file_truncated_under_an_open_store(copy, name, share):
    file = file_of(copy, name)
    answers = run_script(CARE_SCRIPT, copy, file, file.stat().st_size * share // 4 // 4096 * 4096)
    assert any(str(file) in fault for fault in answers["verify"]), answers["verify"]
    if name != MANIFEST_FILE:  # which a backup writes anew
        assert answers["backup"][0] in ("CorruptStoreError", "StorageError")
        assert str(file) in answers["backup"][1]
        assert not (copy.parent / "s.copy").exists()
    faults, losses, count = answers["repair"]
    assert any(str(file) in fault["message"] for fault in faults)
    assert count == COUNT or losses
    if name.endswith(".fpt") or name == "numbers.mdb":
        assert (count, losses) == (COUNT, [])


PLACES = [
    ("ids.mdb", "end"),
    ("log", "end"),
    *(
        slow(name, place)
        for name in ("table-000.fpt", "hashes.fpt")
        for place in ("header", "blocks", "keys", "end")
    ),
    *(
        slow(name, place)
        for name in ("ids.mdb", "strings.mdb", "numbers.mdb")
        for place in ("header", "blocks", "end")
    ),
    slow("log", "header"),
    slow("manifest.json", "header"),
]


VERIFY_AND_REPAIR = """
import contextlib, io, json, sys
import fpstore
from fpstore.cli import main
said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
    try:
        main(["verify", sys.argv[1]])
        code = 0
    except SystemExit as error:
        code = error.code
report = fpstore.repair(sys.argv[1])
print(json.dumps([code, said.getvalue(), report.faults, report.losses, report.fingerprints]))
"""


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_a_sector_that_cannot_be_read(copy, shim, name, place):
    """In the head, the middle and the tail of each file.

    What is damaged there is named; the rest is recovered.
    """
    file = file_of(copy, name)
    size = file.stat().st_size
    at = (
        {"header": 0, "blocks": 8192, "keys": size * 97 // 100, "end": size - 1}[place]
        // 4096
        * 4096
    )
    environment = {"LD_PRELOAD": str(shim), "OPENBLAS_NUM_THREADS": "1"}
    environment["FPFAULT_UNREADABLE"] = f"s/{file.relative_to(copy)}:{at}:{at + 4096}"
    code, said, faults, losses, count = run_script(VERIFY_AND_REPAIR, copy, **environment)
    assert code == 1, said
    assert str(file) in said
    assert "Traceback" not in said
    assert any(str(file) in fault["message"] for fault in faults)
    if name.endswith(".fpt") or name == "numbers.mdb":
        assert (count, losses) == (COUNT, [])
    else:
        assert count == COUNT or losses


@pytest.mark.full
def test_a_backup_names_the_place_that_cannot_be_read(copy, shim):
    file = file_of(copy, "table-001.fpt")
    environment = {"LD_PRELOAD": str(shim), "OPENBLAS_NUM_THREADS": "1"}
    environment["FPFAULT_UNREADABLE"] = "s/gen-00000002/table-001.fpt:12288:16384"
    answers = run_script(CARE_SCRIPT, copy, file, -1, **environment)
    assert answers["backup"] == [
        "CorruptStoreError",
        f"{file}: cannot be read at byte 12288 (Input/output error): run fpstore repair",
    ]
    assert not (copy.parent / "s.copy").exists()
    assert answers["repair"][1:] == [[], COUNT]
    (fault,) = [fault for fault in answers["verify"] if "cannot be read" in fault]
    assert str(file) in fault
    assert "12288" in fault
