"""Deduplication by tasks with columns of sources, and of values inside of which rows compare."""

import random

import numpy as np
import pytest
from commandline import failure, fine
from small_plans import plan_dedup
from text_corpora import files_in, finished, listed, rows_of, write

import fpstore
from fpstore.errors import InputError
from fpstore.jobs import within as within_module
from fpstore.plans import overlaps

LANGUAGES = ("en", "de", None, "fr", "7")


def corpus(folder, suffix="parquet", count=300, files=3):
    """Return a folder of rows whose texts are often near those of another language, too."""
    rng, rows = random.Random(3), rows_of(count, 3)
    for row in rows:
        row["lang"], row["site"] = rng.choice(LANGUAGES), f"site {rng.randrange(9)}"
        row["site"] = None if row["site"] == "site 3" else row["site"]
    rows += [row | {"score": 0.5, "site": "site 1"} for row in crowd(rng, rows[0])]
    for number in range(files):
        write(folder / f"part-{number}.{suffix}", rows[number::files])
    return folder


def crowd(rng, row):
    """Return rows of 40 values: in each, a text and most of it, and all are near each other."""
    words, rows = [f"v{n}" for n in range(120)], []
    for value in range(40):
        text = [f"x{rng.random()}" if rng.random() < 0.02 else word for word in words]
        for place, part in enumerate((text, text[: 105 + value % 3])):
            rows.append(
                row | {"key": f"v{value}-{place}", "lang": f"v{value}", "text": " ".join(part)}
            )
    return rows


SMALL = {"slice_rows": 300, "part_bytes": 20_000}


@pytest.mark.full
@pytest.mark.parametrize(
    ("suffix", "sizes", "salted"),
    [("parquet", {}, True), ("parquet", SMALL, False), ("csv", SMALL, True)],
    ids=["one slice", "features collide", "small slices"],
)
def test_equals_one_process(tmp_path, monkeypatch, suffix, sizes, salted):
    """The files, the list of removed rows and the sources, also if features of values collide."""
    if not salted:
        for module in (within_module, overlaps):
            monkeypatch.setattr(module, "salts_of", lambda keys: np.zeros(len(keys), np.uint32))
    source = corpus(tmp_path / "corpus", suffix)
    options = {"text": "text", "id": "key", "within": "lang", "source_field": "site"}
    removed = tmp_path / "r.jsonl"
    plan = plan_dedup(
        tmp_path / "plan", source, tmp_path / "many", removed=removed, **options, **sizes
    )
    summary = finished(plan)
    result = fpstore.dedup(source, tmp_path / "one", **options)
    assert files_in(tmp_path / "many") == files_in(tmp_path / "one")
    assert removed.read_bytes() == listed(result.removed, tmp_path / "one.jsonl")
    assert summary["removed"] == len(result.removed) > (60 if salted else 20)
    went = {str(row["id"]) for row in result.removed.to_arrow().to_pylist()}
    # the lists of features that collide are crowded by other values
    assert salted <= ({f"v{value}-1" for value in range(40)} <= went)
    assert summary["near"] == result.near
    assert summary["sources"] == result.sources.summary()
    assert summary["sources"]["count"] == 9
    across = fpstore.dedup(source, **{**options, "within": None})
    assert len(across.removed) > len(result.removed) + 10


@pytest.mark.parametrize("options", [{"method": "exact"}, {"key": "site"}])
def test_equal_texts_and_keys_are_compared_within_a_column(tmp_path, options):
    source = corpus(tmp_path / "corpus", "jsonl", 120)
    options |= {"text": "text", "id": "key", "within": "lang"}
    removed, many = tmp_path / "r.jsonl", tmp_path / "many"
    plan = plan_dedup(tmp_path / "plan", source, many, removed=removed, **options, **SMALL)
    finished(plan)
    result = fpstore.dedup(source, tmp_path / "one", **options)
    assert files_in(many) == files_in(tmp_path / "one")
    assert removed.read_bytes() == listed(result.removed, tmp_path / "one.jsonl")
    across = fpstore.dedup(source, **{**options, "within": None})
    assert len(across.removed) > len(result.removed) > 2


def test_sources_of_a_plan_are_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path / "corpus", "jsonl", 60)
    options = ("--text-field", "text", "--source-field", "site", "--within", "lang")
    out = fine("dedup", "corpus", "out", *options, "--processes", 1)
    assert "Sources by rows, of 9\nsource" in out
    assert "\nnull " in out
    refused = ("dedup", "corpus", "new", *options, "--processes", 1)
    assert "--most-removed is not for plans" in failure(*refused, "--most-removed", 0.5, code=2)
    assert "--sources is not for plans" in failure(*refused, "--sources", "s.csv", code=2)
    with pytest.raises(InputError, match="most_removed= is not for plans"):
        plan_dedup(
            tmp_path / "plan",
            tmp_path / "corpus",
            tmp_path / "new",
            text="text",
            source_field="site",
            most_removed=0,
        )
