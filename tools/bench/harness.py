"""The common parts of all operations.

Scratch folder, stores, clocks, and the description of the machine.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import fpstore
from bench import data
from bench.data import Words
from fpstore import _kernel
from fpstore.design.blocks import HUFFMAN
from fpstore.design.estimates import estimate
from fpstore.design.families import design as make_design
from fpstore.store import store_snapshot

Result = dict[str, Any]
Queries = TypeVar("Queries", Words, npt.NDArray[np.uint8])

POLL_SECONDS = 0.02  # between two looks at the memory
RUN_SECONDS = 10.0  # a timed run takes fewer queries when it would take longer
PILOT_QUERIES = 16
SMOKE_LOG2 = 14
SMOKE_QUERIES = 256
# a row of a build that does not fit into memory: sorted columns of 24, and what is left of the
# parts
TEMPORARY_BYTES = 26
ARRAY_LOG2 = 26  # larger sets are generated in chunks


class Bench:
    """Keys, queries and stores, made once, in a scratch folder; and clocks."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.seed = options.seed
        self.repeats = 1 if options.smoke else options.repeats
        self.smoke = options.smoke
        self.report: Result = {}
        self._stores: dict[str, fpstore.Store] = {}
        self._keys: tuple[str, int, Words] | None = None

    def log2(self, default: int = 24) -> int:
        """Return the size asked for, or an operation's own."""
        size: int | None = self.options.log2
        return size if size is not None else SMOKE_LOG2 if self.smoke else default

    def sizes(self, *default: int) -> tuple[int, ...]:
        """Return the one size asked for, or an operation's own."""
        return (self.log2(),) if self.smoke or self.options.log2 is not None else default

    def designs(self, *default: str) -> tuple[str, ...]:
        """Return the designs asked for, or an operation's own."""
        return self.options.designs or default

    def packed(self, design: str) -> list[tuple[str, str]]:
        """Return each codec, and the name of the design packed by it in the report."""
        return [
            (codec, design if codec == HUFFMAN else f"{design}, {codec}")
            for codec in self.options.codecs
        ]

    def keys(self, kind: str, log2: int) -> Words:
        """Return a set of keys; the last one made is kept."""
        if self._keys is None or self._keys[:2] != (kind, log2):
            self._keys = None
            self._keys = (kind, log2, data.KINDS[kind](self.seed, log2))
        return self._keys[2]

    def queries(self, kind: str, log2: int, count: int | None = None) -> Words:
        """Return stored keys with one to three bits flipped."""
        count = self.options.queries if count is None else count
        if self.smoke:
            count = min(count, SMOKE_QUERIES)
        keys = data.sample(self.seed, log2, count) if kind == "uniform" else self.keys(kind, log2)
        return data.near(self.seed, keys, count)

    def store(self, design: str, kind: str, log2: int, **options: Any) -> fpstore.Store:
        """Return a store of these keys, built once."""
        name = "-".join([design, kind, str(log2), *(f"{k}{v}" for k, v in sorted(options.items()))])
        if name not in self._stores:
            if kind == "uniform" and log2 > ARRAY_LOG2:
                self._keys = None
                source: Any = data.chunks(self.seed, log2)
            else:
                source = self.keys(kind, log2)
            path = self.folder / f"{name}.fps"
            self._stores[name] = fpstore.build(
                path, source, design=design, memory=self.options.memory, **options
            )
        return self._stores[name]

    def forget(self, *keep: fpstore.Store) -> None:
        """Close and remove the stores."""
        for name, store in list(self._stores.items()):
            if all(store is not kept for kept in keep):
                del self._stores[name]
                store.close()
                shutil.rmtree(store.path)

    def no_room(self, design: str, log2: int) -> str:
        """Say why a store cannot be built in the scratch folder, or nothing."""
        n = 1 << log2
        need = int(estimate(make_design(design, 3), n).disk_bytes * 1.05) + n * TEMPORARY_BYTES
        free = shutil.disk_usage(self.folder).free
        return f"needs {need >> 20} MiB of disk, {free >> 20} are free" if need > free else ""

    def seconds(self, work: Callable[[], object], repeats: int | None = None) -> float:
        """Median time of the work (or the least processor time), after one run that does not count.

        A smoke run does it once.
        """
        if not self.smoke:
            work()
        clock, typical = (
            (time.process_time, min)
            if self.options.processor_time
            else (time.perf_counter, statistics.median)
        )
        times = []
        for _ in range(1 if self.smoke else repeats or self.repeats):
            start = clock()
            work()
            times.append(clock() - start)
        return typical(times)

    def processor_seconds(self, work: Callable[[], object], repeats: int | None = None) -> float:
        """Least processor time of some runs of the work.

        For figures that other work on the machine shall not change.
        """
        times = []
        for _ in range(1 if self.smoke else repeats or self.repeats):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        return min(times)

    def fitting(self, work: Callable[[Queries], object], queries: Queries) -> Queries:
        """Return as many of the queries as a timed run can take."""
        count = PILOT_QUERIES
        while True:
            pilot = queries[:count]
            work(pilot)
            start = time.perf_counter()
            work(pilot)
            took = time.perf_counter() - start
            # A larger batch may take less time a query: it is tried as long as that is cheap.
            if count >= len(queries) or took > RUN_SECONDS / 8:
                return queries[
                    : max(PILOT_QUERIES, int(RUN_SECONDS / max(took / len(pilot), 1e-9)))
                ]
            count *= 4


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def microseconds(seconds: float, count: int, digits: int = 3) -> float:
    """Return the time of one of ``count``."""
    return round(seconds / max(count, 1) * 1e6, digits)


