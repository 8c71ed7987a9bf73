"""Columns of texts as input of build, hash, insert and the searches.

Real files of every format, and tables.
"""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import TEXT_AND_URL, TEXT_FIELD, failure, fine, run
from inputs import json_lines
from speeds import crossed, slow
from text_tables import HASHES, KEPT, TEXTS, URLS, ids_in, pairs, texts_of, write

import fpstore
from fpstore import SimHash
from fpstore.errors import InputError, StorageError
from fpstore.hashing import ImageHash, TextReader


@pytest.fixture(params=["parquet", slow("jsonl"), "csv", slow("tsv")])
def pages(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(
        Path(f"pages.{request.param}"),
        {"text": TEXTS, "url": URLS, "number": [row + 100 for row in range(len(TEXTS))]},
    )


def test_build_makes_fingerprints_of_a_column(pages):
    done = run("build", "p.fps", pages, "--text-field", "text", "--id-field", "url", "--threads", 2)
    assert (done.exit_code, done.stderr) == (0, "fpstore: 2 rows left out, blank: row 5, row 9\n")
    assert pairs("p.fps") == {value: [URLS[row]] for value, row in zip(HASHES, KEPT, strict=True)}
    with fpstore.open("p.fps") as store:
        assert store.fingerprinter == SimHash().describe()
    # nothing is said
    assert fine("build", "q.fps", pages, "--text-field", "text", "--id-field", "url", "-q") == ""
    assert pairs("q.fps") == pairs("p.fps")


def test_row_numbers_count_rows_that_are_left_out(pages):
    fine("build", "p.fps", pages, pages, "--text-field", "text", "-q")
    n = len(TEXTS)
    assert pairs("p.fps") == {
        value: [row, row + n] for value, row in zip(HASHES, KEPT, strict=True)
    }
    assert json.loads(fine("stats", "p.fps", "--json"))["id_kind"] == "row"
    fine("insert", "p.fps", pages, "--text-field", "text", "-q")
    assert pairs("p.fps") == {
        value: [row, row + n, row + 2 * n] for value, row in zip(HASHES, KEPT, strict=True)
    }
    fine("merge", "p.fps", "-q")
    assert pairs("p.fps")[HASHES[-1]] == [KEPT[-1], KEPT[-1] + n, KEPT[-1] + 2 * n]


def test_types_of_ids(pages):
    for kind, convert in (("auto", int), ("int", int), ("str", str)):
        ids = ("--id-field", "number", "--id-type", kind)
        fine("build", "p.fps", pages, *TEXT_FIELD, *ids, "-q", "--force")
        assert pairs("p.fps") == {
            value: [convert(row + 100)] for value, row in zip(HASHES, KEPT, strict=True)
        }


def test_hash_text_writes_a_row_for_each_text(pages):
    fields = (*TEXT_AND_URL, "--quiet")
    assert fine("hash", pages, *fields).splitlines() == [
        f"{value:016x}\t{URLS[row]}" for value, row in zip(HASHES, KEPT, strict=True)
    ]
    objects = [
        json.loads(line)
        for line in fine("hash", pages, "--text-field", "text", "--json", "-q").splitlines()
    ]
    assert [item["id"] for item in objects] == KEPT
    fine("hash", pages, *fields, "-o", "h.parquet", "--shingle", "chars", "--shingle-size", 5)
    chars = SimHash(shingle="chars", size=5)
    kept = [row for row in range(len(TEXTS)) if not chars.is_empty(TEXTS[row])]
    assert pq.read_table("h.parquet")["fingerprint"].to_pylist() == [
        chars.fingerprint(TEXTS[row]) for row in kept
    ]


def test_searches_tell_the_row_and_the_id(pages):
    fine("build", "p.fps", pages, *TEXT_AND_URL, "--weighting", "set", "-q")
    for verb in (("probe", "-r", 0), ("scan", "-r", 0), ("nearest",)):
        arguments = (
            *verb[:1],
            "p.fps",
            *verb[1:],
            "--input",
            pages,
            "--text-field",
            "text",
            "--json",
        )
        done = run(*arguments, "--id-field", "url")
        assert done.stderr == "fpstore: 2 rows left out, blank: row 5, row 9\n"
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(item["row"], item["query_id"]) for item in rows] == [
            (row, URLS[row]) for row in KEPT
        ]
        assert [item["matches"][0]["ids"] for item in rows] == [[URLS[row]] for row in KEPT]
        without = [json.loads(line) for line in run(*arguments).stdout.splitlines()]
        assert [item["row"] for item in without] == KEPT
        assert "query_id" not in without[0]
    lines = run(
        "probe", "p.fps", "-r", 0, "--input", pages, *TEXT_FIELD, "--with-queries", "-o", "m.tsv"
    )
    assert lines.exit_code == 0
    assert [int(line.split("\t")[4]) for line in Path("m.tsv").read_text().splitlines()] == KEPT
    Path("none.jsonl").write_text('{"text": "something else entirely"}\n')
    assert run("probe", "p.fps", "--input", "none.jsonl", "--text-field", "text").exit_code == 1


