"""Repairing a damaged store: a new one is made from everything of it that is intact, and what is lost is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.building.target import refuse_inside_store
from fpstore.care.found_set import Changes, FoundSet, Unit
from fpstore.care.found_settings import DAMAGE, Settings
from fpstore.care.in_place import free_name, keep_still, swap, take_lock
from fpstore.care.lost_file import LostFile
from fpstore.care.salvage import IdRecords, SalvagedStrings, check_pages, check_seal, find_records, is_foreign, read_records
from fpstore.care.verify import verify_store
from fpstore.disk.folders import remove_tree
from fpstore.disk.refusals import is_damage
from fpstore.errors import (
    CorruptStoreError,
    FpstoreError,
    InputError,
    StorageError,
    StoreExistsError,
    StoreNotFoundError,
)
from fpstore.format import layout
from fpstore.query.delta import LAST_ROW, Record
from fpstore.query.journal import lock_path
from fpstore.query.tracker import Tracker, generation_numbers
from fpstore.resources import parse_memory, parse_threads

if TYPE_CHECKING:
    from fpstore.building.builder import Options

Words = npt.NDArray[np.uint64]
Progress = Callable[[str, int, int | None], None]
PHASE_RECOVER = "recovering"
BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 22  # of strings
PIECE_NUMBERS = 1 << 16
NUMBERS_SHARE = 4  # of the budget, for a byte a number


@dataclass
class RepairReport:
    """What ``repair`` found, did, and could not do.

    Attributes
    ----------
    sound : bool
        Nothing is wrong, and nothing was written.
    faults : list of str
        What is wrong.
    actions : list of str
        What was done.
    losses : list of str
        What could not be recovered. Empty: the new store holds all that the old one held.
    output : str or None
        The new store.
    damaged : str or None
        Where the damaged store is now, if the new one took its place.
    lost_file : str or None
        Tab-separated: kind, fingerprint, id. Kind ``fingerprint``: it has no id left and is not in the new store; ``ids``: it has
        lost some of its ids; ``name``: the string of an id is lost, and only its number is known; ``id``: no intact record has
        this id, which is lost or was deleted before.
    fingerprints, ids : int
        In the new store.
    """

    sound: bool = False
    faults: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    output: str | None = None
    damaged: str | None = None
    lost_file: str | None = None
    fingerprints: int = 0
    ids: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing was lost."""
        return not self.losses

    def note(self, error: FpstoreError) -> None:
        """Add a fault; raise an error that is this process's, not the store's."""
        if not is_damage(error):
            raise error
        if str(error) not in self.faults:
            self.faults.append(str(error))


class _Part(NamedTuple):
    """Rows for the builder."""

    fingerprints: Words
    ids: Words | list[str]

    def share(self) -> float:
        """Return how much of a batch this fills."""
        strings = sum(map(len, self.ids)) if isinstance(self.ids, list) else 0
        return max(len(self.fingerprints) / BATCH_ROWS, strings / BATCH_BYTES)


