"""Fingerprints in text, one or a block of lines with ids: hexadecimal digits, or decimal ones."""

import re
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import check_flag
from fpstore.base.keywords import keyword
from fpstore.base.strings import StringColumn
from fpstore.base.width import WIDTH_64, WIDTHS, WORD_BITS, Width
from fpstore.errors import InputError, show

_HEX = re.compile(r"(0[xX])?([0-9a-fA-F]+)")
_DIGITS = re.compile(r"[0-9]+")
_NEGATIVE = re.compile(r"-[0-9]+")
_SHOWN_BITS = 256  # the most bits of a number in a message
_MAX_DECIMALS = len(str(1 << WIDTHS[-1]))


class Digits(NamedTuple):
    """How fingerprints are written in digits.

    Signed ones after a minus are the bits of integers of the width.
    """

    width: Width = WIDTH_64
    decimal: bool = False
    signed: bool = False


def check_signed(signed: object, width: Width) -> bool:
    """Return a flag; refuse it for widths that signed integers do not have."""
    if check_flag(signed, "signed") and width.words > 1:
        raise InputError(
            f"signed integers have 32 or 64 bits, {expected_width(width)}: leave out "
            f"{keyword('signed', True)}"
        )
    return bool(signed)


def read_digits(text: str, expected: Digits) -> int:
    """Read one fingerprint: all its hexadecimal digits, or ``0x`` and fewer, or decimal ones.

    Fewer digits without ``0x`` are refused: most often they are a decimal number, or cut off.
    Blanks around them are ignored.
    """
    width, decimal, signed = expected
    digits = text.strip(" \t\r\n")
    if decimal:
        below = signed and _NEGATIVE.fullmatch(digits)
        significant = digits[1 if below else 0 :].lstrip("0")
        if not below and not _DIGITS.fullmatch(digits):
            reason = (
                negative(expected) if _NEGATIVE.fullmatch(digits) else "expected decimal digits"
            )
        elif len(significant) > _MAX_DECIMALS:
            reason = f"it has {len(significant)} decimal digits, {width_advice(width, None)}"
        else:
            value = int(significant or "0")
            if below:
                value = signed_bits(-value, width)
            if not value >> width.bits:
                return value
            reason = too_large(value, width, "it")
    else:
        match = _HEX.fullmatch(digits)
        if match and (len(match[2]) == width.digits or (match[1] and len(match[2]) < width.digits)):
            return int(match[2], 16)
        reason = _digits_problem(digits, match, width)
    raise InputError(f"{show(text)} is not a fingerprint: {reason}", got=text)


def _digits_problem(digits: str, match: re.Match[str] | None, width: Width) -> str:
    if not match:
        expected = f"expected {width.digits} hexadecimal digits, or 0x and 1 to {width.digits}"
        if _NEGATIVE.fullmatch(digits):
            return "it is negative" + (
                f" (signed integers need {keyword('decimal', True)} and {keyword('signed', True)})"
                if width.words == 1
                else ""
            )
        return expected
    count = len(match[2])
    if 4 * count in WIDTHS:
        reason = (
            f"it has {count} hexadecimal digits, a fingerprint of {4 * count} bits, "
            f"{width_advice(width, 4 * count)}"
        )
    elif count < width.digits:
        reason = (
            f"it has {count} of {width.digits} hexadecimal digits: write all {width.digits}, or "
            "0x before fewer"
        )
    else:
        reason = (
            f"it has {count} hexadecimal digits, {expected_width(width)}: expected {width.digits}"
        )
    if _DIGITS.fullmatch(digits) and count <= _MAX_DECIMALS and not int(digits) >> width.bits:
        reason += f" (decimal fingerprints need {keyword('decimal', True)})"
    return reason


def signed_bits(number: int, width: Width) -> int:
    """Return the bits of a signed integer of a width as a number.

    One that is too small for it is not changed.
    """
    return number + (1 << width.bits) if -(1 << (width.bits - 1)) <= number < 0 else number


def negative(expected: Digits) -> str:
    """Return the message that a number is negative, and which option reads its bits."""
    can = expected.width.words == 1 and not expected.signed
    return "it is negative" + (
        f" (for the bits of signed integers use {keyword('signed', True)})" if can else ""
    )


def looks_like_fingerprint(text: str, expected: Digits) -> bool:
    """Return whether a cell is no name: it has the digits of a fingerprint, or fewer."""
    digits = text.strip(" \t\r\n")
    if expected.signed and expected.decimal and _NEGATIVE.fullmatch(digits):
        return True
    return bool((_DIGITS if expected.decimal else _HEX).fullmatch(digits))


