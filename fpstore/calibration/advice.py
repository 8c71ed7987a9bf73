"""Which setting and which radius to take for a number of documents, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fpstore.calibration.measures import Measured, Rate
from fpstore.calibration.request import Wish
from fpstore.design.estimates import Plan
from fpstore.design.planner import plan


class Suggestion(NamedTuple):
    """A radius for a setting, with the expected figures.

    Attributes
    ----------
    measured : Measured
        The setting, and the distances that it gives to near-duplicates and to strangers.
    radius : int or None
        None if no radius meets the wish.
    recall : Rate
        The share of near-duplicates within the radius.
    false_pairs : float
        Expected pairs of strangers within the radius: n (n - 1) / 2 times the share of strangers within it.
    observed : bool
        Whether the share of strangers was observed; otherwise it is an extrapolation (see `Tail`).
    most_false : float
        Expected pairs of strangers by the upper end of the confidence interval of the observed share.
    plan : Plan or None
        The design that ``auto`` takes for the number of documents, with its costs.
    """

    measured: Measured
    radius: int | None
    recall: Rate
    false_pairs: float
    observed: bool
    most_false: float
    plan: Plan | None


def suggestions(found: Sequence[Measured], wish: Wish) -> list[Suggestion]:
    """Return a suggestion for each setting, the best first.

    The first is the cheapest by the time of a probe, of those whose recall is within the confidence interval of the highest; if a
    recall is wanted, of those with at most twice the fewest false pairs. The others follow by recall, or by false pairs.
    """
    each = [_suggested(one, wish) for one in found]
    each.sort(key=lambda s: (s.radius is None, s.false_pairs if wish.recall is not None else -s.recall.value, _microseconds(s)))
    best = each[0]
    if best.radius is None:
        return each
    if wish.recall is None:
        low = best.recall.interval[0]
        as_good = [s for s in each if s.radius is not None and s.recall.value >= low]
    else:
        as_good = [s for s in each if s.radius is not None and s.false_pairs <= 2 * best.false_pairs]
    first = min(as_good, key=_microseconds)
    return [first, *(s for s in each if s is not first)]


def _microseconds(one: Suggestion) -> float:
    return one.plan.microseconds if one.plan is not None else 0.0


def false_pairs(one: Measured, radius: int, documents: int) -> float:
    """Return how many pairs of strangers are expected within a radius."""
    return documents * (documents - 1) / 2 * one.tail.share(radius)


def _suggested(one: Measured, wish: Wish) -> Suggestion:
    """Return the radius with the highest recall that meets a wish; of equal recalls, the smallest radius."""
    most, radii = wish.most_false, range(one.width + 1)
    allowed = [r for r in radii if most is None or false_pairs(one, r, wish.documents) <= most]
    wanted = wish.recall if wish.recall is not None else one.recall(allowed[-1]).value if allowed else 1.0
    radius = next((r for r in allowed if one.recall(r).value >= wanted), None)
    shown = 0 if radius is None else radius
    pairs = wish.documents * (wish.documents - 1) / 2
    return Suggestion(
        one,
        radius,
        one.recall(shown),
        false_pairs(one, shown, wish.documents),
        one.tail.is_observed(shown),
        pairs * one.strangers.within(shown).interval[1],
        None if radius is None else plan(wish.documents, radius, width=one.width)[0],
    )
