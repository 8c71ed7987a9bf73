"""Weights of features, learnt from a corpus or given by tokenizers.

They are compared with those of the literature and of the package simhash.
"""

import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from simhash_oracle import hash_of, shingles_of, sign_bits, weights_of

import fpstore
from fpstore.errors import InputError
from fpstore.hashing import SimHash, TextReader, from_description
from fpstore.hashing.weights import FeatureWeights

# ---- learnt from a corpus ----

WORDS = [f"w{i}" for i in range(60)]
SETTINGS = [
    {},
    {"size": 2, "weighting": "count", "seed": 7},
    {"shingle": "chars", "size": 3, "weighting": "set", "width": 128},
    {"width": 32, "hash": "fnv1a"},
    {"width": 256, "hash": "blake2b"},
]


def corpus(documents=80, seed=5):
    """Return texts with frequent and rare words, and some texts without words."""
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    texts = [" ".join(rng.choices(WORDS, weights, k=rng.randint(1, 40))) for _ in range(documents)]
    return [*texts, "", " "]


def key_of(feature, parameters):
    """Return the hash by which the weight of a feature is known.

    The first 64 bits, of a fingerprint of at least 64.
    """
    width = max(parameters.get("width", 64), 64)
    return (
        hash_of(feature, {"hash": "xxh64", "seed": 0} | parameters | {"width": width}) >> width - 64
    )


