"""The texts of rows as sets of features, by which is decided which rows go.

The sets may lie in a temporary file: four bytes for each feature, about as many as the words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Flags, Lims, Words
from fpstore.base.arrays import list_lims, spans
from fpstore.disk.temporary import NumbersWriter
from fpstore.hashing.bands import jaccard_similarities
from fpstore.hashing.base import FeatureSets
from fpstore.hashing.law import Reals

USUAL_SIMILARITY, USUAL_CONTAINMENT = 0.7, 0.8
LOSSLESS_CONTAINMENT = 0.95
AT_ONCE = 1 << 22  # features that are copied together
IN_MEMORY = 8  # the share of the memory budget up to which sets are in memory: one in so many
NEVER = 2.0  # a share that no text reaches


class Rule(NamedTuple):
    """When a text goes for one that stays.

    ``contained`` is the least share of its features that the text that stays has, ``similar`` the
    least Jaccard similarity of both. One of them is enough.
    """

    contained: float = USUAL_CONTAINMENT
    similar: float = USUAL_SIMILARITY

    @classmethod
    def choose(cls, contained: float | None, similar: float | None) -> Rule:
        """Return a rule with one or both bounds.

        One that is missing is what the other one means for texts of equal sizes.
        """
        if contained is None and similar is None:
            return cls()
        if similar is None:
            assert contained is not None
            return cls(contained, contained / (2 - contained))
        return cls(_equal_containment(similar) if contained is None else contained, similar)

    def summary(self) -> dict[str, float | None]:
        """Return the bounds by their options; None for one that no text reaches."""
        bounds = {"contained": self.contained, "threshold": self.similar}
        return {name: bound if bound <= 1 else None for name, bound in bounds.items()}

    @property
    def least_containment(self) -> float:
        """The least share of the smaller of two texts that the larger one has if either goes."""
        return min(self.contained, _equal_containment(min(self.similar, 1)))


def _equal_containment(similar: float) -> float:
    """Return the containment of texts of equal sizes and a similarity."""
    return 2 * similar / (1 + similar)


class TextSets:
    """Sets of features, and the length of each text in characters.

    Attributes
    ----------
    sizes, chars : ndarray of int64 and of uint32, shape (n,)
        The features of each set, and the characters of its text.
    digests, samples : ndarray of uint64 and of uint32, shape (n,)
        As in `FeatureSets`.
    """

    def __init__(self, sets: FeatureSets, chars: Counts) -> None:
        self.features, self.sizes, self.digests, self.samples = sets
        self.chars, self.lims = chars, list_lims(sets.sizes)
        self._sets = _kernel.FeatureSets(self.features, self.lims.view(np.uint64))

    def __len__(self) -> int:
        return len(self.sizes)

    def followed_by(self, other: TextSets, memory: int) -> TextSets:
        """Return these sets with others behind them."""
        writer = TextSetsWriter(memory)
        for texts in (self, other):
            for batch in spans(texts.lims, AT_ONCE):
                span = slice(int(texts.lims[batch.start]), int(texts.lims[batch.stop]))
                sets = FeatureSets(
                    texts.features[span],
                    texts.sizes[batch],
                    texts.digests[batch],
                    texts.samples[batch],
                )
                writer.add(sets, texts.chars[batch])
        return writer.finish()

    def ranks(self, numbers: Words) -> Words:
        """Return ranks of sets by size, then by characters: the largest has the least."""
        places = numbers.view(np.intp)
        most = np.uint64(np.iinfo(np.uint32).max)
        sizes = np.minimum(self.sizes[places].astype(np.uint64), most)
        chars = self.chars[places].astype(np.uint64)
        return (most - sizes) << np.uint64(32) | (most - chars)

    def decide(self, numbers: Words, lims: Lims, rule: Rule, stays: Bytes | None = None) -> Words:
        """Return the place of the set that stays for each set of some groups.

        In the order of its group, a set goes if one before it that stays contains enough of it, or
        is as similar: to the one that contains most. ``stays`` has flags of sets that stay in any
        case. Of 65,536 features of sets that stay, the rarest ones, those that share most are
        compared, up to 256: so the work is linear in the number of sets.
        """
        none = np.empty(0, np.uint8)
        return self._sets.decide(
            numbers,
            lims.view(np.uint64),
            self.digests[numbers.view(np.intp)],
            none if stays is None else stays,
            *rule,
        )

    def are_contained(self, numbers: Words, others: Words, share: float) -> Flags:
        """Return whether other sets have a share of the features of sets."""
        return self._sets.contain(numbers, others, share).view(bool)

    def sampled(self, numbers: Words, ranks: Counts, salts: Counts) -> tuple[Words, Counts]:
        """Return the samples of sets, and the rank of each feature's set.

        ``salts`` change the features of each set, if there are any.
        """
        samples = self.samples[numbers.view(np.intp)]
        return self._sets.samples(numbers, samples, ranks, salts)

    def shares(self, numbers: Words, kept_numbers: Words) -> tuple[Reals, Reals]:
        """Return the containment of sets in others, and their Jaccard similarities."""
        shared = self._sets.shared(numbers, kept_numbers)
        sizes, kept_sizes = (self.sizes[n.view(np.intp)] for n in (numbers, kept_numbers))
        contained = shared / np.maximum(sizes, 1)
        return contained, jaccard_similarities(shared, sizes, kept_sizes)


class TextSetsWriter:
    """Collects sets of features, in memory up to a bound, otherwise in a temporary file."""

    def __init__(self, memory: int) -> None:
        self._features = NumbersWriter(np.uint32, memory // IN_MEMORY)
        self._columns: list[tuple[npt.NDArray[Any], ...]] = []

    def add(self, sets: FeatureSets, chars: Counts) -> None:
        self._features.append(sets.features)
        self._columns.append((sets.sizes, sets.digests, sets.samples, chars))

    def finish(self) -> TextSets:
        return join_sets(self._features.finish(), self._columns)


def join_sets(features: Counts, columns: list[tuple[npt.NDArray[Any], ...]]) -> TextSets:
    """Return sets by all features, and by pieces of sizes, digests, samples and characters."""
    kinds = (np.int64, np.uint64, np.uint32, np.uint32)
    pieces = zip(*columns, strict=True) if columns else ((),) * len(kinds)
    sizes, digests, samples, chars = (
        np.concatenate([np.empty(0, kind), *column])
        for kind, column in zip(kinds, pieces, strict=True)
    )
    return TextSets(FeatureSets(features, sizes, digests, samples), chars)
