"""Deduplication of texts by fingerprints: its defaults, and a note on unrelated texts."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commandline import run
from contained_texts import planted
from inputs import json_lines

import fpstore
from fpstore import MinHash, SimHash
from fpstore.hashing import Fields

TEXTS = [text for text in planted(9) if text]


def tables():
    hashes = SimHash().fingerprints(TEXTS, empty="mask")[0]
    return pa.table({"t": TEXTS, "u": TEXTS[::-1], "h": pa.array(hashes, pa.uint64())})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"text": "t"}, {"fingerprinter": MinHash(), "radius": 50, "group": "greedy"}),
        (
            {"text": "t", "threshold": 0.5},
            {"fingerprinter": MinHash(), "radius": MinHash().radius(0.5)},
        ),
        (
            {"text": "t", "width": 64, "search": "exact"},  # not bands
            {"fingerprinter": MinHash(width=64), "radius": MinHash(width=64).radius(0.7)},
        ),
        (
            {"text": "t", "method": "simhash"},
            {"fingerprinter": SimHash(), "radius": 3, "group": "connected"},
        ),
        (
            {"text": "t", "method": "simhash", "width": 256},
            {"fingerprinter": SimHash(width=256), "radius": 24},
        ),
        ({"fingerprint": "h"}, {"radius": 3, "width": 64}),
        (
            {"text": {"t": 4, "u": 1}},
            {
                "fingerprinter": Fields(MinHash(weighting="count"), {"t": 4, "u": 1}),
                "radius": 50,
                "group": "greedy",
            },
        ),
    ],
)
def test_defaults_follow_the_method_and_the_width(options, named):
    table = tables()
    columns = {name: options[name] for name in ("text", "fingerprint") if name in options}
    usual = fpstore.dedup(table, **options, estimate=True)
    result = fpstore.dedup(table, **columns, **named)
    assert len(usual.clusters) > 3
    assert list(usual.clusters) == list(result.clusters)
    assert set(result.removed.evidence) == {"distance"}


def test_a_radius_at_which_unrelated_texts_are_near_is_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(2)
    texts = [" ".join(f"w{rng.randrange(10**6)}" for _ in range(20)) for _ in range(300)]
    Path("c.jsonl").write_text(json_lines({"t": text} for text in texts))
    message = "unrelated texts are near each other by chance"
    low = ["--threshold", "0.3"]
    for options, noted in (
        ([], False),
        (low, False),
        ([*low, "--estimate"], False),  # by bands
        ([*low, "--search", "exact"], True),
        (["--width", "32"], False),
        (["--width", "32", "--estimate"], True),
        (["--method", "simhash", "--radius", "24"], True),
    ):
        result = run(
            "dedup", "c.jsonl", "o.jsonl", "--text-field", "t", "--force", "--no-progress", *options
        )
        assert result.exit_code == 0
        assert (message in result.stderr) == noted, options
    assert "in this corpus 100% of the texts or more" in result.stderr
    rows = MinHash().fingerprints(texts)
    Path("h.tsv").write_text("h\n" + "".join(f"{row.tobytes().hex()}\n" for row in rows))
    words = ("dedup", "h.tsv", "o.tsv", "--fingerprint-field", "h", "--width", "256", "--force")
    for radius, noted in ((106, True), (50, False)):
        notes = run(*words, "--radius", radius, "--no-progress").stderr
        assert ("with a line in common may be near each other" in notes) == noted


def test_unrelated_texts_go_by_their_fingerprints_at_a_low_threshold_and_not_by_texts():
    """Seven of their words are a common line."""
    words = np.random.default_rng(1).integers(0, 50_000, (800, 143)).tolist()
    line = "all rights reserved by the publisher x"
    texts = [" ".join([line, *(f"w{n}" for n in word)]) for word in words]
    copies = [" ".join([*text.split()[:-60], *(f"x{n}" for n in range(60))]) for text in texts[:20]]
    table = pa.table({"t": [*texts, *copies]})
    options = {"text": "t", "threshold": 0.3}
    assert fpstore.dedup(table, **options).removed.rows.tolist() == list(range(800, 820))
    removed = fpstore.dedup(table, **options, search="exact").removed.rows
    assert (removed < 800).sum() > 0


def test_files_that_are_left_out_are_named_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    for name in ("a.txt", "b.txt"):
        Path("notes", name).write_text("some words that are the same in both of the files")
    Path("notes", "c.bin").write_bytes(b"\0" * 100)
    for output, options in (("clean", ()), ("clean2", ("--estimate",))):
        said = run("dedup", "notes", output, "--text", "--no-progress", *options).stderr
        assert said.count("c.bin") == 1
        assert sorted(path.name for path in Path(output).rglob("*.txt")) == ["a.txt"]
