"""Fingerprints of the package simhash, bit for bit: of texts, features and weights; and the classes that stand for its own."""

import hashlib
import random
import re
from pathlib import Path

import numpy as np
import pytest
import simhash as simhash_package
from hypothesis import given, settings
from hypothesis import strategies as st

import fpstore
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


def test_published_value_of_the_package_simhash():
    """The package's own tests have it."""
    hasher = SimHash.of_simhash_package()
    assert hasher.fingerprint([("aaa", 1), ("bbb", 1)]) == simhash_package.Simhash(["aaa", "bbb"]).value == 57087923692560392


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.sampled_from(TEXTS), st.text(max_size=60)), st.sampled_from([32, 64, 128]))
def test_texts_have_the_fingerprints_of_the_package_simhash(text, width):
    hasher = SimHash.of_simhash_package(width)
    if any("\ud800" <= char <= "\udfff" for char in text):
        return
    value = simhash_package.Simhash(text, f=width).value
    if hasher.is_empty(text):  # the package takes the empty string for a feature
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


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_have_the_fingerprints_of_the_package_simhash(kind, width):
    rng, hasher = random.Random(3), SimHash.of_simhash_package(width)
    items = [
        {f"feature {rng.random()}": WEIGHTS[kind](rng) for _ in range(count)}
        for count in [*(rng.randint(1, 12) for _ in range(300)), 199, 200, 201, 399, 400, 401, 1000]
    ]
    values = [simhash_package.Simhash(item, f=width).value for item in items]
    made = hasher.fingerprints(items)
    assert (made.tolist() if width < 128 else [int.from_bytes(row.tobytes(), "big") for row in made]) == values
    assert [hasher.fingerprint(list(item.items())) for item in items] == values


def test_features_without_weights_have_the_fingerprints_of_the_package_simhash():
    hasher = SimHash.of_simhash_package()
    for count in (1, 2, 3, 200, 201, 999):
        features = [f"feature {i * i % 97}" for i in range(count)]
        assert hasher.fingerprint(features) == simhash_package.Simhash(features).value
        assert hasher.fingerprint(iter(features)) == hasher.fingerprint([(feature, 1) for feature in features])


@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_functions_make_the_hashes_of_features(width):
    def number(data):
        return int(hashlib.sha512(data).hexdigest(), 16)

    def digest(data):
        return hashlib.sha512(data).digest()

    for text in TEXTS:
        expected = simhash_package.Simhash(text, f=width, hashfunc=digest).value
        for function in (number, digest):
            assert SimHash.of_simhash_package(width, function).fingerprint(text) == expected
    with pytest.raises(InputError, match="a hash that is a function cannot be remembered"):
        SimHash(hash=digest).describe()
    with pytest.raises(InputError, match="has no seed"):
        SimHash(hash=digest, seed=1)
    for wrong in (lambda data: data[:1], lambda data: "text", lambda data: 1.5, lambda data: None):
        with pytest.raises(InputError, match=f"hash must return an integer, or bytes, {width // 8} or more, got"):
            SimHash(hash=wrong, width=width).fingerprint("a b")


def test_the_classes_of_the_page_do_what_those_of_the_package_do():
    page = (Path(__file__).parents[2] / "docs" / "texts.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "class SimhashIndex" in block)
    shim = {"fpstore": fpstore}
    exec(code.partition("\nindex = ")[0], shim)
    rng = random.Random(8)
    texts = [*TEXTS, *(" ".join(rng.choices(["the", "cat", "sat", "on", "a", "mat"], k=30)) for _ in range(60)), "", "?!"]
    values = [*texts, 0, 2**63, ["aaa", "bbb"], {"a": 0.1, "b": 0.2, "c": 0.3}, [("a", 200), ("b", 7)]]
    ours, theirs = ([kind(value) for value in values] for kind in (shim["Simhash"], simhash_package.Simhash))
    assert [one.value for one in ours] == [one.value for one in theirs]
    assert [shim["Simhash"](one).distance(ours[0]) for one in ours] == [one.distance(theirs[0]) for one in theirs]
    assert [one == ours[3] for one in ours] == [one == theirs[3] for one in theirs]
    named = [(f"t{n}", place) for n, place in enumerate(range(len(values)))]
    indexes = [
        kind([(name, some[place]) for name, place in named[:40]], k=6)
        for kind, some in ((shim["SimhashIndex"], ours), (simhash_package.SimhashIndex, theirs))
    ]
    for change in (None, "delete", "delete", "add", "add"):
        for index, some in zip(indexes, (ours, theirs), strict=True):
            for name, place in named[30:50] if change else ():
                getattr(index, change)(name, some[place])
        for mine, other in zip(ours, theirs, strict=True):
            assert sorted(indexes[0].get_near_dups(mine)) == sorted(indexes[1].get_near_dups(other))
    indexes[0].store.close()
    indexes[0].folder.cleanup()
