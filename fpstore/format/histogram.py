"""The histogram of first differing bits, from which the code of a table is made."""

from __future__ import annotations

import numpy as np

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.errors import CorruptStoreError
from fpstore.format import huffman


class Histogram:
    """Counts of the first differing bits of successive keys, from which the code of a table is made."""

    def __init__(self) -> None:
        self.counts = np.zeros(huffman.SYMBOLS, np.uint64)
        self._last = np.empty(0, np.uint64)

    def add(self, keys: Words) -> None:
        """Count the next keys.

        Raises
        ------
        CorruptStoreError
            The keys do not ascend.
        """
        last = self._last
        joined = np.concatenate([last, keys[:1]])
        if len(last) and len(keys) and _kernel.histogram(joined, self.counts) != len(joined):
            raise _out_of_order(keys[0], last[-1])
        bad = _kernel.histogram(keys, self.counts)
        if bad != len(keys):
            raise _out_of_order(keys[bad], keys[bad - 1])
        if len(keys):
            self._last = keys[-1:].copy()


def _out_of_order(key: np.uint64, before: np.uint64) -> CorruptStoreError:
    return CorruptStoreError(f"{int(key):016x} comes after {int(before):016x}: a table out of order: run fpstore verify")
