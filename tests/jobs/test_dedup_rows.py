"""Rows of a corpus that are odd, scores, ids that repeat.

Outputs that are refused, and inputs that change meanwhile.
"""

import itertools
import json
import math
from decimal import Context, Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run
from inputs import json_lines

import fpstore
from fpstore.errors import InputError, StorageError, StoreExistsError

HASHES = [0, 1, 0xFFFF_0000, 0xFFFF_0001]
NAN = [5.0, math.nan, 1.0, 2.0]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [("ä", 0), ("ä", 1), ("日本", 0xFFFF_0000), ("ä", 2**63)]
    Path("c.jsonl").write_text(json_lines({"id": name, "h": f"{h:016x}"} for name, h in rows))
    return tmp_path


def test_a_score_that_is_nan_is_refused_with_its_row(tmp_path):
    hashes = pa.array(HASHES, pa.uint64())
    (tmp_path / "c.jsonl").write_text(
        '{"h": "0000000000000001", "s": 1}\n{"h": "0000000000000002", "s": NaN}\n'
    )
    tables = [
        pa.table({"h": hashes, "s": pa.array(NAN, kind)}) for kind in (pa.float64(), pa.float32())
    ]
    for source in (*tables, pl.from_arrow(tables[0]), tmp_path / "c.jsonl"):
        with pytest.raises(
            InputError,
            match=r"(row 2|c\.jsonl:2): s: a score must be a number, got nan, .*: make it null",
        ):
            kept_of(source)


def test_a_missing_score_is_below_all_others():
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        rows = [(HASHES[n], (5.0, None, 1.0, 2.0)[n]) for n in order]
        for table in (
            pl.DataFrame(
                {"h": pl.Series([h for h, _ in rows], dtype=pl.UInt64), "s": [s for _, s in rows]}
            ),
            pd.DataFrame(
                {"h": np.array([h for h, _ in rows], np.uint64), "s": [s for _, s in rows]}
            ),
        ):
            assert sorted(kept_of(table)["h"].to_list()) == [0, 0xFFFF_0001]


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
    "mixed": [
        -1e300,
        -9007199254740993,
        -9007199254740992.0,
        0.1,
        Decimal("0.10000000000000000001"),
        9007199254740993,
        1e22,
    ],
    "seconds": below(-9, "1764129615000000000", "1764129615000000001"),
    "ends": below(
        0,
        "-9e4000",
        "-8.9e4000",
        "-1e-4000",
        "1e-4000",
        "1.00000000000000000000000000000000000001e-4000",
        "9e4000",
    ),
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
        lines.write_text(
            "".join(f'{{"h": "{0:016x}", "s": {"null" if s is None else s}}}\n' for s in scores)
        )
        csv.write_text("h,s\n" + "".join(f"{0:016x},{'' if s is None else s}\n" for s in scores))
        assert (kept_of(lines).tolist(), kept_of(csv).tolist()) == ([best], [best]), scores


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", IN_TABLES)
def test_scores_in_tables_compare_exactly(name):
    kind = pa.uint64() if name == "uint64" else pa.array(IN_TABLES[name]).type
    for scores, best in highest_first(IN_TABLES[name]):
        table = pa.table(
            {
                "h": pa.array([0] * len(scores), pa.uint64()),
                "s": pa.array(scores, kind),
                "row": range(len(scores)),
            }
        )
        forms = (
            [table, table.set_column(1, "s", table["s"].dictionary_encode())]
            if "decimal" not in name
            else [table]
        )
        # which Polars does not have
        forms += [pl.from_arrow(table)] if name != "decimal256" else []
        forms += [table.to_pandas()] if name == "nanoseconds" and None not in scores else []
        for form in forms:
            assert [int(row) for row in kept_of(form)["row"].to_numpy()] == [best], scores


def test_times_are_scores(tmp_path):
    for kind in (
        pa.date32(),
        pa.timestamp("ns"),
        pa.timestamp("us", "Europe/Zurich"),
        pa.time64("ns"),
        pa.duration("ns"),
    ):
        base = (
            20_000
            if kind == pa.date32()
            else 10**13
            if pa.types.is_time64(kind)
            else 1764129615000000000
        )
        for numbers, best in highest_first([base, base + 1]):
            integers = pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64())
            table = pa.table(
                {"h": pa.array([0] * len(numbers), pa.uint64()), "s": integers.view(kind)}
            )
            pa.parquet.write_table(table, tmp_path / "c.parquet")
            assert kept_of(tmp_path / "c.parquet").tolist() == [best], numbers


