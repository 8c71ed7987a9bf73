"""Fingerprints in text: hexadecimal digits, or decimal ones."""

import re

from fpstore.errors import InputError, show
from fpstore.io.check import but, check_fingerprint, expected_width, too_large
from fpstore.width import WIDTHS, Width, check_width

_HEX = re.compile(r"(0[xX])?([0-9a-fA-F]+)")
_DIGITS = re.compile(r"[0-9]+")
_NEGATIVE = re.compile(r"-[0-9]+")
_MOST_DECIMALS = len(str(1 << WIDTHS[-1]))


def parse_fingerprint(text: str, decimal: bool = False, width: int | Width = 64) -> int:
    """Read one fingerprint from text.

    Parameters
    ----------
    text : str
        ``width / 4`` hexadecimal digits of either case, or so many or fewer after ``0x``; with ``decimal``, decimal digits.
        Fewer digits without ``0x`` are refused: most often they are a decimal number, or cut off. Blanks around the digits
        are ignored.
    decimal : bool
        Read decimal digits instead.
    width : int
        The bits of a fingerprint: 32, 64, 128 or 256.

    Returns
    -------
    int
        0 to 2**width - 1.

    Raises
    ------
    InputError
        The text is not a fingerprint of this width.

    Examples
    --------
    >>> parse_fingerprint("0x2A"), parse_fingerprint("42", decimal=True), parse_fingerprint("0000002a", width=32)
    (42, 42, 42)
    """
    return read_digits(text, decimal, check_width(width))


def read_digits(text: str, decimal: bool, width: Width) -> int:
    """Read one fingerprint of a width; see `parse_fingerprint`."""
    if not isinstance(text, str):
        raise InputError(f"a fingerprint in text must be a str, got {type(text).__name__}", got=text)
    digits = text.strip(" \t\r\n")
    if decimal:
        significant = digits.lstrip("0")
        if not _DIGITS.fullmatch(digits):
            reason = "it is negative" if _NEGATIVE.fullmatch(digits) else "expected decimal digits"
        elif len(significant) > _MOST_DECIMALS:
            reason = f"it has {len(significant)} decimal digits, {but(width, None)}"
        else:
            value = int(significant or "0")
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
        return "it is negative" if _NEGATIVE.fullmatch(digits) else expected
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


def is_like_fingerprint(text: str, decimal: bool) -> bool:
    """Return whether a cell has digits of a fingerprint, even too few of them, and so is not the name of a column."""
    return bool((_DIGITS if decimal else _HEX).fullmatch(text.strip(" \t\r\n")))


def format_fingerprint(value: int, width: int = 64) -> str:
    """Write one fingerprint as ``width / 4`` lower-case hexadecimal digits.

    Parameters
    ----------
    value : int
        0 to 2**width - 1. Whatever else a store takes as one fingerprint is written too.
    width : int
        The bits of a fingerprint: 32, 64, 128 or 256.

    Returns
    -------
    str
        So many characters.

    Raises
    ------
    InputError
        The value is not a fingerprint of this width.

    Examples
    --------
    >>> format_fingerprint(42), format_fingerprint(42, width=32)
    ('000000000000002a', '0000002a')
    """
    known = check_width(width)
    return known.text(check_fingerprint(value, known))
