"""fpstore.hashing: simhash against an oracle of plain loops, and its pinned version 2."""

import math
import random

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simhash_oracle import oracle, shingles_of, weights_of
from speeds import crossed, slow

from fpstore.errors import InputError
from fpstore.hashing import SimHash


def xxh64(text, seed=0):
    return xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass"), seed)


def any_fingerprint(simhash, text):
    """Return the fingerprint of a text, 0 for one that has none."""
    return numbers_of(simhash.fingerprints([text], empty="mask")[0])[0]


def numbers_of(fingerprints):
    if fingerprints.ndim == 1:
        return fingerprints.tolist()
    return [int.from_bytes(row.tobytes(), "big") for row in fingerprints]


# ---- the texts ----


def fitting(parameters):
    """Return parameters without what does not go with others."""
    given = dict(parameters)
    if given.get("hash") in ("fnv1a", "md5"):
        given.pop("seed", None)
    if given.get("hash") == "md5" and given.get("width") == 256:
        given["width"] = 128
    if given.get("marks") == "fold":
        given.pop("normalize", None)
    if given["shingle"] == "chars":
        given.pop("stop_words", None)
    else:
        given.pop("spaces", None)
    return given


CURIOUS = [
    "e\u0301",
    "\u0301",
    "\u0316\u0301",
    "\u0344",
    "\u0f73",
    "\uff9e",
    "\u1e9e",
    "\u0130",
    "\u01c4",
    "\ufb03",
    "\u00a0",
    "\u1680",
    "\u2028",
    "\u3000",
    "\x85",
    "\x1c",
    "\x00",
    "\x0b",
    "\u200b",
    "\u200d",
    "\ufeff",
    "\u2121",
    "\ufe70",
    "\u4e2d\u6587",
    "\uac00",
    "\u1100\u1161\u11a8",
    "\U0001f469\u200d\U0001f680",
    "\u2460",
    "\U0001d400",
    "\ud800",
    "\udfff",
    "\ud83d\ude00",
    "\U0010ffff",
    "_",
    "--",
    "A",
    "\u03a3",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\xad",
    "\u034f",
    "e\u200d\u0301",
    "\u1100\u115f\u1161",
    "x\u0316\x01\u0301",
    "b\u0301\x00\u0316",
    "\u3164",
    "\u2065",
    "\ufff3",
    "\U000e0041",
    "\x7f",
    "\x9f",
    "\u2801\u2803",
    "a-\nb",
    "a\xad \r\nb",
    "a\u2010\u2028\u2029b",
    "a-\nB",
    "\u0623\u064e\u0640",
    "\u05e9\u05c1",
    "\u0439",
    "\u304c",
    "\u0e35\u0e48",
    "\u00e9\u0327",
    "\ufe71",
]
CHARACTERS = st.characters(exclude_categories=())
TEXTS = st.one_of(
    st.text(CHARACTERS),
    st.text(st.sampled_from("ab AB_-.\t\n 1"), max_size=60),
    st.lists(
        st.one_of(
            st.sampled_from(CURIOUS),
            st.sampled_from(["a", "b", "the", "Fox", " ", "."]),
            st.text(CHARACTERS, max_size=3),
            st.integers(1, 3000).map(lambda n: " " * n),
            st.integers(1, 600).map(lambda n: "\n\u3000" * n),
        ),
        max_size=40,
    ).map("".join),
)
PARAMETERS = st.fixed_dictionaries(
    {
        "shingle": st.sampled_from(["auto", "words", "chars"]),
        "size": st.integers(1, 5),
        "weighting": st.sampled_from(["count", "log", "set"]),
    },
    optional={
        "width": st.sampled_from([32, 64, 128, 256]),
        "hash": st.sampled_from(["xxh64", "fnv1a", "md5", "blake2b"]),
        "normalize": st.booleans(),
        "case": st.sampled_from(["fold", "lower", "keep"]),
        "punctuation": st.sampled_from(["space", "keep", "remove"]),
        "marks": st.sampled_from(["keep", "fold", "punctuation"]),
        "digits": st.sampled_from(["keep", "zero"]),
        "spaces": st.sampled_from(["single", "remove"]),
        "hyphens": st.sampled_from(["keep", "join"]),
        "seed": st.sampled_from([0, 1, 2**64 - 1]),
        "stop_words": st.sampled_from([(), ("a",), ("the", "b", "fox")]),
    },
).map(fitting)
GENEROUS = settings(max_examples=250)


