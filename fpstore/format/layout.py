"""The place of a table in the design, and how its entries are laid out, known before its keys."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.design import tables
from fpstore.design.blocks import HUFFMAN, BlockPacking
from fpstore.design.families import Design
from fpstore.design.filters import FilterShape
from fpstore.design.tables import TAG_BITS, TableSpec, row_bucket_bits
from fpstore.errors import CorruptStoreError
from fpstore.format import huffman

KIND_COPIES, KIND_REFERENCES, KIND_ROWS = range(3)  # kinds of column tables, as they are stored
COLUMN_KINDS = {
    KIND_COPIES: tables.COPIES,
    KIND_REFERENCES: tables.REFERENCES,
    KIND_ROWS: tables.ROWS,
}
_KIND_NUMBERS = {kind: number for number, kind in COLUMN_KINDS.items()}
NOWHERE = np.uint64(2**64 - 1)  # the block of a fingerprint that is not stored


def table_name(table: int) -> str:
    return f"table-{table:03d}.fpt"


class TableLayout(NamedTuple):
    """The facts that the writer of a table needs before its first key."""

    design: Design
    table: int
    blocks: BlockPacking
    fingerprint_count: int
    set_digest: int
    histogram: Words
    filter: FilterShape | None = None  # of the filter that is written beside the table

    @property
    def spec(self) -> TableSpec:
        return self.design.tables[self.table]

    @property
    def code(self) -> npt.NDArray[np.uint8]:
        """The lengths of the Huffman code; all 0 for Elias-Fano, which has none."""
        return (
            huffman.code_lengths(self.histogram)
            if self.blocks.codec == HUFFMAN
            else np.zeros(huffman.SYMBOLS, np.uint8)
        )


class ColumnLayout(NamedTuple):
    """The fields of the header of a column table or a row file.

    ``threshold`` is -1 for a table that is not looked up.
    """

    kind: int
    width: int
    fingerprint_count: int
    set_digest: int
    permutation: bytes  # a byte for each bit
    bucket_bits: int = 16
    tag_bits: int = TAG_BITS
    threshold: int = -1
    table: int = 0
    table_count: int = 1

    @classmethod
    def from_design(
        cls, design: Design, table: int, fingerprint_count: int, set_digest: int
    ) -> ColumnLayout:
        """Return the layout of a column table, which follows from the design and the set."""
        spec = design.tables[table]
        is_rows = spec.kind == tables.ROWS
        return cls(
            _KIND_NUMBERS[spec.kind],
            spec.width.bits,
            fingerprint_count,
            set_digest,
            spec.permutation,
            bucket_bits=row_bucket_bits(fingerprint_count) if is_rows else spec.prefix_bits,
            tag_bits=0 if is_rows else spec.tag_bits,
            threshold=-1 if is_rows else spec.flips,
            table=table,
            table_count=len(design.tables),
        )

    def cutter(self) -> _kernel.ColumnCutter:
        """Return the encoder of the file; ValueError or TypeError if a field is out of range."""
        return _kernel.ColumnCutter(
            self.kind,
            self.fingerprint_count,
            self.set_digest,
            np.frombuffer(self.permutation, np.uint8),
            self.bucket_bits,
            self.tag_bits,
            self.threshold + 1,
            self.table,
            self.table_count,
        )


def check_facts(path: Path, header: object, **facts: object) -> None:
    """Refuse a table whose header differs from the store in a field."""
    for name, expected in facts.items():
        if expected != (got := getattr(header, name)):
            raise CorruptStoreError(
                f"{path}: {name.replace('_', ' ')} is {got!r}, the store expects {expected!r}: a "
                "file of another store or table?",
                path=path,
                expected=expected,
                got=got,
            )
