"""Deduplication of a corpus in every format, against brute force.

What it keeps, copies, counts and refuses.
"""

import csv
import json
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import TEXT_AND_ID, failure, fine, run
from inputs import json_lines
from limits import limited
from near_pairs import brute, wanted_groups
from speeds import SOME_WIDTHS

import fpstore
from fpstore import MinHash, SimHash
from fpstore.base.width import Width
from fpstore.errors import InputError, StoreExistsError
from fpstore.hashing import TextReader
from fpstore.io.parquet import TableRows
from fpstore.io.source import Projection
from fpstore.query.id_lookup import InMemoryIds

WORDS = [f"word{i}" for i in range(400)]
USUAL_RADIUS = {32: 1, 64: 3, 128: 6, 256: 12}


def families(rng, width, count, members=4, flips=2):
    """Return fingerprints as numbers: some alone, and some around others, in a random order."""
    values = []
    while len(values) < count:
        value = int.from_bytes(rng.bytes(width // 8), "big")
        values.append(value)
        for _ in range(int(rng.integers(0, members))):
            near = value
            for bit in rng.choice(width, int(rng.integers(0, flips + 1)), replace=False).tolist():
                near ^= 1 << bit
            values.append(near)
    rng.shuffle(values)
    return values[:count]


def texts(rng, count):
    out = []
    while len(out) < count:
        words = rng.choice(WORDS, 300).tolist()
        out.append(" ".join(words))
        if rng.random() < 0.3:
            words[int(rng.integers(300))] = "changed"
            out.append(" ".join(words))
    return out[:count]


def expected(values, width, radius, keep="first", ids=None, scores=None):
    """Return (rows kept, clusters as lists of rows with the one kept first), by brute force."""
    rows = Width(width).rows(values)
    clusters = []
    for members in wanted_groups(brute(rows), radius):
        if keep == "smallest":
            best = min(members, key=lambda row: ids[row])
        elif keep == "highest":
            best = max(
                members, key=lambda row: (-np.inf if scores[row] is None else scores[row], -row)
            )
        elif keep == "central":
            bits = [
                sum(values[row] >> bit & 1 for row in members) * 2 > len(members)
                for bit in range(width)
            ]
            majority = sum(1 << bit for bit, item in enumerate(bits) if item)
            best = min(members, key=lambda row: ((values[row] ^ majority).bit_count(), row))
        else:
            best = members[0]
        clusters.append([best, *(row for row in members if row != best)])
    gone = {row for cluster in clusters for row in cluster[1:]}
    return [row for row in range(len(values)) if row not in gone], clusters


@pytest.mark.parametrize("width", SOME_WIDTHS)
@pytest.mark.parametrize("keep", ["first", "smallest", "central", "highest"])
def test_rows_that_are_kept(tmp_path, width, keep):
    rng = np.random.default_rng([width, len(keep)])
    values = families(rng, width, 300)
    ids = [f"id{n}" for n in rng.permutation(300)]
    scores = [None if n % 7 == 0 else float(n % 5) for n in range(300)]
    digits = Width(width).texts(Width(width).rows(values))
    path = tmp_path / "corpus.jsonl"
    rows = [
        json.dumps({"h": h, "id": i, "s": s, "other": [i, {"é": s}]})
        for h, i, s in zip(digits, ids, scores, strict=True)
    ]
    path.write_text("\n".join(rows) + "\n")
    kept, clusters = expected(values, width, USUAL_RADIUS[width], keep, ids, scores)
    score = "s" if keep == "highest" else None
    result = fpstore.dedup(
        path,
        tmp_path / "clean.jsonl",
        fingerprint="h",
        id="id",
        score=score,
        width=width,
        keep=keep,
    )
    assert result.kept.tolist() == kept
    assert (tmp_path / "clean.jsonl").read_text().splitlines() == [rows[row] for row in kept]
    assert list(result.clusters) == [[ids[row] for row in cluster] for cluster in clusters]
    assert (result.not_compared, result.clusters.documents, len(kept)) == (
        0,
        300,
        300 - result.clusters.duplicates,
    )


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_greedy_groups_have_no_chains(tmp_path, width):
    path = tmp_path / "corpus.tsv"
    for radius in (0, 1, 3, 6):
        values = families(np.random.default_rng([width, radius]), width, 200, members=9, flips=5)
        path.write_text(
            "hash\n"
            + "".join(f"{text}\n" for text in Width(width).texts(Width(width).rows(values)))
        )
        result = fpstore.dedup(path, fingerprint="hash", width=width, radius=radius, group="greedy")
        groups = {}
        for row in range(200):
            if not any((values[row] ^ values[first]).bit_count() <= radius for first in groups):
                groups[row] = [row]
        for row in sorted(set(range(200)) - set(groups)):
            nearest = min(
                groups, key=lambda first: ((values[row] ^ values[first]).bit_count(), first)
            )
            groups[nearest].append(row)
        wanted = [members for members in groups.values() if len(members) > 1]
        assert sorted(map(tuple, result.clusters)) == sorted(map(tuple, wanted))
        assert result.kept.tolist() == sorted(
            set(range(200)) - {row for members in wanted for row in members[1:]}
        )
    for rows in (1, 2, 3):  # without duplicates
        table = pa.table({"h": pa.array([n << 20 for n in range(rows)], pa.uint64())})
        result = fpstore.dedup(table, fingerprint="h", radius=0, group="greedy")
        assert (list(result.clusters), result.kept.num_rows) == ([], rows)


@pytest.mark.parametrize("group", ["connected", "greedy"])
def test_what_was_removed_and_why(tmp_path, monkeypatch, set_limits, group):
    monkeypatch.chdir(tmp_path)
    set_limits(id_slice_rows=30, compared_texts=50)
    values = families(np.random.default_rng(8), 64, 400)
    digits = Width(64).texts(np.array(values, np.uint64))
    lines = [json.dumps({"h": text, "id": f"n{row}"}) for row, text in enumerate(digits)]
    Path("c.jsonl").write_text("\n".join([*lines, '{"h": null, "id": "x"}', ""]))
    arguments = [
        "c.jsonl",
        "o.jsonl",
        "--fingerprint-field",
        "h",
        "--id-field",
        "id",
        "--radius",
        "4",
    ]
    arguments += ["--group", group]
    lists = ("--removed", "r.tsv", "--clusters", "c.tsv", "--keep", "smallest", "--quiet")
    fine("dedup", *arguments, *lists)
    result = fpstore.dedup(
        "c.jsonl", fingerprint="h", id="id", radius=4, group=group, keep="smallest"
    )
    header, *rows = [line.split("\t") for line in Path("r.tsv").read_text().splitlines()]
    columns = ["row", "id", "shard", "kept_row", "kept", "kept_shard", "cluster", "distance"]
    assert header == columns
    names, members = [f"n{row}" for row in range(400)], {}
    for cluster, (kept, *others) in enumerate(result.clusters):
        members |= dict.fromkeys(others, (kept, cluster))
    assert [row[1] for row in rows] == [name for name in names if name in members] != []
    for row, name, shard, kept_row, kept, kept_shard, cluster, distance in rows:
        assert (shard, kept_shard) == ("c.jsonl", "c.jsonl")
        assert (names[int(row)], names[int(kept_row)], (kept, int(cluster))) == (
            name,
            kept,
            members[name],
        )
        assert int(distance) == (values[int(row)] ^ values[int(kept_row)]).bit_count()
    listed = [line.split("\t") for line in Path("c.tsv").read_text().splitlines()[1:]]
    assert [row[0] for row in listed] == list(result.clusters.ids)
    for name, _, kept, distance in listed:
        assert int(distance) == (values[int(name[1:])] ^ values[int(kept[1:])]).bit_count()
    assert {int(row[0]) for row in rows} == set(range(400)) - set(result.kept.tolist())
    assert result.removed.to_arrow().to_pylist() == [
        {
            "row": int(a),
            "id": b,
            "shard": "c.jsonl",
            "kept_row": int(c),
            "kept": d,
            "kept_shard": "c.jsonl",
            "cluster": int(e),
            "distance": int(f),
        }
        for a, b, _, c, d, _, e, f in rows
    ]
    fine("dedup", *arguments, "--removed", "r.parquet", "--quiet", "--force")
    assert pq.read_table("r.parquet").column_names == columns
    for wrong, code, message in (
        (
            ["--removed", "o.jsonl", "--force"],
            1,
            "o.jsonl: is the output, too: name another file for the list",
        ),
        (
            ["--removed", "r.tsv", "--clusters", "r.tsv", "--force"],
            1,
            "r.tsv: two lists have this name",
        ),
    ):
        assert message in failure("dedup", *arguments, *wrong, code=code)
    assert "r.tsv exists: --force replaces it" in failure(
        "dedup", "c.jsonl", "new.jsonl", *arguments[2:], "--removed", "r.tsv"
    )
    assert not Path("new.jsonl").exists()
    assert (
        len(
            fpstore.dedup(
                pa.table({"h": pa.array([1, 2**64 - 2], pa.uint64())}), fingerprint="h"
            ).removed
        )
        == 0
    )


@pytest.mark.full
def test_texts_in_parquet(tmp_path):
    all_texts = [*texts(np.random.default_rng(3), 3000), "", "\u200b", None]
    table = pa.table(
        {
            "text": all_texts,
            "id": pa.array([f"https://example.org/{n}" for n in range(3003)]).dictionary_encode(),
            "tags": [[{"a": n}] if n % 3 else None for n in range(3003)],
        },
        metadata={"made by": "a test"},
    )
    paths = [tmp_path / "b.parquet", tmp_path / "a.parquet"]
    pq.write_table(table.slice(0, 1000), paths[0], compression="zstd", row_group_size=300)
    pq.write_table(table.slice(1000), paths[1])
    result = fpstore.dedup(
        paths, tmp_path / "clean.parquet", text="text", id="id", method="simhash", threads=3
    )
    values = SimHash().fingerprints(all_texts[:3000]).tolist()
    kept, clusters = expected(values, 64, 3)
    kept += [3000, 3001, 3002]
    assert result.kept.tolist() == kept
    assert result.not_compared == 3
    assert list(result.clusters) == [
        [table["id"][row].as_py() for row in cluster] for cluster in clusters
    ]
    clean = pq.read_table(tmp_path / "clean.parquet")
    assert clean.schema.equals(pq.read_schema(paths[0]), check_metadata=True)
    assert clean.to_pylist() == table.take(kept).to_pylist()
    assert (
        pq.ParquetFile(tmp_path / "clean.parquet").metadata.row_group(0).column(0).compression
        == "ZSTD"
    )


def test_unknown_rows(tmp_path):
    path, clean = tmp_path / "corpus.jsonl", tmp_path / "clean.jsonl"
    rows = [
        {"text": "a b c", "id": 1},
        {"text": None, "id": 2},
        {"text": "\u200b", "id": 3},
        {"text": "A b c", "id": None},
    ]
    rows += [{"text": "a, b, c", "id": 5}]
    path.write_text(json_lines(rows))
    # of equal texts, that of most characters stays
    for unknown, kept in (("keep", [1, 2, 3, 4]), ("drop", [4])):
        result = fpstore.dedup(path, clean, text="text", id="id", unknown=unknown, overwrite=True)
        assert (result.kept.tolist(), list(result.clusters), result.not_compared) == (
            kept,
            [[5, 1]],
            3,
        )
        assert [json.loads(line) for line in clean.read_text().splitlines()] == [
            rows[row] for row in kept
        ]
    with pytest.raises(
        InputError,
        match=r"corpus\.jsonl: row 2 has a null or blank text, or a null fingerprint or id",
    ):
        fpstore.dedup(path, clean, text="text", id="id", unknown="refuse", overwrite=True)


def test_csv_is_copied_byte_for_byte(tmp_path):
    path, clean = tmp_path / "corpus.csv", tmp_path / "clean.csv"
    lines = [
        b'"id","text",note\r\n',
        b'1,"one, two\r\nthree ""four""",x\r\n',
        b"\r\n",
        b'2,"ONE two three four",\r\n',
        '"3",größer,"\n"\r\n'.encode(),
        b"4,,\n",
    ]
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(lines))
    result = fpstore.dedup(path, clean, text="text", id="id")
    assert (result.kept.tolist(), list(result.clusters), result.not_compared) == (
        [0, 2, 3],
        [[1, 2]],
        1,
    )
    assert clean.read_bytes() == b"".join([lines[0], lines[1], lines[4], lines[5]])
    with clean.open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [
            'one, two\r\nthree "four"',
            "größer",
            "",
        ]


def test_several_files_and_folders_of_them(tmp_path):
    folder = tmp_path / "shards"
    (folder / "deep").mkdir(parents=True)
    for name, lines in (
        ("b.tsv", "h\tn\n0000000000000001\tb\n"),
        ("deep/c.TSV", "h\tn\n0000000000000003\tc\n"),
    ):
        (folder / name).write_text(lines)
    (folder / "notes.md").write_text("not rows")
    (folder / "a.tsv").write_text("h\tn\n00000000000000ff\ta\n")
    result = fpstore.dedup(folder, tmp_path / "clean.tsv", fingerprint="h", id="n", radius=1)
    assert list(result.clusters) == [["b", "c"]]
    assert (
        tmp_path / "clean.tsv"
    ).read_text() == "h\tn\n00000000000000ff\ta\n0000000000000001\tb\n"
    (folder / "d.tsv").write_text("n\tg\nd\t00000000000000ff\n")
    with pytest.raises(InputError, match=r"d\.tsv: no column named 'h' \(columns here: n, g\)"):
        fpstore.dedup(folder, fingerprint="h")
    (folder / "d.tsv").unlink()
    (folder / "e.csv").write_text("h\n")
    with pytest.raises(InputError, match="files of one format are expected, got csv, tsv"):
        fpstore.dedup(folder, fingerprint="h")


def test_folder_of_texts(tmp_path):
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    text = " ".join(WORDS)
    (folder / "a.txt").write_text(text)
    (folder / "deep" / "b.txt").write_text(text + ".")
    (folder / "deep" / "c.txt").write_text("something else")
    (folder / "picture").write_bytes(b"\0")
    result = fpstore.dedup(folder, tmp_path / "clean", text=True)
    assert list(result.clusters) == [[str(folder / "deep" / "b.txt"), str(folder / "a.txt")]]
    files = sorted(
        path.relative_to(tmp_path / "clean").as_posix()
        for path in (tmp_path / "clean").rglob("*")
        if path.is_file()
    )
    assert files == ["deep/b.txt", "deep/c.txt"]
    with pytest.raises(StoreExistsError, match="clean exists"):
        fpstore.dedup(folder, tmp_path / "clean", text=True)
    with pytest.raises(InputError, match="format= is for files of rows"):
        fpstore.dedup(folder, tmp_path / "new", text=True, format="csv")
    with pytest.raises(InputError, match="text=True makes a document of each file"):
        fpstore.dedup(folder, text="text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "notes"]


def test_tables_in_memory(tmp_path):
    table = pa.table(
        {"hash": pa.array([7, 1 << 63, 5, 1 << 63], pa.uint64()), "name": ["a", "b", "c", "d"]}
    )
    for value in (table, table.to_reader(), table.to_pandas(), pl.from_arrow(table)):
        result = fpstore.dedup(
            value,
            tmp_path / "clean.parquet",
            fingerprint="hash",
            id="name",
            radius=1,
            overwrite=True,
        )
        assert list(result.clusters) == [["a", "c"], ["b", "d"]]
        assert type(result.kept) is (
            pa.Table if isinstance(value, pa.RecordBatchReader) else type(value)
        )
        kept = result.kept["name"]
        assert (kept.to_pylist() if isinstance(kept, pa.ChunkedArray) else list(kept)) == ["a", "b"]
        assert pq.read_table(tmp_path / "clean.parquet").column("name").to_pylist() == ["a", "b"]
    texts = {"text": ["A b c d!", "a b c d", "x y z", None], "id": ["p", "q", "r", "s"]}
    for value in (pd.DataFrame(texts), pl.DataFrame(texts)):
        result = fpstore.dedup(value, text="text", id="id")
        assert (list(result.clusters), result.not_compared, list(result.kept["id"])) == (
            [["p", "q"]],
            1,
            ["p", "r", "s"],
        )


def test_lazy_frames_and_relations(tmp_path):
    """What Polars and DuckDB have not computed yet, over files of theirs."""
    texts = {"text": ["A b c d!", "x y z", "a b c d", None], "n": [1, 2, 3, 4]}
    pq.write_table(pa.table(texts), tmp_path / "a.parquet")
    lazy = pl.scan_parquet(tmp_path / "a.parquet").filter(pl.col("n") != 2).select("text", "n")
    with duckdb.connect() as connection:
        relation = connection.sql(
            f"select text, n from '{tmp_path}/a.parquet' where n <> 2 order by n"
        )
        for value, kind in ((lazy, pl.DataFrame), (relation, pa.Table)):
            result = fpstore.dedup(
                value, tmp_path / "b.parquet", text="text", id="n", overwrite=True
            )
            assert (list(result.clusters), result.not_compared) == ([[1, 3]], 1)
            assert type(result.kept) is kind
            assert pa.table(result.kept).to_pydict() == {"text": ["A b c d!", None], "n": [1, 4]}
            written = pq.read_table(tmp_path / "b.parquet").to_pydict()
            assert written == {"text": ["A b c d!", None], "n": [1, 4]}
            with fpstore.build(
                tmp_path / "s", TextReader(value, SimHash(), text="text", id="n"), overwrite=True
            ) as store:
                assert [n in store.ids for n in range(1, 5)] == [True, False, True, False]


def test_texts_of_several_inputs_do_not_meet(tmp_path, monkeypatch):
    for folder in ("a/notes", "b/notes", "c"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "one.txt").write_text(f"a text of {folder} and nothing else")
    with pytest.raises(InputError, match="two inputs have the name 'notes'"):
        fpstore.dedup(
            [tmp_path / "a" / "notes", tmp_path / "b" / "notes"], tmp_path / "clean", text=True
        )
    monkeypatch.chdir(tmp_path / "a" / "notes")
    fpstore.dedup(["..", tmp_path / "c"], tmp_path / "clean", text=True)
    files = sorted(
        path.relative_to(tmp_path / "clean").as_posix()
        for path in (tmp_path / "clean").rglob("*.txt")
    )
    assert files == ["a/notes/one.txt", "c/one.txt"]


def test_ids_keep_their_type(tmp_path):
    rows = [("7", 1), ("12", 1), ("abc", 2)]
    table = pa.table(
        {"id": [i for i, _ in rows], "h": pa.array([h << 30 for _, h in rows], pa.uint64())}
    )
    assert list(fpstore.dedup(table, fingerprint="h", id="id", radius=0).clusters) == [["7", "12"]]
    assert list(
        fpstore.dedup(table, fingerprint="h", id="id", radius=0, keep="smallest").clusters
    ) == [["12", "7"]]
    for count, wanted in ((2, [7, 12]), (3, ["12", "7"])):  # of delimited text, all ids decide
        (tmp_path / "a.csv").write_text(
            "id,h\n" + "".join(f"{i},{h << 30:016x}\n" for i, h in rows[:count])
        )
        result = fpstore.dedup(
            tmp_path / "a.csv", fingerprint="h", id="id", radius=0, keep="smallest"
        )
        assert list(result.clusters) == [wanted]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["string_view", "binary_view", "list"])
def test_parquet_with_views(tmp_path, kind):
    """They failed after all the work: pyarrow cannot take some rows of a view."""
    texts = ["one two three four", "one two three four", None, "six seven eight"]
    kinds = {
        "string_view": pa.string_view(),
        "binary_view": pa.binary_view(),
        "list": pa.list_(pa.string_view()),
    }
    extra = [None if text is None else [text] if kind == "list" else text for text in texts]
    table = pa.table(
        {"text": pa.array(texts, pa.string_view()), "extra": pa.array(extra, kinds[kind])}
    )
    pq.write_table(table, tmp_path / "c.parquet")
    for corpus in (tmp_path / "c.parquet", table):
        fpstore.dedup(corpus, tmp_path / "clean.parquet", text="text", overwrite=True)
        rows = pq.read_table(tmp_path / "clean.parquet")
        assert rows.schema.equals(table.schema)
        assert rows["text"].to_pylist() == [texts[place] for place in (0, 2, 3)]
    assert fpstore.dedup(table, text="text").kept.schema == table.schema
    odd = pa.table(
        {
            "text": ["a", "b"],
            "m": pa.array([[("k", "v")], []], pa.map_(pa.string_view(), pa.string_view())),
        }
    )
    with pytest.raises(
        InputError, match=r"column 'm' has type map<.*; pyarrow cannot take some rows of this type"
    ):
        fpstore.dedup(odd, text="text")


def test_parquet_in_batches_of_any_size(tmp_path):
    texts = ["some words", "others, which are longer " * 50, "some words"] * 20
    pq.write_table(
        pa.table({"text": texts, "n": range(60)}), tmp_path / "c.parquet", row_group_size=7
    )
    for most in (1, 100, 1 << 20):
        with limited(parquet_batch_bytes=most):
            result = fpstore.dedup(
                tmp_path / "c.parquet", tmp_path / "clean.parquet", text="text", overwrite=True
            )
        assert (
            result.kept.tolist()
            == pq.read_table(tmp_path / "clean.parquet")["n"].to_pylist()
            == [0, 1]
        )
    # large texts come in small parts
    table = pa.table({"text": ["word " * 100_000 + str(n) for n in range(20)]})
    parts = list(TableRows(table).batches(Projection(text="text")))
    assert len(parts) >= 5
    assert [text for part in parts for text in part.texts] == table["text"].to_pylist()


def test_command_line(folder: Path) -> None:
    out = fine("dedup", "corpus.parquet", "clean.parquet", *TEXT_AND_ID, "--clusters", "c.tsv")
    assert pq.read_table("clean.parquet")["id"].to_pylist() == ["b", "c"]
    assert Path("c.tsv").read_text().splitlines() == [
        "id\tcluster\trepresentative\tsimilarity",
        "b\t0\tb\t1.0",
        "a\t0\tb\t0.997018",
        "far\t0\tb\t0.997018",
    ]
    assert all(part in out for part in ("removed", "50.0%", "in clean.parquet", "b, a, far"))
    assert "exists" in failure("dedup", "corpus.parquet", "clean.parquet", "--text-field", "text")
    summary = json.loads(
        fine(
            "dedup", "corpus.parquet", "clean.parquet", "--text-field", "text", "--force", "--json"
        )
    )
    assert summary == {
        "documents": 4,
        "not_compared": 0,
        "clusters": 1,
        "in_clusters": 3,
        "removed": 2,
        "kept": 2,
        "sizes": {"3": 1},
        "largest": [{"documents": 3, "ids": [1, 0, 3]}],
        "contained": 0.8,
        "threshold": 0.7,
        "lossless": 2,
        "near": 0,
    }
    words = ("--text-field", "text", "--force", "--json", "--estimate")
    estimated = json.loads(fine("dedup", "corpus.parquet", "clean.parquet", *words))
    names = ("search", "radius", "similarity", "recall")
    assert {name: estimated[name] for name in names} == {
        "search": "exact",
        "radius": 50,
        "similarity": 0.7,
        "recall": MinHash().recall(0.7, 50),
    }
    for arguments, message in (
        (["--shingle", "chars"], "--shingle is for files of texts"),
        (["--suffix", ".txt"], "--suffix is for files of texts"),
        (["--radius", 70], "--radius: must be"),
        (["--keep", "highest"], "--keep highest needs --score-field,"),
        (["--keep", "smallest"], "needs a column of ids"),
        (["--text-field", "hash"], "--fingerprint-field is for fingerprints"),
        (["--clusters", "c.pdf"], "unknown extension '.pdf'"),
    ):
        assert message in failure(
            "dedup", "hashes.csv", "out.csv", "--fingerprint-field", "hash", *arguments, code=2
        )
    Path("c.npy").touch()
    known = failure("dedup", "c.npy", "out.npy", "--fingerprint-field", "hash")
    assert "known extensions: .parquet, .jsonl, .csv, .tsv\n" in known
    Path("out").mkdir()
    assert "out/c.tsv: is in the output" in failure(
        "dedup", "notes", "out", "--text", "--clusters", "out/c.tsv"
    )
    result = run("dedup", "notes", "out", "--text", "--json")
    # such a file is a row that is not compared
    assert "1 file left out, blank: notes/empty.md" not in result.stderr
    assert "1 file left out, binary, not text: notes/picture.txt" in result.stderr
    assert json.loads(result.stdout)["not_compared"] == 1


def test_sizes_of_clusters():
    sizes = [2, 2, 3, 4, 7, 8, 15, 16]
    lims = np.concatenate([[0], np.cumsum(sizes)])
    numbers = np.arange(sum(sizes), dtype=np.uint64)
    clusters = fpstore.Clusters(lims, InMemoryIds(numbers), numbers, 100)
    assert clusters.histogram() == {"2": 2, "3": 1, "4-7": 2, "8-15": 2, "16-31": 1}
    assert [len(cluster) for cluster in clusters.largest(3)] == [16, 15, 8]
    assert (
        fpstore.Clusters(np.zeros(1, np.int64), InMemoryIds([]), numbers[:0], 0).histogram() == {}
    )


H = "h\n0000000000000001\n"


def test_what_is_refused(tmp_path):
    path = tmp_path / "corpus.csv"
    for content, arguments, message in (
        (
            "h,id\n1,a\n",
            {"fingerprint": "hash"},
            r"corpus\.csv: no column named 'hash' \(columns here: h, id\)",
        ),
        ("h,h\n1,a\n", {"fingerprint": "h"}, "2 columns named 'h'"),
        ("h,id\n1\n", {"fingerprint": "h"}, r"corpus\.csv:2: has 1 cells, the header has 2"),
        ('h\n"1\n', {"fingerprint": "h"}, r"corpus\.csv:2: not valid CSV"),
        ("h\n12\n", {"fingerprint": "h"}, r"corpus\.csv:2: '12' is not a fingerprint: "),
        ("", {"fingerprint": "h"}, r"corpus\.csv: no rows"),
        ("h\n", {"fingerprint": "h"}, r"corpus\.csv: no rows"),
        (
            "h,s\n0000000000000001,x\n",
            {"fingerprint": "h", "score": "s", "keep": "highest"},
            "a score must be a number",
        ),
        (
            "h,s\n0000000000000001,1_0\n",
            {"fingerprint": "h", "score": "s", "keep": "highest"},
            "a score must be a number",
        ),
        (H, {"fingerprint": "h", "keep": "highest"}, "needs score="),
        (H, {"fingerprint": "h", "radius": 65}, "radius"),
        (
            H,
            {"fingerprint": "h", "width": 128, "signed": True},
            "signed integers have 32 or 64 bits",
        ),
        (H, {"text": "h", "signed": True}, "is for a column of fingerprints"),
        (H, {"text": "h", "decimal": True}, "is for a column of fingerprints"),
        (H, {"text": "h", "fingerprinter": "x"}, "fingerprinter must be one of texts, such as"),
        (H, {"fingerprint": "h", "fingerprinter": SimHash()}, "a fingerprinter is for texts"),
        (H, {"fingerprint": "h", "keep": "smallest"}, "needs a column of ids"),
        (H, {"fingerprint": "h", "keep": "best"}, "keep must be one of"),
        (H, {}, "name either the column of texts"),
        (H, {"text": "h", "fingerprint": "h"}, "name either the column of texts"),
        (
            H,
            {"text": "h", "width": 128, "fingerprinter": SimHash()},
            "it makes 64 bits, not width=128: leave width out",
        ),
        (H, {"fingerprint": 5}, "must be the name of a column"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            fpstore.dedup(path, tmp_path / "clean.csv", **arguments)
        assert sorted(tmp_path.iterdir()) == [path]
    (tmp_path / "c.tsv").write_text('text\tn\n"a word\nand another"\t5\n')
    with pytest.raises(
        InputError,
        match=r"c\.tsv:2: has 1 cells, the header has 2: TSV has no quoted cells, write CSV",
    ):
        fpstore.dedup(tmp_path / "c.tsv", text="text")
    table = pa.table(
        {"b": [b"abc"], "f": [1.5], "n": [[1]], "t": ["text"], "u": pa.array([1], pa.uint64())}
    )
    series = (table["t"], pd.Series(["a", "b"]), pl.Series(["a", "b"]))
    for source, arguments, message in (
        (table, {"text": "b"}, "column 'b' has type binary, texts must be strings"),
        (table, {"fingerprint": "f"}, "column 'f' has type double"),
        (
            table,
            {"text": "t", "id": "f"},
            "column 'f' has type double, ids must be integers or strings",
        ),
        (
            table,
            {"text": "t", "score": "n", "keep": "highest"},
            "column 'n' has type list<.*>, scores must be numbers",
        ),
        (table, {"fingerprint": "u", "id": "none"}, "no column named 'none'"),
        (
            pa.table({"h": ["0" * 16, None, "x"], "id": ["a", "b", "d"]}),
            {"fingerprint": "h", "id": "id"},
            "row 3: ",
        ),
        (5, {"text": "t"}, "a corpus is a path, several paths, or a table"),
        *(
            (column, {"text": "t"}, "rows in memory are a table with named columns, got ")
            for column in series
        ),
    ):
        with pytest.raises(InputError, match=message):
            fpstore.dedup(source, **arguments)
