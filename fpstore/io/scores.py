"""Scores as keys of words, which are ordered exactly as the numbers are.

Integers of any size, decimals, floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, DecimalException, Inexact, InvalidOperation, Overflow, Subnormal

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arrays import SIGN, distinct_places
from fpstore.base.width import row_words
from fpstore.errors import InputError, show

Key = tuple[int, ...]
NULL: Key = (0,)

# The first word of a key has the exponent and 15 digits, each other one 18 digits. A negative
# number has its words as far below _ZERO as its opposite has them above it. At the end of a key,
# words that are _ZERO are left out.
_ZERO = int(SIGN)
_FIRST_DIGITS, _DIGITS = 15, 18
_MAX_DIGITS = _FIRST_DIGITS + 4 * _DIGITS  # a decimal256 has 76
_MAX_EXPONENT = 4600  # with the digits, it fits in 63 bits
_EXACT = Context(
    prec=_MAX_DIGITS,
    Emin=-_MAX_EXPONENT,
    Emax=_MAX_EXPONENT,
    traps=[InvalidOperation, Inexact, Overflow, Subnormal],
)


def score_key(value: object) -> Key:
    """Return the key of a score: a number, or the digits of one.

    A float is the number that it prints as.

    Null, which is None, is below all others.
    """
    if value is None:
        return NULL
    try:
        number = _EXACT.create_decimal(str(value).strip())
        nan = number.is_nan()
    except (Inexact, Overflow, Subnormal):
        raise InputError(
            f"a score has at most {_MAX_DIGITS} digits and an exponent of at most "
            f"{_MAX_EXPONENT}, got {show(str(value))}"
        ) from None
    except (DecimalException, ValueError):
        nan = True
    if nan:
        advice = (
            ", which is neither above nor below others: make it null, or another number"
            if isinstance(value, float)
            else ""
        )
        raise InputError(f"a score must be a number, got {show(value)}{advice}")
    if number.is_infinite():
        words = [_ZERO - 1]
    elif not number:
        return (_ZERO,)
    else:
        exponent = number.adjusted()
        remainder = _EXACT.scaleb(number.copy_abs(), _FIRST_DIGITS - 1 - exponent)
        words = [int(remainder)]
        while remainder := _EXACT.subtract(remainder, words[-1]):
            remainder = _EXACT.scaleb(remainder, _DIGITS)
            words.append(int(remainder))
        words[0] += (exponent + _MAX_EXPONENT + 1) * 10**_FIRST_DIGITS
    return tuple(
        [_ZERO - word for word in words] if number.is_signed() else [_ZERO + word for word in words]
    )


def rows_of_keys(keys: Sequence[Key]) -> Words:
    """Return keys as rows of as many words as the longest has."""
    most = max(map(len, keys), default=1)
    if most == 1:
        return np.array([key[0] for key in keys], np.uint64)
    return np.array([key + (_ZERO,) * (most - len(key)) for key in keys], np.uint64)


def concatenate_keys(parts: Sequence[Words]) -> Words:
    """Return rows of keys, at least one part of them, as one."""
    most = max(map(row_words, parts))
    if most == 1:
        return np.concatenate(parts)
    rows = (part.reshape(-1, row_words(part)) for part in parts)
    return np.concatenate(
        [np.pad(part, ((0, 0), (0, most - part.shape[1])), constant_values=SIGN) for part in rows]
    )


def ranks_of_keys(rows: Words) -> Words:
    """Return a number for each row of keys.

    The greatest key has the least, and equal ones have the same.
    """
    ranks = None
    for column in rows.reshape(-1, row_words(rows)).T:
        falling = ~column
        _, places = distinct_places(
            falling if ranks is None else np.stack([ranks, falling], axis=1)
        )
        ranks = places.view(np.uint64)
    assert ranks is not None
    return ranks
