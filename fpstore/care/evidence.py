"""Which generation of a damaged store is current, and which of its files belong to it, as far as they say so themselves.

An intact manifest says it, unless nothing in the store fits it: then it is that of another store. Without a manifest, the headers
of the logs and of the tables tell.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple, Protocol

from fpstore.disk.files import opened, read_if_possible
from fpstore.disk.sealed import opened_seal
from fpstore.errors import CorruptStoreError, FormatVersionError, FpstoreError, StoreNotFoundError
from fpstore.format.id_map import IDS_FILE
from fpstore.format.layout import table_name
from fpstore.format.log import (
    BOOT,
    END,
    HEADER_BYTES,
    LOG_FILE,
    SUPERSEDED,
    LogHeader,
    boot_word,
    check_belongs,
    claimed_header,
    parse_header,
    told_end,
)
from fpstore.format.manifest import MANIFEST_FILE, Manifest, generation_folder, generation_numbers, read_manifest
from fpstore.format.strings import STRINGS_FILE
from fpstore.format.table import Table, open_of_any_kind

DAMAGE = (CorruptStoreError, StoreNotFoundError, FormatVersionError)  # other errors are not the store's
TABLES = "table-*.fpt"


class Told(Protocol):
    """Receives what a repair reports."""

    actions: list[str]
    losses: list[str]

    def note(self, error: FpstoreError) -> None:
        """Add a fault."""


class FoundLog:
    """What a log says of itself.

    Attributes
    ----------
    header : LogHeader or None
        None when it is damaged or missing.
    claimed : LogHeader or None
        What a damaged header says; nothing vouches for it but the records.
    fault : FpstoreError or None
        Why there is no header.
    superseded : bool
        Another generation is current.
    end : int or None
        Where the log ends if the word for it is intact.
    exact : bool
        No machine has stopped since that word was stored.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: LogHeader | None = None
        self.claimed: LogHeader | None = None
        self.fault: FpstoreError | None = None
        self.superseded = self.exact = self.published = False
        self.end: int | None = None
        try:
            with opened(path) as descriptor:
                data = read_if_possible(descriptor, path, 0, HEADER_BYTES)
            self._parse(data)
        except DAMAGE as error:
            self.fault = error

    @property
    def is_there(self) -> bool:
        """Whether there is a file."""
        return not isinstance(self.fault, StoreNotFoundError)

    def _parse(self, data: bytes) -> None:
        if len(data) == HEADER_BYTES:
            end, boot = (int.from_bytes(data[8 * word : 8 * word + 8], "little") for word in (END, BOOT))
            self.exact = boot == boot_word() != 0
            try:
                self.end = told_end(end, self.path)
                self.superseded, self.published = bool(end & SUPERSEDED), self.end > HEADER_BYTES
            except CorruptStoreError as error:
                self.fault = error
        self.claimed = claimed_header(data)
        self.header = parse_header(data, self.path)


def set_of(table: Table) -> tuple[int, int, int]:
    """Return what tells the set of a table from others: the count of its fingerprints, its digest and its width."""
    kernel = table.header
    return kernel.fingerprint_count, kernel.set_digest, kernel.width


class FoundGeneration:
    """The folder of a generation: its tables whose headers are intact, and its log.

    Attributes
    ----------
    number : int
    folder : Path
    tables : list of Table
    headless : list of Path
        Tables without an intact header.
    faults : list of FpstoreError
        Of the tables.
    log : FoundLog
    """

    def __init__(self, path: Path, number: int) -> None:
        self.number, self.folder = number, path / generation_folder(number)
        self.tables: list[Table] = []
        self.headless: list[Path] = []
        self.faults: list[FpstoreError] = []
        for file in sorted(self.folder.glob(TABLES)):
            self._open(file)
        self.log = FoundLog(self.folder / LOG_FILE)
        self.sets = Counter(map(set_of, self.tables))

    def _open(self, file: Path) -> None:
        try:
            table = open_of_any_kind(file)
        except DAMAGE as error:
            self.faults.append(error)
            self.headless.append(file)
            return
        if file.name == table_name(table.header.table):
            self.tables.append(table)
        else:
            self.faults.append(CorruptStoreError(f"{file}: it is table {table.header.table}", path=file))

    @property
    def has_tables(self) -> bool:
        """Whether there are any table files."""
        return bool(self.tables or self.headless)

    def is_of(self, manifest: Manifest) -> bool:
        """Whether a manifest speaks of this generation, or nothing says otherwise.

        Another store with the same fingerprints has the same tables: then the log and the files of ids and strings tell.
        """
        record = manifest.generation
        if record.number != self.number:
            return False
        files = (
            (IDS_FILE, record.ids_file),
            (STRINGS_FILE, record.dictionary["strings"] if record.dictionary else record.ids_file),
        )
        digests = [(seal_digest(self.folder / name), shape["digest"]) for name, shape in files]
        recorded = (record.fingerprints, record.set_digest, manifest.design.width.bits)
        if self.sets and recorded not in self.sets and digests[0][0] != digests[0][1]:
            return False
        header = self.log.header
        if header is None or header.identity == manifest.identity or not self.log_fits():
            return True
        return all(found in (None, expected) for found, expected in digests)

    def log_fits(self) -> bool:
        """Whether the log has an intact header, of this generation, and began with as many fingerprints as the tables hold."""
        header = self.log.header
        if header is None or header.generation != self.number:
            return False
        began = header.totals.fingerprints, header.width
        return not self.sets or any((count, width) == began for count, _, width in self.sets)


