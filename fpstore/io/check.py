"""Checks of fingerprints and ids.

The one place that accepts, converts or refuses values from outside.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arguments import MAX_ID_BYTES
from fpstore.base.strings import string_spans
from fpstore.base.width import WIDTH_64, WIDTHS, WORD_BITS, Width
from fpstore.errors import InputError, plural, show
from fpstore.io.digits import Digits, parse_texts, read_digits, too_large, wrong_width

MAX_U64 = 2**64 - 1
Value = TypeVar("Value")
# types that stand for a missing value; of floats NaN
_NULLS = {"NoneType", "NAType", "NaTType", "float"}


def parse_integer_id(text: str, plain: bool) -> int:
    """Parse an integer id; ``plain`` refuses leading zeros, which an integer would lose."""
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"the id {show(text)} is not an unsigned integer", got=text)
    significant = text.lstrip("0") or "0"
    if len(significant) > 20 or int(significant) > MAX_U64:
        raise InputError(f"the id {show(text)} is over 2^64-1", got=text)
    if plain and significant != text:
        raise InputError(
            f"the id {show(text)} has leading zeros, which an integer id would lose", got=text
        )
    return int(significant)


def is_plain_integer(text: str) -> bool:
    """Return whether a textual id can be stored as an unsigned 64-bit integer without loss."""
    return (
        text.isascii()
        and text.isdigit()
        and len(text) <= 20
        and (text[0] != "0" or len(text) == 1)
        and int(text) <= MAX_U64
    )


def check_string_id(text: str) -> str:
    """Return the id; InputError if it is empty, too long or not encodable as UTF-8."""
    if not text:
        raise InputError("the id is empty", got=text)
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InputError(
            f"the id {show(text)} is not valid UTF-8 (a stray byte, or a lone surrogate)", got=text
        ) from None
    if size > MAX_ID_BYTES:
        raise InputError(
            f"a string id takes at most {MAX_ID_BYTES} bytes of UTF-8, got one of {size}: "
            f"{show(text)}",
            got=size,
        )
    return text


def dtype_problem(
    dtype: np.dtype[Any], shape: tuple[int, ...], width: Width, signed: bool = False
) -> str | None:
    """Return why no array of this dtype and shape can hold fingerprints, or None if one can."""
    received = f"dtype {dtype}, shape {shape}"
    if (
        dtype.kind == "i"
        and signed
        and len(shape) == 1
        and width.words == 1
        and 8 * dtype.itemsize in (width.bits, WORD_BITS)
    ):
        return None  # their values decide
    if dtype.kind == "i" and not signed:
        how = f"array.view(np.{np.dtype(f'u{dtype.itemsize}').name})"
        return (
            f"fingerprints must be unsigned, got {received}; to keep the bits of signed integers "
            f"use {how}"
        )
    if dtype == np.uint8 and len(shape) == 1:
        return (
            f"{received}: one fingerprint? pass row.tobytes(); several? use shape (n, "
            f"{width.bytes})"
        )
    if (
        dtype.kind == "u"
        and len(shape) == 1
        and width.words == 1
        and (dtype.itemsize != 4 or width.bits == 32)
    ):
        return None  # their values decide
    bits = _row_bits(dtype, shape)
    if bits == width.bits:
        return None
    if bits in WIDTHS:
        return wrong_width("fingerprints", bits, f" ({received})", width)
    rows = f"uint8 rows of shape (n, {width.bytes})"
    number = f"{f'int{width.bits} or ' if signed else ''}uint{width.bits}"
    numbers = (
        f"a 1-D array of {number}"
        if width.words == 1
        else f"uint64 rows of shape (n, {width.words})"
    )
    return f"fingerprints of {width.bits} bits must be {numbers}, or {rows}, got {received}"


def _row_bits(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return the bits in a row of an array, 0 if its rows cannot be fingerprints."""
    kind, size = dtype.kind, dtype.itemsize
    if len(shape) == 1 and (
        kind == "S" or (kind == "V" and dtype.names is None) or (kind == "u" and size >= 4)
    ):
        return 8 * size
    if len(shape) == 2 and (
        kind == "b" or (kind == "u" and (size == 1 or (size == 8 and shape[1] > 1)))
    ):
        return shape[1] * (1 if kind == "b" else 8 * size)
    return 0


