"""Commits: a change goes to the log, to memory, and to all readers.

The order, with ``sync="commit"``:

1. The log has the record, and it is durable.
2. The delta in memory has the change.
3. The log publishes its new end: other processes see the change.
4. The tracker shows the new snapshot: this process sees it.

Otherwise the record is logged, applied and shown, and later made durable and published together
with others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fpstore.base.arguments import check_sync
from fpstore.base.diagnostics import logger
from fpstore.base.threads import wait_for
from fpstore.disk.folders import remove_tree
from fpstore.disk.refusals import NOTHING_CHANGED, translate_refusals
from fpstore.errors import ClosedStoreError, FpstoreError
from fpstore.format.log import HEADER_BYTES, LOG_FILE, LogHeader, LogReader
from fpstore.format.log_writer import LogWriter, supersede_log
from fpstore.format.manifest import (
    MANIFEST_FILE,
    TEMPORARY,
    Manifest,
    generation_folder,
    is_generation_name,
    read_manifest,
)
from fpstore.format.record import Totals
from fpstore.query.generation import Generation
from fpstore.query.store_snapshot import StoreSnapshot
from fpstore.query.tracker import Tracker

# a group of changes is made durable when it has this many rows
GROUP_ROWS = {"batch": 10_000, "none": 1 << 20}
BATCH_SECONDS = 0.1  # or, with "batch", is this old


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change as the log takes it, and what applies it to the delta."""

    payload: bytes
    totals: Totals  # after the change
    row_count: int
    apply: Callable[[], None]


