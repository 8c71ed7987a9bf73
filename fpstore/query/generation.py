"""One generation, opened by one process: the tables, the id map and the dictionary."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.diagnostics import notify_unused_filter
from fpstore.base.threads import cached_property
from fpstore.base.width import number_to_row, rows_to_numbers
from fpstore.design.sample import SAMPLE_SIZE, EvenRows
from fpstore.design.tables import ROWS
from fpstore.disk.files import UNREADABLE
from fpstore.disk.mapped import LAZY, PAGE_BYTES
from fpstore.errors import (
    ClosedStoreError,
    CorruptStoreError,
    FormatVersionError,
    StorageError,
    StoreNotFoundError,
)
from fpstore.format.column_table import ColumnTable
from fpstore.format.dictionary import Dictionary
from fpstore.format.filter import FilterReader, filter_name
from fpstore.format.layout import table_name
from fpstore.format.manifest import Manifest, generation_folder
from fpstore.format.mapping import IDS_FILE, IdIndex, IdMapping
from fpstore.format.packed_table import PackedTable
from fpstore.format.table import Table, open_table
from fpstore.query.batches import MatchColumns, queries_at_once
from fpstore.query.matches import Match, MatchList

# thresholds are chosen per query once look-ups meet this many times the entries of evenly filled
# buckets
SKEWED = 1.25
Identity = _kernel.AnyTable
MANY_QUERIES = 1 << 10  # in a batch; for fewer it is not worth asking what is in the page cache
# of a file in the page cache, which the system maps together at one page fault
FAULT_BYTES = max(1 << 16, PAGE_BYTES)
NO_FLIPS = np.zeros(1, np.uint64)


class Generation:
    """The open files of one generation, which never change, and may be removed meanwhile."""

    def __init__(self, path: Path, manifest: Manifest, pages: str = LAZY) -> None:
        self.path, self.manifest = path, manifest
        self.record, self.design = manifest.generation, manifest.design
        self.folder = path / generation_folder(self.record.number)
        count, digest = self.record.fingerprints, self.record.set_digest
        self._tables = [
            open_table(self.folder / table_name(i), spec, pages)
            for i, spec in enumerate(self.design.tables)
        ]
        for i, table in enumerate(self.tables):
            table.check_place(self.design, i, count, digest)
            if isinstance(table, PackedTable):
                table.check_codec(manifest.codec)
        self.ids = IdMapping(self._tables[0], self.folder / IDS_FILE, self.record.ids_file)
        self.dictionary: Dictionary | None = None
        self.places: IdIndex | None = None
        self.filters: dict[int, FilterReader] = {}  # by table
        try:
            if self.record.dictionary is not None:
                self.dictionary = Dictionary(self.folder, self.record.dictionary)
            if self.record.places is not None:
                self.places = IdIndex(self.folder, self.record.places)
            self._open_filters(pages)
        except BaseException:
            self._close_files()
            raise
        # the most queries of a kernel call whose matches are not bounded
        self.queries_at_once = queries_at_once(self.design, self.count)
        # by radius, made on first use
        self._scans: dict[int, bool] = {}
        self._probers: dict[int, _kernel.Prober | _kernel.ColumnProber | None] = {}
        self._prefix_probers: dict[int, _kernel.Prober] = {}  # by the number of bits
        # whether the cached pages are mapped, or need not be: see _map_cached
        self.has_mapped = pages != LAZY
        self._single_probers: dict[int, _kernel.SingleProber] = {}
        self._identity: Identity | None = self._tables[0].kernel

    def _open_filters(self, pages: str) -> None:
        """Open the filters; probes without a damaged or missing one are right, and slower."""
        for table in self.record.filters:
            path = self.folder / filter_name(table)
            try:
                self.filters[table] = reader = FilterReader(path, pages)
                reader.check_place(self.design, table, self.count, self.record.set_digest)
            except (
                CorruptStoreError,
                FormatVersionError,
                StoreNotFoundError,
                StorageError,
            ) as error:
                if isinstance(error, StorageError) and error.errno not in UNREADABLE:
                    raise
                if isinstance(error, StoreNotFoundError) and not self.folder.exists():
                    raise  # a merge has removed the generation
                self.filters.pop(table, None)
                notify_unused_filter(str(path), str(error))

    @property
    def sound_filters(self) -> dict[int, FilterReader]:
        """The filters, by table.

        A filter in which a probe has met a damaged page is left out: all look-ups pass it.
        """
        return {
            table: reader for table, reader in self.filters.items() if not reader.kernel.damaged
        }

    @property
    def filter_bits(self) -> dict[int, int]:
        """The leading bits that the filters know, by table."""
        return {table: reader.kernel.shape[0] for table, reader in self.sound_filters.items()}

    @property
    def tables(self) -> list[Table]:
        """The tables in design order; ClosedStoreError once they are closed."""
        tables = self._tables
        if not tables:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        return tables

    @property
    def count(self) -> int:
        return self.record.fingerprints

    @property
    def identity(self) -> Identity:
        """The table in order of the fingerprints themselves; ClosedStoreError once it is closed."""
        identity = self._identity
        return self.tables[0].kernel if identity is None else identity

    def scans(self, radius: int) -> bool:
        """Whether a probe of this radius compares every fingerprint."""
        scans = self._scans.get(radius)
        if scans is None:
            scans = self._scans[radius] = self.design.scans(self.count, radius)
        return scans

    def prober(self, radius: int) -> _kernel.Prober | _kernel.ColumnProber | None:
        """Return the prober of a radius; None if every entry of column tables is compared."""
        probers = self._probers  # another thread may close the store
        if radius not in probers:
            probers[radius] = (
                self._ring_prober(radius) if self.design.ring else self._block_prober(radius)
            )
        return probers[radius]

    def probe(
        self,
        queries: Words,
        radius: int,
        most: int | None = None,
        threads: int = 1,
        stop: _kernel.Stop | None = None,
    ) -> MatchColumns | None:
        """Return the columns of the matches in the tables, or None if there are more than ``most``.

        Of tables of blocks, several threads share the work; see
        :func:`fpstore.query.batches.run_batch`.
        """
        prober = self.prober(radius)
        if not self.has_mapped and len(queries) >= MANY_QUERIES:
            self._map_cached(len(queries), radius)
        if prober is None:
            table = self.tables[0].for_scans
            return table.scan(queries, radius, 0, table.block_count, most, stop)
        if isinstance(prober, _kernel.ColumnProber):
            columns = prober.probe(queries, radius, most, stop)
            return None if columns is None else columns[:3]
        by_blocks = prober.probe(queries, radius, most, threads=threads, stop=stop)
        return None if by_blocks is None else by_blocks[:3]

    def probe_prefixes(
        self, queries: Words, bits: int, most: int | None, stop: _kernel.Stop | None
    ) -> MatchColumns | None:
        """Return the fingerprints of the tables that have the leading bits of each query.

        None if they are more than ``most``.
        """
        columns = self.prefix_prober(bits).probe(queries, self.design.width.bits, most, stop=stop)
        return None if columns is None else columns[:3]

    def prefix_prober(self, bits: int) -> _kernel.Prober:
        """Return the prober that finds fingerprints with the leading bits of a query."""
        prober = self._prefix_probers.get(bits)
        if prober is None:
            prober = _kernel.Prober()
            prober.add(self._block_tables[0].kernel, bits, 0, NO_FLIPS)
            self._prefix_probers[bits] = prober
        return prober

    def probe_one(self, query: int, radius: int) -> MatchList:
        """Return the matches of one query in the tables, with their id numbers."""
        single = self.single_prober(radius)
        matches: MatchList | None = None if single is None else single.probe(query)
        if matches is not None:
            return matches
        # Every entry is compared, or a file is damaged: a batch names the damage.
        columns = self.probe(number_to_row(query, self.design.width.words), radius)
        assert columns is not None
        _, rows, distances = columns
        blocks, ranks = self.identity.locate(rows)
        places = zip(
            rows_to_numbers(rows), distances.tolist(), blocks.tolist(), ranks.tolist(), strict=True
        )
        return MatchList(
            Match(fingerprint, distance, self.ids.get_at(block, rank))
            for fingerprint, distance, block, rank in places
        )

    def _map_cached(self, queries: int, radius: int) -> None:
        """Map the cached pages of the tables, once a batch comes to most of them anyway."""
        if self.scans(radius):
            return
        lookups = min(
            (x.variant_count for x in self.design.lookups(self.count, radius, self.filter_bits)),
            default=0,
        )
        largest = max(table.kernel.file_bytes for table in self.tables)
        if queries * lookups * FAULT_BYTES >= largest:
            self.has_mapped = True
            for table in (*self.tables, *self.filters.values()):
                table.map_cached_pages()

    def single_prober(self, radius: int) -> _kernel.SingleProber | None:
        """Return the prober of single queries with ids; None if :meth:`prober` has none."""
        prober = self.prober(radius)
        if radius not in self._single_probers and prober is not None:
            self._single_probers[radius] = _kernel.SingleProber(
                prober, self.identity, self.ids.file, radius, Match, MatchList
            )
        return self._single_probers.get(radius)

    def _block_prober(self, radius: int) -> _kernel.Prober:
        prober = _kernel.Prober()
        tables = self._block_tables
        if self.scans(radius):
            prober.add(tables[0].for_scans, 0, 0, NO_FLIPS)
            return prober
        filters = self.filters  # another thread may close the store
        for lookup in self.design.lookups(self.count, radius, self.filter_bits):
            reader = filters.get(lookup.table) if lookup.filtered else None
            prober.add(
                tables[lookup.table].kernel,
                lookup.prefix_bits,
                lookup.flips,
                lookup.masks,
                None if reader is None else reader.kernel,
            )
        return prober

    @property
    def _block_tables(self) -> list[PackedTable]:
        return [table for table in self.tables if isinstance(table, PackedTable)]

    def _ring_prober(self, radius: int) -> _kernel.ColumnProber | None:
        if self.scans(radius):
            return None
        ring = tuple(self._columns[place].kernel for place, _ in self.design.ring)
        rows = self._columns[0].kernel if self.design.tables[0].kind == ROWS else None
        # Thresholds of each query follow from how many entries it would meet (GPH, Qin et al., ICDE
        # 2018).
        return _kernel.ColumnProber(
            ring, rows, None if self._is_skewed else self.design.thresholds(radius)
        )

    @property
    def _columns(self) -> list[ColumnTable]:
        return [table for table in self.tables if isinstance(table, ColumnTable)]

    @cached_property
    def _is_skewed(self) -> bool:
        """Whether thresholds are chosen for each query; this reads the directories."""
        tables = self._columns
        return any(tables[place].is_skewed(SKEWED) for place, _ in self.design.ring)

    def sample(self, count: int) -> Words:
        """Return at most one fingerprint of a block, about ``count``, evenly spread."""
        table = self.tables[0]
        return table.sample_keys(max(table.kernel.block_count // count, 1))

    def full_sample(self) -> Words:
        """Return at least SAMPLE_SIZE fingerprints, or all of a smaller set.

        A small table is read as a whole.
        """
        table = self.tables[0]
        if table.kernel.block_count >= SAMPLE_SIZE:
            return self.sample(SAMPLE_SIZE)
        rows = EvenRows(self.design.width.words)
        for keys, _ in table.pieces():
            rows.add(keys)
        return rows.rows()

    def close(self) -> None:
        self._probers, self._single_probers, self._prefix_probers = {}, {}, {}
        self._tables, self.filters = [], {}
        self._identity = None
        self._close_files()

    def _close_files(self) -> None:
        self.ids.close()
        if self.dictionary is not None:
            self.dictionary.close()
        if self.places is not None:
            self.places.close()
