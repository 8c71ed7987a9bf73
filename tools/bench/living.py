"""Operations on a store that changes: insert, probe-insert, delta, merge, pause."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import fpstore
from bench import data
from bench.child import longest_at
from bench.data import Words
from bench.harness import Bench, Result, microseconds, percentile, ratio, run_child
from bench.single import single_times

BATCH = 1000
FRESH = 1 << 42  # seeds of what is inserted
SYNCS = 300
GROUPED_CALLS = 60_000


def _fresh(bench: Bench, count: int, salt: int = 0) -> Words:
    return data.random_words(np.random.default_rng([bench.seed, FRESH + salt]), count)


def _copy(store: fpstore.Store, path: Path) -> Path:
    """Copy a store that has no delta."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(store.path, path)
    return path


def _disk(bench: Bench) -> Result:
    """Time what the disk takes for the writes of one commit, without anything else."""
    out = {}
    for name, size in (("4 KiB", 4096), ("16 KiB", 16384)):
        file = os.open(bench.folder / "sync.bin", os.O_RDWR | os.O_CREAT)
        piece, times = os.urandom(size), []
        for number in range(20 if bench.smoke else SYNCS):
            start = time.perf_counter()
            os.pwrite(file, piece, number * size)
            os.fdatasync(file)
            times.append(time.perf_counter() - start)
        os.close(file)
        out[name] = {
            "syncs_per_second": round(1 / percentile(times, 0.5)),
            "microseconds": round(percentile(times, 0.5) * 1e6, 1),
        }
    return out


def insert(bench: Bench) -> Result:
    """Durable inserts in batches of 1,000, up to a delta of 2^20; and what the disk alone takes."""
    log2 = bench.log2()
    count = 20_000 if bench.smoke else 1 << 20
    out: Result = {"n": 1 << log2, "inserted": count, "disk": _disk(bench)}
    for design in bench.designs("flip-2", "manku-10"):
        path = _copy(bench.store(design, "uniform", log2), bench.folder / "insert.fps")
        fresh = _fresh(bench, count)
        ids = np.arange(1 << log2, (1 << log2) + count, dtype=np.uint64)
        with fpstore.open(path, "r+") as store:
            times = []
            for start in range(0, count, BATCH):
                began = time.perf_counter()
                store.insert(fresh[start : start + BATCH], ids[start : start + BATCH])
                times.append(time.perf_counter() - began)
            delta = store.stats()["delta"]
        began = time.perf_counter()
        with fpstore.open(path) as store:
            opened = time.perf_counter() - began
            assert len(store.ids) == (1 << log2) + count
        out[design] = {
            "per_second": round(count / sum(times)),
            "batch_milliseconds": round(percentile(times, 0.5) * 1e3, 3),
            "batch_p99_milliseconds": round(percentile(times, 0.99) * 1e3, 3),
            "memory_bytes_per_change": round(delta["memory"] / delta["changes"], 1),
            "open_seconds_with_this_delta": round(opened, 3),
        }
        bench.forget()
        shutil.rmtree(path)
    return out


THREADS = (1, 2, 8, 32)
ROUND = 250  # syncs of the disk alone, and probe-inserts, in turn


