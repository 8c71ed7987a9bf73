"""Arrays of objects that convert themselves: columns of pyarrow, polars and pandas, none of which is imported for it."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.errors import InputError

_NULLS = {"NoneType", "NAType", "NaTType", "float"}  # types that stand for a missing value; of floats NaN


def as_array(values: object, what: str = "fingerprint") -> npt.NDArray[Any] | None:
    """Return an array, also of an object that converts itself (a column of pyarrow, polars or pandas); None for other values.

    Raises
    ------
    InputError
        Some values are masked or null; the message has the place of the first null.
    """
    if isinstance(values, np.ndarray):
        return unmasked(values)
    if not hasattr(values, "__array__"):
        return None
    array = _fixed_size_binary(values)
    if array is None:
        array = unmasked(np.asanyarray(values))
        _refuse_nulls(array, what)
    return array


def unmasked(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that is no subclass; InputError if some of its values are masked."""
    if has_masked(array):
        rest = "array.compressed()" if array.ndim < 2 else "numpy.ma.compress_rows(array)"
        raise InputError(f"the array has masked values: leave those rows out ({rest})", got=array)
    return np.asarray(array)


def has_masked(value: object) -> bool:
    """Whether some values of an array are masked."""
    if "numpy.ma" not in sys.modules:  # it takes ten milliseconds to load, and makes all masked arrays
        return False
    # Records have a mask of their own kind, and are refused later whatever it says.
    return isinstance(value, np.ma.MaskedArray) and value.dtype.names is None and bool(np.ma.is_masked(value))


def texts_of(array: npt.NDArray[Any]) -> list[str] | None:
    """Return the strings of an array that holds nothing else; None for other arrays, and for empty ones of no type."""
    if array.ndim != 1 or array.dtype.kind not in "OUT":
        return None
    items: list[Any] = array.tolist()
    return items if set(map(type, items)) == {str} or (not items and array.dtype.kind != "O") else None


def _fixed_size_binary(values: Any) -> npt.NDArray[Any] | None:
    """Return the bytes of a pyarrow column of type fixed_size_binary, shape (n, bytes), of which pyarrow itself makes objects."""
    of_pyarrow = type(values).__module__.partition(".")[0] == "pyarrow"
    if not of_pyarrow or not str(getattr(values, "type", "")).startswith("fixed_size_binary"):
        return None
    width = values.type.byte_width
    if values.null_count or not width:
        return None
    parts = [np.empty((0, width), np.uint8)]
    for part in getattr(values, "chunks", [values]):
        data = np.frombuffer(part.buffers()[1] or b"", np.uint8)
        parts.append(data[part.offset * width : (part.offset + len(part)) * width].reshape(-1, width))
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def _refuse_nulls(array: npt.NDArray[Any], what: str) -> None:
    """Refuse an array that was made of a column with nulls: where there are integers, they have become NaN."""
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
        raise InputError(f"the {what} at position {null} is null: leave such rows out")


def _is_null(item: Any) -> bool:
    return type(item).__name__ in _NULLS and (not isinstance(item, float) or item != item)
