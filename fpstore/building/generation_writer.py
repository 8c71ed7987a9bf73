"""The writer of a generation: its tables, ids and strings, and what makes a folder of them a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.building.external_sort import in_pieces
from fpstore.building.work import Work
from fpstore.design.families import Design
from fpstore.disk.locks import LOCK_FILE, MODE
from fpstore.disk.sealed import SealedWriter
from fpstore.errors import CorruptStoreError
from fpstore.format import huffman
from fpstore.format.id_map import IDS_FILE, IdMapWriter
from fpstore.format.log import LOG_FILE, LogHeader
from fpstore.format.log_writer import create_log
from fpstore.format.manifest import MANIFEST_FILE, GenerationRecord, Manifest, generation_folder, write_manifest
from fpstore.format.record import Totals
from fpstore.format.strings import STRINGS_FILE, StringWriter
from fpstore.format.table import TableLayout, TableWriter, table_name
from fpstore.query.snapshot import Groups
from fpstore.threads import Job, Pool


class GenerationWriter:
    """Writes the files of a generation: :meth:`begin`, the tables, :meth:`finish`; :meth:`record` describes them.

    Several threads can each write a table. A context manager: an exception closes what is open and ends the threads.

    Parameters
    ----------
    folder : Path
        The folder of the generation; its own name is made durable by the caller.
    block_bytes : int
    work : Work
        Counts the fingerprints written.
    """

    design: Design

    def __init__(self, folder: Path, block_bytes: int, work: Work) -> None:
        self.folder = folder
        self.work = work
        self.fingerprints = self.ids = self.digest = self.first_string = 0
        self.strings_file: dict[str, int] | None = None
        self._ids_file: dict[str, int] = {}
        self._block_bytes = block_bytes
        self._strings: tuple[SealedWriter, StringWriter] | None = None
        # Tables are made durable while the next ones are written.
        self._disk = Pool(1)
        self._syncs: list[tuple[TableWriter, Job[None]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is not None and self._strings is not None:
                self._strings[0].abort()
        finally:
            self._disk.cancel()
            self._disk.shutdown()
            for table, _ in self._syncs:
                table.abort()

    def begin(self, design: Design, fingerprints: int, digest: int) -> None:
        """Set which tables there are, and the number and the digest of the fingerprints that each of them will hold."""
        self.design, self.fingerprints, self.digest = design, fingerprints, digest

    def write_identity(self, histogram: Words, groups: Iterable[Groups]) -> None:
        """Write the first table, and the ids.

        Parameters
        ----------
        histogram : ndarray of uint64
            Of the fingerprints' first differing bits.
        groups : iterable of (fingerprints, number of ids of each, id numbers)
            In ascending order.
        """
        table = self._table(0, histogram)
        records = IdMapWriter(self.folder / IDS_FILE, self.digest)
        try:
            for keys, counts, ids in groups:
                records.add(counts, ids)
                self.ids += len(ids)
                records.close_blocks(table.feed(keys))
                self.work.tick(len(keys))
            records.close_blocks(table.finish(), last=True)
            self._sync(table)
            self._ids_file = records.finish()
        except BaseException:
            table.abort()
            records.abort()
            raise

    def write_table(self, number: int, keys: Callable[[], Iterable[Words]]) -> None:
        """Write another table.

        Parameters
        ----------
        number : int
            Its place in the design.
        keys : callable
            Starts a pass over its sorted keys. The first pass counts, the second writes.
        """
        histogram = Histogram()
        for piece in in_pieces(keys()):
            histogram.add(piece)
            self.work.tick()
        table = self._table(number, histogram.counts)
        try:
            for piece in in_pieces(keys()):
                table.feed(piece)
                self.work.tick(len(piece))
            table.finish()
        except BaseException:
            table.abort()
            raise
        self._sync(table)

    def _table(self, number: int, histogram: Words) -> TableWriter:
        layout = TableLayout(self.design, number, self._block_bytes, self.fingerprints, self.digest, histogram)
        return TableWriter(self.folder / table_name(number), layout)

    def _sync(self, table: TableWriter) -> None:
        self._syncs.append((table, self._disk.submit(table.sync)))

    def number(self, strings: Sequence[str]) -> Words:
        """Return the numbers of strings; new ones are added to the dictionary, which the first call creates."""
        if self._strings is None:
            file = SealedWriter(self.folder / STRINGS_FILE)
            self._strings = file, StringWriter(file)
        return self._strings[1].number(strings)

    def finish(self) -> None:
        """Make tables and strings durable.

        Raises
        ------
        OSError
            The system refused a write.
        """
        for _, sync in self._syncs:
            sync.result()
        if self._strings is not None:
            file, numbers = self._strings
            size, digest = file.finish()
            self.first_string, self.strings_file = numbers.count, {"bytes": size, "digest": digest, "largest": 0}

    def record(self, number: int, totals: Totals) -> GenerationRecord:
        """Return the generation's record for the manifest: its number, and the totals of its content."""
        return GenerationRecord(
            number, self.fingerprints, self.ids, totals.next_row, totals.id_kind, self.first_string,
            self.digest, self._ids_file, self.strings_file,
        )  # fmt: skip


class Histogram:
    """Counts of the first differing bits of successive keys, from which the code of a table is made."""

    def __init__(self) -> None:
        self.counts = np.zeros(huffman.SYMBOLS, np.uint64)
        self._last = np.empty(0, np.uint64)

    def add(self, keys: Words) -> None:
        """Count the next keys.

        Raises
        ------
        CorruptStoreError
            The keys do not ascend.
        """
        last = self._last
        joined = np.concatenate([last, keys[:1]])
        if len(last) and len(keys) and _kernel.histogram(joined, self.counts) != len(joined):
            raise _out_of_order(keys[0], last[-1])
        bad = _kernel.histogram(keys, self.counts)
        if bad != len(keys):
            raise _out_of_order(keys[bad], keys[bad - 1])
        if len(keys):
            self._last = keys[-1:].copy()


def _out_of_order(key: np.uint64, before: np.uint64) -> CorruptStoreError:
    return CorruptStoreError(f"{int(key):016x} comes after {int(before):016x}: a table out of order: run fpstore verify")


def create_generation_log(folder: Path, manifest: Manifest) -> None:
    """Create the log of a generation whose other files are complete; the caller makes the names durable.

    Raises
    ------
    OSError
    """
    create_log(folder / LOG_FILE, LogHeader.of(manifest))


def finish_store(folder: Path, manifest: Manifest) -> None:
    """Turn a folder that has the files of its first generation into a store.

    Raises
    ------
    OSError
    """
    create_generation_log(folder / generation_folder(manifest.generation.number), manifest)
    write_store_files(folder, manifest)


def write_store_files(folder: Path, manifest: Manifest) -> None:
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
