"""The operation bands: near-duplicates by keys of bands, beside the exact join and the hashing of as many texts."""

from __future__ import annotations

import resource
import time

import numpy as np
import numpy.typing as npt

import fpstore
from bench.harness import Bench, Result, ratio
from fpstore.base.arrays import distinct_places
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.hashing.bands import Bands, planned_bands
from fpstore.hashing.minhash import USUAL_JACCARD, USUAL_RECALL
from fpstore.jobs.bands import BLOCK_ROWS, BandKeys, connected_by_bands
from fpstore.jobs.dedup_job import BANDS_RECALL
from fpstore.jobs.joining import connected
from fpstore.jobs.pairs import join_design

COPIES = 5  # of so many rows one is a copy, of the usual similarity
MOST_EXACT = 20  # log2 of the rows of the largest join
TEXT_WORDS, TEXTS = 500, 2000  # about 3 kB each
Words = npt.NDArray[np.uint64]


def bands(bench: Bench) -> Result:
    """Find the near-duplicates of synthetic sketches of texts: by bands, and by the exact join; beside hashing texts of 3 kB."""
    found, hashing = planned_bands(USUAL_JACCARD, BANDS_RECALL), _hashing(bench)
    assert found is not None
    radius = fpstore.MinHash().radius(USUAL_JACCARD, USUAL_RECALL / found.recall(USUAL_JACCARD))
    out: Result = {"bands": found._asdict(), "radius": radius, "hashing_microseconds_per_text": round(hashing * 1e6, 2)}
    for log2 in bench.sizes(18, 20, 22, 24):
        out[f"2^{log2}"] = _one_size(bench.seed, 1 << log2, found, radius, hashing, exact=log2 <= MOST_EXACT)
    return out


def _hashing(bench: Bench) -> float:
    rng = np.random.default_rng(bench.seed)
    texts = [" ".join(f"word{n}" for n in rng.integers(0, 10_000, TEXT_WORDS)) for _ in range(TEXTS)]
    minhash = fpstore.MinHash()
    return bench.seconds(lambda: minhash.fingerprints(texts, threads=1)) / TEXTS


def _one_size(seed: int, count: int, some: Bands, radius: int, hashing: float, exact: bool) -> Result:
    rows, originals = _sketches(seed, count)
    keys = _keys(seed, originals, some)
    resources, width = Resources(1 << 32, 2), Width(256)
    start = time.process_time()
    distinct, places = distinct_places(rows)
    sets = connected_by_bands(distinct, places, np.arange(count), keys, radius, width, resources)[places]
    banded = (time.process_time() - start) / count
    copies = np.flatnonzero(originals != np.arange(count))
    out: Result = {
        "microseconds_per_row": round(banded * 1e6, 2),
        "of_hashing": ratio(banded, hashing),
        "found": round(float((sets[copies] == sets[originals[copies]]).mean()), 4),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }
    if exact:
        start = time.process_time()
        least = fpstore.MinHash().radius(USUAL_JACCARD, USUAL_RECALL)
        connected(distinct, join_design(distinct, least, width), resources)
        joined = (time.process_time() - start) / count
        out |= {"join_microseconds_per_row": round(joined * 1e6, 2), "join_to_bands": ratio(joined, banded)}
    return out


def _sketches(seed: int, count: int) -> tuple[Words, npt.NDArray[np.int64]]:
    """Return fingerprints, and for each the one of which it is a copy, or its own place."""
    rng = np.random.default_rng(seed)
    rows, originals = rng.integers(0, 2**64, (count, 4), dtype=np.uint64), np.arange(count)
    copies = np.arange(count - count // COPIES, count)
    originals[copies] = rng.integers(0, copies[0], len(copies))
    rows[copies] = rows[originals[copies]]
    for word in range(4):
        for bit in range(64):
            differs = rng.random(len(copies)) < (1 - USUAL_JACCARD) / 2
            rows[copies, word] ^= differs.astype(np.uint64) << np.uint64(bit)
    return rows, originals


def _keys(seed: int, originals: npt.NDArray[np.int64], some: Bands) -> BandKeys:
    """Return keys that copies share with their originals as often as sets of the similarity do."""
    rng, keys = np.random.default_rng(seed + 1), BandKeys(some.number)
    for start in range(0, len(originals), BLOCK_ROWS):
        own = np.arange(start, min(start + BLOCK_ROWS, len(originals)))
        shares = rng.random((len(own), some.number)) < USUAL_JACCARD**some.size
        names = np.where(shares, originals[own][:, None], own[:, None]).astype(np.uint64)
        keys.add(names * np.uint64(0x9E3779B97F4A7C15))
    keys.finish()
    return keys
