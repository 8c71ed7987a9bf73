"""Joining stores and repairing one take memory that does not grow with the store, under a limit of the system."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from building import run_python
from limited import LIMITED

import fpstore

BUILD = """
    import sys
    import numpy as np
    import fpstore

    path, name, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    fingerprints = np.random.default_rng([*name.encode()]).integers(0, 2**64, count, np.uint64)
    names = [f"{name}{i:0{size}}" for i in range(count)]
    fpstore.build(path, fingerprints, names, design="flip-2", memory="64MiB").close()
"""
JOIN = (
    LIMITED
    + """
    import fpstore.change.join, fpstore.design.planner
    with fpstore.open(sys.argv[1], "r+") as store:
        limit(int(sys.argv[3]))
        store.absorb(sys.argv[2], memory="64MiB", threads=1)
        print(json.dumps([len(store), store.verify().ok, "b" + "0" * 2000 in store.ids]))
"""
)
STRINGS, BYTES = 30_000, 2_000


def test_joining_many_strings_in_small_memory(tmp_path):
    """The strings of the other store, 60 MB, do not fit into what the process may have."""
    for name, count in (("a", 500), ("b", STRINGS)):
        assert run_python(BUILD, tmp_path / name, name, count, BYTES) == (0, "", "")
    code, out, err = run_python(JOIN, tmp_path / "a", tmp_path / "b", 56 << 20)
    assert (code, err) == (0, ""), err
    assert json.loads(out) == [STRINGS + 500, True, True]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["gen-00000002", "manifest.json", "writer.lock"]


# --- Repair -----------------------------------------------------------------------------------------

REPAIR = (
    LIMITED
    + """
    import fpstore.care.repair, fpstore.building.builder, fpstore.design.planner
    limit(int(sys.argv[2]))
    report = fpstore.repair(sys.argv[1], memory="64MiB", threads=1)
    print(json.dumps([report.fingerprints, report.ids, report.losses, report.lost_file]))
"""
)
ROWS = 6_000_000
REPAIR_ROOM = 150 << 20


def repaired_in_small_memory(path):
    code, out, err = run_python(REPAIR, path, REPAIR_ROOM)
    assert (code, err) == (0, ""), err
    return json.loads(out)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "s"
    fpstore.build(path, np.random.default_rng(8).integers(0, 2**64, ROWS, np.uint64), design="flip-2").close()
    return path


def copied(path, tmp_path):
    shutil.copytree(path, tmp_path / "s")
    return tmp_path / "s", tmp_path / "s" / "gen-00000001"


@pytest.mark.slow
def test_repair_of_a_store_without_its_first_table_in_small_memory(many, tmp_path):
    """All fingerprints come from another table, in its order, and are sorted."""
    path, generation = copied(many, tmp_path)
    (generation / "table-000.fpt").unlink()
    assert repaired_in_small_memory(path) == [ROWS, ROWS, [], None]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "s.repaired"]


@pytest.mark.slow
def test_repair_of_a_store_without_its_ids_in_small_memory(many, tmp_path):
    """Every fingerprint is lost, and listed, and so is every row."""
    path, generation = copied(many, tmp_path)
    (generation / "ids.mdb").unlink()
    fingerprints, ids, losses, lost = repaired_in_small_memory(path)
    assert (fingerprints, ids) == (0, 0)
    assert f"{ROWS:,} fingerprints with no id left, and so not in the new store" in losses
    with Path(lost).open() as file:
        assert sum(1 for _ in file) == 2 * ROWS
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "s.lost.tsv", "s.repaired"]
