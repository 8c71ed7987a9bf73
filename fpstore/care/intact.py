"""The intact records of damaged files: ids and strings in LMDB files, and changes in a log.

LMDB files are read page by page, without LMDB. Each record has a checksum of its own, so it does
not matter on which page it is.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import NO_WORDS
from fpstore.base.threads import cached_property
from fpstore.base.width import (
    WORD_BITS,
    Width,
    empty_rows,
    number_to_row,
    rows_to_numbers,
    to_comparable,
)
from fpstore.building.columns import Column
from fpstore.building.external_sort import Sorter
from fpstore.disk.files import data_ranges, open_descriptor, open_file, read_if_possible, write_all
from fpstore.disk.refusals import translate_refusals
from fpstore.disk.sealed import Item, salvaged_items
from fpstore.errors import CorruptStoreError, StoreNotFoundError
from fpstore.format.log import HEADER_BYTES, LogFile, LogHeader, Records, is_valid_id
from fpstore.format.mapping import record_seed, unpack_record
from fpstore.format.record import ADD, KIND_MASK, WIPE, Change
from fpstore.format.strings import LAYOUT_KEYS, RecordReader, parse_layout, verify_value

PAGE_BYTES = 4096  # what the page cache reads at least
BATCH_RECORDS = 1 << 12


class RowFile:
    """Rows of words in a file without a name, outside of the memory budget.

    Append them all, then read and search them.
    """

    def __init__(self, folder: Path, words: int = 1) -> None:
        self._column, self._words = Column(folder), words

    def append(self, rows: Words) -> None:
        """Add rows at the end; for a search they have to ascend."""
        self._column.append(to_comparable(rows))

    def __len__(self) -> int:
        return self._column.rows

    @cached_property
    def _mapped_rows(self) -> npt.NDArray[Any]:
        return self._column.map() if len(self) else to_comparable(empty_rows(0, self._words))

    def read(self, start: int, end: int) -> Words:
        """Return the rows from ``start`` to before ``end``."""
        part = np.array(self._mapped_rows[start:end])
        return (
            part
            if self._words == 1
            else part.view(">u8").astype(np.uint64).reshape(-1, self._words)
        )

    def take(self, places: npt.NDArray[np.integer]) -> Words:
        return np.array(self._mapped_rows[places])

    def places(self, rows: Words, inclusive: bool = False) -> npt.NDArray[np.intp]:
        """Return how many rows are less than each of ``rows``; with ``inclusive``, not greater."""
        places: npt.NDArray[np.intp] = np.searchsorted(
            self._mapped_rows, to_comparable(rows), "right" if inclusive else "left"
        )
        return places

    def rank(self, number: int, inclusive: bool = False) -> int:
        """Return :meth:`places` of the row of a number."""
        return int(self.places(number_to_row(number, self._words), inclusive)[0])

    def find(self, rows: Words) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Return the place of each row, and whether it is there."""
        places = self.places(rows)
        return places, self.places(rows, inclusive=True) > places

    def close(self) -> None:
        self.__dict__.pop("_mapped_rows", None)
        self._column.close()


