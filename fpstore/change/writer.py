"""The single writer of a store: it makes changes and starts merges while it has the lock."""

from __future__ import annotations

import _thread
import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.diagnostics import logger
from fpstore.base.resources import Resources, parse_memory, parse_threads
from fpstore.base.threads import is_held, wait_for
from fpstore.change.committer import Committer, LoggedChange, remove_obsolete
from fpstore.change.decisions import (
    Deleted,
    SmallChange,
    count_distinct,
    delete_by_fingerprints,
    delete_by_ids,
    delete_by_pairs,
    insertion,
    is_absent,
    make_logged_change,
    new_pairs,
    new_rows,
    probe_and_insert_row,
    probe_and_replace_row,
    probe_insert_in_order,
    replacement,
    replacement_of_one,
)
from fpstore.change.upserts import UpsertResult, probe_and_replace
from fpstore.disk.folders import sync_folder
from fpstore.disk.locks import LOCK_FILE, WriterLock
from fpstore.disk.refusals import NOTHING_CHANGED, is_system_error, refusal_error, with_path
from fpstore.errors import (
    ClosedStoreError,
    FpstoreError,
    InputError,
    ReadOnlyError,
    StoreLockedError,
    StoreNotFoundError,
)
from fpstore.format.log import HEADER_BYTES, LOG_FILE, LogHeader
from fpstore.format.log_writer import LogWriter
from fpstore.format.manifest import set_merge_error
from fpstore.format.record import ADD, IN_BASE, Change, pack_change
from fpstore.query.batches import MatchColumns
from fpstore.query.matches import MatchList
from fpstore.query.store_snapshot import StoreSnapshot
from fpstore.query.tracker import Tracker

if TYPE_CHECKING:
    from fpstore.change.merge import Merge

T = TypeVar("T")
MIN_CHANGES = 1 << 16  # fewer are not worth a merge
_advised: set[bytes] = set()  # identities of stores for which this process has logged the advice
MAX_CHANGES = 1 << 63  # more than any store has; an infinite float is no whole number


def changes_due(snapshot: StoreSnapshot, share: float) -> int:
    """Return how many changes are a share of the fingerprints in the tables, and worth a merge."""
    return ceil(max(min(share * snapshot.generation.count, MAX_CHANGES), MIN_CHANGES))


def merge_advice(snapshot: StoreSnapshot, path: Path | str) -> str | None:
    """Return why to merge, once there are as many changes as fingerprints in the tables."""
    changes = snapshot.delta.kernel.operations
    if changes < changes_due(snapshot, 1.0):
        return None
    megabytes = snapshot.delta.kernel.memory_bytes / 1e6
    return (
        f"{path}: {changes:,} changes since the last merge, for {snapshot.generation.count:,} "
        "fingerprints in the tables: each process that opens the store reads them and keeps them "
        f"in memory ({megabytes:,.0f} MB). Merge it: fpstore merge, or Store.merge()"
    )


def is_merge_due(snapshot: StoreSnapshot, share: float) -> bool:
    """Return whether the changes are as many as a share of the fingerprints in the tables."""
    changes: int = snapshot.delta.kernel.operations
    return changes >= changes_due(snapshot, share)


