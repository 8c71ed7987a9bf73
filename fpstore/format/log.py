"""The log of a generation: the inserts and deletes since its tables were written, in order.

The file only grows. Each record behind the header has its length, its number, a checksum that
depends on the store, the generation and the place, and a change. One word of the header moves: the
end of what is durable. The writer stores it after each sync; a reader compares it with the last end
that it read, and reads what lies between. docs/format.md ("Log") is normative.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import finalize

import numpy as np
import xxhash

from fpstore import _kernel
from fpstore.base.arguments import MAX_ID_BYTES
from fpstore.base.width import WIDTHS, Width
from fpstore.disk.files import RUN_REPAIR, disk_bytes, open_file, read_at
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import CorruptStoreError, FormatVersionError
from fpstore.format.manifest import Manifest
from fpstore.format.record import ID_KINDS, Change, Totals

LOG_FILE = "log"
HEADER_BYTES = 4096
MAGIC = b"FPSTLOG\n"
RECORD_MAGIC = b"FPCHANGE"
VERSION = 1
_HEADER = struct.Struct("<8sII16sQQQQQHHI")  # without the checksum that ends it
RECORD = struct.Struct("<QQQ")  # length, number, what was durable when it was written
_CHECKED_FROM = 16
RECORD_HEAD_BYTES = _CHECKED_FROM + RECORD.size
ALIGN = 8
WORDS_AT = 512  # of the header: the words that move, each 8 bytes
END, BOOT = WORDS_AT // 8, WORDS_AT // 8 + 1
SUPERSEDED = 1 << 63
_END_BITS, _END_CHECK_BITS = 48, 15
_END_FACTOR = 0x9E3779B185EBCA87
LOG_PIECE_BYTES = 1 << 24  # read at a time, unless one record is larger
_ANY_NUMBER = 0


class LogHeader(NamedTuple):
    """The store and generation of a log, and the totals at its start."""

    identity: bytes  # of the store, 16 bytes
    generation: int
    first_string: int  # the number of the first string that is not in the generation's dictionary
    totals: Totals
    width: int  # bits of a fingerprint; 0 where records of any width are taken

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """Return the header of the log of a manifest's generation."""
        record = manifest.generation
        totals = Totals(record.fingerprints, record.ids, record.next_row, record.id_kind)
        return cls(
            manifest.identity,
            record.number,
            record.first_string,
            totals,
            manifest.design.width.bits,
        )

    @property
    def seed(self) -> int:
        """The seed of the checksums: a record's seed is this XOR the place of the record."""
        return xxhash.xxh64_intdigest(self.identity, self.generation)

    @property
    def words(self) -> int:
        """The words of a fingerprint; 0 for any number."""
        return Width(self.width).words if self.width else 0

    def pack(self) -> bytes:
        """Return the bytes that do not move, with their checksum."""
        *counts, id_kind = self.totals
        data = _HEADER.pack(
            MAGIC,
            VERSION,
            HEADER_BYTES,
            self.identity,
            self.generation,
            self.first_string,
            *counts,
            ID_KINDS.index(id_kind),
            self.width,
            0,
        )
        return data + xxhash.xxh64_intdigest(data).to_bytes(8, "little")

    def check_belongs(self, path: Path, expected: LogHeader) -> None:
        """Refuse the log of another store or generation, or one that contradicts the manifest."""
        for name, value, got in zip(self._fields, expected, self, strict=True):
            if value != got:
                field = name.replace("_", " ")
                message = f"{field} of the header is {got}, the manifest says {value}"
                if name in ("identity", "generation"):
                    message = (
                        "the log of "
                        f"{'another store' if name == 'identity' else f'generation {got}'}"
                    )
                raise CorruptStoreError(
                    f"{path}: {message}: {RUN_REPAIR}", path=path, expected=value, got=got
                )


def parse_header(data: bytes, path: Path) -> LogHeader:
    if len(data) < HEADER_BYTES:
        raise CorruptStoreError(
            f"{path}: the log is cut short ({len(data)} bytes): {RUN_REPAIR}", path=path
        )
    if xxhash.xxh64_intdigest(data[: _HEADER.size]) != int.from_bytes(
        data[_HEADER.size : _HEADER.size + 8], "little"
    ):
        raise CorruptStoreError(
            f"{path}: the header of the log is damaged (checksum differs): {RUN_REPAIR}", path=path
        )
    (
        magic,
        version,
        size,
        identity,
        generation,
        first,
        fingerprints,
        ids,
        row,
        kind,
        width,
        flags,
    ) = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptStoreError(f"{path}: not a log", path=path)
    if (version, size, flags) != (VERSION, HEADER_BYTES, 0):
        message = f"{path}: a log of version {version}, this fpstore reads {VERSION}"
        raise FormatVersionError(message, path=path, expected=VERSION, got=version)
    if kind >= len(ID_KINDS) or width not in WIDTHS:
        raise CorruptStoreError(
            f"{path}: the header of the log is malformed: {RUN_REPAIR}", path=path
        )
    return LogHeader(
        identity, generation, first, Totals(fingerprints, ids, row, ID_KINDS[kind]), width
    )


