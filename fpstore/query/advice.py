"""The advice which store to build instead of scanning."""

from __future__ import annotations

import sys
import warnings

from fpstore.base.width import Width
from fpstore.design.estimates import Requirements
from fpstore.design.planner import choose
from fpstore.errors import ScanWarning

SILENT = "Store.scan and fpstore scan give no such notice"
FEWEST_TOLD = 1 << 12  # with fewer fingerprints, most bytes are in files that every store has


def scan_advice(fingerprint_count: int, own: int, radius: int, width: Width) -> str:
    """Return the notice for a probe with a radius above the store's, in one line."""
    told = f"radius {radius} is over the store's {own}: every one of {fingerprint_count:,} fingerprints is compared"
    best = choose(fingerprint_count, radius, Requirements(width))
    if best.design.scans(fingerprint_count, radius):
        return f"{told}. For radius {radius} that is the best design, too. {SILENT}"
    size = f", {best.bytes_per_fingerprint:.1f} bytes per fingerprint" if fingerprint_count >= FEWEST_TOLD else ""
    return f"{told}. A store built with radius {radius} (design {best.name}{size}) answers from its tables. {SILENT}"


def warn(text: str) -> None:
    """Warn where fpstore was called, once more if it was warned there of another store."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fpstore":
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "__main__")
    warnings.warn_explicit(text, ScanWarning, frame.f_code.co_filename, frame.f_lineno, name, {})
