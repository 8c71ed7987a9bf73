"""A merge: writes tables and delta to a new generation, which then becomes current in one step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Bytes, Progress, Words
from fpstore.base.resources import Resources
from fpstore.building.generation_writer import GenerationWriter, TrackedWork
from fpstore.building.strings import StringSpool
from fpstore.change.committer import Committer, remove_generation
from fpstore.change.content import Content, SnapshotContent, write_sorted
from fpstore.change.merged_strings import MergedStrings
from fpstore.design.dealing import resolve_design
from fpstore.design.estimates import Requirements
from fpstore.design.planner import choose
from fpstore.design.sample import SAMPLE_SIZE, sample_evenly
from fpstore.disk.folders import sync_folder
from fpstore.disk.refusals import is_system_error, refusal_error
from fpstore.errors import ClosedStoreError, CorruptStoreError
from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.log import HEADER_BYTES, LOG_FILE, LogHeader, LogReader
from fpstore.format.log_writer import LogWriter, create_log
from fpstore.format.manifest import (
    MANIFEST_FILE,
    TEMPORARY,
    Manifest,
    drop_next_manifest,
    generation_folder,
    prepare_manifest,
    publish_manifest,
)
from fpstore.format.record import IN_BASE, KIND_MASK, Change, Totals, pack_change
from fpstore.query.generation import Generation
from fpstore.query.store_snapshot import StoreSnapshot
from fpstore.query.tracker import new_delta

# `auto` chooses again when the number of fingerprints has grown or shrunk by this factor
GROWTH = 2
FEW_CHANGES = 1 << 12  # to be copied and loaded while all others wait
UNUSED_STRINGS = 0.01  # share of unused strings from which the dictionary is written again


class _NumbersInUseError(Exception):
    """A string that the new dictionary leaves out was inserted again meanwhile."""


@dataclass(frozen=True)
class MergeStart:
    """The store at the moment when a merge begins, and where its log ended then."""

    snapshot: StoreSnapshot
    strings: list[bytes]  # of the delta, to which later inserts append
    log_place: int
    log_number: int

    @property
    def next_string(self) -> int:
        return self.snapshot.delta.first_string + len(self.strings)


@dataclass(frozen=True)
class MergeInput:
    """The content of the new generation.

    The totals are exact, or an upper bound of the union of several stores.
    """

    content: Content
    totals: Totals
    is_union: bool = False
    new_strings: StringSpool | None = None  # of other stores


@dataclass(frozen=True)
class _NewTables:
    """The tables of the new generation.

    ``used`` has a flag for each number of a string, if ids are strings.
    """

    writer: GenerationWriter
    manifest: Manifest
    totals: Totals
    used: npt.NDArray[np.bool_] | None


@dataclass(frozen=True)
class _LogPosition:
    """How far the old log is copied: the place behind the last record, its number and totals."""

    place: int
    number: int
    totals: Totals


class Merge:
    """One merge of the delta as of the moment when :meth:`run` begins.

    Readers and inserts go on meanwhile.
    """

    keeps_the_turn = False  # so that nothing can be changed meanwhile

    def __init__(
        self, committer: Committer, resources: Resources, design: str | None = None
    ) -> None:
        # the threads in the progress function: the merge waits for them
        self.progress_threads: set[int] = set()
        # numbers of old strings that new rows got meanwhile: the new dictionary must keep them
        self.numbers_in_use: set[int] = set()
        self._committer = committer
        self._tracker = committer.tracker
        self._path = committer.path
        self._resources = resources
        progress = resources.progress
        self._work = TrackedWork(None if progress is None else partial(self._report, progress))
        self._design = design
        # fingerprints and ids of the frozen state that the new tables do not have
        self._left_out = 0, 0
        self._old_manifest_file = self._manifest_file()

    def _report(self, progress: Progress, phase: str, done: int, total: int | None) -> None:
        thread = threading.get_ident()
        try:
            self.progress_threads.add(thread)
            progress(phase, done, total)
        finally:
            self.progress_threads.discard(thread)

    def stop(self) -> None:
        """Make :meth:`run` end soon with ClosedStoreError, and without a change."""
        self._work.stop.set()

    def run(self) -> None:
        try:
            self._run()
        except InterruptedError as error:
            raise ClosedStoreError(
                f"{self._path}: closed during a merge, which was stopped", path=self._path
            ) from error
        except OSError as error:
            if is_system_error(error):
                raise refusal_error(self._path, error, "; nothing was merged") from error
            raise

    def _run(self) -> None:
        with self._committer.turn:
            frozen = self._freeze()
        snapshot = frozen.snapshot
        if snapshot.version or self._design is not None:
            self._replace(frozen, MergeInput(SnapshotContent(snapshot), snapshot.totals))

    def _freeze(self) -> MergeStart:
        """Return the current state as the content to be merged."""
        self._committer.settle()
        snapshot, log = self._tracker.snapshot(), self._committer.log
        self.numbers_in_use.clear()
        return MergeStart(snapshot, list(snapshot.delta.strings), log.place, log.number)

    def _replace(self, frozen: MergeStart, source: MergeInput) -> None:
        """Write the new generation, and replace the current one by it."""
        current = frozen.snapshot.generation
        number = current.record.number + 1
        folder = self._tracker.path_inside() / generation_folder(number)
        temporary = folder.with_name(folder.name + TEMPORARY)
        try:
            remove_generation(temporary)
            remove_generation(folder)
            temporary.mkdir()
            tables = self._write(frozen, source, temporary)
            before, after = frozen.snapshot.totals, tables.totals
            self._left_out = before.fingerprints - after.fingerprints, before.ids - after.ids
            while True:
                try:
                    self._finish(frozen, source, tables, temporary, folder, number)
                    break
                except _NumbersInUseError:
                    folder.rename(temporary)
            # its own path may be another store's by now
            remove_generation(folder.with_name(current.folder.name))
        except BaseException:
            # Unless it has become current, the new generation is useless.
            if not self._is_current():
                remove_generation(folder)
                remove_generation(temporary)
            raise

    def _write(self, frozen: MergeStart, source: MergeInput, temporary: Path) -> _NewTables:
        totals = source.totals
        manifest = self._choose_manifest(frozen.snapshot, totals.fingerprints)
        writer = GenerationWriter(temporary, manifest.blocks, self._work, self._resources.threads)
        used = None
        if totals.id_kind == "string":
            added = 0 if source.new_strings is None else source.new_strings.count
            used = np.zeros(frozen.next_string + added, bool)
        write_sorted(writer, source.content, manifest.design, self._resources, used)
        if used is not None or manifest.index_ids:
            writer.write_places(self._resources.memory)
        if not source.is_union and (writer.fingerprints, writer.ids) != (
            totals.fingerprints,
            totals.ids,
        ):
            raise CorruptStoreError(
                f"{self._path}: the tables and the delta hold {writer.fingerprints} fingerprints "
                f"with {writer.ids} ids, the log says {totals.fingerprints} with {totals.ids}",
                path=self._path,
            )
        return _NewTables(
            writer,
            manifest,
            totals._replace(fingerprints=writer.fingerprints, ids=writer.ids),
            used,
        )

    def _choose_manifest(self, snapshot: StoreSnapshot, count: int) -> Manifest:
        """Return the manifest, with another design if the caller names one, or `auto` asks for it.

        `auto` chooses again when the number of fingerprints has changed by GROWTH.
        """
        generation = snapshot.generation
        manifest = generation.manifest
        radius, width = generation.design.radius, generation.design.width
        if self._design is not None and self._design != "auto":
            design = resolve_design(self._design, radius, count, width, self._sample(snapshot))
            return manifest._replace(design=design, auto=None)
        auto = manifest.auto or ({} if self._design == "auto" else None)
        if auto is None or (
            self._design is None
            and auto["planned_for"] / GROWTH <= count <= auto["planned_for"] * GROWTH
        ):
            return manifest
        required = Requirements(
            width,
            auto.get("disk_budget"),
            storage=auto.get("storage", "hot"),
            blocks=manifest.blocks,
            prefer=auto.get("prefer", "balance"),
        )
        design = choose(count, radius, required, self._sample(snapshot)).design
        defaults = {"disk_budget": None, "storage": "hot", "prefer": "balance"}
        return manifest._replace(design=design, auto={**defaults, **auto, "planned_for": count})

    @staticmethod
    def _sample(snapshot: StoreSnapshot) -> Words:
        """Return fingerprints of the tables and of the changes, in proportion to their numbers."""
        stored, added = snapshot.generation.full_sample(), snapshot.changed_groups[1][0]
        share = len(added) / max(len(added) + snapshot.generation.count, 1)
        from_added = min(round(SAMPLE_SIZE * share), len(added))
        return np.concatenate(
            [sample_evenly(stored, SAMPLE_SIZE - from_added), sample_evenly(added, from_added)]
        )

    def _finish(
        self,
        frozen: MergeStart,
        source: MergeInput,
        tables: _NewTables,
        temporary: Path,
        folder: Path,
        number: int,
    ) -> None:
        kept_strings = self._write_dictionary(frozen, source.new_strings, tables, temporary)
        record = tables.writer.record(number, tables.totals)
        manifest = tables.manifest._replace(generation=record)
        (temporary / LOG_FILE).unlink(missing_ok=True)
        create_log(temporary / LOG_FILE, LogHeader.from_manifest(manifest))
        sync_folder(temporary)
        temporary.rename(folder)
        sync_folder(folder.parent)
        generation, log, reader = None, None, None
        try:
            home = self._tracker.current_path()
            generation = Generation(home, manifest, self._tracker.pages)
            log = LogWriter(home / folder.name / LOG_FILE, LogHeader.from_manifest(manifest))
            reader = LogReader(log.path, log.header)
            self._switch(
                generation,
                log,
                reader,
                kept_strings,
                _LogPosition(frozen.log_place, frozen.log_number, tables.totals),
            )
        except BaseException:
            if not self._is_current():
                drop_next_manifest(self._tracker.folder)
                for opened in (reader, log, generation):
                    if opened is not None:
                        opened.close()
                with self._committer.turn:
                    self._committer.log.take_supersede_back()
            raise

    def _switch(
        self,
        generation: Generation,
        log: LogWriter,
        reader: LogReader,
        kept_strings: npt.NDArray[np.bool_] | None,
        copied: _LogPosition,
    ) -> None:
        """Copy the changes made since the merge began, and make the generation current.

        The long steps come before the turn, while other threads change and probe: the next
        generation is announced, the changes so far are copied, and this process and readers load
        them at the same time.
        """
        committer, tracker, manifest = self._committer, self._tracker, generation.manifest
        prepare_manifest(tracker.folder, manifest)
        with committer.turn:  # a commit writes the same word
            committer.log.supersede()
        delta = new_delta(generation, log.header, tracker.snapshot())
        copied = self._copy_log(copied, committer.log.durable, log, delta.in_base)
        delta.load(log.read(HEADER_BYTES, 1))
        more = delta.kernel.operations
        while more > FEW_CHANGES:
            before, loaded = more, delta.kernel.operations
            copied = self._copy_log(copied, committer.log.durable, log, delta.in_base, delta.apply)
            more = delta.kernel.operations - loaded
            if 2 * more > before:  # they come as fast as they are copied
                break
        with committer.turn:
            committer.flush()
            copied = self._copy_log(copied, committer.log.place, log, delta.in_base, delta.apply)
            if kept_strings is not None and any(
                number < len(kept_strings) and not kept_strings[number]
                for number in self.numbers_in_use
            ):
                raise _NumbersInUseError
            try:
                # an interrupt may come right after the rename, which nobody takes back
                committer.unsettled = True
                publish_manifest(tracker.folder)
                committer.switch(
                    StoreSnapshot(generation, delta, delta.version, copied.totals, log.number),
                    log,
                    reader,
                )
                committer.unsettled = False
            except BaseException as error:
                committer.recover()
                if is_system_error(error) and self._is_current():
                    then = "; the new generation is in place, but may be lost in a power failure"
                    raise refusal_error(self._path, error, then) from error
                raise

    def _manifest_file(self) -> int | None:
        """Return the inode of the manifest, which only a rename changes."""
        try:
            return os.stat(MANIFEST_FILE, dir_fd=self._tracker.folder, follow_symlinks=False).st_ino
        except OSError:
            return None

    def _is_current(self) -> bool:
        return self._manifest_file() != self._old_manifest_file

    def _copy_log(
        self,
        copied: _LogPosition,
        end: int,
        log: LogWriter,
        in_base: Callable[[Words], Bytes],
        apply: Callable[[Change], None] = lambda change: None,
    ) -> _LogPosition:
        """Copy the next records of the old log, up to a place, to the new log, durably.

        Return how far it is copied now.
        """
        for records in self._committer.log.read(
            copied.place, copied.number + 1, max(end, copied.place)
        ):
            change = records.change
            kinds = (change.kinds & np.uint8(KIND_MASK)) + np.uint8(IN_BASE) * in_base(
                change.fingerprints
            )
            # the totals of the old log count what the new tables leave out
            totals = change.totals._replace(
                fingerprints=change.totals.fingerprints - self._left_out[0],
                ids=change.totals.ids - self._left_out[1],
            )
            change = change._replace(kinds=kinds, totals=totals)
            log.append(pack_change(change))
            apply(change)
            copied = _LogPosition(records.end, records.last, change.totals)
        log.sync_records()
        log.publish()
        return copied

    def _write_dictionary(
        self, frozen: MergeStart, new: StringSpool | None, tables: _NewTables, temporary: Path
    ) -> npt.NDArray[np.bool_] | None:
        """Write the dictionary, or keep the old one if that is as good.

        Return which numbers it has, or None for all.
        """
        if tables.used is None:
            return None
        generation, added, writer = frozen.snapshot.generation, frozen.strings, tables.writer
        in_use = tables.used.copy()
        with self._committer.turn:  # inserts go on
            in_use[[number for number in self.numbers_in_use if number < len(in_use)]] = True
        for name in DICTIONARY_FILES:
            (temporary / name).unlink(missing_ok=True)
        if (
            not added
            and not (new and new.count)
            and self._is_dictionary_current(generation.record.dictionary, in_use)
        ):
            writer.dictionary = generation.record.dictionary or {}
            if generation.record.dictionary is not None:
                for name in DICTIONARY_FILES:
                    os.link(temporary.with_name(generation.folder.name) / name, temporary / name)
            return None
        strings = MergedStrings(
            generation.dictionary, frozen.snapshot.delta.first_string, added, new, in_use
        )
        writer.write_dictionary(strings, self._resources.threads, in_use)
        return in_use

    @staticmethod
    def _is_dictionary_current(
        dictionary: dict[str, Any] | None, used: npt.NDArray[np.bool_]
    ) -> bool:
        """Whether a dictionary has few unused strings, and by its record enough for all numbers."""
        in_use = int(np.count_nonzero(used))
        hashes = 0 if dictionary is None else dictionary["hashes"]
        return len(used) - in_use <= UNUSED_STRINGS * len(used) and in_use <= hashes
