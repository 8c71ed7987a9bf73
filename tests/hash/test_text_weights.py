"""Weights of features: learnt from a corpus, given by tokenizers, and those of the literature and of the package simhash."""

import json
import math
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commandline import failure, fine
from simhash_oracle import hash_of, shingles_of, sign_bits, weights_of

import fpstore
from fpstore import _kernel
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
    """Return texts in which some words are far more frequent than others, and some texts without words."""
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    texts = [" ".join(rng.choices(WORDS, weights, k=rng.randint(1, 40))) for _ in range(documents)]
    return [*texts, "", "?!"]


def key_of(feature, parameters):
    """Return the hash by which the weight of a feature is known: the first 64 bits, of a fingerprint of at least 64."""
    width = max(parameters.get("width", 64), 64)
    return hash_of(feature, {"hash": "xxh64", "seed": 0} | parameters | {"width": width}) >> width - 64


def weights_by_formula(texts, parameters, most):
    """Return the weights of the most frequent features by their keys, and the weight of others, counted in plain Python."""
    sets = [found for text in texts if (found := set(shingles_of(text, **parameters)))]
    counts = Counter(key_of(feature, parameters) for found in sets for feature in found)
    frequent = sorted(counts, key=lambda key: (-counts[key], key))[:most]
    weigh = {key: 1 + round(16 * math.log2(len(sets) / counts[key])) for key in frequent}
    return weigh, 1 + round(16 * math.log2(len(sets)))


@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
@pytest.mark.parametrize("most", [1, 20, 4096])
def test_learnt_weights_are_inverse_document_frequencies(parameters, most):
    texts = corpus()
    learnt = SimHash(**parameters).learn_weights(texts, most).weights
    expected, other = weights_by_formula(texts, parameters, most)
    assert dict(zip(learnt.hashes.tolist(), learnt.weights.tolist(), strict=True)) == expected
    assert learnt.hashes.tolist() == sorted(expected)
    assert learnt.other == other == max(learnt.weights.max(), other)
    assert len(set(expected.values())) > 3 or most == 1


@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
def test_fingerprints_with_learnt_weights_equal_the_oracle(parameters):
    texts = corpus()
    plain = SimHash(**parameters)
    weighing = plain.learn_weights(texts, 20)
    expected, other = weights_by_formula(texts, parameters, 20)
    new = [text for text in corpus(40, seed=6) if shingles_of(text, **parameters)] + [
        "words that no document has",
        "w0 w0 w0 new",
    ]
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
    rows = fingerprints if fingerprints.ndim == 1 else [int.from_bytes(row.tobytes(), "big") for row in fingerprints]
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


def test_weights_are_not_learnt_from_nothing():
    with pytest.raises(InputError, match="no text has features"):
        SimHash().learn_weights(["", "?!"])
    for most in (0, 2**16 + 1):
        with pytest.raises(InputError, match=r"most must be a whole number from 1 to 65,?536"):
            SimHash().learn_weights(["a"], most)


def test_weights_are_learnt_anew():
    texts = corpus()
    assert SimHash().learn_weights(["a b", "a"]).learn_weights(texts) == SimHash().learn_weights(texts)


def test_a_store_remembers_learnt_weights(folder):
    texts = {f"{i}.txt": text for i, text in enumerate(corpus(30)) if text.strip("?!")}
    for name, text in texts.items():
        Path(name).write_text(text)
    hasher = SimHash(width=128).learn_weights(texts.values(), 25)
    fingerprints = hasher.fingerprints(texts.values())
    fpstore.build("w.fps", fingerprints, list(texts), width=128, fingerprinter=hasher).close()
    with fpstore.open("w.fps") as store:
        assert from_description(store.fingerprinter) == hasher
        assert from_description(store.fingerprinter) != SimHash(width=128)
        assert numbers_of(from_description(store.fingerprinter).fingerprints(texts.values())) == numbers_of(fingerprints)
    found = fine("probe", "w.fps", "7.txt", "--radius", "0").splitlines()
    assert f"{hasher.fingerprint(texts['7.txt']):032x}" == found[0].split("\t")[0]
    assert "7.txt" in [line.split("\t")[3] for line in found]


def test_weights_survive_json():
    weights = SimHash().learn_weights(corpus(), 10).weights
    assert FeatureWeights.of_json(json.loads(json.dumps(weights.as_json()))) == weights
    assert weights != FeatureWeights.of_json(weights.as_json() | {"other": 5})
    empty = FeatureWeights.of_json({"hashes": "", "weights": "", "other": 3})
    assert SimHash(weights=empty).features("a b b b b") == {"a": 3, "b": 9}


