"""The rows of any input that a build accepts: arrays, iterables of arrays, readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import is_iterable
from fpstore.base.strings import STRINGS_BYTES, StringColumn
from fpstore.base.width import Width
from fpstore.errors import InputError, plural, show
from fpstore.io.check import check_fingerprints, check_ids, is_image_hash, is_row, unequal
from fpstore.io.source import Batch

Piece = tuple[Words, Words | list[str] | StringColumn | None]

SLICE_ROWS = 1 << 20
SINGLE_ROWS = 1 << 16  # rows of an iterable of single rows that are checked at once


def count_rows(source: Any) -> int | None:
    """Return the number of rows of a source, if it is known before reading."""
    if hasattr(source, "rows"):
        rows: int | None = source.rows
        return rows
    if hasattr(source, "__array__"):
        with suppress(TypeError):
            return len(source)
        return None
    return (
        len(source)
        if isinstance(source, (list, tuple, range)) and not _is_list_of_arrays(source)
        else None
    )


def chunks(source: Any, ids: Any, width: Width) -> Iterator[Piece]:
    """Yield (fingerprints, ids) pieces of any accepted input.

    An array, an iterable of arrays, or a reader of fpstore.io.
    """
    single = isinstance(source, (list, tuple, range)) and not _is_list_of_arrays(source, width)
    if single or hasattr(source, "__array__"):
        fingerprints = check_fingerprints(source, width)
        row_ids = None if ids is None else check_ids(ids, len(fingerprints))
        for start in range(0, len(fingerprints), SLICE_ROWS):
            rows = slice(start, start + SLICE_ROWS)
            yield fingerprints[rows], None if row_ids is None else row_ids[rows]
        return
    if not is_iterable(source, str, dict):
        raise InputError(
            "fingerprints must be an array, an iterable of arrays, or a reader, got "
            f"{type(source).__name__}",
            argument="fingerprints",
        )
    first, source = _peek(source)
    read = _chunks_of_single_rows if _is_one_row(first, width) else _chunks_of_parts
    yield from read(source, ids, width)


def _chunks_of_parts(source: Iterable[Any], ids: Any, width: Width) -> Iterator[Piece]:
    if ids is not None and not is_iterable(ids, np.ndarray, str):
        raise InputError(
            "with an iterable of fingerprint arrays, ids must be an iterable of as many id arrays"
        )
    id_parts = None if ids is None else iter(ids)
    kind: type | None = None
    for number, part in enumerate(_parts(source, width)):
        if hasattr(part, "fingerprints"):
            if ids is not None:
                raise InputError("ids come with the reader; do not pass them as well")
            fingerprints, part_ids = part.fingerprints, part.ids
            if not isinstance(part, Batch):
                fingerprints = check_fingerprints(fingerprints, width)
        elif isinstance(part, (int, float, str, bytes, np.generic)):
            raise InputError(
                f"an iterable yields arrays of fingerprints, not single ones, got {show(part)}: "
                "make it a list or an array"
            )
        else:
            fingerprints, part_ids = check_fingerprints(part, width), None
            if id_parts is not None:
                part_ids = next(id_parts, None)
                if part_ids is None:
                    raise InputError(
                        "there are fewer id arrays than fingerprint arrays "
                        f"({plural(number, 'id')})"
                    )
                part_ids = check_ids(part_ids, len(fingerprints))
        if not len(fingerprints):
            continue  # an empty list of ids has no kind
        if kind is not None and kind is not type(part_ids):
            raise InputError("all parts of the input must have ids of the same kind")
        kind = type(part_ids)
        yield fingerprints, part_ids
    if id_parts is not None and next(id_parts, None) is not None:
        raise InputError("there are more id arrays than fingerprint arrays")


def _peek(source: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """Return the first item of an iterator, and an iterator of all items.

    None for a source that can be read again.
    """
    if not isinstance(source, Iterator):
        return None, source
    first = list(islice(source, 1))
    return first[0] if first else None, chain(first, source)


def _chunks_of_single_rows(source: Iterable[Any], ids: Any, width: Width) -> Iterator[Piece]:
    """Yield pieces of an iterable of fingerprints that are an array each."""
    if ids is not None and not is_iterable(ids, str):
        raise InputError(
            f"ids must be one for each fingerprint, got {type(ids).__name__} {show(ids)}",
            argument="ids",
        )
    rows, remaining_ids = iter(source), None if ids is None else iter(ids)
    if remaining_ids is None:
        while piece := list(islice(rows, SINGLE_ROWS)):
            yield check_fingerprints(piece, width), None
        return
    id_count = 0
    while piece := list(islice(rows, max(len(piece_ids := _next_ids(remaining_ids)), 1))):
        if len(piece) != len(piece_ids):
            break
        yield check_fingerprints(piece, width), check_ids(piece_ids, len(piece))
        id_count += len(piece_ids)
    if piece_ids:
        raise InputError("there are more ids than fingerprints")
    if piece:
        raise unequal(id_count, id_count + len(piece) + sum(1 for _ in rows))


def _next_ids(ids: Iterator[Any]) -> list[Any]:
    """Return the next SINGLE_ROWS ids, or fewer if they have STRINGS_BYTES."""
    batch, size = [], 0
    for identifier in islice(ids, SINGLE_ROWS):
        batch.append(identifier)
        size += len(identifier) if isinstance(identifier, str) else 0
        if size >= STRINGS_BYTES:
            break
    return batch


def _parts(source: Iterable[Any], width: Width) -> Iterable[Any]:
    from fpstore.io.reader import Reader

    return source.columns_of_width(width) if isinstance(source, Reader) else source


def _is_list_of_arrays(source: object, width: Width | None = None) -> bool:
    if not isinstance(source, (list, tuple)) or not source or not all(map(_is_array, source)):
        return False
    return width is None or not all(_is_one_row(part, width) for part in source)


def _is_one_row(part: Any, width: Width) -> bool:
    return is_row(part, width) if isinstance(part, np.ndarray) else is_image_hash(part)


def _is_array(part: object) -> bool:
    return (
        hasattr(part, "__array__")
        and not isinstance(part, np.generic)
        and getattr(part, "ndim", 1) > 0
    )
