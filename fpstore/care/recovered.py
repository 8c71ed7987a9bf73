"""The rows of a repaired store: intact tables, ids and strings, changed by the intact log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Progress, Words
from fpstore.base.arrays import NO_WORDS
from fpstore.base.keywords import keyword
from fpstore.base.strings import StringColumn
from fpstore.base.width import Width, rows_to_numbers
from fpstore.building.external_sort import Sorter
from fpstore.care.damaged_store import DAMAGE, DamagedStore, note_fault, seal_digest
from fpstore.care.intact import IdRecords, LogChanges, RowFile, StringRecords, intact_log
from fpstore.care.reports import RepairReport
from fpstore.design.tables import REFERENCES, identity_permutation
from fpstore.errors import CorruptStoreError, InputError, StorageError, plural
from fpstore.format.column_table import ColumnTable, block_counts
from fpstore.format.log import LOG_FILE, Records
from fpstore.format.mapping import IDS_FILE
from fpstore.format.packed_table import PackedTable
from fpstore.format.strings import STRINGS_FILE
from fpstore.format.table import Table
from fpstore.io.sink import Sink
from fpstore.io.source import Batch

PHASE_RECOVER = "recovering"
PIECE_ROWS = BATCH_ROWS = 1 << 16
BATCH_STRINGS = 1 << 8
LOST_LOG = "the log: all that was inserted or deleted since the last merge, if anything was"
Record = tuple[Words, Words]  # how many ids each fingerprint of a block has, and the ids


class LossList(Sink):
    """The list of losses: rows of a kind, a fingerprint and an id, which both may be empty.

    Without rows, there is no file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()  # rows by kind
        try:
            super().__init__(path)
        except (InputError, StorageError) as error:  # it names a folder, or cannot be made
            advice = f"choose another place for the list of losses ({keyword('lost')})"
            raise StorageError(f"{path}: {error}: {advice}", path=path) from error

    def add(self, kind: str, fingerprints: Iterable[str], ids: Iterable[str]) -> None:
        lines = [
            f"{kind}\t{fingerprint}\t{identifier}\n"
            for fingerprint, identifier in zip(fingerprints, ids, strict=True)
        ]
        self.counts[kind] += len(lines)
        self.write("".join(lines).encode())

    def finish(self) -> bool:
        """Make the file durable under its final name; return whether there is a file."""
        if self.counts.total():
            self.commit()
        return self.counts.total() > 0


# The set


class IntactBlocks(NamedTuple):
    """Successive intact blocks of a table."""

    first: int  # the number of the first block
    values: Words
    counts: npt.NDArray[np.uint32]  # entries of each block


class IdentifiedRows(NamedTuple):
    """Successive fingerprints with their ids in the tables."""

    values: Words
    counts: Words  # ids of each fingerprint
    ids: Words
    has_ids: bool  # otherwise the ids are lost


def identify_rows(values: Words, record: Record | None) -> IdentifiedRows:
    """Return a block with its ids, if its record is intact."""
    if record is None or len(record[0]) != len(values):
        return IdentifiedRows(values, np.zeros(len(values), np.uint64), NO_WORDS, False)
    return IdentifiedRows(values, *record, True)


