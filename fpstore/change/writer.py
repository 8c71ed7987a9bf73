"""The single writer of a store: it appends changes to the log, applies them to the delta, and merges."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Progress, Words
from fpstore.arguments import check_sync
from fpstore.change.in_order import RowsInOrder, probe_insert_in_order
from fpstore.change.new_rows import Rows, absent, count_absent, count_distinct, kind_with, new_pairs, number_of, numbered
from fpstore.change.obsolete import remove_obsolete
from fpstore.diagnostics import logger
from fpstore.disk.locks import WriterLock
from fpstore.disk.refusals import with_path
from fpstore.errors import ClosedStoreError, FpstoreError, InputError, ReadOnlyError, StoreLockedError
from fpstore.format.log import HEADER_BYTES, LOG_FILE, LogReader
from fpstore.format.log_writer import LogWriter
from fpstore.format.manifest import generation_folder, read_manifest
from fpstore.format.merge_error import MergeError
from fpstore.format.record import ADD, IN_BASE, REMOVE, WIPE, Change, Totals, pack_added_pair, pack_change
from fpstore.query.batches import Columns
from fpstore.query.generation import Generation
from fpstore.query.matches import Match
from fpstore.query.snapshot import NONE, Snapshot
from fpstore.query.tracker import Tracker
from fpstore.resources import Resources, parse_memory, parse_threads
from fpstore.threads import Worker, is_held

if TYPE_CHECKING:
    from fpstore.change.merge import Merge


LEAST_CHANGES = 1 << 16  # fewer are not worth a merge
BATCH_ROWS = 10_000  # a group of changes is made durable when it has this many rows
BATCH_SECONDS = 0.1  # or is this old
NONE_ROWS = 1 << 20


class StoreWriter:
    """The right of a process to change a store, and the changes. Calls from several threads take turns.

    A change is first logged, then made durable if wanted, then applied to the delta in memory, and then published to readers.
    """

    def __init__(self, tracker: Tracker, lock: WriterLock, log: LogWriter, sync: str, merge_at: float | None) -> None:
        self.path = tracker.path
        self.sync = sync
        self.merge_at = merge_at
        self.tracker = tracker
        self.log = log
        self.turn = threading.RLock()
        self._lock = lock
        self._waiting_rows = 0  # logged and not yet durable
        self._due = 0.0
        self._wake = threading.Condition(self.turn)
        self._flusher: Worker | None = None
        self._flush_error: Exception | None = None
        self._closed = self._closing = False
        self.unsettled = False  # memory may have half of a change, or the store has another generation than memory
        self._taken_up = log.number  # of the last record that memory has
        self.merging = threading.RLock()
        self.telling: set[int] = set()  # threads in the progress function of a merge
        self._merger: Worker | None = None
        self._retry_at = 0
        self.merge_under_way: Merge | None = None
        # While a merge runs: numbers of old strings that were given to new rows, which the new dictionary must keep.
        self.numbers_in_use: set[int] = set()

    # What every change does

    def check(self) -> None:
        """Refuse a writer that is closed, or copied by a fork."""
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self._lock.owner != os.getpid():
            raise ReadOnlyError(
                f"{self.path}: opened for writing by process {self._lock.owner}; after a fork only that process may change it",
                path=self.path,
            )

    @property
    def is_own(self) -> bool:
        """Whether this process opened it, rather than the parent of a fork."""
        return self._lock.owner == os.getpid()

    def refuse_inside(self, merges: bool = False) -> None:
        """Refuse a call from a signal handler, or from the progress function of a merge, that would wait for itself.

        A change is refused while the same thread makes another change, and while whole stores are merged; with ``merges``,
        also during a merge.
        """
        thread = threading.get_ident()
        telling = thread in self.telling
        merge = self.merge_under_way
        if (
            is_held(self.turn)
            or (telling and merge is not None and merge.keeps_the_turn)
            or (merges and (telling or is_held(self.merging)))
        ):
            raise StoreLockedError(
                f"{self.path}: this thread is in the middle of a change, which a signal handler or a progress function has "
                "interrupted: change, merge or close the store when that call has ended",
                path=self.path,
            )

    def begin(self, sync: str | None) -> tuple[Snapshot, str]:
        """Return the snapshot before a change, after making durable what could not be before."""
        if self._closed:  # by another thread just now
            self.check()
        sync = self.sync if sync is None else check_sync(sync)
        self.settle()
        if self._flush_error is not None:
            self.flush()
        snapshot = self.tracker.snapshot()
        snapshot.delta.check_room(1, self.path)
        return snapshot, sync

    def _make(self, snapshot: Snapshot, change: Change, sync: str) -> Snapshot:
        """Make a change. After an error it has not happened, neither in the log nor in memory."""
        apply = partial(snapshot.delta.apply, change)
        return self._commit(snapshot, pack_change(change), change.totals, len(change.kinds), sync, apply)

    def _commit(
        self, snapshot: Snapshot, payload: bytes, totals: Totals, rows: int, sync: str, apply: Callable[[], None]
    ) -> Snapshot:
        """Log a change, apply it to the delta, and show it.

        An interrupt may come anywhere. Whether the change has happened is then what the log says: see :meth:`settle`.
        """
        log = self.log
        place, number = log.place, log.number
        try:
            try:
                log.append(payload, sync == "commit")
                self.unsettled = True
                apply()
            except BaseException:
                log.take_back(place, number)
                raise
            if sync == "commit":
                self._note_durable()
            after = Snapshot(snapshot.generation, snapshot.delta, snapshot.delta.version, totals)
            self.tracker.show(after)
            self.unsettled, self._taken_up = False, log.number
        except BaseException:
            self.recover()
            raise
        if sync != "commit":
            try:
                self._wait_for_more(rows, sync)
            except FpstoreError as error:
                self._flush_error = error  # this change is made; the next is refused until this one is durable
        if self.merge_at is not None:
            self.merge_if_due(after)
        return after

    def _make_nothing(self, sync: str) -> None:
        """Finish a call that changes nothing: what it found may rest on a change that is not yet durable."""
        if sync == "commit" and self.log.durable != self.log.place:
            self.flush()

    def _wait_for_more(self, rows: int, sync: str) -> None:
        self._waiting_rows += rows
        if self._waiting_rows >= (BATCH_ROWS if sync == "batch" else NONE_ROWS):
            self.flush()
        elif sync == "batch":
            if self._flusher is None or not self._flusher.is_alive():
                self._flusher = Worker(self._flush_in_time)
                try:
                    self._flusher.start()
                except RuntimeError:  # the system has no more threads: there is nobody to do it later
                    self.flush()
                    return
            if not self._due:
                self._due = time.monotonic() + BATCH_SECONDS
                self._wake.notify_all()

    def _flush_in_time(self) -> None:
        """Make groups durable when they are due; runs in its own thread."""
        with self.turn:
            while not self._closed:
                wait = self._due - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._wake.wait(wait)
                    continue
                try:
                    self.flush()
                except Exception as error:
                    self._flush_error = error  # the next change tries again
                    self._due = time.monotonic() + 1.0

    def flush(self) -> None:
        """Make all changes durable and publish them; on an error they stay logged.

        Raises
        ------
        StorageError
        """
        with self.turn:
            self.settle()
            self.log.force()
            self._note_durable()
            self._flush_error = None

    def _note_durable(self) -> None:
        self.log.publish()
        self._waiting_rows = 0
        self._due = 0.0

    def settle(self) -> None:
        """After an interrupt, bring memory in line with the files: the log may hold a change that memory lacks, or has in part.

        An interrupt of this changes nothing; every change, flush and merge settles first.
        """
        if not self.unsettled and self._taken_up == self.log.number:
            return
        self.unsettled = True
        tracker = self.tracker
        manifest = read_manifest(self.path, tracker.folder)
        number = manifest.generation.number
        if self.log.header.generation == number == tracker.manifest.generation.number:
            tracker.take(manifest, tracker.snapshot().generation, tracker.log, self.log.read(HEADER_BYTES, 1))
        else:  # a merge was interrupted after it had made its generation current
            remove_obsolete(tracker.here(), number)
            folder = tracker.here() / generation_folder(number)
            log = LogWriter(folder / LOG_FILE, manifest.identity, number)
            reader = LogReader(log.path, manifest.identity, number)
            tracker.take(manifest, Generation(folder.parent, manifest), reader, log.read(HEADER_BYTES, 1))
            self.log = log
        tracker.lead()
        self.unsettled, self._taken_up = False, self.log.number

    def recover(self) -> None:
        """Settle while an exception propagates; ignore errors, as that exception matters more. The next change tries again."""
        with suppress(FpstoreError, OSError, MemoryError):
            self.settle()

    def go_over(self, snapshot: Snapshot, log: LogWriter, reader: LogReader) -> None:
        """Go over to another generation, which has become current."""
        old = self.log
        old.supersede()
        self.tracker.switch(snapshot, reader)
        self.log, self._taken_up = log, log.number
        old.close()

    # Adding

    def _rows(self, snapshot: Snapshot, fingerprints: Words, ids: Words | Sequence[int | str] | None) -> Rows:
        return numbered(snapshot, self.path, fingerprints, ids, self._note_reused)

    def _note_reused(self, number: int) -> None:
        if self.merge_under_way is not None:
            self.numbers_in_use.add(number)

    def insert(self, fingerprints: Words, ids: Words | list[str] | None, sync: str | None) -> int:
        """Add pairs; return the number of new ones."""
        with self.turn:
            snapshot, sync = self.begin(sync)
            rows = self._rows(snapshot, fingerprints, ids)
            in_base = snapshot.delta.in_base(rows.fingerprints)
            new = new_pairs(snapshot, rows, in_base)
            kept, kept_ids, in_base = rows.fingerprints[new], rows.ids[new], in_base[new]
            if not len(kept):
                self._make_nothing(sync)
                return 0
            totals = rows.totals._replace(
                fingerprints=snapshot.totals.fingerprints + count_absent(snapshot, kept, in_base),
                ids=snapshot.totals.ids + len(kept),
            )
            self._make(snapshot, Change(totals, ADD + IN_BASE * in_base, kept, kept_ids, rows.strings), sync)
            return len(kept)

    def probe_insert_one(self, value: int, identifier: int | str, radius: int, always: bool, sync: str | None) -> list[Match]:
        """Probe, and insert if nothing matched."""
        with self.turn:
            snapshot, sync = self.begin(sync)
            kind = kind_with(snapshot, self.path, (identifier,))
            matches = snapshot.probe(value, radius)
            if matches and not always:
                self._make_nothing(sync)
                return matches
            number, strings = number_of(snapshot, identifier, self._note_reused)
            known = bool(matches) and matches[0].distance == 0
            if known and self._has_pair(snapshot, value, number):
                self._make_nothing(sync)
                return matches
            before = snapshot.totals
            totals = Totals(before.fingerprints + (not known), before.ids + 1, before.next_row, kind).counting(number)
            delta = snapshot.delta
            # A fingerprint that the probe has not found is in the tables only if it was deleted from them.
            look = known or delta.kernel.removals
            in_base = bool(look) and snapshot.generation.identity.locate_one(value) is not None
            payload = pack_added_pair(totals, value, number, in_base, strings)
            self._commit(snapshot, payload, totals, 1, sync, partial(delta.add_one, value, number, in_base, strings))
            return matches

    def _has_pair(self, snapshot: Snapshot, value: int, number: int) -> bool:
        _, numbers = snapshot.numbers_of(np.array([value], np.uint64))
        return bool((numbers == np.uint64(number)).any())

    def probe_insert(
        self, fingerprints: Words, ids: Words | list[str] | None, radius: int, always: bool, threads: int, sync: str | None
    ) -> tuple[Snapshot, Columns, npt.NDArray[np.bool_]]:
        """Probe and insert in order; return the snapshot afterwards, the columns of the matches, and which rows were inserted."""
        with self.turn:
            snapshot, sync = self.begin(sync)
            delta = snapshot.delta
            rows = self._rows(snapshot, fingerprints, ids)
            near = snapshot.base_columns(fingerprints, radius, threads)
            in_base = delta.in_base(fingerprints)
            dropped = ~new_pairs(snapshot, rows, in_base) if always else np.zeros(len(fingerprints), bool)
            missing = absent(snapshot, fingerprints, in_base)
            batch = RowsInOrder(fingerprints, rows.ids, in_base, missing & (in_base != 0), dropped, near)
            delta.check_room(len(fingerprints) + 1, self.path)
            self.unsettled = True  # each row meets those before it, so the delta has them before the log
            try:
                columns, mask = probe_insert_in_order(delta, batch, radius, always)
            except BaseException:
                self.recover()
                raise
            count = int(mask.sum())
            if not count:
                self.unsettled = False
                self._make_nothing(sync)
                return snapshot, columns, mask
            kept, kept_ids = fingerprints[mask], rows.ids[mask]
            totals = rows.totals._replace(
                fingerprints=snapshot.totals.fingerprints + count_distinct(fingerprints[mask & missing]),
                ids=snapshot.totals.ids + count,
                next_row=snapshot.totals.next_row,
            ).counting(int(kept_ids.max()))
            # The number of a string that was not needed stays unused.
            used = set(kept_ids.tolist()) if rows.strings else ()
            strings = [string if number in used else b"" for number, string in enumerate(rows.strings, delta.next_string)]
            payload = pack_change(Change(totals, ADD + IN_BASE * in_base[mask], kept, kept_ids, strings))
            after = self._commit(snapshot, payload, totals, count, sync, partial(delta.note_strings, strings))
            return after, columns, mask

    # Deleting

    def delete_fingerprints(self, fingerprints: Words, sync: str | None) -> int:
        """Remove fingerprints with all their ids; return the number of pairs removed."""
        with self.turn:
            snapshot, sync = self.begin(sync)
            distinct = np.unique(fingerprints)
            in_base = snapshot.delta.in_base(distinct)
            distinct = distinct[~absent(snapshot, distinct, in_base)]
            lims, _ = snapshot.numbers_of(distinct)
            return self._remove(snapshot, distinct, int(lims[-1]), NONE, NONE, sync)

    def delete_ids(self, numbers: Words, sync: str | None) -> int:
        """Remove every pair that has one of these ids; return the number of pairs removed."""
        with self.turn:
            snapshot, sync = self.begin(sync)
            fingerprints, ids = snapshot.with_ids(numbers)
            distinct, counts = np.unique(fingerprints, return_counts=True)
            lims, _ = snapshot.numbers_of(distinct)
            dying = distinct[np.diff(lims) == counts]
            stays = ~np.isin(fingerprints, dying)
            return self._remove(snapshot, dying, len(fingerprints), fingerprints[stays], ids[stays], sync)

    def _remove(self, snapshot: Snapshot, dying: Words, pairs: int, fingerprints: Words, ids: Words, sync: str) -> int:
        if not pairs:
            self._make_nothing(sync)
            return 0
        kinds = np.repeat(np.array([WIPE, REMOVE], np.uint8), [len(dying), len(fingerprints)])
        fingerprints, ids = np.concatenate([dying, fingerprints]), np.concatenate([np.zeros(len(dying), np.uint64), ids])
        kinds += IN_BASE * snapshot.delta.in_base(fingerprints)
        totals = snapshot.totals._replace(fingerprints=snapshot.totals.fingerprints - len(dying), ids=snapshot.totals.ids - pairs)
        self._make(snapshot, Change(totals, kinds, fingerprints, ids, []), sync)
        return pairs

    # Merging

    def merge(
        self,
        memory: int | str | None,
        threads: int | None,
        progress: Progress | None,
        others: Sequence[Snapshot] = (),
        renumber: bool = False,
        design: str | None = None,
    ) -> None:
        """Fold the delta, and other stores, into a new generation; one merge at a time."""
        from fpstore.change.join import Join
        from fpstore.change.merge import Merge

        self.refuse_inside(merges=True)
        with self.merging:
            self.check()
            if self._closing:
                raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
            resources = Resources(parse_memory(memory), parse_threads(threads), progress)
            try:
                self.merge_under_way = (
                    Join(self, others, renumber, resources, design) if others else Merge(self, resources, design)
                )
                if self._closing:  # close may not have seen this merge yet
                    self.merge_under_way.stop()
                logger().info("%s: merge begins, generation %d", self.path, self.tracker.manifest.generation.number)
                self.merge_under_way.run()
            except FpstoreError as error:
                plain = with_path(error, self.tracker.inside(), self.path)  # a merge goes through the open folder
                self._note_merge_error(plain)
                raise plain from error
            except Exception as error:
                self._note_merge_error(error)
                raise
            finally:
                self.merge_under_way = None
            self._note_merge_error(None)

    def _note_merge_error(self, error: Exception | None) -> None:
        """Store the outcome of a merge where every process finds it, and log it."""
        note = MergeError(self.tracker.folder)
        if error is None:
            note.clear()
            record = self.tracker.manifest.generation
            logger().info("%s: merged, generation %d: %d fingerprints", self.path, record.number, record.fingerprints)
        elif not isinstance(error, (ClosedStoreError, InputError)):
            note.set(f"{type(error).__name__}: {error}")
            unforeseen = None if isinstance(error, FpstoreError) else error
            logger().error("%s: merge failed, the delta stays as it was: %s", self.path, error, exc_info=unforeseen)

    def merge_if_due(self, snapshot: Snapshot) -> None:
        """Start a merge in the background if the delta has become large."""
        if self.merge_at is None or (self._merger is not None and self._merger.is_alive()):
            return
        changes = snapshot.delta.kernel.operations
        if changes < max(self.merge_at * snapshot.generation.count, LEAST_CHANGES, self._retry_at):
            return
        self._merger = Worker(self._merge_in_background)
        try:
            self._merger.start()
        except RuntimeError as error:  # the system has no more threads
            self._retry_at = 2 * changes
            self._note_merge_error(error)

    def _merge_in_background(self) -> None:
        try:
            self.merge(None, None, None)
            self._retry_at = 0
        except BaseException:
            self._retry_at = 2 * self.tracker.snapshot().delta.kernel.operations if not self._closed else 0
        finally:
            self._merger = None

    # Life cycle

    def state(self) -> dict[str, object]:
        """Return what an operator watches of a writer: see ``stats``."""
        return {
            "process": self._lock.owner,
            "sync": self.sync,
            "waiting_rows": self._waiting_rows,
            "merging": self.merge_under_way is not None,
        }

    def close(self) -> None:
        """Make all changes durable, and release the lock."""
        if not self.is_own:
            self._closed = True  # threads of the parent may have held the locks at the fork
            return
        self.refuse_inside(merges=True)
        self._closing = True
        try:
            merge, merger = self.merge_under_way, self._merger
            if merge is not None:
                merge.stop()
            if merger is not None:
                merger.wait()
            with self.merging, self.turn:
                try:
                    if not self._closed:
                        self.flush()
                finally:
                    self._closed = True
                    try:
                        self.log.close()
                    finally:
                        self._lock.release()
                        self._wake.notify_all()
        finally:
            self._closing = False
        flusher = self._flusher
        if flusher is not None:
            flusher.wait()  # at the end of the interpreter it would keep what it refers to
