"""Checks of fingerprints and ids: the one place that accepts, converts or refuses values from outside."""

import re
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Words
from fpstore.arguments import MAX_ID_BYTES
from fpstore.errors import InputError, show

MAX_U64 = 2**64 - 1

_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{16})|0[xX]([0-9a-fA-F]{1,16})")
_HEX_SHORT = re.compile(r"[0-9a-fA-F]{1,15}")
_HEX_ANY = re.compile(r"(?:0[xX])?[0-9a-fA-F]+")
_DIGITS = re.compile(r"[0-9]+")
_NEGATIVE = re.compile(r"-[0-9]+")


def parse_fingerprint(text: str, decimal: bool = False) -> int:
    """Read one fingerprint from text.

    Parameters
    ----------
    text : str
        16 hexadecimal digits of either case, or 1 to 16 after ``0x``; with ``decimal``, decimal digits. Fewer digits
        without ``0x`` are refused: most often they are a decimal number, or cut off. Blanks around the digits are ignored.
    decimal : bool
        Read decimal digits instead.

    Returns
    -------
    int
        0 to 2**64 - 1.

    Raises
    ------
    InputError
        The text is not a fingerprint.

    Examples
    --------
    >>> parse_fingerprint("0x2A"), parse_fingerprint("42", decimal=True)
    (42, 42)
    """
    if not isinstance(text, str):
        raise InputError(f"a fingerprint in text must be a str, got {type(text).__name__}", got=text)
    digits = text.strip(" \t\r\n")
    if decimal:
        if _DIGITS.fullmatch(digits):
            significant = digits.lstrip("0")
            if len(significant) <= 20 and int(significant or "0") <= MAX_U64:
                return int(significant or "0")
            reason = "it is over 2^64-1"
        else:
            reason = "it is negative" if _NEGATIVE.fullmatch(digits) else "expected decimal digits"
    else:
        match = _HEX.fullmatch(digits)
        if match:
            return int(match[1] or match[2], 16)
        reason = "expected 16 hexadecimal digits, or 0x and 1 to 16"
        short = _HEX_SHORT.fullmatch(digits)
        if short:
            reason = f"it has {len(digits)} of 16 hexadecimal digits: write all 16, or 0x before fewer"
        if _DIGITS.fullmatch(digits) and len(digits) <= 20 and int(digits) <= MAX_U64:
            reason += " (decimal fingerprints need decimal=True, --decimal)"
        elif not short and _HEX_ANY.fullmatch(digits):
            reason = "it is over 2^64-1: " + reason
        elif _NEGATIVE.fullmatch(digits):
            reason = "it is negative"
    raise InputError(f"{show(text)} is not a fingerprint: {reason}", got=text)


def is_like_fingerprint(text: str, decimal: bool) -> bool:
    """Return whether a cell has digits of a fingerprint, even too few of them, and so is not the name of a column."""
    return bool((_DIGITS if decimal else _HEX_ANY).fullmatch(text.strip(" \t\r\n")))


def format_fingerprint(value: int) -> str:
    """Write one fingerprint as 16 lower-case hexadecimal digits.

    Parameters
    ----------
    value : int
        0 to 2**64 - 1.

    Returns
    -------
    str
        Sixteen characters.

    Raises
    ------
    InputError
        The value is not an integer or out of range.

    Examples
    --------
    >>> format_fingerprint(42)
    '000000000000002a'
    """
    if isinstance(value, bool | np.bool) or not isinstance(value, int | np.integer):
        raise InputError(f"a fingerprint must be an int, got {type(value).__name__} {show(value)}", got=value)
    if not 0 <= value <= MAX_U64:
        raise InputError(f"{show(int(value))} is not a fingerprint: expected 0 to 2^64-1", got=value)
    return f"{int(value):016x}"


def parse_integer_id(text: str, plain: bool) -> int:
    """Parse an integer id; ``plain`` refuses leading zeros, which an integer would lose."""
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"the id {show(text)} is not an unsigned integer", got=text)
    significant = text.lstrip("0") or "0"
    if len(significant) > 20 or int(significant) > MAX_U64:
        raise InputError(f"the id {show(text)} is over 2^64-1", got=text)
    if plain and significant != text:
        raise InputError(f"the id {show(text)} has leading zeros, which an integer id would lose", got=text)
    return int(significant)