class IntactRecords(ABC):
    """The intact records of an LMDB file, by number, in the order of their ``keys``.

    Without a path there are none. ``shape`` describes the file in the manifest, if that is left;
    ``words`` is the number of words of a key.
    """

    def __init__(
        self, path: Path | None, shape: dict[str, int] | None, words: int, folder: Path, memory: int
    ) -> None:
        self._path = path or Path()
        self._longest = None if shape is None else shape["largest"]
        self._width = Width(WORD_BITS * words)
        self.keys, self._places = RowFile(folder, words), RowFile(folder)
        self._descriptor = -1
        if path is not None:
            with suppress(StoreNotFoundError, CorruptStoreError):
                self._descriptor = open_file(path)
        if self._descriptor >= 0:
            self._find(folder, memory)

    @abstractmethod
    def _is_intact(self, key: int, value: bytes) -> bool:
        """Whether a record can be the one that was written."""

    def _find(self, folder: Path, memory: int) -> None:
        """Sort the records by key; of copies on unused pages, the first counts."""
        places = RowFile(folder)  # the start and the size of each record
        sorter = Sorter(memory, folder, words=self._width.words)
        records = self._intact_items()
        for batch in iter(lambda: list(islice(records, BATCH_RECORDS)), []):
            sorter.add(self._width.rows(int.from_bytes(item.key, "big") for item in batch), None)
            places.append(
                np.array([(item.start, item.size) for item in batch], np.uint64).reshape(-1)
            )
        for group in sorter.groups(lambda rows: None):
            self.keys.append(group.keys)
            firsts = group.ids[np.cumsum(group.counts) - group.counts].astype(np.intp)
            self._places.append(places.take(np.add.outer(2 * firsts, [0, 1])).reshape(-1))
        places.close()

    def _intact_items(self) -> Iterator[Item]:
        for item in salvaged_items(self._path, self._descriptor, self._width.bytes, self._longest):
            value = read_if_possible(self._descriptor, self._path, item.start, item.size)
            if self._is_intact(int.from_bytes(item.key, "big"), value):
                yield item

    def __len__(self) -> int:
        return len(self.keys)

    def values(self, numbers: npt.NDArray[np.integer]) -> Iterator[bytes]:
        """Yield the values of records, read again."""
        for start, size in self._places.take(np.add.outer(2 * numbers, [0, 1])).tolist():
            yield read_if_possible(self._descriptor, self._path, start, size)

    def get(self, keys: Words) -> Iterator[bytes | None]:
        """Yield the value of each key, or None if there is none."""
        numbers, exists = self.keys.find(keys)
        values = self.values(numbers[exists])
        return (next(values) if has_value else None for has_value in exists.tolist())

    def close(self) -> None:
        self.keys.close()
        self._places.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class IdRecords(IntactRecords):
    """The intact records of ``ids.mdb``: the key of each is the last fingerprint of its block."""

    def __init__(
        self,
        path: Path | None,
        shape: dict[str, int] | None,
        words: int,
        set_digest: int,
        folder: Path,
        memory: int,
    ) -> None:
        self._digest = set_digest
        super().__init__(path, shape, words, folder, memory)

    def _is_intact(self, key: int, value: bytes) -> bool:
        return self._unpack(key, value) is not None

    def _unpack(self, key: int, value: bytes) -> tuple[Words, Words] | None:
        try:
            return unpack_record(value, record_seed(self._digest, key), printable(self._path))
        except CorruptStoreError:
            return None

    def ids(self, number: int) -> tuple[Words, Words] | None:
        """Return (ids per fingerprint, ids) of a record, or None if it cannot be read again."""
        (value,) = self.values(np.array([number]))
        return self._unpack(rows_to_numbers(self.keys.read(number, number + 1))[0], value)


