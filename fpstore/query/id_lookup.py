"""The ids of many id numbers, slice by slice, within a limit of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fpstore.base.aliases import Lims, Words
from fpstore.base.strings import STRINGS_BYTES
from fpstore.io.tables import values_at

ID_SLICE_ROWS = 1 << 16  # at most, in a slice


class SizedIds(NamedTuple):
    """Ids, and the size of their strings; ``string_bytes`` counts each occurrence of a string."""

    ids: Words | list[str]
    string_bytes: int = 0


class IdLookup(Protocol):
    """Looks up ids by their numbers."""

    def ids_within(self, numbers: Words, most: int | None, /) -> SizedIds | None:
        """Return the ids of numbers; None if they are strings of more than ``most`` bytes."""


def ids_at(lookup: IdLookup, numbers: Words) -> Words | list[str]:
    """Return the ids of id numbers, however much memory they take."""
    values = lookup.ids_within(numbers, None)
    assert values is not None
    return values.ids


class StoredIdLookup(IdLookup, Protocol):
    """Looks up the ids of fingerprints."""

    def stored_id_numbers(self, fingerprints: Words, /) -> tuple[Lims, Words]:
        """Return (lims, id numbers) of fingerprints; KeyError if one is not stored."""


class InMemoryIds:
    """Ids in memory; the number of an id is its position."""

    def __init__(self, ids: Words | list[str]) -> None:
        self.ids = ids

    def ids_within(self, numbers: Words, most: int | None) -> SizedIds | None:
        ids = values_at(self.ids, numbers)
        size = sum(map(len, ids)) if isinstance(ids, list) else 0
        return SizedIds(ids, size) if most is None or size <= most else None


class ChainedIds:
    """Ids of two look-ups; numbers from ``start`` on belong to the second.

    If one has strings, the integers of the other become strings.
    """

    def __init__(self, first: IdLookup, second: IdLookup, start: int) -> None:
        self._first, self._second, self._start = first, second, np.uint64(start)

    def ids_within(self, numbers: Words, most: int | None) -> SizedIds | None:
        in_second = numbers >= self._start
        first = self._first.ids_within(numbers[~in_second], most)
        second = self._second.ids_within(numbers[in_second] - self._start, most)
        if first is None or second is None:
            return None
        if isinstance(first.ids, np.ndarray) and isinstance(second.ids, np.ndarray):
            out = np.empty(len(numbers), np.uint64)
            out[~in_second], out[in_second] = first.ids, second.ids
            return SizedIds(out)
        ids = [
            iter(map(str, part.ids if isinstance(part.ids, list) else part.ids.tolist()))
            for part in (first, second)
        ]
        return SizedIds(
            [next(ids[part]) for part in in_second.tolist()],
            first.string_bytes + second.string_bytes,
        )


def ids_in_slices(
    columns: Sequence[tuple[IdLookup, Words]], lims: Lims | None = None
) -> Iterator[tuple[slice, list[Words | list[str]]]]:
    """Yield slices of rows, and the ids that each column (a look-up, id numbers) has there.

    A slice has at most ID_SLICE_ROWS rows, and the strings of each of its columns at most
    STRINGS_BYTES; a row with more is alone. Without rows, there is one slice. With ``lims``, slices
    are of lists of rows, which are not cut.
    """
    lims = np.arange(len(columns[0][1]) + 1) if lims is None else lims
    start, step, count = 0, ID_SLICE_ROWS, len(lims) - 1
    while True:
        stop = min(
            max(int(np.searchsorted(lims, lims[start] + step, side="right")) - 1, start + 1), count
        )
        rows = slice(int(lims[start]), int(lims[stop]))
        most = STRINGS_BYTES if stop > start + 1 else None
        parts: list[SizedIds] = []
        for lookup, numbers in columns:
            part = lookup.ids_within(numbers[rows], most)
            if part is None:
                break
            parts.append(part)
        if len(parts) < len(columns):
            step = max((rows.stop - rows.start) // 2, 1)
            continue
        yield slice(start, stop), [part.ids for part in parts]
        if stop == count:
            return
        start = stop
        if max(part.string_bytes for part in parts) < STRINGS_BYTES // 4:
            step = min(2 * step, ID_SLICE_ROWS)
