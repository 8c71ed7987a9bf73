"""Fingerprinters that pass what they make of an item to another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from fpstore.base.aliases import Item_contra
from fpstore.base.width import WORD_BITS
from fpstore.errors import InputError
from fpstore.hashing.bands import Bands, MinHashSketcher
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.law import Law
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.simminhash import SimMinHash


class Wrapper(MinHashSketcher[Item_contra]):
    """Passes what it makes of an item, one text or several, to another fingerprinter, and is as that one is."""

    fingerprinter: Any

    @property
    def width(self) -> int:
        """Bits of a fingerprint: 32, 64, 128 or 256."""
        return int(self.fingerprinter.width)

    @property
    def usual_group(self) -> str:  # type: ignore[override]  # of another one here
        """How to group near-duplicates: as for `fingerprinter`."""
        return str(self.fingerprinter.usual_group)

    @property
    def usual_radius(self) -> int:
        """A radius to begin with: that of `fingerprinter`."""
        return int(self.fingerprinter.usual_radius)

    @property
    def law(self) -> Law | None:  # type: ignore[override]  # of some
        """That of the MinHash to which texts pass; None if they pass to another fingerprinter."""
        minhash = minhash_in(self)
        return None if minhash is None or isinstance(minhash, SimMinHash) else minhash.law

    @property
    def minhash(self) -> MinHash:
        """The MinHash to which texts pass; InputError if they pass to another fingerprinter."""
        minhash = minhash_in(self)
        if minhash is None:
            raise InputError(
                f"the hasher {self.name} passes texts to {self.fingerprinter.name}, which has no "
                "sketches: take a MinHash",
                got=self,
            )
        return minhash

    def of_width(self, width: int) -> Self:
        """Return the hasher with another width of its fingerprints."""
        _ = self.minhash
        return replace(self, fingerprinter=self.fingerprinter.of_width(width))  # type: ignore[type-var]  # all are dataclasses

    def banded(self, bands: Bands, first: int = 0) -> Self:
        """Return a fingerprinter that writes the keys of bands behind fingerprints, which are the same."""
        _ = self.minhash
        return replace(self, fingerprinter=self.fingerprinter.banded(bands, first))  # type: ignore[type-var]  # all are dataclasses


def minhash_in(maker: Fingerprinter[Any] | None) -> MinHash | None:
    """Return the MinHash that a fingerprinter is, or passes texts to."""
    while isinstance(maker, Wrapper):
        maker = maker.fingerprinter
    return maker if isinstance(maker, MinHash) else None


def can_have_bands(maker: Fingerprinter[Any] | None) -> bool:
    """Whether a fingerprinter can write the keys of bands."""
    minhash = minhash_in(maker)
    return minhash is not None and minhash.width >= WORD_BITS
