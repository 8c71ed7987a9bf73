"""Sketches of MinHash: functions of their own, in one reading, and as the law says."""

import itertools
import json

import numpy as np
import pytest
import xxhash
from laws import agrees_with, bits_that_differ, documents, edited_copies

from fpstore import FormatVersionError, InputError, MinHash, MissingExtraError
from fpstore.hashing import Fields, MainText, SimHash, SimMinHash, from_description
from fpstore.hashing.registry import check_sketcher

TEXTS = documents()


@pytest.mark.parametrize(
    "minhash", [MinHash(), MinHash(size=5, width=64, seed=7), MinHash(size=2, weighting="count")]
)
def test_a_signature_is_the_beginning_of_the_wide_fingerprint(minhash):
    hasher, texts = minhash, TEXTS[:20]
    (result,) = hasher.sketched(texts, 40)
    assert (result.sketches == hasher.sketches(texts, 90)[:, :40]).all()
    assert (result.signatures == hasher.signatures(texts)).all()
    wide = MinHash(**{**minhash.parameters, "width": 256})
    assert (result.signatures == wide.fingerprints(texts)[:, :28]).all()
    assert result.sketches.dtype == np.uint32


@pytest.mark.parametrize(
    "minhash",
    [MinHash(size=2), MinHash(size=2, weighting="count"), MinHash(shingle="chars", size=6)],
)
def test_sketches_of_real_texts_obey_the_law(minhash):
    hasher = minhash
    texts, copies = edited_copies(TEXTS[:60])
    exact = np.array(
        [
            hasher.similarities(*pair)[0]
            for pair in zip(texts, [[copy] for copy in copies], strict=True)
        ]
    )
    a, b = next(hasher.sketched(texts, 200)), next(hasher.sketched(copies, 200))
    assert 0.3 < exact.mean() < 0.9
    agrees_with(
        (a.sketches == b.sketches).mean(1), [hasher.law.collision(item) for item in exact], 200
    )
    agrees_with(
        bits_that_differ(a.signatures, b.signatures),
        [hasher.law.differing(item) for item in exact],
        224,
    )


def test_keys_are_independent_of_the_signature():
    """Pairs of one similarity differ in as many bits whether their values agree or not."""
    hasher = MinHash()
    sets = [[f"{pair}-{i}" for i in range(30)] for pair in range(1500)]
    others = [[*part[:20], *(feature + "'" for feature in part[20:])] for part in sets]
    (a,), (b,) = hasher.sketched(sets, 8), hasher.sketched(others, 8)
    agreeing, differing = (
        (a.sketches == b.sketches).sum(1),
        bits_that_differ(a.signatures, b.signatures),
    )
    assert abs(np.corrcoef(agreeing, differing)[0, 1]) < 5 / np.sqrt(len(sets))


def test_similarities_are_exact():
    hasher = MinHash(size=1)
    assert hasher.similarities("a b c", ["c b a", "a b d", "x", ""]).tolist() == [1, 0.5, 0, 0]
    weighted = MinHash(size=1, weighting="count")
    assert weighted.similarities("a a b", ["a b b", "a a b"]).tolist() == [0.5, 1]
    assert weighted.similarities({"a": 2.5}, [{"a": 0.5, "b": 1.0}]).tolist() == [0.5 / 3.5]
    assert hasher.similarities(["a", "b"], [["b", "c"], []]).tolist() == [1 / 3, 0]


def test_empty_texts_are_unknown_and_refused_by_position():
    hasher = MinHash()
    (result,) = hasher.sketched(["a b c d", "", "\n"], 8)
    assert result.known.tolist() == [True, False, False]
    for make in (lambda items: hasher.sketches(items, 4), hasher.signatures):
        with pytest.raises(InputError, match=r"item 1: the text '' is blank"):
            make(["a", ""])
    assert hasher.sketches([], 4).shape == (0, 4)
    assert hasher.signatures([]).shape == (0, 28)


