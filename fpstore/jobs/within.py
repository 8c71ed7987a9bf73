"""The comparison of rows inside of each value of a column only: of a language, a dump, a host.

Texts of different values have different features in the search, but for rare accidents: a feature
is changed by the hash of the value. Links are checked by the values themselves, so no accident
unites two texts of different values.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Counts, Flags, Words
from fpstore.base.arrays import HALF_BITS
from fpstore.io.labels import LabelColumn

KEY_WORDS = 2


def value_keys(values: Sequence[str | None]) -> Words:
    """Return 128 bits of BLAKE2b for each value, shape (n, 2); null has zeros.

    No two values with equal keys are known, so equal keys are equal values.
    """
    keys = (
        bytes(8 * KEY_WORDS)
        if value is None
        else blake2b(value.encode(), digest_size=8 * KEY_WORDS).digest()
        for value in values
    )
    return np.frombuffer(b"".join(keys), "<u8").astype(np.uint64).reshape(-1, KEY_WORDS)


def salts_of(keys: Words) -> Counts:
    """Return what changes the features of a value, from its key."""
    return (keys[:, 0] >> np.uint64(HALF_BITS)).astype(np.uint32)


def column_keys(column: LabelColumn, rows: npt.NDArray[np.intp]) -> Words:
    """Return the key of the value of each of some rows, by which tasks compare values."""
    return value_keys(column.names.values())[column.codes[rows]]


class Within(NamedTuple):
    """The value of each text, in which it is compared: a code; and the salt of each code."""

    codes: Counts
    salts: Counts

    @classmethod
    def of_columns(
        cls, columns: Sequence[LabelColumn], rows: Sequence[npt.NDArray[np.intp]]
    ) -> Within:
        """Return the values of rows of successive corpora, which share their codes."""
        codes = [column.codes[places] for column, places in zip(columns, rows, strict=True)]
        return cls(np.concatenate(codes), salts_of(value_keys(columns[-1].names.values())))

    def salts_at(self, places: npt.NDArray[np.intp]) -> Counts:
        """Return the salt of each of some texts."""
        return self.salts[self.codes[places]]

    def are_equal(self, a: npt.NDArray[np.intp], b: npt.NDArray[np.intp]) -> Flags:
        """Return whether the texts at places have the values of those at others."""
        equal: Flags = self.codes[a] == self.codes[b]
        return equal