def random_words(count, seed, vocabulary=5000):
    rng = random.Random(seed)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 12)))
        for _ in range(vocabulary)
    ]
    return rng.choices(words, k=count)


# ---- against the oracle ----


@GENEROUS
@given(TEXTS, PARAMETERS)
@example("", {"shingle": "words"})
@example(" \n", {"shingle": "chars"})
@example("\u1e9e", {"case": "fold"})
def test_equals_the_oracle(text, parameters):
    assert any_fingerprint(SimHash(**parameters), text) == oracle(text, **parameters)


@pytest.mark.full
@settings(GENEROUS, max_examples=100)
@given(st.lists(TEXTS, max_size=8), PARAMETERS)
def test_many_texts_equal_one_by_one(texts, parameters):
    simhash = SimHash(**parameters)
    fingerprints = simhash.fingerprints((text for text in texts), empty="mask")[0]
    assert fingerprints.dtype == {32: np.uint32, 64: np.uint64}.get(simhash.width, np.uint8)
    assert numbers_of(fingerprints) == [any_fingerprint(simhash, text) for text in texts]


@pytest.mark.full
@settings(GENEROUS, max_examples=120)
@given(TEXTS, PARAMETERS)
@example("\ufe70", {})  # a word character whose NFKC has none
@example("\u2121", {})  # no word character, but its NFKC is TEL
def test_is_empty_says_whether_there_are_units(text, parameters):
    simhash = SimHash(**parameters)
    assert simhash.is_empty(text) == (not shingles_of(text, **parameters))
    assert simhash.features(text) == weights_of(text, **parameters)
    if simhash.is_empty(text):
        with pytest.raises(
            InputError,
            match=r"(is blank|has no features), and so has no fingerprint|"
            r"no shingle of the text .* has a stop word",
        ):
            simhash.fingerprint(text)


def test_a_blank_text_has_no_fingerprint():
    simhash = SimHash()
    for text in ("", "   ", "\u200b\ufeff", "\x00", "\n"):
        with pytest.raises(InputError, match="is blank, and so has no fingerprint: leave it out"):
            simhash.fingerprint(text)
        assert simhash.fingerprint(text, empty="none") is None
    many = ["some words"] * 70_000 + [" ", "more words"]
    with pytest.raises(InputError, match=r"item 70000: the text .* is blank"):
        simhash.fingerprints(many)
    assert simhash.fingerprints(many, empty="mask")[0][-2:].tolist() == [
        0,
        simhash.fingerprint("more words", empty="none"),
    ]
    for call in (
        lambda: simhash.fingerprints(many, empty="skip"),
        lambda: simhash.fingerprint("fox", empty="mask"),
    ):
        with pytest.raises(InputError, match="empty must be one of"):
            call()
    for features in ({}, []):
        with pytest.raises(InputError, match="without features has no fingerprint"):
            simhash.fingerprint(features)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("shingle", "weighting", "count"),
    crossed(["auto", "words", "chars"], ["count", "set"], [15, 16, 17, 4095, 40000], share=5),
)
def test_long_texts_cross_the_counters_groups_and_grow_the_set(shingle, weighting, count):
    text = " ".join(random_words(count, seed=count))
    if shingle == "chars":
        text = text[: count + 2]
    parameters = {"shingle": shingle, "weighting": weighting, "size": 3}
    shingles = shingles_of(text, shingle=shingle, size=3)
    hashes = np.array([xxh64(s) for s in shingles], dtype=np.uint64)
    if weighting == "set":
        hashes = np.unique(hashes)
    bits = [
        (np.count_nonzero(hashes >> np.uint64(i) & np.uint64(1)) * 2 > len(hashes))
        for i in range(64)
    ]
    assert SimHash(**parameters).fingerprint(text) == sum(1 << i for i in range(64) if bits[i])


