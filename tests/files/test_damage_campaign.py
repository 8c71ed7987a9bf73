"""Some cases of tools/damage, which goes on for as long as it is told: what is damaged is refused or right, and repaired."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DAMAGE = Path(__file__).parents[2] / "tools" / "damage"


def campaign(tmp_path, *options):
    """Run it, and return its report."""
    done = subprocess.run(
        [sys.executable, "-P", DAMAGE, "--folder", tmp_path, *map(str, options)], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    return done.returncode, json.loads(done.stdout)


def check(code, report, cases):
    assert report["faults"] == []
    assert (code, report["cases with faults"], report["cases"]) == (0, 0, cases)
    assert set(report["by"]["damage"]["nothing"]) == {"right"}


def test_some_damages(tmp_path):
    """An hour of it has the large stores too; here are those that are quick."""
    code, report = campaign(tmp_path, "--cases", 24, "--stores", "rows,strings,inserts", "--seed", 4)
    check(code, report, 24)
    counts = report["by"]["file"]
    assert sum(count.get("refused", 0) for count in counts.values()) > 6
    assert sum(report["repair"]["table"].get(what, 0) for what in ("complete", "sound")) > 1


def test_a_case_follows_from_its_number(tmp_path):
    one, again = (campaign(tmp_path, "--case", 7, "--stores", "rows", "--seed", 4)[1] for _ in range(2))
    assert {key: one[key] for key in ("store", "file", "damage")} == {key: again[key] for key in ("store", "file", "damage")}
    assert [said[0] for said in one["outcomes"].values()] == [said[0] for said in again["outcomes"].values()]


def test_some_forgeries(tmp_path):
    """Any field of a metadata record may have any value, under checksums that are right."""
    code, report = campaign(tmp_path, "--forge", "--cases", 60, "--stores", "indexed integers,inserts,copies", "--seed", 6)
    assert (report["faults"], code, report["cases"]) == ([], 0, 60)
    kinds = {"manifest", "log", "table", "filter", "id", "strings", "pages"}
    assert {kind.split()[0] for kind in report["by"]["damage"]} == kinds
    assert sum(count.get("refused", 0) for count in report["by"]["file"].values()) > 30


@pytest.mark.slow
def test_many_forgeries(tmp_path):
    code, report = campaign(tmp_path, "--forge", "--cases", 1000, "--seconds", 3600, "--seed", 7)
    assert (report["faults"], code, report["cases"]) == ([], 0, 1000)


@pytest.mark.slow
def test_many_damages(tmp_path):
    check(*campaign(tmp_path, "--cases", 1000, "--seconds", 3600, "--seed", 5), 1000)
