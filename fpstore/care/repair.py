"""Builds a sound store from the intact parts of a damaged one, and reports the losses."""

from __future__ import annotations

import fcntl
import glob
import itertools
import os
from contextlib import ExitStack
from pathlib import Path

from fpstore.base.resources import Resources
from fpstore.building.target import Target, refuse_inside_store, sorting_folder
from fpstore.care.damaged_store import DAMAGE, DamagedStore
from fpstore.care.loss_list import LossList
from fpstore.care.recovered_rows import RecoveredRows
from fpstore.care.reports import RepairReport
from fpstore.care.verify import verify_store
from fpstore.disk.files import open_file, opened
from fpstore.disk.folders import ASIDE, exchange, remove_tree, short_name, sync_folder
from fpstore.disk.locks import LOCK_FILE, WriterLock, process_name
from fpstore.disk.refusals import NOTHING_CHANGED, refusing
from fpstore.disk.sealed import opened_seal
from fpstore.errors import (
    CorruptStoreError,
    InputError,
    StorageError,
    StoreExistsError,
    StoreLockedError,
    StoreNotFoundError,
    counted,
)
from fpstore.format.dictionary import NUMBERS_FILE
from fpstore.format.manifest import looks_like_store, not_a_store
from fpstore.format.mapping import IDS_FILE, PLACES_FILES
from fpstore.format.strings import STRINGS_FILE
from fpstore.query.tracker import Tracker

NUMBER_ROOM = 8  # bytes of a name for a number behind it


def repair_store(path: Path, output: Path | None, in_place: bool, lost: Path | None, resources: Resources) -> RepairReport:
    """Make a sound store of a damaged one; see :func:`fpstore.repair`.

    In place, the new store is written as that whose name the damaged one will have, and then the two are exchanged, in one step
    where the file system has one. So a repair that is killed leaves the damaged store in its place, or the new one.
    """
    if output is not None and in_place:
        raise InputError("a repair writes either to another path or in place: give output or in_place, not both")
    if in_place:
        path = path.resolve()  # through a link, the store that it names
        _put_back(path)
    if not looks_like_store(path):
        raise not_a_store(path) if path.exists() else StoreNotFoundError(f"{path}: no such store", path=path)
    lost = lost or _free_name(output or path, ".lost", ".tsv")
    if in_place:
        target = _free_name(path, ".damaged")
    else:
        target = output or path.with_name(f"{short_name(path.name, len('.repaired'))}.repaired")
        refuse_inside_store(target)
    refuse_inside_store(lost)
    with ExitStack() as stack:
        if in_place:
            with refusing(path, NOTHING_CHANGED):
                stack.callback(WriterLock(path).release)
        else:
            _keep_writers_away(path, stack)
        report = _Repair(path, target, in_place, resources).run(lost)
        if in_place and not report.sound:
            _exchange(target, path)
            report.output, report.damaged = str(path), str(target)
            report.actions.append(f"{path} is the repaired store now; the damaged one is {target}")
    return report


def _free_name(path: Path, ending: str, suffix: str = "") -> Path:
    """Return the first name beside a path that is free: without a number, or numbered from 2 on."""
    name = short_name(path.name, len(ending) + len(suffix) + NUMBER_ROOM)
    names = (
        path.with_name(f"{name}{ending}{number}{suffix}")
        for number in itertools.chain([""], map("-{}".format, itertools.count(2)))
    )
    return next(name for name in names if not (name.exists() or name.is_symlink()))


def _exchange(new: Path, path: Path) -> None:
    with refusing(path):
        try:
            exchange(new, path)
        except OSError:
            remove_tree(new)  # it has the name of the damaged store
            raise
        sync_folder(path.parent)


def _put_back(path: Path) -> None:
    """Put a store back, if a repair was killed while it was set aside, where two folders cannot be exchanged in one step."""
    if not path.exists():
        name = short_name(path.name, len(".damaged") + NUMBER_ROOM)
        for aside in path.parent.glob(f"{glob.escape(name)}.damaged*{ASIDE}"):
            if looks_like_store(aside):
                with refusing(path, NOTHING_CHANGED):
                    aside.rename(path)
                return


def _keep_writers_away(path: Path, stack: ExitStack) -> None:
    """Hold the lock of a store, if there is one, without changing a byte."""
    try:
        descriptor = open_file(path / LOCK_FILE, of_user=True)
    except (StoreNotFoundError, CorruptStoreError):  # without a lock there is no writer
        return
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = process_name(os.pread(descriptor, 32, 0).decode("ascii", "replace").strip())
        raise StoreLockedError(f"{path}: {holder} has it open for writing: close it there first", path=path, got=holder) from None


