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
_STEPS = np.arange(32, 0, -1, dtype=np.uint64) * STEP  # of the words that are drawn together


class Draws:
    """Random numbers of SplitMix64 (G. Steele, D. Lea, C.

    Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014).

    Equal keys give equal numbers: a key says what is drawn for.
    """

    def __init__(self, *key: int | str) -> None:
        self._words: list[int] = []  # that were drawn ahead, the last one first
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

    def pick(self, some: Sequence[T]) -> T:
        """Return one element."""
        return some[self.below(len(some))]

    def pick_other(self, some: Sequence[T], than: T) -> T | None:
        """Return an element that differs from another one; None if none does."""
        begin = self.below(len(some)) if some else 0
        return next(
            (one for step in range(len(some)) if (one := some[(begin + step) % len(some)]) != than),
            None,
        )

    def places(self, end: int, count: int) -> list[int]:
        """Return distinct numbers below ``end``, ascending: ``count`` of them, or all (R.

        Floyd's algorithm).
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
    """A random sample of things that are seen once, in a number that nobody knows.

    ``seen`` counts them.

    It has the things of the least random numbers (E. Cohen, H. Kaplan, *Summarizing data using
    bottom-k sketches*, PODC 2007): at most ``most``, and fewer if their weights are more than
    ``limit`` together, but ``size`` at least.
    """

    def __init__(self, size: int, draws: Draws, most: int = 0, limit: int = 0) -> None:
        self.seen = 0
        self._size, self._most, self._limit, self._draws = size, max(size, most), limit, draws
        self._held: list[tuple[int, int, T, int]] = []  # a heap, the greatest number first
        self._weight, self._end = 0, 1 << 64

    def see(self, thing: T, weight: int = 1) -> None:
        """Take a thing, or leave it out."""
        word = self._draws.word()
        if word < self._end:
            heappush(self._held, (-word, self.seen, thing, weight))
            self._weight += weight
        while len(self._held) > self._most or (
            len(self._held) > self._size and self._weight > self._limit
        ):
            negative, _, _, lost = heappop(self._held)
            self._end, self._weight = -negative, self._weight - lost
        self.seen += 1

    def sample(self) -> list[T]:
        """Return the things of the sample, in the order in which they came."""
        return [thing for _, _, thing, _ in sorted(self._held, key=lambda one: one[1])]

    def part(self) -> list[int]:
        """Return the places in the sample of ``size`` things, or of all.

        A random sample that is smaller.
        """
        numbers = [word for word, *_ in sorted(self._held, key=lambda one: one[1])]
        return sorted(
            sorted(range(len(numbers)), key=numbers.__getitem__, reverse=True)[: self._size]
        )
