"""Fingerprints of rows with several texts, such as a title and a body, each with a weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fpstore.base.aliases import Counts
from fpstore.base.arguments import check_whole, is_iterable
from fpstore.base.strings import TextColumn
from fpstore.errors import InputError, show
from fpstore.hashing.base import (
    BATCH_CHARS,
    FeatureSets,
    Fingerprinter,
    Hashed,
    batched,
    check_items,
    is_null,
    not_text_error,
)
from fpstore.hashing.text import TextHash
from fpstore.hashing.weights import MAX_WEIGHT
from fpstore.hashing.wrapper import Wrapper

Row = Mapping[str, str | None]
Texts = tuple[str | None, ...]  # the texts of a row, in the order of the fields
TextColumns = str | Sequence[str] | Mapping[str, int]  # names of columns, and weights


@dataclass(frozen=True)
class Fields(Wrapper[Row]):
    """Fingerprints of rows with several texts.

    Each field has a weight, by which the features of its text count.

    Version 1 is, exactly: each text has the features of `fingerprinter`, with the weights that they
    have there. The weight of a feature is multiplied by the weight of its field, and the weights of
    a feature that several fields have add up; for MinHash of sets the fields are one set. The
    weighted features become a fingerprint as `fingerprinter` makes one. A text that is missing or
    null has no features. A row without features has no fingerprint.

    Parameters
    ----------
    fingerprinter : SimHash or MinHash
        Makes the features of each text, and a fingerprint of all. MinHash of sets takes no weights
        of fields but 1.
    weights : mapping of str to int
        The names of the fields, and what a feature of each counts: whole numbers, 1 to 65,535.
        Their order does not matter.

    Raises
    ------
    InputError
        There are no fields, a weight is out of range, or `fingerprinter` does not take them.

    Notes
    -----
    Weighted features: M. Charikar, *Similarity estimation techniques from rounding algorithms*,
    STOC 2002, section 3. Weights of fields: S. Robertson, H. Zaragoza, M. Taylor, *Simple BM25
    extension to multiple weighted fields*, CIKM 2004, section 3.

    Examples
    --------
    >>> from fpstore.hashing import Fields, SimHash
    >>> fields = Fields(SimHash(), {"title": 4, "text": 1})
    >>> row = {"title": "A quick fox", "text": "The quick brown fox jumps over the lazy dog"}
    >>> fields.fingerprint(row) == fields.fingerprint(row | {"title": "a QUICK fox!"})
    True
    >>> a = fields.fingerprint({"title": None, "text": "some words"})
    >>> a == SimHash().fingerprint("some words")
    True
    """

    name: ClassVar[str] = "fields"
    version: ClassVar[int] = 1
    items: ClassVar[str] = "rows"

    fingerprinter: TextHash
    weights: Mapping[str, int]

    def __post_init__(self) -> None:
        if not isinstance(self.fingerprinter, TextHash):
            message = (
                "several fields need SimHash or MinHash, which have features, got "
                f"{type(self.fingerprinter).__name__}"
            )
            raise InputError(message, got=type(self.fingerprinter))
        if not isinstance(self.weights, Mapping):
            raise InputError(
                f"the weights of fields are a mapping such as {{'title': 4, 'text': 1}}, got "
                f"{show(self.weights)}"
            )
        self._keep(weights=check_fields(self.weights))
        if not self.fingerprinter.takes_field_weights and any(
            weight != 1 for weight in self.weights.values()
        ):
            raise InputError(
                "MinHash of sets counts each field once: use MinHash(weighting='count')",
                got=dict(self.weights),
            )

    def __hash__(self) -> int:
        return hash((self.fingerprinter, frozenset(self.weights.items())))

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal fingerprinter.

        InputError if the tokenizer is a function.
        """
        return {"fingerprinter": self.fingerprinter.describe(), "weights": dict(self.weights)}

    def learn_weights(self, rows: Iterable[Row], most: int = 4096) -> Fields:
        """Return a fingerprinter that weighs features by their rarity in a sample of the corpus.

        Parameters
        ----------
        rows : iterable of mapping
            A row has a feature if one of its texts has it.
        most : int
            As for `SimHash.learn_weights`.

        Returns
        -------
        Fields
            The same one, whose `fingerprinter` has weights.

        Raises
        ------
        InputError
            A row has a wrong type, or no row has features.

        Examples
        --------
        >>> from fpstore.hashing import Fields, SimHash
        >>> rows = [
        ...     {"title": "the fox", "text": "the fox jumps"},
        ...     {"title": None, "text": "the dog sleeps"},
        ... ]
        >>> learnt = Fields(SimHash(), {"title": 4, "text": 1}).learn_weights(rows)
        >>> learnt.fingerprinter.features("the fox")
        {'the': 1, 'fox': 17}
        """
        texts = (row for batch in self.batches(rows) for row in batch)
        return replace(self, fingerprinter=self.fingerprinter.learn_from_rows(texts, most))

    def hashed(self, items: Sequence[Texts]) -> Hashed:
        """Return the fingerprints of a batch of `batches`: tuples of texts."""
        return self.fingerprinter.hashed_fields(items, tuple(self.weights.values()))

    def feature_sets(self, items: Sequence[Texts]) -> FeatureSets:
        """Return the features of a batch of `batches` as sets."""
        for place, row in enumerate(items):
            if not isinstance(row, tuple) or len(row) != len(self.weights):
                raise not_text_error(
                    row, f"a tuple of {len(self.weights)} texts", f"item {place}: "
                )
        return self.fingerprinter.row_feature_sets(items, len(self.weights))

    def batches(self, items: Iterable[Row]) -> Iterator[Sequence[Texts]]:
        """Cut rows into batches of about a million characters."""
        check_items(items, "rows")
        rows = (self._texts(item, place) for place, item in enumerate(items))
        return batched(rows, lambda row: count_chars(row) + 8 * len(row), BATCH_CHARS)

    def empty_message(self, item: Texts) -> str:  # type: ignore[override]
        """Return the message that no text of a row has features."""
        row = show(dict(zip(self.weights, item, strict=True)))
        return (
            f"the row {row} has no features in any field, and so no fingerprint: leave it out "
            "(is_empty() finds such rows)"
        )

    def _texts(self, item: object, place: int) -> Texts:
        """Return the texts of a row.

        InputError with its position if it has another type, or none of the fields.
        """
        if not isinstance(item, Mapping):
            raise not_text_error(
                item,
                f"a row, which is a mapping of {', '.join(self.weights)} to texts",
                f"item {place}: ",
            )
        if not any(name in item for name in self.weights):
            raise InputError(
                f"item {place}: a row has one of the fields {', '.join(self.weights)}, got "
                f"{show(list(item))}",
                got=item,
            )
        texts = tuple(None if is_null(text := item.get(name)) else text for name in self.weights)
        for name, text in zip(self.weights, texts, strict=True):
            if text is not None and not isinstance(text, str):
                raise not_text_error(text, "a text (str) or None", f"item {place}: {name}: ")
        return texts


