"""Seeded random numbers that are the same on every machine and in every version of Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Generic, TypeVar

import numpy as np

from fpstore import _kernel
from fpstore.hashing.words import STEP, mix

T = TypeVar("T")
_STEPS = np.arange(1, 33, dtype=np.uint64) * STEP  # to the words of a batch


def _words(state: np.uint64) -> Iterator[int]:
    while True:
        states = state + _STEPS
        yield from mix(states).tolist()
        state = states[-1]


class Draws:
    """Random numbers of SplitMix64; equal keys give equal numbers.

    G. Steele, D. Lea, C. Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014.
    """

    def __init__(self, *key: int | str) -> None:
        text = "\0".join(map(str, key)).encode("utf-8", "surrogatepass")
        self.word = _words(np.uint64(_kernel.xxh64(text))).__next__  # a number below 2^64

    def below(self, end: int) -> int:
        """Return a number from 0 to ``end`` - 1."""
        return self.word() * end >> 64

    def pick(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def pick_other(self, values: Sequence[T], than: T) -> T | None:
        """Return an element that differs from ``than``; None if none does."""
        begin = self.below(len(values)) if values else 0
        places = (place % len(values) for place in range(begin, begin + len(values)))
        return next((values[place] for place in places if values[place] != than), None)

    def places(self, end: int, count: int) -> list[int]:
        """Return ``count`` distinct numbers below ``end``, ascending (R. Floyd)."""
        chosen: set[int] = set()
        for top in range(max(end - count, 0), end):
            place = self.below(top + 1)
            chosen.add(top if place in chosen else place)
        return sorted(chosen)

    def order(self, count: int) -> list[int]:
        """Return the numbers below ``count`` in random order."""
        return [place for _, place in sorted((self.word(), place) for place in range(count))]


class Reservoir(Generic[T]):
    """A random sample of a stream of items, whose number ``count`` has.

    It has the items of the least random numbers (E. Cohen, H. Kaplan, *Summarizing data using
    bottom-k sketches*, PODC 2007): at most ``most``, and fewer if their weights are more than
    ``limit`` together, but ``size`` at least.
    """

    def __init__(self, size: int, draws: Draws, most: int = 0, limit: int = 0) -> None:
        self.count = 0
        self._size, self._most, self._limit, self._draws = size, max(size, most), limit, draws
        self._heap: list[tuple[int, int, T, int]] = []  # a heap, the greatest number first
        self._weight, self._end = 0, 1 << 64

    def add(self, item: T, weight: int = 1) -> None:
        """Draw whether an item is in the sample."""
        word = self._draws.word()
        if word < self._end:
            heappush(self._heap, (-word, self.count, item, weight))
            self._weight += weight
        while len(self._heap) > self._most or (
            len(self._heap) > self._size and self._weight > self._limit
        ):
            negative, _, _, lost = heappop(self._heap)
            self._end, self._weight = -negative, self._weight - lost
        self.count += 1

    def sample(self) -> list[T]:
        """Return the items of the sample, in the order of the stream."""
        return [item for _, _, item, _ in sorted(self._heap, key=itemgetter(1))]

    def part(self) -> list[int]:
        """Return the places in the sample of a random smaller sample: ``size`` items, or all."""
        entries = sorted(self._heap, key=itemgetter(1))
        places = sorted(range(len(entries)), key=entries.__getitem__, reverse=True)
        return sorted(places[: self._size])
