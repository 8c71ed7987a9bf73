"""The operation single: probes one at a time, integer and string ids, one thread and several."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import numpy as np

import fpstore
from bench.answers import of_store
from bench.data import Words
from bench.harness import Bench, Result, microseconds, percentile, ratio
from bench.naming import urls

SINGLE_QUERIES = 1 << 14
THREADS, ROUNDS = 8, 8
SMALL_ROWS, SMALL_QUERIES, SMALL_REPEATS = 100_000, 1 << 10, 25
MAX_NAMED_LOG2 = 22  # string ids are made one by one


def single_times(bench: Bench, store: fpstore.Store, queries: Words) -> tuple[float, float]:
    """Median and 99th percentile of one `probe` with ids, in microseconds.

    Each the median of the repeats.
    """
    medians, tails = [], []
    values = queries.tolist()
    for _ in range(bench.repeats + 1):
        times = []
        for query in values:
            start = time.perf_counter()
            store.probe(query)
            times.append(time.perf_counter() - start)
        medians.append(percentile(times, 0.5) * 1e6)
        tails.append(percentile(times, 0.99) * 1e6)
    # The first pass warms the caches.
    return round(percentile(medians[1:], 0.5), 2), round(percentile(tails[1:], 0.5), 2)


def single(bench: Bench) -> Result:
    """`probe` one at a time from Python, with ids, page cache warm.

    One thread and eight, integer ids and URLs; and stores that the caches hold.
    """
    log2 = bench.log2()
    out: Result = {"n": 1 << log2}
    for kind in bench.options.data:
        queries = bench.queries(kind, log2, min(bench.options.queries, SINGLE_QUERIES))
        out[kind] = {}
        for design in bench.designs("manku-4", "manku-10", "flip-2"):
            if reason := bench.no_room(design, log2):
                out[kind][design] = {"skipped": reason}
                continue
            for codec, label in bench.packed(design):
                store = bench.store(design, kind, log2, codec=codec, filter=False)
                _check(store, queries[:64])
                out[kind][label] = {
                    **_timed(bench, store, queries),
                    **_by_threads(bench, store, queries.tolist()),
                }
                filtered = bench.store(design, kind, log2, codec=codec, filter=True)
                _check(filtered, queries[:64])
                out[kind][label]["filter"] = _timed(bench, filtered, queries)
                bench.forget()
    out["string_ids"] = _string_ids(bench, min(log2, MAX_NAMED_LOG2))
    out["small"] = _small(bench)
    return out


def _check(store: fpstore.Store, queries: Words) -> None:
    """Require the answers of `probe_many`, with their ids."""
    batch = of_store(store, queries)
    matches = [store.probe(query) for query in queries.tolist()]
    pairs = zip(batch.lims[:-1], batch.lims[1:], strict=True)
    singles = [sorted(match.fingerprint for match in row) for row in matches]
    assert singles == [sorted(batch.fingerprints[a:b].tolist()) for a, b in pairs], (
        "probe and probe_many differ"
    )
    assert matches == list(store.probe_many(queries)), "the ids of probe and probe_many differ"


def _timed(bench: Bench, store: fpstore.Store, queries: Words) -> Result:
    median, tail = single_times(bench, store, queries)
    return {"median_microseconds": median, "p99_microseconds": tail}


def _by_threads(bench: Bench, store: fpstore.Store, values: list[int]) -> Result:
    """Time all queries by one thread, and shared by several of one process."""
    rounds = values * (1 if bench.smoke else ROUNDS)
    one, many = (bench.seconds(partial(_share, store, rounds, n)) for n in (1, THREADS))
    return {"threads": THREADS, "threads_ratio": ratio(one, many)}


def _share(store: fpstore.Store, values: list[int], threads: int) -> None:
    def work(part: list[int]) -> None:
        for value in part:
            store.probe(value)

    workers = [threading.Thread(target=work, args=(values[i::threads],)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _small(bench: Bench) -> Result:
    """Time probes of small stores, stored fingerprints and others, in the forms of an argument.

    Least processor time, in microseconds.
    """
    count = 1 << 10 if bench.smoke else SMALL_ROWS
    rng = np.random.default_rng([bench.seed, 1 << 43])
    out: Result = {"n": count}
    for width, radius in ((64, 3), (256, 3), (256, 10)):
        rows = rng.integers(0, 256, (count + SMALL_QUERIES, width // 8), dtype=np.uint8)
        path = bench.folder / f"small-{width}-{radius}.fps"
        stored = rows[:count].view(">u8").astype(np.uint64).reshape(count, -1)
        source = stored.ravel() if width == 64 else stored
        with fpstore.build(path, source, width=width, radius=radius) as store:
            label = out[f"{width} bits, radius {radius}"] = {"design": store.design.name}
            for kind, queries in (("hit", rows[:SMALL_QUERIES]), ("miss", rows[count:])):
                data = [row.tobytes() for row in queries]
                numbers = [int.from_bytes(row, "big") for row in data]
                forms = {"int": numbers, "bytes": data, "array": list(queries)}
                matches = [store.probe(number) for number in numbers]
                for form, values in forms.items():
                    assert [store.probe(value) for value in values] == matches
                    label[f"{kind}, {form}"] = microseconds(
                        bench.processor_seconds(partial(_probe_each, store, values), SMALL_REPEATS),
                        len(values),
                    )
    return out


def _probe_each(store: fpstore.Store, values: list[Any]) -> None:
    for value in values:
        store.probe(value)


def _string_ids(bench: Bench, log2: int) -> Result:
    """Time the same store with integers and with URLs as ids."""
    out: Result = {"n": 1 << log2}
    keys, queries = bench.keys("uniform", log2), bench.queries("uniform", log2, SINGLE_QUERIES)
    names = list(urls(len(keys)))
    for design in bench.designs("manku-10"):
        row = out[design] = {}
        for kind, ids in (("integers", None), ("urls", names)):
            with fpstore.build(
                bench.folder / f"single-{kind}.fps", keys, ids, design=design, overwrite=True
            ) as store:
                _check(store, queries[:64])
                row[kind] = _timed(bench, store, queries)
        row["more_microseconds"] = round(
            row["urls"]["median_microseconds"] - row["integers"]["median_microseconds"], 2
        )
    return out
