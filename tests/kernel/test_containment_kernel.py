"""The decision which sets of features go, in the kernel, against sets of Python."""

import random
from itertools import pairwise

import numpy as np
import pytest
import xxhash
from speeds import full

from fpstore import _kernel

NEVER = 2.0
RULES = [(0.8, 0.7), (0.95, NEVER), (NEVER, 0.6), (0.5, 0.333), (1.0, 1.0), (0.1, 0.9)]
FEW = 6  # sets that stay, up to which a set is compared with each


class Family:
    """Sets in groups, as the kernel takes them. ``stays`` has the rows that stay in any case."""

    def __init__(self, groups, stays=()):
        self.groups = groups
        self.sets = [features for group in groups for features in group]
        self.flags = np.zeros(len(self.sets), np.uint8)
        self.flags[list(stays)] = 1

    def kernel_sets(self):
        ordered = [np.array(sorted(features), np.uint32) for features in self.sets]
        lims = np.cumsum([0, *map(len, ordered)]).astype(np.uint64)
        self.digests = np.array([xxhash.xxh64_intdigest(row.data) for row in ordered], np.uint64)
        return _kernel.FeatureSets(np.concatenate([np.empty(0, np.uint32), *ordered]), lims)

    def decide(self, rule):
        lims = np.cumsum([0, *map(len, self.groups)]).astype(np.uint64)
        numbers = np.arange(len(self.sets), dtype=np.uint64)
        sets = self.kernel_sets()
        flags = self.flags if self.flags.any() else self.flags[:0]
        return sets.decide(numbers, lims, self.digests, flags, *rule).tolist()

    def expected(self, rule):
        """Return the row that stays for each row, by comparing all sets."""
        kept_for, first = [], 0
        for group in self.groups:
            kept = []
            for row in range(first, first + len(group)):
                best = row if self.flags[row] else self.best_of(row, kept, rule)
                kept_for.append(best)
                kept += [row] * (best == row)
            first += len(group)
        return kept_for

    def best_of(self, row, kept, rule):
        """Return an equal set, or else the one that contains most, the first of several."""
        features = self.sets[row]
        candidates = [
            (features != self.sets[other], -len(features & self.sets[other]), other)
            for other in kept
            if goes(features, self.sets[other], rule)
        ]
        return min(candidates)[2] if candidates else row


def goes(features, other, rule):
    contained, similar = rule
    both = len(features & other)
    return both > 0 and (
        both / len(features) >= contained or both / len(features | other) >= similar
    )


