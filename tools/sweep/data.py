"""What is stored and asked.

Fingerprints of several kinds, ids, and batches of queries, all drawn from a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Ids = Words | list[str] | None
Rng = np.random.Generator

ONE = np.uint64(1)


@dataclass(frozen=True)
class Shape:
    """Fingerprints of a width.

    Rows, here uint64 (n,) up to 64 bits, (n, words) above, the most significant word first.
    """

    bits: int

    @property
    def words(self) -> int:
        """Words in a row."""
        return max(self.bits // 64, 1)

    @property
    def edges(self) -> Words:
        """Rows next to 0, to the middle, and to the end."""
        half, end = 1 << (self.bits - 1), 1 << self.bits
        return self.rows([0, 1, 2, 3, half - 1, half, half + 1, end - 4, end - 3, end - 2, end - 1])

    def rows(self, numbers: Iterable[int]) -> Words:
        """Return the rows of numbers."""
        rows = [
            [number >> 64 * word & 2**64 - 1 for word in reversed(range(self.words))]
            for number in numbers
        ]
        return self.flat(np.array(rows, np.uint64).reshape(-1, self.words))

    def flat(self, rows: Words) -> Words:
        """Return rows that are given as (n, words)."""
        return rows[:, 0].copy() if self.words == 1 else rows

    def to_array(self, rows: Words) -> npt.NDArray[Any]:
        """Return rows as a store takes and gives them."""
        if self.words == 1:
            return rows.astype(np.uint32) if self.bits == 32 else rows
        return np.ascontiguousarray(rows).astype(">u8").view(np.uint8).reshape(-1, self.bits // 8)

    def numbers(self, fingerprints: npt.NDArray[Any]) -> list[int]:
        """Return as numbers what a store gave."""
        if self.words == 1:
            out: list[int] = fingerprints.tolist()
            return out
        return [int.from_bytes(row.tobytes(), "big") for row in fingerprints]

    def distances(self, rows: Words, others: Words) -> npt.NDArray[np.int64]:
        """Return the distance of each row to each other one."""
        difference = np.bitwise_count(rows[:, None] ^ others[None])
        out: npt.NDArray[np.int64] = (
            difference.astype(np.int64) if self.words == 1 else difference.sum(-1, np.int64)
        )
        return out


def distinct(rows: Words) -> Words:
    """Return the distinct rows, ascending."""
    return np.unique(rows, axis=0)


def without(rows: Words, others: Words) -> Words:
    """Return the distinct rows that are not among others, ascending."""
    known, rows = {row.tobytes() for row in others}, distinct(rows)
    out: Words = rows[np.array([row.tobytes() not in known for row in rows], bool)]
    return out


def words(rng: Rng, count: int) -> Words:
    """Return uniform 64-bit words."""
    return rng.integers(0, 2**64, count, np.uint64)


def flipped_rows(rng: Rng, shape: Shape, rows: Words, counts: npt.NDArray[np.int64]) -> Words:
    """Flip ``counts[i]`` bits of row i; wide rows may get one or two flips fewer."""
    if shape.bits == 64:
        return flipped(rng, rows, counts)
    masks = np.zeros((len(rows), shape.words), np.uint64)
    for step in range(int(counts.max(initial=0))):
        places = np.flatnonzero(counts > step)
        bits = rng.integers(0, shape.bits, len(places))
        masks[places, shape.words - 1 - bits // 64] |= ONE << (bits % 64).astype(np.uint64)
    return rows ^ shape.flat(masks)


def flipped(rng: Rng, keys: Words, counts: npt.NDArray[np.int64]) -> Words:
    """Return words with as many different bits flipped as their count says."""
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
    return words(rng, 4)[rng.integers(0, 4, count)] >> bits << bits | words(rng, count) & (
        (ONE << bits) - ONE
    )


def _shared_leading(rng: Rng, count: int) -> Words:
    out: Words = words(rng, 1)[0] >> np.uint64(20) << np.uint64(20) | words(rng, count) & np.uint64(
        2**20 - 1
    )
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
    return rng.permutation(np.unique(np.concatenate([Shape(64).edges, bits, ~bits, bits - ONE])))[
        :count
    ]


def _duplicates(rng: Rng, count: int) -> Words:
    """Few fingerprints; when there is more than one row, one of them has thousands."""
    rows = words(rng, 1 + count // 50)[rng.integers(0, 1 + count // 50, count)]
    return rows if count < 2 else rng.permutation(np.concatenate([rows, np.repeat(rows[:1], 4000)]))


def _families(rng: Rng, count: int) -> Words:
    centres = np.repeat(words(rng, 1 + count // 8), 8)[:count]
    return flipped(rng, centres, rng.integers(0, 9, count))


def _chains(rng: Rng, count: int) -> Words:
    """Return walks of up to 40 steps, each of which flips up to three bits."""
    steps = flipped(rng, np.zeros(count, np.uint64), rng.integers(1, 4, count))
    begins = np.arange(count) % int(rng.integers(2, 41)) == 0
    steps[begins] = words(rng, int(begins.sum()))
    for place in np.flatnonzero(~begins).tolist():
        steps[place] ^= steps[place - 1]
    return rng.permutation(steps)


def _constant_bits(rng: Rng, count: int) -> Words:
    """Return rows of which some bits, anywhere, are those of one word."""
    varying = flipped(rng, np.zeros(1, np.uint64), rng.integers(4, 50, 1))[0]
    out: Words = words(rng, 1)[0] & ~varying | words(rng, count) & varying
    return out


def _skewed(rng: Rng, count: int) -> Words:
    """Return rows whose bits have different probabilities, and in which some bits are equal."""
    bits = rng.random((count, 64)) < rng.random(64) ** 3
    bits = bits[:, np.where(rng.random(64) < 0.3, rng.integers(0, 64, 64), np.arange(64))]
    out: Words = np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64)[:, 0]
    return out


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
    "chains": _chains,
    "constant bits": _constant_bits,
    "skewed": _skewed,
}


def make_rows(rng: Rng, shape: Shape, kind: str, count: int) -> Words:
    """Return rows of a kind.

    Wide ones have words of it at one place, and beside them often the same few words in all rows.
    """
    made = KINDS[kind](rng, count)
    if shape.bits == 64:
        return made
    if shape.bits == 32:
        return made >> np.uint64(32) if rng.random() < 0.5 else made & np.uint64(2**32 - 1)
    rows = np.empty((len(made), shape.words), np.uint64)
    for word in range(shape.words):
        few = int(rng.choice([1, 3, 0]))
        rows[:, word] = (
            words(rng, few)[rng.integers(0, few, len(made))] if few else words(rng, len(made))
        )
    rows[:, rng.integers(0, shape.words)] = made
    return rows


def uniform(rng: Rng, shape: Shape, count: int) -> Words:
    """Return uniform rows."""
    rows = words(rng, count * shape.words)
    return rows >> np.uint64(32) if shape.bits == 32 else shape.flat(rows.reshape(-1, shape.words))


def make_ids(rng: Rng, kind: str, count: int) -> Ids:
    """Return an id for each row; some rows share one."""
    if kind == "rows":
        return None
    if kind == "strings":
        return [
            f"d{number}" + "é" * (number % 40)
            for number in rng.integers(0, 2 * count + 1, count).tolist()
        ]
    sparse = words(rng, count)
    sparse[rng.random(count) < 0.1] = np.uint64(2**64 - 1)
    return np.where(rng.random(count) < 0.5, sparse, rng.integers(0, 50, count, np.uint64))


QUERIES = ("mixed", "planted", "random", "stored", "range", "one")


def make_queries(rng: Rng, shape: Shape, rows: Words, radius: int, batch: int, most: int) -> Words:
    """Return a batch of which at most ``most`` queries differ: the others repeat them."""
    kind = QUERIES[rng.choice(len(QUERIES), p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1])]
    count = 1 if kind == "one" else min(batch, most)
    stored = rows[rng.integers(0, len(rows), count)] if len(rows) else uniform(rng, shape, count)
    if kind in ("mixed", "planted", "one"):
        pool = flipped_rows(
            rng, shape, stored, rng.integers(0, min(radius + 2, shape.bits + 1), count)
        )
    elif kind == "range":
        start = rng.choice(np.concatenate([shape.edges, stored[:1]])).reshape(-1)
        first = int.from_bytes(start.astype(">u8").tobytes(), "big")
        pool = shape.rows((first + i) % 2**shape.bits for i in range(count))
    else:
        pool = stored if kind == "stored" else uniform(rng, shape, count)
    if kind == "mixed" and count:
        other = rng.random(count)
        pool = _mixed(other < 0.2, uniform(rng, shape, count), pool)
        pool = _mixed(other > 0.9, rng.choice(shape.edges, count), pool)
    queries = pool[np.arange(batch) % count] if count else pool[:0]
    how = rng.integers(0, 3)
    if how == 1:
        pool, counts = np.unique(queries, axis=0, return_counts=True)
        return np.repeat(pool, counts, axis=0)
    return queries if how == 0 else rng.permutation(queries)


def _mixed(which: npt.NDArray[np.bool_], rows: Words, others: Words) -> Words:
    return np.where(which if others.ndim == 1 else which[:, None], rows, others)
