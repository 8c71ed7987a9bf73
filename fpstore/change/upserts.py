"""The decisions of :meth:`fpstore.Store.probe_upsert_many`: many rows in order, one change."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import list_lims
from fpstore.base.width import distinct_rows, numbers_to_rows, row_words, rows_to_numbers
from fpstore.change.decisions import NoteReused, kind_with
from fpstore.format.record import ADD, IN_BASE, REMOVE, WIPE, Change, Row, Totals
from fpstore.query.batches import MatchColumns
from fpstore.query.id_lookup import ChainedIds, InMemoryIds, ids_at
from fpstore.query.ids import numbers_of
from fpstore.query.store_snapshot import StoreSnapshot


@dataclass(frozen=True)
class UpsertResult:
    """The matches of each row, with the ids at its turn, and which rows were inserted."""

    matches: MatchColumns
    id_lims: Lims  # match m has ids[id_lims[m]:id_lims[m + 1]]
    ids: Words | list[str]
    inserted: npt.NDArray[np.bool_]


def probe_and_replace(
    snapshot: StoreSnapshot,
    fingerprints: Words,
    ids: Words | list[str],
    radius: int,
    threads: int,
    note_reused: NoteReused,
) -> tuple[Change | None, UpsertResult]:
    """Row by row, take the id from its other fingerprints, probe, and add the row if it is new."""
    totals = snapshot.totals._replace(id_kind=kind_with(snapshot, ids))
    numbers = _IdNumbers(snapshot, ids, note_reused)
    near = snapshot.probe_columns(fingerprints, radius, threads)
    assert near is not None
    lims, near_rows, near_distances = near
    pair_rows, pair_ids = snapshot.with_ids(numbers.stored())
    content = _PendingIds(
        snapshot, distinct_rows(np.concatenate([fingerprints, pair_rows, near_rows])), radius
    )
    fingerprints_by_id: dict[int, set[int]] = {}
    for fingerprint, number in zip(rows_to_numbers(pair_rows), pair_ids.tolist(), strict=True):
        fingerprints_by_id.setdefault(number, set()).add(fingerprint)
    stored, distances = rows_to_numbers(near_rows), near_distances.tolist()
    matches, counts = list[tuple[int, int]](), list[int]()
    id_numbers, id_counts = list[int](), list[int]()
    for row, (value, (start, end)) in enumerate(
        zip(rows_to_numbers(fingerprints), pairwise(lims.tolist()), strict=True)
    ):
        number = numbers.get(row)
        if number is not None:
            for other in fingerprints_by_id.get(number, set()) - {value}:
                content.remove(other, number)
                fingerprints_by_id[number].remove(other)
        row_matches = [
            match
            for match in zip(distances[start:end], stored[start:end], strict=True)
            if content.get_ids(match[1])
        ]
        row_matches = sorted(row_matches + content.new_near(value))
        for _, fingerprint in row_matches:
            id_numbers += content.get_ids(fingerprint)
            id_counts.append(len(content.get_ids(fingerprint)))
        matches += row_matches
        counts.append(len(row_matches))
        if not row_matches:
            number = numbers.take(row)
            content.add(value, number)
            fingerprints_by_id.setdefault(number, set()).add(value)
            totals = totals.counting(number)
    columns = (
        list_lims(counts),
        numbers_to_rows([fingerprint for _, fingerprint in matches], row_words(fingerprints)),
        np.array([distance for distance, _ in matches], near_distances.dtype),
    )
    match_ids = numbers.look_up(np.array(id_numbers, np.uint64))
    decisions = UpsertResult(
        columns, list_lims(id_counts), match_ids, np.array(counts, np.int64) == 0
    )
    return content.change(totals, numbers.strings), decisions


class _IdNumbers:
    """The numbers of the ids of rows; a new string gets one when its first row is inserted."""

    def __init__(
        self, snapshot: StoreSnapshot, ids: Words | list[str], note_reused: NoteReused
    ) -> None:
        self._snapshot, self._ids, self._note_reused = snapshot, ids, note_reused
        self._numbers, self._has_number = numbers_of(snapshot, ids)
        self._new: dict[str, int] = {}

    def stored(self) -> Words:
        return self._numbers[self._has_number]

    def get(self, row: int) -> int | None:
        return int(self._numbers[row]) if self._has_number[row] else self._new.get(self._ids[row])

    def take(self, row: int) -> int:
        """Return the number of the id of a row that is inserted."""
        name = self._ids[row]
        if not self._has_number[row]:
            return self._new.setdefault(
                str(name), self._snapshot.delta.next_string + len(self._new)
            )
        if isinstance(name, str):
            self._note_reused(int(self._numbers[row]))
        return int(self._numbers[row])

    @property
    def strings(self) -> list[bytes]:
        """The new strings, in the order of their numbers."""
        return [name.encode() for name in self._new]

    def look_up(self, numbers: Words) -> Words | list[str]:
        """Return the ids of stored and of new numbers."""
        if isinstance(self._ids, np.ndarray):
            return numbers
        new = InMemoryIds(list(self._new))
        ids = ids_at(ChainedIds(self._snapshot, new, self._snapshot.delta.next_string), numbers)
        return ids if isinstance(ids, list) else []  # of no numbers, in a store without ids


class _PendingIds:
    """The ids of fingerprints while rows change them; fingerprints new to the store are probed."""

    def __init__(self, snapshot: StoreSnapshot, fingerprints: Words, radius: int) -> None:
        self._snapshot, self._radius, self._words = snapshot, radius, row_words(fingerprints)
        lims, numbers = snapshot.id_numbers(fingerprints)
        bounds = pairwise(lims.tolist())
        plain = numbers.tolist()
        self._before = {
            f: plain[a:b] for f, (a, b) in zip(rows_to_numbers(fingerprints), bounds, strict=True)
        }
        self._now: dict[int, list[int]] = {}  # the ids of changed fingerprints
        self._new, self._version = _kernel.Delta(snapshot.radius, snapshot.delta.bits), 0

    def get_ids(self, fingerprint: int) -> list[int]:
        """Return the ascending id numbers of a fingerprint; none if it is not stored now."""
        ids = self._now.get(fingerprint)
        return self._before[fingerprint] if ids is None else ids

    def new_near(self, value: int) -> list[tuple[int, int]]:
        """Return (distance, fingerprint) of new fingerprints within the radius."""
        return [
            (distance, fingerprint)
            for fingerprint, distance in self._new.probe_one(value, self._radius, self._version)
        ]

    def add(self, fingerprint: int, number: int) -> None:
        ids = self._editable_ids(fingerprint)
        if not ids and not self._before[fingerprint]:
            self._apply(ADD, fingerprint, number)
        insort(ids, number)

    def remove(self, fingerprint: int, number: int) -> None:
        ids = self._editable_ids(fingerprint)
        ids.remove(number)
        if not ids and not self._before[fingerprint]:
            self._apply(WIPE, fingerprint, 0)

    def _editable_ids(self, fingerprint: int) -> list[int]:
        return self._now.setdefault(fingerprint, list(self._before[fingerprint]))

    def _apply(self, kind: int, fingerprint: int, number: int) -> None:
        self._version += 1
        self._new.apply_one(kind, fingerprint, number, False, self._version)

    def change(self, totals: Totals, strings: list[bytes]) -> Change | None:
        """Return the change of all rows; ``totals`` has the kind of ids and the next row."""
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
        keys = numbers_to_rows(values, self._words)
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
