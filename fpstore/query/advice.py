"""What to build instead of scanning."""

from __future__ import annotations

from fpstore.design.estimates import Requirements
from fpstore.design.planner import choose
from fpstore.width import Width


def scan_advice(fingerprint_count: int, own: int, radius: int, width: Width) -> str:
    """Return the notice for a probe with a radius above the store's, in one line."""
    best = choose(fingerprint_count, radius, Requirements(width))
    told = f"radius {radius} is over the store's {own}: every one of {fingerprint_count:,} fingerprints was compared"
    cost = f"({best.name}, {best.bytes_per_fingerprint:.1f} bytes per fingerprint)"
    if best.design.scans(fingerprint_count, radius):
        return f"{told}, and no design is cheaper: scan, or a store built with radius {radius} {cost}, does it without notice"
    return f"{told}: a store built with radius {radius} {cost} looks it up; scan does this without notice"