def test_texts_reach_the_kernel_in_bounded_batches_in_order():
    pulled, batches = [], []

    def texts():
        for i in range(600):
            pulled.append(i)
            yield f"word{i} " * 700

    class Noting(SimHash):
        def hashed(self, texts):
            batches.append((sum(map(len, texts)), len(pulled)))
            return super().hashed(texts)

    fingerprints = Noting(size=1).fingerprints(texts(), threads=1)
    assert fingerprints.tolist() == [xxh64(f"word{i}") for i in range(600)]
    assert len(batches) > 2
    assert max(size for size, _ in batches) <= 2**20 + 6000
    assert batches[0][1] < 600  # what is read before the first batch
    assert (SimHash().fingerprints([]).shape, SimHash().fingerprints([]).dtype) == ((0,), np.uint64)


# ---- pinned: version 1 ----

FABLE = (
    "A fox once saw a crow fly off with a piece of cheese in its beak and settle on a branch of a "
    "tree. "
    "\u201cThat\u2019s for me, as I am a fox,\u201d said Master Reynard, and went to the tree."
)
CHINESE = (
    "\u72d0\u72f8\u770b\u89c1\u4e4c\u9e26\u53fc\u7740\u4e00\u5757\u5976\u916a"
    "\uff0c\u98de\u8d70\u3002"
)
PINNED = [
    (FABLE, {"shingle": "words", "size": 3, "weighting": "count"}, 0x58E718602D4C9529),
    (FABLE, {"size": 1, "shingle": "words", "weighting": "count"}, 0xB27F84F9E88B7E18),
    (FABLE, {"weighting": "set", "size": 2, "shingle": "words"}, 0x2CC496C206403059),
    (
        FABLE,
        {"shingle": "chars", "size": 5, "punctuation": "keep", "weighting": "count"},
        0x4D3A76F8CBF22F03,
    ),
    (
        FABLE,
        {"shingle": "chars", "size": 3, "weighting": "set", "punctuation": "keep"},
        0xA605B49900423612,
    ),
    (
        FABLE,
        {"case": "keep", "shingle": "words", "size": 3, "weighting": "count"},
        0x01AF8EE0E51453A9,
    ),
    (
        FABLE,
        {"seed": 2**64 - 1, "shingle": "words", "size": 3, "weighting": "count"},
        0x2C51E48091992EC2,
    ),
    (
        CHINESE,
        {"shingle": "chars", "size": 2, "punctuation": "keep", "weighting": "count"},
        0xF17BE12F3BBCA1AE,
    ),
    (
        CHINESE,
        {
            "shingle": "chars",
            "size": 2,
            "normalize": False,
            "punctuation": "keep",
            "weighting": "count",
        },
        0xF129E06F3BBEA9E6,
    ),
    (
        "\ufb03 \u1e9e \u2460 e\u0301 \ud800",
        {"size": 1, "shingle": "words", "weighting": "count"},
        0x279712141C056418,
    ),
    (FABLE, {}, 0xA23384C9E00B1618),
    (CHINESE, {}, 0x4019B06355CB3541),
    (FABLE, {"width": 32}, 0x00000000A23384C9),
    (FABLE, {"width": 128}, 0xA23384C9E00B1618A0F81256955C7649),
    (
        FABLE,
        {"width": 256, "seed": 5},
        0x5A1FAC0100039D2E8A0980E11091637F6C1BD3D76999E485BA2C326DC100E6A4,
    ),
    (FABLE, {"hash": "fnv1a", "size": 2}, 0xC412B6C4731B931F),
    (FABLE, {"hash": "md5", "width": 128}, 0x8BC1D5E9C3B5EEB130CFB066593E5231),
    (FABLE, {"hash": "blake2b", "seed": 9}, 0xCEE5826532042E08),
    (FABLE, {"size": 2, "stop_words": ("a", "the")}, 0x60F2D39822E73040),
    (CHINESE, {"size": 2, "digits": "zero", "punctuation": "remove"}, 0xC2AB60B4B328A666),
    ("fox", {"shingle": "words", "size": 3, "weighting": "count"}, 0xBCE6C02D5136F238),
    ("", {"shingle": "words", "size": 3, "weighting": "count"}, 0x0000000000000000),
]


