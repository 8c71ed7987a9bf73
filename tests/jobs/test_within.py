"""Rows are compared inside of each value of a column only.

The expected result is that of a deduplication of each value alone.
"""

import numpy as np
import pyarrow as pa
import pytest
from commandline import TEXT_FIELD, failure, fine
from inputs import json_lines

import fpstore
from fpstore import InputError
from fpstore.jobs import within as within_module

WORDS = [f"w{n}" for n in range(3000)]
VALUES = ("en", "de", None, "", "7")


def rows_of(seed, count=300):
    """Return rows, of which many have a near text with the same value, another one, or both."""
    rng, rows = np.random.default_rng(seed), []
    for n in range(count):
        words = [str(word) for word in rng.choice(WORDS, int(rng.integers(3, 120)))]
        if rows and rng.random() < 0.6:
            words = rows[int(rng.integers(len(rows)))]["text"].split()
            for _ in range(int(rng.choice((0, 0, 1, 3)))):
                words[int(rng.integers(len(words)))] = str(rng.choice(WORDS))
            words = words[: len(words) - int(rng.choice((0, 0, 4)))] or words
        rows.append({"id": f"r{n}", "lang": VALUES[int(rng.integers(5))], "text": " ".join(words)})
    return rows


def removed_rows(rows, **options):
    """Return the evidence of each removed row by its id, without numbers of rows and clusters."""
    result = fpstore.dedup(pa.Table.from_pylist(rows), text="text", id="id", **options)
    return {
        row["id"]: {name: row[name] for name in row if name not in ("row", "kept_row", "cluster")}
        for row in result.removed.to_arrow().to_pylist()
    }, {frozenset(ids) for ids in result.clusters}


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"keep": "first", "threshold": 0.4}])
def test_equals_each_value_alone(options):
    crossed = 0
    for seed in range(3):
        rows = rows_of(seed)
        removed, clusters = removed_rows(rows, within="lang", **options)
        expected, expected_clusters = {}, set()
        for value in VALUES:
            alone = removed_rows([row for row in rows if row["lang"] == value], **options)
            expected |= alone[0]
            expected_clusters |= alone[1]
        assert removed == expected
        assert clusters == expected_clusters
        crossed += len(removed_rows(rows, **options)[0]) - len(removed)
        assert len(removed) > 20
    assert crossed > 20


def test_texts_of_different_values_stay_apart_although_their_features_collide(monkeypatch):
    """As features do by accident: the values themselves are compared."""
    monkeypatch.setattr(within_module, "salts_of", lambda keys: np.zeros(len(keys), np.uint32))
    rows = rows_of(4)
    values = {row["id"]: row["lang"] for row in rows}
    removed, clusters = removed_rows(rows, within="lang")
    assert len(removed) > 50
    assert all(values[key] == values[row["kept"]] for key, row in removed.items())
    assert all(len({values[key] for key in ids}) == 1 for ids in clusters)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_reference_is_compared_within_the_column(tmp_path, suffix):
    """A value that only the reference has, or only the corpus, and those that both have."""
    text, other = (" ".join(WORDS[start : start + 40]) for start in (0, 100))
    ours = [("a", "x", text), ("b", "y", text), ("c", "z", text), ("d", "y", other)]
    theirs = [("r", "q", other), ("s", "x", text), ("t", "y", other)]
    for name, rows in (("c", ours), ("r", theirs)):
        lines = [dict(zip(("id", "lang", "text"), row, strict=True)) for row in rows]
        (tmp_path / f"{name}{suffix}").write_text(
            json_lines(lines)
            if suffix == ".jsonl"
            else "id,lang,text\n" + "".join(",".join(row) + "\n" for row in rows)
        )
    result = fpstore.dedup(
        tmp_path / f"c{suffix}",
        text="text",
        id="id",
        within="lang",
        against=tmp_path / f"r{suffix}",
    )
    removed = result.removed.to_arrow().to_pylist()
    assert [(row["id"], row["kept"]) for row in removed] == [("a", "s"), ("d", "t")]


def test_one_column_may_have_sources_and_values(tmp_path):
    rows = rows_of(7)
    table = pa.Table.from_pylist(rows)
    result = fpstore.dedup(table, text="text", source_field="lang", within="lang")
    assert sum(result.sources.removed) == len(result.removed)
    for value, count, removed, _ in result.sources:
        alone = [row for row in rows if row["lang"] == value]
        assert (count, removed) == (len(alone), len(removed_rows(alone)[0]))


def test_jobs_without_texts_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = rows_of(8, 20)
    (tmp_path / "c.jsonl").write_text(json_lines(rows))
    table = pa.table({"h": np.arange(3, dtype=np.uint64), "lang": ["a", "b", "a"]})
    with pytest.raises(InputError, match="within= compares texts, and here fingerprints decide"):
        fpstore.dedup(table, fingerprint="h", within="lang")
    with pytest.raises(InputError, match="within= compares texts"):
        fpstore.dedup(tmp_path / "c.jsonl", text="text", radius=3, within="lang")
    fine("build", *TEXT_FIELD, "--id-field", "id", "s.fps", "c.jsonl", "-q")
    options = ("dedup", "c.jsonl", "o.jsonl", *TEXT_FIELD, "--within", "lang")
    assert "--within: a store (--against) has no such column" in failure(
        *options, "--against", "s.fps", code=2
    )
    assert "no row has the field 'site'" in failure(*options[:-1], "site")


def test_a_resumed_job_knows_its_column(tmp_path):
    """Another column is another job."""
    path = tmp_path / "c.jsonl"
    path.write_text(json_lines(rows_of(9, 700)))
    options = {
        "text": "text",
        "source_field": "lang",
        "most_removed": 0.01,
        "resume": tmp_path / "r",
    }
    with pytest.raises(fpstore.SourceLossError):
        fpstore.dedup(path, tmp_path / "o.jsonl", within="lang", **options)
    with pytest.raises(InputError, match="within was 'lang' when this job began, and is None"):
        fpstore.dedup(path, tmp_path / "o.jsonl", **options)
    options["most_removed"] = None
    again = fpstore.dedup(path, tmp_path / "o.jsonl", within="lang", **options)
    whole = fpstore.dedup(path, text="text", within="lang")
    assert again.removed.to_arrow() == whole.removed.to_arrow()
