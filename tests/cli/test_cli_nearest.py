"""The verb nearest, and --limit: which matches are written, and what is noted of the others."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commandline import IDS, NEAR, failure, fine, run

import fpstore


def test_nearest_writes_the_nearest(folder: Path) -> None:
    near = f"{NEAR:016x}"
    assert fine("nearest", "crawl.fps", near).splitlines() == [f"{near}\t{near}\t0\ta", f"{near}\t{near}\t0\ta again"]
    assert fine("nearest", "crawl.fps", near, "-k", 2).splitlines()[2:] == [f"{near}\t{NEAR ^ 1:016x}\t1\tb"]
    assert len(fine("nearest", "crawl.fps", near, "--count", 100).splitlines()) == len(IDS)
    assert fine("nearest", "crawl.fps", near, "--count", 100, "-r", 1) == fine("probe", "crawl.fps", near, "-r", 1)
    far = "0123456789abcdef"
    (line,) = fine("nearest", "crawl.fps", "--decimal", str(int(far, 16))).splitlines()[:1]
    assert line.startswith(f"{far}\t")
    assert fine("nearest", "crawl.fps", far, "--max-radius", 3, code=1) == ""


def test_nearest_writes_json_and_files(folder: Path) -> None:
    found = json.loads(fine("nearest", "crawl.fps", "0xFF", "-k", 2, "--json"))
    assert [sorted(m) for m in found["matches"]] == [["distance", "fingerprint", "ids"]] * 2
    assert sorted(found) == ["matches", "query"]
    fine("nearest", "crawl.fps", "--input", "queries.npy", "-k", 1, "-o", "m.parquet", "--threads", 2)
    assert pq.read_table("m.parquet").column_names == ["query", "fingerprint", "distance", "id", "row"]
    out = fine("nearest", "notes.fps", "draft.txt", "-k", 1)
    assert out.split("\t")[3].startswith("notes/")


def test_nearest_in_an_empty_store_finds_nothing(folder: Path) -> None:
    fpstore.build("empty.fps", []).close()
    assert fine("nearest", "empty.fps", "0x1", "-k", 3, code=1) == ""


@pytest.mark.parametrize("verb", ["probe", "scan"])
def test_a_limit_keeps_the_nearest_and_notes_the_others(folder: Path, verb: str) -> None:
    near = f"{NEAR:016x}"
    result = run(verb, "crawl.fps", near, near, "0xF0F0F0F0F0F0F0F", "-r", 3, "--limit", 1)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"{near}\t{near}\t0\ta", f"{near}\t{near}\t0\ta again"] * 2
    assert result.stderr == "fpstore: 2 queries have more matches than --limit 1: only the nearest are written\n"
    assert run(verb, "crawl.fps", near, "-r", 3, "--limit", 1, "-q").stderr == ""
    result = run(verb, "crawl.fps", near, "0xF0F0F0F0F0F0F0F", "-r", 3, "--limit", 1, "--json")
    assert [json.loads(line)["more"] for line in result.stdout.splitlines()] == [True, False]
    assert "1 query has more matches" in result.stderr
    assert "more" not in json.loads(fine(verb, "crawl.fps", near, "-r", 3, "--json"))
    result = run(verb, "crawl.fps", near, "-r", 3, "--limit", 50)
    assert (result.stderr, result.stdout) == ("", fine(verb, "crawl.fps", near, "-r", 3))


@pytest.mark.parametrize(
    "words", [["nearest", "-k", 0], ["nearest", "-k", "x"], ["probe", "--limit", 0], ["scan", "-r", 3, "--limit", -1]]
)
def test_a_count_of_none_is_a_usage_error(folder: Path, words: list[object]) -> None:
    verb, *options = words
    assert "must be a whole number from 1" in failure(str(verb), "crawl.fps", "0x1", *options, code=2)


def test_insert_unmatched_above_the_radius_says_what_to_build(folder: Path) -> None:
    result = run("insert", "crawl.fps", "new.tsv", "--unmatched", "-r", 9, "--no-progress")
    assert result.exit_code == 0
    assert result.stderr.startswith("fpstore: radius 9 is over the store's 3: every one of 7 fingerprints is compared")
    assert "ScanWarning" not in result.stderr


def test_plan_tells_where_a_scan_is_cheaper(folder: Path) -> None:
    out = fine("plan", "2^20", "-r", 12, "--all")
    assert [line.split()[0] for line in out.splitlines()].count("scan") == 1
    told = "For 1,048,576 fingerprints, look-ups take less time than a scan up to radius 16, above which there are none. "
    assert out.splitlines()[-1].startswith(f"{told}At radius 12 a scan is cheaper for up to ")
    found = json.loads(fine("plan", "2^20", "-r", 12, "--json"))
    assert (found["fingerprints"], found["radius"], found["scan"]["cheaper_from_radius"]) == (1 << 20, 12, 17)
    assert f"{found['scan']['cheaper_up_to_fingerprints']:,} fingerprints." in out
    assert fine("plan", "2^20", "-r", 30).splitlines()[-1] == "Above radius 16 there are no look-ups, only a scan."
    chosen = [
        json.loads(fine("plan", "2^34", "--prefer", p, "--json", "--memory-budget", "4TB"))["plans"][0]
        for p in ("speed", "space")
    ]
    assert chosen[0]["microseconds"] < chosen[1]["microseconds"]
    assert chosen[0]["disk_bytes"] > chosen[1]["disk_bytes"]


def test_build_prefers(folder: Path) -> None:
    fine("build", "big.fps", "queries.npy", "--prefer", "space", "-r", 20)
    with fpstore.open("big.fps") as store:
        assert (store.radius, store.design.name) == (20, "scan")
