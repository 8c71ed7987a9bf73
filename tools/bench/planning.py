"""The planner against the clock: costs (the constants of its model) and ranking (its choices)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import fpstore
from bench.data import Words
from bench.harness import Bench, Result, microseconds, ratio
from fpstore import _kernel
from fpstore.design.costs import BATCH_QUERIES, NANOSECONDS, SCAN_ENTRY_NS, Work, work
from fpstore.design.families import lookup_radius
from fpstore.design.planner import SPEED_FOR_TWICE_THE_BYTES, Plan, weighted_cost
from fpstore.design.tables import TableLookup

SIZES = (20, 22, 24)
RANKED_SIZES = (20, 22)
ENTRIES_LOG2 = (-2, 0, 2, 4, 5, 6, 7, 8, 10, 12, 14)  # that a look-up meets
VARIANTS = (1, 4, 16, 64)  # look-ups of a query, with up to two flips
MOST_ENTRIES = 1 << 23  # of one timed run
FASTEST = 3  # designs that are ranked because they are predicted to be among the fastest
SLOWEST = 8.0  # and those slower than the choice by so much are not
SCANNED_QUERIES = 1 << 8  # of one kernel call, as in a batch
SLACK = 1.25  # what noise may do to a ratio of measured times


def _isas() -> list[str]:
    return [isa for isa in ("avx2", "avx512") if isa in _kernel.available_isas()] or [_kernel.isa()]


def _least(runs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Return the least processor time of each, taken in turn: the machine may be shared, and what others do only adds."""
    best = [float("inf")] * len(runs)
    for _ in range(repeats):
        for place, run in enumerate(runs):
            start = time.process_time()
            run()
            best[place] = min(best[place], time.process_time() - start)
    return best


def _masks(prefix_bits: int, count: int) -> Words:
    """Return masks of at most two of the leading bits, none among them."""
    most = 0 if count == 1 else 2
    masks = TableLookup(0, prefix_bits, most).masks
    picked = np.random.default_rng(1).permutation(len(masks) - 1)[: count - 1] + 1
    return np.sort(masks[np.append(picked, 0)])


def _fit(rows: list[Work], times: list[float]) -> npt.NDArray[np.float64]:
    """Return the prices, none below zero, that explain the times with the least squares of relative errors."""
    scale = np.array(times)
    shares = np.array(rows) / scale[:, None]
    used = list(range(shares.shape[1]))
    while True:
        prices = np.zeros(shares.shape[1])
        prices[used] = np.linalg.lstsq(shares[:, used], np.ones(len(times)), rcond=None)[0]
        if (prices >= 0).all():
            return prices
        used.remove(int(np.argmin(prices)))


def _measured(bench: Bench, size: int) -> list[tuple[Result, Work]]:
    """Time look-ups in one table: for each case its figures, with nanoseconds by instruction set, and the work expected of it."""
    table = bench.store("flip-1", "uniform", size, radius=0).kernel_tables[0]
    per_block = table.fingerprint_count / table.block_count
    keys = bench.queries("uniform", size, BATCH_QUERIES)
    cases: list[tuple[Result, Work]] = []
    runs = []
    for found, count in ((f, v) for f in ENTRIES_LOG2 for v in VARIANTS if size - f > 4):
        # A run that would take long has fewer queries, one look-up of each.
        queries = keys[: min(len(keys), max(int(MOST_ENTRIES / 2.0**found / count), 1))]
        if len(queries) < len(keys) and count > 1:
            continue
        prober = _kernel.Prober()
        prober.add(table, size - found, min(count - 1, 2), _masks(size - found, count))
        *_, opened, _ = prober.probe(queries, 3)
        lookups = len(queries) * count
        expected = work(table.fingerprint_count, per_block, 2.0**found, lookups)
        figures = {"log2": size, "entries": 2.0**found, "queries": len(queries), "lookups": count}
        cases.append(({**figures, "blocks": round(opened / lookups, 2), "blocks_expected": round(expected.blocks, 2)}, expected))
        runs.append(partial(prober.probe, queries, 3))
    for isa in _isas():
        _kernel.select_isa(isa)
        for (figures, _), took in zip(cases, _least(runs, bench.repeats), strict=True):
            figures[isa] = round(max(took / figures["queries"] / figures["lookups"] * 1e9, 1e-3), 1)
    bench.forget()
    return cases


