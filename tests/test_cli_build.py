"""The verb build: its inputs, what it prints, and the options that it passes on."""

import json
import re
from pathlib import Path

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


def test_build_id_type(folder: Path) -> None:
    Path("n.tsv").write_text("1\t10\n2\t11\n")
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


def test_build_text_remembers_the_fingerprinter(folder: Path) -> None:
    result = run("build", "x.fps", "notes", "--text", "--shingle", "chars", "--shingle-size", 7, "--weighting", "set")
    assert result.stderr == ("fpstore: 1 file left out: binary, not text\nfpstore: 1 file without any words: fingerprint 0\n")
    with fpstore.open("x.fps") as store:
        made = store.fingerprinter
        assert made is not None
        assert (made["name"], made["parameters"]["shingle"], made["parameters"]["size"]) == (
            "simhash",
            "chars",
            7,
        )
        assert made["parameters"]["weighting"] == "set"
        assert store[0] == ["notes/empty.md"]
    result = run("build", "x.fps", "notes", "--text", "--skip-empty", "--suffix", ".md", "--force")
    assert result.stderr == "fpstore: 1 file left out: without any words\n"
    assert len(fpstore.open("x.fps")) == 0
