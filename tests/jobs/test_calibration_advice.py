"""The choice of a setting and a radius by figures that are given.

Against a search, by price, and after a second count.
"""

import numpy as np
import pytest

import fpstore
from fpstore.calibration.advice import Wish, checked_first, false_pairs, suggestions
from fpstore.calibration.measures import Distances, Measured, Rate
from fpstore.calibration.removal import RemovalCounts
from fpstore.calibration.settings import Setting
from fpstore.hashing import MinHash, SimHash


def made(strangers, duplicates, name="any", width=64):
    counts = [np.bincount(values, minlength=width + 1) for values in (strangers, duplicates)]
    return Measured(
        Setting(name, SimHash(width=width)),
        {"all": Distances(counts[1])},
        Distances(counts[0]),
        None,
    )


def test_suggestions_are_those_of_a_search():
    rng = np.random.default_rng(1)
    each = [
        made(rng.binomial(64, share, 5000), rng.binomial(64, 0.1, 300), str(share))
        for share in (0.3, 0.4, 0.5)
    ]
    for wish in (
        Wish(1000),
        Wish(1000, None, 50),
        Wish(10**6, 0.9),
        Wish(1000, 0.5, 20.0),
        Wish(10**9, 0.99, 1.0),
    ):
        found = suggestions(each, wish)
        assert {one.measured for one in found} == set(each)
        for one in found:
            allowed = [
                r
                for r in range(65)
                if wish.most_false is None
                or false_pairs(one.measured, r, wish.documents) <= wish.most_false
            ]
            if wish.recall is not None:
                good = [r for r in allowed if one.measured.recall(r).value >= wish.recall]
            else:
                best = max((one.measured.recall(r).value for r in allowed), default=2)
                good = [r for r in allowed if one.measured.recall(r).value == best]
            assert one.radius == (min(good) if good else None)
            if good:
                assert one.plan.design == fpstore.plan(wish.documents, one.radius)[0].design
                assert one.false_pairs == wish.documents * (
                    wish.documents - 1
                ) / 2 * one.measured.tail.share(one.radius)
        usable = [one for one in found if one.radius is not None]
        assert found[: len(usable)] == usable
    assert suggestions(each, Wish(10**9, 0.999999, 1e-9))[0].radius is None


def test_the_suggestion_is_the_cheapest_of_those_that_are_as_good():
    strangers = np.random.default_rng(1).binomial(64, 0.5, 5000)
    near, far = np.full(300, 2), np.full(300, 8)
    found = suggestions(
        [made(strangers, far, "far"), made(strangers, near, "near")], Wish(10**7, None, 1e9)
    )
    assert [one.measured.setting.name for one in found] == ["near", "far"]
    assert found[0].recall == found[1].recall == Rate(300, 300)
    assert found[0].plan.microseconds < found[1].plan.microseconds


def test_of_equal_prices_the_method_of_dedup_is_suggested():
    strangers = np.random.default_rng(1).binomial(256, 0.5, 5000)
    each = [
        made(strangers, np.full(300, 20), "other", 256),
        made(strangers, np.r_[np.full(299, 20), 200], "minhash", 256),
    ]
    each[1].setting = Setting("minhash", MinHash())
    for settings in (each, each[::-1]):
        found = suggestions(settings, Wish(10**6))
        assert found[0].recall.value < found[1].recall.value
        assert [one.measured.setting.name for one in found] == ["minhash", "other"]


class Wrong:
    """The same share of removed documents is wrong from a radius on, and none below it."""

    def __init__(self, share, radius, measured):
        self.share, self.radius, self.found = share, radius, measured.recall

    def at(self, radius):
        return RemovalCounts(
            1000, round(1000 * self.share) if radius >= self.radius else 0, 0, 1000
        )


@pytest.mark.parametrize(
    ("of_sample", "of_corpus", "fixed", "order", "fits", "counted"),
    [
        ([0.02, 0.5], [0.06, 0.5], 8, "AB", 0, "A"),
        ([0.02, 0.02], [0.02, 0.9], 8, "AB", 2, "A"),
        ([0.02, 0.02, 0.1], [0.2, 0.05, 0.9], 8, "BCA", 1, "AB"),
        ([0] * 5, [0.5, 0.4, 0.6, 0.1, 0.2], 8, "DEBAC", 2, "ABC"),
        ([0] * 3, [0.5, 0, 0], None, "BCA", 3, "AB"),
        ([0] * 4, [0.5] * 4, None, "CDBA", 4, "ABC"),
    ],
)
def test_suggestions_that_fail_on_the_corpus_go_behind_those_that_hold(
    of_sample, of_corpus, fixed, order, fits, counted
):
    strangers = np.random.default_rng(1).binomial(64, 0.5, 5000)
    each, called = [], []
    # the first has the highest recall at 8, and the lowest at 3
    for place, name in enumerate("ABCDE"[: len(of_sample)]):
        near = np.r_[
            np.full(100 + 20 * place, 3), np.full(900 - 25 * place, 8), np.full(5 * place, 60)
        ]
        each.append(made(strangers, near, name))
        each[-1].setting = Setting(name, SimHash(width=64), fixed)
    wish = Wish(10**6, None, 1e9)
    found = suggestions(
        each, wish, [Wrong(share, 8, one) for share, one in zip(of_sample, each, strict=True)]
    )

    def of(one):
        called.append(one.measured.setting.name)
        return Wrong(of_corpus["ABCDE".index(called[-1])], 8, one.measured)

    found = checked_first(found, wish, of)
    assert "".join(one.measured.setting.name for one in found) == order
    assert [one.fits for one in found] == [place < fits for place in range(len(found))]
    assert "".join(called) == counted
