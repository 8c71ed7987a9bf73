"""Keys of bands, and the entries of the two stores of an index (docs/format.md, "LSH index")."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Flags, Words
from fpstore.base.width import WORD_BITS, Width
from fpstore.design.families import Design
from fpstore.design.tables import TableSpec, identity_permutation

DOCUMENT_WIDTH = Width(256)
MAX_NUMBER_BITS = 32  # of a document; they stand before its signature
MIN_NUMBER_BITS = 20
KEY_BITS = 8  # of a key beyond the bits of the numbers of documents and bands
MAX_SIGNATURE_BYTES = DOCUMENT_WIDTH.bytes - MAX_NUMBER_BITS // 8
MAX_DOCUMENTS = 1 << MAX_NUMBER_BITS


def band_keys(sketches: Counts, bands: int, rows: int) -> Words:
    """Hash ``rows`` successive values of a sketch for each band, shape (n, bands).

    A key has 64 bits, and depends on the number of its band, too.
    """
    return _kernel.band_keys(np.ascontiguousarray(sketches), bands, rows).reshape(-1, bands)


class EntryLayout(NamedTuple):
    """The bits of an entry of the store of keys: zeros, a key, and a document's number."""

    key_bits: int
    number_bits: int

    @property
    def prefix_bits(self) -> int:
        """The leading bits of an entry that a look-up fixes."""
        return WORD_BITS - self.number_bits

    def prefixes(self, keys: Words) -> Words:
        """Return the entries of the first bits of 64-bit keys, with document number 0."""
        return (keys >> np.uint64(WORD_BITS - self.key_bits)) << np.uint64(self.number_bits)

    def entries(self, keys: Words, numbers: Words) -> Words:
        """Return one entry for each key of each document, shape (n * bands,)."""
        return (self.prefixes(keys) | numbers[:, None]).reshape(-1)

    def numbers(self, entries: Words) -> Words:
        return entries & np.uint64((1 << self.number_bits) - 1)

    @staticmethod
    def for_size(count: int, bands: int) -> EntryLayout:
        """Choose the bits for ``count`` documents, and for twice as many numbers.

        A key finds ``count * bands / 2^key_bits`` other documents by chance, which their signatures
        reject. Numbers may become wider where keys and numbers leave room.
        """
        bits = max(count - 1, 0).bit_length()
        number_bits = min(max(bits + 1, MIN_NUMBER_BITS), MAX_NUMBER_BITS)
        return EntryLayout(
            min(bits + KEY_BITS + (bands - 1).bit_length(), WORD_BITS - number_bits), number_bits
        )

    def widen(self, count: int) -> EntryLayout | None:
        """Widen the numbers for ``count`` documents; None if the keys leave no room."""
        bits = max(self.number_bits, (count - 1).bit_length())
        return (
            self._replace(number_bits=bits)
            if self.key_bits + bits <= WORD_BITS and bits <= MAX_NUMBER_BITS
            else None
        )

    @property
    def design(self) -> Design:
        return keyed_design(self.prefix_bits, WORD_BITS)


def keyed_design(key_bits: int, width: int) -> Design:
    """Return a design of one table, for all fingerprints with the same leading bits."""
    return Design(f"key-{key_bits}", 0, (TableSpec(identity_permutation(width), key_bits),))


DOCUMENT_DESIGN = keyed_design(MAX_NUMBER_BITS, DOCUMENT_WIDTH.bits)


def document_rows(numbers: Words, signatures: Bytes) -> Words:
    """Return fingerprints of documents: the number in 32 bits, the signature, and zeros."""
    data = np.zeros((len(signatures), DOCUMENT_WIDTH.bytes), np.uint8)
    data[:, MAX_NUMBER_BITS // 8 : MAX_NUMBER_BITS // 8 + signatures.shape[1]] = signatures
    rows = DOCUMENT_WIDTH.from_bytes(data)
    rows[:, 0] |= numbers << np.uint64(MAX_NUMBER_BITS)
    return rows


def document_numbers(rows: Words) -> Words:
    return rows[:, 0] >> np.uint64(MAX_NUMBER_BITS)


def find_numbers(numbers: Words, queries: Words) -> tuple[Flags, npt.NDArray[np.intp]]:
    """Return which queries occur in ascending numbers, and the places of these numbers."""
    places = np.searchsorted(numbers, queries)
    stored = places < len(numbers)
    stored[stored] = numbers[places[stored]] == queries[stored]
    return stored, places[stored]


def document_prefixes(numbers: Words) -> Words:
    """Return rows with the leading bits of documents, and zeros."""
    rows = np.zeros((len(numbers), DOCUMENT_WIDTH.words), np.uint64)
    rows[:, 0] = numbers << np.uint64(MAX_NUMBER_BITS)
    return rows


def signature_distances(rows: Words, near_rows: Words) -> npt.NDArray[Any]:
    """Return the distances between signatures; the numbers of documents do not count."""
    differing = rows ^ near_rows
    differing[:, 0] &= np.uint64((1 << MAX_NUMBER_BITS) - 1)
    distances: npt.NDArray[Any] = np.bitwise_count(differing).sum(1, dtype=np.uint16)
    return distances
