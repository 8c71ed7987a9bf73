"""Probes and scans that keep only the nearest matches of each query."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import lims_of
from fpstore.query.batches import SCAN_BLOCKS, SCAN_QUERIES, MatchColumns, collected, no_matches, run

More = npt.NDArray[np.bool_]  # of each query, whether it has more matches
Kept = tuple[MatchColumns, More]


def shortened(columns: MatchColumns, limit: int) -> Kept:
    """Keep the first ``limit`` matches of each query, which are the nearest."""
    lims, fingerprints, distances = columns
    counts = np.diff(lims)
    more: More = counts > limit
    if not more.any():
        return columns, more
    kept = np.arange(len(fingerprints)) - np.repeat(lims[:-1], counts) < limit
    return (lims_of(np.minimum(counts, limit)), fingerprints[kept], distances[kept]), more


class Everything(NamedTuple):
    """The tables and changes that a scan reads.

    Attributes
    ----------
    kernel : _kernel.Table
        The identity table.
    absent : ndarray of uint64, rows
        The fingerprints of the table that have been deleted, ascending.
    delta : _kernel.Delta or None
    version : int
        Of the delta.
    """

    kernel: _kernel.Table | _kernel.ColumnIdentity
    absent: Words
    delta: _kernel.Delta | None
    version: int


def scanned_nearest(stored: Everything, queries: Words, radius: int, limit: int, threads: int) -> Kept:
    """Compare each query with everything that is stored, and keep the nearest within the radius as they are met."""
    kernel, absent = stored.kernel, stored.absent
    # Few long parts: each holds up to `limit` matches of a query.
    count = max(min(threads, kernel.block_count // SCAN_BLOCKS), 1)
    cuts = pairwise(kernel.block_count * i // count for i in range(count + 1))
    ranges = list(cuts)
    parts = [(q, *blocks) for q in range(0, len(queries), SCAN_QUERIES) for blocks in ranges]

    def work(part: tuple[int, int, int], stop: _kernel.Stop | None) -> tuple[int, MatchColumns, npt.NDArray[np.uint8]]:
        first, start, end = part
        found = kernel.nearest(queries[first : first + SCAN_QUERIES], radius, limit, start, end, absent, stop=stop)
        return first, found[:3], found[3]

    found = run(work, parts, threads)
    if stored.delta is not None:
        added = stored.delta.nearest(queries, radius, limit, stored.version)
        found.append((0, added[:3], added[3]))
    if not found:
        return no_matches(queries), np.zeros(len(queries), bool)
    columns = collected([(np.arange(len(more)) + first, c) for first, c, more in found], len(queries))
    columns, more = shortened(columns, limit)
    for first, _, others in found:
        more[first : first + len(others)] |= others != 0
    return columns, more
