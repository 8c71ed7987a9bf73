"""The readable decoder of LSH indexes, and brute force over sketches as an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

MASK = (1 << 64) - 1
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mixed(word: int, factor: int) -> int:
    word = word * factor & MASK
    return word ^ word >> 31


def band_keys(sketch: Sequence[int], bands: int, rows: int) -> list[int]:
    """Return the 64 bits of the key of each band."""
    keys = []
    for band in range(bands):
        key = (band + 1) * STEP & MASK
        for value in sketch[band * rows : (band + 1) * rows]:
            key = mixed(key ^ int(value), FIRST)
        keys.append(mixed(key, SECOND))
    return keys


def cut(key: int, key_bits: int) -> int:
    return key >> (64 - key_bits)


def entry(key: int, number: int, key_bits: int, number_bits: int) -> int:
    return cut(key, key_bits) << number_bits | number


def document_row(number: int, signature: bytes) -> int:
    """Return the fingerprint of a document in the store of documents, a number of 256 bits."""
    return int.from_bytes((number.to_bytes(4, "big") + signature).ljust(32, b"\0"), "big")


class Document(NamedTuple):
    keys: frozenset[int]
    signature: int
    id: Any


class Model:
    """Documents in the order of their numbers; every question compares all of them."""

    def __init__(self, bands: int, rows: int, key_bits: int, radius: int) -> None:
        self.bands, self.rows, self.key_bits, self.radius = bands, rows, key_bits, radius
        self.documents: list[Document] = []

    def document(self, sketch: Sequence[int], signature: bytes, name: Any) -> Document:
        keys = (cut(key, self.key_bits) for key in band_keys(sketch, self.bands, self.rows))
        return Document(frozenset(keys), int.from_bytes(signature, "big"), name)

    def find(self, query: Document, radius: int | None = None) -> list[tuple[int, Any]]:
        """Return (distance, id) of the documents that share a key and lie within the radius.

        The nearest come first, and of equally near ones the first inserted.
        """
        matches = [
            ((document.signature ^ query.signature).bit_count(), place, document.id)
            for place, document in enumerate(self.documents)
            if document.keys & query.keys
        ]
        limit = self.radius if radius is None else radius
        return [
            (distance, name)
            for distance, _, name in sorted(matches, key=lambda match: match[:2])
            if distance <= limit
        ]

    def pairs(self) -> set[tuple[int, int]]:
        """Return the places of all pairs of documents within the radius that share a key."""
        documents = self.documents
        return {
            (i, j)
            for j in range(len(documents))
            for i in range(j)
            if documents[i].keys & documents[j].keys
            and (documents[i].signature ^ documents[j].signature).bit_count() <= self.radius
        }
