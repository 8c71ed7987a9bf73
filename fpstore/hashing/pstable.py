"""Random projections cut into slots, for L2 and L1 distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Array, Counts, Flags
from fpstore.base.arguments import check_number, check_whole
from fpstore.hashing.hyperplanes import DEVIATION, plane_weights
from fpstore.hashing.law import MAX_VALUES, Law, Reals
from fpstore.hashing.probing import (
    Choices,
    band_changes,
    hit_probability,
    normal_cdf,
    probing_sequence,
    stratified,
)
from fpstore.hashing.sketcher import Values
from fpstore.hashing.vector_base import Block, VectorHasher, derive_seed
from fpstore.hashing.vectors import real_problem
from fpstore.hashing.words import draws

_MAX_RADII = 100.0  # the greatest distance to estimate
_BACKGROUND = 4.0
_LINE_BATCH = 64
_UNIT = 2.0**-53


@dataclass(frozen=True, kw_only=True)
class PStable(VectorHasher):
    """Projections to random lines that are cut into slots: a hash value is the slot of a vector.

    The lines have normal components for the L2 distance, and Cauchy components for L1. Two vectors
    at the distance c are in the same slot with a probability that depends on c / (slot * radius)
    only. With a slot of 4 radii, as E2LSH takes, vectors at the radius agree in 0.801 of the values
    (L2). A signature has a bit of each of 224 further slots.

    A value is the slot of ``a * v + b``, counted from a random number. The sum is in float64. Where
    it is so near a bound that the order of additions could matter, `math.fsum` computes it. So a
    value depends on the vector alone: not on threads, batches or the type of its numbers.

    Parameters
    ----------
    dimension : int
        Components of a vector, 1 to 65,536.
    radius : float
        The unit of distances: about the distance of near vectors.
    p : {2, 1}
        Which distance: the root of the sum of squares, or the sum of magnitudes.
    slot : float
        The length of a slot, in radii.
    seed : int
        0 to 2^64 - 1.

    Raises
    ------
    InputError
        A parameter has the wrong type or is out of range.

    Notes
    -----
    M. Datar, N. Immorlica, P. Indyk, V. Mirrokni, *Locality-sensitive hashing scheme based on
    p-stable distributions*, SoCG 2004, section 3. A. Andoni and P. Indyk, *E2LSH 0.1 user manual*,
    2005. Probes: Q. Lv, W. Josephson, Z. Wang, M. Charikar, K. Li, *Multi-probe LSH*, VLDB 2007,
    sections 4.4 and 4.5; the recall with probes is a mean over 1,024 drawn bands, within 0.02.

    Examples
    --------
    >>> from fpstore.hashing import PStable
    >>> law = PStable(dimension=96, radius=4.4).law
    >>> round(law.collision(4.4), 3), round(law.collision(8.8), 3)
    (0.801, 0.61)
    """

    name: ClassVar[str] = "p-stable"
    has_probes: ClassVar[bool] = True

    dimension: int
    radius: float
    p: int = 2
    slot: float = 4.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_parameters()
        self._keep(p=check_whole(self.p, 1, 2, "p"))
        self._keep(radius=check_number(self.radius, 1e-100, 1e100, "radius"))
        self._keep(slot=check_number(self.slot, 0.01, _MAX_RADII, "slot"))

    @property
    def law(self) -> SlotLaw:
        """The law of the L2 or the L1 distance."""
        return SlotLaw(self.radius, self.p, self.slot)

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the slots on the lines of functions; signatures have lines of another seed."""
        block = self.block(items)
        slots, _ = self._slots(block, functions)
        return Values(slots.astype(np.uint32), np.ones(len(block), np.bool_))

    def probes(self, item: Any, bands: int, rows: int, count: int) -> Counts:
        """Return the slots of each band, also with neighbours of slots whose bounds are near.

        See `Sketcher.probes`.
        """
        self._check_bands(bands, rows, count)
        slots, offsets = (
            array.reshape(bands, 1, rows)
            for array in self._slots(self.block([item]), range(bands * rows))
        )
        costs = np.minimum(offsets, 1 - offsets)[:, 0]
        changes = band_changes(_sequence(rows, count), costs, count)
        nearer = np.where(offsets < 0.5, -1, 1)
        values: Counts = (slots + nearer * np.choose(changes, (0, 1, -1))).astype(np.uint32)
        return values

    def _problem(self, values: Array) -> str:
        return real_problem(values, self.dimension)

    def _measures(self, vector: Array, others: Array) -> Reals:
        differences = others.astype(np.float64) - vector.astype(np.float64)
        distances: Reals = np.linalg.norm(differences, ord=self.p, axis=1)
        return distances

    def _slots(self, block: Block, functions: range) -> tuple[npt.NDArray[np.int64], Reals]:
        """Return the slots of vectors, modulo 2^32, and the offsets in these slots, 0 to 1."""
        vectors = np.ascontiguousarray(block.values, np.float64)
        if not np.isfinite(vectors).all():
            place, column = map(int, np.argwhere(~np.isfinite(vectors))[0])
            raise block.error_at(
                place,
                f"component {column} is {vectors[place, column]}: vectors have finite numbers",
            )
        lines, starts, shifts = self._lines(functions)
        with np.errstate(all="ignore"):
            scaled = vectors / (self.slot * self.radius)
            sums = scaled @ lines.T + starts
            lengths = np.sqrt(np.vecdot(scaled, scaled))[:, None] * np.sqrt(np.vecdot(lines, lines))
        if not np.isfinite(lengths).all():
            place = int(np.argwhere(~np.isfinite(lengths))[0][0])
            raise block.error_at(place, f"it is too large for a radius of {self.radius:g}")
        slack = 2 * (self.dimension + 4) * _UNIT * (lengths + 1)
        _settle(sums, np.abs(sums - np.rint(sums)) <= slack, scaled, lines, starts)
        slots = np.floor(sums)
        return np.fmod(slots, 2.0**32).astype(np.int64) + shifts, sums - slots

    def _lines(self, functions: range) -> tuple[Reals, Reals, npt.NDArray[np.int64]]:
        first, seed = functions.start, self.seed
        if first >= MAX_VALUES:
            first, seed = first - MAX_VALUES, derive_seed(seed)
        end = first + len(functions)
        count = max(-(-end // _LINE_BATCH), 1) * _LINE_BATCH
        lines, starts, shifts = draw_lines(self.dimension, count, seed, self.p)
        return lines[first:end], starts[first:end], shifts[first:end]


@dataclass(frozen=True)
class SlotLaw(Law):
    """The law of random projections cut into slots; distances have the radius as unit."""

    is_distance: ClassVar[bool] = True

    radius: float
    p: int
    slot: float

    @property
    def measure(self) -> str:  # type: ignore[override]  # of two
        """The distance."""
        return f"L{self.p} distance"

    @property
    def limits(self) -> tuple[float, float]:
        """0 and 100 radii."""
        return 0.0, _MAX_RADII * self.radius

    @property
    def background(self) -> float:
        """4 radii. Measure the distance of unrelated vectors, and pass it to `plan`."""
        return _BACKGROUND * self.radius

    def collision(self, similarity: float) -> float:
        """Return the probability that two vectors at a distance are in the same slot.

        Datar and others, section 3.2.
        """
        similarity = check_number(similarity, 0, math.inf, self.measure)
        if similarity == 0:
            return 1.0
        ratio = self.slot * self.radius / similarity
        if ratio == 0:
            return 0.0
        if self.p == 2:
            correction = math.sqrt(2 / math.pi) / ratio * -math.expm1(-ratio * ratio / 2)
            return max(1 - math.erfc(ratio / math.sqrt(2)) - correction, 0.0)
        return max(
            2 * math.atan(ratio) / math.pi - math.log1p(ratio * ratio) / (math.pi * ratio), 0.0
        )

    def band_collision(self, similarity: float, rows: int, probes: int = 1) -> float:
        """Return the probability that a band agrees with one of several probes."""
        for value, name in ((rows, "rows"), (probes, "probes")):
            check_whole(value, 1, MAX_VALUES, name)
        similarity = check_number(similarity, 0, math.inf, self.measure)
        if probes == 1 or similarity == 0:
            return self.collision(similarity) ** rows
        return _hit_probability(similarity / (self.slot * self.radius), self.p, rows, probes)


def _settle(sums: Reals, unsure: Flags, vectors: Reals, lines: Reals, starts: Reals) -> None:
    """Replace sums that are too near a bound by exact sums, which depend on no order."""
    for row, column in np.argwhere(unsure).tolist():
        sums[row, column] = math.fsum(
            [*(vectors[row] * lines[column]).tolist(), float(starts[column])]
        )


@lru_cache(maxsize=4)
def draw_lines(
    dimension: int, count: int, seed: int, p: int
) -> tuple[Reals, Reals, npt.NDArray[np.int64]]:
    """Return lines: directions, shape (count, dimension), and starts and numbers of first slots.

    A start is 0 to 1, in slots.
    """
    second_seed = derive_seed(seed)
    lines = plane_weights(dimension, count, seed).astype(np.float64) / DEVIATION
    if p == 1:  # the quotient of two normal numbers is a Cauchy number
        divisors = plane_weights(dimension, count, second_seed).astype(np.float64) / DEVIATION
        lines /= np.where(divisors == 0, 0.5 / DEVIATION, divisors)
    numbers = np.arange(2 * count, dtype=np.uint64)
    words = draws(derive_seed(second_seed), numbers).reshape(count, 2)
    starts = (words[:, 0] >> np.uint64(11)).astype(np.float64) * _UNIT
    return lines, starts, (words[:, 1] >> np.uint64(32)).astype(np.int64)


@lru_cache(maxsize=64)
def _sequence(rows: int, count: int) -> Choices:
    """Return the sets of slots to change, by the expected squared distances of both neighbours.

    The bounds nearest to a vector, of all rows, are half as far apart as uniform numbers: Lv and
    others, section 4.5.
    """
    place = np.arange(1, rows + 1)
    squares = place * (place + 1) / (4 * (rows + 1) * (rows + 2))
    return probing_sequence(np.stack([squares, 1 - place / (rows + 1) + squares], axis=1), count)


@lru_cache(maxsize=1024)
def _hit_probability(distance: float, p: int, rows: int, probes: int) -> float:
    """Return the probability that a band agrees with a probe; the distance is in slots."""
    nearer = np.sort(stratified(rows) / 2, axis=1)
    bounds = np.stack([-1 - nearer, -nearer, 1 - nearer, 2 - nearer], axis=2) / distance
    below = normal_cdf(bounds) if p == 2 else 0.5 + np.arctan(bounds) / math.pi
    to_nearer, stays, to_other = np.moveaxis(np.diff(below, axis=2), 2, 0)
    return hit_probability(np.stack([stays, to_nearer, to_other], axis=2), _sequence(rows, probes))
