"""The planner against the clock: costs (the constants of its model) and ranking (its choices)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import fpstore
from bench.data import Words
from bench.far import KINDS, near
from bench.harness import SMOKE_LOG2, Bench, Result, kernel_tables, microseconds, ratio
from fpstore import _kernel
from fpstore.base.width import Width
from fpstore.building.builder import BuildOptions, build_store
from fpstore.design.blocks import CODECS
from fpstore.design.costs import (
    BATCH_QUERIES,
    NANOSECONDS,
    SCAN_ENTRY_NS,
    SPEED_FOR_TWICE_THE_BYTES,
    ProbeWork,
    block_work,
)
from fpstore.design.estimates import Plan
from fpstore.design.planner import weighted_cost
from fpstore.design.sample import sample_evenly
from fpstore.design.tables import TableLookup

SIZES = (20, 22, 24)
SCANNED_SIZES = (20, 22)
ENTRIES_LOG2 = (-2, 0, 2, 4, 5, 6, 7, 8, 10, 12, 14)  # that a look-up meets
VARIANTS = (1, 4, 16, 64)  # look-ups of a query, with up to two flips
MAX_ENTRIES = 1 << 23  # of one timed run
FASTEST = 3  # designs that are ranked because they are predicted to be among the fastest
MAX_BYTES = 400.0  # no design that takes more is ranked
SINGLE = 1 << 8  # queries that are asked one at a time
PROBE_MICROSECONDS = 1.2  # what every single probe takes, with its ids
SLOWEST = 8.0  # and those slower than the choice by so much are not
SCANNED_QUERIES = 1 << 8  # of one kernel call, as in a batch
SLACK = 1.25  # what noise may do to a ratio of measured times


def isas() -> list[str]:
    return [isa for isa in ("avx2", "avx512") if isa in _kernel.available_isas()] or [_kernel.isa()]


def least(runs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Return the least processor time of each, taken in turn.

    The machine may be shared, and what others do only adds.
    """
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


def fitted(rows: Sequence[tuple[float, ...]], times: list[float]) -> npt.NDArray[np.float64]:
    """Return the prices, none below zero, with the least squares of relative errors."""
    scale = np.array(times)
    shares = np.array(rows) / scale[:, None]
    used = list(range(shares.shape[1]))
    while True:
        prices = np.zeros(shares.shape[1])
        prices[used] = np.linalg.lstsq(shares[:, used], np.ones(len(times)), rcond=None)[0]
        if (prices >= 0).all():
            return prices
        used.remove(int(np.argmin(prices)))


def _measured(bench: Bench, size: int, codec: str) -> list[tuple[Result, ProbeWork]]:
    """Time look-ups in one table.

    For each case its figures, with nanoseconds by instruction set, and the work expected of it.
    """
    table = kernel_tables(bench.store("flip-1", "uniform", size, radius=0, codec=codec))[0]
    per_block = table.fingerprint_count / table.block_count
    keys = bench.queries("uniform", size, BATCH_QUERIES)
    cases: list[tuple[Result, ProbeWork]] = []
    runs = []
    for log2, count in ((f, v) for f in ENTRIES_LOG2 for v in VARIANTS if size - f > 4):
        # A run that would take long has fewer queries, one look-up of each.
        queries = keys[: min(len(keys), max(int(MAX_ENTRIES / 2.0**log2 / count), 1))]
        if len(queries) < len(keys) and count > 1:
            continue
        prober = _kernel.Prober()
        prober.add(table, size - log2, min(count - 1, 2), _masks(size - log2, count))
        *_, opened, _ = prober.probe(queries, 3)
        lookups = len(queries) * count
        expected = block_work(table.fingerprint_count, per_block, 2.0**log2, lookups)
        figures = {"log2": size, "entries": 2.0**log2, "queries": len(queries), "lookups": count}
        cases.append(
            (
                {
                    **figures,
                    "blocks": round(opened / lookups, 2),
                    "blocks_expected": round(expected.blocks, 2),
                },
                expected,
            )
        )
        runs.append(partial(prober.probe, queries, 3))
    for isa in isas():
        _kernel.select_isa(isa)
        for (figures, _), took in zip(cases, least(runs, bench.repeats), strict=True):
            figures[isa] = round(max(took / figures["queries"] / figures["lookups"] * 1e9, 1e-3), 1)
    bench.forget()
    return cases


