"""Following a store: which generation is current, and what its journal says, as other processes commit and merge."""

from __future__ import annotations

import os
import threading
import time
from os import fstat
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

from fpstore.design.families import Design
from fpstore.disk.refusals import refused
from fpstore.disk.sealed import Reader
from fpstore.errors import ClosedStoreError, CorruptStoreError, FpstoreError, StorageError, StoreNotFoundError
from fpstore.format import layout
from fpstore.format.layout import is_store
from fpstore.format.strings import NAMES, NUMBERS
from fpstore.query.delta import Delta, Totals, unpack
from fpstore.query.generation import Generation
from fpstore.query.journal import Change, Journal
from fpstore.query.snapshot import View

ATTEMPTS = 100
PAUSE_SECONDS = 0.002
SETTLED_NS = 10**9  # a folder that changed less than this ago may change again without a new time


_followers: WeakSet[Follower] = WeakSet()


def _after_fork_in_child() -> None:
    """Take new locks: a thread that is not in the child may have held the old ones."""
    for follower in _followers:
        follower.forget_lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Follower:
    """What one process has open of a store, brought up to date by :meth:`view`.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise StoreNotFoundError(f"{path}: no such store", path=path)
        if not is_store(path):
            raise StoreNotFoundError(f"{path}: not an fpstore store (no {layout.STORE_FILE} in it)", path=path)
        status = path.stat()
        self._inode = (status.st_dev, status.st_ino)
        self._lock = threading.RLock()
        self._refreshing = False  # by the thread that has the lock
        self._closed = False
        self._follows = True
        self.journal: Journal | None = None
        self._current: View | None = None
        self._seen: tuple[Journal | None, int] = None, 0  # a journal and its last transaction that is in the current view
        self._watched = -1
        self._changed, self._settled = -1, False
        self._tried = -1
        self._pid = os.getpid()
        _followers.add(self)
        file = path / layout.STORE_FILE
        self.reader = Reader(file, (layout.META, NAMES, NUMBERS))
        try:
            self.store = layout.unpack_record(self.reader.get(layout.STORE_KEY, layout.META), file, "store")
            layout.check_store_record(self.store, file)
            self.first = layout.unpack_record(self.reader.get(layout.GENERATION_KEY, layout.META), file, "generation")
            self.resolve()
            self._design = self.design
        except BaseException:
            self.close()
            raise

    # Up to date

    def view(self) -> View:
        """Return what the store holds now.

        Raises
        ------
        ClosedStoreError, CorruptStoreError, StorageError
        """
        journal, transaction = self._seen  # before the view: another thread may bring it up to date just now
        view = self._current
        if view is None:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if journal is None:
            try:
                if self._settled and fstat(self._watched).st_mtime_ns == self._changed:
                    return view
            except OSError:  # another thread has closed the store
                pass
            if self._unchanged():
                return view
        elif self._pid == os.getpid() and (not self._follows or journal.transaction() == transaction):
            return view
        with self._lock:
            if self._refreshing:
                return view  # to a signal handler in the middle of it, the store is as it was
            self._refreshing = True
            try:
                return self._refresh()
            finally:
                self._refreshing = False

    @property
    def design(self) -> Design:
        """The tables of the generation that was current last."""
        view = self._current
        if view is not None:
            self._design = view.generation.design
        return self._design

    def show(self, view: View) -> None:
        """Take a view that this process, the writer, has made itself."""
        self._current = view

    def lead(self) -> None:
        """Stop following: this process is the writer, and says itself what is new."""
        self._follows = False

    def switch(self, view: View, journal: Journal) -> None:
        """Go over to another generation, which this process has made itself."""
        with self._lock:
            old, self.journal, self._current = self.journal, journal, view
            if old is not None:
                old.close()

    def _unchanged(self) -> bool:
        """Whether a store without a journal still has none."""
        try:
            changed = os.fstat(self._watched).st_mtime_ns
        except OSError:  # another thread has closed the store
            return False
        if changed == self._changed and self._settled:
            return True
        with self._lock:
            if self.journal is None:
                self._settled = time.time_ns() - changed > SETTLED_NS
                self._changed = changed
                view = self._current
                folder = layout.generation_name(self.first["number"])
                return view is not None and (
                    not self.is_same()
                    or ((self.path / folder).is_dir() and not (self.path / folder / layout.JOURNAL_FILE).exists())
                )
        return False

    def is_same(self) -> bool:
        """Whether the path still names the store that was opened; a replacement is ignored."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._inode

    def _refresh(self) -> View:
        view = self._current
        if view is None:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self._pid != os.getpid():
            # What was open belongs to the parent: its delta may be half changed, and its handles must not be used.
            self._pid, self._follows = os.getpid(), True
            if self.journal is not None or view.delta is not None:
                if not self.is_same():
                    raise StorageError(
                        f"{self.path}: was replaced before this process read it: open the store again", path=self.path
                    )
                self.resolve()
                assert self._current is not None
                return self._current
        if self.journal is None or view.delta is None:
            if self.is_same():
                self.resolve()
        else:
            change = self.journal.read(view.delta.records)
            if change.moved is not None:
                if self.is_same():
                    self.resolve()
                else:
                    self._seen = self.journal, change.transaction
            else:
                self._take(self.journal, view, change)
        assert self._current is not None
        return self._current

    def _take(self, journal: Journal, view: View, change: Change) -> None:
        """Make a view current, brought up to date: no other thread sees it before."""
        assert view.delta is not None
        records = [unpack(data, journal.path) for data in change.records]
        if records:
            view.delta.apply(records, journal.path)
            view = View(view.generation, view.delta, view.delta.version, records[-1].totals)
        self.journal, self._current = journal, view
        self._seen = journal, change.transaction
        self._unwatch()

    # Opening

    def resolve(self) -> None:
        """Open the current generation, which may be replaced while it is looked for."""
        told = ""
        for attempt in range(ATTEMPTS):
            try:
                self._open_current()
                return
            except (StoreNotFoundError, CorruptStoreError) as error:
                # A generation that a merge has just removed looks like a damaged one; a journal with a damaged page does not.
                same, told = str(error) == told and str(error.path).endswith(layout.JOURNAL_FILE), str(error)
                if attempt + 1 == ATTEMPTS or (same and isinstance(error, CorruptStoreError)) or not self._superseded():
                    raise
            time.sleep(PAUSE_SECONDS)

    def _superseded(self) -> bool:
        """Whether what was being opened is no longer current."""
        try:
            number = self._find()[0]
        except FpstoreError:
            return True
        tried, self._tried = self._tried, number
        return number != tried

    def _open_current(self) -> None:
        number, journal, change = self._find()
        self._tried = number
        if journal is None or change is None:
            self._watch(self.path / layout.generation_name(number))
            generation = Generation(self.path, self.store, self.first, self.reader)
            record = self.first
            totals = Totals(record["fingerprints"], record["ids"], record["rows"], self.store["id_kind"])
            self._current, self.journal, self._seen = View(generation, None, 0, totals), None, (None, 0)
            return
        try:
            self.open_journal(journal, change)
        except BaseException:
            journal.close()
            raise

    def open_journal(self, journal: Journal, change: Change) -> None:
        """Go over to the generation of a journal."""
        state = read_state(change.state, journal.path)
        if state["store_file"] != self.reader.sealed_with():
            raise CorruptStoreError(f"{self.reader.path} and {journal.path} are not of the same store", path=self.reader.path)
        old = self._current
        if old is not None and old.generation.record["number"] == state["generation"]["number"]:
            generation = old.generation
        else:
            generation = Generation(self.path, state["store"], state["generation"], self.reader)
        delta = Delta(generation.design.radius, generation.sample(), generation.identity, state["first_name"])
        totals = Totals(**state["totals"])
        self._take(journal, View(generation, delta, 0, totals), change)

    def _find(self) -> tuple[int, Journal | None, Change | None]:
        """Return the number of the current generation, and its journal if it has one."""
        moved = False
        for number in generation_numbers(self.path):
            file = self.path / layout.generation_name(number) / layout.JOURNAL_FILE
            if not file.exists():
                continue
            journal = Journal(file)
            change = journal.read(0)
            if change.moved is None:
                return number, journal, change
            moved = True
            journal.close()
        if moved:
            raise CorruptStoreError(f"{self.path}: the current generation is missing", path=self.path)
        return int(self.first["number"]), None, None

    def _watch(self, folder: Path) -> None:
        self._unwatch()
        try:
            self._watched = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"{folder}: missing ({error.strerror})", path=folder) from error
        except OSError as error:
            raise refused(folder, error) from error
        self._unwatched = finalize(self, os.close, self._watched)
        self._changed, self._settled = -1, False

    def _unwatch(self) -> None:
        if self._watched >= 0:
            self._watched = -1
            self._unwatched()

    def forget_lock(self) -> None:
        """Take a new lock, in a process that was forked."""
        self._lock = threading.RLock()
        self._refreshing = False

    def close(self) -> None:
        """Give every handle back. Closing twice is allowed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            view, self._current = self._current, None
            if view is not None:
                view.generation.close()
            if self.journal is not None:
                self.journal.close()
            self.reader.close()
            self._unwatch()


def generation_numbers(path: Path) -> list[int]:
    """Return the numbers of the generation folders of a store, ascending."""
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise refused(path, error) from error
    return sorted(int(name[4:]) for name in names if name.startswith("gen-") and name[4:].isdigit())


def read_state(data: bytes | None, path: Path) -> dict[str, Any]:
    """Check and parse the state record of a journal."""
    state = layout.unpack_record(data, path, "state")
    layout.check_store_record(state["store"], path)
    return state


def make_state(store: dict[str, Any], generation: dict[str, Any], totals: Totals, first_name: int, store_file: int) -> bytes:
    """Return the state record of a new journal: what it starts from, and the digest of the store file it belongs to."""
    return layout.pack_record(
        {
            "store": store, "generation": generation, "totals": totals._asdict(), "first_name": first_name,
            "store_file": store_file,
        }
    )  # fmt: skip
