"""Several columns of texts with weights of their own: on the command line, as TextReader reads them, and in dedup."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from commandline import failure, fine, run
from text_tables import SUFFIXES, URLS, ids_in, pairs, texts_of, write

import fpstore
from fpstore import SimHash
from fpstore.calibration import calibrate
from fpstore.errors import InputError
from fpstore.hashing import Fields, LongestSentences, TextReader

TITLES = [*(f"title number {i}" for i in range(8)), "", "?!"]
TEXTS = [*texts_of(6), "", "", "no title", ""]
LEFT_OUT = [9]
KEPT = [row for row in range(len(TEXTS)) if row not in LEFT_OUT]
WEIGHTS = {"title": 4, "text": 1}
FIELDS = Fields(SimHash(), WEIGHTS)
ROWS = [{"title": title, "text": text} for title, text in zip(TITLES, TEXTS, strict=True)]
HASHES = [FIELDS.fingerprint(ROWS[row]) for row in KEPT]
OPTIONS = ("--text-field", "title=4", "--text-field", "text", "--id-field", "url")


@pytest.fixture(params=SUFFIXES)
def pages(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(Path(f"pages.{request.param}"), {"text": TEXTS, "url": URLS[: len(TEXTS)], "title": TITLES})


def write_jsonl(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def test_a_store_remembers_fields_and_their_weights(pages):
    done = run("build", "p.fps", pages, *OPTIONS, "--threads", 2)
    assert (done.exit_code, done.stderr) == (0, "fpstore: 1 row left out, no words: row 9\n")
    expected = {}
    for value, row in zip(HASHES, KEPT, strict=True):
        expected.setdefault(value, []).append(URLS[row])
    assert pairs("p.fps") == expected
    with fpstore.open("p.fps") as store:
        assert store.fingerprinter == FIELDS.describe()
    assert "fields 1 (fingerprinter=simhash 1 (shingle=auto, " in fine("stats", "p.fps").replace("\n", " ")
    for verb in (("probe", "-r", 0), ("scan", "-r", 0), ("nearest",)):
        for columns in (OPTIONS, ("--text-field", "text", "--text-field", "title", "--id-field", "url")):
            done = run(*verb[:1], "p.fps", *verb[1:], "--input", pages, *columns, "--json")
            assert (done.exit_code, done.stderr) == (0, "fpstore: 1 row left out, no words: row 9\n")
            found = [json.loads(line) for line in done.stdout.splitlines()]
            assert [one["query_id"] for one in found] == [URLS[row] for row in KEPT]
            assert [one["query_id"] in one["matches"][0]["ids"] for one in found] == [True] * len(KEPT)
    more = write(Path("more" + pages.suffix), {"title": ["title number 0", ""], "text": [TEXTS[0], "new"], "url": ["x", "y"]})
    fine("insert", "p.fps", more, *OPTIONS, "-q")
    assert pairs("p.fps")[HASHES[0]] == [URLS[0], "x"]
    assert pairs("p.fps")[SimHash().fingerprint("new")] == ["y"]


def test_hash_text_and_widths(pages):
    lines = fine("hash", pages, *OPTIONS, "--width", 128, "--shingle", "chars", "--shingle-size", 3, "-q").splitlines()
    fields = Fields(SimHash(width=128, shingle="chars", size=3), WEIGHTS)
    kept = [row for row in range(len(ROWS)) if not fields.is_empty(ROWS[row])]
    assert lines == [f"{fields.fingerprint(ROWS[row]):032x}\t{URLS[row]}" for row in kept]


def test_one_field_is_the_same_as_ever(pages):
    plain = fine("hash", pages, "--text-field", "text", "-q")
    assert fine("hash", pages, "--text-field", "text=7", "-q") == plain
    fine("build", "p.fps", pages, "--text-field", "text=7", "-q")
    with fpstore.open("p.fps") as store:
        assert store.fingerprinter == SimHash().describe()
    reader = TextReader(pages, SimHash(), text={"text": 7})
    assert reader.fingerprinter == SimHash()


def test_a_row_uses_what_it_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"title": None, "text": "some words"}, {"text": "some words"}, {"title": "other"}, {"title": None}, {"text": ""}]
    done = run("hash", write_jsonl("a.jsonl", rows), *OPTIONS[:4])
    value, other = (f"{SimHash().fingerprint(text):016x}" for text in ("some words", "other"))
    assert done.stdout.splitlines() == [f"{value}\t0", f"{value}\t1", f"{other}\t2"]
    assert done.stderr == "fpstore: 1 row left out, no words: row 4\nfpstore: 1 row left out, no text: row 3\n"
    table = pa.table({"text": ["some words", None, None], "title": pa.nulls(3)})
    reader = TextReader(table, SimHash(), text=WEIGHTS)
    assert [chunk.fingerprints.tolist() for chunk in reader] == [[SimHash().fingerprint("some words")]]
    assert (reader.null, reader.empty, reader.absent) == (2, 0, [])
    with pytest.raises(InputError, match="column 'title' has type null, texts must be strings"):
        list(TextReader(table, SimHash(), text="title"))


def test_a_field_that_no_row_has_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_jsonl("a.jsonl", [{"title": "a", "text": "b"}, {"text": "c"}])
    mistyped = ("--text-field", "titel=4", "--text-field", "text")
    told = "fpstore: no row has the field 'titel'\n"
    assert run("build", "p.fps", path, *mistyped).stderr == told
    assert run("dedup", path, "clean.jsonl", *mistyped).stderr == told
    assert run("build", "q.fps", path, *OPTIONS[:4]).stderr == ""
    message = failure("build", "r.fps", path, "--text-field", "x", "--text-field", "y")
    assert "a.jsonl:1: the fields x, y are missing (fields here: 'title', 'text')" in message
    csv = write(Path("a.csv"), {"text": ["a"]})
    assert "no column named 'titel'" in failure("build", "r.fps", csv, *mistyped)


def test_names_with_equals_signs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = {"a=4": "one two", "b=c": "three", "d=": "four"}
    path = write_jsonl("a.jsonl", [row])
    weights = {"a=4": 1, "b=c": 1, "d=": 3}
    asked = ("--text-field", "a=4=1", "--text-field", "b=c", "--text-field", "d==3")
    assert fine("hash", path, *asked, "-q") == f"{Fields(SimHash(), weights).fingerprint(row):016x}\t0\n"
    for field, message in (
        ("a=0", "the weight in 'a=0' must be a whole number from 1 to 65535; a column with this name is 'a=0=1'"),
        ("a=65536", "the weight in 'a=65536' must be a whole number"),
        ("a=1.5", "the weight in 'a=1.5' must be a whole number"),
        ("a=-1", "the weight in 'a=-1' must be a whole number"),
        ("=4", "--text-field: must be the name of a column, got '=4'"),
        ("", "--text-field: must be the name of a column, got ''"),
        ("b=c=2", "the column 'b=c' is named twice"),
    ):
        assert message in failure("hash", path, "--text-field", "b=c", "--text-field", field, code=2)


def test_other_fields_or_weights_than_those_of_the_store_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_jsonl("a.jsonl", [{"title": "a", "text": "b", "more": "c"}])
    fine("build", "p.fps", path, *OPTIONS[:4], "-q")
    fine("build", "plain.fps", path, "--text-field", "text", "-q")
    for columns in (["title=3", "text"], ["title=4", "more"], ["title"], ["title=4", "text", "more"]):
        fields = [word for name in columns for word in ("--text-field", name)]
        assert "are those of the fields title=4, text=1, not " in failure("probe", "p.fps", "--input", path, *fields)
        assert "are those of the fields title=4, text=1, not " in failure("insert", "p.fps", path, *fields)
    Path("b.txt").write_text("some words")
    assert "the texts of rows are in files that --input names" in failure("probe", "p.fps", "b.txt", code=2)
    fine("insert", "p.fps", path, "-q")  # it knows its columns
    assert len(fine("probe", "p.fps", "--input", path, "-r", 0).splitlines()) == 2
    assert "b.txt" in failure("insert", "p.fps", "b.txt")
    fine("build", "longest.fps", path, "--text-field", "text", "--longest-sentences", 1, "-q")
    assert "several fields need SimHash" in failure("probe", "longest.fps", "--input", path, *OPTIONS[:4])
    fine("probe", "plain.fps", "--input", path, "--text-field", "text", "-q")
    html = failure("build", "x.fps", path, *OPTIONS[:4], "--html")
    assert "--html is for one column" in html
    assert not Path("x.fps").exists()


def test_dedup_by_fields(pages):
    kept = fpstore.dedup(pages, text=WEIGHTS, radius=0).kept.tolist()
    expected, seen = [], set()
    for row, found in enumerate(ROWS):
        value = None if FIELDS.is_empty(found) else FIELDS.fingerprint(found)
        if value is None or value not in seen:
            expected.append(row)
        seen.add(value)
    assert kept == expected
    assert fpstore.dedup(pages, text=["title", "text"], fingerprinter=FIELDS, radius=0).kept.tolist() == expected
    output = f"clean{pages.suffix}"
    found = json.loads(fine("dedup", pages, output, *OPTIONS[:4], "--radius", 0, "--json"))
    assert (found["kept"], found["not_compared"]) == (len(expected), 1)


def test_weights_decide_what_dedup_keeps():
    same = "three shared words"
    frame = pl.DataFrame({"title": ["red", "blue", "red"], "text": [same, same, same.upper()]})
    assert fpstore.dedup(frame, text={"title": 65535, "text": 1}).kept["title"].to_list() == ["red", "blue"]
    assert fpstore.dedup(frame, text={"title": 1, "text": 65535}).kept["title"].to_list() == ["red"]


def test_a_dedup_that_is_resumed_is_that_of_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_jsonl("a.jsonl", [*ROWS, *ROWS])
    calls = []

    def interrupted(phase, done, total):
        calls.append(phase)
        if phase == "grouping":
            raise RuntimeError(phase)

    with pytest.raises(RuntimeError):
        fpstore.dedup(path, text=WEIGHTS, resume="job", progress=interrupted)
    with pytest.raises(InputError, match="fingerprinter"):
        fpstore.dedup(path, text={"title": 5, "text": 1}, resume="job")
    again = fpstore.dedup(path, text=WEIGHTS, resume="job").kept.tolist()
    assert again == fpstore.dedup(path, text=WEIGHTS).kept.tolist()


def test_python_refuses_what_cannot_be_columns(tmp_path):
    path = write(tmp_path / "a.jsonl", {"title": ["a"], "text": ["b"]})
    for maker, text, message in (
        (SimHash(), [], "name of a column"),
        (SimHash(), ["text", "text"], "'text' is named twice"),
        (SimHash(), ["text", 7], "name of a column.* got 7"),
        (SimHash(), b"text", "name of a column"),
        (SimHash(), {"title": 0, "text": 1}, "the weight of title"),
        (LongestSentences(), ["title", "text"], "need SimHash"),
        (FIELDS, "text", "those of the fields title=4, text=1, not text=1"),
        (FIELDS, {"title": 4, "text": 2}, "not title=4, text=2"),
    ):
        with pytest.raises(InputError, match=message):
            TextReader(path, maker, text=text)
    with pytest.raises(InputError, match="Fields is for columns of texts"):
        fpstore.dedup(path, text=True, fingerprinter=FIELDS)
    with pytest.raises(InputError, match="a fingerprinter is for texts"):
        fpstore.dedup(path, fingerprint="text", fingerprinter=FIELDS)
    with pytest.raises(InputError, match="one column of texts"):
        calibrate(path, text=("title", "text"))
    assert TextReader(path, FIELDS, text=["text", "title"]).fingerprinter is FIELDS


def test_ids_beside_fields(tmp_path):
    path = write(tmp_path / "a.parquet", {"title": ["a", None, "c"], "text": [None, None, "d"], "url": ["x", "y", "z"]})
    with fpstore.build(tmp_path / "p.fps", TextReader(path, SimHash(), text=WEIGHTS, id="url")) as store:
        assert store.fingerprinter == FIELDS.describe()
    assert ids_in(tmp_path / "p.fps") == ["x", "z"]
