"""Angles of vectors and distances of their fingerprints: bits that differ, and the share of near vectors that a radius finds."""

from __future__ import annotations

import math
from numbers import Real

from fpstore.errors import InputError, show


def share_of_bits(cosine: object) -> float:
    """Return the probability that a bit differs, which is the angle in half turns; InputError if the value is no cosine."""
    if isinstance(cosine, bool) or not isinstance(cosine, Real) or not -1 <= float(cosine) <= 1:
        raise InputError(f"cosine must be a number from -1 to 1, got {show(cosine)}", got=cosine)
    return math.acos(float(cosine)) / math.pi


def at_most(radius: int, width: int, share: float) -> float:
    """Return the probability that at most ``radius`` of ``width`` independent bits differ, each with this probability."""
    terms = (math.comb(width, count) * share**count * (1 - share) ** (width - count) for count in range(radius + 1))
    return min(math.fsum(terms), 1.0)


def least_radius(width: int, share: float, recall: object) -> int:
    """Return the least radius within which at least this share of pairs lies; InputError if the value is no share."""
    if isinstance(recall, bool) or not isinstance(recall, Real) or not 0 < float(recall) < 1:
        raise InputError(f"recall must be a number between 0 and 1, such as 0.99, got {show(recall)}", got=recall)
    return next((radius for radius in range(width) if at_most(radius, width, share) >= float(recall)), width)
