"""The verb build: its inputs, what it prints, and the options that it passes on."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import NEAR, failure, fine, run

import fpstore


def test_build_says_what_it_made(folder: Path) -> None:
    out = fine("build", "x.fps", "crawl.tsv", "--design", "flip-2")
    assert re.fullmatch(r"x\.fps: 7 fingerprints, 8 ids, radius 3, flip-2 \(2 tables\), .* [\d.]+ s\n", out)
    assert fine("build", "x.fps", "crawl.tsv", "--force", "-q") == ""
    made = json.loads(fine("build", "x.fps", "crawl.tsv", "-r", 1, "--design", "blocks-4-1", "--force", "--json"))
    with fpstore.open("x.fps") as store:
        assert made == store.stats()
        assert (store.radius, store.design.name) == (1, "blocks-4-1")


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["crawl.tsv"], None),
        (["crawl.csv", "--decimal"], None),
        (["crawl.jsonl", "--fingerprint-field", "hash", "--id-field", "url"], None),
        (["-"], "crawl.tsv"),
        (["-", "--format", "csv", "--decimal"], "crawl.csv"),
        (["-", "--format", "jsonl", "--fingerprint-field", "hash", "--id-field", "url"], "crawl.jsonl"),
    ],
)
def test_build_reads_every_text_format(arguments: list[str], stdin: str | None, folder: Path) -> None:
    fine("build", "x.fps", *arguments, "-q", stdin=stdin and Path(stdin).read_text())
    with fpstore.open("x.fps") as store:
        assert sorted(store[NEAR]) == ["a", "a again"]
        assert store[42] == ["small"]


def test_build_without_ids_numbers_the_rows(folder: Path) -> None:
    fine("build", "x.fps", "a.npy", "b.npy")
    with fpstore.open("x.fps") as store:
        assert sorted(store[NEAR]) == [0, 7]


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        ([], None),
        (["--text", "--digits", "zero", "--html"], fpstore.hashing.MainText(fpstore.SimHash(width=256, digits="zero"))),
        (["--image", "--image-hash", "pdq"], fpstore.hashing.ImageHash(method="pdq")),
    ],
)
def test_an_empty_store_is_inserted_into(arguments: list[str], made: Any, folder: Path) -> None:
    out = fine("build", "x.fps", "--empty", "--width", 256, "--radius", 24, *arguments)
    assert out.startswith("x.fps: 0 fingerprints, 0 ids, radius 24, ")
    assert run("insert", "x.fps", "-", "--fingerprints", "--quiet", stdin=f"{5:064x}\tname\n").exit_code == 0
    with fpstore.open("x.fps") as store:
        assert (store.width, store.radius, store[5]) == (256, 24, ["name"])
        assert store.fingerprinter == (made and made.describe())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--empty", "crawl.tsv"], "--empty takes no INPUT"),
        ([], "give an INPUT, or --empty"),
        (["--empty", "--vector"], "--vector does not go with --empty"),
        (["--empty", "--format", "tsv"], "--format does not go with --empty"),
        (
            ["--empty", "--shingle-size", "2"],
            "texts (--text or --text-field), not for fingerprints",
        ),
    ],
)
def test_what_an_empty_store_does_not_take(arguments: list[str], said: str) -> None:
    assert said in failure("build", "x.fps", *arguments, code=2)


def test_build_id_type(folder: Path) -> None:
    Path("n.tsv").write_text("0x1\t10\n0x2\t11\n")
    fine("build", "x.fps", "n.tsv", "--id-type", "str", "-q")
    assert fpstore.open("x.fps")[1] == ["10"]


def test_build_options_reach_the_library(folder: Path) -> None:
    options = [
        "--block-bytes",
        1024,
        "--memory",
        "64MiB",
        "--threads",
        1,
        "--storage",
        "cold",
        "--disk-budget",
        "1GB",
    ]
    made = json.loads(fine("build", "x.fps", "crawl.tsv", "--json", *options))
    assert made["block_bytes"] == 1024
    assert "disk budget" in failure("build", "y.fps", "crawl.tsv", "--disk-budget", "10")


def test_build_notes_options_for_blocks_where_there_are_none(folder: Path) -> None:
    """They were taken without a word, and changed no byte of the tables."""
    options = ["--design", "columns-4", "--codec", "elias-fano"]
    result = run("build", "x.fps", "crawl.tsv", *options, "--block-bytes", 512)
    assert result.stderr == (
        "fpstore: columns-4 has no tables of blocks: --codec and --block-bytes change nothing until a merge takes a design that "
        "has some\n"
    )
    one = run("build", "y.fps", "crawl.tsv", "--design", "columns-4", "--codec", "elias-fano")
    assert "--codec changes nothing until" in one.stderr
    fine("build", "z.fps", "crawl.tsv", "--design", "columns-4")
    for number in range(4):
        table = f"gen-00000001/table-{number:03}.fpt"
        assert len(Path("y.fps", table).read_bytes()) == len(Path("z.fps", table).read_bytes())
    assert json.loads(fine("redesign", "y.fps", "flip-2", "--json"))["codec"] == "elias-fano"
    fine("build", "y.fps", "crawl.tsv", *options, "--quiet", "--force")
    fine("build", "y.fps", "crawl.tsv", "--design", "flip-2", "--codec", "elias-fano", "--force")


def test_build_text_remembers_the_fingerprinter(folder: Path) -> None:
    result = run("build", "x.fps", "notes", "--text", "--shingle", "chars", "--shingle-size", 7, "--weighting", "set")
    assert result.stderr == (
        "fpstore: 1 file left out, binary, not text: notes/picture.txt\nfpstore: 1 file left out, no words: notes/empty.md\n"
    )
    with fpstore.open("x.fps") as store:
        made = store.fingerprinter
        assert made is not None
        assert (made["name"], made["parameters"]["shingle"], made["parameters"]["size"]) == (
            "simhash",
            "chars",
            7,
        )
        assert made["parameters"]["weighting"] == "set"
        assert len(store) == 2


@pytest.mark.parametrize("name", ["pages.jsonl", "pages.csv", "pages.TSV", "pages.parquet", "pages.npy", "pages.u64"])
def test_a_file_of_rows_is_not_one_text(folder: Path, name: str) -> None:
    Path("more").mkdir()
    for path in (Path(name), Path("more", name)):
        path.write_text('{"text": "some words"}\n' * 3)
    for verb in (["build", "x.fps", name, "--text"], ["insert", "notes.fps", name], ["hash", "--text", name]):
        assert f"{name}: holds rows, not one text" in failure(*verb)
    assert not Path("x.fps").exists()
    assert len(fpstore.open("notes.fps")) == 2
    assert "more: no text to make a fingerprint of; left out: 1 (rows, not one text)" in failure(
        "build", "x.fps", "more", "--text"
    )
    Path("more/a.txt").write_text("some words")
    result = run("build", "x.fps", "more", "--text")
    assert result.stderr == f"fpstore: 1 file left out, rows, not one text: more/{name}\n"
    assert len(fpstore.open("x.fps")) == 1
    if name.islower():
        fine("build", "x.fps", "more", "--text", "--suffix", Path(name).suffix, "--suffix", ".txt", "--force")
        assert len(fpstore.open("x.fps").ids) == 2


def test_a_folder_without_text_is_refused(folder: Path) -> None:
    Path("pictures").mkdir()
    for n in range(5):
        Path("pictures", f"{n}.jpg").write_bytes(b"\xff\xd8\0")
    Path("pictures", "blank.txt").write_text("   ")
    Path("pictures", "marks.txt").write_text("!!!")
    Path("hollow").mkdir()
    before = sorted(Path().rglob("*"))
    for verb in (["build", "x.fps", "pictures", "--text"], ["hash", "--text", "pictures", "-o", "x.tsv"]):
        message = failure(*verb)
        assert "pictures: no text to make a fingerprint of; left out: 5 (binary, not text), 2 (no words)" in message
    assert "hollow: no text to make a fingerprint of\n" in failure("build", "x.fps", "hollow", "--text")
    assert "marks.txt: no text" in failure("probe", "notes.fps", "pictures/marks.txt")
    assert "no words" in failure("probe", "notes.fps", "-", stdin="!!!")
    assert sorted(Path().rglob("*")) == before
    Path("pictures", "a.txt").write_text("some words")
    result = run("build", "x.fps", "pictures", "--text")
    assert result.exit_code == 0
    assert result.stderr == (
        "fpstore: 5 files left out, binary, not text: pictures/0.jpg, pictures/1.jpg, pictures/2.jpg and 2 more\n"
        "fpstore: 2 files left out, no words: pictures/blank.txt, pictures/marks.txt\n"
    )
    with fpstore.open("x.fps") as store:
        assert len(store.ids) == 1
        assert 0 not in store


def test_a_file_of_hashes_and_its_store_remember_how_they_were_made(folder: Path) -> None:
    """The store takes what the file was made of, and other files that were made in the same way; no others."""
    shapes = (("notes", "--text", "--shingle-size", 2), ("photos", "--image"), ("embeddings.npy", "--vector", "--width", 128))
    for number, how in enumerate(shapes):
        width = how[2:] if number == 2 else ()
        assert run("hash", *how, "-o", "h.parquet", "-q").exit_code == 0
        assert run("build", "h.fps", "h.parquet", *width, "--force", "-q").exit_code == 0
        assert run("build", "whole.fps", *how, "--force", "-q").exit_code == 0
        with fpstore.open("h.fps") as store, fpstore.open("whole.fps") as whole:
            assert store.fingerprinter == whole.fingerprinter
            assert list(store) == list(whole)
        assert run("probe", "h.fps", how[0], "--quiet").exit_code == 0
        assert run("insert", "h.fps", "h.parquet", "--fingerprints").stderr == ""
        fine("probe", "h.fps", "--input", "h.parquet", "--quiet")
        other = ("notes", "--text", "--shingle-size", 3)
        assert run("hash", *other, "--width", 128 if number == 2 else 64, "-o", "other.parquet", "-q").exit_code == 0
        assert "were made in another way" in failure("insert", "h.fps", "other.parquet", "--fingerprints")
        assert "in different ways" in run("probe", "h.fps", "--input", "other.parquet").stderr


def test_metadata_that_is_no_fingerprinter_is_left_out_or_refused(folder: Path) -> None:
    for metadata, said in (
        ("{", None),
        ("[]", None),
        ('"x"', None),
        ('{"name": 1}', None),
        ('{"name": 1, "version": 1, "parameters": {}}', "a fingerprinter has a name (str)"),
        ('{"name": "simhash", "version": 9, "parameters": {}}', "unknown version 9 of fingerprinter 'simhash'"),
    ):
        table = pa.table({"fingerprint": pa.array([1, 2], pa.uint64()), "id": ["a", "b"]})
        pq.write_table(table.replace_schema_metadata({"fpstore.fingerprinter": metadata}), "h.parquet")
        if said is None:
            fine("build", "h.fps", "h.parquet", "--force")
        else:
            assert said in failure("build", "x.fps", "h.parquet")
