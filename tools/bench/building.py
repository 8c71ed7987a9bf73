"""Operations that build and open: build, memory, start."""

from __future__ import annotations

import filecmp
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import fpstore
from bench.data import Words
from bench.harness import Bench, Result, available_memory, ratio, run_child
from fpstore.base.resources import MIN_MEMORY, parse_memory

SPILLING_LOG2 = 22  # more rows than the least memory budget holds
PLENTY_BYTES = 48  # a row, with which a build stays in memory


def build(bench: Bench) -> Result:
    """Whole builds, synced to disk, against one `np.sort` of the same keys.

    With ids, per table without, one thread and two.
    """
    log2 = bench.log2()
    keys = bench.keys("uniform", log2)
    design = bench.designs("manku-10")[0]
    sort = bench.seconds(lambda: np.sort(keys))
    first, _ = _timed(bench, keys, "flip-1", 0, 1)
    one, (size, tables) = _timed(bench, keys, design, 3, 1)
    two, _ = _timed(bench, keys, design, 3, 2)
    table = (one - first) / (tables - 1)
    disk = bench.seconds(lambda: _write(bench.folder / "disk.bin", size))
    return {
        "n": 1 << log2,
        "design": design,
        "tables": tables,
        "np_sort_seconds": round(sort, 4),
        "build_seconds": round(one, 3),
        "times_np_sort": ratio(one, sort),
        "first_table_with_ids_seconds": round(first, 3),
        "first_table_with_ids_times_np_sort": ratio(first, sort),
        # A build of all tables less a build of one, by the tables more.
        "further_table_seconds": round(table, 3),
        "further_table_times_np_sort": ratio(table, sort),
        "two_threads_seconds": round(two, 3),
        "two_threads_ratio": ratio(one, two),
        "bytes": size,
        "disk_write_seconds": round(disk, 3),
        "disk_write_times_np_sort": ratio(disk, sort),
    }


def _timed(
    bench: Bench, keys: Words, design: str, radius: int, threads: int
) -> tuple[float, tuple[int, int]]:
    """Median time of a build, and the bytes and tables of the store."""
    path = bench.folder / "build.fps"
    times = []
    for _ in range(1 if bench.smoke else bench.repeats):
        start = time.perf_counter()
        store = fpstore.build(
            path, keys, design=design, radius=radius, threads=threads, memory=bench.options.memory
        )
        times.append(time.perf_counter() - start)
        shape = (int(store.stats()["bytes"]["total"]), len(store.design.tables))
        store.close()
        shutil.rmtree(path)
    return statistics.median(times), shape


def _write(path: Path, size: int) -> None:
    """Write and sync as many bytes as a build does: what the disk alone takes."""
    part = bytes(1 << 22)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(part)):
            file.write(part)
        file.write(part[: size % len(part)])
        os.fsync(file.fileno())
    path.unlink()


def memory(bench: Bench) -> Result:
    """Peak memory of a build with a small budget (`--memory`), whose bytes must stay the same."""
    log2 = SPILLING_LOG2 if bench.smoke else bench.log2(28)
    budget = parse_memory(bench.options.memory or (MIN_MEMORY if bench.smoke else "1GiB"))
    design = bench.designs("flip-2")[0]
    if reason := bench.no_room(design, log2 + 1):
        return {"skipped": reason}
    plenty = max(min(PLENTY_BYTES << log2, int(0.7 * available_memory())), MIN_MEMORY)
    out: Result = {"n": 1 << log2, "design": design, "threads": 2}
    paths = {}
    for name, size in (("small", budget), ("plenty", plenty)):
        paths[name] = bench.folder / f"{name}.fps"
        task = {
            "do": "build",
            "path": str(paths[name]),
            "seed": bench.seed,
            "log2": log2,
            "design": design,
            "memory": size,
            "threads": 2,
        }
        out[name] = {"memory_bytes": size, **run_child(task, bench.folder)}
        peak = out[name]["peak_anonymous_bytes"]
        out[name]["peak_anonymous_to_memory"] = ratio(peak, size, 3)
        out[name]["peak_resident_to_memory"] = ratio(out[name]["peak_resident_bytes"], size, 3)
    files = sorted(p.relative_to(paths["small"]) for p in paths["small"].rglob("*") if p.is_file())
    same = [
        str(f) for f in files if filecmp.cmp(paths["small"] / f, paths["plenty"] / f, shallow=False)
    ]
    out["same_files"] = same
    out["other_files"] = [str(f) for f in files if str(f) not in same]
    tables = [str(f) for f in files if f.name.startswith("table")]
    assert tables, "no table files found"
    assert set(tables) <= set(same), f"the tables of the two builds differ: {out['other_files']}"
    for path in paths.values():
        shutil.rmtree(path)
    return out


def start(bench: Bench) -> Result:
    """`import fpstore` in a fresh interpreter, and opening a store."""
    path = bench.store("manku-10", "uniform", bench.log2()).path
    code = "import time; t=time.perf_counter(); import fpstore; print(time.perf_counter()-t)"
    bare = "import time; t=time.perf_counter(); import numpy; print(time.perf_counter()-t)"

    # As installed: with bytecode.
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }

    def fresh(*command: str) -> float:
        runs = []
        for _ in range(1 if bench.smoke else max(bench.repeats, 5)):
            start = time.perf_counter()
            out = subprocess.run(
                [sys.executable, *command],
                capture_output=True,
                check=True,
                cwd=bench.folder,
                env=environment,
            )
            took = time.perf_counter() - start
            runs.append(float(out.stdout) if command[0] == "-c" else took)
        return statistics.median(runs)

    fresh("-c", code)  # writes what bytecode is missing
    whole, numpy = fresh("-c", code), fresh("-c", bare)
    return {
        "import_milliseconds": round(whole * 1e3, 1),
        "of_which_numpy": round(numpy * 1e3, 1),
        "beyond_numpy": round((whole - numpy) * 1e3, 1),
        "help_milliseconds": round(fresh("-m", "fpstore", "--help") * 1e3, 1),
        "open_milliseconds": round(bench.seconds(lambda: fpstore.open(path).close()) * 1e3, 3),
    }