class RecoveredSet:
    """The fingerprints of the tables.

    They come from all blocks of the identity table, or if one is damaged, from the intact blocks of
    all tables. Count and digest show whether the set is whole.
    """

    def __init__(self, store: DamagedStore, folder: Path, memory: int) -> None:
        width = store.start.width
        self._identity = next(
            (
                table
                for table in store.tables
                if table.header.permutation == identity_permutation(width)
            ),
            None,
        )
        # None without an identity table
        self.block_count = None if self._identity is None else self._identity.header.block_count
        self.united = RowFile(folder, Width(width).words)  # the rows of all tables
        whole = store.start.totals.fingerprints, store.digest
        parts = () if self._identity is None else intact_blocks(self._identity)
        self.count, digest = _summarize(part.values for part in parts)
        if (self.count, digest) != whole:
            sorter = Sorter(memory, folder, words=Width(width).words)
            for table in sorted(store.tables, key=lambda table: table is self._identity):
                rows = 0
                for values in () if table.spec.kind == REFERENCES else intact_rows(table):
                    sorter.add(values, None)
                    rows += len(values)
                if rows == store.start.totals.fingerprints:
                    break  # this table is whole
            for group in sorter.groups(lambda rows: None):
                self.united.append(group.keys)
            pieces = (
                self.united.read(at, min(at + PIECE_ROWS, len(self.united)))
                for at in range(0, len(self.united), PIECE_ROWS)
            )
            self.count, digest = _summarize(pieces)
        self.complete = (self.count, digest) == whole

    def rows(self, records: IdRecords) -> Iterator[IdentifiedRows]:
        """Yield everything with its ids, ascending, in pieces of about the size of a block."""
        if self.complete and len(self.united):
            return self._rows_by_records(records)
        return self._rows_by_blocks(records)

    def _rows_by_blocks(self, records: IdRecords) -> Iterator[IdentifiedRows]:
        """Yield the intact blocks of the identity table, and between them rows without ids."""
        start = 0
        for part in () if self._identity is None else intact_blocks(self._identity):
            ends = np.cumsum(part.counts, dtype=np.int64)
            numbers, exists = records.keys.find(part.values[ends - 1])
            for values, number, has_record in zip(
                np.split(part.values, ends[:-1]), numbers.tolist(), exists.tolist(), strict=True
            ):
                if len(self.united):
                    first, last = rows_to_numbers(values[[0, -1]])
                    yield from self._read_without_ids(start, self.united.rank(first))
                    start = self.united.rank(last, inclusive=True)
                yield identify_rows(values, records.ids(number) if has_record else None)
        yield from self._read_without_ids(start, len(self.united))

    def _rows_by_records(self, records: IdRecords) -> Iterator[IdentifiedRows]:
        """Yield the blocks by the records of ids.

        No fingerprint is missing, so the block of a record has its number of fingerprints, and ends
        with its key.
        """
        start = 0
        for number in range(len(records)):
            record = records.ids(number)
            (key,) = rows_to_numbers(records.keys.read(number, number + 1))
            stop = self.united.rank(key, inclusive=True)
            first = stop - (0 if record is None else len(record[0]))
            if first < start:
                first, record = stop, None
            yield from self._read_without_ids(start, first)
            yield identify_rows(self.united.read(first, stop), record)
            start = stop
        yield from self._read_without_ids(start, len(self.united))

    def _read_without_ids(self, start: int, end: int) -> Iterator[IdentifiedRows]:
        return (
            identify_rows(self.united.read(at, min(at + PIECE_ROWS, end)), None)
            for at in range(start, end, PIECE_ROWS)
        )


def _summarize(pieces: Iterable[Words]) -> tuple[int, int]:
    """Return the count and the digest of fingerprints."""
    count = digest = 0
    for values in pieces:
        count += len(values)
        digest = (digest + _kernel.digest(values)) % 2**64
    return count, digest


