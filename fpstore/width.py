"""The width of fingerprints, and arrays of them as the kernel takes them.

Inside fpstore, fingerprints are rows of uint64 words: shape (n,) up to 64 bits, (n, width / 64) above, the most significant
word first. Those of 32 bits are in the upper half of their word, whose lower half is zero. So bit 0 is the highest bit of the
first word at every width, and rows are in the order of the numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Bytes, Words
from fpstore.errors import InputError, show

WIDTHS = (32, 64, 128, 256)
WORD_BITS = 64


@dataclass(frozen=True)
class Width:
    """A width of fingerprints, of which there are four; see :func:`check_width`.

    Parameters
    ----------
    bits : int
        32, 64, 128 or 256.
    """

    bits: int

    @property
    def words(self) -> int:
        """The number of uint64 words in a row."""
        return max(self.bits // WORD_BITS, 1)

    @property
    def bytes(self) -> int:
        """The bytes of a fingerprint outside."""
        return self.bits // 8

    @property
    def digits(self) -> int:
        """The hexadecimal digits of a fingerprint."""
        return self.bits // 4

    @property
    def _unused(self) -> int:
        return self.words * WORD_BITS - self.bits

    # One fingerprint: as users know it, a number below 2^bits, and as the kernel does, a number of whole words

    def inner(self, value: int) -> int:
        """Return the number that the kernel knows a fingerprint by."""
        return value << self._unused

    def outer(self, number: int) -> int:
        """Return the fingerprint that the kernel knows by a number."""
        return number >> self._unused

    def row(self, value: int) -> Words:
        """Return one fingerprint as an array of one row."""
        return self.rows([value])

    # Many

    def empty(self, count: int) -> Words:
        """Return an uninitialised array of so many rows."""
        return np.empty(count if self.words == 1 else (count, self.words), np.uint64)

    def rows(self, values: Iterable[int]) -> Words:
        """Return rows of fingerprints that are numbers below 2^bits."""
        if self.words == 1:
            return np.array([value << self._unused for value in values] if self._unused else list(values), np.uint64)
        return self.from_bytes(np.frombuffer(b"".join(value.to_bytes(self.bytes, "big") for value in values), np.uint8))

    def from_bytes(self, data: Bytes) -> Words:
        """Return rows of fingerprints that are ``bytes`` big-endian bytes each, one after the other in a contiguous array."""
        if self.bits < WORD_BITS:
            return data.reshape(-1).view(f">u{self.bytes}").astype(np.uint64) << np.uint64(self._unused)
        words = data.reshape(-1).view(">u8").astype(np.uint64)
        return words if self.words == 1 else words.reshape(-1, self.words)

    def to_bytes(self, rows: Words) -> Bytes:
        """Return fingerprints as bytes, shape (n, ``bytes``), big-endian."""
        data = np.ascontiguousarray(rows).astype(">u8").view(np.uint8).reshape(-1, self.words * 8)
        return np.ascontiguousarray(data[:, : self.bytes])

    def outside(self, rows: Words) -> npt.NDArray[Any]:
        """Return fingerprints as users get them: uint32 (n,), uint64 (n,), or uint8 (n, ``bytes``) above 64 bits."""
        if self.bits < WORD_BITS:
            return (rows >> np.uint64(self._unused)).astype(np.uint32)
        return rows if self.words == 1 else self.to_bytes(rows)

    def numbers(self, rows: Words) -> list[int]:
        """Return fingerprints as numbers."""
        if self.words == 1:
            values: list[int] = (rows >> np.uint64(self._unused)).tolist() if self._unused else rows.tolist()
            return values
        data = self.to_bytes(rows).tobytes()
        return [int.from_bytes(data[at : at + self.bytes], "big") for at in range(0, len(data), self.bytes)]

    def texts(self, rows: Words) -> list[str]:
        """Return fingerprints as hexadecimal digits."""
        text = self.to_bytes(rows).tobytes().hex()
        return [text[at : at + self.digits] for at in range(0, len(text), self.digits)]

    def text(self, value: int) -> str:
        """Return a fingerprint as hexadecimal digits."""
        return f"{value:0{self.digits}x}"


WIDTH_64 = Width(64)


def check_width(value: object) -> Width:
    """Return a width; InputError if there is no such."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value not in WIDTHS:
        raise InputError(f"width must be one of {', '.join(map(str, WIDTHS))}, got {show(value)}", got=value)
    return Width(int(value))


def width_of(rows: Words) -> int:
    """Return the number of words in a row."""
    return 1 if rows.ndim == 1 else rows.shape[1]


def rows_like(rows: Words, count: int) -> Words:
    """Return an uninitialised array of so many rows of the same width."""
    return np.empty((count, *rows.shape[1:]), np.uint64)


def comparable(rows: Words) -> npt.NDArray[Any]:
    """Return rows as an array of one dimension, whose elements NumPy can sort, search for and tell apart."""
    if rows.ndim == 1:
        return rows
    fields = [(f"word{place}", np.uint64) for place in range(rows.shape[1])]
    return np.ascontiguousarray(rows).view(fields).reshape(-1)


def place_of(rows: Words, row: Words, side: str = "left") -> int:
    """Return where one row (an array of it alone) belongs among ascending ones."""
    return int(np.searchsorted(comparable(rows), comparable(row), side=side)[0])  # type: ignore[call-overload]
