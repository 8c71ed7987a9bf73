"""A hasher of words of 24 letters from a to d: each letter is a hash value."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpstore.errors import InputError
from fpstore.hashing.law import Law, Reals
from fpstore.hashing.sketcher import Signed, Sketcher, Values

LENGTH = 24
LETTERS = "abcd"


@dataclass(frozen=True, kw_only=True)
class Letters(Sketcher[str]):
    """Words are as similar as letters are equal. The signature has two bits a letter.

    The empty word has no content.
    """

    name: ClassVar[str] = "letters"
    version: ClassVar[int] = 1
    items: ClassVar[str] = "words"
    has_probes: ClassVar[bool] = True

    @property
    def law(self) -> LettersLaw:
        return LettersLaw()

    @property
    def signature_bits(self) -> int:
        return 2 * LENGTH

    def values(self, items: Sequence[Any], functions: range) -> Values:
        letters = _numbers(items)
        places = np.array(functions, np.intp)
        return Values(
            (letters[:, places % LENGTH] + 1000 * places.astype(np.uint32)).astype(np.uint32),
            _known(items),
        )

    def signed(self, items: Sequence[Any]) -> Signed:
        letters = _numbers(items).astype(np.uint8)
        bits = np.stack([letters >> 1, letters & 1], axis=2).reshape(len(letters), -1)
        return Signed(np.packbits(bits, axis=1), _known(items))

    def probes(self, item: str, bands: int, rows: int, count: int) -> Any:
        own = self.values([item], range(bands * rows)).values[0].reshape(bands, rows)
        probes = np.repeat(own[:, None, :], count, axis=1)
        for probe in range(1, count):  # another letter at one place
            row, step = (probe - 1) % rows, 1 + (probe - 1) // rows % 3
            letters = own[:, row] % 1000
            probes[:, probe, row] += (letters + step) % 4 - letters
        return probes

    def similarities(self, item: str, others: Sequence[str]) -> Reals:
        return (_numbers([item]) == _numbers(others)).mean(axis=1)


@dataclass(frozen=True)
class LettersLaw(Law):
    measure = "share of equal letters"

    def band_collision(self, similarity: float, rows: int, probes: int = 1) -> float:
        other = min((probes - 1) / rows, 3) * similarity ** (rows - 1) * (1 - similarity) / 3 * rows
        return min(similarity**rows + other, 1.0)

    def collision(self, similarity: float) -> float:
        return similarity


def _numbers(words: Sequence[str]) -> Any:
    for place, word in enumerate(words):
        if not isinstance(word, str) or (
            word and (len(word) != LENGTH or set(word) - set(LETTERS))
        ):
            raise InputError(f"item {place}: expected {LENGTH} letters, got {word!r}")
    data = "".join(word or "a" * LENGTH for word in words).encode()
    return np.frombuffer(data, np.uint8).reshape(-1, LENGTH).astype(np.uint32) - ord("a")


def _known(words: Sequence[str]) -> Any:
    return np.array([bool(word) for word in words], bool)


def some_words(rng: random.Random, count: int, changes: int = 6) -> list[str]:
    """Return words in families, with copies among them."""
    parents = ["".join(rng.choices(LETTERS, k=LENGTH)) for _ in range(max(count // 4, 1))]
    words = []
    for _ in range(count):
        word = list(rng.choice(parents))
        for _ in range(rng.randrange(changes)):
            word[rng.randrange(LENGTH)] = rng.choice(LETTERS)
        words.append("".join(word))
    return words
