"""Bands of MinHash, whose keys similar texts share often, and the sketches of a MinHash."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Item_contra, Words
from fpstore.base.arrays import list_lims
from fpstore.base.threads import cached_property
from fpstore.base.width import WORD_BITS, Width
from fpstore.errors import InputError
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.law import Reals
from fpstore.hashing.sketcher import MAX_SIGNATURE_BITS, Signed, Sketched, Sketcher, Values

MAX_FUNCTIONS = 256  # of all bands together
_SIGNATURE = Width(256)  # signatures are its first 224 bits
_MAX_VALUES = 2048


class Bands(NamedTuple):
    """Bands of successive hash functions.

    Two texts share the key of a band if all its functions have the same minima on them.
    """

    number: int
    size: int

    def recall(self, jaccard: float) -> float:
        """Return the probability that two texts of a similarity share a key."""
        return float(1 - (1 - jaccard**self.size) ** self.number)


def plan_bands(jaccard: float, recall: float) -> Bands | None:
    """Return the longest bands with a recall at a similarity.

    None if this takes more than `MAX_FUNCTIONS` functions. Long bands bring few texts together by
    chance. J. Leskovec, A. Rajaraman, J. Ullman, *Mining of Massive Datasets*, section 3.4.
    """
    for size in range(MAX_FUNCTIONS, 0, -1):
        for number in range(1, MAX_FUNCTIONS // size + 1):
            bands = Bands(number, size)
            if bands.recall(jaccard) >= recall:
                return bands
    return None


class MinHashSketcher(Fingerprinter[Item_contra], Sketcher[Item_contra]):
    """Sketches of a MinHash, or of a wrapper around one.

    They do not depend on its width: signatures are the first of 256 bits, and keys are made of the
    functions behind these bits, so both are independent.
    """

    @property
    @abstractmethod
    def minhash(self) -> Any:
        """The MinHash that this hasher is, or wraps."""

    @abstractmethod
    def with_width(self, width: int) -> Any:
        """Return the hasher with another width of fingerprints."""

    @abstractmethod
    def with_bands(self, bands: Bands, first: int = 0) -> Any:
        """Return the hasher that also writes the keys of bands, behind the same fingerprints."""

    @property
    def most_values(self) -> int:
        """The most values that a sketch can have."""
        return _MAX_VALUES

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the values of the hash functions on a batch."""
        hashed = self._with_values(functions).hashed(items)
        return Values(_lower_halves(hashed.rows), hashed.known)

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the first bits of fingerprints."""
        hashed = self._wide_hasher.hashed(items)
        return Signed(signature_bytes(hashed.rows), hashed.known)

    def sketch_batch(self, items: Sequence[Any], count: int) -> Sketched:
        """Return sketches and signatures by one reading of the texts."""
        hashed = self._with_values(range(count)).hashed(items)
        rows = hashed.rows
        return Sketched(
            _lower_halves(rows), signature_bytes(rows), hashed.known, hashed.whole_pages
        )

    def similarities(self, item: Any, others: Sequence[Any]) -> Reals:
        """Return the Jaccard similarities of an item and others; 0 where an item has no features.

        Sets of features of texts are compared by 32 bits of their hashes, as `fpstore.dedup` does.
        """
        batch = [*chain(*self.batches([item]), *self.batches(others))]
        if self.minhash.is_unweighted and all(isinstance(text, str) for text in batch):
            sets, places = self.feature_sets(batch), np.arange(1, len(batch), dtype=np.uint64)
            lims = list_lims(sets.sizes).view(np.uint64)
            shared = _kernel.FeatureSets(sets.features, lims).shared(np.zeros_like(places), places)
            return jaccard_similarities(shared, sets.sizes[0], sets.sizes[1:])
        first, *weights = map(self._weights, batch)
        return np.array([_weighted_jaccard(first, other) for other in weights], np.float64)

    @cached_property
    def _wide_hasher(self) -> Any:
        return self.with_width(_SIGNATURE.bits)

    @cached_property
    def _with_values_cache(self) -> dict[range, Any]:
        return {}

    def _with_values(self, functions: range) -> Any:
        """Return the hasher that also writes the values of functions, behind fingerprints."""
        hasher = self._with_values_cache.get(functions)
        if hasher is None:
            first = MAX_SIGNATURE_BITS + functions.start
            hasher = self._wide_hasher.with_bands(Bands(len(functions), 1), first)
            self._with_values_cache[functions] = hasher
        return hasher

    def _weights(self, item: Any) -> Mapping[str, float]:
        """Return the features of an item with their weights, which are 1 in a set."""
        minhash = self.minhash
        if isinstance(item, str):
            return dict(minhash.features(item))
        if not isinstance(self, type(minhash)):
            raise InputError(f"the fingerprinter {self.name} has no features that can be compared")
        weights: dict[str, float] = {}
        for feature, weight in item:
            weights[feature] = 1 if minhash.is_unweighted else weights.get(feature, 0) + weight
        return weights


def signature_bytes(rows: Words) -> Bytes:
    """Return the first 224 bits of rows of 256 bits, which keys may follow."""
    words = rows[:, : _SIGNATURE.words].astype(">u8")
    return np.ascontiguousarray(
        words.view(np.uint8).reshape(len(rows), _SIGNATURE.bytes)[:, : MAX_SIGNATURE_BITS // 8]
    )


def jaccard_similarities(shared: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> Reals:
    """Return the Jaccard similarities of sets of sizes a and b that share some features.

    Of two empty sets it is 1. A. Broder, *On the resemblance and containment of documents*,
    SEQUENCES 1997, section 2.
    """
    both = np.asarray(shared, np.float64)
    union = np.asarray(a, np.float64) + np.asarray(b, np.float64) - both
    return np.divide(both, union, out=np.ones_like(union), where=union > 0)


def _lower_halves(rows: Words) -> Counts:
    return rows[:, _SIGNATURE.bits // WORD_BITS :].astype(np.uint32)


def _weighted_jaccard(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    both = sum(min(weight, b[feature]) for feature, weight in a.items() if feature in b)
    total = sum(a.values()) + sum(b.values()) - both
    return both / total if total else 0.0
