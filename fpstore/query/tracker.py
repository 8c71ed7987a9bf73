"""The tracker: which snapshot of a store is current, as other processes commit and merge."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from weakref import WeakSet, finalize

import numpy as np

from fpstore import _kernel
from fpstore.base.threads import is_held, wait_for
from fpstore.design.families import Design
from fpstore.disk.mapped import LAZY
from fpstore.disk.refusals import refusal_error
from fpstore.errors import (
    ClosedStoreError,
    CorruptStoreError,
    FpstoreError,
    StorageError,
    StoreNotFoundError,
)
from fpstore.format.log import (
    END,
    HEADER_BYTES,
    LOG_FILE,
    SUPERSEDED,
    LogHeader,
    LogReader,
    Records,
)
from fpstore.format.manifest import (
    NEXT_MANIFEST,
    Manifest,
    generation_folder,
    is_store,
    manifest_time,
    merge_error,
    not_a_store_error,
    read_manifest,
)
from fpstore.query.delta import Delta, key_bits_first, order_by_evenness
from fpstore.query.generation import Generation
from fpstore.query.store_snapshot import StoreSnapshot

ATTEMPTS = 100
NEVER = 0  # no word at END: each question looks again
PAUSE_SECONDS = 0.002
# Beside a busy caller, a thread waits 5 ms for the interpreter after each step. While a thread
# opens the next generation, one in QUESTIONS_BETWEEN questions sleeps for a moment, in which the
# thread has the interpreter.
QUESTIONS_BETWEEN, YIELD_SECONDS = 16, 1e-4
DELTA_SAMPLE = 1 << 9  # fingerprints of the tables, by which the bits for look-ups are chosen
_STILL = memoryview(bytes(HEADER_BYTES)).cast("Q")  # for a writer, which shows its own snapshots

_trackers: WeakSet[Tracker] = WeakSet()


def _after_fork_in_child() -> None:
    for tracker in _trackers:
        tracker.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


@dataclass(frozen=True)
class _OpenGeneration:
    """A generation with the changes of its log up to a record."""

    manifest: Manifest
    generation: Generation
    log: LogReader
    snapshot: StoreSnapshot
    place: int  # the end of the read part of the log
    end: int  # the word at END before the log was read

    def with_new_records(self) -> _OpenGeneration:
        """Return the generation with the new records of the log.

        After an error, a part of a record may have been applied.
        """
        end = self.log.word
        snapshot, place, delta = self.snapshot, self.place, self.snapshot.delta
        for records in self.log.read(place, snapshot.record + 1):
            delta.apply(records.change)
            place = records.end
            snapshot = StoreSnapshot(
                self.generation, delta, delta.version, records.change.totals, records.last
            )
        return replace(self, snapshot=snapshot, place=place, end=end)

    def close(self) -> None:
        self.generation.close()
        self.log.close()


class _NextGeneration:
    """The generation that a merge has announced, which a thread opens beside the current one.

    ``mark`` is the inode and the time of the coming manifest: another mark is another announcement.
    """

    def __init__(
        self, mark: tuple[int, int], open_generation: Callable[[], _OpenGeneration]
    ) -> None:
        self.mark = mark
        self._questions = 0  # since the announcement
        self._opened: _OpenGeneration | None = None
        self._start(open_generation)

    def follow(self) -> None:
        """Let a thread read the records that were added to the log."""
        opened = self._opened
        if opened is not None and not self._worker.is_alive() and opened.log.word != opened.end:
            self._start(opened.with_new_records)
        self._questions += 1
        if self._questions % QUESTIONS_BETWEEN == 0 and self._worker.is_alive():
            time.sleep(YIELD_SECONDS)

    def _start(self, work: Callable[[], _OpenGeneration]) -> None:
        self._worker = threading.Thread(
            target=self._run, args=(work,), name="fpstore-open", daemon=True
        )
        # the system has no more threads: it is done when the generation is current
        with suppress(RuntimeError):
            self._worker.start()

    def _run(self, work: Callable[[], _OpenGeneration]) -> None:
        before, self._opened = self._opened, None
        try:
            self._opened = work()
        except (FpstoreError, OSError, MemoryError):
            # the merge may have failed; whoever needs what is damaged reports it
            if before is not None:
                before.close()

    def take(self) -> _OpenGeneration | None:
        """Wait for the thread, and return the generation that it has opened, once."""
        wait_for(self._worker)
        opened, self._opened = self._opened, None
        return opened

    def close(self) -> None:
        """Wait for the thread, and close the generation that it has opened."""
        opened = self.take()
        if opened is not None:
            opened.close()


class Tracker:
    """The files of a store that one process has open, brought up to date by :meth:`snapshot`.

    ``current.probe`` answers usual probes of the current snapshot in one call, and returns None for
    all others.
    """

    def __init__(self, path: Path, pages: str = LAZY) -> None:
        self.path, self.pages = path, pages
        self._lock = threading.RLock()
        self._closed = False
        # known: the word at END while the snapshot is current
        self.current = _kernel.CurrentSnapshot(np.ndarray, np.uint64)
        self._generation: Generation | None = None
        self._next: _NextGeneration | None = None
        self._place = HEADER_BYTES  # the end of what was read of the log
        for attempt in range(ATTEMPTS):
            self._open_folder()
            try:
                self._resolve()
                break
            except BaseException as error:
                # A store that another one has just replaced looks like a damaged one.
                replaced = isinstance(error, FpstoreError) and not self.is_same()
                if not replaced or attempt + 1 == ATTEMPTS:
                    self.close()
                    raise
                self._given_back()
        _trackers.add(self)

    # Up to date

    def snapshot(self) -> StoreSnapshot:
        """Return the current snapshot."""
        snapshot: StoreSnapshot | None = self.current.get()
        if snapshot is not None:
            return snapshot
        if is_held(self._lock) and self.current.snapshot is not None:
            # for a signal handler in the middle of a refresh: the state before it
            return self._current_snapshot()
        with self._lock:
            return self._refresh()

    def _refresh(self) -> StoreSnapshot:
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self.current.snapshot is None:
            self._resolve()
            return self._current_snapshot()
        if self.current.get() is not None:
            return self._current_snapshot()  # another thread has brought it up to date
        end = self.log.word
        if end & SUPERSEDED:
            before = None if self._next is None else self._next.mark
            following = self._next_generation()  # first: it may become current right after
            # While the same announcement stands, no manifest has come: its rename would have taken
            # the announcement away.
            if (following is None or following.mark != before) and self._has_new_generation():
                self._resolve()
            else:
                self._read(end, end if following is None else NEVER)
        else:
            self._drop_next()  # that merge was given up
            self._read(end, end)
        return self._current_snapshot()

    def _next_generation(self) -> _NextGeneration | None:
        """Return the generation that a merge has announced, which a thread opens."""
        try:
            status = os.stat(NEXT_MANIFEST, dir_fd=self.folder, follow_symlinks=False)
            mark = status.st_ino, status.st_mtime_ns
            if self._next is None or self._next.mark != mark:
                manifest = read_manifest(self.path, self.folder, NEXT_MANIFEST)
                self._drop_next()
                self._next = _NextGeneration(mark, partial(self._open_generation, manifest))
            self._next.follow()
        except (OSError, FpstoreError):
            return None
        return self._next

    def _drop_next(self) -> None:
        following, self._next = self._next, None
        if following is not None:
            following.close()

    def _current_snapshot(self) -> StoreSnapshot:
        snapshot: StoreSnapshot = self.current.snapshot
        return snapshot

    def _has_new_generation(self) -> bool:
        """Whether this store has another generation now.

        A store that was replaced as a whole keeps its own.
        """
        try:
            return (
                read_manifest(self.path, self.folder).generation.number
                != self.manifest.generation.number
            )
        except StoreNotFoundError:
            return False

    def _read(self, end: int, known_end: int) -> None:
        """Apply the new records of the log.

        The next question does so if the word is no longer ``known_end``.
        """
        snapshot = self._current_snapshot()
        try:
            updated = _OpenGeneration(
                self.manifest, snapshot.generation, self.log, snapshot, self._place, end
            ).with_new_records()
            self._place = updated.place
            self.current.set(self.log.words, END, known_end, updated.snapshot)
        except BaseException:
            self.current.clear()  # half of a record may have been applied: read the log again
            raise

    @property
    def has_announcement(self) -> bool:
        """Whether a merge has announced a generation, which is not current yet."""
        return self._next is not None

    @property
    def design(self) -> Design:
        return self.manifest.design

    # Opening

    def _open_folder(self) -> None:
        if not self.path.exists():
            raise StoreNotFoundError(f"{self.path}: no such store", path=self.path)
        if not is_store(self.path):
            raise not_a_store_error(self.path)
        try:
            self.folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise refusal_error(self.path, error) from error
        self._given_back = finalize(self, os.close, self.folder)

    def _resolve(self) -> None:
        """Open the current generation; a merge may replace it meanwhile."""
        for attempt in range(ATTEMPTS):
            try:
                manifest = read_manifest(self.path, self.folder)
            except StoreNotFoundError:
                self.check_not_replaced()
                raise
            try:
                self._open(manifest)
                return
            except (StoreNotFoundError, CorruptStoreError):
                # A generation that a merge has just removed looks like a damaged one.
                if (
                    attempt + 1 == ATTEMPTS
                    or read_manifest(self.path, self.folder).generation == manifest.generation
                ):
                    raise
            time.sleep(PAUSE_SECONDS)

    def _open(self, manifest: Manifest) -> None:
        following, self._next = self._next, None
        opened = None if following is None else following.take()
        if opened is not None and (opened.manifest != manifest or not opened.log.is_linked):
            opened.close()  # that merge was given up, or has begun again
            opened = None
        current = self._generation
        # After a fork, the files of the parent are used; only state that may be half changed is
        # built again.
        same = current if current is not None and current.record == manifest.generation else None
        try:
            self._take(
                self._open_generation(manifest, same)
                if opened is None
                else opened.with_new_records()
            )
        except BaseException:
            if opened is not None:
                opened.close()
            raise

    def _open_generation(
        self, manifest: Manifest, same: Generation | None = None
    ) -> _OpenGeneration:
        """Open the generation of a manifest, unless it is open (``same``), and read its log."""
        path, number = self.current_path(), manifest.generation.number
        log = LogReader(
            path / generation_folder(number) / LOG_FILE, LogHeader.from_manifest(manifest)
        )
        generation = same
        try:
            generation = same or Generation(path, manifest, self.pages)
            return _load(
                manifest, generation, log, log.read(HEADER_BYTES, 1), self.current.snapshot
            )
        except BaseException:
            log.close()
            if generation is not None and generation is not same:
                generation.close()
            raise

    def _take(self, opened: _OpenGeneration) -> None:
        self.manifest, self._generation, self.log = opened.manifest, opened.generation, opened.log
        self._place = opened.place
        # The next question finds out whether there is another generation meanwhile.
        self.current.set(self.log.words, END, opened.end & ~SUPERSEDED, opened.snapshot)

    def current_path(self) -> Path:
        """Return a path of the store that was opened, which may have been renamed.

        StorageError if none leads to it.
        """
        status = os.fstat(self.folder)
        for path in (self.path, Path(f"/proc/self/fd/{self.folder}")):
            try:
                target = path if path == self.path else path.readlink()
                if os.path.samestat(target.stat(), status):
                    return target
            except OSError:
                pass
        raise self._was_replaced()

    def _was_replaced(self) -> StorageError:
        return StorageError(
            f"{self.path}: was replaced or removed: open the store again", path=self.path
        )

    def check_not_replaced(self) -> None:
        """Refuse a store that was replaced or removed."""
        if not self.is_same():
            raise self._was_replaced()

    def path_inside(self) -> Path:
        """Return a path that leads into the store that was opened, even if it was renamed.

        For creating and removing files.
        """
        path = Path(f"/proc/self/fd/{self.folder}")
        return path if path.is_dir() else self.current_path()

    def is_same(self) -> bool:
        """Whether the path still names the store that was opened."""
        return self.is_at(self.path)

    def is_at(self, path: Path) -> bool:
        """Whether a path names the store that was opened, which may have been renamed."""
        try:
            return os.path.samestat(path.stat(), os.fstat(self.folder))
        except OSError:
            return False

    def log_stats(self, snapshot: StoreSnapshot) -> dict[str, object]:
        """Return the state of log and merges for ``stats``."""
        return {
            "log": {"bytes": self.log.file_bytes, "records": snapshot.record},
            "generation_since": manifest_time(self.folder),
            "merge_error": merge_error(self.folder),
        }

    # For the writer

    def adopt(
        self, manifest: Manifest, generation: Generation, log: LogReader, changes: Iterable[Records]
    ) -> None:
        """Make a generation current, with these records, and stop following its log.

        The writer shows its own snapshots.
        """
        # another thread that opens the same generation has done so, or meets this one
        with self._lock:
            self._take(_load(manifest, generation, log, changes))
            self.show(self.snapshot())

    def invalidate(self) -> None:
        """Open the current generation at the next question.

        The writer could not adopt the generation that every process sees.
        """
        with self._lock:
            self.current.clear()

    def show(self, snapshot: StoreSnapshot) -> None:
        """Make a snapshot current that this process, the writer, has made."""
        self.current.set(_STILL, END, 0, snapshot)

    def switch(self, snapshot: StoreSnapshot, log: LogReader) -> None:
        """Switch to another generation, which this process has made."""
        with self._lock:
            self.manifest, self.log, self._generation = (
                snapshot.generation.manifest,
                log,
                snapshot.generation,
            )
            self.show(snapshot)

    # Life cycle

    def after_fork(self) -> None:
        """In a child, drop what a thread of the parent may have locked or half changed."""
        self._lock = threading.RLock()
        self._next = None
        self.current.clear()

    def close(self) -> None:
        """Close all files. Closing twice is allowed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.current.clear()
            self._drop_next()
            if self._generation is not None:
                self._generation.close()
                self.log.close()
            self._given_back()


