"""The operations far and radii: large radii and wide fingerprints, beside FAISS and a scan."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import fpstore
from bench.harness import Bench, Growth, Result, microseconds, ratio

Bytes = npt.NDArray[np.uint8]
CHUNK = 1 << 18
CHECKED = 16  # queries whose answers are compared with those of a scan
SCANNED = 4
INSERTED = 1 << 18
MAX_QUERIES = 1 << 16  # of a batch: look-ups at large radii take long
SLOW_QUERIES = 16  # of a rival that takes milliseconds


class Case(NamedTuple):
    """A set, a radius, and the blocks of FAISS's MultiHash that make it exact for it.

    Their number, bits and flips.
    """

    width: int
    log2: int
    kind: str
    radius: int
    multi_hash: tuple[int, int, int]


CASES = (
    # what inserts and merges of the others are compared with
    Case(64, 22, "uniform", 3, (4, 16, 0)),
    Case(64, 24, "uniform", 5, (4, 16, 1)),
    Case(64, 24, "uniform", 7, (4, 16, 1)),
    Case(64, 24, "uniform", 8, (4, 16, 2)),
    Case(64, 24, "uniform", 10, (4, 16, 2)),
    Case(64, 24, "uniform", 12, (4, 16, 3)),
    Case(64, 24, "picture", 8, (4, 16, 2)),
    Case(64, 24, "picture", 10, (4, 16, 2)),
    Case(64, 24, "picture", 12, (4, 16, 3)),
    Case(64, 22, "constant", 10, (4, 16, 2)),
    Case(128, 24, "uniform", 6, (7, 18, 0)),
    Case(128, 22, "uniform", 10, (8, 16, 1)),
    Case(256, 22, "uniform", 31, (16, 16, 1)),
    Case(256, 22, "families", 31, (16, 16, 1)),
    Case(256, 22, "picture", 31, (16, 16, 1)),
)


def uniform(rng: np.random.Generator, count: int, width: int) -> Bytes:
    """Return uniform fingerprints."""
    return rng.integers(0, 256, (count, width // 8), dtype=np.uint8)


def families(rng: np.random.Generator, count: int, width: int) -> Bytes:
    """Return families of eight fingerprints, within a sixteenth of the bits of their centre."""
    out = np.repeat(uniform(rng, -(-count // 8), width), 8, axis=0)[:count]
    for _ in range(width // 16):
        places = rng.integers(0, width, count)
        flipped = rng.random(count) < 0.5
        out[np.arange(count), places // 8] ^= np.where(flipped, 0x80 >> (places % 8), 0).astype(
            np.uint8
        )
    return out


def picture(rng: np.random.Generator, count: int, width: int) -> Bytes:
    """Return fingerprints like perceptual hashes.

    Half of the bits set, neighbours correlated, some bits likelier than others.
    """
    bias = rng.normal(0, 0.5, width).astype(np.float32)
    parts = []
    for start in range(0, count, CHUNK):
        values = rng.standard_normal((min(CHUNK, count - start), width), dtype=np.float32)
        values[:, 1:] += 0.5 * values[:, :-1]
        values += bias
        middle = np.partition(values, width // 2, axis=1)[:, width // 2, None]
        parts.append(np.packbits(values >= middle, axis=1))
    return np.concatenate(parts)


def constant(rng: np.random.Generator, count: int, width: int) -> Bytes:
    """Return uniform fingerprints of which a quarter of the bits, in two runs, never vary."""
    rows = uniform(rng, count, width)
    rows[:, : width // 64] = 0x5A
    rows[:, width // 16 : width // 16 + width // 64] = 0xFF
    return rows


KINDS: dict[str, Callable[[np.random.Generator, int, int], Bytes]] = {
    "uniform": uniform,
    "families": families,
    "picture": picture,
    "constant": constant,
}


def near(rng: np.random.Generator, rows: Bytes, count: int, radius: int) -> Bytes:
    """Return queries: stored fingerprints with some bits flipped, up to a number."""
    queries = rows[rng.integers(0, len(rows), count)].copy()
    width = rows.shape[1] * 8
    for query, flips in zip(queries, rng.integers(0, radius + 1, count), strict=True):
        places = rng.choice(width, flips, replace=False)
        np.bitwise_xor.at(query, places // 8, (0x80 >> (places % 8)).astype(np.uint8))
    return queries


RADII = (
    (64, 24, (0, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)),
    (128, 22, (0, 2, 4, 6, 8, 10, 12, 16, 20, 24)),
    (256, 22, (0, 4, 8, 16, 24, 31, 40, 48)),
)


def radii(bench: Bench) -> Result:
    """Probe uniform sets of each width at several radii by the design of `auto`, beside a scan."""
    out: Result = {}
    for width, default, radii_ in RADII:
        log2 = bench.log2(default)
        rows = uniform(np.random.default_rng([bench.seed, width]), 1 << log2, width)
        points = [
            _point(bench, rows, width, radius) for radius in (radii_[:3] if bench.smoke else radii_)
        ]
        out[str(width)] = {"log2": log2, "points": points}
    return out


def _point(bench: Bench, rows: Bytes, width: int, radius: int) -> Result:
    queries = near(
        np.random.default_rng([bench.seed, radius]), rows, 64 if bench.smoke else 4096, radius
    )
    path = bench.folder / "radii.fps"
    with fpstore.build(path, rows, width=width, radius=radius, overwrite=True) as store:
        batch = bench.fitting(lambda q: store.probe_many(q, threads=1), queries)
        took = bench.seconds(lambda: store.probe_many(batch, threads=1))
        scan = bench.seconds(lambda: store.scan(queries[:SCANNED], radius, threads=1), 1) / SCANNED
        _check(store, queries[:SCANNED], radius)
        stats = store.stats()
        point: Result = {
            "radius": radius,
            "design": stats["design"]["name"],
            "bytes_per_fingerprint": round(stats["bytes"]["tables"] / len(store), 1),
            "microseconds": microseconds(took, len(batch)),
            "scan_microseconds": microseconds(scan, 1, 0),
        }
    shutil.rmtree(path)
    return point


def far(bench: Bench) -> Result:
    """Probe sets of each case with the design that `auto` takes, or those asked for.

    Every answer is checked.
    """
    out: Result = {}
    last: tuple[Any, ...] = ()
    rows = np.empty((0, 0), np.uint8)
    for case in CASES:
        if bench.options.width not in (None, case.width):
            continue
        log2 = bench.log2(case.log2)
        if last != (case.width, log2, case.kind):
            rows = KINDS[case.kind](
                np.random.default_rng([bench.seed, case.width]), 1 << log2, case.width
            )
            last = case.width, log2, case.kind
        for design in bench.designs("auto"):
            name = f"{case.width} bits, 2^{log2} {case.kind}, radius {case.radius}"
            out[name if design == "auto" else f"{name}, {design}"] = _measure(
                bench, case, rows, design
            )
    return out


def _measure(bench: Bench, case: Case, rows: Bytes, design: str) -> Result:
    rng = np.random.default_rng([bench.seed, case.radius])
    queries = near(
        rng, rows, 64 if bench.smoke else min(bench.options.queries, MAX_QUERIES), case.radius
    )
    path = bench.folder / "far.fps"
    start = time.perf_counter()
    store = fpstore.build(
        path, rows, width=case.width, radius=case.radius, design=design, overwrite=True
    )
    built = time.perf_counter() - start
    with store:
        batch = bench.fitting(lambda q: store.probe_many(q, threads=1), queries)
        single = batch[:1024]
        numbers = [int.from_bytes(query.tobytes(), "big") for query in single]
        for number in numbers:  # pages are verified when they are first read
            store.probe(number)
        together = bench.seconds(lambda: store.probe_many(batch, threads=1))
        alone = bench.seconds(lambda: [store.probe(number) for number in numbers])
        answers = store.probe_many(batch, threads=1)
        scans = queries[:SCANNED]
        scan = (
            bench.seconds(
                lambda: [
                    store.scan(scans[i : i + 1], case.radius, threads=1) for i in range(SCANNED)
                ],
                1,
            )
            / SCANNED
        )
        _check(store, queries[:CHECKED], case.radius)
        stats = store.stats()
        out: Result = {
            "design": stats["design"]["name"],
            "bytes_per_fingerprint": round(stats["bytes"]["tables"] / len(store), 1),
            "build_nanoseconds_per_row": round(built / len(rows) * 1e9, 1),
            "microseconds_one_at_a_time_with_ids": microseconds(alone, len(single), 1),
            "microseconds_in_a_batch": microseconds(together, len(batch), 1),
            "matches_per_query": round(len(answers.rows) / len(batch), 2),
            "scan_microseconds": microseconds(scan, 1, 0),
            "scan_to_batch": ratio(scan, together / len(batch), 0),
        }
        out.update(_rivals(bench, case, rows, queries, together / len(batch), store))
    out.update(_changed(bench, path, case))
    shutil.rmtree(path)
    return out


def _changed(bench: Bench, path: Path, case: Case) -> Result:
    """Insert rows at once, probe what is new alone, and merge."""
    new = uniform(
        np.random.default_rng([bench.seed, case.width, 1]),
        256 if bench.smoke else INSERTED,
        case.width,
    )
    with fpstore.open(path, "r+", sync="batch") as store:
        start = time.perf_counter()
        store.insert(new)
        inserted = time.perf_counter() - start
        start = time.perf_counter()
        store.merge()
        merged = time.perf_counter() - start
        stats = store.stats()
        total = stats["bytes"]["tables"]
    return {
        "insert_microseconds_per_row": microseconds(inserted, len(new)),
        "insert_nanoseconds_per_byte": round(inserted / len(new) / (case.width // 8) * 1e9, 2),
        "merge_nanoseconds_per_byte_of_tables": round(merged / total * 1e9, 2),
    }


def _check(store: fpstore.Store, queries: Bytes, radius: int) -> None:
    """Compare answers of look-ups, of one query and of many, with those of a scan."""
    expected = [[(m.fingerprint, m.distance) for m in rows] for rows in store.scan(queries, radius)]
    for rows in (
        store.probe_many(queries, radius),
        [store.probe(query.tobytes(), radius) for query in queries],
    ):
        assert [[(m.fingerprint, m.distance) for m in matches] for matches in rows] == expected, (
            "look-ups differ from a scan"
        )


def _rivals(
    bench: Bench, case: Case, rows: Bytes, queries: Bytes, ours: float, store: fpstore.Store
) -> Result:
    try:
        import faiss
    except ImportError:
        return {"faiss": "missing: pip install faiss-cpu"}
    faiss.omp_set_num_threads(1)
    blocks, bits, flips = case.multi_hash
    out: Result = {}
    batch = queries[:SLOW_QUERIES]
    ids = len(store.probe_many(batch, case.radius).read_ids()[1])
    rivals: dict[str, Callable[[], Any]] = {
        f"IndexBinaryMultiHash {blocks} x {bits}, nflip {flips}": lambda: (
            faiss.IndexBinaryMultiHash(case.width, blocks, bits)
        ),
        "IndexBinaryFlat": lambda: faiss.IndexBinaryFlat(case.width),
    }
    for name, make in rivals.items():
        with Growth() as grown:
            index = make()
            if hasattr(index, "nflip"):
                index.nflip = flips
            index.add(rows)
        # FAISS reports distances below its radius.
        start = time.perf_counter()
        lims, _, _ = index.range_search(batch, case.radius + 1)
        took = (time.perf_counter() - start) / len(batch)
        out[name] = {
            "microseconds": microseconds(took, 1, 0),
            "to_batch": ratio(took, ours, 0),
            "bytes_per_fingerprint": round(grown.bytes / len(rows), 1),
            "finds": ratio(int(lims[-1]), ids, 4),  # of the rows that are near
        }
        del index
    return out