@cache
def boot_word() -> int:
    """Return 64 bits that identify this run of the machine; 0 where the system has no such id.

    The cache of a file system outlives a process, not the machine.
    """
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return 0
    return xxhash.xxh64_intdigest(identity.strip()) or 1


def end_word(end: int) -> int:
    """Return the word of an end: 48 bits of the place and 15 check bits, without SUPERSEDED."""
    return (end * _END_FACTOR % 2**64 >> 64 - _END_CHECK_BITS) << _END_BITS | end


def published_end(word: int, path: Path) -> int:
    """Return the end of the log that a word holds; CorruptStoreError if the word is damaged."""
    word &= ~SUPERSEDED
    end = word & ((1 << _END_BITS) - 1)
    if end < HEADER_BYTES or end % ALIGN or word != end_word(end):
        message = f"{path}: the log is damaged at byte {WORDS_AT} (where it ends): {RUN_REPAIR}"
        raise CorruptStoreError(message, path=path, got=WORDS_AT)
    return end


class Records(NamedTuple):
    """Successive records, put together as one change."""

    first: int  # the number of the first
    last: int
    end: int  # the place behind the last
    change: Change


class LogFile:
    """The records of an open log, which are checked by ``header``."""

    def __init__(self, descriptor: int, path: Path, header: LogHeader) -> None:
        self.descriptor, self.path, self.header = descriptor, path, header

    def word_at(self, at: int) -> int:
        """Return a word of the header as it is now."""
        return int.from_bytes(read_at(self.descriptor, self.path, 8 * at, 8), "little")

    def check_header(self) -> None:
        """Refuse a log whose header contradicts the manifest."""
        parse_header(read_at(self.descriptor, self.path, 0, HEADER_BYTES), self.path).check_belongs(
            self.path, self.header
        )

    def whole_records(self, place: int, number: int, end: int) -> Iterator[Records]:
        """Yield whole records from a place on, in pieces, up to the first that is not whole.

        ``number`` is the number of the first record there.
        """
        size = LOG_PIECE_BYTES
        while place < end:
            data = read_at(self.descriptor, self.path, place, min(size, end - place))
            if len(data) < min(size, end - place):
                end = place + len(data)  # the file is cut short
            records, used, _ = self._parse(data, place, number, 2**64 - 1)
            if records is not None:
                yield records
                place, number, size = place + used, records.last + 1, LOG_PIECE_BYTES
                continue
            # Perhaps it is longer than what was read, unless the file ends there.
            length = _length(data)
            if (
                len(data) < size
                or data[:8] != RECORD_MAGIC
                or not len(data) < length <= end - place
            ):
                return
            size = length + ALIGN

    def _parse(
        self, data: bytes, place: int, number: int, most: int
    ) -> tuple[Records | None, int, int]:
        """Return the first records of the data, their length, and the last one's durable end."""
        count, used, last, durable, totals, *columns = _kernel.read_log(
            np.frombuffer(data, np.uint8), place, self.header.seed, number, self.header.words, most
        )
        records = (
            Records(last - count + 1, last, place + used, parse_change(totals, columns))
            if count
            else None
        )
        return records, used, durable

    def later_records(self, place: int) -> Iterator[tuple[int, int, Records]]:
        """Yield (place, what was durable when it was written, record) of each whole record.

        The search begins at a place, and passes over bytes that are no record.
        """
        size = os.fstat(self.descriptor).st_size
        place += -place % ALIGN
        while (start := self._next_magic(place, size)) is not None:
            place = start + ALIGN
            length = _length(read_at(self.descriptor, self.path, start, RECORD_HEAD_BYTES))
            if RECORD_HEAD_BYTES <= length <= size - start:
                data = read_at(self.descriptor, self.path, start, length + -length % ALIGN)
                records, used, durable = self._parse(data, start, _ANY_NUMBER, 1)
                if records is not None:
                    place = start + used
                    yield start, durable, records

    def _next_magic(self, place: int, size: int) -> int | None:
        """Return the next place where a record may begin."""
        while place < size:
            data = read_at(self.descriptor, self.path, place, min(LOG_PIECE_BYTES, size - place))
            at = data.find(RECORD_MAGIC)
            while at >= 0:
                if at % ALIGN == 0:
                    return place + at
                at = data.find(RECORD_MAGIC, at + 1)
            place += max(len(data) - len(data) % ALIGN, ALIGN)
        return None

    def _is_exact(self) -> bool:
        """Whether the machine has run since a writer opened the log, so that the end is exact."""
        return self.word_at(BOOT) == boot_word() != 0

    def read(self, place: int, number: int) -> Iterator[Records]:
        """Yield durable records from a place on, in pieces, while a writer may open or extend it.

        If the machine has stopped since the end was stored, whole records behind it count too: they
        may have been acknowledged. CorruptStoreError names the place of a record that is damaged.
        """
        exact = None
        while exact != self._is_exact():  # a writer that opens the log makes its end exact
            exact = self._is_exact()
            # after the question: the writer stores the end first
            published = published_end(self.word_at(END), self.path)
            end = published if exact else os.fstat(self.descriptor).st_size
            for records in self.whole_records(place, number, end):
                if exact != self._is_exact():
                    break  # it may be what that writer has not made durable yet
                yield self.check_records(records)
                place, number = records.end, records.last + 1
        if not exact:
            self.check_tail(place, published)
        elif place < published:
            raise self.damage_error(place)

    def durable_end(self) -> int:
        """Check that the log belongs to the manifest; return where its durable part ends."""
        self.check_header()
        if self._is_exact():
            return published_end(self.word_at(END), self.path)
        place = HEADER_BYTES
        for records in self.read(place, 1):
            place = records.end
        return place

    def check_records(self, records: Records) -> Records:
        """Return records; CorruptStoreError if no writer can have logged them.

        That is so if the totals exceed the rows that fit into the log, if a string is not UTF-8, or
        if a fingerprint has bits below the width.
        """
        totals, before = records.change.totals, self.header.totals
        most = records.end // (8 * max(self.header.words, 1) + 9)
        fault = None
        if (
            not totals.fingerprints <= totals.ids <= before.ids + most
            or totals.fingerprints > before.fingerprints + most
        ):
            fault = f"counts of record {records.last}"
        elif not all(map(is_valid_id, records.change.strings)):
            fault = f"a string of records {records.first} to {records.last}"
        elif not self.fits_width(records):
            fault = f"a fingerprint of records {records.first} to {records.last}"
        if fault is not None:
            raise CorruptStoreError(
                f"{self.path}: the log is malformed ({fault}): {RUN_REPAIR}", path=self.path
            )
        return records

    def fits_width(self, records: Records) -> bool:
        """Return whether no fingerprint has a bit below the width."""
        width = self.header.width
        return not width or Width(width).fits_width(records.change.fingerprints)

    def check_tail(self, place: int, published: int) -> None:
        """Refuse a log whose records stop being whole at a place that was durable.

        It was durable if the published end is behind it, or if a later record says so. Otherwise
        the machine stopped while the record was written, and no reader has seen it.
        """
        if place < published or any(durable > place for _, durable, _ in self.later_records(place)):
            raise self.damage_error(place)

    def damage_error(self, place: int) -> CorruptStoreError:
        message = (
            f"{self.path}: the log is damaged at byte {place} (a record is not whole): {RUN_REPAIR}"
        )
        return CorruptStoreError(message, path=self.path, got=place)


