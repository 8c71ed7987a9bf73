"""The rows of a repaired store: the rest of tables, ids and strings, changed by the rest of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fpstore.base.aliases import Progress, Words
from fpstore.base.strings import StringColumn
from fpstore.care.damaged_store import DAMAGE, DamagedStore, refuse, seal_digest
from fpstore.care.intact_log import IntactLog, LogChanges
from fpstore.care.intact_records import IdRecords, StringRecords
from fpstore.care.loss_list import LossList
from fpstore.care.recovered_set import IdentifiedRows, RecoveredSet
from fpstore.care.reports import RepairReport
from fpstore.errors import counted
from fpstore.format.log import LOG_FILE, LogHeader
from fpstore.format.mapping import IDS_FILE
from fpstore.format.record import LAST_ROW
from fpstore.format.strings import STRINGS_FILE
from fpstore.io.source import Batch

if TYPE_CHECKING:
    from fpstore.building.builder import Options

PHASE_RECOVER = "recovering"
BATCH_ROWS = 1 << 16
BATCH_STRINGS = 1 << 8
LOST_LOG = "the log: all that was inserted or deleted since the last merge, if anything was"


class RecoveredRows:
    """What is left of the current generation and of its log."""

    def __init__(self, store: DamagedStore, folder: Path, memory: int, report: RepairReport) -> None:
        self._store, self._report, self._folder = store, report, folder
        self._width = width = store.design.width
        self._set = RecoveredSet(store, folder, memory // 2)
        if self._set.complete:
            whole = ", with the help of other tables" if self._set.has_gaps else ""
            report.actions.append(f"recovered {store.count:,} of {counted(store.count, 'fingerprint')} of the tables{whole}")
        else:
            report.losses.append(
                f"{store.count - self._set.count} of {store.count} fingerprints of the tables, which are not known"
            )
        record = None if store.manifest is None else store.manifest.generation
        path = self._ours(IDS_FILE, None if record is None else record.ids_file)
        self._ids = IdRecords(path, width.words, store.digest, folder, memory // 8)
        blocks = self._set.block_count
        if blocks is None or len(self._ids) < blocks:
            report.actions.append(f"recovered {len(self._ids)}{'' if blocks is None else f' of {blocks}'} id records")
        path = self._ours(STRINGS_FILE, None if record is None or record.dictionary is None else record.dictionary["strings"])
        self._strings = StringRecords(path, folder, memory // 8)
        start = store.log if store.manifest is None else LogHeader.of(store.manifest)
        log = self._read_log()
        self._changes = LogChanges([] if log is None else log.pieces, width.words, None if start is None else start.first_string)
        self.expected = None if start is None else start.totals
        if log is not None and log.totals is not None:
            self.expected = log.totals
        if self.expected is None:
            self.next_row, self.id_kind = 0, "string" if len(self._strings) else "integer"
            report.losses.append(f"the kind of ids: taken for {self.id_kind}s")
        else:
            self.next_row, self.id_kind = self.expected.next_row, self.expected.id_kind
        self._end = self._strings.end if self.id_kind == "string" else self.next_row if self.id_kind == "row" else 0
        self._seen = np.zeros(self._end, bool) if self._end <= memory // 8 else None  # which numbers of ids occur
        self.reserved = 0 if self._seen is None else self._end

    def _ours(self, name: str, recorded: dict[str, int] | None) -> Path | None:
        """Return the path of a file of the generation, unless it is known to be that of another store."""
        path = self._store.folder / name
        if recorded is None or seal_digest(path) in (None, recorded["digest"]):
            return path
        refuse(self._report, path, "a file of another store or of another time: nothing was taken from it")
        return None

    def _read_log(self) -> IntactLog | None:
        store, report = self._store, self._report
        if store.log is not None:
            try:
                log = IntactLog(store.folder / LOG_FILE, store.log, store.log_end, self._folder)
            except DAMAGE as error:
                report.note(error)
            else:
                report.losses += log.losses
                if log.count:
                    report.actions.append(f"applied {counted(log.count, 'log record')}")
                return log
        report.losses.append(LOST_LOG)
        return None

    def rows(self, options: Options, lost: LossList, progress: Progress | None) -> Iterator[Batch]:
        """Yield the rows of the new store, and note losses; a next row number that is lost too follows from the ids."""
        self._lost = lost
        changes = self._changes
        done = highest = 0
        for values, counts, ids, known in _together(self._set.rows(self._ids)):
            self._note_seen(ids)
            highest = max(highest, int(ids.max(initial=0)))
            known_as = changes.numbers(values)
            lost_ids, has_more = ~known & ~changes.wiped[known_as], changes.has_more[known_as]
            for kind, which in (("ids", has_more), ("fingerprint", ~has_more)):
                lost.add_all((kind, text, "") for text in self._width.texts(values[lost_ids & which]))
            pairs = np.repeat(np.arange(len(values)), counts.astype(np.int64))
            kept = ~changes.removes(known_as[pairs], ids)
            yield from self._batches(values[pairs[kept]], ids[kept])
            done += len(values)
            if progress is not None:
                progress(PHASE_RECOVER, done, self._set.count)
        self._note_seen(changes.ids)
        yield from self._batches(*changes.added)
        if self.id_kind == "row" and self.expected is None:
            options.rows = min(max(highest, int(changes.ids.max(initial=0))) + 1, LAST_ROW)

    def _note_seen(self, ids: Words) -> None:
        if self._seen is not None:
            self._seen[ids[ids < len(self._seen)]] = True

    def _batches(self, fingerprints: Words, ids: Words) -> Iterator[Batch]:
        step = BATCH_STRINGS if self.id_kind == "string" else BATCH_ROWS
        for start in range(0, len(ids), step):
            rows, numbers = fingerprints[start : start + step], ids[start : start + step]
            yield self._named(rows, numbers) if self.id_kind == "string" else Batch(rows, numbers)

    def _named(self, fingerprints: Words, numbers: Words) -> Batch:
        """Return rows with the strings of their ids, as far as these are left."""
        logged = self._changes.strings
        names = [logged.get(n) or name for n, name in zip(numbers.tolist(), self._strings.get(numbers), strict=True)]
        has_name = np.array([name is not None for name in names], bool)
        texts = self._width.texts(fingerprints[~has_name])
        self._lost.add_all(("name", text, str(n)) for text, n in zip(texts, numbers[~has_name].tolist(), strict=True))
        return Batch(fingerprints[has_name], StringColumn.of([name for name in names if name is not None]))

    def list_unseen(self) -> None:
        """Add the ids that nothing has now, where some were lost whose fingerprints are not known, or the other way round.

        Those deleted before the last merge are among them: a dictionary keeps their strings, and row numbers are not used again.
        """
        if self._set.complete and not any(kind != "name" for kind in self._lost.counts):
            return
        if self._seen is None:
            self._report.losses.append(
                f"which ids are lost: not listed, as that takes 8 bytes of memory (memory=, --memory) for each of {self._end:,}"
            )
            return
        for start in range(0, self._end, BATCH_STRINGS):
            unseen = np.flatnonzero(~self._seen[start : start + BATCH_STRINGS]).astype(np.uint64) + np.uint64(start)
            if self.id_kind == "row":
                self._lost.add_all(("id", "", str(number)) for number in unseen.tolist())
            else:
                self._lost.add_all(("id", "", name.decode()) for name in self._strings.get(unseen) if name is not None)

    def close(self) -> None:
        """Give files back."""
        self._ids.close()
        self._strings.close()


def _together(parts: Iterable[IdentifiedRows]) -> Iterator[tuple[Words, Words, Words, np.ndarray]]:
    """Put parts together: yield fingerprints, how many ids each has, the ids, and for which fingerprints they are known."""
    waiting: list[IdentifiedRows] = []
    rows = 0
    for part in parts:
        waiting.append(part)
        rows += len(part.values) + len(part.ids)
        if rows >= BATCH_ROWS:
            yield _joined(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[IdentifiedRows]) -> tuple[Words, Words, Words, np.ndarray]:
    values, counts, ids = (np.concatenate(columns) for columns in list(zip(*parts, strict=True))[:3])
    return values, counts, ids, np.repeat([part.known for part in parts], [len(part.values) for part in parts])
