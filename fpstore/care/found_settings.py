"""Design, settings and counts of a damaged store's current generation, from whatever is intact.

A merge may change the design, so the manifest of another generation does not vouch for it; then the headers of the tables tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from fpstore.base.width import WORD_BITS
from fpstore.care.evidence import DAMAGE, Evidence, Told, set_of
from fpstore.care.salvage import with_new_header
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN, Blocks, default_block_bytes
from fpstore.design.covering import covers
from fpstore.design.families import Design
from fpstore.design.named import named_like
from fpstore.design.tables import BLOCKS, COPIES, ROWS, TAG_BITS, TableSpec, identity
from fpstore.errors import CorruptStoreError
from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.layout import table_name
from fpstore.format.mapping import PLACES_FILES
from fpstore.format.packed_table import PackedTable
from fpstore.format.table import Table


class Settings:
    """The settings of the current generation, and its tables that can be read.

    Parameters
    ----------
    path : Path
        The store.
    evidence : Evidence
    told : Told

    Attributes
    ----------
    fingerprinter, auto : dict or None
        As in the manifest; None when it is lost.
    index_ids : bool
        As in the manifest; when it is lost, whether there is an index of integer ids.
    design : Design
    width : Width
        Of the fingerprints.
    count, digest : int
        Of the set of fingerprints of the generation.
    tables : list of Table
        Those that hold parts of that set.
    """

    def __init__(self, path: Path, evidence: Evidence, told: Told) -> None:
        self._path, self._told = path, told
        self._manifest, self._related = evidence.manifest, evidence.related
        self._folder, self._headless = evidence.generation.folder, evidence.generation.headless
        self.fingerprinter = None if self._related is None else self._related.fingerprinter
        self.auto = None if self._related is None else self._related.auto
        self.index_ids = self._find_index()
        for fault in evidence.generation.faults:
            told.note(fault)
        self.tables: list[Table] = []
        self._find_set(evidence)
        self.design = self._find_design()
        self.width = self.design.width
        self.blocks = self._find_blocks()
        self.tables = [table for table in self.tables if self._fits(table)]
        self.tables += self._without_headers()

    def _find_blocks(self) -> Blocks:
        recorded = Blocks(default_block_bytes(self.width.bits)) if self._related is None else self._related.blocks
        for table in self.tables:
            if isinstance(table, PackedTable):
                codec = HUFFMAN if any(table.header.code_bits) else ELIAS_FANO
                return recorded._replace(bytes=table.header.block_bytes, codec=codec)
        return recorded

    def _find_index(self) -> bool:
        """Whether integer ids are indexed. Strings always are, so an index beside a dictionary says nothing."""
        if self._related is not None:
            return self._related.index_ids
        if any((self._folder / name).exists() for name in DICTIONARY_FILES):
            return False
        found = [name for name in PLACES_FILES if (self._folder / name).exists()]
        if found:
            self._told.actions.append(f"inferred from {' and '.join(found)} that integer ids are indexed")
        return bool(found)

    def _find_set(self, evidence: Evidence) -> None:
        """Find out which set the tables hold."""
        found = evidence.generation
        if self._manifest is not None:
            record = self._manifest.generation
            held = record.fingerprints, record.set_digest, self._manifest.design.width.bits
        elif found.sets:
            held = found.sets.most_common(1)[0][0]
        else:
            raise CorruptStoreError(
                f"{self._path}: neither a table nor a record of what it held is left: nothing can be recovered", path=self._path
            )
        self.count, self.digest, _ = held
        for table in found.tables:
            if set_of(table) == held:
                self.tables.append(table)
            else:
                self._told.note(CorruptStoreError(f"{table.path}: a file of another store", path=table.path))

    # The design

    def _find_design(self) -> Design:
        recorded = None if self._related is None else self._related.design
        if recorded is None:
            return self._design_of_tables(None)
        if self._manifest is not None or not self.tables or all(_is_of(recorded, table) for table in self.tables):
            return recorded
        return self._design_of_tables(recorded.radius)

    def _design_of_tables(self, radius: int | None) -> Design:
        """Make out the design from the headers of the tables; without a radius, for the largest that they cover."""
        told = self._told
        known = {t.header.table: t.spec for t in self.tables}
        if not known:
            raise CorruptStoreError(f"{self._path}: neither its settings nor a table are left", path=self._path)
        table_count = self.tables[0].header.table_count
        made = named_like(known, table_count, radius)
        if made is None:
            specs = [known[i] for i in sorted(known)]
            width = specs[0].width.bits
            tried = range((width if radius is None else radius) + 1)
            radius = max(takewhile(lambda r: covers(specs, r), tried), default=0)
            if 0 not in known:
                specs.insert(0, _first_table(specs[0]))
            made = Design("custom", radius, tuple(specs))
        how = ", the largest it covers" if self._related is None else ""
        told.actions.append(f"inferred the design from the tables: {made.name}, radius {made.radius}{how}")
        if self._related is None:
            told.losses.append("the settings: what made the fingerprints is not known, nor the radius that was asked for")
        elif made.radius < self._related.design.radius:
            told.losses.append(f"some tables, which could not be identified: the new store has radius {made.radius}")
        return made

    def _fits(self, table: Table) -> bool:
        if _is_of(self.design, table):
            return True
        self._told.note(CorruptStoreError(f"{table.path}: a table of another design", path=table.path))
        return False

    def _without_headers(self) -> Iterator[Table]:
        """Open the tables whose own headers are damaged."""
        for number in range(len(self.design.tables)):
            file = self._folder / table_name(number)
            if file not in self._headless:
                continue
            try:
                yield with_new_header(file, self.design, number, self.count, self.digest, self.blocks.bytes)
            except DAMAGE as error:
                self._told.note(error)
            else:
                self._told.actions.append(f"read {file} with a new header in place of the damaged one")


def _first_table(other: TableSpec) -> TableSpec:
    """Return a first table for tables of which it is missing, of their kind; none is looked up in it for a radius."""
    bits = other.width.bits
    if other.kind == BLOCKS:
        return TableSpec(identity(bits), min(bits, WORD_BITS))
    if other.kind == COPIES:
        return TableSpec(identity(bits), other.prefix_bits, -1, COPIES)
    return TableSpec(identity(bits), TAG_BITS, 0, ROWS)


def _is_of(made: Design, table: Table) -> bool:
    """Whether a table has its place in a design."""
    number = table.header.table
    return table.header.table_count == len(made.tables) and made.tables[number] == table.spec
