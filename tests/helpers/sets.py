"""Sets of fingerprints with queries near them, and a store of one of them."""

import numpy as np
import pytest
import tableimage

import fpstore

MAX = 2**64 - 1
EMPTY = np.empty(0, np.uint64)


def flipped(centre, count, most, rng):
    """Return fingerprints that differ from a centre in at most this many bits."""
    out = np.full(count, centre, np.uint64)
    for _ in range(most):
        out ^= np.uint64(1) << rng.integers(0, 64, count, np.uint64)
        # sometimes fewer
        out ^= np.where(rng.random(count) < 0.4, out ^ np.uint64(centre), np.uint64(0))
    return out


def make_set(kind, count=400):
    rng = np.random.default_rng(len(kind) + count)
    if kind in tableimage.KINDS:
        return tableimage.make_keys(kind, 11, count)
    if kind == "near":
        return flipped(0x0123456789ABCDEF, count, 2, rng)
    if kind == "half":
        return np.uint64(0xCAFEBABE << 32) | rng.integers(0, 2**32, count, np.uint64)
    if kind == "low-half":
        return np.uint64(0xCAFEBABE) | rng.integers(0, 2**32, count, np.uint64) << np.uint64(32)
    if kind == "few-prefixes":
        prefixes = rng.integers(0, 2**16, 3, np.uint64) << np.uint64(48)
        return rng.choice(prefixes, count) | rng.integers(0, 2**20, count, np.uint64)
    if kind == "families":
        centres = rng.integers(0, 2**64, 8, np.uint64)
        return np.concatenate([flipped(c, count // 8, 9, rng) for c in centres])
    return {
        "none": EMPTY,
        "one": np.array([0xDEADBEEF], np.uint64),
        "ends": np.array([0, MAX], np.uint64),
        "all-equal": np.full(50, 0xFFFF0000FFFF0000, np.uint64),
        "zero": np.zeros(5, np.uint64),
        "adjacent": np.uint64(2**63 - 100) + np.arange(200, dtype=np.uint64),
        "top": np.uint64(MAX) - np.arange(200, dtype=np.uint64),
        "powers": np.array(
            [0, *(1 << i for i in range(64)), *(MAX ^ (1 << i) for i in range(64))], np.uint64
        ),
    }[kind]


def queries_for(fingerprints, rng, count=24):
    """Return stored fingerprints, neighbours of them, both ends of the range, and strangers."""
    stored = rng.choice(fingerprints, count) if len(fingerprints) else EMPTY
    near = stored.copy()
    for _ in range(int(rng.integers(1, 9))):
        near ^= np.uint64(1) << rng.integers(0, 64, len(near), np.uint64)
    strangers = rng.integers(0, 2**64, 4, np.uint64)
    return np.concatenate([stored[: count // 3], near, np.array([0, MAX], np.uint64), strangers])


def cut_batches(set_limits, queries, blocks):
    """Let a batch be cut after a few queries, and a scan after a few blocks."""
    set_limits(probe_queries=queries, flipped_queries=queries, unflipped_queries=queries)
    set_limits(column_queries=queries, scan_blocks=blocks)


@pytest.fixture
def small_pieces(set_limits):
    """Let small batches be cut as large ones are, so that two threads have work."""
    cut_batches(set_limits, 7, 5)
    set_limits(decoded_entries=1)


@pytest.fixture
def store(tmp_path):
    fingerprints = make_set("families")
    with fpstore.build(tmp_path / "s.fps", fingerprints, radius=3, design="flip-2") as store:
        yield store
