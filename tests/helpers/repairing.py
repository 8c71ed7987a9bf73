"""Stores to be damaged, and a repair whose report is checked against what the store held before."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_stores import content
from speeds import slow

import fpstore

COUNT = 700
FINGERPRINTS = np.random.default_rng(21).integers(0, 2**64, COUNT, np.uint64)
MORE = np.random.default_rng(22).integers(0, 2**64, 90, np.uint64)
FINGERPRINTER = fpstore.SimHash(seed=5).describe()
GENERATION = "gen-00000001"


def ids_of(kind, start, count):
    if kind == "row":
        return None
    return (
        [f"document {start + i}" for i in range(count)]
        if kind == "string"
        else np.arange(start, start + count, dtype=np.uint64)
    )


def make(path, kind="string", changes=True, merge=False, **options):
    options = {
        "radius": 2,
        "design": "blocks-3-1",
        "block_bytes": 128,
        "fingerprinter": FINGERPRINTER,
        **options,
    }
    fpstore.build(path, FINGERPRINTS, ids_of(kind, 0, COUNT), **options).close()
    if changes:
        with fpstore.open(path, "r+") as store:
            for step in range(0, 90, 3):
                store.insert(MORE[step : step + 3], ids_of(kind, COUNT + step, 3))
                if step == 45:
                    store.delete(fingerprints=FINGERPRINTS[:4])
                    store.insert(FINGERPRINTS[3:6], ids_of(kind, 10, 3))
                if step == 60 and merge:
                    store.merge()
    return path


def bytes_of(path):
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in path.rglob("*")
        if p.is_file() and not p.name.endswith("-lock")
    }


@pytest.fixture(scope="module", params=[slow("string"), slow("row"), "merged"])
def changed(request, tmp_path_factory):
    """Return a store that was changed, and what it holds."""
    kind = "string" if request.param == "merged" else request.param
    path = make(tmp_path_factory.mktemp("good") / "s", kind, merge=request.param == "merged")
    return path, content(path)


def repaired(path, right, **options):
    """Repair a damaged store.

    Check the report against what the store held before, and return it with what is held now.
    """
    before = bytes_of(path)
    for name in (f"{path}.repaired", f"{path}.lost.tsv"):
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink(missing_ok=True)
    report = fpstore.repair(path, **options)
    assert bytes_of(path) == before
    if report.sound:
        assert (report.faults, report.losses, report.output) == ([], [], None)
        held = content(path)
        assert held == right
        return report, held
    assert report.faults
    assert report.output == f"{path}.repaired"
    held = content(report.output)
    assert (report.fingerprints, report.ids) == (len({f for f, _ in held}), len(held))
    rows = lost_rows(report)
    if report.complete:
        assert held == right
        assert rows == []
        return report, held
    losses = " ".join(report.losses)
    if "log record" not in losses and "the log:" not in losses:
        assert held <= right
        lost = {
            int(fingerprint, 16)
            for what, fingerprint, _ in rows
            if what in ("fingerprint", "ids", "name")
        }
        missing = {f for f, _ in right - held}
        unknown = re.search(r"(\d+) of \d+ fingerprints of the tables", losses)
        assert len(missing - lost) <= (int(unknown[1]) if unknown else 0)
        gone = {int(fingerprint, 16) for what, fingerprint, _ in rows if what == "fingerprint"}
        assert not gone & {f for f, _ in held}
        if unknown is None and held != right:
            assert f"the store held {len(right)} ids, the new one has {len(held)}" in report.losses
    return report, held


def lost_rows(report):
    """Return (what, fingerprint, id) of each row in the list of what a repair lost."""
    lines = Path(report.lost_file).read_text().splitlines() if report.lost_file else []
    return [tuple(line.split("\t")) for line in lines]


def damaged(good, tmp_path):
    path = tmp_path / "s"
    if path.exists():
        shutil.rmtree(path)
    shutil.copytree(good, path)
    return path


def files_of(path):
    return sorted(name for name in bytes_of(path) if name != "writer.lock")


def flip(file, at, bit=0):
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def current(path):
    return sorted(p.name for p in path.glob("gen-*"))[-1]


def damage_block(file, block):
    flip(file, 4096 + 128 * block + 40)
