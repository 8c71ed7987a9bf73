"""MinHash as a family: the Jaccard similarity of texts and of sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Words
from fpstore.base.arrays import lims_of
from fpstore.base.threads import cached_property
from fpstore.base.width import WORD_BITS, Width
from fpstore.errors import InputError, show
from fpstore.families.base import (
    MOST_WIDTH,
    JaccardFamily,
    Reals,
    Signed,
    Sketched,
    Values,
    check_many,
)
from fpstore.hashing.bands import Bands, minhash_in, with_bands
from fpstore.hashing.base import Fingerprinter, Wrapper
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.registry import from_description

_SIGNATURE = Width(256)  # of which the first bits are used
_MOST_VALUES = 2048
# Of unrelated texts, by units in a shingle: the fifth root of the mean fifth power, measured on
# parts of the pages of docs/.
_OF_WORDS, _OF_CHARS = (0.2, 0.04, 0.02, 0.015, 0.01), (0.87, 0.57, 0.31, 0.17, 0.1, 0.07, 0.05)


@dataclass(frozen=True, kw_only=True)
class MinHashFamily(JaccardFamily[Any]):
    """MinHash: the hash values are least values of hash functions on the shingles of a text, or on any set of features.

    Two texts agree in a value with the probability J, their Jaccard similarity. The signature is
    the first 224 bits of the fingerprint of 256 bits that `fpstore.MinHash` makes, each a bit of
    the least value of one of the functions 0 to 223. Value i of a sketch comes from the function
    224 + i, so that keys and signature are independent. Weighted sets work in the same way.

    Version 1 is, exactly: value i is the lower half of ``A(i P + m)``, where m is the least value,
    or the sample, that function 224 + i takes, and A and P are those in the description of
    `fpstore.MinHash`.

    Parameters
    ----------
    fingerprinter : MinHash or Wrapper
        How a text becomes a set of features, or one that passes texts to a MinHash, such as
        `fpstore.hashing.Fields`. Its width is of no account.

    Raises
    ------
    InputError
        The fingerprinter is no MinHash.

    Notes
    -----
    A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997. P. Li, A. C. König, *b-Bit minwise hashing*, WWW
    2010. Weighted sets: S. Ioffe, *Improved consistent sampling, weighted Minhash and L1
          sketching*, ICDM 2010.

    Examples
    --------
    >>> from fpstore import MinHash
    >>> from fpstore.families import MinHashFamily
    >>> family = MinHashFamily(fingerprinter=MinHash(size=5))
    >>> family.collision(0.8), round(family.differing(0.8), 3)
    (0.8, 0.1)
    """

    name: ClassVar[str] = "minhash"
    version: ClassVar[int] = 1
    items: ClassVar[str] = "texts"

    fingerprinter: Any = field(default_factory=MinHash)

    def __post_init__(self) -> None:
        if (
            not isinstance(self.fingerprinter, Fingerprinter)
            or minhash_in(self.fingerprinter) is None
        ):
            raise InputError(
                f"fingerprinter must be a MinHash, got {show(self.fingerprinter)}",
                got=self.fingerprinter,
            )
        object.__setattr__(self, "fingerprinter", _of_width(self.fingerprinter, _SIGNATURE.bits))

    @property
    def background(self) -> float:
        """The Jaccard similarity of unrelated texts, which depends on the length of shingles."""
        minhash = self._minhash
        known = _OF_CHARS if minhash.shingle == "chars" else _OF_WORDS
        return known[min(minhash.size, len(known)) - 1]

    @property
    def most_values(self) -> int:
        """The most values that a sketch can have."""
        return _MOST_VALUES

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal family, as JSON values."""
        return {"fingerprinter": self.fingerprinter.describe()}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Return the family that has these `parameters`."""
        return cls(**parameters | {"fingerprinter": from_description(parameters["fingerprinter"])})

    def batches(self, items: Iterable[Any]) -> Iterator[Sequence[Any]]:
        """Cut texts into batches of about a million characters."""
        check_many(items, self.items)
        found: Iterator[Sequence[Any]] = self.fingerprinter.batches(items)
        return found

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return the values of some hash functions."""
        found = self._keyed(functions).hashed(items)
        return Values(_lower_halves(found.rows), found.known)

    def signed(self, items: Sequence[Any]) -> Signed:
        """Return the first bits of fingerprints."""
        found = self.fingerprinter.hashed(items)
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
        if self._minhash.of_sets and all(isinstance(one, str) for one in (*batch, *rest)):
            features, sizes = self.fingerprinter.feature_sets([*batch, *rest])
            places = np.arange(1, len(rest) + 1, dtype=np.uint64)
            return _kernel.FeatureSets(features, lims_of(sizes).view(np.uint64)).similarities(
                np.zeros_like(places), places
            )
        first = self._weights(batch[0])
        return np.array(
            [_weighted_jaccard(first, self._weights(other)) for other in rest], np.float64
        )

    def lack(self, item: Any) -> str:
        """Return the message that a text has no features."""
        return str(self.fingerprinter.lack(item))

    @property
    def _minhash(self) -> MinHash:
        found = minhash_in(self.fingerprinter)
        assert found is not None
        return found

    @cached_property
    def _makers(self) -> dict[range, Any]:
        return {}

    def _keyed(self, functions: range) -> Any:
        """Return the fingerprinter that writes the values of some functions behind fingerprints."""
        found = self._makers.get(functions)
        if found is None:
            found = with_bands(
                self.fingerprinter, Bands(len(functions), 1), MOST_WIDTH + functions.start
            )
            self._makers[functions] = found
        return found

    def _weights(self, item: Any) -> Mapping[str, float]:
        """Return the features of an item with their weights, of sets 1."""
        if isinstance(item, str):
            return self._minhash.features(item)
        if isinstance(self.fingerprinter, Wrapper):
            raise InputError(
                f"the fingerprinter {self.fingerprinter.name} has no features that can be compared"
            )
        weights: dict[str, float] = {}
        for feature, weight in item:
            weights[feature] = 1 if self._minhash.of_sets else weights.get(feature, 0) + weight
        return weights


def _of_width(maker: Any, width: int) -> Any:
    if isinstance(maker, Wrapper):
        return replace(maker, fingerprinter=_of_width(maker.fingerprinter, width))  # type: ignore[type-var]  # a dataclass
    return replace(maker, width=width)


def signature_of(rows: Words) -> Bytes:
    """Return the first bits of rows of 256 bits, which keys may follow."""
    words = rows[:, : _SIGNATURE.words].astype(">u8")
    return np.ascontiguousarray(
        words.view(np.uint8).reshape(len(rows), _SIGNATURE.bytes)[:, : MOST_WIDTH // 8]
    )


def _lower_halves(rows: Words) -> Counts:
    return rows[:, _SIGNATURE.bits // WORD_BITS :].astype(np.uint32)


def _weighted_jaccard(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    both = sum(min(weight, b[feature]) for feature, weight in a.items() if feature in b)
    total = sum(a.values()) + sum(b.values()) - both
    return both / total if total else 0.0