def is_plain_integer(text: str) -> bool:
    """Return whether a textual id can be stored as an unsigned 64-bit integer without loss."""
    return text.isascii() and text.isdigit() and len(text) <= 20 and (text[0] != "0" or len(text) == 1) and int(text) <= MAX_U64


def check_string_id(text: str) -> str:
    """Return an id that is not empty, not too long and encodable as UTF-8; otherwise raise `InputError`."""
    if not text:
        raise InputError("the id is empty", got=text)
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InputError(f"the id {show(text)} cannot be encoded as UTF-8 (lone surrogate)", got=text) from None
    if size > MAX_ID_BYTES:
        raise InputError(f"a string id takes at most {MAX_ID_BYTES} bytes of UTF-8, got one of {size}: {show(text)}", got=size)
    return text


def dtype_problem(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str | None:
    """Return why an array of this dtype and shape cannot hold fingerprints, or None if it can."""
    received = f"got dtype {dtype}, shape {shape}"
    if dtype.kind == "i":
        how = f"array.view(np.{np.dtype(f'u{dtype.itemsize}').name})"
        return f"fingerprints must be unsigned, {received}; to keep the bits of signed integers use {how}"
    if dtype.kind != "u":
        return f"fingerprints must be a 1-D uint64 array, {received}"
    if len(shape) != 1:
        return f"fingerprints must be a 1-D array, {received}"
    return None


def check_fingerprint(value: object) -> int:
    """Return one fingerprint as an int, or raise InputError."""
    if isinstance(value, np.uint64) or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64):
        return int(value)
    if isinstance(value, np.unsignedinteger):
        return int(value)
    what = f"{type(value).__name__} {show(value)}"
    raise InputError(f"a fingerprint is an int from 0 to 2^64 - 1 or a numpy.uint64, got {what}")


def check_fingerprints(values: object) -> Words:
    """Convert a caller's fingerprints to a contiguous native uint64 array.

    Parameters
    ----------
    values : array or sequence
        A 1-D array of unsigned integers of any width, byte order and layout, or a sequence of Python ints
        0 to 2**64 - 1.

    Returns
    -------
    numpy.ndarray
        uint64, shape (n,), C-contiguous. It shares memory with ``values`` if no conversion was needed.

    Raises
    ------
    InputError
        For signed arrays, floats, bools, negatives, strings and other shapes; the message names dtype and shape.

    Examples
    --------
    >>> check_fingerprints([1, 2**64 - 1])
    array([                   1, 18446744073709551615], dtype=uint64)
    """
    array = as_array(values)
    if array is None:
        return _integers(_as_list(values, "fingerprints"), "fingerprint")
    problem = dtype_problem(array.dtype, array.shape)
    if problem:
        raise InputError(problem, expected="1-D uint64", got=(str(array.dtype), array.shape))
    return np.ascontiguousarray(array, dtype=np.uint64)


def check_ids(ids: object, count: int) -> Words | list[str]:
    """Convert a caller's ids to one array of integers or one list of strings.

    Parameters
    ----------
    ids : array or sequence
        Unsigned 64-bit integers (an array of any integer dtype without negatives, or a sequence of ints), or
        non-empty strings that UTF-8 can encode.
    count : int
        The number of fingerprints to which the ids belong.

    Returns
    -------
    numpy.ndarray or list of str
        uint64, shape (count,), or ``count`` strings.

    Raises
    ------
    InputError
        For another length, mixed types, negatives, floats, bools, empty strings and lone surrogates.

    Examples
    --------
    >>> check_ids(("a", "b"), 2)
    ['a', 'b']
    """
    array = as_array(ids)
    if array is None:
        items = _as_list(ids, "ids")
    else:
        received = f"got dtype {array.dtype}, shape {array.shape}"
        if array.ndim != 1:
            raise InputError(f"ids must be 1-D, {received}")
        if array.dtype.kind in "ui":
            _check_count(len(array), count)
            if array.dtype.kind == "i" and count and array.min() < 0:
                raise InputError(f"ids must not be negative, got {array.min()} (dtype {array.dtype})")
            return np.ascontiguousarray(array, dtype=np.uint64)
        if array.dtype.kind not in "OUT":
            raise InputError(f"ids must be unsigned integers or strings, {received}")
        items = array.tolist()
    _check_count(len(items), count)
    return _ids_of_list(items)