def test_a_description_is_json_and_rebuilds_it():
    for hasher in (
        MinHash(size=5, seed=3, stop_words=["the"]),
        Fields(MinHash(size=2), {"title": 1, "body": 1}),
    ):
        assert from_description(json.loads(json.dumps(hasher.describe()))) == hasher
    assert (MinHash(seed=1).sketches(TEXTS[:3], 4) != MinHash().sketches(TEXTS[:3], 4)).all()


def test_rows_of_fields_have_the_values_of_their_texts():
    hasher = Fields(MinHash(size=2), {"title": 1, "body": 1})
    plain = MinHash(size=2)
    result = hasher.sketch_batch([(TEXTS[0], None), (None, TEXTS[1])], 8)
    assert (result.sketches == plain.sketches(TEXTS[:2], 8)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: check_sketcher(SimHash()), "the hasher simhash has no law, .* or SimMinHash$"),
        (lambda: check_sketcher("minhash"), "expected a hasher, such as"),
        (lambda: check_sketcher(Fields(SimHash(), {"title": 1})), "the hasher fields has no law"),
        (lambda: check_sketcher(MainText(SimMinHash())), "the hasher main-text has no law"),
        (
            lambda: MainText(SimHash()).estimate([3]),
            "main-text has no law, .* pass texts to a MinHash",
        ),
        (
            lambda: Fields(SimHash(), {"title": 1}).sketches([{"title": "a"}], 4),
            "passes texts to simhash, which has no sketches",
        ),
        (
            lambda: MinHash().sketches("a text", 4),
            "expected an iterable of texts, got str: wrap a single one in a list",
        ),
        (lambda: MinHash().sketches(["a", 3], 4), "item 1: expected a text"),
        (lambda: MinHash().sketches(["a"], 5000), "count must be a whole number from 0 to 2048"),
        (lambda: MinHash().probes("a", 8, 5, 4), "has no further probes"),
        (lambda: MinHash().law.band_collision(0.8, 5, probes=2), "has no further probes"),
        (
            lambda: MinHash().law.check_measure(1.5, "threshold"),
            "threshold must be a Jaccard similarity, from 0 to 1, got 1.5",
        ),
        (lambda: MinHash().law.check_measure(float("nan"), "threshold"), "got nan"),
        (lambda: from_description({"name": "minhash"}), "a hasher is described by"),
        (
            lambda: from_description({"name": "minhash", "version": 2, "parameters": {"size": 5}}),
            "the description of the hasher 'minhash' lacks shingle",
        ),
    ],
)
def test_wrong_input_is_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_other_versions_and_names_are_refused():
    with pytest.raises(
        FormatVersionError,
        match="unknown version 3 of the hasher 'minhash': this one makes 2; upgrade fpstore",
    ):
        from_description({"name": "minhash", "version": 3, "parameters": {}})
    with pytest.raises(
        MissingExtraError,
        match=r"'quantum' is not installed: .* entry point 'quantum' in the group fpstore.hashers",
    ):
        from_description({"name": "quantum", "version": 1, "parameters": {}})


def test_values_are_those_of_the_description():
    hasher, words = (MinHash(size=2), ["it", "was", "the", "best", "of", "times"])
    hashes = [
        _avalanche(xxhash.xxh64_intdigest(" ".join(pair).encode())) & _HALF
        for pair in itertools.pairwise(words)
    ]
    expected = []
    for i in range(3):
        drawn = _avalanche(_avalanche(_Q) + (224 + i) * _P)
        least = min((h * ((drawn & _HALF) | 1) + (drawn >> 32)) & _HALF for h in hashes)
        expected.append(_avalanche(i * _P + least) & _HALF)
    assert hasher.sketches([" ".join(words)], 3).tolist() == [expected]


_HALF, _WORD = 2**32 - 1, 2**64 - 1
_P, _Q, _R = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9  # of XXH64


def _avalanche(word):
    word &= _WORD
    word = (word ^ (word >> 33)) * _Q & _WORD
    word = (word ^ (word >> 29)) * _R & _WORD
    return word ^ (word >> 32)
