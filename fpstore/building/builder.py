"""Builds of a store from input: sort, group, write the identity table, then the other tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Progress, Words
from fpstore.base.arguments import check_choice, check_flag, check_progress
from fpstore.base.pools import Worker, read_ahead
from fpstore.base.resources import Resources, parse_memory, parse_threads
from fpstore.base.strings import StringColumn, string_columns
from fpstore.base.width import WORD_BITS, Width, check_width, empty_rows
from fpstore.building.columns import Column, SortedColumns, SortedRows
from fpstore.building.external_sort import Sorter, sort_buffer, sort_bytes
from fpstore.building.generation_writer import GenerationWriter, TrackedWork, finish_store
from fpstore.building.input import chunks, count_rows
from fpstore.building.strings import StringSpool
from fpstore.building.table_keys import TableKeys, max_threads, reference_keys
from fpstore.building.target import Target
from fpstore.design.blocks import AUTO, HUFFMAN, PREFER, STORAGE, BlockPacking, check_blocks
from fpstore.design.dealing import resolve_design
from fpstore.design.estimates import Requirements
from fpstore.design.families import Design, check_design, check_radius
from fpstore.design.planner import choose
from fpstore.design.sample import EvenRows
from fpstore.design.tables import REFERENCES
from fpstore.errors import InputError
from fpstore.format.layout import table_name
from fpstore.format.manifest import IDENTITY_BYTES, GenerationRecord, Manifest, generation_folder
from fpstore.format.record import Totals
from fpstore.format.table import open_table

if TYPE_CHECKING:
    from fpstore.hashing import Fingerprinter

# Bytes of the budget that the rows cannot have: the interpreter and its packages, and pieces that
# are read and written.
BASE_MEMORY = 80 << 20
USUAL_RADIUS = 3  # of 64 bits: Manku, Jain and Das Sarma, section 5.1
PHASE_READ = "reading"
PHASE_SORT = "sorting"
PHASE_TABLES = "tables"


@dataclass
class BuildOptions:
    """The options of a build."""

    radius: int = USUAL_RADIUS
    width: int = WORD_BITS
    design: str | Design = "auto"
    memory: int | str | None = None
    threads: int | None = None
    block_bytes: int | None = None
    codec: str = HUFFMAN
    filter: bool | str = AUTO
    fingerprinter: dict[str, Any] | None = None
    disk_budget: int | None = None
    storage: str = "hot"
    prefer: str = "balance"
    index_ids: bool = False
    progress: Progress | None = None
    # Facts that the input does not have, of a store that is written again.
    id_kind: str | None = None
    rows: int = 0
    reserved: int = 0  # bytes of the budget that are already used
    identity: bytes | None = None  # None: random, so that the bytes do not follow from the input
    # if `auto` chose the design: the facts by which a later merge chooses again
    auto: dict[str, Any] | None = None
    blocks: BlockPacking = field(init=False)  # from block_bytes, codec and filter

    @classmethod
    def for_fingerprinter(
        cls,
        fingerprinter: Fingerprinter[Any] | None,
        radius: int | None,
        width: int | None,
        **options: Any,
    ) -> BuildOptions:
        """Return options with the radius and the width of a fingerprinter as defaults.

        InputError if it makes fingerprints of another width.
        """
        if fingerprinter is None:
            return cls(
                USUAL_RADIUS if radius is None else radius,
                WORD_BITS if width is None else check_width(width).bits,
                **options,
            )
        bits = fingerprinter.width if width is None else check_width(width).bits
        if fingerprinter.width != bits:
            raise InputError(
                f"fingerprinter: it makes {fingerprinter.width} bits, the store has width={bits}",
                expected=bits,
                got=fingerprinter.width,
            )
        return cls(
            fingerprinter.usual_radius if radius is None else radius,
            bits,
            fingerprinter=fingerprinter.describe(),
            **options,
        )

    def check(self) -> BuildOptions:
        """Validate the options before any input is read."""
        check_width(self.width)
        self.radius = check_radius(self.radius, self.width)
        self.memory = parse_memory(self.memory)
        self.threads = parse_threads(self.threads)
        check_choice(self.storage, STORAGE, "storage")
        check_choice(self.prefer, PREFER, "prefer")
        self.blocks = check_blocks(
            self.block_bytes, self.codec, self.width, self.filter
        ).resolve_filter(self.prefer, self.storage)
        if not isinstance(self.design, Design):
            check_design(self.design, self.radius, self.width)
        self.index_ids = check_flag(self.index_ids, "index_ids")
        check_progress(self.progress)
        return self


def build_store(path: Path, source: Any, ids: Any, options: BuildOptions, overwrite: bool) -> None:
    """Write a complete store at ``path``, or nothing."""
    options = options.check()
    with Target(path, overwrite) as folder:
        build_into(folder, source, ids, options)


def build_into(folder: Path, source: Any, ids: Any, options: BuildOptions) -> None:
    """Write a store into an empty folder; the options have been checked."""
    _Build(folder, options).run(source, ids)


class _Build:
    def __init__(self, folder: Path, options: BuildOptions) -> None:
        self._folder = folder
        self._options = options
        assert isinstance(options.memory, int)
        assert isinstance(options.threads, int)
        memory = options.memory - options.reserved
        self._memory, self._threads = max(memory - BASE_MEMORY, memory // 2), options.threads
        self._work = TrackedWork(options.progress)
        self._width = Width(options.width)
        generation = folder / generation_folder(1)
        generation.mkdir()
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._writer = GenerationWriter(generation, options.blocks, self._work, self._threads)
        self._strings: StringSpool | None = None
        self._kind, self._next_row = "row", 0

    def run(self, source: Any, ids: Any) -> None:
        """Read, sort, encode, and write the manifest last."""
        with self._writer as writer:
            sorter = self._read(source, ids)
            parts = [partial(self._tables, sorter)]
            if self._strings is not None:
                # Most of it is compressing, which goes on in all threads when the tables are
                # written.
                parts.append(partial(writer.write_strings, self._strings, self._threads))
                parts.append(partial(writer.write_numbers, self._strings))
            if self._threads > 1:
                self._work.run_in_threads(min(len(parts), self._threads), parts)
            else:
                for part in parts:
                    part()
            if self._strings is not None:
                self._strings.close()
            self._temporary.rmdir()
            writer.finish()
            totals = Totals(self._identity.count, writer.ids, self._next_row, self._kind)
            finish_store(self._folder, self._manifest(self._identity, writer.record(1, totals)))

    def _tables(self, sorter: Sorter) -> None:
        writer = self._writer
        self._identity = identity = self._sort(sorter)
        identity.design = self._choose(identity.count, identity.sample())
        writer.begin(identity.design, identity.count, identity.summary.digest)
        self._work.start(PHASE_TABLES, identity.count * len(identity.design.tables))
        if identity.table_first:
            self._write_first_table(identity)
        self._write_tables(identity)
        if self._strings is not None or self._options.index_ids:
            writer.write_places(self._memory)

    def _sorter(self, rows: int | None) -> Sorter:
        return Sorter(
            self._memory, self._temporary, rows, self._width.words, self._threads, self._work.stop
        )

    def _read(self, source: Any, ids: Any) -> Sorter:
        """Return a sorter of all rows.

        A design that is impossible for their number is refused before anything is read.
        """
        rows = count_rows(source)
        if rows is not None and self._options.design != "auto":
            self._choose(rows)
        self._work.start(PHASE_READ, rows)
        if hasattr(source, "limit_memory"):  # a reader of files
            source.limit_memory(self._memory)
        pieces = chunks(source, ids, self._width)
        first = next(pieces, None)
        pieces = chain([] if first is None else [first], pieces)
        if self._options.id_kind == "string" or (
            first is not None and isinstance(first[1], (list, StringColumn))
        ):
            return self._read_strings(pieces, rows)
        sorter = self._sorter(rows)
        for fingerprints, chunk_ids in pieces:
            if chunk_ids is not None:
                self._kind, chunk_ids = "integer", np.asarray(chunk_ids)
            sorter.add(fingerprints, chunk_ids)
            self._work.tick(len(fingerprints))
        self._next_row = sorter.rows
        if getattr(source, "row_numbers", False):  # some rows may be left out
            self._kind, self._next_row = "row", source.next_row
        if self._options.id_kind:
            self._kind, self._next_row = self._options.id_kind, self._options.rows
        return sorter

    def _read_strings(self, pieces: Iterable[tuple[Words, Any]], rows: int | None) -> Sorter:
        """Return a sorter of all rows, numbered by their strings."""
        self._strings = strings = StringSpool(self._temporary, self._memory, rows, self._threads)
        fingerprints = Column(self._temporary, self._width.words)
        # a thread writes and hashes strings while the next ones are read
        with Worker(self._threads > 1) as background:
            for piece, ids in pieces:
                fingerprints.append(piece)
                for column in string_columns(ids):
                    background.submit(strings.add, column)
                self._work.tick(len(piece))
        self._kind, self._next_row = (
            "string",
            self._options.rows if self._options.id_kind else strings.rows,
        )
        strings.resolve(lambda rows: self._work.tick())
        sorter = self._sorter(strings.rows)
        for piece in fingerprints.pieces():
            sorter.add(piece, strings.numbers(sorter.rows, sorter.rows + len(piece)))
            self._work.tick()
        fingerprints.close()
        return sorter

    def _sort(self, sorter: Sorter) -> _Identity:
        self._work.start(PHASE_SORT, sorter.rows)
        identity = _Identity(self._temporary if sorter.spilled else None, self._width.words)
        for part in sorter.groups(self._work.tick):
            identity.add(part)
            identity.table_first |= sorter.spilled or part.per_key is not None
        return identity

    def _write_first_table(self, identity: _Identity) -> None:
        self._writer.write_identity(identity.summary.counts, identity.groups())
        identity.drop_ids(self._writer.folder / table_name(0))

    def _choose(self, count: int, sample: Words | None = None) -> Design:
        options = self._options
        if isinstance(options.design, str) and options.design == "auto":
            required = Requirements(
                Width(options.width),
                options.disk_budget,
                storage=options.storage,
                blocks=options.blocks,
                prefer=options.prefer,
            )
            return choose(count, options.radius, required, sample).design
        return resolve_design(options.design, options.radius, count, Width(options.width), sample)

    def _write_tables(self, identity: _Identity) -> None:
        """Write the tables but the first, in as many threads as the budget has memory for."""
        tables = range(1, len(identity.design.tables))
        most = min(self._threads, len(tables) + (not identity.table_first))
        if identity.table is not None:
            _kernel.trim()
            threads = min(most, max_threads(self._memory, self._width.words))
            each = Resources(self._memory, self._threads).for_each(max(threads, 1))
            parts = [partial(self._table_in_parts, identity, table, each) for table in tables]
        else:
            # The sorted keys stay. One thread has the memory that the sort had, each other one
            # needs its own.
            sort_memory = identity.count * sort_bytes(self._width.words)
            free = self._memory - 2 * sort_memory
            threads = min(most, 1 + max(free, 0) // max(sort_memory, 1))
            buffers: list[tuple[Words, Words]] = []  # free ones
            parts = [partial(self._table_in_memory, identity, table, buffers) for table in tables]
        if not identity.table_first:
            parts.insert(0, partial(self._write_first_table, identity))
        if threads <= 1:
            for part in parts:
                part()
        else:
            self._work.run_in_threads(threads, parts)
        identity.close()

    def _table_in_memory(
        self, identity: _Identity, table: int, buffers: list[tuple[Words, Words]]
    ) -> None:
        self._work.tick()
        spec, n = identity.design.tables[table], identity.count
        words = n * spec.key_words
        try:
            buffer = buffers.pop()
        except IndexError:  # all are in use
            buffer = sort_buffer(n * self._width.words, 1), sort_buffer(n * self._width.words, 1)
        keys, scratch = (
            array[:words].reshape(empty_rows(n, spec.key_words).shape) for array in buffer
        )
        if spec.kind == REFERENCES:
            first = 0
            for piece in reference_keys(identity.in_memory, n, spec):
                keys[first : first + len(piece)] = piece
                first += len(piece)
            _kernel.sort_keys(keys, scratch, None, self._work.stop)
        else:
            permutation = np.frombuffer(spec.permutation, np.uint8)
            _kernel.permute_sort(
                identity.whole(), permutation, keys, scratch, spec.sort_bits, self._work.stop
            )
        self._writer.write_table(table, lambda: [keys])
        buffers.append(buffer)

    def _table_in_parts(self, identity: _Identity, table: int, resources: Resources) -> None:
        self._work.tick()
        rows = identity.keys if self._threads == 1 else lambda: read_ahead(identity.keys())
        keys = TableKeys(
            rows,
            identity.count,
            identity.design.tables[table],
            self._temporary,
            resources,
            self._work.stop,
        )
        try:
            self._writer.write_table(table, keys)
        finally:
            keys.close()

    def _manifest(self, identity: _Identity, record: GenerationRecord) -> Manifest:
        options = self._options
        auto = options.auto
        if options.design == "auto":  # the facts by which a later merge chooses again
            auto = {
                "planned_for": identity.count,
                **{name: getattr(options, name) for name in ("disk_budget", "storage", "prefer")},
            }
        return Manifest(
            options.identity or os.urandom(IDENTITY_BYTES),
            identity.design,
            *options.blocks,
            options.fingerprinter,
            auto,
            options.index_ids,
            record,
        )


class _Identity(SortedColumns):
    """The sorted distinct fingerprints and their ids; with a folder, in files."""

    design: Design

    def __init__(self, folder: Path | None, words: int) -> None:
        super().__init__(folder, words)
        # whether the first table comes before others: they read it, or use its memory
        self.table_first = folder is not None
        # the table file from which to read the keys instead of the column
        self.table: Path | None = None
        self._sample = EvenRows(words)

    def add(self, part: SortedRows) -> None:
        self._sample.add(part.keys)
        super().add(part)

    def sample(self) -> Words:
        return self._sample.rows()

    def drop_ids(self, table: Path) -> None:
        """Drop the ids; fingerprints in files are now read from the identity table."""
        self._per_key.close()
        self._numbers.close()
        if self._in_files:
            self._keys.close()
            self.table = table

    def keys(self) -> Iterator[Words]:
        """Start a pass over the fingerprints in ascending order."""
        assert self.table is not None
        return (values for values, _ in open_table(self.table, self.design.tables[0]).pieces())

    def whole(self) -> Words:
        return self._keys.whole()

    def in_memory(self) -> Iterator[Words]:
        """Start a pass over the fingerprints, which are in memory, in ascending order."""
        return iter([self.whole()])

    def close(self) -> None:
        if self.table is None:
            self._keys.close()
