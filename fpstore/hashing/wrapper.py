"""The base of fingerprinters that turn an item into texts for another fingerprinter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy.typing as npt

from fpstore.base.aliases import Item_contra
from fpstore.base.width import WORD_BITS
from fpstore.errors import InputError
from fpstore.hashing.bands import Bands, MinHashSketcher
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.law import Law, Reals
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.simminhash import SimMinHash


class Wrapper(MinHashSketcher[Item_contra]):
    """Turns an item into texts for another fingerprinter, whose properties it has."""

    fingerprinter: Any

    @property
    def width(self) -> int:
        """Bits of a fingerprint: 32, 64, 128 or 256."""
        return int(self.fingerprinter.width)

    @property
    def usual_group(self) -> str:  # type: ignore[override]
        """How to group near-duplicates: as for `fingerprinter`."""
        return str(self.fingerprinter.usual_group)

    @property
    def usual_radius(self) -> int:
        """A radius to begin with: that of `fingerprinter`."""
        return int(self.fingerprinter.usual_radius)

    @property
    def law(self) -> Law | None:  # type: ignore[override]
        """The law of the wrapped MinHash; None for another fingerprinter."""
        minhash = unwrap_minhash(self)
        return None if minhash is None or isinstance(minhash, SimMinHash) else minhash.law

    @property
    def minhash(self) -> MinHash:
        """The wrapped MinHash; InputError for another fingerprinter."""
        minhash = unwrap_minhash(self)
        if minhash is None:
            raise InputError(
                f"the hasher {self.name} passes texts to {self.fingerprinter.name}, which has no "
                "sketches: take a MinHash",
                got=self,
            )
        return minhash

    def estimate(self, distances: npt.ArrayLike) -> Reals:
        """Return the similarities for Hamming distances of signatures."""
        if self.law is None:
            raise InputError(
                f"the hasher {self.name} has no law, by which similarities are estimated: pass "
                "texts to a MinHash",
                got=self,
            )
        return super().estimate(distances)

    def with_width(self, width: int) -> Self:
        """Return the hasher with another width of fingerprints."""
        _ = self.minhash
        return replace(self, fingerprinter=self.fingerprinter.with_width(width))  # type: ignore[type-var]  # all are dataclasses

    def with_bands(self, bands: Bands, first: int = 0) -> Self:
        """Return the hasher that also writes the keys of bands, behind the same fingerprints."""
        _ = self.minhash
        return replace(self, fingerprinter=self.fingerprinter.with_bands(bands, first))  # type: ignore[type-var]  # all are dataclasses


def unwrap_minhash(fingerprinter: Fingerprinter[Any] | None) -> MinHash | None:
    """Return the MinHash that a fingerprinter is or wraps."""
    while isinstance(fingerprinter, Wrapper):
        fingerprinter = fingerprinter.fingerprinter
    return fingerprinter if isinstance(fingerprinter, MinHash) else None


def can_have_bands(fingerprinter: Fingerprinter[Any] | None) -> bool:
    """Whether a fingerprinter can write the keys of bands."""
    minhash = unwrap_minhash(fingerprinter)
    return minhash is not None and minhash.width >= WORD_BITS
