"""Bands of MinHash: keys that texts share more often, the more similar they are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.width import WORD_BITS, Width
from fpstore.hashing.base import Fingerprinter, Wrapper
from fpstore.hashing.minhash import MinHash

MOST_FUNCTIONS = 256  # of all bands together


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


@dataclass(frozen=True, kw_only=True)
class BandedMinHash(MinHash):
    """A MinHash that writes the keys of bands behind each fingerprint.

    The width, 64 or more, does not count the keys.
    """

    bands: Bands
    first: int = 0  # the number of the first band's first function

    @property
    def _band_shape(self) -> tuple[int, int, int]:
        return *self.bands, self.first

    @property
    def _no_row(self) -> Words:
        return np.zeros((1, Width(self.width).words + self.bands.number), np.uint64)


def minhash_in(maker: Fingerprinter[Any] | None) -> MinHash | None:
    """Return the MinHash that a fingerprinter is, or passes texts to."""
    while isinstance(maker, Wrapper):
        maker = maker.fingerprinter
    return maker if isinstance(maker, MinHash) else None


def can_have_bands(maker: Fingerprinter[Any] | None) -> bool:
    """Whether a fingerprinter can write the keys of bands."""
    minhash = minhash_in(maker)
    return minhash is not None and minhash.width >= WORD_BITS


def with_bands(maker: Any, bands: Bands, first: int = 0) -> Any:
    """Return a fingerprinter that writes the keys of bands behind fingerprints, which are the same."""
    if isinstance(maker, Wrapper):
        return replace(maker, fingerprinter=with_bands(maker.fingerprinter, bands, first))  # type: ignore[type-var]  # all are dataclasses
    return BandedMinHash(
        **{field.name: getattr(maker, field.name) for field in fields(maker)},
        bands=bands,
        first=first,
    )
