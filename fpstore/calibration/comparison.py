"""The comparison of two texts: the features that make their fingerprints differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fpstore.base.threads import cached_property
from fpstore.errors import InputError
from fpstore.hashing import LongestSentences
from fpstore.hashing.text import TextHash


class Feature(NamedTuple):
    """A feature of two texts.

    Attributes
    ----------
    text : str
    weight_a, weight_b : float
        Its weight in each text, 0 where it does not occur.
    """

    text: str
    weight_a: float
    weight_b: float

    @property
    def pull(self) -> float:
        """The difference of both weights."""
        return abs(self.weight_a - self.weight_b)


class Comparison:
    """The fingerprints and the features of two texts.

    Parameters
    ----------
    fingerprinter : SimHash, MinHash or LongestSentences
    text_a, text_b : str

    Raises
    ------
    InputError
        A text has no fingerprint.

    Examples
    --------
    >>> from fpstore import SimHash
    >>> from fpstore.calibration import Comparison
    >>> found = Comparison(SimHash(size=1), "the quick brown fox", "the quick red fox")
    >>> found.distance, found.shared, found.jaccard
    (11, 3, 0.6)
    >>> [(feature.text, feature.weight_a, feature.weight_b) for feature in found.differing]
    [('brown', 1, 0), ('red', 0, 1)]
    """

    def __init__(
        self, fingerprinter: TextHash | LongestSentences, text_a: str, text_b: str
    ) -> None:
        if not isinstance(fingerprinter, TextHash | LongestSentences):
            kinds = "SimHash, MinHash or LongestSentences"
            raise InputError(
                f"fingerprinter must be {kinds}, got {type(fingerprinter).__name__}",
                got=fingerprinter,
                argument="fingerprinter",
            )
        self.width = fingerprinter.width
        self.fingerprint_a = fingerprinter.fingerprint(text_a)
        self.fingerprint_b = fingerprinter.fingerprint(text_b)
        self.features_a: Mapping[str, float] = fingerprinter.features(text_a)
        self.features_b: Mapping[str, float] = fingerprinter.features(text_b)

    @property
    def _names(self) -> list[str]:
        return list({**self.features_a, **self.features_b})

    @property
    def distance(self) -> int:
        """Bits in which the fingerprints differ."""
        return (self.fingerprint_a ^ self.fingerprint_b).bit_count()

    @property
    def shared(self) -> int:
        """Features that both texts have, with any weights."""
        return len(self.features_a.keys() & self.features_b.keys())

    @property
    def jaccard(self) -> float:
        """The resemblance: the share of all features that both texts have.

        A. Broder, SEQUENCES 1997, section 2.
        """
        return self.shared / len(self._names)

    @property
    def weighted_jaccard(self) -> float:
        """The sum of the smaller weights of all features by the sum of the greater weights."""
        pairs = [
            (self.features_a.get(name, 0), self.features_b.get(name, 0)) for name in self._names
        ]
        most = sum(max(pair) for pair in pairs)
        return sum(min(pair) for pair in pairs) / most if most else 1.0

    @cached_property
    def differing(self) -> list[Feature]:
        """The features whose weights differ, the greatest difference first."""
        features = [
            Feature(name, self.features_a.get(name, 0), self.features_b.get(name, 0))
            for name in self._names
        ]
        differing = [feature for feature in features if feature.pull]
        return sorted(differing, key=lambda feature: (-feature.pull, feature.text))