def too_large(number: int, width: Width, name: str = "") -> str:
    """Return that a number does not fit a width, and which one it needs.

    By default the number itself is its name.
    """
    if number < 0:
        return (
            f"{name or (number if number.bit_length() <= _SHOWN_BITS else 'it')} is below "
            f"-2^{width.bits - 1}"
        )
    bits = number.bit_length()
    fits = next((width_bits for width_bits in WIDTHS if width_bits >= bits), None)
    shown = (hex(number) if bits > 128 else str(number)) if bits <= _SHOWN_BITS else "it"
    return f"{name or shown} takes {bits} bits, {width_advice(width, fits)}"


def width_advice(width: Width, bits: int | None) -> str:
    """Return which width is expected, and how to choose another width where that is possible."""
    if width.stored:
        return expected_width(width)
    if bits in WIDTHS:
        return f"{expected_width(width)}: pass {keyword('width', bits)}"
    return (
        f"{expected_width(width)}: there are widths of {', '.join(map(str, WIDTHS[:-1]))} and "
        f"{WIDTHS[-1]} bits"
    )


def expected_width(width: Width) -> str:
    return (
        f"but this store holds {width.bits} bits"
        if width.stored
        else f"but the width is {width.bits}"
    )


def names_width(message: str) -> bool:
    """Return whether the message of an error says which width was expected."""
    return ", but this store holds " in message or ", but the width is " in message


def wrong_width(noun: str, bits: int, where: str, width: Width) -> str:
    return f"{noun} of {bits} bits{where}, {width_advice(width, bits)}"


def parse_texts(texts: list[str], digits: Digits) -> Words | None:
    """Return fingerprints in digits as rows; None if one text may be none.

    `read_digits` finds out.
    """
    column = StringColumn.from_strings(texts)
    return _fingerprints(column.data, *_places(column), digits)


def parse_integers(column: StringColumn, plain: bool) -> Words | None:
    """Return decimal integers of 64 bits.

    None if one text is none or, with ``plain``, has leading zeros.
    """
    return _kernel.read_decimal(column.data, *_places(column), WORD_BITS, plain)


def parse_block(
    block: bytes,
    separators: bytes,
    digits: Digits,
    kind: str | None = None,
    plain: bool = False,
) -> tuple[Words, Words | StringColumn | None] | None:
    """Parse whole lines of fingerprints, all with an id after a separator or all without.

    Returns None if a line may be irregular: reading row by row finds out, or names it. Ids are
    strings unless ``kind`` is "int"; with ``plain``, integers with leading zeros are irregular.
    """
    lines = _kernel.cut_lines(block, separators)
    if lines is None:
        return None
    starts, cuts, ends = lines
    has_ids = len(cuts) > 0
    fingerprints = _fingerprints(block, starts, cuts if has_ids else ends, digits)
    if fingerprints is None or not has_ids:
        return None if fingerprints is None else (fingerprints, None)
    first = cuts + np.uint64(1)
    if (first == ends).any():
        return None
    ids: Words | StringColumn | None = None
    if kind == "int":
        ids = _kernel.read_decimal(block, first, ends, WORD_BITS, plain)
    else:
        with suppress(UnicodeDecodeError):
            ids = StringColumn.from_spans(block, first, ends)
    return None if ids is None else (fingerprints, ids)


def _places(column: StringColumn) -> tuple[Words, Words]:
    return column.ends - column.sizes, column.ends


def _fingerprints(data: bytes, starts: Words, ends: Words, digits: Digits) -> Words | None:
    """Return the fingerprints at places of a text, None if one may be none."""
    width = digits.width
    if not digits.decimal:
        return _kernel.read_hexadecimal(data, starts, ends, width.digits)
    if not len(starts):
        return width.empty(0)
    if width.words > 1:
        numbers = [
            data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        are_digits = (
            b"".join(numbers).isdigit() and all(numbers) and max(map(len, numbers)) <= _MAX_DECIMALS
        )
        values = list(map(int, numbers)) if are_digits else [-1]
        return None if max(values) >> width.bits else width.rows(values)
    # one byte more: the last place may be empty
    below = (np.frombuffer(data + b"\n", np.uint8)[starts] == ord("-")) & digits.signed
    below &= starts < ends  # an empty text starts where the next one does
    rows = _kernel.read_decimal(data, starts + below, ends, width.bits, False)
    if rows is None:
        return None
    rows = rows << np.uint64(WORD_BITS - width.bits)
    if (rows[below] > np.uint64(1 << (WORD_BITS - 1))).any():
        return None
    # also of 32 bits: they are the upper half of the word
    return np.where(below, np.uint64(0) - rows, rows)
