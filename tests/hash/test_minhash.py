"""MinHash: equal to what its description says, by a second implementation.

Distances follow the law that `recall` computes.
"""

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import xxhash
from commandline import fine
from inputs import json_lines
from isas import isa  # noqa: F401
from speeds import ALL_WIDTHS

import fpstore
from fpstore import InputError, MinHash, SimHash
from fpstore.cli.calibrate import build_options
from fpstore.hashing import Fields, MainText, from_description
from fpstore.hashing.registry import read_weights

MASK = 2**64 - 1
P, Q, R = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
TEXT = (
    "it was the best of times it was the worst of times it was the age of wisdom it was the age "
    "of foolishness"
)


def avalanche(h):
    h = (h ^ h >> 33) * Q & MASK
    h = (h ^ h >> 29) * R & MASK
    return h ^ h >> 32


def drawn(seed, n):
    return avalanche((avalanche((seed + Q) & MASK) + n * P) & MASK)


def of_set(hashes, width, seed):
    """Return the fingerprint of a set of features by the description of `MinHash`, bit by bit."""
    out, hashes = 0, list(map(avalanche, hashes))
    for i in range(width):
        word = drawn(seed, i)
        least = min((h * (word & 0xFFFFFFFF | 1) + (word >> 32)) & 0xFFFFFFFF for h in hashes)
        least = (least ^ least >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        least = (least ^ least >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        out = out << 1 | least >> 31
    return out


def of_weighted(weights, width, seed):
    """Return that of a weighted set, {hash: weight}, by the recipe of Ioffe, figure 1."""
    out = 0
    for i in range(width):
        samples = []
        for h, weight in weights.items():
            numbers = drawn(seed ^ h, i)
            u = [((drawn(numbers, n) >> 12) + 0.5) * 2.0**-52 for n in range(6)]
            r, c, beta = -math.log(u[1] * u[2]), -math.log(u[3] * u[4]), u[5]
            t = math.floor(math.log(weight) / r + beta)
            samples.append((math.log(c) - r * (t - beta) - r, h, t))
        _, h, t = min(samples)
        out = out << 1 | drawn(h ^ avalanche(t & MASK), i) >> 63
    return out


def hash_of(feature, seed=0):
    return xxhash.xxh64_intdigest(feature.encode(), seed)


def random_text(rng, words):
    return " ".join(f"w{n}" for n in rng.integers(0, 500, words).tolist())


@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_sets_are_hashed_as_described(width, isa):  # noqa: F811
    rng = np.random.default_rng(width)
    for words, seed in ((1, 0), (2, 5), (40, 1), (1100, MASK)):
        minhash, text = MinHash(width=width, seed=seed), random_text(rng, words)
        hashes = {hash_of(feature, seed) for feature in minhash.features(text)}
        assert minhash.fingerprint(text) == of_set(hashes, width, seed)
        assert minhash.fingerprint(list(minhash.features(text))) == of_set(hashes, width, seed)


def test_weighted_sets_are_hashed_as_described():
    rng = np.random.default_rng(1)
    for weighting, words in (("count", 3), ("log", 30), ("count", 60)):
        minhash, text = (
            MinHash(weighting=weighting, size=1, width=64, seed=3),
            random_text(rng, words),
        )
        weights = {
            hash_of(feature, 3): weight for feature, weight in minhash.features(text).items()
        }
        assert minhash.fingerprint(text) == of_weighted(weights, 64, 3)
    options = {"a": 0.25, "b": 1e-300, "c": 1e300, "d": 5e-324, "e": 7, "nothing": 0}
    weights = {hash_of(feature): weight for feature, weight in options.items() if weight}
    assert MinHash(weighting="count").fingerprint(options) == of_weighted(weights, 256, 0)
    assert MinHash(weighting="count").fingerprint([("a", 1), "b", ("a", 2)]) == of_weighted(
        {hash_of("a"): 3, hash_of("b"): 1}, 256, 0
    )


def test_known_answers():
    assert MinHash(width=64).fingerprint(TEXT) == 5832560849666362196
    assert MinHash(width=64, size=5, seed=1).fingerprint(TEXT) == 17510009416935510504
    assert MinHash(width=64, shingle="chars", size=4).fingerprint(TEXT) == 17331469510000893270
    assert MinHash(width=64, weighting="count").fingerprint(TEXT) == 7039236797713662016
    assert (
        MinHash(width=64, weighting="count").fingerprint({"apple": 0.5, "pear": 2.5})
        == 7424587423351901543
    )


def test_narrow_fingerprints_are_the_first_bits_of_wide_ones():
    for weighting in ("set", "count"):
        wide = MinHash(weighting=weighting).fingerprint(TEXT)
        for width in (32, 64, 128):
            assert MinHash(weighting=weighting, width=width).fingerprint(TEXT) == wide >> (
                256 - width
            )


def test_hashes_with_a_pattern_follow_the_law_too():
    """Functions of 32 bits kept progressions.

    FNV-1a of features that differ at their ends lies in them.
    """
    minhash = MinHash(hash="fnv1a")
    left, right = (
        minhash.fingerprints([[f"{p}-{i}" for i in part] for p in range(1000)])
        for part in ((0, 1, 2), (1, 2, 3))
    )
    distances = np.bitwise_count(left ^ right).sum(1)
    assert abs(distances.mean() - 64) < 5 * math.sqrt(48 / 1000)
    assert abs(distances.var() / 48 - 1) < 5 * math.sqrt(2 / 1000)


@pytest.mark.full
@pytest.mark.parametrize("weighting", ["set", "count"])
def test_distances_follow_the_binomial_law(weighting):
    """Means and variances of the distances of pairs of sets, within five standard deviations."""
    minhash, pairs = MinHash(weighting=weighting), 400 if weighting == "set" else 50
    for n, common in ((3, 2), (20, 13), (200, 130), (100, 10)):
        sets = [[f"{pair}-{i}" for i in range(2 * n - common)] for pair in range(pairs)]
        left, right = (
            minhash.fingerprints([subset[part] for subset in sets])
            for part in (slice(n), slice(n - common, None))
        )
        distances = np.bitwise_count(left ^ right).sum(1)
        share = (1 - common / (2 * n - common)) / 2
        variance = 256 * share * (1 - share)
        assert abs(distances.mean() - 256 * share) < 5 * math.sqrt(variance / pairs)
        assert abs(distances.var() / variance - 1) < 5 * math.sqrt(2 / pairs)
        radius = minhash.radius(jaccard=common / (2 * n - common), recall=0.9)
        recall = minhash.recall(common / (2 * n - common), radius)
        assert abs((distances <= radius).mean() - recall) < 5 * math.sqrt(
            recall * (1 - recall) / pairs
        )


def test_weights_decide_how_similar_weighted_sets_are():
    minhash, pairs = MinHash(weighting="count"), 300
    items = [
        ({f"{p}a": 3, f"{p}b": 1.5, f"{p}c": 0.5}, {f"{p}a": 1, f"{p}b": 2.5, f"{p}d": 1.5})
        for p in range(pairs)
    ]
    left, right = (minhash.fingerprints([item[side] for item in items]) for side in (0, 1))
    share = (1 - (1 + 1.5) / (3 + 2.5 + 0.5 + 1.5)) / 2
    distances = np.bitwise_count(left ^ right).sum(1)
    assert abs(distances.mean() - 256 * share) < 5 * math.sqrt(256 * share * (1 - share) / pairs)


def test_recall_and_radius_are_the_exact_binomial_sums():
    for width in (32, 64, 256):
        minhash = MinHash(width=width)
        for jaccard in (0, 0.5, 0.7, 0.8, 1):
            share, total = (1 - Fraction(jaccard)) / 2, Fraction(0)
            for radius in range(width + 1):
                total += math.comb(width, radius) * share**radius * (1 - share) ** (width - radius)
                assert minhash.recall(jaccard, radius) == pytest.approx(float(total), rel=1e-9)
            for recall in (0.01, 0.5, 0.98):
                radius = minhash.radius(jaccard=jaccard, recall=recall)
                assert minhash.recall(jaccard, radius) >= recall
                assert radius == 0 or minhash.recall(jaccard, radius - 1) < recall
    assert [MinHash().jaccard(d) for d in (0, 64, 128, 256)] == [1, 0.5, 0, 0]


def test_a_text_is_one_set_however_it_comes():
    texts = [TEXT, "", "Ein Äpfelchen fällt, 苹果掉下来了", "word", TEXT.upper(), "x " * 5000]
    minhash = MinHash()
    rows, known = minhash.fingerprints(texts, empty="mask")
    assert known.tolist() == [True, False, True, True, True, True]
    assert (rows[0] == rows[4]).all()
    assert (
        minhash.fingerprints(texts * 400, empty="mask", threads=2)[0] == np.tile(rows, (400, 1))
    ).all()
    for text, row in zip(texts, rows, strict=True):
        if text:
            assert (
                int.from_bytes(row.tobytes())
                == minhash.fingerprint(text)
                == of_set(set(map(hash_of, minhash.features(text))), 256, 0)
            )
    blake = MinHash(hash="blake2b", width=64)
    assert (
        blake.fingerprint(TEXT)
        == blake.fingerprint(list(blake.features(TEXT)))
        != MinHash(width=64).fingerprint(TEXT)
    )


def test_learnt_weights_make_a_weighted_set():
    learnt = MinHash(size=1, width=64).learn_weights(["the fox", "the dog", "the cat sleeps"])
    weights = {
        hash_of(feature): weight for feature, weight in learnt.features("the fox sleeps").items()
    }
    assert learnt.fingerprint("the fox sleeps") == of_weighted(weights, 64, 0)


def test_rows_of_several_texts_are_one_set():
    rows = [
        {"title": "The Age", "text": TEXT},
        {"title": None, "text": TEXT},
        {"title": "", "text": ""},
    ]
    minhash = MinHash()
    fingerprints, known = Fields(minhash, {"title": 1, "text": 1}).fingerprints(rows, empty="mask")
    assert known.tolist() == [True, True, False]
    features = [{**minhash.features("The Age"), **minhash.features(TEXT)}, minhash.features(TEXT)]
    assert [int.from_bytes(row.tobytes()) for row in fingerprints[:2]] == [
        of_set(set(map(hash_of, part)), 256, 0) for part in features
    ]
    weighted = MinHash(weighting="count", width=64)
    weights = {feature: 4 * weight for feature, weight in weighted.features("The Age").items()}
    for feature, weight in weighted.features(TEXT).items():
        weights[feature] = weights.get(feature, 0) + weight
    made = Fields(weighted, {"title": 4, "text": 1}).fingerprint(rows[0])
    assert made == of_weighted(
        {hash_of(feature): weight for feature, weight in weights.items()}, 64, 0
    )
    with pytest.raises(InputError, match="MinHash of sets counts each field once"):
        Fields(minhash, {"title": 4, "text": 1})


def test_a_store_remembers_it(tmp_path):
    texts = [
        TEXT,
        TEXT.replace("wisdom", "reason"),
        "call me ishmael some years ago never mind how long precisely",
    ]
    minhash = MinHash()
    assert from_description(minhash.describe()) == minhash != SimHash(size=3, width=256)
    with fpstore.build(
        tmp_path / "docs.fps",
        minhash.fingerprints(texts),
        width=256,
        radius=60,
        fingerprinter=minhash,
    ) as store:
        assert from_description(store.fingerprinter) == minhash
        assert {ids for match in store.probe(minhash.fingerprint(TEXT)) for ids in match.ids} == {
            0,
            1,
        }


def test_the_command_line_makes_it_and_a_store_goes_on_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = (
        "call me ishmael some years ago never mind how long precisely having little or no money "
        "in my purse"
    )
    near = TEXT.replace("best", "worst")
    Path("a.jsonl").write_text(json_lines({"t": text} for text in (TEXT, other)))
    Path("b.jsonl").write_text(json.dumps({"t": near}) + "\n")
    Path("near.txt").write_text(near)
    Path("a.txt").write_text(TEXT)
    minhash = MinHash()
    digits = fine("hash", "near.txt", "--text", "--method", "minhash").split("\t")[0]
    assert int(digits, 16) == minhash.fingerprint(near)
    fine("build", "s.fps", "a.jsonl", "--text-field", "t", "--method", "minhash", "--quiet")
    with fpstore.open("s.fps") as store:
        assert (store.width, store.radius, from_description(store.fingerprinter)) == (
            256,
            50,
            minhash,
        )
    fine("insert", "s.fps", "b.jsonl", "--text-field", "t", "--quiet")
    distance = (minhash.fingerprint(near) ^ minhash.fingerprint(TEXT)).bit_count()
    lines = [line.split("\t")[2:] for line in fine("probe", "s.fps", "near.txt").splitlines()]
    assert sorted(lines) == sorted([[str(distance), "0"], ["0", "2"]])
    assert distance <= 50
    shown = json.loads(fine("compare", "a.txt", "near.txt", "--method", "minhash", "--json"))
    assert shown["distance"] == distance
    options = ("--text-field", "t", "--method", "minhash")
    fine("weights", "a.jsonl", *options, "--output", "w.json", "--quiet")
    learnt = read_weights("w.json")
    assert isinstance(learnt, MinHash)
    made = fine("hash", "near.txt", "--text", "--weights", "w.json", "--width", "64").split("\t")[0]
    assert int(made, 16) == replace(learnt, width=64).fingerprint(near)
    assert build_options(MinHash(size=5, width=128)) == [
        "--method",
        "minhash",
        "--shingle-size",
        "5",
        "--width",
        "128",
    ]


def test_groups_of_a_store_have_no_chains_by_default(tmp_path):
    chain = [0, (1 << 40) - 1, (1 << 80) - 1]
    for name, fingerprinter in (
        ("m", MinHash()),
        ("h", MainText(MinHash())),
        ("f", Fields(MinHash(), {"a": 1, "b": 1})),
    ):
        with fpstore.build(
            tmp_path / name, chain, width=256, radius=40, fingerprinter=fingerprinter
        ) as store:
            assert list(store.clusters()) == [[0, 1]]
            assert list(store.clusters(group="connected")) == [[0, 1, 2]]


def test_what_is_refused():
    sets, weighted = MinHash(), MinHash(weighting="count")
    for call, message in (
        (lambda: sets.fingerprint({"a": 2}), "the features of sets have no weights"),
        (lambda: weighted.fingerprint({"a": -1}), "weights from 0 on"),
        (lambda: weighted.fingerprint([("a", 1), ("a", -1), ("b", 1)]), "weights from 0 on"),
        (
            lambda: weighted.fingerprint({"a": 1e308, "b": 1e308}),
            "sum of the weights is not finite",
        ),
        (
            lambda: weighted.fingerprint({"a": 10**308, "b": 10**308}),
            "sum of the weights is not finite",
        ),
        (lambda: weighted.fingerprint({"a": 0}), "without features"),
        (lambda: sets.fingerprint(""), "is blank"),
        (lambda: sets.recall(1.5, 3), "jaccard must be a number from 0 to 1"),
        (lambda: sets.recall(float("nan"), 3), "jaccard must be"),
        (lambda: sets.recall(True, 3), "jaccard must be"),
        (lambda: sets.recall(0.5, 257), "radius"),
        (lambda: sets.radius(0.5, 1), "recall must be a number between 0 and 1"),
        (lambda: sets.jaccard(257), "distance"),
        (lambda: MinHash(width=48), "width"),
        (lambda: MinHash(weighting="tf"), "weighting must be one of"),
        (lambda: MinHash(order="given"), "order"),
    ):
        with pytest.raises((InputError, TypeError), match=message):
            call()