def test_insert_adds_rows_with_the_fingerprinter_of_the_store(pages):
    fine("build", "p.fps", pages, *TEXT_AND_URL, "--shingle-size", 2, "-q")
    more = write(
        Path("more" + pages.suffix),
        {"text": [TEXTS[0], "", "one more text of a few words"], "url": ["a", "b", "c"]},
    )
    fields = (*TEXT_AND_URL, "--threads", 1)
    done = run("insert", "p.fps", more, *fields, "--json")
    assert done.stderr == "fpstore: 1 row left out, blank: row 1\n"
    assert json.loads(done.stdout)["inserted"] == 2
    result = pairs("p.fps")
    assert result[SimHash(size=2).fingerprint(TEXTS[0])] == [URLS[0], "a"]
    assert result[SimHash(size=2).fingerprint("one more text of a few words")] == ["c"]
    fine("insert", "p.fps", more, *fields, "--unmatched", "-q", "-o", "m.tsv")
    assert {line.split("\t")[3] for line in Path("m.tsv").read_text().splitlines()} == {URLS[0]}
    assert "--id-field" in failure("insert", "p.fps", more, "--text-field", "text")
    assert pairs("p.fps") == result


def test_a_text_of_a_dictionary_is_hashed_once(tmp_path):
    seen = []

    class Noting(SimHash):
        def hashed(self, texts):
            seen.extend(texts)
            return super().hashed(texts)

    texts = [f"page {n % 3} of a book" for n in range(1000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "c.parquet")
    for source in (tmp_path / "c.parquet", pa.table({"text": pa.array(texts).dictionary_encode()})):
        seen.clear()
        (chunk,) = TextReader(source, Noting(), text="text")
        assert sorted(seen) == sorted(texts[:3])
        assert chunk.fingerprints.tolist() == SimHash().fingerprints(texts).tolist()


def test_nulls_are_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ["some words", None, "", None, "more words"]
    pq.write_table(pa.table({"text": texts}), "n.parquet")
    Path("n.jsonl").write_text(json_lines({"text": text} for text in texts))
    for name in ("n.parquet", "n.jsonl"):
        done = run("build", "n.fps", name, "--text-field", "text", "--force")
        assert done.stderr == "fpstore: 3 rows left out, blank: row 1, row 2, row 3\n"
        assert ids_in("n.fps") == [0, 4]


# --- Python ---------------------------------------------------------------------------------------


def frames():
    table = pa.table(
        {
            "text": [*TEXTS, None],
            "url": [*URLS, "null"],
            "list": [[i] for i in range(len(TEXTS) + 1)],
        }
    )
    yield "table", table
    yield "batch", table.combine_chunks().to_batches()[0]
    yield "reader", table.to_reader(max_chunksize=5)
    yield "polars", pl.from_arrow(table)
    yield "pandas", table.to_pandas()
    yield "dictionary", table.set_column(1, "url", table["url"].dictionary_encode())


def test_tables_are_read(tmp_path):
    for name, frame in frames():
        check_table(tmp_path / name, frame, name == "reader")


def check_table(path, frame, is_stream):
    messages = []
    reader = TextReader(
        frame,
        SimHash(),
        text="text",
        id="url",
        on_notice=lambda row, reason: messages.append((row, reason)),
    )
    with fpstore.build(path, reader) as store:
        assert store.fingerprinter == SimHash().describe()
    assert pairs(path) == {value: [URLS[row]] for value, row in zip(HASHES, KEPT, strict=True)}
    assert messages == [(5, "no words"), (9, "no words"), (len(TEXTS), "no words")]
    assert (reader.empty, reader.next_row, reader.has_ids, reader.width) == (
        3,
        len(TEXTS) + 1,
        True,
        64,
    )
    if is_stream:
        with pytest.raises(InputError, match="can be read only once"):
            list(reader)
    else:
        # again, and counted again
        assert [chunk.ids for chunk in reader] == [[URLS[row] for row in KEPT]]
        assert reader.empty == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("threads", "chunk_rows"), [(3, 1), (1, 7), (3, 7), (1, 1000)])
