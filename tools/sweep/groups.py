"""The oracle of pairs and groups.

A matrix of distances, what is connected, and who represents whom. It uses numpy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.data import Shape, Words

Distances = npt.NDArray[np.uint16]
WORDS_AT_ONCE = 1 << 20


def all_distances(shape: Shape, rows: Words, others: Words) -> Distances:
    """Return the distance of each row to each other one."""
    out = np.empty((len(rows), len(others)), np.uint16)
    step = max(WORDS_AT_ONCE // max(len(others) * shape.words, 1), 1)
    for start in range(0, len(rows), step):
        out[start : start + step] = shape.distances(rows[start : start + step], others)
    return out


def largest_radius(distances: Distances, most: int, radius: int) -> int:
    """Return the radius that is wanted, or the largest that has no more pairs, or 0."""
    counts = np.zeros(radius + 1, np.int64)
    for row in distances:
        counts += np.bincount(row, minlength=radius + 1)[: radius + 1]
    below = np.cumsum(counts)
    return max(int(np.searchsorted(below, most, side="right")) - 1, 0)


def connect(near: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the least member of the component of each row, by flooding."""
    out = np.full(len(near), -1)
    for start in range(len(near)):
        if out[start] >= 0:
            continue
        reached, wave = np.zeros(len(near), bool), np.array([start])
        while len(wave):
            reached[wave] = True
            wave = np.flatnonzero(near[wave].any(axis=0) & ~reached)
        out[reached] = start
    return out


def united(sets: npt.NDArray[np.int64], lists: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    """Return the sets of rows, when the rows of each list are connected, too."""
    out = sets.copy()
    for places in lists:
        names = np.unique(out[list(places)])
        if len(names) > 1:
            out[np.isin(out, names)] = names[0]
    return out


def members(sets: Sequence[int]) -> list[list[int]]:
    """Return the sets of two or more, each ascending, in the order of their first members."""
    by_name: dict[int, list[int]] = {}
    for place, name in enumerate(sets):
        by_name.setdefault(name, []).append(place)
    return [group for group in by_name.values() if len(group) > 1]


def from_majority(rows: Words, places: Sequence[int]) -> list[int]:
    """Return how far some rows are from what the majority of them has in each bit."""
    bits = np.unpackbits(rows[list(places)].reshape(len(places), -1).view(np.uint8), axis=1)
    majority = 2 * bits.sum(axis=0, dtype=np.int64) > len(places)
    return [int(count) for count in (bits != majority).sum(axis=1)]


def put_representatives_first(
    sets: list[list[int]],
    ranks: dict[int, Any],
    distances: npt.NDArray[Any],
    radius: int,
    places: Sequence[int],
    greedy: bool,
) -> list[list[int]]:
    """Return the groups, the representative first, and the others ascending.

    The groups in the order of their least members.

    Parameters
    ----------
    sets : list of list of int
        Documents that are connected.
    ranks : dict
        The least represents, of equal ones the first document.
    distances : ndarray
        Of rows.
    radius : int
        For greedy groups.
    places : sequence of int
        The row of each document.
    greedy : bool
        Whether each member is to be near its representative: of several the nearest, of equally
        near ones the first.
    """
    groups = []
    for members in sets:
        groups_of: dict[int, list[int]] = {}
        for document in (
            order := sorted(members, key=lambda document: (ranks[document], document))
        ):
            if not groups_of or (
                greedy
                and min(distances[places[document], places[first]] for first in groups_of) > radius
            ):
                groups_of[document] = []
        for document in order:
            if document not in groups_of:
                nearest = (
                    min(groups_of, key=lambda first: distances[places[document], places[first]])
                    if greedy
                    else order[0]
                )
                groups_of[nearest].append(document)
        groups += [[first, *sorted(others)] for first, others in groups_of.items()]
    return sorted((group for group in groups if len(group) > 1), key=min)
