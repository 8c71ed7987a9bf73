"""Building a store from input: sort, group, encode the identity table and its ids, then the other tables in threads."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fpstore import _kernel
from fpstore.aliases import Progress, Words
from fpstore.arguments import check_choice, check_progress
from fpstore.building.external_sort import COPY_ROWS, KEY_BYTES, Column, PairSorter, permuted_parts
from fpstore.building.generation_writer import add_histogram, finish_store, in_pieces
from fpstore.building.target import Target
from fpstore.design.block_bytes import DEFAULT_BLOCK_BYTES, check_block_bytes
from fpstore.design.families import IDENTITY, Design, check_design, check_radius
from fpstore.design.families import design as make_design
from fpstore.design.planner import SAMPLE_SIZE, STORAGE, choose
from fpstore.disk.sealed import SealedWriter
from fpstore.errors import InputError, show
from fpstore.format import huffman
from fpstore.format import id_map as idmap
from fpstore.format.manifest import IDENTITY_BYTES, GenerationRecord, Manifest, generation_folder
from fpstore.format.record import Totals
from fpstore.format.strings import STRINGS_FILE, StringWriter
from fpstore.format.table import TableLayout, TableReader, TableWriter, table_name
from fpstore.io import check_fingerprints, check_ids
from fpstore.io.check import as_array
from fpstore.resources import parse_memory, parse_threads
from fpstore.threads import Job, Pool

SLICE_ROWS = 1 << 20

PHASE_READ = "reading"
PHASE_SORT = "sorting"
PHASE_TABLES = "tables"


@dataclass
class Options:
    """The options of a build."""

    radius: int = 3
    design: str | Sequence[Any] = "auto"
    memory: int | str | None = None
    threads: int | None = None
    block_bytes: int = DEFAULT_BLOCK_BYTES
    fingerprinter: dict[str, Any] | None = None
    disk_budget: int | None = None
    storage: str = "hot"
    progress: Progress | None = None
    # Of a store that is written again: facts that the input does not have.
    id_kind: str | None = None
    rows: int = 0
    reserved: int = 0  # bytes of the budget that are already used
    auto: dict[str, Any] | None = None  # if `auto` chose the design: what a later merge needs to choose again

    def checked(self) -> Options:
        """Validate the options before any input is read."""
        self.radius = check_radius(self.radius)
        self.memory = parse_memory(self.memory)
        self.threads = parse_threads(self.threads)
        check_block_bytes(self.block_bytes)
        check_design(self.design, self.radius)
        check_choice(self.storage, STORAGE, "storage")
        check_progress(self.progress)
        return self


@dataclass
class _Progress:
    """Counts of the current phase, reported to the caller's callback from any thread."""

    callback: Progress | None
    stop: _kernel.Stop = field(default_factory=_kernel.Stop)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _phase: str = ""
    _done: int = 0
    _total: int | None = None

    def start(self, phase: str, total: int | None) -> None:
        with self._lock:
            self._phase, self._done, self._total = phase, 0, total
            if self.callback:
                self.callback(phase, 0, total)

    def tick(self, rows: int) -> None:
        if self.stop.is_set():
            raise InterruptedError
        with self._lock:
            self._done += rows
            if self.callback:
                self.callback(self._phase, self._done, self._total)


def build_store(path: Path, source: Any, ids: Any, options: Options, overwrite: bool) -> None:
    """Write a complete store at ``path``, or nothing."""
    options = options.checked()
    if hasattr(source, "__array__"):
        source = as_array(source)
    with Target(path, overwrite) as folder:
        _Build(folder, options).run(source, ids)


