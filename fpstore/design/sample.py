"""A sample of a set, and its estimates of look-ups.

Real fingerprints share more leading bits than random ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Words
from fpstore.base.width import WORD_BITS, Width, empty_rows, leading_words
from fpstore.design.tables import TableSpec, ball_size

SAMPLE_SIZE = 1 << 14
QUERIES = 128  # fingerprints of the sample that stand for queries
POINTS = 1 << 12  # fingerprints of the sample that stand for the set
MIN_PAIRS = 64  # a share is too uncertain if fewer pairs of the sample are within it


def sample_evenly(rows: Words, count: int) -> Words:
    """Return at most ``count`` of the rows, evenly spread."""
    return rows if len(rows) <= count else rows[np.arange(count) * len(rows) // count]


class EvenRows:
    """A bounded number of rows of a stream of any length, evenly spread."""

    def __init__(self, words: int) -> None:
        self._parts = [empty_rows(0, words)]
        self._passed = 0
        self._step = 1

    def add(self, rows: Words) -> None:
        while sum(map(len, self._parts)) + len(rows) // self._step > 2 * SAMPLE_SIZE:
            self._parts = [self.rows()[::2]]
            self._step *= 2
        self._parts.append(rows[-self._passed % self._step :: self._step].copy())
        self._passed += len(rows)

    def rows(self) -> Words:
        """Return all rows of a short stream, otherwise at least SAMPLE_SIZE."""
        return np.concatenate(self._parts)


class Sample:
    """A random sample of a set's fingerprints, and estimates from it."""

    def __init__(self, fingerprints: Words, width: Width) -> None:
        self._values = np.ascontiguousarray(sample_evenly(fingerprints, SAMPLE_SIZE))
        self.width = width
        bits = np.unpackbits(width.to_bytes(self._values), axis=1)
        ones = bits.mean(axis=0) if len(self._values) else np.full(width.bits, 0.5)
        # How likely the other value of each source bit is, relative to its own.
        self._evenness = np.minimum(ones, 1 - ones) / np.maximum(ones, 1 - ones)
        self._pairs_within: dict[frozenset[int], npt.NDArray[np.int64]] = {}

    def share(self, table: TableSpec, prefix_bits: int) -> float:
        """Return the share of the set that has a fingerprint's leading bits in a table."""
        permuted = _kernel.permute(self._values, np.frombuffer(table.permutation, np.uint8), False)
        leads = leading_words(permuted)
        leading = leads >> np.uint64(64 - prefix_bits) if prefix_bits else np.zeros_like(leads)
        _, counts = np.unique(leading, return_counts=True)
        m = len(self._values)
        pairs = float(np.sum(counts * (counts - 1.0)))
        return max(pairs / (m * (m - 1)), 2.0**-prefix_bits)

    def within(self, table: TableSpec, prefix_bits: int, flips: int) -> float:
        """Return the share of the set within ``flips`` of a fingerprint in the leading bits."""
        pairs = self._counts_within(table.permutation[:prefix_bits])
        near = int(pairs[min(flips, len(pairs) - 1)]) if len(pairs) else 0
        if near >= MIN_PAIRS:
            return near / int(pairs[-1])
        # One flipped bit leads to fewer entries than none, the rarer the bit's other value is.
        evenness = (
            float(self._evenness[list(table.permutation[:prefix_bits])].mean())
            if prefix_bits
            else 1.0
        )
        variants = ball_size(prefix_bits, flips)
        return self.share(table, prefix_bits) * (1 + evenness * (variants - 1))

    def _counts_within(self, bits: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return how many pairs differ in at most 0, 1, ... of these bits."""
        key = frozenset(bits)
        if key not in self._pairs_within:
            self._pairs_within[key] = np.cumsum(np.bincount(self.distances(bits).ravel()))
        return self._pairs_within[key]

    def distances(self, bits: Sequence[int]) -> Bytes:
        """Return in how many of these bits each query, a row, differs from each point, a column."""
        chosen = frozenset(bits)
        queries, points = self._pairs()
        out = np.zeros((len(queries), len(points)), np.uint8)
        for word in range(self.width.words):
            mask = sum(
                1 << (WORD_BITS - 1 - bit % WORD_BITS) for bit in chosen if bit // WORD_BITS == word
            )
            if mask:
                out += np.bitwise_count(
                    (queries[:, word, None] ^ points[None, :, word]) & np.uint64(mask)
                )
        return out

    def order_by_evenness(self, bits: Iterable[int]) -> list[int]:
        """Return bits by how evenly their values are spread.

        The first bits separate most fingerprints.
        """
        return sorted(bits, key=lambda bit: (-self._evenness[bit], bit))

    def differences(self, pairs: int) -> Bytes:
        """Return for each bit, a row, whether it differs (0 or 1) in each of some pairs."""
        queries, points = self._pairs()
        points = sample_evenly(points, max(pairs // max(len(queries), 1), 1))
        differences = (queries[:, None] ^ points[None]).reshape(-1, self.width.words)
        return np.ascontiguousarray(np.unpackbits(self.width.to_bytes(differences), axis=1).T)

    @property
    def pairs(self) -> int:
        """The number of pairs that :meth:`distances` compares."""
        queries, points = self._pairs()
        return max(len(queries) * len(points), 1)

    def _pairs(self) -> tuple[Words, Words]:
        """Return the queries and the points: different fingerprints, spread over the sample."""
        rows = self._values.reshape(len(self._values), self.width.words)
        return sample_evenly(rows[::2], QUERIES), sample_evenly(rows[1::2], POINTS)

    @property
    def is_skewed(self) -> bool:
        """Whether some 16 successive bits take far fewer values than random bits would."""
        m = len(self._values)
        if m < SAMPLE_SIZE:
            return False
        bits = self.width.bits
        runs = [
            TableSpec(bytes((bit + start) % bits for bit in range(bits)), 16)
            for start in range(0, bits, 16)
        ]
        return any(self.share(run, 16) > 1.5 / 2**16 for run in runs)
