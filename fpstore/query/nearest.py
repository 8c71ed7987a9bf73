"""The nearest fingerprints at any distance, and advice on which store to build against scans."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arrays import list_lims
from fpstore.base.width import Width
from fpstore.design.costs import scan_nanoseconds
from fpstore.design.estimates import MIN_FINGERPRINTS_FOR_BYTES, Requirements
from fpstore.design.planner import choose
from fpstore.errors import ScanWarning
from fpstore.query.batches import MatchColumns, collect, empty_matches
from fpstore.query.snapshot import Snapshot

SILENT = "Store.scan and fpstore scan give no such notice"


def nearest(
    snapshot: Snapshot, queries: Words, count: int, radius: int, threads: int
) -> MatchColumns:
    """Return up to ``count`` fingerprints within the radius of each query, the nearest.

    Radii grow while look-ups cost less than a scan. One scan answers the queries that still have
    too few matches.
    """
    if not len(queries):
        return empty_matches(queries)
    open_queries = np.arange(len(queries))
    parts: list[tuple[npt.NDArray[np.int64], MatchColumns]] = []
    for probe_radius in (
        _radii(snapshot, radius, len(queries)) if count < snapshot.totals.fingerprints else ()
    ):
        if not len(open_queries):
            break
        (lims, rows, distances), _ = snapshot.probe_nearest(
            queries[open_queries], probe_radius, threads, count
        )
        sizes = np.diff(lims)
        done = (sizes == count) | (probe_radius == radius)
        final = np.repeat(done, sizes)
        parts.append((open_queries[done], (list_lims(sizes[done]), rows[final], distances[final])))
        open_queries = open_queries[~done]
    if len(open_queries):
        columns, _ = snapshot.scan_nearest(queries[open_queries], radius, threads, count)
        parts.append((open_queries, columns))
    return collect(parts, len(queries))


def _radii(snapshot: Snapshot, most: int, query_count: int) -> Iterator[int]:
    """Yield the ascending radii whose look-ups together cost less than a scan.

    So, if the scan is needed after all, they at most double the time.
    """
    budget = scan_nanoseconds(snapshot.totals.fingerprints, snapshot.width.words, query_count)
    for radius in range(min(most, snapshot.radius) + 1):
        if snapshot.scans(radius):
            return
        budget -= snapshot.probe_nanoseconds(radius, query_count)
        if budget < 0:
            return
        yield radius


def scan_advice(fingerprint_count: int, own: int, radius: int, width: Width) -> str:
    """Return the warning of a probe with a radius above the store's, in one line."""
    message = (
        f"radius {radius} is over the store's {own}: every one of {fingerprint_count:,} "
        "fingerprints is compared"
    )
    best = choose(fingerprint_count, radius, Requirements(width))
    if best.design.scans(fingerprint_count, radius):
        return f"{message}. No design answers radius {radius} faster than this scan. {SILENT}"
    size = (
        f", {best.bytes_per_fingerprint:.1f} bytes per fingerprint"
        if fingerprint_count >= MIN_FINGERPRINTS_FOR_BYTES
        else ""
    )
    return (
        f"{message}. A store built with radius {radius} (design {best.name}{size}) answers from "
        f"its tables. {SILENT}"
    )


def warn(text: str) -> None:
    """Warn at the line outside fpstore that called it, once for each store."""
    frame = sys._getframe()
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == "fpstore"
    ):
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "__main__")
    warnings.warn_explicit(text, ScanWarning, frame.f_code.co_filename, frame.f_lineno, name, {})
