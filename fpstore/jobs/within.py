"""The comparison of rows inside of each value of a column only: of a language, a dump, a host.

Texts of different values have different features in the search, but for rare accidents: a feature
is changed by half a word of the hash of the value (`fpstore.io.keys`). Links are checked by the
values themselves, or by their whole hashes in tasks, so no such accident unites two texts of
different values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Counts, Flags, Words
from fpstore.base.arrays import HALF_BITS
from fpstore.io.labels import LabelColumn


def salts_of(hashes: Words) -> Counts:
    """Return what changes the features of a value, from its hash."""
    return (hashes[:, 0] >> np.uint64(HALF_BITS)).astype(np.uint32)


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
        return cls(np.concatenate(codes), salts_of(columns[-1].names.hashes()))

    def salts_at(self, places: npt.NDArray[np.intp]) -> Counts:
        """Return the salt of each of some texts."""
        return self.salts[self.codes[places]]

    def are_equal(self, a: npt.NDArray[np.intp], b: npt.NDArray[np.intp]) -> Flags:
        """Return whether the texts at places have the values of those at others."""
        equal: Flags = self.codes[a] == self.codes[b]
        return equal
