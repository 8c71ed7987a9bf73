"""Messages about fingerprints that have another width than expected."""

from fpstore.base.width import WIDTHS, Width

_SHOWN_BITS = 256


def too_large(number: int, width: Width, name: str = "") -> str:
    """Return that a number does not fit a width, and which one it needs; by default the number itself is its name."""
    if number < 0:
        return f"{name or (number if number.bit_length() <= _SHOWN_BITS else 'it')} is below -2^{width.bits - 1}"
    bits = number.bit_length()
    fits = next((other for other in WIDTHS if other >= bits), None)
    shown = (hex(number) if bits > 128 else str(number)) if bits <= _SHOWN_BITS else "it"
    return f"{name or shown} takes {bits} bits, {but(width, fits)}"


def but(width: Width, bits: int | None) -> str:
    """Return which width is expected of fingerprints that have another one, and if it can be chosen, what to do."""
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