class _Build:
    def __init__(self, folder: Path, options: Options) -> None:
        self._folder = folder
        self._options = options
        self._progress = _Progress(options.progress)
        assert isinstance(options.memory, int)
        assert isinstance(options.threads, int)
        self._memory, self._threads = options.memory - options.reserved, options.threads
        self._generation = folder / generation_folder(1)
        self._generation.mkdir()
        # Tables are synced while the next ones are built.
        self._disk = Pool(1)
        self._syncs: list[tuple[TableWriter, Job[None]]] = []
        self._temporary = folder / "tmp"
        self._temporary.mkdir()

    def run(self, source: Any, ids: Any) -> None:
        """Read, sort, encode, and write the manifest last."""
        strings = _StringsFile(self._generation / STRINGS_FILE)
        try:
            if self._options.id_kind == "string":
                strings.number([])
            rows = _known_rows(source)
            if rows is not None and self._options.design != "auto":
                self._choose(rows)  # refuses before anything is read
            sorter = PairSorter(self._memory, self._temporary, rows)
            self._progress.start(PHASE_READ, rows)
            kind = "row"
            row = 0
            for fingerprints, chunk_ids in chunks(source, ids):
                if chunk_ids is None:
                    numbers = np.arange(row, row + len(fingerprints), dtype=np.uint64)
                elif isinstance(chunk_ids, np.ndarray):
                    kind, numbers = "integer", chunk_ids
                else:
                    kind = "string"
                    numbers = strings.number(chunk_ids)
                sorter.add(fingerprints, numbers)
                row += len(fingerprints)
                self._progress.tick(len(fingerprints))
            identity, id_count = self._identity_table(sorter)
            self._other_tables(identity)
            for _, sync in self._syncs:
                sync.result()
            kind = self._options.id_kind or kind
            totals = Totals(identity.count, id_count, self._options.rows if self._options.id_kind else row, kind)
            self._temporary.rmdir()
            finish_store(self._folder, self._manifest(identity, totals, *strings.finish()))
        except BaseException:
            strings.abort()
            raise
        finally:
            self._disk.cancel()
            self._disk.shutdown()
            for writer, _ in self._syncs:
                writer.abort()

    def _choose(self, count: int, sample: Words | None = None) -> Design:
        options = self._options
        if isinstance(options.design, str) and options.design == "auto":
            return choose(
                count, options.radius, disk_budget=options.disk_budget, storage=options.storage,
                block_bytes=options.block_bytes, sample=sample,
            ).design  # fmt: skip
        made = make_design(options.design, options.radius)
        made.lookups(count)  # InputError: a probe would make too many
        return made

    def _identity_table(self, sorter: PairSorter) -> tuple[_Identity, int]:
        self._progress.start(PHASE_SORT, sorter.rows)
        in_files = sorter.spilled
        columns = [Column(self._temporary / f"{name}.tmp" if in_files else None) for name in ("keys", "per-fingerprint", "ids")]
        keys, per_fingerprint, numbers = columns
        identity = _Identity(keys, sorter.rows)
        part = None
        for part in sorter.groups(self._progress.tick):
            identity.note(part.keys)
            keys.append(part.keys)
            per_fingerprint.append(part.per_key)
            numbers.append(part.ids)
        identity.memory = None if in_files or part is None else part.memory
        del part
        identity.design = self._choose(identity.count, identity.sample())
        self._progress.start(PHASE_TABLES, identity.count * len(identity.design.tables))
        writer = TableWriter(self._generation / table_name(0), self._layout(identity, 0, identity.histogram))
        records = idmap.IdMapWriter(self._generation / idmap.IDS_FILE, identity.digest)
        try:
            pieces = zip(keys.pieces(), per_fingerprint.pieces(), strict=True)
            for piece, counts in itertools.chain.from_iterable(itertools.starmap(_few_ids, pieces)):
                records.add(counts, numbers.take(int(counts.sum())))
                records.close_blocks(writer.feed(piece))
                self._progress.tick(len(piece))
            records.close_blocks(writer.finish(), last=True)
            self._syncs.append((writer, self._disk.submit(writer.sync)))
            identity.ids_file = records.finish()
        except BaseException:
            writer.abort()
            records.abort()
            raise
        per_fingerprint.close()
        id_count = numbers.rows
        numbers.close()
        if in_files:
            keys.close()
            identity.table = self._generation / table_name(0)
        return identity, id_count

    def _layout(self, identity: _Identity, table: int, histogram: Words) -> TableLayout:
        return TableLayout(identity.design, table, self._options.block_bytes, identity.count, identity.digest, histogram)

    def _other_tables(self, identity: _Identity) -> None:
        tables = range(1, len(identity.design.tables))
        if not tables:
            return
        free = self._memory
        workspaces: list[Words | None] = [None]
        if identity.table is None:
            # The sorted keys stay, and the first thread uses the memory of the pairs.
            workspaces = [identity.memory]
            free -= identity.count * 2 * KEY_BYTES
        extra = min(self._threads, len(tables)) - 1
        while extra > 0 and (identity.table is not None or free >= identity.count * KEY_BYTES):
            workspaces.append(None)
            free -= identity.count * KEY_BYTES
            extra -= 1
        memory = self._memory // len(workspaces)
        waiting = iter(tables)
        lock = threading.Lock()

        def work(workspace: Words | None) -> None:
            while True:
                self._progress.tick(0)
                with lock:
                    table = next(waiting, None)
                if table is None:
                    return
                if identity.table is not None:
                    self._table_in_parts(identity, table, memory)
                    continue
                if workspace is None:
                    workspace = np.empty(2 * identity.count, np.uint64)
                self._table_in_memory(identity, table, workspace)

        identity.memory = None
        if len(workspaces) == 1:
            work(workspaces[0])
            return
        with Pool(len(workspaces)) as pool:
            try:
                jobs = [pool.submit(work, workspace) for workspace in workspaces]
                for job in pool.as_done(jobs):
                    job.result()
            except BaseException:
                self._progress.stop.set()
                raise

    def _table_in_memory(self, identity: _Identity, table: int, workspace: Words) -> None:
        spec = identity.design.tables[table]
        n = identity.count
        keys, scratch = workspace[:n], workspace[n : 2 * n]
        source = identity.column.whole()
        permutation = np.frombuffer(spec.permutation, np.uint8)
        _kernel.permute_sort(source, permutation, keys, scratch, spec.sort_bits, self._progress.stop)
        histogram = np.zeros(huffman.SYMBOLS, np.uint64)
        last = keys[:0]
        for piece in in_pieces([keys]):
            add_histogram(last, piece, histogram)
            last = piece[-1:]
            self._progress.tick(0)
        self._write_table(identity, table, histogram, in_pieces([keys]))

    def _table_in_parts(self, identity: _Identity, table: int, memory: int) -> None:
        histogram = np.zeros(huffman.SYMBOLS, np.uint64)
        column = Column(self._temporary / f"table-{table}.tmp")
        try:
            last = np.empty(0, np.uint64)
            spec = identity.design.tables[table]
            parts = permuted_parts(identity.keys, identity.count, spec, memory, self._progress.stop)
            for piece in in_pieces(parts):
                add_histogram(last, piece, histogram)
                last = piece[-1:].copy()
                column.append(piece)
                self._progress.tick(0)
            self._write_table(identity, table, histogram, column.pieces())
        finally:
            column.close()

    def _write_table(self, identity: _Identity, table: int, histogram: Words, pieces: Iterable[Words]) -> None:
        writer = TableWriter(self._generation / table_name(table), self._layout(identity, table, histogram))
        try:
            for piece in pieces:
                writer.feed(piece)
                self._progress.tick(len(piece))
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        self._syncs.append((writer, self._disk.submit(writer.sync)))

    def _auto(self, count: int) -> dict[str, Any] | None:
        """If `auto` chose the design, return what a later merge needs to choose again."""
        if self._options.design != "auto":
            return self._options.auto
        return {"planned_for": count, "disk_budget": self._options.disk_budget, "storage": self._options.storage}

    def _manifest(self, identity: _Identity, totals: Totals, first_string: int, strings_file: dict[str, int] | None) -> Manifest:
        if identity.table is None:
            identity.column.close()
        record = GenerationRecord(
            1, totals.fingerprints, totals.ids, totals.next_row, totals.id_kind, first_string,
            identity.digest, identity.ids_file, strings_file,
        )  # fmt: skip
        return Manifest(
            os.urandom(IDENTITY_BYTES), identity.design, self._options.block_bytes, self._options.fingerprinter,
            self._auto(identity.count), record,
        )  # fmt: skip