def weights_by_formula(texts, parameters, most):
    """Count in plain Python the weights of the most frequent features.

    Return them by their keys, and the weight of all others.
    """
    sets = [result for text in texts if (result := set(shingles_of(text, **parameters)))]
    counts = Counter(key_of(feature, parameters) for result in sets for feature in result)
    frequent = sorted(counts, key=lambda key: (-counts[key], key))[:most]
    weigh = {key: 1 + round(16 * math.log2(len(sets) / counts[key])) for key in frequent}
    return weigh, 1 + round(16 * math.log2(len(sets)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
def test_learnt_weights_are_inverse_document_frequencies(parameters):
    texts = corpus()
    for most in (1, 20, 4096):
        learnt = SimHash(**parameters).learn_weights(texts, most).weights
        expected, other = weights_by_formula(texts, parameters, most)
        assert dict(zip(learnt.hashes.tolist(), learnt.weights.tolist(), strict=True)) == expected
        assert learnt.hashes.tolist() == sorted(expected)
        assert learnt.other == other == max(learnt.weights.max(), other)
        assert len(set(expected.values())) > 3 or most == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
def test_fingerprints_with_learnt_weights_equal_the_oracle(parameters):
    texts = corpus()
    plain = SimHash(**parameters)
    weighing = plain.learn_weights(texts, 20)
    expected, other = weights_by_formula(texts, parameters, 20)
    new = [text for text in corpus(40, seed=6) if shingles_of(text, **parameters)]
    new += ["words that no document has", "w0 w0 w0 new"]
    changed = 0
    for text, fingerprint in zip(new, numbers_of(weighing.fingerprints(new)), strict=True):
        features = {
            feature: weight * expected.get(key_of(feature, parameters), other)
            for feature, weight in weights_of(text, **parameters).items()
        }
        assert weighing.features(text) == features
        assert fingerprint == sign_bits(features.items(), **parameters)
        changed += fingerprint != plain.fingerprint(text)
    assert changed > len(new) / 2


def numbers_of(fingerprints):
    rows = (
        fingerprints
        if fingerprints.ndim == 1
        else [int.from_bytes(row.tobytes(), "big") for row in fingerprints]
    )
    return [int(row) for row in rows]


def test_weights_are_the_same_from_one_batch_and_from_many():
    """Counts are added up when a million hashes wait, here after each document."""
    documents = [np.arange(start, start + 2**20 + 1, dtype=np.uint64) for start in (0, 2**19)]
    documents += [np.arange(10, dtype=np.uint64)] * 5
    learnt = FeatureWeights.learn(iter(documents), 50)
    hashes, counts = np.unique(np.concatenate(documents), return_counts=True)
    order = np.lexsort((hashes, -counts))[:50]
    expected = {int(hashes[i]): 1 + round(16 * math.log2(7 / int(counts[i]))) for i in order}
    assert dict(zip(learnt.hashes.tolist(), learnt.weights.tolist(), strict=True)) == expected
    assert learnt == FeatureWeights.learn(documents[::-1], 50)


def test_weights_are_learnt_anew_and_not_from_nothing():
    texts = corpus()
    assert SimHash().learn_weights(["a b", "a"]).learn_weights(texts) == SimHash().learn_weights(
        texts
    )
    weights = SimHash().learn_weights(texts, 10).weights
    assert FeatureWeights.from_json(json.loads(json.dumps(weights.to_json()))) == weights
    assert weights != FeatureWeights.from_json(weights.to_json() | {"other": 5})
    empty = FeatureWeights.from_json({"hashes": "", "weights": "", "other": 3})
    assert SimHash(weights=empty).features("a b b b b") == {"a": 3, "b": 9}
    with pytest.raises(InputError, match="no text has features"):
        SimHash().learn_weights(["", " "])
    for most in (0, 2**16 + 1):
        with pytest.raises(InputError, match=r"most must be a whole number from 1 to 65,?536"):
            SimHash().learn_weights(["a"], most)


# of 1 and 2: 7 and 8
GOOD = {"hashes": "AQAAAAAAAAACAAAAAAAAAA==", "weights": "BwAIAA==", "other": 9}


def test_malformed_weights_are_refused():
    assert FeatureWeights.from_json(GOOD).weights.tolist() == [7, 8]
    for changed, message in (
        ({"hashes": None}, "hashes, weights and other"),
        ({"hashes": "AQAAAA=="}, "hashes, weights and other"),  # half a hash
        ({"weights": "BwA"}, "hashes, weights and other"),  # no base 64
        ({"weights": "Bw A=="}, "hashes, weights and other"),
        ({"other": "9"}, "hashes, weights and other"),
        ({"other": -1}, "hashes, weights and other"),
        ({"other": 2**16}, "hashes, weights and other"),
        ({"weights": "BwA="}, "each has a weight"),
        ({"hashes": "AgAAAAAAAAABAAAAAAAAAA=="}, "ascend"),
        ({"hashes": "AQAAAAAAAAABAAAAAAAAAA=="}, "ascend"),
        ({"weights": "AAA="}, "each has a weight"),
    ):
        with pytest.raises(InputError, match=message):
            FeatureWeights.from_json(GOOD | changed)
    for missing in GOOD:
        with pytest.raises(InputError, match="hashes, weights and other"):
            FeatureWeights.from_json({key: value for key, value in GOOD.items() if key != missing})
    # which the kernel cannot add up
    for weights, other in (([2**16], 1), ([1], 2**16), ([1], -1), ([0], 1), ([1], 0)):
        with pytest.raises(InputError, match="1 to 65,535"):
            FeatureWeights(np.array([7], np.uint64), np.array(weights, np.uint32), other)


# ---- given by tokenizers ----


def test_words_by_the_rules_of_unicode():
    """UAX #29 keeps apostrophes and decimal points in words; the normal form has spaces there."""
    hasher = SimHash(tokenizer="unicode")
    assert hasher.features("Can't stop: 3.14, can't!") == {"can't": 2, "stop": 1, "3.14": 1}
    assert SimHash().features("Can't stop 3.14") == {"can": 1, "t": 1, "stop": 1, "3": 1, "14": 1}
    assert SimHash(tokenizer="unicode", size=2).features("Can't stop 3.14") == {
        "can't stop": 1,
        "stop 3.14": 1,
    }
    assert SimHash(tokenizer="unicode", stop_words=["stop"]).features("Can't stop 3.14") == {
        "stop": 1
    }
    assert hasher.features("?!") == {"?!": 1}
    text = "Can't stop: 3.14, can't!"
    assert hasher.fingerprint(text) == sign_bits([("can't", 2), ("stop", 1), ("3.14", 1)])


CHINESE = (
    "\u7f8e\u56fd\u201c51\u533a\u201d\u96c7\u5458\u79f0\u5185\u90e8\u67099"
    "\u67b6\u98de\u789f\uff0c\u66fe\u770b\u89c1\u7070\u8272\u5916\u661f\u4eba"
)


@pytest.mark.full
def test_jieba_finds_keywords_with_weights_of_five_levels():
    hasher = SimHash(tokenizer="jieba")
    # only now: the package leaves a file open, which the fingerprinter has excused
    from jieba import analyse

    tags = dict(analyse.extract_tags(CHINESE, topK=64, withWeight=True))
    assert len(tags) > 5
    most = max(tags.values())
    result = hasher.features(CHINESE)
    assert result == {word: math.ceil(5 * weight / most - 1e-9) for word, weight in tags.items()}
    assert max(result.values()) == 5
    assert len(set(result.values())) > 1
    # The weights are taken as they are: no other weighting changes them.
    assert SimHash(tokenizer="jieba", weighting="set").features(CHINESE) == result
    assert hasher.fingerprint(CHINESE) == sign_bits(result.items()) == hasher.fingerprint(result)
    assert hasher.features("\u3002") == {"\u3002": 1}


def test_a_function_returns_features_or_pairs():
    def letters(text):
        return [(letter, ord(letter) - ord("a") + 1) for letter in text if letter.isalpha()]

    # log: binary digits of the counts
    assert SimHash(tokenizer=str.split).features("a b a a a") == {"a": 3, "b": 1}
    assert SimHash(tokenizer=str.split, weighting="count").features("a B") == {"a": 1, "B": 1}
    hasher, results = SimHash(tokenizer=letters), {"c": 6, "a": 1, "b": 2}
    assert hasher.features("cab c") == results
    assert hasher.fingerprint("cab c") == sign_bits(results.items()) == hasher.fingerprint(results)
    assert hasher.learn_weights(["ab", "a", "a", "a"]).features("abz") == {
        "a": 1 * 1,
        "b": 2 * 33,
        "z": 26 * 33,
    }
    mixed = SimHash(tokenizer=lambda text: [*text.split(), ("a", 0.5), ["z", -2]])
    assert mixed.features("a b b a") == {"a": 2.5, "b": 2, "z": -2}
    assert mixed.fingerprint("a b b a") == sign_bits([("a", 2.5), ("b", 2), ("z", -2)])
    narrow = SimHash(width=32, tokenizer=lambda text: [(word, -1) for word in text.split()])
    # below a narrow fingerprint
    assert not (narrow.hashed(["some words"]).rows & np.uint64(0xFFFFFFFF)).any()
    assert SimHash(tokenizer=lambda text: iter(text.split())).fingerprints(
        ["a b", "c"]
    ).tolist() == [
        sign_bits([("a", 1), ("b", 1)]),
        hash_of("c", {"hash": "xxh64", "seed": 0, "width": 64}),
    ]
    assert SimHash(tokenizer=lambda text: []).is_empty("a text")


def test_what_a_function_must_not_return():
    wrong = [
        None,
        "a text",
        5,
        [5],
        [None],
        [("a",)],
        [("a", 1, 2)],
        [("a", "b")],
        [(1, "a")],
        [("a", math.nan)],
        [("a", True)],
    ]
    for returned in (*wrong, [b"a"]):
        hasher = SimHash(tokenizer=lambda text, returned=returned: returned)
        for call in (hasher.features, hasher.fingerprint, hasher.is_empty):
            with pytest.raises(InputError, match="the tokenizer must return"):
                call("a text")


def test_a_function_is_not_remembered(tmp_path):
    hasher, path = SimHash(tokenizer=str.split), tmp_path / "s.fps"
    (tmp_path / "t.jsonl").write_text('{"text": "a b"}\n{"text": "c"}\n')
    for call in (
        hasher.describe,
        lambda: fpstore.build(path, hasher.fingerprints(["a b"]), fingerprinter=hasher),
        lambda: fpstore.build(path, TextReader(tmp_path / "t.jsonl", hasher, text="text")),
    ):
        with pytest.raises(
            InputError,
            match="a tokenizer that is a function cannot be remembered: make the fingerprints",
        ):
            call()
    assert not path.exists()


def test_stop_words_are_brought_to_their_normal_form():
    text = "we don't see the fox at dawn, nor any crow"
    for words, normal in (
        (["The"], ["the"]),
        (["DON'T"], ["don", "t"]),
        (["\uff34he", "..."], ["the"]),
    ):
        assert (
            SimHash(size=2, stop_words=words).features(text)
            == SimHash(size=2, stop_words=normal).features(text)
            != {}
        )
        assert SimHash(size=2, stop_words=words).fingerprint(text) == SimHash(
            size=2, stop_words=normal
        ).fingerprint(text)
    with pytest.raises(InputError, match="no word is left"):
        SimHash(stop_words=["...", "!"])
    with pytest.raises(InputError, match="no shingle of the text 'a crow' has a stop word"):
        SimHash(size=2, stop_words=["the"]).fingerprint("a crow")


def test_parameters_that_a_tokenizer_does_not_use_are_refused():
    unused = {"size": 2, "shingle": "chars", "case": "keep", "digits": "zero", "stop_words": ["a"]}
    for tokenizer in ("jieba", str.split):
        for name, value in unused.items():
            with pytest.raises(InputError, match=f"{name} has no effect"):
                SimHash(tokenizer=tokenizer, **{name: value})
        assert SimHash(tokenizer=tokenizer, width=128, hash="md5", weighting="set").fingerprint(
            "a fox"
        )
    for name in ("unicode", "jieba"):
        assert from_description(SimHash(tokenizer=name).describe()) == SimHash(tokenizer=name)


def test_text_without_words_has_no_fingerprint_even_with_weights():
    for parameters in (
        {},
        {"hash": "md5"},
        {"hash": "blake2b", "width": 256},
        {"tokenizer": "unicode"},
    ):
        learnt = SimHash(**parameters).learn_weights(["some words", "some others"])
        assert learnt.features("") == {}
        assert learnt.fingerprints(["some words", "", " "], empty="mask")[1].tolist() == [
            True,
            False,
            False,
        ]
