"""The operation p-stable.

Vectors within a distance, by an index on disk, beside indexes of FAISS in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import fpstore.lsh
from bench.harness import Bench, Result, microseconds

DIMENSION, COUNT, MEMBERS = 96, 200_000, 20
RADIUS, RECALL = 4.4, 0.95
MIN_NOISE, MAX_NOISE = 0.1, 0.6  # of a component, in a cluster: its members are 1.4 to 8.3 apart
QUERIES = 2000
ROUNDING = 0.1  # of a squared distance by a product of float32, at most
NEAREST = 2 * MEMBERS  # that indexes without a search by distance are asked for
IVF_LISTS, IVF_PROBES, HNSW_LINKS, HNSW_EF, LSH_BITS = 1024, 4, 32, 16, 256
Vectors = npt.NDArray[np.float32]
Pairs = npt.NDArray[np.int64]  # query * vectors + row, ascending


class Case(NamedTuple):
    """Stored vectors, queries, and the pairs that lie within the radius."""

    stored: Vectors
    queries: Vectors
    near: Pairs
    unrelated: float  # the mean distance of vectors of different clusters

    def near_of(self, queries: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Pairs:
        """Return those of some pairs that lie within the radius."""
        close = np.linalg.norm(self.queries[queries] - self.stored[rows], axis=1) <= RADIUS
        return np.unique(queries[close] * len(self.stored) + rows[close])

    def recall(self, pairs: Pairs) -> float:
        """Return the share of the near pairs that was found."""
        return round(len(np.intersect1d(pairs, self.near, assume_unique=True)) / len(self.near), 4)


def p_stable(bench: Bench) -> Result:
    """Find the vectors within a radius of queries with one thread.

    Times are microseconds a query, bytes beside the vectors.
    """
    case = _case(bench.seed, COUNT // 100 if bench.smoke else COUNT)
    out: Result = {
        "vectors": len(case.stored),
        "dimension": DIMENSION,
        "radius": RADIUS,
        "near_pairs": len(case.near),
    }
    out["fpstore"] = _own(bench, case)
    try:
        import faiss
    except ImportError:
        return out | {"faiss": "faiss is missing: pip install faiss-cpu"}
    faiss.omp_set_num_threads(1)
    return out | _of_faiss(bench, case, faiss)


def _case(seed: int, count: int) -> Case:
    rng = np.random.default_rng([seed, 1 << 51])
    clusters = count // MEMBERS
    centres = rng.normal(size=(clusters, DIMENSION))
    noise = rng.uniform(MIN_NOISE, MAX_NOISE, clusters)

    def members(of: npt.NDArray[np.int64]) -> Vectors:
        return (centres[of] + noise[of, None] * rng.normal(size=(len(of), DIMENSION))).astype(
            np.float32
        )

    stored = members(np.arange(count) % clusters)
    chosen = rng.integers(0, clusters, min(QUERIES, clusters))
    queries = members(chosen)
    unrelated = np.linalg.norm(stored[: len(queries)] - np.roll(queries, 1, axis=0), axis=1).mean()
    case = Case(stored, queries, np.empty(0, np.int64), float(unrelated))
    squares, near = np.vecdot(stored, stored), []
    for query, vector in enumerate(queries):
        rows = np.flatnonzero(
            squares - 2 * (stored @ vector) + vector @ vector <= RADIUS**2 + ROUNDING
        )
        near.append(case.near_of(np.full(len(rows), query), rows))
    return case._replace(near=np.concatenate(near))


def _own(bench: Bench, case: Case) -> Result:
    """Plan an index for the recall at the radius, build it and ask it.

    What it finds is compared by the vectors.
    """
    path = bench.folder / "vectors.lsh"
    hasher = fpstore.PStable(dimension=DIMENSION, radius=RADIUS)
    form = fpstore.lsh.plan(len(case.stored), hasher, RADIUS, RECALL, background=case.unrelated)
    built = bench.processor_seconds(
        lambda: fpstore.lsh.build(
            path, case.stored, hasher=hasher, plan=form, threads=1, overwrite=True
        )
    )
    with fpstore.open(path) as index:

        def ask() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
            matches = index.probe_many(case.queries, threads=1)
            return np.repeat(np.arange(len(case.queries)), np.diff(matches.lims)), np.asarray(
                matches.read_ids()
            ).astype(np.int64)

        took = bench.processor_seconds(lambda: case.near_of(*ask()))
        alone = bench.processor_seconds(lambda: [index.probe(vector) for vector in case.queries])
        queries, rows = ask()
        return {
            "bands": [form.bands, form.rows],
            "signature_radius": form.radius,
            "recall": case.recall(case.near_of(queries, rows)),
            "compared_by_vectors": round(len(rows) / len(case.queries), 1),
            "microseconds": microseconds(took, len(case.queries), 1),
            "alone_microseconds": microseconds(alone, len(case.queries), 1),
            "bytes_per_vector": round(index.stats()["bytes_per_document"], 1),
            "build_seconds": round(built, 2),
        }


def _of_faiss(bench: Bench, case: Case, faiss: Any) -> Result:
    def ivf() -> Any:
        index = faiss.IndexIVFFlat(
            faiss.IndexFlatL2(DIMENSION), DIMENSION, min(IVF_LISTS, len(case.stored) // 40)
        )
        index.train(case.stored)
        index.nprobe = IVF_PROBES
        return index

    def hnsw() -> Any:
        index = faiss.IndexHNSWFlat(DIMENSION, HNSW_LINKS)
        index.hnsw.efSearch = HNSW_EF
        return index

    def by_distance(index: Any) -> Pairs:
        lims, _, rows = index.range_search(case.queries, RADIUS**2)
        return case.near_of(
            np.repeat(np.arange(len(case.queries)), np.diff(lims.astype(np.int64))), rows
        )

    def nearest(index: Any) -> Pairs:
        _, rows = index.search(case.queries, NEAREST)
        queries, _ = np.nonzero(rows >= 0)
        return case.near_of(queries, rows[rows >= 0])

    made: dict[str, tuple[Callable[[], Any], Callable[[Any], Pairs], int]] = {
        f"faiss IVF{IVF_LISTS}, nprobe {IVF_PROBES}": (ivf, by_distance, 4 * DIMENSION),
        f"faiss HNSW{HNSW_LINKS}, ef {HNSW_EF}": (hnsw, nearest, 4 * DIMENSION),
        f"faiss IndexLSH, {LSH_BITS} bits": (
            lambda: faiss.IndexLSH(DIMENSION, LSH_BITS),
            nearest,
            0,
        ),
        "faiss IndexFlatL2": (lambda: faiss.IndexFlatL2(DIMENSION), by_distance, 4 * DIMENSION),
    }
    return {name: _one(bench, case, faiss, *one) for name, one in made.items()}


def _one(
    bench: Bench,
    case: Case,
    faiss: Any,
    make: Callable[[], Any],
    ask: Callable[[Any], Pairs],
    bytes_of_vectors: int,
) -> Result:
    start = time.process_time()
    index = make()
    index.add(case.stored)
    built = time.process_time() - start
    took = bench.processor_seconds(lambda: ask(index))
    return {
        "recall": case.recall(ask(index)),
        "microseconds": microseconds(took, len(case.queries), 1),
        "bytes_per_vector": round(
            faiss.serialize_index(index).nbytes / len(case.stored) - bytes_of_vectors, 1
        ),
        "build_seconds": round(built, 2),
    }
