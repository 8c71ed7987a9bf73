"""Rows to be added: their numbers, which of their pairs and fingerprints are already stored, and inserts that probe in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Bytes, Words
from fpstore.base.arrays import distinct_places
from fpstore.base.width import comparable, equal, order_of, row_of_number
from fpstore.errors import InputError
from fpstore.format.dictionary import NO_NUMBER
from fpstore.format.record import IN_BASE, REMOVE, WIPE, Change, Row, Totals
from fpstore.query.batches import MatchColumns, joined, no_matches
from fpstore.query.delta import ABSENT, PRESENT, Delta
from fpstore.query.snapshot import Snapshot

KIND_WORDS = {"row": "row numbers or other integers", "integer": "integers", "string": "strings"}

DROPPED = 2
MANY_IDS = 64  # per row; if there are more, they are searched and not put into a set


class NewRows(NamedTuple):
    """Rows to be added, with their ids as numbers, new strings, and the totals afterwards."""

    fingerprints: Words
    ids: Words
    strings: list[bytes]  # those that have no number yet
    totals: Totals  # with the kind of ids and the next row after the change


def repeats(fingerprints: Words, ids: Words) -> npt.NDArray[np.bool_]:
    """Return which pairs are equal to an earlier pair."""
    again = np.zeros(len(fingerprints), bool)
    if count_distinct(fingerprints) < len(fingerprints):
        order = order_of(fingerprints, ids)
        sorted_rows = fingerprints[order]
        same = equal(sorted_rows[1:], sorted_rows[:-1]) & (np.diff(ids[order]) == 0)
        again[order[1:][same]] = True  # lexsort is stable: the first of equal pairs comes first
    return again


def new_pairs(snapshot: Snapshot, fingerprints: Words, ids: Words, in_base: Bytes) -> npt.NDArray[np.bool_]:
    """Return which pairs are not stored yet; of equal rows, only the first counts."""
    new = ~repeats(fingerprints, ids)
    known = snapshot.delta.kernel.pairs(fingerprints, ids, snapshot.delta.version)
    new &= known != PRESENT
    ask = np.flatnonzero(new & (known == 0) & (in_base != 0))
    if len(ask):
        unique, place = distinct_places(fingerprints[ask])
        lims, numbers = snapshot.base_id_numbers(unique)
        owner = np.repeat(np.arange(len(unique)), np.diff(lims))
        stored = set(zip(owner.tolist(), numbers.tolist(), strict=True)) if len(numbers) < MANY_IDS * len(ask) else None
        for row, at in zip(ask.tolist(), place.tolist(), strict=True):
            if stored is not None:
                new[row] = (at, int(ids[row])) not in stored
            else:
                part = numbers[lims[at] : lims[at + 1]]
                found = int(np.searchsorted(part, ids[row]))
                new[row] = found == len(part) or part[found] != ids[row]
    return new


def absent(snapshot: Snapshot, fingerprints: Words, in_base: Bytes) -> npt.NDArray[np.bool_]:
    """Return which fingerprints are not stored."""
    states = snapshot.delta.kernel.states(fingerprints, snapshot.delta.version)
    return np.asarray((states == ABSENT) | ((states == 0) & (in_base == 0)))


def count_absent(snapshot: Snapshot, fingerprints: Words, in_base: Bytes) -> int:
    """Return the number of distinct fingerprints that are not stored."""
    return count_distinct(fingerprints[absent(snapshot, fingerprints, in_base)])


def last_of_each(fingerprints: Words, ids: Words | list[str]) -> tuple[Words, Words | list[str]]:
    """Return of the rows with the same id only the last."""
    if isinstance(ids, list):
        rows = list({identifier: row for row, identifier in enumerate(ids)}.values())
        return fingerprints[rows], [ids[row] for row in rows]
    distinct, places = np.unique(ids[::-1], return_index=True)
    return fingerprints[::-1][places], distinct


def leaving(snapshot: Snapshot, fingerprints: list[int], number: int) -> tuple[list[Row], int]:
    """Return the rows by which one id leaves some fingerprints, and how many of these die."""
    rows, dying = [], 0
    for fingerprint in fingerprints:
        ids, in_base = snapshot.id_numbers_of_one(fingerprint)
        dies = len(ids) == 1
        dying += dies
        kind = WIPE if dies else REMOVE
        rows.append((kind | IN_BASE if in_base else kind, fingerprint, 0 if dies else number))
    return rows, dying


def change_of(totals: Totals, rows: list[Row], strings: list[bytes], words: int) -> Change:
    """Return a change of a few rows, whose fingerprints have ``words`` words."""
    kinds, fingerprints, ids = zip(*rows, strict=True)
    values = np.concatenate([row_of_number(fingerprint, words) for fingerprint in fingerprints])
    return Change(totals, np.array(kinds, np.uint8), values, np.array(ids, np.uint64), strings)


def replaced(snapshot: Snapshot, rows: NewRows) -> tuple[Words, Words]:
    """Return the stored pairs that have the id of a row, but not its fingerprint; the rows have distinct ids."""
    fingerprints, ids = snapshot.with_ids(rows.ids)
    order = np.argsort(rows.ids)
    target = rows.fingerprints[order][np.searchsorted(rows.ids[order], ids)]
    other = ~equal(fingerprints, target)
    return fingerprints[other], ids[other]


def count_distinct(fingerprints: Words) -> int:
    """Return the number of distinct fingerprints; for a few thousand, a sort is several times as fast as NumPy's hash table."""
    values = np.sort(comparable(fingerprints))
    return int(np.count_nonzero(values[1:] != values[:-1])) + 1 if len(values) else 0


