"""Simhash: fingerprints of texts and of weighted features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import check_choice
from fpstore.base.width import Width
from fpstore.errors import InputError
from fpstore.hashing.features import Hash, feature_rows, used_mask
from fpstore.hashing.text import TextHash

# the largest integer weight that is summed in batches, as the package simhash does
_MAX_BATCHED = 50
RADIUS_OF_256 = 24


@dataclass(frozen=True, kw_only=True)
class SimHash(TextHash):
    r"""Simhash of texts: the similarity-preserving fingerprint of near-duplicate detection.

    A text is cut into overlapping *shingles*. Each is hashed, and bit i of the fingerprint is 1 if
    the shingles whose hashes have bit i weigh more than half of all (a tie gives 0). A small edit
    changes few shingles and so flips few bits; unrelated texts differ in about half of the bits.

    An item may also be a list of features, or a mapping of features to weights, or pairs of both,
    such as keywords with their TF-IDF: these are hashed as they are, and `weighting` and `weights`
    do not apply to them. A feature without a weight counts 1.

    Version 2 is, exactly: the text becomes its normal form, as `fpstore.hashing.normal.NormalForm`
    says. Units are the parts of the normal form between spaces (words), or its characters. With
    ``shingle="auto"``, each character of a script that is written without spaces (Chinese,
    Japanese, Thai) is a word of its own. A shingle is `size` successive units, words with spaces
    between them, in UTF-8, a lone surrogate as three bytes (``surrogatepass``). A text of fewer
    units than `size` is one shingle. A text without word characters has units of punctuation, and
    one without visible characters has no fingerprint; `is_empty` finds such texts. The first 64
    bits of the hash are XXH64 with the seed, if `hash` says no other;
    `fpstore.hashing.features.feature_rows` has the rest.

    The Unicode tables come from the running Python: two versions of Python may give different
    fingerprints to a text with characters that one of them does not know.

    Parameters
    ----------
    shingle : {"auto", "words", "chars"}
        The unit of a shingle: words (characters in scripts without spaces), only words, or
        characters.
    size : int
        Units in a shingle, 1 to 255.
    weighting : {"count", "log", "set"}
        The weight of a shingle: how often it occurs; the number of binary digits of that, which is
        1 + floor(log2); or 1. Beside `weights`, or with several fields, XXH64 and FNV-1a have a
        shingle count at most 2^24 times in a text. Weights that a tokenizer gives are taken as they
        are, and added up where a feature has several.
    width : int
        Bits of a fingerprint: 32, 64, 128 or 256.
    hash : {"xxh64", "fnv1a", "md5", "blake2b"} or callable
        The hash of a shingle. MD5 and BLAKE2b take about a microsecond for each shingle; MD5 has up
        to 128 bits. A callable takes the UTF-8 of a shingle and returns bytes or an integer, whose
        last `width` bits count; a store cannot remember it.
    seed : int
        Seed of XXH64, or key of BLAKE2b, 0 to 2^64 - 1.
    normalize : bool
        Whether to apply the Unicode form NFKC.
    case : {"fold", "lower", "keep"}
        Fold case, change to lower case, or neither.
    punctuation : {"space", "keep", "remove"}
        What becomes of characters that are neither word characters nor white space: a space,
        themselves, or nothing. A text of nothing else, such as "!!!", emoji or Braille, keeps them.
    marks : {"keep", "fold", "punctuation"}
        Whether combining marks, such as the vowel signs of Hindi, are word characters or
        punctuation. With ``"fold"`` they are word characters, but the diacritics of Latin, Greek,
        Cyrillic, Hebrew, Arabic and Syriac are removed, and so is the tatweel: "Café" is "cafe",
        short i of Cyrillic is i, a vocalised word is the bare word, and alef with hamza or madda is
        alef. Letters that Unicode does not decompose, such as "ø" and "ł", stay, and so do the
        marks of all other scripts. Needs `normalize`.
    digits : {"keep", "zero"}
        ``"zero"`` makes all decimal digits alike, so that texts that differ in dates and counts
        only are the same.
    spaces : {"single", "remove"}
        What becomes of white space: a single space, or nothing. ``"remove"`` is for characters
        only.
    hyphens : {"keep", "join"}
        ``"join"`` makes one word of a word that a hyphen (``-``, U+2010, or a soft hyphen) breaks
        at the end of a line: between two letters, the second no capital, the hyphen, the line end
        and the spaces around it are removed.
    chinese : {"keep", "simplified", "traditional"}
        Converts traditional Chinese to simplified, or simplified to traditional (package opencc),
        so that a text in either form is the same. Simplified is the better one: a traditional
        character has one simplified form, but a simplified one may have several traditional forms.
    stop_words : iterable of str
        If there are any, only shingles with one of them count: adverts and menus have few
        (Theobald, Siddharth, Paepcke, *SpotSigs*, SIGIR 2008). Words only. They are brought to
        their normal form: ``"Don't"`` stands for "don" and "t".
    weights : FeatureWeights, optional
        Weights of shingles, by which the others are multiplied; see `learn_weights`.
    tokenizer : {"jieba", "unicode"} or callable, optional
        Cuts the text into features. ``"unicode"`` finds the words of Unicode Standard Annex 29
        (package regex), and `size` makes shingles of them. ``"jieba"`` finds Chinese keywords with
        TF-IDF weights of 1 to 5 (package jieba), each a feature; it takes the text without ignored
        characters, in NFKC. A callable takes the text as it is and returns features, or pairs of a
        feature and a weight; a store cannot remember it. Parameters of shingles and of the normal
        form are refused beside these two.
    order : {"sorted", "given"}
        The order in which weights are added, which decides how floats are rounded. By hash and
        weight, so that features may come in any order; or as they are given, with integers up to 50
        added up in batches of 200, as the package simhash does.

    Raises
    ------
    InputError
        A parameter has the wrong type, is out of range, or does not go with another; or a package
        is not installed.

    Notes
    -----
    M. Charikar, *Similarity estimation techniques from rounding algorithms*, STOC 2002; as used by
    G. Manku, A. Jain, A. Das Sarma, *Detecting near-duplicates for web crawling*, WWW 2007, section
    2.

    Examples
    --------
    >>> from fpstore.hashing import SimHash
    >>> simhash = SimHash()
    >>> a = simhash.fingerprint("the quick brown fox jumps over the lazy dog")
    >>> a == simhash.fingerprint("The quick brown fox -- jumps over the lazy dog!")
    True
    >>> (a ^ simhash.fingerprint("the quick brown fox jumps over the lazy cat")).bit_count()
    6
    """

    name: ClassVar[str] = "simhash"
    version: ClassVar[int] = 2

    order: str = "sorted"

    def __post_init__(self) -> None:
        check_choice(self.order, ("sorted", "given"), "order")
        super().__post_init__()

    @classmethod
    def of_simhash_package(cls, width: int = 64, hashfunc: Hash | None = None) -> SimHash:
        """Return a fingerprinter with the same bits as the package ``simhash``.

        It equals ``Simhash(value, width, hashfunc=hashfunc)``. Values are texts, lists of features,
        pairs of a feature and a weight, and mappings of features to weights. Weights are integers
        from 0, or floats. The fingerprints differ where the package has a negative integer count
        nothing for the bits, gives a feature without a weight the weight of the pair before it, or
        adds floats of NumPy of 32 bits in 32 bits, and for texts with Hangul fillers or without
        letters.

        Parameters
        ----------
        width : int
            32, 64 or 128; with a `hashfunc` of 256 bits also 256.
        hashfunc : callable, optional
            As ``hash`` of `SimHash`; by default MD5.

        Examples
        --------
        >>> from fpstore.hashing import SimHash
        >>> SimHash.of_simhash_package().fingerprint([("aaa", 1), ("bbb", 1)])
        57087923692560392
        """
        return cls(
            shingle="chars",
            size=4,
            weighting="count",
            hash=hashfunc or "md5",
            width=width,
            normalize=False,
            case="lower",
            punctuation="remove",
            marks="punctuation",
            spaces="remove",
            order="given",
        )

    @property
    def usual_radius(self) -> int:
        """A radius to begin with: 3 of each 64 bits, but 24 of 256 (docs/guides/crawler.md)."""
        return RADIUS_OF_256 if self.width == 256 else super().usual_radius

    def _feature_row(self, features: list[tuple[str, float]]) -> Words | None:
        if not features:
            return None
        width = Width(self.width)
        rows = feature_rows((feature for feature, _ in features), self.hash, self.seed, width)
        weights = np.array([weight for _, weight in features], np.float64)
        if not math.isfinite(sum(map(abs, weights.tolist()))):
            raise InputError(
                "the sum of the magnitudes of the weights is not finite: scale them down"
            )
        # Sums of floats depend on the order of their terms.
        batched = np.zeros(len(features), np.uint8)
        if self.order == "given":
            batched[:] = [
                isinstance(weight, int) and weight <= _MAX_BATCHED for _, weight in features
            ]
        else:
            order = np.lexsort((weights, *rows.reshape(len(rows), -1).T))
            rows, weights = np.ascontiguousarray(rows[order]), weights[order]
        signs: Words = _kernel.simhash_weighted(rows, weights, batched, width.words)
        return signs & used_mask(width) if width.bits < 64 else signs
