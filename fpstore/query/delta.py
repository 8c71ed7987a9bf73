"""The delta: what was inserted and deleted since the current generation was made, as log records and in memory.

A writer appends a record to the journal for each change; every process keeps what the records say in a `_kernel.Delta`, where
probes look it up (docs/format.md, "Journal"; docs/design.md, "The delta").
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from fpstore import _kernel
from fpstore.errors import CorruptStoreError, StorageError

Words = npt.NDArray[np.uint64]
Kinds = npt.NDArray[np.uint8]

ADD, REMOVE, WIPE = range(3)
ID_KINDS = ("row", "integer", "string")
MAGIC = b"FPCHANGE"
# magic, checksum, then what the checksum covers: number, fingerprints and ids afterwards, next row, rows, names, kind of ids
_HEADER = struct.Struct("<8sQQQQQIIII")
_LENGTH = struct.Struct("<I")
_CHECKED_FROM = 16
LAST_ROW = 2**64 - 1
MOST_RECORDS = (1 << 29) - 2
APPLY_ROWS = 1 << 14  # changes that are taken up between two looks for signals


class Totals(NamedTuple):
    """What a store holds after a record."""

    fingerprints: int
    ids: int
    next_row: int  # the id of the next row that comes without one
    id_kind: str

    def counting(self, numbers: Words) -> Totals:
        """Let row numbers go on after these that were given, as far as there are any."""
        if self.id_kind != "row" or not len(numbers):
            return self
        return self._replace(next_row=max(self.next_row, min(int(numbers.max()) + 1, LAST_ROW)))


class Record(NamedTuple):
    """One change: rows that were added or removed together."""

    number: int
    totals: Totals
    kinds: Kinds
    fingerprints: Words
    ids: Words
    names: list[bytes]  # strings that got a number with this record, in order of the numbers; empty: the number is not used


def pack(record: Record) -> bytes:
    """Return the bytes of a log record."""
    names = b"".join(_LENGTH.pack(len(name)) + name for name in record.names)
    body = b"".join(
        (record.fingerprints.astype("<u8").tobytes(), record.ids.astype("<u8").tobytes(), record.kinds.tobytes(), names)
    )
    totals = record.totals
    head = _HEADER.pack(
        MAGIC, 0, record.number, totals.fingerprints, totals.ids, totals.next_row, len(record.kinds), len(record.names),
        ID_KINDS.index(totals.id_kind), 0,
    )  # fmt: skip
    data = head[_CHECKED_FROM:] + body
    return MAGIC + xxhash.xxh64_intdigest(data).to_bytes(8, "little") + data


def size(rows: int, names: Iterable[bytes]) -> int:
    """Return how many bytes :func:`pack` makes of so many rows."""
    return _HEADER.size + 17 * rows + sum(4 + len(name) for name in names)


def unpack(data: bytes, path: Path) -> Record:
    """Check and parse a log record.

    Raises
    ------
    CorruptStoreError
    """
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise CorruptStoreError(f"{path}: a log record is damaged ({len(data)} bytes)", path=path)
    _, checksum, number, fingerprints, ids, next_row, rows, name_count, kind, _ = _HEADER.unpack_from(data)
    if xxhash.xxh64_intdigest(memoryview(data)[_CHECKED_FROM:]) != checksum:
        raise CorruptStoreError(f"{path}: log record {number} is damaged (checksum differs)", path=path)
    # Under a right checksum only a faulty writer has left something else than what is checked here.
    at = _HEADER.size + 17 * rows
    if at > len(data) or kind >= len(ID_KINDS):
        raise _malformed(path, number)
    words = np.frombuffer(data, "<u8", 2 * rows, _HEADER.size).astype(np.uint64, copy=False)
    kinds = np.frombuffer(data, np.uint8, rows, at - rows)
    names = []
    for _ in range(name_count):
        start = at + _LENGTH.size
        if start > len(data):
            raise _malformed(path, number)
        at = start + int(_LENGTH.unpack_from(data, at)[0])
        names.append(data[start:at])
    if at != len(data) or (rows and int(kinds.max()) > WIPE):
        raise _malformed(path, number)
    totals = Totals(fingerprints, ids, next_row, ID_KINDS[kind])
    return Record(number, totals, kinds, words[:rows], words[rows:], names)


def _malformed(path: Path, number: int) -> CorruptStoreError:
    return CorruptStoreError(f"{path}: log record {number} is malformed", path=path)


def join(records: Sequence[Record], number: int) -> Record:
    """Put successive changes together into one record."""
    if len(records) == 1:
        return records[0]._replace(number=number)
    return Record(
        number,
        records[-1].totals,
        np.concatenate([record.kinds for record in records]),
        np.concatenate([record.fingerprints for record in records]),
        np.concatenate([record.ids for record in records]),
        [name for record in records for name in record.names],
    )


class Delta:
    """The changes of a journal in memory, as far as they were applied.

    Parameters
    ----------
    radius : int
        The store's.
    sample : ndarray of uint64
        Some stored fingerprints; the bits in which they vary most tell fingerprints of the delta apart best.
    identity : _kernel.Table
        The identity table of the generation, which tells what is in it.
    first_name : int
        The number of the first string that is not in the generation's dictionary.
    """

    def __init__(self, radius: int, sample: Words, identity: _kernel.Table, first_name: int) -> None:
        self.kernel = _kernel.Delta(radius, deal_bits(sample))
        self._identity = identity
        self.first_name = first_name
        self.names: list[bytes] = []
        self._numbers: dict[bytes, int] | None = None  # made when it is asked for
        self.records = 0  # of the journal
        self.version = 0

    def apply(self, records: Sequence[Record], path: Path) -> None:
        """Take up the next records, all of one moment: they become visible together, at the version of the last."""
        if not records:
            return
        for expected, record in enumerate(records, self.records + 1):
            if record.number != expected:
                raise CorruptStoreError(
                    f"{path}: log record {expected} is missing", path=path, expected=expected, got=record.number
                )
        joined = join(records, records[-1].number)
        self.change(joined.kinds, joined.fingerprints, joined.ids)
        self.note_names(joined.names)
        self.records = joined.number

    def change(self, kinds: Kinds, fingerprints: Words, ids: Words, in_base: Kinds | None = None) -> None:
        """Take up changes, which become visible together, at a new version.

        When an exception ends this, those taken up so far stay at that version, which nobody sees. They do no harm when they are
        followed by all of them, again: each sets what the fingerprint and its id are, whatever they were.
        """
        in_base = self.in_base(fingerprints) if in_base is None else in_base
        for start in range(0, len(kinds), APPLY_ROWS):
            part = slice(start, start + APPLY_ROWS)
            self.kernel.apply(kinds[part], fingerprints[part], ids[part], in_base[part], self.version + 1)
        self.version += 1

    def note_names(self, names: Iterable[bytes]) -> None:
        """Take up strings that have numbers now."""
        for name in names:
            if self._numbers is not None:
                self._numbers[name] = self.first_name + len(self.names)
            self.names.append(name)

    def number_of(self, name: bytes) -> int | None:
        """Return the number of a string that came with the delta, or None."""
        if self._numbers is None:
            self._numbers = {known: number for number, known in enumerate(self.names, self.first_name)}
        return self._numbers.get(name)

    def in_base(self, fingerprints: Words) -> Kinds:
        """Return 1 for each fingerprint that is in the generation's tables."""
        blocks, _ = self._identity.locate(fingerprints)
        known: Kinds = (blocks != np.uint64(2**64 - 1)).astype(np.uint8)
        return known


def check_room(number: int, path: Path) -> None:
    """Refuse a record that would have no number."""
    if number > MOST_RECORDS:
        raise StorageError(f"{path}: the delta has {MOST_RECORDS} records: merge it; nothing was changed", path=path)


def deal_bits(sample: Words) -> Kinds:
    """Return the 64 bit numbers, those first in which about half of the sample is set."""
    if not len(sample):
        return np.arange(64, dtype=np.uint8)
    ones = np.unpackbits(sample.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0)
    order: Kinds = np.argsort(np.abs(ones - len(sample) / 2), kind="stable").astype(np.uint8)
    return order
