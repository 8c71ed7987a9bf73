"""Simhash: fingerprints of texts and of weighted features."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Counts, Words
from fpstore.base.arguments import check_choice, check_whole, is_iterable
from fpstore.base.threads import cached_property
from fpstore.base.width import Width, check_width
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter, Hashed, batches_of_texts, not_text
from fpstore.hashing.features import (
    HASHES,
    IN_KERNEL,
    NAMED,
    Hash,
    Tokenizer,
    check_hash,
    rows_of,
    shingles,
    tokenizer_named,
    unused_mask,
)
from fpstore.hashing.normal import CharTables, Encoded, Made, NormalForm, char_map
from fpstore.hashing.weights import FeatureWeights

_MAX_SIZE = 255
_MOST_BATCHED = 50  # the largest integer weight that is added up in batches, as the package simhash does
# Parameters that say how a text is cut into pieces, which a tokenizer does instead.
_OF_PIECES = ("shingle", "size", "normalize", "case", "punctuation", "marks", "digits", "spaces", "stop_words")
_ONE_FIELD = np.ones(1, np.uint32)

WeightedFeatures = Mapping[str, float] | Iterable[str | tuple[str, float]]


@dataclass(frozen=True, kw_only=True)
class SimHash(Fingerprinter[str | WeightedFeatures]):
    r"""Simhash of texts: the similarity-preserving fingerprint of near-duplicate detection.

    A text is cut into overlapping *shingles*. Each is hashed, and bit i of the fingerprint is 1 if the shingles whose hashes have
    bit i weigh more than half of all (a tie gives 0). A small edit changes few shingles and so flips few bits; unrelated texts
    differ in about half of the bits.

    An item may also be a list of features, or a mapping of features to weights, or pairs of both, such as keywords with their
    TF-IDF: these are hashed as they are, and `weighting` and `weights` do not apply to them. A feature without a weight counts 1.

    Version 1 is, exactly: the text becomes its normal form, as `fpstore.hashing.normal.NormalForm` says. Units are the parts of
    the normal form between spaces (words), or its characters. With ``shingle="auto"``, each character of a script that is written
    without spaces (Chinese, Japanese, Thai) is a word of its own. A shingle is `size` successive units, words with spaces between
    them, in UTF-8, a lone surrogate as three bytes (``surrogatepass``). A text of fewer units than `size` is one shingle. A text
    without units has no fingerprint; `is_empty` finds such texts. The first 64 bits of the hash are XXH64 with the
    seed, if `hash` says no other; `fpstore.hashing.features.rows_of` has the rest.

    The Unicode tables come from the running Python: two versions of Python may give different fingerprints to a text with
    characters that one of them does not know.

    Parameters
    ----------
    shingle : {"auto", "words", "chars"}
        The unit of a shingle: words (characters in scripts without spaces), only words, or characters.
    size : int
        Units in a shingle, 1 to 255.
    weighting : {"count", "log", "set"}
        The weight of a shingle: how often it occurs; the number of binary digits of that, which is 1 + floor(log2); or 1. Beside
        `weights`, or with several fields, XXH64 and FNV-1a have a shingle count at most 2^24 times in a text.
        Weights that a tokenizer gives are taken as they are, and added up where a feature has several.
    width : int
        Bits of a fingerprint: 32, 64, 128 or 256.
    hash : {"xxh64", "fnv1a", "md5", "blake2b"} or callable
        The hash of a shingle. MD5 and BLAKE2b take about a microsecond for each shingle; MD5 has up to 128 bits. A callable takes
        the UTF-8 of a shingle and returns bytes or an integer, whose last `width` bits count; a store cannot remember it.
    seed : int
        Seed of XXH64, or key of BLAKE2b, 0 to 2^64 - 1.
    normalize : bool
        Whether to apply the Unicode form NFKC.
    case : {"fold", "lower", "keep"}
        Fold case, change to lower case, or neither.
    punctuation : {"space", "keep", "remove"}
        What becomes of characters that are neither word characters nor white space: a space, themselves, or nothing.
    marks : {"keep", "punctuation"}
        Whether combining marks, such as the vowel signs of Hindi, are word characters or punctuation.
    digits : {"keep", "zero"}
        ``"zero"`` makes all decimal digits alike, so that texts that differ in dates and counts only are the same.
    spaces : {"single", "remove"}
        What becomes of white space: a single space, or nothing. ``"remove"`` is for characters only.
    stop_words : iterable of str
        If there are any, only shingles with one of them count: adverts and menus have few (Theobald, Siddharth, Paepcke,
        *SpotSigs*, SIGIR 2008). Words only. They are brought to their normal form: ``"Don't"`` stands for "don" and "t".
    weights : FeatureWeights, optional
        Weights of shingles, by which the others are multiplied; see `learn_weights`.
    tokenizer : {"jieba", "unicode"} or callable, optional
        Cuts the text into features. ``"unicode"`` finds the words of Unicode Standard Annex 29 (package regex), and `size`
        makes shingles of them. ``"jieba"`` finds Chinese keywords with TF-IDF weights of 1 to 5 (package jieba), each a feature.
        A callable takes the text and returns features, or pairs of a feature and a weight; a store cannot remember it. These two
        take the text as it is, so parameters of shingles and of the normal form are refused beside them.
    order : {"sorted", "given"}
        The order in which weights are added, which decides how floats are rounded. By hash and weight, so that features may
        come in any order; or as they are given, with integers up to 50 added up in batches of 200, as the package simhash does.

    Raises
    ------
    InputError
        A parameter has the wrong type, is out of range, or does not go with another; or a package is not installed.

    Notes
    -----
    M. Charikar, *Similarity estimation techniques from rounding algorithms*, STOC 2002; as used by G. Manku,
    A. Jain, A. Das Sarma, *Detecting near-duplicates for web crawling*, WWW 2007, section 2.

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
    version: ClassVar[int] = 1

    shingle: str = "auto"
    size: int = 1
    weighting: str = "log"
    width: int = 64
    hash: str | Hash = "xxh64"
    seed: int = 0
    normalize: bool = True
    case: str = "fold"
    punctuation: str = "space"
    marks: str = "keep"
    digits: str = "keep"
    spaces: str = "single"
    stop_words: tuple[str, ...] = ()
    weights: FeatureWeights | None = None
    tokenizer: str | Tokenizer | None = None
    order: str = "sorted"

    def __post_init__(self) -> None:
        check_choice(self.shingle, ("auto", "words", "chars"), "shingle")
        check_choice(self.order, ("sorted", "given"), "order")
        check_choice(self.weighting, ("count", "log", "set"), "weighting")
        if not callable(self.hash):
            check_choice(self.hash, tuple(HASHES), "hash")
        self._keep(size=check_whole(self.size, 1, _MAX_SIZE, "size"), seed=check_whole(self.seed, 0, 2**64 - 1, "seed"))
        self._keep(width=check_width(self.width).bits)
        check_hash(self.hash, self.width, self.seed)
        self._keep(stop_words=_words(self.stop_words))
        if isinstance(self.weights, Mapping):
            self._keep(weights=FeatureWeights.of_json(self.weights))
        elif not isinstance(self.weights, FeatureWeights | None):
            raise InputError(f"weights must be a result of learn_weights(), got {show(self.weights)}", got=self.weights)
        if self.tokenizer is not None and not callable(self.tokenizer):
            check_choice(self.tokenizer, tuple(NAMED), "tokenizer")
            tokenizer_named(self.tokenizer)
        if self.stop_words and self.shingle == "chars":
            raise InputError("stop_words need shingles of words", got=self.stop_words)
        if self.tokenizer not in (None, "unicode"):
            for name in _OF_PIECES:
                if getattr(self, name) != getattr(type(self), name):
                    reason = f"{name} has no effect on the features of this tokenizer: leave it out"
                    raise InputError(reason, got=getattr(self, name))
        _ = self._form
        if self.stop_words and not self._stop_units:
            raise InputError(f"no word is left of the stop words {show(self.stop_words)}", got=self.stop_words)

    @classmethod
    def of_simhash_package(cls, width: int = 64, hashfunc: Hash | None = None) -> SimHash:
        """Return a fingerprinter that equals ``Simhash(value, width, hashfunc=hashfunc)`` of the package ``simhash``.

        They are the same bit for bit. Values are texts, lists of features, pairs of a feature and a weight, and mappings of
        features to weights. Weights are integers from 0, or floats. The fingerprints differ where the package has a negative
        integer count nothing for the bits, gives a feature without a weight the weight of the pair before it, or adds floats of
        NumPy of 32 bits in 32 bits.

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
            shingle="chars", size=4, weighting="count", hash=hashfunc or "md5", width=width,
            normalize=False, case="lower", punctuation="remove", marks="punctuation", spaces="remove",
            order="given",
        )  # fmt: skip

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal fingerprinter; InputError if the tokenizer is a function."""
        for what in ("tokenizer", "hash"):
            if callable(getattr(self, what)):
                raise InputError(
                    f"a {what} that is a function cannot be remembered: make the fingerprints yourself and pass them"
                )
        weights = None if self.weights is None else self.weights.as_json()
        return super().parameters | {"stop_words": list(self.stop_words), "weights": weights}

    def features(self, text: str) -> dict[str, float]:
        """Return the features of a text with their weights.

        Parameters
        ----------
        text : str

        Returns
        -------
        dict of str to float
            In the order in which they first occur, those to which a tokenizer gives weights last; empty for a text that has no
            fingerprint. Weights are integers unless a tokenizer gives others.

        Raises
        ------
        InputError
            The text is no str, or a tokenizer that is a function returned something else than features.
        """
        if not isinstance(text, str):
            raise not_text(text, "a text (str)")
        counts: dict[str, int] = {}
        given: dict[str, float] = {}
        for piece in self._pieces(text):
            if isinstance(piece, str):
                counts[piece] = counts.get(piece, 0) + 1
            else:
                given[piece[0]] = given.get(piece[0], 0) + piece[1]
        found: dict[str, float] = dict(counts)
        if self.weighting != "count":
            found = {feature: 1 if self.weighting == "set" else count.bit_length() for feature, count in counts.items()}
        for feature, weight in given.items():
            found[feature] = found.get(feature, 0) + weight
        if self.weights is not None:
            learnt = self.weights.of(self._keys(found))
            found = {feature: weight * int(times) for (feature, weight), times in zip(found.items(), learnt, strict=True)}
        return found

    def learn_weights(self, texts: Iterable[str], most: int = 4096) -> SimHash:
        """Return a fingerprinter that weighs features by how rare they are in a sample of the corpus.

        Parameters
        ----------
        texts : iterable of str
            A sample, such as 10,000 documents.
        most : int
            The number of frequent features whose weights are kept, 1 to 65,536. They are part of the fingerprinter, and a store
            remembers them in its manifest, about 14 bytes each. All rarer ones weigh as much as one that a single text has.

        Returns
        -------
        SimHash
            The same one with `weights`.

        Raises
        ------
        InputError
            No text has features.
        """
        return self.learn_from_rows(([text] for text in texts), most)

    def learn_from_rows(self, rows: Iterable[Sequence[str | None]], most: int = 4096) -> SimHash:
        """Return a fingerprinter with weights from documents that have several texts: see `learn_weights`."""
        plain = replace(self, weights=None)
        features = ({feature for text in row if text is not None for feature in plain.features(text)} for row in rows)
        documents = (np.unique(plain._keys(found)) for found in features if found)
        return replace(self, weights=FeatureWeights.learn(documents, most))

    def lack(self, item: str | WeightedFeatures) -> str:
        """Return the message that a text has no features."""
        if not isinstance(item, str):
            return "a collection without features has no fingerprint: leave it out"
        if self.stop_words:
            return f"no shingle of the text {show(item)} has a stop word, so it has no fingerprint: leave it out"
        unit = "features" if self.tokenizer else "characters" if self.shingle == "chars" else "words"
        return f"the text {show(item)} has no {unit}, and so no fingerprint: leave it out (is_empty() finds such texts)"

    def hashed(self, items: Sequence[str | WeightedFeatures]) -> Hashed:
        """Return the fingerprints of some texts."""
        if self._in_kernel and all(isinstance(item, str) for item in items):
            return self._by_kernel(items, _ONE_FIELD)  # type: ignore[arg-type]
        return self._of_features(self.features(item).items() if isinstance(item, str) else item for item in items)  # type: ignore[misc]

    def hashed_fields(self, rows: Sequence[Sequence[str | None]], weights: Sequence[int]) -> Hashed:
        """Return the fingerprints of rows with a text or None for each field, of some weights: see `fpstore.hashing.Fields`."""
        if self._in_kernel:
            return self._by_kernel([text or "" for row in rows for text in row], np.array(weights, np.uint32))
        return self._of_features(
            [
                (feature, weight * times)
                for text, times in zip(row, weights, strict=True)
                for feature, weight in self.features(text or "").items()
            ]
            for row in rows
        )

    @property
    def _in_kernel(self) -> bool:
        return self.tokenizer is None and self.hash in IN_KERNEL

    def _by_kernel(self, texts: Sequence[str], fields: Counts) -> Hashed:
        rows, known = char_map(self._form).hashed(texts, partial(self._kernel_rows, fields=fields), len(fields))
        return Hashed(rows & unused_mask(Width(self.width)) if self.width < 64 else rows, known)

    def _of_features(self, items: Iterable[Iterable[tuple[str, float]]]) -> Hashed:
        found = [self._signs(features) for features in items]
        empty = Width(self.width).rows([0])
        rows = np.concatenate([empty if row is None else row for row in found]) if found else empty[:0]
        return Hashed(rows, np.array([row is not None for row in found], bool))

    def batches(self, items: Iterable[str | WeightedFeatures]) -> Iterator[Sequence[Any]]:
        """Cut texts into batches of about a million characters."""
        return batches_of_texts(items, _checked)

    @cached_property
    def _form(self) -> NormalForm:
        return NormalForm(
            units=self.shingle, normalize=self.normalize, case=self.case, punctuation=self.punctuation, marks=self.marks,
            digits=self.digits, spaces=self.spaces,
        )  # fmt: skip

    @cached_property
    def _stop_units(self) -> frozenset[str]:
        """The words of the normal forms of the stop words."""
        return frozenset(unit for word in self.stop_words for unit in self._form.of(word).split(" ") if unit)

    @cached_property
    def _stops(self) -> Words:
        return np.unique(self._keys(self._stop_units))

    def _keys(self, features: Iterable[str]) -> Words:
        """Return the first words of the hashes of features, by which their weights are known."""
        rows = rows_of(features, self.hash, self.seed, Width(max(self.width, 64)))
        return np.ascontiguousarray(rows if rows.ndim == 1 else rows[:, 0])

    def _kernel_rows(self, texts: Encoded, tables: CharTables, fields: Counts = _ONE_FIELD) -> Made:
        none = np.empty(0, np.uint64)
        hashes, weights, other = none, np.empty(0, np.uint32), 1
        if self.weights is not None:
            hashes, weights, other = self.weights.hashes, self.weights.weights, self.weights.other
        return Made(*_kernel.simhash(
            *texts, tables.ascii, tables.pages, tables.entries, tables.pool, self.shingle != "chars",
            self.size, self.weighting, str(self.hash), self.seed, Width(self.width).words,
            hashes, weights, other, self._stops if self.stop_words else none, fields,
        ))  # fmt: skip

    def _pieces(self, text: str) -> Iterator[str | tuple[str, float]]:
        """Yield the features of a text as they occur; a feature with a weight comes as a pair."""
        if callable(self.tokenizer) or self.tokenizer == "jieba":
            cut = self.tokenizer if callable(self.tokenizer) else tokenizer_named(self.tokenizer)
            yield from _of_tokenizer(cut(text))
            return
        if self.tokenizer is not None:
            form = " ".join(tokenizer_named(self.tokenizer)(replace(self._form, units="words", punctuation="keep").of(text)))
        else:
            form = self._form.of(text)
        yield from shingles(form, self.shingle != "chars", self.size, self._stop_units)

    def _signs(self, features: Iterable[tuple[str, float]]) -> Words | None:
        """Return the fingerprint of weighted features as a row; None if there are none."""
        pairs = list(features)
        if not pairs:
            return None
        width = Width(self.width)
        rows = rows_of((feature for feature, _ in pairs), self.hash, self.seed, width)
        weights = np.array([weight for _, weight in pairs], np.float64)
        if not math.isfinite(sum(map(abs, weights.tolist()))):
            raise InputError("the sum of the magnitudes of the weights is not finite: scale them down")
        # Sums of floats depend on the order of their terms.
        batched = np.zeros(len(pairs), np.uint8)
        if self.order == "given":
            batched[:] = [isinstance(weight, int) and weight <= _MOST_BATCHED for _, weight in pairs]
        else:
            order = np.lexsort((weights, *rows.reshape(len(rows), -1).T))
            rows, weights = np.ascontiguousarray(rows[order]), weights[order]
        signs: Words = _kernel.simhash_weighted(rows, weights, batched, width.words)
        return signs & unused_mask(width) if width.bits < 64 else signs


