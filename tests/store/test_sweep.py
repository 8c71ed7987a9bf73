"""tools/sweep finds wrong answers and crashes, and says how to see them again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from speeds import crossed, slow
from systemcalls import at_first_call

import fpstore

TOOLS = Path(__file__).parents[2] / "tools"


def sweep(*options, faults=None, folder=None):
    """Run it, with a fault in the package of its processes.

    Return its exit status, report and reproduction.
    """
    environment = dict(os.environ)
    if faults is not None:
        (folder / "sitecustomize.py").write_text(
            f"import os\nfrom fpstore.query.store_snapshot import StoreSnapshot\n{faults}\n",
            encoding="utf-8",
        )
        environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, "-P", TOOLS / "sweep", "--folder", folder, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    report, end = json.JSONDecoder().raw_decode(done.stdout)
    assert [path.name for path in folder.iterdir() if path.name.startswith("fpstore-sweep")] == []
    return done.returncode, report, done.stdout[end:]


@pytest.mark.slow
def test_a_case_is_drawn_from_its_seed_and_number(tmp_path):
    status, report, rest = sweep("--seed", 3, "--case", 5, folder=tmp_path)
    assert (status, report["ok"], report["cases"], rest.strip()) == (0, True, 1, "")
    assert report["answers"] > 1000
    assert sweep("--seed", 3, "--case", 5, folder=tmp_path)[1]["answers"] == report["answers"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("faults", "words"),
    [
        slow("StoreSnapshot.has = lambda self, value: True", "in store"),
        slow(
            "StoreSnapshot.scan_columns = lambda self, queries, radius, threads: "
            "self.probe_columns(queries, 0, threads)",
            "scan(",
        ),
        (
            "StoreSnapshot.probe = lambda self, value, radius: os.abort()",
            "ended by signal 6 (SIGABRT)",
        ),
        slow("StoreSnapshot.get_ids = lambda self, value: os._exit(3)", "ended with status 3"),
        slow("import fpstore.jobs.joining as j; j.pairs_within = lambda *_: iter(())", "pairs("),
        slow("import fpstore.jobs.joining as k; k.connect_rows = lambda rows, *_: rows", "sets"),
        slow(
            "import fpstore.jobs.dedup as d; f = d.find_duplicates; "
            "d.find_duplicates = lambda *a: (lambda some, found: (some, "
            "found._replace(kept=found.kept | True)))(*f(*a))",
            "dedup",
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


# --- tools/soak -----------------------------------------------------------------------------------

SOAK = Path(__file__).parents[2] / "tools" / "soak"


def soak(tmp_path, *options):
    """Run it, and return its report."""
    done = subprocess.run(
        [sys.executable, "-P", SOAK, "--folder", tmp_path, *map(str, options)],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert (report["ok"], report["faults"], done.returncode) == (True, [], 0)
    assert list(tmp_path.iterdir()) == []
    return report


@pytest.mark.slow
@pytest.mark.parametrize("ids", [[], ["--strings"]], ids=["integers", "strings"])
def test_a_writer_and_readers_for_a_while(tmp_path, ids):
    report = soak(tmp_path, "--seconds", 30, *ids)
    # how many, the machine decides
    assert all(report[what] > 0 for what in ("changes", "merges", "answers", "readers killed"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("when", "file"),
    crossed(["before", "after"], ["ids.mdb", "strings.mdb", "numbers.mdb"], share=3),
)
def test_a_generation_that_is_removed_while_it_is_opened(tmp_path, file, when):
    """A reader between a look at the manifest and the opening of a file finds the next one."""
    path = tmp_path / "s"
    fpstore.build(path, [5], ["a"]).close()
    with fpstore.open(path, "r+") as store:
        store.insert([6], ["b"])
        store.merge()
        store.insert([7], ["c"])
    merge = "import fpstore, sys; s = fpstore.open(sys.argv[1], 'r+'); s.merge(); s.close()"

    def merge_now():
        subprocess.run([sys.executable, "-P", "-c", merge, path], check=True)

    with (
        at_first_call("open", f"gen-00000002/{file}", **{when: merge_now}) as opened,
        fpstore.open(path) as store,
    ):
        assert {match.fingerprint: match.ids for match in store.probe(7)} == {
            5: ["a"],
            6: ["b"],
            7: ["c"],
        }
        assert (len(opened), store.snapshot().generation.folder.name) == (1, "gen-00000003")
