"""Work done in a process of its own, so that its memory can be measured.

A JSON task in, a JSON result out.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fpstore
from bench import banded, data, tasked
from bench.data import Words
from bench.harness import Peak, Result, status_bytes


class Chunks:
    """A source that tells its size and holds one chunk at a time."""

    def __init__(self, seed: int, log2: int, extra: int = 0, salt: int = 0) -> None:
        self.rows = (1 << log2) + extra
        self._seed, self._log2 = seed, log2
        self._extra, self._salt = extra, salt

    def __iter__(self) -> Iterator[Words]:
        yield from data.chunks(self._seed, self._log2)
        if self._extra:
            yield data.random_words(np.random.default_rng([self._seed, self._salt]), self._extra)


def build(task: Result) -> Result:
    """Build a store of the uniform set from chunks."""
    before = status_bytes("VmRSS")
    with Peak() as peak:
        start = time.perf_counter()
        source = Chunks(task["seed"], task["log2"], task.get("extra", 0), task.get("extra_salt", 0))
        fpstore.build(
            task["path"],
            source,
            design=task["design"],
            memory=task["memory"],
            threads=task["threads"],
        ).close()
        took = time.perf_counter() - start
    return {
        "seconds": round(took, 3),
        # Not ru_maxrss: it is inherited from the process that started this one.
        "peak_resident_bytes": status_bytes("VmHWM"),
        "peak_anonymous_bytes": peak.bytes,
        "resident_before_bytes": before,
    }


def merge(task: Result) -> Result:
    """Merge a store's delta."""
    with fpstore.open(task["path"], "r+") as store:
        before = status_bytes("RssAnon")
        with Peak() as peak:
            start = time.perf_counter()
            store.merge(memory=task["memory"], threads=task["threads"])
            took = time.perf_counter() - start
        return {
            "seconds": round(took, 3),
            "peak_anonymous_bytes": peak.bytes,
            "anonymous_before_bytes": before,
            "generation": store.stats()["generation"],
        }


def change(task: Result) -> Result:
    """Insert batches of 1,000, and merge in the midst of them, in a thread of its own."""
    rng = np.random.default_rng([task["seed"], 1 << 43])
    times: list[float] = []
    last: list[float] = []
    ended: list[float] = []

    def merge() -> None:
        store.merge()
        ended.append(time.time())

    with fpstore.open(task["path"], "r+") as store:
        merging = threading.Thread(target=merge)
        for batch in range(task["batches"]):
            if batch == task["batches"] // 2:
                merging.start()
            fresh = data.random_words(rng, 1000)
            start = time.perf_counter()
            store.insert(fresh)
            times.append(time.perf_counter() - start)
            last.append(time.time())
        merging.join()
    return {
        "merge_ended": ended[0],
        "longest_batch_at_the_end_milliseconds": round(longest_at(ended[0], last, times) * 1e3, 1),
        "inserted": 1000 * task["batches"],
        "seconds": round(sum(times), 3),
        "batch_milliseconds": round(statistics.median(times) * 1e3, 3),
        "longest_batch_milliseconds": round(max(times) * 1e3, 1),
    }


def longest_at(moment: float, ends: list[float], seconds: list[float]) -> float:
    """Return the longest call under way between 0.5 s before a moment and 1 s after it."""
    near = (
        took
        for end, took in zip(ends, seconds, strict=True)
        if end > moment - 0.5 and end - took < moment + 1
    )
    return max(near, default=0.0)


def batches(task: Result) -> Result:
    """Answer the same batch again and again, in one thread: the seconds of each time."""
    queries = np.load(task["queries"])
    times = []
    with fpstore.open(task["path"]) as store:
        for _ in range(task["repeats"] + 1):
            start = time.perf_counter()
            store.probe_many(queries, threads=1)
            times.append(time.perf_counter() - start)
    return {"seconds": times}


def open_store(task: Result) -> Result:
    """Open a store several times, and probe it."""
    path = Path(task["path"])
    fields = ("RssAnon", "RssFile")
    times = []
    for _ in range(task["repeats"]):
        before = [status_bytes(field) for field in fields]
        start = time.perf_counter()
        store = fpstore.open(path)
        times.append(time.perf_counter() - start)
        opened = [status_bytes(field) for field in fields]
        if len(times) < task["repeats"]:
            store.close()
    queries = data.near(task["seed"], data.sample(task["seed"], task["log2"], 1000), 1000)
    store.probe_many(queries, threads=1)
    probed = [status_bytes(field) for field in fields]
    return {
        "open_milliseconds": round(statistics.median(times) * 1e3, 3),
        "first_open_milliseconds": round(times[0] * 1e3, 3),
        "resident_growth_bytes": dict(
            zip(fields, (b - a for a, b in zip(before, opened, strict=True)), strict=True)
        ),
        "resident_growth_after_1000_probes_bytes": dict(
            zip(fields, (b - a for a, b in zip(before, probed, strict=True)), strict=True)
        ),
    }


def dedup(task: Result) -> Result:
    """Deduplicate a file on two threads."""
    options: Any = {} if task["memory"] is None else {"memory": task["memory"]}
    fpstore.dedup(task["path"], task["output"], text="text", threads=2, overwrite=True, **options)
    return {"peak_resident_bytes": status_bytes("VmHWM")}


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    work = {
        "build": build,
        "open": open_store,
        "merge": merge,
        "change": change,
        "batches": batches,
        "bands": banded.one_size,
        "dedup": dedup,
        "tasks-dedup": tasked.dedup_once,
        "tasks-store": tasked.build_once,
    }
    print(json.dumps(work[task["do"]](task)))
