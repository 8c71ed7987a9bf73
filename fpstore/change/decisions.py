"""What a change adds and removes, decided by a snapshot.

Each decision is the change, or None, and what the call returns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Bytes, Words
from fpstore.base.arrays import NO_WORDS, distinct_places
from fpstore.base.keywords import in_python, keyword
from fpstore.base.width import (
    distinct_counts,
    distinct_rows,
    equal,
    is_member,
    number_to_row,
    row_order,
    rows_to_numbers,
    to_comparable,
)
from fpstore.change.committer import LoggedChange
from fpstore.errors import InputError
from fpstore.format.dictionary import NO_NUMBER
from fpstore.format.record import (
    ADD,
    IN_BASE,
    REMOVE,
    WIPE,
    Change,
    Row,
    Totals,
    pack_change,
    pack_one,
)
from fpstore.query.batches import MatchColumns, concatenate, empty_matches
from fpstore.query.delta import ABSENT, PRESENT, Delta
from fpstore.query.ids import number_of, numbers_of
from fpstore.query.matches import MatchList
from fpstore.query.store_snapshot import StoreSnapshot

KIND_WORDS = {"row": "row numbers or other integers", "integer": "integers", "string": "strings"}

DROPPED = 2
MANY_IDS = 64  # per row; if there are more, they are searched and not put into a set
NoteReused = Callable[[int], object]  # called with the number of each stored string


class Deleted(NamedTuple):
    """The result of :meth:`fpstore.Store.delete`.

    Attributes
    ----------
    removed : int
        Pairs of fingerprint and id that are gone.
    missing : int
        The number of ids, fingerprints or pairs of the call that were not stored; repeated ones
        count once.
    """

    removed: int
    missing: int


class SmallChange(NamedTuple):
    """A change of a few rows, without arrays."""

    totals: Totals
    rows: list[Row]
    strings: list[bytes]


class NewRows(NamedTuple):
    """Rows to be added, with their ids as numbers, and the totals afterwards."""

    fingerprints: Words
    ids: Words
    strings: list[bytes]  # new ones
    totals: Totals  # with the kind of ids and the next row after the change


def make_logged_change(snapshot: StoreSnapshot, change: Change | SmallChange) -> LoggedChange:
    delta = snapshot.delta
    if isinstance(change, SmallChange):
        words = snapshot.width.words
        totals, rows, strings = change
        if len(rows) == 1:
            return LoggedChange(
                pack_one(totals, rows[0], strings, words),
                totals,
                1,
                partial(delta.apply_one, rows[0], strings),
            )
        kinds, fingerprints, ids = zip(*rows, strict=True)
        values = np.concatenate([number_to_row(fingerprint, words) for fingerprint in fingerprints])
        change = Change(
            totals, np.array(kinds, np.uint8), values, np.array(ids, np.uint64), strings
        )
    return LoggedChange(
        pack_change(change), change.totals, len(change.kinds), partial(delta.apply, change)
    )


# Adding


def insertion(
    snapshot: StoreSnapshot,
    fingerprints: Words,
    ids: Words | list[str] | None,
    note_reused: NoteReused,
) -> tuple[Change | None, int]:
    """Add pairs; the result is the number of new ones."""
    rows = new_rows(snapshot, fingerprints, ids, note_reused)
    in_base = snapshot.delta.in_base(rows.fingerprints)
    new = new_pairs(snapshot, rows.fingerprints, rows.ids, in_base)
    added, added_ids, in_base = rows.fingerprints[new], rows.ids[new], in_base[new]
    if not len(added):
        return None, 0
    totals = rows.totals._replace(
        fingerprints=snapshot.totals.fingerprints + count_absent(snapshot, added, in_base),
        ids=snapshot.totals.ids + len(added),
    )
    return Change(totals, ADD + IN_BASE * in_base, added, added_ids, rows.strings), len(added)


def probe_and_insert_row(
    snapshot: StoreSnapshot,
    value: int,
    identifier: int | str,
    radius: int,
    always: bool,
    note_reused: NoteReused,
) -> tuple[SmallChange | None, MatchList]:
    """Probe, and add the row if nothing matched; the result is the matches."""
    kind = kind_with(snapshot, (identifier,))
    matches = snapshot.probe(value, radius)
    if matches and not always:
        return None, matches
    number, strings = number_or_string(snapshot, identifier, note_reused)
    stored, in_base = bool(matches) and matches[0].distance == 0, False
    # A fingerprint that does not match itself is in the tables only if it was deleted from them.
    if stored or snapshot.delta.kernel.removals:
        ids, in_base = snapshot.get_id_numbers(value)
        if number in ids:
            return None, matches
    before = snapshot.totals
    totals = Totals(
        before.fingerprints + (not stored), before.ids + 1, before.next_row, kind
    ).counting(number)
    return SmallChange(
        totals, [(ADD | IN_BASE if in_base else ADD, value, number)], strings
    ), matches


def replacement(
    snapshot: StoreSnapshot, fingerprints: Words, ids: Words | list[str], note_reused: NoteReused
) -> tuple[Change | None, int]:
    """Add pairs, and remove all others that have these ids.

    Of several rows with the same id, only the last counts. The result is the number of ids that
    changed.
    """
    fingerprints, ids = _keep_last_of_each_id(fingerprints, ids)
    rows = new_rows(snapshot, fingerprints, ids, note_reused)
    in_base = snapshot.delta.in_base(rows.fingerprints)
    new = new_pairs(snapshot, rows.fingerprints, rows.ids, in_base)
    added, added_ids, in_base = rows.fingerprints[new], rows.ids[new], in_base[new]
    gone, gone_ids = snapshot.with_ids(rows.ids)
    order = np.argsort(rows.ids)
    other = ~equal(gone, rows.fingerprints[order][np.searchsorted(rows.ids[order], gone_ids)])
    gone, gone_ids = gone[other], gone_ids[other]
    if not len(added) and not len(gone):
        return None, 0
    dying = without_ids(snapshot, gone, added)
    survives = ~is_member(gone, dying)
    # A fingerprint that dies gets no pair, so the order of the rows does not matter.
    removed, removed_ids = np.concatenate([dying, gone[survives]]), gone_ids[survives]
    kinds = np.repeat(
        np.array([ADD, WIPE, REMOVE], np.uint8), [len(added), len(dying), len(removed_ids)]
    )
    kinds += IN_BASE * np.concatenate([in_base, snapshot.delta.in_base(removed)])
    before = snapshot.totals
    totals = rows.totals._replace(
        fingerprints=before.fingerprints + count_absent(snapshot, added, in_base) - len(dying),
        ids=before.ids + len(added) - len(gone),
    )
    columns = (
        np.concatenate([added, removed]),
        np.concatenate([added_ids, np.zeros(len(dying), np.uint64), removed_ids]),
    )
    return Change(totals, kinds, *columns, rows.strings), len(np.union1d(added_ids, gone_ids))


def replacement_of_one(
    snapshot: StoreSnapshot, fingerprint: int, identifier: int | str, note_reused: NoteReused
) -> tuple[SmallChange | None, int]:
    """Do :func:`replacement` for one row."""
    kind = kind_with(snapshot, (identifier,))
    number, strings = number_or_string(snapshot, identifier, note_reused)
    before_change = [] if strings else snapshot.get_fingerprints(number)
    left_by_id = [value for value in before_change if value != fingerprint]
    is_new = len(left_by_id) == len(before_change)
    if not is_new and not left_by_id:
        return None, 0
    rows, dying = rows_without_id(snapshot, left_by_id, number)
    before = snapshot.totals
    count = before.fingerprints - dying
    if is_new:
        ids, in_base = snapshot.get_id_numbers(fingerprint)
        rows.append((ADD | IN_BASE if in_base else ADD, fingerprint, number))
        count += not ids
    totals = Totals(count, before.ids + is_new - len(left_by_id), before.next_row, kind).counting(
        number
    )
    return SmallChange(totals, rows, strings), 1


def probe_and_replace_row(
    snapshot: StoreSnapshot,
    value: int,
    identifier: int | str,
    radius: int,
    note_reused: NoteReused,
) -> tuple[SmallChange | None, MatchList]:
    """Take an id from all other fingerprints; probe, and add the row if nothing else matched."""
    kind = kind_with(snapshot, (identifier,))
    number = None if is_fresh(snapshot) else number_of(snapshot, identifier)
    left_by_id = (
        []
        if number is None
        else [other for other in snapshot.get_fingerprints(number) if other != value]
    )
    matches = MatchList()
    for match in snapshot.probe(value, radius):
        ids: Any = (
            [name for name in match.ids if name != identifier]
            if match.fingerprint in left_by_id
            else match.ids
        )
        matches += [match._replace(ids=ids)] if ids else []
    if matches and not left_by_id:
        return None, matches
    rows, dying = ([], 0) if number is None else rows_without_id(snapshot, left_by_id, number)
    before = snapshot.totals
    count, strings = before.fingerprints - dying, list[bytes]()
    if matches:
        return SmallChange(
            before._replace(fingerprints=count, ids=before.ids - len(left_by_id)), rows, strings
        ), matches
    number, strings = number_or_string(snapshot, identifier, note_reused)
    present_ids, in_base = snapshot.get_id_numbers(value)
    rows.append((ADD | IN_BASE if in_base else ADD, value, number))
    totals = Totals(
        count + (not present_ids), before.ids + 1 - len(left_by_id), before.next_row, kind
    ).counting(number)
    return SmallChange(totals, rows, strings), matches


# Deleting


def delete_by_fingerprints(
    snapshot: StoreSnapshot, fingerprints: Words
) -> tuple[Change | None, Deleted]:
    """Remove fingerprints with all their ids."""
    unique = distinct_rows(fingerprints)
    stored = unique[~is_absent(snapshot, unique, snapshot.delta.in_base(unique))]
    lims, _ = snapshot.id_numbers(stored)
    return _removal(
        snapshot, stored, int(lims[-1]), unique[:0], NO_WORDS, len(unique) - len(stored)
    )


def delete_by_ids(
    snapshot: StoreSnapshot, ids: Words | list[str]
) -> tuple[Change | SmallChange | None, Deleted]:
    """Remove every pair that has one of these ids."""
    if len(ids) == 1:
        number = number_of(snapshot, ids[0] if isinstance(ids, list) else int(ids[0]))
        left_by_id = [] if number is None else snapshot.get_fingerprints(number)
        if number is None or not left_by_id:
            return None, Deleted(0, 1)
        rows, dying = rows_without_id(snapshot, left_by_id, number)
        before = snapshot.totals
        totals = before._replace(
            fingerprints=before.fingerprints - dying, ids=before.ids - len(left_by_id)
        )
        return SmallChange(totals, rows, []), Deleted(len(left_by_id), 0)
    unique = list(dict.fromkeys(ids)) if isinstance(ids, list) else np.unique(ids)
    numbers, has_number = numbers_of(snapshot, unique)
    fingerprints, stored = snapshot.with_ids(numbers[has_number])
    return _remove_pairs(snapshot, fingerprints, stored, len(unique) - len(np.unique(stored)))


def delete_by_pairs(
    snapshot: StoreSnapshot, fingerprints: Words, ids: Words | list[str]
) -> tuple[Change | None, Deleted]:
    """Remove the pair of each row; other pairs of its fingerprint and of its id stay."""
    numbers, has_number = numbers_of(snapshot, ids)
    unknown = fingerprints[~has_number]  # their ids are strings that the store never had
    missing = len(set(zip(rows_to_numbers(unknown), compress(ids, ~has_number), strict=True)))
    fingerprints, numbers = fingerprints[has_number], numbers[has_number]
    once = ~repeats(fingerprints, numbers)
    fingerprints, numbers = fingerprints[once], numbers[once]
    gone = new_pairs(snapshot, fingerprints, numbers, snapshot.delta.in_base(fingerprints))
    return _remove_pairs(snapshot, fingerprints[~gone], numbers[~gone], missing + int(gone.sum()))


def _remove_pairs(
    snapshot: StoreSnapshot, fingerprints: Words, ids: Words, missing: int
) -> tuple[Change | None, Deleted]:
    """Remove distinct pairs, all of which are stored."""
    dying = without_ids(snapshot, fingerprints, fingerprints[:0])
    survives = ~is_member(fingerprints, dying)
    rows, row_ids = fingerprints[survives], ids[survives]
    return _removal(snapshot, dying, len(fingerprints), rows, row_ids, missing)


def _removal(
    snapshot: StoreSnapshot, dying: Words, pairs: int, fingerprints: Words, ids: Words, missing: int
) -> tuple[Change | None, Deleted]:
    if not pairs:
        return None, Deleted(0, missing)
    kinds = np.repeat(np.array([WIPE, REMOVE], np.uint8), [len(dying), len(fingerprints)])
    fingerprints, ids = (
        np.concatenate([dying, fingerprints]),
        np.concatenate([np.zeros(len(dying), np.uint64), ids]),
    )
    kinds += IN_BASE * snapshot.delta.in_base(fingerprints)
    totals = snapshot.totals._replace(
        fingerprints=snapshot.totals.fingerprints - len(dying), ids=snapshot.totals.ids - pairs
    )
    return Change(totals, kinds, fingerprints, ids, []), Deleted(pairs, missing)


def without_ids(snapshot: StoreSnapshot, gone: Words, added: Words) -> Words:
    """Return the fingerprints without an id after each of ``gone`` lost a pair.

    ``added`` get one.
    """
    unique, counts = distinct_counts(gone)
    lims, _ = snapshot.id_numbers(unique)
    dying: Words = unique[(np.diff(lims) == counts) & ~is_member(unique, added)]
    return dying


# Which rows are stored


def repeats(fingerprints: Words, ids: Words) -> npt.NDArray[np.bool_]:
    """Return which pairs are equal to an earlier pair."""
    repeated = np.zeros(len(fingerprints), bool)
    if count_distinct(fingerprints) < len(fingerprints):
        order = row_order(fingerprints, ids)
        sorted_rows = fingerprints[order]
        same = equal(sorted_rows[1:], sorted_rows[:-1]) & (np.diff(ids[order]) == 0)
        repeated[order[1:][same]] = True  # lexsort is stable: the first of equal pairs comes first
    return repeated


def new_pairs(
    snapshot: StoreSnapshot, fingerprints: Words, ids: Words, in_base: Bytes
) -> npt.NDArray[np.bool_]:
    """Return which pairs are not stored yet; of equal rows, only the first counts."""
    new = ~repeats(fingerprints, ids)
    states = snapshot.delta.kernel.pair_states(fingerprints, ids, snapshot.delta.version)
    new &= states != PRESENT
    unchanged = np.flatnonzero(new & (states == 0) & (in_base != 0))
    if len(unchanged):
        unique, place = distinct_places(fingerprints[unchanged])
        lims, numbers = snapshot.base_id_numbers(unique)
        owner = np.repeat(np.arange(len(unique)), np.diff(lims))
        stored = (
            set(zip(owner.tolist(), numbers.tolist(), strict=True))
            if len(numbers) < MANY_IDS * len(unchanged)
            else None
        )
        for row, at in zip(unchanged.tolist(), place.tolist(), strict=True):
            if stored is not None:
                new[row] = (at, int(ids[row])) not in stored
            else:
                row_ids = numbers[lims[at] : lims[at + 1]]
                rank = int(np.searchsorted(row_ids, ids[row]))
                new[row] = rank == len(row_ids) or row_ids[rank] != ids[row]
    return new


def is_absent(
    snapshot: StoreSnapshot, fingerprints: Words, in_base: Bytes
) -> npt.NDArray[np.bool_]:
    """Return which fingerprints are not stored."""
    states = snapshot.delta.kernel.states(fingerprints, snapshot.delta.version)
    return np.asarray((states == ABSENT) | ((states == 0) & (in_base == 0)))


def count_absent(snapshot: StoreSnapshot, fingerprints: Words, in_base: Bytes) -> int:
    """Return the number of distinct fingerprints that are not stored."""
    return count_distinct(fingerprints[is_absent(snapshot, fingerprints, in_base)])


def _keep_last_of_each_id(
    fingerprints: Words, ids: Words | list[str]
) -> tuple[Words, Words | list[str]]:
    if isinstance(ids, list):
        rows = list({identifier: row for row, identifier in enumerate(ids)}.values())
        return fingerprints[rows], [ids[row] for row in rows]
    distinct_ids, places = np.unique(ids[::-1], return_index=True)
    return fingerprints[::-1][places], distinct_ids


def rows_without_id(
    snapshot: StoreSnapshot, fingerprints: list[int], number: int
) -> tuple[list[Row], int]:
    """Return the rows that take an id from fingerprints, and how many fingerprints die."""
    rows, dying = [], 0
    for fingerprint in fingerprints:
        ids, in_base = snapshot.get_id_numbers(fingerprint)
        dies = len(ids) == 1
        dying += dies
        kind = WIPE if dies else REMOVE
        rows.append((kind | IN_BASE if in_base else kind, fingerprint, 0 if dies else number))
    return rows, dying


def count_distinct(fingerprints: Words) -> int:
    """Return the number of distinct fingerprints.

    For a few thousand, a sort is several times as fast as NumPy's hash table.
    """
    values = np.sort(to_comparable(fingerprints))
    return int(np.count_nonzero(values[1:] != values[:-1])) + 1 if len(values) else 0


def is_fresh(snapshot: StoreSnapshot) -> bool:
    """Whether a store has no id, and remembers none, so that the next ids decide the kind.

    After strings, integers can be the next, as no number of a string is in use. Strings after these
    wait for a merge: it forgets the old numbers, and counts from 0 again.
    """
    totals, delta = snapshot.totals, snapshot.delta
    if delta.strings or (delta.first_string and totals.id_kind != "string"):
        return False
    return totals.ids == 0 and totals.next_row == 0


def new_rows(
    snapshot: StoreSnapshot,
    fingerprints: Words,
    ids: Words | Sequence[int | str] | None,
    note_reused: NoteReused,
) -> NewRows:
    """Turn ids into numbers, and compute the totals afterwards."""
    totals, kind = snapshot.totals, kind_with(snapshot, ids)
    if ids is None:
        end = totals.next_row + len(fingerprints)
        if end >= 2**64:
            raise InputError(f"{snapshot.generation.path}: the row numbers are used up: give ids")
        numbers = np.arange(totals.next_row, end, dtype=np.uint64)
        return NewRows(fingerprints, numbers, [], totals._replace(next_row=end, id_kind=kind))
    if not len(ids) or not isinstance(ids[0], str):
        numbers = np.asarray(ids, np.uint64)
        totals = totals._replace(id_kind=kind)
        return NewRows(
            fingerprints,
            numbers,
            [],
            totals.counting(int(numbers.max())) if len(numbers) else totals,
        )
    numbers, strings = _numbers(snapshot, ids, note_reused)  # type: ignore[arg-type]
    return NewRows(fingerprints, numbers, strings, totals._replace(id_kind=kind))


def kind_with(
    snapshot: StoreSnapshot, ids: Words | Sequence[int | str] | None, path: Path | None = None
) -> str:
    """Return the kind of ids of the store once these are added; without ids, rows get numbers.

    InputError for ids of another kind, which names ``path``, or else the store.
    """
    kind, path = snapshot.totals.id_kind, path or snapshot.generation.path
    if ids is None:
        if kind != "row" and not is_fresh(snapshot):
            raise InputError(f"{path}: its ids are {KIND_WORDS[kind]}: give one for each row")
        return "row"
    if not len(ids):
        return kind
    strings = isinstance(ids[0], str)
    if is_fresh(snapshot):
        return "string" if strings else "integer"
    if strings != (kind == "string"):
        got, hint = (
            ("strings", "integers below 2^64")
            if strings
            else (
                "integers",
                "strings" if in_python() else f"strings ({keyword('id_type', 'str')})",
            )
        )
        raise InputError(f"{path}: its ids are {KIND_WORDS[kind]}, got {got}: give {hint}")
    return kind


def _numbers(
    snapshot: StoreSnapshot, ids: Sequence[str], note_reused: NoteReused
) -> tuple[Words, list[bytes]]:
    encoded = [string.encode() for string in ids]
    numbers = snapshot.numbers_of_strings(encoded)
    stored = numbers != NO_NUMBER
    for number in numbers[stored].tolist():
        note_reused(number)
    new: dict[bytes, int] = {}
    next_string = snapshot.delta.next_string
    for i in np.flatnonzero(~stored).tolist():
        numbers[i] = new.setdefault(encoded[i], next_string + len(new))
    return numbers, list(new)


def number_or_string(
    snapshot: StoreSnapshot, identifier: int | str, note_reused: NoteReused
) -> tuple[int, list[bytes]]:
    """Return the number of one id, and a list with its string if that is new."""
    if isinstance(identifier, int):
        return identifier, []
    encoded = identifier.encode()
    number = snapshot.number_of(identifier)
    if number is None:
        return snapshot.delta.next_string, [encoded]
    note_reused(number)
    return number, []


# Probes and inserts in order: the second of two near-duplicates finds the first


def probe_insert_in_order(
    delta: Delta,
    fingerprints: Words,
    ids: Words,
    in_base: Bytes,
    returning: npt.NDArray[np.bool_],
    dropped: npt.NDArray[np.bool_],
    near_in_tables: MatchColumns,
    radius: int,
    always: bool,
) -> tuple[MatchColumns, npt.NDArray[np.bool_]]:
    """Probe and insert rows in the delta, at new versions.

    Return the columns of their matches, and which were inserted.

    A ``returning`` row is in the tables but deleted: once it is inserted, later rows find it in the
    tables again. A ``dropped`` row is never inserted. ``near_in_tables`` has all matches in the
    tables, also the deleted ones. With ``always``, rows that have matches are inserted too.
    """
    ends = sorted({*(np.flatnonzero(returning) + 1).tolist(), len(fingerprints)})
    parts: list[MatchColumns] = []
    masks = [np.zeros(0, bool)]
    start = 0
    while start < len(fingerprints):
        end = ends[bisect_right(ends, start)]
        near = delta.kernel.combine(
            _part(near_in_tables, start, end), empty_matches(fingerprints[start:end]), delta.version
        )
        matched = (np.diff(near[0]) > 0).astype(np.uint8)
        matched[dropped[start:end]] = DROPPED
        version = delta.version + 1
        lims, rows, distances, inserted = delta.kernel.probe_insert(
            fingerprints[start:end],
            ids[start:end],
            matched,
            in_base[start:end],
            radius,
            always,
            version,
        )
        delta.version = version
        done = len(inserted)  # fewer than the rows of the call, if a row has many matches
        parts.append(delta.kernel.combine(_part(near, 0, done), (lims, rows, distances), version))
        masks.append(inserted.astype(bool))
        start += done
    return concatenate(parts or [empty_matches(fingerprints)]), np.concatenate(masks)


def _part(columns: MatchColumns, start: int, end: int) -> MatchColumns:
    lims, fingerprints, distances = columns
    a, b = lims[start], lims[end]
    return lims[start : end + 1] - a, fingerprints[a:b], distances[a:b]
