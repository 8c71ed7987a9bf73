"""The base of `SimHash` and `MinHash`: how texts become weighted features."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Counts, Words
from fpstore.base.arguments import check_choice, check_whole, is_iterable
from fpstore.base.arrays import NO_WORDS
from fpstore.base.strings import Encoded, TextColumn
from fpstore.base.threads import cached_property
from fpstore.base.width import Width, check_width
from fpstore.errors import InputError, show
from fpstore.hashing.base import (
    SAMPLES,
    FeatureSets,
    Fingerprinter,
    Hashed,
    UnitSets,
    check_items,
    not_text_error,
    refuse_item,
    text_batches,
)
from fpstore.hashing.features import (
    HASHES,
    IN_KERNEL,
    TOKENIZERS,
    UNITS,
    WEIGHTINGS,
    Hash,
    Tokenizer,
    check_hash,
    feature_rows,
    load_tokenizer,
    shingles,
    used_mask,
)
from fpstore.hashing.normal import KernelRows, NormalForm, char_map
from fpstore.hashing.weights import FeatureWeights

_MAX_SIZE = 255
# parameters of shingles, which a tokenizer replaces
_SHINGLE_PARAMETERS = (
    "shingle",
    "size",
    "normalize",
    "case",
    "punctuation",
    "marks",
    "digits",
    "spaces",
    "hyphens",
    "stop_words",
)
_ONE_FIELD = np.ones(1, np.uint32)

WeightedFeatures = Mapping[str, float] | Iterable[str | tuple[str, float]]


@dataclass(frozen=True, kw_only=True)
class TextHash(Fingerprinter[str | WeightedFeatures]):
    """The base of fingerprinters of texts: a text becomes features with weights.

    `SimHash` describes the parameters.
    """

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
    hyphens: str = "keep"
    chinese: str = "keep"
    stop_words: tuple[str, ...] = ()
    weights: FeatureWeights | None = None
    tokenizer: str | Tokenizer | None = None

    def __post_init__(self) -> None:
        check_choice(self.shingle, UNITS, "shingle")
        check_choice(self.weighting, WEIGHTINGS, "weighting")
        if not callable(self.hash):
            check_choice(self.hash, tuple(HASHES), "hash")
        self._keep(
            size=check_whole(self.size, 1, _MAX_SIZE, "size"),
            seed=check_whole(self.seed, 0, 2**64 - 1, "seed"),
        )
        self._keep(width=check_width(self.width).bits)
        check_hash(self.hash, self._hash_bits, self.seed)
        self._keep(stop_words=_check_stop_words(self.stop_words))
        if isinstance(self.weights, Mapping):
            self._keep(weights=FeatureWeights.from_json(self.weights))
        elif not isinstance(self.weights, FeatureWeights | None):
            raise InputError(
                f"weights must be a result of learn_weights(), got {show(self.weights)}",
                got=self.weights,
                argument="weights",
            )
        if self.tokenizer is not None and not callable(self.tokenizer):
            check_choice(self.tokenizer, tuple(TOKENIZERS), "tokenizer")
            load_tokenizer(self.tokenizer)
        if self.stop_words and self.shingle == "chars":
            raise InputError("stop_words need shingles of words", got=self.stop_words)
        if self.tokenizer not in (None, "unicode"):
            for name in _SHINGLE_PARAMETERS:
                if getattr(self, name) != getattr(type(self), name):
                    reason = f"{name} has no effect on the features of this tokenizer: leave it out"
                    raise InputError(reason, got=getattr(self, name))
        if callable(self.tokenizer) and self.chinese != "keep":
            raise InputError(
                "chinese has no effect on a tokenizer that is a function: convert the text there",
                got=self.chinese,
            )
        _ = self._form
        if self.stop_words and not self._stop_units:
            raise InputError(
                f"no word is left of the stop words {show(self.stop_words)}", got=self.stop_words
            )

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal fingerprinter.

        InputError if the tokenizer is a function.
        """
        for name in ("tokenizer", "hash"):
            if callable(getattr(self, name)):
                raise InputError(
                    f"a {name} that is a function cannot be remembered: make the fingerprints "
                    "yourself and pass them"
                )
        weights = None if self.weights is None else self.weights.to_json()
        parameters = super().parameters
        if self.chinese == "keep":  # descriptions from before this parameter are the same
            del parameters["chinese"]
        return parameters | {"stop_words": list(self.stop_words), "weights": weights}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Return the fingerprinter that has these `parameters`."""
        return super().from_parameters({"chinese": "keep", **parameters})

    def features(self, text: str) -> dict[str, float]:
        """Return the features of a text with their weights.

        Parameters
        ----------
        text : str

        Returns
        -------
        dict of str to float
            In the order in which they first occur, features with weights of a tokenizer last; empty
            for a text that has no fingerprint. Weights are integers unless a tokenizer returns
            others.

        Raises
        ------
        InputError
            The text is no str, or a tokenizer that is a function returned something else than
            features.
        """
        if not isinstance(text, str):
            raise not_text_error(text, "a text (str)")
        counts: dict[str, int] = {}
        tokenizer_weights: dict[str, float] = {}
        for piece in self._pieces(text):
            if isinstance(piece, str):
                counts[piece] = counts.get(piece, 0) + 1
            else:
                feature, weight = piece
                tokenizer_weights[feature] = tokenizer_weights.get(feature, 0) + weight
        weights: dict[str, float] = dict(counts)
        if self.weighting != "count":
            weights = {
                feature: 1 if self.weighting == "set" else count.bit_length()
                for feature, count in counts.items()
            }
        for feature, weight in tokenizer_weights.items():
            weights[feature] = weights.get(feature, 0) + weight
        if self.weights is not None:
            factors = self.weights.lookup(self._hashes(weights))
            weights = {
                feature: weight * int(factor)
                for (feature, weight), factor in zip(weights.items(), factors, strict=True)
            }
        return weights

    def feature_sets(self, items: Sequence[str]) -> FeatureSets:
        """Return the features of a batch of texts as sets; see `Fingerprinter.feature_sets`."""
        check_items(items, "texts")
        if isinstance(items, TextColumn) and self._uses_kernel:
            return self._kernel_sets(items, 1)
        for place, text in enumerate(items):
            if not isinstance(text, str | None):
                refuse_item(text, place)
        return self.row_feature_sets([(text,) for text in items], 1)

    def _kernel_sets(self, texts: Sequence[str], fields: int) -> FeatureSets:
        kernel_sets = self._kernel_features(np.ones(fields, np.uint32)).sets
        work = partial(kernel_sets, samples=SAMPLES)
        features, described = char_map(self._form).sets(texts, work, fields)
        ends, digests, samples = described.T
        return FeatureSets(
            features,
            np.diff(ends.astype(np.int64), prepend=np.int64(0)),
            np.ascontiguousarray(digests),
            samples.astype(np.uint32),
        )

    def row_feature_sets(self, rows: Sequence[Sequence[str | None]], fields: int) -> FeatureSets:
        """Return the features of rows of texts as sets."""
        if self._uses_kernel:
            return self._kernel_sets([text or "" for row in rows for text in row], fields)
        return FeatureSets.from_hashes(
            self._hashes({feature for text in row for feature in self.features(text or "")})
            for row in rows
        )

    def whole_hashes(self, texts: Sequence[str]) -> UnitSets:
        """Return the features of a batch as sets of whole hashes, if the kernel makes them."""
        return self._unit_sets(texts, self._kernel_features(_ONE_FIELD).hashes)

    def ranks_among(self, known: _kernel.KnownHashes, texts: Sequence[str]) -> UnitSets:
        """Return the ranks of the features of a batch that are among known hashes, as sets."""
        kernel_ranks = self._kernel_features(_ONE_FIELD).ranks
        return self._unit_sets(texts, partial(kernel_ranks, known=known))

    def _unit_sets(
        self, texts: Sequence[str], kernel_sets: Callable[..., tuple[Any, Any]]
    ) -> UnitSets:
        features, rows = char_map(self._form).sets(texts, kernel_sets)
        ends, units = rows.view(np.int64).T
        return UnitSets(features, np.diff(ends, prepend=np.int64(0)), units)

    @property
    def takes_field_weights(self) -> bool:
        """Whether the fields of a row may count by different weights."""
        return True

    def learn_weights(self, texts: Iterable[str], most: int = 4096) -> Self:
        """Return a fingerprinter that weighs features by their rarity in a sample of the corpus.

        Parameters
        ----------
        texts : iterable of str
            A sample, such as 10,000 documents.
        most : int
            The number of frequent features whose weights are kept, 1 to 65,536. They are part of
            the fingerprinter, and a store remembers them in its manifest, about 14 bytes each. All
            rarer features weigh as much as a feature of a single text.

        Returns
        -------
        SimHash or MinHash
            The same one with `weights`.

        Raises
        ------
        InputError
            No text has features.
        """
        return self.learn_from_rows(([text] for text in texts), most)

    def learn_from_rows(self, rows: Iterable[Sequence[str | None]], most: int = 4096) -> Self:
        """Return a fingerprinter with weights from documents that have several texts.

        See `learn_weights`.
        """
        plain = replace(self, weights=None)
        features = (
            {feature for text in row if text is not None for feature in plain.features(text)}
            for row in rows
        )
        documents = (np.unique(plain._hashes(row)) for row in features if row)
        return replace(self, weights=FeatureWeights.learn(documents, most))

    def empty_message(self, item: str | WeightedFeatures) -> str:
        """Return the message that a text has no features."""
        if not isinstance(item, str):
            return "a collection without features has no fingerprint: leave it out"
        if self.stop_words:
            return (
                f"no shingle of the text {show(item)} has a stop word, so it has no fingerprint: "
                "leave it out"
            )
        lack = "has no features" if self.tokenizer else "is blank"
        return (
            f"the text {show(item)} {lack}, and so has no fingerprint: leave it out (is_empty() "
            "finds such texts)"
        )

    def hashed(self, items: Sequence[str | WeightedFeatures]) -> Hashed:
        """Return the fingerprints of a batch of texts."""
        if self._uses_kernel and (
            isinstance(items, TextColumn) or all(isinstance(item, str) for item in items)
        ):
            return self._hash_in_kernel(items, _ONE_FIELD)  # type: ignore[arg-type]
        return self._hash_features(
            self.features(item).items() if isinstance(item, str) else item  # type: ignore[misc]
            for item in items
        )

    def hashed_fields(self, rows: Sequence[Sequence[str | None]], weights: Sequence[int]) -> Hashed:
        """Return the fingerprints of rows, which have a text or None for each weight.

        See `fpstore.hashing.Fields`.
        """
        if self._uses_kernel:
            texts = [text or "" for row in rows for text in row]
            return self._hash_in_kernel(texts, np.array(weights, np.uint32))
        return self._hash_features(
            [
                (feature, weight * factor)
                for text, factor in zip(row, weights, strict=True)
                for feature, weight in self.features(text or "").items()
            ]
            for row in rows
        )

    @property
    def _hash_bits(self) -> int:
        """Bits of the hash of a feature that are used."""
        return self.width

    @property
    def _zero_row(self) -> Words:
        return Width(self.width).rows([0])

    @property
    def _uses_kernel(self) -> bool:
        return self.tokenizer is None and self.hash in IN_KERNEL

    def _hash_in_kernel(self, texts: Sequence[str], fields: Counts) -> Hashed:
        kernel_rows = partial(self._kernel_rows, self._kernel_features(fields))
        rows, known = char_map(self._form).hashed(texts, kernel_rows, len(fields))
        return Hashed(rows & used_mask(Width(self.width)) if self.width < 64 else rows, known)

    def _kernel_rows(
        self, features: _kernel.TextFeatures, texts: Encoded, tables: _kernel.CharTables
    ) -> KernelRows:
        return KernelRows(*getattr(features, self.name)(*texts, tables))

    @abstractmethod
    def _feature_row(self, features: list[tuple[str, float]]) -> Words | None:
        """Return the fingerprint of weighted features, which may repeat, or None for no features.

        The result has one row.
        """

    def _hash_features(self, items: Iterable[Iterable[tuple[str, float]]]) -> Hashed:
        rows = [self._feature_row(list(features)) for features in items]
        known = np.array([row is not None for row in rows], bool)
        filled = [self._zero_row if row is None else row for row in rows]
        return Hashed(np.concatenate([self._zero_row[:0], *filled]), known)

    def batches(self, items: Iterable[str | WeightedFeatures]) -> Iterator[Sequence[Any]]:
        """Cut texts into batches of about a million characters."""
        return text_batches(items, _check_features)

    @cached_property
    def _form(self) -> NormalForm:
        return NormalForm(
            units=self.shingle,
            normalize=self.normalize,
            case=self.case,
            punctuation=self.punctuation,
            marks=self.marks,
            digits=self.digits,
            spaces=self.spaces,
            hyphens=self.hyphens,
            chinese=self.chinese,
        )

    @cached_property
    def _stop_units(self) -> frozenset[str]:
        """The words of the normal forms of the stop words."""
        return frozenset(
            unit
            for word in self.stop_words
            for unit in self._form.words_form(self._form.prepare(word)).split(" ")
            if unit
        )

    @cached_property
    def _stop_hashes(self) -> Words:
        return np.unique(self._hashes(self._stop_units))

    def _hashes(self, features: Iterable[str]) -> Words:
        """Return the first 64 bits of the hashes of features, the keys of their weights."""
        rows = feature_rows(features, self.hash, self.seed, Width(max(self._hash_bits, 64)))
        return np.ascontiguousarray(rows if rows.ndim == 1 else rows[:, 0])

    def _kernel_features(self, fields: Counts) -> _kernel.TextFeatures:
        hashes, weights, other = NO_WORDS, np.empty(0, np.uint32), 1
        if self.weights is not None:
            hashes, weights, other = self.weights.hashes, self.weights.weights, self.weights.other
        return _kernel.TextFeatures(
            self.shingle != "chars",
            self.size,
            self.weighting,
            str(self.hash),
            self.seed,
            Width(self.width).words,
            hashes,
            weights,
            other,
            self._stop_hashes if self.stop_words else NO_WORDS,
            fields,
        )

    def _pieces(self, text: str) -> Iterator[str | tuple[str, float]]:
        """Yield the features of a text as they occur; a feature with a weight comes as a pair."""
        if callable(self.tokenizer):
            yield from _check_tokens(self.tokenizer(text))
            return
        if self.tokenizer == "jieba":
            # jieba's dictionary lacks full width and other compatible forms
            cut_text = self._form.compose(self._form.prepare(text))
            keywords = list(_check_tokens(load_tokenizer(self.tokenizer)(cut_text)))
            if keywords:
                yield from keywords
                return
        if self.tokenizer == "unicode":
            form = replace(self._form, units="words", punctuation="keep").apply(text)
            form = " ".join(load_tokenizer(self.tokenizer)(form)) or form
        else:
            form = self._form.apply(text)
        yield from shingles(form, self.shingle != "chars", self.size, self._stop_units)


def _check_stop_words(words: object) -> tuple[str, ...]:
    if not is_iterable(words, str):
        raise InputError(
            f"stop_words must be a list of words, got {show(words)}",
            got=words,
            argument="stop_words",
        )
    checked = tuple(words)
    for word in checked:
        if not isinstance(word, str):
            raise InputError(f"a stop word must be a str, got {show(word)}", got=word)
    return checked


def _check_features(item: object, place: int) -> list[tuple[str, float]]:
    """Return an item's features with weights; InputError with the position ``place`` otherwise."""
    if not is_iterable(item):
        raise not_text_error(item, "a text (str) or weighted features", f"item {place}: ")
    pairs = []
    for i, value in enumerate(item.items() if isinstance(item, Mapping) else item):
        feature = _parse_feature(value)
        if feature is None:
            raise InputError(
                f"item {place}: feature {i}: must be a str, or a pair of a str and a finite "
                f"number, got {show(value)}; "
                "to fingerprint several texts call fingerprints()",
                got=value,
            )
        pairs.append((feature, 1) if isinstance(feature, str) else feature)
    return pairs


def _check_tokens(tokens: object) -> Iterator[str | tuple[str, float]]:
    """Yield the features of a tokenizer's result, as pairs if they have a weight."""
    if not is_iterable(tokens, str):
        raise InputError(
            f"the tokenizer must return an iterable of features, got {show(tokens)}", got=tokens
        )
    for token in tokens:
        feature = _parse_feature(token)
        if feature is None:
            raise InputError(
                "the tokenizer must return features (str), or pairs of a feature and a finite "
                f"number, got {show(token)}",
                got=token,
            )
        yield feature


def _parse_feature(value: object) -> str | tuple[str, float] | None:
    """Return a feature, or a pair of a feature and a finite weight; None for something else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not isinstance(value[0], str):
        return None
    weight = value[1]
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(weight, (bool, str, bytes)) and math.isfinite(float(weight)):
            return value[0], weight if isinstance(weight, int) else float(weight)
    return None
