"""What a repaired store holds: what is left of the tables, ids and strings, changed by what is left of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Progress, Words
from fpstore.base.strings import StringColumn
from fpstore.base.width import WORD_BITS, Width, rows_to_numbers
from fpstore.care.evidence import DAMAGE, Evidence, Told, seal_digest
from fpstore.care.found_log import Changes, FoundRecords
from fpstore.care.found_places import Unit
from fpstore.care.found_set import FoundSet
from fpstore.care.found_settings import Settings
from fpstore.care.lost_file import LostFile
from fpstore.care.salvage import IdRecords, SalvagedStrings
from fpstore.errors import CorruptStoreError, counted
from fpstore.format.id_map import IDS_FILE
from fpstore.format.log import LogHeader
from fpstore.format.record import LAST_ROW, Totals
from fpstore.format.strings import STRINGS_FILE
from fpstore.io.source import Batch

if TYPE_CHECKING:
    from fpstore.building.builder import Options

PHASE_RECOVER = "recovering"
BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 22  # of strings
PIECE_NUMBERS = 1 << 16
MOST_UNUSED = 16  # row numbers for each that is in use, of which those that are lost are listed
NUMBERS_SHARE = 4  # of the budget, for a byte per number
LOST_LOG = "the log: all that was inserted or deleted since the last merge, if anything was"


class FoundContent:
    """What is left of the current generation and of its log.

    Parameters
    ----------
    evidence : Evidence
    settings : Settings
    target : Path
        The new store: temporary files go beside it.
    memory : int
        Budget in bytes.
    told : Told

    Attributes
    ----------
    id_kind : str
    next_row : int
        The id of the next row that comes without one.
    expected : Totals or None
        What the store held, if that is known.
    """

    def __init__(self, evidence: Evidence, settings: Settings, target: Path, memory: int, told: Told) -> None:
        self._evidence, self._told, self._memory = evidence, told, memory
        self._width = settings.width
        self._stack = ExitStack()
        try:
            self._find_tables(settings, target)
            self._find_ids(settings, target)
            self._find_changes(target.parent)
        except BaseException:
            self.close()
            raise

    @property
    def memory(self) -> int:
        """Bytes that this takes."""
        return self._set.memory + self._ids.memory + self._strings.memory

    @property
    def has_all_fingerprints(self) -> bool:
        """Whether the fingerprints of the tables are all there."""
        return self._set.complete

    def close(self) -> None:
        """Give memory and temporary files back."""
        self._stack.close()

    def _find_tables(self, settings: Settings, target: Path) -> None:
        count, told = settings.count, self._told
        self._set = FoundSet(settings.tables, count, settings.digest, self._width, target, self._memory)
        self._stack.callback(self._set.close)
        if self._set.complete:
            whole = "" if not self._set.has_gaps else ", with the help of other tables"
            told.actions.append(f"recovered {count:,} of {counted(count, 'fingerprint')} of the tables{whole}")
        else:
            told.losses.append(f"{count - self._set.count} of {count} fingerprints of the tables, which are not known")

    def _find_ids(self, settings: Settings, target: Path) -> None:
        manifest, log, room = self._evidence.manifest, self._evidence.log, self._memory // 8
        record = None if manifest is None else manifest.generation
        path = self._ours(IDS_FILE, None if record is None else record.ids_file)
        self._ids = IdRecords(path, settings.digest, self._width.words, target, room)
        self._stack.callback(self._ids.close)
        blocks = self._set.block_count
        if blocks is None or len(self._ids) < blocks:
            self._told.actions.append(f"recovered {len(self._ids)}{'' if blocks is None else f' of {blocks}'} id records")
        self._start = log.header if log.sure else None
        if manifest is not None:
            self._start = LogHeader.of(manifest)
        path = self._ours(STRINGS_FILE, None if record is None or record.dictionary is None else record.dictionary["strings"])
        first_free = None if self._start is None else self._start.first_string
        self._strings = SalvagedStrings(path, first_free, target.parent, room)
        self._stack.callback(self._strings.close)

    def _ours(self, name: str, recorded: dict[str, int] | None) -> Path | None:
        """Return the path of a file of the generation, unless it is known to be that of another store."""
        path = self._evidence.generation.folder / name
        if recorded is None or seal_digest(path) in (None, recorded["digest"]):
            return path
        self._told.note(
            CorruptStoreError(f"{path}: a file of another store or of another time: nothing was taken from it", path=path)
        )
        return None

    def _find_changes(self, folder: Path) -> None:
        """Read the log, and find out how much there was in the end."""
        told, log, start = self._told, self._evidence.log, self._start
        records: FoundRecords | None = None
        if log.header is not None and log.file.is_there:
            try:
                records = FoundRecords(log, folder, self._width.words)
            except DAMAGE as error:
                told.note(error)
        if records is None:
            told.losses.append(LOST_LOG)
        else:
            told.losses += records.losses()
            if records.count:
                told.actions.append(f"applied {counted(records.count, 'log record')}")
        pieces = [] if records is None else records.pieces
        self._changes = Changes(pieces, self._width.words, None if start is None else start.first_string)
        self.expected: Totals | None = None if start is None else start.totals
        if records is not None and records.totals is not None:
            self.expected = records.totals
        self.next_row = 0 if self.expected is None else self.expected.next_row
        self.id_kind = self._kind_of_old() if self.expected is None else self.expected.id_kind

    def _kind_of_old(self) -> str:
        """Return the kind of ids when nothing says it."""
        kind = "string" if self._strings.records else "integer"
        self._told.losses.append(f"the kind of ids: taken for {kind}s")
        return kind

    def rows(self, options: Options, lost: LostFile, progress: Progress | None) -> Iterator[Part]:
        """Yield what the new store holds, and note what is lost; a next row number that is lost too is made out."""
        self._lost = lost
        done = 0
        left = np.ones(len(self._changes.touched), bool)
        for unit in self._set.units(self._ids):
            if self.id_kind == "row" and self.expected is None and len(unit.ids):
                options.rows = max(options.rows, min(int(unit.ids.max()) + 1, LAST_ROW))
            yield from self._changed(unit, left)
            done += len(unit.values)
            if progress is not None:
                progress(PHASE_RECOVER, done, self._set.expected)
        for place in np.flatnonzero(left).tolist():
            value = rows_to_numbers(self._changes.touched[place : place + 1])
            yield from self._part(value, [self._changes.at(place).ids([])])

    def _changed(self, unit: Unit, left: npt.NDArray[np.bool_]) -> Iterator[Part]:
        places, touched = self._changes.places(unit.values)
        if unit.known and self.id_kind != "string" and not touched.any():
            yield Part(np.repeat(unit.values, unit.counts.astype(np.int64), axis=0), unit.ids)
            return
        ends = np.cumsum(unit.counts).tolist()
        values, ids = rows_to_numbers(unit.values), unit.ids.tolist()
        kept = []
        for i, value in enumerate(values):
            numbers = ids[ends[i - 1] if i else 0 : ends[i]]
            changed = self._changes.at(places[i]) if touched[i] else None
            if changed is not None:
                left[places[i]] = False
                numbers = changed.ids(numbers)
            if not unit.known and not (changed is not None and changed.wiped):
                self._lost.add("ids" if numbers else "fingerprint", self._text(value), "")
            kept.append(numbers)
        yield from self._part(values, kept)

    def _part(self, values: list[int], ids: list[list[int]]) -> Iterator[Part]:
        fingerprints: list[int] = []
        numbers: list[int] = []
        names: list[str] = []
        room = BATCH_BYTES
        for value, own in zip(values, ids, strict=True):
            found = 0
            for number in own:
                if self.id_kind == "string":
                    name = self._changes.strings.get(number) or self._strings.get(number)
                    if name is None:
                        self._lost.add("name", self._text(value), f"{number}")
                        continue
                    names.append(name.decode())
                    room -= len(name)
                numbers.append(number)
                fingerprints.append(value)
                found += 1
                if room < 0:
                    yield self._rows_of(fingerprints, numbers, names)
                    fingerprints, numbers, names, room = [], [], [], BATCH_BYTES
            if own and not found:
                self._lost.add("fingerprint", self._text(value), "")
        if fingerprints:
            yield self._rows_of(fingerprints, numbers, names)

    def _rows_of(self, fingerprints: list[int], numbers: list[int], names: list[str]) -> Part:
        rows = Width(WORD_BITS * self._width.words).rows(fingerprints)
        return Part(rows, names if self.id_kind == "string" else np.array(numbers, np.uint64))

    def _text(self, value: int) -> str:
        """Return a fingerprint, given as the kernel knows it, as users know it."""
        return self._width.text(self._width.outer(value))

    def note_unseen(self) -> None:
        """Add the ids that nothing has now, where some were lost whose fingerprints are not known, or the other way round.

        Those deleted before the last merge are among them: a dictionary keeps their strings, and row numbers are not used again.
        All numbers are gone through in parts of which each takes a byte a number, and a pass over the ids.
        """
        totals = None if self._start is None else self._start.totals
        if self.id_kind == "row" and totals is not None and totals.next_row > MOST_UNUSED * (totals.ids + PIECE_NUMBERS):
            self._told.losses.append(
                f"which ids are lost: not listed, as few of the {totals.next_row} row numbers were ever in use"
            )
            return
        ends = {"string": self._strings.end, "row": 0 if totals is None else totals.next_row}
        end, step = ends.get(self.id_kind, 0), self._memory // NUMBERS_SHARE
        for low in range(0, end, step):
            unseen = np.ones(min(step, end - low), bool)
            for ids in self._ids_in_use():
                unseen[(ids[(ids >= low) & (ids < low + len(unseen))] - np.uint64(low)).astype(np.int64)] = False
            for start in range(0, len(unseen), PIECE_NUMBERS):
                part = unseen[start : start + PIECE_NUMBERS]
                first = low + start
                if self.id_kind == "string":
                    known = self._strings.among(first, first + len(part))
                    part = part[: len(known)] & known
                for number in (np.flatnonzero(part) + first).tolist():
                    self._lost.add(
                        "id", "", (self._strings.get(number) or b"").decode() if self.id_kind == "string" else str(number)
                    )

    def _ids_in_use(self) -> Iterator[Words]:
        """Yield the ids of the tables and those of changes, in pieces."""
        for unit in self._set.units(self._ids):
            yield unit.ids
        for place in range(len(self._changes.touched)):
            changed = self._changes.at(place)
            yield np.array(sorted(changed.added | changed.removed), np.uint64)


class Part(NamedTuple):
    """Rows for the builder."""

    fingerprints: Words
    ids: Words | list[str]

    def share(self) -> float:
        """Return how much of a batch this fills."""
        strings = sum(map(len, self.ids)) if isinstance(self.ids, list) else 0
        return max(len(self.fingerprints) / BATCH_ROWS, strings / BATCH_BYTES)


def batches(parts: Iterator[Part]) -> Iterator[Batch]:
    """Put small parts together."""
    waiting: list[Part] = []
    filled = 0.0
    for part in parts:
        waiting.append(part)
        filled += part.share()
        if filled >= 1:
            yield _joined(waiting)
            waiting, filled = [], 0.0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Part]) -> Batch:
    fingerprints = np.concatenate([part.fingerprints for part in parts])
    if isinstance(parts[0].ids, list):
        return Batch(fingerprints, StringColumn.of([name for part in parts for name in part.ids]))
    return Batch(fingerprints, np.concatenate([part.ids for part in parts]))
