"""What a damaged store is.

Its current generation, its design and settings, the tables and the log that belong to it.

An intact manifest says all of it. Without a manifest, the headers of tables and logs do, each under
a checksum of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.width import WORD_BITS
from fpstore.care.reports import RepairReport
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN, Blocks, default_block_bytes
from fpstore.design.covering import Effort, covers
from fpstore.design.families import Design
from fpstore.design.tables import BLOCKS, COPIES, ROWS, TAG_BITS, TableSpec, identity, spread
from fpstore.disk.files import disk_bytes, opened, read_at, read_if_possible
from fpstore.disk.sealed import opened_seal
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    FpstoreError,
    InputError,
    StoreNotFoundError,
)
from fpstore.format import huffman
from fpstore.format.column_table import ColumnTable
from fpstore.format.layout import ColumnLayout, table_name
from fpstore.format.log import (
    END,
    HEADER_BYTES,
    LOG_FILE,
    SUPERSEDED,
    LogHeader,
    parse_header,
    published_end,
)
from fpstore.format.manifest import (
    MANIFEST_FILE,
    Manifest,
    generation_folder,
    generation_numbers,
    read_manifest,
)
from fpstore.format.mapping import IDS_FILE, PLACES_FILES
from fpstore.format.packed_table import PackedTable
from fpstore.format.strings import STRINGS_FILE
from fpstore.format.table import Table, open_of_any_kind

# other errors are not the store's
DAMAGE = (CorruptStoreError, StoreNotFoundError, FormatVersionError)
CODE_OFFSET = 384  # in the header of a table of blocks
MOST_DIRECTORY_BITS = 32
# a sealed file is at most this many times as large as it should be, or as its blocks on disk
MOST_SPARSE = 64


class DamagedStore:
    """A damaged store, as far as manifest and headers are intact; the report gets the faults.

    CorruptStoreError if nothing can be recovered; FormatVersionError if a newer fpstore has written
    it.
    """

    def __init__(self, path: Path, report: RepairReport) -> None:
        self._report = report
        numbers = generation_numbers(path)
        if not numbers:
            raise CorruptStoreError(
                f"{path}: there is no generation left: nothing can be recovered", path=path
            )
        manifest: Manifest | None = None
        try:
            manifest = read_manifest(path)
        except (CorruptStoreError, StoreNotFoundError) as error:
            report.note(error)
        logs = {
            number: _read_log(path / generation_folder(number) / LOG_FILE) for number in numbers
        }
        number = manifest.generation.number if manifest is not None else 0
        if number not in numbers:
            # A log that is not superseded has all changes: of two such, the later belongs to a
            # merge that has not ended.
            number = min(numbers, key=lambda n: (logs[n].is_over, -n if logs[n].is_over else n))
        self.folder, log = path / generation_folder(number), logs[number]
        self._header = log.header
        self._headless: list[int] = []
        self._intact = list(self._opened_tables())
        # What no merge changes is the same in an older or a newer manifest of the store.
        self.settings = (
            None
            if manifest is None or not self._is_ours(manifest, log.header, number)
            else manifest
        )
        self.manifest = (
            manifest
            if self.settings is not None and manifest and manifest.generation.number == number
            else None
        )
        if manifest is not None and self.manifest is None:
            what = "the manifest of another store: nothing was taken from it"
            if self.settings is not None:
                what = (
                    f"names generation {manifest.generation.number}, which is missing; generation "
                    f"{number} was found"
                )
            note_fault(report, path / MANIFEST_FILE, what)
        if self.manifest is None and (
            log.superseded or (self.settings and self.settings.generation.number > number)
        ):
            report.losses.append(
                "the current generation: the new store holds what an earlier one held, without "
                "what was inserted or deleted later"
            )
        self.count, self.digest, width = self._held(path)
        self.log_end = log.end  # None: its header does not say
        # None: nothing distinguishes its records from records of another store
        self.log = self._checked_log(log, number, width)
        self.design = self._find_design()
        self.blocks = self._find_blocks()
        self.tables = [*filter(self._fits, self._intact), *self._with_new_headers()]
        self.index_ids = self._has_index() if self.settings is None else self.settings.index_ids

    def _is_ours(self, manifest: Manifest, header: LogHeader | None, number: int) -> bool:
        """Whether a manifest is of this store, by the log, or by the set of the tables and the files of ids and strings."""
        if header is not None and header.identity == manifest.identity:
            return True
        record = manifest.generation
        held = record.fingerprints, record.set_digest, manifest.design.width.bits
        if record.number != number or (self._intact and held not in map(set_of, self._intact)):
            return False
        strings = None if record.dictionary is None else record.dictionary["strings"]
        for name, shape in ((IDS_FILE, record.ids_file), (STRINGS_FILE, strings)):
            with suppress(*DAMAGE):
                if seal_digest(self.folder / name, shape) != (shape and shape["digest"]):
                    return False
        return True

    def _checked_log(self, log: _Log, number: int, width: int) -> LogHeader | None:
        expected = None if self.manifest is None else LogHeader.of(self.manifest)
        if log.fault is not None:
            self._report.note(log.fault)
        if log.header is None:
            return expected
        try:
            if expected is not None:
                log.header.check_belongs(log.path, expected)
            elif (log.header.generation, log.header.totals.fingerprints, log.header.width) != (
                number,
                self.count,
                width,
            ):
                raise CorruptStoreError(
                    f"{log.path}: the log of another store or generation", path=log.path
                )
        except CorruptStoreError as error:
            self._report.note(error)
            return None
        return log.header

    @property
    def identity(self) -> bytes | None:
        """The identity of the store, by its manifest or its log; None if both are lost."""
        known = self.settings or self._header
        return None if known is None else known.identity

    # Tables

    def _opened_tables(self) -> Iterator[Table]:
        for file in sorted(self.folder.glob("table-*.fpt")):
            try:
                table = open_of_any_kind(file)
            except DAMAGE as error:
                self._report.note(error)
                with suppress(ValueError):
                    self._headless.append(int(file.stem.removeprefix("table-")))
                continue
            if file.name == table_name(table.header.table):
                yield table
            else:
                note_fault(self._report, file, f"it is table {table.header.table}")

    def _held(self, path: Path) -> tuple[int, int, int]:
        """Return the identity of the set that the tables hold, and keep the tables that hold it."""
        if self.manifest is not None:
            record = self.manifest.generation
            held = record.fingerprints, record.set_digest, self.manifest.design.width.bits
        elif self._intact:
            held = Counter(map(set_of, self._intact)).most_common(1)[0][0]
        else:
            raise CorruptStoreError(
                f"{path}: neither a table nor a record of what it held is left: nothing can be "
                "recovered",
                path=path,
            )
        for table in self._intact:
            if set_of(table) != held:
                note_fault(self._report, table.path, "a file of another store")
        self._intact = [table for table in self._intact if set_of(table) == held]
        return held

    def _find_design(self) -> Design:
        """Return the design of the settings, unless the tables belong to another design.

        Then the design of the tables.
        """
        recorded = None if self.settings is None else self.settings.design
        if recorded is not None and (
            self.manifest is not None or all(_is_of(recorded, table) for table in self._intact)
        ):
            return recorded
        specs = [table.spec for table in sorted(self._intact, key=lambda table: table.header.table)]
        radius, effort = 0, Effort()
        with suppress(InputError):  # it would take too long to find out
            for more in range(specs[0].width.bits + 1):
                if not covers(specs, more, effort):
                    break
                radius = more
        if self._intact[0].header.table_count > len(specs):
            self._report.losses.append(
                "the tables that are missing: the new store has those that are left"
            )
        if all(table.header.table for table in self._intact):
            specs.insert(0, _first_table(specs[0]))
        ring = [place for place, spec in enumerate(specs) if spec.in_ring]
        # of another number of tables
        for place, flips in zip(ring, spread(len(ring), radius) if ring else (), strict=True):
            specs[place] = replace(specs[place], flips=flips)
        self._report.actions.append(
            f"took the design from the tables: {len(specs)}, which cover radius {radius}"
        )
        if recorded is None:
            self._report.losses.append(
                "the settings: what made the fingerprints is not known, nor the radius that was "
                "asked for"
            )
        return Design("custom", radius, tuple(specs))

    def _find_blocks(self) -> Blocks:
        blocks = (
            Blocks(default_block_bytes(self.design.width.bits))
            if self.settings is None
            else self.settings.blocks
        )
        header = next(
            (table.header for table in self._intact if isinstance(table, PackedTable)), None
        )
        if header is None:
            return blocks
        return blocks._replace(
            bytes=header.block_bytes, codec=HUFFMAN if any(header.code_bits) else ELIAS_FANO
        )

    def _fits(self, table: Table) -> bool:
        if self.manifest is None or _is_of(self.design, table):
            return True
        note_fault(self._report, table.path, "a table of another design")
        return False

    def _with_new_headers(self) -> Iterator[Table]:
        """Open tables whose headers are damaged.

        All but the lengths of codes follows from the manifest.

        The checksums of blocks and pages show whether the header is right.
        """
        for number in self._headless if self.manifest is not None else ():
            with suppress(*DAMAGE, FpstoreError, ValueError, IndexError):
                file = self.folder / table_name(number)
                yield self._with_new_header(file, self.design.tables[number], number)
                self._report.actions.append(
                    f"read {file} with a new header in place of the damaged one"
                )

    def _with_new_header(self, file: Path, spec: TableSpec, number: int) -> Table:
        if spec.kind != BLOCKS:
            cutter = ColumnLayout.of(self.design, number, self.count, self.digest).cutter()
            return ColumnTable(file, None, cutter.header, cutter.file_bytes)
        with opened(file) as descriptor:
            size = os.fstat(descriptor).st_size
            code = np.frombuffer(read_at(descriptor, file, CODE_OFFSET, huffman.SYMBOLS), np.uint8)
        block_bytes = self.blocks.bytes
        # behind the blocks and their keys is a directory of 2^bits slots
        for bits in range(MOST_DIRECTORY_BITS + 1):
            count, rest = divmod(
                size - _kernel.HEADER_BYTES - 8 * (2**bits + 1), block_bytes + 8 * spec.width.words
            )
            with suppress(FpstoreError, ValueError, OverflowError):
                header = (
                    b""
                    if rest or count < 0
                    else _kernel.make_header(
                        np.frombuffer(spec.permutation, np.uint8),
                        code,
                        self.digest,
                        self.count,
                        count,
                        block_bytes,
                        number,
                        len(self.design.tables),
                        spec.prefix_bits,
                        spec.flips,
                    )
                )
                return PackedTable(file, None, header)
        raise CorruptStoreError(
            f"{file}: neither the header nor the size of the table is right", path=file
        )

    def _has_index(self) -> bool:
        """Whether there is an index of integer ids.

        Strings always are indexed, so an index beside them says nothing.
        """
        found = [name for name in PLACES_FILES if (self.folder / name).exists()]
        if (self.folder / STRINGS_FILE).exists() or not found:
            return False
        self._report.actions.append(
            f"inferred from {' and '.join(found)} that integer ids are indexed"
        )
        return True


class _Log(NamedTuple):
    """The header of a log: its fields, where the log ends, whether another generation is current, and what is wrong with it."""

    path: Path
    header: LogHeader | None
    end: int | None
    superseded: bool
    fault: FpstoreError | None

    @property
    def is_over(self) -> bool:
        """Whether nothing says that its generation is the current one."""
        return self.header is None or self.superseded


def _read_log(path: Path) -> _Log:
    header, end, superseded = None, None, False
    fault: FpstoreError | None = None
    try:
        with opened(path) as descriptor:
            data = read_if_possible(descriptor, path, 0, HEADER_BYTES)
        word = int.from_bytes(data[8 * END : 8 * END + 8], "little")
        try:
            end, superseded = published_end(word, path), bool(word & SUPERSEDED)
        except CorruptStoreError as error:
            fault = error.with_traceback(None)  # whose frames would keep all files open
        header = parse_header(data, path)
    except DAMAGE as error:
        fault = error.with_traceback(None)
    return _Log(path, header, end, superseded, fault)


def note_fault(report: RepairReport, path: Path, what: str) -> None:
    """Add the fault of a file."""
    report.note(CorruptStoreError(f"{path}: {what}", path=path))


def set_of(table: Table) -> tuple[int, int, int]:
    """Return the identity of the set of a table.

    The count of its fingerprints, its digest and its width.
    """
    header = table.header
    return header.fingerprint_count, header.set_digest, header.width


def seal_digest(path: Path, shape: dict[str, int] | None) -> int:
    """Return the digest of a sealed file, which should have this shape.

    CorruptStoreError if it is mostly a hole.
    """
    with opened(path) as descriptor:
        status = os.fstat(descriptor)
        most = MOST_SPARSE * max(shape["bytes"] if shape else 0, disk_bytes(status))
        if status.st_size > most:  # its checksums would take memory
            raise CorruptStoreError(
                f"{path}: {status.st_size:,} bytes, most of them a hole",
                path=path,
                got=status.st_size,
            )
        return opened_seal(path, descriptor).digest


def _is_of(design: Design, table: Table) -> bool:
    number = table.header.table
    return table.header.table_count == len(design.tables) and design.tables[number] == table.spec


def _first_table(other: TableSpec) -> TableSpec:
    """Return a first table of the kind of the other tables, from which it is missing."""
    bits = other.width.bits
    if other.kind == BLOCKS:
        return TableSpec(identity(bits), min(bits, WORD_BITS))
    if other.kind == COPIES:
        return TableSpec(identity(bits), other.prefix_bits, -1, COPIES)
    return TableSpec(identity(bits), TAG_BITS, 0, ROWS)
