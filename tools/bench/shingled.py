"""A corpus of synthetic texts with exactly known Jaccard similarities.

Words as frequent as in real texts, and edited copies.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.cleaners import SIZE
from bench.local_texts import DOCUMENTATION, texts_here

VOCABULARY_BYTES = 16 << 20  # of texts of this machine, in which words are counted
MAX_LETTERS = 20
MEAN_WORDS, SPREAD, MIN_WORDS = 300, 0.4, 30  # of a text: a log-normal distribution
COPIES = 0.3  # share of the texts that are copies
MIN_SIMILARITY = 0.3  # to an original; similarities are uniform from here to 1
Places = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


class Corpus(NamedTuple):
    """Texts, of which the later ones are copies.

    ``pairs`` has every two texts of one origin, the later one first, ascending, and
    ``similarities`` the share of runs of three words that they have in common. ``words`` are the
    numbers of the words of each text.
    """

    texts: list[str]
    words: list[npt.NDArray[np.int32]]
    first_copy: int
    pairs: Places
    similarities: Reals

    @property
    def bytes(self) -> int:
        """Return the bytes of all texts."""
        return sum(map(len, self.texts))

    def similarities_of(self, pairs: Places) -> Reals:
        """Return the similarities of any pairs, the later text first."""
        count = len(self.texts)
        known, keys = self.pairs @ [count, 1], pairs @ [count, 1]
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        similarities = self.similarities[at].copy()
        for place in np.flatnonzero(known[at] != keys).tolist():
            similarities[place] = jaccard(
                *(runs(self.words[text]) for text in pairs[place].tolist())
            )
        return similarities


def corpus(seed: int, count: int) -> Corpus:
    """Return ``count`` texts, drawn from the frequencies of words on this machine."""
    rng = np.random.default_rng([seed, 1 << 47])
    names, shares = _vocabulary()
    first_copy = count - int(count * COPIES)
    lengths = rng.lognormal(np.log(MEAN_WORDS), SPREAD, first_copy).astype(np.int64) + MIN_WORDS
    drawn = rng.choice(len(names), int(lengths.sum()), p=shares).astype(np.int32)
    words = np.split(drawn, np.cumsum(lengths)[:-1])
    origins = [*range(first_copy), *rng.integers(0, first_copy, count - first_copy).tolist()]
    for origin in origins[first_copy:]:
        similarity = rng.uniform(MIN_SIMILARITY, 1)
        # share of words: a run is kept with all of its words
        kept = (2 * similarity / (1 + similarity)) ** (1 / SIZE)
        copy = words[origin].copy()
        changed = rng.random(len(copy)) >= kept
        copy[changed] = rng.choice(drawn, int(changed.sum()))
        words.append(copy)
    pairs, similarities = _pairs(words, origins)
    vocabulary = np.array(names, object)
    return Corpus(
        [" ".join(vocabulary[numbers].tolist()) for numbers in words],
        words,
        first_copy,
        pairs,
        similarities,
    )


def runs(words: npt.NDArray[np.int32]) -> Places:
    """Return the different runs of three words, as sorted numbers."""
    wide = words.astype(np.int64)
    codes = wide[: len(wide) - SIZE + 1].copy()
    for later in range(1, SIZE):
        codes = (codes << 21) | wide[later : len(wide) - SIZE + 1 + later]
    return np.unique(codes)


def jaccard(left: Places, right: Places) -> float:
    """Return the Jaccard similarity of two sorted sets."""
    common = len(np.intersect1d(left, right, assume_unique=True))
    return common / (len(left) + len(right) - common)


def _vocabulary() -> tuple[list[str], Reals]:
    counts: dict[str, int] = {}
    for text in texts_here(VOCABULARY_BYTES, DOCUMENTATION):
        for word in re.findall(r"[a-z]+", text.lower()):
            counts[word] = counts.get(word, 0) + 1
    names = sorted(word for word, times in counts.items() if times > 1 and len(word) <= MAX_LETTERS)
    shares = np.array([counts[name] for name in names], np.float64)
    return names, shares / shares.sum()


def _pairs(words: list[npt.NDArray[np.int32]], origins: list[int]) -> tuple[Places, Reals]:
    members: dict[int, list[int]] = {}
    pairs, similarities = [], []
    for text, origin in enumerate(origins):
        others = members.setdefault(origin, [])
        if others:
            own = runs(words[text])
            pairs += [(text, other) for other in others]
            similarities += [jaccard(own, runs(words[other])) for other in others]
        others.append(text)
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(similarities)