def is_single_fingerprint(value: object, width: Width = WIDTH_64) -> bool:
    """Return whether a value is one fingerprint, where many are taken too."""
    if isinstance(value, np.ndarray):
        return is_row(value, width)
    return isinstance(
        value, int | np.integer | str | bytes | bytearray | memoryview | np.void
    ) or is_image_hash(value)


def is_row(value: npt.NDArray[Any], width: Width) -> bool:
    """Return whether an array is the bytes, words or bits of one fingerprint, of any width."""
    kind, shape = value.dtype.kind, value.shape
    if kind == "b":
        return len(shape) == 1 or (value.size == width.bits and shape[-1] not in WIDTHS)
    words = (
        width.words > 1 and kind == "u" and value.dtype.itemsize == 8 and shape == (width.words,)
    )
    return words or (value.dtype == np.uint8 and len(shape) == 1)


def check_fingerprint(value: object, width: Width = WIDTH_64) -> int:
    """Return one fingerprint as a number below 2^bits.

    It is a number; or hexadecimal digits, ``width / 4`` of them or, after ``0x``, fewer; or
    big-endian bytes, also a uint8 array; or bits, the most significant first: a bool array of any
    shape, or an object that has one as ``hash``, such as an ImageHash.
    """
    if type(value) is int and not value >> width.bits:
        return value
    if isinstance(value, int | np.unsignedinteger) and not isinstance(value, bool):
        number = int(value)
        if not number >> width.bits:
            return number
        if number >= 0:
            raise InputError(f"the fingerprint does not fit: {too_large(number, width)}", got=value)
    if isinstance(value, str):
        return read_digits(value, Digits(width))
    data = _as_bytes(value, width)
    if data is not None:
        return int.from_bytes(data, "big")
    kinds = (
        f"an int from 0 to 2^{width.bits} - 1, {width.digits} hexadecimal digits, {width.bytes} "
        "bytes, or an image hash"
    )
    raise InputError(
        f"a fingerprint is {kinds} of {width.bits} bits, got {type(value).__name__} {show(value)}",
        got=value,
    )


def check_fingerprints(
    values: object, width: Width = WIDTH_64, argument: str = "fingerprints"
) -> Words:
    """Return a caller's fingerprints as contiguous rows, without a copy where possible.

    They are an array of n fingerprints: uint32 or uint64, shape (n,), for widths of 32 and 64;
    bytes, most significant first, as uint8 of shape (n, bits / 8) or as a bytes or void dtype,
    shape (n,); words, most significant first, as uint64 of shape (n, bits / 64), for widths of 128
    and 256; or bits as bool, shape (n, bits). Or a sequence, or an array of objects, of what
    `check_fingerprint` takes. Or a column of pyarrow, polars or pandas that converts itself to one
    of these. Nulls are refused.
    """
    array = as_array(values)
    if array is None:
        return _rows_of_list(_as_list(values, argument), width)
    if array.dtype.kind in "OUT" and array.ndim == 1:
        return _rows_of_list(array.tolist(), width)
    return rows_of_array(array, width)


def check_rows(
    fingerprints: object, ids: object, width: Width
) -> tuple[Words, Words | list[str] | None]:
    """Return a caller's fingerprints and ids, one of each or many, as rows and an array or list.

    Without ids None. InputError if there are not as many of them as of fingerprints.
    """
    if is_single_fingerprint(fingerprints, width):
        row = width.row(check_fingerprint(fingerprints, width))
        return row, None if ids is None else check_ids([check_id(ids)], 1)
    rows = check_fingerprints(fingerprints, width)
    return rows, None if ids is None else check_ids(ids, len(rows))


