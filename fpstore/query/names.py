"""The ids of many id numbers, slice by slice, in memory bounded by the bytes of their strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fpstore.base.aliases import Lims, Words
from fpstore.base.strings import STRINGS_BYTES
from fpstore.io.tables import values_at

NAMED_ROWS = 1 << 16  # the rows of a slice


class Named(NamedTuple):
    """The ids of id numbers; ``string_bytes`` counts each occurrence of a string."""

    ids: Words | list[str]
    string_bytes: int = 0


class Names(Protocol):
    """A source of the ids of id numbers."""

    def named_within(self, numbers: Words, most: int | None, /) -> Named | None:
        """Return the ids of numbers; None if they are strings of more than ``most`` bytes."""


def names_of(names: Names, numbers: Words) -> Words | list[str]:
    """Return the ids of id numbers, however much memory they take."""
    values = names.named_within(numbers, None)
    assert values is not None
    return values.ids


class StoredIds(Names, Protocol):
    """A source of the ids of fingerprints."""

    def stored_id_numbers(self, fingerprints: Words, /) -> tuple[Lims, Words]:
        """Return (lims, id numbers) of fingerprints; KeyError if one is not stored."""


class HeldIds:
    """Ids in memory; the number of an id is its place."""

    def __init__(self, ids: Words | list[str]) -> None:
        self.ids = ids

    def named_within(self, numbers: Words, most: int | None) -> Named | None:
        ids = values_at(self.ids, numbers)
        size = sum(map(len, ids)) if isinstance(ids, list) else 0
        return Named(ids, size) if most is None or size <= most else None


class NamesOfTwo:
    """Ids of two sources; numbers from ``start`` on belong to the second.

    If one source has strings, the integers of the other become strings.
    """

    def __init__(self, first: Names, second: Names, start: int) -> None:
        self._first, self._second, self._start = first, second, np.uint64(start)

    def named_within(self, numbers: Words, most: int | None) -> Named | None:
        in_second = numbers >= self._start
        first = self._first.named_within(numbers[~in_second], most)
        second = self._second.named_within(numbers[in_second] - self._start, most)
        if first is None or second is None:
            return None
        if isinstance(first.ids, np.ndarray) and isinstance(second.ids, np.ndarray):
            out = np.empty(len(numbers), np.uint64)
            out[~in_second], out[in_second] = first.ids, second.ids
            return Named(out)
        ids = [
            iter(map(str, part.ids if isinstance(part.ids, list) else part.ids.tolist()))
            for part in (first, second)
        ]
        return Named(
            [next(ids[part]) for part in in_second.tolist()],
            first.string_bytes + second.string_bytes,
        )


def names_in_slices(
    columns: Sequence[tuple[Names, Words]], lims: Lims | None = None
) -> Iterator[tuple[slice, list[Words | list[str]]]]:
    """Yield slices of rows, and the ids that each column (a source of ids, id numbers) has there.

    A slice has at most NAMED_ROWS rows, and the strings of each of its columns at most
    STRINGS_BYTES; a row with more is alone. Without rows, there is one slice. With ``lims``, slices
    are of lists of rows, which are not cut.
    """
    lims = np.arange(len(columns[0][1]) + 1) if lims is None else lims
    start, step, count = 0, NAMED_ROWS, len(lims) - 1
    while True:
        stop = min(
            max(int(np.searchsorted(lims, lims[start] + step, side="right")) - 1, start + 1), count
        )
        rows = slice(int(lims[start]), int(lims[stop]))
        most = STRINGS_BYTES if stop > start + 1 else None
        parts: list[Named] = []
        for names, numbers in columns:
            part = names.named_within(numbers[rows], most)
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
            step = min(2 * step, NAMED_ROWS)
