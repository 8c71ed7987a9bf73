"""The verbs probe and scan: queries, outputs, and radii over the store's."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from commandline import IDS, NEAR, TEXT, failure, fine, run

import fpstore


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
    out = fine("probe", "crawl.fps", "0xFF", "--json", code=1) + fine("probe", "crawl.fps", "43", "--decimal", "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"query": "00000000000000ff", "matches": []},
        {
            "query": "000000000000002b",
            "matches": [{"fingerprint": "000000000000002a", "distance": 1, "ids": ["small"]}],
        },
    ]


def test_probe_writes_files_by_extension(folder: Path) -> None:
    lines = fine("probe", "crawl.fps", "--input", "queries.npy")
    for name in ("m.tsv", "m.csv", "m.jsonl", "m.parquet"):
        assert fine("probe", "crawl.fps", "--input", "queries.npy", "-o", name, "--threads", 2) == ""
    assert Path("m.tsv").read_text() == lines
    assert Path("m.csv").read_text() == lines.replace("\t", ",")
    table = pq.read_table("m.parquet")
    assert table.column_names == ["query", "fingerprint", "distance", "id", "row"]
    assert [str(kind) for kind in table.schema.types[:3]] == ["uint64", "uint64", "uint8"]
    rows = [f"{r['query']:016x}\t{r['fingerprint']:016x}\t{r['distance']}\t{r['id']}\n" for r in table.to_pylist()]
    assert "".join(rows) == lines
    assert [json.loads(line)["query"] for line in Path("m.jsonl").read_text().splitlines()] == [
        f"{NEAR:016x}",
        f"{NEAR ^ 1:016x}",
    ]


def test_probe_takes_queries_from_arguments_files_and_standard_input(folder: Path) -> None:
    lines = fine("probe", "crawl.fps", "0x2a", "--input", "-", "--json", stdin="0x0\tan id that does not matter\n")
    assert [json.loads(line)["query"] for line in lines.splitlines()] == [
        "000000000000002a",
        "0000000000000000",
    ]


def test_probe_streams_many_queries_exactly(folder: Path) -> None:
    rng = np.random.default_rng(5)
    stored = rng.integers(0, 2**64, 3000, dtype=np.uint64)
    queries = np.repeat(stored, 60) ^ (np.uint64(1) << rng.integers(0, 64, 180_000, dtype=np.uint64))
    np.save("stored.npy", stored)
    np.save("many.npy", queries)
    fine("build", "x.fps", "stored.npy", "-q", "-r", 1)
    fine("probe", "x.fps", "--input", "many.npy", "-o", "m.parquet")
    table = pq.read_table("m.parquet")
    np.testing.assert_array_equal(table["query"].to_numpy(), queries)
    np.testing.assert_array_equal(table["id"].to_numpy(), np.repeat(np.arange(3000), 60))


def test_probe_text_finds_the_documents(folder: Path) -> None:
    out = fine("probe", "notes.fps", "draft.txt")
    assert {line.split("\t")[3] for line in out.splitlines()} == {"notes/one.txt", "notes/two.txt"}
    found = json.loads(fine("probe", "notes.fps", "-", "--json", stdin=TEXT))
    assert found["document"] == "-"
    assert {"fingerprint": found["query"], "distance": 0, "ids": ["notes/one.txt"]} in found["matches"]
    fine("probe", "notes.fps", "draft.txt", "notes/one.txt", "-o", "m.parquet")
    assert set(pq.read_table("m.parquet")["document"].to_pylist()) == {"draft.txt", "notes/one.txt"}


def test_probe_over_the_radius_scans_and_says_so(folder: Path) -> None:
    far = f"{NEAR ^ 0x1F:016x}"
    result = run("probe", "crawl.fps", far, far, "-r", 5)
    assert result.exit_code == 0
    assert result.stderr.startswith("fpstore: radius 5 is over the store's 3: every one of 7 fingerprints is compared")
    assert result.stderr.endswith(". Store.scan and fpstore scan give no such notice\n")
    assert result.stderr.count("\n") == 1
    assert result.stdout == fine("scan", "crawl.fps", far, far, "-r", 5)
    assert fine("probe", "crawl.fps", far, far, "-r", 5, "-q") == ""
    assert len(result.stdout.splitlines()) == 8
    assert len(fine("scan", "crawl.fps", far, "-r", 64).splitlines()) == len(IDS)


def test_ids_that_a_line_cannot_hold_go_to_json(folder: Path) -> None:
    fpstore.build("odd.fps", [1], ids=["tab\tand\nbreak"]).close()
    assert "JSON" in failure("probe", "odd.fps", "0x1")
    assert json.loads(fine("probe", "odd.fps", "0x1", "--json"))["matches"][0]["ids"] == ["tab\tand\nbreak"]


def test_short_fingerprints_are_refused(folder: Path) -> None:
    """They are most often decimal, or cut off by a tool; padded, they would match something else or nothing."""
    advice = "write all 16, or 0x before fewer"
    assert f"'ff' is not a fingerprint: it has 2 of 16 hexadecimal digits: {advice}" in failure(
        "probe", "crawl.fps", "ff", code=2
    )
    assert f"{advice} (decimal fingerprints need --decimal)" in failure("probe", "crawl.fps", "42", code=2)
    for name, line in (("a.tsv", "42\ta"), ("a.csv", "42,a"), ("a.txt", "42 a"), ("a.jsonl", '{"fingerprint": "42", "id": "a"}')):
        first = '{"fingerprint": "0x1", "id": "b"}' if name == "a.jsonl" else line.replace("42", "0x1").replace("a", "b")
        Path(name).write_text(f"{first}\n{line}\n")
        assert f"{name}:2: '42' is not a fingerprint: it has 2 of 16" in failure("build", "short.fps", name)
    assert fine("probe", "crawl.fps", "0x2a", "--json") == fine("probe", "crawl.fps", "42", "--decimal", "--json")
