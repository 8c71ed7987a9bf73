"""Design, settings and counts of a damaged store's current generation, from whatever is intact.

A merge may change the design, so the record of the first generation, in the store file, vouches for the first generation only.
Of a later one, its journal has the record; failing that, the headers of the tables tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from fpstore.care.salvage import find_records, with_new_header
from fpstore.design.block_bytes import DEFAULT_BLOCK_BYTES
from fpstore.design.families import IDENTITY, MAX_RADIUS, Design, TableSpec, covers, design, named_like
from fpstore.errors import CorruptStoreError, FormatVersionError, FpstoreError, InputError, StoreNotFoundError
from fpstore.format import layout
from fpstore.format.table_file import TableFile

DAMAGE = (CorruptStoreError, StoreNotFoundError, FormatVersionError)  # other errors are not the store's


class Told(Protocol):
    """Receives what a repair reports."""

    actions: list[str]
    losses: list[str]

    def note(self, error: FpstoreError) -> None:
        """Add a fault."""


class Settings:
    """The settings of the current generation, and its tables that can be read.

    Parameters
    ----------
    path : Path
        The store.
    number : int
        The current generation.
    states : list of dict
        The state records of its journal.
    told : Told

    Attributes
    ----------
    store : dict
        Settings that no merge changes, and ``auto``; empty when they are lost.
    generation, state : dict
        The records of this very generation; empty when they are lost.
    own : bool
        Whether ``store`` is of this very generation.
    design : Design
    count, digest : int
        Of its set of fingerprints.
    tables : list of TableFile
        Those that hold parts of that set.
    """

    def __init__(self, path: Path, number: int, states: list[dict[str, Any]], told: Told) -> None:
        self._path, self._number, self._told = path, number, told
        self._folder = path / layout.generation_name(number)
        self.tables: list[TableFile] = []
        self._find_records([state for state in states if state["generation"]["number"] == number])
        self._find_set()
        self.block_bytes = int(
            next((t.kernel.block_bytes for t in self.tables), None) or self.store.get("block_bytes") or DEFAULT_BLOCK_BYTES
        )
        self.design = self._find_design()
        self.tables = [table for table in self.tables if self._fits(table)]
        self.tables += self._without_headers()

    def shape(self) -> Any:
        """Return the design as the builder takes it: by its name if that gives the same tables, else table by table."""
        try:
            if design(self.design.name, self.design.radius).tables == self.design.tables:
                return self.design.name
        except InputError:
            pass
        return list(self.design.tables)

    def _find_records(self, states: list[dict[str, Any]]) -> None:
        records = find_records(self._path / layout.STORE_FILE, (layout.STORE_KEY, layout.GENERATION_KEY))
        self.state: dict[str, Any] = states[0] if states else {}
        generations = [state["generation"] for state in states] + records[layout.GENERATION_KEY]
        self.generation: dict[str, Any] = next((g for g in generations if g["number"] == self._number), {})
        first = next((g["number"] for g in records[layout.GENERATION_KEY]), 1)
        stores = [state["store"] for state in states] + records[layout.STORE_KEY]
        self.store: dict[str, Any] = dict(stores[0]) if stores else {}
        # What the record says of the design holds for the generation whose record it is.
        self.own = bool(states) or first == self._number
        if self.store:
            layout.check_store_record(self.store, self._path)
            if not records[layout.STORE_KEY]:
                self._told.actions.append("took design and settings from the journal, as the store file has lost them")

    def _find_set(self) -> None:
        """Open the tables, and find out which set they hold."""
        tables, self._headless = [], []
        for file in sorted(self._folder.glob("table-*.fpt")):
            try:
                table = TableFile(file)
                if file.name != layout.table_name(table.kernel.table):
                    self._told.note(CorruptStoreError(f"{file}: it is table {table.kernel.table}", path=file))
                    continue
                tables.append(table)
            except DAMAGE as error:
                self._told.note(error)
                self._headless.append(file)
        sets = Counter((t.kernel.fingerprint_count, t.kernel.set_digest) for t in tables)
        if self.generation:
            self.count, self.digest = self.generation["fingerprints"], self.generation["set_digest"]
        elif sets:
            self.count, self.digest = sets.most_common(1)[0][0]
        else:
            raise CorruptStoreError(
                f"{self._path}: neither a table nor a record of what it held is left: nothing can be recovered", path=self._path
            )
        for table in tables:
            if (table.kernel.fingerprint_count, table.kernel.set_digest) == (self.count, self.digest):
                self.tables.append(table)
            else:
                self._told.note(CorruptStoreError(f"{table.path}: a file of another store", path=table.path))

    # The design

    def _find_design(self) -> Design:
        recorded = Design.from_json(self.store["design"]) if self.store else None
        if recorded is not None and (self.own or not self.tables or all(_is_of(recorded, t) for t in self.tables)):
            return recorded
        return self._design_of_tables(None if recorded is None else recorded.radius)

    def _design_of_tables(self, radius: int | None) -> Design:
        """Make out the design from the headers of the tables; without a radius, for the largest that they cover."""
        told = self._told
        known = {t.kernel.table: _spec(t) for t in self.tables}
        if not known:
            raise CorruptStoreError(f"{self._path}: neither its settings nor a table are left", path=self._path)
        table_count = self.tables[0].kernel.table_count
        made = named_like(known, table_count, radius)
        if made is None:
            specs = [known[i] for i in sorted(known)]
            radius = max((r for r in range((MAX_RADIUS if radius is None else radius) + 1) if covers(specs, r)), default=0)
            if 0 not in known:
                specs.insert(0, TableSpec(IDENTITY, 64))
            made = Design("custom", radius, tuple(specs))
        how = ", the largest it covers" if not self.store else ""
        told.actions.append(f"made out the design from the tables: {made.name}, radius {made.radius}{how}")
        if not self.store:
            told.losses.append("the settings: what made the fingerprints is not known, nor the radius that was asked for")
        elif made.radius < Design.from_json(self.store["design"]).radius:
            told.losses.append(f"tables, and what they were is not known: the new store has radius {made.radius}")
        return made

    def _fits(self, table: TableFile) -> bool:
        if _is_of(self.design, table):
            return True
        self._told.note(CorruptStoreError(f"{table.path}: a table of another design", path=table.path))
        return False

    def _without_headers(self) -> Iterator[TableFile]:
        """Open the tables whose own headers are damaged."""
        for number in range(len(self.design.tables)):
            file = self._folder / layout.table_name(number)
            if file not in self._headless:
                continue
            try:
                yield with_new_header(file, self.design, number, self.count, self.digest, self.block_bytes)
            except DAMAGE as error:
                self._told.note(error)
            else:
                self._told.actions.append(f"read {file} with a new header in place of the damaged one")


def _spec(table: TableFile) -> TableSpec:
    return TableSpec(table.kernel.permutation, table.kernel.prefix_bits, table.kernel.flips)


def _is_of(made: Design, table: TableFile) -> bool:
    """Whether a table has its place in a design."""
    number = table.kernel.table
    return table.kernel.table_count == len(made.tables) and made.tables[number] == _spec(table)
