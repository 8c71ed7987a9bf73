"""The single writer of a store: which rows a change adds or removes, and the life of the right to change."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.diagnostics import logger
from fpstore.base.resources import Resources
from fpstore.base.threads import Worker, is_held
from fpstore.base.width import distinct, distinct_counts, is_in, rows_to_numbers
from fpstore.change.committer import Committer, remove_obsolete
from fpstore.change.merging import Merging
from fpstore.change.new_rows import (
    NewRows,
    RowsInOrder,
    absent,
    change_of,
    count_absent,
    count_distinct,
    kind_with,
    last_of_each,
    leaving,
    new_pairs,
    numbered,
    numbered_one,
    probe_insert_in_order,
    repeats,
    replaced,
)
from fpstore.disk.folders import sync_folder
from fpstore.disk.locks import LOCK_FILE, WriterLock
from fpstore.disk.refusals import NOTHING_CHANGED, is_of_the_system, refused
from fpstore.errors import ClosedStoreError, FpstoreError, ReadOnlyError, StoreLockedError, StoreNotFoundError
from fpstore.format.log import HEADER_BYTES, LOG_FILE, LogHeader
from fpstore.format.log_writer import LogWriter
from fpstore.format.record import ADD, IN_BASE, REMOVE, WIPE, Change, Row, Totals, pack_change, pack_one
from fpstore.query.batches import MatchColumns
from fpstore.query.ids import number_of, numbers_of
from fpstore.query.matches import MatchList
from fpstore.query.snapshot import Snapshot
from fpstore.query.tracker import Tracker


class Deleted(NamedTuple):
    """The result of :meth:`fpstore.Store.delete`.

    Attributes
    ----------
    removed : int
        Pairs of fingerprint and id that are gone.
    missing : int
        Of the ids, fingerprints or pairs that were given, how many were not stored. One that was given twice counts once.
    """

    removed: int
    missing: int


class StoreWriter:
    """The right of a process to change a store, and the changes. Calls from several threads take turns."""

    def __init__(self, tracker: Tracker, lock: WriterLock, log: LogWriter, sync: str, merge_at: float | None) -> None:
        self.path = tracker.path
        self.committer = Committer(tracker, log, sync)
        self.merging = Merging(self.committer, merge_at)
        self.turn = self.committer.turn
        self._lock = lock
        self._closed = False

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

    def refuse_nested(self, waits_for_merge: bool = False) -> None:
        """Refuse a call that would wait for this thread: from a signal handler inside a change, or the progress of a merge.

        A call that does not wait for the end of a merge waits for a merge with whole stores only.
        """
        if self.is_nested(waits_for_merge):
            raise StoreLockedError(
                f"{self.path}: this thread is in the middle of a change, which a signal handler or a progress function has "
                "interrupted: change, merge or close the store when that call has ended",
                path=self.path,
            )

    def is_nested(self, waits_for_merge: bool = False) -> bool:
        """Whether :meth:`refuse_nested` refuses."""
        return is_held(self.turn) or self.merging.would_deadlock(waits_for_merge)

    def _begin(self, sync: str | None) -> tuple[Snapshot, str]:
        if self._closed:  # by another thread just now
            self.check()
        return self.committer.begin(sync)

    def _make(self, snapshot: Snapshot, change: Change, sync: str) -> None:
        self.merging.start_if_due(self.committer.make(snapshot, change, sync))

    def _make_rows(self, snapshot: Snapshot, totals: Totals, rows: list[Row], strings: list[bytes], sync: str) -> None:
        if len(rows) > 1:
            self._make(snapshot, change_of(totals, rows, strings, snapshot.width.words), sync)
            return
        payload = pack_one(totals, rows[0], strings, snapshot.width.words)
        self._commit(snapshot, payload, totals, 1, sync, partial(snapshot.delta.apply_one, rows[0], strings))

    def _commit(
        self, snapshot: Snapshot, payload: bytes, totals: Totals, rows: int, sync: str, apply: Callable[[], None]
    ) -> Snapshot:
        after = self.committer.commit(snapshot, payload, totals, rows, sync, apply)
        self.merging.start_if_due(after)
        return after

    def flush(self) -> None:
        """Make all changes durable and publish them."""
        self.committer.flush()

    # Adding

    def _rows(self, snapshot: Snapshot, fingerprints: Words, ids: Words | Sequence[int | str] | None) -> NewRows:
        return numbered(snapshot, self.path, fingerprints, ids, self.merging.note_reused)

    def insert(self, fingerprints: Words, ids: Words | list[str] | None, sync: str | None) -> int:
        """Add pairs; return the number of new ones."""
        with self.turn:
            snapshot, sync = self._begin(sync)
            rows = self._rows(snapshot, fingerprints, ids)
            in_base = snapshot.delta.in_base(rows.fingerprints)
            new = new_pairs(snapshot, rows.fingerprints, rows.ids, in_base)
            kept, kept_ids, in_base = rows.fingerprints[new], rows.ids[new], in_base[new]
            if not len(kept):
                self.committer.make_nothing(sync)
                return 0
            totals = rows.totals._replace(
                fingerprints=snapshot.totals.fingerprints + count_absent(snapshot, kept, in_base),
                ids=snapshot.totals.ids + len(kept),
            )
            self._make(snapshot, Change(totals, ADD + IN_BASE * in_base, kept, kept_ids, rows.strings), sync)
            return len(kept)

    def probe_insert_one(self, value: int, identifier: int | str, radius: int, always: bool, sync: str | None) -> MatchList:
        """Probe, and insert if nothing matched."""
        with self.turn:
            snapshot, sync = self._begin(sync)
            kind = kind_with(snapshot, self.path, (identifier,))
            matches = snapshot.probe(value, radius)
            if matches and not always:
                self.committer.make_nothing(sync)
                return matches
            number, strings = numbered_one(snapshot, identifier, self.merging.note_reused)
            known, in_base = bool(matches) and matches[0].distance == 0, False
            # A fingerprint that the probe has not found is in the tables only if it was deleted from them.
            if known or snapshot.delta.kernel.removals:
                ids, in_base = snapshot.id_numbers_of_one(value)
                if number in ids:
                    self.committer.make_nothing(sync)
                    return matches
            before = snapshot.totals
            totals = Totals(before.fingerprints + (not known), before.ids + 1, before.next_row, kind).counting(number)
            self._make_rows(snapshot, totals, [(ADD | IN_BASE if in_base else ADD, value, number)], strings, sync)
            return matches

    def probe_insert(
        self, fingerprints: Words, ids: Words | list[str] | None, radius: int, always: bool, threads: int, sync: str | None
    ) -> tuple[Snapshot, MatchColumns, npt.NDArray[np.bool_]]:
        """Probe and insert in order; return the snapshot afterwards, the columns of the matches, and which rows were inserted."""
        with self.turn:
            snapshot, sync = self._begin(sync)
            delta = snapshot.delta
            rows = self._rows(snapshot, fingerprints, ids)
            near = snapshot.base_columns(fingerprints, radius, threads)
            in_base = delta.in_base(fingerprints)
            dropped = ~new_pairs(snapshot, rows.fingerprints, rows.ids, in_base) if always else np.zeros(len(fingerprints), bool)
            missing = absent(snapshot, fingerprints, in_base)
            batch = RowsInOrder(fingerprints, rows.ids, in_base, missing & (in_base != 0), dropped, near)
            delta.check_room(len(fingerprints) + 1, self.path)
            self.committer.unsettled = True  # each row meets those before it, so the delta has them before the log
            try:
                columns, mask = probe_insert_in_order(delta, batch, radius, always)
            except BaseException:
                self.committer.recover()
                raise
            count = int(mask.sum())
            if not count:
                self.committer.unsettled = False
                self.committer.make_nothing(sync)
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

    def upsert(self, fingerprints: Words, ids: Words | list[str], sync: str | None) -> int:
        """Add pairs, and remove all others that have these ids; return the number of ids that changed."""
        with self.turn:
            snapshot, sync = self._begin(sync)
            fingerprints, ids = last_of_each(fingerprints, ids)
            rows = self._rows(snapshot, fingerprints, ids)
            in_base = snapshot.delta.in_base(rows.fingerprints)
            new = new_pairs(snapshot, rows.fingerprints, rows.ids, in_base)
            gone, gone_ids = replaced(snapshot, rows)
            added, added_ids, in_base = rows.fingerprints[new], rows.ids[new], in_base[new]
            if not len(added) and not len(gone):
                self.committer.make_nothing(sync)
                return 0
            dying = self._left_without_ids(snapshot, gone, added)
            stays = ~is_in(gone, dying)
            # A fingerprint that dies gets no pair, so the order of the rows does not matter.
            removed, removed_ids = np.concatenate([dying, gone[stays]]), gone_ids[stays]
            kinds = np.repeat(np.array([ADD, WIPE, REMOVE], np.uint8), [len(added), len(dying), len(removed_ids)])
            kinds += IN_BASE * np.concatenate([in_base, snapshot.delta.in_base(removed)])
            before = snapshot.totals
            totals = rows.totals._replace(
                fingerprints=before.fingerprints + count_absent(snapshot, added, in_base) - len(dying),
                ids=before.ids + len(added) - len(gone),
            )
            columns = np.concatenate([added, removed]), np.concatenate([added_ids, np.zeros(len(dying), np.uint64), removed_ids])
            self._make(snapshot, Change(totals, kinds, *columns, rows.strings), sync)
            return len(np.union1d(added_ids, gone_ids))

    def upsert_one(self, fingerprint: int, identifier: int | str, sync: str | None) -> int:
        """Do :meth:`upsert` for one row."""
        with self.turn:
            snapshot, sync = self._begin(sync)
            kind = kind_with(snapshot, self.path, (identifier,))
            number, strings = numbered_one(snapshot, identifier, self.merging.note_reused)
            found = [] if strings else snapshot.fingerprints_of_one(number)
            others = [other for other in found if other != fingerprint]
            is_new = len(others) == len(found)
            if not is_new and not others:
                self.committer.make_nothing(sync)
                return 0
            rows, dying = leaving(snapshot, others, number)
            before = snapshot.totals
            count = before.fingerprints - dying
            if is_new:
                ids, in_base = snapshot.id_numbers_of_one(fingerprint)
                rows.append((ADD | IN_BASE if in_base else ADD, fingerprint, number))
                count += not ids
            totals = Totals(count, before.ids + is_new - len(others), before.next_row, kind).counting(number)
            self._make_rows(snapshot, totals, rows, strings, sync)
            return 1

    def _left_without_ids(self, snapshot: Snapshot, gone: Words, added: Words) -> Words:
        """Return the fingerprints that have no id left when one pair is gone for each of ``gone``, and ``added`` get one."""
        unique, counts = distinct_counts(gone)
        lims, _ = snapshot.id_numbers(unique)
        dying: Words = unique[(np.diff(lims) == counts) & ~is_in(unique, added)]
        return dying

    # Deleting

    def delete_fingerprints(self, fingerprints: Words, sync: str | None) -> Deleted:
        """Remove fingerprints with all their ids."""
        with self.turn:
            snapshot, sync = self._begin(sync)
            unique = distinct(fingerprints)
            stored = unique[~absent(snapshot, unique, snapshot.delta.in_base(unique))]
            lims, _ = snapshot.id_numbers(stored)
            removed = self._remove(snapshot, stored, int(lims[-1]), unique[:0], np.empty(0, np.uint64), sync)
            return Deleted(removed, len(unique) - len(stored))

    def delete_ids(self, ids: Words | list[str], sync: str | None) -> Deleted:
        """Remove every pair that has one of these ids."""
        if len(ids) == 1:
            return self._delete_id(ids[0] if isinstance(ids, list) else int(ids[0]), sync)
        with self.turn:
            snapshot, sync = self._begin(sync)
            unique = list(dict.fromkeys(ids)) if isinstance(ids, list) else np.unique(ids)
            numbers, known = numbers_of(snapshot, unique)
            fingerprints, found = snapshot.with_ids(numbers[known])
            return Deleted(self._remove_pairs(snapshot, fingerprints, found, sync), len(unique) - len(np.unique(found)))

    def _delete_id(self, identifier: int | str, sync: str | None) -> Deleted:
        """Remove every pair that has one id."""
        with self.turn:
            snapshot, sync = self._begin(sync)
            number = number_of(snapshot, identifier)
            found = [] if number is None else snapshot.fingerprints_of_one(number)
            if number is None or not found:
                self.committer.make_nothing(sync)
                return Deleted(0, 1)
            rows, dying = leaving(snapshot, found, number)
            before = snapshot.totals
            totals = before._replace(fingerprints=before.fingerprints - dying, ids=before.ids - len(found))
            self._make_rows(snapshot, totals, rows, [], sync)
            return Deleted(len(found), 0)

    def delete_pairs(self, fingerprints: Words, ids: Words | list[str] | None, sync: str | None) -> Deleted:
        """Remove the pair of each row; other pairs of its fingerprint and of its id stay."""
        assert ids is not None
        with self.turn:
            snapshot, sync = self._begin(sync)
            numbers, known = numbers_of(snapshot, ids)
            unknown = fingerprints[~known]  # their ids are strings that the store has never seen
            missing = len(set(zip(rows_to_numbers(unknown), compress(ids, ~known), strict=True)))
            fingerprints, numbers = fingerprints[known], numbers[known]
            once = ~repeats(fingerprints, numbers)
            fingerprints, numbers = fingerprints[once], numbers[once]
            gone = new_pairs(snapshot, fingerprints, numbers, snapshot.delta.in_base(fingerprints))
            removed = self._remove_pairs(snapshot, fingerprints[~gone], numbers[~gone], sync)
            return Deleted(removed, missing + int(gone.sum()))

    def _remove_pairs(self, snapshot: Snapshot, fingerprints: Words, ids: Words, sync: str) -> int:
        """Remove distinct pairs that are stored."""
        dying = self._left_without_ids(snapshot, fingerprints, fingerprints[:0])
        stays = ~is_in(fingerprints, dying)
        return self._remove(snapshot, dying, len(fingerprints), fingerprints[stays], ids[stays], sync)

    def _remove(self, snapshot: Snapshot, dying: Words, pairs: int, fingerprints: Words, ids: Words, sync: str) -> int:
        if not pairs:
            self.committer.make_nothing(sync)
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
        resources: Resources,
        others: Sequence[Snapshot] = (),
        renumber: bool = False,
        design: str | None = None,
        at: float | None = None,
    ) -> None:
        """Fold the delta, and other stores, into a new generation; with ``at`` only if the delta has this share of the tables."""
        self.refuse_nested(waits_for_merge=True)
        self.merging.merge(resources, others, renumber, design, at)

    # Life cycle

    def state(self) -> dict[str, object]:
        """Return the state of a writer that an operator watches: see ``stats``."""
        return {
            "process": self._lock.owner,
            "sync": self.committer.sync,
            "waiting_rows": self.committer.waiting_rows,
            "merging": self.merging.under_way is not None,
        }

    def identified_snapshot(self) -> tuple[Snapshot, dict[str, object]]:
        """Return the current snapshot and the identity of its state, as `Tracker.identified_snapshot` does."""
        with self.committer.turn:
            return self.committer.tracker.identified_snapshot(self.committer.log.number)

    def close(self) -> None:
        """Make all changes durable, and release the lock."""
        if not self.is_own:
            self._closed = True  # threads of the parent may have held the locks at the fork
            return
        self.refuse_nested(waits_for_merge=True)
        try:
            self.merging.stop()
            with self.merging.lock, self.turn:
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
            if not self._closed:
                self.merging.allow()
        self.committer.wait()


# Opening


def open_writer(tracker: Tracker, sync: str, merge_at: float | None) -> StoreWriter:
    """Make this process the store's writer: lock it, remove the leftovers of a dead writer, cut off a torn end of the log."""
    path = tracker.path
    try:
        lock = WriterLock(tracker.here())
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ReadOnlyError(f"{path}: cannot be changed ({LOCK_FILE}: {error.strerror})", path=path) from error
        raise error if isinstance(error, FpstoreError) else refused(path, error) from error
    log = None
    try:
        if not tracker.is_same():
            raise StoreNotFoundError(f"{path}: was replaced while it was opened: open it again", path=path)
        generation = tracker.snapshot().generation
        manifest = tracker.manifest
        here = tracker.here()
        sync_folder(here)  # a writer that was killed may not have: what is current now stays current
        remove_obsolete(here, manifest.generation.number)
        before = tracker.log.told
        log = LogWriter(here / generation.folder.name / LOG_FILE, LogHeader.of(manifest))
        if log.durable != before:
            logger().warning("%s: a writer died: log recovered up to byte %d; published were %d", path, log.durable, before)
        # Only now are the records known that a writer logged before it died without publishing them.
        tracker.adopt(manifest, generation, tracker.log, log.read(HEADER_BYTES, 1))
        return StoreWriter(tracker, lock, log, sync, merge_at)
    except BaseException as error:
        if log is not None:
            log.close()
        lock.release()
        if is_of_the_system(error):
            raise refused(path, error, NOTHING_CHANGED) from error
        raise


def close_dropped(writer: StoreWriter) -> None:
    """Close the writer of a store that was dropped, or left open at the end of the interpreter."""
    with suppress(FpstoreError, RuntimeError):  # a finalizer has no caller to report to; there may be no more threads
        if writer.is_own and writer.is_nested(waits_for_merge=True):  # the garbage collector runs inside one of them
            Worker(partial(close_dropped, writer)).start()
        else:
            writer.close()