class CurrentLog(NamedTuple):
    """What the log of the current generation is read with."""

    file: FoundLog
    header: LogHeader | None  # None: no record of it can be told from others
    sure: bool  # the header is intact, or the manifest says what it was


class Evidence:
    """The current generation of a damaged store.

    Parameters
    ----------
    path : Path
        The store.
    told : Told

    Attributes
    ----------
    generation : FoundGeneration
    manifest : Manifest or None
        When it is of this very generation.
    related : Manifest or None
        That manifest, or one of this store, but of another generation: what no merge changes, it says too.
    log : CurrentLog

    Raises
    ------
    CorruptStoreError
        There is nothing to recover.
    FormatVersionError
        A newer fpstore has written the store.
    """

    def __init__(self, path: Path, told: Told) -> None:
        self._path, self._told = path, told
        found = [FoundGeneration(path, number) for number in generation_numbers(path)]
        if not found:
            raise CorruptStoreError(f"{path}: there is no generation left: nothing can be recovered", path=path)
        manifest = self._read_manifest()
        self.manifest: Manifest | None = None
        self.related: Manifest | None = None
        self.generation = self._choose(found, manifest)
        if self.manifest is None and self.generation.log.superseded:
            self._note_earlier("the current generation")
        self.log = self._current_log()

    def _read_manifest(self) -> Manifest | None:
        try:
            return read_manifest(self._path)
        except (CorruptStoreError, StoreNotFoundError) as error:
            self._told.note(error)
            return None

    def _choose(self, found: list[FoundGeneration], manifest: Manifest | None) -> FoundGeneration:
        """Return the generation that is current, and keep the manifest as far as it is of this store."""
        with_tables = [generation for generation in found if generation.has_tables]
        if manifest is None:
            return _most_likely(with_tables or found)
        named = next((generation for generation in found if generation.number == manifest.generation.number), None)
        if named is not None and named.is_of(manifest) and (named.has_tables or not with_tables):
            self.manifest = self.related = manifest
            return named
        chosen = _most_likely(with_tables or found)
        self._refuse(manifest, chosen)
        return chosen

    def _refuse(self, manifest: Manifest, chosen: FoundGeneration) -> None:
        """Report a manifest that does not describe the generation found."""
        file, number = self._path / MANIFEST_FILE, manifest.generation.number
        header = chosen.log.header
        if header is None or header.identity != manifest.identity or number == chosen.number:
            self._told.note(CorruptStoreError(f"{file}: the manifest of another store: nothing was taken from it", path=file))
            return
        self.related = manifest
        self._told.note(
            CorruptStoreError(
                f"{file}: names generation {number}, which is missing; generation {chosen.number} was found", path=file
            )
        )
        if number > chosen.number:
            self._note_earlier(f"generation {number}, which was current")

    def _note_earlier(self, lost: str) -> None:
        loss = f"{lost}: the new store holds what an earlier one held, without what was inserted or deleted later"
        if not any("what an earlier one held" in told for told in self._told.losses):
            self._told.losses.append(loss)

    def _current_log(self) -> CurrentLog:
        """Decide whether the log of the generation belongs to it."""
        log, manifest = self.generation.log, self.manifest
        if log.fault is not None:
            self._told.note(log.fault)
        header = log.header
        if manifest is not None:
            header, log_header = LogHeader.of(manifest), header
            if log_header is not None:
                # Of a log of this generation the records are right, whatever else its header says.
                same = header._replace(identity=log_header.identity, generation=log_header.generation)
                try:
                    check_belongs(same, log.path, header)
                except CorruptStoreError as error:
                    return self._without_log(error)
            return CurrentLog(log, header, True)
        if header is None:
            claimed = log.claimed
            return CurrentLog(log, None if claimed is None else claimed._replace(generation=self.generation.number), False)
        if not self.generation.log_fits():
            return self._without_log(
                CorruptStoreError(f"{log.path}: the log of another store or generation: nothing was taken from it", path=log.path)
            )
        return CurrentLog(log, header, True)

    def _without_log(self, fault: CorruptStoreError) -> CurrentLog:
        self._told.note(fault)
        return CurrentLog(self.generation.log, None, False)


def _most_likely(found: list[FoundGeneration]) -> FoundGeneration:
    """Return the generation that was current, without a manifest that says it.

    A log that is superseded was that of an earlier generation. When a merge ended before the old log was marked, the new one is
    current if it was made public, which a merge does with its log as the last step before the manifest.
    """

    def order(generation: FoundGeneration) -> tuple[bool, bool, bool, bool, int]:
        log, number = generation.log, generation.number
        fits = generation.log_fits()
        unknown = not generation.tables and not fits
        return (unknown, log.superseded, not generation.tables, not fits, -number if log.published else number)

    return min(found, key=order)


def seal_digest(path: Path) -> int | None:
    """Return the digest of a sealed file whose own checksums are right, else None."""
    try:
        with opened(path) as descriptor:
            return opened_seal(path, descriptor).digest
    except DAMAGE:
        return None
