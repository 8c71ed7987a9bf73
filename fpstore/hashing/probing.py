"""Multi-probe look-ups: the hash values of a band that a near item may have, by likelihood."""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from fpstore.hashing.law import Reals

Choices = npt.NDArray[np.int8]
_SAMPLES = 1024  # probabilities are means over samples
_MIN_PROBABILITY = 1e-300
# The table of the normal distribution is linear between its entries, within 1e-6.
_TABLE_END, _TABLE_SIZE = 9.0, 1 << 13


def probing_sequence(scores: Reals, count: int) -> Choices:
    """Return the sets of changes with the least costs, shape (sets, rows), at most ``count`` sets.

    ``scores`` has shape (rows, changes): the cost of each change of each row, the rows ascending by
    their first change. The result has 0 where a value stays, and otherwise the number of the
    change, from 1. The first set is no change. Q. Lv, W. Josephson, Z. Wang, M. Charikar, K. Li,
    *Multi-probe LSH: efficient indexing for high-dimensional similarity search*, VLDB 2007, section
    4.4.
    """
    rows, changes = scores.shape
    order = np.argsort(scores, axis=None, kind="stable")
    costs = scores.ravel()[order].tolist()
    places = [divmod(int(place), changes) for place in order]
    sets = [np.zeros(rows, np.int8)]
    heap: list[tuple[float, tuple[int, ...]]] = [(costs[0], (0,))]
    while heap and len(sets) < count:
        cost, ranks = heappop(heap)
        changed_rows = [places[rank][0] for rank in ranks]
        if len(set(changed_rows)) == len(changed_rows):
            choice = np.zeros(rows, np.int8)
            for rank in ranks:
                row, change = places[rank]
                choice[row] = change + 1
            sets.append(choice)
        last = ranks[-1]
        if last + 1 < len(costs):
            heappush(heap, (cost - costs[last] + costs[last + 1], (*ranks[:-1], last + 1)))
            heappush(heap, (cost + costs[last + 1], (*ranks, last + 1)))
    return np.array(sets)


def hit_probability(probabilities: Reals, sequence: Choices) -> float:
    """Return the probability that a band of a near item has one of the sets of changes.

    It is a mean over samples. ``probabilities`` has shape (samples, rows, 1 + changes): of no
    change, and of each change; rows are in the order of ``scores``.
    """
    samples, rows, outcomes = probabilities.shape
    logarithms = np.log(np.maximum(probabilities, _MIN_PROBABILITY)).reshape(
        samples, rows * outcomes
    )
    indicators = (sequence[:, :, None] == np.arange(outcomes)).reshape(
        len(sequence), rows * outcomes
    )
    return float(np.exp(logarithms @ indicators.T.astype(np.float64)).sum(1).mean())


def band_changes(sequence: Choices, costs: Reals, count: int) -> Choices:
    """Return the changes of each band, shape (bands, count, rows), by the costs of first changes.

    ``costs`` has the shape (bands, rows). Rows of the result behind the last set are zero.
    """
    sequence = np.concatenate(
        [sequence, np.zeros((count - len(sequence), sequence.shape[1]), np.int8)]
    )
    ranks = np.argsort(np.argsort(costs, axis=1, kind="stable"), axis=1)
    return np.ascontiguousarray(np.moveaxis(sequence[:, ranks], 0, 1))


def stratified(rows: int) -> Reals:
    """Return stratified samples of 0 to 1, shape (samples, rows).

    Each row has a number in each of `samples` equal parts.
    """
    generator = np.random.Generator(np.random.PCG64(rows))
    parts = generator.permuted(np.tile(np.arange(_SAMPLES), (rows, 1)), axis=1).T
    return (parts + generator.random((_SAMPLES, rows))) / _SAMPLES


def normal_quantile(shares: Reals) -> Reals:
    places, below = _normal_table()
    return np.interp(shares, below, places)


def normal_cdf(numbers: Reals) -> Reals:
    return np.interp(numbers, *_normal_table())


@lru_cache(maxsize=1)
def _normal_table() -> tuple[Reals, Reals]:
    places = np.linspace(-_TABLE_END, _TABLE_END, _TABLE_SIZE)
    return places, np.array([NormalDist().cdf(place) for place in places.tolist()])
