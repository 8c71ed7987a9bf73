"""Fingerprints of the package simhash, bit for bit: of texts, features and weights.

And the classes that stand for its own.
"""

import hashlib
import itertools
import random

import numpy as np
import pytest
import simhash as simhash_package
from hypothesis import given, settings
from hypothesis import strategies as st
from simhash_oracle import normal_form_of
from speeds import crossed

from fpstore.errors import InputError
from fpstore.hashing import SimHash

TEXTS = [
    "How are you? I Am fine. Thanks. And you?",
    "How are you i am fine.thanks. and you?",
    "The cat sat on the mat, and the cat sat on the mat.",
    "abc",
    "\u4f60\u597d\u3000\u4e16\u754c\uff01  \u547c\u5438",
    "x" * 200,
    "na\u00efve caf\u00e9 _under_score 1234 \u0915\u094d\u0937",
]


@settings(max_examples=200)
@given(st.one_of(st.sampled_from(TEXTS), st.text(max_size=60)), st.sampled_from([32, 64, 128]))
def test_texts_have_the_fingerprints_of_the_package_simhash(text, width):
    hasher = SimHash.of_simhash_package(width)
    if any("\ud800" <= char <= "\udfff" for char in text):
        return
    value = simhash_package.Simhash(text, f=width).value
    # the package takes the empty string for a feature
    if not normal_form_of(hasher).words_form(text):
        assert value == simhash_package.Simhash([""], f=width).value
    else:
        assert hasher.fingerprint(text) == value


WEIGHTS = {
    "integers": lambda rng: rng.randint(0, 255),
    "tenths": lambda rng: rng.choice([0.1, 0.2, 0.3]),
    "floats": lambda rng: rng.gauss(0, 1),
    "tenths and integers": lambda rng: rng.choice([0.1, 0.2, 0.3, 1, 2, 7, 50, 51, 255]),
    "doubles of NumPy": lambda rng: np.float64(rng.choice([0.1, 0.7])),
}


@pytest.mark.parametrize(("kind", "width"), crossed(list(WEIGHTS), [32, 64, 128]))
def test_weights_have_the_fingerprints_of_the_package_simhash(kind, width):
    rng, hasher = random.Random(3), SimHash.of_simhash_package(width)
    items = [
        {f"feature {rng.random()}": WEIGHTS[kind](rng) for _ in range(count)}
        for count in [*(rng.randint(1, 12) for _ in range(300)), 199, 200, 201, 399, 400, 401, 1000]
    ]
    values = [simhash_package.Simhash(item, f=width).value for item in items]
    made = hasher.fingerprints(items)
    assert (
        made.tolist() if width < 128 else [int.from_bytes(row.tobytes(), "big") for row in made]
    ) == values
    assert [hasher.fingerprint(list(item.items())) for item in items] == values


def test_features_without_weights_hash_as_in_package_simhash():
    hasher = SimHash.of_simhash_package()
    published = 57087923692560392  # by the package's own tests
    assert (
        hasher.fingerprint([("aaa", 1), ("bbb", 1)])
        == simhash_package.Simhash(["aaa", "bbb"]).value
        == published
    )
    for count in (1, 2, 3, 200, 201, 999):
        features = [f"feature {i * i % 97}" for i in range(count)]
        assert hasher.fingerprint(features) == simhash_package.Simhash(features).value
        assert hasher.fingerprint(iter(features)) == hasher.fingerprint(
            [(feature, 1) for feature in features]
        )


def test_functions_make_the_hashes_of_features():
    def number(data):
        return int(hashlib.sha512(data).hexdigest(), 16)

    def digest(data):
        return hashlib.sha512(data).digest()

    for width in (32, 64, 128, 256):
        for text, function in itertools.product(TEXTS, (number, digest)):
            expected = simhash_package.Simhash(text, f=width, hashfunc=digest).value
            assert SimHash.of_simhash_package(width, function).fingerprint(text) == expected
        for wrong in (
            lambda data: data[:1],
            lambda data: "text",
            lambda data: 1.5,
            lambda data: None,
        ):
            with pytest.raises(
                InputError,
                match=f"hash must return an integer, or bytes, {width // 8} or more, got",
            ):
                SimHash(hash=wrong, width=width).fingerprint("a b")
    with pytest.raises(InputError, match="a hash that is a function cannot be remembered"):
        SimHash(hash=digest).describe()
    with pytest.raises(InputError, match="has no seed"):
        SimHash(hash=digest, seed=1)
