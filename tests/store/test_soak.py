"""A writer and readers that check each of its answers, for about a minute; tools/soak goes on for as long as it is told."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fpstore
from fpstore.disk import sealed
from fpstore.store import snapshot_of

SOAK = Path(__file__).parents[2] / "tools" / "soak"


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


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("file", ["ids.mdb", "strings.mdb", "numbers.mdb"])
def test_a_generation_that_is_removed_while_it_is_opened(tmp_path, monkeypatch, file, when):
    """A reader that comes between the look and the opening of a file, or of it once more, finds the next generation."""
    path = tmp_path / "s"
    fpstore.build(path, [5], ["a"]).close()
    with fpstore.open(path, "r+") as store:
        store.insert([6], ["b"])
        store.merge()
        store.insert([7], ["c"])
    merge = "import fpstore, sys; s = fpstore.open(sys.argv[1], 'r+'); s.merge(); s.close()"
    opened, merged = sealed.open_file, []

    def open_slowly(name):
        ours = name.parts[-2:] == ("gen-00000002", file)
        if ours and when == "before":
            merged.append(subprocess.run([sys.executable, "-P", "-c", merge, path], check=True))
        descriptor = opened(name)
        if ours and when == "after":
            merged.append(subprocess.run([sys.executable, "-P", "-c", merge, path], check=True))
        return descriptor

    monkeypatch.setattr(sealed, "open_file", open_slowly)
    with fpstore.open(path) as store:
        assert {match.fingerprint: match.ids for match in store.probe(7)} == {5: ["a"], 6: ["b"], 7: ["c"]}
        assert (len(merged), snapshot_of(store).generation.folder.name) == (1, "gen-00000003")
