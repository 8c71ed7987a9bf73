"""The writer of a generation: tables, ids and strings, then the log and manifest of a store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Groups, Progress, Words
from fpstore.base.pools import Job, Pool
from fpstore.building.columns import SortedColumns, cut_pieces
from fpstore.building.external_sort import Sorter
from fpstore.design.blocks import HUFFMAN, BlockPacking
from fpstore.design.estimates import choose_filters
from fpstore.design.families import Design
from fpstore.design.tables import BLOCKS
from fpstore.disk.files import MODE, RUN_REPAIR
from fpstore.disk.locks import LOCK_FILE
from fpstore.errors import CorruptStoreError
from fpstore.format.dictionary import MAPPING_FILES
from fpstore.format.huffman import GapHistogram, KeySummary
from fpstore.format.layout import TableLayout, table_name
from fpstore.format.log import LOG_FILE, LogHeader
from fpstore.format.log_writer import create_log
from fpstore.format.manifest import (
    MANIFEST_FILE,
    GenerationRecord,
    Manifest,
    generation_folder,
    write_manifest,
)
from fpstore.format.mapping import (
    IDS_FILE,
    PLACES_FILES,
    IdMapping,
    MappingWriter,
    bits_per_rank,
    mapping_layout,
)
from fpstore.format.record import Totals
from fpstore.format.strings import STRINGS_FILE
from fpstore.format.table import TableWriter, open_table, table_writer


class TrackedWork:
    """Counts the progress of a phase, and reports it to the caller's callback from any thread."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.stop = _kernel.Stop()
        self._lock = threading.Lock()
        self._phase = ""
        self._done = 0
        self._total: int | None = None

    def start(self, phase: str, total: int | None) -> None:
        """Begin a phase and report it."""
        self.expect(phase, total)
        self._report(0)

    def expect(self, phase: str, total: int | None) -> None:
        """Begin a phase; the first :meth:`tick` reports it."""
        with self._lock:
            self._phase, self._done, self._total = phase, 0, total

    def tick(self, rows: int = 0) -> None:
        """Count rows, and raise InterruptedError once ``stop`` is set."""
        if self.stop.is_set():
            raise InterruptedError
        self._report(rows)

    def set_done(self, done: int) -> None:
        self._report(done - self._done)

    def _report(self, rows: int) -> None:
        with self._lock:
            self._done += rows
            if self._progress:
                self._progress(self._phase, self._done, self._total)

    def run_in_threads(self, threads: int, parts: Iterable[Callable[[], None]]) -> None:
        """Do the parts of the work in threads.

        When one fails, the others end soon, and its exception is raised.
        """
        with Pool(threads) as pool:
            jobs: list[Job[None]] = []
            try:
                jobs += [pool.submit(self._set_stop_on_error, part) for part in parts]
                for job in jobs:
                    job.result()
            except BaseException as error:
                self.stop.set()
                pool.cancel()
                # another part failed, and may end later: its exception says why
                if isinstance(error, InterruptedError):
                    for job in jobs:
                        with suppress(InterruptedError, CancelledError):
                            job.result()
                raise

    def _set_stop_on_error(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException:
            self.stop.set()
            raise


class StringSource(Protocol):
    """The strings of a new dictionary, by number and by hash."""

    count: int  # unused numbers included

    def hashes(self) -> Iterator[Words]:
        """Start a pass over the distinct hashes, ascending."""

    def groups(self) -> Iterator[Groups]:
        """Start a pass over (hashes, how many strings have each, their numbers), by hash."""

    def write(self, path: Path, threads: int, tick: Callable[[], None]) -> dict[str, int]:
        """Write the strings in the order of their numbers; return the shape of the file."""


class GenerationWriter:
    """Writes the files of a generation: :meth:`begin`, the tables, :meth:`finish`.

    :meth:`record` describes them.

    Several threads can each write a table. A context manager: an exception closes what is open and
    ends the threads. The caller makes the name of the folder durable. With more than one thread,
    ids are written beside their tables.
    """

    design: Design

    def __init__(
        self, folder: Path, blocks: BlockPacking, work: TrackedWork, threads: int = 1
    ) -> None:
        self.folder = folder
        self.work = work
        self.fingerprints = self.ids = self.digest = 0
        self.dictionary: dict[str, Any] = {}  # empty without string ids
        self.places: dict[str, Any] | None = None
        self._rank_bits = 0
        self._ids_file: dict[str, int] = {}
        self._blocks, self._threads = blocks, threads
        # Tables are made durable while the next ones are written.
        self._disk = Pool(1)
        self._syncs: list[tuple[TableWriter, Job[None]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._disk.shutdown(cancel=True)
        for table, _ in self._syncs:
            table.abort()

    def begin(self, design: Design, fingerprints: int, digest: int) -> None:
        """Set the tables, and the number and the digest of the fingerprints of each."""
        self.design, self.fingerprints, self.digest = design, fingerprints, digest
        self.filters = choose_filters(design, fingerprints, self._blocks)

    def write_identity(self, histogram: Words, groups: Iterable[Groups]) -> None:
        """Write the first table, whose keys have this histogram, and the ids.

        Groups of (keys, ids of each, id numbers).
        """
        names = table_name(0), IDS_FILE
        self._ids_file, mapping = self._write_mapping(
            names, self._layout(0, histogram), self._count_ids(groups), sync=False
        )
        self._rank_bits = bits_per_rank(mapping.largest_block)
        self._sync(mapping.table)

    def _count_ids(self, groups: Iterable[Groups]) -> Iterator[Groups]:
        for group in groups:
            self.ids += len(group[2])
            yield group
            self.work.tick(len(group[0]))

    def _write_mapping(
        self,
        names: tuple[str, str],
        layout: TableLayout,
        groups: Iterable[Groups],
        sync: bool = True,
    ) -> tuple[dict[str, int], MappingWriter]:
        """Write a mapping; return the shape of its file of numbers, and the writer.

        With ``sync``, its table is durable.
        """
        mapping = MappingWriter(
            self.folder / names[0], self.folder / names[1], layout, self._threads > 1
        )
        try:
            for keys, counts, numbers in groups:
                mapping.add(keys, counts, numbers)
                self.work.tick()
            shape = mapping.finish()
            if sync:
                mapping.table.sync()
        except BaseException:
            mapping.abort()
            raise
        return shape, mapping

    def write_table(self, number: int, keys: Callable[[], Iterable[Words]]) -> None:
        """Write another table; ``keys`` starts a pass over its sorted keys.

        With the Huffman codec there are two passes: the first counts the gaps for the code.
        """
        coded = self.design.tables[number].kind == BLOCKS and self._blocks.codec == HUFFMAN
        histogram = self._histogram(keys() if coded else ())
        table = table_writer(self.folder / table_name(number), self._layout(number, histogram))
        try:
            for piece in cut_pieces(keys()):
                table.feed(piece)
                self.work.tick(len(piece))
            table.finish()
        except BaseException:
            table.abort()
            raise
        self._sync(table)

    def _histogram(self, keys: Iterable[Words]) -> Words:
        histogram = GapHistogram()
        for piece in cut_pieces(keys):
            histogram.add(piece)
            self.work.tick()
        return histogram.counts

    def _layout(self, number: int, histogram: Words) -> TableLayout:
        shape = self.filters.get(number)
        return TableLayout(
            self.design, number, self._blocks, self.fingerprints, self.digest, histogram, shape
        )

    def _sync(self, table: TableWriter) -> None:
        self._syncs.append((table, self._disk.submit(table.sync)))

    def write_dictionary(
        self, strings: StringSource, threads: int, used: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Write the dictionary of string ids.

        CorruptStoreError unless each ``used`` number, by default any, has a string.
        """
        self.write_numbers(strings, used)
        self.write_strings(strings, threads)

    def write_numbers(
        self, strings: StringSource, used: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Write the part of the dictionary that leads from strings to numbers.

        CorruptStoreError unless each ``used`` number, by default any, has a string.
        """
        hashes = KeySummary()
        for piece in cut_pieces(strings.hashes()):
            hashes.add(piece)
            self.work.tick()
        numbers, mapping = self._write_mapping(
            MAPPING_FILES, mapping_layout(hashes), strings.groups()
        )
        expected = strings.count if used is None else int(np.count_nonzero(used))
        if (got := mapping.number_count) != expected:
            raise CorruptStoreError(
                f"{self.folder}: {expected} id numbers are in use, and {got} of them have a "
                f"string: {RUN_REPAIR}",
                path=self.folder,
                expected=expected,
                got=got,
            )
        self.dictionary |= {
            "hashes": hashes.count,
            "hash_digest": hashes.digest,
            "numbers": numbers,
        }

    def write_strings(self, strings: StringSource, threads: int) -> None:
        """Write the part of the dictionary that leads from numbers to strings."""
        shape = strings.write(self.folder / STRINGS_FILE, threads, self.work.tick)
        self.dictionary |= {"strings": shape, "count": strings.count}

    def write_places(self, memory: int) -> None:
        """Write the index by id, once the first table and the ids are written."""
        identity = open_table(self.folder / table_name(0), self.design.tables[0])
        ids = IdMapping(identity, self.folder / IDS_FILE, self._ids_file)
        sorter = Sorter(memory, self.folder, self.ids, threads=self._threads, stop=self.work.stop)
        try:
            for numbers, places in ids.places(self._rank_bits):
                sorter.add(numbers, places)
                self.work.tick()
        finally:
            ids.close()
        columns = SortedColumns(self.folder if sorter.spilled else None)
        for part in sorter.groups(lambda rows: self.work.tick()):
            columns.add(part)
        shape, _ = self._write_mapping(
            PLACES_FILES, mapping_layout(columns.summary), columns.groups()
        )
        columns.close()
        self.places = {
            "ids": columns.count,
            "id_digest": columns.summary.digest,
            "rank_bits": self._rank_bits,
            "places": shape,
        }

    def finish(self) -> None:
        """Make the tables durable."""
        for _, sync in self._syncs:
            sync.result()

    def record(self, number: int, totals: Totals) -> GenerationRecord:
        """Return the generation's record for the manifest."""
        return GenerationRecord(
            number,
            self.fingerprints,
            self.ids,
            totals.next_row,
            totals.id_kind,
            self.dictionary.get("count", 0),
            self.digest,
            sorted(self.filters),
            self._ids_file,
            self.dictionary or None,
            self.places,
        )


def finish_store(folder: Path, manifest: Manifest) -> None:
    """Turn a folder with the files of a generation into a store, with a log if that is missing."""
    log = folder / generation_folder(manifest.generation.number) / LOG_FILE
    if not log.exists():
        create_log(log, LogHeader.from_manifest(manifest))
    (folder / LOCK_FILE).touch(MODE)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_manifest(descriptor, manifest)
    except OSError as error:
        error.filename = str(folder / MANIFEST_FILE)
        raise
    finally:
        os.close(descriptor)
