"""Rows of a corpus that are odd, and what people see of a deduplication: scores, ids that repeat, summaries."""

import json
import math
from decimal import Context, Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from commandline import fine, run

import fpstore
from fpstore.errors import InputError
from fpstore.hashing.documents import Walk

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


def below(exponent, *texts):
    """Return decimals of such digits, each below the next."""
    return [Decimal(text).scaleb(exponent, Context(prec=90)) for text in texts]


# Each is below the next; as floats, most of them are equal.
ASCENDING = {
    "nanoseconds": [1764129615000000000, 1764129615000000001, 1764129615000000100],
    "signed": [-(2**63), 1 - 2**63, -(2**62) - 1, -(2**62), -1, 0, 1, 2**53, 2**53 + 1],
    "uint64": [2**53, 2**53 + 1, 2**64 - 2, 2**64 - 1],
    "decimal128": below(-20, f"-3{0:018}1", f"-3{0:019}", "0", f"3{0:019}", f"3{0:018}1"),
    "decimal256": below(-6, "9" * 75 + "7", "9" * 75 + "8", "9" * 76),
}
IN_TABLES = {**ASCENDING, "floats": [-math.inf, -1.5, -5e-324, 0.0, 5e-324, 0.1, 1e300, math.inf]}
WRITTEN = {
    **ASCENDING,
    "mixed": [-1e300, -9007199254740993, -9007199254740992.0, 0.1, Decimal("0.10000000000000000001"), 9007199254740993, 1e22],
    "seconds": below(-9, "1764129615000000000", "1764129615000000001"),
    "ends": below(0, "-9e4000", "-8.9e4000", "-1e-4000", "1e-4000", "1.00000000000000000000000000000000000001e-4000", "9e4000"),
}
TIMES = {
    "date32": pa.date32(),
    "ns": pa.timestamp("ns"),
    "us with a zone": pa.timestamp("us", "Europe/Zurich"),
    "time64": pa.time64("ns"),
    "duration": pa.duration("ns"),
}


def highest_first(values):
    """Yield pairs of a list of scores and the row that is kept of them, for scores that ascend."""
    for low, high in zip([None, *values], values, strict=False):
        yield [low, high], 1
        yield [high, low], 0
        yield [high, low, high], 0


def kept_of(source):
    return fpstore.dedup(source, fingerprint="h", score="s", keep="highest").kept


@pytest.mark.parametrize("name", WRITTEN)
def test_scores_in_files_compare_exactly(tmp_path, name):
    lines, csv = tmp_path / "c.jsonl", tmp_path / "c.csv"
    for scores, best in highest_first(WRITTEN[name]):
        lines.write_text("".join(f'{{"h": "{0:016x}", "s": {"null" if s is None else s}}}\n' for s in scores))
        csv.write_text("h,s\n" + "".join(f"{0:016x},{'' if s is None else s}\n" for s in scores))
        assert (kept_of(lines).tolist(), kept_of(csv).tolist()) == ([best], [best]), scores


@pytest.mark.parametrize("name", IN_TABLES)
def test_scores_in_tables_compare_exactly(name):
    kind = pa.uint64() if name == "uint64" else pa.array(IN_TABLES[name]).type
    for scores, best in highest_first(IN_TABLES[name]):
        table = pa.table({"h": pa.array([0] * len(scores), pa.uint64()), "s": pa.array(scores, kind), "row": range(len(scores))})
        assert kept_of(table)["row"].to_pylist() == [best], scores
        if name != "decimal256":  # which Polars does not have
            assert kept_of(pl.from_arrow(table))["row"].to_list() == [best], scores


@pytest.mark.parametrize("name", TIMES)
def test_times_are_scores(tmp_path, name):
    base = 20_000 if name == "date32" else 10**13 if name == "time64" else 1764129615000000000
    for numbers, best in highest_first([base, base + 1]):
        integers = pa.array(numbers, pa.int32() if name == "date32" else pa.int64())
        table = pa.table({"h": pa.array([0] * len(numbers), pa.uint64()), "s": integers.view(TIMES[name])})
        pa.parquet.write_table(table, tmp_path / "c.parquet")
        assert kept_of(tmp_path / "c.parquet").tolist() == [best], numbers


def test_integers_of_pandas_compare_exactly():
    newer = pd.DataFrame({"h": np.zeros(2, np.uint64), "s": [1764129615000000000, 1764129615000000100]})
    assert kept_of(newer)["s"].tolist() == [1764129615000000100]
    times = newer.assign(s=pd.to_datetime(newer["s"]))
    assert kept_of(times).index.tolist() == [1]


@pytest.mark.parametrize("scores", [[1, 2, 3], [1, 2**80, 3], [None, None, 2**80], [None, None, None]], ids=str)
def test_scores_of_rows_without_duplicates(tmp_path, scores):
    rows = [
        f'{{"h": "{2**n - 1 << 20:016x}", "s": {"null" if s is None else s}}}\n' for n, s in zip((0, 20, 40), scores, strict=True)
    ]
    (tmp_path / "c.jsonl").write_text("".join(rows))
    assert kept_of(tmp_path / "c.jsonl").tolist() == [0, 1, 2]


def test_scores_of_many_lengths_meet_in_one_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr("fpstore.io.lines.BLOCK_BYTES", 64)  # so that parts differ in the words of their keys
    rng = np.random.default_rng(5)
    scores = [Decimal(int(rng.integers(-50, 50))).scaleb(int(rng.integers(-3, 40))) for _ in range(300)]
    hashes = rng.integers(0, 20, 300) << 20
    (tmp_path / "c.csv").write_text("h,s\n" + "".join(f"{h:016x},{s:f}\n" for h, s in zip(hashes, scores, strict=True)))
    best = [max(np.flatnonzero(hashes == h).tolist(), key=lambda row: (scores[row], -row)) for h in set(hashes.tolist())]
    found = fpstore.dedup(tmp_path / "c.csv", fingerprint="h", score="s", keep="highest", radius=0)
    assert found.kept.tolist() == sorted(best)


@pytest.mark.parametrize("score", ["1" * 88, "1e5000", "2.5e-4700"])
def test_numbers_that_are_too_long_to_compare_are_refused_with_their_line(tmp_path, score):
    for name, row in {"c.jsonl": f'{{"h": "{1:016x}", "s": {score}}}\n', "c.csv": f"h,s\n{1:016x},{score}\n"}.items():
        (tmp_path / name).write_text(row)
        with pytest.raises(InputError, match=rf"{name}:[12]: s: a score has at most 87 digits and an exponent of at most 4600"):
            kept_of(tmp_path / name)


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


def test_scores_of_a_dictionary_are_those_of_its_values():
    scores = pa.array([1, 2**53, 2**53 + 1, 3]).dictionary_encode()
    table = pa.table({"h": ["0" * 16] * 4, "s": scores})
    done = fpstore.dedup(table, fingerprint="h", score="s", keep="highest", radius=0)
    assert done.kept["s"].to_pylist() == [2**53 + 1]
