"""A writer and readers that check each of its answers, for about a minute; tools/soak goes on for as long as it is told."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parent.parent / "tools" / "soak"


def soak(tmp_path, *options):
    """Run it, and return its report."""
    done = subprocess.run([sys.executable, "-P", SOAK, "--folder", tmp_path, *map(str, options)], capture_output=True, text=True)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert (report["ok"], report["faults"], done.returncode) == (True, [], 0)
    assert list(tmp_path.iterdir()) == []
    return report


@pytest.mark.slow
@pytest.mark.parametrize("ids", [[], ["--strings"]], ids=["integers", "strings"])
def test_a_writer_and_readers_for_a_while(tmp_path, ids):
    report = soak(tmp_path, "--seconds", 30, *ids)
    assert report["changes"] > 100
    assert report["merges"] >= 2
    assert report["answers"] > 500
    assert report["readers killed"] >= 5
