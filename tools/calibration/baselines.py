"""The simhash of another package, written anew from what its documentation and sources say that it computes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import xxhash

from fpstore.hashing import Fingerprinter
from fpstore.hashing.base import Hashed

BATCH = 256
_NOT_WORD = re.compile(r"\W")


class TextDedupSimhash(Fingerprinter[str]):
    """The simhash of the package text-dedup with its defaults.

    The text in lower case is split at each character that is not a word character, so that there is
    an empty piece between two such characters; each three successive pieces, joined by spaces,
    once; XXH3 with 64 bits, and the majority in each bit. A text of fewer than five pieces has no
    fingerprint.
    """

    name: ClassVar[str] = "text-dedup"
    version: ClassVar[int] = 1
    parameters: ClassVar[dict[str, Any]] = {}
    width = 64

    def hashed(self, items: Sequence[str]) -> Hashed:
        """Return the fingerprints of some texts."""
        rows, known = np.zeros(len(items), np.uint64), np.zeros(len(items), bool)
        for place, text in enumerate(items):
            pieces = _NOT_WORD.split(text.lower())
            if len(pieces) >= 5:
                found = dict.fromkeys(
                    " ".join(pieces[i : i + 3]).encode("utf-8", "replace")
                    for i in range(len(pieces) - 2)
                )
                hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, found), np.uint64, len(found))
                bits = np.unpackbits(hashes.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
                rows[place] = np.packbits(2 * bits.sum(axis=0, dtype=np.int64) > len(found)).view(
                    ">u8"
                )[0]
                known[place] = True
        return Hashed(rows, known)

    def batches(self, items: Iterable[str]) -> Iterator[list[str]]:
        """Cut texts into batches."""
        each = iter(items)
        while batch := list(islice(each, BATCH)):
            yield batch

    def lack(self, item: str) -> str:
        """Say that a text has no features."""
        return f"the text {item!r:.80} has no features"
