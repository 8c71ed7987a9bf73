"""Multi-probe look-ups: which hash values of a band a near item may have instead, the likely ones first."""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from fpstore.hashing.law import Reals

Choices = npt.NDArray[np.int8]
_SAMPLES = 1024  # over which probabilities are averaged
_LEAST = 1e-300
# of the table of the normal distribution: linear between its entries, within 1e-6
_FAR, _STEPS = 9.0, 1 << 13


def probing_sequence(scores: Reals, count: int) -> Choices:
    """Return the sets of changes with the least sums of scores, shape (sets, rows), at most ``count``; the first is no change.

    ``scores`` has shape (rows, changes): what each change of each row costs, the rows ascending by
    their first change. A row of the result has 0 where a value stays, and the number of the change,
    from 1, otherwise. Q. Lv, W. Josephson, Z. Wang, M. Charikar, K. Li, *Multi-probe LSH: efficient
    indexing for high-dimensional similarity search*, VLDB 2007, section 4.4.
    """
    rows, changes = scores.shape
    order = np.argsort(scores, axis=None, kind="stable")
    costs = scores.ravel()[order].tolist()
    places = [divmod(int(place), changes) for place in order]
    found = [np.zeros(rows, np.int8)]
    heap: list[tuple[float, tuple[int, ...]]] = [(costs[0], (0,))]
    while heap and len(found) < count:
        cost, chosen = heappop(heap)
        changed = [places[one][0] for one in chosen]
        if len(set(changed)) == len(changed):
            one_set = np.zeros(rows, np.int8)
            for one in chosen:
                row, change = places[one]
                one_set[row] = change + 1
            found.append(one_set)
        last = chosen[-1]
        if last + 1 < len(costs):
            heappush(heap, (cost - costs[last] + costs[last + 1], (*chosen[:-1], last + 1)))
            heappush(heap, (cost + costs[last + 1], (*chosen, last + 1)))
    return np.array(found)


def met(probabilities: Reals, sequence: Choices) -> float:
    """Return the probability that one of the sets of changes is what happened, as a mean over samples.

    ``probabilities`` has shape (samples, rows, 1 + changes): of no change, and of each change; rows
    are in the order of ``scores``.
    """
    samples, rows, ways = probabilities.shape
    logarithms = np.log(np.maximum(probabilities, _LEAST)).reshape(samples, rows * ways)
    happened = (sequence[:, :, None] == np.arange(ways)).reshape(len(sequence), rows * ways)
    return float(np.exp(logarithms @ happened.T.astype(np.float64)).sum(1).mean())


def changes_of(sequence: Choices, costs: Reals, count: int) -> Choices:
    """Return the changes of each band, shape (bands, count, rows), by the costs of first changes.

    None where the sets end.
    """
    sequence = np.concatenate(
        [sequence, np.zeros((count - len(sequence), sequence.shape[1]), np.int8)]
    )
    ranks = np.argsort(np.argsort(costs, axis=1, kind="stable"), axis=1)
    return np.ascontiguousarray(np.moveaxis(sequence[:, ranks], 0, 1))


def stratified(rows: int) -> Reals:
    """Return numbers from 0 to 1, shape (samples, rows).

    Each row has one number in each of as many equal parts.
    """
    generator = np.random.Generator(np.random.PCG64(rows))
    parts = generator.permuted(np.tile(np.arange(_SAMPLES), (rows, 1)), axis=1).T
    return (parts + generator.random((_SAMPLES, rows))) / _SAMPLES


def normal_quantile(shares: Reals) -> Reals:
    """Return the numbers up to which the normal distribution has some shares."""
    places, below = _normal_table()
    return np.interp(shares, below, places)


def normal_cdf(numbers: Reals) -> Reals:
    """Return the normal distribution function of numbers."""
    return np.interp(numbers, *_normal_table())


@lru_cache(maxsize=1)
def _normal_table() -> tuple[Reals, Reals]:
    places = np.linspace(-_FAR, _FAR, _STEPS)
    return places, np.array([NormalDist().cdf(place) for place in places.tolist()])
