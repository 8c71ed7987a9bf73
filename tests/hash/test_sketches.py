"""Sketches of other packages, and Sim-Min-Hash: laws on real texts and sets, and wrong input."""

import json
import math

import numpy as np
import pytest
from checked_hasher import check_hasher
from laws import agrees_with, bits_that_differ, documents, edited_copies

from fpstore import InputError, MinHash, SimHash
from fpstore.hashing import PrecomputedMinHash, SimMinHash, from_description
from fpstore.hashing.registry import check_sketcher
from fpstore.lsh.plan import plan, recall_at


def minima_of(sets, count=128, seed=1):
    """Return the minima of functions of 61 bits over sets of numbers, as datasketch does."""
    prime = (1 << 61) - 1
    numbers = np.random.default_rng(seed)
    a, b = numbers.integers(1, prime, count), numbers.integers(0, prime, count)
    return np.array(
        [
            [
                min((int(x) * int(f) + int(t)) % prime & 0xFFFFFFFF for x in part)
                for f, t in zip(a, b, strict=True)
            ]
            for part in sets
        ],
        np.uint64,
    )


SETS = [range(first, first + 40) for first in range(0, 60, 3)]
MINIMA = minima_of(SETS)


def test_given_sketches_do_what_an_index_relies_on():
    hasher = PrecomputedMinHash(count=128)
    laws = check_hasher(hasher, list(MINIMA))
    exact = np.mean(
        [len({*a} & {*b}) / len({*a} | {*b}) for i, a in enumerate(SETS) for b in SETS[:i]]
    )
    assert np.average(
        [law.similarity for law in laws], weights=[law.pairs for law in laws]
    ) == pytest.approx(exact, abs=0.06)
    assert from_description(json.loads(json.dumps(hasher.describe()))) == hasher


