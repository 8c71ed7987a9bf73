"""What 10,000 queries must find in a uniform set that is too large for brute force.

One pass over it, as it was generated.

Two fingerprints that differ in at most three bits agree in at least two of five blocks of bits. So
a fingerprint can be a match only if two of its blocks are those of some query: ten bitmaps, of 2^26
bits at most, tell so. What passes is compared exactly. Nothing of fpstore is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import fpstore
from bench import data
from bench.answers import brute
from bench.data import Words

RADIUS = 3
CHECKED = 10_000
BRUTE_PAIRS = 1 << 28  # the most pairs that are compared by brute force, to check the pass
BLOCKS = ((51, 13), (38, 13), (25, 13), (12, 13), (0, 12))  # shift and width of each
PAIRS = tuple(itertools.combinations(range(len(BLOCKS)), RADIUS - 1))


class Matches(NamedTuple):
    """One entry per query, stored fingerprint and row that has it.

    By query, distance, fingerprint, row.
    """

    queries: npt.NDArray[np.int64]
    distances: npt.NDArray[np.int64]
    fingerprints: Words
    rows: npt.NDArray[np.int64]


def planted_and_not(seed: int, log2: int, count: int = CHECKED) -> tuple[Words, Words]:
    """Return queries, and the stored keys of which the first half differs in zero to three bits.

    The others are uniform.
    """
    rng = np.random.default_rng([seed, 1 << 46])
    stored = data.sample(seed, log2, count // 2)
    planted = data.flipped(rng, stored, np.arange(len(stored)) % (RADIUS + 1))
    return np.concatenate([planted, data.random_words(rng, count - len(stored))]), stored


def streamed(parts: Iterable[Words], queries: Words) -> Matches:
    """Return what lies within three bits of each query, by one pass over the rows."""
    keys_of_pairs = [_pair(_blocks(queries), pair) for pair in PAIRS]
    orders = [np.argsort(keys, kind="stable") for keys in keys_of_pairs]
    sorted_keys = [keys[order] for keys, order in zip(keys_of_pairs, orders, strict=True)]
    bitmaps = [_bitmap(keys) for keys in keys_of_pairs]
    none = np.empty(0, np.int64)
    parts_, start = [(none, none, np.empty(0, np.uint64), none)], 0
    for part in parts:
        blocks = _blocks(part)
        for pair, bitmap, order, keys in zip(PAIRS, bitmaps, orders, sorted_keys, strict=True):
            own = _pair(blocks, pair)
            rows = np.flatnonzero(bitmap[own >> 3] >> (own & 7).astype(np.uint8) & 1)
            first = np.searchsorted(keys, own[rows])
            last = np.searchsorted(keys, own[rows], side="right")
            counts = last - first
            rows = np.repeat(rows, counts)
            shifts = np.repeat(first - np.cumsum(counts) + counts, counts)
            query = order[shifts + np.arange(len(rows))]
            distance = np.bitwise_count(part[rows] ^ queries[query]).astype(np.int64)
            near = distance <= RADIUS
            parts_.append((query[near], distance[near], part[rows[near]], rows[near] + start))
        start += len(part)
    query, distance, fingerprints, rows = (
        np.concatenate(column) for column in zip(*parts_, strict=True)
    )
    # A row that meets a query in several pairs of blocks was found several times.
    _, once = np.unique(np.stack([query, rows], 1), axis=0, return_index=True)
    return _ordered(query[once], distance[once], fingerprints[once], rows[once])


def _blocks(keys: Words) -> list[npt.NDArray[np.uint32]]:
    return [
        (keys >> np.uint64(shift) & np.uint64((1 << width) - 1)).astype(np.uint32)
        for shift, width in BLOCKS
    ]


def _pair(blocks: list[npt.NDArray[np.uint32]], pair: tuple[int, ...]) -> npt.NDArray[np.uint32]:
    a, b = pair
    return blocks[a] << np.uint32(13) | blocks[b]


def _bitmap(keys: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    bits = np.zeros(1 << 26, bool)
    bits[keys] = True
    return np.packbits(bits, bitorder="little")


def _ordered(
    queries: npt.NDArray[np.int64],
    distances: npt.NDArray[np.int64],
    fingerprints: Words,
    rows: npt.NDArray[np.int64],
) -> Matches:
    order = np.lexsort((rows, fingerprints, distances, queries))
    return Matches(queries[order], distances[order], fingerprints[order], rows[order])


def of_store(store: fpstore.Store, queries: Words) -> Matches:
    """Return what ``probe_many`` answers, with the ids: the row numbers."""
    matches = store.probe_many(queries, RADIUS)
    lims, ids = matches.read_ids()
    assert not isinstance(ids, list)
    counts = np.diff(lims)
    query = np.repeat(np.arange(len(queries)), np.diff(matches.lims))
    distance = matches.distances.astype(np.int64)
    return _ordered(
        np.repeat(query, counts),
        np.repeat(distance, counts),
        np.repeat(matches.fingerprints, counts),
        ids.astype(np.int64),
    )


def check_streamed(store: fpstore.Store, seed: int, log2: int) -> dict[str, int]:
    """Check every answer of planted and other queries, with distances and ids.

    Return how many there were.
    """
    queries, stored = planted_and_not(seed, log2)
    expected = streamed(data.chunks(seed, log2), queries)
    planted = set(zip(expected.queries.tolist(), expected.fingerprints.tolist(), strict=True))
    if not planted.issuperset(enumerate(stored.tolist())):
        raise AssertionError("the pass over the rows has missed a planted neighbour")
    few = queries[:: -(-(len(queries) << log2) // BRUTE_PAIRS)] if log2 <= 22 else queries[:0]
    if len(few):
        plain = brute(data.uniform(seed, log2), few, RADIUS)
        again = streamed(data.chunks(seed, log2), few)
        pairs = np.unique(
            np.stack([again.queries.astype(np.uint64), again.fingerprints], 1), axis=0
        )
        numbers = np.repeat(np.arange(len(few)), np.diff(plain.lims)).astype(np.uint64)
        if not np.array_equal(pairs, np.stack([numbers, plain.fingerprints], 1)):
            raise AssertionError("the pass over the rows differs from brute force")
    for name, got, want in zip(Matches._fields, of_store(store, queries), expected, strict=True):
        if not np.array_equal(got, want):
            raise AssertionError(
                f"{store.path.name}: {name} differ from those of the pass over the rows"
            )
    return {
        "queries": len(queries),
        "planted": len(stored),
        "matches": len(expected.rows),
        "against_brute_force": len(few),
    }
