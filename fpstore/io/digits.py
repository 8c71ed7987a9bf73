"""Fingerprints in text: hexadecimal digits, or decimal ones."""

import re
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import check_flag
from fpstore.base.width import WIDTH_64, WIDTHS, Width, check_width
from fpstore.errors import InputError, show

_HEX = re.compile(r"(0[xX])?([0-9a-fA-F]+)")
_DIGITS = re.compile(r"[0-9]+")
_NEGATIVE = re.compile(r"-[0-9]+")
_SHOWN_BITS = 256  # of a number in a message
_MOST_DECIMALS = len(str(1 << WIDTHS[-1]))


class Digits(NamedTuple):
    """How fingerprints are written in digits.

    Attributes
    ----------
    width : Width
    decimal : bool
        Decimal digits instead of hexadecimal ones.
    signed : bool
        Decimal digits after a minus are the bits of a signed integer of the width.
    """

    width: Width = WIDTH_64
    decimal: bool = False
    signed: bool = False


def parse_fingerprint(text: str, decimal: bool = False, width: int | Width = 64, signed: bool = False) -> int:
    """Read one fingerprint from text.

    Parameters
    ----------
    text : str
        ``width / 4`` hexadecimal digits of either case, or at most as many after ``0x``; with ``decimal``, decimal digits.
        Fewer digits without ``0x`` are refused: most often they are a decimal number, or cut off. Blanks around the digits
        are ignored.
    decimal : bool
        Read decimal digits instead.
    width : int
        The bits of a fingerprint: 32, 64, 128 or 256.
    signed : bool
        Take decimal digits after a minus as the bits of a signed integer, in two's complement; widths of 32 and 64.

    Returns
    -------
    int
        0 to 2**width - 1.

    Raises
    ------
    InputError
        The text is not a fingerprint of this width, or signed integers do not have it.

    Examples
    --------
    >>> parse_fingerprint("0x2A"), parse_fingerprint("42", decimal=True), parse_fingerprint("0000002a", width=32)
    (42, 42, 42)
    >>> hex(parse_fingerprint("-2", decimal=True, signed=True))
    '0xfffffffffffffffe'
    """
    known = check_width(width)
    return read_digits(text, Digits(known, decimal, check_signed(signed, known)))


def check_signed(signed: object, width: Width) -> bool:
    """Return a flag; refuse it for widths that signed integers do not have."""
    if check_flag(signed, "signed") and width.words > 1:
        raise InputError(f"signed integers have 32 or 64 bits, {expected_width(width)}: leave out signed=True (--signed)")
    return bool(signed)


def read_digits(text: str, expected: Digits) -> int:
    """Read one fingerprint; see `parse_fingerprint`."""
    width, decimal, signed = expected
    if not isinstance(text, str):
        raise InputError(f"a fingerprint in text must be a str, got {type(text).__name__}", got=text)
    digits = text.strip(" \t\r\n")
    if decimal:
        below = signed and _NEGATIVE.fullmatch(digits)
        significant = digits[1 if below else 0 :].lstrip("0")
        if not below and not _DIGITS.fullmatch(digits):
            reason = negative(expected) if _NEGATIVE.fullmatch(digits) else "expected decimal digits"
        elif len(significant) > _MOST_DECIMALS:
            reason = f"it has {len(significant)} decimal digits, {but(width, None)}"
        else:
            value = int(significant or "0")
            if below:
                value = of_signed(-value, width)
            if not value >> width.bits:
                return value
            reason = too_large(value, width, "it")
    else:
        match = _HEX.fullmatch(digits)
        if match and (len(match[2]) == width.digits or (match[1] and len(match[2]) < width.digits)):
            return int(match[2], 16)
        reason = _why_not(digits, match, width)
    raise InputError(f"{show(text)} is not a fingerprint: {reason}", got=text)


