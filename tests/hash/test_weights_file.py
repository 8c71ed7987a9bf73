"""fpstore weights, and --weights wherever a SimHash is made."""

import json
from pathlib import Path

import numpy as np
import pytest
from commandline import TEXT_AND_ID, TEXT_FIELD, failure, fine, run
from speeds import full, slow
from text_tables import texts_of, write

import fpstore
from fpstore import SimHash
from fpstore.hashing import Fields

TEXTS = texts_of(60)
COMMON = [f"menu imprint contact {text}" for text in TEXTS]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    titles = [f"page {i}" for i in range(len(COMMON))]
    return write(
        Path("corpus.jsonl"),
        {"text": COMMON, "title": titles, "id": [f"d{i}" for i in range(len(COMMON))]},
    )


def test_weights_are_those_that_python_learns(corpus):
    message = fine("weights", corpus, "--text-field", "text", "-o", "w.json")
    learnt = SimHash().learn_weights(COMMON)
    assert json.loads(Path("w.json").read_text()) == learnt.describe()
    assert message == (
        f"w.json: weights of {len(learnt.weights.hashes)} pieces, learnt from 60 of 60 documents\n"
    )
    assert fine("weights", corpus, "--text-field", "text", "-q") == Path("w.json").read_text()
    stream = fine(
        "weights", "-", "--format", "jsonl", "--text-field", "text", "-q", stdin=corpus.read_text()
    )
    assert stream == Path("w.json").read_text()
    Path("texts").mkdir()
    for i, text in enumerate(COMMON):
        Path("texts", f"{i}.txt").write_text(text)
    assert fine("weights", "texts", "--text", "-q") == Path("w.json").read_text()
    options = ("--shingle", "chars", "--shingle-size", 3, "--weighting", "set", "--digits", "zero")
    expected = SimHash(shingle="chars", size=3, weighting="set", digits="zero").learn_weights(
        COMMON, 20
    )
    assert (
        json.loads(fine("weights", corpus, *TEXT_FIELD, *options, "--most", 20, "-q"))
        == expected.describe()
    )


def test_a_document_has_the_features_of_all_its_fields(corpus):
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    expected = Fields(SimHash(), {"title": 1, "text": 1}).learn_weights(rows).fingerprinter
    for columns in (["title", "text"], ["title=9", "text=2"]):
        fields = [word for name in columns for word in ("--text-field", name)]
        assert json.loads(fine("weights", corpus, *fields, "-q")) == expected.describe()


def test_a_sample_is_random_and_the_same_for_a_seed(corpus):
    arguments = ("weights", corpus, "--text-field", "text", "--sample", 10, "-q")
    single, again, other = fine(*arguments), fine(*arguments), fine(*arguments, "--seed", 1)
    assert single == again != other
    first = SimHash().learn_weights(COMMON[:10])
    assert json.loads(single) != first.describe()  # not the first rows
    weights = json.loads(single)["parameters"]["weights"]
    assert weights["other"] == first.weights.other == 1 + round(16 * np.log2(10))


@pytest.mark.parametrize("width", [slow(32), 64, full(256)])
def test_fingerprints_are_weighed_and_a_store_remembers(corpus, width):
    fine("weights", corpus, "--text-field", "text", "-o", "w.json", "--shingle-size", 2, "-q")
    learnt = SimHash(size=2).learn_weights(COMMON)
    simhash = SimHash(size=2, width=width, weights=learnt.weights)
    digits = width // 4
    lines = fine(
        "hash", corpus, "--text-field", "text", "--weights", "w.json", "--width", width, "-q"
    )
    assert [line.split("\t")[0] for line in lines.splitlines()] == [
        f"{simhash.fingerprint(text):0{digits}x}" for text in COMMON
    ]
    fine("build", "w.fps", corpus, *TEXT_AND_ID, "--weights", "w.json", "--width", width, "-q")
    Path("w.json").unlink()
    with fpstore.open("w.fps") as store:
        assert store.fingerprinter == simhash.describe()
    matches = run("probe", "w.fps", "--radius", 0, "--input", corpus, *TEXT_AND_ID, "--json")
    answers = [json.loads(line) for line in matches.stdout.splitlines()]
    assert [answer["query_id"] in answer["matches"][0]["ids"] for answer in answers] == [
        True
    ] * len(COMMON)
    shown = fine("stats", "w.fps")
    assert "weights={'hashes': '" in " ".join(shown.split())
    assert learnt.weights.to_json()["hashes"] not in shown


def test_weights_go_with_fields(corpus):
    fine("weights", corpus, "--text-field", "text", "-o", "w.json", "-q")
    fields = ("--text-field", "title=4", "--text-field", "text", "--weights", "w.json")
    fine("build", "w.fps", corpus, *fields, "-q")
    expected = Fields(SimHash().learn_weights(COMMON), {"title": 4, "text": 1})
    with fpstore.open("w.fps") as store:
        assert store.fingerprinter == expected.describe()
        row = json.loads(corpus.read_text().splitlines()[7])
        assert store.probe(expected.fingerprint(row), radius=0)[0].ids == [7]


