"""tools/sweep finds wrong answers and crashes, and says how to see them again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def sweep(*options, faults=None, folder=None):
    """Run it, with a fault in the package of its processes; return its exit status, report and reproduction."""
    environment = dict(os.environ)
    if faults is not None:
        (folder / "sitecustomize.py").write_text(
            f"import os\nfrom fpstore.query.snapshot import Snapshot\n{faults}\n", encoding="utf-8"
        )
        environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, "-P", TOOLS / "sweep", "--folder", folder, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    report, end = json.JSONDecoder().raw_decode(done.stdout)
    assert [path.name for path in folder.iterdir() if path.name.startswith("fpstore-sweep")] == []
    return done.returncode, report, done.stdout[end:]


def test_a_case_is_drawn_from_its_seed_and_number(tmp_path):
    status, report, rest = sweep("--seed", 3, "--case", 5, folder=tmp_path)
    assert (status, report["ok"], report["cases"], rest.strip()) == (0, True, 1, "")
    assert report["answers"] > 1000
    assert sweep("--seed", 3, "--case", 5, folder=tmp_path)[1]["answers"] == report["answers"]


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        pytest.param("Snapshot.has = lambda self, value: True", "in store", marks=pytest.mark.slow),
        ("Snapshot.scan_columns = lambda self, queries, radius, threads: self.probe_columns(queries, 0, threads)", "scan("),
        ("Snapshot.probe = lambda self, value, radius: os.abort()", "ended by signal 6 (SIGABRT)"),
        pytest.param("Snapshot.ids_of_one = lambda self, value: os._exit(3)", "ended with status 3", marks=pytest.mark.slow),
        ("import fpstore.jobs.joining as j; j.pairs_within = lambda *_: iter(())", "pairs("),
        pytest.param("import fpstore.jobs.joining as k; k.connected = lambda rows, *_: rows", "sets", marks=pytest.mark.slow),
        pytest.param(
            "import fpstore.jobs.dedup as d; d.kept_of = lambda corpus, kept: corpus.kept(kept | True)",
            "dedup",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["wrong", "missing", "abort", "exit", "pairs", "sets", "dedup"],
)
def test_a_fault_of_the_package_is_found_and_told(tmp_path, faults, words):
    status, report, rest = sweep("--seed", 1, "--case", 15, faults=faults, folder=tmp_path)
    assert (status, report["ok"], report["case"]) == (1, False, 15)
    assert words in report["fault"] + report["doing"]
    assert "python tools/sweep --seed 1 --case 15" in rest
    # The lines that show it again are Python, and run: without the fault, without an error.
    environment = {**os.environ, "PYTHONPATH": str(TOOLS), "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-P", "-c", rest], check=True, env=environment)
