"""Seeded random numbers that are the same on every machine and in every version of Python."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from fpstore import _kernel
from fpstore.hashing.words import STEP, mix

T = TypeVar("T")
_MASK = 2**64 - 1
_STEPS = np.arange(32, 0, -1, dtype=np.uint64) * STEP  # to the words of a batch


class Draws:
    """Random numbers of SplitMix64; equal keys give equal numbers.

    G. Steele, D. Lea, C. Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014.
    """

    def __init__(self, *key: int | str) -> None:
        self._words: list[int] = []  # drawn ahead, the last one first
        self._state = _kernel.xxh64("\0".join(map(str, key)).encode("utf-8", "surrogatepass"))

    def word(self) -> int:
        """Return a number below 2^64."""
        if not self._words:
            self._words = mix(np.uint64(self._state) + _STEPS).tolist()
            self._state = (self._state + int(_STEPS[0])) & _MASK
        return self._words.pop()

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
        """Return ``count`` distinct numbers below ``end``, or all, ascending.

        By Floyd's algorithm.
        """
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
        return [item for _, _, item, _ in sorted(self._heap, key=lambda entry: entry[1])]

    def part(self) -> list[int]:
        """Return the places in the sample of a random smaller sample: ``size`` items, or all."""
        numbers = [word for word, *_ in sorted(self._heap, key=lambda entry: entry[1])]
        return sorted(
            sorted(range(len(numbers)), key=numbers.__getitem__, reverse=True)[: self._size]
        )
