"""The facts that a writer of a table needs before the first key: the histogram of its code, the number of keys, their digest."""

from __future__ import annotations

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.width import rows_to_numbers
from fpstore.errors import CorruptStoreError
from fpstore.format import huffman


class Histogram:
    """Counts the first differing bits of successive keys.

    Attributes
    ----------
    counts : ndarray of uint64
        By the place of the bit.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(huffman.SYMBOLS, np.uint64)
        self._last: Words | None = None  # the last row

    def add(self, keys: Words) -> None:
        """Count the next keys.

        Raises
        ------
        CorruptStoreError
            The keys do not ascend.
        """
        if not len(keys):
            return
        if self._last is not None and _kernel.histogram(np.concatenate([self._last, keys[:1]]), self.counts) != 2:
            raise _out_of_order(keys[:1], self._last)
        bad = _kernel.histogram(keys, self.counts)
        if bad != len(keys):
            raise _out_of_order(keys[bad : bad + 1], keys[bad - 1 : bad])
        self._last = keys[-1:].copy()


class KeySummary:
    """The facts about distinct keys that the writer of a table needs: :meth:`add` all keys, ascending.

    Attributes
    ----------
    count, digest : int
        Their number, and their set digest.
    """

    def __init__(self) -> None:
        self.count = self.digest = 0
        self._histogram = Histogram()

    @property
    def histogram(self) -> Words:
        """The counts of their first differing bits."""
        return self._histogram.counts

    def add(self, keys: Words) -> None:
        """Take the next keys; see :meth:`Histogram.add`."""
        self._histogram.add(keys)
        self.count += len(keys)
        self.digest = (self.digest + _kernel.digest(keys)) % 2**64


def _out_of_order(key: Words, before: Words) -> CorruptStoreError:
    (number,), (earlier,) = rows_to_numbers(key), rows_to_numbers(before)
    return CorruptStoreError(f"{number:016x} comes after {earlier:016x}: a table out of order: run fpstore verify")
