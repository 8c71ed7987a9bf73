"""The operation spark: what an engine adds to the tasks of a plan."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bench import data
from bench.harness import Bench, Result, ratio
from bench.tasked import corpus_in
from fpstore.io.packages import is_installed
from fpstore.plans import BuildSpec, DedupSpec, Plan

CORES = 2
TASKS = {5_000_000: 8, 50_000_000: 2}  # of so many fingerprints each
SMOKE_TASKS = {1 << 16: 2}
SETTINGS = {
    "spark.executor.memory": "1g",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def spark(bench: Bench) -> Result:
    """Run plans by two processes, and by two executors of Spark.

    Builds of 5 and 50 million a task, and a deduplication.
    """
    if not is_installed("pyspark") or shutil.which("java") is None:
        return {"left out": "needs pyspark and Java"}
    corpus = bench.folder / "corpus"
    documents, size = corpus_in(corpus, bench.smoke)
    out: Result = {"executors": CORES, "documents": documents, "bytes": size}
    began = perf_counter()
    with _session(bench.folder) as session:
        # the workers have started
        session.range(0, CORES, 1, CORES).mapInArrow(_as_they_are, "id bigint").collect()
        out["seconds to start"] = round(perf_counter() - began, 1)
        for rows, count in (SMOKE_TASKS if bench.smoke else TASKS).items():
            sources = list(_keys(bench, rows, count))

            def build(folder: Path, sources: list[Path] = sources, rows: int = rows) -> Plan:
                spec = BuildSpec(sources, folder / "store", shard_rows=rows)
                return Plan.of(spec, folder / "plan", part_bytes=1 << 40)

            out[f"builds of {rows:,}"] = {"tasks": count, **_compared(bench, session, build)}
            for path in sources:
                path.unlink()
        out["dedup"] = _compared(
            bench,
            session,
            lambda folder: Plan.of(DedupSpec(corpus, folder / "out", text="text"), folder / "plan"),
        )
    for way in ("processes", "spark"):
        rate = ratio(size / 1e6, out["dedup"][f"processor seconds by {way}"], 1)
        out["dedup"][f"megabytes a second and core by {way}"] = rate
    return out


def _as_they_are(batches: Iterator[Any]) -> Iterator[Any]:
    import fpstore.spark  # noqa: F401 - as tasks do

    yield from batches


def _keys(bench: Bench, rows: int, count: int) -> Iterator[Path]:
    """Yield files of random fingerprints."""
    for number in range(count):
        path = bench.folder / f"keys-{number}.npy"
        np.save(path, data.random_words(np.random.default_rng([bench.seed, number]), rows))
        yield path


def _compared(bench: Bench, session: Any, make: Callable[[Path], Plan]) -> Result:
    """Run a plan by processes and by Spark, in turns; return the medians of both."""
    import fpstore.spark

    ways: dict[str, Callable[[Plan], None]] = {
        "processes": lambda plan: plan.run_all(CORES, memory=CORES << 30),
        "spark": lambda plan: fpstore.spark.run(plan, session, memory=1 << 30),
    }
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(1 if bench.smoke else 3):
        for way, run in ways.items():
            folder = bench.folder / f"by {way}"
            folder.mkdir()
            plan = make(folder)
            began, used = perf_counter(), _processor_ticks()
            run(plan)
            took, ticks = perf_counter() - began, _processor_ticks()
            # Workers of Spark that were idle may end meanwhile. Processes have ended, and are
            # counted where they were waited for.
            counted = ticks if way == "spark" else [os.getpid()]
            spent = sum(ticks[process] - used.get(process, 0) for process in counted)
            times[way].append((spent / os.sysconf("SC_CLK_TCK"), took))
            plan.finish()
            shutil.rmtree(folder)
    medians = {way: np.median(rounds, axis=0).tolist() for way, rounds in times.items()}
    out: Result = {}
    for number, what in enumerate(("processor seconds", "seconds")):
        out |= {f"{what} by {way}": round(rounds[number], 2) for way, rounds in medians.items()}
        out[f"{what}, spark to processes"] = ratio(
            medians["spark"][number], medians["processes"][number]
        )
    return out


def _processor_ticks() -> dict[int, int]:
    """Return the processor time of this process and of all its descendants, by process."""
    parents, used = dict[int, int](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text(encoding="latin-1").rpartition(")")[2].split()
            number = int(path.parent.name)
            # with its children that were waited for
            parents[number], used[number] = int(fields[1]), sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {
        number for number, parent in parents.items() if parent in own and number not in own
    }:
        own |= more
    return {number: used[number] for number in own}


@contextmanager
def _session(folder: Path) -> Iterator[Any]:
    """Yield a local Spark session with executors of one core each; it leaves nothing behind."""
    import pyspark
    from pyspark.sql import SparkSession

    home = folder / "home"  # executors write to it
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    os.environ |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    builder = SparkSession.builder.master(f"local-cluster[{CORES},1,1024]").appName("fpstore")
    here = {"spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[1])}
    for name, value in {**SETTINGS, **here}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    gateway = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # ends the JVM
        gateway.proc.wait(60)
