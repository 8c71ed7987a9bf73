"""Plans of indexes have the fewest bands that suffice, and their figures are right.

What cannot be planned is refused with advice.
"""

import itertools

import numpy as np
import pytest
from laws import bits_that_differ

from fpstore import InputError, MinHash
from fpstore.hashing.binomial import binomial_cdf
from fpstore.lsh.plan import LshPlan, plan, recall_at, resize

HASHER = MinHash(size=5)


@pytest.mark.parametrize("n", [1, 1000, 10**6, 10**9])
@pytest.mark.parametrize(("threshold", "recall"), [(0.75, 0.9), (0.8, 0.95), (0.9, 0.99)])
def test_a_plan_is_the_smallest_that_suffices(n, threshold, recall):
    result = plan(n, HASHER, threshold, recall)
    assert recall <= recall_at(result, HASHER, threshold) < 1
    smaller = LshPlan(**{**vars(result), "radius": result.radius - 1})
    assert recall_at(smaller, HASHER, threshold) < recall
    assert result.false_candidates <= 32

    needed = recall / (1 - (1 - recall) / 10)
    for bands, rows in itertools.product(range(1, result.bands + 1), range(1, 60)):
        by_keys = 1 - (1 - threshold**rows) ** bands
        enough = (
            n * bands * HASHER.law.background**rows + bands * n * bands / 2**result.key_bits <= 32
            and by_keys >= needed
        )
        assert not enough or (bands == result.bands and rows <= result.rows)


def test_the_form_of_keys_and_numbers():
    for n, numbers in (
        (1, 20),
        (1 << 19, 20),
        ((1 << 19) + 1, 21),
        (10**9, 31),
        (1 << 31, 32),
        (1 << 32, 32),
    ):
        result = plan(n, HASHER, 0.9)
        assert result.number_bits == numbers
        assert result.key_bits == min(
            64 - numbers, (n - 1).bit_length() + 8 + (result.bands - 1).bit_length()
        )


def test_another_size_keeps_bands_and_radius():
    small = plan(1000, HASHER, 0.8)
    large = resize(small, 10**8)
    assert (large.bands, large.rows, large.radius, large.recalls) == (
        small.bands,
        small.rows,
        small.radius,
        small.recalls,
    )
    assert large.number_bits == 28
    assert large.false_candidates > small.false_candidates
    assert resize(large, 1000) == small
    assert resize(small, 0).key_bits == 8 + (small.bands - 1).bit_length()


@pytest.mark.parametrize(("threshold", "similarity"), [(0.6, 0.6), (0.8, 0.7), (0.8, 0.8)])
def test_the_recall_that_a_plan_tells_is_measured_on_sets(threshold, similarity):
    result = plan(10**6, HASHER, threshold, 0.9)
    pairs, common, size = 700, round(120 * 2 * similarity / (1 + similarity)), 120
    sets = [[f"{pair}-{i}" for i in range(2 * size - common)] for pair in range(pairs)]
    (a,), (b,) = (
        list(HASHER.sketched(part, result.bands * result.rows))
        for part in ([s[:size] for s in sets], [s[size - common :] for s in sets])
    )
    agree = (a.sketches == b.sketches).reshape(pairs, result.bands, result.rows).all(2).any(1)
    share = (
        agree & (bits_that_differ(a.signatures, b.signatures) * 224 <= result.radius + 0.5)
    ).mean()
    recall = recall_at(result, HASHER, common / (2 * size - common))
    assert abs(share - recall) < 5 * np.sqrt(recall * (1 - recall) / pairs)


def test_the_table_has_what_it_tells():
    text = str(plan(10**9, HASHER, 0.8))
    assert "8 x 5" in text
    assert text.splitlines()[-1].split() == ["recall", "0.000", "0.019", "0.443", "0.953", "0.999"]
    assert binomial_cdf(34, 224, 0.1) * (1 - (1 - 0.8**5) ** 8) == pytest.approx(0.953, abs=5e-4)


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((0, HASHER, 0.8), {}, "n must be a whole number from 1"),
        ((2**32 + 1, HASHER, 0.8), {}, "n must be a whole number from 1"),
        ((10, MinHash, 0.8), {}, "expected a hasher"),
        ((10, HASHER, 1.1), {}, "threshold must be a Jaccard similarity, from 0 to 1"),
        ((10, HASHER, "0.8"), {}, "threshold must be a Jaccard similarity"),
        ((10, HASHER, 0.8, 1), {}, "recall must be a number between 0 and 1"),
        ((10, HASHER, 0.8), {"background": -1}, "background must be a Jaccard similarity"),
        ((10, HASHER, 0.8), {"background": 0.8}, "no nearer than the one of unrelated items, 0.8"),
        ((10, HASHER, 0.8), {"candidates": 0}, "candidates must be a positive number"),
        ((10, HASHER, 0.8), {"probes": 0}, "probes must be a whole number from 1 to 1024"),
        ((10, HASHER, 0.8), {"probes": 2}, "the hasher minhash has no further probes"),
        (
            (10**9, HASHER, 0.5),
            {},
            (
                "no number of bands up to 256 finds 0.95 of the pairs at a Jaccard similarity of "
                "0.5 among 1,000,000,000"
            ),
        ),
    ],
)
def test_wrong_requests_are_refused_in_one_line(arguments, named, message):
    with pytest.raises(InputError, match=message) as caught:
        plan(*arguments, **named)
    assert "\n" not in str(caught.value)


def test_the_advice_of_a_refusal_works():
    with pytest.raises(
        InputError, match=r"take recall=0\.37 or threshold=0\.707 or candidates=749$"
    ):
        plan(10**9, HASHER, 0.5)
    assert plan(10**9, HASHER, 0.5, 0.37).false_candidates <= 32
    assert plan(10**9, HASHER, 0.707).bands > 1
    assert plan(10**9, HASHER, 0.5, candidates=749).false_candidates > 700
    for arguments in ((0.5, 0.38), (0.706,)):
        with pytest.raises(InputError):
            plan(10**9, HASHER, *arguments)


@pytest.mark.parametrize(
    ("n", "size", "least"), [(10**8, 5, 0.47), (10**9, 5, 0.71), (10**8, 3, 0.53), (10**9, 3, 0.75)]
)
def test_the_lowest_thresholds_that_the_page_names(n, size, least):
    assert plan(n, MinHash(size=size), least).threshold == least
    with pytest.raises(InputError, match="no number of bands"):
        plan(n, MinHash(size=size), least - 0.01)
