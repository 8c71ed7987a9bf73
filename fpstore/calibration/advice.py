"""Which setting and which radius to take for a number of documents, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fpstore.base.arguments import check_share
from fpstore.calibration.measures import Measured
from fpstore.calibration.rates import Rate
from fpstore.design.estimates import Plan
from fpstore.design.planner import plan
from fpstore.errors import InputError, show


class Wish(NamedTuple):
    """The wish for a setting and a radius.

    Attributes
    ----------
    documents : int
        The size of the corpus for which to choose; 0 for that of the corpus that is looked at.
    recall : float, optional
        The share of near-duplicates to find: then the fewest false pairs are best.
    false_pairs : float, optional
        The most pairs of strangers within the radius that are expected: then the highest recall is best. By default one for each
        hundred documents, if no recall is wanted.
    """

    documents: int
    recall: float | None = None
    false_pairs: float | None = None

    @property
    def most_false(self) -> float | None:
        """The bound of false pairs, if there is one."""
        return self.documents / 100 if self.recall is None and self.false_pairs is None else self.false_pairs

    def checked(self) -> Wish:
        """Return the wish; InputError for a value out of range."""
        if self.documents == 1:
            raise InputError("the number of documents must be 2 or more: one has no pair", got=self.documents)
        if (check_share(self.recall, "recall") or 0) > 1:
            raise InputError(f"recall must be a share up to 1, such as 0.95, got {show(self.recall)}", got=self.recall)
        check_share(self.false_pairs, "false_pairs")
        return self


class Suggestion(NamedTuple):
    """A radius for a setting, with the expected figures.

    Attributes
    ----------
    measured : Measured
    radius : int or None
        None if no radius meets the wish.
    recall : Rate
        Of near-duplicates.
    false_pairs : float
        Expected pairs of strangers within the radius: n (n - 1) / 2 times their share.
    observed : bool
        Whether that share was observed; otherwise it is an extrapolation (see `Tail`).
    most_false : float
        The same with the upper end of the confidence interval of the observed share.
    plan : Plan, optional
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
