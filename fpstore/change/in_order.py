"""A batch of probes and inserts, row by row: the second of two near-duplicates finds the first."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Bytes, Words
from fpstore.query.batches import MatchColumns, joined, no_matches
from fpstore.query.delta import Delta

DROPPED = 2


class RowsInOrder(NamedTuple):
    """The rows of a batch, and what the tables hold for each.

    Attributes
    ----------
    fingerprints, ids : ndarray of uint64
    in_base : ndarray of uint8
        1 for each fingerprint that is in the tables.
    returning : ndarray of bool
        Which fingerprints are in the tables but deleted. Once such a row is inserted, later rows find it in the tables again.
    dropped : ndarray of bool
        Which rows are never inserted.
    near : MatchColumns
        The matches of each row in the tables, even those deleted since.
    """

    fingerprints: Words
    ids: Words
    in_base: Bytes
    returning: npt.NDArray[np.bool_]
    dropped: npt.NDArray[np.bool_]
    near: MatchColumns


def probe_insert_in_order(
    delta: Delta, rows: RowsInOrder, radius: int, always: bool
) -> tuple[MatchColumns, npt.NDArray[np.bool_]]:
    """Probe and insert rows in the delta, at new versions; return the columns of their matches, and which were inserted.

    Parameters
    ----------
    delta : Delta
    rows : RowsInOrder
    radius : int
    always : bool
        Whether rows with matches are inserted too.
    """
    fingerprints = rows.fingerprints
    ends = sorted({*(np.flatnonzero(rows.returning) + 1).tolist(), len(fingerprints)})
    parts: list[MatchColumns] = []
    masks = [np.zeros(0, bool)]
    start = 0
    while start < len(fingerprints):
        end = ends[bisect_right(ends, start)]
        near = delta.kernel.combine(_part(rows.near, start, end), no_matches(fingerprints[start:end]), delta.version)
        matched = (np.diff(near[0]) > 0).astype(np.uint8)
        matched[rows.dropped[start:end]] = DROPPED
        version = delta.version + 1
        lims, found, distances, inserted = delta.kernel.probe_insert(
            fingerprints[start:end], rows.ids[start:end], matched, rows.in_base[start:end], radius, always, version
        )
        delta.version = version
        taken = len(inserted)  # fewer than given, if a row has many matches
        parts.append(delta.kernel.combine(_part(near, 0, taken), (lims, found, distances), version))
        masks.append(inserted.astype(bool))
        start += taken
    return joined(parts or [no_matches(fingerprints)]), np.concatenate(masks)


def _part(columns: MatchColumns, start: int, end: int) -> MatchColumns:
    lims, fingerprints, distances = columns
    a, b = lims[start], lims[end]
    return lims[start : end + 1] - a, fingerprints[a:b], distances[a:b]
