"""The tracker: which snapshot of a store is current, as other processes commit and merge."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakSet, finalize

from fpstore.design.families import Design
from fpstore.disk.files import RUN_REPAIR
from fpstore.disk.fork import around_fork
from fpstore.disk.refusals import refused
from fpstore.errors import ClosedStoreError, CorruptStoreError, StorageError, StoreNotFoundError
from fpstore.format.log import END, HEADER_BYTES, LOG_FILE, SUPERSEDED, LogHeader, LogReader, Records
from fpstore.format.manifest import Manifest, generation_folder, is_store, manifest_time, not_a_store, read_manifest
from fpstore.format.merge_error import MergeError
from fpstore.query.delta import Delta
from fpstore.query.generation import ON_DEMAND, Generation, Loading
from fpstore.query.snapshot import Snapshot
from fpstore.threads import is_held

ATTEMPTS = 100
PAUSE_SECONDS = 0.002
DELTA_SAMPLE = 1 << 9  # fingerprints of the tables, which tell by what bits to look up changes
_STILL = memoryview(bytes(HEADER_BYTES)).cast("Q")  # for a writer, which shows its own snapshots

_trackers: WeakSet[Tracker] = WeakSet()


def _after_fork_in_child() -> None:
    for tracker in _trackers:
        tracker.after_fork()


around_fork(in_child=_after_fork_in_child)


# (words, seen, snapshot): while the word at END equals ``seen``, the snapshot is current. Every question unpacks it, so it is a
# plain tuple.
_Current = tuple[memoryview, int, Snapshot]


class Tracker:
    """The files of a store that one process has open, brought up to date by :meth:`snapshot`.

    Parameters
    ----------
    path : Path
    loading : Loading
        How the tables of each generation get into memory.

    Attributes
    ----------
    manifest : Manifest
    log : LogReader
        The log of the generation that this process has open.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """

    def __init__(self, path: Path, loading: Loading = ON_DEMAND) -> None:
        if not path.exists():
            raise StoreNotFoundError(f"{path}: no such store", path=path)
        if not is_store(path):
            raise not_a_store(path)
        self.path, self.loading = path, loading
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
        """Return the current snapshot.

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
            return self._current[2]  # for a signal handler in the middle of a refresh: the state before it
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
        return self._current[2]

    def _is_followed(self) -> bool:
        """Whether this store has another generation now; a store that was replaced as a whole keeps its own."""
        try:
            return read_manifest(self.path, self.folder).generation.number != self.manifest.generation.number
        except StoreNotFoundError:
            return False

    def _read(self, end: int) -> None:
        """Apply the new records of the log."""
        assert self._current is not None
        snapshot = self._current[2]
        try:
            for records in self.log.read(self._place, self._number + 1):
                snapshot.delta.apply(records.change)
                snapshot = Snapshot(snapshot.generation, snapshot.delta, snapshot.delta.version, records.change.totals)
                self._place, self._number = records.end, records.last
            self._current = self.log.words, end, snapshot
        except BaseException:
            self._current = None  # half of a record may have been applied: read the log again
            raise

    @property
    def design(self) -> Design:
        """The design of the generation that is open."""
        return self.manifest.design

    # Opening

    def _resolve(self) -> None:
        """Open the current generation; a merge may replace it meanwhile."""
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
            # After a fork, the files of the parent are used; only state that may be half changed is built again.
            generation = (
                known if known is not None and known.record == manifest.generation else Generation(path, manifest, self.loading)
            )
            self._adopt(manifest, generation, log, log.read(HEADER_BYTES, 1))
        except BaseException:
            log.close()
            if generation is not None and generation is not known:
                generation.close()
            raise

    def _adopt(self, manifest: Manifest, generation: Generation, log: LogReader, changes: Iterable[Records]) -> None:
        """Make a generation current, with these records, which are the first of its log."""
        end, header = log.word, log.header
        if header.width != generation.design.width.bits:
            what = f"{log.path}: the log of a store of {header.width} bits, this one has {generation.design.width.bits}"
            raise CorruptStoreError(f"{what}: {RUN_REPAIR}", path=log.path)
        delta = new_delta(generation, header)
        snapshot = Snapshot(generation, delta, 0, header.totals)
        place, number = HEADER_BYTES, 0
        last = delta.load(changes)
        if last is not None:
            snapshot = Snapshot(generation, delta, delta.version, last.change.totals)
            place, number = last.end, last.last
        self.manifest, self.log, self._generation = manifest, log, generation
        self._place, self._number = place, number
        # The next question finds out whether there is another generation meanwhile.
        self._current = log.words, end & ~SUPERSEDED, snapshot

    def here(self) -> Path:
        """Return a path of the store that was opened, which may have been renamed.

        Raises
        ------
        StorageError
            It cannot be found: another store may have taken its name.
        """
        status = os.fstat(self.folder)
        for path in (self.path, Path(f"/proc/self/fd/{self.folder}")):
            try:
                found = path if path == self.path else path.readlink()
                if os.path.samestat(found.stat(), status):
                    return found
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

    def inside(self) -> Path:
        """Return a path that leads into the store that was opened, even if it was renamed; for creating and removing files.

        Raises
        ------
        StorageError
            As :meth:`here`, where the system has no path that leads through a descriptor.
        """
        path = Path(f"/proc/self/fd/{self.folder}")
        return path if path.is_dir() else self.here()

    def is_same(self) -> bool:
        """Whether the path still names the store that was opened."""
        return self.is_at(self.path)

    def is_at(self, path: Path) -> bool:
        """Whether a path names the store that was opened, which may have been renamed."""
        try:
            return os.path.samestat(path.stat(), os.fstat(self.folder))
        except OSError:
            return False

    def watched(self, appended: int | None = None) -> dict[str, object]:
        """Return the state of log and merges for ``stats``; ``appended`` is the number of records of the log in a writer."""
        return {
            "log": {"bytes": self.log.file_bytes, "records": self._number if appended is None else appended},
            "generation_since": manifest_time(self.folder),
            "merge_error": MergeError(self.folder).get(),
        }

    def identified_snapshot(self, appended: int | None = None) -> tuple[Snapshot, dict[str, object]]:
        """Return the current snapshot, and what tells its state from any other: store, generation, records of the log.

        ``appended`` is as for :meth:`watched`.
        """
        with self._lock:
            snapshot = self._refresh()
            manifest = snapshot.generation.manifest
            records = self._number if appended is None else appended
            state = {"identity": manifest.identity.hex(), "generation": manifest.generation.number, "log records": records}
            return snapshot, {"path": str(self.path), **state}

    # For the writer

    def adopt(self, manifest: Manifest, generation: Generation, log: LogReader, changes: Iterable[Records]) -> None:
        """Make a generation current, with these records, and stop following its log: the writer shows its own snapshots."""
        with self._lock:  # whoever opens the same generation to ask a question has done so, or finds this one
            self._adopt(manifest, generation, log, changes)
            self.show(self.snapshot())

    def forget(self) -> None:
        """Open what is current at the next question: the writer could not adopt the generation that every process sees."""
        with self._lock:
            self._current = None

    def show(self, snapshot: Snapshot) -> None:
        """Make a snapshot current that this process, the writer, has made."""
        self._current = _STILL, 0, snapshot

    def switch(self, snapshot: Snapshot, log: LogReader) -> None:
        """Switch to another generation, which this process has made."""
        with self._lock:
            self.manifest, self.log, self._generation = snapshot.generation.manifest, log, snapshot.generation
            self.show(snapshot)

    # Life cycle

    def after_fork(self) -> None:
        """In a child, drop the locks and the state that a thread of the parent may have held or half changed."""
        self._lock = threading.RLock()
        self._current = None

    def close(self) -> None:
        """Close all files. Closing twice is allowed."""
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
    return Delta(generation.design.radius, generation.sample(DELTA_SAMPLE), generation.identity, header.first_string)
