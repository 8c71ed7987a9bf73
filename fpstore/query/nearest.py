"""The nearest matches of each query: probes and scans that keep only so many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.design.costs import scan_nanoseconds
from fpstore.design.planner import estimate
from fpstore.lims import lims_of
from fpstore.query.batches import SCAN_BLOCKS, SCAN_QUERIES, Columns, run
from fpstore.query.generation import Generation

if TYPE_CHECKING:
    from fpstore.query.snapshot import Snapshot

More = npt.NDArray[np.bool_]  # of each query, whether it has more matches
Kept = tuple[Columns, More]


def shortened(columns: Columns, limit: int) -> Kept:
    """Keep the first ``limit`` matches of each query, which are the nearest."""
    lims, fingerprints, distances = columns
    counts = np.diff(lims)
    more: More = counts > limit
    if not more.any():
        return columns, more
    kept = np.arange(len(fingerprints)) - np.repeat(lims[:-1], counts) < limit
    return (lims_of(np.minimum(counts, limit)), fingerprints[kept], distances[kept]), more


def collected(parts: Sequence[tuple[npt.NDArray[np.int64], Columns]], query_count: int) -> Columns:
    """Put together columns of some queries each, given with the numbers of these queries, by query, distance, fingerprint."""
    number = np.concatenate([np.empty(0, np.int64), *(np.repeat(numbers, np.diff(c[0])) for numbers, c in parts)])
    found = np.concatenate([np.empty(0, np.uint64), *(c[1] for _, c in parts)])
    distances = np.concatenate([np.empty(0, np.uint8), *(c[2] for _, c in parts)])
    order = np.lexsort((found, distances, number))
    return lims_of(np.bincount(number, minlength=query_count)), found[order], distances[order]


def nearest_scanned(snapshot: Snapshot, queries: Words, radius: int, limit: int, threads: int) -> Kept:
    """Compare each query with everything that is stored, and keep the nearest within the radius as they are met."""
    kernel = snapshot.generation.tables[0].in_order
    # Few long parts: each holds up to `limit` matches of a query.
    count = max(min(threads, kernel.block_count // SCAN_BLOCKS), 1)
    cuts = pairwise(kernel.block_count * i // count for i in range(count + 1))
    ranges = list(cuts)
    parts = [(q, *blocks) for q in range(0, len(queries), SCAN_QUERIES) for blocks in ranges]
    absent = snapshot.absent

    def work(part: tuple[int, int, int], stop: _kernel.Stop | None) -> tuple[int, Columns, npt.NDArray[np.uint8]]:
        first, start, end = part
        *columns, more = kernel.nearest(queries[first : first + SCAN_QUERIES], radius, limit, start, end, absent, stop=stop)
        return first, (columns[0], columns[1], columns[2]), more

    found = run(work, parts, threads)
    added = snapshot.added_nearest(queries, radius, limit)
    if added is not None:
        found.append((0, added[:3], added[3]))
    columns = collected([(np.arange(len(more)) + first, c) for first, c, more in found], len(queries))
    columns, more = shortened(columns, limit)
    for first, _, others in found:
        more[first : first + len(others)] |= others != 0
    return columns, more


def nearest(snapshot: Snapshot, queries: Words, count: int, radius: int, threads: int) -> Columns:
    """Return the ``count`` nearest fingerprints of each query, if there are so many within the radius.

    Radii grow as long as look-ups cost less than a scan; the queries that have too few matches by then are answered by one scan.
    """
    left = np.arange(len(queries))
    parts: list[tuple[npt.NDArray[np.int64], Columns]] = []
    for tried in _radii(snapshot.generation, radius) if count < snapshot.totals.fingerprints else ():
        if not len(left):
            break
        columns, _ = snapshot.probe_nearest(queries[left], tried, threads, count)
        sizes = np.diff(columns[0])
        done = (sizes == count) | (tried == radius)
        kept = np.repeat(done, sizes)
        parts.append((left[done], (lims_of(sizes[done]), columns[1][kept], columns[2][kept])))
        left = left[~done]
    if len(left):
        parts.append((left, nearest_scanned(snapshot, queries[left], radius, count, threads)[0]))
    return collected(parts, len(queries))


def _radii(generation: Generation, most: int) -> Iterator[int]:
    """Yield the radii, ascending, for which the look-ups of the design are cheaper than a scan."""
    design, count = generation.design, generation.count
    scan = scan_nanoseconds(count) / 1000
    for radius in range(min(most, design.radius) + 1):
        if generation.scans(radius) or estimate(design, count, radius=radius).microseconds > scan:
            return
        yield radius
