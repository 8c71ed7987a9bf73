"""The ids of many id numbers, a slice after the other.

Memory is bounded by the bytes of the strings, not by their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fpstore.base.aliases import Lims, Words
from fpstore.base.strings import STRINGS_BYTES
from fpstore.io.tables import values_at

NAMED_ROWS = 1 << 16  # the rows of a slice


class Named(NamedTuple):
    """The ids of some id numbers; ``string_bytes`` counts a string that occurs twice twice."""

    ids: Words | list[str]
    string_bytes: int = 0


class Names(Protocol):
    """A source of the ids of id numbers."""

    def named_within(self, numbers: Words, most: int | None, /) -> Named | None:
        """Return the ids of some numbers.

        None if they are strings that take more than ``most`` bytes together.
        """


def names_of(names: Names, numbers: Words) -> Words | list[str]:
    """Return the ids of id numbers, however much memory they take."""
    named = names.named_within(numbers, None)
    assert named is not None
    return named.ids


class StoredIds(Names, Protocol):
    """A source of the ids of fingerprints."""

    def stored_id_numbers(self, fingerprints: Words, /) -> tuple[Lims, Words]:
        """Return (lims, id numbers) of fingerprints; KeyError if one is not stored."""


class HeldIds:
    """Ids in memory; the number of an id is its place."""

    def __init__(self, ids: Words | list[str]) -> None:
        self.ids = ids

    def named_within(self, numbers: Words, most: int | None) -> Named | None:
        """Return the ids of some numbers; see :class:`Names`."""
        found = values_at(self.ids, numbers)
        size = sum(map(len, found)) if isinstance(found, list) else 0
        return Named(found, size) if most is None or size <= most else None


class NamesOfTwo:
    """Ids of two sources, where numbers from ``first`` on are of the second.

    Integers become strings if others are strings.
    """

    def __init__(self, one: Names, other: Names, first: int) -> None:
        self._sources, self._first = (one, other), np.uint64(first)

    def named_within(self, numbers: Words, most: int | None) -> Named | None:
        """Return the ids of some numbers; see :class:`Names`."""
        of_other = numbers >= self._first
        parts = (numbers[~of_other], numbers[of_other] - self._first)
        named = [
            source.named_within(part, most)
            for source, part in zip(self._sources, parts, strict=True)
        ]
        one, other = named
        if one is None or other is None:
            return None
        if isinstance(one.ids, np.ndarray) and isinstance(other.ids, np.ndarray):
            out = np.empty(len(numbers), np.uint64)
            out[~of_other], out[of_other] = one.ids, other.ids
            return Named(out)
        iters = [
            iter(map(str, some.ids if isinstance(some.ids, list) else some.ids.tolist()))
            for some in (one, other)
        ]
        return Named(
            [next(iters[second]) for second in of_other.tolist()],
            one.string_bytes + other.string_bytes,
        )


def names_in_slices(
    columns: Sequence[tuple[Names, Words]], lims: Lims | None = None
) -> Iterator[tuple[slice, list[Words | list[str]]]]:
    """Yield slices of rows, and the ids that each column (a source of ids, id numbers) has there.

    A slice has at most NAMED_ROWS rows, and the strings of each of its columns at most
    STRINGS_BYTES. A row with more is alone. Of no rows, there is one slice. With ``lims``, of lists
    of rows that are not cut, slices are of lists.
    """
    lims = np.arange(len(columns[0][1]) + 1) if lims is None else lims
    start, step, count = 0, NAMED_ROWS, len(lims) - 1
    while True:
        stop = min(
            max(int(np.searchsorted(lims, lims[start] + step, side="right")) - 1, start + 1), count
        )
        rows, most = (
            slice(int(lims[start]), int(lims[stop])),
            STRINGS_BYTES if stop > start + 1 else None,
        )
        found: list[Named] = []
        for names, numbers in columns:
            named = names.named_within(numbers[rows], most)
            if named is None:
                break
            found.append(named)
        if len(found) < len(columns):
            step = max((rows.stop - rows.start) // 2, 1)
            continue
        yield slice(start, stop), [named.ids for named in found]
        if stop == count:
            return
        start = stop
        if max(named.string_bytes for named in found) < STRINGS_BYTES // 4:
            step = min(2 * step, NAMED_ROWS)