def count_chars(texts: str | Texts | None) -> int:
    """Return the characters of a text, which may be null, or of all texts of a row."""
    return sum(map(len, filter(None, texts if isinstance(texts, tuple) else (texts,))))


def text_chars(texts: Sequence[Any]) -> Counts:
    """Return the characters of each of some texts, or rows of texts."""
    if isinstance(texts, TextColumn):
        return texts.chars
    return np.fromiter(map(count_chars, texts), np.uint32, len(texts))


def check_fields(columns: object, argument: str = "text") -> dict[str, int]:
    """Return the names of columns of texts with their weights, by default 1."""
    names = [columns] if isinstance(columns, str) else columns
    if not is_iterable(names):
        raise _no_name(columns, argument)
    weights: dict[str, int] = {}
    for name in names:
        if not (isinstance(name, str) and name):
            raise _no_name(name, argument)
        if name in weights:
            raise InputError(f"{argument}: the column {show(name)} is named twice", got=columns)
        weight = columns[name] if isinstance(columns, Mapping) else 1
        weights[name] = check_whole(weight, 1, MAX_WEIGHT, f"the weight of {name}")
    if not weights:
        raise _no_name(columns, argument)
    return weights


def _no_name(got: object, argument: str) -> InputError:
    return InputError(
        f"{argument} must be the name of a column, several names, or names with weights, got "
        f"{show(got)}",
        got=got,
        argument=argument,
    )


def column_fingerprinter(
    fingerprinter: Fingerprinter[Any], text: Any
) -> tuple[Fingerprinter[Any], str | tuple[str, ...]]:
    """Return the fingerprinter of columns of texts, and the columns that it needs.

    For several columns it is `Fields`. If ``fingerprinter`` is `Fields` already, ``text`` names its
    fields, with its weights or with none.
    """
    weights = check_fields(text)
    if isinstance(fingerprinter, Fields):
        fields = fingerprinter.weights
        if set(weights) != set(fields) or (isinstance(text, Mapping) and weights != fields):
            raise InputError(
                f"the fingerprints are made of the fields {fields_as_options(fields)}, not "
                f"{fields_as_options(weights)}: "
                f"name them all, with these weights or with none",
                expected=dict(fields),
                got=weights,
            )
        return fingerprinter, tuple(fields)
    if len(weights) == 1:
        return fingerprinter, next(iter(weights))
    return Fields(fingerprinter, weights), tuple(weights)  # type: ignore[arg-type]


def is_weighted(text: Any) -> bool:
    """Return whether ``text`` names several columns with weights that differ from 1."""
    return (
        isinstance(text, Mapping) and len(text) > 1 and any(weight != 1 for weight in text.values())
    )


def fields_as_options(weights: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={weight}" for name, weight in weights.items())
