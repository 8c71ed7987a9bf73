"""One-bit MinHash: fingerprints whose distance estimates the Jaccard similarity of texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import check_number, check_whole
from fpstore.base.strings import Encoded
from fpstore.base.width import WORD_BITS, Width
from fpstore.errors import InputError, show
from fpstore.hashing.bands import Bands, MinHashSketcher
from fpstore.hashing.binomial import binomial_cdf, least_radius
from fpstore.hashing.features import used_mask
from fpstore.hashing.law import JaccardLaw
from fpstore.hashing.normal import KernelRows
from fpstore.hashing.text import TextHash, WeightedFeatures

USUAL_JACCARD = 0.7  # the default similarity of near-duplicates
USUAL_RECALL = 0.98  # the default share of pairs of this similarity
# The similarity of unrelated texts, by units in a shingle: the fifth root of the mean fifth power,
# measured on parts of the pages of docs/.
_UNRELATED_BY_WORDS = (0.2, 0.04, 0.02, 0.015, 0.01)
_UNRELATED_BY_CHARS = (0.87, 0.57, 0.31, 0.17, 0.1, 0.07, 0.05)


@dataclass(frozen=True, kw_only=True)
class MinHash(TextHash, MinHashSketcher[str | WeightedFeatures]):
    """One-bit MinHash of texts.

    The distance of two fingerprints estimates the share of shingles that the texts have in common.

    A text is a set of overlapping *shingles*, by default of three words. The Jaccard similarity of
    two sets is the share of their shingles that both have. Each bit of a fingerprint belongs to a
    hash function, and is a bit of the least value that the function has on the set. It differs
    between two sets with the probability (1 - J) / 2, where J is their similarity. So the distance
    of two fingerprints is binomial, with `width` trials of this probability: `recall` and `radius`
    compute with it.

    An item may also be a list of features, which are hashed as they are, such as the tags of a
    picture.

    With ``weighting="count"`` or ``"log"``, or learnt `weights`, a text is a weighted set. J is
    then the weighted Jaccard similarity: the sum of the minima of the weights divided by the sum of
    the maxima. An item may also be a mapping of features to weights, or pairs of both. A weight of
    0 is as if the feature was not there. A weighted set takes about a hundred times as long.

    Version 2 is, exactly: shingles are those of `SimHash` with the same parameters, and h is the
    hash of a feature, 64 bits. Let A(x) be the last steps of XXH64, P and Q its first two
    constants, and D(s, n) = A(A(s + Q) + n P), modulo 2^64. Function i, from 0, takes the lower
    half of A(h) times the lower half of D(seed, i), made odd, plus its upper half, modulo 2^32. Bit
    i, from the most significant, is the highest bit of the least value after the last steps of
    MurmurHash3 for 32 bits. For weighted sets, bit i is the highest one of D(h xor A(t), i), where
    (h, t) is the sample that function i takes by Ioffe's recipe, with numbers drawn by D. So the
    first bits of a wide fingerprint are the narrow one of the same seed.

    In an index, texts agree in a hash value with the probability J. Value i is the lower half of
    ``A(i P + m)``, where m is the least value, or the sample, that function 224 + i takes. The
    signature is the first 224 bits of the fingerprint of 256 bits, whatever `width` is. So keys and
    signature are independent.

    Parameters
    ----------
    width : int
        Bits of a fingerprint: 32, 64, 128 or 256. The standard deviation of the estimate of J is up
        to 1 / sqrt(width).
    size : int
        Units in a shingle, 1 to 255. Longer ones make texts less similar that have words in common
        by chance.
    weighting : {"set", "count", "log"}
        The weight of a shingle: 1; how often it occurs; or the number of binary digits of that.
    **others
        As for `SimHash`. MD5 and BLAKE2b count with 64 bits for all widths.

    Raises
    ------
    InputError
        A parameter has the wrong type, is out of range, or does not go with another; or a package
        is not installed.

    Notes
    -----
    A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997. P. Li, A. C.
    König, *b-Bit minwise hashing*, WWW 2010, with b = 1. Weighted sets: S. Ioffe, *Improved
    consistent sampling, weighted Minhash and L1 sketching*, ICDM 2010.

    Examples
    --------
    >>> from fpstore import MinHash
    >>> minhash = MinHash()
    >>> a, b, c = minhash.fingerprints([
    ...     "it was the best of times it was the worst of times it was the age of wisdom",
    ...     "it was the best of times it was the worst of times it was the age of foolishness",
    ...     "call me ishmael some years ago never mind how long precisely having little money",
    ... ])
    >>> minhash.radius(jaccard=0.7, recall=0.98), (a ^ b).astype("u1").size
    (50, 32)
    >>> MinHash(size=5).law.collision(0.8), round(MinHash(size=5).law.differing(0.8), 3)
    (0.8, 0.1)
    """

    name: ClassVar[str] = "minhash"
    usual_group: ClassVar[str] = "greedy"
    version: ClassVar[int] = 2

    size: int = 3
    weighting: str = "set"
    width: int = 256

    @property
    def law(self) -> JaccardLaw:
        """The law of the Jaccard similarity.

        The similarity of unrelated texts depends on the length of shingles.
        """
        unrelated = _UNRELATED_BY_CHARS if self.shingle == "chars" else _UNRELATED_BY_WORDS
        return JaccardLaw(unrelated[min(self.size, len(unrelated)) - 1])

    @property
    def minhash(self) -> MinHash:
        """The hasher itself."""
        return self

    def with_width(self, width: int) -> Self:
        """Return the hasher with another width of fingerprints."""
        return replace(self, width=width)

    def with_bands(self, bands: Bands, first: int = 0) -> BandedMinHash:
        """Return the hasher that also writes the keys of bands, behind the same fingerprints."""
        parameters = {field.name: getattr(self, field.name) for field in fields(MinHash)}
        return BandedMinHash(**parameters, bands=bands, first=first)

    def recall(self, jaccard: float, radius: int) -> float:
        """Return the share of pairs of a Jaccard similarity whose fingerprints are within a radius.

        Parameters
        ----------
        jaccard : float
            0 to 1.
        radius : int
            0 to the width.

        Returns
        -------
        float
            The probability that a binomial variable of `width` trials, each with the probability
            ``(1 - jaccard) / 2``, is at most the radius.

        Raises
        ------
        InputError
            An argument is out of range.

        Examples
        --------
        >>> from fpstore import MinHash
        >>> round(MinHash().recall(0.8, 31), 3)
        0.888
        """
        radius = check_whole(radius, 0, self.width, "radius")
        return binomial_cdf(radius, self.width, (1 - check_number(jaccard, 0, 1, "jaccard")) / 2)

    def radius(self, jaccard: float = USUAL_JACCARD, recall: float = USUAL_RECALL) -> int:
        """Return the least radius that finds a share of the pairs of a Jaccard similarity.

        Parameters
        ----------
        jaccard : float
            0 to 1.
        recall : float
            The share, between 0 and 1.

        Returns
        -------
        int
            0 to the width.

        Raises
        ------
        InputError
            An argument is out of range.

        Examples
        --------
        >>> from fpstore import MinHash
        >>> MinHash().radius(jaccard=0.8, recall=0.99)
        37
        """
        return least_radius(recall, self.width, (1 - check_number(jaccard, 0, 1, "jaccard")) / 2)

    @property
    def usual_radius(self) -> int:
        """A radius to begin with: the default of `radius`."""
        return self.radius()

    def jaccard(self, distance: int) -> float:
        """Return the Jaccard similarity that a distance of two fingerprints estimates.

        Parameters
        ----------
        distance : int
            0 to the width.

        Returns
        -------
        float
            ``1 - 2 * distance / width``, or 0 where that is less.

        Raises
        ------
        InputError
            The distance is out of range.

        Examples
        --------
        >>> from fpstore import MinHash
        >>> MinHash().jaccard(32)
        0.75
        """
        return max(1 - 2 * check_whole(distance, 0, self.width, "distance") / self.width, 0.0)

    @property
    def takes_field_weights(self) -> bool:
        """Whether the fields of a row may count by different weights: not for sets."""
        return not self.is_unweighted

    @property
    def _hash_bits(self) -> int:
        return WORD_BITS

    @property
    def _band_shape(self) -> tuple[int, int, int]:
        """The number and the size of the bands behind a fingerprint, and their first function."""
        return 0, 0, 0

    def _kernel_rows(
        self, features: _kernel.TextFeatures, texts: Encoded, tables: _kernel.CharTables
    ) -> KernelRows:
        make: Callable[..., Any] = features.minhash
        return KernelRows(*make(*texts, tables, *self._band_shape))

    @property
    def is_unweighted(self) -> bool:
        """Whether documents are compared as sets, without weights."""
        return self.weighting == "set" and self.weights is None

    def _feature_row(self, features: list[tuple[str, float]]) -> Words | None:
        weights: dict[str, float] = {}
        for feature, weight in features:
            weights[feature] = weights.get(feature, 0) + weight
            if weight < 0:
                raise InputError(
                    f"MinHash takes weights from 0 on, got {weight} for {show(feature)}"
                )
        try:
            values = np.array(list(weights.values()), np.float64)
        except OverflowError:
            values = np.array([np.inf])
        if self.is_unweighted:
            if any(weight != 1 for _, weight in features):
                raise InputError(
                    "the features of sets have no weights: use MinHash(weighting='count'), got "
                    f"{show(weights)}"
                )
        else:
            with np.errstate(over="ignore"):
                if not np.isfinite(values.sum()):
                    raise InputError(
                        "the sum of the weights is not finite: scale them down, got "
                        f"{show(weights)}"
                    )
        positive = [feature for feature, weight in weights.items() if weight > 0]
        if not positive:
            return None
        row = _kernel.minhash_features(
            self._hashes(positive),
            values[:0] if self.is_unweighted else values[values > 0],
            self.seed,
            Width(self.width).words,
            *self._band_shape,
        )
        return row & used_mask(Width(self.width)) if self.width < WORD_BITS else row


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
    def _zero_row(self) -> Words:
        return np.zeros((1, Width(self.width).words + self.bands.number), np.uint64)


def least_jaccard(minhash: MinHash, radius: int) -> float:
    """Return the least similarity with USUAL_RECALL within a radius, in steps of 0.01."""
    percents = (
        percent for percent in range(101) if minhash.recall(percent / 100, radius) >= USUAL_RECALL
    )
    return next(percents, 100) / 100
