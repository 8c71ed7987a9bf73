"""Sim-Min-Hash: keys of MinHash, and a signature of another kind that checks what they find."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpstore.base.threads import cached_property
from fpstore.errors import InputError
from fpstore.families.base import Family, Reals, Signed, Sketched
from fpstore.families.minhash import MinHashFamily, signature_of
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.simhash import SimHash
from fpstore.hashing.text import TextHash


@dataclass(frozen=True, kw_only=True)
class SimMinHash(MinHashFamily):
    """Keys of MinHash, and the bits of a simhash of the same shingles as signature.

    A bit of a simhash is the side of a plane with components of 1 and -1 on which the set lies, as
    a vector with a component for each shingle. Two sets of the Jaccard similarity J have vectors
    with a cosine of ``2 J / (1 + J)`` or, of unequal sizes, more. So a bit differs with a
    probability of at most ``arccos(2 J / (1 + J)) / π``, by which plans are made: they find what
    they say, or more.

    docs/guides/families.md compares the signature with the one of `MinHashFamily`, which tells sets apart
    better.

    Parameters
    ----------
    fingerprinter : MinHash
        How a text becomes a set of features.

    Raises
    ------
    InputError
        The fingerprinter is no MinHash of sets.

    Notes
    -----
    W.-L. Zhao, H. Jégou, G. Gravier, *Sim-Min-Hash: an efficient matching technique for linking large image collections*, ACM MM
    2013, which keeps a signature of each value of a sketch; here a document has one.

    Examples
    --------
    >>> from fpstore import MinHash
    >>> from fpstore.families import SimMinHash
    >>> round(SimMinHash(fingerprinter=MinHash(size=5)).differing(0.8), 3)
    0.151
    """

    name: ClassVar[str] = "sim-min-hash"
    bits_differ_at_most: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.fingerprinter, MinHash) or not self.fingerprinter.of_sets:
            reason = (
                "the fingerprinter of a SimMinHash must be a MinHash of sets: weighting='set', "
                "without weights or fields"
            )
            raise InputError(reason, got=self.fingerprinter)
        _ = self._signer

    @cached_property
    def _signer(self) -> SimHash:
        parameters = {
            name: getattr(self.fingerprinter, name) for name in TextHash.__dataclass_fields__
        }
        return SimHash(**parameters)

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the first bits of simhashes."""
        found = self._signer.hashed(items)
        return Signed(signature_of(found.rows), found.known)

    def both(self, items: Sequence[Any], count: int) -> Sketched:
        """Return sketches and signatures, by two readings of the texts."""
        return Family.both(self, items, count)

    def differing(self, similarity: float) -> float:
        """Return the most that bits differ at a similarity."""
        similarity = self._measured(similarity)
        return math.acos(min(2 * similarity / (1 + similarity), 1.0)) / math.pi

    def estimate(self, distances: Any) -> Reals:
        """Return the similarities of sets of equal size that distances of signatures stand for."""
        cosines: Reals = np.maximum(np.cos(math.pi * self._distances(distances) / self.width), 0.0)
        return cosines / (2 - cosines)
