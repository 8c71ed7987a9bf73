"""What a deduplication removes, and why: each row with the row that is kept in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arrays import lists_of
from fpstore.io.tables import Tabular, arrow_table
from fpstore.jobs.grouping import Members
from fpstore.query.names import HeldIds, Names, names_in_slices, names_of

REMOVED_COLUMNS = ("row", "id", "kept_row", "kept", "cluster", "distance")
COMPARED_AT_ONCE = 1 << 18


class Removed(Tabular):
    """The rows that a deduplication removed, in their order, but for rows that were not compared.

    Attributes
    ----------
    rows, kept_rows : ndarray of uint64, shape (n,)
        The number of a row that was removed, and of the row that was kept in its place, from 0 over all files.
    clusters : ndarray of uint64, shape (n,)
        The number of the cluster of both.
    distances : ndarray of uint16, shape (n,)
        The distance of their fingerprints, in bits.
    """

    def __init__(self, members: Members, rows: npt.NDArray[np.intp], fingerprints: Words, names: Names, numbers: Words) -> None:
        """Take groups of places of documents, the row and the fingerprint at each place, and the ids of the members."""
        firsts, cluster = members.lims[:-1], lists_of(members.lims)
        others = np.ones(len(members.documents), bool)
        others[firsts] = False
        places = np.flatnonzero(others)
        places = places[np.argsort(members.documents[places], kind="stable")]
        kept = firsts[cluster[places]]
        self.clusters = cluster[places].astype(np.uint64)
        self.rows, self.kept_rows = (rows[members.documents[some].view(np.intp)].astype(np.uint64) for some in (places, kept))
        self.distances = distances_of(fingerprints, members.documents[places], members.documents[kept])
        self._ids: tuple[Names, Words] = (names, numbers[places])
        self._kept: tuple[Names, Words] = (names, numbers[kept])

    def held(self) -> Removed:
        """Return the same with all ids in memory."""
        new, places = copy(self), np.arange(len(self), dtype=np.uint64)
        new._ids, new._kept = ((HeldIds(names_of(*column)), places) for column in (self._ids, self._kept))
        return new

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the columns ``row``, ``id``, ``kept_row``, ``kept``, ``cluster`` and ``distance``, at most 65,536 at once."""
        for some, (ids, kept) in names_in_slices([self._ids, self._kept]):
            yield {
                "row": self.rows[some], "id": ids, "kept_row": self.kept_rows[some], "kept": kept,
                "cluster": self.clusters[some], "distance": self.distances[some].astype(np.uint64),
            }  # fmt: skip

    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return the columns as a ``pyarrow.Table``, as :meth:`fpstore.Matches.to_arrow` does."""
        return arrow_table(self.batches(), names)

    def __repr__(self) -> str:
        return f"<fpstore.Removed: {len(self):,} rows>"


def distances_of(fingerprints: Words, a: Words, b: Words) -> npt.NDArray[np.uint16]:
    """Return the distances of pairs of fingerprints, by their places."""
    out = np.empty(len(a), np.uint16)
    for start in range(0, len(a), COMPARED_AT_ONCE):
        some = slice(start, start + COMPARED_AT_ONCE)
        differing = np.bitwise_count(fingerprints[a[some].view(np.intp)] ^ fingerprints[b[some].view(np.intp)])
        out[some] = differing if differing.ndim == 1 else differing.sum(1)
    return out
