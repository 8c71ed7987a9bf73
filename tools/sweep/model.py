"""The oracle: which ids each fingerprint has, and brute force over them.

It uses numpy alone, and nothing of the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.data import Ids, Shape, Words

MatchColumns = tuple[
    npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[Any]
]  # lims, fingerprints as a store gives them, distances
PAIRS = 1 << 20  # of query and fingerprint that are compared at once


def brute(
    shape: Shape, fingerprints: Words, queries: Words, radius: int, most: int | None = None
) -> MatchColumns:
    """Compare every query with every fingerprint (distinct, ascending).

    Matches by query, distance, fingerprint.

    With ``most``, those of as many of the queries, at least one, as have no more matches together.
    """
    pool, places = np.unique(queries, axis=0, return_inverse=True)
    places = places.reshape(-1)
    step = max(PAIRS // max(len(fingerprints) * shape.words, 1), 1)
    none = np.empty(0, np.int64)
    parts = [(none, none, none)]
    for start in range(0, len(pool), step):
        distances = shape.distances(pool[start : start + step], fingerprints)
        query, place = np.nonzero(distances <= radius)
        distance = distances[query, place]
        order = np.lexsort((place, distance, query))
        parts.append((query[order] + start, place[order], distance[order]))
    query, place, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
    starts = np.searchsorted(query, np.arange(len(pool)))
    counts = np.bincount(query, minlength=len(pool))
    lims = np.concatenate([[0], np.cumsum(counts[places])]).astype(np.int64)
    if most is not None:
        kept = max(int(np.searchsorted(lims, most, side="right")) - 1, min(1, len(queries)))
        lims, places = lims[: kept + 1], places[:kept]
    taken = slices(starts[places], lims)
    return (
        lims,
        shape.to_array(fingerprints[place[taken]]),
        distance[taken].astype(np.uint16 if shape.bits == 256 else np.uint8),
    )


def slices(starts: npt.NDArray[np.int64], lims: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of several runs, one after the other.

    The m-th begins at starts[m] and is lims[m + 1] - lims[m] long.
    """
    shift = np.repeat(starts - lims[:-1], np.diff(lims))
    return shift + np.arange(lims[-1])


class Model:
    """The content that a store must hold: a set of pairs of fingerprint and id."""

    def __init__(self, shape: Shape, rows: Words, ids: Ids) -> None:
        self.shape = shape
        self.ids: dict[int, set[int | str]] = {}
        # the ids in the order in which they came, also removed ones
        self.seen: dict[int | str, None] = {}
        self.next_row = 0
        self.insert(rows, ids)

    def insert(self, rows: Words, ids: Ids) -> int:
        """Add pairs; return how many were new. Without ids they are the next row numbers."""
        before = self.pairs
        names = (
            range(self.next_row, self.next_row + len(rows))
            if ids is None
            else ids
            if isinstance(ids, list)
            else ids.tolist()
        )
        self.next_row += len(rows)
        for fingerprint, name in zip(
            self.shape.numbers(self.shape.to_array(rows)), names, strict=True
        ):
            self.ids.setdefault(fingerprint, set()).add(name)
            self.seen.setdefault(name)
        return self.pairs - before

    def delete(self, ids: Iterable[int | str] = (), fingerprints: Iterable[int] = ()) -> int:
        """Remove ids from all fingerprints, or fingerprints; return how many pairs went."""
        before, gone, whole = self.pairs, set(ids), set(fingerprints)
        self.ids = {
            f: left for f, names in self.ids.items() if f not in whole and (left := names - gone)
        }
        return before - self.pairs

    def merge(self) -> None:
        """Forget the ids that no fingerprint has."""
        used = set().union(*self.ids.values())
        self.seen = {name: None for name in self.seen if name in used}

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return sum(map(len, self.ids.values()))

    @property
    def fingerprints(self) -> Words:
        """The distinct fingerprints, ascending."""
        return self.shape.rows(sorted(self.ids))

    def ids_of(self, fingerprints: npt.NDArray[Any]) -> list[list[int | str]]:
        """Return the ids of each fingerprint that a store gave, in the order of their repr."""
        numbers = self.shape.numbers(fingerprints)
        known = {
            fingerprint: sorted(self.ids[fingerprint], key=repr) for fingerprint in set(numbers)
        }
        return [known[fingerprint] for fingerprint in numbers]

    def by_id(self) -> dict[int | str, list[int]]:
        """Return the fingerprints of each id, ascending."""
        out: dict[int | str, list[int]] = {}
        for fingerprint in sorted(self.ids):
            for name in self.ids[fingerprint]:
                out.setdefault(name, []).append(fingerprint)
        return out
