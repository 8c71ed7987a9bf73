"""Builds a sound store from the intact parts of a damaged one, and reports the losses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from fpstore.base.resources import Resources
from fpstore.building.target import Target, refuse_inside_store
from fpstore.care.evidence import DAMAGE, Evidence
from fpstore.care.found_content import FoundContent, batches
from fpstore.care.found_settings import Settings
from fpstore.care.in_place import InPlace, keep_still, names_to_free, take_lock
from fpstore.care.lost_file import LostFile
from fpstore.care.reports import RepairReport
from fpstore.care.salvage import check_seal
from fpstore.care.verify import verify_store
from fpstore.disk.folders import short_name
from fpstore.errors import CorruptStoreError, InputError, StorageError, StoreExistsError, StoreNotFoundError, counted
from fpstore.format.dictionary import NUMBERS_FILE
from fpstore.format.id_map import IDS_FILE
from fpstore.format.manifest import looks_like_store, not_a_store
from fpstore.format.mapping import PLACES_FILES
from fpstore.format.strings import STRINGS_FILE
from fpstore.query.tracker import Tracker


def repair_store(path: Path, output: Path | None, in_place: bool, lost: Path | None, resources: Resources) -> RepairReport:
    """Make a sound store of a damaged one; see :func:`fpstore.repair`."""
    if output is not None and in_place:
        raise InputError("a repair writes either to another path or in place: give output or in_place, not both")
    if in_place:
        path = path.resolve()  # through a link, the store that it names
    place = InPlace(path) if in_place else None
    report = RepairReport()
    if place is not None and not path.exists():
        place.take_up()  # which may put the store back
    if not looks_like_store(path):
        raise not_a_store(path) if path.exists() else StoreNotFoundError(f"{path}: no such store", path=path)
    *earlier, lost = [lost] if lost else names_to_free(output or path, ".lost", ".tsv")
    target = output or path.with_name(f"{short_name(path.name, len('.repaired'))}.repaired")
    for written in (lost,) if place is not None else (target, lost):
        refuse_inside_store(written)
    with ExitStack() as stack:
        if place is not None:
            stack.callback(take_lock(path).release)
            _note_left(place.take_up(), report)
            stack.callback(place.close)
        elif (lock := keep_still(path)) is not None:
            stack.callback(os.close, lock)
        _Repair(path, report, resources).run(place or target, lost, earlier)
        if not report.sound and place is not None:
            report.output, report.damaged = str(path), str(place.swap())
            report.actions.append(f"{path} is the repaired store now; the damaged one is {report.damaged}")
    return report


def _note_left(aside: Path | None, report: RepairReport) -> None:
    if aside is not None:
        report.damaged = str(aside)
        report.actions.append(f"an earlier repair was interrupted: the damaged store that it replaced is {aside} now")


class _Repair:
    def __init__(self, path: Path, report: RepairReport, resources: Resources) -> None:
        self._path, self._report, self._resources = path, report, resources
        self._progress = resources.progress

    def run(self, place: Path | InPlace, lost: Path, earlier: Sequence[Path]) -> None:
        report = self._report
        self._evidence = Evidence(self._path, report)
        if self._is_sound():
            report.sound = True
            return
        target = place.target if isinstance(place, InPlace) else place
        self._in_place = isinstance(place, InPlace)
        if isinstance(place, InPlace):
            place.begin()
        elif target.exists() or target.is_symlink():
            raise StoreExistsError(
                f"{target} exists: move it away, choose another path (output=, -o), or repair in place (in_place=True, --yes)",
                path=target,
            )
        if not target.parent.is_dir():
            raise StorageError(f"{target.parent}: no such folder", path=target.parent)
        self._settings = Settings(self._path, self._evidence, report)
        with ExitStack() as stack:
            self._lost = LostFile(lost, earlier)
            stack.callback(self._lost.abort)
            self._content = FoundContent(self._evidence, self._settings, target, self._resources.memory, report)
            stack.callback(self._content.close)
            self._write(target)

    def _is_sound(self) -> bool:
        report, folder = self._report, self._evidence.generation.folder
        # First without LMDB, which a damaged file could make end the process.
        for file in (folder / name for name in (IDS_FILE, STRINGS_FILE, NUMBERS_FILE, PLACES_FILES[1])):
            try:
                if file.name == IDS_FILE or file.exists():
                    check_seal(file)
            except DAMAGE as error:
                report.note(error)
        if report.faults:
            return False
        try:
            tracker = Tracker(self._path)
            try:
                found = verify_store(tracker.snapshot(), tracker.log, self._progress)
            finally:
                tracker.close()
        except DAMAGE as error:
            report.note(error)
            return False
        report.faults += [fault["message"] for fault in found.faults]
        return found.ok

    def _write(self, target: Path) -> None:
        """Write the new store and the list of what is lost, which is there before the store: whoever has one has the other."""
        from fpstore.building.builder import Options, build_into

        settings, content = self._settings, self._content
        options = Options(
            radius=settings.design.radius, width=settings.width.bits, design=settings.design, memory=self._resources.memory,
            threads=self._resources.threads, block_bytes=settings.blocks.bytes, codec=settings.blocks.codec,
            filter=settings.blocks.filter, fingerprinter=settings.fingerprinter,
            progress=self._progress, id_kind=content.id_kind, rows=content.next_row, auto=settings.auto,
            index_ids=settings.index_ids,
        ).checked()  # fmt: skip
        options.reserved = content.memory
        with Target(target, overwrite=False) as folder:
            build_into(folder, batches(content.rows(options, self._lost, self._progress)), None, options)
            self._check(folder, target)
            self._finish_lost()

    def _check(self, folder: Path, target: Path) -> None:
        """Verify the new store, and tell what it has and what it has not."""
        report = self._report
        tracker = Tracker(folder)
        try:
            snapshot = tracker.snapshot()
            found = verify_store(snapshot, tracker.log, self._progress)
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
        kinds, expected = self._lost.counts, self._content.expected
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

    def _finish_lost(self) -> None:
        if not self._content.has_all_fingerprints or any(kind != "name" for kind in self._lost.counts):
            self._content.note_unseen()
        if self._lost.finish():
            self._report.lost_file = str(self._lost.path)
            self._report.actions.append(
                f"wrote {self._lost.path}: what is known of what was lost (kind, fingerprint, id); "
                "an id there may have been deleted before"
            )
