"""The intact headers of a damaged store: its generation, settings, tables and log.

The manifest, the header of the log and the header of each table have checksums of their own. The
content of a damaged header is not guessed: without the manifest, the settings are lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fpstore.care.reports import RepairReport
from fpstore.design.families import Design
from fpstore.disk.files import disk_bytes, open_descriptor, read_if_possible
from fpstore.disk.sealed import open_seal
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    FpstoreError,
    StoreNotFoundError,
)
from fpstore.format.layout import table_name
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
    GenerationRecord,
    Manifest,
    generation_folder,
    generation_numbers,
    read_manifest,
)
from fpstore.format.mapping import IDS_FILE
from fpstore.format.strings import STRINGS_FILE
from fpstore.format.table import Table, open_table_file

# the errors of a damaged store; others are this process's
DAMAGE = (CorruptStoreError, StoreNotFoundError, FormatVersionError)
# a sealed file is at most this many times as large as it should be, or as its blocks on disk
MAX_SPARSE = 64


class DamagedStore:
    """A damaged store, as its intact headers describe it; faults go to the report.

    CorruptStoreError if nothing can be recovered; FormatVersionError if a newer fpstore has written
    it.

    Attributes
    ----------
    manifest : Manifest or None
        The settings. None if the manifest is lost.
    record : GenerationRecord or None
        The manifest's record of the generation in ``folder``. None if the manifest is lost, or of
        another generation.
    start : LogHeader
        The content of the tables, by the record or by the header of the log.
    log : LogHeader or None
        The content to which the log adds. None if the log is not this generation's.
    log_end : int or None
        Where the log ends, if its header says so.
    digest : int
        Of the set of fingerprints.
    tables : list of Table
        The tables with an intact header and this digest.
    """

    def __init__(self, path: Path, report: RepairReport) -> None:
        self._report = report
        numbers = generation_numbers(path)
        if not numbers:
            raise _unrecoverable_error(path, "there is no generation left")
        self.manifest: Manifest | None = None
        try:
            self.manifest = read_manifest(path)
        except (CorruptStoreError, StoreNotFoundError) as error:
            report.note(error)
        logs = {
            number: _read_log(path / generation_folder(number) / LOG_FILE) for number in numbers
        }
        number = self.manifest.generation.number if self.manifest is not None else 0
        if number not in numbers:
            # A log that is not superseded has all changes. If there are two, the later belongs to
            # a merge that has not ended.
            number = min(
                numbers, key=lambda n: (logs[n].is_obsolete, -n if logs[n].is_obsolete else n)
            )
        self.folder, log = path / generation_folder(number), logs[number]
        self.record = self._find_record(path, number, log)
        self.start, self.log = self._check_log(path, number, log)
        self.log_end = log.end
        self.digest, self.tables = self._check_tables(path)

    @property
    def identity(self) -> bytes:
        return self.start.identity

    def _find_record(self, path: Path, number: int, log: _DamagedLog) -> GenerationRecord | None:
        manifest, report = self.manifest, self._report
        last = 0 if manifest is None else manifest.generation.number
        if log.superseded or last > number:
            report.losses.append(
                "the current generation: the new store holds what an earlier one held, without "
                "what was inserted or deleted later"
            )
        if manifest is None:
            return None
        header, is_own = log.header, last == number
        if header is not None and header.identity != manifest.identity:
            is_own = is_own and self._has_id_files(manifest.generation)
            if not is_own:
                raise CorruptStoreError(
                    f"{path}: {MANIFEST_FILE} and {log.path} belong to different stores: remove "
                    "the one that is not this store's, then repair",
                    path=path,
                )
        if not is_own:
            note_fault(
                report,
                path / MANIFEST_FILE,
                f"names generation {last}, which is missing; generation {number} was found",
            )
            return None
        return manifest.generation

    def _has_id_files(self, record: GenerationRecord) -> bool:
        """Whether the intact files of ids and strings are the ones that the record describes."""
        strings = None if record.dictionary is None else record.dictionary["strings"]
        try:
            return seal_digest(self.folder / IDS_FILE, record.ids_file) == record.ids_file[
                "digest"
            ] and (
                seal_digest(self.folder / STRINGS_FILE, strings) == strings["digest"]
                if strings is not None
                else not (self.folder / STRINGS_FILE).exists()
            )
        except DAMAGE:
            return False

    def _check_log(
        self, path: Path, number: int, log: _DamagedLog
    ) -> tuple[LogHeader, LogHeader | None]:
        if log.fault is not None:
            self._report.note(log.fault)
        if self.manifest is not None and self.record is not None:
            start = LogHeader.from_manifest(self.manifest)
            try:
                if log.header is not None:
                    log.header.check_belongs(log.path, start)
            except CorruptStoreError as error:
                self._report.note(error)
                return start, None
            return start, start
        if log.header is None or log.header.generation != number:
            raise _unrecoverable_error(
                path,
                f"neither {MANIFEST_FILE} nor {log.path} says what generation {number} holds",
            )
        return log.header, log.header

    def _check_tables(self, path: Path) -> tuple[int, list[Table]]:
        tables = list(self._open_tables())
        digests = {table.header.set_digest for table in tables}
        if self.record is not None:
            digests = {self.record.set_digest}
        elif len(digests) > 1:
            raise _unrecoverable_error(
                path, "its tables are of different sets, and no manifest says which"
            )
        elif not digests:
            raise _unrecoverable_error(
                path, "neither a manifest nor a table with its header is left"
            )
        (digest,) = digests
        for table in tables:
            if table.header.set_digest != digest:
                note_fault(self._report, table.path, "a file of another store")
        tables = [table for table in tables if table.header.set_digest == digest]
        manifest = self.manifest
        if manifest is not None and not all(
            _is_table_of(manifest.design, table) for table in tables
        ):
            number = manifest.generation.number
            self._report.losses.append(f"the design: the new store has that of generation {number}")
        return digest, tables

    def _open_tables(self) -> Iterator[Table]:
        start = self.start
        for file in sorted(self.folder.glob("table-*.fpt")):
            try:
                table = open_table_file(file)
            except DAMAGE as error:
                self._report.note(error)
                continue
            header = table.header
            if file.name != table_name(header.table):
                note_fault(self._report, file, f"it is table {header.table}")
            elif (header.fingerprint_count, header.width) != (
                start.totals.fingerprints,
                start.width,
            ):
                note_fault(self._report, file, "a file of another store")
            else:
                yield table


@dataclass(frozen=True)
class _DamagedLog:
    path: Path
    header: LogHeader | None  # if it is intact
    end: int | None  # where the log ends, if its header says so
    superseded: bool  # a later generation is current
    fault: FpstoreError | None

    @property
    def is_obsolete(self) -> bool:
        """Whether nothing says that its generation is the current one."""
        return self.header is None or self.superseded


def _read_log(path: Path) -> _DamagedLog:
    header, end, superseded = None, None, False
    fault: FpstoreError | None = None
    try:
        with open_descriptor(path) as descriptor:
            data = read_if_possible(descriptor, path, 0, HEADER_BYTES)
        word = int.from_bytes(data[8 * END : 8 * END + 8], "little")
        try:
            end, superseded = published_end(word, path), bool(word & SUPERSEDED)
        except CorruptStoreError as error:
            fault = error.with_traceback(None)  # whose frames would keep all files open
        header = parse_header(data, path)
    except DAMAGE as error:
        fault = error.with_traceback(None)
    return _DamagedLog(path, header, end, superseded, fault)


def _is_table_of(design: Design, table: Table) -> bool:
    number = table.header.table
    return table.header.table_count == len(design.tables) and design.tables[number] == table.spec


def _unrecoverable_error(path: Path, reason: str) -> CorruptStoreError:
    return CorruptStoreError(f"{path}: {reason}: nothing can be recovered", path=path)


def note_fault(report: RepairReport, path: Path, fault: str) -> None:
    report.note(CorruptStoreError(f"{path}: {fault}", path=path))


def seal_digest(path: Path, shape: dict[str, int] | None) -> int:
    """Return the digest of a sealed file; CorruptStoreError if it is mostly a hole."""
    with open_descriptor(path) as descriptor:
        status = os.fstat(descriptor)
        most = MAX_SPARSE * max(shape["bytes"] if shape else 0, disk_bytes(status))
        if status.st_size > most:  # its checksums would take memory
            raise CorruptStoreError(
                f"{path}: {status.st_size:,} bytes, most of them a hole",
                path=path,
                got=status.st_size,
            )
        return open_seal(path, descriptor).digest