class StoreWriter:
    """The right of a process to change a store, and the changes.

    Calls from several threads take turns.
    """

    def __init__(
        self, tracker: Tracker, lock: WriterLock, log: LogWriter, sync: str, merge_at: float | None
    ) -> None:
        self.path = tracker.path
        self.committer = Committer(tracker, log, sync)
        self.turn = self.committer.turn
        self.under_way: Merge | None = None
        # the error of the last merge, which the system may have refused to write into the store
        self.merge_error: str | None = None
        self._tracker, self._lock = tracker, lock
        self._merge_at, self._merge_lock = merge_at, threading.RLock()  # held during a merge
        self._worker: threading.Thread | None = None
        self._retry_at = 0
        self._closing = self._closed = False

    # What every change does

    def check(self) -> None:
        """Refuse a writer that is closed, or copied by a fork, and a nested change."""
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self._lock.owner != os.getpid():
            raise ReadOnlyError(
                f"{self.path}: opened for writing by process {self._lock.owner}; after a fork "
                "only that process may change it",
                path=self.path,
            )
        self.refuse_nested()

    @property
    def is_own(self) -> bool:
        """Whether this process opened it, rather than the parent of a fork."""
        return self._lock.owner == os.getpid()

    def refuse_nested(self, waits_for_merge: bool = False) -> None:
        """Refuse a call that would wait for this thread.

        It comes from a signal handler inside a change, or from the progress function of a merge. A
        call that does not wait for the end of a merge only waits for a merge that keeps the turn.
        """
        if self.is_nested(waits_for_merge):
            raise StoreLockedError(
                f"{self.path}: this thread is in the middle of a change, which a signal handler "
                "or a progress function has interrupted: change, merge or close the store when "
                "that call has ended",
                path=self.path,
            )

    def is_nested(self, waits_for_merge: bool = False) -> bool:
        merge = self.under_way
        # the merge waits for this thread
        in_progress = merge is not None and threading.get_ident() in merge.progress_threads
        keeps_the_turn = merge is not None and merge.keeps_the_turn
        waits = (in_progress and keeps_the_turn) or (
            waits_for_merge and (in_progress or is_held(self._merge_lock))
        )
        return is_held(self.turn) or waits

    def _change(
        self,
        sync: str | None,
        decide: Callable[[StoreSnapshot], tuple[Change | SmallChange | None, T]],
    ) -> T:
        with self.turn:
            snapshot, sync = self.committer.begin(sync)
            change, result = decide(snapshot)
            if change is None:
                self.committer.commit_nothing(sync)
            else:
                self._start_if_due(
                    self.committer.commit(snapshot, sync, make_logged_change(snapshot, change))
                )
            return result

    def flush(self) -> None:
        self.committer.flush()

    # Changes

    def _note_reused(self, number: int) -> None:
        """Note that a new row has an old string, which the new dictionary must keep."""
        merge = self.under_way
        if merge is not None:
            merge.numbers_in_use.add(number)

    def insert(self, fingerprints: Words, ids: Words | list[str] | None, sync: str | None) -> int:
        """Add pairs; return the number of new ones."""
        return self._change(
            sync, lambda snapshot: insertion(snapshot, fingerprints, ids, self._note_reused)
        )

    def upsert(self, fingerprints: Words, ids: Words | list[str], sync: str | None) -> int:
        """Add pairs, and remove all others that have these ids.

        Return the number of ids that changed.
        """
        return self._change(
            sync, lambda snapshot: replacement(snapshot, fingerprints, ids, self._note_reused)
        )

    def upsert_one(self, fingerprint: int, identifier: int | str, sync: str | None) -> int:
        """Do :meth:`upsert` for one row."""
        return self._change(
            sync,
            lambda snapshot: replacement_of_one(
                snapshot, fingerprint, identifier, self._note_reused
            ),
        )

    def delete_fingerprints(self, fingerprints: Words, sync: str | None) -> Deleted:
        """Remove fingerprints with all their ids."""
        return self._change(sync, lambda snapshot: delete_by_fingerprints(snapshot, fingerprints))

    def delete_ids(self, ids: Words | list[str], sync: str | None) -> Deleted:
        """Remove every pair that has one of these ids."""
        return self._change(sync, lambda snapshot: delete_by_ids(snapshot, ids))

    def delete_pairs(
        self, fingerprints: Words, ids: Words | list[str] | None, sync: str | None
    ) -> Deleted:
        """Remove the pair of each row; other pairs of its fingerprint and of its id stay."""
        assert ids is not None
        return self._change(sync, lambda snapshot: delete_by_pairs(snapshot, fingerprints, ids))

    def probe_insert_one(
        self, value: int, identifier: int | str, radius: int, always: bool, sync: str | None
    ) -> MatchList:
        """Probe, and insert if nothing matched."""

        def decide(snapshot: StoreSnapshot) -> tuple[SmallChange | None, MatchList]:
            return probe_and_insert_row(
                snapshot, value, identifier, radius, always, self._note_reused
            )

        return self._change(sync, decide)

    def probe_upsert_one(
        self, value: int, identifier: int | str, radius: int, sync: str | None
    ) -> MatchList:
        """Take an id from all other fingerprints, probe, and insert if nothing else matched."""

        def decide(snapshot: StoreSnapshot) -> tuple[SmallChange | None, MatchList]:
            return probe_and_replace_row(snapshot, value, identifier, radius, self._note_reused)

        return self._change(sync, decide)

    def probe_upsert(
        self,
        fingerprints: Words,
        ids: Words | list[str],
        radius: int,
        threads: int,
        sync: str | None,
    ) -> UpsertResult:
        """Do :meth:`probe_upsert_one` for each row in order, as one change."""

        def decide(snapshot: StoreSnapshot) -> tuple[Change | None, UpsertResult]:
            return probe_and_replace(
                snapshot, fingerprints, ids, radius, threads, self._note_reused
            )

        return self._change(sync, decide)

    def probe_insert(
        self,
        fingerprints: Words,
        ids: Words | list[str] | None,
        radius: int,
        always: bool,
        threads: int,
        sync: str | None,
    ) -> tuple[StoreSnapshot, MatchColumns, npt.NDArray[np.bool_]]:
        """Probe and insert in order.

        Return the snapshot afterwards, the columns of the matches, and which rows were inserted.
        """
        with self.turn:
            snapshot, sync = self.committer.begin(sync)
            delta = snapshot.delta
            rows = new_rows(snapshot, fingerprints, ids, self._note_reused)
            near = snapshot.base_columns(fingerprints, radius, threads)
            in_base = delta.in_base(fingerprints)
            dropped = (
                ~new_pairs(snapshot, rows.fingerprints, rows.ids, in_base)
                if always
                else np.zeros(len(fingerprints), bool)
            )
            missing = is_absent(snapshot, fingerprints, in_base)
            returning = missing & (in_base != 0)
            delta.check_room(len(fingerprints) + 1, self.path)
            # each row meets those before it, so the delta has them before the log
            self.committer.unsettled = True
            try:
                columns, mask = probe_insert_in_order(
                    delta, fingerprints, rows.ids, in_base, returning, dropped, near, radius, always
                )
            except BaseException:
                self.committer.recover()
                raise
            count = int(mask.sum())
            if not count:
                self.committer.unsettled = False
                self.committer.commit_nothing(sync)
                return snapshot, columns, mask
            added, added_ids = fingerprints[mask], rows.ids[mask]
            totals = rows.totals._replace(
                fingerprints=snapshot.totals.fingerprints
                + count_distinct(fingerprints[mask & missing]),
                ids=snapshot.totals.ids + count,
                next_row=snapshot.totals.next_row,
            ).counting(int(added_ids.max()))
            # The number of a string that was not needed stays unused.
            used = set(added_ids.tolist()) if rows.strings else ()
            strings = [
                string if number in used else b""
                for number, string in enumerate(rows.strings, delta.next_string)
            ]
            payload = pack_change(
                Change(totals, ADD + IN_BASE * in_base[mask], added, added_ids, strings)
            )
            after = self.committer.commit(
                snapshot,
                sync,
                LoggedChange(payload, totals, count, partial(delta.note_strings, strings)),
            )
            self._start_if_due(after)
            return after, columns, mask

    # Merges

    def merge(self, resources: Resources, at: float | None = None) -> None:
        """Fold the delta into a new generation.

        With ``at``, only if the delta has this share of the tables.
        """
        from fpstore.change.merge import Merge

        self.run(lambda: Merge(self.committer, resources), at)

    def redesign(self, resources: Resources, design: str) -> None:
        """Do :meth:`merge`, with the tables of another design."""
        from fpstore.change.merge import Merge

        self.run(lambda: Merge(self.committer, resources, design))

    def absorb(self, resources: Resources, others: Sequence[StoreSnapshot], renumber: bool) -> None:
        """Do :meth:`merge`, with the content of other stores."""
        from fpstore.change.absorb import Absorb

        self.run(lambda: Absorb(self.committer, resources, others, renumber))

    def run(self, make: Callable[[], Merge], at: float | None = None) -> None:
        """Run a merge when one in the background has ended."""
        self.refuse_nested(waits_for_merge=True)
        with self._merge_lock:
            if self._closing:
                raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
            if at is not None and not is_merge_due(self._tracker.snapshot(), at):
                return
            try:
                self.under_way = make()
                if self._closing:  # close may not have seen this merge yet
                    self.under_way.stop()
                logger().info(
                    "%s: merge begins, generation %d",
                    self.path,
                    self._tracker.manifest.generation.number,
                )
                self.under_way.run()
            except FpstoreError as error:
                # a merge goes through the open folder
                named_error = with_path(error, self._tracker.path_inside(), self.path)
                self._note_outcome(named_error)
                raise named_error from error
            except Exception as error:
                self._note_outcome(error)
                raise
            finally:
                self.under_way = None
            self._note_outcome(None)

    def _note_outcome(self, error: Exception | None) -> None:
        """Store the outcome of a merge where every process finds it, and log it."""
        if error is None:
            self.merge_error = None
            set_merge_error(self._tracker.folder, None)
            record = self._tracker.manifest.generation
            logger().info(
                "%s: merged, generation %d: %d fingerprints",
                self.path,
                record.number,
                record.fingerprints,
            )
        elif isinstance(error, ClosedStoreError):
            logger().info(
                "%s: merge stopped, as the store is closed; the delta stays as it was", self.path
            )
        elif not isinstance(error, InputError):
            self.merge_error = f"{type(error).__name__}: {error}"
            set_merge_error(self._tracker.folder, self.merge_error)
            unforeseen = None if isinstance(error, FpstoreError) else error
            logger().error(
                "%s: merge failed, the delta stays as it was: %s",
                self.path,
                error,
                exc_info=unforeseen,
            )

    def _start_if_due(self, snapshot: StoreSnapshot) -> None:
        """Start a merge in the background if the delta has become large.

        Without ``merge_at``, log once that one is due.
        """
        changes = snapshot.delta.kernel.operations
        if self._merge_at is None:
            identity = self._tracker.manifest.identity
            if (
                changes >= MIN_CHANGES
                and identity not in _advised
                and (advice := merge_advice(snapshot, self.path))
            ):
                _advised.add(identity)
                logger().warning("%s", advice)
            return
        if self._worker is not None and self._worker.is_alive():
            return
        if changes < self._retry_at or not is_merge_due(snapshot, self._merge_at):
            return
        self._worker = threading.Thread(
            target=self._merge_in_background, name="fpstore-merge", daemon=True
        )
        try:
            self._worker.start()
        except RuntimeError as error:  # the system has no more threads
            self._retry_at = 2 * changes
            self._note_outcome(error)

    def _merge_in_background(self) -> None:
        try:
            self.merge(Resources(parse_memory(None), parse_threads(None)))
            self._retry_at = 0
        except BaseException:
            self._retry_at = (
                2 * self._tracker.snapshot().delta.kernel.operations if not self._closing else 0
            )
        finally:
            self._worker = None

    # Life cycle

    def state(self) -> dict[str, object]:
        """Return what ``stats`` reports of the writer."""
        return {
            "process": self._lock.owner,
            "sync": self.committer.sync,
            "waiting_rows": self.committer.waiting_rows,
            "merging": self.under_way is not None,
        }

    def close(self) -> None:
        """Make all changes durable, and release the lock."""
        if not self.is_own:
            self._closed = True  # threads of the parent may have held the locks at the fork
            return
        self.refuse_nested(waits_for_merge=True)
        try:
            self._closing = True
            merge, worker = self.under_way, self._worker
            if merge is not None:
                merge.stop()
            wait_for(worker)
            with self._merge_lock, self.turn:
                try:
                    if not self._closed:
                        self.flush()
                finally:
                    self._closed = True
                    try:
                        self.committer.close()
                    finally:
                        self._lock.release()
        finally:
            self._closing = self._closed
        self.committer.wait()


