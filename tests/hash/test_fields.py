"""fpstore.hashing.Fields: fingerprints of rows with several texts are those of a slow oracle."""

import json
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simhash_oracle import sign_bits, weights_of

from fpstore.errors import FormatVersionError, InputError
from fpstore.hashing import Fields, LongestSentences, SimHash, from_description
from fpstore.hashing.base import BATCH_CHARS

# Words, marks that are composed with what stands before them, and characters whose form is known to Python alone.
PIECES = ["a", "b", "the fox", " ", "?!", "\u0301", "\u1100\u1161", "\u4e2d\u6587", "\u00e9", "\u03a3", "\ud800", "12"]
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
    found, known = fields.fingerprints(rows, empty="mask")
    assert known.tolist() == [value is not None for value in expected]
    numbers = [int.from_bytes(row) for row in found] if found.ndim == 2 else found.tolist()
    assert numbers == [value or 0 for value in expected]


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(["title", "text", "tags", "a=1"]), WEIGHT, min_size=1).flatmap(
        lambda weights: st.tuples(st.just(weights), st.lists(st.fixed_dictionaries(dict.fromkeys(weights, TEXT)), max_size=5))
    ),
    st.sampled_from(["auto", "words", "chars"]),
    st.integers(1, 3),
    st.sampled_from(["count", "log", "set"]),
    st.sampled_from([("xxh64", 32), ("xxh64", 64), ("fnv1a", 64), ("xxh64", 256), ("md5", 64), ("md5", 128), ("blake2b", 64)]),
    st.sampled_from([(), ("the", "a")]),
)
def test_fingerprints_are_signs_of_sums_over_all_fields(drawn, shingle, size, weighting, hashed, stop_words):
    weights, rows = drawn
    hash_, width = hashed
    stop_words = () if shingle == "chars" else stop_words
    check(rows, weights, shingle=shingle, size=size, weighting=weighting, hash=hash_, width=width, stop_words=stop_words)


