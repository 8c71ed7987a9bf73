"""Which setting and which radius to take for a number of documents, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fpstore.calibration.measures import Measured, Rate
from fpstore.calibration.removal import RemovalCounts, Removals
from fpstore.calibration.request import Wish
from fpstore.design.estimates import Plan
from fpstore.design.planner import plan
from fpstore.hashing.minhash import MinHash, least_jaccard
from fpstore.jobs.dedup_job import DEDUP_METHOD

TRIES = 3  # settings that are counted again on the whole corpus
SAME_PRICE = 1.1  # times the time of the cheapest: the estimates are no better


class Suggestion(NamedTuple):
    """A radius for a setting, with the expected figures.

    Attributes
    ----------
    measured : Measured
        The setting, and the distances that it gives to near-duplicates and to strangers.
    radius : int or None
        None if no radius meets the wish.
    recall : Rate
        The share of near-duplicates of which `dedup` removes one or both; of pictures, those within
        the radius.
    false_pairs : float
        Expected pairs of strangers within the radius: n (n - 1) / 2 times the share of strangers
        within it.
    observed : bool
        Whether the share of strangers was observed; otherwise it is an extrapolation (see `Tail`).
    most_false : float
        Expected pairs of strangers by the upper end of the confidence interval of the observed
        share.
    plan : Plan or None
        The design that ``auto`` takes for the number of documents, with its costs.
    removal : RemovalCounts or None
        What `dedup` removes of the sample; None for pictures.
    fits : bool
        Whether it meets the wish. Otherwise it is what comes nearest.
    """

    measured: Measured
    radius: int | None
    recall: Rate
    false_pairs: float
    observed: bool
    most_false: float
    plan: Plan | None
    removal: RemovalCounts | None = None
    fits: bool = True

    @property
    def threshold(self) -> float | None:
        """The Jaccard similarity for which the radius stands, with MinHash.

        The ``threshold`` of `dedup`.
        """
        maker = self.measured.setting.fingerprinter
        return (
            None
            if self.radius is None or not isinstance(maker, MinHash)
            else least_jaccard(maker, self.radius)
        )

    @property
    def wrong(self) -> float:
        """The share of the removed documents that is removed wrongly."""
        return 0.0 if self.removal is None else self.removal.wrong


def suggestions(
    found: Sequence[Measured], wish: Wish, removals: Sequence[Removals] | None = None
) -> list[Suggestion]:
    """Return a suggestion for each setting, the best first; ``removals`` says what each removes.

    The first is the cheapest by the time of a probe, of those whose recall is within the confidence
    interval of the highest; if a recall is wanted, of those with at most twice the fewest false
    pairs. Of those that cost up to a tenth more, it is one with the default method of `dedup`. The
    others follow by recall, or by false pairs. Last come those that do not meet the wish, the
    nearest first.
    """
    return _ordered(
        [
            _suggested(one, wish, removals[place] if removals else None)
            for place, one in enumerate(found)
        ],
        wish,
    )


def checked_first(
    each: list[Suggestion], wish: Wish, removals: Callable[[Suggestion], Removals]
) -> list[Suggestion]:
    """Return suggestions of which the first is counted again.

    If it is not the best then, the next one is, up to `TRIES`.
    """
    counted = set[Measured]()
    for _ in range(TRIES):
        first = each[0]
        if not first.fits or first.measured in counted:
            break
        counted.add(first.measured)
        each = _ordered(
            [_suggested(first.measured, wish, removals(first), first.radius), *each[1:]], wish
        )
    fit = [one for one in each if one.fits and one.measured in counted]
    if not fit or each[0].measured in counted:
        return each
    first = _ordered(fit, wish)[0]
    return [first, *(one for one in each if one is not first)]


def _ordered(each: Sequence[Suggestion], wish: Wish) -> list[Suggestion]:
    """Return suggestions in the order of `suggestions`."""
    each = sorted(
        each, key=lambda s: (s.radius is None, 0 if s.fits else s.wrong, *_order(s, wish))
    )
    best = each[0]
    if not best.fits:
        return each
    if wish.recall is None:
        low = best.recall.interval[0]
        as_good = [s for s in each if s.fits and s.recall.value >= low]
    else:
        as_good = [s for s in each if s.fits and s.false_pairs <= 2 * best.false_pairs]
    cheap = [
        s for s in as_good if _microseconds(s) <= SAME_PRICE * min(map(_microseconds, as_good))
    ]
    first = min(cheap, key=lambda s: s.measured.setting.fingerprinter.name != DEDUP_METHOD)
    return [first, *(s for s in each if s is not first)]


def _order(one: Suggestion, wish: Wish) -> tuple[float, float]:
    return one.false_pairs if wish.recall is not None else -one.recall.value, _microseconds(one)


def _microseconds(one: Suggestion) -> float:
    return one.plan.microseconds if one.plan is not None else 0.0


def false_pairs(one: Measured, radius: int, documents: int) -> float:
    """Return how many pairs of strangers are expected within a radius."""
    return documents * (documents - 1) / 2 * one.tail.share(radius)


def _suggested(
    one: Measured, wish: Wish, removals: Removals | None, largest: int | None = None
) -> Suggestion:
    """Return the radius with the highest recall that meets a wish.

    Of equal recalls, the smallest radius.
    """
    most, fixed = wish.most_false, one.setting.radius
    radii = range((one.width if largest is None else largest) + 1) if fixed is None else (fixed,)
    allowed = [r for r in radii if most is None or false_pairs(one, r, wish.documents) <= most]
    wanted = (
        wish.recall
        if wish.recall is not None
        else one.recall(allowed[-1]).value
        if allowed
        else 1.0
    )
    radius = next((r for r in allowed if one.recall(r).value >= wanted), None)
    removal = None
    if radius is not None and removals is not None:
        radius, removal = _bounded(
            [r for r in allowed if r == radius or (r < radius and wish.recall is None)],
            removals,
            wish,
        )
    shown = 0 if radius is None else radius
    pairs = wish.documents * (wish.documents - 1) / 2
    return Suggestion(
        one,
        radius,
        one.recall(shown) if radius is None or removals is None else removals.found(shown),
        false_pairs(one, shown, wish.documents),
        one.tail.is_observed(shown),
        pairs * one.strangers.within(shown).interval[1],
        None if radius is None else plan(wish.documents, radius, width=one.width)[0],
        removal,
        radius is not None and (removal is None or removal.wrong <= wish.most_wrong),
    )


def _bounded(radii: Sequence[int], removals: Removals, wish: Wish) -> tuple[int, RemovalCounts]:
    """Return the last of some radii at which little enough is removed wrongly, found by bisection.

    Or the first one.
    """
    low, high = 0, len(radii) - 1
    last = removals.at(radii[high])
    if last.wrong <= wish.most_wrong:
        return radii[high], last
    best = removals.at(radii[low])
    while high - low > 1 and best.wrong <= wish.most_wrong:
        middle = (low + high) // 2
        found = removals.at(radii[middle])
        if found.wrong <= wish.most_wrong:
            low, best = middle, found
        else:
            high = middle
    return radii[low], best
