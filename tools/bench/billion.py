"""The operation billion: one large store on one small machine, from build to verify.

Everything is deleted afterwards.
"""

from __future__ import annotations

import shutil
import time

import fpstore
from bench.harness import Bench, Result, folder_bytes, microseconds, ratio, run_child
from bench.single import SINGLE_QUERIES, single_times
from bench.streamed import check_streamed


def billion(bench: Bench) -> Result:
    """2^30 uniform keys (`--log2`), dense ids, flip-2, `--memory` 4GiB.

    Build, size, open, probe, verify.
    """
    log2 = bench.log2(30)
    design = bench.designs("flip-2")[0]
    if reason := bench.no_room(design, log2):
        return {"skipped": reason}
    n = 1 << log2
    path = bench.folder / "billion.fps"
    memory = bench.options.memory or "4GiB"
    free = shutil.disk_usage(bench.folder).free
    task = {
        "do": "build",
        "path": str(path),
        "seed": bench.seed,
        "log2": log2,
        "design": design,
        "memory": memory,
        "threads": None,
    }
    out: Result = {"n": n, "design": design, "memory": memory, "free_disk_bytes": free}
    out["build"] = run_child(task, bench.folder)
    out["build"]["nanoseconds_per_fingerprint"] = round(out["build"]["seconds"] / n * 1e9, 1)
    out["build"]["peak_disk_bytes_per_fingerprint"] = ratio(out["build"]["peak_disk_bytes"], n)
    task = {
        "do": "open",
        "path": str(path),
        "seed": bench.seed,
        "log2": log2,
        "repeats": bench.repeats,
    }
    out["open"] = run_child(task)
    queries = bench.queries("uniform", log2)
    with fpstore.open(path) as store:
        stats = store.stats()
        out["bytes"] = {**stats["bytes"], "on_disk": folder_bytes(path)}
        out["bytes_per_fingerprint"] = {
            k: round(v, 3) for k, v in stats["bytes_per_fingerprint"].items()
        }
        out["bits_per_fingerprint"] = round(stats["bits_per_fingerprint"], 3)
        out["limit_bits_per_fingerprint"] = round(stats["limit_bits_per_fingerprint"], 3)
        out["answers_checked"] = check_streamed(store, bench.seed, log2)
        median, tail = single_times(bench, store, queries[:SINGLE_QUERIES])
        out["single"] = {"median_microseconds": median, "p99_microseconds": tail}
        batch = bench.fitting(lambda q: store.probe_many(q, threads=1), queries)
        one = bench.seconds(lambda: store.probe_many(batch, threads=1))
        two = bench.seconds(lambda: store.probe_many(batch, threads=2))
        out["probe_many"] = {
            "queries": len(batch),
            "microseconds": microseconds(one, len(batch)),
            "two_threads_microseconds": microseconds(two, len(batch)),
            "two_threads_ratio": ratio(one, two),
        }
        start = time.perf_counter()
        report = store.verify()
        took = time.perf_counter() - start
        assert report.ok, report.faults
        assert report.ids == n, f"{report.ids} ids of {n} rows"
        out["verify"] = {
            "seconds": round(took, 3),
            "nanoseconds_per_fingerprint": round(took / n * 1e9, 1),
        }
    shutil.rmtree(path)
    return out