class StringRecords(IntactRecords):
    """The intact records of ``strings.mdb``; ``end`` is above the numbers of all their strings."""

    def __init__(
        self, path: Path | None, shape: dict[str, int] | None, folder: Path, memory: int
    ) -> None:
        super().__init__(path, shape, 1, folder, memory)
        layout = parse_layout(self.get(np.array(LAYOUT_KEYS, np.uint64)))
        self._reader = None if layout is None else RecordReader(layout)
        self._per_record = 1 if layout is None else layout.per_record
        records = self.keys.rank(LAYOUT_KEYS[0]) if layout is not None else 0
        self.end = (
            (int(self.keys.read(records - 1, records)[0]) + 1) * self._per_record if records else 0
        )

    def _is_intact(self, key: int, value: bytes) -> bool:
        return verify_value(key, value) is not None

    def get_strings(self, numbers: Words) -> list[bytes | None]:
        """Return the strings of numbers; None for each that is lost."""
        if self._reader is None:
            return [None] * len(numbers)
        records, which = np.unique(numbers // np.uint64(self._per_record), return_inverse=True)
        strings = [
            [] if value is None else self._reader.strings(record, value) or []
            for record, value in zip(records.tolist(), self.get(records), strict=True)
        ]
        ranks = numbers % np.uint64(self._per_record)
        pairs = zip(which.tolist(), ranks.tolist(), strict=True)
        return [(strings[i][rank] or None) if rank < len(strings[i]) else None for i, rank in pairs]


# The log


def intact_log(
    path: Path, header: LogHeader, end: int | None, folder: Path
) -> tuple[list[Records], list[str]]:
    """Return the whole records of a log, in order, and sentences on the missing ones.

    ``end`` is where the log ends, if that is known; a temporary file goes to the folder.
    """
    with _readable_copy(path, folder) as descriptor:
        log = LogFile(descriptor, path, header)
        pieces = [records for records in _whole_records(log, end) if log.fits_width(records)]
    expected, missing, losses = 1, list[str](), list[str]()
    for records in pieces:
        if records.first > expected:
            last = records.first - 1
            missing.append(f"{expected} to {last}" if last > expected else f"{expected}")
        expected = records.last + 1
    if missing:
        noun, it = (
            ("record", "it") if len(missing) == 1 and missing[0].isdigit() else ("records", "they")
        )
        effect = f"what {it} inserted is missing, what {it} deleted is back"
        losses.append(f"log {noun} {', '.join(missing)}: {effect}; later ones were applied")
    if end is None or end > (pieces[-1].end if pieces else HEADER_BYTES):
        perhaps = ", if there were any" if end is None else ""
        losses.append(
            f"log records after {expected - 1}{perhaps}: what they inserted is missing, what they "
            "deleted is back"
        )
    return pieces, losses


def _whole_records(log: LogFile, end: int | None) -> Iterator[Records]:
    """Yield all whole records, in order of their numbers.

    Behind the end, only records that follow without a gap count: the writer may have died before it
    published them. Other records there were taken back.
    """
    size = os.fstat(log.descriptor).st_size
    place, number = HEADER_BYTES, 1
    while True:
        for records in log.whole_records(place, number, size):
            yield records
            place, number = records.end, records.last + 1
        start, _, later = next(
            (piece for piece in log.later_records(place) if piece[2].first >= number),
            (0, 0, None),
        )
        if later is None or (end is not None and start >= end):
            return
        yield later
        place, number = later.end, later.last + 1


@contextmanager
def _readable_copy(path: Path, folder: Path) -> Iterator[int]:
    """Yield a descriptor of a copy of a file, with zeros where the disk cannot read it."""
    with (
        open_descriptor(path) as descriptor,
        translate_refusals(folder),
        (folder / "log").open("w+b", buffering=0) as copy,
    ):
        for first, end in data_ranges(descriptor, os.fstat(descriptor).st_size):
            for start in range(first - first % PAGE_BYTES, end, PAGE_BYTES):
                write_all(
                    copy.fileno(), read_if_possible(descriptor, path, start, PAGE_BYTES), start
                )
        yield copy.fileno()


class LogChanges:
    """The changes of the records of a log, row by row.

    The last change of a pair decides, also after a gap. Pairs that the missing records added are
    lost, and pairs that they removed come back.
    """

    def __init__(self, pieces: Sequence[Records], words: int, first_string: int | None) -> None:
        self.strings: dict[int, bytes] = {}
        next_string, expected = first_string, 1
        for records in pieces:
            next_string = self._take_strings(
                records.change, next_string if records.first == expected else None
            )
            expected = records.last + 1
        changes = [records.change for records in pieces]
        fingerprints = np.concatenate(
            [empty_rows(0, words), *(change.fingerprints for change in changes)]
        )
        kinds = np.concatenate(
            [np.empty(0, np.uint8), *(change.kinds & np.uint8(KIND_MASK) for change in changes)]
        )
        self.ids = np.concatenate([NO_WORDS, *(change.ids for change in changes)])
        self._touched, which = np.unique(to_comparable(fingerprints), return_inverse=True)
        wipes = np.flatnonzero(kinds == WIPE)
        wiped = np.full(len(self._touched), -1)
        np.maximum.at(wiped, which[wipes], wipes)
        pairs = np.flatnonzero(kinds != WIPE)
        pairs = pairs[np.lexsort((pairs, self.ids[pairs], which[pairs]))]
        last = np.ones(len(pairs), bool)  # whether a change of a pair is its last
        last[:-1] = (np.diff(which[pairs]) != 0) | (np.diff(self.ids[pairs]) != 0)
        pairs = pairs[last]
        self._pairs = _pairs(which[pairs], self.ids[pairs])
        added = pairs[(kinds[pairs] == ADD) & (pairs > wiped[which[pairs]])]
        self.added = fingerprints[added], self.ids[added]
        # By the number of a fingerprint; fingerprints that do not occur have the last number.
        self.wiped = np.append(wiped >= 0, False)
        self.has_more = np.zeros(len(self._touched) + 1, bool)
        self.has_more[which[added]] = True

    def _take_strings(self, change: Change, first: int | None) -> int | None:
        """Note the strings of a change; its last string has the highest number."""
        last = max((i for i, string in enumerate(change.strings) if string), default=None)
        added = change.ids[change.kinds & np.uint8(KIND_MASK) == ADD]
        if first is None and last is not None and len(added):
            first = int(added.max()) - last
        if first is None:
            return None
        self.strings.update(
            (first + i, string)
            for i, string in enumerate(change.strings)
            if string and is_valid_id(string)
        )
        return first + len(change.strings)

    def numbers(self, values: Words) -> npt.NDArray[np.intp]:
        """Return the numbers of fingerprints; all that do not occur have the number after."""
        if not len(self._touched):
            return np.zeros(len(values), np.intp)
        compared = to_comparable(values)
        places = np.minimum(np.searchsorted(self._touched, compared), len(self._touched) - 1)
        return np.where(self._touched[places] == compared, places, len(self._touched))

    def removes(self, numbers: npt.NDArray[np.intp], ids: Words) -> npt.NDArray[np.bool_]:
        """Return which pairs of the tables, by number, are gone or were added again."""
        gone: npt.NDArray[np.bool_] = self.wiped[numbers]
        if not len(self._pairs):
            return gone
        touched = np.flatnonzero(numbers < len(self._touched))
        wanted = _pairs(numbers[touched], ids[touched])
        at = np.minimum(np.searchsorted(self._pairs, wanted), len(self._pairs) - 1)
        gone[touched] |= self._pairs[at] == wanted
        return gone


def _pairs(places: npt.NDArray[np.intp], ids: Words) -> npt.NDArray[Any]:
    return to_comparable(np.column_stack([places.astype(np.uint64), ids]))
