"""The verb build: its inputs and widths, what it prints, and the options that it passes on."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import NEAR, failure, fine, run
from speeds import SOME_WIDTHS
from wide import numbers

import fpstore
from fpstore.base.width import Width


@pytest.mark.full
def test_build_says_what_it_made(folder: Path) -> None:
    out = fine("build", "x.fps", "crawl.tsv", "--design", "flip-2")
    assert re.fullmatch(
        r"x\.fps: 7 fingerprints, 8 ids, radius 3, flip-2 \(2 tables\), .* [\d.]+ s\n", out
    )
    assert fine("build", "x.fps", "crawl.tsv", "--force", "-q") == ""
    made = json.loads(
        fine("build", "x.fps", "crawl.tsv", "-r", 1, "--design", "blocks-4-1", "--force", "--json")
    )
    with fpstore.open("x.fps") as store:
        assert made == store.stats()
        assert (store.radius, store.design.name) == (1, "blocks-4-1")


def test_build_reads_every_text_format(folder: Path) -> None:
    fields = ["--fingerprint-field", "hash", "--id-field", "url"]
    for arguments, stdin in (
        (["crawl.tsv"], None),
        (["crawl.csv", "--decimal"], None),
        (["crawl.jsonl", *fields], None),
        (["-"], "crawl.tsv"),
        (["-", "--format", "csv", "--decimal"], "crawl.csv"),
        (["-", "--format", "jsonl", *fields], "crawl.jsonl"),
    ):
        fine("build", "x.fps", *arguments, "-q", "--force", stdin=stdin and Path(stdin).read_text())
        with fpstore.open("x.fps") as store:
            assert sorted(store[NEAR]) == ["a", "a again"]
            assert store[42] == ["small"]
    fine("build", "n.fps", "a.npy", "b.npy")
    assert sorted(fpstore.open("n.fps")[NEAR]) == [0, 7]
    Path("n.tsv").write_text("0x1\t10\n0x2\t11\n")
    fine("build", "n.fps", "n.tsv", "--id-type", "str", "-q", "--force")
    assert fpstore.open("n.fps")[1] == ["10"]


def test_an_empty_store_is_inserted_into(folder: Path) -> None:
    made: list[tuple[list[str], Any]] = [
        ([], None),
        (
            ["--text", "--digits", "zero", "--html"],
            fpstore.hashing.MainText(fpstore.SimHash(width=256, digits="zero")),
        ),
        (
            ["--text", "--marks", "fold", "--hyphens", "join"],
            fpstore.SimHash(width=256, marks="fold", hyphens="join"),
        ),
        (["--image", "--image-hash", "pdq"], fpstore.hashing.ImageHash(method="pdq")),
    ]
    for arguments, fingerprinter in made:
        out = fine(
            "build", "x.fps", "--empty", "--width", 256, "--radius", 24, "--force", *arguments
        )
        assert out.startswith("x.fps: 0 fingerprints, 0 ids, radius 24, ")
        assert (
            run(
                "insert", "x.fps", "-", "--fingerprints", "--quiet", stdin=f"{5:064x}\tname\n"
            ).exit_code
            == 0
        )
        with fpstore.open("x.fps") as store:
            assert (store.width, store.radius, store[5]) == (256, 24, ["name"])
            assert store.fingerprinter == (fingerprinter and fingerprinter.describe())
    for arguments, said in (
        (["--empty", "crawl.tsv"], "--empty takes no INPUT"),
        ([], "give an INPUT, or --empty"),
        (["--empty", "--vector"], "--vector does not go with --empty"),
        (["--empty", "--format", "tsv"], "--format does not go with --empty"),
        (
            ["--empty", "--shingle-size", "2"],
            "texts (--text or --text-field), not for fingerprints",
        ),
    ):
        assert said in failure("build", "y.fps", *arguments, code=2)


def test_an_empty_store_of_texts_has_the_setting_for_pages(folder: Path) -> None:
    for arguments, wanted in (
        (["--text"], (256, 24)),
        (["--text", "--html"], (256, 24)),
        (["--text-field", "title", "--text-field", "text"], (256, 24)),
        (["--text", "--radius", 9], (256, 9)),
        (["--text", "--width", 64], (64, 3)),
        (["--text", "--width", 256], (256, 24)),
        (["--text", "--longest-sentences", 3], (64, 3)),
        (["--text", "--method", "minhash"], (256, fpstore.MinHash().usual_radius)),
        (["--image"], (64, 10)),
        ([], (64, 3)),
    ):
        fine("build", "x.fps", "--empty", "--force", "-q", *arguments)
        with fpstore.open("x.fps") as store:
            assert (store.width, store.radius) == wanted, arguments


def test_a_store_of_wide_simhash_has_one_usual_radius(folder: Path) -> None:
    Path("page.txt").write_text("a page of a few words")
    fine("build", "x.fps", "page.txt", "--text", "--width", 256, "-q")
    fpstore.build(
        "y.fps", [], fingerprinter=fpstore.hashing.MainText(fpstore.SimHash(width=256))
    ).close()
    assert [fpstore.open(name).radius for name in ("x.fps", "y.fps")] == [24, 24]


def test_build_options_reach_the_library(folder: Path) -> None:
    options = ["--block-bytes", "1024", "--memory", "64MiB", "--threads", "1"]
    options += ["--storage", "cold", "--disk-budget", "1GB"]
    assert (
        json.loads(fine("build", "x.fps", "crawl.tsv", "--json", *options))["block_bytes"] == 1024
    )
    assert "disk budget" in failure("build", "y.fps", "crawl.tsv", "--disk-budget", "10")
    fine("build", "z.fps", "queries.npy", "--prefer", "space", "-r", 20)
    with fpstore.open("z.fps") as store:
        assert (store.radius, store.design.name) == (20, "scan")


def test_build_notes_options_for_blocks_where_there_are_none(folder: Path) -> None:
    """They were taken without a word, and changed no byte of the tables."""
    options = ["--design", "columns-4", "--codec", "elias-fano"]
    result = run("build", "x.fps", "crawl.tsv", *options, "--block-bytes", 512)
    message = (
        "--codec and --block-bytes change nothing until a merge takes a design that has some\n"
    )
    assert result.stderr == f"fpstore: columns-4 has no tables of blocks: {message}"
    assert "--codec changes nothing until" in run("build", "y.fps", "crawl.tsv", *options).stderr
    assert json.loads(fine("redesign", "y.fps", "flip-2", "--json"))["codec"] == "elias-fano"
    fine("build", "y.fps", "crawl.tsv", *options, "--quiet", "--force")
    fine("build", "y.fps", "crawl.tsv", "--design", "flip-2", "--codec", "elias-fano", "--force")


def test_build_text_remembers_the_fingerprinter(folder: Path) -> None:
    options = ("--shingle", "chars", "--shingle-size", 7, "--weighting", "set")
    result = run("build", "x.fps", "notes", "--text", *options)
    assert result.stderr == (
        "fpstore: 1 file left out, binary, not text: notes/picture.txt\nfpstore: 1 file left out, "
        "blank: notes/empty.md\n"
    )
    with fpstore.open("x.fps") as store:
        assert (
            store.fingerprinter
            == fpstore.SimHash(shingle="chars", size=7, weighting="set").describe()
        )
        assert len(store) == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["pages.jsonl", "pages.TSV", "pages.u64"])
def test_a_file_of_rows_is_not_one_text(folder: Path, name: str) -> None:
    Path("more").mkdir()
    for path in (Path(name), Path("more", name)):
        path.write_text('{"text": "some words"}\n' * 3)
    for verb in (
        ["build", "x.fps", name, "--text"],
        ["insert", "notes.fps", name],
        ["hash", "--text", name],
    ):
        assert f"{name}: holds rows, not one text" in failure(*verb)
    message = "more: no text to make a fingerprint of; left out: 1 (rows, not one text)"
    assert message in failure("build", "x.fps", "more", "--text")
    assert not Path("x.fps").exists()
    Path("more/a.txt").write_text("some words")
    result = run("build", "x.fps", "more", "--text")
    assert result.stderr == f"fpstore: 1 file left out, rows, not one text: more/{name}\n"
    if name.islower():
        fine(
            "build",
            "x.fps",
            "more",
            "--text",
            "--suffix",
            Path(name).suffix,
            "--suffix",
            ".txt",
            "--force",
        )
        assert len(fpstore.open("x.fps").ids) == 2


def test_a_folder_without_text_is_refused(folder: Path) -> None:
    Path("pictures").mkdir()
    for n in range(5):
        Path("pictures", f"{n}.jpg").write_bytes(b"\xff\xd8\0")
    Path("pictures", "blank.txt").write_text("   ")
    Path("pictures", "marks.txt").write_text("\ufeff \n")
    Path("hollow").mkdir()
    before = sorted(Path().rglob("*"))
    for verb in (
        ["build", "x.fps", "pictures", "--text"],
        ["hash", "--text", "pictures", "-o", "x.tsv"],
    ):
        message = failure(*verb)
        assert (
            "pictures: no text to make a fingerprint of; left out: 5 (binary, not text), 2 (blank)"
            in message
        )
    assert "hollow: no text to make a fingerprint of\n" in failure(
        "build", "x.fps", "hollow", "--text"
    )
    assert "marks.txt: no text" in failure("probe", "notes.fps", "pictures/marks.txt")
    assert "blank, so it has no fingerprint" in failure("probe", "notes.fps", "-", stdin=" ")
    assert sorted(Path().rglob("*")) == before
    Path("pictures", "a.txt").write_text("some words")
    result = run("build", "x.fps", "pictures", "--text")
    assert result.exit_code == 0
    assert result.stderr == (
        "fpstore: 5 files left out, binary, not text: pictures/0.jpg, pictures/1.jpg, "
        "pictures/2.jpg and 2 more\n"
        "fpstore: 2 files left out, blank: pictures/blank.txt, pictures/marks.txt\n"
    )
    with fpstore.open("x.fps") as store:
        assert len(store.ids) == 1
        assert 0 not in store


def test_hash_file_and_its_store_remember_how_they_were_made(folder: Path) -> None:
    """The store takes what the file was made of, and other files that were made in the same way.

    No others.
    """
    shapes = (
        ("notes", "--text", "--shingle-size", 2),
        ("photos", "--image"),
        ("embeddings.npy", "--vector", "--width", 128),
    )
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
        assert (
            run(
                "hash", *other, "--width", 128 if number == 2 else 64, "-o", "other.parquet", "-q"
            ).exit_code
            == 0
        )
        assert "were made in another way" in failure(
            "insert", "h.fps", "other.parquet", "--fingerprints"
        )
        assert "in different ways" in run("probe", "h.fps", "--input", "other.parquet").stderr


def test_metadata_without_a_fingerprinter_is_left_out_or_refused(folder: Path) -> None:
    for metadata, said in (
        ("{", None),
        ("[]", None),
        ('"x"', None),
        ('{"name": 1}', None),
        ('{"name": 1, "version": 1, "parameters": {}}', "a hasher is described by a name (str)"),
        (
            '{"name": "simhash", "version": 9, "parameters": {}}',
            "unknown version 9 of the hasher 'simhash'",
        ),
    ):
        table = pa.table({"fingerprint": pa.array([1, 2], pa.uint64()), "id": ["a", "b"]})
        pq.write_table(
            table.replace_schema_metadata({"fpstore.fingerprinter": metadata}), "h.parquet"
        )
        if said is None:
            fine("build", "h.fps", "h.parquet", "--force")
        else:
            assert said in failure("build", "x.fps", "h.parquet")


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_fingerprints_have_the_digits_of_their_width(bits, folder):
    width, values = Width(bits), numbers(bits, 3)
    words = width.texts(width.rows(values))
    Path("more.txt").write_text("".join(f"{word}\n" for word in words))
    fine("build", "x.fps", "more.txt", "--width", bits, "-r", 1, "-q")
    out = fine("probe", "x.fps", *words[:2], "--input", "more.txt", "--json", "-r", 0)
    answer = list(map(json.loads, out.splitlines()))
    assert [item["query"] for item in answer] == [*words[:2], *words]
    assert [item["matches"][0]["fingerprint"] for item in answer] == [*words[:2], *words]
    assert fine("probe", "x.fps", "--decimal", *values, "-r", 0) == fine(
        "probe", "x.fps", *words, "-r", 0
    )
    other = 32 if bits == 64 else 64
    message = failure("probe", "x.fps", "f" * (other // 4), code=2)
    assert f"a fingerprint of {other} bits, but this store holds {bits} bits" in message
    assert fine("delete", "x.fps", "--fingerprints", words[0], "--input", "more.txt").startswith(
        f"x.fps: {len(words)} "
    )


def test_wide_fingerprints_without_a_radius_are_noted(tmp_path):
    np.save(tmp_path / "hashes.npy", np.arange(320, dtype=np.uint8).reshape(10, 32))
    build = ("build", tmp_path / "s", tmp_path / "hashes.npy", "--width", "256", "--force")
    assert "the radius is 3: near-duplicates may differ in more bits" in run(*build).stderr
    assert run(*build, "--radius", "3").stderr == run(*build, "--quiet").stderr == ""
