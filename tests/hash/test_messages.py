"""Texts in several parts: lists of strings, and messages of chats."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run
from inputs import json_lines

import fpstore
from fpstore.base import diagnostics
from fpstore.errors import InputError
from fpstore.hashing import SimHash, TextReader
from fpstore.plans import LshSpec

CHATS = [
    [
        {"role": "system", "content": "you are a kind helper"},
        {"role": "user", "content": "what is a fox"},
        {"role": "assistant", "content": "a small wild dog"},
    ],
    [{"role": "system", "content": "you are a kind helper"}, {"role": "user", "content": None}],
    None,
    [],
]
JOINED = {
    None: ["you are a kind helper\nwhat is a fox\na small wild dog", "you are a kind helper"],
    ("user", "assistant"): ["what is a fox\na small wild dog", None],
    ("system",): ["you are a kind helper", "you are a kind helper"],
}


def sources(folder, column):
    """Yield rows with a column of Python values, as files and tables."""
    rows = [{"text": value, "n": n} for n, value in enumerate(column)]
    path = folder / "a.jsonl"
    path.write_text(json_lines(rows))
    yield path
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "a.parquet")
    yield folder / "a.parquet"
    yield table
    yield pl.DataFrame(rows)


def fingerprints(source, **options):
    """Return the fingerprint of each row; None for a row without a text."""
    reader = TextReader(source, SimHash(), text="text", **options)
    found = {}
    for chunk in reader:
        found.update(zip(chunk.ids.tolist(), chunk.fingerprints.tolist(), strict=True))
    return found


def expected(texts):
    return {n: SimHash().fingerprint(text) for n, text in enumerate(texts) if text}


def test_strings_are_joined(tmp_path):
    lists = [["one two", "three four"], ["one", None, "two"], None, [], ["one two\nthree four"]]
    joined = ["one two\nthree four", "one\ntwo", None, "", "one two\nthree four"]
    for source in sources(tmp_path, lists):
        assert fingerprints(source) == expected(joined)


@pytest.mark.parametrize("roles", list(JOINED))
def test_messages_are_joined(tmp_path, roles):
    for source in sources(tmp_path, CHATS):
        assert fingerprints(source, roles=roles) == expected(JOINED[roles])


def test_other_forms_of_messages(tmp_path):
    share = [[{"from": "human", "value": "one two"}, {"from": "gpt", "value": "three four"}]]
    parts = [
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "one two"}, {"type": "image", "text": None}],
            },
            {"role": "tool", "content": [{"type": "text", "text": "three four"}]},
        ]
    ]
    for column, role in ((share, "human"), (parts, "user")):
        for source in sources(tmp_path, column):
            assert fingerprints(source) == expected(["one two\nthree four"])
            assert fingerprints(source, roles=[role]) == expected(["one two"])


def test_dictionaries_of_strings_in_lists():
    table = pa.table(
        {"text": pa.array([["a b", "c d"], ["a b"]], pa.list_(pa.dictionary(pa.int8(), pa.utf8())))}
    )
    assert fingerprints(table) == expected(["a b\nc d", "a b"])


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ([1], {}, "a text must be a string, a list of strings, or the messages of a chat"),
        ({"a": "b"}, {}, "a text must be a string, a list of strings, or the messages of a chat"),
        ([{"text": "a"}], {}, "a message of a chat has a role and a content"),
        ([{"role": "user", "content": 5}], {}, "the content of a message must be a string"),
        (["a"], {"roles": ["user"]}, "roles= chooses messages of a chat"),
        ("a", {"roles": ["user"]}, "roles= chooses messages of a chat, and 'text' has strings"),
    ],
)
def test_other_values_are_refused(tmp_path, value, options, message):
    for place, source in enumerate(sources(tmp_path, [value])):
        with pytest.raises(InputError) as error:
            fingerprints(source, **options)
        text = str(error.value)
        assert message in text or (place and "texts must be strings" in text)
        assert "\n" not in text


@pytest.mark.parametrize("roles", ["", [], [""], [5], 5, {"a": "b"}, "a,,b"])
def test_wrong_roles_are_refused(tmp_path, roles):
    with pytest.raises(InputError, match="roles must be names of roles"):
        fpstore.dedup(next(sources(tmp_path, CHATS)), text="text", roles=roles)


def test_roles_are_for_columns(tmp_path):
    (tmp_path / "a.txt").write_text("some words")
    with pytest.raises(InputError, match="roles= is for a column of texts"):
        fpstore.dedup(tmp_path, text=True, roles="user")
    (tmp_path / "a.csv").write_text("h\n0x0\n")
    with pytest.raises(InputError, match="roles= is for a column of texts"):
        fpstore.dedup(tmp_path / "a.csv", fingerprint="h", roles="user")


@pytest.fixture
def chats(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "id": f"c{n}",
            "messages": [
                {"role": "system", "content": f"the system of the number {n}"},
                {"role": "user", "content": f"a question about the number {n // 2} of all"},
                {"role": "assistant", "content": None},  # a call of a tool
            ],
        }
        for n in range(6)
    ]
    Path("a.jsonl").write_text(json_lines(rows))
    pq.write_table(pa.Table.from_pylist(rows), "a.parquet")
    return rows


FIELD = ("--text-field", "messages")
ROLES = ("--roles", "user, assistant")


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_every_verb_of_rows_takes_roles(chats, name):
    path = f"a.{name}"
    for more in ((), ("--processes", 1)):
        out = f"out{len(more)}.{name}"
        fine("dedup", path, out, *FIELD, *ROLES, "--threshold", 0.9, "-q", *more)
        written = (
            pq.read_table(out).to_pylist()
            if name == "parquet"
            else [json.loads(line) for line in Path(out).read_text().splitlines()]
        )
        assert written == chats[::2]
    summary = json.loads(fine("dedup", path, f"all.{name}", *FIELD, "--threshold", 0.9, "--json"))
    assert summary["kept"] == 6
    fine("build", f"{name}.fps", path, *FIELD, *ROLES, "--id-field", "id", "-q")
    found = fine(
        *("probe", f"{name}.fps", "--input", path, *FIELD, *ROLES, "--id-field", "id"),
        *("--radius", 0, "--with-queries", "--no-progress"),
    )
    assert len(found.splitlines()) == 12
    fine("lsh", "build", f"{name}.lsh", path, *FIELD, *ROLES, "--threshold", 0.5, "-q")
    assert fine("pairs", f"{name}.lsh", "-q").count("\t1.0\n") == 3
    benchmark = Path("b.jsonl")
    benchmark.write_text(json_lines([{"messages": "the system of the number 4"}]))
    counts = [
        json.loads(
            fine("decontaminate", path, "b.jsonl", *FIELD, *more, "--ngram", 4, "--json", "-q")
        )["kept"]
        for more in ((), ROLES)
    ]
    assert counts == [0, 6]


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_a_role_that_no_message_has_is_noted_once(chats, name):
    """Also where the texts are read twice."""
    here = f"a.{name}: no message has the role {{}} (roles here: system, user, assistant"
    words = ("dedup", f"a.{name}", f"b.{name}", *FIELD, "--threshold", 0.9, "--force")
    excerpts = ("--removed", "r.jsonl", "--excerpts-of", 40)
    done = run(*words, "--roles", "user,asistant", *excerpts, "--no-progress")
    assert done.stderr == f"fpstore: {here.format(repr('asistant'))}; nearest: assistant)\n"
    done = run(*words, "--roles", "tool", "--no-progress")
    assert done.stderr.startswith(f"fpstore: {here.format(repr('tool'))})\n")
    for roles, quiet in (("system,assistant", "--no-progress"), ("tool", "-q")):
        assert "no message" not in run(*words, "--roles", roles, quiet).stderr
    hashed = run("hash", f"a.{name}", *FIELD, "--roles", "user,tool", "--no-progress").stderr
    assert here.format(repr("tool")) in hashed


def test_no_role_is_missing_where_there_are_no_messages(tmp_path, monkeypatch):
    """In memory, the note names a table."""
    path, notes = tmp_path / "a.jsonl", []
    path.write_text(json_lines([{"text": None}, {"text": []}]))
    monkeypatch.setattr(diagnostics, "on_notice", notes.append)
    fpstore.dedup(path, text="text", roles="user")
    assert notes == []
    rows = pa.table({"text": [[{"role": f"r{n}", "content": "a"}] for n in range(1200)]})
    fpstore.dedup(rows, text="text", roles=["r1150", "r1300"])
    (note,) = notes
    assert note.startswith("the table: no message has the role 'r1300' (roles here: r0, r1, ")


def test_weights_and_plans_of_indexes_take_roles(chats):
    fine("weights", "a.jsonl", *FIELD, *ROLES, "-o", "w.json", "-q")
    every = json.loads(Path("w.json").read_text())
    fine("weights", "a.jsonl", *FIELD, "-o", "v.json", "-q")
    assert every != json.loads(Path("v.json").read_text())
    spec = LshSpec("a.jsonl", "a.lsh", text="messages", threshold=0.5, roles="user")
    assert spec.columns()[0].roles == ("user",)


def test_texts_that_are_edited_are_strings(chats):
    Path("n.jsonl").write_text('{"n": 1}\n')
    advice = "lists and messages are not edited: write each part to a row of its own"
    for verb in ("boilerplate", "passages"):
        message = failure(verb, "a.jsonl", "b.jsonl", *FIELD)
        assert "messages: a text must be a string, got [" in message
        assert advice in message
        message = failure(verb, "a.parquet", "b.parquet", *FIELD)
        assert f"texts must be strings: {advice}" in message
        message = failure(verb, "n.jsonl", "b.jsonl", "--text-field", "n")
        assert message.endswith("a text must be a string, got 1\n")
    for source in (pa.table({"text": [["a", "b"]]}), pl.DataFrame({"text": [["a", "b"]]})):
        with pytest.raises(InputError, match=advice):
            fpstore.remove_passages(source, text="text")
