"""How far apart the fingerprints of near-duplicates and of strangers are, for each setting.

Shares with confidence intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, lgamma, log, nan, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.threads import cached_property
from fpstore.calibration.evidence import SampledPairs
from fpstore.calibration.resemblance import Places, distances_in_blocks
from fpstore.calibration.settings import Setting
from fpstore.errors import InputError
from fpstore.hashing.base import Hashed

Histogram = npt.NDArray[np.int64]  # pairs by distance, shape (width + 1,)
_Z = 1.959964  # of an interval that holds the truth 95 times in 100
LEAST_MET = 10  # pairs at a radius from which the rates below it are continued


class Rate(NamedTuple):
    """A share of some cases, observed in a sample."""

    found: int
    total: int

    @property
    def value(self) -> float:
        """The share; not a number without cases."""
        return self.found / self.total if self.total else nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval: E. B.

        Wilson, *Probable inference, the law of succession*, JASA 22 (1927).
        """
        if not self.total:
            return 0.0, 1.0
        n, p, square = self.total, self.value, _Z * _Z
        middle = (p + square / (2 * n)) / (1 + square / n)
        half = _Z / (1 + square / n) * sqrt(p * (1 - p) / n + square / (4 * n * n))
        low = 0.0 if self.found == 0 else max(middle - half, 0.0)
        return low, 1.0 if self.found == n else min(middle + half, 1.0)


class Tail:
    """The share of strangers within each radius, continued below the distances that a sample has met.

    From the smallest radius within which there are `LEAST_MET` pairs, or more, the share is what
    was observed. Below it, the share falls as the distribution function of a beta-binomial
    distribution does that has the mean and the variance of all observed distances. That is an
    extrapolation: it cannot know of strangers that share most of their text.
    """

    def __init__(self, counts: Histogram) -> None:
        self.total = int(counts.sum())
        self._within = counts.cumsum().tolist()
        self._logs = _logs(counts.tolist())
        self.first = next(
            (r for r, found in enumerate(self._within) if found >= LEAST_MET), len(counts) - 1
        )

    def is_observed(self, radius: int) -> bool:
        """Return whether the share at a radius is an observed one."""
        return radius >= self.first

    def share(self, radius: int) -> float:
        """Return the share of pairs of strangers within a radius."""
        observed: float = self._within[max(radius, self.first)] / self.total
        if self.is_observed(radius) or self._logs[self.first] == -inf:
            return observed
        return observed * exp(min(self._logs[radius] - self._logs[self.first], 0.0))


def _logs(counts: Sequence[int]) -> list[float]:
    """Return the logarithms of the distribution function of the beta-binomial distribution with the moments of a sample."""
    width, total = len(counts) - 1, sum(counts)
    mean = sum(d * n for d, n in enumerate(counts)) / total
    share = min(max(mean / width, 1e-9), 1 - 1e-9)
    variance = sum((d - mean) ** 2 * n for d, n in enumerate(counts)) / total
    # The correlation of two bits: 0 is a binomial distribution, the limit of small correlations.
    within = max((variance / (width * share * (1 - share)) - 1) / (width - 1), 1e-6)
    a, b = share * (1 / within - 1), (1 - share) * (1 / within - 1)
    if a <= 0 or b <= 0:
        return [-inf] * width + [0.0]
    out: list[float] = []
    whole = 0.0
    for d in range(width + 1):
        log_choose = lgamma(width + 1) - lgamma(d + 1) - lgamma(width - d + 1)
        whole += exp(log_choose + _log_beta(d + a, width - d + b) - _log_beta(a, b))
        out.append(log(whole) if whole else -inf)
    return out


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


class Distances(NamedTuple):
    """Pairs by the distance of their fingerprints, and the number of pairs in which an item has no fingerprint."""

    counts: Histogram
    missed: int = 0

    def within(self, radius: int) -> Rate:
        """Return the share of pairs within a radius; a pair without a distance is not."""
        return Rate(int(self.counts[: radius + 1].sum()), int(self.counts.sum()) + self.missed)


class Measured:
    """The distances that a setting gives.

    Attributes
    ----------
    setting : Setting
    width : int
        Bits of a fingerprint.
    duplicates : dict of str to Distances
        The distances of near-duplicates, by the way in which they were made.
    strangers : Distances
    different : Distances or None
        The distances of pairs with the label 0.
    """

    def __init__(
        self,
        setting: Setting,
        duplicates: dict[str, Distances],
        strangers: Distances,
        different: Distances | None,
    ) -> None:
        self.setting, self.duplicates, self.strangers, self.different = (
            setting,
            duplicates,
            strangers,
            different,
        )
        self.width = setting.fingerprinter.width

    @cached_property
    def all_duplicates(self) -> Distances:
        """The distances of all near-duplicates."""
        each = self.duplicates.values()
        return Distances(
            np.sum([one.counts for one in each], axis=0), sum(one.missed for one in each)
        )

    @cached_property
    def tail(self) -> Tail:
        """The share of strangers within small radii."""
        return Tail(self.strangers.counts)

    def recall(self, radius: int) -> Rate:
        """Return the share of all near-duplicates that a radius finds."""
        return self.all_duplicates.within(radius)


def measured(evidence: SampledPairs, setting: Setting, hashed: Hashed) -> Measured:
    """Return the distances of a setting that gives the items these fingerprints.

    InputError if no two are strangers.
    """
    width, items = setting.fingerprinter.width, setting.fingerprinter.items
    rows, known = hashed.rows, hashed.known

    def between(pairs: Places) -> Distances:
        both = known[pairs[0]] & known[pairs[1]]
        first, second = pairs[:, both]
        counts = np.bincount(distances(rows[first], rows[second]), minlength=width + 1)
        return Distances(counts, int(len(both) - both.sum()))

    of_documents = np.flatnonzero(known[: evidence.documents])
    strangers = all_distances(rows[of_documents], width) - between(evidence.resembling).counts
    if not strangers.any():
        raise InputError(
            f"{setting.name}: all {items} with fingerprints resemble each other, so nothing shows "
            "how near strangers are: "
            f"take a larger sample, or other {items}"
        )
    different = None if evidence.different is None else between(evidence.different)
    duplicates = {name: between(pairs) for name, pairs in evidence.duplicates.items()}
    return Measured(setting, duplicates, Distances(strangers), different)


def distances(rows: Words, others: Words) -> Places:
    """Return the number of bits in which each row differs from the row of others at its place."""
    bits = np.bitwise_count(rows ^ others).astype(np.intp)
    return bits if bits.ndim == 1 else np.asarray(bits.sum(-1), np.intp)


def all_distances(rows: Words, width: int) -> Histogram:
    """Return how many pairs of different rows have each distance, shape (width + 1,)."""
    counts = np.zeros(width + 1, np.int64)
    for _, bits in distances_in_blocks(rows):
        counts += np.bincount(bits.reshape(-1), minlength=width + 1)
        counts -= np.bincount(
            bits[:, : len(bits)][np.tri(len(bits), dtype=bool)], minlength=width + 1
        )
    return counts