def _scanned(bench: Bench, size: int, width: int) -> Result:
    """Time a scan with a batch of queries and with one.

    Nanoseconds per query and entry, by instruction set.
    """
    rng = np.random.default_rng([bench.seed, width])
    rows = rng.integers(0, 256, (1 << size, width // 8), np.uint8)
    path = bench.folder / "scanned.fps"
    fpstore.build(path, rows, width=width, radius=0, overwrite=True).close()
    store = fpstore.open(path)
    table = kernel_tables(store)[0]
    queries = Width(width).from_bytes(rng.integers(0, 256, SCANNED_QUERIES * width // 8, np.uint8))
    out: Result = {"log2": size, "width": width, "queries": len(queries)}
    for isa in isas():
        _kernel.select_isa(isa)
        runs = [
            partial(table.scan, rows, 8, 0, table.block_count) for rows in (queries, queries[:1])
        ]
        many, single = least(runs, bench.repeats)
        out[isa] = round(many / len(queries) / table.fingerprint_count * 1e9, 3)
        out[f"{isa}, single"] = round(single / table.fingerprint_count * 1e9, 3)
    store.close()
    shutil.rmtree(path)
    return out


def costs(bench: Bench) -> Result:
    """Fit the constants of the planner to look-ups of 1/4 to 16,384 entries, and to scans."""
    chosen = _kernel.isa()
    try:
        cases = {
            codec: [case for size in bench.sizes(*SIZES) for case in _measured(bench, size, codec)]
            for codec in CODECS
        }
        scans = [
            _scanned(bench, size, width)
            for size in bench.sizes(*SCANNED_SIZES)
            for width in (64, 128, 256)
        ]
    finally:
        _kernel.select_isa(chosen)
    out: Result = {
        codec: _fitted_to(NANOSECONDS[codec], measured) for codec, measured in cases.items()
    }
    return {**out, "assumed of a scan": SCAN_ENTRY_NS, "scans": scans}


def _fitted_to(assumed: ProbeWork, cases: list[tuple[Result, ProbeWork]]) -> Result:
    """Fit the prices to the measured times of a codec, for each instruction set."""
    rows = [expected for _, expected in cases]
    out: Result = {"assumed": assumed._asdict()}
    for isa in isas():
        times = [figures[isa] for figures, _ in cases]
        prices = fitted(rows, times)
        errors = np.array(rows) @ prices / np.array(times)
        out[isa] = {
            "nanoseconds": {
                name: round(float(price), 2)
                for name, price in zip(ProbeWork._fields, prices, strict=True)
            },
            "fitted_to_measured": {
                str(share): round(float(np.quantile(errors, share)), 2)
                for share in (0, 0.1, 0.5, 0.9, 1)
            },
        }
    return {**out, "points": [figures for figures, _ in cases]}


class Ranked(NamedTuple):
    """A set, and the radii at which choices are judged."""

    width: int
    log2: int
    kind: str
    radii: tuple[int, ...]


RANKED = (
    *(Ranked(64, log2, kind, (3, 5, 8, 10, 12)) for log2 in (16, 20) for kind in KINDS),
    Ranked(64, 22, "uniform", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)),
    Ranked(64, 22, "picture", (5, 8, 10, 12)),
    Ranked(64, 24, "uniform", (3, 5, 8, 12)),
    Ranked(64, 24, "picture", (8, 12)),
    Ranked(64, 26, "uniform", (3, 8)),
    Ranked(32, 20, "uniform", (2, 4, 6)),
    Ranked(128, 20, "uniform", (3, 6, 10, 16)),
    *(Ranked(256, 20, kind, (15, 31, 40)) for kind in ("uniform", "picture")),
)


def _contenders(plans: list[Plan]) -> list[Plan]:
    """Return the choice, the smaller designs, and the fastest; not those that are slower by far."""
    best = plans[0]
    within = [
        p
        for p in plans
        if p.mean_microseconds < best.mean_microseconds * SLOWEST
        and p.bytes_per_fingerprint < MAX_BYTES
    ]
    smaller = sorted(
        (p for p in within if p.bytes_per_fingerprint < best.bytes_per_fingerprint),
        key=weighted_cost,
    )[:FASTEST]
    fastest = sorted(within, key=lambda p: p.mean_microseconds)[:FASTEST]
    return list({p.name: p for p in (best, *smaller, *fastest)}.values())


def _judged(plans: list[Plan], took: dict[str, tuple[float, float]]) -> Result:
    """Say how good a choice the first plan was by measured times."""
    measured = {
        p.name: replace(p, microseconds=took[p.name][0], single_microseconds=took[p.name][1])
        for p in plans
    }
    choice, best = measured[plans[0].name], min(measured.values(), key=weighted_cost)
    beaten = [
        p.name
        for p in measured.values()
        if p.bytes_per_fingerprint * 2 < choice.bytes_per_fingerprint
        and p.mean_microseconds * SLACK <= choice.mean_microseconds * SPEED_FOR_TWICE_THE_BYTES
    ]
    return {
        "best": best.name,
        "chosen_to_best": ratio(weighted_cost(choice), weighted_cost(best)),
        "beaten_by": beaten,
    }


def _one_by_one(store: fpstore.Store, queries: list[int]) -> None:
    for query in queries:
        store.probe(query)


def _ranked(bench: Bench, case: Ranked, rows: Any, radius: int) -> Result:
    width = Width(case.width)
    sample = sample_evenly(rows, 1 << 16)
    plans = _contenders(
        fpstore.plan(len(rows), radius, memory_budget=1 << 62, width=case.width, sample=sample)
    )
    near_rows = near(
        np.random.default_rng([bench.seed, radius]),
        rows,
        64 if bench.smoke else BATCH_QUERIES,
        radius,
    )
    queries = width.to_array(width.from_bytes(near_rows.reshape(-1)))
    alone = width.numbers(width.from_bytes(near_rows[:SINGLE].reshape(-1)))
    stores = []
    for p in plans:
        path = bench.folder / f"{p.name}.fps"
        options = BuildOptions(radius, case.width, p.design)
        build_store(path, rows, None, options, overwrite=True)
        stores.append(fpstore.open(path))
    out: dict[str, Any] = {
        p.name: {
            "bytes_per_fingerprint": round(p.bytes_per_fingerprint, 1),
            "predicted": [round(p.microseconds, 2), round(p.single_microseconds, 2)],
        }
        for p in plans
    }
    result: Result = {"chosen": plans[0].name, "designs": out}
    for isa in isas():
        _kernel.select_isa(isa)
        batch = least([partial(s.probe_many, queries, threads=1) for s in stores], bench.repeats)
        single = least([partial(_one_by_one, s, alone) for s in stores], bench.repeats)
        took = {
            p.name: (
                microseconds(b, len(queries)),
                max(microseconds(s, len(alone)) - PROBE_MICROSECONDS, 0.1),
            )
            for p, b, s in zip(plans, batch, single, strict=True)
        }
        for p in plans:
            out[p.name][isa] = took[p.name]
        result[isa] = _judged(plans, took)
    for store in stores:
        store.close()
        shutil.rmtree(store.path)
    return result


def ranking(bench: Bench) -> Result:
    """Compare what `auto` takes at each radius with the designs that could be better.

    Predicted and measured times.
    """
    chosen = _kernel.isa()
    out: Result = {}
    try:
        for case in RANKED:
            if bench.options.log2 not in (None, case.log2) or bench.options.width not in (
                None,
                case.width,
            ):
                continue  # --log2 and --width take the cases of one size and width
            log2 = SMOKE_LOG2 if bench.smoke else case.log2
            name = f"{case.width} bits, 2^{log2} {case.kind}"
            if name in out:
                continue  # of a smoke run: all sizes are alike
            rows = KINDS[case.kind](
                np.random.default_rng([bench.seed, case.width]), 1 << log2, case.width
            )
            out[name] = {
                f"radius {r}": _ranked(bench, case, rows, r)
                for r in case.radii[: 1 if bench.smoke else None]
            }
    finally:
        _kernel.select_isa(chosen)
    return out
