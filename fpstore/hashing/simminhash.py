"""Sim-Min-Hash: keys of MinHash, and a signature of another kind that checks what they find."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.threads import cached_property
from fpstore.errors import InputError
from fpstore.hashing.bands import signature_bytes
from fpstore.hashing.law import JaccardLaw, Reals
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.simhash import SimHash
from fpstore.hashing.sketcher import Signed, Sketched, Sketcher
from fpstore.hashing.text import TextHash


@dataclass(frozen=True, kw_only=True)
class SimMinHash(MinHash):
    """Keys of MinHash, and the bits of a simhash of the same shingles as signature.

    A bit of a simhash is the side of a plane with components of 1 and -1 on which the set lies, as
    a vector with a component for each shingle. Two sets of the Jaccard similarity J have vectors
    with a cosine of ``2 J / (1 + J)`` or, of unequal sizes, more. So a bit differs with a
    probability of at most ``arccos(2 J / (1 + J)) / π``, by which plans are made: they find what
    they say, or more.

    docs/guides/hashers.md compares the signature with that of `MinHash`, which tells sets apart
    better.

    Parameters
    ----------
    **parameters
        As for `fpstore.MinHash`, without weights.

    Raises
    ------
    InputError
        As for `fpstore.MinHash`; or features have weights.

    Notes
    -----
    W.-L. Zhao, H. Jégou, G. Gravier, *Sim-Min-Hash: an efficient matching technique for linking
    large image collections*, ACM MM 2013, which keeps a signature of each value of a sketch; here a
    document has one.

    Examples
    --------
    >>> from fpstore.hashing import SimMinHash
    >>> round(SimMinHash(size=5).law.differing(0.8), 3)
    0.151
    """

    name: ClassVar[str] = "sim-min-hash"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.is_unweighted:
            raise InputError(
                "a SimMinHash is of sets: leave weighting and weights out", got=self.weighting
            )
        _ = self._signer

    @property
    def law(self) -> SimhashLaw:
        """The law of the Jaccard similarity."""
        return SimhashLaw(super().law.unrelated)

    @cached_property
    def _signer(self) -> SimHash:
        parameters = {field.name: getattr(self, field.name) for field in fields(TextHash)}
        return SimHash(**parameters | {"width": 256})

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the first bits of simhashes."""
        hashed = self._signer.hashed(items)
        return Signed(signature_bytes(hashed.rows), hashed.known)

    def sketch_batch(self, items: Sequence[Any], count: int) -> Sketched:
        """Return sketches and signatures, by two readings of the texts."""
        return Sketcher.sketch_batch(self, items, count)


@dataclass(frozen=True)
class SimhashLaw(JaccardLaw):
    """The law of MinHash for values, and of simhashes of sets for bits."""

    bits_differ_at_most: ClassVar[bool] = True

    def differing(self, similarity: float) -> float:
        """Return the most that bits differ at a similarity."""
        similarity = self._check_measure(similarity)
        return math.acos(min(2 * similarity / (1 + similarity), 1.0)) / math.pi

    def estimate(self, distances: npt.NDArray[np.intp], bits: int) -> Reals:
        """Return the similarities of sets of equal size that distances of signatures stand for."""
        cosines: Reals = np.maximum(np.cos(math.pi * distances / bits), 0.0)
        return cosines / (2 - cosines)
