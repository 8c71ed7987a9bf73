"""Several columns of texts with weights of their own.

Fingerprints against an oracle, the command line, and dedup.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commandline import failure, fine, run
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import json_lines
from simhash_oracle import sign_bits, weights_of
from speeds import slow
from text_tables import URLS, pairs, texts_of, write

import fpstore
from fpstore.calibration import calibrate
from fpstore.errors import InputError, MissingExtraError
from fpstore.hashing import Fields, LongestSentences, SimHash, TextReader, from_description

# Words, marks that are composed with what stands before them, and characters whose form is known to
# Python alone.
PIECES = [
    "a",
    "b",
    "the fox",
    " ",
    "?!",
    "\u0301",
    "\u1100\u1161",
    "\u4e2d\u6587",
    "\u00e9",
    "\u03a3",
    "\ud800",
    "12",
]
TEXT = st.none() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
WEIGHT = st.integers(1, 5) | st.sampled_from([255, 65535])


def oracle(row, weights, **parameters):
    """Return the fingerprint of a row; None if it has no features."""
    features = [
        (feature, weight * weights[name])
        for name, text in row.items()
        if text is not None
        for feature, weight in weights_of(text, **parameters).items()
    ]
    return sign_bits(features, **parameters) if features else None


def check(rows, weights, **parameters):
    fields = Fields(SimHash(**parameters), weights)
    expected = [oracle(row, weights, **parameters) for row in rows]
    fingerprints, known = fields.fingerprints(rows, empty="mask")
    assert known.tolist() == [value is not None for value in expected]
    numbers = (
        [int.from_bytes(row) for row in fingerprints]
        if fingerprints.ndim == 2
        else fingerprints.tolist()
    )
    assert numbers == [value or 0 for value in expected]


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from(["title", "text", "tags", "a=1"]), WEIGHT, min_size=1).flatmap(
        lambda weights: st.tuples(
            st.just(weights),
            st.lists(st.fixed_dictionaries(dict.fromkeys(weights, TEXT)), max_size=5),
        )
    ),
    st.sampled_from(["auto", "words", "chars"]),
    st.integers(1, 3),
    st.sampled_from(["count", "log", "set"]),
    st.sampled_from(
        [
            ("xxh64", 32),
            ("xxh64", 64),
            ("fnv1a", 64),
            ("xxh64", 256),
            ("md5", 64),
            ("md5", 128),
            ("blake2b", 64),
        ]
    ),
    st.sampled_from([(), ("the", "a")]),
)
def test_fingerprints_are_signs_of_sums_over_all_fields(
    drawn, shingle, size, weighting, hashed, stop_words
):
    weights, rows = drawn
    hash_, width = hashed
    stop_words = () if shingle == "chars" else stop_words
    check(
        rows,
        weights,
        shingle=shingle,
        size=size,
        weighting=weighting,
        hash=hash_,
        width=width,
        stop_words=stop_words,
    )


def test_learnt_weights_of_features_multiply_those_of_fields():
    rows = [
        {"title": "the fox", "text": "the fox and the dog"},
        {"title": None, "text": "the cat"},
        {"text": "the end"},
    ]
    for parameters in ({}, {"hash": "blake2b"}, {"weighting": "count", "width": 128}):
        fields = Fields(SimHash(**parameters), {"title": 300, "text": 7}).learn_weights(rows)
        counted = fields.fingerprinter.weights
        # Three documents: what two fields of one of them have counts once.
        assert fields.fingerprinter.features("the") == {"the": 1}
        assert fields.fingerprinter.features("fox") == {"fox": 1 + round(16 * np.log2(3))}
        assert counted.other == 26
        row = {"title": "the fox sleeps", "text": "a dog and the dog"}
        features = [
            (feature, weight * fields.weights[name])
            for name, text in row.items()
            for feature, weight in fields.fingerprinter.features(text).items()
        ]
        assert fields.fingerprint(row) == sign_bits(features, **parameters)
        assert fields.fingerprint(row) == fields.fingerprinter.fingerprint(features)
    cut = Fields(
        SimHash(
            weighting="count", tokenizer=lambda text: [(word, 0.5) for word in text.split("|")]
        ),
        {"a": 3, "b": 1},
    )
    assert cut.fingerprint({"a": "x|y", "b": "z"}) == SimHash().fingerprint(
        [("x", 1.5), ("y", 1.5), ("z", 0.5)]
    )


def test_the_largest_weights_are_exact():
    """The largest weight of a frequent feature in the heaviest field is compared with two parts."""
    weights = {"hashes": "", "weights": "", "other": 65535}
    simhash = SimHash(weighting="count", weights=weights)
    fields = Fields(simhash, {"a": 65535, "b": 65534, "c": 1})
    many = 1 << 17
    row = {"a": "one " * many, "b": "two " * many, "c": "three " * many}
    times = 65535 * many
    expected = sign_bits([("one", 65535 * times), ("two", 65534 * times), ("three", times)])
    assert fields.fingerprint(row) == expected
    assert fields.fingerprint(row | {"c": "three"}) == SimHash().fingerprint("one")


def test_what_is_missing_leaves_the_others():
    fields, simhash = Fields(SimHash(), {"title": 3, "text": 2}), SimHash()
    for row in (
        {"title": None, "text": "some words"},
        {"text": "some words"},
        {"title": "\u200b\n", "text": "some words", "id": 7},
        {"title": float("nan"), "text": "some words"},
    ):
        assert fields.fingerprint(row) == simhash.fingerprint("some words")
    for row in ({"title": None}, {"title": "", "text": " "}):
        assert fields.is_empty(row)
        with pytest.raises(InputError, match="has no features in any field"):
            fields.fingerprint(row)
    with pytest.raises(InputError, match=r"item 1: the row .* has no features"):
        fields.fingerprints([{"text": "a"}, {"text": ""}])
    assert fields.fingerprints([]).shape == (0,)


def test_rows_of_wrong_types_are_refused():
    fields = Fields(SimHash(), {"title": 3, "text": 2})
    for rows, message in (
        ("some text", "expected an iterable of rows, got str"),
        ({"title": "a"}, "expected an iterable of rows, got dict"),
        (
            ["some text"],
            "item 0: expected a row, which is a mapping of title, text to texts, got str",
        ),
        (
            [{"title": "a"}, {"titel": "a"}],
            "item 1: a row has one of the fields title, text, got .*titel",
        ),
        ([{"title": b"a"}], "item 0: title: expected a text .* got bytes: decode them first"),
        ([{"title": "a", "text": 7}], "item 0: text: expected a text .* got int"),
    ):
        with pytest.raises(InputError, match=message):
            fields.fingerprints(rows)


def test_parameters_are_checked():
    for fingerprinter, weights, message in (
        (LongestSentences(), {"a": 1, "b": 1}, "need SimHash or MinHash, .* got LongestSentences"),
        (SimHash(), {}, "got {}"),
        (SimHash(), ["a", "b"], "a mapping such as"),
        (SimHash(), {"": 1}, "name of a column.* got ''"),
        (SimHash(), {7: 1}, "name of a column.* got 7"),
        (SimHash(), {"a": 0}, "the weight of a must be a whole number from 1 to"),
        (SimHash(), {"a": 65536}, "the weight of a must be a whole number from 1 to"),
        (SimHash(), {"a": 1.5}, "the weight of a must be a whole number from 1 to"),
        (SimHash(), {"a": True}, "the weight of a must be a whole number from 1 to"),
    ):
        with pytest.raises(InputError, match=message):
            Fields(fingerprinter, weights)


def test_description_survives_json_and_rebuilds_the_hasher():
    fields = Fields(
        SimHash(size=2, width=128, stop_words=["the"]), {"title": np.int64(4), "text": 1}
    )
    description = json.loads(json.dumps(fields.describe()))
    parameters = {
        "fingerprinter": fields.fingerprinter.describe(),
        "weights": {"title": 4, "text": 1},
    }
    assert description == {"name": "fields", "version": 1, "parameters": parameters}
    again = from_description(description)
    assert again == fields == pickle.loads(pickle.dumps(fields))
    assert (
        hash(again) == hash(Fields(fields.fingerprinter, {"text": 1, "title": 4})) == hash(fields)
    )
    assert again != Fields(fields.fingerprinter, {"title": 4, "text": 2})
    assert (fields.width, fields.items) == (128, "rows")
    later = {**fields.describe(), "name": "later"}
    for change, kind, message in (
        (
            {**parameters, "fingerprinter": later},
            MissingExtraError,
            "the hasher 'later' is not installed",
        ),
        (
            {**parameters, "fingerprinter": description},
            InputError,
            "in another one is one of texts",
        ),
        ({"fingerprinter": parameters["fingerprinter"]}, InputError, "lacks weights"),
    ):
        with pytest.raises(kind, match=message):
            from_description({**description, "parameters": change})
    with pytest.raises(InputError, match="tokenizer that is a function"):
        Fields(SimHash(tokenizer=str.split), {"a": 1}).describe()


TITLES = [*(f"title number {i}" for i in range(8)), "", " \u200b"]
TEXTS = [*texts_of(6), "", "", "no title", ""]
LEFT_OUT = [9]
KEPT = [row for row in range(len(TEXTS)) if row not in LEFT_OUT]
WEIGHTS = {"title": 4, "text": 1}
FIELDS = Fields(SimHash(), WEIGHTS)
ROWS = [{"title": title, "text": text} for title, text in zip(TITLES, TEXTS, strict=True)]
HASHES = [FIELDS.fingerprint(ROWS[row]) for row in KEPT]
OPTIONS = ("--text-field", "title=4", "--text-field", "text", "--id-field", "url")


@pytest.fixture(params=[slow("parquet"), "jsonl", "csv", slow("tsv")])
def pages(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(
        Path(f"pages.{request.param}"), {"text": TEXTS, "url": URLS[: len(TEXTS)], "title": TITLES}
    )


def write_jsonl(name, rows):
    Path(name).write_text(json_lines(rows))
    return name


def test_a_store_remembers_fields_and_their_weights(pages):
    done = run("build", "p.fps", pages, *OPTIONS, "--threads", 2)
    assert (done.exit_code, done.stderr) == (0, "fpstore: 1 row left out, blank: row 9\n")
    expected = {}
    for value, row in zip(HASHES, KEPT, strict=True):
        expected.setdefault(value, []).append(URLS[row])
    assert pairs("p.fps") == expected
    with fpstore.open("p.fps") as store:
        assert store.fingerprinter == FIELDS.describe()
    assert "fields 1 (fingerprinter=simhash 2 (shingle=auto, " in fine("stats", "p.fps").replace(
        "\n", " "
    )
    for verb in (("probe", "-r", 0), ("scan", "-r", 0), ("nearest",)):
        for columns in (
            OPTIONS,
            ("--text-field", "text", "--text-field", "title", "--id-field", "url"),
        ):
            done = run(*verb[:1], "p.fps", *verb[1:], "--input", pages, *columns, "--json")
            assert (done.exit_code, done.stderr) == (0, "fpstore: 1 row left out, blank: row 9\n")
            answer = [json.loads(line) for line in done.stdout.splitlines()]
            assert [item["query_id"] for item in answer] == [URLS[row] for row in KEPT]
            assert [item["query_id"] in item["matches"][0]["ids"] for item in answer] == [
                True
            ] * len(KEPT)
    more = write(
        Path("more" + pages.suffix),
        {"title": ["title number 0", ""], "text": [TEXTS[0], "new"], "url": ["x", "y"]},
    )
    fine("insert", "p.fps", more, *OPTIONS, "-q")
    assert pairs("p.fps")[HASHES[0]] == [URLS[0], "x"]
    assert pairs("p.fps")[SimHash().fingerprint("new")] == ["y"]
    lines = fine(
        "hash", pages, *OPTIONS, "--width", 128, "--shingle", "chars", "--shingle-size", 3, "-q"
    ).splitlines()
    fields = Fields(SimHash(width=128, shingle="chars", size=3), WEIGHTS)
    kept = [row for row in range(len(ROWS)) if not fields.is_empty(ROWS[row])]
    assert lines == [f"{fields.fingerprint(ROWS[row]):032x}\t{URLS[row]}" for row in kept]
    plain = fine("hash", pages, "--text-field", "text", "-q")
    # one field is the same as ever
    assert fine("hash", pages, "--text-field", "text=7", "-q") == plain
    assert TextReader(pages, SimHash(), text={"text": 7}).fingerprinter == SimHash()


def test_a_row_uses_what_it_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"title": None, "text": "some words"},
        {"text": "some words"},
        {"title": "other"},
        {"title": None},
        {"text": ""},
    ]
    done = run("hash", write_jsonl("a.jsonl", rows), *OPTIONS[:4])
    value, other = (f"{SimHash().fingerprint(text):016x}" for text in ("some words", "other"))
    assert done.stdout.splitlines() == [f"{value}\t0", f"{value}\t1", f"{other}\t2"]
    assert done.stderr == "fpstore: 2 rows left out, blank: row 3, row 4\n"
    table = pa.table({"text": ["some words", None, None], "title": pa.nulls(3)})
    reader = TextReader(table, SimHash(), text=WEIGHTS)
    assert [chunk.fingerprints.tolist() for chunk in reader] == [
        [SimHash().fingerprint("some words")]
    ]
    assert (reader.empty, reader.absent) == (2, [])
    with pytest.raises(
        InputError, match=r"no text to make a fingerprint of; left out: 3 \(blank\)"
    ):
        list(TextReader(table, SimHash(), text="title"))


def test_a_field_that_no_row_has_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_jsonl("a.jsonl", [{"title": "a", "text": "b"}, {"text": "c"}])
    mistyped = ("--text-field", "titel=4", "--text-field", "text")
    expected = "fpstore: no row has the field 'titel'\n"
    assert run("build", "p.fps", path, *mistyped).stderr == expected
    assert run("dedup", path, "clean.jsonl", *mistyped).stderr == expected
    assert run("build", "q.fps", path, *OPTIONS[:4]).stderr == ""
    message = failure("build", "r.fps", path, "--text-field", "x", "--text-field", "y")
    assert "a.jsonl: no row has the fields 'x' or 'y' (fields here: title, text)" in message
    csv = write(Path("a.csv"), {"text": ["a"]})
    assert "no column named 'titel'" in failure("build", "r.fps", csv, *mistyped)


def test_names_with_equals_signs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = {"a=4": "one two", "b=c": "three", "d=": "four"}
    path = write_jsonl("a.jsonl", [row])
    weights = {"a=4": 1, "b=c": 1, "d=": 3}
    arguments = ("--text-field", "a=4=1", "--text-field", "b=c", "--text-field", "d==3")
    assert (
        fine("hash", path, *arguments, "-q")
        == f"{Fields(SimHash(), weights).fingerprint(row):016x}\t0\n"
    )
    for field, message in (
        (
            "a=0",
            (
                "the weight in 'a=0' must be a whole number from 1 to 65535; "
                "a column with this name is 'a=0=1'"
            ),
        ),
        ("a=65536", "the weight in 'a=65536' must be a whole number"),
        ("a=1.5", "the weight in 'a=1.5' must be a whole number"),
        ("a=-1", "the weight in 'a=-1' must be a whole number"),
        ("=4", "--text-field: must be the name of a column, got '=4'"),
        ("", "--text-field: must be the name of a column, got ''"),
        ("b=c=2", "the column 'b=c' is named twice"),
    ):
        assert message in failure(
            "hash", path, "--text-field", "b=c", "--text-field", field, code=2
        )


def test_fields_or_weights_that_differ_from_store_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_jsonl("a.jsonl", [{"title": "a", "text": "b", "more": "c"}])
    fine("build", "p.fps", path, *OPTIONS[:4], "-q")
    fine("build", "plain.fps", path, "--text-field", "text", "-q")
    for columns in (
        ["title=3", "text"],
        ["title=4", "more"],
        ["title"],
        ["title=4", "text", "more"],
    ):
        fields = [word for name in columns for word in ("--text-field", name)]
        assert "are made of the fields title=4, text=1, not " in failure(
            "probe", "p.fps", "--input", path, *fields
        )
        assert "are made of the fields title=4, text=1, not " in failure(
            "insert", "p.fps", path, *fields
        )
    Path("b.txt").write_text("some words")
    assert "the texts of rows are in files that --input names" in failure(
        "probe", "p.fps", "b.txt", code=2
    )
    fine("insert", "p.fps", path, "-q")  # it knows its columns
    assert len(fine("probe", "p.fps", "--input", path, "-r", 0).splitlines()) == 2
    assert "b.txt" in failure("insert", "p.fps", "b.txt")
    fine("build", "longest.fps", path, "--text-field", "text", "--longest-sentences", 1, "-q")
    assert "several fields need SimHash" in failure(
        "probe", "longest.fps", "--input", path, *OPTIONS[:4]
    )
    fine("probe", "plain.fps", "--input", path, "--text-field", "text", "-q")
    html = failure("build", "x.fps", path, *OPTIONS[:4], "--html")
    assert "--html is for one column" in html
    assert not Path("x.fps").exists()


def test_dedup_by_fields(pages):
    kept = fpstore.dedup(pages, text=WEIGHTS, radius=0).kept.tolist()
    expected, seen = [], set()
    for row, item in enumerate(ROWS):
        value = None if FIELDS.is_empty(item) else FIELDS.fingerprint(item)
        if value is None or value not in seen:
            expected.append(row)
        seen.add(value)
    assert kept == expected
    assert (
        fpstore.dedup(pages, text=["title", "text"], fingerprinter=FIELDS, radius=0).kept.tolist()
        == expected
    )
    output = f"clean{pages.suffix}"
    item = json.loads(fine("dedup", pages, output, *OPTIONS[:4], "--radius", 0, "--json"))
    assert (item["kept"], item["not_compared"]) == (len(expected), 1)


def test_python_refuses_what_cannot_be_columns(tmp_path):
    path = write(tmp_path / "a.jsonl", {"title": ["a"], "text": ["b"]})
    for maker, text, message in (
        (SimHash(), [], "name of a column"),
        (SimHash(), ["text", "text"], "'text' is named twice"),
        (SimHash(), ["text", 7], "name of a column.* got 7"),
        (SimHash(), b"text", "name of a column"),
        (SimHash(), {"title": 0, "text": 1}, "the weight of title"),
        (LongestSentences(), ["title", "text"], "need SimHash"),
        (FIELDS, "text", "made of the fields title=4, text=1, not text=1"),
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
