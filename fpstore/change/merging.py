"""The merges of an open store: one at a time, when asked for, or in the background when the delta has become large."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from fpstore.base.diagnostics import logger
from fpstore.base.resources import Resources, parse_memory, parse_threads
from fpstore.base.threads import Worker, is_held
from fpstore.change.committer import Committer
from fpstore.disk.refusals import with_path
from fpstore.errors import ClosedStoreError, FpstoreError, InputError
from fpstore.format.manifest import set_merge_error
from fpstore.query.snapshot import Snapshot

if TYPE_CHECKING:
    from fpstore.change.merge import Merge

LEAST_CHANGES = 1 << 16  # fewer are not worth a merge
_advised: set[bytes] = set()  # the stores of which this process has logged that a merge is due
MOST_CHANGES = 1 << 63  # more than any store has; an infinite float is no whole number


def changes_due(snapshot: Snapshot, share: float) -> int:
    """Return how many changes since the last merge are a share of the fingerprints in the tables, and worth a merge."""
    return ceil(max(min(share * snapshot.generation.count, MOST_CHANGES), LEAST_CHANGES))


def merge_advice(snapshot: Snapshot, path: Path | str) -> str | None:
    """Return why to merge, once there are as many changes as fingerprints in the tables, and enough for a merge."""
    changes = snapshot.delta.kernel.operations
    if changes < changes_due(snapshot, 1.0):
        return None
    megabytes = snapshot.delta.kernel.memory_bytes / 1e6
    return (
        f"{path}: {changes:,} changes since the last merge, for {snapshot.generation.count:,} fingerprints in the tables: each "
        f"process that opens the store reads them and keeps them in memory ({megabytes:,.0f} MB). Merge it: fpstore merge, or "
        "Store.merge()"
    )


def _is_due(snapshot: Snapshot, share: float) -> bool:
    changes: int = snapshot.delta.kernel.operations
    return changes >= changes_due(snapshot, share)


class Merging:
    """Starts and stops merges."""

    def __init__(self, committer: Committer, merge_at: float | None) -> None:
        self.path = committer.path
        self.merge_at = merge_at
        self.lock = threading.RLock()  # held during a merge
        self.under_way: Merge | None = None
        self.error: str | None = None  # of the last merge: the system may have refused to write it into the store
        self._committer = committer
        self._tracker = committer.tracker
        self._worker: Worker | None = None
        self._retry_at = 0
        self._closing = False

    def would_deadlock(self, waits_for_merge: bool) -> bool:
        """Whether a call of this thread would wait for a merge that waits for this thread.

        That is a change while whole stores are merged, from the progress function of the merge; and, in the middle of any
        merge, a call that waits for its end.
        """
        merge = self.under_way
        telling = merge is not None and threading.get_ident() in merge.telling
        keeps_the_turn = merge is not None and merge.keeps_the_turn
        return (telling and keeps_the_turn) or (waits_for_merge and (telling or is_held(self.lock)))

    def note_reused(self, number: int) -> None:
        """Note that a new row has an old string, which the new dictionary must keep."""
        merge = self.under_way
        if merge is not None:
            merge.numbers_in_use.add(number)

    def merge(
        self,
        resources: Resources,
        others: Sequence[Snapshot] = (),
        renumber: bool = False,
        design: str | None = None,
        at: float | None = None,
    ) -> None:
        """Fold the delta, and other stores, into a new generation, when one in the background has ended."""
        from fpstore.change.join import Join
        from fpstore.change.merge import Merge

        with self.lock:
            if at is not None and not _is_due(self._tracker.snapshot(), at):
                return
            if self._closing:
                raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
            committer = self._committer
            try:
                self.under_way = (
                    Join(committer, others, renumber, resources, design) if others else Merge(committer, resources, design)
                )
                if self._closing:  # close may not have seen this merge yet
                    self.under_way.stop()
                logger().info("%s: merge begins, generation %d", self.path, self._tracker.manifest.generation.number)
                self.under_way.run()
            except FpstoreError as error:
                plain = with_path(error, self._tracker.inside(), self.path)  # a merge goes through the open folder
                self._note_outcome(plain)
                raise plain from error
            except Exception as error:
                self._note_outcome(error)
                raise
            finally:
                self.under_way = None
            self._note_outcome(None)

    def _note_outcome(self, error: Exception | None) -> None:
        """Store the outcome of a merge where every process finds it, and log it."""
        if error is None:
            self.error = None
            set_merge_error(self._tracker.folder, None)
            record = self._tracker.manifest.generation
            logger().info("%s: merged, generation %d: %d fingerprints", self.path, record.number, record.fingerprints)
        elif isinstance(error, ClosedStoreError):
            logger().info("%s: merge stopped, as the store is closed; the delta stays as it was", self.path)
        elif not isinstance(error, InputError):
            self.error = f"{type(error).__name__}: {error}"
            set_merge_error(self._tracker.folder, self.error)
            unforeseen = None if isinstance(error, FpstoreError) else error
            logger().error("%s: merge failed, the delta stays as it was: %s", self.path, error, exc_info=unforeseen)

    def start_if_due(self, snapshot: Snapshot) -> None:
        """Start a merge in the background if the delta has become large; without ``merge_at``, log once that one is due."""
        changes = snapshot.delta.kernel.operations
        if self.merge_at is None:
            identity = self._tracker.manifest.identity
            if changes >= LEAST_CHANGES and identity not in _advised and (advice := merge_advice(snapshot, self.path)):
                _advised.add(identity)
                logger().warning("%s", advice)
            return
        if self._worker is not None and self._worker.is_alive():
            return
        if changes < self._retry_at or not _is_due(snapshot, self.merge_at):
            return
        self._worker = Worker(self._merge_in_background)
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
            self._retry_at = 2 * self._tracker.snapshot().delta.kernel.operations if not self._closing else 0
        finally:
            self._worker = None

    def stop(self) -> None:
        """Refuse new merges, and stop the one under way; return when one in the background has ended."""
        self._closing = True
        merge, worker = self.under_way, self._worker
        if merge is not None:
            merge.stop()
        if worker is not None:
            worker.wait()

    def allow(self) -> None:
        """Take :meth:`stop` back: the store could not be closed."""
        self._closing = False
