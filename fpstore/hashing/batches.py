"""Batches of texts, and the refusal of values that are no texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NoReturn, TypeVar

from fpstore.base.arguments import is_iterable
from fpstore.errors import InputError

Item = TypeVar("Item")

BATCH_CHARS = 1 << 20
_SLICE = 1 << 10  # values of a column that become Python values together


def not_text(got: object, wanted: str) -> InputError:
    """Return the error for a value that is no text."""
    advice = ": decode them first, as in data.decode('utf-8')" if isinstance(got, (bytes, bytearray, memoryview)) else ""
    return InputError(f"expected {wanted}, got {type(got).__name__}{advice}", got=type(got))


def refuse_item(item: object, place: int) -> NoReturn:
    """Raise InputError with the position of an item that is no text."""
    raise not_text(item, f"item {place}: a text (str)")


def batches_of_texts(items: Iterable[Any], otherwise: Callable[[object, int], Any] = refuse_item) -> Iterator[list[Any]]:
    """Cut texts into batches of about a million characters. A null of a column is an empty text.

    Parameters
    ----------
    items : iterable
        Such as a list, or a column of strings of pyarrow, Polars, pandas or NumPy.
    otherwise : callable
        Takes an item that is no text, and its position; returns what takes its place, or raises InputError.

    Raises
    ------
    InputError
        `items` is one text, bytes, or no iterable.
    """
    if not is_iterable(items, str, Mapping):
        raise InputError(
            f"fingerprints() takes an iterable of texts, got {type(items).__name__}: "
            "wrap a single text in a list or pass it to fingerprint()",
            got=type(items),
        )
    texts = (
        item if isinstance(item, str) else "" if is_null(item) else otherwise(item, place)
        for place, item in enumerate(_values(items))
    )
    return batched(texts, lambda text: len(text) + 8, BATCH_CHARS)


def _values(items: Any) -> Iterable[Any]:
    """Return the Python values of items: iteration over a column of pyarrow gives its scalars instead."""
    if not hasattr(items, "to_pylist"):
        return items  # type: ignore[no-any-return]
    return chain.from_iterable(_slice_of(items, start) for start in range(0, len(items), _SLICE))


def _slice_of(column: Any, start: int) -> list[Any]:
    try:
        values: list[Any] = column.slice(start, _SLICE).to_pylist()
    except UnicodeDecodeError as error:
        end = min(start + _SLICE, len(column))
        raise InputError(f"items {start} to {end - 1}: a text that is not valid UTF-8 ({error.reason})") from None
    return values


def is_null(item: object) -> bool:
    """Return whether an item is a null of pyarrow or Polars (None), or of pandas (None, NaN, NA)."""
    return item is None or (isinstance(item, float) and item != item) or type(item).__name__ == "NAType"


def batched(items: Iterable[Item], weigh: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Cut items into batches, each of which ends with the item that brings its weight to `most`."""
    batch: list[Item] = []
    held = 0
    for item in items:
        batch.append(item)
        held += weigh(item)
        if held >= most:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
