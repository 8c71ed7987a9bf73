"""An index of PDQ hashes for `threatexchange`, in place of its FAISS indexes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar

import numpy as np
from threatexchange.signal_type.index import (
    IndexMatchUntyped,
    SignalSimilarityInfoWithIntDistance,
    SignalTypeIndex,
)

import fpstore
from fpstore.adapters.folder import FolderIndex
from fpstore.base.aliases import Array
from fpstore.errors import InputError, show

__all__ = ["PDQIndex"]

PDQ_BITS = 256
HASH = re.compile("[0-9a-fA-F]{64}")
CONFIDENT_DISTANCE = 31

Entry = TypeVar("Entry")


class PDQIndex(FolderIndex[fpstore.Store[int]], SignalTypeIndex[Entry], Generic[Entry]):
    """A ``SignalTypeIndex`` of PDQ hashes: exact at any threshold.

    The hashes are in a temporary store, and the entries in memory. ``serialize`` and
    ``deserialize`` take both.

    Parameters
    ----------
    entries : iterable of (str, object)
        PDQ hashes of 64 hexadecimal digits, each with its entry. Equal hashes keep all entries.
    threshold : int
        The largest distance of a match, 0 to 256; by default the 31 of ``threatexchange``.

    Raises
    ------
    InputError
        A hash is not 64 hexadecimal digits, or the threshold is out of range.
    """

    def __init__(
        self, entries: Iterable[tuple[str, Entry]] = (), *, threshold: int = CONFIDENT_DISTANCE
    ) -> None:
        pairs = list(entries)
        rows = hash_rows(name for name, _ in pairs)
        self.threshold = threshold
        self._entries = [entry for _, entry in pairs]
        self._open(
            lambda path: fpstore.build(path, rows, radius=threshold, width=PDQ_BITS), path=None
        )

    @classmethod
    def build(cls, entries: Iterable[tuple[str, Entry]]) -> Self:
        """Return an index of entries."""
        return cls(entries)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def query(self, query: str) -> list[Any]:
        """Return an ``IndexMatch`` for each entry within the threshold, the nearest first."""
        return [
            IndexMatchUntyped(
                SignalSimilarityInfoWithIntDistance(match.distance), self._entries[number]
            )
            for match in self.store.probe(int.from_bytes(hash_bytes(query)))
            for number in match.ids
        ]

    def add(self, signal_str: str, entry: Entry) -> None:
        """Add an entry."""
        self.add_all([(signal_str, entry)])

    def add_all(self, entries: Iterable[tuple[str, Entry]]) -> None:
        """Add entries in one change, or none of them."""
        pairs, count = list(entries), len(self)
        numbers = np.arange(count, count + len(pairs), dtype=np.uint64)
        self.store.insert(hash_rows(name for name, _ in pairs), numbers)
        self._entries += [entry for _, entry in pairs]

    def dispose(self) -> None:
        """Close the store, and remove its folder."""
        self.close()


def hash_bytes(digits: str) -> bytes:
    """Return the bytes of a PDQ hash."""
    if isinstance(digits, str) and HASH.fullmatch(digits):
        return bytes.fromhex(digits)
    raise InputError(f"a PDQ hash has 64 hexadecimal digits, got {show(digits)}", got=digits)


def hash_rows(hashes: Iterable[str]) -> Array:
    """Return PDQ hashes as an array of uint8, a row of 32 for each."""
    return np.frombuffer(b"".join(map(hash_bytes, hashes)), np.uint8).reshape(-1, PDQ_BITS // 8)