def test_version_2_is_pinned():
    for text, parameters, fingerprint in PINNED:
        assert any_fingerprint(SimHash(**parameters), text) == fingerprint
    assert SimHash.version == 2
    assert SimHash().fingerprint({"fox": 2.5, "crow": 1.5, "cheese": 1.25}) == 0x3CF2D109E1025028
    assert (
        SimHash(seed=7).fingerprint([("fox", 1), ("crow", -2), ("\u4e2d", 3)]) == 0x5012450166C2002D
    )


# ---- weighted features ----


@pytest.mark.full
@settings(GENEROUS, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.text(CHARACTERS, max_size=8),
            st.one_of(st.integers(-5, 5), st.floats(-1e300, 1e300, allow_nan=False)),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([0, 99]),
)
def test_weighted_features_equal_the_oracle_in_any_order(features, seed):
    simhash = SimHash(seed=seed)
    ordered = sorted((xxh64(f, seed), w) for f, w in features)
    sums = [0.0] * 64
    for value, weight in ordered:
        for bit in range(64):
            sums[bit] += weight if value >> bit & 1 else 0
    total = sum(weight for _, weight in ordered)
    expected = sum(1 << bit for bit in range(64) if sums[bit] > total / 2)
    assert simhash.fingerprint(features) == expected
    assert simhash.fingerprint(tuple(reversed(features))) == expected
    assert simhash.fingerprint(iter(features)) == expected


def test_weighted_ties_give_zero_bits():
    assert SimHash().fingerprint({"a": 0}) == 0
    a, b = (xxh64(x) for x in "ab")
    assert SimHash().fingerprint({"a": 1, "b": 1}) == a & b
    assert SimHash().fingerprint({"a": -1}) == a ^ (2**64 - 1)
    assert SimHash().fingerprint({"a": np.float32(2), "b": np.int64(1)}) == a


def test_weights_are_finite_numbers():
    for weight in (math.nan, math.inf, -math.inf, 10**400, None, "1", True, 1j, [1]):
        with pytest.raises(InputError, match="finite number"):
            SimHash().fingerprint({"a": weight})
    with pytest.raises(InputError, match="not finite"):
        SimHash().fingerprint([("a", 1e308), ("b", -1e308)])


# ---- wrong input ----


def test_what_is_no_text_is_refused():
    simhash = SimHash()
    for data in (b"text", bytearray(b"text"), memoryview(b"text")):
        for call in (
            simhash.fingerprint,
            simhash.is_empty,
            lambda d: simhash.fingerprints(["a", d]),
        ):
            with pytest.raises(InputError, match="decode"):
                call(data)
        with pytest.raises(InputError, match="iterable of texts"):
            simhash.fingerprints(data)
    for wrong in (5, 1.5, object(), b"fox"):
        for call in (simhash.fingerprint, simhash.is_empty, simhash.fingerprints):
            with pytest.raises(InputError, match=type(wrong).__name__):
                call(wrong)
        with pytest.raises(InputError, match=f"item 1: .* {type(wrong).__name__}"):
            simhash.fingerprints(["a", wrong])
    for single in ("a text", {"a": 1}):
        with pytest.raises(InputError, match="wrap a single one in a list"):
            simhash.fingerprints(single)
    for several in ([("a", 1, 2)], [(1, "a")], [b"ab"]):
        with pytest.raises(InputError, match="feature 0"):
            simhash.fingerprint(several)


