"""The operation cold: single probes after the files of the store were dropped from the page cache."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import random
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import fpstore
from bench.answers import check_store
from bench.harness import Bench, Result, kernel_tables, ratio
from fpstore import _kernel

PAGE = mmap.PAGESIZE
PROBES = 4  # a repeat
SETTLE_SECONDS = 0.1


class Cache:
    """How many pages of the files of a folder are in the page cache."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
        self._mincore = ctypes.CDLL(None, use_errno=True).mincore
        self._mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]

    def drop(self, ends: dict[str, int] | None = None) -> int:
        """Drop all, or the front of some files by name; return the pages that stayed."""
        for path in self.files:
            end = 0 if ends is None else ends.get(str(path), 0) // PAGE * PAGE
            if ends is None or end:
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, end, os.POSIX_FADV_DONTNEED)
        return sum(self.resident().values())

    def resident(self) -> dict[str, int]:
        """Return the resident pages of each file."""
        return {str(path): self._pages(path) for path in self.files}

    def _pages(self, path: Path) -> int:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            snapshot = np.frombuffer(mapped, np.uint8)
            pages = np.zeros(-(-len(mapped) // PAGE), np.uint8)
            if self._mincore(snapshot.ctypes.data, len(mapped), pages.ctypes.data):
                raise OSError(ctypes.get_errno(), "mincore")
            del snapshot
        return int(np.count_nonzero(pages & 1))

    def settled(self) -> dict[str, int]:
        """Wait until the pages that opening asked for have been read."""
        last = self.resident()
        while True:
            time.sleep(SETTLE_SECONDS)
            now = self.resident()
            if now == last:
                return now
            last = now


def cold(bench: Bench) -> Result:
    """Single probes from disk: time, major faults, pages read against blocks touched; the index of the tables is resident."""
    log2 = bench.log2()
    out: Result = {"n": 1 << log2, "page_bytes": PAGE}
    for design in bench.designs("manku-10", "flip-2"):
        store = bench.store(design, "uniform", log2, filter=False)
        checked = check_store(store, bench.queries("uniform", log2))
        path = store.path
        store.close()
        del store
        gc.collect()
        cache = Cache(path)
        stayed = cache.drop()
        if stayed:
            out[design] = {"skipped": f"{stayed} pages stay in the page cache: is the folder on a file system in memory?"}
        else:
            out[design] = {"answers_checked": checked, **_measure(bench, cache, path, log2)}
        bench.forget()
    return out


def _measure(bench: Bench, cache: Cache, path: Path, log2: int) -> Result:
    queries = bench.queries("uniform", log2, 2 * PROBES * bench.repeats)[: 2 * PROBES * bench.repeats]
    read = _page_read_seconds(cache, len(queries))
    tables = [_probe(cache, path, query, with_ids=False) for query in queries[0::2]]
    whole = [_probe(cache, path, query, with_ids=True) for query in queries[1::2]]

    def middle(probes: list[dict[str, Any]], name: str) -> float:
        return float(statistics.median(p[name] for p in probes))

    blocks = sum(p["blocks"] for p in tables)
    return {
        "probes": len(tables),
        "one_page_read_microseconds": round(read * 1e6, 1),
        "tables_only_microseconds": round(middle(tables, "seconds") * 1e6, 1),
        "blocks_touched": middle(tables, "blocks"),
        "pages_read": middle(tables, "pages"),
        "pages_read_to_blocks_touched": ratio(sum(p["pages"] for p in tables), blocks, 3),
        "major_faults": middle(tables, "faults"),
        # 1: one read after the other; the larger, the more reads are under way at a time.
        "reads_overlapped": ratio(read * blocks, sum(p["seconds"] for p in tables)),
        "with_ids": {
            "microseconds": round(middle(whole, "seconds") * 1e6, 1),
            "pages_read": middle(whole, "pages"),
            "id_pages_read": middle(whole, "id_pages"),
            "major_faults": middle(whole, "faults"),
        },
        "open_microseconds": round(middle([*tables, *whole], "open_seconds") * 1e6, 1),
        "resident_pages_after_open": middle([*tables, *whole], "opened_pages"),
        "resident_pages_before_probe": middle([*tables, *whole], "before_pages"),
    }


def _probe(cache: Cache, path: Path, query: np.uint64, with_ids: bool) -> dict[str, Any]:
    """Drop the cache, open the store, and probe once."""
    gc.collect()
    cache.drop()
    start = time.perf_counter()
    store = fpstore.open(path)
    open_seconds = time.perf_counter() - start
    prober = _kernel.Prober()
    for lookup in store.design.lookups(len(store)):
        prober.add(kernel_tables(store)[lookup.table], lookup.prefix_bits, lookup.flips, lookup.masks)
    words, number = np.array([query], np.uint64), int(query)
    opened = sum(cache.settled().values())
    # What opening read ahead of the blocks goes again; the index stays.
    cache.drop({table.path: table.keys_offset for table in kernel_tables(store)})
    before = cache.resident()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    start = time.perf_counter()
    if with_ids:
        store.probe(number)
    else:
        prober.probe(words, store.radius)
    seconds = time.perf_counter() - start
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults
    after = cache.settled()
    pages = {
        kind: sum(n - before[f] for f, n in after.items() if f.endswith(".fpt") == (kind == "table")) for kind in ("table", "id")
    }
    blocks = prober.probe(words, store.radius)[3]
    store.close()
    return {
        "seconds": seconds, "faults": faults, "pages": pages["table"], "id_pages": pages["id"], "blocks": blocks,
        "open_seconds": open_seconds, "opened_pages": opened, "before_pages": sum(before.values()),
    }  # fmt: skip


def _page_read_seconds(cache: Cache, count: int) -> float:
    """Median time to read one page of the largest file that is not in the page cache."""
    path = max(cache.files, key=lambda p: p.stat().st_size)
    rng = random.Random(1)
    times = []
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for page in rng.sample(range(path.stat().st_size // PAGE), min(count, path.stat().st_size // PAGE)):
            start = time.perf_counter()
            os.pread(file.fileno(), PAGE, page * PAGE)
            times.append(time.perf_counter() - start)
    return statistics.median(times)
