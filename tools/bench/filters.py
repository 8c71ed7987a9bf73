"""The operation filters.

What filters cost in bytes, builds and merges, and what they save, by their bits for each prefix.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fpstore
from bench.data import Words, random_words
from bench.harness import Bench, Result, microseconds
from fpstore.design import filters
from fpstore.design.blocks import CODECS

BITS = (0, 4, 5, 6, 8)  # for each prefix; 0: no filter
SMALL_BATCH, SMALL_BATCHES = 1 << 12, 16
LARGE_BATCH = 1 << 20
SINGLE = 4_000
CHANGES = 4_096  # before each merge


def filter_sizes(bench: Bench) -> Result:
    """Probe two tables with filters of several sizes, by queries that hardly ever match."""
    log2 = bench.log2()
    keys = bench.keys("uniform", log2)
    absent = random_words(
        np.random.default_rng(bench.seed + 1), SMALL_BATCH if bench.smoke else LARGE_BATCH
    )
    return {
        "n": 1 << log2,
        **{
            codec: {bits: _measured(bench, keys, codec, bits, absent) for bits in BITS}
            for codec in CODECS
        },
    }


def _measured(bench: Bench, keys: Words, codec: str, bits: int, absent: Words) -> Result:
    path, usual = bench.folder / "filters.fps", filters.BITS_PER_PREFIX
    filters.BITS_PER_PREFIX = bits or usual
    filters.filter_shapes.cache_clear()
    out: Result = {}
    try:

        def build() -> None:
            fpstore.build(
                path, keys, design="flip-2", codec=codec, filter=bits > 0, threads=1, overwrite=True
            ).close()

        out["build_seconds"] = round(bench.seconds(build), 3)
        out["merge_seconds"] = round(_merge_seconds(bench, path), 3)
        build()
    finally:
        filters.BITS_PER_PREFIX = usual
        filters.filter_shapes.cache_clear()
    small = [
        absent[i * SMALL_BATCH :][:SMALL_BATCH]
        for i in range(min(SMALL_BATCHES, len(absent) // SMALL_BATCH))
    ]
    alone = absent[: 64 if bench.smoke else SINGLE].tolist()
    with fpstore.open(path) as store:
        sizes = store.stats()["bytes"]
        return {
            **out,
            "filter_bytes_per_fingerprint": round(sizes["filters"] / len(keys), 2),
            "microseconds_in_small_batches": microseconds(
                bench.seconds(lambda: [store.probe_many(batch, threads=1) for batch in small]),
                len(small) * SMALL_BATCH,
            ),
            "microseconds": microseconds(
                bench.seconds(lambda: store.probe_many(absent, threads=1)), len(absent)
            ),
            "single_microseconds": microseconds(
                bench.seconds(lambda: [store.probe(query) for query in alone]), len(alone)
            ),
        }


def _merge_seconds(bench: Bench, path: Path) -> float:
    """Time merges of some changes into the whole store."""
    fresh = np.random.default_rng(bench.seed + 2)
    with fpstore.open(path, "r+") as store:

        def change_and_merge() -> None:
            store.insert(random_words(fresh, CHANGES))
            store.merge(threads=1)

        return bench.seconds(change_and_merge)
