"""The tables of a store, of blocks or of columns: how one is written and how one is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Counts, Words
from fpstore.base.threads import cached_property
from fpstore.base.width import Width
from fpstore.design.families import Design
from fpstore.design.tables import BLOCKS, ROWS, TableSpec
from fpstore.disk.files import opened, read_at
from fpstore.disk.pages import LAZY
from fpstore.format import column_file
from fpstore.format.column_file import ColumnFile
from fpstore.format.column_table import ColumnLayout, ColumnReader, ColumnWriter
from fpstore.format.table import TableLayout, TableReader, TableWriter, check_place
from fpstore.format.table_file import TableFile

MAGIC = b"FPSTCOLS"
_KIND_NUMBERS = {kind: number for number, kind in column_file.KINDS.items()}


def column_layout(design: Design, table: int, fingerprint_count: int, set_digest: int) -> ColumnLayout:
    """Return the header of a column table: all its fields follow from the design and the set."""
    spec = design.tables[table]
    if spec.kind == ROWS:
        rows = ColumnLayout.rows(spec.width.bits, fingerprint_count, set_digest)
        return rows._replace(table=table, table_count=len(design.tables))
    return ColumnLayout(
        _KIND_NUMBERS[spec.kind], spec.width.bits, fingerprint_count, set_digest, spec.permutation, spec.prefix_bits,
        spec.tag_bits, spec.flips, table, len(design.tables),
    )  # fmt: skip


class ColumnTableWriter:
    """Writes one column table of a design; used as a :class:`fpstore.format.table.TableWriter`.

    Parameters
    ----------
    path : Path
        The file to create.
    layout : TableLayout
    """

    def __init__(self, path: Path, layout: TableLayout) -> None:
        self._fed = 0
        self._writer = ColumnWriter(path, column_layout(layout.design, layout.table, layout.fingerprint_count, layout.set_digest))

    def feed(self, keys: Words) -> Counts:
        """Append sorted keys; return the entry counts of the blocks of ids that were completed."""
        self._writer.feed(keys)
        before, self._fed = self._fed, self._fed + len(keys)
        size = _kernel.ROWS_IN_BLOCK
        # The last block is completed by finish().
        return np.full(max((self._fed - 1) // size, 0) - max((before - 1) // size, 0), size, np.uint32)

    def finish(self) -> Counts:
        """Complete the file; return the entry count of the last block of ids, if any."""
        self._writer.finish()
        size = _kernel.ROWS_IN_BLOCK
        return np.array([(self._fed - 1) % size + 1] if self._fed else [], np.uint32)

    def sync(self) -> None:
        """Make the file durable and close it."""
        self._writer.sync()

    def abort(self) -> None:
        """Close the file, finished or not."""
        self._writer.abort()


class ColumnTableReader:
    """An open column table; used as a :class:`fpstore.format.table.TableReader`.

    Parameters
    ----------
    path : Path
    pages : str
        See :func:`fpstore.open`.

    Attributes
    ----------
    columns : _kernel.ColumnTable
    kernel : _kernel.ColumnIdentity
        Its entries by blocks of ids.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """

    def __init__(self, path: Path, pages: str = LAZY) -> None:
        self.path = path
        self._reader = ColumnReader(path, pages)
        self.columns = self._reader.kernel
        self.kernel = _kernel.ColumnIdentity(self.columns)

    @property
    def is_reference(self) -> bool:
        """Whether its entries lead to the rows of the first table."""
        return self.columns.kind == column_file.REFERENCES

    @property
    def file(self) -> ColumnFile:
        """The table, read in parts."""
        return self._reader.file

    @cached_property
    def in_order(self) -> _kernel.ColumnIdentity:
        """The table for a scan, through a separate mapping for which the system reads ahead."""
        return _kernel.ColumnIdentity(self._reader.in_order())

    @property
    def index_bytes(self) -> int:
        """The bytes of the file by which entries are found: the directory."""
        return self.columns.tags_offset - self.columns.directory_offset

    def sample_keys(self, step: int) -> Words:
        """Return the last entry of every ``step``-th block of ids, from the first on."""
        return self.file.sample_keys(step)

    def pieces(self, start: int = 0) -> Iterator[tuple[Words, Counts]]:
        """Yield (keys, entry counts of their blocks of ids) from block ``start`` on, in order, in bounded pieces."""
        return self.file.pieces(start)

    def check_place(self, design: Design, table: int, fingerprint_count: int, set_digest: int) -> None:
        """Refuse an intact file that belongs to another place in the design or another set."""
        columns, layout = self.columns, column_layout(design, table, fingerprint_count, set_digest)
        told = {
            "kind": (layout.kind, columns.kind),
            "bucket bits": (layout.bucket_bits, columns.bucket_bits),
            "tag bits": (layout.tag_bits, columns.tag_bits),
            "threshold": (layout.threshold, columns.threshold),
        }
        check_place(self.path, columns, told, (design, table, fingerprint_count, set_digest))

    def map_cached(self) -> None:
        """See :func:`fpstore.disk.pages.map_cached`."""
        self._reader.map_cached()

    def skewed(self, bound: float) -> bool:
        """Whether look-ups meet many more other entries than they would meet if the bits were random."""
        counts = np.diff(self._reader.directory.astype(np.float64))
        n = float(counts.sum())
        return n > 0 and float(counts @ (counts - 1)) * len(counts) > bound * n * n

    def verify(self, tick: Callable[[int], None] = lambda rows: None) -> int:
        """Read and check everything but where references lead; see :meth:`ColumnFile.verify`."""
        return self.file.verify(tick)


StoredTable = TableReader | ColumnTableReader
StoredFile = TableFile | ColumnFile


def open_table(path: Path, spec: TableSpec, pages: str = LAZY) -> StoredTable:
    """Open a table of a store; for ``pages`` see :func:`fpstore.open`.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """
    return TableReader(path, pages) if spec.kind == BLOCKS else ColumnTableReader(path, pages)


def open_file_of_any_kind(path: Path) -> StoredFile:
    """Open a table of which only the file tells the kind.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """
    with opened(path) as descriptor:
        magic = read_at(descriptor, path, 0, len(MAGIC))
    return ColumnFile(path) if magic == MAGIC else TableFile(path)


def table_writer(path: Path, layout: TableLayout) -> TableWriter | ColumnTableWriter:
    """Return a writer of a table of a store."""
    return TableWriter(path, layout) if layout.spec.kind == BLOCKS else ColumnTableWriter(path, layout)


class RingProber:
    """The column tables of a design with the thresholds of a radius; used as a ``_kernel.Prober``.

    Parameters
    ----------
    design : Design
    tables : sequence of ColumnTableReader
    radius : int
    skewed : bool
        Choose the thresholds of each query by how many entries it would meet (GPH, Qin et al., ICDE 2018).
    """

    def __init__(self, design: Design, tables: list[ColumnTableReader], radius: int, skewed: bool) -> None:
        ring = [tables[place].columns for place, _ in design.ring]
        rows = tables[0].columns if design.tables[0].kind == ROWS else None
        self._kernel = _kernel.ColumnProber(ring, rows)
        self._thresholds = None if skewed else design.thresholds(radius)

    def probe(
        self, queries: Words, radius: int, most: int | None = None, stop: _kernel.Stop | None = None
    ) -> _kernel.Matches | None:
        """Return (lims, fingerprints, distances), or None if there are more than ``most`` matches."""
        found = self._kernel.probe(queries, radius, self._thresholds, most, stop)
        return None if found is None else found[:3]

    def count(self, queries: Words, radius: int) -> tuple[int, int, int]:
        """Return the number of look-ups of a probe, of entries whose tags it compared, and of distances that it computed."""
        found = self._kernel.probe(queries, radius, self._thresholds)
        assert found is not None
        return found[3]

    def probe_one(
        self, query: int, radius: int, identity: _kernel.Table | _kernel.ColumnIdentity
    ) -> list[tuple[int, int, int, int]]:
        """Return (fingerprint, distance, block, rank) of each match of one query."""
        assert isinstance(identity, _kernel.ColumnIdentity)
        return self._kernel.probe_one(query, radius, self._thresholds, identity)


class ScanProber:
    """Every entry of column tables, for radii above that of their design; used as a ``_kernel.Prober``.

    Parameters
    ----------
    table : ColumnTableReader
        The first of the design.
    """

    def __init__(self, table: ColumnTableReader) -> None:
        self._table = table

    def probe(
        self, queries: Words, radius: int, most: int | None = None, stop: _kernel.Stop | None = None
    ) -> _kernel.Matches | None:
        """Return (lims, fingerprints, distances), or None if there are more than ``most`` matches."""
        return self._table.in_order.probe(queries, radius, most, stop)

    def probe_one(
        self, query: int, radius: int, identity: _kernel.Table | _kernel.ColumnIdentity
    ) -> list[tuple[int, int, int, int]]:
        """Return (fingerprint, distance, block, rank) of each match of one query."""
        width = Width(identity.width)
        found = self.probe(np.array([query], np.uint64) if width.words == 1 else width.rows([query]), radius)
        assert found is not None
        _, rows, distances = found
        numbers = rows.tolist() if width.words == 1 else width.numbers(rows)
        blocks, ranks = identity.locate(rows)
        return list(zip(numbers, distances.tolist(), blocks.tolist(), ranks.tolist(), strict=True))
