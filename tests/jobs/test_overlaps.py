"""The search for texts that contain others: samples, lists, and the law of a match."""

import math
import random

import numpy as np
import pytest
import xxhash
from contained_texts import oracle, pieces, planted, templated
from speeds import full

from fpstore import InputError, MinHash, _kernel
from fpstore.base.resources import Resources
from fpstore.building.external_sort import Sorter
from fpstore.hashing.base import SAMPLES, FeatureSets
from fpstore.jobs.overlaps import (
    Shared,
    connect_by_overlaps,
    largest_first,
    may_contain,
    ranks_of,
    shared_pairs,
)
from fpstore.jobs.text_sets import IN_MEMORY, Rule, TextSets, TextSetsWriter
from fpstore.jobs.within import Within

RESOURCES = Resources(1 << 28, 1)
MARKED = [
    "e\u0301a b c d",
    "\u1100\u1161 b c d",
    "\u03a3x \u03a3 y z w",
    "\u0e01\u0e38\u0e48 b c d",
]


def text_sets(texts, memory=1 << 30):
    sets = MinHash().feature_sets(texts)
    writer = TextSetsWriter(memory)
    for batch in (slice(0, len(texts) // 2), slice(len(texts) // 2, None)):
        places = np.arange(len(texts))[batch]
        chars = np.array([len(text) for text in texts[batch]], np.uint32)
        writer.add(sets.select(places), chars)
    return writer.finish()


def test_sets_have_a_digest_and_a_sample_of_their_features():
    """Also those of texts whose normal form Python makes."""
    texts = [*planted(1, 60), *MARKED, "", " ", "word " * 5000, " ".join(map(str, range(3000)))]
    sets, start = MinHash().feature_sets(texts), 0
    for n, text in enumerate(texts):
        features = sets.features[start : start + sets.sizes[n]]
        start += sets.sizes[n]
        assert (np.diff(features.astype(np.int64)) > 0).all()
        assert text in MARKED or len(features) == len(pieces(text))
        assert sets.digests[n] == xxhash.xxh64_intdigest(features.tobytes())
        limit = (SAMPLES << 32) // max(len(features), SAMPLES)
        assert sets.samples[n] == np.searchsorted(features.astype(np.uint64), limit)
    assert start == len(sets.features)
    assert sets.samples[-1] == pytest.approx(SAMPLES, abs=5 * math.sqrt(SAMPLES))
    hashes = [np.array([5, 1 << 40 | 3, 5, 1 << 33 | 3], np.uint64), np.empty(0, np.uint64)]
    small = FeatureSets.from_hashes(hashes)
    assert small.features.tolist() == [3, 5]
    assert (small.sizes.tolist(), small.samples.tolist()) == ([2, 0], [2, 0])
    assert small.select(np.array([1, 0])).sizes.tolist() == [0, 2]
    many = np.random.default_rng(1).integers(0, 1 << 32, 1000).astype(np.uint64)
    sets = FeatureSets.from_hashes([many])
    assert sets.samples[0] == (many < (SAMPLES << 32) // len(many)).sum()


# --- Pairs ----------------------------------------------------------------------------------------


def drawn_sets(rng, count, letters):
    """Return sets of few features, so that many are shared and some are crowded."""
    alphabet = rng.choice(1 << 32, letters, replace=False)
    sets = [
        np.sort(rng.choice(alphabet, rng.integers(0, min(letters, 12) + 1), replace=False))
        for _ in range(count)
    ]
    sizes = np.array(list(map(len, sets)), np.int64)
    features = np.concatenate(sets).astype(np.uint32)
    samples = rng.integers(sizes // 2, sizes + 1).astype(np.uint32)
    digests = np.array([xxhash.xxh64_intdigest(s.astype(np.uint32).tobytes()) for s in sets])
    chars = np.zeros(count, np.uint32)
    return TextSets(FeatureSets(features, sizes, digests.astype(np.uint64), samples), chars)


def set_of(texts, number, salt=0):
    features = texts.features[texts.lims[number] : texts.lims[number + 1]]
    return [int(feature) ^ salt for feature in features]


def paired_by_hand(texts, numbers, salts, least, largest, largest_crowded):
    """Return {(smaller, larger): [rare features, all, crowded features of the smaller]}."""
    lists, pairs, crowded = {}, {}, dict.fromkeys(numbers, 0)
    for number in sorted(numbers, key=lambda n: (-texts.sizes[n], n)):
        for feature in set_of(texts, number, salts[number])[: texts.samples[number]]:
            lists.setdefault(feature, []).append(number)
    for numbers_of_list in lists.values():
        for rank, number in enumerate(numbers_of_list):
            is_crowded = rank > largest
            crowded[number] += is_crowded
            for other in numbers_of_list[: min(rank, largest_crowded if is_crowded else largest)]:
                counts = pairs.setdefault((number, other), [0, 0])
                counts[0] += not is_crowded
                counts[1] += 1
    return {
        (a, b): [rare, total, crowded[a]]
        for (a, b), (rare, total) in pairs.items()
        if total >= min(2, math.ceil(texts.sizes[a] * least))
    }


def columns_of_pairs(pairs):
    rows = [
        list(zip(*(column.tolist() for column in (*shared, crowded)), strict=True))
        for shared, crowded in pairs
    ]
    return [row for part in rows for row in part]


@pytest.mark.parametrize(("largest", "largest_crowded"), [(1, 1), (3, 1), (3, 3), (32, 4)])
@pytest.mark.parametrize("memory", [1 << 10, 1 << 28])
def test_texts_are_paired_with_the_first_of_their_lists(
    set_limits, largest, largest_crowded, memory
):
    """Also in parts, and with lists in a file."""
    set_limits(listed_texts=largest, listed_crowded_texts=largest_crowded, sampled_features=50)
    rng = np.random.default_rng(largest)
    texts = drawn_sets(rng, 150, 8)
    numbers = np.flatnonzero(rng.random(150) < 0.9)
    salts = rng.integers(0, 2, 150).astype(np.uint32)
    for least in (0.0, 0.8):
        order = largest_first(texts.sizes[numbers])
        samples = Sorter(memory, None)
        samples.add(*texts.sampled(numbers.astype(np.uint64), ranks_of(order), salts[numbers]))
        pairs = shared_pairs(
            samples, numbers[order].astype(np.uint32), texts.sizes, least, Resources(memory, 1)
        )
        expected = paired_by_hand(
            texts, numbers.tolist(), salts.tolist(), least, largest, largest_crowded
        )
        assert any(crowded for *_, crowded in expected.values())
        assert columns_of_pairs(pairs) == [(*pair, *expected[pair]) for pair in sorted(expected)]


def test_lists_are_by_size_up_to_half_a_word():
    sizes = np.array([5, 1 << 40, 7, (1 << 32) - 1, 7, 1 << 33])
    assert largest_first(sizes).tolist() == [1, 3, 5, 2, 4, 0]
    assert ranks_of(largest_first(sizes)).tolist() == [5, 0, 3, 1, 4, 2]


def connected_by_hand(texts, rule, searched, codes):
    """Return for each text the first one that is connected with it."""
    labels = list(range(len(texts)))

    def unite(a, b):
        least, most = sorted((labels[a], labels[b]))
        labels[:] = [least if label == most else label for label in labels]

    numbers = [n for n in range(len(texts)) if searched[n] and texts.sizes[n]]
    firsts = {}
    for n in numbers:
        unite(n, firsts.setdefault((codes[n], int(texts.digests[n])), n))
    least = rule.least_containment
    pairs = paired_by_hand(texts, sorted(firsts.values()), SALTS[codes].tolist(), least, 3, 1)
    for (a, b), (rare, total, crowded) in pairs.items():
        shared = Shared(*np.array([[a], [b], [rare], [total]]))
        sizes = texts.sizes[[a]], texts.sizes[[b]]
        both = len({*set_of(texts, a)} & {*set_of(texts, b)})
        if (
            codes[a] == codes[b]
            and may_contain(shared, *sizes, np.array([crowded]), least)[0]
            and both >= 0.8 * least * texts.sizes[a]
        ):
            unite(a, b)
    return labels


SALTS = np.array([0, 0x12345678, 1], np.uint32)


@pytest.mark.parametrize("seed", [1, 2, *map(full, range(3, 20))])
def test_texts_are_connected_as_by_hand(set_limits, seed):
    set_limits(listed_texts=3, listed_crowded_texts=1, sampled_features=40)
    rng = np.random.default_rng(seed)
    count, letters = int(rng.integers(1, 60)), int(rng.integers(2, 40))
    texts, rule = drawn_sets(rng, count, letters), Rule(0.9, 0.9)
    searched = rng.random(count) < rng.choice([0, 0.7, 1])
    codes = rng.integers(0, rng.choice([1, 3]), count).astype(np.uint32)
    expected = connected_by_hand(texts, rule, searched, codes)
    within = Within(codes, SALTS)
    for resources in (Resources(1 << 10, 1), Resources(1 << 28, 2)):
        labels = connect_by_overlaps(texts, rule, resources, searched, within=within)
        assert labels.tolist() == expected


# --- The law --------------------------------------------------------------------------------------


def binomial_tail(count, probability, least):
    """Return how often a binomial variable is at least so large."""
    return 1 - sum(
        math.comb(count, n) * probability**n * (1 - probability) ** (count - n)
        for n in range(least)
    )


def drawn_pairs(rng, size, larger_size, shared, draws):
    """Return how many sampled features pairs of sets share, where hashes are random."""
    limit = SAMPLES / max(larger_size, SAMPLES)
    return (rng.random((draws, shared)) < limit).sum(1)


def matches(shared, size, larger_size, crowded=0, rare=None, least=0.8):
    """Return which pairs of sets of two sizes may contain each other."""
    count = len(shared)
    numbers = np.zeros(count, np.uint64)
    pairs = Shared(numbers, numbers, shared if rare is None else rare, shared)
    return may_contain(
        pairs,
        np.full(count, size),
        np.full(count, larger_size),
        np.full(count, crowded, np.uint32),
        least,
    )


SIZES = [(1, 1), (3, 5), (20, 30), (64, 64), (100, 100), (100, 300), (1000, 1000), (1000, 4000)]


@pytest.mark.parametrize(("size", "larger_size"), SIZES)
@pytest.mark.parametrize("least", [0.8, full(0.5), full(0.95)])
def test_contained_texts_match_as_the_law_says(size, larger_size, least):
    """A text of which another one has the least share is missed in one of a hundred cases."""
    rng, draws = np.random.default_rng(size), 4000
    shared = math.ceil(least * size)
    limit = min(SAMPLES / larger_size, 1)
    rate = matches(
        drawn_pairs(rng, size, larger_size, shared, draws), size, larger_size, least=least
    ).mean()
    mean = size * limit * least
    bound = max(math.ceil(mean - 2.5 * math.sqrt(mean * (1 - limit)) - 1e-6), min(2, shared))
    law = binomial_tail(shared, limit, bound)
    assert abs(rate - law) <= 5 * math.sqrt(law * (1 - law) / draws) + 1e-9
    assert law >= 0.98


@pytest.mark.parametrize("size", [100, 1000])
def test_texts_that_share_little_do_not_match(size):
    rng = np.random.default_rng(size)
    for share, most in ((0.1, 0.0), (0.3, 0.01), (0.45, 0.2)):
        pairs = drawn_pairs(rng, size, size, round(share * size), 4000)
        assert matches(pairs, size, size).mean() <= most


@pytest.mark.parametrize("template", [0.3, 0.6, 0.75])
def test_a_text_of_a_template_matches_by_its_other_features(template):
    """Pairs by the features of a template are not counted, and all that differs is of the text."""
    size, least, draws, rng = 640, 0.8, 4000, np.random.default_rng(1)
    limit = SAMPLES / size
    own = round((1 - template) * size)
    crowded = round(template * SAMPLES)
    for share, is_found in ((1 - (1 - least) / (1 - template), True), (0.0, False)):
        rare = (rng.random((draws, round(share * own))) < limit).sum(1)
        rate = matches(rare, size, size, crowded, rare).mean()
        expected = own * limit  # sampled features of the text alone
        if is_found and share >= 0.5:
            assert rate >= 0.97, (template, expected)
        elif not is_found:
            assert rate == 0


def test_one_feature_of_several_does_not_decide():
    one = np.array([1])
    for size, larger_size, is_enough in ((1, 1, True), (2, 2, False), (1000, 100_000, False)):
        assert matches(one, size, larger_size)[0] == is_enough
        assert matches(one + 1, size, larger_size)[0]


def test_half_of_a_text_of_two_pieces_is_one():
    """One shared piece is enough if the rule asks for no more."""
    texts = ["one two three four", "one two three five six seven eight"]  # pieces of three words
    labels = labels_of(text_sets(texts), Rule(0.5, 0.5))
    assert labels == [0, 0]
    assert labels_of(text_sets(texts), Rule(0.8, 0.5)) == [0, 1]


def test_few_features_that_are_rare_do_not_decide():
    """All others are of a template: three are too few to say."""
    rare = np.array([3])
    assert not matches(rare, 640, 640, crowded=61, rare=rare)[0]
    assert matches(rare + 1, 640, 640, crowded=60, rare=rare + 1)[0]


# --- The whole search -----------------------------------------------------------------------------


def labels_of(texts, rule=None, searched=None, resources=RESOURCES):
    return connect_by_overlaps(texts, rule or Rule(), resources, searched).tolist()


@pytest.mark.parametrize("seed", [1, *map(full, range(2, 10))])
def test_small_limits_change_nothing(set_limits, seed):
    texts = text_sets([*planted(seed), *templated(50, 0.5, words=60)])
    expected = labels_of(texts)
    assert len(set(expected)) < len(texts)
    set_limits(sampled_features=100, sorted_rows=64)
    set_limits(pair_bytes=1 << 18, sort_bytes=1 << 18)  # sorted in runs of some hundred rows
    assert labels_of(texts) == expected
    assert labels_of(texts, resources=Resources(1 << 28, 2)) == expected


@pytest.mark.parametrize("seed", [1, *map(full, range(2, 10))])
def test_texts_that_contain_others_are_connected(seed):
    texts = planted(seed)
    labels, kept_for = labels_of(text_sets(texts)), oracle(texts)
    apart = [row for row, kept in kept_for.items() if labels[row] != labels[kept]]
    assert len(apart) <= 1
    least = 0.8 * Rule().least_containment
    sets, groups = list(map(pieces, texts)), {}
    for row, label in enumerate(labels):
        groups.setdefault(label, []).append(row)
    for rows in groups.values():
        for row in rows if len(rows) > 1 else ():
            assert any(
                len(sets[row] & sets[other]) >= least * min(len(sets[row]), len(sets[other]))
                for other in rows
                if other != row
            )


def test_texts_that_are_not_searched_are_alone():
    texts = planted(3)
    searched = np.array([n % 3 > 0 for n in range(len(texts))])
    labels = labels_of(text_sets(texts), searched=searched)
    rest = labels_of(text_sets([text for n, text in enumerate(texts) if n % 3]))
    numbers = np.flatnonzero(searched)
    assert [labels[n] for n in numbers] == [int(numbers[label]) for label in rest]
    assert all(labels[n] == n for n in range(0, len(texts), 3))


@pytest.mark.parametrize("held_share", [0, 1, 1.5])
def test_sets_in_a_temporary_file_are_the_same(held_share):
    """Also if some were in memory before."""
    texts = planted(2)
    held = text_sets(texts)
    first_bytes = int(held.lims[len(texts) // 2]) * 4
    spilled = text_sets(texts, memory=int(IN_MEMORY * held_share * first_bytes))
    assert isinstance(spilled.features, np.memmap)
    for name in ("features", "sizes", "digests", "samples", "chars", "lims"):
        assert np.array_equal(getattr(held, name), getattr(spilled, name)), name
    assert labels_of(spilled) == labels_of(held)


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_sets_that_follow_others(set_limits, memory):
    texts = planted(2)
    set_limits(copied_features=500)
    joined = text_sets(texts[:90]).followed_by(text_sets(texts[90:]), memory)
    whole = text_sets(texts)
    for name in ("features", "sizes", "digests", "samples", "chars", "lims"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name)), name


def test_ranks_are_by_size_then_by_characters():
    rng = random.Random(1)
    texts = [" ".join(rng.choices(["a", "bb", "c  c"], k=rng.randrange(1, 9))) for _ in range(60)]
    sets = text_sets(texts)
    ranks = sets.ranks(np.arange(60, dtype=np.uint64))
    assert np.argsort(ranks, kind="stable").tolist() == sorted(
        range(60), key=lambda n: (-len(pieces(texts[n])), -len(texts[n]), n)
    )


def test_more_texts_than_a_process_takes_are_for_a_plan(set_limits):
    set_limits(connected_texts=3)
    with pytest.raises(InputError, match="4 texts are more than 3: make a plan of tasks"):
        labels_of(text_sets(["a b c", "b c d", "c d e", "d e f"]))


def test_no_texts():
    texts = text_sets([])
    assert len(texts) == 0
    assert labels_of(texts) == []
    assert isinstance(texts._sets, _kernel.FeatureSets)
