"""The changes of a damaged log: every record that is whole, in order, and which are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.width import comparable, empty_rows
from fpstore.disk.files import data_ranges, opened, read_if_possible, write_all
from fpstore.disk.refusals import refusing
from fpstore.format.log import HEADER_BYTES, LogFile, LogHeader, Records, can_be_id
from fpstore.format.record import ADD, KIND_MASK, WIPE, Change

NONE = np.empty(0, np.uint64)
PAGE_BYTES = 4096  # what the page cache reads at least


class IntactLog:
    """The whole records of a log: ``pieces`` in order, their ``count``, and the missing parts in words (``losses``).

    ``end`` is where the log ends, if that is known; a temporary file goes to the folder.
    """

    def __init__(self, path: Path, header: LogHeader, end: int | None, folder: Path) -> None:
        with _readable(path, folder) as descriptor:
            self.pieces = list(_found(LogFile(descriptor, path, header), end))
        self.count = sum(records.last - records.first + 1 for records in self.pieces)
        self.losses: list[str] = []
        expected, missing = 1, []
        for records in self.pieces:
            if records.first > expected:
                last = records.first - 1
                missing.append(f"{expected} to {last}" if last > expected else f"{expected}")
            expected = records.last + 1
        if missing:
            one = len(missing) == 1 and missing[0].isdigit()
            what, it = ("record", "it") if one else ("records", "they")
            then = f"what {it} inserted is missing, what {it} deleted is back"
            self.losses.append(f"log {what} {', '.join(missing)}: {then}; later ones were applied")
        if end is None or end > (self.pieces[-1].end if self.pieces else HEADER_BYTES):
            perhaps = ", if there were any" if end is None else ""
            self.losses.append(
                f"log records after {expected - 1}{perhaps}: what they inserted is missing, what they deleted is back"
            )


def _found(log: LogFile, end: int | None) -> Iterator[Records]:
    """Yield all whole records, in order of their numbers.

    Behind the end, only those that follow without a gap: the writer may not have come to tell them. Others were taken back.
    """
    size = os.fstat(log.descriptor).st_size
    place, number = HEADER_BYTES, 1
    while True:
        for records in log.whole_records(place, number, size):
            yield records
            place, number = records.end, records.last + 1
        found = next((found for found in log.later_records(place) if found[2].first >= number), None)
        if found is None or (end is not None and found[0] >= end):
            return
        yield found[2]
        place, number = found[2].end, found[2].last + 1


@contextmanager
def _readable(path: Path, folder: Path) -> Iterator[int]:
    """Yield a descriptor of a copy of a file, with zeros where the disk cannot read it."""
    with opened(path) as descriptor, refusing(folder), (folder / "log").open("w+b", buffering=0) as copy:
        for first, end in data_ranges(descriptor, os.fstat(descriptor).st_size):
            for start in range(first - first % PAGE_BYTES, end, PAGE_BYTES):
                write_all(copy.fileno(), read_if_possible(descriptor, path, start, PAGE_BYTES), start)
        yield copy.fileno()


class LogChanges:
    """What the records of a log change, row by row.

    After a gap it goes on: the last thing that happened to a pair decides, and what came after the gap is not in doubt. What the
    missing records added is lost, and what they removed comes back.
    """

    def __init__(self, pieces: Sequence[Records], words: int, first_string: int | None) -> None:
        self.strings: dict[int, bytes] = {}
        following, expected = first_string, 1
        for records in pieces:
            following = self._take_strings(records.change, following if records.first == expected else None)
            expected = records.last + 1
        changes = [records.change for records in pieces]
        fingerprints = np.concatenate([empty_rows(0, words), *(change.fingerprints for change in changes)])
        kinds = np.concatenate([np.empty(0, np.uint8), *(change.kinds & np.uint8(KIND_MASK) for change in changes)])
        self.ids = np.concatenate([NONE, *(change.ids for change in changes)])
        self._touched, which = np.unique(comparable(fingerprints), return_inverse=True)
        wipes = np.flatnonzero(kinds == WIPE)
        wiped = np.full(len(self._touched), -1)
        np.maximum.at(wiped, which[wipes], wipes)
        pairs = np.flatnonzero(kinds != WIPE)
        pairs = pairs[np.lexsort((pairs, self.ids[pairs], which[pairs]))]
        last = np.ones(len(pairs), bool)  # of several changes of a pair
        last[:-1] = (np.diff(which[pairs]) != 0) | (np.diff(self.ids[pairs]) != 0)
        pairs = pairs[last]
        self._pairs = _pairs(which[pairs], self.ids[pairs])
        kept = pairs[(kinds[pairs] == ADD) & (pairs > wiped[which[pairs]])]
        self.added = fingerprints[kept], self.ids[kept]
        # By the number of a fingerprint; one that does not occur has the number of the last, which has no fingerprint.
        self.wiped, self.has_more = np.append(wiped >= 0, False), np.zeros(len(self._touched) + 1, bool)
        self.has_more[which[kept]] = True

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

    def numbers(self, values: Words) -> npt.NDArray[np.intp]:
        """Return by which number each of some fingerprints is known here."""
        if not len(self._touched):
            return np.zeros(len(values), np.intp)
        compared = comparable(values)
        places = np.minimum(np.searchsorted(self._touched, compared), len(self._touched) - 1)
        return np.where(self._touched[places] == compared, places, len(self._touched))

    def removes(self, numbers: npt.NDArray[np.intp], ids: Words) -> npt.NDArray[np.bool_]:
        """Return which pairs of the tables are gone, or were added again; the fingerprints by number."""
        gone: npt.NDArray[np.bool_] = self.wiped[numbers]
        if not len(self._pairs):
            return gone
        some = np.flatnonzero(numbers < len(self._touched))
        wanted = _pairs(numbers[some], ids[some])
        at = np.minimum(np.searchsorted(self._pairs, wanted), len(self._pairs) - 1)
        gone[some] |= self._pairs[at] == wanted
        return gone


def _pairs(places: npt.NDArray[np.intp], ids: Words) -> npt.NDArray[Any]:
    return comparable(np.column_stack([places.astype(np.uint64), ids]))