GOOD = {"hashes": "AQAAAAAAAAACAAAAAAAAAA==", "weights": "BwAIAA==", "other": 9}  # of 1 and 2: 7 and 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
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
    ],
)
def test_malformed_weights_are_refused(changed, message):
    assert FeatureWeights.of_json(GOOD).weights.tolist() == [7, 8]
    with pytest.raises(InputError, match=message):
        FeatureWeights.of_json(GOOD | changed)


@pytest.mark.parametrize("missing", GOOD)
def test_a_part_of_the_weights_is_refused(missing):
    with pytest.raises(InputError, match="hashes, weights and other"):
        FeatureWeights.of_json({key: value for key, value in GOOD.items() if key != missing})


# ---- given by tokenizers ----


def test_words_by_the_rules_of_unicode():
    """The annex keeps apostrophes and decimal points within words, which the normal form takes for spaces."""
    hasher = SimHash(tokenizer="unicode")
    assert hasher.features("Can't stop: 3.14, can't!") == {"can't": 2, "stop": 1, "3.14": 1}
    assert SimHash().features("Can't stop 3.14") == {"can": 1, "t": 1, "stop": 1, "3": 1, "14": 1}
    assert SimHash(tokenizer="unicode", size=2).features("Can't stop 3.14") == {"can't stop": 1, "stop 3.14": 1}
    assert SimHash(tokenizer="unicode", stop_words=["stop"]).features("Can't stop 3.14") == {"stop": 1}
    assert hasher.is_empty("?!")
    text = "Can't stop: 3.14, can't!"
    assert hasher.fingerprint(text) == sign_bits([("can't", 2), ("stop", 1), ("3.14", 1)])


CHINESE = (
    "\u7f8e\u56fd\u201c51\u533a\u201d\u96c7\u5458\u79f0\u5185\u90e8\u67099"
    "\u67b6\u98de\u789f\uff0c\u66fe\u770b\u89c1\u7070\u8272\u5916\u661f\u4eba"
)


def test_jieba_finds_keywords_with_weights_of_five_levels():
    hasher = SimHash(tokenizer="jieba")
    from jieba import analyse  # only now: the package leaves a file open, which the fingerprinter has excused

    tags = dict(analyse.extract_tags(CHINESE, topK=64, withWeight=True))
    assert len(tags) > 5
    most = max(tags.values())
    found = hasher.features(CHINESE)
    assert found == {word: math.ceil(5 * weight / most - 1e-9) for word, weight in tags.items()}
    assert max(found.values()) == 5
    assert len(set(found.values())) > 1
    # The weights are taken as they are: no other weighting changes them.
    assert {frozenset(SimHash(tokenizer="jieba", weighting=one).features(CHINESE).items()) for one in ("count", "set")} == {
        frozenset(found.items())
    }
    assert hasher.fingerprint(CHINESE) == sign_bits(found.items()) == hasher.fingerprint(found)
    assert hasher.is_empty("\u3002")


def test_a_store_remembers_tokenizers_with_a_name(folder):
    for name in ("unicode", "jieba"):
        hasher = SimHash(tokenizer=name)
        fpstore.build(f"{name}.fps", hasher.fingerprints([CHINESE]), fingerprinter=hasher).close()
        with fpstore.open(f"{name}.fps") as store:
            assert from_description(store.fingerprinter) == hasher


def letters(text):
    return [(letter, ord(letter) - ord("a") + 1) for letter in text if letter.isalpha()]


def test_a_function_returns_features_or_pairs():
    assert SimHash(tokenizer=str.split).features("a b a a a") == {"a": 3, "b": 1}  # log: binary digits of the counts
    assert SimHash(tokenizer=str.split, weighting="count").features("a B") == {"a": 1, "B": 1}
    hasher = SimHash(tokenizer=letters)
    assert hasher.features("cab c") == {"c": 6, "a": 1, "b": 2}
    assert (
        hasher.fingerprint("cab c")
        == sign_bits([("c", 6), ("a", 1), ("b", 2)])
        == hasher.fingerprint([("c", 6), ("a", 1), ("b", 2)])
    )
    mixed = SimHash(tokenizer=lambda text: [*text.split(), ("a", 0.5), ["z", -2]])
    assert mixed.features("a b b a") == {"a": 2.5, "b": 2, "z": -2}
    assert mixed.fingerprint("a b b a") == sign_bits([("a", 2.5), ("b", 2), ("z", -2)])
    assert SimHash(tokenizer=lambda text: iter(text.split())).fingerprints(["a b", "c"]).tolist() == [
        sign_bits([("a", 1), ("b", 1)]),
        hash_of("c", {"hash": "xxh64", "seed": 0, "width": 64}),
    ]
    assert SimHash(tokenizer=lambda text: []).is_empty("a text")


