"""The operations tasks and scale.

What jobs over many machines cost, and what that makes of billions of documents.
"""

from __future__ import annotations

import heapq
import json
import shutil
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fpstore
from bench import data
from bench.harness import Bench, Result, folder_bytes, processor_seconds, ratio, run_child
from bench.local_texts import MAX_BYTES, SMOKE_BYTES, texts_here
from fpstore.plans import BuildSpec, DedupSpec, Plan, ProbeSpec
from fpstore.plans.inputs import MAX_PARTS
from fpstore.plans.shuffle import MAX_SLICES

FILES = 8
TASK_ROWS = (5_000_000, 50_000_000)
QUERIES = 100_000
# as of a corpus that one task cannot compare: rows are sent with their keys
SLICED, SLICES = "tasks in slices", 8
# A cluster, for the simulation
SLOW_SHARE, SLOWER = 0.02, 4.0  # of the machines, and how many times longer they take
LOST = 0.01  # of the runs of tasks end early, half way on average, and are repeated
SPREAD = 0.15  # standard deviation of the logarithm of the time of a task
SCALES = (8_000_000_000, 100_000_000_000)
LINKED = 30 * MAX_SLICES  # slices of 29 bands, and of equal fingerprints
TASKS_OF = {
    "hash": MAX_PARTS,
    "links": LINKED,
    "components": MAX_SLICES,
    "members": MAX_PARTS,
    "decide": MAX_SLICES,
    "copy": MAX_PARTS,
}


def tasks(bench: Bench) -> Result:
    """Deduplicate real texts, build and probe by tasks.

    Processor time beside one process, what stages take and write.
    """
    corpus = bench.folder / "corpus"
    documents, size = corpus_in(corpus, bench.smoke)
    out: Result = {"documents": documents, "bytes": size}
    for search in ("bands",) if bench.smoke else ("exact", "bands"):
        out[search] = _dedups(bench, corpus, size, documents, search)
    rows = (1 << 16,) if bench.smoke else TASK_ROWS
    return out | {
        f"{count:,} fingerprints": run_child({"do": "tasks-store", **_task(bench), "rows": count})
        for count in rows
    }


def corpus_in(folder: Path, smoke: bool) -> tuple[int, int]:
    """Write the texts of this machine to files of Parquet in a new folder.

    Return how many there are, and their bytes.
    """
    texts = texts_here(SMOKE_BYTES if smoke else MAX_BYTES)
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(texts)), FILES)):
        table = pa.table({"text": [texts[row] for row in rows.tolist()]})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=1000)
    return len(texts), sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _task(bench: Bench) -> Result:
    return {"folder": str(bench.folder), "seed": bench.seed}