def test_scores_of_rows_without_duplicates(tmp_path):
    path = tmp_path / "c.jsonl"
    for scores in ([1, 2, 3], [1, 2**80, 3], ["null", "null", 2**80], ["null"] * 3):
        hashes = [2**n - 1 << 20 for n in (0, 20, 40)]
        path.write_text(
            "".join(f'{{"h": "{h:016x}", "s": {s}}}\n' for h, s in zip(hashes, scores, strict=True))
        )
        assert kept_of(path).tolist() == [0, 1, 2]


def test_scores_of_many_lengths_meet_in_one_corpus(tmp_path, set_limits):
    # so that parts differ in the words of their keys
    set_limits(line_bytes=64)
    rng = np.random.default_rng(5)
    scores = [
        Decimal(int(rng.integers(-50, 50))).scaleb(int(rng.integers(-3, 40))) for _ in range(300)
    ]
    hashes = rng.integers(0, 20, 300) << 20
    (tmp_path / "c.csv").write_text(
        "h,s\n" + "".join(f"{h:016x},{s:f}\n" for h, s in zip(hashes, scores, strict=True))
    )
    best = [
        max(np.flatnonzero(hashes == h).tolist(), key=lambda row: (scores[row], -row))
        for h in set(hashes.tolist())
    ]
    result = fpstore.dedup(tmp_path / "c.csv", fingerprint="h", score="s", keep="highest", radius=0)
    assert result.kept.tolist() == sorted(best)


def test_scores_too_long_to_compare_are_refused_with_their_line(tmp_path):
    for score in ("1" * 88, "1e5000", "2.5e-4700"):
        for name, row in {
            "c.jsonl": f'{{"h": "{1:016x}", "s": {score}}}\n',
            "c.csv": f"h,s\n{1:016x},{score}\n",
        }.items():
            (tmp_path / name).write_text(row)
            with pytest.raises(
                InputError,
                match=rf"{name}:[12]: s: a score has at most 87 digits and an exponent of at most",
            ):
                kept_of(tmp_path / name)


def test_rows_that_share_an_id_are_documents_of_their_own(here):
    table = pa.table({"h": pa.array([0, 1, 0xFFFF], pa.uint64()), "i": [7, 7, 7]})
    for group, keep in itertools.product(("connected", "greedy"), ("first", "smallest", "central")):
        how = {"keep": keep, "group": group}
        result = fpstore.dedup(
            "c.jsonl", "clean.jsonl", fingerprint="h", id="id", radius=1, overwrite=True, **how
        )
        assert result.clusters.documents == 4
        assert [sorted(ids) for ids in result.clusters] == [["ä", "ä", "ä"]]
        assert [
            json.loads(line)["id"] for line in Path("clean.jsonl").read_text().splitlines()
        ] == ["ä", "日本"]
        assert fpstore.dedup(table, fingerprint="h", id="i", **how).kept["i"].to_pylist() == [7, 7]


def test_a_deduplication_says_what_it_is(here):
    result = fpstore.dedup("c.jsonl", fingerprint="h", radius=1)
    assert (
        repr(result) == "<fpstore.Deduplication: 2 of 4 documents kept, 1 cluster, 0 not compared>"
    )
    table = pa.table({"h": pa.array([*HASHES, None], pa.uint64())})
    for source in (table, pl.from_arrow(table)):
        result = fpstore.dedup(source, fingerprint="h")
        assert (
            repr(result)
            == "<fpstore.Deduplication: 3 of 5 documents kept, 2 clusters, 1 not compared>"
        )
    assert (len(result.kept), len(result.clusters), len(result.removed)) == (3, 2, 2)
    assert (result.not_compared, result.near, result.pages, result.sources) == (1, 0, 0, None)


def test_json_has_ids_as_they_are(here):
    how = ("dedup", "c.jsonl", "clean.jsonl", "--fingerprint-field", "h", "--id-field", "id")
    assert "documents  " in fine(*how)
    assert fine(*how, "--force", "--quiet") == ""
    out = fine(*how, "--force", "--quiet", "--json")
    assert '"ä"' in out
    assert json.loads(out)["largest"] == [{"documents": 3, "ids": ["ä", "ä", "ä"]}]
    assert run("build", "日本.fps", "c.jsonl", *how[3:], "-q").exit_code == 0
    assert '"日本"' in fine("probe", "日本.fps", "0xffff0000", "--json")