def kernel_tables(store: fpstore.Store) -> list[Any]:
    """Return the kernel's tables, in design order."""
    return [table.kernel for table in store_snapshot(store).generation.tables]


def ratio(a: float, b: float, digits: int = 2) -> float:
    """Return a / b, of figures that a smoke run may have left at nothing."""
    return round(a / max(b, 1e-9), digits)


def status_bytes(field: str) -> int:
    """Return a size from /proc/self/status, such as VmRSS, VmHWM or RssAnon."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) << 10
    return 0


def available_memory() -> int:
    """Return the bytes that could be allocated without swapping."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) << 10
    return 0


class Growth:
    """Context manager: ``bytes`` is how much memory of its own the process gained meanwhile."""

    bytes = 0

    def __enter__(self) -> Growth:
        self._trim()
        self._before = status_bytes("RssAnon")
        return self

    def __exit__(self, *_: object) -> None:
        self._trim()
        self.bytes = status_bytes("RssAnon") - self._before

    @staticmethod
    def _trim() -> None:
        # What was freed earlier goes back to the system, or it would be used again and not be seen
        # to grow.
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)


class Peak:
    """Context manager: ``bytes`` is the peak anonymous memory, which has no mapped files."""

    def __init__(self) -> None:
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            self.bytes = max(self.bytes, status_bytes("RssAnon"))


def run_child(task: Result, watched: Path | None = None) -> Result:
    """Do a task of bench.child in a process of its own.

    Its result, and the most bytes seen in a folder meanwhile.
    """
    command = [sys.executable, "-P", "-m", "bench.child", json.dumps(task)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    most = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        while True:
            try:
                out, _ = process.communicate(timeout=0.25)
                break
            except subprocess.TimeoutExpired:
                most = max(most, folder_bytes(watched) if watched else 0)
    if process.returncode:
        raise RuntimeError(f"a child process failed with status {process.returncode}")
    result: Result = json.loads(out)
    if watched:
        result["peak_disk_bytes"] = most
    return result


def folder_bytes(folder: Path) -> int:
    """Return the bytes allocated to the files of a folder, some of which may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def versions() -> Result:
    """Return the versions of the packages that matter here and are installed."""
    out: Result = {"python": platform.python_version()}
    for name in (
        "fpstore",
        "numpy",
        "faiss-cpu",
        "simhash",
        "rensa",
        "datasketch",
        "pylance",
        "matplotlib",
        "pillow",
        "ImageHash",
        "pdqhash",
    ):
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            out[name] = None
    return out


def machine() -> Result:
    """Describe what the figures were measured on."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "processor": model,
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "transparent_huge_pages": pages.read_text(encoding="ascii").strip()
        if pages.exists()
        else None,
        "isa": _kernel.isa(),
        "available_isas": _kernel.available_isas(),
    }


def percentile(times: list[float], share: float) -> float:
    """Return a percentile of measured times."""
    return float(np.quantile(times, share, method="higher"))
