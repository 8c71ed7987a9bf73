"""Texts that are compared as wholes, not by their features."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import check_choice, is_iterable
from fpstore.base.width import WORD_BITS
from fpstore.errors import InputError, show
from fpstore.hashing.base import FeatureSets, Fingerprinter, Hashed
from fpstore.hashing.fields import check_fields
from fpstore.io.keys import has_key, hash_values

EXACT = "exact"  # the method
#: What of texts is made alike, by name.
NORMALIZATIONS = ("space", "case", "nfc", "nfkc")
_LENGTH_BYTES = 8
_NULL = b"\xff" * _LENGTH_BYTES  # no text has this length


def check_normalize(normalize: object) -> tuple[str, ...]:
    """Return names of NORMALIZATIONS, in their order; InputError for another name."""
    names = normalize.split(",") if isinstance(normalize, str) and normalize else normalize or ()
    if not is_iterable(names, str):
        raise InputError(
            f"normalize is a list of {', '.join(NORMALIZATIONS)}, got {show(normalize)}",
            got=normalize,
            argument="normalize",
        )
    checked = {check_choice(name, NORMALIZATIONS, "normalize") for name in names}
    if {"nfc", "nfkc"} <= checked:
        raise InputError(
            "normalize: nfkc makes alike all that nfc does: give one of both",
            got=normalize,
            argument="normalize",
        )
    return tuple(name for name in NORMALIZATIONS if name in checked)


def normal_text(text: str, normalize: Sequence[str]) -> str:
    """Return a text with some NORMALIZATIONS.

    ``nfc`` and ``nfkc`` are the normalization forms of Unicode (Standard Annex 15), ``case`` is its
    full case folding (The Unicode Standard, section 3.13), and ``space`` makes each run of white
    space one space, and none at both ends.
    """
    form = "NFKC" if "nfkc" in normalize else "NFC" if "nfc" in normalize else None
    if form is not None:
        text = unicodedata.normalize(form, text)  # type: ignore[arg-type]
    if "case" in normalize:
        text = text.casefold()
        if form is not None:  # folding may take a text out of its form
            text = unicodedata.normalize(form, text)  # type: ignore[arg-type]
    return " ".join(text.split()) if "space" in normalize else text


def text_keys(items: Iterable[Any], normalize: Sequence[str] = ()) -> Words:
    """Return the hashes of texts, or of rows of several texts, as wholes: see `fpstore.io.keys`.

    Null has none.
    """

    def encode(text: str) -> bytes:
        normal = normal_text(text, normalize) if normalize else text
        return normal.encode("utf-8", "surrogatepass")

    def value(item: Any) -> bytes | None:
        if item is None or isinstance(item, str):
            return None if item is None else encode(item)
        texts = (None if text is None else encode(text) for text in item)
        return b"".join(
            _NULL if text is None else len(text).to_bytes(_LENGTH_BYTES, "big") + text
            for text in texts
        )

    return hash_values(map(value, items))


@dataclass(frozen=True)
class ExactText(Fingerprinter[Any]):
    """Hashes whole texts, or rows of texts in some columns; equal texts are the only near ones.

    Parameters
    ----------
    normalize : tuple of str
        What is made alike before: see `normal_text`.
    columns : tuple of str, optional
        The columns of rows; by default, items are texts.
    """

    name: ClassVar[str] = "exact-text"
    version: ClassVar[int] = 1

    normalize: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self._keep(normalize=check_normalize(self.normalize))
        if self.columns is not None:
            self._keep(columns=tuple(check_fields(self.columns)))

    @property
    def items(self) -> str:  # type: ignore[override]
        """What it takes: "texts", or "rows"."""
        return "texts" if self.columns is None else "rows"

    @property
    def width(self) -> int:
        """Bits of a fingerprint."""
        return WORD_BITS

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make an equal hasher."""
        columns = None if self.columns is None else list(self.columns)
        return {"normalize": list(self.normalize), "columns": columns}

    def hashed(self, items: Sequence[Any]) -> Hashed:
        """Return half of each hash as a fingerprint."""
        keys = text_keys(items, self.normalize)
        return Hashed(np.ascontiguousarray(keys[:, 0]), has_key(keys), text_keys=keys)

    def feature_sets(self, items: Sequence[Any]) -> FeatureSets:
        """Return a set without features for each text."""
        count = len(items)
        return FeatureSets(
            np.empty(0, np.uint32),
            np.zeros(count, np.int64),
            np.zeros(count, np.uint64),
            np.zeros(count, np.uint32),
        )

    def hashed_sets(self, items: Sequence[Any], /, *, fingerprints: bool = False) -> Hashed:
        """Return the hashes of a batch, with or without fingerprints."""
        hashed = self.hashed(items)._replace(sets=self.feature_sets(items))
        return (
            hashed if fingerprints else hashed._replace(rows=np.empty((len(items), 0), np.uint64))
        )