def _dedups(bench: Bench, corpus: Path, size: int, documents: int, search: str) -> Result:
    out: Result = {}
    for way in ("one process", "tasks", SLICED, "two processes"):
        task = {
            "corpus": str(corpus),
            "way": way,
            "search": search,
            "slice_rows": max(documents // SLICES, 1),
        }
        out[way] = run_child({"do": "tasks-dedup", **_task(bench), **task})
        used = out[way]["processor_seconds"]
        out[way] |= {
            "megabytes_per_second_and_core": ratio(size / 1e6, used, 1),
            "documents_per_second_and_core": round(documents / used),
        }
    digests = {out[way].pop("digest") for way in out}
    assert len(digests) == 1, "the ways keep other rows"
    out["tasks_to_one_process"] = ratio(
        out["tasks"]["processor_seconds"], out["one process"]["processor_seconds"]
    )
    return out


def dedup_once(task: Result) -> Result:
    """Deduplicate the corpus in one of the ways, in a process that does nothing else."""
    folder = Path(task["folder"]) / f"{task['search']}-{task['way'].replace(' ', '-')}"
    folder.mkdir()
    out, plan_folder, stages = folder / "out", folder / "plan", {}
    began, used = perf_counter(), processor_seconds()
    if task["way"] == "one process":
        fpstore.dedup(task["corpus"], out, text="text", search=task["search"], threads=1)
    else:
        slice_rows = task["slice_rows"] if task["way"] == SLICED else None
        spec = DedupSpec(task["corpus"], out, text="text", search=task["search"])
        plan = Plan.of(spec, plan_folder, slice_rows=slice_rows)
        if task["way"] != "two processes":
            stages = _by_stage(plan, plan_folder)
        else:
            plan.run_all(2)
        plan.finish()
    result: Result = {
        "processor_seconds": round(processor_seconds() - used, 2),
        "seconds": round(perf_counter() - began, 2),
    }
    files = sorted(path for path in out.iterdir() if path.suffix == ".parquet")
    result["digest"] = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    shutil.rmtree(folder)
    return result | ({"stages": stages} if stages else {})


def _by_stage(plan: Plan, folder: Path) -> Result:
    """Run all tasks here; return the time and the bytes of the results of each stage."""
    out: Result = {}
    for stage in plan.status():
        used, before = processor_seconds(), folder_bytes(folder)
        for index in range(stage.first, stage.first + stage.tasks):
            plan.run(index)
        out[stage.stage] = {
            "tasks": stage.tasks,
            "processor_seconds": round(processor_seconds() - used, 2),
            "bytes": folder_bytes(folder) - before,
        }
    return out


def build_once(task: Result) -> Result:
    """Build a store by tasks of a plan and in one process, and probe it by tasks."""
    folder, count = Path(task["folder"]) / "store", task["rows"]
    folder.mkdir()
    keys = data.uniform(task["seed"], max(int(count - 1).bit_length(), 4))[:count]
    np.save(folder / "keys.npy", keys)
    out: Result = {}

    def timed(name: str, work: Any) -> None:
        used = processor_seconds()
        work()
        out[name] = round(processor_seconds() - used, 2)

    timed(
        "build",
        lambda: fpstore.build(folder / "one.fps", np.load(folder / "keys.npy"), threads=1).close(),
    )
    for by in ("rows", "prefix"):
        spec = BuildSpec(folder / "keys.npy", folder / by, by=by, shard_rows=count)
        plan = Plan.of(spec, folder / f"plan-{by}", part_bytes=1 << 40)
        timed(
            f"tasks, by {by}",
            lambda plan=plan: [[plan.run(index) for index in range(len(plan))], plan.finish()],
        )
        out[f"by {by} to build"] = ratio(out[f"tasks, by {by}"], out["build"])
    queries = data.near(task["seed"], keys, min(QUERIES, count))
    np.save(folder / "queries.npy", queries)
    with fpstore.open(folder / "rows") as store:
        timed("probe", lambda: store.probe_many(queries, threads=1).to_arrow())
    plan = Plan.of(ProbeSpec(folder / "rows", folder / "queries.npy", folder / "found"))
    timed(
        "tasks of probes", lambda: [[plan.run(index) for index in range(len(plan))], plan.finish()]
    )
    out["probes"] = len(queries)
    shutil.rmtree(folder)
    return out


def scale(bench: Bench) -> Result:
    """Compute what 8 and 100 billion documents take, by a report of tasks (--json-in).

    Simulate stragglers and retries.
    """
    (path,) = bench.options.json_in or [Path("docs/measured/tasks.json")]
    measured = json.loads(path.read_text(encoding="utf-8"))["tasks"]
    out: Result = {
        "machines": {
            "slow": SLOW_SHARE,
            "times_slower": SLOWER,
            "runs_lost": LOST,
            "spread": SPREAD,
        }
    }
    for documents in SCALES:
        out[f"{documents / 1e9:.0f} billion"] = _scaled(measured, documents, bench.seed)
    return out


def _scaled(measured: Result, documents: int, seed: int) -> Result:
    bands, out = measured["bands"][SLICED], Result()
    of = measured["documents"]
    for stage, one in bands["stages"].items():
        out[stage] = {
            "core_hours": round(one["processor_seconds"] / of * documents / 3600),
            "terabytes_written": round(one["bytes"] / of * documents / 1e12, 2),
        }
    hours = sum(one["core_hours"] for one in out.values())
    result: Result = {
        "stages": out,
        "core_hours": hours,
        "terabytes_read": round(2 * documents * measured["bytes"] / of / 1e12, 1),
    }
    for cores in (200, 2000):
        result[f"{cores} cores"] = _simulated(out, cores, seed)
    return result


def _simulated(stages: Result, cores: int, seed: int) -> Result:
    """Return the hours of a job when some cores are slow, with and without backup runs."""
    rng = np.random.default_rng(seed)
    slow = np.where(rng.random(cores) < SLOW_SHARE, SLOWER, 1.0)
    ideal = sum(one["core_hours"] for one in stages.values()) / cores
    out: Result = {"hours_without_chance": round(ideal, 2)}
    for name, again in (("hours", False), ("hours_with_second_runs", True)):
        hours = [
            _stage_hours(one["core_hours"], slow, again, seed, TASKS_OF[stage])
            for stage, one in stages.items()
        ]
        out[name] = round(sum(hours), 2)
    return out


def _stage_hours(core_hours: float, slow: Any, again: bool, seed: int, count: int) -> float:
    """Return when the last task of a stage is done.

    Each core takes the next task, and a lost task waits again.
    """
    rng, cores = np.random.default_rng(seed), len(slow)
    times = core_hours / count * rng.lognormal(-(SPREAD**2) / 2, SPREAD, count)
    free = [(0.0, core) for core in range(cores)]
    heapq.heapify(free)
    waiting, ends, late = list(range(count)), dict[int, float](), list[tuple[float, int]]()
    while waiting or (again and free):
        now, core = heapq.heappop(free)
        if waiting:
            task = waiting.pop()
        else:
            # of the tasks that run once, the one that will end last runs a second time, if that may
            # help
            while late and -late[0][0] <= now + times[late[0][1]]:
                heapq.heappop(late)
            if not late:
                continue
            _, task = heapq.heappop(late)
        takes = times[task] * slow[core]
        if rng.random() < LOST:
            takes *= rng.random()
            if task not in ends:
                waiting.insert(0, task)
        else:
            if task not in ends:
                heapq.heappush(late, (-(now + takes), task))
            ends[task] = min(ends.get(task, np.inf), now + takes)
        heapq.heappush(free, (now + takes, core))
    return max(ends.values(), default=0.0)