def probe_insert(bench: Bench) -> Result:
    """`probe_insert`: single durable calls (beside the disk's syncs), in groups, and in batches."""
    log2 = bench.log2()
    out: Result = {"n": 1 << log2}
    for design in bench.designs("flip-2", "manku-10"):
        path = _copy(bench.store(design, "uniform", log2), bench.folder / "insert.fps")
        calls = 500 if bench.smoke else GROUPED_CALLS
        row: Result = {
            "commit": _durable(bench, path),
            "batch": _grouped(bench, path, _fresh(bench, calls, 1)),
        }
        # Every fourth has a near-duplicate in the tables.
        mixed = _fresh(bench, calls, 2)
        if not bench.smoke:
            mixed[::4] = bench.queries("uniform", log2, -(-calls // 4))[: len(mixed[::4])]
        row["batch, a fourth known"] = _grouped(bench, path, mixed)
        fresh = _fresh(bench, 2 * BATCH if bench.smoke else 100 * BATCH, 7)
        with fpstore.open(path, "r+") as store:
            began = time.perf_counter()
            for start in range(0, len(fresh), BATCH):
                part = fresh[start : start + BATCH]
                store.probe_insert_many(
                    part, np.arange(start, start + len(part), dtype=np.uint64), threads=1
                )
            row["batches of 1,000"] = {
                "per_second": round(len(fresh) / (time.perf_counter() - began))
            }
        out[design] = row
        bench.forget()
        shutil.rmtree(path)
    return out


def _durable(bench: Bench, path: Path) -> Result:
    """Alternate durable inserts of one with synced writes of 4 KiB into allocated space."""
    rounds = 2 if bench.smoke else 2 * bench.repeats
    fresh = _fresh(bench, rounds * ROUND).tolist()
    file = os.open(bench.folder / "sync.bin", os.O_RDWR | os.O_CREAT)
    piece = os.urandom(4096)
    os.pwrite(file, bytes(4096 * ROUND), 0)
    os.fsync(file)
    disk, own = [], []
    with fpstore.open(path, "r+") as store:
        for at, value in enumerate(fresh):
            start = time.perf_counter()
            assert not store.probe_insert(value, at)
            own.append(time.perf_counter() - start)
            if (at + 1) % ROUND == 0:
                for number in range(ROUND):
                    start = time.perf_counter()
                    os.pwrite(file, piece, 4096 * number)
                    os.fdatasync(file)
                    disk.append(time.perf_counter() - start)
    os.close(file)
    return {
        "calls": len(fresh),
        "per_second": round(len(own) / sum(own)),
        "disk_per_second": round(len(disk) / sum(disk)),
        "ratio_of_means": ratio(sum(disk), sum(own)),
        "ratio_of_medians": ratio(percentile(disk, 0.5), percentile(own, 0.5)),
        "microseconds": round(percentile(own, 0.5) * 1e6, 1),
        "p99_microseconds": round(percentile(own, 0.99) * 1e6, 1),
        "disk_microseconds": round(percentile(disk, 0.5) * 1e6, 1),
        "disk_p99_microseconds": round(percentile(disk, 0.99) * 1e6, 1),
    }


def _grouped(bench: Bench, path: Path, values: Words) -> Result:
    """Insert one at a time, durable in groups."""
    with fpstore.open(path, "r+", sync="batch") as store:
        times, inserted = [], 0
        began = time.perf_counter()
        for at, value in enumerate(values.tolist()):
            start = time.perf_counter()
            inserted += not store.probe_insert(value, at)
            times.append(time.perf_counter() - start)
        store.flush()
        took = time.perf_counter() - began
    return {
        "calls": len(values),
        "inserted": inserted,
        "per_second": round(len(values) / took),
        "microseconds": round(percentile(times, 0.5) * 1e6, 1),
        "p99_microseconds": round(percentile(times, 0.99) * 1e6, 1),
    }


def delta(bench: Bench) -> Result:
    """`probe` and `probe_many` with a delta of 2^20 against the same store without one, in turn."""
    log2 = bench.log2()
    count = 20_000 if bench.smoke else 1 << 20
    out: Result = {"n": 1 << log2, "delta": count}
    for design in bench.designs("flip-2", "manku-10"):
        plain = bench.store(design, "uniform", log2)
        path = _copy(plain, bench.folder / "delta.fps")
        queries = bench.queries("uniform", log2)
        fresh = _fresh(bench, count)
        with fpstore.open(path, "r+") as store:
            store.insert(fresh, np.arange(1 << log2, (1 << log2) + count, dtype=np.uint64))
        with fpstore.open(path) as store:
            figures: Result = {}
            batch = bench.fitting(lambda q: plain.probe_many(q, threads=1), queries)  # noqa: B023
            for name, opened in (("without", plain), ("with", store)):
                took = bench.seconds(lambda: opened.probe_many(batch, threads=1))  # noqa: B023
                middle, tail = single_times(
                    bench, opened, queries[:256] if bench.smoke else queries[:20_000]
                )
                figures[name] = {
                    "batch_microseconds": microseconds(took, len(batch)),
                    "single_microseconds": middle,
                    "single_p99_microseconds": tail,
                }
            without, having = figures["without"], figures["with"]
            figures["batch_ratio"] = ratio(
                having["batch_microseconds"], without["batch_microseconds"]
            )
            figures["single_ratio"] = ratio(
                having["single_microseconds"], without["single_microseconds"]
            )
            figures["p99_ratio"] = ratio(
                having["single_p99_microseconds"], without["single_p99_microseconds"]
            )
            out[design] = figures
        bench.forget()
        shutil.rmtree(path)
    return out


def merge(bench: Bench) -> Result:
    """Merge a delta of 2^20 into 2^26, and build all anew.

    Peak memory of both, in processes of their own.
    """
    log2 = bench.log2(26)
    count = 5000 if bench.smoke else 1 << 20
    out: Result = {"n": 1 << log2, "delta": count, "memory": bench.options.memory or "1GiB"}
    for design in bench.designs("flip-2", "manku-10"):
        if reason := bench.no_room(design, log2 + 1):
            out[design] = {"skipped": reason}
            continue
        task: Result = {
            "path": str(bench.folder / "merge.fps"),
            "seed": bench.seed,
            "log2": log2,
            "design": design,
            "memory": out["memory"],
            "threads": 2,
        }
        run_child({**task, "do": "build"})
        fresh = _fresh(bench, count)
        with fpstore.open(bench.folder / "merge.fps", "r+") as store:
            for start in range(0, count, 1 << 14):
                store.insert(fresh[start : start + (1 << 14)])
        merged = run_child({**task, "do": "merge"})
        built = run_child(
            {
                **task,
                "do": "build",
                "path": str(bench.folder / "anew.fps"),
                "extra": count,
                "extra_salt": FRESH,
            }
        )
        with (
            fpstore.open(bench.folder / "merge.fps") as a,
            fpstore.open(bench.folder / "anew.fps") as b,
        ):
            folders = [s.path / f"gen-{s.stats()['generation']:08d}" for s in (a, b)]
            same = all(
                (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
                for name in (f"table-{i:03d}.fpt" for i in range(len(a.design.tables)))
            )
        assert same, "the merged tables differ from those built anew"
        out[design] = {
            "merge": merged,
            "build_anew": built,
            "ratio": ratio(merged["seconds"], built["seconds"]),
            "same_tables": same,
        }
        for name in ("merge.fps", "anew.fps"):
            shutil.rmtree(bench.folder / name)
    return out


def pause(bench: Bench) -> Result:
    """Probing one at a time while another process inserts batches of 1,000 and merges.

    The longest pauses of the reader.
    """
    log2 = bench.log2()
    return {
        "n": 1 << log2,
        **{design: _pauses(bench, design, log2) for design in bench.designs("flip-2", "columns-4")},
    }


def _pauses(bench: Bench, design: str, log2: int) -> Result:
    path = _copy(bench.store(design, "uniform", log2), bench.folder / "pause.fps")
    bench.forget()
    queries = bench.queries("uniform", log2, 4096).tolist()
    task = {
        "do": "change",
        "path": str(path),
        "seed": bench.seed,
        "log2": log2,
        "batches": 20 if bench.smoke else 1000,
    }
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(run_child(task)))
    times, ends, sizes = [], [], set()
    with fpstore.open(path) as store:
        thread.start()
        at = 0
        while thread.is_alive():
            start = time.perf_counter()
            store.probe(queries[at % len(queries)])
            times.append(time.perf_counter() - start)
            ends.append(time.time())
            at += 1
            if at % 1024 == 0:
                sizes.add(len(store))
    thread.join()
    shutil.rmtree(path)
    return {
        "writer": done[0],
        "probes": len(times),
        "sizes_seen": len(sizes),
        "median_microseconds": round(percentile(times, 0.5) * 1e6, 1),
        "p99_milliseconds": round(percentile(times, 0.99) * 1e3, 3),
        "p999_milliseconds": round(percentile(times, 0.999) * 1e3, 3),
        "longest_milliseconds": round(max(times) * 1e3, 1),
        "longest_at_the_end_of_the_merge_milliseconds": round(
            longest_at(done[0]["merge_ended"], ends, times) * 1e3, 1
        ),
    }
