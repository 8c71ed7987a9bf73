"""The Huffman code of a table, from the first differing bits of its keys (Manku, section 3.3)."""

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
    """Return the bits of the tail of an entry, which are behind bit h of the leading word, by h."""
    bits = np.arange(min(width.bits, WORD_BITS) - 1, -1, -1, dtype=np.uint64)
    return np.concatenate([bits, np.zeros(SYMBOLS - len(bits), np.uint64)])


def code_lengths(histogram: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return the code length of each h; 0 for positions that do not occur.

    Rare positions count as at least a 2^-14th of all. This minimum doubles until no code is longer
    than the format allows (16 bits), which costs less than a thousandth of a bit per fingerprint.
    At least two positions get a code, so that the code is complete.
    """
    from bitarray.util import canonical_huffman

    total = int(histogram.sum())
    present = [int(s) for s in np.flatnonzero(histogram)]
    for filler in FILLERS:
        if len(present) < 2 and filler not in present:
            present.append(filler)
    lengths = np.zeros(SYMBOLS, dtype=np.uint8)
    for shift in range(14, -1, -1):
        codes, _, _ = canonical_huffman(
            {s: max(int(histogram[s]), total >> shift, 1) for s in present}
        )
        if max(map(len, codes.values())) <= _kernel.MAX_CODE_BITS:
            break
    for symbol, code in codes.items():
        lengths[symbol] = len(code)
    return lengths


class GapHistogram:
    """Counts the first differing bits of successive keys, by the place of the bit."""

    def __init__(self) -> None:
        self.counts = np.zeros(SYMBOLS, np.uint64)
        self._last: Words | None = None  # the last row

    def add(self, keys: Words) -> None:
        """Count the next keys; CorruptStoreError if they do not ascend."""
        if len(keys) and self._last is not None:
            self._count(np.concatenate([self._last, keys[:1]]))
        self._count(keys)
        self._last = keys[-1:].copy() if len(keys) else self._last

    def _count(self, keys: Words) -> None:
        bad = _kernel.histogram(keys, self.counts)
        if bad != len(keys):
            before, key = rows_to_numbers(keys[bad - 1 : bad + 1])
            raise CorruptStoreError(
                f"{key:016x} comes after {before:016x}: a table out of order: run fpstore verify"
            )


class KeySummary(GapHistogram):
    """The number, set digest and histogram of ascending keys, which the writer of a table needs."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.digest = 0

    def add(self, keys: Words) -> None:
        super().add(keys)
        self.count += len(keys)
        self.digest = (self.digest + _kernel.digest(keys)) % 2**64
