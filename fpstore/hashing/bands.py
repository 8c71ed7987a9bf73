"""Bands of MinHash: keys that texts share more often, the more similar they are; and sketches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Item_contra, Words
from fpstore.base.arrays import list_lims
from fpstore.base.threads import cached_property
from fpstore.base.width import WORD_BITS, Width
from fpstore.errors import InputError
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.law import Reals
from fpstore.hashing.sketcher import MOST_SIGNATURE_BITS, Signed, Sketched, Sketcher, Values

MOST_FUNCTIONS = 256  # of all bands together
_SIGNATURE = Width(256)  # of which the first bits are used
_MOST_VALUES = 2048


class Bands(NamedTuple):
    """Bands of successive hash functions.

    Two texts share the key of a band if all its functions have the same minima on them.
    """

    number: int
    size: int

    def recall(self, jaccard: float) -> float:
        """Return the probability that two texts of a similarity share a key."""
        return float(1 - (1 - jaccard**self.size) ** self.number)


def planned_bands(jaccard: float, recall: float) -> Bands | None:
    """Return the longest bands that find a share of the pairs of a similarity.

    None if there are not functions enough.

    Long bands bring few texts together by chance. J. Leskovec, A. Rajaraman, J. Ullman, *Mining of
    Massive Datasets*, section 3.4.
    """
    for size in range(MOST_FUNCTIONS, 0, -1):
        some = (Bands(number, size) for number in range(1, MOST_FUNCTIONS // size + 1))
        if (
            found := next((bands for bands in some if bands.recall(jaccard) >= recall), None)
        ) is not None:
            return found
    return None


class MinHashSketcher(Fingerprinter[Item_contra], Sketcher[Item_contra]):
    """Sketches of a MinHash, or of what passes texts to one.

    Its width is of no account: signatures are those of 256 bits, cut, and keys are made of the
    functions behind these, so that both are independent.
    """

    @property
    @abstractmethod
    def minhash(self) -> Any:
        """The MinHash that this hasher is, or passes texts to."""

    @abstractmethod
    def of_width(self, width: int) -> Any:
        """Return the hasher with another width of its fingerprints."""

    @abstractmethod
    def banded(self, bands: Bands, first: int = 0) -> Any:
        """Return a fingerprinter that writes the keys of bands behind fingerprints, which are the same."""

    @property
    def most_values(self) -> int:
        """The most values that a sketch can have."""
        return _MOST_VALUES

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the values of some hash functions."""
        found = self._keyed(functions).hashed(items)
        return Values(_lower_halves(found.rows), found.known)

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the first bits of fingerprints."""
        found = self._wide.hashed(items)
        return Signed(signature_of(found.rows), found.known)

    def both(self, items: Sequence[Any], count: int) -> Sketched:
        """Return sketches and signatures by one reading of the texts."""
        found = self._keyed(range(count)).hashed(items)
        return Sketched(
            _lower_halves(found.rows), signature_of(found.rows), found.known, found.whole_pages
        )

    def similarities(self, item: Any, others: Sequence[Any]) -> Reals:
        """Return the Jaccard similarities of an item and others; 0 where one has no features.

        Features of sets of texts are compared by 32 bits of their hashes, as `fpstore.dedup` does.
        """
        (batch,) = self.batches([item])
        rest = [other for part in self.batches(others) for other in part]
        if self.minhash.of_sets and all(isinstance(one, str) for one in (*batch, *rest)):
            features, sizes = self.feature_sets([*batch, *rest])
            places = np.arange(1, len(rest) + 1, dtype=np.uint64)
            return _kernel.FeatureSets(features, list_lims(sizes).view(np.uint64)).similarities(
                np.zeros_like(places), places
            )
        first = self._weights(batch[0])
        return np.array(
            [_weighted_jaccard(first, self._weights(other)) for other in rest], np.float64
        )

    @cached_property
    def _wide(self) -> Any:
        return self.of_width(_SIGNATURE.bits)

    @cached_property
    def _makers(self) -> dict[range, Any]:
        return {}

    def _keyed(self, functions: range) -> Any:
        """Return the fingerprinter that writes the values of some functions behind fingerprints."""
        maker = self._makers.get(functions)
        if maker is None:
            first = MOST_SIGNATURE_BITS + functions.start
            maker = self._wide.banded(Bands(len(functions), 1), first)
            self._makers[functions] = maker
        return maker

    def _weights(self, item: Any) -> Mapping[str, float]:
        """Return the features of an item with their weights, of sets 1."""
        minhash = self.minhash
        if isinstance(item, str):
            return dict(minhash.features(item))
        if not isinstance(self, type(minhash)):
            raise InputError(f"the fingerprinter {self.name} has no features that can be compared")
        weights: dict[str, float] = {}
        for feature, weight in item:
            weights[feature] = 1 if minhash.of_sets else weights.get(feature, 0) + weight
        return weights


def signature_of(rows: Words) -> Bytes:
    """Return the first bits of rows of 256 bits, which keys may follow."""
    words = rows[:, : _SIGNATURE.words].astype(">u8")
    return np.ascontiguousarray(
        words.view(np.uint8).reshape(len(rows), _SIGNATURE.bytes)[:, : MOST_SIGNATURE_BITS // 8]
    )


def _lower_halves(rows: Words) -> Counts:
    return rows[:, _SIGNATURE.bits // WORD_BITS :].astype(np.uint32)


def _weighted_jaccard(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    both = sum(min(weight, b[feature]) for feature, weight in a.items() if feature in b)
    total = sum(a.values()) + sum(b.values()) - both
    return both / total if total else 0.0