def test_dedup_and_compare_take_them(corpus):
    fine("weights", corpus, "--text-field", "text", "-o", "w.json", "-q")
    learnt = SimHash().learn_weights(COMMON)
    menus = [
        f"menu imprint contact {a} {b}"
        for a, b in (("red", "fox"), ("blue", "dog"), ("red", "fox!"))
    ]
    write(Path("m.jsonl"), {"text": menus})
    answer = json.loads(
        fine("dedup", "m.jsonl", "c.jsonl", *TEXT_FIELD, "--weights", "w.json", "-r", 9, "--json")
    )
    expected = fpstore.dedup("m.jsonl", text="text", fingerprinter=learnt, radius=9)
    assert answer["kept"] == len(expected.kept) == 2
    for name, text in zip("ab", menus[:2], strict=True):
        Path(f"{name}.txt").write_text(text)
    compared = json.loads(fine("compare", "a.txt", "b.txt", "--weights", "w.json", "--json"))
    distance = (learnt.fingerprint(menus[0]) ^ learnt.fingerprint(menus[1])).bit_count()
    assert compared["distance"] == distance
    only_in_a = {
        item["feature"]: item["weight_a"] for item in compared["differing"] if item["weight_a"]
    }
    assert only_in_a == {"red": learnt.weights.other, "fox": learnt.weights.other}


def test_calibrate_compares_them(corpus):
    fine("weights", corpus, "--text-field", "text", "-o", "w.json", "-q")
    drawn = ("--sample", 40, "--copies", 10, "--change", "words=1")
    arguments = ("calibrate", corpus, *TEXT_FIELD, *drawn, "--json", "-q")
    answer = json.loads(
        fine(*arguments, "--setting", "weights=w.json,width=128", "--setting", "size=1")
    )
    names = {item["setting"] for item in answer["settings"]}
    assert names == {"weights=w.json,width=128", "size=1"}
    message = failure(*arguments, "--setting", "weights=w.json,size=2", code=2)
    assert "has a file of weights, which sets size: leave it out" in message


def test_what_is_no_file_of_weights_is_refused(corpus):
    Path("no.json").write_text("{")
    Path("plain.json").write_text(json.dumps(SimHash().describe()))
    Path("fields.json").write_text(json.dumps(Fields(SimHash(), {"a": 1}).describe()))
    Path("list.json").write_text("[1]")
    Path("deep.json").write_text("[" * 100_000)
    Path("binary.json").write_bytes(b"\xff\xfe\xff")
    hashed = ("hash", corpus, "--text-field", "text", "--weights")
    for name in ("no", "plain", "fields", "list", "deep", "binary"):
        assert (
            f"{name}.json: is no file of learnt weights: make one with fpstore weights"
            in failure(*hashed, f"{name}.json")
        )
    assert "none.json: no such file" in failure(*hashed, "none.json")
    later = SimHash().learn_weights(COMMON).describe() | {"version": SimHash.version + 1}
    Path("later.json").write_text(json.dumps(later))
    assert f"later.json: unknown version {SimHash.version + 1}" in failure(*hashed, "later.json")


def test_options_that_do_not_go_with_them(corpus):
    fine(
        "weights", corpus, "--text-field", "text", "-o", "w.json", "--feature-hash", "blake2b", "-q"
    )
    hashed = ("hash", corpus, "--text-field", "text", "--weights", "w.json")
    assert "--shingle-size does not go with --weights" in failure(
        *hashed, "--shingle-size", 2, code=2
    )
    assert "--weights does not go with --longest-sentences" in failure(
        *hashed, "--longest-sentences", 2, code=2
    )
    assert "its weights are for 64 bits, and blake2b has other features for 128" in failure(
        *hashed, "--width", 128
    )
    fine(*hashed, "--width", 32, "-q")
    assert "--weights is for files of texts" in failure(
        "build", "x.fps", corpus, "--weights", "w.json", code=2
    )


def test_weights_need_texts(corpus):
    for arguments, message in (
        ((corpus,), "name the column of the texts with --text-field, or give --text"),
        ((corpus, "--text", "--text-field", "text"), "give one of them"),
        (
            (corpus, "--text-field", "text", "--format", "npy"),
            "--format npy has no column of texts",
        ),
        (("-", "--text"), "not from standard input"),
    ):
        assert message in failure("weights", *arguments, code=2)
    assert "is for one column" in failure(
        "weights", corpus, "--text-field", "text", "--text-field", "title", "--html"
    )
    write(Path("empty.jsonl"), {"text": ["", " "]})
    assert "no text has features" in failure(
        "weights", "empty.jsonl", "--text-field", "text", "-o", "w.json"
    )
    assert not Path("w.json").exists()