class _StringsFile:
    """The dictionary of strings, created with the first string."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: SealedWriter | None = None
        self._numbers: StringWriter | None = None

    def number(self, strings: Sequence[str]) -> Words:
        """Return the numbers of strings; new ones are added."""
        if self._numbers is None:
            self._file = SealedWriter(self._path)
            self._numbers = StringWriter(self._file)
        return self._numbers.number(strings)

    def finish(self) -> tuple[int, dict[str, int] | None]:
        """Make the dictionary durable; return the number after the last, and its record for the manifest."""
        if self._file is None or self._numbers is None:
            return 0, None
        size, digest = self._file.finish()
        return self._numbers.count, {"bytes": size, "digest": digest, "largest": 0}

    def abort(self) -> None:
        """Drop the dictionary."""
        if self._file is not None:
            self._file.abort()


class _Identity:
    """The sorted distinct fingerprints, from which the other tables are made."""

    design: Design

    def __init__(self, column: Column, rows: int) -> None:
        self.column = column
        self.memory: Words | None = None  # of the sort, free once the identity table is written
        self.table: Path | None = None  # the table file from which to read the keys instead of the column
        self.count = 0
        self.digest = 0
        self.ids_file: dict[str, int] = {}
        self.histogram = np.zeros(huffman.SYMBOLS, np.uint64)
        self._last = np.empty(0, np.uint64)
        self._sample = [self._last]
        self._step = max(rows // SAMPLE_SIZE, 1)

    def sample(self) -> Words:
        """Return some of the fingerprints, evenly spread over the sorted set."""
        return np.concatenate(self._sample)

    def note(self, part: Words) -> None:
        """Add the next keys to the count, digest and histogram."""
        for keys in in_pieces([part]):
            add_histogram(self._last, keys, self.histogram)
            self._last = keys[-1:].copy()
            self._sample.append(keys[-self.count % self._step :: self._step].copy())
            self.count += len(keys)
            self.digest = (self.digest + _kernel.digest(keys, np.frombuffer(IDENTITY, np.uint8))) % 2**64

    def keys(self) -> Iterator[Words]:
        """Start a pass over the fingerprints in ascending order."""
        if self.table is None:
            yield from self.column.pieces()
        else:
            for values, _ in TableReader(self.table).pieces():
                yield values


def _few_ids(keys: Words, per_key: Words) -> Iterator[tuple[Words, Words]]:
    """Cut keys and their numbers of ids so that no piece has more than COPY_ROWS ids, unless a single key has them."""
    ends = np.cumsum(per_key)
    start = taken = 0
    while start < len(keys):
        end = max(int(np.searchsorted(ends, taken + COPY_ROWS, side="right")), start + 1)
        yield keys[start:end], per_key[start:end]
        start, taken = end, int(ends[end - 1])


def _known_rows(source: Any) -> int | None:
    """Return the number of rows of a source, if it is known before reading."""
    if hasattr(source, "rows"):
        rows: int | None = source.rows
        return rows
    if isinstance(source, np.ndarray):
        return len(source) if source.ndim == 1 else None
    return len(source) if isinstance(source, (list, tuple, range)) and not _is_list_of_arrays(source) else None


def chunks(source: Any, ids: Any) -> Iterator[tuple[Words, Words | list[str] | None]]:
    """Yield (fingerprints, ids) pieces of any accepted input: an array, an iterable of arrays, or a reader of fpstore.io."""
    if isinstance(source, (np.ndarray, list, tuple, range)) and not _is_list_of_arrays(source):
        fingerprints = check_fingerprints(source)
        checked = None if ids is None else check_ids(ids, len(fingerprints))
        for start in range(0, len(fingerprints), SLICE_ROWS):
            piece = slice(start, start + SLICE_ROWS)
            yield fingerprints[piece], None if checked is None else checked[piece]
        return
    if not isinstance(source, Iterable) or isinstance(source, (str, bytes, dict)):
        raise InputError(
            f"fingerprints must be a uint64 array, an iterable of such arrays, or a reader, got {type(source).__name__}"
        )
    if ids is not None and (isinstance(ids, (np.ndarray, str)) or not isinstance(ids, Iterable)):
        raise InputError("with an iterable of fingerprint arrays, ids must be an iterable of as many id arrays")
    id_parts = None if ids is None else iter(ids)
    kind: type | None = None
    for number, part in enumerate(source):
        if hasattr(part, "fingerprints"):
            if ids is not None:
                raise InputError("ids come with the reader; do not pass them as well")
            fingerprints, part_ids = part.fingerprints, part.ids
        elif isinstance(part, (int, float, str, bytes, np.generic)):
            raise InputError(
                f"an iterable yields arrays of fingerprints, not single ones, got {show(part)}: make it a list or an array"
            )
        else:
            fingerprints, part_ids = check_fingerprints(part), None
            if id_parts is not None:
                part_ids = next(id_parts, None)
                if part_ids is None:
                    raise InputError(f"there are fewer id arrays than fingerprint arrays ({number} ids)")
                part_ids = check_ids(part_ids, len(fingerprints))
        if not len(fingerprints):
            continue  # an empty list of ids has no kind
        if kind is not None and kind is not type(part_ids):
            raise InputError("all parts of the input must have ids of the same kind")
        kind = type(part_ids)
        yield fingerprints, part_ids
    if id_parts is not None and next(id_parts, None) is not None:
        raise InputError("there are more id arrays than fingerprint arrays")


def _is_list_of_arrays(source: object) -> bool:
    return isinstance(source, (list, tuple)) and len(source) > 0 and all(map(_is_array, source))


def _is_array(part: object) -> bool:
    return hasattr(part, "__array__") and not isinstance(part, np.generic) and getattr(part, "ndim", 1) > 0
