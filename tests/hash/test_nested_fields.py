"""Fields inside of other fields, fields that rows lack, and names that no row has."""

import json
import logging
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run
from inputs import json_lines

import fpstore
from fpstore.errors import InputError
from fpstore.hashing import SimHash, TextReader
from fpstore.io import fields

WORDS = ["the first text of all", "another text", "the first text of all", "a third one"]
NESTED = [
    {
        "n": n,
        "doc": None if n == 1 else {"text": text, "deep": {"score": 9 - n}},
        "metadata": {"url": f"u{n}", "lang": "en"},
    }
    for n, text in enumerate(WORDS)
]
FLAT = [
    {
        "n": n,
        "text": None if n == 1 else text,
        "score": None if n == 1 else 9 - n,
        "url": f"u{n}",
    }
    for n, text in enumerate(WORDS)
]
NAMES = {"text": "doc.text", "id": "metadata.url", "score": "doc.deep.score", "keep": "highest"}


def written(folder, name, rows):
    path = folder / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    else:
        path.write_text(json_lines(rows))
    return path


def numbers(kept):
    return kept if isinstance(kept, list) else kept.tolist()


@pytest.fixture(params=["jsonl", "parquet", "table", "polars"])
def nested(request, tmp_path):
    """Return rows of each kind with a text, an id and a score in other fields."""
    if request.param == "table":
        return pa.Table.from_pylist(NESTED).slice(0)
    if request.param == "polars":
        return pl.DataFrame(NESTED)
    return written(tmp_path, f"nested.{request.param}", NESTED)


def test_names_with_dots(nested):
    expected = list(TextReader(pa.Table.from_pylist(FLAT), SimHash(), text="text", id="url"))
    chunks = list(TextReader(nested, SimHash(), text="doc.text", id="metadata.url"))
    assert [chunk.ids for chunk in chunks] == [chunk.ids for chunk in expected]
    assert [c.fingerprints.tolist() for c in chunks] == [c.fingerprints.tolist() for c in expected]
    result = fpstore.dedup(nested, threshold=0.9, **NAMES)
    assert list(result.clusters) == [["u0", "u2"]]
    assert result.not_compared == 1


def test_fields_of_sliced_tables():
    table = pa.Table.from_pylist(NESTED).slice(1)
    (chunk,) = TextReader(table, SimHash(), text="doc.text", id="metadata.url")
    assert chunk.ids == ["u2", "u3"]
    assert chunk.fingerprints.tolist() == SimHash().fingerprints(WORDS[2:]).tolist()


def test_texts_of_dictionaries_in_structs(tmp_path):
    inner = pa.array(WORDS).dictionary_encode()
    table = pa.table({"doc": pa.StructArray.from_arrays([inner], ["text"])})
    pq.write_table(table, tmp_path / "a.parquet")
    expected = SimHash().fingerprints(WORDS).tolist()
    for source in (table, tmp_path / "a.parquet"):
        (chunk,) = TextReader(source, SimHash(), text="doc.text")
        assert chunk.fingerprints.tolist() == expected


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_kept_rows_are_whole(tmp_path, name):
    path = written(tmp_path, name, NESTED)
    fpstore.dedup(path, tmp_path / f"clean-{name}", threshold=0.9, **NAMES)
    kept = [row for row in NESTED if row["n"] != 2]
    if name.endswith("jsonl"):
        assert (tmp_path / f"clean-{name}").read_text() == json_lines(kept)
    else:
        assert pq.read_table(tmp_path / f"clean-{name}").to_pylist() == kept


def test_a_name_of_its_own_comes_first(tmp_path):
    rows = [{"doc.text": "own", "doc": {"text": "inner", "a.b": "odd"}}]
    own, odd = (SimHash().fingerprint(text) for text in ("own", "odd"))
    for source in (
        written(tmp_path, "a.jsonl", rows),
        written(tmp_path, "a.parquet", rows),
        pa.Table.from_pylist(rows),
    ):
        for name, value in (("doc.text", own), ("doc.a.b", odd)):
            (chunk,) = TextReader(source, SimHash(), text=name)
            assert chunk.fingerprints.tolist() == [value]
    csv = tmp_path / "a.csv"
    csv.write_text("doc.text,doc\nown,inner\n")
    (chunk,) = TextReader(csv, SimHash(), text="doc.text")
    assert chunk.fingerprints.tolist() == [own]


NOTICE = "All rights reserved."


def test_boilerplate_in_nested_texts(nested, tmp_path):
    rows = [
        {
            "doc": {"text": f"Story {n}\n\n{NOTICE}", "é": [{"text": "x"}]} if n else None,
            "text": "outer",
            "m": {"doc": {"text": NOTICE}},
        }
        for n in range(20)
    ]
    expected = [
        {**row, "doc": row["doc"] and {**row["doc"], "text": f"Story {n}"}}
        for n, row in enumerate(rows)
    ]
    if isinstance(nested, Path):
        path = written(tmp_path, f"rows{nested.suffix}", rows)
        out = tmp_path / f"out{nested.suffix}"
        fpstore.remove_boilerplate(path, out, text="doc.text")
        if out.suffix == ".parquet":
            assert pq.read_table(out).to_pylist() == expected
        else:
            assert out.read_text() == json_lines(expected)
    else:
        table = pa.Table.from_pylist(rows)
        source = pl.from_arrow(table) if isinstance(nested, pl.DataFrame) else table
        assert fpstore.remove_boilerplate(source, text="doc.text").table.to_pylist() == expected