def _batches(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Put small parts together."""
    waiting: list[_Part] = []
    filled = 0.0
    for part in parts:
        waiting.append(part)
        filled += part.share()
        if filled >= 1:
            yield _joined(waiting)
            waiting, filled = [], 0.0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[_Part]) -> _Part:
    fingerprints = np.concatenate([part.fingerprints for part in parts])
    if isinstance(parts[0].ids, list):
        return _Part(fingerprints, [name for part in parts for name in part.ids])
    return _Part(fingerprints, np.concatenate([part.ids for part in parts]))


def repair_store(
    path: Path,
    output: Path | None,
    in_place: bool,
    lost: Path | None,
    memory: int | str | None,
    threads: int | None,
    progress: Progress | None,
) -> RepairReport:
    """Make a sound store of a damaged one; see :func:`fpstore.repair`."""
    if output is not None and in_place:
        raise InputError("a repair writes either to another path or in place: give output or in_place, not both")
    if not path.is_dir() or not ((path / layout.STORE_FILE).exists() or generation_numbers(path)):
        raise StoreNotFoundError(f"{path}: no such store", path=path)
    if in_place:
        path = path.resolve()  # through a link, the store that it names
    target = output or path.with_name(f".{path.name}.repairing" if in_place else f"{path.name}.repaired")
    lost = lost or free_name(path, ".lost", ".tsv")
    for written in (target, lost):
        refuse_inside_store(written)
    report = RepairReport()
    with ExitStack() as stack:
        if in_place:
            stack.callback(take_lock(path).release)
            remove_tree(target)  # what a repair that was killed has left: whoever has the lock is the only one
        elif (lock := keep_still(path)) is not None:
            stack.callback(os.close, lock)
        _Repair(path, report, progress).run(target, lost, memory, threads)
        if not report.sound and in_place:
            report.output, report.damaged = str(path), str(swap(target, path))
            report.actions.append(f"{path} is the repaired store now; the damaged one is {report.damaged}")
    return report


class _Repair:
    def __init__(self, path: Path, report: RepairReport, progress: Progress | None) -> None:
        self._path, self._report, self._progress = path, report, progress

    def run(self, target: Path, lost: Path, memory: int | str | None, threads: int | None) -> None:
        report = self._report
        self._memory, threads = parse_memory(memory), parse_threads(threads)
        self._choose_generation()
        if self._is_sound():
            report.sound = True
            return
        if target.exists() or target.is_symlink():
            raise StoreExistsError(f"{target} exists: move it away, or choose another path", path=target)
        if not target.parent.is_dir():
            raise StorageError(f"{target.parent}: no such folder", path=target.parent)
        self._find_settings()
        with ExitStack() as stack:
            self._find_content(target, stack)
            self._lost = LostFile(lost)
            stack.callback(self._lost.abort)
            self._write(target, threads)

    def _write(self, target: Path, threads: int) -> None:
        """Write the new store and the list of what is lost."""
        from fpstore.building.builder import Options, build_store

        options = Options(
            radius=self._settings.design.radius, design=self._settings.shape(), memory=self._memory, threads=threads,
            block_bytes=self._settings.block_bytes, fingerprinter=self._store.get("fingerprinter"), progress=self._progress,
            id_kind=self._id_kind, rows=self._next_row, auto=self._store.get("auto"),
        ).checked()  # fmt: skip
        options.reserved = self._set.memory + self._ids.memory + self._names.memory
        build_store(target, _batches(self._rows(options)), None, options, overwrite=False)
        self._check(target)
        self._finish_lost()

    # What is there

    def _choose_generation(self) -> None:
        """Find the generation that is current: the first whose journal does not say that there is a later one."""
        numbers = generation_numbers(self._path)
        self._journals = {
            n: find_records(self._path / layout.generation_name(n) / layout.JOURNAL_FILE, (b"state", b"moved")) for n in numbers
        }
        current = [n for n in numbers if not self._journals[n][b"moved"]] or numbers[-1:]
        current.sort(key=lambda n: (not self._tables_of(n), not self._journals[n][b"state"], n))
        if not current:
            raise CorruptStoreError(f"{self._path}: there is no generation left: nothing can be recovered", path=self._path)
        self._number = current[0]
        self._folder = self._path / layout.generation_name(self._number)
        self._journal = self._folder / layout.JOURNAL_FILE

    def _tables_of(self, number: int) -> list[Path]:
        return sorted((self._path / layout.generation_name(number)).glob("table-*.fpt"))

    def _is_sound(self) -> bool:
        report = self._report
        # First without LMDB, which a damaged file could make end the process.
        for file in (self._path / layout.STORE_FILE, self._folder / layout.IDS_FILE, self._folder / layout.STRINGS_FILE):
            try:
                if file.name != layout.STRINGS_FILE or file.exists():
                    check_seal(file)
            except DAMAGE as error:
                report.note(error)
        if lock_path(self._journal).exists() and not self._journal.exists():
            report.note(StoreNotFoundError(f"{self._journal}: missing, while its lock file is there", path=self._journal))
        if self._journal.exists():
            try:
                check_pages(self._journal)
            except DAMAGE as error:
                report.note(error)
        if report.faults:
            return False
        try:
            tracker = Tracker(self._path)
            try:
                found = verify_store(tracker.snapshot(), tracker.journal, self._progress)
            finally:
                tracker.close()
        except DAMAGE as error:
            report.note(error)
            return False
        report.faults += [fault["message"] for fault in found.faults]
        return found.ok

    def _find_settings(self) -> None:
        found = Settings(self._path, self._number, self._journals[self._number][b"state"], self._report)
        self._settings, self._store, self._generation, self._state = found, found.store, found.generation, found.state
        self._count, self._digest = found.count, found.digest

    def _find_content(self, target: Path, stack: ExitStack) -> None:
        report, room = self._report, self._memory // 8
        self._set = FoundSet(
            self._settings.tables, self._count, self._digest, self._settings.block_bytes, target, self._memory
        )  # fmt: skip
        stack.callback(self._set.close)
        if self._set.complete:
            whole = "" if not self._set.has_gaps else ", with the help of other tables"
            report.actions.append(f"recovered all {self._count} fingerprints of the tables{whole}")
        else:
            report.losses.append(
                f"{self._count - self._set.count} of {self._count} fingerprints of the tables, which are not known"
            )
        record = self._generation
        ids = self._ours(self._folder / layout.IDS_FILE, record.get("ids_file"))
        self._ids = IdRecords(ids[0] if ids else None, self._digest, self._set.block_count, target.parent, room)
        stack.callback(self._ids.close)
        if self._ids.found < self._set.block_count:
            report.actions.append(f"recovered {self._ids.found} of {self._set.block_count} id records")
        # A number stands for the same string in both, where both have it.
        names = self._ours(self._folder / layout.STRINGS_FILE, record.get("strings_file"))
        names += self._ours(self._path / layout.STORE_FILE, {"digest": self._state.get("store_file")})
        self._names = SalvagedStrings(names, target.parent, room)
        stack.callback(self._names.close)
        records: list[Record] = []
        if self._journal.exists() or self._number != 1 or lock_path(self._journal).exists():
            records, complete = read_records(self._journal, report.note)
            self._note_gaps([record.number for record in records], complete)
        totals = records[-1].totals._asdict() if records else self._state.get("totals", {})
        self._totals = totals
        self._changes = Changes(records, self._state.get("first_string"))
        self._id_kind = str(totals.get("id_kind") or self._kind_of_old())
        self._next_row = int(totals.get("next_row") or self._generation.get("rows") or 0)
        if records:
            report.actions.append(f"applied {len(records)} log records")

    def _ours(self, path: Path, recorded: dict[str, Any] | None) -> list[Path]:
        """Return the path, unless it is known to be that of a file of another store."""
        if recorded is None or not is_foreign(path, recorded["digest"]):
            return [path]
        self._report.note(CorruptStoreError(f"{path}: a file of another store or of another time: nothing was taken from it"))
        return []

    def _kind_of_old(self) -> str:
        """Return the kind of ids when nothing says how it is now: an insert may have changed what the first generation had."""
        kind = self._store.get("id_kind")
        if kind is not None and self._settings.own:
            return str(kind)
        if len(self._names):
            kind = "string"
        elif kind in (None, "string"):
            kind = "integer"
        self._report.losses.append(f"the kind of ids: taken for {kind}s")
        return str(kind)

    def _note_gaps(self, numbers: list[int], complete: bool) -> None:
        report = self._report
        if not self._journal.exists():
            report.losses.append("the journal: all that was inserted or deleted since the last merge, if anything was")
            return
        missing, expected = [], 1
        for number in numbers:
            if number > expected:
                missing.append(f"{expected} to {number - 1}" if number - 1 > expected else str(expected))
            expected = number + 1
        if missing:
            report.losses.append(
                f"log records {', '.join(missing)}: what they inserted is missing, what they deleted is back; "
                "later ones were applied"
            )
        if not complete:
            report.losses.append(
                f"log records after {expected - 1}, if there were any: what they inserted is missing, what they deleted is back"
            )

    # What is written

    def _rows(self, options: Options) -> Iterator[_Part]:
        """Yield what the new store holds, and note what is lost; a next row number that is lost too is made out."""
        done = 0
        left = np.ones(len(self._changes.touched), bool)
        for unit in self._set.units(self._ids):
            if self._id_kind == "row" and not self._totals and len(unit.ids):
                options.rows = max(options.rows, min(int(unit.ids.max()) + 1, LAST_ROW))
            yield from self._changed(unit, left)
            done += len(unit.values)
            if self._progress is not None:
                self._progress(PHASE_RECOVER, done, self._count)
        for place, value in enumerate(self._changes.touched):
            if left[place]:
                yield from self._part([int(value)], [self._changes.at(place).ids([])])

    def _changed(self, unit: Unit, left: npt.NDArray[np.bool_]) -> Iterator[_Part]:
        places, touched = self._changes.places(unit.values)
        if unit.known and self._id_kind != "string" and not touched.any():
            yield _Part(np.repeat(unit.values, unit.counts.astype(np.int64)), unit.ids)
            return
        ends = np.cumsum(unit.counts).tolist()
        values, ids = unit.values.tolist(), unit.ids.tolist()
        kept = []
        for i, value in enumerate(values):
            numbers = ids[ends[i - 1] if i else 0 : ends[i]]
            changed = self._changes.at(places[i]) if touched[i] else None
            if changed is not None:
                left[places[i]] = False
                numbers = changed.ids(numbers)
            if not unit.known and not (changed is not None and changed.wiped):
                self._lost.add("ids" if numbers else "fingerprint", f"{value:016x}", "")
            kept.append(numbers)
        yield from self._part(values, kept)

    def _part(self, values: list[int], ids: list[list[int]]) -> Iterator[_Part]:
        fingerprints: list[int] = []
        numbers: list[int] = []
        names: list[str] = []
        room = BATCH_BYTES
        for value, own in zip(values, ids, strict=True):
            found = 0
            for number in own:
                if self._id_kind == "string":
                    name = self._changes.names.get(number) or self._names.get(number)
                    if name is None:
                        self._lost.add("name", f"{value:016x}", f"{number}")
                        continue
                    names.append(name.decode())
                    room -= len(name)
                numbers.append(number)
                fingerprints.append(value)
                found += 1
                if room < 0:
                    yield self._rows_of(fingerprints, numbers, names)
                    fingerprints, numbers, names, room = [], [], [], BATCH_BYTES
            if own and not found:
                self._lost.add("fingerprint", f"{value:016x}", "")
        if fingerprints:
            yield self._rows_of(fingerprints, numbers, names)

    def _rows_of(self, fingerprints: list[int], numbers: list[int], names: list[str]) -> _Part:
        return _Part(np.array(fingerprints, np.uint64), names if self._id_kind == "string" else np.array(numbers, np.uint64))

    # Afterwards

    def _check(self, target: Path) -> None:
        report = self._report
        tracker = Tracker(target)
        try:
            found = verify_store(tracker.snapshot(), tracker.journal, self._progress)
            totals = tracker.snapshot().totals
        finally:
            tracker.close()
        if not found.ok:
            raise CorruptStoreError(f"{target}: the new store is damaged: {found.faults[0]['message']}", path=target)
        report.output = str(target)
        report.fingerprints, report.ids = totals.fingerprints, totals.ids
        report.actions.append(f"wrote {target}: {totals.fingerprints} fingerprints with {totals.ids} ids, and verified it")
        if not self._totals and self._generation:
            self._totals = {"fingerprints": self._generation["fingerprints"], "ids": self._generation["ids"]}
        kinds = self._lost.counts
        for kind, text in (
            ("fingerprint", "fingerprints that have no id left, and are not in the new store"),
            ("ids", "fingerprints that have lost some of their ids"),
            ("name", "ids whose strings are lost"),
        ):
            if kinds[kind]:
                report.losses.append(f"{kinds[kind]} {text}")
        for what, got in (("fingerprints", totals.fingerprints), ("ids", totals.ids)):
            if self._totals and self._totals[what] != got:
                report.losses.append(f"the store held {self._totals[what]} {what}, the new one has {got}")

    def _finish_lost(self) -> None:
        if not self._set.complete or any(kind != "name" for kind in self._lost.counts):
            self._note_unseen()
        if self._lost.finish():
            self._report.lost_file = str(self._lost.path)
            self._report.actions.append(
                f"wrote {self._lost.path}: what is known of what was lost (kind, fingerprint, id); "
                "an id there may have been deleted before"
            )

    def _note_unseen(self) -> None:
        """Add the ids that nothing has now, where some were lost whose fingerprints are not known, or the other way round.

        Those deleted before the last merge are among them: a dictionary keeps their strings, and row numbers are not used again.
        All numbers are gone through in parts of which each takes a byte a number, and a pass over the ids.
        """
        ends = {"string": self._names.end, "row": int(self._generation.get("rows") or 0)}
        end, step = ends.get(self._id_kind, 0), self._memory // NUMBERS_SHARE
        for low in range(0, end, step):
            unseen = np.ones(min(step, end - low), bool)
            for ids in self._ids_in_use():
                unseen[(ids[(ids >= low) & (ids < low + len(unseen))] - np.uint64(low)).astype(np.int64)] = False
            for start in range(0, len(unseen), PIECE_NUMBERS):
                part = unseen[start : start + PIECE_NUMBERS]
                first = low + start
                if self._id_kind == "string":
                    known = self._names.among(first, first + len(part))
                    part = part[: len(known)] & known
                for number in (np.flatnonzero(part) + first).tolist():
                    self._lost.add(
                        "id", "", (self._names.get(number) or b"").decode() if self._id_kind == "string" else str(number)
                    )

    def _ids_in_use(self) -> Iterator[Words]:
        """Yield the ids of the tables and those of changes, in pieces."""
        for unit in self._set.units(self._ids):
            yield unit.ids
        for place in range(len(self._changes.touched)):
            changed = self._changes.at(place)
            yield np.array(sorted(changed.added | changed.removed), np.uint64)