@pytest.mark.parametrize("count", [8, 100, 128, 224, 256, 500])
def test_the_signature_has_a_bit_of_each_value_up_to_224(count):
    hasher = PrecomputedMinHash(count=count)
    minima = np.random.default_rng(2).integers(0, 2**32, (3, count), np.uint64)
    assert hasher.signature_bits == min(count // 8 * 8, 224)
    assert hasher.signatures(minima).shape == (3, hasher.signature_bits // 8)
    changed = minima.copy()
    changed[:, : count - hasher.signature_bits] += np.uint64(1)
    assert (hasher.signatures(changed) == hasher.signatures(minima)).all()
    changed = minima + np.uint64(1)
    assert (
        0.2 < bits_that_differ(hasher.signatures(changed), hasher.signatures(minima)).mean() < 0.8
    )


def test_types_of_other_packages_are_the_same():
    """Datasketch has arrays of uint32 or uint64, rensa lists of int."""
    hasher = PrecomputedMinHash(count=128)
    for same in (
        MINIMA.astype(np.uint32),
        MINIMA.tolist(),
        [list(map(int, row)) for row in MINIMA],
        list(MINIMA.astype(np.uint32)),
    ):
        assert (hasher.sketches(same, 40) == hasher.sketches(MINIMA, 40)).all()
        assert (hasher.signatures(same) == hasher.signatures(MINIMA)).all()


def test_empty_sets_are_unknown():
    hasher = PrecomputedMinHash(count=128)
    for most in (2**32 - 1, 2**64 - 1):
        rows = np.concatenate([MINIMA[:1], np.full((1, 128), most, np.uint64)])
        (result,) = hasher.sketched(rows, 8)
        assert result.known.tolist() == [True, False]
        with pytest.raises(InputError, match=r"item 1: .* has no content"):
            hasher.sketches(rows, 8)


def test_values_of_keys_and_signature_find_no_less_than_planned():
    """Of 64 values, 40 make keys and all the signature."""
    hasher, pairs = PrecomputedMinHash(count=64), 1500
    result = plan(10**6, hasher, 0.7, 0.8)
    assert result.bands * result.rows > 8
    numbers = np.random.default_rng(3)
    equal = numbers.random((pairs, 64)) < 0.7
    a = numbers.integers(0, 2**32, (pairs, 64), np.uint64)
    b = np.where(equal, a, numbers.integers(0, 2**32, (pairs, 64), np.uint64))
    left, right = (next(hasher.sketched(rows, result.bands * result.rows)) for rows in (a, b))
    agree = (
        (left.sketches == right.sketches).reshape(pairs, result.bands, result.rows).all(2).any(1)
    )
    near = np.bitwise_count(left.signatures ^ right.signatures).sum(1) <= result.radius
    recall = recall_at(result, hasher, 0.7)
    assert (agree & near).mean() > recall - 5 * math.sqrt(recall * (1 - recall) / pairs)


@pytest.mark.parametrize("minhash", [MinHash(size=2), MinHash(shingle="chars", size=5, seed=9)])
def test_sim_min_hash_has_keys_of_minhash_and_bits_of_simhash(minhash):
    hasher, texts = SimMinHash(**minhash.parameters), documents()[:20]
    (result,) = hasher.sketched(texts, 20)
    assert (result.sketches == minhash.sketches(texts, 20)).all()
    alike = SimHash(
        size=minhash.size, shingle=minhash.shingle, seed=minhash.seed, weighting="set", width=256
    )
    assert (result.signatures == alike.fingerprints(texts)[:, :28]).all()
    assert from_description(json.loads(json.dumps(hasher.describe()))) == hasher


def test_sim_min_hash_obeys_its_law_or_is_nearer():
    hasher = SimMinHash()
    sets = [[f"{pair}-{i}" for i in range(200)] for pair in range(100)]
    for common, size in ((180, 200), (100, 200)):
        others = [
            [*part[:common], *(f"{feature}'" for feature in part[common:size])] for part in sets
        ]
        share = hasher.law.differing(common / (400 - common))
        agrees_with(
            bits_that_differ(hasher.signatures(sets), hasher.signatures(others)),
            [share] * 100,
            224,
        )
    halves = [part[:100] for part in sets]
    assert (
        bits_that_differ(hasher.signatures(sets), hasher.signatures(halves)).mean()
        < hasher.law.differing(0.5) - 0.02
    )


def test_sim_min_hash_is_checked_on_real_texts():
    texts, copies = edited_copies(documents()[:16])
    laws = check_hasher(SimMinHash(size=1), [*texts, *copies])
    assert laws[-1].similarity > 0.2


def test_the_signature_of_minhash_tells_sets_apart_better():
    """The page of hashers says so.

    At the same share of found pairs at 0.8, fewer pairs of 0.7 come near.
    """
    results = {kind.name: plan(10**6, kind(), 0.8) for kind in (MinHash, SimMinHash)}
    recalls = {name: dict(form.recalls)[0.7] for name, form in results.items()}
    assert recalls["minhash"] < recalls["sim-min-hash"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrecomputedMinHash(count=7), "count must be a whole number from 8"),
        (
            lambda: PrecomputedMinHash(count=128).sketches(MINIMA, 129),
            "count must be a whole number from 0 to 128",
        ),
        (
            lambda: PrecomputedMinHash(count=64).sketches(MINIMA, 8),
            r"item 0: has shape \(128,\), and the hasher is for sketches of 64",
        ),
        (
            lambda: PrecomputedMinHash(count=128).sketches([MINIMA[0], MINIMA[1, :50]], 8),
            "item 1: has shape",
        ),
        (
            lambda: PrecomputedMinHash(count=128).sketches(MINIMA.astype(float), 8),
            "item 0: has numbers of type float64",
        ),
        (
            lambda: PrecomputedMinHash(count=128).sketches(-MINIMA.astype(np.int64), 8),
            "item 0: has numbers of type int64",
        ),
        (lambda: PrecomputedMinHash(count=128).sketches(["abc"], 8), "item 0: "),
        (
            lambda: PrecomputedMinHash(count=128).sketches("abc", 8),
            "expected an iterable of sketches, got str",
        ),
        (lambda: plan(10**9, PrecomputedMinHash(count=16), 0.5), "no number of bands up to 256"),
        (lambda: SimMinHash(weighting="count"), "a SimMinHash is of sets"),
        (lambda: check_sketcher(SimHash()), "or SimMinHash$"),
    ],
)
def test_wrong_input_is_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
