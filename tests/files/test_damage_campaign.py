"""Some cases of tools/damage and tools/kills, which go on for as long as they are told.

What is damaged is refused or right, and repaired. What a killed writer has acknowledged is there.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from speeds import slow

TOOLS = Path(__file__).parents[2] / "tools"


def campaign(tmp_path, *options, tool="damage"):
    """Run it, and return its report."""
    done = subprocess.run(
        [sys.executable, "-P", TOOLS / tool, "--folder", tmp_path, *map(str, options)],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    return done.returncode, json.loads(done.stdout)


@pytest.mark.full
@pytest.mark.parametrize(
    ("cases", "stores"),
    [(5, "rows,strings"), (10, "sharded integers,index of strings"), slow(1000, None)],
)
def test_damages(tmp_path, cases, stores):
    """An hour of it has the large stores too; here are some that are quick."""
    code, report = campaign(
        tmp_path,
        "--cases",
        cases,
        "--seed",
        4,
        *(["--stores", stores] if stores else ["--seconds", 3600]),
    )
    assert (report["faults"], code, report["cases with faults"], report["cases"]) == (
        [],
        0,
        0,
        cases,
    )
    assert sum(count.get("refused", 0) for count in report["by"]["file"].values()) > cases // 5
    assert sum(report["repair"]["table"].get(what, 0) for what in ("complete", "sound")) > 0


@pytest.mark.slow
def test_a_case_follows_from_its_number(tmp_path):
    single, again = (
        campaign(tmp_path, "--case", 7, "--stores", "rows", "--seed", 4)[1] for _ in range(2)
    )
    assert {key: single[key] for key in ("store", "file", "damage")} == {
        key: again[key] for key in ("store", "file", "damage")
    }
    assert [said[0] for said in single["outcomes"].values()] == [
        said[0] for said in again["outcomes"].values()
    ]


@pytest.mark.full
@pytest.mark.parametrize("cases", [6, slow(1000)])
def test_forgeries(tmp_path, cases):
    """Any field of a metadata record may have any value, under checksums that are right."""
    how = ("--stores", "indexed integers,inserts,copies") if cases < 1000 else ("--seconds", 3600)
    code, report = campaign(tmp_path, "--forge", "--cases", cases, *how, "--seed", 6)
    assert (report["faults"], code, report["cases"]) == ([], 0, cases)
    assert sum(count.get("refused", 0) for count in report["by"]["file"].values()) > cases // 3


@pytest.mark.parametrize("rounds", [6, slow(500)])
def test_kills(tmp_path, rounds):
    code, report = campaign(tmp_path, "--rounds", rounds, "--seed", 8, tool="kills")
    assert (report["faults"], code, report["rounds"]) == ([], 0, rounds)
    assert report["acknowledged changes"] > 10 * rounds
    assert all(
        sum(counts.values()) == rounds // 3 + (place < rounds % 3)
        for place, counts in enumerate(report["in flight"].values())
    )
