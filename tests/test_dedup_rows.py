"""Rows of a corpus that are odd, and what people see of a deduplication: NaN as a score, ids that repeat, summaries."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from commandline import fine, run

import fpstore
from fpstore.errors import InputError
from fpstore.hashing.walk import Walk

HASHES = [0, 1, 0xFFFF_0000, 0xFFFF_0001]
NAN = [5.0, math.nan, 1.0, 2.0]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [("ä", 0), ("ä", 1), ("日本", 0xFFFF_0000), ("ä", 2**63)]
    Path("c.jsonl").write_text("".join(json.dumps({"id": name, "h": f"{h:016x}"}) + "\n" for name, h in rows))
    return tmp_path


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.DataFrame({"h": pl.Series(HASHES, dtype=pl.UInt64), "s": NAN}),
        lambda: pa.table({"h": pa.array(HASHES, pa.uint64()), "s": NAN}),
        lambda: pa.table({"h": pa.array(HASHES, pa.uint64()), "s": pa.array(NAN, pa.float32())}),
    ],
)
def test_a_score_that_is_nan_is_refused_with_its_row(make):
    with pytest.raises(InputError, match=r"row 2: s: a score must be a number, got nan, .*: make it null, or another number"):
        fpstore.dedup(make(), fingerprint="h", score="s", keep="highest")


def test_a_score_that_is_nan_in_a_file_is_refused_with_its_line(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"h": "0000000000000001", "s": 1}\n{"h": "0000000000000002", "s": NaN}\n')
    with pytest.raises(InputError, match=r"c\.jsonl:2: s: a score must be a number, got nan, .*: make it null"):
        fpstore.dedup(tmp_path / "c.jsonl", fingerprint="h", score="s", keep="highest")


@pytest.mark.parametrize(
    "make",
    [
        lambda: pd.DataFrame({"h": np.array(HASHES, np.uint64), "s": NAN}),
        lambda: pl.DataFrame({"h": pl.Series(HASHES, dtype=pl.UInt64), "s": [5.0, None, 1.0, 2.0]}),
    ],
)
def test_a_missing_score_is_below_all_others(make):
    for first in (HASHES, HASHES[::-1]):
        table = make()
        table = (
            table.iloc[[HASHES.index(h) for h in first]]
            if isinstance(table, pd.DataFrame)
            else table[[HASHES.index(h) for h in first]]
        )
        kept = fpstore.dedup(table, fingerprint="h", score="s", keep="highest").kept
        assert sorted(kept["h"].to_list()) == [0, 0xFFFF_0001]


@pytest.mark.parametrize("group", ["connected", "greedy"])
@pytest.mark.parametrize("keep", ["first", "smallest", "central"])
def test_rows_that_share_an_id_are_documents_of_their_own(here, keep, group):
    found = fpstore.dedup("c.jsonl", "clean.jsonl", fingerprint="h", id="id", keep=keep, group=group, radius=1)
    assert found.clusters.documents == 4
    assert [sorted(ids) for ids in found.clusters] == [["ä", "ä", "ä"]]
    assert [json.loads(line)["id"] for line in Path("clean.jsonl").read_text().splitlines()] == ["ä", "日本"]
    table = pa.table({"h": pa.array([0, 1, 0xFFFF], pa.uint64()), "i": [7, 7, 7]})
    found = fpstore.dedup(table, fingerprint="h", id="i", keep=keep, group=group)
    assert found.kept["i"].to_pylist() == [7, 7]


def test_a_deduplication_says_what_it_is(here):
    found = fpstore.dedup("c.jsonl", fingerprint="h", radius=1)
    assert repr(found) == "<fpstore.Deduplication: 2 of 4 documents kept, 1 cluster, 0 not compared>"
    table = pa.table({"h": pa.array([*HASHES, None], pa.uint64())})
    for source in (table, pl.from_arrow(table)):
        found = fpstore.dedup(source, fingerprint="h")
        assert repr(found) == "<fpstore.Deduplication: 3 of 5 documents kept, 2 clusters, 1 not compared>"
    kept, clusters, unknown = found
    assert (len(kept), len(clusters), unknown) == (3, 2, 1)


def test_quiet_writes_no_summary(here):
    how = ("dedup", "c.jsonl", "clean.jsonl", "--fingerprint-field", "h", "--id-field", "id")
    assert "documents  " in fine(*how)
    assert fine(*how, "--force", "--quiet") == ""
    assert json.loads(fine(*how, "--force", "--quiet", "--json"))["kept"] == 2


def test_json_has_ids_as_they_are(here):
    out = fine("dedup", "c.jsonl", "clean.jsonl", "--fingerprint-field", "h", "--id-field", "id", "--json")
    assert '"ä"' in out
    assert json.loads(out)["largest"] == [["ä", "ä", "ä"]]
    result = run("build", "日本.fps", "c.jsonl", "--fingerprint-field", "h", "--id-field", "id", "-q")
    assert result.exit_code == 0
    lines = fine("probe", "日本.fps", "0xffff0000", "--json")
    assert '"日本"' in lines


def test_a_file_that_changes_after_it_was_read_is_not_copied(tmp_path, monkeypatch):
    (tmp_path / "notes").mkdir()
    for name, text in (("a", "the quick brown fox"), ("b", "a crow and its cheese")):
        (tmp_path / "notes" / f"{name}.txt").write_text(text)
    read = Walk.text

    def changing(walk, file):
        found = read(walk, file)
        file.path.write_text("another text of another length")
        return found

    monkeypatch.setattr(Walk, "text", changing)
    with pytest.raises(InputError, match=r"a\.txt: changed while it was read"):
        fpstore.dedup(tmp_path / "notes", tmp_path / "clean", text=True)
    assert not (tmp_path / "clean").exists()