def rows_of_array(
    array: npt.NDArray[Any], width: Width, first: int = 0, signed: bool = False
) -> Words:
    """Return the rows of an array whose first is at a place of its own.

    See `check_fingerprints`.
    """
    problem = dtype_problem(array.dtype, array.shape, width, signed)
    if problem:
        raise InputError(problem, expected=width.bits, got=(str(array.dtype), array.shape))
    if array.dtype.kind in "ui" and array.ndim == 1:
        numbers = unsigned(array, width)
        large = first_too_large(numbers, width)
        if large is not None:
            number = int(array[large])
            raise InputError(
                f"the fingerprint at position {first + large} does not fit: "
                f"{too_large(number, width)}",
                got=number,
            )
        words = np.ascontiguousarray(numbers, dtype=np.uint64)
        return words << np.uint64(WORD_BITS - width.bits) if width.bits < WORD_BITS else words
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        return np.ascontiguousarray(array, dtype=np.uint64)
    if array.dtype.kind == "b":
        array = np.packbits(array, axis=1)
    return width.from_bytes(np.ascontiguousarray(array).view(np.uint8))


def unsigned(array: npt.NDArray[Any], width: Width) -> npt.NDArray[Any]:
    """Return the bits of signed integers as unsigned integers.

    A value too small for the width becomes too large for it.
    """
    if array.dtype.kind != "i":
        return array
    if 8 * array.dtype.itemsize > width.bits:
        array = np.where(
            (array < 0) & (array >= -(1 << (width.bits - 1))), array + (1 << width.bits), array
        )
    return array.view(array.dtype.str.replace("i", "u"))


def first_too_large(array: npt.NDArray[Any], width: Width) -> int | None:
    """Return the place of the first number that does not fit a width, None if all do."""
    if 8 * array.dtype.itemsize <= width.bits:
        return None
    large = array > np.uint64((1 << width.bits) - 1)
    return int(np.argmax(large)) if large.any() else None


def _rows_of_list(items: list[Any], width: Width) -> Words:
    kinds = set(map(type, items))
    if _are_integers(kinds):
        with suppress(OverflowError):
            return width.rows(map(int, items))
    if kinds == {bytes} and set(map(len, items)) == {width.bytes}:
        return width.from_bytes(np.frombuffer(b"".join(items), np.uint8))
    with suppress(UnicodeEncodeError):
        if kinds == {str} and (rows := parse_texts(items, Digits(width))) is not None:
            return rows
    return width.rows(
        _check_each(items, "fingerprint", lambda item: check_fingerprint(item, width))
    )


def _are_integers(kinds: set[type]) -> bool:
    return all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds)


def _check_each(items: list[Any], noun: str, check: Callable[[Any], Value]) -> list[Value]:
    """Return checked items; the error has the position of the first one that is refused."""
    checked = []
    for place, item in enumerate(items):
        try:
            checked.append(check(item))
        except InputError as error:
            reason = (
                f": {error}".removeprefix(f": the {noun}")
                if str(error).startswith(f"the {noun} does")
                else f": {error}"
            )
            raise InputError(
                f"the {noun} at position {place}{reason}", expected=error.expected, got=error.got
            ) from None
    return checked


def is_image_hash(value: object) -> bool:
    """Return whether an object is like an ImageHash: its attribute ``hash`` is an array of bits."""
    bits = getattr(value, "hash", None)
    return isinstance(bits, np.ndarray) and bits.dtype.kind == "b"


