"""Regular delimited text, parsed a block at a time with NumPy.

Every function here returns a result only if it is certain, and otherwise None: the caller then reads the same
block row by row (`fpstore.io.delimited`), which finds the exact error or accepts the unusual line.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.strings import StringColumn
from fpstore.base.width import WIDTH_64, WORD_BITS, Width
from fpstore.io.digits import Digits

_Positions = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

_DECIMAL_DIGITS = {32: 20, 64: 20, 128: 39, 256: 78}  # with zeros in front, where all of them fit in one word
_PAD = bytes(max(_DECIMAL_DIGITS.values()))
_LIMB_DIGITS, _LIMB_BITS = 9, 32  # of large decimal numbers

_NO_DIGIT = 255
_RETURN, _COMMENT, _ZERO, _MINUS = b"\r#0-"

_NIBBLE = np.full(256, _NO_DIGIT, dtype=np.uint8)
_NIBBLE[list(b"0123456789")] = range(10)
_NIBBLE[list(b"abcdef")] = range(10, 16)
_NIBBLE[list(b"ABCDEF")] = range(10, 16)


class Lines(NamedTuple):
    """The data lines of a block as positions in ``buffer``; a cut is the place of the separator, or the end."""

    data: bytes
    buffer: _Bytes
    starts: _Positions
    cuts: _Positions
    ends: _Positions
    has_ids: bool


def parse_block(
    block: bytes, separators: bytes, digits: Digits, kind: str | None = None, plain: bool = False, end: bytes = b"\n"
) -> tuple[Words, Words | StringColumn | None] | None:
    """Parse lines of ``fingerprint`` or ``fingerprint separator id``, all of one kind, each with its end.

    Returns None if a line of the block is irregular. Ids are strings unless ``kind`` is "int"; with ``plain``,
    integers with leading zeros are irregular.
    """
    lines = _split(block, separators, end)
    if lines is None:
        return None
    fingerprints = _parse_fingerprints(lines, digits)
    if fingerprints is None:
        return None
    if not lines.has_ids:
        return fingerprints, None
    starts = lines.cuts + 1
    if kind == "int":
        if plain and _leading_zeros(lines, starts):
            return None
        integers = _parse_decimal(lines, starts, lines.ends)
        return None if integers is None else (fingerprints, integers)
    strings = _slice_strings(lines, starts)
    return None if strings is None else (fingerprints, strings)


def _parse_fingerprints(lines: Lines, digits: Digits) -> Words | None:
    starts, ends, width = lines.starts, lines.cuts, digits.width
    if not digits.decimal:
        return _parse_hex(lines, starts, ends, width)
    if not digits.signed:
        return _parse_decimal(lines, starts, ends, width)
    below = lines.buffer[starts] == _MINUS
    rows = _parse_decimal(lines, starts + below, ends, width)
    if rows is None or bool((rows[below] > np.uint64(1 << (WORD_BITS - 1))).any()):
        return None
    return np.where(below, np.uint64(0) - rows, rows)  # also of 32 bits: they are the upper half of the word


def parse_texts(texts: list[str], digits: Digits) -> Words | None:
    """Parse one fingerprint per text; None if one is irregular."""
    text = "\n".join(texts) + "\n"
    columns = parse_block(text.encode("utf-8"), b"\t", digits)
    # One line and one row per text: none holds a line break, and no line was skipped as blank.
    alike = columns is not None and columns[1] is None and text.count("\n") == len(columns[0]) == len(texts)
    return columns[0] if columns is not None and alike else None


def parse_integers(strings: StringColumn, plain: bool) -> Words | None:
    """Parse one decimal integer per string; None if one is irregular, or with ``plain``, has leading zeros."""
    data = _PAD + strings.data
    ends = strings.ends.astype(np.int64) + len(_PAD)
    starts = ends - strings.sizes.astype(np.int64)
    lines = Lines(data, np.frombuffer(data, np.uint8), starts, ends, ends, has_ids=False)
    return None if not strings.sizes.all() or (plain and _leading_zeros(lines, starts)) else _parse_decimal(lines, starts, ends)


def _leading_zeros(lines: Lines, starts: _Positions) -> bool:
    return bool(((lines.buffer[starts] == _ZERO) & (lines.ends - starts > 1)).any())


def _split(block: bytes, separators: bytes, end: bytes) -> Lines | None:
    data = _PAD + block  # a slice that ends anywhere in the block may begin before it
    buffer = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(buffer[len(_PAD) :] == ord(end)) + len(_PAD)
    starts = np.empty_like(ends)
    starts[0] = len(_PAD)
    starts[1:] = ends[:-1] + 1
    if end == b"\n":
        ends = ends - (buffer[ends - 1] == _RETURN)
    skipped = (ends == starts) | (buffer[starts] == _COMMENT)
    if skipped.any():
        starts, ends = starts[~skipped], ends[~skipped]
    is_separator = buffer == separators[0]
    for separator in separators[1:]:
        is_separator |= buffer == separator
    found = np.flatnonzero(is_separator)
    if len(found) == len(starts) > 0:
        cuts = found  # one in each line if each lies inside its line, which is checked below
    else:
        first = np.searchsorted(found, starts)
        counts = np.searchsorted(found, ends) - first
        if not counts.any():
            return Lines(data, buffer, starts, ends, ends, has_ids=False)
        if (counts != 1).any():
            return None
        cuts = found[first]
    if (cuts < starts).any() or (cuts + 1 >= ends).any():
        return None
    return Lines(data, buffer, starts, cuts, ends, has_ids=True)


def _windows(data: bytes, ends: _Positions, width: int) -> _Bytes:
    """Return the ``width`` bytes before each end as rows of a new array."""
    everywhere: npt.NDArray[Any] = np.ndarray((len(data) - width + 1,), dtype=f"V{width}", buffer=data, strides=(1,))
    return everywhere[ends - width].view(np.uint8).reshape(-1, width)


def _digits(lines: Lines, starts: _Positions, ends: _Positions, width: int, base: int) -> _Bytes | None:
    """Return the values of right-aligned digits, shape (lines, width); None unless all are digits."""
    sizes = ends - starts
    shortest, longest = (int(sizes.min()), int(sizes.max())) if len(sizes) else (width, width)
    if shortest < 1 or longest > width:
        return None
    digits = _NIBBLE[_windows(lines.data, ends, width)]
    if shortest < width:
        digits[np.arange(width) < (width - sizes)[:, None]] = 0
    return digits if not len(digits) or digits.max() < base else None


def _parse_hex(lines: Lines, starts: _Positions, ends: _Positions, width: Width) -> Words | None:
    prefixed = (lines.buffer[starts] == _ZERO) & ((lines.buffer[starts + 1] | 32) == ord("x"))
    if bool((~prefixed & (ends - starts != width.digits)).any()):
        return None  # too few digits without 0x
    if prefixed.any():
        starts = starts + 2 * prefixed
    nibbles = _digits(lines, starts, ends, width.digits, 16)
    if nibbles is None:
        return None
    packed: _Bytes = np.left_shift(nibbles[:, 0::2], 4, dtype=np.uint8) | nibbles[:, 1::2]
    return width.from_bytes(packed)


def _parse_decimal(lines: Lines, starts: _Positions, ends: _Positions, width: Width = WIDTH_64) -> Words | None:
    size = _DECIMAL_DIGITS[width.bits]
    digits = _digits(lines, starts, ends, size, 10)
    if digits is None:
        return None
    if width.words > 1:
        return _large_numbers(digits, width)
    half = size // 2
    high, low = _number(digits[:, :half]), _number(digits[:, half:])
    limit_high, limit_low = divmod((1 << width.bits) - 1, 10**half)
    if bool(((high > limit_high) | ((high == limit_high) & (low > limit_low))).any()):
        return None
    numbers = high * np.uint64(10**half) + low
    return numbers << np.uint64(WORD_BITS - width.bits) if width.bits < WORD_BITS else numbers


def _large_numbers(digits: _Bytes, width: Width) -> Words | None:
    """Return numbers of more than one word; None if one is too large."""
    limbs = np.zeros((width.bits // _LIMB_BITS, len(digits)), dtype=np.uint64)  # the least significant first
    for start in range(0, digits.shape[1], _LIMB_DIGITS):
        part = digits[:, start : start + _LIMB_DIGITS]
        carry, factor = _number(part), np.uint64(10 ** part.shape[1])
        for limb in limbs:
            carry += limb * factor  # below 2^62
            limb[:] = carry & np.uint64((1 << _LIMB_BITS) - 1)
            carry >>= np.uint64(_LIMB_BITS)
        if carry.any():
            return None
    return width.from_bytes(limbs[::-1].T.astype(">u4", order="C").view(np.uint8))


def _number(digits: _Bytes) -> Words:
    total = np.zeros(len(digits), dtype=np.uint64)
    for column in digits.T:
        total *= np.uint64(10)
        total += column
    return total


def _slice_strings(lines: Lines, starts: _Positions) -> StringColumn | None:
    """Return the ids unchanged; None if the block is not UTF-8."""
    try:
        return StringColumn.cut(lines.data, starts.astype(np.uint64), lines.ends.astype(np.uint64))
    except UnicodeDecodeError:
        return None
