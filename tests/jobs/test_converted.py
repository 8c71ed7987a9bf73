"""Rows that are written in another format: Parquet, JSON lines, delimited text.

What another format cannot hold.
"""

import csv
import json
import math
import os
import sys

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fpstore
from fpstore.errors import InputError, MissingExtraError

NAMES = st.text('abc é"\\', min_size=1, max_size=3)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
#: What draws a value of a type, and whether a value is null.
PLAIN = {
    "boolean": st.booleans(),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "unsigned": st.integers(0, 2**64 - 1),
    "number": st.one_of(
        st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)
    ),
    "string": TEXT,
}
SHAPES = st.recursive(
    st.sampled_from(list(PLAIN)),
    lambda inner: st.one_of(
        st.tuples(st.just("list"), inner), st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def values(draw, shape):
    """Draw a value of a shape: in JSON, a field may be null or missing."""
    if draw(st.integers(0, 6)) == 0:
        return None
    if isinstance(shape, dict):
        return {
            name: draw(values(inner)) for name, inner in shape.items() if draw(st.integers(0, 4))
        }
    if isinstance(shape, tuple):
        return draw(st.lists(values(shape[1]), max_size=3))
    return draw(PLAIN[shape])


def filled(value, shape):
    """Return what Parquet gives back: null for a field that is missing; a number is a double."""
    if value is None:
        return None
    if isinstance(shape, dict):
        return {name: filled(value.get(name), inner) for name, inner in shape.items()}
    if isinstance(shape, tuple):
        return [filled(one, shape[1]) for one in value]
    return value


def seen(rows, shape):
    """Return a shape without the fields that no row has.

    Nothing is known of them, and no object is without fields.
    """
    if isinstance(shape, dict):
        present = [row for row in rows if row is not None]
        inner = {
            name: seen([row[name] for row in present if name in row], one)
            for name, one in shape.items()
        }
        return {name: one for name, one in inner.items() if any(name in row for row in present)}
    if isinstance(shape, tuple):
        return "list", seen([one for row in rows if row is not None for one in row], shape[1])
    return shape


def without_fields(rows, shape):
    """Whether all objects in some place are without fields."""
    if isinstance(shape, dict):
        return (not shape and any(row is not None for row in rows)) or any(
            without_fields([row.get(name) for row in rows if row is not None], inner)
            for name, inner in shape.items()
        )
    return isinstance(shape, tuple) and without_fields(
        [one for row in rows if row is not None for one in row], shape[1]
    )


def read(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


@settings(max_examples=25, deadline=None)
@given(st.data(), st.dictionaries(NAMES.filter(lambda name: name != "h"), SHAPES, max_size=3))
def test_json_lines_to_parquet_and_back(tmp_path_factory, data, shape):
    folder = tmp_path_factory.mktemp("rows")
    shape = {"h": "string", **shape}
    rows = [
        {**(data.draw(values(shape)) or {}), "h": f"{n << 40:016x}"}
        for n in range(data.draw(st.integers(1, 8)))
    ]
    (folder / "a.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=bool(n % 2)) + "\n" for n, row in enumerate(rows))
    )
    known = seen(rows, shape)
    how = {"fingerprint": "h", "radius": 0}
    if without_fields(rows, known):
        with pytest.raises(InputError, match="an object without fields in all rows"):
            fpstore.dedup(folder / "a.jsonl", folder / "b.parquet", **how)
        assert [path.name for path in folder.iterdir()] == ["a.jsonl"]
        return
    fpstore.dedup(folder / "a.jsonl", folder / "b.parquet", **how)
    wanted = [filled(row, known) for row in rows]
    table = pq.read_table(folder / "b.parquet")
    assert table.to_pylist() == wanted
    assert set(table.column_names) == set(known)
    for source, name in (
        (folder / "b.parquet", "c.jsonl"),
        (table, "d.jsonl"),
        (pl.from_arrow(table), "e.jsonl"),
    ):
        fpstore.dedup(source, folder / name, **how)
        assert read(folder / name) == wanted


def test_types_of_parquet(tmp_path):
    """Types of one value in JSON lines; dictionaries and views are strings."""
    texts = pa.array(["a", None, "é"])
    table = pa.table(
        {
            "h": pa.array([1, 2**40, 2**50], pa.uint64()),
            "d": texts.dictionary_encode(),
            "v": texts.cast(pa.string_view()),
            "l": texts.cast(pa.large_string()),
            "f": pa.array([0.1, None, 2], pa.float32()),
            "n": pa.nulls(3),
            "i": pa.array([-(2**63), 0, 2**63 - 1]),
            "s": pa.array([{"a": [1]}, None, {"a": None}]),
        }
    )
    fpstore.dedup(table, tmp_path / "a.jsonl", fingerprint="h", radius=0)
    rows = read(tmp_path / "a.jsonl")
    assert rows == table.to_pylist()
    assert (tmp_path / "a.jsonl").read_text().startswith('{"h": 1, "d": "a", "v": "a"')


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_delimited_text_is_strings(tmp_path, suffix):
    rows = [
        ["h", "text"],
        [f"{1:016x}", "1"],
        [f"{1 << 40:016x}", "é, 'x'"],
        [f"{1:016x}", "gone"],
        [f"{1 << 50:016x}", ""],
    ]
    with (tmp_path / f"a{suffix}").open("w", newline="") as file:
        csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",").writerows(rows)
    wanted = [dict(zip(rows[0], rows[at], strict=True)) for at in (1, 2, 4)]
    for name in ("a.jsonl", "a.parquet"):
        fpstore.dedup(tmp_path / f"a{suffix}", tmp_path / name, fingerprint="h", radius=0)
    assert read(tmp_path / "a.jsonl") == wanted
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == wanted


def test_a_package_that_is_missing(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text('{"h": "1"}\n')
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"b\.parquet: Parquet needs the package pyarrow"):
        fpstore.dedup(tmp_path / "a.jsonl", tmp_path / "b.parquet", fingerprint="h")


def test_what_another_format_cannot_hold(tmp_path):
    how = {"fingerprint": "h", "radius": 0}
    lines, path = tmp_path / "a.jsonl", tmp_path / "b.parquet"
    for fields, message in (
        (
            ['"x": 1', '"x": "1"'],
            r"a\.jsonl:2: x: string, and integer in earlier rows: a column of Parquet has one type",
        ),
        (['"x": true', '"x": 1'], r"a\.jsonl:2: x: integer, and boolean in earlier rows"),
        (
            ['"x": {"y": [1]}', '"x": {"y": [null, {}]}'],
            r"a\.jsonl:2: x: y: an item: object, and integer in earlier rows",
        ),
        (
            ['"x": 9007199254740993', '"x": 0.5'],
            r"a\.jsonl: x: integers beyond 2\^53 beside fractions",
        ),
        (
            ['"x": -9007199254740993', '"x": 0.5'],
            r"a\.jsonl: x: integers beyond 2\^53 beside fractions",
        ),
        (['"x": 18446744073709551616'], r"a\.jsonl: x: integers beyond 64 bits"),
        (
            ['"x": -1', '"x": 9223372036854775808'],
            r"a\.jsonl: x: integers beyond 64 bits, or beyond 2\^63 beside negative",
        ),
        (['"x": ["\\ud800"]'], r"a\.jsonl:1: a lone surrogate"),
    ):
        lines.write_text(
            "".join(f'{{"h": "{n << 40:016x}", {field}}}\n' for n, field in enumerate(fields))
        )
        with pytest.raises(InputError, match=message):
            fpstore.dedup(lines, path, **how)
        assert [found.name for found in tmp_path.iterdir()] == ["a.jsonl"]
    lines.unlink()
    h = pa.array([0, 1 << 40], pa.uint64())
    worked = []
    for column, message in (
        (pa.array([b"a", b"b"]), r"column 'x' has type binary, which JSON cannot hold"),
        (
            pa.array([0, 1], pa.timestamp("ms")),
            r"column 'x' has type timestamp\[ms\], which JSON cannot hold",
        ),
        (pa.array([{"y": [b"a"]}, None]), r"column 'x\.y\[\]' has type binary"),
        (pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())), r"column 'x' has type map"),
    ):
        pq.write_table(pa.table({"h": h, "x": column}), path)
        for source in (path, pa.table({"h": h, "x": column})):
            with pytest.raises(InputError, match=message):  # before the work
                fpstore.dedup(source, lines, **how, progress=lambda *said: worked.append(said))
    pq.write_table(pa.table([h, h, h], ["h", "x", "x"]), path)
    with pytest.raises(InputError, match="2 columns named 'x': a JSON object cannot repeat a name"):
        fpstore.dedup(path, lines, **how, progress=lambda *said: worked.append(said))
    assert not worked
    for column, message in (
        (pa.array([0.5, math.nan]), r"x: JSON has no NaN"),
        (pa.array([0.5, math.inf]), r"x: JSON has no NaN, no infinity"),
        (
            pa.StringArray.from_buffers(
                2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")
            ),
            "not valid UTF-8",
        ),
    ):
        pq.write_table(pa.table({"h": h, "x": column}), path)
        with pytest.raises(InputError, match=message):
            fpstore.dedup(path, lines, **how)
    (tmp_path / "c.csv").write_text(f"h,x,x\n{1:016x},1,2\n")
    with pytest.raises(InputError, match=r"c\.csv:2: two columns have one name: 'h', 'x', 'x'"):
        fpstore.dedup(tmp_path / "c.csv", lines, **how)
    with pytest.raises(
        InputError,
        match=r"b\.csv: rows of \.parquet are written as \.parquet or \.jsonl, and the name of",
    ):
        fpstore.dedup(path, tmp_path / "b.csv", **how)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["b.parquet", "c.csv"]


