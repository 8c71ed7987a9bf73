"""Simhashes of other packages, written anew from what their documentation and sources say that they compute."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import xxhash

from fpstore.hashing import Fingerprinter
from fpstore.hashing.base import Hashed

BATCH = 256
_NOT_WORD = re.compile(r"\W")


class Baseline(Fingerprinter[str]):
    """A simhash of 64 bits: each feature's hash counts as often as the feature weighs, and each bit is the majority."""

    version: ClassVar[int] = 1
    parameters: ClassVar[dict[str, Any]] = {}
    width = 64

    @abstractmethod
    def features(self, text: str) -> dict[bytes, int]:
        """Return the features of a text with their weights."""

    @abstractmethod
    def hash_of(self, feature: bytes) -> int:
        """Return the hash of a feature, 64 bits."""

    def hashed(self, items: Sequence[str]) -> Hashed:
        """Return the fingerprints of some texts."""
        rows, known = np.zeros(len(items), np.uint64), np.zeros(len(items), bool)
        for place, text in enumerate(items):
            found = self.features(text)
            if found:
                hashes = np.fromiter(map(self.hash_of, found), np.uint64, len(found))
                bits = np.unpackbits(hashes.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
                weights = np.fromiter(found.values(), np.int64, len(found))
                rows[place] = np.packbits(2 * (weights @ bits) > weights.sum()).view(">u8")[0]
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


class PackageSimhash(Baseline):
    """The package simhash, as `Simhash(text)` computes it.

    The text in lower case, of which only word characters are kept; each four successive ones of what is left, with the number of
    their occurrences; the last 64 bits of MD5. A text of up to four characters is one feature.
    """

    name: ClassVar[str] = "simhash-package"

    def features(self, text: str) -> dict[bytes, int]:
        """Return the 4-grams of characters with their counts."""
        kept = _NOT_WORD.sub("", text.lower())
        return Counter(kept[i : i + 4].encode("utf-8", "replace") for i in range(max(len(kept) - 3, 1))) if kept else {}

    def hash_of(self, feature: bytes) -> int:
        """Return the last 64 bits of MD5."""
        return _md5(feature)


class TextDedupSimhash(Baseline):
    """The simhash of the package text-dedup with its defaults.

    The text in lower case is split at each character that is not a word character, so that there is an empty piece between two
    such characters; each three successive pieces, joined by spaces, once; XXH3 with 64 bits. A text of fewer than five pieces has
    no fingerprint.
    """

    name: ClassVar[str] = "text-dedup"

    def features(self, text: str) -> dict[bytes, int]:
        """Return the 3-grams of pieces, each with the weight 1."""
        pieces = _NOT_WORD.split(text.lower())
        if len(pieces) < 5:
            return {}
        return dict.fromkeys((" ".join(pieces[i : i + 3]).encode("utf-8", "replace") for i in range(len(pieces) - 2)), 1)

    def hash_of(self, feature: bytes) -> int:
        """Return XXH3 with 64 bits."""
        return xxhash.xxh3_64_intdigest(feature)


@lru_cache(1 << 20)
def _md5(feature: bytes) -> int:
    return int.from_bytes(hashlib.md5(feature).digest()[-8:], "big")
