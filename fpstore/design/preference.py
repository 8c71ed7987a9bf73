"""The choice among the plans that fit."""

from __future__ import annotations

from collections.abc import Sequence

from fpstore.design.costs import weighted
from fpstore.design.estimates import Plan

# The bytes and the time of packed tables that may take the place of column tables, as multiples.
MORE_BYTES, MORE_TIME = 1.15, 2.0


def cost(p: Plan, storage: str) -> float:
    """Return the time by which plans are ranked, in microseconds or milliseconds."""
    return p.mean_microseconds if storage == "hot" else p.cold_milliseconds


def weighted_cost(p: Plan, storage: str = "hot") -> float:
    """Return time x bytes^1.585, which ``auto`` minimizes: twice the bytes weigh as much as three times the time."""
    return weighted(cost(p, storage), p.bytes_per_fingerprint)


def knee(plans: Sequence[Plan], storage: str = "hot") -> Plan:
    """Return the plan with the lowest weighted cost (:func:`weighted_cost`), and among equals the smaller.

    Parameters
    ----------
    plans : sequence of Plan
        At least one.
    storage : {"hot", "cold"}
        Which of the two times counts.
    """
    return min(plans, key=lambda p: (weighted_cost(p, storage), p.bytes_per_fingerprint, p.name))


def balance(plans: Sequence[Plan], storage: str = "hot") -> Plan:
    """Return the plan with the lowest weighted cost, or packed tables in place of columns that are hardly better.

    Packed tables take the place of columns where they take no more than MORE_BYTES of their bytes and MORE_TIME of their time.
    """
    best = knee(plans, storage)
    if not best.design.ring:
        return best
    most_bytes, most_time = MORE_BYTES * best.bytes_per_fingerprint, MORE_TIME * cost(best, storage)
    packed = [p for p in plans if not p.design.ring and p.bytes_per_fingerprint <= most_bytes and cost(p, storage) <= most_time]
    return knee(packed, storage) if packed else best


def preferred(plans: Sequence[Plan], storage: str = "hot", prefer: str = "balance") -> Plan:
    """Return the plan that ``auto`` takes of the plans that fit: the balance, the fastest or the smallest."""
    if prefer == "speed":
        return min(plans, key=lambda p: (cost(p, storage), p.bytes_per_fingerprint, p.name))
    if prefer == "space":
        return min(plans, key=lambda p: (p.bytes_per_fingerprint, cost(p, storage), p.name))
    return balance(plans, storage)