def drawn_group(rng, count):
    """Return sets: unrelated, equal, parts of others, or with more or other features."""
    letters, longest = rng.choice((5, 20, 100, 1000)), rng.choice((3, 12, 40))
    alphabet = rng.sample(range(1 << 32), letters)
    group = []
    for _ in range(count):
        base = rng.choice(group) if group and rng.random() < 0.7 else set()
        others = set(rng.sample(alphabet, rng.randrange(min(letters, longest) + 1)))
        change = rng.randrange(5)
        if not base or change == 0:
            group.append(others)
        elif change == 1:
            group.append(set(base))
        elif change == 2:
            group.append(set(rng.sample(sorted(base), rng.randrange(len(base) + 1))))
        elif change == 3:
            group.append(base | set(sorted(others)[:3]))
        else:
            gone = rng.sample(sorted(base), rng.randrange(len(base) // 3 + 1))
            group.append(base - set(gone) | set(sorted(others)[: len(gone)]))
    if rng.random() < 0.5:
        group.sort(key=len, reverse=True)
    return group


def drawn_family(seed):
    rng = random.Random(seed)
    groups = [drawn_group(rng, rng.choice((1, 2, 5, 20, 60))) for _ in range(rng.randrange(1, 4))]
    count = sum(map(len, groups))
    return Family(groups, rng.sample(range(count), count // 5) if rng.random() < 0.4 else ())


@pytest.mark.parametrize("seeds", [range(100), full(range(100, 3000))])
def test_decisions_are_those_of_sets(seeds):
    for seed in seeds:
        family, rule = drawn_family(seed), RULES[seed % len(RULES)]
        assert family.decide(rule) == family.expected(rule), (seed, rule)


def template(count, shared, own):
    """Return a template, and sets that have it and features of their own."""
    numbers = np.random.default_rng(1).choice(1 << 24, shared + count * own, replace=False)
    return numbers[:shared], numbers[shared:].reshape(count, own)


def test_sets_of_a_template_stay_and_their_copies_go():
    """So many sets share a feature that the rarest are looked up alone."""
    page, own = template(300, 300, 100)
    family, expected = [{*page, *features} for features in own], list(range(300))
    for a in range(40):
        others = set(range(1 << 24, (1 << 24) + 30))
        copies = [
            ({*page, *own[a, :60], *others}, a),
            ({*page[:75], *own[a, :25]}, a),
            ({*own[a, :30], *others, 1 << 30 | a}, None),
            ({*page[:200], *others}, 0),  # as much of all
            ({*page, *own[a]}, a),
        ]
        for features, kept in copies:
            expected.append(len(family) if kept is None else kept)
            family.append(features)
    assert Family([family]).decide((0.8, 0.7)) == expected


def test_the_first_of_sets_that_contain_as_much_stays():
    """Where the rarest features were looked up, it was the one with most of these."""
    page, own = template(300, 300, 100)
    sets = [{*page, *features} for features in own]
    copies = [{*page, *a[:50], *b[:50]} for a, b in pairwise(own[:41])]
    kept_for = Family([[*sets, *copies]]).decide((0.8, 0.7))
    assert kept_for == [*range(300), *range(40)]


def test_more_sets_that_have_a_part_in_common_than_are_compared():
    """Each of 300 contains enough of the last; the first contains most, after 256 others."""
    page, own = template(300, 300, 100)
    sets = [{*page, *features} for features in own]
    part = {*page[:240], *own[299, :40], *range(1 << 24, (1 << 24) + 20)}
    assert Family([[*sets, part]]).decide((0.8, 0.7))[-1] == 299


@pytest.mark.full
def test_a_part_of_the_features_of_a_large_group_is_indexed():
    count, shared, own_count = 850, 20_000, 1000  # more features than the index has
    page, own = template(count, shared, own_count)
    sets = [np.sort(np.concatenate([page, features])) for features in own]
    for a in (0, 1, 400, 849):
        copy = sets[a].copy()
        copy[::200] = (1 << 24) + np.arange(len(copy[::200]))
        sets.append(np.sort(copy))
    sizes = list(map(len, sets))
    assert count * (shared + own_count) > 1 << 24
    kernel_sets = _kernel.FeatureSets(
        np.concatenate(sets).astype(np.uint32), np.cumsum([0, *sizes]).astype(np.uint64)
    )
    numbers = np.arange(len(sets), dtype=np.uint64)
    lims = np.array([0, len(sets)], np.uint64)
    kept_for = kernel_sets.decide(numbers, lims, numbers, np.empty(0, np.uint8), 0.99, NEVER)
    assert kept_for.tolist() == [*range(count), 0, 1, 400, 849]


def test_equal_digests_are_no_equal_sets():
    """Sets are compared: a digest alone removes nothing."""
    family = Family([[set(range(10 * n, 10 * n + 9)) for n in range(20)]])
    sets, numbers = family.kernel_sets(), np.arange(20, dtype=np.uint64)
    digests, none = np.zeros(20, np.uint64), np.empty(0, np.uint8)
    lims = np.array([0, 20], np.uint64)
    assert sets.decide(numbers, lims, digests, none, 0.8, 0.7).tolist() == list(range(20))


def test_an_equal_set_comes_before_one_that_contains_more_in_groups_of_all_sizes():
    """In small groups, a set went for the first set that stays and contains it."""
    part = set(range(50))
    for count in (0, 3, 4, 10):  # of others
        others = [set(range(100 * n, 100 * n + 50)) for n in range(2, 2 + count)]
        family = Family([[set(range(100)), part, *others, part]], stays=(0, 1))
        assert family.decide((0.8, 0.7)) == [*range(2 + count), 1], count


def test_empty_sets_stay():
    family = Family([[set(), set(), {1}, set()], [set()] * 9])
    assert family.decide((0.0, 0.0)) == list(range(13))


def test_groups_may_name_sets_in_any_order():
    family = Family([[{1, 2, 3}, {1, 2}, {1, 2, 3, 4, 5}, {9}]])
    sets, none = family.kernel_sets(), np.empty(0, np.uint8)
    numbers, lims = np.array([2, 0, 1, 3, 1], np.uint64), np.array([0, 3, 3, 5], np.uint64)
    result = sets.decide(numbers, lims, family.digests[numbers], none, 0.8, 0.7)
    assert result.tolist() == [0, 0, 0, 3, 4]


def test_shares_of_pairs_are_those_of_sets():
    rng = random.Random(3)
    family = drawn_family(5)
    count = len(family.sets)
    pairs = [(rng.randrange(count), rng.randrange(count)) for _ in range(2000)]
    long = [set(rng.sample(range(3000), 2000)) for _ in range(4)]
    long += [set(sorted(features)[: 100 * n]) for n, features in enumerate(long, 1)]
    family = Family([*family.groups, long])
    pairs += [(a, b) for a in range(count, count + 8) for b in range(count, count + 8)]
    a, b = np.array(pairs, np.uint64).T.copy()
    sets, shared = family.kernel_sets(), [len(family.sets[a] & family.sets[b]) for a, b in pairs]
    assert sets.shared(a, b).tolist() == shared
    for share in (0.0, 0.25, 0.64, 0.8, 1.0):
        assert sets.contain(a, b, share).tolist() == [
            both >= share * len(family.sets[number])
            for (number, _), both in zip(pairs, shared, strict=True)
        ], share


def test_the_kernel_refuses_other_numbers():
    sets = Family([[{1}, {1, 2}]]).kernel_sets()
    pair, none = np.array([0, 1], np.uint64), np.empty(0, np.uint8)
    lims, digests = np.array([0, 2], np.uint64), np.zeros(2, np.uint64)
    for call in (
        lambda: sets.shared(pair, pair[:1]),
        lambda: sets.contain(pair + np.uint64(1), pair, 0.5),
        lambda: sets.shared(pair, pair + np.uint64(1)),
        lambda: sets.decide(pair + np.uint64(1), lims, digests, none, 0.8, 0.7),
        lambda: sets.decide(pair, lims[:1], digests, none, 0.8, 0.7),
        lambda: sets.decide(pair, lims, digests[:1], none, 0.8, 0.7),
        lambda: sets.decide(pair, lims, digests, np.zeros(1, np.uint8), 0.8, 0.7),
        lambda: _kernel.FeatureSets(np.zeros(3, np.uint32), np.array([0, 2, 1], np.uint64)),
        lambda: _kernel.FeatureSets(np.zeros(3, np.uint32), np.array([0, 4], np.uint64)),
    ):
        with pytest.raises(ValueError, match=r"^(?!$)"):
            call()
