"""What a damaged store is: its current generation, its design and settings, the tables and the log that belong to it.

An intact manifest says all of it. Without a manifest, the headers of tables and logs do, each under a checksum of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.base.width import WORD_BITS
from fpstore.care.reports import RepairReport
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN, Blocks, default_block_bytes
from fpstore.design.covering import Effort, covers
from fpstore.design.families import Design
from fpstore.design.tables import BLOCKS, COPIES, ROWS, TAG_BITS, TableSpec, identity, spread
from fpstore.disk.files import opened, read_at, read_if_possible
from fpstore.disk.sealed import opened_seal
from fpstore.errors import CorruptStoreError, FormatVersionError, FpstoreError, InputError, StoreNotFoundError
from fpstore.format import huffman
from fpstore.format.column_table import ColumnTable
from fpstore.format.layout import ColumnLayout, table_name
from fpstore.format.log import END, HEADER_BYTES, LOG_FILE, SUPERSEDED, LogHeader, parse_header, told_end
from fpstore.format.manifest import MANIFEST_FILE, Manifest, generation_folder, generation_numbers, read_manifest
from fpstore.format.mapping import IDS_FILE, PLACES_FILES
from fpstore.format.packed_table import PackedTable
from fpstore.format.strings import STRINGS_FILE
from fpstore.format.table import Table, open_of_any_kind

DAMAGE = (CorruptStoreError, StoreNotFoundError, FormatVersionError)  # other errors are not the store's
CODE_OFFSET = 384  # in the header of a table of blocks
MOST_DIRECTORY_BITS = 32


class DamagedStore:
    """A damaged store, as far as manifest and headers are intact; the report gets the faults.

    CorruptStoreError if nothing can be recovered; FormatVersionError if a newer fpstore has written it.
    """

    def __init__(self, path: Path, report: RepairReport) -> None:
        self._report = report
        numbers = generation_numbers(path)
        if not numbers:
            raise CorruptStoreError(f"{path}: there is no generation left: nothing can be recovered", path=path)
        manifest: Manifest | None = None
        try:
            manifest = read_manifest(path)
        except (CorruptStoreError, StoreNotFoundError) as error:
            report.note(error)
        logs = {number: _Log(path / generation_folder(number) / LOG_FILE) for number in numbers}
        number = manifest.generation.number if manifest is not None else 0
        if number not in numbers:
            number = min(numbers, key=lambda n: (logs[n].is_over, -n if logs[n].is_over else n))
        self.folder, self._log = path / generation_folder(number), logs[number]
        self._intact: list[Table] = []
        self._headless: list[int] = []
        self._open_tables()
        self.manifest: Manifest | None = None
        self.settings: Manifest | None = None
        if manifest is not None:
            self._compare(path, manifest, number)
        later = self._log.superseded or (self.settings is not None and self.settings.generation.number > number)
        if self.manifest is None and later:
            report.losses.append(
                "the current generation: the new store holds what an earlier one held, without what was inserted or deleted later"
            )
        self.count, self.digest, self._width = self._find_set(path)
        self.log_end = self._log.end
        self.log = self._find_log(number)
        self.design = self._find_design()
        self.blocks = self._find_blocks()
        self.tables = [*filter(self._fits, self._intact), *self._with_new_headers()]
        self.index_ids = self._has_index() if self.settings is None else self.settings.index_ids

    # The manifest

    def _compare(self, path: Path, manifest: Manifest, number: int) -> None:
        """Take the settings of this store from the manifest."""
        file, named = path / MANIFEST_FILE, manifest.generation.number
        if not self._is_ours(manifest, named == number):
            refuse(self._report, file, "the manifest of another store: nothing was taken from it")
            return
        self.settings = manifest
        if named == number:
            self.manifest = manifest
        else:
            refuse(self._report, file, f"names generation {named}, which is missing; generation {number} was found")

    def _is_ours(self, manifest: Manifest, current: bool) -> bool:
        """Whether a manifest is of this store: another one with the same fingerprints has the same tables, but not log or ids."""
        header = self._log.header
        if header is not None and header.identity == manifest.identity:
            return True
        record = manifest.generation
        strings = record.dictionary["strings"] if record.dictionary else record.ids_file
        digests = [
            (found, shape["digest"])
            for name, shape in ((IDS_FILE, record.ids_file), (STRINGS_FILE, strings))
            if (found := seal_digest(self.folder / name)) is not None
        ]
        if not current or digests:
            return current and all(found == expected for found, expected in digests)
        return not self._intact or any(
            set_of(table) == (record.fingerprints, record.set_digest, manifest.design.width.bits) for table in self._intact
        )

    # The log

    def _find_log(self, number: int) -> LogHeader | None:
        log, expected = self._log, None if self.manifest is None else LogHeader.of(self.manifest)
        if log.fault is not None:
            self._report.note(log.fault)
        if log.header is None:
            return expected
        try:
            if expected is not None:
                log.header.check_belongs(log.path, expected)
            elif (log.header.generation, log.header.totals.fingerprints, log.header.width) != (number, self.count, self._width):
                raise CorruptStoreError(f"{log.path}: the log of another store or generation", path=log.path)
        except CorruptStoreError as error:
            self._report.note(error)
            return None
        return log.header

    # Tables

    def _open_tables(self) -> None:
        for file in sorted(self.folder.glob("table-*.fpt")):
            try:
                table = open_of_any_kind(file)
            except DAMAGE as error:
                self._report.note(error)
                with suppress(ValueError):
                    self._headless.append(int(file.stem.removeprefix("table-")))
                continue
            if file.name == table_name(table.header.table):
                self._intact.append(table)
            else:
                refuse(self._report, file, f"it is table {table.header.table}")

    def _find_set(self, path: Path) -> tuple[int, int, int]:
        """Return the count, the digest and the width of the set that the tables hold, and keep the tables that hold it."""
        if self.manifest is not None:
            record = self.manifest.generation
            held = record.fingerprints, record.set_digest, self.manifest.design.width.bits
        elif self._intact:
            held = Counter(map(set_of, self._intact)).most_common(1)[0][0]
        else:
            raise CorruptStoreError(
                f"{path}: neither a table nor a record of what it held is left: nothing can be recovered", path=path
            )
        for table in self._intact:
            if set_of(table) != held:
                refuse(self._report, table.path, "a file of another store")
        self._intact = [table for table in self._intact if set_of(table) == held]
        return held

    def _find_design(self) -> Design:
        """Return the design of the settings, unless the tables belong to another design; then the design of the tables."""
        recorded = None if self.settings is None else self.settings.design
        if recorded is not None and (self.manifest is not None or all(_is_of(recorded, table) for table in self._intact)):
            return recorded
        specs = [table.spec for table in sorted(self._intact, key=lambda table: table.header.table)]
        radius, effort = -1, Effort()
        with suppress(InputError):  # it would take too long to find out
            while True:
                if radius >= specs[0].width.bits or not covers(specs, radius + 1, effort):
                    break
                radius += 1
        if self._intact[0].header.table_count > len(specs):
            self._report.losses.append("the tables that are missing: the new store has those that are left")
        if all(table.header.table for table in self._intact):
            specs.insert(0, _first_table(specs[0]))
        radius = max(radius, 0)
        ring = [place for place, spec in enumerate(specs) if spec.in_ring]
        for place, flips in zip(ring, spread(len(ring), radius) if ring else (), strict=True):  # of another number of tables
            specs[place] = replace(specs[place], flips=flips)
        made = Design("custom", radius, tuple(specs))
        self._report.actions.append(f"took the design from the tables: {len(specs)}, which cover radius {made.radius}")
        if recorded is None:
            self._report.losses.append("the settings: what made the fingerprints is not known, nor the radius that was asked for")
        return made

    def _find_blocks(self) -> Blocks:
        blocks = Blocks(default_block_bytes(self.design.width.bits)) if self.settings is None else self.settings.blocks
        for table in self._intact:
            if isinstance(table, PackedTable):
                codec = HUFFMAN if any(table.header.code_bits) else ELIAS_FANO
                return blocks._replace(bytes=table.header.block_bytes, codec=codec)
        return blocks

    def _fits(self, table: Table) -> bool:
        if self.manifest is None or _is_of(self.design, table):
            return True
        refuse(self._report, table.path, "a table of another design")
        return False

    def _with_new_headers(self) -> Iterator[Table]:
        """Open tables whose headers are damaged: all but the lengths of codes follows from the manifest.

        The checksums of blocks and pages tell whether it is right.
        """
        for number in self._headless if self.manifest is not None else ():
            with suppress(*DAMAGE, FpstoreError, ValueError, IndexError):
                file = self.folder / table_name(number)
                yield self._with_new_header(file, self.design.tables[number], number)
                self._report.actions.append(f"read {file} with a new header in place of the damaged one")

    def _with_new_header(self, file: Path, spec: TableSpec, number: int) -> Table:
        if spec.kind != BLOCKS:
            cutter = ColumnLayout.of(self.design, number, self.count, self.digest).cutter()
            return ColumnTable(file, None, cutter.header, cutter.file_bytes)
        with opened(file) as descriptor:
            size = os.fstat(descriptor).st_size
            code = np.frombuffer(read_at(descriptor, file, CODE_OFFSET, huffman.SYMBOLS), np.uint8)
        block_bytes = self.blocks.bytes
        for bits in range(MOST_DIRECTORY_BITS + 1):  # behind the blocks and their keys is a directory of 2^bits slots
            count, rest = divmod(size - _kernel.HEADER_BYTES - 8 * (2**bits + 1), block_bytes + 8 * spec.width.words)
            with suppress(FpstoreError, ValueError, OverflowError):
                header = b"" if rest or count < 0 else _kernel.make_header(
                    np.frombuffer(spec.permutation, np.uint8), code, self.digest, self.count, count, block_bytes, number,
                    len(self.design.tables), spec.prefix_bits, spec.flips,
                )  # fmt: skip
                return PackedTable(file, None, header)
        raise CorruptStoreError(f"{file}: neither the header nor the size of the table is right", path=file)

    def _has_index(self) -> bool:
        """Whether there is an index of integer ids. Strings always are indexed, so an index beside them says nothing."""
        found = [name for name in PLACES_FILES if (self.folder / name).exists()]
        if (self.folder / STRINGS_FILE).exists() or not found:
            return False
        self._report.actions.append(f"inferred from {' and '.join(found)} that integer ids are indexed")
        return True


class _Log:
    """The header of a log: its fields, why it cannot be read, where the log ends, whether another generation is current."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: LogHeader | None = None
        self.end: int | None = None
        self.fault: FpstoreError | None = None
        self.superseded = False
        try:
            with opened(path) as descriptor:
                data = read_if_possible(descriptor, path, 0, HEADER_BYTES)
            word = int.from_bytes(data[8 * END : 8 * END + 8], "little")
            try:
                self.end = told_end(word, path)
                self.superseded = bool(word & SUPERSEDED)
            except CorruptStoreError as error:
                self.fault = error.with_traceback(None)  # whose frames would keep all files open
            self.header = parse_header(data, path)
        except DAMAGE as error:
            self.fault = error.with_traceback(None)

    @property
    def is_over(self) -> bool:
        """Whether nothing says that its generation is the current one.

        A log that is not superseded has all changes: of two such, the later belongs to a merge that has not ended.
        """
        return self.header is None or self.superseded


def refuse(report: RepairReport, path: Path, what: str) -> None:
    """Add the fault of a file."""
    report.note(CorruptStoreError(f"{path}: {what}", path=path))


def set_of(table: Table) -> tuple[int, int, int]:
    """Return the identity of the set of a table: the count of its fingerprints, its digest and its width."""
    header = table.header
    return header.fingerprint_count, header.set_digest, header.width


def seal_digest(path: Path) -> int | None:
    """Return the digest of a sealed file whose own checksums are right, else None."""
    try:
        with opened(path) as descriptor:
            return opened_seal(path, descriptor).digest
    except DAMAGE:
        return None


def _is_of(design: Design, table: Table) -> bool:
    """Whether a table has its place in a design."""
    number = table.header.table
    return table.header.table_count == len(design.tables) and design.tables[number] == table.spec


def _first_table(other: TableSpec) -> TableSpec:
    """Return a first table for tables of which it is missing, of their kind."""
    bits = other.width.bits
    if other.kind == BLOCKS:
        return TableSpec(identity(bits), min(bits, WORD_BITS))
    if other.kind == COPIES:
        return TableSpec(identity(bits), other.prefix_bits, -1, COPIES)
    return TableSpec(identity(bits), TAG_BITS, 0, ROWS)
