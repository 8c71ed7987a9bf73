"""Keys of bands, and the entries of the two stores of an index (docs/format.md, "LSH index")."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Flags, Words
from fpstore.base.width import WORD_BITS, Width
from fpstore.design.families import Design
from fpstore.design.tables import TableSpec, identity

DOCUMENT_WIDTH = Width(256)
MOST_NUMBER_BITS = 32  # of a document; they stand before its signature
LEAST_NUMBER_BITS = 20
KEY_BITS = 8  # of a key beyond the bits of the numbers of documents and bands
MOST_SIGNATURE_BYTES = DOCUMENT_WIDTH.bytes - MOST_NUMBER_BITS // 8
MOST_DOCUMENTS = 1 << MOST_NUMBER_BITS


def band_keys(sketches: Counts, bands: int, rows: int) -> Words:
    """Return one hash of 64 bits of each band, shape (n, bands).

    Of its number and of ``rows`` successive values of a sketch.
    """
    return _kernel.band_keys(np.ascontiguousarray(sketches), bands, rows).reshape(-1, bands)


class EntryLayout(NamedTuple):
    """The bits of an entry of the store of keys.

    Zeros, ``key_bits`` of a key, and ``number_bits`` of a document's number.
    """

    key_bits: int
    number_bits: int

    @property
    def prefix_bits(self) -> int:
        """The leading bits of an entry that a look-up fixes."""
        return WORD_BITS - self.number_bits

    def prefixes(self, keys: Words) -> Words:
        """Return the entries of keys of 64 bits, of which the first bits count, and of document number 0."""
        return (keys >> np.uint64(WORD_BITS - self.key_bits)) << np.uint64(self.number_bits)

    def entries(self, keys: Words, numbers: Words) -> Words:
        """Return the entries of documents, one for each of their keys, shape (n * bands,)."""
        return (self.prefixes(keys) | numbers[:, None]).reshape(-1)

    def numbers(self, entries: Words) -> Words:
        """Return the numbers of the documents of entries."""
        return entries & np.uint64((1 << self.number_bits) - 1)

    @staticmethod
    def of_size(count: int, bands: int) -> EntryLayout:
        """Return the layout for a number of documents.

        Numbers for twice as many, and keys that few others have by chance.

        A key finds ``count * bands / 2^key_bits`` other documents by chance, which their signatures
        reject. Numbers may become wider where keys and numbers leave room.
        """
        bits = max(count - 1, 0).bit_length()
        number_bits = min(max(bits + 1, LEAST_NUMBER_BITS), MOST_NUMBER_BITS)
        return EntryLayout(
            min(bits + KEY_BITS + (bands - 1).bit_length(), WORD_BITS - number_bits), number_bits
        )

    def widened(self, count: int) -> EntryLayout | None:
        """Return the layout with numbers for a number of documents.

        None if the keys leave no room.
        """
        bits = max(self.number_bits, (count - 1).bit_length())
        return (
            self._replace(number_bits=bits)
            if self.key_bits + bits <= WORD_BITS and bits <= MOST_NUMBER_BITS
            else None
        )

    @property
    def design(self) -> Design:
        """The design of the store of keys."""
        return keyed_design(self.prefix_bits, WORD_BITS)


def keyed_design(key_bits: int, width: int) -> Design:
    """Return the design of a store that is asked for all fingerprints with some leading bits.

    One table.
    """
    return Design(f"key-{key_bits}", 0, (TableSpec(identity(width), key_bits),))


DOCUMENT_DESIGN = keyed_design(MOST_NUMBER_BITS, DOCUMENT_WIDTH.bits)


def document_rows(numbers: Words, signatures: Bytes) -> Words:
    """Return the fingerprints of documents: the number in 32 bits, the signature, and zeros."""
    data = np.zeros((len(signatures), DOCUMENT_WIDTH.bytes), np.uint8)
    data[:, MOST_NUMBER_BITS // 8 : MOST_NUMBER_BITS // 8 + signatures.shape[1]] = signatures
    rows = DOCUMENT_WIDTH.from_bytes(data)
    rows[:, 0] |= numbers << np.uint64(MOST_NUMBER_BITS)
    return rows


def numbers_of_rows(rows: Words) -> Words:
    """Return the numbers of documents."""
    return rows[:, 0] >> np.uint64(MOST_NUMBER_BITS)


def places_of_numbers(numbers: Words, wanted: Words) -> tuple[Flags, npt.NDArray[np.intp]]:
    """Return which wanted numbers are among some that ascend, and the places of those."""
    places = np.searchsorted(numbers, wanted)
    there = places < len(numbers)
    there[there] = numbers[places[there]] == wanted[there]
    return there, places[there]


def prefixes_of_documents(numbers: Words) -> Words:
    """Return rows that have the leading bits of documents."""
    rows = np.zeros((len(numbers), DOCUMENT_WIDTH.words), np.uint64)
    rows[:, 0] = numbers << np.uint64(MOST_NUMBER_BITS)
    return rows


def signature_distances(rows: Words, others: Words) -> npt.NDArray[Any]:
    """Return the distances between the signatures of documents; their numbers do not count."""
    differing = rows ^ others
    differing[:, 0] &= np.uint64((1 << MOST_NUMBER_BITS) - 1)
    distances: npt.NDArray[Any] = np.bitwise_count(differing).sum(1, dtype=np.uint16)
    return distances