def _as_bytes(value: Any, width: Width) -> bytes | None:
    """Return the bytes of bytes, a row of an array or an image hash; None for other values."""
    if is_image_hash(value) or (isinstance(value, np.ndarray) and value.dtype.kind == "b"):
        bits = refuse_masked_values(value if isinstance(value, np.ndarray) else value.hash)
        if bits.size != width.bits:
            received = f" ({type(value).__name__}, shape {bits.shape})"
            raise InputError(wrong_width("a fingerprint", bits.size, received, width), got=value)
        return np.packbits(bits).tobytes()
    if isinstance(value, np.ndarray):
        words = width.words > 1 and value.dtype.kind == "u" and value.dtype.itemsize == 8
        if value.ndim != 1 or not (words or value.dtype == np.uint8):
            return None
        data: bytes = refuse_masked_values(value).astype(">u8" if words else np.uint8).tobytes()
        received = f"dtype {value.dtype}, shape {value.shape}"
    elif isinstance(value, bytes | bytearray | memoryview) or (
        isinstance(value, np.void) and value.dtype.names is None
    ):
        data = value.tobytes() if isinstance(value, np.void | memoryview) else bytes(value)
        received = f"{type(value).__name__}, length {len(data)}"
    else:
        return None
    if len(data) == width.bytes:
        return data
    if 8 * len(data) in WIDTHS:
        raise InputError(
            wrong_width("a fingerprint", 8 * len(data), f" ({received})", width), got=value
        )
    raise InputError(
        f"a fingerprint of {width.bits} bits has {width.bytes} bytes, got {len(data)} ({received})",
        got=value,
    )


def check_ids(ids: object, count: int) -> Words | list[str]:
    """Return a caller's ids as one array of uint64 or one list of strings.

    InputError if there are not ``count`` of them.

    They are integers without negatives, or non-empty strings that UTF-8 can encode. Paths
    (``os.PathLike``) are taken as strings. They may be a column of pyarrow, polars or pandas, also
    one with a dictionary.
    """
    array = as_array(ids, "id")
    if array is None:
        items = _as_list(ids, "ids")
    else:
        received = f"got dtype {array.dtype}, shape {array.shape}"
        if array.ndim != 1:
            raise InputError(f"ids must be 1-D, {received}", argument="ids")
        if array.dtype.kind in "ui":
            _check_count(len(array), count)
            if array.dtype.kind == "i" and count and array.min() < 0:
                raise InputError(
                    f"ids must not be negative, got {array.min()} (dtype {array.dtype})",
                    argument="ids",
                )
            return np.ascontiguousarray(array, dtype=np.uint64)
        if array.dtype.kind not in "OUT":
            raise InputError(
                f"ids must be unsigned integers or strings, {received}", argument="ids"
            )
        items = array.tolist()
    _check_count(len(items), count)
    return _check_id_list(items)


def check_id(value: object) -> int | str:
    """Return one id: an int from 0 to 2^64 - 1, a non-empty string, or a path as a string."""
    if type(value) is int and 0 <= value < 2**64:
        return value
    if type(value) is str:
        return check_string_id(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return check_string_id(str(value))
    if isinstance(value, bool | np.bool) or not isinstance(value, int | np.integer):
        received = f"{type(value).__name__} {show(value)}"
        raise InputError(
            f"an id must be an integer 0 to 2^64-1, or a string, got {received}", got=value
        )
    if not 0 <= value <= MAX_U64:
        raise InputError(f"the id {show(int(value))} is out of range 0 to 2^64-1", got=value)
    return int(value)


def unequal(ids: int, fingerprints: int) -> InputError:
    """Return the error of another number of ids than of fingerprints."""
    message = (
        f"{plural(ids, 'id')} for {plural(fingerprints, 'fingerprint')}: give one per fingerprint"
    )
    return InputError(message, expected=fingerprints, got=ids)


def _check_count(length: int, count: int) -> None:
    if length != count:
        raise unequal(length, count)


def _check_id_list(items: list[Any]) -> Words | list[str]:
    if any(issubclass(kind, os.PathLike) for kind in set(map(type, items))):
        items = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in items]
    kinds = set(map(type, items))
    if _are_integers(kinds):
        with suppress(OverflowError):
            return np.array(items, np.uint64)
    strings = [issubclass(kind, str) for kind in kinds]
    if any(strings) and not all(strings):
        string, integer = (
            next(item for item in items if isinstance(item, str) == kind) for kind in (True, False)
        )
        raise InputError(
            f"ids must be all integers or all strings, got {show(string)} and {show(integer)}",
            argument="ids",
        )
    with suppress(UnicodeEncodeError):
        if kinds == {str} and "" not in items and max(map(len, items)) * 4 <= MAX_ID_BYTES:
            for span in string_spans(items):
                "".join(items[span]).encode("utf-8")
            return items
    checked: list[Any] = _check_each(items, "id", check_id)
    return checked if any(strings) else np.array(checked, np.uint64)


