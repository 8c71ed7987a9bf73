"""The results of probes: a match, and the columns of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Words
from fpstore.width import Distances, Width


class Match(NamedTuple):
    """A stored fingerprint within the radius of a query.

    Attributes
    ----------
    fingerprint : int
    distance : int
        The number of bits in which it differs from the query.
    ids : list of int or list of str
        The documents that have the fingerprint.
    """

    fingerprint: int
    distance: int
    ids: list[int] | list[str]


class MatchList(list[Match]):
    """The matches of one query that was asked for at most so many.

    Attributes
    ----------
    more : bool
        Whether there are more matches within the radius.
    """

    def __init__(self, matches: Iterable[Match], more: bool) -> None:
        super().__init__(matches)
        self.more = more


LookUp = Callable[[Words], tuple[npt.NDArray[np.int64], Words | list[str]]]  # of the ids of rows


class Matches:
    """The matches of many queries, in columns. Iterates as one list of :class:`Match` per query.

    Attributes
    ----------
    lims : ndarray of int64, shape (queries + 1,)
        The matches of query q are at ``lims[q]:lims[q + 1]``.
    distances : ndarray of uint8, shape (matches,)
        Of fingerprints of 256 bits, uint16.
    inserted : ndarray of bool, shape (queries,), or None
        Of :meth:`fpstore.Store.probe_insert_many`: which queries were inserted.
    more : ndarray of bool, shape (queries,), or None
        If there was a ``limit``: which queries have more matches within the radius than it.
    """

    def __init__(
        self,
        lims: npt.NDArray[np.int64],
        rows: Words,
        distances: Distances,
        look_up: LookUp,
        width: Width,
        inserted: npt.NDArray[np.bool_] | None = None,
        more: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.lims = lims
        self.rows = rows  # as the kernel knows the fingerprints
        self.distances = distances
        self._look_up = look_up
        self._width = width
        self.inserted = inserted
        self.more = more

    @property
    def fingerprints(self) -> npt.NDArray[Any]:
        """The fingerprints, by query, distance, fingerprint.

        uint64, shape (matches,); of 32 bits uint32; of 128 and 256 bits uint8, shape (matches, width / 8), big-endian.
        """
        return self._width.outside(self.rows)

    def ids(self) -> tuple[npt.NDArray[np.int64], Words | list[str]]:
        """Return (lims, ids): the ids of match m are ``ids[lims[m]:lims[m + 1]]``; uint64, or strings in a list."""
        return self._look_up(self.rows)

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.lims) - 1

    def __iter__(self) -> Iterator[list[Match]]:
        lims, ids = self.ids()
        plain = ids if isinstance(ids, list) else ids.tolist()
        fingerprints, distances = self._width.numbers(self.rows), self.distances.tolist()
        for start, end in zip(self.lims[:-1].tolist(), self.lims[1:].tolist(), strict=True):
            yield [Match(fingerprints[m], distances[m], plain[lims[m] : lims[m + 1]]) for m in range(start, end)]

    def __repr__(self) -> str:
        return f"<fpstore.Matches: {len(self.rows)} matches of {len(self)} queries>"
