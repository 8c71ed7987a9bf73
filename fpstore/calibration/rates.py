"""Shares with confidence intervals, and how many false pairs to expect where a sample has met none."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, lgamma, log, nan, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Histogram = npt.NDArray[np.int64]  # pairs by distance, shape (width + 1,)
_Z = 1.959964  # of an interval that holds the truth 95 times in 100
LEAST_MET = 10  # pairs at a radius from which the rates below it are continued


class Rate(NamedTuple):
    """A share of some cases, observed in a sample.

    Attributes
    ----------
    found : int
    total : int
    """

    found: int
    total: int

    @property
    def value(self) -> float:
        """The share; not a number without cases."""
        return self.found / self.total if self.total else nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval: E. B. Wilson, *Probable inference, the law of succession*, JASA 22 (1927)."""
        if not self.total:
            return 0.0, 1.0
        n, p, square = self.total, self.value, _Z * _Z
        middle = (p + square / (2 * n)) / (1 + square / n)
        half = _Z / (1 + square / n) * sqrt(p * (1 - p) / n + square / (4 * n * n))
        low = 0.0 if self.found == 0 else max(middle - half, 0.0)
        return low, 1.0 if self.found == n else min(middle + half, 1.0)


class Tail:
    """The share of strangers within each radius, continued below the distances that a sample has met.

    From the smallest radius within which there are `LEAST_MET` pairs, or more, the share is what was observed. Below it, the
    share falls as the distribution function of a beta-binomial distribution does that has the mean and the variance of all
    observed distances. That is an extrapolation: it cannot know of strangers that share most of their text.

    Parameters
    ----------
    counts : ndarray of int64, shape (width + 1,)
        Pairs of strangers by distance, at least one.
    """

    def __init__(self, counts: Histogram) -> None:
        self.total = int(counts.sum())
        self._within = counts.cumsum().tolist()
        self._logs = _logs(counts.tolist())
        self.first = next((r for r, found in enumerate(self._within) if found >= LEAST_MET), len(counts) - 1)

    def is_observed(self, radius: int) -> bool:
        """Return whether the share at a radius is an observed one."""
        return radius >= self.first

    def share(self, radius: int) -> float:
        """Return the share of pairs of strangers within a radius."""
        observed: float = self._within[max(radius, self.first)] / self.total
        if self.is_observed(radius):
            return observed
        return (
            observed * exp(min(self._logs[radius] - self._logs[self.first], 0.0)) if self._logs[self.first] > -inf else observed
        )


def _logs(counts: Sequence[int]) -> list[float]:
    """Return the logarithms of the distribution function of the beta-binomial distribution with the moments of a sample."""
    width, total = len(counts) - 1, sum(counts)
    mean = sum(d * n for d, n in enumerate(counts)) / total
    share = min(max(mean / width, 1e-9), 1 - 1e-9)
    variance = sum((d - mean) ** 2 * n for d, n in enumerate(counts)) / total
    # The correlation of two bits: 0 is a binomial distribution, of which a small one is the limit.
    within = max((variance / (width * share * (1 - share)) - 1) / (width - 1), 1e-6)
    a, b = share * (1 / within - 1), (1 - share) * (1 / within - 1)
    if a <= 0 or b <= 0:
        return [-inf] * width + [0.0]
    out: list[float] = []
    whole = 0.0
    for d in range(width + 1):
        whole += exp(_log_choose(width, d) + _log_beta(d + a, width - d + b) - _log_beta(a, b))
        out.append(log(whole) if whole else -inf)
    return out


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)
