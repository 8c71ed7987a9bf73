"""Writing a generation of any size from sorted content, as a stream."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Progress, Words
from fpstore.building.external_sort import COPY_ROWS, KEY_BYTES, Column, permuted_parts
from fpstore.building.sources import SortedSource
from fpstore.design.families import IDENTITY, Design
from fpstore.disk.locks import LOCK_FILE, MODE
from fpstore.errors import CorruptStoreError
from fpstore.format import huffman
from fpstore.format.id_map import IDS_FILE, IdMapWriter
from fpstore.format.log import LOG_FILE, LogHeader
from fpstore.format.log_writer import create_log
from fpstore.format.manifest import MANIFEST_FILE, GenerationRecord, Manifest, generation_folder, write_manifest
from fpstore.format.record import Totals
from fpstore.format.table import TableLayout, TableWriter, table_name
from fpstore.threads import WAIT_SECONDS, Job, Pool

PHASE_MERGE = "merging"


class GenerationWriter:
    """Writes the tables and the id map of a new generation; :meth:`record` describes them afterwards."""

    def __init__(
        self, folder: Path, design: Design, block_bytes: int, memory: int, threads: int, progress: Progress | None
    ) -> None:
        self.folder = folder
        self.design = design
        self.fingerprints = self.ids = self.digest = 0
        self.ids_file: dict[str, int] = {}
        self.used: npt.NDArray[np.bool_] | None = None  # which numbers of strings occur, if that is wanted
        self._block_bytes = block_bytes
        self._memory, self._threads = memory, threads
        self._progress = progress
        self._rooms: list[Words] = []  # arrays for the keys of a table, free for the next ones
        self._syncs: list[tuple[TableWriter, Job[None]]] = []
        self._entry_counts: SimpleQueue[npt.NDArray[np.uint32]] = SimpleQueue()  # of the identity table's blocks
        self._waiting = np.empty(0, np.uint32)
        self._packed = 0
        self._done = 0
        self._lock = threading.Lock()
        self._stop = _kernel.Stop()

    def write(self, source: SortedSource) -> None:
        """Write tables and ids, and make them durable except for the folder's own name.

        Raises
        ------
        OSError
            The system refused a write.
        """
        shape = source.shape()
        if shape is None:
            permutation = np.frombuffer(IDENTITY, np.uint8)
            for piece in self._sorted(source):
                self.fingerprints += len(piece)
                self.digest = (self.digest + _kernel.digest(piece, permutation)) % 2**64
                self._tick(0)
        else:
            self.fingerprints, self.digest = shape
        with Pool(1) as self._disk:
            try:
                with Pool(self._threads) as pool:
                    try:
                        # The ids wait for the blocks of the identity table, so it begins first.
                        jobs = [pool.submit(self._table, source, 0), pool.submit(self._id_map, source)]
                        jobs += [pool.submit(self._table, source, table) for table in range(1, len(self.design.tables))]
                        for job in pool.as_done(jobs):
                            job.result()
                    except BaseException:
                        self._stop.set()
                        pool.cancel()
                        raise
                for _, sync in self._syncs:
                    sync.result()
            finally:
                self._rooms.clear()
                self._disk.cancel()
                self._disk.shutdown()
                for writer, _ in self._syncs:
                    writer.abort()

    def _sorted(self, source: SortedSource) -> Iterator[Words]:
        keys = source.keys(self.design.tables[0], self._stop)
        assert keys is not None, "the first table of every store is in order of the fingerprints"
        return keys

    def _id_map(self, source: SortedSource) -> None:
        """Write the ids in the blocks of the identity table."""
        records = IdMapWriter(self.folder / IDS_FILE, self.digest)
        try:
            for keys, counts, ids in source.groups():
                if not len(keys):
                    continue
                records.add(counts, ids)
                self.ids += len(ids)
                if self.used is not None:
                    self._note_used(ids, self.used)
                records.close_blocks(self._blocks_within(records.added))
                self._tick(0)
            records.close_blocks(self._blocks_within(self.fingerprints), last=True)
            self.ids_file = records.finish()
        except BaseException:
            records.abort()
            raise

    def _note_used(self, ids: Words, used: npt.NDArray[np.bool_]) -> None:
        if len(ids) and int(ids.max()) >= len(used):
            raise CorruptStoreError(f"{self.folder}: id number {int(ids.max())} has no string", path=self.folder)
        used[ids] = True

    def _blocks_within(self, rows: int) -> npt.NDArray[np.uint32]:
        """Return the entry counts of the next blocks of the identity table that end within so many rows."""
        out = [np.empty(0, np.uint32)]
        while True:
            if not len(self._waiting):
                if self._packed == rows:
                    break
                self._waiting = self._next_blocks()
            ends = self._packed + np.cumsum(self._waiting, dtype=np.int64)
            taken = int(np.searchsorted(ends, rows, side="right"))
            if taken:
                out.append(self._waiting[:taken])
                self._packed = int(ends[taken - 1])
                self._waiting = self._waiting[taken:]
            if len(self._waiting):
                break
        return np.concatenate(out)

    def _next_blocks(self) -> npt.NDArray[np.uint32]:
        while True:
            self._tick(0)
            with suppress(Empty):
                return self._entry_counts.get(timeout=WAIT_SECONDS)

    def _table(self, source: SortedSource, number: int) -> None:
        spec = self.design.tables[number]
        histogram = np.zeros(huffman.SYMBOLS, np.uint64)
        last = np.empty(0, np.uint64)
        column: Column | None = None
        room: Words | None = None
        keys = source.keys(spec, self._stop)
        if keys is None:
            # No source has this order: sort in parts, through a file.
            column = Column(self.folder / f"table-{number}.tmp")
            keys = permuted_parts(lambda: self._sorted(source), self.fingerprints, spec, self._share(), self._stop)
        elif self.fingerprints * KEY_BYTES <= self._share():
            room = self._rooms.pop() if self._rooms else np.empty(self.fingerprints, np.uint64)
        try:
            at = 0
            for piece in in_pieces(keys):
                add_histogram(last, piece, histogram)
                last = piece[-1:].copy()
                if column is not None:
                    column.append(piece)
                elif room is not None:
                    room[at : at + len(piece)] = piece
                    at += len(piece)
                self._tick(0)
            again: Iterable[Words] | None
            if room is not None:
                again = in_pieces([room[:at]])
            else:
                again = source.keys(spec, self._stop) if column is None else column.pieces()
            assert again is not None
            writer = TableWriter(self.folder / table_name(number), self._layout(number, histogram))
            try:
                fed = 0
                for piece in again:
                    fed += len(piece)
                    self._note_blocks(number, writer.feed(piece))
                    self._tick(len(piece))
                if fed != self.fingerprints:
                    raise CorruptStoreError(f"table {number} would hold {fed} fingerprints instead of {self.fingerprints}")
                self._note_blocks(number, writer.finish())
            except BaseException:
                writer.abort()
                raise
            self._sync(writer)
            if room is not None:
                self._rooms.append(room)
        finally:
            if column is not None:
                column.close()

    def _note_blocks(self, number: int, entry_counts: npt.NDArray[np.uint32]) -> None:
        if number == 0 and len(entry_counts):
            self._entry_counts.put(entry_counts)

    def _sync(self, writer: TableWriter) -> None:
        """Make a table durable while the next is written."""
        self._syncs.append((writer, self._disk.submit(writer.sync)))

    def _layout(self, table: int, histogram: Words) -> TableLayout:
        return TableLayout(self.design, table, self._block_bytes, self.fingerprints, self.digest, histogram)

    def _share(self) -> int:
        return self._memory // min(self._threads, len(self.design.tables))

    def tick(self, rows: int = 0) -> None:
        """Count rows, and raise InterruptedError if :meth:`stop` was called."""
        self._tick(rows)

    def _tick(self, rows: int) -> None:
        if self._stop.is_set():
            raise InterruptedError
        with self._lock:
            self._done += rows
            if self._progress:
                self._progress(PHASE_MERGE, self._done, self.fingerprints * len(self.design.tables))

    def stop(self) -> None:
        """Make the write end soon with InterruptedError."""
        self._stop.set()

    def record(
        self, number: int, totals: Totals, first_string: int, strings_file: dict[str, int] | None = None
    ) -> GenerationRecord:
        """Return the generation's record for the manifest.

        Parameters
        ----------
        number : int
        totals : Totals
            The totals of its content.
        first_string, strings_file
            See :class:`GenerationRecord`.
        """
        return GenerationRecord(
            number,
            self.fingerprints,
            self.ids,
            totals.next_row,
            totals.id_kind,
            first_string,
            self.digest,
            self.ids_file,
            strings_file,
        )


def finish_generation(folder: Path, manifest: Manifest) -> None:
    """Create the log of a generation whose other files are complete; the caller makes the names durable.

    Raises
    ------
    OSError
    """
    create_log(folder / LOG_FILE, start_of_log(manifest))


def start_of_log(manifest: Manifest) -> LogHeader:
    """Return the header of the log of a manifest's generation."""
    record = manifest.generation
    totals = Totals(record.fingerprints, record.ids, record.next_row, record.id_kind)
    return LogHeader(manifest.identity, record.number, record.first_string, totals)