@pytest.mark.parametrize(("source", "target"), [("a.jsonl", "b.parquet"), ("a.parquet", "b.jsonl")])
def test_a_file_that_changes_while_it_is_copied(tmp_path, source, target):
    path, table = tmp_path / source, pa.table({"h": pa.array([0, 1 << 40], pa.uint64())})
    pq.write_table(table, path)
    if source.endswith("jsonl"):
        path.write_text(
            "".join(json.dumps({"h": f"{row['h']:016x}"}) + "\n" for row in table.to_pylist())
        )

    def changes(phase, done, total):
        if phase == "copying" and done:
            os.utime(path, ns=(1, 1))

    with pytest.raises(InputError, match="changed while it was read"):
        fpstore.dedup(path, tmp_path / target, fingerprint="h", radius=0, progress=changes)
    assert list(tmp_path.iterdir()) == [path]


def test_what_no_reader_or_writer_takes_is_refused(tmp_path):
    for value, message in (
        ({"a\ud800": 1}, "the name of a field has a lone surrogate"),
        ({"x": {"b\udfff": 1}}, "the name of a field has a lone surrogate"),
        ({"x": json.loads("[" * 50 + "1" + "]" * 50)}, "nested more than 40 deep"),
    ):
        (tmp_path / "c.jsonl").write_text(json.dumps({"text": "a b c", **value}) + "\n")
        with pytest.raises(InputError, match=message):
            fpstore.dedup(tmp_path / "c.jsonl", tmp_path / "o.parquet", text="text")
        assert not (tmp_path / "o.parquet").exists()
    (tmp_path / "c.jsonl").write_text('{"text": "a b c", "x": ' + "[" * 39 + "1" + "]" * 39 + "}\n")
    fpstore.dedup(tmp_path / "c.jsonl", tmp_path / "o.parquet", text="text")
    assert len(fpstore.dedup(tmp_path / "o.parquet", text="text").kept) == 1
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(InputError, match="two of its fields have one name"):
        fpstore.dedup(pa.table({"text": ["a b c"], "x": twice}), tmp_path / "t.jsonl", text="text")
