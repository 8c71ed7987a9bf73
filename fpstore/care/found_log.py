"""The changes of a damaged log: every record that is whole, in order, and which are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Bytes, Words
from fpstore.base.width import comparable, distinct_counts, empty_rows, order_of, words_of
from fpstore.care.evidence import CurrentLog
from fpstore.disk.files import opened, read_at, read_if_possible, write_all
from fpstore.disk.refusals import refusing
from fpstore.errors import CorruptStoreError
from fpstore.format.log import HEADER_BYTES, LogHeader, Records, can_be_id, later_records, whole_records
from fpstore.format.record import ADD, KIND_MASK, WIPE, Change, Totals

NONE = np.empty(0, np.uint64)
COPY_BYTES = 1 << 20
SECTOR_BYTES = 512  # what a disk cannot read is at least that


class FoundRecords:
    """The records of a log that are whole.

    Parameters
    ----------
    log : CurrentLog
        With a header, and a file.
    folder : Path
        For a temporary file.
    words : int
        Of a fingerprint.

    Raises
    ------
    CorruptStoreError
        Its fingerprints are of another width.

    Attributes
    ----------
    pieces : list of Records
        In order.
    missing : list of (int, int)
        The first and the last number of records that are damaged, between others.
    count : int
        How many records there are in all pieces.
    last : int
        The number of the last one.
    tail : str
        What is known of records after the last one: "none", "lost", or "unknown".
    """

    def __init__(self, log: CurrentLog, folder: Path, words: int) -> None:
        assert log.header is not None
        path, header = log.file.path, log.header._replace(width=0)
        with _readable(path, folder) as descriptor:
            self.pieces = list(_found(descriptor, path, header, log.file.end))
        if any(words_of(records.change.fingerprints) != words for records in self.pieces):
            raise CorruptStoreError(f"{path}: the log of a store of another width: nothing was taken from it", path=path)
        self.missing = _gaps(self.pieces)
        self.count = sum(records.last - records.first + 1 for records in self.pieces)
        self.last = self.pieces[-1].last if self.pieces else 0
        end = self.pieces[-1].end if self.pieces else HEADER_BYTES
        if log.file.end is None:
            self.tail = "unknown"
        else:
            self.tail = "lost" if end < log.file.end else "none"

    @property
    def totals(self) -> Totals | None:
        """What the store held after the last record."""
        return self.pieces[-1].change.totals if self.pieces else None

    def losses(self) -> list[str]:
        """Return what is missing, in words."""
        losses = []
        if self.missing:
            numbers = ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in self.missing)
            one = len(self.missing) == 1 and self.missing[0][0] == self.missing[0][1]
            records, it = ("record", "it") if one else ("records", "they")
            losses.append(
                f"log {records} {numbers}: what {it} inserted is missing, what {it} deleted is back; later ones were applied"
            )
        if self.tail != "none":
            perhaps = ", if there were any" if self.tail == "unknown" else ""
            losses.append(f"log records after {self.last}{perhaps}: what they inserted is missing, what they deleted is back")
        return losses


def _found(descriptor: int, path: Path, header: LogHeader, end: int | None) -> Iterator[Records]:
    """Yield all whole records, in order of their numbers.

    Behind the end, if that is known, only those that follow without a gap: the writer may not have come to tell them. Others were
    taken back.
    """
    size = os.fstat(descriptor).st_size
    place, number = HEADER_BYTES, 1
    while True:
        for records in whole_records(descriptor, path, header, place, number, size):
            yield records
            place, number = records.end, records.last + 1
        found = next((found for found in later_records(descriptor, path, header, place) if found[2].first >= number), None)
        if found is None or (end is not None and found[0] >= end):
            return
        record = found[2]
        yield record
        place, number = record.end, record.last + 1


def _gaps(pieces: Sequence[Records]) -> list[tuple[int, int]]:
    gaps, expected = [], 1
    for records in pieces:
        if records.first > expected:
            gaps.append((expected, records.first - 1))
        expected = records.last + 1
    return gaps


@contextmanager
def _readable(path: Path, folder: Path) -> Iterator[int]:
    """Yield a descriptor of a file, or of a copy with zeros where the disk cannot read it."""
    with opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        try:
            for start in range(0, size, COPY_BYTES):
                read_at(descriptor, path, start, min(COPY_BYTES, size - start))
        except CorruptStoreError:
            with _copy(descriptor, path, size, folder) as copied:
                yield copied
        else:
            yield descriptor


@contextmanager
def _copy(descriptor: int, path: Path, size: int, folder: Path) -> Iterator[int]:
    import tempfile  # and with it all that packs and unpacks archives

    with refusing(folder):
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
    with file:
        with refusing(folder):
            file.truncate(size)
            for start in range(0, size, SECTOR_BYTES):
                data = read_if_possible(descriptor, path, start, min(SECTOR_BYTES, size - start))
                write_all(file.fileno(), data, start)
        yield file.fileno()


# --- Changes ----------------------------------------------------------------------------------------


class Changed:
    """What happened to one fingerprint since the tables were written."""

    __slots__ = ("added", "removed", "wiped")

    def __init__(self) -> None:
        self.wiped = False
        self.added: set[int] = set()
        self.removed: set[int] = set()

    def apply(self, kind: int, number: int) -> None:
        """Take up a change."""
        if kind == WIPE:
            self.wiped = True
            self.added.clear()
            self.removed.clear()
        elif kind == ADD:
            self.added.add(number)
            self.removed.discard(number)
        else:
            self.added.discard(number)
            self.removed.add(number)

    def ids(self, before: Sequence[int]) -> list[int]:
        """Return the ids that are left, ascending."""
        kept = set() if self.wiped else set(before) - self.removed
        return sorted(kept | self.added)


class Changes:
    """The changes of all records that were found, in order of the fingerprints: 9 bytes and a fingerprint a row, and the strings.

    After a gap it goes on: the last thing that happened to a pair decides, and what came after the gap is not in doubt. What the
    missing records added is lost, and what they removed comes back.
    """

    def __init__(self, pieces: Sequence[Records], words: int, first_string: int | None) -> None:
        self.strings: dict[int, bytes] = {}
        following, expected = first_string, 1
        for records in pieces:
            if records.first != expected:
                following = None
            expected = records.last + 1
            if records.change.strings:
                following = self._take_strings(records.change, following)
        changes = [records.change for records in pieces]
        values = np.concatenate([empty_rows(0, words), *(change.fingerprints for change in changes)])
        order = order_of(values)
        self._kinds = _kinds(changes)[order]
        self.ids = np.concatenate([NONE, *(change.ids for change in changes)])[order]
        self.touched, counts = distinct_counts(values)
        self._compared = comparable(self.touched)
        self._lims = np.concatenate([[0], np.cumsum(counts)])

    def at(self, place: int) -> Changed:
        """Return what happened to the fingerprint that has this place in ``touched``."""
        rows = slice(int(self._lims[place]), int(self._lims[place + 1]))
        changed = Changed()
        for kind, number in zip(self._kinds[rows].tolist(), self.ids[rows].tolist(), strict=True):
            changed.apply(kind, number)
        return changed

    def places(self, values: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the place that each fingerprint has in ``touched``, and whether it is there."""
        compared = comparable(values)
        places = np.searchsorted(self._compared, compared)
        if not len(self.touched):
            return places, np.zeros(len(values), bool)
        return places, self._compared[np.minimum(places, len(self.touched) - 1)] == compared

    def _take_strings(self, change: Change, first: int | None) -> int | None:
        """Note the strings of a change; the highest number that it adds is that of its last string."""
        last = max((i for i, string in enumerate(change.strings) if string), default=None)
        added = change.ids[change.kinds & np.uint8(KIND_MASK) == ADD]
        if first is None and last is not None and len(added):
            first = int(added.max()) - last
        if first is None:
            return None
        self.strings.update((first + i, string) for i, string in enumerate(change.strings) if string and can_be_id(string))
        return first + len(change.strings)


def _kinds(changes: Sequence[Change]) -> Bytes:
    return np.concatenate([np.empty(0, np.uint8), *(change.kinds & np.uint8(KIND_MASK) for change in changes)])