def test_columns_of_texts():
    simhash = SimHash(size=2)
    for column in (
        pa.array(["the fox", None, "a crow"]),
        pa.chunked_array([["the fox"], [None, "a crow"]], pa.large_string()),
        pa.array(["the fox", None, "a crow"]).dictionary_encode(),
        pl.Series(["the fox", None, "a crow"]),
        pd.Series(["the fox", None, "a crow"]),
        pd.Series(["the fox", float("nan"), "a crow"], dtype=object),
        pd.Series(["the fox", None, "a crow"], dtype="string"),
        np.array(["the fox", None, "a crow"], object),
    ):
        fingerprints, known = simhash.fingerprints(column, empty="mask")
        assert fingerprints.tolist() == [
            simhash.fingerprint("the fox"),
            0,
            simhash.fingerprint("a crow"),
        ]
        assert known.tolist() == [True, False, True]
        with pytest.raises(InputError, match="item 1: the text '' is blank"):
            simhash.fingerprints(column)
    texts = [f"fox {n} of many" for n in range(5000)]
    assert (SimHash().fingerprints(pa.array(texts)) == SimHash().fingerprints(texts)).all()


def test_bad_parameters_are_named_with_their_range():
    for parameters, message in (
        ({"shingle": "bytes"}, "shingle must be one of auto, words, chars, got 'bytes'"),
        ({"weighting": "tfidf"}, "weighting must be one of count, log, set, got 'tfidf'"),
        ({"size": 0}, "size must be a whole number from 1 to 255, got 0"),
        ({"size": True}, "size must be a whole number"),
        ({"seed": -1}, "seed must be a whole number from 0 to 2\\^64 - 1, got -1"),
        ({"normalize": 1}, "normalize must be True or False"),
        ({"case": None}, "case must be one of fold, lower, keep"),
        ({"punctuation": "drop"}, "punctuation must be one of"),
        ({"marks": "remove"}, "marks must be one of keep, fold, punctuation"),
        ({"digits": "0"}, "digits must be one of"),
        ({"spaces": "keep"}, "spaces must be one of"),
        ({"spaces": "remove"}, "spaces='remove' needs shingle='chars'"),
        ({"width": 48}, "width must be one of 32, 64, 128, 256, got 48"),
        ({"hash": "sha1"}, "hash must be one of xxh64, fnv1a, md5, blake2b"),
        ({"hash": "md5", "width": 256}, "hash='md5' has 128 bits, width is 256"),
        ({"hash": "fnv1a", "seed": 1}, "hash='fnv1a' has no seed"),
        ({"stop_words": "the"}, "stop_words must be a list of words"),
        ({"stop_words": [b"the"]}, "a stop word must be a str"),
        ({"stop_words": ["the"], "shingle": "chars"}, "stop_words need shingles of words"),
        ({"weights": [1]}, "weights must be a result of learn_weights"),
        ({"weights": {"hashes": "", "weights": "AAA=", "other": 1}}, "each has a weight"),
        (
            {"weights": {"hashes": "?", "weights": "", "other": 1}},
            "weights of features are hashes, weights and other",
        ),
        ({"tokenizer": "spacy"}, "tokenizer must be one of jieba, unicode, got 'spacy'"),
    ):
        with pytest.raises(InputError, match=message):
            SimHash(**parameters)


@pytest.mark.full
@pytest.mark.parametrize("every", [31, slow(5)])
def test_every_character_alone(every):
    # test_char_map.py has more
    sample = [*range(0, 0x3000, every), *range(0xA000, 0x110000, 199 * every)]
    for simhash in (SimHash(shingle=shingle, size=1) for shingle in ("auto", "words", "chars")):
        expected = [oracle(f"x{chr(i)}y", shingle=simhash.shingle, size=1) for i in sample]
        assert simhash.fingerprints(f"x{chr(i)}y" for i in sample).tolist() == expected
