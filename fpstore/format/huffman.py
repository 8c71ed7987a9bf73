"""The Huffman code of a table, from the histogram of the first differing bits of its keys (Manku, section 3.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.width import WORD_BITS, Width, rows_to_numbers
from fpstore.errors import CorruptStoreError

SYMBOLS = 65  # the places of a bit of the leading word, and 64: another word differs
FILLERS = (31, 30)  # symbols that every width has


def tail_bits(width: Width) -> npt.NDArray[np.uint64]:
    """Return the number of bits of the tail of an entry by its h: the bits of the leading word behind bit h."""
    bits = np.arange(min(width.bits, WORD_BITS) - 1, -1, -1, dtype=np.uint64)
    return np.concatenate([bits, np.zeros(SYMBOLS - len(bits), np.uint64)])


def code_lengths(histogram: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return the code length of each h; 0 for positions that do not occur.

    Rare positions are counted as at least a 2^-14th of all, doubling until no code is longer than the format allows (16 bits):
    that costs less than a thousandth of a bit per fingerprint. At least two positions get a code, so that the code is complete.

    Parameters
    ----------
    histogram : ndarray of uint64, shape (65,)
        The number of occurrences of each position.

    Returns
    -------
    ndarray of uint8, shape (65,)
    """
    from bitarray.util import canonical_huffman

    total = int(histogram.sum())
    present = [int(s) for s in np.flatnonzero(histogram)]
    for filler in FILLERS:
        if len(present) < 2 and filler not in present:
            present.append(filler)
    lengths = np.zeros(SYMBOLS, dtype=np.uint8)
    shift = 14
    while True:
        least = max(1, total >> shift)
        codes, _, _ = canonical_huffman({s: max(int(histogram[s]), least) for s in present})
        if max(map(len, codes.values())) <= _kernel.MAX_CODE_BITS:
            break
        shift -= 1
    for symbol, code in codes.items():
        lengths[symbol] = len(code)
    return lengths


class Histogram:
    """Counts the first differing bits of successive keys.

    Attributes
    ----------
    counts : ndarray of uint64
        By the place of the bit.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(SYMBOLS, np.uint64)
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