def _as_list(values: object, argument: str) -> list[object]:
    if isinstance(values, list):
        return values
    if isinstance(values, Sequence) and not isinstance(
        values, str | bytes | bytearray | memoryview
    ):
        return list(values)
    raise InputError(
        f"{argument} must be an array or a list, got {type(values).__name__} {show(values)}",
        got=values,
        argument=argument,
    )


def as_array(values: object, noun: str = "fingerprint") -> npt.NDArray[Any] | None:
    """Return an array, or a column of pyarrow, polars or pandas as one; None for other values.

    InputError for masked values and nulls.
    """
    if isinstance(values, np.ndarray):
        return refuse_masked_values(values)
    if not hasattr(values, "__array__"):
        return None
    array = _fixed_size_binary(values)
    if array is None:
        try:
            array = refuse_masked_values(np.asanyarray(values))
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "pyarrow":
                raise
            raise InputError(f"the column of {noun}s cannot be read: {error}", got=values) from None
        _refuse_nulls(array, noun)
    return array


def refuse_masked_values(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that is no subclass; InputError if some of its values are masked."""
    if has_masked_values(array):
        advice = "array.compressed()" if array.ndim < 2 else "numpy.ma.compress_rows(array)"
        raise InputError(f"the array has masked values: leave those rows out ({advice})", got=array)
    return np.asarray(array)


def has_masked_values(value: object) -> bool:
    # the module takes ten milliseconds to load; without it there are no masked arrays
    if "numpy.ma" not in sys.modules:
        return False
    # Records have a mask of their own kind, and are refused later whatever it says.
    return (
        isinstance(value, np.ma.MaskedArray)
        and value.dtype.names is None
        and bool(np.ma.is_masked(value))
    )


def _fixed_size_binary(values: Any) -> npt.NDArray[Any] | None:
    """Return the bytes of a pyarrow column of type fixed_size_binary, shape (n, bytes).

    Pyarrow itself makes objects of them.
    """
    of_pyarrow = type(values).__module__.partition(".")[0] == "pyarrow"
    if (
        not of_pyarrow
        or not str(getattr(values, "type", "")).startswith("fixed_size_binary")
        or values.null_count
    ):
        return None
    size, column = (
        values.type.byte_width,
        values.combine_chunks() if hasattr(values, "chunks") else values,
    )
    data = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    return data[column.offset * size :][: len(column) * size].reshape(len(column), size)


def _refuse_nulls(array: npt.NDArray[Any], noun: str) -> None:
    """Refuse an array that was made of a column with nulls.

    Where there are integers, they have become NaN.
    """
    if array.ndim != 1:
        return
    null = None
    if array.dtype.kind == "f":
        missing = np.isnan(array)
        null = int(np.argmax(missing)) if missing.any() else None
    elif array.dtype.kind == "O":
        items = array.tolist()
        if {kind.__name__ for kind in set(map(type, items))} & _NULLS:
            null = next((place for place, item in enumerate(items) if _is_null(item)), None)
    if null is not None:
        raise InputError(f"the {noun} at position {null} is null: leave such rows out")


def _is_null(item: Any) -> bool:
    return type(item).__name__ in _NULLS and (not isinstance(item, float) or item != item)
