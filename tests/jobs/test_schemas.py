"""Shards whose schemas differ a little.

What is read must agree, each shard is written as it is, one file has a common schema.
"""

import subprocess
import sys
import textwrap

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import TEXT_AND_ID, run
from small_plans import plan_dedup

import fpstore
from fpstore.errors import InputError
from fpstore.hashing import SimHash, TextReader
from fpstore.io import open_reader

A, B = (
    "the quick brown fox jumps over the lazy dog and runs away",
    "nobody has written these words before anywhere",
)
TEXTS = [A, B, None]
STRINGS = pa.array(TEXTS)
REQUIRED = pa.schema([pa.field("text", pa.string(), nullable=False), ("n", pa.int64())])
OTHERS = {
    "null": pa.table({"text": pa.nulls(3), "n": [1, 2, 3]}),
    "large string": pa.table({"text": STRINGS.cast(pa.large_string()), "n": [1, 2, 3]}),
    "dictionary": pa.table({"text": STRINGS.dictionary_encode(), "n": [1, 2, 3]}),
    "view": pa.table({"text": STRINGS.cast(pa.string_view()), "n": [1, 2, 3]}),
    "small numbers": pa.table({"text": STRINGS, "n": pa.array([1, 2, 3], pa.int32())}),
    "fractions": pa.table({"text": STRINGS, "n": [1.5, 2.5, 3.5]}),
    "order": pa.table({"n": [1, 2, 3], "text": STRINGS}),
    "required": pa.table({"text": [A, B, A], "n": [1, 2, 3]}, schema=REQUIRED),
    "a column more": pa.table({"text": STRINGS, "n": [1, 2, 3], "more": ["x", "y", "z"]}),
    "a column less": pa.table({"text": STRINGS}),
    "other fields": pa.table({"text": STRINGS, "n": [1, 2, 3], "meta": [{"b": 1}] * 3}),
}
FIRST = pa.table({"text": [A + " today", A], "n": [7, 8], "meta": [{"a": "x"}] * 2})


@pytest.fixture(params=list(OTHERS))
def shards(request, tmp_path):
    """Make a folder of a shard and another one, and return it with the tables."""
    (tmp_path / "k").mkdir()
    pq.write_table(FIRST, tmp_path / "k" / "a.parquet")
    pq.write_table(OTHERS[request.param], tmp_path / "k" / "b.parquet")
    return tmp_path / "k", [pq.read_table(tmp_path / "k" / f"{name}.parquet") for name in "ab"]


def kept_of(tables):
    """Return the rows that are kept.

    Those without a text, and the first of each text that begins alike.
    """
    texts = [text for table in tables for text in table["text"].to_pylist()]
    beginnings = [text if text is None else text[: len(A)] for text in texts]
    return [
        place
        for place, text in enumerate(beginnings)
        if text is None or text not in beginnings[:place]
    ]


def test_shards_keep_their_own_schemas(shards, tmp_path):
    folder, tables = shards
    result = fpstore.dedup(folder, tmp_path / "out", text="text")
    assert result.kept.tolist() == kept_of(tables)
    start = 0
    for name, table in zip("ab", tables, strict=True):
        written = pq.read_table(tmp_path / "out" / f"{name}.parquet")
        rows = [place - start for place in kept_of(tables) if start <= place < start + len(table)]
        assert written.to_pylist() == [table.to_pylist()[row] for row in rows]
        assert pq.read_schema(tmp_path / "out" / f"{name}.parquet").equals(
            pq.read_schema(folder / f"{name}.parquet")
        )
        start += len(table)


def test_one_file_has_the_unified_schema(shards, tmp_path):
    folder, tables = shards
    fpstore.dedup(folder, tmp_path / "one.parquet", text="text")
    written = pq.read_table(tmp_path / "one.parquet")
    rows = [row for table in tables for row in table.to_pylist()]
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    assert written.column_names == list(names)
    got = written.to_pylist()
    for row, place in zip(got, kept_of(tables), strict=True):
        for name in ("text", "n"):
            assert row[name] == rows[place].get(name)