def _load(
    manifest: Manifest,
    generation: Generation,
    log: LogReader,
    changes: Iterable[Records],
    before: StoreSnapshot | None = None,
) -> _OpenGeneration:
    """Return a generation with the first changes of its log; ``before`` is of the one before."""
    end, header = log.word, log.header
    delta = new_delta(generation, header, before)
    last = delta.load(changes)
    totals, record, place = header.totals, 0, HEADER_BYTES
    if last is not None:
        totals, record, place = last.change.totals, last.last, last.end
    snapshot = StoreSnapshot(generation, delta, delta.version, totals, record)
    return _OpenGeneration(manifest, generation, log, snapshot, place, end)


def new_delta(
    generation: Generation, header: LogHeader, before: StoreSnapshot | None = None
) -> Delta:
    """Return an empty delta, in the bit order of one before with at least half as many rows."""
    if before is not None and 2 * before.generation.count >= generation.count:
        bits = before.delta.bits
    else:
        design = generation.design
        bits = (
            key_bits_first(design.key_bits, design.width)
            if design.key_bits
            else order_by_evenness(generation.sample(DELTA_SAMPLE), design.width)
        )
    return Delta(
        generation.design.radius,
        bits,
        generation.identity,
        header.first_string,
        generation.folder / LOG_FILE,
    )