def test_chunks_have_at_most_so_many_rows_in_order(tmp_path, threads, chunk_rows):
    texts = texts_of(200, 5)
    texts[50] = texts[51] = texts[199] = ""
    path = write(tmp_path / "p.jsonl", {"text": texts})
    reader = TextReader(
        [path], SimHash(), text="text", threads=threads, chunk_rows=chunk_rows, first_row=10
    )
    kept = [row for row in range(200) if texts[row]]
    placed = list(reader.numbered_chunks())
    assert [int(place) for part in placed for place in part.places] == [row + 10 for row in kept]
    chunks = [part.chunk for part in placed if len(part.places)]
    assert [int(i) for chunk in chunks for i in chunk.ids] == [row + 10 for row in kept]
    assert {len(chunk.ids) for chunk in chunks[:-1]} <= {chunk_rows}
    assert placed[-1].end == 210  # with the last row, which is left out
    result = np.concatenate([chunk.fingerprints for chunk in chunks])
    assert result.tolist() == [SimHash().fingerprint(texts[r]) for r in kept]
    assert reader.bytes_done == reader.bytes_total == path.stat().st_size


def test_mixed_ids_are_refused_unless_a_type_is_chosen(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"t": "a b", "id": 1}\n{"t": null, "id": null}\n{"t": "c d", "id": "x"}\n')
    with pytest.raises(
        InputError, match=r"p\.jsonl:3: the id is of type str, but earlier ids are integers"
    ):
        list(TextReader(path, SimHash(), text="t", id="id"))
    assert [
        chunk.ids for chunk in TextReader(path, SimHash(), text="t", id="id", id_type="str")
    ] == [["1", "x"]]
    with pytest.raises(InputError, match=r"p\.jsonl:3: the id 'x' is not an unsigned integer"):
        list(TextReader(path, SimHash(), text="t", id="id", id_type="int"))
    table = tmp_path / "p.csv"
    table.write_text("t,id\na b,1\nc d,2\ne f,x\n")
    assert [chunk.ids for chunk in TextReader(table, SimHash(), text="t", id="id")] == [
        ["1", "2", "x"]
    ]
    with pytest.raises(InputError, match=r"p\.csv:4: the id 'x' is not an unsigned integer"):
        list(
            TextReader(table, SimHash(), text="t", id="id", chunk_rows=2, threads=1, id_type="int")
        )