@pytest.mark.parametrize("hash_", ["xxh64", "md5"])
def test_many_rows_in_batches_and_threads(hash_):
    draws = random.Random(5)
    words = [f"word{i}" for i in range(200)]
    rows = [
        {"title": " ".join(draws.choices(words, k=5)), "text": None if i % 7 == 0 else " ".join(draws.choices(words, k=60))}
        for i in range(300)
    ]
    weights = {"title": 9, "text": 2}
    check(rows[:60], weights, hash=hash_)
    fields = Fields(SimHash(hash=hash_), weights)
    long = [{"text": "word " * (BATCH_CHARS // 50), "title": f"number {i}"} for i in range(30)]
    batches = list(fields.batches(long))
    assert [len(batch) for batch in batches] == [10, 10, 10]
    several = fields.fingerprints(rows + long, threads=3)
    assert several.tolist() == [fields.fingerprint(row) for row in rows + long]


def test_learnt_weights_of_features_multiply_those_of_fields():
    rows = [{"title": "the fox", "text": "the fox and the dog"}, {"title": None, "text": "the cat"}, {"text": "the end"}]
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


def test_the_largest_weights_are_exact():
    """A feature that occurs often, weighs most, and is in the field that weighs most, against as much in two parts."""
    weights = {"hashes": "", "weights": "", "other": 65535}
    simhash = SimHash(weighting="count", weights=weights)
    fields = Fields(simhash, {"a": 65535, "b": 65534, "c": 1})
    many = 1 << 17
    row = {"a": "one " * many, "b": "two " * many, "c": "three " * many}
    times = 65535 * many
    expected = sign_bits([("one", 65535 * times), ("two", 65534 * times), ("three", times)])
    assert fields.fingerprint(row) == expected
    assert fields.fingerprint(row | {"c": "three"}) == SimHash().fingerprint("one")


def test_a_field_counts_as_much_as_its_weight():
    simhash = SimHash()
    title, text = "three quick foxes", "a long text about lazy dogs, which sleep all day"
    row = {"title": title, "text": text}
    whole = simhash.fingerprint(f"{title} {text}")
    assert Fields(simhash, {"title": 1, "text": 1}).fingerprint(row) == whole  # no word is in both
    assert Fields(simhash, {"title": 6, "text": 6}).fingerprint(row) == whole
    assert Fields(simhash, {"title": 100, "text": 1}).fingerprint(row) == simhash.fingerprint(title)
    assert Fields(simhash, {"text": 1, "title": 4}).fingerprint(row) == Fields(simhash, {"title": 4, "text": 1}).fingerprint(row)
    assert Fields(simhash, {"title": 4, "text": 1}).fingerprint(row) != whole


def test_what_is_missing_leaves_the_others():
    fields, simhash = Fields(SimHash(), {"title": 3, "text": 2}), SimHash()
    for row in (
        {"title": None, "text": "some words"},
        {"text": "some words"},
        {"title": "?!", "text": "some words", "id": 7},
        {"title": float("nan"), "text": "some words"},
    ):
        assert fields.fingerprint(row) == simhash.fingerprint("some words")
    for row in ({"title": None}, {"title": "", "text": "?!"}):
        assert fields.is_empty(row)
        with pytest.raises(InputError, match="has no features in any field"):
            fields.fingerprint(row)
    with pytest.raises(InputError, match=r"item 1: the row .* has no features"):
        fields.fingerprints([{"text": "a"}, {"text": ""}])
    assert fields.fingerprints([]).shape == (0,)


def test_rows_of_wrong_types_are_refused():
    fields = Fields(SimHash(), {"title": 3, "text": 2})
    for rows, message in (
        ("some text", "takes an iterable of rows, got str"),
        ({"title": "a"}, "takes an iterable of rows, got dict"),
        (["some text"], "item 0: a row, which is a mapping of title, text to texts, got str"),
        ([{"title": "a"}, {"titel": "a"}], "item 1: a row has one of the fields title, text, got .*titel"),
        ([{"title": b"a"}], "item 0: title: a text .* got bytes: decode them first"),
        ([{"title": "a", "text": 7}], "item 0: text: a text .* got int"),
    ):
        with pytest.raises(InputError, match=message):
            fields.fingerprints(rows)


def test_parameters_are_checked():
    for fingerprinter, weights, message in (
        (LongestSentences(), {"a": 1, "b": 1}, "need SimHash, .* got LongestSentences"),
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


def test_a_description_survives_json_and_rebuilds_the_fingerprinter():
    fields = Fields(SimHash(size=2, width=128, stop_words=["the"]), {"title": np.int64(4), "text": 1})
    description = json.loads(json.dumps(fields.describe()))
    assert description == {
        "name": "fields",
        "version": 1,
        "parameters": {"fingerprinter": fields.fingerprinter.describe(), "weights": {"title": 4, "text": 1}},
    }
    again = from_description(description)
    assert again == fields == pickle.loads(pickle.dumps(fields))
    assert hash(again) == hash(Fields(fields.fingerprinter, {"text": 1, "title": 4})) == hash(fields)
    assert again != Fields(fields.fingerprinter, {"title": 4, "text": 2})
    assert (fields.width, fields.items) == (128, "rows")
    parameters = description["parameters"]
    with pytest.raises(FormatVersionError, match="unknown fingerprinter 'later'"):
        from_description({**description, "parameters": {**parameters, "fingerprinter": {**fields.describe(), "name": "later"}}})
    with pytest.raises(InputError, match="in another one is one of texts"):
        from_description({**description, "parameters": {**parameters, "fingerprinter": description}})
    with pytest.raises(InputError, match="lacks weights"):
        from_description({**description, "parameters": {"fingerprinter": parameters["fingerprinter"]}})
    with pytest.raises(InputError, match="tokenizer that is a function"):
        Fields(SimHash(tokenizer=str.split), {"a": 1}).describe()


def test_a_tokenizer_cuts_each_field():
    fields = Fields(
        SimHash(weighting="count", tokenizer=lambda text: [(word, 0.5) for word in text.split("|")]), {"a": 3, "b": 1}
    )
    features = [("x", 1.5), ("y", 1.5), ("z", 0.5)]
    assert fields.fingerprint({"a": "x|y", "b": "z"}) == SimHash().fingerprint(features)
