"""What lists of removed rows say about each pair: the files, and excerpts of both texts."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import fine

import fpstore
from fpstore.hashing.corpora import open_corpus
from fpstore.io.source import Projection
from fpstore.jobs.reference import NearReference
from fpstore.work.checkpoint import Checkpoint

STORY = " ".join(f"word{number}" for number in range(60))
OTHER = " ".join(f"other{number}" for number in range(40))
ROWS = {
    "a.jsonl": [("a1", STORY), ("a2", OTHER)],
    "sub/b.jsonl": [("b1", f"{STORY} and some more at the end"), ("b2", f"A menu. {STORY}")],
}
CONTENT = [("r0", "nothing of that"), ("r1", OTHER)]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Files of rows in a folder, of which a1 and b2 go for b1."""
    monkeypatch.chdir(tmp_path)
    for name, rows in ROWS.items():
        write(Path("pages", name), rows)
    return Path("pages")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in rows]
    path.write_text("".join(lines))


def listed(path, *names):
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [tuple(row[name] for name in names) for row in rows]


FILES = ("id", "shard", "kept", "kept_shard")


def test_rows_name_their_files_within_the_folder(corpus):
    fine(
        "dedup", "pages", "out", "--text-field", "text", "--id-field", "id", "--removed", "r.jsonl"
    )
    expected = [
        ("a1", "a.jsonl", "b1", "sub/b.jsonl"),
        ("b2", "sub/b.jsonl", "b1", "sub/b.jsonl"),
    ]
    assert listed("r.jsonl", *FILES) == expected
    result = fpstore.dedup(corpus, text="text", id="id")
    columns = result.removed.to_arrow().select(FILES).to_pylist()
    assert [tuple(row.values()) for row in columns] == expected


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
def test_a_plan_lists_the_files_with_the_same_bytes(corpus, suffix):
    arguments = ("pages", "--text-field", "text", "--id-field", "id", "--quiet")
    source, *options = arguments
    fine("dedup", source, "one", *options, "--removed", f"one.{suffix}")
    sizes = ("--part-bytes", "300", "--slice-rows", "1")
    fine(
        "dedup", source, "many", *options, "--removed", f"many.{suffix}", "--processes", "1", *sizes
    )
    assert Path(f"one.{suffix}").read_bytes() == Path(f"many.{suffix}").read_bytes()


def test_files_of_one_name_have_their_paths(corpus):
    write(Path("more", "a.jsonl"), [("c1", OTHER)])
    result = fpstore.dedup(["pages/a.jsonl", "more/a.jsonl"], text="text", id="id")
    assert list(result.removed.to_arrow()["kept_shard"].to_pylist()) == ["pages/a.jsonl"]


def test_inputs_of_several_folders_begin_with_them(corpus):
    write(Path("more", "x.jsonl"), [("c1", OTHER)])
    result = fpstore.dedup(["pages", "more"], text="text", id="id")
    files = result.removed.to_arrow().select(["shard", "kept_shard"]).to_pylist()
    assert list(files[-1].values()) == ["more/x.jsonl", "pages/a.jsonl"]


def test_a_reference_names_its_files_and_rows(corpus):
    write(Path("seen", "r.jsonl"), CONTENT)
    for options in ({}, {"estimate": True}):
        result = fpstore.dedup(corpus, text="text", id="id", against="seen", **options)
        rows = result.removed.to_arrow().to_pylist()
        row = next(row for row in rows if row["reference"])
        got = [row[name] for name in ("row", "shard", "kept_row", "kept", "kept_shard")]
        assert got == [1, "a.jsonl", 1, "r1", "r.jsonl"]


def test_a_checkpoint_keeps_the_files_and_rows_of_a_reference(corpus):
    source, places = open_corpus("pages", False), np.array([0, 3])
    list(source.batches(Projection(text="text")))
    evidence = {"distance": places.astype(np.uint16)}
    near = NearReference(places, places.astype(np.uint64), evidence)
    with Checkpoint(Path("work").absolute(), {"job": "test"}) as checkpoint:
        near.in_corpus(source, places.astype(np.uint64)).save(checkpoint, of_store=False)
        saved = NearReference.saved(checkpoint)
    assert saved.kept_rows.tolist() == [0, 3]
    assert saved.kept_shards == ["a.jsonl", "sub/b.jsonl"]


def test_rows_of_a_store_and_of_a_table_have_no_file(corpus):
    fpstore.build(
        "s.fps",
        fpstore.MinHash().fingerprints([OTHER]),
        ["x"],
        width=256,
        radius=24,
        fingerprinter=fpstore.MinHash(),
    ).close()
    rows = [row for part in ROWS.values() for row in part]
    table = pa.table({"id": [row[0] for row in rows], "text": [row[1] for row in rows]})
    result = fpstore.dedup(table, text="text", id="id", against="s.fps")
    columns = result.removed.to_arrow().select(["id", "shard", "kept_shard"]).to_pylist()
    assert [tuple(row.values()) for row in columns] == [
        ("a1", "", ""),
        ("a2", "", ""),
        ("b2", "", ""),
    ]
    pq.write_table(table, "rows.parquet")
    result = fpstore.dedup("rows.parquet", text="text", id="id", against="s.fps")
    columns = result.removed.to_arrow().select(["id", "shard", "kept_shard"]).to_pylist()
    assert columns[1] == {"id": "a2", "shard": "rows.parquet", "kept_shard": ""}