def test_bad_rows_are_named(tmp_path):
    for name, content, message in (
        (
            "p.jsonl",
            '{"s": "a", "id": 1}\n{"u": "b", "id": 2}\n',
            r"p\.jsonl: no row has the field 't' \(fields here: s, id, u\)",
        ),
        (
            "p.jsonl",
            '{"t": "a", "id": 1}\n{"t": 5, "id": 2}\n',
            r"p\.jsonl:2: t: a text must be a string, a list of strings, .* got 5",
        ),
        (
            "p.jsonl",
            '{"t": "a", "id": 1}\n{"t": "b", "id": null}\n',
            r"p\.jsonl:2: the id null is neither an integer",
        ),
        ("p.jsonl", '{"t": "a", "id": 1}\n{"t": "b"}\n', r"p\.jsonl:2: the field 'id' is missing"),
        (
            "p.jsonl",
            '{"t": "a", "id": 1.5}\n',
            r"p\.jsonl:1: the id 1.5 is neither an integer nor a string",
        ),
        ("p.jsonl", "", r"p\.jsonl: no text to make a fingerprint of$"),
        ("p.jsonl", '{"t": "", "id": 1}\n{"t": null, "id": 2}\n', r"of; left out: 2 \(blank\)"),
        ("p.csv", "", r"p\.csv: no text to make a fingerprint of"),
        ("p.csv", "id,u\n1,x\n", r"p\.csv: no column named 't' \(columns here: id, u\)"),
        ("p.csv", "id,t\n1,x\n2\n", r"p\.csv:3: has 1 cells, the header has 2"),
        ("p.csv", "id,t\n,x\n", r"p\.csv:2: the id is empty"),
        (
            "p.txt",
            "id t\n",
            r"unknown extension '\.txt'; known extensions: \.parquet, \.jsonl, \.csv, \.tsv",
        ),
        ("p.parquet", "PAR1", r"p\.parquet: not a readable Parquet file"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=message):
            fpstore.build(
                tmp_path / "p.fps", TextReader(tmp_path / name, SimHash(), text="t", id="id")
            )
        assert not (tmp_path / "p.fps").exists()


def test_columns_of_wrong_types_are_named(tmp_path):
    table = pa.table({"t": ["a", "b"], "n": [1, 2], "f": [0.5, None], "i": pa.array([1, None])})
    pq.write_table(table, tmp_path / "p.parquet")
    for source in (table, tmp_path / "p.parquet"):
        for text, name, message in (
            ("n", None, "column 'n' has type int64, texts must be strings"),
            ("x", None, r"no column named 'x' \(columns here: t, n, f, i\)"),
            ("t", "f", "column 'f' has type double, ids must be integers or strings"),
            ("t", "i", "row 2: the id is null"),
        ):
            with pytest.raises(InputError, match=message):
                list(TextReader(source, SimHash(), text=text, id=name))


def test_wrong_arguments_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("p.jsonl", "p.csv"):
        Path(name).touch()
    for source, options, message in (
        ("p.jsonl", {"text": ""}, "text must be the name of a column"),
        ("p.jsonl", {"text": None}, "text must be the name of a column"),
        ("p.jsonl", {"text": "t", "id": ""}, "id must be the name of a column"),
        ("p.jsonl", {"text": "t", "id_type": "float"}, "id_type"),
        ("p.jsonl", {"text": "t", "threads": 0}, "threads"),
        ("p.jsonl", {"text": "t", "chunk_rows": 0}, "chunk_rows"),
        ("p.jsonl", {"text": "t", "first_row": -1}, "first_row"),
        ("p.jsonl", {"text": "t", "on_notice": 1}, "on_notice must be a function"),
        (
            "p.jsonl",
            {"text": "t", "format": "npy"},
            "unknown format 'npy'; known formats: .parquet",
        ),
        (["p.jsonl", "p.csv"], {"text": "t"}, "files of one format are expected, got csv, jsonl"),
        ([], {"text": "t"}, "no input was given"),
        (["-", "-"], {"text": "t", "format": "jsonl"}, "standard input is named more than once"),
        (5, {"text": "t"}, "a corpus is a path"),
        (pa.chunked_array([["a"]]), {"text": "t"}, "a table with named columns, got ChunkedArray"),
    ):
        with pytest.raises(InputError, match=message):
            list(TextReader(source, SimHash(), **options))
    for wrong in ("simhash", ImageHash(), None, SimHash):
        with pytest.raises(InputError, match="fingerprinter must be one of texts"):
            TextReader("p.jsonl", wrong, text="t")
    with pytest.raises(StorageError, match=r"gone\.jsonl: no such file"):
        TextReader("gone.jsonl", SimHash(), text="t")


def test_wrong_use_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text('{"t": "some words"}\n')
    fine("build", "s.fps", "p.jsonl", "--text-field", "t", "-q")
    for arguments, message in (
        (["build", "x.fps", "p.jsonl", "--text", "--text-field", "t"], "give one of them"),
        (
            ["build", "x.fps", "p.jsonl", "--text-field", ""],
            "--text-field: must be the name of a column",
        ),
        (
            ["build", "x.fps", "p.jsonl", "--text-field", "t", "--decimal"],
            "--decimal is for fingerprints",
        ),
        (
            ["build", "x.fps", "p.jsonl", "--text-field", "t", "--fingerprint-field", "f"],
            "--fingerprint-field is for",
        ),
        (
            ["build", "x.fps", "p.jsonl", "--text-field", "t", "--suffix", ".txt"],
            "--suffix is for files of texts and pictures",
        ),
        (
            ["build", "x.fps", "p.jsonl", "--text-field", "t", "--format", "npy"],
            "--format npy has no column of texts",
        ),
        (
            ["build", "x.fps", "p.jsonl", "--shingle", "chars"],
            "(--text or --text-field), not for fingerprints",
        ),
        (
            ["hash", "p.jsonl", "--text", "--id-field", "i"],
            "--id-field is for fingerprints, columns of texts and vectors (",
        ),
        (["probe", "s.fps", "2a", "--text-field", "t"], "'2a' is not a fingerprint"),
        (["probe", "s.fps", "0x2a", "--text-field", "t"], "--text-field names a column of --input"),
        (
            ["probe", "s.fps", "p.jsonl", "--text-field", "t"],
            "the texts of rows are in files that --input names",
        ),
    ):
        assert message in failure(*arguments, code=2)
    assert "with --text-field" in failure("build", "x.fps", "p.jsonl", "--text")
    fpstore.build("plain.fps", [1]).close()
    expected = failure("probe", "plain.fps", "--input", "p.jsonl", "--text-field", "text")
    assert "does not know how its fingerprints were made" in expected


def test_texts_that_are_not_utf_8_are_named():
    bad = pa.Array.from_buffers(
        pa.string(), 3, [None, *pa.array([b"a fox", b"\xff", b"b"], pa.binary()).buffers()[1:]]
    )
    with pytest.raises(InputError, match="row 2: t: the text is not valid UTF-8"):
        list(TextReader(pa.table({"t": bad}), SimHash(), text="t"))
    rest = pa.table({"t": pa.chunked_array([pa.array(["c", None, "d"]), bad])})
    with pytest.raises(InputError, match="row 5: t: the text is not valid UTF-8"):
        list(TextReader(rest, SimHash(), text="t"))
    with pytest.raises(InputError, match="items 0 to 2: a text that is not valid UTF-8"):
        SimHash().fingerprints(bad)


def test_a_store_has_the_width_of_the_fingerprinter(tmp_path):
    table = pa.table({"text": ["a fox", "a crow"]})
    fingerprinter = SimHash(width=128)
    with fpstore.build(
        tmp_path / "wide.fps", TextReader(table, fingerprinter, text="text")
    ) as store:
        assert store.width == 128
        assert len(store.probe(fingerprinter.fingerprint("a crow"), radius=0)) == 1
    with fpstore.build(
        tmp_path / "given.fps", fingerprinter.fingerprints(["a fox"]), fingerprinter=fingerprinter
    ) as store:
        assert store.width == 128
    with pytest.raises(InputError, match="it makes 128 bits, the store has width=64"):
        fpstore.build(tmp_path / "no.fps", TextReader(table, fingerprinter, text="text"), width=64)


def dictionaries():
    """Yield a column of texts in several forms of pyarrow, each with what it decodes to."""
    texts = [
        "one two three",
        None,
        "",
        "one two three",
        "four five six seven",
        "four five six seven",
        "one two three",
    ]
    plain = pa.array(texts)
    encoded = plain.dictionary_encode()
    with_null = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0, 3, 3, 0]), pa.array(["one two three", None, "", texts[4]])
    )
    twice = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 2, 3, 4, 0], pa.int8()), pa.array([*texts[:1], "", *texts[3:6]])
    )
    views = pa.DictionaryArray.from_arrays(
        encoded.indices, encoded.dictionary.cast(pa.string_view())
    )
    yield from (
        encoded,
        with_null,
        twice,
        views,
        plain.cast(pa.string_view()),
        plain.cast(pa.large_string()),
    )