# Opening


def open_for_writing(tracker: Tracker, sync: str, merge_at: float | None) -> StoreWriter:
    """Make this process the store's writer.

    Lock it, remove the leftovers of a dead writer, cut off a torn end of the log.
    """
    path = tracker.path
    try:
        lock = WriterLock(tracker.current_path())
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ReadOnlyError(
                f"{path}: cannot be changed ({LOCK_FILE}: {error.strerror})", path=path
            ) from error
        raise error if isinstance(error, FpstoreError) else refusal_error(path, error) from error
    log = None
    try:
        if not tracker.is_same():
            raise StoreNotFoundError(
                f"{path}: was replaced while it was opened: open it again", path=path
            )
        generation = tracker.snapshot().generation
        manifest = tracker.manifest
        here = tracker.current_path()
        # a writer that was killed may not have: what is current now stays current
        sync_folder(here)
        remove_obsolete(here, manifest.generation.number)
        before = tracker.log.published_end
        log = LogWriter(here / generation.folder.name / LOG_FILE, LogHeader.from_manifest(manifest))
        if log.durable != before:
            logger().warning(
                "%s: a writer died: log recovered up to byte %d; published were %d",
                path,
                log.durable,
                before,
            )
        # Only now are the records known that a writer logged before it died without publishing
        # them.
        tracker.adopt(manifest, generation, tracker.log, log.read(HEADER_BYTES, 1))
        return StoreWriter(tracker, lock, log, sync, merge_at)
    except BaseException as error:
        if log is not None:
            log.close()
        lock.release()
        if is_system_error(error):
            raise refusal_error(path, error, NOTHING_CHANGED) from error
        raise


def close_dropped(writer: StoreWriter) -> None:
    """Close the writer of a store that was dropped, or left open at the end of the interpreter."""
    # a finalizer has no caller to report to; there may be no more threads
    with suppress(FpstoreError, RuntimeError):
        # The garbage collector may run in the middle of a call of this thread, which may hold the
        # lock that closing waits for.
        if writer.is_own and writer.is_nested(waits_for_merge=True):
            _thread.start_new_thread(close_dropped, (writer,))
        else:
            writer.close()
