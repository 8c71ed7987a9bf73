"""What is stored and asked: fingerprints of several kinds, ids, and batches of queries, all drawn from a generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Ids = Words | list[str] | None
Rng = np.random.Generator

EDGES = np.array([0, 1, 2, 3, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 4, 2**64 - 3, 2**64 - 2, 2**64 - 1], np.uint64)
ONE = np.uint64(1)


def words(rng: Rng, count: int) -> Words:
    """Return uniform 64-bit words."""
    return rng.integers(0, 2**64, count, np.uint64)


def flipped(rng: Rng, keys: Words, counts: npt.NDArray[np.int64]) -> Words:
    """Return the keys with as many different bits flipped as their count says."""
    order = np.argsort(rng.random((len(keys), 64)), axis=1)
    chosen = np.arange(64) < counts[:, None]
    masks = np.where(chosen, ONE << order.astype(np.uint64), np.uint64(0))
    out: Words = keys ^ np.bitwise_or.reduce(masks, axis=1)
    return out


def _adjacent(rng: Rng, count: int) -> Words:
    out: Words = words(rng, 1)[0] % np.uint64(2**64 - 2**20) + np.arange(count, dtype=np.uint64)
    return out


def _few_prefixes(rng: Rng, count: int) -> Words:
    bits = np.uint64(rng.integers(1, 40))
    return words(rng, 4)[rng.integers(0, 4, count)] >> bits << bits | words(rng, count) & ((ONE << bits) - ONE)


def _shared_leading(rng: Rng, count: int) -> Words:
    out: Words = words(rng, 1)[0] >> np.uint64(20) << np.uint64(20) | words(rng, count) & np.uint64(2**20 - 1)
    return out


def _shared_trailing(rng: Rng, count: int) -> Words:
    out: Words = words(rng, count) << np.uint64(44) | words(rng, 1)[0] >> np.uint64(20)
    return out


def _dense(rng: Rng, count: int) -> Words:
    top = rng.integers(0, 2)  # next to 0, or next to 2^64 - 1
    low = rng.permutation(np.arange(count + count // 8 + 1, dtype=np.uint64))[:count]
    return ~low if top else low


def _edges(rng: Rng, count: int) -> Words:
    bits = ONE << np.arange(64, dtype=np.uint64)
    return rng.permutation(np.unique(np.concatenate([EDGES, bits, ~bits, bits - ONE])))[:count]


def _duplicates(rng: Rng, count: int) -> Words:
    """Few fingerprints; when there is more than one row, one of them has thousands."""
    rows = words(rng, 1 + count // 50)[rng.integers(0, 1 + count // 50, count)]
    return rows if count < 2 else rng.permutation(np.concatenate([rows, np.repeat(rows[:1], 4000)]))


def _families(rng: Rng, count: int) -> Words:
    centres = np.repeat(words(rng, 1 + count // 8), 8)[:count]
    return flipped(rng, centres, rng.integers(0, 9, count))


KINDS: dict[str, Callable[[Rng, int], Words]] = {
    "uniform": words,
    "adjacent": _adjacent,
    "few prefixes": _few_prefixes,
    "shared leading bits": _shared_leading,
    "shared trailing bits": _shared_trailing,
    "dense": _dense,
    "edges": _edges,
    "duplicates": _duplicates,
    "families": _families,
}


def make_ids(rng: Rng, kind: str, count: int) -> Ids:
    """Return an id for each row; some rows share one."""
    if kind == "rows":
        return None
    if kind == "strings":
        return [f"d{number}" + "é" * (number % 40) for number in rng.integers(0, 2 * count + 1, count).tolist()]
    sparse = words(rng, count)
    sparse[rng.random(count) < 0.1] = np.uint64(2**64 - 1)
    return np.where(rng.random(count) < 0.5, sparse, rng.integers(0, 50, count, np.uint64))


QUERIES = ("mixed", "planted", "random", "stored", "range", "one")


def make_queries(rng: Rng, rows: Words, radius: int, batch: int, distinct: int) -> Words:
    """Return a batch of which at most ``distinct`` queries differ: the others repeat them."""
    kind = QUERIES[rng.choice(len(QUERIES), p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1])]
    count = 1 if kind == "one" else min(batch, distinct)
    stored = rows[rng.integers(0, len(rows), count)] if len(rows) else words(rng, count)
    if kind in ("mixed", "planted", "one"):
        pool = flipped(rng, stored, rng.integers(0, radius + 2, count))
    elif kind == "range":
        start = rng.choice(np.concatenate([EDGES, stored[:1]]))
        pool = start + np.arange(count, dtype=np.uint64)
    else:
        pool = stored if kind == "stored" else words(rng, count)
    if kind == "mixed" and count:
        other = rng.random(count)
        pool = np.where(other < 0.2, words(rng, count), pool)
        pool = np.where(other > 0.9, rng.choice(EDGES, count), pool)
    queries = np.resize(pool, batch)
    return (queries, np.sort(queries), rng.permutation(queries))[rng.integers(0, 3)]