def _scanned(bench: Bench, size: int) -> Result:
    """Time a scan with a batch of queries: nanoseconds per query and entry, by instruction set."""
    table = bench.store("flip-1", "uniform", size, radius=0).kernel_tables[0]
    queries = bench.queries("uniform", size, SCANNED_QUERIES)
    out: Result = {"log2": size, "queries": len(queries)}
    for isa in _isas():
        _kernel.select_isa(isa)
        least = _least([partial(table.scan, queries, 8, 0, table.block_count)], bench.repeats)[0]
        out[isa] = round(least / len(queries) / table.fingerprint_count * 1e9, 3)
    bench.forget()
    return out


def costs(bench: Bench) -> Result:
    """Fit the constants of the planner to look-ups in one table that meet 1/4 to 16,384 entries, and to scans."""
    chosen = _kernel.isa()
    try:
        cases = [case for size in bench.sizes(*SIZES) for case in _measured(bench, size)]
        scans = [_scanned(bench, size) for size in bench.sizes(*SIZES)]
    finally:
        _kernel.select_isa(chosen)
    rows = [expected for _, expected in cases]
    out: Result = {"assumed": {**NANOSECONDS._asdict(), "scan": SCAN_ENTRY_NS}, "scans": scans}
    for isa in _isas():
        times = [figures[isa] for figures, _ in cases]
        prices = _fit(rows, times)
        errors = np.array(rows) @ prices / np.array(times)
        out[isa] = {
            "nanoseconds": {name: round(float(price), 2) for name, price in zip(Work._fields, prices, strict=True)},
            "fitted_to_measured": {str(share): round(float(np.quantile(errors, share)), 2) for share in (0, 0.1, 0.5, 0.9, 1)},
        }
    return {**out, "points": [figures for figures, _ in cases]}


def _contenders(plans: list[Plan]) -> list[Plan]:
    """Return the choice, the smaller designs, and the fastest; not those that are slower by far."""
    best = plans[0]
    within = [p for p in plans if p.microseconds < best.microseconds * SLOWEST]
    smaller = [p for p in within if p.bytes_per_fingerprint < best.bytes_per_fingerprint]
    fastest = sorted(within, key=lambda p: p.microseconds)[:FASTEST]
    return list({p.name: p for p in (best, *smaller, *fastest)}.values())


def _judged(plans: list[Plan], took: dict[str, float]) -> Result:
    """Say how good a choice the first plan was by measured times."""
    choice = plans[0]
    measured = {p.name: weighted_cost(replace(p, microseconds=max(took[p.name], 1e-3))) for p in plans}
    best = min(plans, key=lambda p: measured[p.name])
    beaten = [
        p.name
        for p in plans
        if p.bytes_per_fingerprint * 2 < choice.bytes_per_fingerprint
        and took[p.name] * SLACK <= took[choice.name] * SPEED_FOR_TWICE_THE_BYTES
    ]
    return {"best": best.name, "chosen_to_best": ratio(measured[choice.name], measured[best.name]), "beaten_by": beaten}


def _ranked(bench: Bench, size: int, radius: int) -> Result:
    plans = _contenders(fpstore.plan(1 << size, radius, memory_budget=1 << 62))
    queries: Words = bench.queries("uniform", size, BATCH_QUERIES)
    stores = [bench.store(p.name, "uniform", size, radius=radius) for p in plans]
    out: dict[str, Any] = {
        p.name: {"bytes_per_fingerprint": round(p.bytes_per_fingerprint, 1), "predicted": round(p.microseconds, 2)} for p in plans
    }
    result: Result = {"chosen": plans[0].name, "designs": out}
    for isa in _isas():
        _kernel.select_isa(isa)
        least = _least([partial(s.probe_many, queries, threads=1) for s in stores], bench.repeats)
        took = {p.name: microseconds(t, len(queries)) for p, t in zip(plans, least, strict=True)}
        for p in plans:
            out[p.name][isa] = {"microseconds": took[p.name], "predicted_to_measured": ratio(p.microseconds, took[p.name])}
        result[isa] = _judged(plans, took)
    bench.forget()
    return result


def ranking(bench: Bench) -> Result:
    """Compare what `auto` takes at each radius with the designs that could be better: predicted and measured times."""
    chosen = _kernel.isa()
    radii = (1, 3) if bench.smoke else range(1, lookup_radius(64) + 1)
    try:
        return {f"2^{size}": {f"radius {r}": _ranked(bench, size, r) for r in radii} for size in bench.sizes(*RANKED_SIZES)}
    finally:
        _kernel.select_isa(chosen)
