"""Sets of fingerprints, all made from a seed: uniform and clustered; and queries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

CHUNK_LOG2 = 20
FAMILY_SIZE = 8  # mean members of a family of clustered data
MEMBER_FLIPS = 6  # most bits in which a member differs from its centre


def random_words(rng: np.random.Generator, count: int) -> Words:
    """Return uniform 64-bit words."""
    return rng.integers(0, 2**64, count, dtype=np.uint64)


def chunk(seed: int, number: int) -> Words:
    """Return one chunk of the uniform set, which is the same whatever the size of the set."""
    return random_words(np.random.default_rng([seed, number]), 1 << CHUNK_LOG2)


def uniform(seed: int, log2: int) -> Words:
    """Return 2^log2 uniform keys."""
    if log2 <= CHUNK_LOG2:
        return chunk(seed, 0)[: 1 << log2]
    out = np.empty(1 << log2, np.uint64)
    for number, part in enumerate(chunks(seed, log2)):
        out[number << CHUNK_LOG2 : (number + 1) << CHUNK_LOG2] = part
    return out


def chunks(seed: int, log2: int) -> Iterator[Words]:
    """Yield the keys of :func:`uniform` without holding them."""
    if log2 <= CHUNK_LOG2:
        yield uniform(seed, log2)
        return
    for number in range(1 << (log2 - CHUNK_LOG2)):
        yield chunk(seed, number)


def sample(seed: int, log2: int, count: int) -> Words:
    """Return keys of :func:`uniform`, drawn from a few chunks spread over a large set."""
    if log2 <= CHUNK_LOG2 + 4:
        keys = uniform(seed, log2)
    else:
        last = (1 << (log2 - CHUNK_LOG2)) - 1
        keys = np.concatenate([chunk(seed, last * i // 15) for i in range(16)])
    return keys[np.random.default_rng([seed, 1 << 41]).integers(0, len(keys), count)]


def flipped(rng: np.random.Generator, keys: Words, counts: npt.NDArray[np.int64]) -> Words:
    """Return the keys with as many different bits flipped as their count says."""
    masks = np.zeros(len(keys), np.uint64)
    rows = np.flatnonzero(counts > 0)
    while len(rows):
        masks[rows] |= np.uint64(1) << rng.integers(0, 64, len(rows), dtype=np.uint64)
        rows = rows[np.bitwise_count(masks[rows]) < counts[rows]]
    return keys ^ masks


def distinct(draw: Iterator[Words], count: int, rng: np.random.Generator) -> Words:
    """Return ``count`` distinct keys in random order from what ``draw`` yields."""
    keys = np.empty(0, np.uint64)
    while len(keys) < count:
        keys = np.unique(np.concatenate([keys, next(draw)]))
    rng.shuffle(keys)
    return keys[:count]


def clustered(seed: int, log2: int) -> Words:
    """Return 2^log2 distinct keys in families of geometric size.

    Members differ from their centre in 1 to 6 bits.
    """
    rng = np.random.default_rng([seed, 1 << 40])
    count = 1 << log2

    def draw() -> Iterator[Words]:
        while True:
            sizes = rng.geometric(1 / FAMILY_SIZE, count // FAMILY_SIZE + count // 128 + 1)
            centres = np.repeat(random_words(rng, len(sizes)), sizes)
            yield flipped(rng, centres, rng.integers(1, MEMBER_FLIPS + 1, len(centres)))

    return distinct(draw(), count, rng)


KINDS = {"uniform": uniform, "clustered": clustered}


def near(seed: int, keys: Words, count: int) -> Words:
    """Return queries: stored keys with one to three different bits flipped."""
    rng = np.random.default_rng([seed, 1 << 42])
    picked = keys[rng.integers(0, len(keys), count)]
    return flipped(rng, picked, rng.integers(1, 4, count))