def _why_not(digits: str, match: re.Match[str] | None, width: Width) -> str:
    """Return why a text is not hexadecimal digits of a width."""
    if not match:
        expected = f"expected {width.digits} hexadecimal digits, or 0x and 1 to {width.digits}"
        if _NEGATIVE.fullmatch(digits):
            return "it is negative" + (
                " (signed integers need decimal=True, --decimal, and signed=True, --signed)" if width.words == 1 else ""
            )
        return expected
    count = len(match[2])
    if 4 * count in WIDTHS:
        reason = f"it has {count} hexadecimal digits, a fingerprint of {4 * count} bits, {but(width, 4 * count)}"
    elif count < width.digits:
        reason = f"it has {count} of {width.digits} hexadecimal digits: write all {width.digits}, or 0x before fewer"
    else:
        reason = f"it has {count} hexadecimal digits, {expected_width(width)}: expected {width.digits}"
    if _DIGITS.fullmatch(digits) and count <= _MOST_DECIMALS and not int(digits) >> width.bits:
        reason += " (decimal fingerprints need decimal=True, --decimal)"
    return reason


def of_signed(number: int, width: Width) -> int:
    """Return the bits of a signed integer of a width as a number; one that is too small for it is not changed."""
    return number + (1 << width.bits) if -(1 << (width.bits - 1)) <= number < 0 else number


def negative(expected: Digits) -> str:
    """Return the message that a number is negative, and which option reads its bits."""
    can = expected.width.words == 1 and not expected.signed
    return "it is negative" + (" (for the bits of signed integers use signed=True, --signed)" if can else "")


def rows_of_digits(texts: list[str], width: Width, first: int = 0) -> Words:
    """Return fingerprints in hexadecimal digits as rows; an error names the place, from ``first``, of one that is none."""
    if set(map(len, texts)) == {width.digits}:
        with suppress(ValueError):
            data = bytes.fromhex("".join(texts))
            if len(data) == len(texts) * width.bytes:  # it skips blanks
                return width.from_bytes(np.frombuffer(data, np.uint8))
    expected, numbers = Digits(width), []
    for place, text in enumerate(texts, first):
        try:
            numbers.append(read_digits(text, expected))
        except InputError as error:
            raise InputError(f"the fingerprint at position {place}: {error}", got=text) from None
    return width.rows(numbers)


def is_like_fingerprint(text: str, expected: Digits) -> bool:
    """Return whether a cell has digits of a fingerprint, even too few of them, and so is not the name of a column."""
    digits = text.strip(" \t\r\n")
    if expected.signed and expected.decimal and _NEGATIVE.fullmatch(digits):
        return True
    return bool((_DIGITS if expected.decimal else _HEX).fullmatch(digits))


def too_large(number: int, width: Width, name: str = "") -> str:
    """Return that a number does not fit a width, and which one it needs; by default the number itself is its name."""
    if number < 0:
        return f"{name or (number if number.bit_length() <= _SHOWN_BITS else 'it')} is below -2^{width.bits - 1}"
    bits = number.bit_length()
    fits = next((other for other in WIDTHS if other >= bits), None)
    shown = (hex(number) if bits > 128 else str(number)) if bits <= _SHOWN_BITS else "it"
    return f"{name or shown} takes {bits} bits, {but(width, fits)}"


def but(width: Width, bits: int | None) -> str:
    """Return the message that fingerprints have another width than expected, and how to choose the width if that is possible."""
    if width.stored:
        return expected_width(width)
    if bits in WIDTHS:
        return f"{expected_width(width)}: pass width={bits} (--width {bits})"
    return f"{expected_width(width)}: there are widths of {', '.join(map(str, WIDTHS[:-1]))} and {WIDTHS[-1]} bits"


def expected_width(width: Width) -> str:
    """Return which width is expected."""
    return f"but this store holds {width.bits} bits" if width.stored else f"but the width is {width.bits}"


def wrong_width(what: str, bits: int, where: str, width: Width) -> str:
    """Return that fingerprints have another width."""
    return f"{what} of {bits} bits{where}, {but(width, bits)}"
