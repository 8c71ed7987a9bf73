"""Names that begin with . or _ are left out wherever folders are walked.

Among pictures, only those that begin with a dot: cameras write names such as _MG_0001.JPG. A note
counts what is left out, and a file that is named is read.
"""

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run
from inputs import json_lines
from PIL import Image

import fpstore
from fpstore.hashing import (
    DocumentReader,
    ImageHash,
    ImageReader,
    SimHash,
    TextReader,
    iter_documents,
)
from fpstore.plans.inputs import find_inputs

LONG = "the quick brown fox jumps over the lazy dog and runs away from the farm at night"


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Make a folder of rows, with an older draft of the first row in a hidden folder."""
    rows = [
        {"id": 1, "text": LONG},
        {"id": 2, "text": "something else that nobody has written before"},
    ]
    for name, part in {
        "k/train.jsonl": rows,
        "k/.ipynb_checkpoints/train-checkpoint.jsonl": [{"id": 10, "text": LONG + " today"}],
        "k/deep/_temporary/part.jsonl": [{"id": 11, "text": LONG + " now"}],
        "k/deep/_metadata.jsonl": [{"id": 12, "text": LONG}],
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_lines(part))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_hidden_rows_displace_no_visible_ones(corpus):
    done = run("dedup", "k", "k-out", "--text-field", "text")
    assert done.exit_code == 0, done.output
    assert [path.name for path in (corpus / "k-out").rglob("*")] == ["train.jsonl"]
    assert (corpus / "k-out" / "train.jsonl").read_bytes() == (
        corpus / "k" / "train.jsonl"
    ).read_bytes()
    assert "3 left out of folders" in done.stderr
    assert "k/.ipynb_checkpoints" in done.stderr
    assert run("dedup", "k", "quiet", "--text-field", "text", "--quiet").stderr == ""


def test_hidden_rows_that_are_named_are_read(corpus):
    for named in ("k/.ipynb_checkpoints", "k/deep/_temporary", "k/deep/_metadata.jsonl"):
        reader = TextReader(named, SimHash(), text="text", id="id")
        assert sum(len(chunk.ids) for chunk in reader) == 1


def test_hidden_files_are_in_the_log(corpus, caplog):
    with caplog.at_level(logging.WARNING, "fpstore"):
        result = fpstore.dedup("k", text="text")
    assert result.kept.tolist() == [0, 1]
    assert [record.getMessage()[:24] for record in caplog.records] == ["3 left out of folders, w"]


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    [
        "build s.fps k --text-field text",
        "lsh build i.lsh k --text-field text --threshold 0.5",
        "decontaminate k k/deep/_metadata.jsonl --text-field text",
        "weights k --text-field text",
        "decontaminate k/deep/_metadata.jsonl k --text-field text",
        "dedup k/deep/_metadata.jsonl x.jsonl --text-field text --against k",
        "dedup k k-out --text-field text --processes 2",
        "build t.fps k --text",
    ],
)
def test_verbs_count_hidden_files(corpus, command):
    (corpus / "k" / "visible.txt").write_text(LONG)
    done = run(*command.split())
    assert done.exit_code == 0, done.output
    assert done.stderr.count("3 left out of folders") == 1, done.stderr


def test_hidden_texts_and_pictures_are_left_out(tmp_path, monkeypatch):
    for name in ("seen", "_hidden", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}/a.txt").write_text("text")
        Image.linear_gradient("L").rotate(30).save(tmp_path / f"{name}/a.png")
    monkeypatch.chdir(tmp_path)
    assert [document.id for document in iter_documents(".", suffixes=[".txt"])] == ["seen/a.txt"]
    assert [chunk.ids for chunk in DocumentReader(".", SimHash(), suffixes=[".txt"])] == [
        ["seen/a.txt"]
    ]
    assert [chunk.ids for chunk in ImageReader(".", ImageHash(), suffixes=[".png"])] == [
        ["_hidden/a.png", "seen/a.png"]
    ]
    assert [document.id for document in iter_documents("_hidden", suffixes=[".txt"])] == [
        "_hidden/a.txt"
    ]


def test_pictures_whose_names_begin_with_an_underscore_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "camera").mkdir()
    for name, angle in (("_MG_0001.JPG", 30), ("IMG_0002.JPG", 60), (".trashed.JPG", 90)):
        Image.linear_gradient("L").rotate(angle).save(f"camera/{name}")
    done = run("build", "p.fps", "camera", "--image", "--min-quality", 0)
    assert done.exit_code == 0, done.output
    note = "1 left out of folders, where names that begin with . are hidden: camera/.trashed.JPG"
    assert note in done.stderr
    with fpstore.open("p.fps") as store:
        assert [name in store.ids for name in ("camera/_MG_0001.JPG", "camera/IMG_0002.JPG")] == [
            True,
            True,
        ]


def test_hidden_inputs_of_plans_are_left_out(corpus):
    assert [spec.name for spec in find_inputs("k")] == ["train.jsonl"]
    assert [spec.name for spec in find_inputs((corpus / "k").as_uri())] == ["train.jsonl"]
    assert [spec.name for spec in find_inputs((corpus / "k" / "deep" / "_temporary").as_uri())] == [
        "part.jsonl"
    ]


def test_hidden_parquet_files_are_left_out(tmp_path):
    for name in ("a.parquet", "_common_metadata.parquet"):
        pq.write_table(pa.table({"text": [LONG]}), tmp_path / name)
    assert len(fpstore.dedup(tmp_path, text="text").kept) == 1