def check_id(value: object) -> int | str:
    """Return one id, an int from 0 to 2^64 - 1 or a non-empty string.

    Raises
    ------
    InputError
    """
    if type(value) is int and 0 <= value < 2**64:
        return value
    if type(value) is str:
        return check_string_id(value)
    if isinstance(value, str):
        return check_string_id(str(value))
    if isinstance(value, bool | np.bool) or not isinstance(value, int | np.integer):
        received = f"{type(value).__name__} {show(value)}"
        raise InputError(f"an id must be an integer 0 to 2^64-1, or a string, got {received}", got=value)
    if not 0 <= value <= MAX_U64:
        raise InputError(f"the id {show(int(value))} is out of range 0 to 2^64-1", got=value)
    return int(value)


def _check_count(length: int, count: int) -> None:
    if length != count:
        raise InputError(f"{length} ids for {count} fingerprints: give one per fingerprint", expected=count, got=length)


def _ids_of_list(items: list[object]) -> Words | list[str]:
    strings = [item for item in items if isinstance(item, str)]
    if not strings:
        return _integers(items, "id")
    if len(strings) != len(items):
        other = next(item for item in items if not isinstance(item, str))
        raise InputError(f"ids must be all integers or all strings, got {show(strings[0])} and {show(other)}")
    if any(type(item) is not str for item in strings):
        strings = [str(item) for item in strings]
    try:
        "".join(strings).encode("utf-8")
        clean = "" not in strings and max(map(len, strings)) * 4 <= MAX_ID_BYTES
    except UnicodeEncodeError:
        clean = False
    return strings if clean else [check_string_id(item) for item in strings]


def as_array(values: object) -> npt.NDArray[Any] | None:
    """Return arrays and what converts itself to one (a pandas or polars series); None for the rest.

    Raises
    ------
    InputError
        Some values are masked.
    """
    if not isinstance(values, np.ndarray) and not hasattr(values, "__array__"):
        return None
    array = np.asanyarray(values)
    # Records have a mask of their own kind, and are refused later whatever it says.
    if isinstance(array, np.ma.MaskedArray) and array.dtype.names is None and np.ma.is_masked(array):
        raise InputError("the array has masked values: leave those rows out (array.compressed())", got=values)
    return np.asarray(array)


def _as_list(values: object, what: str) -> list[object]:
    if isinstance(values, list):
        return values
    if isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray | memoryview):
        return list(values)
    raise InputError(f"{what} must be an array or a list, got {type(values).__name__} {show(values)}", got=values)


def _integers(items: list[object], what: str) -> Words:
    if not set(map(type, items)) <= {int}:
        for index, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, int | np.integer):
                _refuse_item(items, index, what)
    numbers = cast(list[int], items)
    try:
        return np.array(numbers, dtype=np.uint64)
    except OverflowError:
        bad = next(i for i, number in enumerate(numbers) if not 0 <= number <= MAX_U64)
    raise InputError(f"{what} {show(int(numbers[bad]))} at position {bad} is out of range 0 to 2^64-1", got=numbers[bad])


def _refuse_item(items: list[object], index: int, what: str) -> NoReturn:
    item = items[index]
    received = f"{type(item).__name__} {show(item)} at position {index}"
    if isinstance(item, list | tuple | np.ndarray):
        shape = f"({len(items)}, {len(item)})" if np.ndim(item) else f"({len(items)},)"
        raise InputError(f"{what}s must be 1-D, got {received}: shape {shape}", got=item)
    kinds = "integers 0 to 2^64-1, or strings" if what == "id" else "integers 0 to 2^64-1"
    raise InputError(f"{what}s must be {kinds}, got {received}, shape ({len(items)},)", got=item)
