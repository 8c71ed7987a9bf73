"""The operation bands: near-duplicates by keys of bands, beside an exact join and hashing."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import fpstore
from bench.harness import Bench, Peak, Result, microseconds, ratio, run_child, status_bytes
from fpstore.base.arrays import distinct_places
from fpstore.base.resources import Resources, parse_memory
from fpstore.base.width import Width
from fpstore.disk.temporary import SpilledNumbers
from fpstore.hashing.bands import Bands, plan_bands
from fpstore.hashing.minhash import USUAL_JACCARD, USUAL_RECALL
from fpstore.jobs.bands import BLOCK_ROWS, BandKeys, connect_by_bands
from fpstore.jobs.dedup_job import BANDS_RECALL
from fpstore.jobs.grouping import members_in_sets, rows_at, split_chains
from fpstore.jobs.joining import connect_rows
from fpstore.jobs.pairs import join_design

COPIES = 5  # of so many rows one is a copy, of the usual similarity
MAX_EXACT_LOG2 = 20  # log2 of the rows of the largest join
TEXT_WORDS, TEXTS = 500, 2000  # about 3 kB each
# of the sorts, unless --memory says another; and what the process may have
MEMORY, LIMIT = 1 << 30, 8 << 30
Words = npt.NDArray[np.uint64]
WIDTH = Width(256)


def bands(bench: Bench) -> Result:
    """Find the near-duplicates of synthetic sketches of texts: by bands, and by the exact join.

    Beside hashing texts of 3 kB.
    """
    plan, hashing = _bands(), _hashing(bench)
    memory = MEMORY if bench.options.memory is None else parse_memory(bench.options.memory)
    out: Result = {
        "bands": plan._asdict(),
        "radius": _radius(),
        "hashing_microseconds_per_text": round(hashing * 1e6, 2),
    }
    out |= {"memory_bytes": memory, "limit_bytes": LIMIT}
    sizes = {f"2^{log2}": 1 << log2 for log2 in bench.sizes(18, 20, 22)}
    if bench.options.rows is not None:
        sizes = {f"{bench.options.rows:,}": bench.options.rows}
    for name, count in sizes.items():
        task = {
            "do": "bands",
            "seed": bench.seed,
            "rows": count,
            "memory": memory,
            "folder": str(bench.folder),
        }
        row = run_child(task)
        out[name] = row | {"of_hashing": ratio(row["microseconds_per_row"], hashing * 1e6)}
    return out


def _bands() -> Bands:
    plan = plan_bands(USUAL_JACCARD, BANDS_RECALL)
    assert plan is not None
    return plan


def _radius() -> int:
    return fpstore.MinHash().radius(USUAL_JACCARD, USUAL_RECALL / _bands().recall(USUAL_JACCARD))


def _hashing(bench: Bench) -> float:
    rng = np.random.default_rng(bench.seed)
    texts = [
        " ".join(f"word{n}" for n in rng.integers(0, 10_000, TEXT_WORDS)) for _ in range(TEXTS)
    ]
    minhash = fpstore.MinHash()
    return bench.seconds(lambda: minhash.fingerprints(texts, threads=1)) / TEXTS


def one_size(task: Result) -> Result:
    """Search so many rows in a process that may have LIMIT bytes of its own memory."""
    seed, count, radius = task["seed"], task["rows"], _radius()
    tempfile.tempdir = task["folder"]
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    fingerprints, keys = _sketches(seed, count)
    resources, before = Resources(task["memory"], 2), status_bytes("RssAnon")
    with Peak() as searching:
        times = time.perf_counter(), time.process_time()
        sets = connect_by_bands(fingerprints, None, keys, radius, WIDTH, resources)
        seconds, processor = time.perf_counter() - times[0], time.process_time() - times[1]
    recall = _recall(seed, count, sets)
    with Peak() as grouping:
        members, _ = members_in_sets(sets)
        del sets
        documents = members.documents
        groups = split_chains(
            members, lambda here: rows_at(fingerprints, documents[here]), documents, radius
        )
    out: Result = {
        "rows": count,
        "seconds": round(seconds, 1),
        "microseconds_per_row": microseconds(processor, count, 2),
        "found": recall,
        "in_groups": ratio(len(groups.documents), count),
        "peak_bytes_searching": searching.bytes - before,
        "peak_bytes_grouping": grouping.bytes - before,
        "beyond_memory_bytes_per_row": ratio(
            max(searching.bytes - before - task["memory"], 0), count
        ),
        "temporary_bytes_per_row": 8 * keys.bands + WIDTH.bytes + 4,
    }
    return out | (
        _joined(np.array(fingerprints), processor) if count <= 1 << MAX_EXACT_LOG2 else {}
    )


def _joined(rows: Words, banded: float) -> Result:
    distinct, _ = distinct_places(rows)
    start = time.process_time()
    least = fpstore.MinHash().radius(USUAL_JACCARD, USUAL_RECALL)
    connect_rows(distinct, join_design(distinct, least, WIDTH), Resources(1 << 32, 2))
    joined = time.process_time() - start
    return {
        "join_microseconds_per_row": microseconds(joined, len(rows), 2),
        "join_to_bands": ratio(joined, banded),
    }


def _originals(
    seed: int, count: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], np.random.Generator]]:
    """Yield blocks of row numbers, the original of each row (or itself), and a generator."""
    first = count - count // COPIES
    for start in range(0, count, BLOCK_ROWS):
        rng = np.random.default_rng([seed, start])
        own = np.arange(start, min(start + BLOCK_ROWS, count))
        drawn = rng.integers(0, first, len(own))
        yield own, np.where(own < first, own, drawn), rng


def _sketches(seed: int, count: int) -> tuple[Words, BandKeys]:
    """Return fingerprints and band keys; copies share as many keys as similar sets would."""
    rows, plan = SpilledNumbers(np.uint64), _bands()
    keys = BandKeys(plan.number)
    for own, originals, rng in _originals(seed, count):
        words = _scrambled((4 * originals[:, None] + np.arange(4)).view(np.uint64))
        copies = np.flatnonzero(own != originals)
        flips = rng.random((len(copies), WIDTH.bits), np.float32) < (1 - USUAL_JACCARD) / 2
        words[copies] ^= np.packbits(flips, axis=1).view(np.uint64)
        rows.append(words.reshape(-1))
        shares = rng.random((len(own), plan.number), np.float32) < USUAL_JACCARD**plan.size
        keys.add(
            np.where(shares, originals[:, None], own[:, None]).astype(np.uint64)
            * np.uint64(0x9E3779B97F4A7C15)
        )
    keys.finish()
    return rows.finish().reshape(-1, WIDTH.words), keys


def _scrambled(numbers: Words) -> Words:
    """Return a random number for each number: the last steps of MurmurHash3 for 64 bits."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        numbers = (numbers ^ numbers >> np.uint64(33)) * np.uint64(factor)
    return numbers ^ numbers >> np.uint64(33)


def _recall(seed: int, count: int, sets: npt.NDArray[np.uint32] | npt.NDArray[np.uint64]) -> float:
    """Return the share of the copies that are in the set of their originals."""
    together = copies = 0
    for own, originals, _ in _originals(seed, count):
        is_copy = own != originals
        copies += int(is_copy.sum())
        together += int((sets[own] == sets[originals])[is_copy].sum())
    return round(together / max(copies, 1), 4)
