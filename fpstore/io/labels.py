"""Columns of labels, such as the source or the language of a row: strings, integers, or null."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fpstore.base.aliases import Counts
from fpstore.base.strings import StringColumn
from fpstore.errors import InputError

NULL = 0  # the code of a row without a label


class Labels(NamedTuple):
    """The labels of some rows: the code of a row is NULL, or the place of its value plus 1.

    An integer is the string of its digits, so columns of both types have equal labels.
    """

    values: StringColumn
    codes: Counts

    def texts(self) -> list[str]:
        return self.values.texts()


def labels_of_values(values: Iterable[object]) -> Labels:
    """Return the labels of Python's values.

    InputError for a value that is no string, integer or None; its place is the fact ``got``.
    """
    codes_of_values, codes = dict[str, int](), list[int]()
    for place, value in enumerate(values):
        if value is None:
            codes.append(NULL)
        elif isinstance(value, (str, int)) and not isinstance(value, bool):
            codes.append(codes_of_values.setdefault(str(value), len(codes_of_values) + 1))
        else:
            raise InputError("a label must be a string, an integer or null", got=place)
    try:
        column = StringColumn.from_strings(list(codes_of_values))
    except UnicodeEncodeError as error:
        place = codes.index(codes_of_values[str(error.object)])
        raise InputError("a label holds half of a surrogate pair", got=place) from None
    return Labels(column, np.array(codes, np.uint32))


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


class LabelColumn(NamedTuple):
    """The code of each row of a corpus, and what gives the codes."""

    codes: Counts
    names: LabelCodes