def test_a_file_that_changes_after_it_was_read_is_not_copied(tmp_path):
    (tmp_path / "notes").mkdir()
    for name, text in (("a", "the quick brown fox"), ("b", "a crow and its cheese")):
        (tmp_path / "notes" / f"{name}.txt").write_text(text)

    def change(phase, done, total):
        if phase == "reading":
            (tmp_path / "notes" / "a.txt").write_text("another text of another length")

    with pytest.raises(InputError, match=r"a\.txt: changed while it was read"):
        fpstore.dedup(tmp_path / "notes", tmp_path / "clean", text=True, progress=change)
    assert not (tmp_path / "clean").exists()


def test_clusters_do_not_replace_a_text(tmp_path):
    (tmp_path / "notes").mkdir()
    listing = tmp_path / "notes" / "list.tsv"
    listing.write_text("some words")
    message = failure(
        "dedup", tmp_path / "notes", tmp_path / "clean", "--text", "--clusters", listing, "--force"
    )
    assert "list.tsv is an input: name another output" in message
    assert listing.read_text() == "some words"


def test_outputs_that_are_refused(tmp_path):
    path = tmp_path / "corpus.csv"
    path.write_text("h\n0000000000000001\n")
    (tmp_path / "link.csv").symlink_to(path)
    (tmp_path / "there.csv").write_text("kept as it is")
    for output, kind, message in (
        (path, InputError, "is an input: name another output"),
        (tmp_path / "link.csv", InputError, "is an input: name another output"),
        (
            tmp_path / "clean.tsv",
            InputError,
            r"the output has the format of the input: name a \.csv file",
        ),
        (tmp_path / "none" / "clean.csv", StorageError, "no such folder"),
        (tmp_path / "there.csv", StoreExistsError, "exists"),
    ):
        with pytest.raises(kind, match=message):
            fpstore.dedup(path, output, fingerprint="h", overwrite=kind is InputError)
    assert (tmp_path / "there.csv").read_text() == "kept as it is"
    fpstore.dedup(path, tmp_path / "there.csv", fingerprint="h", overwrite=True)
    assert (tmp_path / "there.csv").read_text() == path.read_text()


def test_an_output_in_a_folder_that_is_read(tmp_path):
    """It was input of the next run."""
    folder = tmp_path / "corpus"
    (folder / "more").mkdir(parents=True)
    (folder / "a.csv").write_text("h\n0000000000000001\n")
    (folder / "a.txt").write_text("some words")
    outputs = [
        {"output": folder / name} for name in ("clean.csv", "more/clean.csv", "../corpus/clean.csv")
    ]
    for how, where in itertools.product(
        ({"text": True}, {"fingerprint": "h"}), (*outputs, {"resume": folder / "kept"})
    ):
        with pytest.raises(InputError, match=r"is in .*corpus, and the next run would read it"):
            fpstore.dedup(folder, **{"output": tmp_path / "clean.csv", **where}, **how)
    assert len(list(folder.rglob("*"))) == 3


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_corpus_that_changes_meanwhile(tmp_path, form):
    path = tmp_path / f"corpus.{form}"

    def write(count):
        if form == "parquet":
            pq.write_table(pa.table({"h": pa.array(range(count), pa.uint64())}), path)
        else:
            lines = [f"{n:016x}" for n in range(count)]
            path.write_text(
                "h\n" + "\n".join(lines) + "\n"
                if form == "csv"
                else "".join(f'{{"h": "{h}"}}\n' for h in lines)
            )

    for later in (9, 11, 10, 0):
        write(10)

        def change(phase, done, total, later=later):
            if phase == "clustering":
                write(later)

        with pytest.raises(InputError, match="changed while it was read"):
            fpstore.dedup(path, tmp_path / f"clean.{form}", fingerprint="h", progress=change)
        assert sorted(tmp_path.iterdir()) == [path]


def test_folders_for_texts(tmp_path, monkeypatch):
    folder, there = tmp_path / "notes", tmp_path / "there"
    folder.mkdir()
    there.mkdir()
    (folder / "a.txt").write_text("some words")
    (tmp_path / "link").symlink_to(there)
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    for output in ("link", "dangling", "x" * 250):
        fpstore.dedup(folder, tmp_path / output, text=True)
        assert (tmp_path / output / "a.txt").read_text() == "some words"
    with pytest.raises(InputError, match="is the output, or in it"):
        fpstore.dedup(folder, tmp_path / "o", text=True, resume=tmp_path / "o" / "kept")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="is the current folder"):
        fpstore.dedup(folder, ".", text=True)