@pytest.mark.full
def test_other_jobs_read_such_shards(shards, tmp_path):
    folder, tables = shards
    reader = TextReader(folder, SimHash(), text="text")
    texts = [text for table in tables for text in table["text"].to_pylist() if text is not None]
    assert sum(len(chunk.ids) for chunk in reader) == len(texts)
    pq.write_table(pa.table({"text": [A]}), tmp_path / "benchmark.parquet")
    result = fpstore.decontaminate(
        folder, tmp_path / "benchmark.parquet", tmp_path / "clean", text="text", ngram=5
    )
    assert result.kept.tolist() == [
        place
        for place, text in enumerate(t for x in tables for t in x["text"].to_pylist())
        if text is None or not text.startswith(A)
    ]
    plain = fpstore.remove_boilerplate(
        folder, tmp_path / "plain", text="text", unit="line", more_than=1
    )
    assert plain.documents == sum(map(len, tables))
    fpstore.remove_boilerplate(
        folder, tmp_path / "plain.parquet", text="text", unit="line", more_than=1
    )
    assert pq.read_table(tmp_path / "plain.parquet").num_rows == plain.kept
    fpstore.dedup(folder, tmp_path / "out", text="text")
    plan = plan_dedup(tmp_path / "plan", folder, tmp_path / "planned", text="text")
    plan.run_all()
    plan.finish()
    for name in "ab":
        assert (tmp_path / "planned" / f"{name}.parquet").read_bytes() == (
            tmp_path / "out" / f"{name}.parquet"
        ).read_bytes()


@pytest.mark.parametrize(
    ("one", "other"), [("string", "int64"), ("string", "binary"), ("bool", "int64")]
)
def test_types_that_do_not_agree_are_named(tmp_path, one, other):
    values = {
        "string": pa.array(["1"]),
        "int64": pa.array([1]),
        "binary": pa.array([b"1"]),
        "bool": pa.array([True]),
    }
    for name, kind in (("a", one), ("b", other)):
        pq.write_table(pa.table({"text": [A], "n": values[kind]}), tmp_path / f"{name}.parquet")
    assert (
        len(fpstore.dedup(tmp_path, tmp_path.parent / f"{tmp_path.name}-out", text="text").kept)
        == 1
    )
    with pytest.raises(
        InputError, match=rf"b\.parquet: the column 'n' is {other} here, and {one} in .*a\.parquet"
    ):
        fpstore.dedup(tmp_path, tmp_path.parent / f"{tmp_path.name}.parquet", text="text")