class Committer:
    """Keeps the log and the delta of the writing process in step.

    Only the thread that holds :attr:`turn` may commit.
    """

    def __init__(self, tracker: Tracker, log: LogWriter, sync: str) -> None:
        self.path = tracker.path
        self.sync = sync
        self.tracker = tracker
        self.log = log
        self.turn = threading.RLock()  # held during a change
        # memory may have half of a change, or the store another generation than memory
        self.unsettled = False
        self.waiting_rows = 0  # logged and not yet durable
        # makes durable what the changes of another store rest on
        self.before_flush: Callable[[], None] | None = None
        self._applied = log.number  # number of the last record that memory has
        self._due = 0.0
        self._wake = threading.Condition(self.turn)
        self._flusher: threading.Thread | None = None
        self._flush_error: Exception | None = None
        self._closed = False

    def begin(self, sync: str | None) -> tuple[StoreSnapshot, str]:
        """Retry a flush that failed; return the current snapshot and the sync of this change."""
        if self._closed:  # by another thread just now
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        sync = self.sync if sync is None else check_sync(sync)
        self.settle()
        if self._flush_error is not None:
            self.flush()
        snapshot = self.tracker.snapshot()
        snapshot.delta.check_room(1, self.path)
        return snapshot, sync

    def commit(self, snapshot: StoreSnapshot, sync: str, change: LoggedChange) -> StoreSnapshot:
        """Log a change, apply it to the delta, and show it, in the order above.

        After an error it has not happened. An interrupt may come anywhere; then the log decides
        whether the change has happened: see :meth:`settle`.
        """
        log = self.log
        place, number = log.place, log.number
        try:
            try:
                log.append(change.payload, sync == "commit")
                self.unsettled = True
                change.apply()
            except BaseException:
                log.take_back(place, number)
                raise
            if sync == "commit":
                self._note_durable()
            after = StoreSnapshot(
                snapshot.generation,
                snapshot.delta,
                snapshot.delta.version,
                change.totals,
                log.number,
            )
            self.tracker.show(after)
            self.unsettled, self._applied = False, log.number
        except BaseException:
            self.recover()
            raise
        if sync != "commit":
            try:
                self._wait_for_more(change.row_count, sync)
            except FpstoreError as error:
                # this change is made; the next is refused until this one is durable
                self._flush_error = error
        return after

    def commit_nothing(self, sync: str) -> None:
        """Finish a call that changes nothing.

        Its answer may rest on a change that is not yet durable.
        """
        if sync == "commit" and self.log.durable != self.log.place:
            self.flush()

    # Durable

    def _wait_for_more(self, rows: int, sync: str) -> None:
        self.waiting_rows += rows
        if self.waiting_rows >= GROUP_ROWS[sync]:
            self.flush()
        elif sync == "batch":
            if self._flusher is None or not self._flusher.is_alive():
                self._flusher = threading.Thread(
                    target=self._flush_in_time, name="fpstore-flush", daemon=True
                )
                try:
                    self._flusher.start()
                except RuntimeError:
                    # the system has no more threads: there is nobody to do it later
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
        """Make all changes durable and publish them; on an error they stay logged."""
        with self.turn:
            self.settle()
            if self.before_flush is not None:
                self.before_flush()
            self.log.sync_records()
            self._note_durable()
            self._flush_error = None

    def _note_durable(self) -> None:
        self.log.publish()
        self.waiting_rows = 0
        self._due = 0.0

    # In step

    def settle(self) -> None:
        """After an interrupt, bring memory in line with the files.

        The log may hold a change that memory lacks, or has in part. An interrupt of this changes
        nothing; every change, flush and merge settles first.
        """
        if not self.unsettled and self._applied == self.log.number:
            return
        self.unsettled = True
        tracker = self.tracker
        manifest = read_manifest(self.path, tracker.folder)
        number = manifest.generation.number
        if self.log.header.generation == number == tracker.manifest.generation.number:
            tracker.adopt(
                manifest, tracker.snapshot().generation, tracker.log, self.log.read(HEADER_BYTES, 1)
            )
        else:  # a merge was interrupted after it had made its generation current
            try:
                with translate_refusals(self.path, NOTHING_CHANGED):
                    self._adopt(manifest)
            except BaseException:
                tracker.invalidate()
                raise
        self.unsettled, self._applied = False, self.log.number
        try:
            # other processes must see soon what this one shows, and no other change may follow
            self.log.sync_records()
            self._note_durable()
        except FpstoreError as error:
            self._flush_error = error  # the next change tries again
            raise

    def _adopt(self, manifest: Manifest) -> None:
        tracker, number = self.tracker, manifest.generation.number
        remove_obsolete(tracker.current_path(), number)
        folder = tracker.current_path() / generation_folder(number)
        log = LogWriter(folder / LOG_FILE, LogHeader.from_manifest(manifest))
        reader = LogReader(log.path, log.header)
        tracker.adopt(
            manifest,
            Generation(folder.parent, manifest, tracker.pages),
            reader,
            log.read(HEADER_BYTES, 1),
        )
        self.log = log

    def recover(self) -> None:
        """Settle while an exception propagates; after an error, the next change tries again."""
        with suppress(FpstoreError, OSError, MemoryError):
            self.settle()

    def switch(self, snapshot: StoreSnapshot, log: LogWriter, reader: LogReader) -> None:
        """Switch to another generation, which has become current."""
        old = self.log
        self.tracker.switch(snapshot, reader)
        self.log, self._applied = log, log.number
        old.close()

    # Life cycle

    def close(self) -> None:
        """Close the log and end the timed flushes; the caller has flushed."""
        self._closed = True
        try:
            self.log.close()
        finally:
            with self.turn:
                self._wake.notify_all()

    def wait(self) -> None:
        """After :meth:`close`, wait for the thread of the timed flushes."""
        wait_for(self._flusher)


def remove_obsolete(path: Path, current: int) -> None:
    """Remove the generations that are not current, and temporary files of a writer that died."""
    for entry in list(path.iterdir()):
        if is_generation_name(entry.name) and entry.name != generation_folder(current):
            logger().info("%s: obsolete, removed", entry)
            remove_generation(entry)
    remove_tree(path / (MANIFEST_FILE + TEMPORARY))


def remove_generation(folder: Path) -> None:
    """Mark the log of a generation, so that its readers look for the current one, and remove it.

    Processes that have its files open can go on reading them. The disk space is free when the last
    process has closed the files.
    """
    supersede_log(folder / LOG_FILE)
    with suppress(OSError):
        remove_tree(folder)