def intact_blocks(table: Table) -> Iterator[IntactBlocks]:
    """Yield every block of a table that can be read, in order; of a column table, blocks of ids."""
    if isinstance(table, ColumnTable):
        size, count = _kernel.ROWS_IN_BLOCK, table.header.count
        for run in table.intact_runs:
            first = -(-run.first // size) * size
            end = run.end if run.end == count else run.end // size * size
            for start, values in table.read_run(run._replace(first=first, end=max(end, first))):
                yield IntactBlocks(start // size, values, block_counts(len(values)))
        return
    start, end, bad = 0, table.header.block_count, table.header.block_count
    while start < end:
        try:
            values, counts, after = table.decode(start, bad)
        except (CorruptStoreError, StorageError) as error:
            block = error.block
            bad = block if isinstance(block, int) and start <= block < bad else start
        else:
            yield IntactBlocks(start, values, counts)
            start = after
        if start == bad:
            start, bad = bad + 1, end


def intact_rows(table: Table) -> Iterator[Words]:
    """Yield every fingerprint of a table that can be read, in the order of the table, in pieces."""
    permutation = np.frombuffer(table.header.permutation, np.uint8)
    if isinstance(table, PackedTable):
        pieces = (piece.values for piece in intact_blocks(table))
    else:
        pieces = (values for run in table.intact_runs for _, values in table.read_run(run))
    return (_kernel.permute(values, permutation, True) for values in pieces)


# The rows


class RecoveredRows:
    """The rows of the current generation and of its log that are intact."""

    def __init__(
        self, store: DamagedStore, folder: Path, memory: int, report: RepairReport, lost: LossList
    ) -> None:
        self._store, self._report, self._folder, self._lost = store, report, folder, lost
        start, record = store.start, store.record
        self._width = width = Width(start.width)
        self._set = RecoveredSet(store, folder, memory // 2)
        count = start.totals.fingerprints
        if self._set.complete:
            whole = ", with the help of other tables" if len(self._set.united) else ""
            report.actions.append(
                f"recovered {count:,} of {plural(count, 'fingerprint')} of the tables{whole}"
            )
        else:
            report.losses.append(
                f"{count - self._set.count} of {count} fingerprints of the tables, which are not "
                "known"
            )
        path, shape = self._find_file(IDS_FILE, None if record is None else record.ids_file)
        self._ids = IdRecords(path, shape, width.words, store.digest, folder, memory // 8)
        blocks = self._set.block_count
        if blocks is None or len(self._ids) < blocks:
            report.actions.append(
                f"recovered {len(self._ids)}{'' if blocks is None else f' of {blocks}'} id records"
            )
        path, shape = self._find_file(
            STRINGS_FILE, record.dictionary["strings"] if record and record.dictionary else None
        )
        self._strings = StringRecords(path, shape, folder, memory // 8)
        log = self._read_log()
        self._changes = LogChanges(log, width.words, start.first_string)
        self.expected = log[-1].change.totals if log else start.totals  # what the store held
        self.next_row, self.id_kind = self.expected.next_row, self.expected.id_kind
        self._end = (
            self._strings.end
            if self.id_kind == "string"
            else self.next_row
            if self.id_kind == "row"
            else 0
        )
        # whether each number of an id occurs
        self._occurs = np.zeros(self._end, bool) if self._end <= memory // 8 else None
        self.reserved = 0 if self._occurs is None else self._end  # bytes of the budget

    def _find_file(
        self, name: str, shape: dict[str, int] | None
    ) -> tuple[Path | None, dict[str, int] | None]:
        """Return the path and the shape of a file of the generation.

        No path if it is known to belong to another store.
        """
        path = self._store.folder / name
        try:
            digest = seal_digest(path, shape)
        except DAMAGE as error:
            if name == IDS_FILE or shape is not None or path.exists():
                self._report.note(error)
            return path, shape
        if shape is not None and digest != shape["digest"]:
            note_fault(
                self._report,
                path,
                "a file of another store or of another time: nothing was taken from it",
            )
            return None, None
        return path, shape

    def _read_log(self) -> list[Records]:
        store, report = self._store, self._report
        pieces, losses = list[Records](), [LOST_LOG]
        if store.log is not None:
            try:
                pieces, losses = intact_log(
                    store.folder / LOG_FILE, store.log, store.log_end, self._folder
                )
            except DAMAGE as error:
                report.note(error)
        report.losses += losses
        if count := sum(records.last - records.first + 1 for records in pieces):
            report.actions.append(f"applied {plural(count, 'log record')}")
        return pieces

    def rows(self, progress: Progress | None) -> Iterator[Batch]:
        """Yield the rows of the new store, and note losses."""
        changes, done = self._changes, 0
        for values, counts, ids, has_ids in _join_batches(self._set.rows(self._ids)):
            self._note_ids(ids)
            numbers = changes.numbers(values)
            lost_ids, has_more = ~has_ids & ~changes.wiped[numbers], changes.has_more[numbers]
            for kind, which in (("ids", has_more), ("fingerprint", ~has_more)):
                texts = self._width.texts(values[lost_ids & which])
                self._lost.add(kind, texts, [""] * len(texts))
            pairs = np.repeat(np.arange(len(values)), counts.astype(np.int64))
            stays = ~changes.removes(numbers[pairs], ids)
            yield from self._batches(values[pairs[stays]], ids[stays])
            done += len(values)
            if progress is not None:
                progress(PHASE_RECOVER, done, self._set.count)
        self._note_ids(changes.ids)
        yield from self._batches(*changes.added)

    def _note_ids(self, ids: Words) -> None:
        if self._occurs is not None:
            self._occurs[ids[ids < len(self._occurs)]] = True

    def _batches(self, fingerprints: Words, ids: Words) -> Iterator[Batch]:
        step = BATCH_STRINGS if self.id_kind == "string" else BATCH_ROWS
        for start in range(0, len(ids), step):
            rows, numbers = fingerprints[start : start + step], ids[start : start + step]
            yield (
                self._with_strings(rows, numbers)
                if self.id_kind == "string"
                else Batch(rows, numbers)
            )

    def _with_strings(self, fingerprints: Words, numbers: Words) -> Batch:
        logged = self._changes.strings
        names = [
            logged.get(n) or name
            for n, name in zip(numbers.tolist(), self._strings.get_strings(numbers), strict=True)
        ]
        has_name = np.array([name is not None for name in names], bool)
        self._lost.add(
            "name",
            self._width.texts(fingerprints[~has_name]),
            map(str, numbers[~has_name].tolist()),
        )
        return Batch(
            fingerprints[has_name],
            StringColumn.from_strings([name for name in names if name is not None]),
        )

    def list_missing_ids(self) -> None:
        """List the ids that no row has, if fingerprints or ids of unknown rows were lost.

        Ids that were deleted before the last merge are among them: a dictionary keeps their
        strings, and row numbers are not used again.
        """
        if self._set.complete and not (
            self._lost.counts["ids"] or self._lost.counts["fingerprint"]
        ):
            return
        if self._occurs is None:
            self._report.losses.append(
                "which ids are lost: not listed, as that takes 8 bytes of memory "
                f"({keyword('memory')}) for each of {self._end:,}"
            )
            return
        for start in range(0, self._end, BATCH_STRINGS):
            missing = np.flatnonzero(~self._occurs[start : start + BATCH_STRINGS]).astype(
                np.uint64
            ) + np.uint64(start)
            if self.id_kind == "string":
                names = [
                    name.decode() for name in self._strings.get_strings(missing) if name is not None
                ]
            else:
                names = list(map(str, missing.tolist()))
            self._lost.add("id", [""] * len(names), names)

    def close(self) -> None:
        for file in (self._set.united, self._ids, self._strings):
            file.close()


def _join_batches(
    parts: Iterable[IdentifiedRows],
) -> Iterator[tuple[Words, Words, Words, npt.NDArray[np.bool_]]]:
    waiting: list[IdentifiedRows] = []
    rows = 0
    for part in parts:
        waiting.append(part)
        rows += len(part.values) + len(part.ids)
        if rows >= BATCH_ROWS:
            yield _concatenate(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _concatenate(waiting)


def _concatenate(parts: list[IdentifiedRows]) -> tuple[Words, Words, Words, npt.NDArray[np.bool_]]:
    values, counts, ids = (
        np.concatenate(columns) for columns in list(zip(*parts, strict=True))[:3]
    )
    return (
        values,
        counts,
        ids,
        np.repeat([part.has_ids for part in parts], [len(part.values) for part in parts]),
    )
