"""Whole stores: several joined into one, which is a merge of all their content, and one split into several."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import check_whole
from fpstore.base.resources import Resources
from fpstore.base.strings import string_spans
from fpstore.building.generation_writer import GenerationWriter, Work, finish_store
from fpstore.building.strings import StringSpool
from fpstore.building.target import Target, refuse_inside_store
from fpstore.change.committer import Committer, remove_generation
from fpstore.change.content import PHASE_MERGE, Content, JoinedContent, SnapshotContent, write_sorted
from fpstore.change.merge import Merge
from fpstore.change.merged_strings import MergedStrings
from fpstore.disk.files import RUN_REPAIR
from fpstore.disk.folders import sync_folder
from fpstore.disk.refusals import NOTHING_CHANGED, refusing
from fpstore.disk.temporary import array_on_disk
from fpstore.errors import CorruptStoreError, InputError
from fpstore.format.dictionary import NO_NUMBER
from fpstore.format.manifest import IDENTITY_BYTES, JOINED, generation_folder
from fpstore.format.record import LAST_ROW, Totals
from fpstore.query.snapshot import Snapshot

MOST_BITS = 8  # by which a store is split


class Join(Merge):
    """Merges the content of other stores, and the delta, into a new generation. Inserts wait meanwhile.

    With ``renumber``, the integer ids of each other store, in turn, go on from the largest so far.
    """

    keeps_the_turn = True

    def __init__(self, committer: Committer, others: Sequence[Snapshot], renumber: bool, resources: Resources) -> None:
        super().__init__(committer, resources)
        self._others, self._renumber = others, renumber

    def _run(self) -> None:
        """Merge, holding the writer's turn: the strings of the other stores take the next numbers."""
        with self._committer.turn:
            snapshot = self._freeze()
            self._kind = self._common_kind(snapshot)
            self._next_row = snapshot.totals.next_row
            self._folder = self._tracker.inside() / (generation_folder(snapshot.generation.record.number + 1) + JOINED)
            try:
                remove_generation(self._folder)
                self._folder.mkdir()
                self._work.expect(PHASE_MERGE, None)
                self._joined = self._sources(snapshot)
                self._replace(snapshot)
            finally:
                self._new_strings = None
                remove_generation(self._folder)  # with the files of the new strings

    def _common_kind(self, snapshot: Snapshot) -> str:
        made = snapshot.generation.manifest.fingerprinter
        kind, first = snapshot.totals.id_kind if snapshot.totals.ids else None, self._path
        for other in self._others:
            if other.width != snapshot.width:
                raise InputError(
                    f"{other.generation.path}: its fingerprints have {other.width.bits} bits, those of {self._path} "
                    f"{snapshot.width.bits}: only stores of one width are joined",
                    expected=snapshot.width.bits, got=other.width.bits,
                )  # fmt: skip
            theirs = other.generation.manifest.fingerprinter
            if made is not None and theirs is not None and made != theirs:
                raise InputError(
                    f"{other.generation.path}: its fingerprints were made in another way than the fingerprints of {self._path}"
                )
            if not other.totals.ids:
                continue
            if kind is not None and (kind == "string") != (other.totals.id_kind == "string"):
                theirs_are, first_are = ("integers", "strings") if kind == "string" else ("strings", "integers")
                raise InputError(
                    f"{other.generation.path}: its ids are {theirs_are}, those of {first} are {first_are}: "
                    "only stores with ids of one kind are joined"
                )
            first = other.generation.path if kind is None else first
            kind = other.totals.id_kind if kind in (None, other.totals.id_kind) else "integer"
        if kind == "string" and self._renumber:
            raise InputError("string ids cannot be renumbered: leave renumber out")
        return kind or snapshot.totals.id_kind

    def _sources(self, snapshot: Snapshot) -> Content:
        sources = [SnapshotContent(snapshot)]
        end_of_ids = _end_of_ids(snapshot) if self._renumber else 0
        delta = snapshot.delta
        if self._kind == "string":
            self._new_strings = new = StringSpool(self._folder, self._resources.memory, None, self._resources.threads)
            first = delta.first_string + len(self._strings)
            translations = [self._translation(snapshot, other, new, first) for other in self._others]
            new.resolve(lambda rows: self._work.tick())
            return JoinedContent([*sources, *map(SnapshotContent, self._others, translations)])
        for other in self._others:
            if self._renumber:
                sources.append(SnapshotContent(other, _shift(end_of_ids)))
                end_of_ids += _end_of_ids(other)
                if end_of_ids > 2**64:
                    raise InputError(f"{other.generation.path}: its ids would go over 2^64-1: merge without renumber")
                self._next_row = max(self._next_row, min(end_of_ids, LAST_ROW))
            else:
                sources.append(SnapshotContent(other))
                self._next_row = max(self._next_row, other.totals.next_row)
        return JoinedContent(sources)

    def _translation(self, snapshot: Snapshot, other: Snapshot, new: StringSpool, first: int) -> Callable[[Words], Words]:
        """Give each string of another store a number in this one; keep the table of numbers in a file.

        New strings go to the spool: until they are resolved, the table has their rows, counted from ``first``.
        """
        end = other.delta.next_string
        table: Words = array_on_disk((end,), np.uint64, self._folder)
        table[:] = NO_NUMBER
        for theirs, strings in _strings_of(other):
            self._work.tick()
            numbers = snapshot.numbers_of_strings(strings)
            unknown = np.flatnonzero(numbers == NO_NUMBER)
            numbers[unknown] = np.arange(first + new.rows, first + new.rows + len(unknown), dtype=np.uint64)
            new.add([strings[i] for i in unknown.tolist()])
            table[theirs] = numbers

        def translated(ids: Words) -> Words:
            if len(ids) and int(ids.max()) >= end:
                raise _unknown(other, int(ids.max()))
            found: Words = np.asarray(table[ids])
            if (missing := found == NO_NUMBER).any():
                raise _unknown(other, int(ids[missing][0]))
            fresh = found >= first
            found[fresh] = new.numbers_at(found[fresh] - np.uint64(first)) + np.uint64(first)
            return found

        return translated

    def _expected(self, snapshot: Snapshot) -> int:
        return snapshot.totals.fingerprints + sum(other.totals.fingerprints for other in self._others)

    def _has_strings(self, snapshot: Snapshot) -> bool:
        return self._kind == "string"

    def _source(self, snapshot: Snapshot) -> Content:
        return self._joined

    def _totals(self, snapshot: Snapshot, written: GenerationWriter) -> Totals:
        return Totals(written.fingerprints, written.ids, self._next_row, self._kind)


