"""Columns of labels, such as the source, the language or the URL of a row.

A label is a string or null (None). An integer is the string of its digits, so columns of both types
have equal labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Counts, Words
from fpstore.base.arguments import show_json
from fpstore.base.strings import StringColumn
from fpstore.errors import InputError
from fpstore.io.keys import hash_labels

NULL = 0  # the code of a row without a label


class Labels(NamedTuple):
    """The labels of some rows: the code of a row is NULL, or the place of its label plus 1."""

    values: StringColumn
    codes: Counts

    def texts(self) -> list[str]:
        return self.values.texts()


def label_of(value: object) -> str | None:
    """Return a value as a label; InputError for another one than a string, an integer or None."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"expected a string, an integer or null, got {show_json(value)}")
    return str(value)


def encode_labels(labels: Sequence[str | None]) -> Labels:
    """Return labels with codes; UnicodeEncodeError for one with half of a surrogate pair."""
    codes: dict[str | None, int] = {None: NULL}
    rows = np.array([codes.setdefault(label, len(codes)) for label in labels], np.uint32)
    values = [label for label in codes if label is not None]
    return Labels(StringColumn.from_strings(values), rows)


class LabelCodes:
    """Gives each distinct label of a job a code, in the order of the rows."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def encode(self, labels: Labels) -> Counts:
        """Return the codes of the labels of some rows among all."""
        codes, texts = self._codes, labels.texts()
        mapped = [NULL, *(codes.setdefault(text, len(codes) + 1) for text in texts)]
        return np.array(mapped, np.uint32)[labels.codes]

    @property
    def texts(self) -> list[str]:
        """The labels of the codes from 1 on."""
        return list(self._codes)

    def values(self) -> list[str | None]:
        """Return the label of each code."""
        return [None, *self._codes]

    def hashes(self) -> Words:
        """Return the hash of the label of each code; zeros for null."""
        return hash_labels(self.values())


class LabelColumn(NamedTuple):
    """The code of each row of a corpus, and what gives the codes."""

    codes: Counts
    names: LabelCodes

    def hashes(self, rows: npt.NDArray[np.intp]) -> Words:
        """Return the hash of the label of each of some rows; zeros for null."""
        return self.names.hashes()[self.codes[rows]]