def is_fresh(snapshot: Snapshot) -> bool:
    """Whether a store has no id, and remembers none, so that the next ids decide the kind.

    After strings, integers can be the next, as no number of a string is in use. Strings after these wait for a merge: it forgets
    the old numbers, and counts from 0 again.
    """
    totals, delta = snapshot.totals, snapshot.delta
    if delta.strings or (delta.first_string and totals.id_kind != "string"):
        return False
    return totals.ids == 0 and totals.next_row == 0


def numbered(
    snapshot: Snapshot, path: Path, fingerprints: Words, ids: Words | Sequence[int | str] | None, reused: Callable[[int], object]
) -> NewRows:
    """Turn ids into numbers, and compute the totals afterwards; call ``reused`` with the number of each known string."""
    totals = snapshot.totals
    if ids is None:
        if totals.id_kind != "row" and not is_fresh(snapshot):
            raise InputError(f"{path}: its ids are {KIND_WORDS[totals.id_kind]}: give one for each row")
        end = totals.next_row + len(fingerprints)
        if end >= 2**64:
            raise InputError(f"{path}: the row numbers are used up: give ids")
        numbers = np.arange(totals.next_row, end, dtype=np.uint64)
        return NewRows(fingerprints, numbers, [], totals._replace(next_row=end, id_kind="row"))
    kind = kind_with(snapshot, path, ids)
    if not len(ids) or not isinstance(ids[0], str):
        numbers = np.asarray(ids, np.uint64)
        totals = totals._replace(id_kind=kind)
        return NewRows(fingerprints, numbers, [], totals.counting(int(numbers.max())) if len(numbers) else totals)
    numbers, strings = _numbers(snapshot, ids, reused)  # type: ignore[arg-type]
    return NewRows(fingerprints, numbers, strings, totals._replace(id_kind=kind))


def kind_with(snapshot: Snapshot, path: Path, ids: Words | Sequence[int | str]) -> str:
    """Return the kind of ids of the store once these are added; InputError for ids of another kind."""
    had = snapshot.totals.id_kind
    if not len(ids):
        return had
    strings = isinstance(ids[0], str)
    if is_fresh(snapshot):
        return "string" if strings else "integer"
    if strings != (had == "string"):
        got, hint = ("strings", "integers below 2^64") if strings else ("integers", "strings (--id-type str)")
        raise InputError(f"{path}: its ids are {KIND_WORDS[had]}, got {got}: give {hint}")
    return had


def _numbers(snapshot: Snapshot, ids: Sequence[str], reused: Callable[[int], object]) -> tuple[Words, list[bytes]]:
    encoded = [string.encode() for string in ids]
    numbers = snapshot.numbers_of_strings(encoded)
    known = numbers != NO_NUMBER
    for number in numbers[known].tolist():
        reused(number)
    fresh: dict[bytes, int] = {}
    following = snapshot.delta.next_string
    for i in np.flatnonzero(~known).tolist():
        numbers[i] = fresh.setdefault(encoded[i], following + len(fresh))
    return numbers, list(fresh)


def numbered_one(snapshot: Snapshot, identifier: int | str, reused: Callable[[int], object]) -> tuple[int, list[bytes]]:
    """Return the number of one id, and a list with its string if that is new; see :func:`numbered`."""
    if isinstance(identifier, int):
        return identifier, []
    encoded = identifier.encode()
    number = snapshot.number_of(identifier)
    if number is None:
        return snapshot.delta.next_string, [encoded]
    reused(number)
    return number, []


# Probes and inserts in order: the second of two near-duplicates finds the first


class RowsInOrder(NamedTuple):
    """The rows of a batch, and the state of the tables for each row."""

    fingerprints: Words
    ids: Words
    in_base: Bytes  # 1 for each fingerprint that is in the tables
    returning: npt.NDArray[np.bool_]  # in the tables but deleted: once it is inserted, later rows find it in the tables again
    dropped: npt.NDArray[np.bool_]  # never inserted
    near: MatchColumns  # in the tables, even those deleted since


def probe_insert_in_order(
    delta: Delta, rows: RowsInOrder, radius: int, always: bool
) -> tuple[MatchColumns, npt.NDArray[np.bool_]]:
    """Probe and insert rows in the delta, at new versions; return the columns of their matches, and which were inserted.

    With ``always``, rows that have matches are inserted too.
    """
    fingerprints = rows.fingerprints
    ends = sorted({*(np.flatnonzero(rows.returning) + 1).tolist(), len(fingerprints)})
    parts: list[MatchColumns] = []
    masks = [np.zeros(0, bool)]
    start = 0
    while start < len(fingerprints):
        end = ends[bisect_right(ends, start)]
        near = delta.kernel.combine(_part(rows.near, start, end), no_matches(fingerprints[start:end]), delta.version)
        matched = (np.diff(near[0]) > 0).astype(np.uint8)
        matched[rows.dropped[start:end]] = DROPPED
        version = delta.version + 1
        lims, found, distances, inserted = delta.kernel.probe_insert(
            fingerprints[start:end], rows.ids[start:end], matched, rows.in_base[start:end], radius, always, version
        )
        delta.version = version
        taken = len(inserted)  # fewer than given, if a row has many matches
        parts.append(delta.kernel.combine(_part(near, 0, taken), (lims, found, distances), version))
        masks.append(inserted.astype(bool))
        start += taken
    return joined(parts or [no_matches(fingerprints)]), np.concatenate(masks)


def _part(columns: MatchColumns, start: int, end: int) -> MatchColumns:
    lims, fingerprints, distances = columns
    a, b = lims[start], lims[end]
    return lims[start : end + 1] - a, fingerprints[a:b], distances[a:b]
