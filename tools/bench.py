"""Benchmarks of fpstore: named operations, one JSON object out with machine, ISA, seed and versions beside the figures.

    python tools/bench.py all                     # every operation of docs/benchmarks.md
    python tools/bench.py probe --log2 24         # one of them
    python tools/bench.py all --log2 14 --smoke   # small, asserts equality of answers, for CI

Figures are medians over repeated runs in one process, and ratios are taken against the rival timed in the same run.
Rivals (faiss-cpu) come with `pip install 'fpstore[bench]'`; without them the operation says so and gives its own figures alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import fpstore
from fpstore import _kernel
from fpstore.plan import limit_bits

Words = npt.NDArray[np.uint64]
Result = dict[str, Any]


class Bench:
    """What the operations share: seed, size, repeats, a scratch folder, and the stores built so far."""

    def __init__(self, log2: int, repeats: int, seed: int, folder: Path, smoke: bool) -> None:
        self.log2, self.repeats, self.seed, self.folder, self.smoke = log2, repeats, seed, folder, smoke
        self._stores: dict[str, fpstore.Store] = {}

    def keys(self, log2: int | None = None) -> Words:
        """Return uniform keys."""
        count = 1 << (self.log2 if log2 is None else log2)
        return np.random.default_rng(self.seed).integers(0, 2**64, count, dtype=np.uint64)

    def queries(self, keys: Words, count: int) -> Words:
        """Return stored keys with one to three bits flipped."""
        rng = np.random.default_rng(self.seed + 1)
        out = keys[rng.integers(0, len(keys), count)]
        for _ in range(3):
            out = out ^ (np.uint64(1) << rng.integers(0, 64, count).astype(np.uint64))
        return out

    def store(self, design: str, log2: int | None = None, **options: Any) -> fpstore.Store:
        """Return a store of :meth:`keys`, built once."""
        log2 = self.log2 if log2 is None else log2
        name = f"{design}-{log2}-" + "-".join(f"{k}{v}" for k, v in sorted(options.items()))
        if name not in self._stores:
            path = self.folder / f"{name}.fps"
            self._stores[name] = fpstore.build(path, self.keys(log2), design=design, overwrite=True, **options)
        return self._stores[name]

    def forget(self) -> None:
        """Close and remove all stores."""
        for store in self._stores.values():
            store.close()
            shutil.rmtree(store.path)
        self._stores = {}

    def seconds(self, work: Callable[[], object]) -> float:
        """Median time of the work, after one run that does not count."""
        work()
        times = []
        for _ in range(self.repeats):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def sizes(bench: Bench) -> Result:
    """All bytes of a table file per fingerprint against the limit, at blocks of 1024 bytes and the default."""
    out: Result = {}
    for log2 in (bench.log2,) if bench.smoke else (22, 24, 26):
        for block_bytes in (1024, 512):
            store = bench.store("flip-1", log2, block_bytes=block_bytes, radius=0)
            stats = store.stats()
            out[f"2^{log2}, {block_bytes}"] = {
                "bits_per_fingerprint": round(stats["bits_per_fingerprint"], 3),
                "limit_bits": round(limit_bits(len(store)), 3),
                "ratio_to_limit": round(stats["ratio_to_limit"], 4),
                "ids_bytes_per_fingerprint": round(stats["bytes_per_fingerprint"]["ids"], 3),
            }
            bench.forget()
    return out


def decode(bench: Bench) -> Result:
    """Fingerprints decoded per second, one thread, every instruction set, checksums verified."""
    table = bench.store("flip-2").kernel_tables[0]
    chosen = _kernel.isa()
    query = np.array([1], np.uint64)

    def whole() -> None:
        block = 0
        while block < table.block_count:
            _, _, block = table.decode(block, table.block_count, 1 << 17)

    out: Result = {}
    try:
        for isa in _kernel.available_isas():
            _kernel.select_isa(isa)
            out[isa] = {"millions_per_second": round(table.fingerprint_count / bench.seconds(whole) / 1e6, 1)}
            took = bench.seconds(lambda: table.scan(query, 3, 0, table.block_count))
            out[isa]["scan_millions_per_second"] = round(table.fingerprint_count / took / 1e6, 1)
    finally:
        _kernel.select_isa(chosen)
    return out


DESIGNS = ("manku-4", "manku-10", "manku-20", "flip-2", "flip-3")


def probe(bench: Bench) -> Result:
    """`probe_many`, r = 3, one thread: designs against the exact FAISS IndexBinaryMultiHash (2 hashes of 32 bits, one flip)."""
    keys = bench.keys()
    queries = bench.queries(keys, min(20_000, len(keys)))
    out: Result = {"queries": len(queries)}
    answers = None
    for design in DESIGNS:
        store = bench.store(design)
        took = bench.seconds(lambda s=store: s.probe_many(queries, threads=1))  # type: ignore[misc]
        matches = store.probe_many(queries)
        if answers is None:
            answers = matches
        assert np.array_equal(answers.lims, matches.lims), "designs disagree"
        assert np.array_equal(answers.fingerprints, matches.fingerprints), "designs disagree"
        stats = store.stats()
        out[design] = {
            "microseconds": round(took / len(queries) * 1e6, 3),
            "bytes_per_fingerprint": round(stats["bytes_per_fingerprint"]["tables"], 2),
            "bytes_with_ids": round(stats["bytes_per_fingerprint"]["total"], 2),
        }
        if design not in ("manku-10", "flip-2"):
            bench.forget()
    rival = _faiss(bench, keys, queries, answers)
    out["faiss IndexBinaryMultiHash 2x32 nflip=1"] = rival
    if "microseconds" in rival:
        for design in DESIGNS:
            out[design]["times_faster"] = round(rival["microseconds"] / out[design]["microseconds"], 2)
            out[design]["share_of_memory"] = round(out[design]["bytes_with_ids"] / rival["bytes_per_fingerprint"], 3)
    return out


def _faiss(bench: Bench, keys: Words, queries: Words, answers: fpstore.Matches | None) -> Result:
    try:
        import faiss
        import psutil
    except ImportError:
        return {"missing": "pip install 'fpstore[bench]'"}
    faiss.omp_set_num_threads(1)
    process = psutil.Process()
    before = process.memory_info().rss
    index = faiss.IndexBinaryMultiHash(64, 2, 32)
    index.nflip = 1
    index.add(keys.view(np.uint8).reshape(-1, 8))
    used = process.memory_info().rss - before
    data = queries.view(np.uint8).reshape(-1, 8)
    took = bench.seconds(lambda: index.range_search(data, 4))
    lims, _, rows = index.range_search(data, 4)
    if answers is not None:
        # FAISS reports rows, we report distinct fingerprints.
        found = [np.unique(keys[rows[a:b]]) for a, b in pairwise(lims)]
        ours = [np.sort(answers.fingerprints[a:b]) for a, b in pairwise(answers.lims)]
        assert all(np.array_equal(a, b) for a, b in zip(found, ours, strict=True)), "FAISS disagrees"
    return {"microseconds": round(took / len(queries) * 1e6, 3), "bytes_per_fingerprint": round(used / len(keys), 1)}


def single(bench: Bench) -> Result:
    """`probe` one at a time from Python, with ids, page cache warm."""
    keys = bench.keys()
    queries = bench.queries(keys, min(20_000, len(keys))).tolist()
    out: Result = {}
    for design in ("manku-4", "manku-10", "flip-2"):
        store = bench.store(design)
        for query in queries:
            store.probe(query)
        times = []
        for query in queries:
            start = time.perf_counter()
            store.probe(query)
            times.append(time.perf_counter() - start)
        out[design] = {
            "median_microseconds": round(statistics.median(times) * 1e6, 2),
            "p99_microseconds": round(sorted(times)[int(len(times) * 0.99)] * 1e6, 2),
        }
    return out


def build(bench: Bench) -> Result:
    """Build of the ten-table design with ids, one thread, synced to disk, against one `np.sort` of the same keys."""
    keys = bench.keys()
    sort = bench.seconds(lambda: np.sort(keys))
    path = bench.folder / "build.fps"
    times = []
    for _ in range(min(bench.repeats, 3)):
        start = time.perf_counter()
        fpstore.build(path, keys, design="manku-10", threads=1).close()
        times.append(time.perf_counter() - start)
        shutil.rmtree(path)
    took = statistics.median(times)
    return {
        "np_sort_seconds": round(sort, 4),
        "build_seconds": round(took, 3),
        "times_np_sort": round(took / sort, 2),
        "tables": 10,
        "disk_write_seconds": round(_disk_write(bench, int(len(keys) * 61)), 3),
    }


def _disk_write(bench: Bench, size: int) -> float:
    """Time to write and sync as many bytes as the build does: what the disk alone takes."""
    block = bytes(1 << 22)
    path = bench.folder / "disk.bin"
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block) + 1):
            file.write(block)
        os.fsync(file.fileno())
    took = time.perf_counter() - start
    path.unlink()
    return took


def start(bench: Bench) -> Result:
    """`import fpstore` in a fresh interpreter, and opening a store."""
    path = bench.store("manku-10").path
    code = "import time; t=time.perf_counter(); import fpstore; print(time.perf_counter()-t)"
    bare = "import time; t=time.perf_counter(); import numpy; print(time.perf_counter()-t)"

    def fresh(text: str) -> float:
        runs = [
            float(subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, cwd=bench.folder).stdout)
            for _ in range(max(bench.repeats, 5))
        ]
        return statistics.median(runs)

    return {
        "import_milliseconds": round(fresh(code) * 1e3, 1),
        "of_which_numpy": round(fresh(bare) * 1e3, 1),
        "open_milliseconds": round(bench.seconds(lambda: fpstore.open(path).close()) * 1e3, 3),
    }


def calibrate(bench: Bench) -> Result:
    """Measure the constants of fpstore.plan: a prefix look-up, a candidate, one more block."""
    store = bench.store("manku-10")
    queries = bench.queries(bench.keys(), min(50_000, 1 << bench.log2))
    table = store.kernel_tables[0]
    out: Result = {}
    points = []
    for prefix in range(max(bench.log2 - 12, 4), bench.log2 + 3, 2):
        prober = _kernel.Prober()
        prober.add(table, prefix, 0, np.zeros(1, np.uint64))
        took = bench.seconds(lambda p=prober: p.probe(queries, 3)) / len(queries) * 1e9  # type: ignore[misc]
        found = len(store) / 2.0**prefix
        points.append((found, took))
        out[f"prefix {prefix}"] = {"entries": round(found, 2), "nanoseconds": round(took, 1)}
    few = [t for f, t in points if f < 2]
    f0, t0 = points[0]
    out["LOOKUP_NS"] = round(statistics.median(few), 1)
    out["CANDIDATE_NS"] = round((t0 - out["LOOKUP_NS"]) / f0, 3)
    return out


def sweep(bench: Bench) -> Result:
    """How many leading bits a flip look-up should use: log2 n minus a slack (fpstore.design.FLIP_SLACK_BITS)."""
    store = bench.store("flip-2")
    queries = bench.queries(bench.keys(), min(20_000, 1 << bench.log2))
    out: Result = {}
    for slack in range(9):
        prefix = bench.log2 - slack
        prober = _kernel.Prober()
        masks = np.array(sorted([0, *(1 << (63 - bit) for bit in range(prefix))]), np.uint64)
        for table in store.kernel_tables:
            prober.add(table, prefix, 1, masks)
        took = bench.seconds(lambda p=prober: p.probe(queries, 3))  # type: ignore[misc]
        out[f"slack {slack}"] = {"microseconds": round(took / len(queries) * 1e6, 3)}
    return out


OPERATIONS: dict[str, Callable[[Bench], Result]] = {
    f.__name__: f for f in (sizes, decode, probe, single, build, start, calibrate, sweep)
}


def machine() -> Result:
    """Describe what the figures were measured on."""
    model = ""
    with Path("/proc/cpuinfo").open(encoding="ascii") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "processor": model,
        "processors": os.cpu_count(),
        "isa": _kernel.isa(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "fpstore": fpstore.__version__,
    }


def main() -> None:
    """Run the operations that were named and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="+", choices=["all", *OPERATIONS])
    parser.add_argument("--log2", type=int, default=24, help="log2 of the number of fingerprints")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to put the stores (a temporary folder by default)")
    parser.add_argument("--smoke", action="store_true", help="small sizes only")
    args = parser.parse_args()
    names = list(OPERATIONS) if "all" in args.operations else args.operations
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        bench = Bench(args.log2, args.repeats, args.seed, Path(folder), args.smoke)
        report: Result = {
            "command": " ".join(["tools/bench.py", *sys.argv[1:]]),
            "machine": machine(),
            "seed": args.seed,
            "log2": args.log2,
            "repeats": args.repeats,
        }
        for name in names:
            print(f"{name} ...", file=sys.stderr, flush=True)
            report[name] = OPERATIONS[name](bench)
        bench.forget()
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
