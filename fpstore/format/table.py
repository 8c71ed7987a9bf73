"""The two kinds of tables of a store: how one is opened, and how one is written."""

from __future__ import annotations

from pathlib import Path

from fpstore.design.tables import BLOCKS, TableSpec
from fpstore.disk.files import open_descriptor, read_at
from fpstore.disk.mapped import LAZY
from fpstore.format.column_table import ColumnTable, ColumnWriter
from fpstore.format.layout import ColumnLayout, TableLayout
from fpstore.format.packed_table import PackedTable, PackedWriter

Table = PackedTable | ColumnTable
TableWriter = PackedWriter | ColumnWriter
COLUMN_MAGIC = b"FPSTCOLS"


def open_table(path: Path, spec: TableSpec, pages: str = LAZY) -> Table:
    """Open a table of a store; for ``pages`` see :func:`fpstore.open`."""
    return PackedTable(path, pages) if spec.kind == BLOCKS else ColumnTable(path, pages)


def open_table_file(path: Path) -> Table:
    """Open a table to be read in parts; its file names its kind."""
    with open_descriptor(path) as descriptor:
        magic = read_at(descriptor, path, 0, len(COLUMN_MAGIC))
    return ColumnTable(path, None) if magic == COLUMN_MAGIC else PackedTable(path, None)


def table_writer(path: Path, layout: TableLayout) -> TableWriter:
    if layout.spec.kind == BLOCKS:
        return PackedWriter(path, layout)
    return ColumnWriter(
        path,
        ColumnLayout.from_design(
            layout.design, layout.table, layout.fingerprint_count, layout.set_digest
        ),
    )
