"""MinHash as a family: its values come from functions of their own, in one reading, and obey the law; wrong input is refused."""

import itertools
import json

import numpy as np
import pytest
import xxhash
from laws import agrees_with, bits_that_differ, documents, edited_copies

import fpstore
from fpstore import FormatVersionError, InputError, MinHash, MissingExtraError
from fpstore.families import MinHashFamily, as_family, from_description
from fpstore.hashing import Fields

TEXTS = documents()


@pytest.mark.parametrize(
    "minhash", [MinHash(), MinHash(size=5, width=64, seed=7), MinHash(size=2, weighting="count")]
)
def test_one_reading_gives_what_two_give_and_the_signature_is_the_beginning_of_the_fingerprint(
    minhash,
):
    family, texts = as_family(minhash), TEXTS[:20]
    (found,) = family.sketched(texts, 40)
    assert (found.sketches == family.sketches(texts, 90)[:, :40]).all()
    assert (found.signatures == family.signatures(texts)).all()
    wide = MinHash(**{**minhash.parameters, "width": 256})
    assert (found.signatures == wide.fingerprints(texts)[:, :28]).all()
    assert found.sketches.dtype == np.uint32


@pytest.mark.parametrize(
    "minhash",
    [MinHash(size=2), MinHash(size=2, weighting="count"), MinHash(shingle="chars", size=6)],
)
def test_values_agree_and_bits_differ_as_often_as_the_law_says_on_real_texts(minhash):
    family = as_family(minhash)
    texts, copies = edited_copies(TEXTS[:60])
    exact = np.array(
        [
            family.similarities(*pair)[0]
            for pair in zip(texts, [[copy] for copy in copies], strict=True)
        ]
    )
    a, b = next(family.sketched(texts, 200)), next(family.sketched(copies, 200))
    assert 0.3 < exact.mean() < 0.9
    agrees_with((a.sketches == b.sketches).mean(1), [family.collision(one) for one in exact], 200)
    agrees_with(
        bits_that_differ(a.signatures, b.signatures), [family.differing(one) for one in exact], 224
    )


def test_keys_are_independent_of_the_signature():
    """Among pairs of one similarity, those whose values agree differ in as many bits as the others."""
    family = MinHashFamily()
    sets = [[f"{pair}-{i}" for i in range(30)] for pair in range(1500)]
    others = [[*some[:20], *(feature + "'" for feature in some[20:])] for some in sets]
    (a,), (b,) = family.sketched(sets, 8), family.sketched(others, 8)
    agreeing, differing = (
        (a.sketches == b.sketches).sum(1),
        bits_that_differ(a.signatures, b.signatures),
    )
    assert abs(np.corrcoef(agreeing, differing)[0, 1]) < 5 / np.sqrt(len(sets))


def test_similarities_are_exact():
    family = MinHashFamily(fingerprinter=MinHash(size=1))
    assert family.similarities("a b c", ["c b a", "a b d", "x", ""]).tolist() == [1, 0.5, 0, 0]
    weighted = MinHashFamily(fingerprinter=MinHash(size=1, weighting="count"))
    assert weighted.similarities("a a b", ["a b b", "a a b"]).tolist() == [0.5, 1]
    assert weighted.similarities({"a": 2.5}, [{"a": 0.5, "b": 1.0}]).tolist() == [0.5 / 3.5]
    assert family.similarities(["a", "b"], [["b", "c"], []]).tolist() == [1 / 3, 0]


def test_empty_texts_are_unknown_and_refused_by_position():
    family = MinHashFamily()
    (found,) = family.sketched(["a b c d", "", "\n"], 8)
    assert found.known.tolist() == [True, False, False]
    for make in (lambda items: family.sketches(items, 4), family.signatures):
        with pytest.raises(InputError, match=r"item 1: the text '' is blank"):
            make(["a", ""])
    assert family.sketches([], 4).shape == (0, 4)
    assert family.signatures([]).shape == (0, 28)


def test_a_description_is_json_and_rebuilds_it():
    for maker in (
        MinHash(size=5, seed=3, stop_words=["the"]),
        Fields(MinHash(size=2), {"title": 1, "body": 1}),
    ):
        family = as_family(maker)
        assert from_description(json.loads(json.dumps(family.describe()))) == family
    assert (
        as_family(MinHash(seed=1)).sketches(TEXTS[:3], 4)
        != as_family(MinHash()).sketches(TEXTS[:3], 4)
    ).all()


def test_rows_of_fields_have_the_values_of_their_texts():
    family = as_family(Fields(MinHash(size=2), {"title": 1, "body": 1}))
    plain = MinHashFamily(fingerprinter=MinHash(size=2))
    found = family.both([(TEXTS[0], None), (None, TEXTS[1])], 8)
    assert (found.sketches == plain.sketches(TEXTS[:2], 8)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_family(fpstore.SimHash()), "expected a family of hash functions"),
        (lambda: as_family("minhash"), "expected a family of hash functions"),
        (lambda: MinHashFamily(fingerprinter=fpstore.SimHash()), "must be a MinHash"),
        (
            lambda: MinHashFamily().sketches("a text", 4),
            "expected an iterable of texts, got str: wrap a single one in a list",
        ),
        (lambda: MinHashFamily().sketches(["a", 3], 4), "item 1: expected a text"),
        (
            lambda: MinHashFamily().sketches(["a"], 5000),
            "count must be a whole number from 0 to 2048",
        ),
        (lambda: MinHashFamily().probes("a", 8, 5, 4), "has no further probes"),
        (lambda: MinHashFamily().band_collision(0.8, 5, probes=2), "has no further probes"),
        (
            lambda: MinHashFamily().check_measure(1.5, "threshold"),
            "threshold must be a Jaccard similarity, from 0 to 1, got 1.5",
        ),
        (lambda: MinHashFamily().check_measure(float("nan"), "threshold"), "got nan"),
        (lambda: from_description({"name": "minhash"}), "a family is described by"),
        (
            lambda: from_description({"name": "minhash", "version": 1, "parameters": {"size": 5}}),
            "does not take, or lacks one",
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
        match="unknown version 2 of the family 'minhash': this one makes 1; upgrade fpstore",
    ):
        from_description({"name": "minhash", "version": 2, "parameters": {}})
    with pytest.raises(
        MissingExtraError,
        match=r"'quantum' is not installed: .* entry point 'quantum' in the group fpstore.families",
    ):
        from_description({"name": "quantum", "version": 1, "parameters": {}})


def test_values_are_those_of_the_description():
    family, words = (
        MinHashFamily(fingerprinter=MinHash(size=2)),
        ["it", "was", "the", "best", "of", "times"],
    )
    hashes = [
        _avalanche(xxhash.xxh64_intdigest(" ".join(pair).encode())) & _HALF
        for pair in itertools.pairwise(words)
    ]
    expected = []
    for i in range(3):
        drawn = _avalanche(_avalanche(_Q) + (224 + i) * _P)
        least = min((h * ((drawn & _HALF) | 1) + (drawn >> 32)) & _HALF for h in hashes)
        expected.append(_avalanche(i * _P + least) & _HALF)
    assert family.sketches([" ".join(words)], 3).tolist() == [expected]


_HALF, _WORD = 2**32 - 1, 2**64 - 1
_P, _Q, _R = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9  # of XXH64


def _avalanche(word):
    word &= _WORD
    word = (word ^ (word >> 33)) * _Q & _WORD
    word = (word ^ (word >> 29)) * _R & _WORD
    return word ^ (word >> 32)