def finish_store(folder: Path, manifest: Manifest) -> None:
    """Turn a folder that has the files of its first generation into a store.

    Raises
    ------
    OSError
    """
    finish_generation(folder / generation_folder(manifest.generation.number), manifest)
    finish_copy(folder, manifest)


def finish_copy(folder: Path, manifest: Manifest) -> None:
    """Turn a folder that has all files of its generation, including the log, into a store.

    Raises
    ------
    OSError
    """
    (folder / LOCK_FILE).touch(MODE)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_manifest(descriptor, manifest)
    except OSError as error:
        error.filename = str(folder / MANIFEST_FILE)
        raise
    finally:
        os.close(descriptor)


def in_pieces(parts: Iterable[Words]) -> Iterator[Words]:
    """Cut successive parts into pieces of at most COPY_ROWS."""
    for part in parts:
        for start in range(0, len(part), COPY_ROWS):
            yield part[start : start + COPY_ROWS]


def add_histogram(last: Words, keys: Words, histogram: Words) -> None:
    """Count the first differing bits of successive keys, starting after ``last``.

    Raises
    ------
    CorruptStoreError
        The keys do not ascend.
    """
    joined = np.concatenate([last, keys[:1]])
    if len(last) and len(keys) and _kernel.histogram(joined, histogram) != len(joined):
        raise CorruptStoreError(f"{int(keys[0]):016x} comes after {int(last[-1]):016x}: a table out of order: run fpstore verify")
    bad = _kernel.histogram(keys, histogram)
    if bad != len(keys):
        raise CorruptStoreError(
            f"{int(keys[bad]):016x} comes after {int(keys[bad - 1]):016x}: a table out of order: run fpstore verify"
        )
