"""Batches of texts, and what is refused in place of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from fpstore.errors import InputError

Item = TypeVar("Item")

_BATCH_CHARS = 1 << 20


def not_text(got: object, wanted: str) -> InputError:
    """Return the error of a value that is no text."""
    advice = ": decode them first, as in data.decode('utf-8')" if isinstance(got, (bytes, bytearray, memoryview)) else ""
    return InputError(f"expected {wanted}, got {type(got).__name__}{advice}", got=type(got))


def refuse_item(item: object, place: int) -> NoReturn:
    """Raise InputError with the position of an item that is no text."""
    raise not_text(item, f"item {place}: a text (str)")


def batches_of_texts(items: Iterable[Any], otherwise: Callable[[object, int], Any] = refuse_item) -> Iterator[list[Any]]:
    """Cut texts into batches of about a million characters.

    Parameters
    ----------
    items : iterable
    otherwise : callable
        Takes an item that is no text, and its position; returns what takes its place, or raises InputError.

    Raises
    ------
    InputError
        `items` is one text, bytes, or no iterable.
    """
    if isinstance(items, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(items, Iterable):
        raise InputError(
            f"fingerprints() takes an iterable of texts, got {type(items).__name__}: "
            "wrap a single text in a list or pass it to fingerprint()",
            got=type(items),
        )
    texts = (item if isinstance(item, str) else otherwise(item, place) for place, item in enumerate(items))
    return batched(texts, lambda text: len(text) + 8, _BATCH_CHARS)


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
