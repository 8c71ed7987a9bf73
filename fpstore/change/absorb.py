"""Absorbing: a merge of a store with the content of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn, string_spans
from fpstore.building.strings import StringSpool
from fpstore.change.committer import Committer, remove_generation
from fpstore.change.content import PHASE_MERGE, SnapshotContent, UnitedContent
from fpstore.change.merge import Merge, MergeInput, MergeStart
from fpstore.disk.files import RUN_REPAIR
from fpstore.disk.temporary import array_on_disk
from fpstore.errors import CorruptStoreError, InputError
from fpstore.format.dictionary import NO_NUMBER
from fpstore.format.manifest import ABSORBING, generation_folder
from fpstore.format.record import LAST_ROW, Totals
from fpstore.query.store_snapshot import StoreSnapshot


class Absorb(Merge):
    """Merges the content of other stores, and the delta, into a new generation.

    Inserts wait meanwhile. With ``renumber``, the integer ids of each other store, in turn, go on
    from the largest so far.
    """

    keeps_the_turn = True

    def __init__(
        self,
        committer: Committer,
        resources: Resources,
        others: Sequence[StoreSnapshot],
        renumber: bool,
    ) -> None:
        super().__init__(committer, resources)
        self._others, self._renumber = others, renumber

    def _run(self) -> None:
        """Merge, holding the writer's turn.

        The strings of the other stores take the next numbers.
        """
        with self._committer.turn:
            frozen = self._freeze()
            kind = self._common_kind(frozen.snapshot)
            number = frozen.snapshot.generation.record.number + 1
            folder = self._tracker.path_inside() / (generation_folder(number) + ABSORBING)
            try:
                remove_generation(folder)
                folder.mkdir()
                self._work.expect(PHASE_MERGE, None)
                self._replace(frozen, self._union(frozen, kind, folder))
            finally:
                remove_generation(folder)  # with the files of the new strings

    def _common_kind(self, snapshot: StoreSnapshot) -> str:
        fingerprinter = snapshot.generation.manifest.fingerprinter
        kind, first = snapshot.totals.id_kind if snapshot.totals.ids else None, self._path
        for other in self._others:
            if other.width != snapshot.width:
                raise InputError(
                    f"{other.generation.path}: its fingerprints have {other.width.bits} bits, the "
                    f"fingerprints of {self._path} {snapshot.width.bits}: only stores of one width "
                    "are joined",
                    expected=snapshot.width.bits,
                    got=other.width.bits,
                )
            other_fingerprinter = other.generation.manifest.fingerprinter
            if None not in (fingerprinter, other_fingerprinter) and (
                fingerprinter != other_fingerprinter
            ):
                raise InputError(
                    f"{other.generation.path}: its fingerprints were made in another way than the "
                    f"fingerprints of {self._path}"
                )
            if not other.totals.ids:
                continue
            if kind is not None and (kind == "string") != (other.totals.id_kind == "string"):
                other_ids, first_ids = (
                    ("integers", "strings") if kind == "string" else ("strings", "integers")
                )
                raise InputError(
                    f"{other.generation.path}: its ids are {other_ids}, the ids of {first} are "
                    f"{first_ids}: only stores with ids of one kind are joined"
                )
            first = other.generation.path if kind is None else first
            kind = other.totals.id_kind if kind in (None, other.totals.id_kind) else "integer"
        if kind == "string" and self._renumber:
            raise InputError("string ids cannot be renumbered: leave renumber out")
        return kind or snapshot.totals.id_kind

    def _union(self, frozen: MergeStart, kind: str, folder: Path) -> MergeInput:
        snapshot = frozen.snapshot
        totals = [store.totals for store in (snapshot, *self._others)]
        counts = sum(t.fingerprints for t in totals), sum(t.ids for t in totals)
        sources, next_row = [SnapshotContent(snapshot)], snapshot.totals.next_row
        if kind == "string":
            new = StringSpool(folder, self._resources.memory, None, self._resources.threads)
            translations = [
                self._number_strings(frozen, other, new, folder) for other in self._others
            ]
            new.resolve(lambda rows: self._work.tick())
            sources += map(SnapshotContent, self._others, translations)
            return MergeInput(
                UnitedContent(sources),
                Totals(*counts, next_row, kind),
                is_union=True,
                new_strings=new,
            )
        end_of_ids = _next_number(snapshot) if self._renumber else 0
        for other in self._others:
            if self._renumber:
                sources.append(SnapshotContent(other, _shift(end_of_ids)))
                end_of_ids += _next_number(other)
                if end_of_ids > 2**64:
                    raise InputError(
                        f"{other.generation.path}: its ids would go over 2^64-1: absorb it "
                        "without renumber"
                    )
                next_row = max(next_row, min(end_of_ids, LAST_ROW))
            else:
                sources.append(SnapshotContent(other))
                next_row = max(next_row, other.totals.next_row)
        return MergeInput(UnitedContent(sources), Totals(*counts, next_row, kind), is_union=True)

    def _number_strings(
        self, frozen: MergeStart, other: StoreSnapshot, new: StringSpool, folder: Path
    ) -> Callable[[Words], Words]:
        """Give each string of another store a number in this one, in a table in a file.

        New strings go to the spool: until they are resolved, the table has their rows, counted from
        the first new number.
        """
        first, end = frozen.next_string, other.delta.next_string
        table: Words = array_on_disk((end,), np.uint64, folder)
        table[:] = NO_NUMBER
        for other_numbers, strings in _strings(other):
            self._work.tick()
            numbers = frozen.snapshot.numbers_of_strings(strings)
            unknown = np.flatnonzero(numbers == NO_NUMBER)
            numbers[unknown] = np.arange(
                first + new.rows, first + new.rows + len(unknown), dtype=np.uint64
            )
            new.add(StringColumn.from_strings([strings[i] for i in unknown.tolist()]))
            table[other_numbers] = numbers

        def translate(ids: Words) -> Words:
            if len(ids) and int(ids.max()) >= end:
                raise _missing_string_error(other, int(ids.max()))
            numbers: Words = np.asarray(table[ids])
            if (missing := numbers == NO_NUMBER).any():
                raise _missing_string_error(other, int(ids[missing][0]))
            is_new = numbers >= first
            rows = numbers[is_new] - np.uint64(first)
            numbers[is_new] = new.numbers_at(rows) + np.uint64(first)
            return numbers

        return translate


def _strings(snapshot: StoreSnapshot) -> Iterator[tuple[Words, list[bytes]]]:
    """Yield (numbers, strings) of the dictionary and the delta, in pieces."""
    if snapshot.generation.dictionary is not None:
        for first, column in snapshot.generation.dictionary.strings.columns():
            numbers = np.flatnonzero(column.sizes).astype(np.uint64) + np.uint64(first)
            if len(numbers):
                yield numbers, column.filter(column.sizes > 0).tolist()
    delta = snapshot.delta
    for span in string_spans(delta.strings):
        in_use = [number for number in range(span.start, span.stop) if delta.strings[number]]
        if in_use:
            yield (
                np.array(in_use, np.uint64) + np.uint64(delta.first_string),
                [delta.strings[number] for number in in_use],
            )


def _missing_string_error(store: StoreSnapshot, number: int) -> CorruptStoreError:
    folder = store.generation.folder
    return CorruptStoreError(
        f"{folder}: id number {number} has no string: {RUN_REPAIR}", path=folder, got=number
    )


def _next_number(snapshot: StoreSnapshot) -> int:
    # row numbers end with LAST_ROW
    if snapshot.totals.id_kind == "row" and snapshot.totals.next_row < LAST_ROW:
        return snapshot.totals.next_row
    return max((int(ids.max(initial=0)) + 1 for _, _, ids in snapshot.groups()), default=0)


def _shift(by: int) -> Callable[[Words], Words]:
    return lambda ids: ids + np.uint64(by)