class OpenLog(LogFile):
    """A log of its own descriptor, whose header is mapped as ``words`` of 8 bytes.

    The word at END moves: it holds the end of what is durable, with SUPERSEDED when another
    generation is current. Reading it is one load of 8 aligned bytes, without a system call.
    """

    def __init__(self, path: Path, header: LogHeader, writable: bool = False) -> None:
        super().__init__(open_file(path, os.O_RDWR if writable else os.O_RDONLY), path, header)
        self._closer = finalize(self, os.close, self.descriptor)
        try:
            self.check_header()
            with translate_refusals(path):
                protection = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
                self._mapped = mmap.mmap(self.descriptor, HEADER_BYTES, prot=protection)
            self.words = memoryview(self._mapped).cast("Q")
            published_end(self.word, path)
        except BaseException:
            OpenLog.close(self)
            raise

    def word_at(self, at: int) -> int:
        return self.words[at]

    @property
    def word(self) -> int:
        """The word at END."""
        return self.words[END]

    def close(self) -> None:
        """Close the file. Closing twice is allowed."""
        self._closer()  # first, so that nothing is done twice after an interrupt
        if hasattr(self, "words"):
            self.words.release()
            self._mapped.close()


class LogReader(OpenLog):
    """A log, open for reading. It writes and locks nothing, and survives a fork."""

    @property
    def published_end(self) -> int:
        return published_end(self.word, self.path)

    @property
    def is_linked(self) -> bool:
        """Whether the file still has a name."""
        return os.fstat(self.descriptor).st_nlink > 0

    @property
    def file_bytes(self) -> int:
        """The size on disk."""
        return disk_bytes(os.fstat(self.descriptor))


def parse_change(totals: tuple[int, int, int, int], columns: list[Any]) -> Change:
    """Return a change from the columns that the kernel has read."""
    kinds, fingerprints, ids, lims, strings = columns
    joined = strings.tobytes()
    each = [joined[start:end] for start, end in pairwise(lims.tolist())]
    return Change(Totals(*totals[:3], ID_KINDS[totals[3]]), kinds, fingerprints, ids, each)


def is_valid_id(string: bytes) -> bool:
    """Whether bytes are the UTF-8 of a string id; empty ones stand for an unused number."""
    try:
        string.decode()
    except UnicodeDecodeError:
        return False
    return len(string) <= MAX_ID_BYTES


def _length(record: bytes) -> int:
    return int.from_bytes(record[_CHECKED_FROM : _CHECKED_FROM + 8], "little")
