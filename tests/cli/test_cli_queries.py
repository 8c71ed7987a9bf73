"""What the output of probe, scan and nearest tells of each query."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import FINGERPRINTS, IDS, NEAR, failure, fine, folder, prepared, run

import fpstore
from fpstore.cli import questions

__all__ = ["folder", "prepared"]

VERBS = [("probe", "-r", "1"), ("scan", "-r", "1"), ("nearest", "-k", "2")]


def records(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_outputs_tell_the_row_and_the_id_of_a_query(folder: Path, verb: tuple[str, ...]) -> None:
    command = (verb[0], "crawl.fps", *verb[1:], "--input", "crawl.tsv")
    objects = records(fine(*command, "--json"))
    assert [(found["row"], found["query_id"], int(found["query"], 16)) for found in objects] == list(
        zip(range(8), IDS, FINGERPRINTS.tolist(), strict=True)
    )
    assert list(objects[0]) == ["row", "query_id", "query", "matches", *(["more"] if "more" in objects[0] else [])]
    fine(*command, "-o", "m.parquet")
    table = pq.read_table("m.parquet")
    assert table.column_names == ["query", "fingerprint", "distance", "id", "row", "query_id"]
    assert str(table.schema.field("row").type) == "uint64"
    rows = table.to_pylist()
    assert [(r["row"], r["query_id"], r["id"]) for r in rows] == [
        (found["row"], found["query_id"], one) for found in objects for match in found["matches"] for one in match["ids"]
    ]
    plain = [f"{r['query']:016x}\t{r['fingerprint']:016x}\t{r['distance']}\t{r['id']}" for r in rows]
    assert fine(*command).splitlines() == plain
    told = [f"{line}\t{r['row']}\t{r['query_id']}" for line, r in zip(plain, rows, strict=True)]
    assert fine(*command, "--with-queries").splitlines() == told
    fine(*command, "--with-queries", "-o", "m.csv")
    assert Path("m.csv").read_text().splitlines() == [line.replace("\t", ",") for line in told]


def test_inputs_without_ids_have_rows_only(folder: Path) -> None:
    command = ("probe", "crawl.fps", "-r", 0, "--input", "queries.npy")
    assert [list(found) for found in records(fine(*command, "--json"))] == [["row", "query", "matches"]] * 2
    fine(*command, "-o", "m.parquet")
    assert pq.read_table("m.parquet").column_names[4:] == ["row"]
    assert [line.split("\t")[3:] for line in fine(*command, "--with-queries").splitlines()] == [
        ["a", "0"],
        ["a again", "0"],
        ["b", "1"],
    ]


def test_integers_stay_integers(folder: Path) -> None:
    Path("q.tsv").write_text(f"{NEAR:016x}\t77\n0x0\t18446744073709551615\n")
    command = ("probe", "crawl.fps", "-r", 0, "--input", "q.tsv")
    assert [found["query_id"] for found in records(fine(*command, "--json"))] == [77, 2**64 - 1]
    fine(*command, "-o", "m.parquet")
    assert pq.read_table("m.parquet")["query_id"].to_pylist() == [77, 77, 2**64 - 1]


def test_rows_run_on_over_arguments_files_and_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "FIRST_QUERIES", 3)
    monkeypatch.setattr(questions, "CHUNK_QUERIES", 5)
    np.save("many.npy", np.arange(40, dtype=np.uint64))
    fpstore.build("x.fps", np.arange(40, dtype=np.uint64), radius=1).close()
    command = ("probe", "x.fps", "-r", 0)
    files = ("--input", "many.npy", "--input", "many.npy")
    assert [found["row"] for found in records(fine(*command, *files, "--json"))] == list(range(80))
    out = fine(*command, *files, "--with-queries").splitlines()
    assert [line.split("\t")[3:] for line in out] == [[str(row % 40), str(row)] for row in range(80)]
    # The fingerprints of the command line come first. They have no ids, so no query has.
    both = records(fine("probe", "crawl.fps", "0x2a", "--input", "crawl.tsv", "--json"))
    assert [found["row"] for found in both] == list(range(9))
    assert not any("query_id" in found for found in both)
    assert "row" not in records(fine(*command, "0x1", "--json"))[0]
    assert records(fine(*command, "0x1", "--json", "--with-queries"))[0]["row"] == 0


def test_inputs_without_rows_keep_the_columns(folder: Path) -> None:
    Path("none.tsv").write_text("")
    assert fine("probe", "crawl.fps", "--input", "none.tsv", "--with-queries", code=1) == ""
    fine("probe", "crawl.fps", "--input", "none.tsv", "-o", "m.parquet", code=1)
    assert pq.read_table("m.parquet").column_names == ["query", "fingerprint", "distance", "id", "row"]


def test_texts_are_told_by_their_documents(folder: Path) -> None:
    out = fine("probe", "notes.fps", "draft.txt", "--with-queries").splitlines()
    assert {tuple(line.split("\t")[4:]) for line in out} == {("0", "draft.txt")}
    assert list(records(fine("probe", "notes.fps", "draft.txt", "--json"))[0]) == ["document", "query", "matches"]
    fine("probe", "notes.fps", "draft.txt", "-o", "m.parquet")
    assert pq.read_table("m.parquet").column_names[4:] == ["document"]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv", "tsv"])
def test_ids_of_queries_come_from_a_named_column(folder: Path, suffix: str, verb: tuple[str, ...]) -> None:
    rows = [
        {"place": str(i), "hash": f"{f:016x}", "url": name} for i, (f, name) in enumerate(zip(FINGERPRINTS, IDS, strict=True))
    ]
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), "q.parquet")
    elif suffix == "jsonl":
        Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        gap = {"csv": ",", "tsv": "\t"}[suffix]
        Path(f"q.{suffix}").write_text("".join(gap.join(row) + "\n" for row in [list(rows[0]), *(r.values() for r in rows)]))
    command = (verb[0], "crawl.fps", *verb[1:], "--input", f"q.{suffix}", "--fingerprint-field", "hash")
    assert [found["query_id"] for found in records(fine(*command, "--id-field", "url", "--json"))] == IDS
    numbered = (*command, "--id-field", "place", "--id-type")
    assert [found["query_id"] for found in records(fine(*numbered, "int", "--json"))] == list(range(8))
    assert [found["query_id"] for found in records(fine(*numbered, "str", "--json"))] == list("01234567")
    missing = run(*command, "--id-field", "uri", "--json")
    assert missing.exit_code == 2
    assert "uri" in missing.stderr


def test_ids_of_queries_need_a_file_of_them(folder: Path) -> None:
    assert "--id-field is for --input" in failure("probe", "crawl.fps", "0x2a", "--id-field", "url", code=2)
    both = ("scan", "crawl.fps", "0x2a", "-r", 1, "--input", "crawl.tsv", "--id-type", "str")
    assert "--id-type is for --input" in failure(*both, code=2)
    assert "--id-field is for fingerprints" in failure("nearest", "notes.fps", "notes", "--id-field", "x", code=2)