def test_the_last_field_of_a_line_counts(tmp_path):
    line = '{"doc":{"text":"old"}, "doc" : { "text" : "Own\\n\\nAll", "text":"Own %d\\n\\nAll" } }'
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(line % n for n in range(20)) + "\n")
    fpstore.remove_boilerplate(path, tmp_path / "b.jsonl", text="doc.text")
    assert (tmp_path / "b.jsonl").read_text().splitlines() == [
        line.replace('"Own %d\\n\\nAll"', f'"Own {n}"') for n in range(20)
    ]


def test_plans_read_the_same_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("jsonl", "parquet"):
        Path("in").mkdir()
        for part in range(2):
            written(Path("in"), f"{part}.{name}", NESTED[2 * part :][:2])
        words = ("--text-field", "doc.text", "--id-field", "metadata.url", "-q")
        fine("dedup", "in", "one", *words)
        fine("dedup", "in", "two", *words, "--processes", 1)
        for part in range(2):
            path = f"{part}.{name}"
            assert Path("one", path).read_bytes() == Path("two", path).read_bytes()
        for folder in ("in", "one", "two"):
            shutil.rmtree(folder)


def test_a_field_that_a_row_lacks_is_null(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"text": "a b", "id": "x"}, {"id": "y"}, {"text": None, "id": "z"}, {"text": "c"}]
    path = written(tmp_path, "a.jsonl", rows)
    result = fpstore.dedup(path, "b.jsonl", text="text", id="id")
    assert (result.not_compared, result.kept.tolist()) == (3, [0, 1, 2, 3])
    assert Path("b.jsonl").read_text() == json_lines(rows)
    reader = TextReader(path, SimHash(), text="text")
    assert [chunk.ids.tolist() for chunk in reader] == [[0, 3]]
    assert reader.empty == 2
    with pytest.raises(InputError, match=r"a\.jsonl:4: the field 'id' is missing"):
        list(TextReader(path, SimHash(), text="text", id="id"))
    done = run("build", "a.fps", path, "--text-field", "text")
    assert "2 rows left out, blank: row 1, row 2\n" in done.stderr


def test_the_nearest_names_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"Title": "a", "metadata": {"url": "b", "doc": {"body": "c"}}, "x": 1, "other": "d"},
        {"other": "e", "metadata": None},
    ]
    here = "here: Title, metadata, x, other"
    for name, shown in (("a.jsonl", "no row has the field"), ("a.parquet", "no column named")):
        path = written(tmp_path, name, rows)
        for wrong, nearest in (
            ("titel", "; nearest: Title"),
            ("url", "; nearest: metadata.url"),
            ("metadata.doc.boddy", "; nearest: metadata.doc.body"),
            ("something", ""),
        ):
            message = failure("dedup", path, f"out-{name}", "--text-field", wrong)
            assert f"{shown} '{wrong}'" in message
            assert here in message
            assert nearest in message
            assert ("; nearest" in message) == bool(nearest)
    Path("a.csv").write_text("Title,url\na,b\n")
    assert "(columns here: Title, url; nearest: url)" in failure(
        "dedup", "a.csv", "out.csv", "--text-field", "uri"
    )


def test_a_wrong_name_is_told_before_all_is_read(tmp_path, caplog):
    """The rest of a corpus may take hours to read."""
    row = json.dumps({"text": "some words " * 1000}) + "\n"
    path = tmp_path / "a.jsonl"
    path.write_text(row * 300)
    reader = iter(TextReader(path, SimHash(), text="txt", threads=1, chunk_rows=50))
    with caplog.at_level(logging.WARNING, "fpstore"), pytest.raises(InputError):
        next(reader)
    assert "no row has the field 'txt' (fields here: text; nearest: text) so far" in caplog.text
    path.write_text(row + row.replace('"text"', '"title"') * 300)
    caplog.clear()
    assert sum(len(c.ids) for c in TextReader(path, SimHash(), text="text")) == 1
    assert caplog.text == ""


def test_a_plan_refuses_a_name_that_no_row_has(tmp_path):
    for part in range(2):
        written(tmp_path, f"{part}.jsonl", [{"text": f"a {part}"}] * (part + 1))
    message = failure(
        "dedup", tmp_path, tmp_path.parent / "o", "--text-field", "txt", "--processes", 1
    )
    assert "no row has the field 'txt' (fields here: text; nearest: text)" in message


def test_a_part_of_a_plan_may_lack_a_field(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    written(Path("in"), "a.jsonl", [{"url": "x"}])
    written(Path("in"), "b.jsonl", [{"text": "words", "url": "y"}] * 9)
    for output, more in (("one", ()), ("two", ("--processes", 1, "--part-bytes", 1))):
        fine("dedup", "in", output, "--text-field", "text", "-q", *more)
        assert Path(output, "a.jsonl").read_text() == '{"url": "x"}\n'
        assert len(Path(output, "b.jsonl").read_text().splitlines()) == 1


def test_nearest_names():
    names = ["url", "metadata.url", "text", "Text2", "metadata.text"]
    assert fields.nearest_names("url", names)[:2] == ["metadata.url", "url"]
    assert fields.nearest_names("txet", names)[0] == "text"
    assert fields.nearest_names("TEXT", names)[0] == "text"
    assert fields.nearest_names("quite else", names) == []
