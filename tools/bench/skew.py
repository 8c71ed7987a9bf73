"""The operation skew: sets that are unkind to tables of leading bits."""

from __future__ import annotations

import shutil
import statistics
import time

import numpy as np

import fpstore
from bench import data
from bench.answers import check_store
from bench.data import Words
from bench.harness import Bench, Result, microseconds, ratio


def skew(bench: Bench) -> Result:
    """Build and probe skewed sets, relative to uniform keys of the same number."""
    log2 = bench.log2(22)
    out: Result = {"rows": 1 << log2}
    for design in bench.designs("manku-10", "flip-2"):
        base = _measure(bench, design, bench.keys("uniform", log2))
        out[design] = {"uniform": base}
        for name, make in data.SKEWS.items():
            figures = _measure(bench, design, make(bench.seed, log2))
            for field in ("build_nanoseconds_per_row", "bits_per_fingerprint", "microseconds"):
                figures[f"{field}_to_uniform"] = ratio(figures[field], base[field])
            out[design][name] = figures
    return out


def _measure(bench: Bench, design: str, keys: Words) -> Result:
    path = bench.folder / "skew.fps"
    times = []
    for _ in range(1 if bench.smoke else bench.repeats):
        start = time.perf_counter()
        store = fpstore.build(path, keys, design=design, overwrite=True)
        times.append(time.perf_counter() - start)
        store.close()
    with fpstore.open(path) as store:
        queries = data.near(bench.seed, keys, 256 if bench.smoke else bench.options.query_count)
        batch = bench.fitting(lambda q: store.probe_many(q, threads=1), queries)
        checked = check_store(store, queries, keys)
        took = bench.seconds(lambda: store.probe_many(batch, threads=1))
        matches = store.probe_many(batch, threads=1)
        stats = store.stats()
        count = len(matches.fingerprints)
        out = {
            "distinct": len(store),
            "build_nanoseconds_per_row": round(statistics.median(times) / len(keys) * 1e9, 1),
            "bits_per_fingerprint": round(stats["bits_per_fingerprint"], 3),
            "queries": len(batch),
            "microseconds": microseconds(took, len(batch)),
            "matches_per_query": round(count / len(batch), 2),
            "most_matches": int(np.diff(matches.lims).max()),
            "microseconds_per_match": microseconds(took, count, 4),
            "answers_checked": checked,
        }
    shutil.rmtree(path)
    return out