@pytest.mark.full
def test_types_are_checked_before_the_work_under_python_o(tmp_path):
    """An assert did, which python -O leaves out."""
    for name, numbers in (("a", ["1"]), ("b", [1])):
        pq.write_table(pa.table({"text": [A], "n": numbers}), tmp_path / f"{name}.parquet")
    code = """
        import sys

        from fpstore.errors import InputError
        from fpstore.hashing.corpora import open_source
        from fpstore.jobs.outputs import check_output

        try:
            check_output("one.parquet", open_source(sys.argv[1:]), False, "rows")
        except InputError as error:
            print(error)
    """
    command = [
        sys.executable,
        "-O",
        "-c",
        textwrap.dedent(code),
        tmp_path / "a.parquet",
        tmp_path / "b.parquet",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "b.parquet: the column 'n' is int64 here, and string in" in done.stdout


def test_a_value_that_does_not_fit_is_named(tmp_path):
    for name, numbers in (("a", [2**60 + 1]), ("b", [0.5])):
        pq.write_table(
            pa.table({"text": [f"{name} {A}"], "n": numbers}), tmp_path / f"{name}.parquet"
        )
    with pytest.raises(InputError, match="a value does not fit the type"):
        fpstore.dedup(tmp_path, tmp_path.parent / "big.parquet", text="text", threshold=1.0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("one", "other", "best", "is_planned"),
    [
        (pa.array([2**60], pa.int64()), pa.array([2.0**60 + 1024]), 1, True),
        (pa.array([5], pa.int32()), pa.array([4], pa.int64()), 0, True),
        (pa.array([5], pa.uint64()), pa.array([-4], pa.int64()), 0, True),
        (pa.nulls(1), pa.array([1]), 1, True),
        (pa.array([10_000], pa.timestamp("ms")), pa.array([20_000], pa.timestamp("us")), 0, False),
    ],
)
def test_scores_of_different_types_compare(tmp_path, one, other, best, is_planned):
    for name, scores in (("a", one), ("b", other)):
        pq.write_table(pa.table({"text": [A], "score": scores}), tmp_path / f"{name}.parquet")
    assert fpstore.dedup(tmp_path, text="text", score="score", keep="highest").kept.tolist() == [
        best
    ]

    def planned():
        out = tmp_path.parent / f"{tmp_path.name}-out"
        plan = plan_dedup(
            out.with_suffix(".plan"),
            tmp_path,
            out,
            text="text",
            score="score",
            keep="highest",
            part_bytes=1,
        )
        plan.run_all()
        plan.finish()
        assert [pq.read_table(out / f"{name}.parquet").num_rows for name in "ab"] == [
            int(best == 0),
            int(best == 1),
        ]

    if is_planned:
        planned()
    else:
        with pytest.raises(
            InputError,
            match=r"b\.parquet: the column 'score' is .* here, and .* in earlier files: make",
        ):
            planned()


def test_fingerprints_and_ids_of_different_types(tmp_path):
    for name, table in {
        "a": {"fingerprint": pa.array([-1], pa.int64()), "id": ["x"]},
        "b": {"fingerprint": pa.array([-1], pa.int32()), "id": ["y"]},
        "c": {"fingerprint": pa.nulls(1), "id": pa.nulls(1)},
        "d": {"fingerprint": pa.array([-1]), "id": pa.nulls(1)},
    }.items():
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    result = fpstore.dedup(tmp_path, fingerprint="fingerprint", id="id", signed=True)
    assert (list(result.clusters), result.not_compared, result.kept.tolist()) == (
        [["x", "y"]],
        2,
        [0, 2, 3],
    )
    with pytest.raises(InputError, match="row 1: the fingerprint is null"):
        list(open_reader(tmp_path / "c.parquet"))


@pytest.mark.full
@pytest.mark.parametrize("extension", ["csv", "tsv"])
def test_delimited_shards_with_other_columns(tmp_path, extension):
    end = {"csv": ",", "tsv": "\t"}[extension]
    folder = tmp_path / "k"
    folder.mkdir()
    contents = {
        "a": ["id,text", f"1,{A} now", f"2,{B}"],
        "b": ["text,id,more", f"{A},3,x", "other words of a text,4,y"],
        "c": [],
        "d": ["id,text"],
        "e": ["id,text", f"5,{A}"],
    }
    for name, lines in contents.items():
        (folder / f"{name}.{extension}").write_text(
            "".join(line.replace(",", end) + "\n" for line in lines)
        )
    result = fpstore.dedup(folder, tmp_path / "out", text="text", id="id")
    assert result.kept.tolist() == [0, 1, 3]
    written = {
        name: (tmp_path / "out" / f"{name}.{extension}").read_text().replace(end, ",").splitlines()
        for name in contents
    }
    assert written == {
        "a": contents["a"],
        "b": [contents["b"][0], contents["b"][2]],
        "c": [],
        "d": ["id,text"],
        "e": ["id,text"],
    }
    path = tmp_path / f"one.{extension}"
    fpstore.dedup(folder, path, text="text", id="id")
    assert path.read_text().replace(end, ",").splitlines() == [
        "id,text,more",
        f"1,{A} now,",
        f"2,{B},",
        "4,other words of a text,y",
    ]
    fpstore.remove_boilerplate(
        folder, tmp_path / f"plain.{extension}", text="text", unit="line", more_than=1
    )
    assert (tmp_path / f"plain.{extension}").read_text().replace(end, ",").splitlines()[
        -1
    ] == "4,other words of a text,y"
    plan = plan_dedup(tmp_path / "plan", folder, tmp_path / "planned", text="text", part_bytes=1)
    plan.run_all()
    assert plan.finish()["kept"] == 3
    assert (tmp_path / "planned" / f"c.{extension}").read_bytes() == b""
    assert run("build", str(tmp_path / "s.fps"), str(folder), *TEXT_AND_ID).exit_code == 0


def test_an_empty_file_comes_first(tmp_path):
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text(f"text\n{A}\n")
    fpstore.dedup(tmp_path, tmp_path.parent / "one.csv", text="text")
    assert (tmp_path.parent / "one.csv").read_text() == f"text\n{A}\n"
