"""Many rows that are decided anew, in order, as one change.

See :meth:`fpstore.Store.probe_upsert_many`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import lims_of
from fpstore.base.width import distinct, rows_of_numbers, rows_to_numbers, words_of
from fpstore.change.decisions import kind_with
from fpstore.format.record import ADD, IN_BASE, REMOVE, WIPE, Change, Row, Totals
from fpstore.query.batches import MatchColumns
from fpstore.query.ids import numbers_of
from fpstore.query.names import HeldIds, NamesOfTwo, names_of
from fpstore.query.store_snapshot import StoreSnapshot


class Decisions(NamedTuple):
    """The matches of each row, the ids that these had at its turn, and which rows were inserted."""

    matches: MatchColumns
    id_lims: Lims  # of the ids of each match
    ids: Words | list[str]
    inserted: npt.NDArray[np.bool_]


def probed_replacement(
    snapshot: StoreSnapshot,
    fingerprints: Words,
    ids: Words | list[str],
    radius: int,
    threads: int,
    reused: Callable[[int], object],
) -> tuple[Change | None, Decisions]:
    """Take each id from its other fingerprints; probe, and add the row if nothing else matched.

    One row after the other.
    """
    totals = snapshot.totals._replace(id_kind=kind_with(snapshot, ids))
    numbers = _Numbers(snapshot, ids, reused)
    near = snapshot.probe_columns(fingerprints, radius, threads)
    assert near is not None
    pairs = snapshot.with_ids(numbers.stored())
    content = _Content(
        snapshot, distinct(np.concatenate([fingerprints, pairs[0], near[1]])), radius
    )
    of_number: dict[int, set[int]] = {}  # the fingerprints of each id
    for fingerprint, number in zip(rows_to_numbers(pairs[0]), pairs[1].tolist(), strict=True):
        of_number.setdefault(number, set()).add(fingerprint)
    stored, distances = rows_to_numbers(near[1]), near[2].tolist()
    matches, counts, id_numbers, id_counts = (
        list[tuple[int, int]](),
        list[int](),
        list[int](),
        list[int](),
    )
    for row, (value, (start, end)) in enumerate(
        zip(rows_to_numbers(fingerprints), pairwise(near[0].tolist()), strict=True)
    ):
        number = numbers.number_of(row)
        if number is not None:
            for other in of_number.get(number, set()) - {value}:
                content.remove(other, number)
                of_number[number].remove(other)
        of_row = [
            match
            for match in zip(distances[start:end], stored[start:end], strict=True)
            if content.ids_of(match[1])
        ]
        of_row = sorted(of_row + content.new_near(value))
        for _, fingerprint in of_row:
            id_numbers += content.ids_of(fingerprint)
            id_counts.append(len(content.ids_of(fingerprint)))
        matches += of_row
        counts.append(len(of_row))
        if not of_row:
            number = numbers.take(row)
            content.add(value, number)
            of_number.setdefault(number, set()).add(value)
            totals = totals.counting(number)
    columns = (
        lims_of(counts),
        rows_of_numbers([fingerprint for _, fingerprint in matches], words_of(fingerprints)),
        np.array([distance for distance, _ in matches], near[2].dtype),
    )
    names = numbers.names(np.array(id_numbers, np.uint64))
    decisions = Decisions(columns, lims_of(id_counts), names, np.array(counts, np.int64) == 0)
    return content.change(totals, numbers.strings), decisions


class _Numbers:
    """The numbers of the ids of rows.

    A string that has none gets one when its first row is inserted.
    """

    def __init__(
        self, snapshot: StoreSnapshot, ids: Words | list[str], reused: Callable[[int], object]
    ) -> None:
        self._snapshot, self._ids, self._reused = snapshot, ids, reused
        self._numbers, self._known = numbers_of(snapshot, ids)
        self._new: dict[str, int] = {}

    def stored(self) -> Words:
        """Return the numbers that the store knows."""
        return self._numbers[self._known]

    def number_of(self, row: int) -> int | None:
        """Return the number of the id of a row; None if it has none yet."""
        return int(self._numbers[row]) if self._known[row] else self._new.get(self._ids[row])

    def take(self, row: int) -> int:
        """Return the number of the id of a row that is inserted."""
        name = self._ids[row]
        if not self._known[row]:
            return self._new.setdefault(
                str(name), self._snapshot.delta.next_string + len(self._new)
            )
        if isinstance(name, str):
            self._reused(int(self._numbers[row]))
        return int(self._numbers[row])

    @property
    def strings(self) -> list[bytes]:
        """The strings that have got numbers, in the order of these."""
        return [name.encode() for name in self._new]

    def names(self, numbers: Words) -> Words | list[str]:
        """Return the ids of numbers, also of those that are new."""
        if isinstance(self._ids, np.ndarray):
            return numbers
        new = HeldIds(list(self._new))
        named = names_of(NamesOfTwo(self._snapshot, new, self._snapshot.delta.next_string), numbers)
        return named if isinstance(named, list) else []


class _Content:
    """The ids of some fingerprints while rows change them.

    Probes find those that the store did not have.
    """

    def __init__(self, snapshot: StoreSnapshot, fingerprints: Words, radius: int) -> None:
        self._snapshot, self._radius, self._words = snapshot, radius, words_of(fingerprints)
        lims, numbers = snapshot.id_numbers(fingerprints)
        bounds = pairwise(lims.tolist())
        plain = numbers.tolist()
        self._before = {
            f: plain[a:b] for f, (a, b) in zip(rows_to_numbers(fingerprints), bounds, strict=True)
        }
        self._now: dict[int, list[int]] = {}  # of those that have changed
        self._new, self._version = _kernel.Delta(snapshot.radius, snapshot.delta.bits), 0

    def ids_of(self, fingerprint: int) -> list[int]:
        """Return the numbers of the ids of a fingerprint, ascending.

        None if it is not stored any more.
        """
        ids = self._now.get(fingerprint)
        return self._before[fingerprint] if ids is None else ids

    def new_near(self, value: int) -> list[tuple[int, int]]:
        """Return (distance, fingerprint) of those within the radius that the store did not have."""
        return [
            (distance, fingerprint)
            for fingerprint, distance in self._new.probe_one(value, self._radius, self._version)
        ]

    def add(self, fingerprint: int, number: int) -> None:
        """Give an id to a fingerprint."""
        ids = self._changed(fingerprint)
        if not ids and not self._before[fingerprint]:
            self._apply(ADD, fingerprint, number)
        insort(ids, number)

    def remove(self, fingerprint: int, number: int) -> None:
        """Take an id from a fingerprint."""
        ids = self._changed(fingerprint)
        ids.remove(number)
        if not ids and not self._before[fingerprint]:
            self._apply(WIPE, fingerprint, 0)

    def _changed(self, fingerprint: int) -> list[int]:
        return self._now.setdefault(fingerprint, list(self._before[fingerprint]))

    def _apply(self, kind: int, fingerprint: int, number: int) -> None:
        self._version += 1
        self._new.apply_one(kind, fingerprint, number, False, self._version)

    def change(self, totals: Totals, strings: list[bytes]) -> Change | None:
        """Return what all rows together have changed.

        ``totals`` has the kind of ids and the next row.
        """
        rows, fingerprints, pairs = list[Row](), 0, 0
        for fingerprint, now in self._now.items():
            before = self._before[fingerprint]
            fingerprints += bool(now) - bool(before)
            pairs += len(now) - len(before)
            added, removed = sorted({*now} - {*before}), sorted({*before} - {*now})
            rows += [(ADD, fingerprint, number) for number in added]
            rows += (
                [(REMOVE, fingerprint, number) for number in removed]
                if now
                else [(WIPE, fingerprint, 0)]
                if before
                else []
            )
        if not rows:
            return None
        kinds, values, numbers = zip(*rows, strict=True)
        keys = rows_of_numbers(values, self._words)
        totals = totals._replace(
            fingerprints=totals.fingerprints + fingerprints, ids=totals.ids + pairs
        )
        in_base = self._snapshot.delta.in_base(keys)
        return Change(
            totals,
            np.array(kinds, np.uint8) + IN_BASE * in_base,
            keys,
            np.array(numbers, np.uint64),
            strings,
        )
