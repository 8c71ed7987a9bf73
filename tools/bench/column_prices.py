"""The operation column-costs.

The prices of the planner's model of column tables, fitted to probes of one query and of many.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import NamedTuple

import numpy as np

import fpstore
from bench.far import KINDS, near
from bench.harness import Bench, Result, microseconds, ratio
from bench.planning import fitted, isas, least
from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.width import Width
from fpstore.design.costs import (
    COLUMN_NANOSECONDS,
    LINE_TAGS,
    ColumnWork,
    column_work,
    missed_share,
)
from fpstore.design.sample import Sample, sample_evenly
from fpstore.store import store_snapshot

SAMPLE = 1 << 16
SINGLE = 1 << 8  # queries that are asked one at a time
MAX_ENTRIES = 1 << 26  # whose tags one timed run compares


class Case(NamedTuple):
    """A store, and the radii of its probes."""

    width: int
    log2: int
    kind: str
    design: str
    radius: int
    radii: tuple[int, ...]


CASES = (
    *(Case(64, log2, "uniform", "columns-4", 12, (3, 5, 7, 8, 10, 12)) for log2 in (20, 22, 24)),
    *(Case(64, log2, "uniform", "columns-3-19", 10, (2, 3, 5, 6, 8, 10)) for log2 in (20, 22, 24)),
    Case(64, 24, "uniform", "columns-2-19", 5, (1, 3, 5)),
    Case(64, 22, "picture", "columns-4", 12, (5, 8, 10, 12)),
    Case(64, 24, "picture", "dealt-4-16", 12, (5, 8, 10, 12)),
    Case(128, 22, "uniform", "columns-7-18", 14, (6, 10, 12, 14)),
    Case(128, 24, "uniform", "columns-8", 14, (6, 10, 14)),
    Case(256, 22, "uniform", "columns-16", 40, (15, 24, 31, 40)),
    Case(256, 22, "picture", "columns-12", 31, (11, 20, 31)),
)


def column_prices(bench: Bench) -> Result:
    """Fit the prices to the work that the kernel counts, and compare with the expected work."""
    points: list[Result] = []
    works: list[ColumnWork] = []
    for case in CASES:
        for point, work in _measured(bench, case):
            points.append(point)
            works.append(work)
    out: Result = {"assumed": COLUMN_NANOSECONDS._asdict()}
    for isa in isas():
        for how in ("batch", "single"):
            times = [point[isa][how] * 1000 for point in points]
            prices = fitted(works, times)
            errors = np.array(works) @ prices / np.array(times)
            shares = {
                str(share): round(float(np.quantile(errors, share)), 2)
                for share in (0, 0.1, 0.5, 0.9, 1)
            }
            named = {
                name: round(float(price), 2)
                for name, price in zip(ColumnWork._fields, prices, strict=True)
            }
            out[f"{isa}, {how}"] = {"nanoseconds": named, "fitted_to_measured": shares}
    return {**out, "points": points}


def _counts(prober: _kernel.ColumnProber, queries: Words, radius: int) -> tuple[int, int, int]:
    """Return how many look-ups, comparisons of tags and distances a probe took."""
    answer = prober.probe(queries, radius)
    assert answer is not None
    return answer[3]


def _one_by_one(prober: _kernel.SingleProber, queries: list[int]) -> None:
    for query in queries:
        prober.probe(query)


def _measured(bench: Bench, case: Case) -> list[tuple[Result, ColumnWork]]:
    log2 = bench.log2(case.log2)
    width = Width(case.width)
    rows = KINDS[case.kind](np.random.default_rng([bench.seed, case.width]), 1 << log2, case.width)
    path = bench.folder / "columns.fps"
    out = []
    with fpstore.build(
        path, rows, width=case.width, radius=case.radius, design=case.design, overwrite=True
    ) as store:
        generation = store_snapshot(store).generation
        sample = Sample(sample_evenly(width.from_bytes(rows), SAMPLE), width)
        for radius in case.radii:
            prober = generation.prober(radius)
            one_prober = generation.single_prober(radius)
            assert isinstance(prober, _kernel.ColumnProber)
            assert one_prober is not None
            rows = near(
                np.random.default_rng([bench.seed, radius]),
                rows,
                64 if bench.smoke else 4096,
                radius,
            )
            queries = width.from_bytes(rows.reshape(-1))
            pilot = queries[:64]
            entries = _counts(prober, pilot, radius)[1] / len(pilot)
            queries = queries[: max(int(MAX_ENTRIES / max(entries, 1)), len(pilot))]
            lookups, candidates, left = (
                count / len(queries) for count in _counts(prober, queries, radius)
            )
            copies, kept = (0.0, left) if case.width > 64 else (left, 0.0)
            missed = missed_share(store.design, len(rows))
            work = ColumnWork(1.0, lookups, lookups * missed, candidates / LINE_TAGS, copies, kept)
            expected = column_work(store.design, len(rows), radius, sample)
            point: Result = {
                "case": f"{case.width} bits, 2^{log2} {case.kind}, {case.design}",
                "radius": radius,
            }
            point["work"] = {
                name: round(amount, 1)
                for name, amount in zip(ColumnWork._fields, work, strict=True)
            }
            point["expected_to_counted"] = {
                name: ratio(getattr(expected, name), getattr(work, name))
                for name in ("lookups", "lines", "copies", "rows")
                if getattr(work, name)
            }
            alone = width.numbers(queries[:SINGLE])
            for isa in isas():
                _kernel.select_isa(isa)
                batch, single = least(
                    [
                        partial(prober.probe, queries, radius),
                        partial(_one_by_one, one_prober, alone),
                    ],
                    bench.repeats,
                )
                point[isa] = {
                    "batch": microseconds(batch, len(queries)),
                    "single": microseconds(single, len(alone)),
                }
            out.append((point, work))
    shutil.rmtree(path)
    return out
