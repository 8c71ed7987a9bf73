"""Questions whose cost is estimated.

The nearest fingerprints at any distance, and which store to build instead of scanning.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arrays import lims_of
from fpstore.base.width import Width
from fpstore.design.costs import scan_nanoseconds
from fpstore.design.estimates import FEWEST_FOR_BYTES, Requirements
from fpstore.design.planner import choose
from fpstore.errors import ScanWarning
from fpstore.query.batches import MatchColumns, collected, no_matches
from fpstore.query.snapshot import Snapshot

SILENT = "Store.scan and fpstore scan give no such notice"


def nearest(
    snapshot: Snapshot, queries: Words, count: int, radius: int, threads: int
) -> MatchColumns:
    """Return the ``count`` nearest fingerprints of each query, or fewer if fewer are within the radius.

    Radii grow as far as look-ups cost less than a scan; the queries that have too few matches by
    then are answered by one scan.
    """
    if not len(queries):
        return no_matches(queries)
    left = np.arange(len(queries))
    parts: list[tuple[npt.NDArray[np.int64], MatchColumns]] = []
    for tried in (
        _radii(snapshot, radius, len(queries)) if count < snapshot.totals.fingerprints else ()
    ):
        if not len(left):
            break
        columns, _ = snapshot.probe_nearest(queries[left], tried, threads, count)
        sizes = np.diff(columns[0])
        done = (sizes == count) | (tried == radius)
        kept = np.repeat(done, sizes)
        parts.append((left[done], (lims_of(sizes[done]), columns[1][kept], columns[2][kept])))
        left = left[~done]
    if len(left):
        parts.append((left, snapshot.scan_nearest(queries[left], radius, threads, count)[0]))
    return collected(parts, len(queries))


def _radii(snapshot: Snapshot, most: int, query_count: int) -> Iterator[int]:
    """Yield the radii, ascending, whose look-ups all together cost less than a scan.

    In vain, they at most double the time.
    """
    left = scan_nanoseconds(snapshot.totals.fingerprints, snapshot.width.words, query_count)
    for radius in range(min(most, snapshot.radius) + 1):
        if snapshot.scans(radius):
            return
        left -= snapshot.probe_nanoseconds(radius, query_count)
        if left < 0:
            return
        yield radius


def scan_advice(fingerprint_count: int, own: int, radius: int, width: Width) -> str:
    """Return the notice for a probe with a radius above the store's, in one line."""
    message = (
        f"radius {radius} is over the store's {own}: every one of {fingerprint_count:,} "
        "fingerprints is compared"
    )
    best = choose(fingerprint_count, radius, Requirements(width))
    if best.design.scans(fingerprint_count, radius):
        return f"{message}. No design answers radius {radius} faster than this scan. {SILENT}"
    size = (
        f", {best.bytes_per_fingerprint:.1f} bytes per fingerprint"
        if fingerprint_count >= FEWEST_FOR_BYTES
        else ""
    )
    return (
        f"{message}. A store built with radius {radius} (design {best.name}{size}) answers from "
        f"its tables. {SILENT}"
    )


def warn(text: str) -> None:
    """Warn where fpstore was called, once more if it was warned there of another store."""
    frame = sys._getframe()
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == "fpstore"
    ):
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "__main__")
    warnings.warn_explicit(text, ScanWarning, frame.f_code.co_filename, frame.f_lineno, name, {})
