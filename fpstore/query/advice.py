"""What to build instead of scanning."""

from __future__ import annotations

from fpstore.design.families import SCAN
from fpstore.design.planner import choose
from fpstore.width import Width


def scan_advice(fingerprint_count: int, own: int, radius: int, width: Width) -> str:
    """Return the notice for a probe with a radius above the store's, in one line."""
    best = choose(fingerprint_count, radius, width=width)
    told = f"radius {radius} is over the store's {own}: every one of {fingerprint_count:,} fingerprints was compared"
    if best.name == SCAN:
        return (
            f"{told}, which no design makes cheaper: call scan, or build the store with radius {radius}, to do it without notice"
        )
    return (
        f"{told}; a store built with radius {radius} looks it up "
        f"({best.name}, {best.bytes_per_fingerprint:.1f} bytes per fingerprint); scan does this without notice"
    )