def _words(words: object) -> tuple[str, ...]:
    if not is_iterable(words, str):
        raise InputError(f"stop_words must be a list of words, got {show(words)}", got=words)
    checked = tuple(words)
    for word in checked:
        if not isinstance(word, str):
            raise InputError(f"a stop word must be a str, got {show(word)}", got=word)
    return checked


def _checked(item: object, place: int) -> list[tuple[str, float]]:
    """Return given features with their weights, or raise InputError with the position of the item."""
    if not is_iterable(item):
        raise not_text(item, "a text (str) or weighted features", f"item {place}: ")
    pairs = []
    for i, given in enumerate(item.items() if isinstance(item, Mapping) else item):
        found = _feature(given)
        if found is None:
            raise InputError(
                f"item {place}: feature {i}: must be a str, or a pair of a str and a finite number, got {show(given)}; "
                "to fingerprint several texts call fingerprints()",
                got=given,
            )
        pairs.append((found, 1) if isinstance(found, str) else found)
    return pairs


def _of_tokenizer(found: object) -> Iterator[str | tuple[str, float]]:
    """Yield the features that a tokenizer returned, those with a weight as pairs."""
    if not is_iterable(found, str):
        raise InputError(f"the tokenizer must return an iterable of features, got {show(found)}", got=found)
    for given in found:
        feature = _feature(given)
        if feature is None:
            raise InputError(
                f"the tokenizer must return features (str), or pairs of a feature and a finite number, got {show(given)}",
                got=given,
            )
        yield feature


def _feature(given: object) -> str | tuple[str, float] | None:
    """Return a feature, or a pair of a feature and a finite weight; None for something else."""
    if isinstance(given, str):
        return given
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not isinstance(given[0], str):
        return None
    weight = given[1]
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(weight, (bool, str, bytes)) and math.isfinite(float(weight)):
            return given[0], weight if isinstance(weight, int) else float(weight)
    return None
