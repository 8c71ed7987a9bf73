"""The verbs probe, scan and nearest.

Queries, matches, outputs, limits, exit codes, and what plan says of a scan.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import FINGERPRINTS, IDS, NEAR, TEXT, failure, fine, run
from inputs import json_lines
from limits import SetLimits
from speeds import crossed

import fpstore

COLUMNS = ["query", "fingerprint", "distance", "id", "row"]


def test_probe_writes_one_line_per_id(folder: Path) -> None:
    near = f"{NEAR:016x}"
    assert fine("probe", "crawl.fps", near, "-r", 1).splitlines() == [
        f"{near}\t{near}\t0\ta",
        f"{near}\t{near}\t0\ta again",
        f"{near}\t{NEAR ^ 1:016x}\t1\tb",
    ]
    assert len(fine("probe", "crawl.fps", near).splitlines()) == 4
    assert fine("probe", "crawl.fps", "0123456789abcdef", code=1) == ""


def test_probe_json_has_one_object_per_query(folder: Path) -> None:
    out = fine("probe", "crawl.fps", "0xFF", "--json", code=1) + fine(
        "probe", "crawl.fps", "43", "--decimal", "--json"
    )
    assert [json.loads(line) for line in out.splitlines()] == [
        {"query": "00000000000000ff", "matches": []},
        {
            "query": f"{43:016x}",
            "matches": [{"fingerprint": f"{42:016x}", "distance": 1, "ids": ["small"]}],
        },
    ]
    lines = fine(
        "probe",
        "crawl.fps",
        "0x2a",
        "--input",
        "-",
        "--json",
        stdin="0x0\tan id that does not matter\n",
    )
    assert [json.loads(line)["query"] for line in lines.splitlines()] == [f"{42:016x}", f"{0:016x}"]
    fpstore.build("odd.fps", [1], ids=["tab\tand\nbreak"]).close()  # which a line cannot hold
    assert "JSON" in failure("probe", "odd.fps", "0x1")
    assert json.loads(fine("probe", "odd.fps", "0x1", "--json"))["matches"][0]["ids"] == [
        "tab\tand\nbreak"
    ]


def test_probe_writes_files_by_extension(folder: Path) -> None:
    lines = fine("probe", "crawl.fps", "--input", "queries.npy")
    for name in ("m.tsv", "m.csv", "m.jsonl", "m.parquet"):
        assert (
            fine("probe", "crawl.fps", "--input", "queries.npy", "-o", name, "--threads", 2) == ""
        )
    assert Path("m.tsv").read_text() == lines
    assert Path("m.csv").read_text() == lines.replace("\t", ",")
    table = pq.read_table("m.parquet")
    assert table.column_names == ["query", "fingerprint", "distance", "id", "row"]
    assert [str(kind) for kind in table.schema.types[:3]] == ["uint64", "uint64", "uint8"]
    rows = [
        f"{r['query']:016x}\t{r['fingerprint']:016x}\t{r['distance']}\t{r['id']}\n"
        for r in table.to_pylist()
    ]
    assert "".join(rows) == lines
    queries = [json.loads(line)["query"] for line in Path("m.jsonl").read_text().splitlines()]
    assert queries == [f"{NEAR:016x}", f"{NEAR ^ 1:016x}"]


def test_probe_streams_many_queries_exactly(folder: Path) -> None:
    rng = np.random.default_rng(5)
    stored = rng.integers(0, 2**64, 1500, dtype=np.uint64)
    queries = np.repeat(stored, 60) ^ (np.uint64(1) << rng.integers(0, 64, 90_000, dtype=np.uint64))
    np.save("stored.npy", stored)
    np.save("many.npy", queries)
    fine("build", "x.fps", "stored.npy", "-q", "-r", 1)
    fine("probe", "x.fps", "--input", "many.npy", "-o", "m.parquet")
    table = pq.read_table("m.parquet")
    np.testing.assert_array_equal(table["query"].to_numpy(), queries)
    np.testing.assert_array_equal(table["id"].to_numpy(), np.repeat(np.arange(1500), 60))


def test_probe_text_finds_the_documents(folder: Path) -> None:
    out = fine("probe", "notes.fps", "draft.txt")
    assert {line.split("\t")[3] for line in out.splitlines()} == {"notes/one.txt", "notes/two.txt"}
    summary = json.loads(fine("probe", "notes.fps", "-", "--json", stdin=TEXT))
    assert summary["document"] == "-"
    assert {"fingerprint": summary["query"], "distance": 0, "ids": ["notes/one.txt"]} in summary[
        "matches"
    ]
    fine("probe", "notes.fps", "draft.txt", "notes/one.txt", "-o", "m.parquet")
    assert set(pq.read_table("m.parquet")["document"].to_pylist()) == {"draft.txt", "notes/one.txt"}


def test_probe_over_the_radius_scans_and_says_so(folder: Path) -> None:
    far = f"{NEAR ^ 0x1F:016x}"
    result = run("probe", "crawl.fps", far, far, "-r", 5)
    assert result.exit_code == 0
    assert result.stderr.startswith(
        "fpstore: radius 5 is over the store's 3: every one of 7 fingerprints is compared"
    )
    assert result.stderr.endswith(". Store.scan and fpstore scan give no such notice\n")
    assert result.stderr.count("\n") == 1
    assert result.stdout == fine("scan", "crawl.fps", far, far, "-r", 5)
    assert fine("probe", "crawl.fps", far, far, "-r", 5, "-q") == ""
    assert len(result.stdout.splitlines()) == 8
    assert len(fine("scan", "crawl.fps", far, "-r", 64).splitlines()) == len(IDS)


def test_short_fingerprints_are_refused(folder: Path) -> None:
    """They are most often decimal, or cut off by a tool.

    Padded, they would match something else or nothing.
    """
    advice = "write all 16, or 0x before fewer"
    assert f"'ff' is not a fingerprint: it has 2 of 16 hexadecimal digits: {advice}" in failure(
        "probe", "crawl.fps", "ff", code=2
    )
    assert f"{advice} (decimal fingerprints need --decimal)" in failure(
        "probe", "crawl.fps", "42", code=2
    )
    for name, line in (
        ("a.tsv", "42\ta"),
        ("a.csv", "42,a"),
        ("a.txt", "42 a"),
        ("a.jsonl", '{"fingerprint": "42", "id": "a"}'),
    ):
        first = (
            '{"fingerprint": "0x1", "id": "b"}'
            if name == "a.jsonl"
            else line.replace("42", "0x1").replace("a", "b")
        )
        Path(name).write_text(f"{first}\n{line}\n")
        assert f"{name}:2: '42' is not a fingerprint: it has 2 of 16" in failure(
            "build", "short.fps", name
        )
    assert fine("probe", "crawl.fps", "0x2a", "--json") == fine(
        "probe", "crawl.fps", "42", "--decimal", "--json"
    )


def test_nearest_writes_the_nearest(folder: Path) -> None:
    near = f"{NEAR:016x}"
    assert fine("nearest", "crawl.fps", near).splitlines() == [
        f"{near}\t{near}\t0\ta",
        f"{near}\t{near}\t0\ta again",
    ]
    assert fine("nearest", "crawl.fps", near, "-k", 2).splitlines()[2:] == [
        f"{near}\t{NEAR ^ 1:016x}\t1\tb"
    ]
    assert len(fine("nearest", "crawl.fps", near, "--count", 100).splitlines()) == len(IDS)
    assert fine("nearest", "crawl.fps", near, "--count", 100, "-r", 1) == fine(
        "probe", "crawl.fps", near, "-r", 1
    )
    far = "0123456789abcdef"
    (line,) = fine("nearest", "crawl.fps", "--decimal", str(int(far, 16))).splitlines()[:1]
    assert line.startswith(f"{far}\t")
    assert fine("nearest", "crawl.fps", far, "--max-radius", 3, code=1) == ""
    fpstore.build("empty.fps", []).close()
    assert fine("nearest", "empty.fps", "0x1", "-k", 3, code=1) == ""
    for verb, *words in (
        ("nearest", "-k", 0),
        ("nearest", "-k", "x"),
        ("probe", "--limit", 0),
        ("scan", "-r", 3, "--limit", -1),
    ):
        assert "must be a whole number from 1" in failure(verb, "crawl.fps", "0x1", *words, code=2)


def test_nearest_writes_json_and_files(folder: Path) -> None:
    summary = json.loads(fine("nearest", "crawl.fps", "0xFF", "-k", 2, "--json"))
    assert [sorted(m) for m in summary["matches"]] == [["distance", "fingerprint", "ids"]] * 2
    assert sorted(summary) == ["matches", "query"]
    fine(
        "nearest", "crawl.fps", "--input", "queries.npy", "-k", 1, "-o", "m.parquet", "--threads", 2
    )
    assert pq.read_table("m.parquet").column_names == COLUMNS
    out = fine("nearest", "notes.fps", "draft.txt", "-k", 1)
    assert out.split("\t")[3].startswith("notes/")


@pytest.mark.parametrize("verb", ["probe", "scan"])
def test_a_limit_keeps_the_nearest_and_notes_the_others(folder: Path, verb: str) -> None:
    near = f"{NEAR:016x}"
    result = run(verb, "crawl.fps", near, near, "0xF0F0F0F0F0F0F0F", "-r", 3, "--limit", 1)
    assert result.exit_code == 0
    assert (
        result.stdout.splitlines() == [f"{near}\t{near}\t0\ta", f"{near}\t{near}\t0\ta again"] * 2
    )
    assert (
        result.stderr
        == "fpstore: 2 queries have more matches than --limit 1: only the nearest are written\n"
    )
    assert run(verb, "crawl.fps", near, "-r", 3, "--limit", 1, "-q").stderr == ""
    result = run(verb, "crawl.fps", near, "0xF0F0F0F0F0F0F0F", "-r", 3, "--limit", 1, "--json")
    assert [json.loads(line)["more"] for line in result.stdout.splitlines()] == [True, False]
    assert "1 query has more matches" in result.stderr
    assert "more" not in json.loads(fine(verb, "crawl.fps", near, "-r", 3, "--json"))
    result = run(verb, "crawl.fps", near, "-r", 3, "--limit", 50)
    assert (result.stderr, result.stdout) == ("", fine(verb, "crawl.fps", near, "-r", 3))


def test_insert_unmatched_above_the_radius_says_what_to_build(folder: Path) -> None:
    result = run("insert", "crawl.fps", "new.tsv", "--unmatched", "-r", 9, "--no-progress")
    assert result.exit_code == 0
    assert result.stderr.startswith(
        "fpstore: radius 9 is over the store's 3: every one of 7 fingerprints is compared"
    )
    assert "ScanWarning" not in result.stderr


def test_plan_tells_where_a_scan_is_cheaper(folder: Path) -> None:
    out = fine("plan", "2^20", "-r", 12, "--all")
    assert [line.split()[0] for line in out.splitlines()].count("scan") == 1
    message = (
        "For 1,048,576 fingerprints, look-ups take less time than a scan up to radius 16, above "
        "which there are none. "
    )
    assert out.splitlines()[-1].startswith(f"{message}At radius 12 a scan is cheaper for up to ")
    summary = json.loads(fine("plan", "2^20", "-r", 12, "--json"))
    assert (summary["fingerprints"], summary["radius"], summary["scan"]["cheaper_from_radius"]) == (
        1 << 20,
        12,
        17,
    )
    assert f"{summary['scan']['cheaper_up_to_fingerprints']:,} fingerprints." in out
    assert (
        fine("plan", "2^20", "-r", 30).splitlines()[-1]
        == "Above radius 16 there are no look-ups, only a scan."
    )
    chosen = [
        json.loads(fine("plan", "2^34", "--prefer", p, "--json", "--memory-budget", "4TB"))[
            "plans"
        ][0]
        for p in ("speed", "space")
    ]
    assert chosen[0]["microseconds"] < chosen[1]["microseconds"]
    assert chosen[0]["disk_bytes"] > chosen[1]["disk_bytes"]


VERBS = [("probe", "-r", "1"), ("scan", "-r", "1"), ("nearest", "-k", "2")]


def records(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_outputs_tell_the_row_and_the_id_of_a_query(folder: Path, verb: tuple[str, ...]) -> None:
    command = (verb[0], "crawl.fps", *verb[1:], "--input", "crawl.tsv")
    objects = records(fine(*command, "--json"))
    assert [(item["row"], item["query_id"], int(item["query"], 16)) for item in objects] == list(
        zip(range(8), IDS, FINGERPRINTS.tolist(), strict=True)
    )
    assert list(objects[0]) == [
        "row",
        "query_id",
        "query",
        "matches",
        *(["more"] if "more" in objects[0] else []),
    ]
    fine(*command, "-o", "m.parquet")
    table = pq.read_table("m.parquet")
    assert table.column_names == ["query", "fingerprint", "distance", "id", "row", "query_id"]
    assert str(table.schema.field("row").type) == "uint64"
    rows = table.to_pylist()
    assert [(r["row"], r["query_id"], r["id"]) for r in rows] == [
        (item["row"], item["query_id"], case)
        for item in objects
        for match in item["matches"]
        for case in match["ids"]
    ]
    plain = [
        f"{r['query']:016x}\t{r['fingerprint']:016x}\t{r['distance']}\t{r['id']}" for r in rows
    ]
    assert fine(*command).splitlines() == plain
    output = [f"{line}\t{r['row']}\t{r['query_id']}" for line, r in zip(plain, rows, strict=True)]
    assert fine(*command, "--with-queries").splitlines() == output
    fine(*command, "--with-queries", "-o", "m.csv")
    assert Path("m.csv").read_text().splitlines() == [line.replace("\t", ",") for line in output]


def test_inputs_without_ids_have_rows_only(folder: Path) -> None:
    command = ("probe", "crawl.fps", "-r", 0, "--input", "queries.npy")
    assert [list(item) for item in records(fine(*command, "--json"))] == [
        ["row", "query", "matches"]
    ] * 2
    fine(*command, "-o", "m.parquet")
    assert pq.read_table("m.parquet").column_names[4:] == ["row"]
    rows = [line.split("\t")[3:] for line in fine(*command, "--with-queries").splitlines()]
    assert rows == [["a", "0"], ["a again", "0"], ["b", "1"]]
    Path("none.tsv").write_text("")
    assert fine("probe", "crawl.fps", "--input", "none.tsv", "--with-queries", code=1) == ""
    fine("probe", "crawl.fps", "--input", "none.tsv", "-o", "m.parquet", code=1)
    assert pq.read_table("m.parquet").column_names == COLUMNS


def test_integers_stay_integers(folder: Path) -> None:
    Path("q.tsv").write_text(f"{NEAR:016x}\t77\n0x0\t18446744073709551615\n")
    command = ("probe", "crawl.fps", "-r", 0, "--input", "q.tsv")
    assert [item["query_id"] for item in records(fine(*command, "--json"))] == [77, 2**64 - 1]
    fine(*command, "-o", "m.parquet")
    assert pq.read_table("m.parquet")["query_id"].to_pylist() == [77, 77, 2**64 - 1]


def test_rows_run_on_over_arguments_files_and_batches(folder: Path, set_limits: SetLimits) -> None:
    set_limits(cli_first_queries=3, cli_queries=5)
    np.save("many.npy", np.arange(40, dtype=np.uint64))
    fpstore.build("x.fps", np.arange(40, dtype=np.uint64), radius=1).close()
    command = ("probe", "x.fps", "-r", 0)
    files = ("--input", "many.npy", "--input", "many.npy")
    assert [item["row"] for item in records(fine(*command, *files, "--json"))] == list(range(80))
    out = fine(*command, *files, "--with-queries").splitlines()
    assert [line.split("\t")[3:] for line in out] == [
        [str(row % 40), str(row)] for row in range(80)
    ]
    # The fingerprints of the command line come first. They have no ids, so no query has.
    both = records(fine("probe", "crawl.fps", "0x2a", "--input", "crawl.tsv", "--json"))
    assert [item["row"] for item in both] == list(range(9))
    assert not any("query_id" in item for item in both)
    assert "row" not in records(fine(*command, "0x1", "--json"))[0]
    assert records(fine(*command, "0x1", "--json", "--with-queries"))[0]["row"] == 0


def test_texts_are_told_by_their_documents(folder: Path) -> None:
    out = fine("probe", "notes.fps", "draft.txt", "--with-queries").splitlines()
    assert {tuple(line.split("\t")[4:]) for line in out} == {("0", "draft.txt")}
    assert list(records(fine("probe", "notes.fps", "draft.txt", "--json"))[0]) == [
        "document",
        "query",
        "matches",
    ]
    fine("probe", "notes.fps", "draft.txt", "-o", "m.parquet")
    assert pq.read_table("m.parquet").column_names[4:] == ["document"]


@pytest.mark.parametrize(("suffix", "verb"), crossed(["parquet", "jsonl", "csv", "tsv"], VERBS))
def test_ids_of_queries_come_from_a_named_column(
    folder: Path, suffix: str, verb: tuple[str, ...]
) -> None:
    rows = [
        {"place": str(i), "hash": f"{f:016x}", "url": name}
        for i, (f, name) in enumerate(zip(FINGERPRINTS, IDS, strict=True))
    ]
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), "q.parquet")
    elif suffix == "jsonl":
        Path("q.jsonl").write_text(json_lines(rows))
    else:
        gap = {"csv": ",", "tsv": "\t"}[suffix]
        Path(f"q.{suffix}").write_text(
            "".join(gap.join(row) + "\n" for row in [list(rows[0]), *(r.values() for r in rows)])
        )
    command = (
        verb[0],
        "crawl.fps",
        *verb[1:],
        "--input",
        f"q.{suffix}",
        "--fingerprint-field",
        "hash",
    )
    assert [
        item["query_id"] for item in records(fine(*command, "--id-field", "url", "--json"))
    ] == IDS
    numbered = (*command, "--id-field", "place", "--id-type")
    assert [item["query_id"] for item in records(fine(*numbered, "int", "--json"))] == list(
        range(8)
    )
    assert [item["query_id"] for item in records(fine(*numbered, "str", "--json"))] == list(
        "01234567"
    )
    missing = run(*command, "--id-field", "uri", "--json")
    assert missing.exit_code == 2
    assert "uri" in missing.stderr


def test_ids_of_queries_need_a_file_of_them(folder: Path) -> None:
    assert "--id-field is for --input" in failure(
        "probe", "crawl.fps", "0x2a", "--id-field", "url", code=2
    )
    both = ("scan", "crawl.fps", "0x2a", "-r", 1, "--input", "crawl.tsv", "--id-type", "str")
    assert "--id-type is for --input" in failure(*both, code=2)
    assert "--id-field is for fingerprints" in failure(
        "nearest", "notes.fps", "notes", "--id-field", "x", code=2
    )


SEARCHED = [
    ("probe", "crawl.fps", "-r", 0),
    ("scan", "crawl.fps", "-r", 0),
    ("nearest", "crawl.fps", "--max-radius", 0),
]
ABSENT = "1234567812345678"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verb", SEARCHED, ids=lambda verb: verb[0])
def test_the_code_tells_whether_a_query_has_a_match(folder: Path, verb: tuple[object, ...]) -> None:
    Path("none.tsv").write_text("")
    for form in ([], ["--json"], ["-o", "m.parquet"], ["-o", "m.csv"], ["--quiet"]):
        fine(*verb, "0x2a", *form)
        fine(*verb, ABSENT, "0x2a", *form)
        fine(*verb, ABSENT, *form, code=1)
        fine(*verb, "--input", "none.tsv", *form, code=1)


@pytest.mark.parametrize("verb", SEARCHED, ids=lambda verb: verb[0])
def test_errors_end_with_two(folder: Path, verb: tuple[object, ...]) -> None:
    Path("bad.tsv").write_text("zz\n")
    for quiet in ([], ["-q"]):
        assert "bad.tsv:1: " in failure(*verb, "--input", "bad.tsv", *quiet, code=2)
        assert "no such store" in failure(verb[0], "gone.fps", *verb[2:], "0x2a", *quiet, code=2)
        assert "no such file" in failure(*verb, "--input", "gone.tsv", *quiet, code=2)
        assert "'ff' is not a fingerprint" in failure(*verb, "ff", *quiet, code=2)
        assert "give fingerprints" in failure(*verb, *quiet, code=2)
        assert "No such option" in failure(*verb, "0x2a", "--nonsense", *quiet, code=2)


@pytest.mark.parametrize("verb", SEARCHED, ids=lambda verb: verb[0])
def test_quiet_writes_nothing_and_stops_at_the_first_match(
    folder: Path, verb: tuple[object, ...]
) -> None:
    Path("bad.tsv").write_text("zz\n")
    assert fine(*verb, "--input", "crawl.tsv", "-q") == ""
    # as grep -q does, it reads no further
    assert fine(*verb, "0x2a", "--input", "bad.tsv", "-q") == ""
    assert "bad.tsv:1: " in failure(*verb, ABSENT, "--input", "bad.tsv", "-q", code=2)
    assert "--output does not go with --quiet" in failure(
        *verb, "0x2a", "-q", "-o", "m.tsv", code=2
    )
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