def _strings_of(snapshot: Snapshot) -> Iterator[tuple[Words, list[bytes]]]:
    """Yield (numbers, strings) of the dictionary and the delta, in pieces of some bytes."""
    if snapshot.generation.dictionary is not None:
        for first, column in snapshot.generation.dictionary.strings.columns():
            numbers = np.flatnonzero(column.sizes).astype(np.uint64) + np.uint64(first)
            if len(numbers):
                yield numbers, column.filter(column.sizes > 0).tolist()
    delta = snapshot.delta
    for some in string_spans(delta.strings):
        in_use = [number for number in range(some.start, some.stop) if delta.strings[number]]
        if in_use:
            yield np.array(in_use, np.uint64) + np.uint64(delta.first_string), [delta.strings[number] for number in in_use]


def _unknown(store: Snapshot, number: int) -> CorruptStoreError:
    folder = store.generation.folder
    return CorruptStoreError(f"{folder}: id number {number} has no string: {RUN_REPAIR}", path=folder, got=number)


def _end_of_ids(snapshot: Snapshot) -> int:
    if snapshot.totals.id_kind == "row" and snapshot.totals.next_row < LAST_ROW:  # the last one does not count further
        return snapshot.totals.next_row
    return max((int(ids.max(initial=0)) + 1 for _, _, ids in snapshot.groups()), default=0)


def _shift(by: int) -> Callable[[Words], Words]:
    return lambda ids: ids + np.uint64(by)


# Splitting, the inverse of joining


def split_store(snapshot: Snapshot, folder: Path, bits: int, overwrite: bool, resources: Resources) -> list[Path]:
    """Write one store per value of the leading bits; return their paths."""
    bits = check_whole(bits, 1, MOST_BITS, "bits")
    refuse_inside_store(folder / "0.fps")
    new = not folder.exists()
    paths = [folder / f"{prefix:0{bits}b}.fps" for prefix in range(1 << bits)]
    try:
        with refusing(folder, NOTHING_CHANGED):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.absolute().parent)
        for prefix, path in enumerate(paths):
            with Target(path, overwrite) as temporary:
                _write_part(snapshot, SnapshotContent(snapshot, part=(bits, prefix)), temporary, resources)
    except BaseException:
        if new:
            with suppress(OSError):  # a part is complete
                folder.rmdir()
        raise
    return paths


def _write_part(snapshot: Snapshot, part: SnapshotContent, folder: Path, resources: Resources) -> None:
    generation, manifest = folder / generation_folder(1), snapshot.generation.manifest
    generation.mkdir()
    delta, totals = snapshot.delta, snapshot.totals
    writer = GenerationWriter(generation, manifest.blocks, Work(resources.progress))
    used = np.zeros(delta.next_string, bool) if totals.id_kind == "string" else None
    write_sorted(writer, part, manifest.design, resources, used)
    if used is not None:
        strings = MergedStrings(snapshot.generation.dictionary, delta.first_string, delta.strings, None, used)
        writer.write_dictionary(strings, resources.threads, used)
    if used is not None or manifest.index_ids:
        writer.write_places(resources.memory)
    record = writer.record(1, totals)
    finish_store(folder, manifest._replace(identity=os.urandom(IDENTITY_BYTES), generation=record))
