"""The binomial law of distances: bits differ independently, all with the same probability."""

from __future__ import annotations

import math
from numbers import Real

from fpstore.errors import InputError, show


def binomial_cdf(radius: int, width: int, probability: float) -> float:
    """Return the probability that at most ``radius`` of ``width`` independent bits differ."""
    terms = (
        math.comb(width, count) * probability**count * (1 - probability) ** (width - count)
        for count in range(radius + 1)
    )
    return min(math.fsum(terms), 1.0)


def least_radius(recall: object, width: int, probability: float) -> int:
    """Return the least radius with a recall of the pairs whose bits differ with a probability."""
    if isinstance(recall, bool) or not isinstance(recall, Real) or not 0 < float(recall) < 1:
        raise InputError(
            f"recall must be a number between 0 and 1, such as 0.99, got {show(recall)}",
            got=recall,
            argument="recall",
        )
    return next(
        (
            radius
            for radius in range(width)
            if binomial_cdf(radius, width, probability) >= float(recall)
        ),
        width,
    )
