"""The exit codes of probe, scan and nearest, and their --quiet: those of grep."""

from pathlib import Path

import pytest
from commandline import failure, fine, folder, prepared, run

__all__ = ["folder", "prepared"]

VERBS = [("probe", "crawl.fps", "-r", 0), ("scan", "crawl.fps", "-r", 0), ("nearest", "crawl.fps", "--max-radius", 0)]
ABSENT = "1234567812345678"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("form", [[], ["--json"], ["-o", "m.parquet"], ["-o", "m.csv"], ["--quiet"]])
def test_the_code_tells_whether_a_query_has_a_match(folder: Path, verb: tuple[object, ...], form: list[str]) -> None:
    fine(*verb, "0x2a", *form)
    fine(*verb, ABSENT, "0x2a", *form)
    fine(*verb, ABSENT, *form, code=1)
    Path("none.tsv").write_text("")
    fine(*verb, "--input", "none.tsv", *form, code=1)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_errors_end_with_two(folder: Path, verb: tuple[object, ...], quiet: list[str]) -> None:
    Path("bad.tsv").write_text("zz\n")
    assert "bad.tsv:1: " in failure(*verb, "--input", "bad.tsv", *quiet, code=2)
    assert "no such store" in failure(verb[0], "gone.fps", *verb[2:], "0x2a", *quiet, code=2)
    assert "no such file" in failure(*verb, "--input", "gone.tsv", *quiet, code=2)
    assert "'ff' is not a fingerprint" in failure(*verb, "ff", *quiet, code=2)
    assert "give fingerprints" in failure(*verb, *quiet, code=2)
    assert "No such option" in failure(*verb, "0x2a", "--nonsense", *quiet, code=2)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_quiet_writes_nothing_and_stops_at_the_first_match(folder: Path, verb: tuple[object, ...]) -> None:
    Path("bad.tsv").write_text("zz\n")
    assert fine(*verb, "--input", "crawl.tsv", "-q") == ""
    assert fine(*verb, "0x2a", "--input", "bad.tsv", "-q") == ""  # as grep -q does, it reads no further
    assert "bad.tsv:1: " in failure(*verb, ABSENT, "--input", "bad.tsv", "-q", code=2)
    assert "--output does not go with --quiet" in failure(*verb, "0x2a", "-q", "-o", "m.tsv", code=2)
    assert not Path("m.tsv").exists()


def test_quiet_has_no_notes(folder: Path) -> None:
    assert run("probe", "crawl.fps", "0x2a", "-r", 9).stderr.startswith("fpstore: radius 9 is over")
    assert fine("probe", "crawl.fps", "0x2a", "-r", 9, "--quiet") == ""
    assert run("probe", "notes.fps", "notes", "--json").stderr != ""
    assert fine("probe", "notes.fps", "notes", "--quiet") == ""


def test_other_verbs_end_with_one(folder: Path) -> None:
    for verb in (["export"], ["stats"], ["pairs"], ["ids", "x"], ["verify", "--quiet"]):
        assert "no such store" in failure(verb[0], "gone.fps", *verb[1:], code=1)
    fine("verify", "crawl.fps", "--quiet")