def test_weights_of_a_function_are_multiplied_by_learnt_ones():
    hasher = SimHash(tokenizer=letters).learn_weights(["ab", "a", "a", "a"])
    assert hasher.features("abz") == {"a": 1 * 1, "b": 2 * 33, "z": 26 * 33}


@pytest.mark.parametrize(
    "returned",
    [None, "a text", 5, [5], [None], [("a",)], [("a", 1, 2)], [("a", "b")], [(1, "a")], [("a", math.nan)], [("a", True)], [b"a"]],
    ids=repr,
)
def test_what_a_function_must_not_return(returned):
    hasher = SimHash(tokenizer=lambda text: returned)
    for call in (hasher.features, hasher.fingerprint, hasher.is_empty):
        with pytest.raises(InputError, match="the tokenizer must return"):
            call("a text")


def test_a_function_is_not_remembered(tmp_path):
    hasher = SimHash(tokenizer=str.split)
    message = "a tokenizer that is a function cannot be remembered: make the fingerprints yourself and pass them"
    with pytest.raises(InputError, match=message):
        hasher.describe()
    path = tmp_path / "s.fps"
    with pytest.raises(InputError, match=message):
        fpstore.build(path, hasher.fingerprints(["a b"]), fingerprinter=hasher)
    texts = {"text": ["a b", "c"]}
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts["text"]))
    with pytest.raises(InputError, match=message):
        fpstore.build(path, TextReader(tmp_path / "t.jsonl", hasher, text="text"))
    assert not path.exists()
    with fpstore.build(path, hasher.fingerprints(["a b"])) as store:  # what the message says
        assert store.fingerprinter is None
        assert hasher.fingerprint("a b") in store


# ---- the worked example of the literature ----

# The sentence of CHINESE, cut into words with weights of five levels, as articles on simhash explain it. Two of the words are
# given hashes of six bits, and the sum of their signs.
EXAMPLE = [
    ("\u7f8e\u56fd", 4), ("51\u533a", 5), ("\u96c7\u5458", 3), ("\u79f0", 1), ("\u5185\u90e8", 2), ("\u6709", 1),
    ("9\u67b6", 3), ("\u98de\u789f", 5), ("\u66fe", 1), ("\u770b\u89c1", 3), ("\u7070\u8272", 4), ("\u5916\u661f\u4eba", 5),
]  # fmt: skip


def test_the_worked_example_of_two_words():
    """100101 with weight 4 and 101011 with weight 5: the sums are 9 -9 1 -1 1 9, and the fingerprint is 101011."""
    hashes = ["100101", "101011"]
    sums = [sum(weight if row[i] == "1" else -weight for row, weight in zip(hashes, (4, 5), strict=True)) for i in range(6)]
    assert sums == [9, -9, 1, -1, 1, 9]
    rows = np.array([[int(row, 2) << 58] for row in hashes], np.uint64).reshape(-1)
    ((fingerprint,),) = _kernel.simhash_weighted(rows, np.array([4.0, 5.0]), np.zeros(2, np.uint8), 1).reshape(1, 1).tolist()
    assert f"{fingerprint >> 58:06b}" == "101011"


@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_the_worked_example_as_a_tokenizer_and_as_features(width):
    assert "".join(word for word, _ in EXAMPLE) == re.sub(r"\W", "", CHINESE)
    assert [weight for _, weight in EXAMPLE][:5] == [4, 5, 3, 1, 2]
    hasher = SimHash(tokenizer=lambda text: EXAMPLE, width=width)
    expected = sign_bits(EXAMPLE, width=width)
    assert hasher.fingerprint(CHINESE) == SimHash(width=width).fingerprint(EXAMPLE) == expected
    assert expected != sign_bits([(word, 1) for word, _ in EXAMPLE], width=width)


# ---- a corpus with wide fingerprints ----


