"""A merge: the delta is folded into a new generation beside the current one, which then takes its place in one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fpstore.building.generation_writer import Written
from fpstore.building.sources import Content, Source
from fpstore.change.obsolete import TEMPORARY, remove_generation
from fpstore.design.families import Design
from fpstore.design.families import design as make_design
from fpstore.design.planner import choose
from fpstore.disk.folders import sync_folder
from fpstore.disk.refusals import refused
from fpstore.errors import ClosedStoreError, CorruptStoreError, FpstoreError
from fpstore.format import layout
from fpstore.format.strings import NewNames, merge_names
from fpstore.query.delta import Delta, Totals, pack, unpack
from fpstore.query.generation import SAMPLE_SIZE, Generation
from fpstore.query.journal import Journal, create_journal
from fpstore.query.snapshot import View
from fpstore.query.tracker import Follower, make_state

Progress = Callable[[str, int, int | None], None]
GROWTH = 2  # a design that was chosen is chosen again when there are so many times as many fingerprints, or so few
UNUSED_NAMES = 0.01  # share of a dictionary that may be out of use before it is written anew


class Host(Protocol):
    """The writer, as far as a merge needs it."""

    follower: Follower
    delta_bytes: int
    numbers_in_use: set[int]

    def alone(self) -> AbstractContextManager[None]:
        """Take the turn of this thread."""

    def flush(self) -> None:
        """Commit what is queued."""


class _NumbersInUseError(Exception):
    """A string whose number the new dictionary has left out was inserted again meanwhile."""


class Merge:
    """One merge of the delta as it is when :meth:`run` begins. Readers and inserts go on beside it."""

    def __init__(self, host: Host, memory: int, threads: int, progress: Progress | None, design: str | None = None) -> None:
        self._host = host
        self._follower = host.follower
        self._path = host.follower.path
        self._memory, self._threads, self._progress = memory, threads, progress
        self._design = design
        self._written: Written | None = None
        self._new_names: NewNames | None = None  # of other stores
        self._stopped = False

    def stop(self) -> None:
        """Give up soon: :meth:`run` raises ClosedStoreError, and nothing was changed."""
        self._stopped = True
        if self._written is not None:
            self._written.stop()

    def run(self) -> None:
        """Merge, unless there is nothing to.

        Raises
        ------
        StorageError, CorruptStoreError, ClosedStoreError
        """
        with self._host.alone():
            view = self._freeze()
        if self._frozen or self._design is not None:
            self._replace(view)

    def _freeze(self) -> View:
        """Take what there is now as what will be merged."""
        self._host.flush()
        view = self._follower.view()
        assert view.delta is not None
        self._frozen = view.delta.records
        self._names = list(view.delta.names)
        self._host.numbers_in_use.clear()
        return view

    def _strings(self, view: View) -> bool:
        """Whether the ids are strings."""
        return view.totals.id_kind == "string"

    def _source(self, view: View) -> Source:
        """Return what the new generation will hold."""
        return Content(view)

    def _totals(self, view: View, written: Written) -> Totals:
        """Return how much that is."""
        totals = view.totals
        if (written.fingerprints, written.ids) != (totals.fingerprints, totals.ids):
            raise CorruptStoreError(
                f"{self._path}: the tables and the delta hold {written.fingerprints} fingerprints with {written.ids} ids, the "
                f"journal says {totals.fingerprints} with {totals.ids}", path=self._path,
            )  # fmt: skip
        return totals

    def _replace(self, view: View) -> None:
        """Write the new generation, and put it in the place of the one of this view."""
        number = view.generation.record["number"] + 1
        folder = self._path / layout.generation_name(number)
        temporary = folder.with_name(folder.name + TEMPORARY)
        try:
            remove_generation(temporary)
            remove_generation(folder)
            temporary.mkdir()
            self._write(view, temporary, number)
            while True:
                try:
                    self._finish(view, temporary, folder)
                    break
                except _NumbersInUseError:
                    folder.rename(temporary)
            remove_generation(view.generation.folder)
        except BaseException as error:
            # Unless the switch was made, the new generation is of no use to anybody.
            if self._follower.view().generation.record["number"] != number:
                remove_generation(folder)
                remove_generation(temporary)
            if isinstance(error, InterruptedError):
                raise ClosedStoreError(f"{self._path}: closed during a merge, which was given up", path=self._path) from error
            if isinstance(error, OSError) and not isinstance(error, FpstoreError):
                raise refused(self._path, error, "; nothing was merged") from error
            raise

    def _write(self, view: View, temporary: Path, number: int) -> None:
        self._store = store = self._redesigned(view)
        design = Design.from_json(store["design"])
        written = Written(temporary, design, store["block_bytes"], self._memory, self._threads, self._progress)
        self._written = written
        if self._stopped:
            written.stop()
        delta = view.delta
        assert delta is not None
        self._first_name = delta.first_name + len(self._names) + len(self._new_names or ())
        if self._strings(view):
            written.used = np.zeros(self._first_name, bool)
        written.write(self._source(view))
        self._start = totals = self._totals(view, written)
        self._record = written.record(number, totals.next_row if totals.id_kind == "row" else totals.ids)

    def _redesigned(self, view: View) -> dict[str, Any]:
        """Return the store record, with other tables if they are wanted, or were chosen for another number of fingerprints."""
        generation = view.generation
        store, radius = generation.store, generation.design.radius
        count = self._expected(view)
        if self._design is not None and self._design != "auto":
            made = make_design(self._design, radius)
            made.lookups(count)  # InputError: a probe would make too many
            return store | {"design": made.to_json(), "auto": None}
        auto = store.get("auto") or ({} if self._design == "auto" else None)
        if auto is None or (self._design is None and auto["planned_for"] / GROWTH <= count <= auto["planned_for"] * GROWTH):
            return store
        sample = np.concatenate([generation.sample(), view.changed[1][0][:SAMPLE_SIZE]])
        chosen = choose(
            count, radius, disk_budget=auto.get("disk_budget"), storage=auto.get("storage", "hot"),
            block_bytes=store["block_bytes"], sample=sample,
        ).design  # fmt: skip
        return store | {"design": chosen.to_json(), "auto": {"disk_budget": None, "storage": "hot", **auto, "planned_for": count}}

    def _expected(self, view: View) -> int:
        """Return about how many fingerprints there will be."""
        return view.totals.fingerprints

    def _finish(self, view: View, temporary: Path, folder: Path) -> None:
        """Write the dictionary and the journal, and make the generation current."""
        host, written = self._host, self._written
        assert written is not None
        kept = None if written.used is None else self._dictionary(view, temporary, written.used)
        old = self._follower.journal
        assert old is not None
        state = make_state(self._store, self._record, self._start, self._first_name, view.generation.reader.sealed_with())
        copied = self._frozen
        create_journal(temporary / layout.JOURNAL_FILE, state, (), host.delta_bytes)
        sync_folder(temporary)
        temporary.rename(folder)
        sync_folder(self._path)
        generation = Generation(self._path, self._store, self._record, view.generation.reader)
        journal = Journal(folder / layout.JOURNAL_FILE, writable=True)
        try:
            delta = Delta(generation.design.radius, generation.sample(), generation.identity, self._first_name)
            copied = self._carry_over(old, copied, journal, delta)
            with host.alone():
                host.flush()
                copied = self._carry_over(old, copied, journal, delta)
                if kept is not None and any(n < self._first_name and not kept[n] for n in host.numbers_in_use):
                    raise _NumbersInUseError
                totals = self._follower.view().totals if copied > self._frozen else self._start
                after = View(generation, delta, delta.version, totals)
                try:
                    old.move(layout.pack_record({"generation": self._record["number"]}))
                    self._follower.switch(after, journal)
                except BaseException:
                    # An interrupt may come right after the commit, which nobody can take back.
                    if self._follower.journal is old and old.read(copied).moved is not None:
                        self._follower.switch(after, journal)
                    raise
        except BaseException:
            if self._follower.journal is not journal:
                journal.close()
                generation.close()
            raise

    def _carry_over(self, old: Journal, after: int, journal: Journal, delta: Delta) -> int:
        """Copy records that came after the merge began to the new journal and delta; return the number of the last."""
        records = [unpack(data, old.path) for data in old.read(after).records]
        if not records:
            return after
        renumbered = [record._replace(number=record.number - self._frozen) for record in records]
        journal.append_many([(record.number, pack(record)) for record in renumbered])
        delta.apply(renumbered, journal.path)
        return records[-1].number

    def _dictionary(self, view: View, temporary: Path, used: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
        """Write the dictionary, or take over the old one if it is as good; return which numbers it has, None meaning all."""
        generation = view.generation
        old: dict[str, Any] | None = generation.record.get("names_file")
        kept = used.copy()
        with self._host.alone():  # inserts go on
            kept[[number for number in self._host.numbers_in_use if number < len(kept)]] = True
        delta = view.delta
        assert delta is not None
        target = temporary / layout.NAMES_FILE
        target.unlink(missing_ok=True)
        (temporary / layout.JOURNAL_FILE).unlink(missing_ok=True)
        if not any(self._names) and not self._new_names and int((~kept).sum()) <= UNUSED_NAMES * len(kept):
            if old:
                os.link(generation.folder / layout.NAMES_FILE, target)
            self._record["names_file"] = old
            return None
        assert self._written is not None
        self._record["names_file"] = merge_names(
            target, generation.names, self._names, delta.first_name, self._new_names, kept, self._written.tick
        )
        return kept