class _Repair:
    def __init__(self, path: Path, target: Path, in_place: bool, resources: Resources) -> None:
        self._path, self._target, self._in_place, self._resources = path, target, in_place, resources
        self._report = RepairReport()

    def run(self, lost: Path) -> RepairReport:
        report, target = self._report, self._target
        store = DamagedStore(self._path, report)
        if self._is_sound(store):
            report.sound = True
            return report
        if target.exists() or target.is_symlink():
            raise StoreExistsError(
                f"{target} exists: move it away, choose another path (output=, -o), or repair in place (in_place=True, --yes)",
                path=target,
            )
        if not target.parent.is_dir():
            raise StorageError(f"{target.parent}: no such folder", path=target.parent)
        losses = LossList(lost)
        try:
            with Target(target, overwrite=False) as new:
                with sorting_folder(target) as folder:
                    self._write(store, new, folder, losses)
                if losses.finish():  # before the store is there: whoever has the store has the list
                    report.lost_file = str(losses.path)
                    report.actions.append(
                        f"wrote {losses.path}: what is known of what was lost (kind, fingerprint, id); "
                        "an id there may have been deleted before"
                    )
        finally:
            losses.abort()
        return report

    def _is_sound(self, store: DamagedStore) -> bool:
        report = self._report
        # First these, each as a whole: the rest of a store that cannot be opened is not looked at.
        for file in (store.folder / name for name in (IDS_FILE, STRINGS_FILE, NUMBERS_FILE, PLACES_FILES[1])):
            try:
                if file.name == IDS_FILE or file.exists():
                    with opened(file) as descriptor:
                        opened_seal(file, descriptor).check_all()
            except DAMAGE as error:
                report.note(error)
        if report.faults:
            return False
        try:
            tracker = Tracker(self._path)
            try:
                found = verify_store(tracker.snapshot(), tracker.log, self._resources.progress)
            finally:
                tracker.close()
        except DAMAGE as error:
            report.note(error)
            return False
        report.faults += [fault["message"] for fault in found.faults]
        return found.ok

    def _write(self, store: DamagedStore, new: Path, folder: Path, losses: LossList) -> None:
        """Write the new store, and the list of losses."""
        from fpstore.building.builder import Options, build_into

        rows = RecoveredRows(store, folder, self._resources.memory, self._report)
        settings = store.settings
        options = Options(
            radius=store.design.radius, width=store.design.width.bits, design=store.design, memory=self._resources.memory,
            threads=self._resources.threads, block_bytes=store.blocks.bytes, codec=store.blocks.codec, filter=store.blocks.filter,
            fingerprinter=None if settings is None else settings.fingerprinter, progress=self._resources.progress,
            id_kind=rows.id_kind, rows=rows.next_row, auto=None if settings is None else settings.auto,
            index_ids=store.index_ids,
        ).checked()  # fmt: skip
        options.reserved = rows.reserved
        try:
            build_into(new, rows.rows(options, losses, self._resources.progress), None, options)
            self._check(new, rows, losses)
            rows.list_unseen()
        finally:
            rows.close()

    def _check(self, folder: Path, rows: RecoveredRows, losses: LossList) -> None:
        """Verify the new store, and report its content and the losses."""
        report, target = self._report, self._target
        tracker = Tracker(folder)
        try:
            snapshot = tracker.snapshot()
            found = verify_store(snapshot, tracker.log, self._resources.progress)
        finally:
            tracker.close()
        if not found.ok:
            raise CorruptStoreError(f"{target}: the new store is damaged: {found.faults[0]['message']}", path=target)
        totals, filters = snapshot.totals, snapshot.generation.record.filters
        what = "a new store" if self._in_place else str(target)  # whose place is only for now
        report.output = str(target)
        report.fingerprints, report.ids = totals.fingerprints, totals.ids
        whole = f"{counted(totals.fingerprints, 'fingerprint')} with {counted(totals.ids, 'id')}"
        whole += f", {counted(len(filters), 'filter')} made anew" if filters else ""
        report.actions.append(f"wrote {what}: {whole}, and verified it")
        kinds, expected = losses.counts, rows.expected
        for kind, noun, text in (
            ("fingerprint", "fingerprint", "with no id left, and so not in the new store"),
            ("ids", "fingerprint", "that lost some ids"),
            ("name", "id", "with a lost string"),
        ):
            if kinds[kind]:
                report.losses.append(f"{counted(kinds[kind], noun)} {text}")
        for what, got in (("fingerprints", totals.fingerprints), ("ids", totals.ids)):
            held = None if expected is None else getattr(expected, what)
            if held not in (None, got):
                report.losses.append(f"the store held {held:,} {what}, the new one has {got:,}")
