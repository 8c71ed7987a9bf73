"""The tracker: which snapshot of a store is current, as other processes commit and merge."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet, finalize

from fpstore.design.families import Design
from fpstore.disk.refusals import refused
from fpstore.errors import ClosedStoreError, CorruptStoreError, StorageError, StoreNotFoundError
from fpstore.format.log import END, HEADER_BYTES, LOG_FILE, SUPERSEDED, LogHeader, LogReader, Records
from fpstore.format.manifest import MANIFEST_FILE, Manifest, generation_folder, is_store, read_manifest
from fpstore.query.delta import Delta
from fpstore.query.generation import Generation
from fpstore.query.snapshot import Snapshot
from fpstore.threads import is_held

ATTEMPTS = 100
PAUSE_SECONDS = 0.002
_STILL = memoryview(bytes(HEADER_BYTES)).cast("Q")  # of a writer, which says itself what is new

_trackers: WeakSet[Tracker] = WeakSet()


def _after_fork_in_child() -> None:
    for tracker in _trackers:
        tracker.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


class _Current(NamedTuple):
    """What a question needs: is the first still the second, the third is what the store holds."""

    words: memoryview[int]
    seen: int
    snapshot: Snapshot


class Tracker:
    """What one process has open of a store, brought up to date by :meth:`snapshot`.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    manifest : Manifest
    log : LogReader
        Of the current generation, as this process has read it last.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise StoreNotFoundError(f"{path}: no such store", path=path)
        if not is_store(path):
            raise StoreNotFoundError(f"{path}: not an fpstore store (no {MANIFEST_FILE} in it)", path=path)
        self.path = path
        self._lock = threading.RLock()
        self._closed = False
        self._current: _Current | None = None
        self._generation: Generation | None = None
        self._place, self._number = HEADER_BYTES, 0  # the end of what was read of the log, and the number of the last record
        try:
            self.folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise refused(path, error) from error
        self._given_back = finalize(self, os.close, self.folder)
        _trackers.add(self)
        try:
            self._resolve()
        except BaseException:
            self.close()
            raise

    # Up to date

    def snapshot(self) -> Snapshot:
        """Return what the store holds now.

        Raises
        ------
        ClosedStoreError, CorruptStoreError, StorageError
        """
        try:
            words, seen, snapshot = self._current  # type: ignore[misc]  # None is met below
            if words[END] == seen:
                return snapshot
        except (TypeError, ValueError):  # closed, perhaps by another thread just now, or forked
            pass
        if is_held(self._lock) and self._current is not None:
            return self._current.snapshot  # to a signal handler in the middle of a refresh, the store is as it was
        with self._lock:
            return self._refresh()

    def _refresh(self) -> Snapshot:
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self._current is None:
            self._resolve()
            return self._shown()
        words, seen, _ = self._current
        end = words[END]
        if end & SUPERSEDED:
            if self._is_followed():
                self._resolve()
            else:
                self._read(end)
        elif end != seen:
            self._read(end)
        return self._shown()

    def _shown(self) -> Snapshot:
        assert self._current is not None
        return self._current.snapshot

    def _is_followed(self) -> bool:
        """Whether another generation has followed in this very store; one that was replaced as a whole is left as it was."""
        try:
            return read_manifest(self.path, self.folder).generation.number != self.manifest.generation.number
        except StoreNotFoundError:
            return False

    def _read(self, end: int) -> None:
        """Take up what the log has that is new."""
        assert self._current is not None
        snapshot = self._current.snapshot
        assert snapshot.delta is not None
        try:
            for records in self.log.read(self._place, self._number + 1):
                snapshot.delta.apply(records.change)
                snapshot = Snapshot(snapshot.generation, snapshot.delta, snapshot.delta.version, records.change.totals)
                self._place, self._number = records.end, records.last
            self._current = _Current(self.log.words, end, snapshot)
        except BaseException:
            self._current = None  # half of a record may have been taken up: read the log anew
            raise

    @property
    def design(self) -> Design:
        """The tables of the generation that was current last."""
        return self.manifest.design

    # Opening

    def _resolve(self) -> None:
        """Open the current generation; a merge may replace it while it is looked for."""
        for attempt in range(ATTEMPTS):
            try:
                manifest = read_manifest(self.path, self.folder)
            except StoreNotFoundError:
                self.check_same()
                raise
            try:
                self._open(manifest)
                return
            except (StoreNotFoundError, CorruptStoreError):
                # A generation that a merge has just removed looks like a damaged one.
                if attempt + 1 == ATTEMPTS or read_manifest(self.path, self.folder).generation == manifest.generation:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _open(self, manifest: Manifest) -> None:
        path = self.here()
        number = manifest.generation.number
        log = LogReader(path / generation_folder(number) / LOG_FILE, manifest.identity, number)
        known = self._generation
        generation = None
        try:
            # After a fork the files of the parent serve; only what may have been half changed is made anew.
            generation = known if known is not None and known.record == manifest.generation else Generation(path, manifest)
            self.take(manifest, generation, log, log.read(HEADER_BYTES, 1))
        except BaseException:
            log.close()
            if generation is not None and generation is not known:
                generation.close()
            raise

    def take(self, manifest: Manifest, generation: Generation, log: LogReader, changes: Iterable[Records]) -> None:
        """Make a generation current, with these changes of its log, which are its first."""
        end = log.end
        header = log.header
        delta = new_delta(generation, header)
        snapshot = Snapshot(generation, delta, 0, header.totals)
        place, number = HEADER_BYTES, 0
        for records in changes:
            delta.apply(records.change)
            snapshot = Snapshot(generation, delta, delta.version, records.change.totals)
            place, number = records.end, records.last
        self.manifest, self.log, self._generation = manifest, log, generation
        self._place, self._number = place, number
        # Whether another generation has followed meanwhile is for the next question to find out.
        self._current = _Current(log.words, end & ~SUPERSEDED, snapshot)

    def here(self) -> Path:
        """Return a path of the store that was opened, which may have been renamed.

        Raises
        ------
        StorageError
            It is not to be found: another store may have taken its name.
        """
        status = os.fstat(self.folder)
        for path in (self.path, Path(f"/proc/self/fd/{self.folder}")):
            try:
                if os.path.samestat(path.stat(), status):
                    return path if path == self.path else path.readlink()
            except OSError:
                pass
        raise self._was_replaced()

    def _was_replaced(self) -> StorageError:
        return StorageError(f"{self.path}: was replaced or removed: open the store again", path=self.path)

    def check_same(self) -> None:
        """Refuse a store that was replaced or removed.

        Raises
        ------
        StorageError
        """
        if not self.is_same():
            raise self._was_replaced()

    def is_same(self) -> bool:
        """Whether the path still names the store that was opened."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self.folder))
        except OSError:
            return False

    # For the writer

    def lead(self) -> None:
        """Stop following the log: this process is the writer, and says itself what is new."""
        self.show(self.snapshot())

    def show(self, snapshot: Snapshot) -> None:
        """Make a snapshot current that this process, the writer, has made itself."""
        self._current = _Current(_STILL, 0, snapshot)

    def switch(self, manifest: Manifest, snapshot: Snapshot, log: LogReader) -> None:
        """Go over to another generation, which this process has made itself."""
        with self._lock:
            self.manifest, self.log, self._generation = manifest, log, snapshot.generation
            self.show(snapshot)

    # Life cycle

    def after_fork(self) -> None:
        """Forget, in a child, what a thread of the parent may have held or half changed."""
        self._lock = threading.RLock()
        self._current = None

    def close(self) -> None:
        """Give every handle back. Closing twice is allowed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._current = None
            if self._generation is not None:
                self._generation.close()
                self.log.close()
            self._given_back()


def new_delta(generation: Generation, header: LogHeader) -> Delta:
    """Return an empty delta for a generation."""
    return Delta(generation.design.radius, generation.sample(), generation.identity, header.first_string)
