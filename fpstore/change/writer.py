"""Changing a store: the one writer appends to the journal, keeps the delta in step, and merges."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fpstore.arguments import check_sync
from fpstore.change.in_order import probe_insert_in_order
from fpstore.change.new_rows import KIND_WORDS, Rows, absent, count_absent, is_fresh, new_pairs
from fpstore.disk.locks import WriterLock
from fpstore.errors import ClosedStoreError, FpstoreError, InputError, ReadOnlyError, StoreLockedError
from fpstore.format.strings import MAX_NAME_BYTES
from fpstore.query import delta as log
from fpstore.query.batches import Columns
from fpstore.query.delta import ADD, REMOVE, WIPE, Delta, Record
from fpstore.query.matches import Match
from fpstore.query.snapshot import NONE, View
from fpstore.query.tracker import Follower
from fpstore.resources import parse_memory, parse_threads

if TYPE_CHECKING:
    from fpstore.change.merge import Merge

Progress = Callable[[str, int, int | None], None]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.uint8]

LEAST_CHANGES = 1 << 16  # fewer are not worth a merge of their own
BATCH_ROWS = 10_000  # a group of inserts is committed when it has so many rows
BATCH_SECONDS = 0.1  # or is so old
NONE_ROWS = 1 << 20
READER_CHECKS = 1 << 10  # commits between two looks for readers that died
ONE_ADD = np.array([ADD], np.uint8)


class Writer:
    """The process's right to change a store, and how it does. Calls from several threads take turns.

    Raises
    ------
    StoreLockedError, ReadOnlyError
    """

    def __init__(self, follower: Follower, lock: WriterLock, sync: str, merge_at: float | None, delta_bytes: int) -> None:
        self.path = follower.path
        self.sync = sync
        self.merge_at = merge_at
        self.delta_bytes = delta_bytes
        self.follower = follower
        self.turn = threading.RLock()
        self._lock = lock
        self._queue: list[Record] = []
        self._queued_rows = self._queued_bytes = 0
        self._room = 0  # of the journal, as far as it was asked for since the last commit
        self._due = 0.0
        self._wake = threading.Condition(self.turn)
        self._flusher: threading.Thread | None = None
        self._flush_error: FpstoreError | None = None
        self._closed = self._closing = False
        self._stale = False  # the delta in memory has a change that was not committed
        self.merging = threading.RLock()
        self._inside: set[int] = set()  # threads in the middle of a change
        self._merging_thread: int | None = None
        self.merge_error: BaseException | None = None  # of the last merge in the background
        self._merger: threading.Thread | None = None
        self._retry_at = 0
        self.merge_under_way: Merge | None = None
        # While a merge runs: numbers of old strings that were given to new rows, which the new dictionary must keep.
        self.numbers_in_use: set[int] = set()

    # What every change does

    def check(self) -> None:
        """Refuse a writer that is closed, or that a fork has copied."""
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        if self._lock.owner != os.getpid():
            raise ReadOnlyError(
                f"{self.path}: opened for writing by process {self._lock.owner}; after a fork only that process may change it",
                path=self.path,
            )

    def refuse_inside(self, merges: bool = False) -> None:
        """Refuse what a signal handler asks for in the middle of a change of its thread, or of a merge."""
        thread = threading.get_ident()
        if thread in self._inside or (merges and thread == self._merging_thread):
            raise StoreLockedError(
                f"{self.path}: this thread is in the middle of a change, which a signal handler has interrupted: change or close "
                "the store when that call has ended",
                path=self.path,
            )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Take the turn of this thread, and have what its signal handlers ask for meanwhile refused."""
        with self.turn:
            thread = threading.get_ident()
            outer = thread in self._inside
            self._inside.add(thread)
            try:
                yield
            finally:
                if not outer:
                    self._inside.discard(thread)

    def begin(self, sync: str | None) -> tuple[View, Delta, str]:
        """Return what there is before a change; what is not committed yet is, if the change is to be durable."""
        self.check()
        sync = self.sync if sync is None else check_sync(sync)
        if sync == "commit" or self._stale or self._flush_error is not None:
            self.flush()
        view = self.follower.view()
        assert view.delta is not None
        log.check_room(max(view.delta.version, view.delta.records) + 1, self.path)
        return view, view.delta, sync

    def end(self, view: View, record: Record, sync: str) -> View:
        """Commit a change that the delta has in memory already, at its last version; nobody sees it before.

        On failure the delta is read anew from the journal.
        """
        delta = view.delta
        assert delta is not None
        self._queue.append(record)
        self._stale = False
        self._queued_rows += len(record.kinds)
        self._queued_bytes += log.size(len(record.kinds), record.names)
        try:
            if sync == "commit":
                self.flush()
        except BaseException:
            self._empty_queue()
            self.reload()
            raise
        delta.note_names(record.names)
        after = View(view.generation, delta, delta.version, record.totals)
        self.follower.show(after)
        if self._queue:
            try:
                self._queue_grew(sync)
            except FpstoreError as error:
                self._flush_error = error  # this change is made and queued; the next is refused until it can be committed
        self.merge_if_due(after)
        return after

    def _queue_grew(self, sync: str) -> None:
        if self._queued_rows >= (BATCH_ROWS if sync == "batch" else NONE_ROWS):
            self.flush()
        elif sync == "batch" and not self._due:
            self._due = time.monotonic() + BATCH_SECONDS
            if self._flusher is None:
                self._flusher = threading.Thread(target=self._flush_in_time, name="fpstore-flush", daemon=True)
                self._flusher.start()
            self._wake.notify_all()

    def _flush_in_time(self) -> None:
        """Commit groups when they are due, in a thread of its own."""
        with self.turn:
            while not self._closed:
                wait = self._due - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._wake.wait(wait)
                    continue
                try:
                    self.flush()
                except FpstoreError as error:
                    self._flush_error = error  # the rows stay queued; who calls next is told
                    self._due = time.monotonic() + 1.0

    def flush(self) -> None:
        """Make durable what is not yet; on failure it stays queued.

        Raises
        ------
        StorageError
        """
        with self.turn:
            self._flush_error = None
            if self._stale:
                self.reload()
            if not self._queue:
                return
            delta, journal = self._delta(), self.follower.journal
            assert journal is not None
            record = log.join(self._queue, delta.records + 1)
            self._stale = True  # an interrupt may come between the commit and what is noted of it
            try:
                journal.append(record.number, log.pack(record))
            except FpstoreError:
                self._stale = False
                raise
            delta.records += 1
            self._empty_queue()
            self._stale = False
            if delta.records % READER_CHECKS == 0:
                journal.remove_dead_readers()

    def _empty_queue(self) -> None:
        self._queue.clear()
        self._queued_rows = self._queued_bytes = self._room = 0
        self._due = 0.0

    def _delta(self) -> Delta:
        delta = self.follower.view().delta
        assert delta is not None
        return delta

    def reload(self) -> None:
        """Make the delta anew from the journal and what is queued, after a change in memory that could not be committed."""
        self._stale = True
        journal = self.follower.journal
        assert journal is not None
        self.follower.open_journal(journal, journal.read(0))
        for record in self._queue:
            view = self.follower.view()
            assert view.delta is not None
            view.delta.change(record.kinds, record.fingerprints, record.ids)
            view.delta.note_names(record.names)
            self.follower.show(View(view.generation, view.delta, view.delta.version, record.totals))
        self._stale = False

    def check_room(self, rows: int, names: Sequence[bytes] = ()) -> None:
        """Refuse a change that the journal has no room for beside what is queued: before it is in memory, where it would stay.

        Raises
        ------
        StorageError
        """
        needed = self._queued_bytes + log.size(rows, names)
        if needed > self._room:
            journal = self.follower.journal
            assert journal is not None
            self._room = journal.check_room(needed)

    # Adding

    def insert(self, fingerprints: Words, ids: Words | list[str] | None, sync: str | None) -> int:
        """Add pairs; return how many were new."""
        with self.alone():
            view, delta, sync = self.begin(sync)
            rows = self._rows(view, fingerprints, ids)
            in_base = delta.in_base(rows.fingerprints)
            new = new_pairs(view, rows, in_base)
            kept, kept_ids, in_base = rows.fingerprints[new], rows.ids[new], in_base[new]
            if not len(kept):
                return 0
            totals = rows.totals._replace(
                fingerprints=view.totals.fingerprints + count_absent(view, kept, in_base),
                ids=view.totals.ids + len(kept),
            )
            kinds = np.full(len(kept), ADD, np.uint8)
            self.check_room(len(kept), rows.names)
            self._change(delta, kinds, kept, kept_ids, in_base)
            self.end(view, Record(0, totals, kinds, kept, kept_ids, rows.names), sync)
            return len(kept)

    def _change(self, delta: Delta, kinds: Mask, fingerprints: Words, ids: Words, in_base: Mask) -> None:
        # Until it is queued, also for an interrupt: the next change reads the delta anew, which may take a while.
        self._stale = True
        delta.change(kinds, fingerprints, ids, in_base)

    def probe_insert_one(self, value: int, identifier: int | str, radius: int, always: bool, sync: str | None) -> list[Match]:
        """Probe, and insert if nothing matched."""
        with self.alone():
            view, delta, sync = self.begin(sync)
            self._kind(view, [identifier])
            matches = view.probe(value, radius)
            if matches and not always:
                return matches
            fingerprints = np.array([value], np.uint64)
            rows = self._rows(view, fingerprints, [identifier])
            known = next((match for match in matches if match.distance == 0), None)
            if known is not None and self._has_pair(view, value, rows):
                return matches
            in_base = np.array([view.generation.identity.locate_one(value) is not None], np.uint8)
            totals = rows.totals._replace(fingerprints=view.totals.fingerprints + (known is None), ids=view.totals.ids + 1)
            self.check_room(1, rows.names)
            self._change(delta, ONE_ADD, fingerprints, rows.ids, in_base)
            self.end(view, Record(0, totals, ONE_ADD, fingerprints, rows.ids, rows.names), sync)
            return matches

    def _has_pair(self, view: View, value: int, rows: Rows) -> bool:
        _, numbers = view.numbers_of(np.array([value], np.uint64))
        return bool((numbers == rows.ids[0]).any())

    def probe_insert(
        self, fingerprints: Words, ids: Words | list[str], radius: int, always: bool, threads: int, sync: str | None
    ) -> tuple[View, Columns, npt.NDArray[np.bool_]]:
        """Probe and insert in order; return the view afterwards, the columns of the matches, and which rows were inserted."""
        with self.alone():
            view, delta, sync = self.begin(sync)
            rows = self._rows(view, fingerprints, ids)
            columns = view.base_columns(fingerprints, radius, threads)
            in_base = delta.in_base(fingerprints)
            dropped = ~new_pairs(view, rows, in_base) if always else np.zeros(len(fingerprints), bool)
            missing = absent(view, fingerprints, in_base)
            returning = missing & (in_base != 0)
            self.check_room(len(fingerprints), rows.names)
            log.check_room(delta.version + int(returning.sum()) + 1, self.path)
            self._stale = True
            columns, mask = probe_insert_in_order(
                delta, fingerprints, rows.ids, columns, in_base, returning, dropped, radius, always
            )
            count = int(mask.sum())
            if not count:
                self._stale = False
                return view, columns, mask
            kept, kept_ids = fingerprints[mask], rows.ids[mask]
            totals = rows.totals._replace(
                fingerprints=view.totals.fingerprints + len(np.unique(fingerprints[mask & missing])),
                ids=view.totals.ids + count,
                next_row=view.totals.next_row,
            ).counting(kept_ids)
            # A number whose string was not needed stays unused.
            used = set(kept_ids.tolist()) if rows.names else ()
            first = delta.first_name + len(delta.names)
            names = [name if first + i in used else b"" for i, name in enumerate(rows.names)]
            kinds = np.full(count, ADD, np.uint8)
            after = self.end(view, Record(0, totals, kinds, kept, kept_ids, names), sync)
            return after, columns, mask

    def _rows(self, view: View, fingerprints: Words, ids: Words | Sequence[int | str] | None) -> Rows:
        """Turn ids into numbers, and say what the store's totals will be."""
        totals = view.totals
        if ids is None:
            if totals.id_kind != "row" and not is_fresh(view):
                raise InputError(f"{self.path}: its ids are {KIND_WORDS[totals.id_kind]}: give one for each row")
            end = totals.next_row + len(fingerprints)
            if end >= 2**64:
                raise InputError(f"{self.path}: the row numbers are used up: give ids")
            numbers = np.arange(totals.next_row, end, dtype=np.uint64)
            return Rows(fingerprints, numbers, [], totals._replace(next_row=end, id_kind="row"))
        kind = self._kind(view, ids)
        if not len(ids) or not isinstance(ids[0], str):
            numbers = np.asarray(ids, np.uint64)
            return Rows(fingerprints, numbers, [], totals._replace(id_kind=kind).counting(numbers))
        numbers, names = self._numbers(view, ids)  # type: ignore[arg-type]
        return Rows(fingerprints, numbers, names, totals._replace(id_kind=kind))

    def _kind(self, view: View, ids: Words | Sequence[int | str]) -> str:
        """Return the kind of ids that the store will have with these; InputError when it has others."""
        had = view.totals.id_kind
        if not len(ids):
            return had
        strings = isinstance(ids[0], str)
        if is_fresh(view):
            return "string" if strings else "integer"
        if strings != (had == "string"):
            raise InputError(f"{self.path}: its ids are {KIND_WORDS[had]}, got {'strings' if strings else 'integers'}")
        return had

    def _numbers(self, view: View, ids: Sequence[str]) -> tuple[Words, list[bytes]]:
        delta = view.delta
        assert delta is not None
        numbers: dict[str, int] = {}
        names: list[bytes] = []
        following = delta.first_name + len(delta.names)
        for name in dict.fromkeys(ids):
            number = view.number_of(name)
            if number is not None:
                if self.merge_under_way is not None:
                    self.numbers_in_use.add(number)
            else:
                encoded = name.encode()
                if len(encoded) > MAX_NAME_BYTES:
                    raise InputError(f"a string id takes at most {MAX_NAME_BYTES} bytes of UTF-8, got one of {len(encoded)}")
                number = following + len(names)
                names.append(encoded)
            numbers[name] = number
        return np.fromiter((numbers[name] for name in ids), np.uint64, len(ids)), names

    # Deleting

    def delete_fingerprints(self, fingerprints: Words, sync: str | None) -> int:
        """Remove fingerprints with all their ids; return how many pairs there were."""
        with self.alone():
            view, delta, sync = self.begin(sync)
            distinct = np.unique(fingerprints)
            in_base = delta.in_base(distinct)
            distinct = distinct[~absent(view, distinct, in_base)]
            lims, _ = view.numbers_of(distinct)
            return self._remove(view, delta, distinct, int(lims[-1]), NONE, NONE, sync)

    def delete_ids(self, numbers: Words, sync: str | None) -> int:
        """Remove every pair that has one of these ids; return how many there were."""
        with self.alone():
            view, delta, sync = self.begin(sync)
            fingerprints, ids = view.with_ids(numbers)
            distinct, counts = np.unique(fingerprints, return_counts=True)
            lims, _ = view.numbers_of(distinct)
            dying = distinct[np.diff(lims) == counts]
            stays = ~np.isin(fingerprints, dying)
            return self._remove(view, delta, dying, len(fingerprints), fingerprints[stays], ids[stays], sync)

    def _remove(self, view: View, delta: Delta, dying: Words, pairs: int, fingerprints: Words, ids: Words, sync: str) -> int:
        if not pairs:
            return 0
        kinds = np.concatenate([np.full(len(dying), WIPE, np.uint8), np.full(len(fingerprints), REMOVE, np.uint8)])
        fingerprints, ids = np.concatenate([dying, fingerprints]), np.concatenate([np.zeros(len(dying), np.uint64), ids])
        self.check_room(len(kinds))
        self._change(delta, kinds, fingerprints, ids, delta.in_base(fingerprints))
        totals = view.totals._replace(fingerprints=view.totals.fingerprints - len(dying), ids=view.totals.ids - pairs)
        self.end(view, Record(0, totals, kinds, fingerprints, ids, []), sync)
        return pairs

    # Merging

    def merge(
        self,
        memory: int | str | None,
        threads: int | None,
        progress: Progress | None,
        others: Sequence[View] = (),
        renumber: bool = False,
        design: str | None = None,
    ) -> None:
        """Fold the delta, and other stores, into a new generation; one merge at a time."""
        from fpstore.change.join import Join
        from fpstore.change.merge import Merge

        with self.merging:
            self.refuse_inside(merges=True)
            self.check()
            if self._closing:
                raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
            budget, workers = parse_memory(memory), parse_threads(threads)
            self.merge_under_way = (
                Join(self, others, renumber, budget, workers, progress, design)
                if others
                else Merge(self, budget, workers, progress, design)
            )
            self._merging_thread = threading.get_ident()
            try:
                if self._closing:  # close may not have seen it yet
                    self.merge_under_way.stop()
                self.merge_under_way.run()
            finally:
                self.merge_under_way = self._merging_thread = None

    def merge_if_due(self, view: View) -> None:
        """Start a merge in the background when the delta has become large."""
        if self.merge_at is None or self._merger is not None or view.delta is None:
            return
        changes = view.delta.kernel.operations
        if changes < max(self.merge_at * view.generation.count, LEAST_CHANGES, self._retry_at):
            return
        self._merger = threading.Thread(target=self._merge_in_background, name="fpstore-merge")
        self._merger.start()

    def _merge_in_background(self) -> None:
        try:
            self.merge(None, None, None)
            self.merge_error = None
            self._retry_at = 0
        except BaseException as error:
            self.merge_error = error
            self._retry_at = 2 * self._delta().kernel.operations if not self._closed else 0
        finally:
            self._merger = None

    # Life cycle

    def close(self) -> None:
        """Commit what is not yet, and give the lock back."""
        if self._lock.owner != os.getpid():
            self._closed = True  # threads of the parent may have held the locks at the fork
            return
        self.refuse_inside(merges=True)
        self._closing = True
        merge, merger = self.merge_under_way, self._merger
        if merge is not None:
            merge.stop()
        if merger is not None:
            merger.join()
        with self.merging, self.turn:
            if self._closed:
                return
            try:
                if self._queue:
                    self.flush()
            finally:
                self._closed = True
                self._lock.release()
                self._wake.notify_all()
