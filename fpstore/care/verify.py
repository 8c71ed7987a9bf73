"""Verification: reads and checks every byte of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Progress, Words
from fpstore.building.generation_writer import TrackedWork
from fpstore.care.reports import Report
from fpstore.errors import CorruptStoreError, FpstoreError, StoreNotFoundError
from fpstore.format.column_table import ColumnTable, check_references
from fpstore.format.dictionary import VERIFY_PASSES
from fpstore.format.filter import FilterReader, filter_name
from fpstore.format.log import HEADER_BYTES, LogReader
from fpstore.format.manifest import MANIFEST_FILE, read_manifest
from fpstore.format.record import LAST_ROW
from fpstore.query.generation import Generation
from fpstore.query.store_snapshot import StoreSnapshot

PHASE_TABLES, PHASE_REFERENCES, PHASE_IDS, PHASE_STRINGS = "tables", "references", "ids", "strings"
PHASE_PLACES, PHASE_LOG = "index by id", "changes"


def verify_store(snapshot: StoreSnapshot, log: LogReader, progress: Progress | None) -> Report:
    """Read every table, id record, string and log record; continue after a fault."""
    generation = snapshot.generation
    report, work = Report(fingerprints=generation.count), TrackedWork(progress)
    _check_manifest(generation, report)
    _check_tables(generation, report, work)
    _check_ids(generation, report, work)
    has_string: npt.NDArray[np.bool_] | None = None
    if generation.dictionary is not None:
        total = VERIFY_PASSES * generation.dictionary.strings.count
        work.start(PHASE_STRINGS, total)
        with _note_faults(report):
            has_string = generation.dictionary.verify(work.tick)
            work.set_done(total)  # a number that is not in use has nothing to check
    # it is compared with tables and ids that are sound
    if generation.places is not None and report.ok:
        work.start(PHASE_PLACES, None)
        with _note_faults(report):
            generation.places.verify_with(generation.ids, work.tick)
    work.start(PHASE_LOG, None)
    with _note_faults(report):
        for records in log.read(HEADER_BYTES, 1):
            work.tick(len(records.change.kinds))
    if report.ok and (snapshot.version or snapshot.totals.id_kind == "string"):
        with _note_faults(report):
            _check_totals(snapshot, has_string, work)
            report.fingerprints, report.ids = snapshot.totals.fingerprints, snapshot.totals.ids
    return report


@contextmanager
def _note_faults(report: Report) -> Iterator[None]:
    try:
        yield
    except FpstoreError as error:
        report.note(error)


def _check_manifest(generation: Generation, report: Report) -> None:
    """Read the manifest again; ignore it if it belongs to another generation or store by now."""
    with _note_faults(report), suppress(StoreNotFoundError):
        manifest = read_manifest(generation.path)
        same = (manifest.identity, manifest.generation.number) == (
            generation.manifest.identity,
            generation.record.number,
        )
        if same and manifest != generation.manifest:
            raise CorruptStoreError(
                f"{generation.path / MANIFEST_FILE}: it has changed since it was read",
                path=generation.path,
            )


def _check_tables(generation: Generation, report: Report, work: TrackedWork) -> None:
    work.start(PHASE_TABLES, report.fingerprints * len(generation.tables))
    references: list[tuple[ColumnTable, int]] = []
    rows: ColumnTable | None = None
    for number, table in enumerate(generation.tables):
        with _note_faults(report):
            if not isinstance(table, ColumnTable):
                keys = table.verify_keys(work.tick)
                if number in generation.record.filters:
                    with _note_faults(report):
                        _check_filter(generation, number, keys)
                for _ in keys:  # the part of the table behind a fault of its filter
                    pass
            elif table.is_reference:
                references.append((table, table.verify(work.tick)))
            else:
                table.verify(work.tick)
                rows = table
        report.tables += 1
        report.blocks += table.kernel.block_count
        work.set_done(report.fingerprints * report.tables)
    if references and rows is not None:  # they are compared with rows that are sound
        work.start(PHASE_REFERENCES, report.fingerprints)
        with _note_faults(report):
            for fault in check_references(references, rows, work.tick):
                report.note(fault)


def _check_filter(generation: Generation, number: int, keys: Iterator[Words]) -> None:
    reader = generation.filters.get(number)
    # it was left out when the generation was opened, and its fault is an error here
    if reader is None:
        reader = FilterReader(generation.folder / filter_name(number))
        reader.check_place(
            generation.design, number, generation.count, generation.record.set_digest
        )
    reader.verify(generation.design, keys)


def _check_ids(generation: Generation, report: Report, work: TrackedWork) -> None:
    ids, expected = generation.ids, generation.record.ids
    work.start(PHASE_IDS, report.fingerprints)
    with _note_faults(report):
        report.ids = ids.verify_numbers(
            (counts for _, counts in generation.tables[0].pieces()), work.tick
        )
        if report.ids != expected:
            raise CorruptStoreError(
                f"{ids.path}: {report.ids} ids, the manifest says {expected}",
                path=ids.path,
                expected=expected,
                got=report.ids,
            )


def _check_totals(
    snapshot: StoreSnapshot, has_string: npt.NDArray[np.bool_] | None, work: TrackedWork
) -> None:
    totals, path = snapshot.totals, snapshot.generation.folder
    bound = totals.next_row if totals.id_kind == "row" and totals.next_row < LAST_ROW else 2**64
    if totals.id_kind == "string":  # the number belongs to the dictionary or to the delta
        delta, in_dictionary = snapshot.delta, has_string
        has_string = np.zeros(delta.next_string, bool)
        if in_dictionary is not None:
            in_dictionary = in_dictionary[: delta.first_string]
            has_string[: len(in_dictionary)] = in_dictionary
        has_string[delta.first_string :] = [bool(string) for string in delta.strings]
        bound = len(has_string)
    fingerprints = ids = 0
    for keys, _, numbers in snapshot.groups():
        fingerprints += len(keys)
        ids += len(numbers)
        if len(numbers) and int(numbers.max()) >= bound:
            highest = int(numbers.max())
            raise CorruptStoreError(
                f"{path}: id number {highest} is out of range",
                path=path,
                expected=bound,
                got=highest,
            )
        if (
            totals.id_kind == "string"
            and has_string is not None
            and not (named := has_string[numbers]).all()
        ):
            number = int(numbers[~named][0])
            raise CorruptStoreError(
                f"{path}: id number {number} is in use, but has no string", path=path, got=number
            )
        work.tick(len(keys))
    for name, expected, got in (
        ("fingerprints", totals.fingerprints, fingerprints),
        ("ids", totals.ids, ids),
    ):
        if expected != got:
            raise CorruptStoreError(
                f"{path}: tables and delta hold {got} {name}, the log says {expected}",
                path=path,
                expected=expected,
                got=got,
            )
