"""The comparison of two texts: the features that make their fingerprints differ."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Comparison:
    """The fingerprints and the features of two texts.

    Parameters
    ----------
    fingerprinter : SimHash, MinHash or LongestSentences
    text_a, text_b : str

    Attributes
    ----------
    width, distance : int
        The bits of the fingerprints, and those in which the fingerprints differ.
    fingerprint_a, fingerprint_b : int
    features_a, features_b : mapping of str to float
        The weights of the features of each text.
    shared : int
        Features that both texts have, with any weights.
    jaccard : float
        The resemblance: the share of all features that both texts have (A. Broder, SEQUENCES 1997,
        section 2).
    weighted_jaccard : float
        The sum of the smaller weights of all features by the sum of the greater weights.
    differing : list of Feature
        The features whose weights differ, the greatest difference first.

    Raises
    ------
    InputError
        A text has no fingerprint.

    Examples
    --------
    >>> from fpstore import SimHash
    >>> from fpstore.calibration import Comparison
    >>> comparison = Comparison(SimHash(size=1), "the quick brown fox", "the quick red fox")
    >>> comparison.distance, comparison.shared, comparison.jaccard
    (11, 3, 0.6)
    >>> [(feature.text, feature.weight_a, feature.weight_b) for feature in comparison.differing]
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
        self.distance = (self.fingerprint_a ^ self.fingerprint_b).bit_count()
        self.features_a = a = fingerprinter.features(text_a)
        self.features_b = b = fingerprinter.features(text_b)
        features = [Feature(name, a.get(name, 0), b.get(name, 0)) for name in {**a, **b}]
        self.shared = len(a.keys() & b.keys())
        self.jaccard = self.shared / len(features)
        greater = sum(max(feature.weight_a, feature.weight_b) for feature in features)
        smaller = sum(min(feature.weight_a, feature.weight_b) for feature in features)
        self.weighted_jaccard = smaller / greater if greater else 1.0
        self.differing = sorted(
            (feature for feature in features if feature.weight_a != feature.weight_b),
            key=lambda feature: (-abs(feature.weight_a - feature.weight_b), feature.text),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values, as ``fpstore compare --json`` prints it."""
        digits = self.width // 4
        return {
            "fingerprint_a": f"{self.fingerprint_a:0{digits}x}",
            "fingerprint_b": f"{self.fingerprint_b:0{digits}x}",
            "width": self.width,
            "distance": self.distance,
            "features_a": len(self.features_a),
            "features_b": len(self.features_b),
            "shared": self.shared,
            "resemblance": self.jaccard,
            "weighted_resemblance": self.weighted_jaccard,
            "differing": [
                {"feature": text, "weight_a": a, "weight_b": b} for text, a, b in self.differing
            ],
        }