def test_a_corpus_is_deduplicated_with_wide_fingerprints(folder):
    rng = random.Random(4)
    originals = [" ".join(f"w{rng.randrange(5000)}" for _ in range(300)) for _ in range(10)]
    texts = [*originals, *(f"{text} and one more" for text in originals[:4])]
    Path("corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    wide = [SimHash(width=128).fingerprint(text) for text in texts]
    narrow = [SimHash().fingerprint(text) for text in texts]
    for radius in (0, 6, 12):
        for width, values in ((64, narrow), (128, wide)):
            options = ("--width", width, "--radius", radius, "--force", "--json", "--clusters", "clusters.tsv")
            summary = json.loads(fine("dedup", "corpus.jsonl", "clean.jsonl", "--text-field", "text", *options))
            kept = brute_force(values, radius)
            assert [json.loads(line)["text"] for line in Path("clean.jsonl").read_text().splitlines()] == [texts[i] for i in kept]
            assert (summary["kept"], summary["documents"]) == (len(kept), 14)
    assert brute_force(wide, 12) == list(range(10))
    found = fpstore.dedup("corpus.jsonl", text="text", width=128, radius=12)
    assert found.kept.tolist() == list(range(10))
    wrong = ("dedup", "corpus.jsonl", "x.jsonl", "--text-field", "text", "--width", 128, "--radius", 129)
    assert "radius must be a whole number from 0 to 128, got 129" in failure(*wrong, code=2)
    assert not Path("x.jsonl").exists()


def brute_force(values, radius):
    """Return the first of each cluster that chains of near values connect."""
    names = list(range(len(values)))
    for i, value in enumerate(values):
        for j in range(i):
            if (value ^ values[j]).bit_count() <= radius and names[i] != names[j]:
                least, other = sorted((names[i], names[j]))
                names = [least if name == other else name for name in names]
    return sorted(set(names))


def test_stop_words_are_brought_to_their_normal_form():
    text = "we don't see the fox at dawn, nor any crow"
    for words, normal in ((["The"], ["the"]), (["DON'T"], ["don", "t"]), (["\uff34he", "..."], ["the"])):
        assert SimHash(size=2, stop_words=words).features(text) == SimHash(size=2, stop_words=normal).features(text) != {}
        assert SimHash(size=2, stop_words=words).fingerprint(text) == SimHash(size=2, stop_words=normal).fingerprint(text)
    with pytest.raises(InputError, match="no word is left"):
        SimHash(stop_words=["...", "!"])
    with pytest.raises(InputError, match="no shingle of the text 'a crow' has a stop word"):
        SimHash(size=2, stop_words=["the"]).fingerprint("a crow")


@pytest.mark.parametrize("tokenizer", ["jieba", str.split])
@pytest.mark.parametrize(
    "parameters", [{"size": 2}, {"shingle": "chars"}, {"case": "keep"}, {"digits": "zero"}, {"stop_words": ["a"]}]
)
def test_parameters_that_a_tokenizer_does_not_use_are_refused(tokenizer, parameters):
    with pytest.raises(InputError, match=f"{next(iter(parameters))} has no effect"):
        SimHash(tokenizer=tokenizer, **parameters)
    assert SimHash(tokenizer=tokenizer, width=128, hash="md5", weighting="set").fingerprint("a fox")


@pytest.mark.parametrize("parameters", [{}, {"hash": "md5"}, {"hash": "blake2b", "width": 256}, {"tokenizer": "unicode"}])
def test_a_text_without_words_has_no_fingerprint_with_weights_either(parameters):
    learnt = SimHash(**parameters).learn_weights(["some words", "some others"])
    assert learnt.features("") == {}
    assert learnt.fingerprints(["some words", "", "?!"], empty="mask")[1].tolist() == [True, False, False]


def test_negative_weights_set_no_bits_below_a_narrow_fingerprint(tmp_path):
    narrow = SimHash(width=32, tokenizer=lambda text: [(word, -1) for word in text.split()])
    assert not (narrow.hashed(["some words"]).rows & np.uint64(0xFFFFFFFF)).any()
    texts = ["some words", "other things", "some words"]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"t": text}) + "\n" for text in texts))
    assert fpstore.dedup(tmp_path / "t.jsonl", text="t", fingerprinter=narrow, width=32, radius=0).kept.tolist() == [0, 1]


@pytest.mark.parametrize(("weights", "other"), [([2**16], 1), ([1], 2**16), ([1], -1), ([0], 1), ([1], 0)])
def test_weights_that_the_kernel_cannot_add_up_are_refused(weights, other):
    with pytest.raises(InputError, match="1 to 65,535"):
        FeatureWeights(np.array([7], np.uint64), np.array(weights, np.uint32), other)
    value = FeatureWeights(np.array([7], np.uint64), np.array([1], np.uint32), 1).as_json()
    with pytest.raises(InputError, match="1 to 65,535"):
        FeatureWeights.of_json(value | {"weights": "AAA="})
    with pytest.raises(InputError, match="weights of features are hashes"):
        FeatureWeights.of_json(value | {"other": 0})