@pytest.mark.parametrize(("number", "most"), crossed(range(6), [1, 30, 1 << 20]))
def test_texts_in_any_form_and_in_pieces_of_any_size(tmp_path, set_limits, number, most):
    set_limits(parquet_part_bytes=most)
    texts = [*dictionaries()][number]
    ids = pa.array([f"document {n}" for n in range(len(texts))])
    table = pa.table(
        {
            "text": pa.chunked_array([texts, texts.slice(2, 4)]),
            "id": pa.chunked_array([ids, ids.slice(2, 4)]),
        }
    )
    wanted = [
        (SimHash().fingerprint(text), f"document {n}")
        for n in (0, 3, 4, 5, 6, 3, 4, 5)
        if (text := texts[n].as_py())
    ]
    sources = [table]
    if number not in (1, 3):  # pyarrow writes no dictionary of views, or with a null
        pq.write_table(table, tmp_path / "c.parquet", row_group_size=5)
        sources.append(tmp_path / "c.parquet")
    for source in sources:
        reader = TextReader(source, SimHash(), text="text", id="id", threads=2)
        results = [
            row
            for chunk in reader
            for row in zip(chunk.fingerprints.tolist(), chunk.ids, strict=True)
        ]
        assert results == wanted
        assert reader.empty == 3
