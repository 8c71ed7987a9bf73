"""The width of fingerprints, and arrays of them as the kernel takes them.

Inside fpstore, fingerprints are rows of uint64 words: shape (n,) up to 64 bits, (n, width / 64)
above, the most significant word first. One of 32 bits is in the upper half of its word, whose lower
half is zero. So bit 0 is the highest bit of the first word at every width, and rows are in the
order of the numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Bytes, Words
from fpstore.base.threads import cached_property
from fpstore.errors import InputError, show

WIDTHS = (32, 64, 128, 256)
WORD_BITS = 64


@dataclass(frozen=True)
class Width:
    """A width of fingerprints: 32, 64, 128 or 256 bits; see :func:`check_width`."""

    bits: int
    # the width of a store, which cannot be chosen any more: for messages
    stored: bool = field(default=False, compare=False)

    @cached_property
    def words(self) -> int:
        """The number of uint64 words in a row."""
        return max(self.bits // WORD_BITS, 1)

    @cached_property
    def bytes(self) -> int:
        """The bytes of a fingerprint outside."""
        return self.bits // 8

    @cached_property
    def digits(self) -> int:
        """The hexadecimal digits of a fingerprint."""
        return self.bits // 4

    @cached_property
    def _unused_bits(self) -> int:
        return self.words * WORD_BITS - self.bits

    def fits_width(self, rows: Words) -> bool:
        """Return whether no row has a bit below the width."""
        return not (self._unused_bits and (rows & np.uint64((1 << self._unused_bits) - 1)).any())

    # One fingerprint: as users know it, a number below 2^bits, and as the kernel does, a number of
    # whole words

    def to_number(self, value: int) -> int:
        """Return the number of a fingerprint in the kernel."""
        return value << self._unused_bits

    def from_number(self, number: int) -> int:
        """Return the fingerprint of a number in the kernel."""
        return number >> self._unused_bits

    def row(self, value: int) -> Words:
        """Return one fingerprint as an array of one row."""
        return self.rows([value])

    # Many

    def empty(self, count: int) -> Words:
        """Return an uninitialised array of ``count`` rows."""
        return empty_rows(count, self.words)

    def rows(self, values: Iterable[int]) -> Words:
        """Return rows of fingerprints that are numbers below 2^bits."""
        if self.words == 1:
            return np.array(
                [value << self._unused_bits for value in values]
                if self._unused_bits
                else list(values),
                np.uint64,
            )
        return self.from_bytes(
            np.frombuffer(b"".join(value.to_bytes(self.bytes, "big") for value in values), np.uint8)
        )

    def from_bytes(self, data: Bytes) -> Words:
        """Return rows of fingerprints in a contiguous array, ``bytes`` big-endian bytes each."""
        if self.bits < WORD_BITS:
            return data.reshape(-1).view(f">u{self.bytes}").astype(np.uint64) << np.uint64(
                self._unused_bits
            )
        words = data.reshape(-1).view(">u8").astype(np.uint64)
        return words if self.words == 1 else words.reshape(-1, self.words)

    def to_bytes(self, rows: Words) -> Bytes:
        """Return fingerprints as bytes, shape (n, ``bytes``), big-endian."""
        data = np.ascontiguousarray(rows).astype(">u8").view(np.uint8).reshape(-1, self.words * 8)
        return np.ascontiguousarray(data[:, : self.bytes])

    def to_array(self, rows: Words) -> npt.NDArray[Any]:
        """Return fingerprints as users get them.

        Uint32 (n,), uint64 (n,), or uint8 (n, ``bytes``) above 64 bits.
        """
        if self.bits < WORD_BITS:
            return (rows >> np.uint64(self._unused_bits)).astype(np.uint32)
        return rows if self.words == 1 else self.to_bytes(rows)

    def numbers(self, rows: Words) -> list[int]:
        if self.words == 1:
            values: list[int] = (
                (rows >> np.uint64(self._unused_bits)).tolist()
                if self._unused_bits
                else rows.tolist()
            )
            return values
        data = self.to_bytes(rows).tobytes()
        return [
            int.from_bytes(data[at : at + self.bytes], "big")
            for at in range(0, len(data), self.bytes)
        ]

    def texts(self, rows: Words) -> list[str]:
        """Return fingerprints as hexadecimal digits."""
        text = self.to_bytes(rows).tobytes().hex()
        return [text[at : at + self.digits] for at in range(0, len(text), self.digits)]

    def text(self, value: int) -> str:
        """Return a fingerprint as hexadecimal digits."""
        return f"{value:0{self.digits}x}"


WIDTH_64 = Width(64)
# uint8, or uint16 for fingerprints of 256 bits, which may differ in all of them
Distances = npt.NDArray[Any]


def check_width(value: object) -> Width:
    """Return a width; InputError if fingerprints cannot have it."""
    if isinstance(value, Width):
        return value
    if (
        isinstance(value, (bool, np.bool_))
        or not isinstance(value, (int, np.integer))
        or value not in WIDTHS
    ):
        raise InputError(
            f"width must be one of {', '.join(map(str, WIDTHS))}, got {show(value)}",
            got=value,
            argument="width",
        )
    return Width(int(value))


def fingerprint_text(value: int, bits: int | None = None) -> str:
    """Return a fingerprint as users read it in messages.

    In decimal digits up to 64 bits, in all its hexadecimal ones above.
    """
    bits = bits or next((bits for bits in WIDTHS if value < 1 << bits), WIDTHS[-1])
    return f"0x{Width(bits).text(value)}" if bits > WORD_BITS else str(value)


def row_words(rows: Words) -> int:
    return 1 if rows.ndim == 1 else rows.shape[1]


def distances_between(rows: Words, other_rows: Words) -> npt.NDArray[np.uint16]:
    """Return the distances of pairs of rows, or of some rows and one."""
    differing = np.bitwise_count(rows ^ other_rows)
    distances: npt.NDArray[np.uint16] = (
        differing if differing.ndim == 1 else differing.sum(1)
    ).astype(np.uint16)
    return distances


def empty_rows(count: int, words: int) -> Words:
    """Return an uninitialised array of rows of ``words`` words."""
    return np.empty(count if words == 1 else (count, words), np.uint64)


def number_to_row(number: int, words: int) -> Words:
    """Return the row that the kernel knows by a number, as an array of it alone."""
    return numbers_to_rows([number], words)


def numbers_to_rows(numbers: Iterable[int], words: int) -> Words:
    """Return the rows that the kernel knows by numbers."""
    return Width(WORD_BITS * words).rows(numbers)


def empty_rows_like(rows: Words, count: int) -> Words:
    """Return an uninitialised array of ``count`` rows of the same width."""
    return np.empty((count, *rows.shape[1:]), np.uint64)


def rows_to_numbers(rows: Words) -> list[int]:
    """Return rows as numbers of whole words, as the kernel knows them."""
    return Width(WORD_BITS * row_words(rows)).numbers(rows)


def leading_words(rows: Words) -> Words:
    return rows if rows.ndim == 1 else np.ascontiguousarray(rows[:, 0])


def is_ascending(rows: Words) -> npt.NDArray[np.bool_]:
    """Return whether each row but the first is greater than the one before it."""
    if rows.ndim == 1:
        return rows[1:] > rows[:-1]
    greater = np.zeros(max(len(rows) - 1, 0), np.bool_)
    for column in reversed(rows.T):
        greater = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & greater)
    return greater


def equal(rows: Words, other_rows: Words) -> npt.NDArray[np.bool_]:
    """Return which rows equal the row at the same place of ``other_rows``."""
    same: npt.NDArray[np.bool_] = (
        rows == other_rows if rows.ndim == 1 else np.all(rows == other_rows, axis=1)
    )
    return same


# Functions of NumPy for 1-D arrays: wide rows are compared as strings of big-endian bytes.


def to_comparable(rows: Words) -> npt.NDArray[Any]:
    """Return rows as a 1-D array, whose elements NumPy can sort, search and compare."""
    if rows.ndim == 1:
        return rows
    return np.ascontiguousarray(rows).astype(">u8").view(f"S{8 * rows.shape[1]}").reshape(-1)


def _from_comparable(values: npt.NDArray[Any], like: Words) -> Words:
    return (
        values
        if like.ndim == 1
        else values.view(">u8").astype(np.uint64).reshape(-1, like.shape[1])
    )


def row_place(rows: Words, row: Words, side: str = "left") -> int:
    """Return where one row (an array of one row) belongs among ascending rows.

    It reads few of them.
    """
    if rows.ndim == 1:
        return int(rows.searchsorted(row[0], side))  # type: ignore[call-overload]
    first, end = 0, len(rows)
    for column, value in zip(rows.T, row[0], strict=True):
        inside = column[first:end]  # rows that are equal in the words before this one
        first, end = (
            first + int(inside.searchsorted(value)),
            first + int(inside.searchsorted(value, "right")),
        )
    return first if side == "left" else end


def row_places(rows: Words, searched: Words, side: str = "left") -> npt.NDArray[np.intp]:
    """Return where rows belong among ascending rows."""
    places: npt.NDArray[np.intp] = np.searchsorted(
        to_comparable(rows), to_comparable(searched), side=side
    )  # type: ignore[call-overload]
    return places


def row_order(*columns: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the stable order by the first column, then the second, and so on; also of rows."""
    keys = [key for column in columns for key in ([column] if column.ndim == 1 else column.T)]
    return np.lexsort(keys[::-1])


def distinct_rows(rows: Words) -> Words:
    return _from_comparable(np.unique(to_comparable(rows)), rows)


def distinct_counts(rows: Words) -> tuple[Words, npt.NDArray[np.intp]]:
    """Return the distinct rows, ascending, and how often each occurs."""
    values, counts = np.unique(to_comparable(rows), return_counts=True)
    return _from_comparable(values, rows), counts


def is_member(rows: Words, members: Words) -> npt.NDArray[np.bool_]:
    """Return which rows are among ``members``."""
    return np.isin(to_comparable(rows), to_comparable(members))
