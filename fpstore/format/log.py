"""The log of a generation: the inserts and deletes since its tables were written, in order.

A file that only grows. Behind a header each record has its length, its number, a checksum that depends on the store, the
generation and the place, and a change. The header also has one word that moves: the end of what is durable. The writer stores it
after each sync; a reader compares it with the last one it saw, and reads what is between. docs/format.md ("Log") is normative.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import finalize

import numpy as np
import xxhash

from fpstore import _kernel
from fpstore.base.arguments import MAX_ID_BYTES
from fpstore.base.width import WIDTHS, Width
from fpstore.disk.files import RUN_REPAIR, disk_bytes, open_file, read_at
from fpstore.disk.refusals import refusing
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
HEAD = _CHECKED_FROM + RECORD.size
ALIGN = 8
WORDS_AT = 512  # of the header: the words that move, each 8 bytes
END, BOOT = WORDS_AT // 8, WORDS_AT // 8 + 1
SUPERSEDED = 1 << 63
_END_BITS, _END_CHECK_BITS = 48, 15
_END_FACTOR = 0x9E3779B185EBCA87
PIECE_BYTES = 1 << 24  # read at a time, unless one record is larger
_ANY = 0


class LogHeader(NamedTuple):
    """The store and generation of a log, and the totals at its start.

    Attributes
    ----------
    identity : bytes
        Of the store, 16 bytes.
    generation : int
    first_string : int
        The number of the first string that is not in the generation's dictionary.
    totals : Totals
    width : int
        Bits of a fingerprint; 0 where records of any width are taken.
    """

    identity: bytes
    generation: int
    first_string: int
    totals: Totals
    width: int

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the header of the log of a manifest's generation."""
        record = manifest.generation
        totals = Totals(record.fingerprints, record.ids, record.next_row, record.id_kind)
        return cls(manifest.identity, record.number, record.first_string, totals, manifest.design.width.bits)

    @property
    def seed(self) -> int:
        """The seed of the checksums; that of a record at a place is this XOR the place."""
        return xxhash.xxh64_intdigest(self.identity, self.generation)

    @property
    def words(self) -> int:
        """The words of a fingerprint; 0: any."""
        return Width(self.width).words if self.width else 0

    def pack(self) -> bytes:
        """Return the bytes that do not move, with their checksum."""
        totals = self.totals
        data = _HEADER.pack(
            MAGIC, VERSION, HEADER_BYTES, self.identity, self.generation, self.first_string,
            totals.fingerprints, totals.ids, totals.next_row, ID_KINDS.index(totals.id_kind), self.width, 0,
        )  # fmt: skip
        return data + xxhash.xxh64_intdigest(data).to_bytes(8, "little")


def parse_header(data: bytes, path: Path) -> LogHeader:
    """Check and parse the header of a log.

    Raises
    ------
    CorruptStoreError, FormatVersionError
    """
    if len(data) < HEADER_BYTES:
        raise CorruptStoreError(f"{path}: the log is cut short ({len(data)} bytes): {RUN_REPAIR}", path=path)
    if xxhash.xxh64_intdigest(data[: _HEADER.size]) != int.from_bytes(data[_HEADER.size : _HEADER.size + 8], "little"):
        raise CorruptStoreError(f"{path}: the header of the log is damaged (checksum differs): {RUN_REPAIR}", path=path)
    magic, version, header_bytes, identity, generation, first, fingerprints, ids, row, kind, width, flags = _HEADER.unpack_from(
        data
    )
    if magic != MAGIC:
        raise CorruptStoreError(f"{path}: not a log", path=path)
    if (version, header_bytes, flags) != (VERSION, HEADER_BYTES, 0):
        raise FormatVersionError(
            f"{path}: a log of version {version}, this fpstore reads {VERSION}", path=path, expected=VERSION, got=version
        )
    if kind >= len(ID_KINDS) or width not in WIDTHS:
        raise CorruptStoreError(f"{path}: the header of the log is malformed: {RUN_REPAIR}", path=path)
    return LogHeader(identity, generation, first, Totals(fingerprints, ids, row, ID_KINDS[kind]), width)


@cache
def boot_word() -> int:
    """Return 64 bits that identify this run of the machine; 0 where the system has no such id.

    What a file system has cached outlives a process, not the machine.
    """
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return 0
    return xxhash.xxh64_intdigest(identity.strip()) or 1


def end_word(end: int) -> int:
    """Return the word of an end: 48 bits of the place, 15 check bits, and the bit SUPERSEDED, which is not set."""
    return (end * _END_FACTOR % 2**64 >> 64 - _END_CHECK_BITS) << _END_BITS | end


def told_end(word: int, path: Path) -> int:
    """Return the end of the log that a word holds.

    Raises
    ------
    CorruptStoreError
        The word is damaged.
    """
    word &= ~SUPERSEDED
    end = word & ((1 << _END_BITS) - 1)
    if end < HEADER_BYTES or end % ALIGN or word != end_word(end):
        raise CorruptStoreError(
            f"{path}: the log is damaged at byte {WORDS_AT} (where it ends): {RUN_REPAIR}", path=path, got=WORDS_AT
        )
    return end


class Records(NamedTuple):
    """Successive records, put together as one change.

    Attributes
    ----------
    first, last : int
        Their numbers.
    end : int
        The place behind the last.
    change : Change
    """

    first: int
    last: int
    end: int
    change: Change


class LogReader:
    """A log, open for reading. It writes and locks nothing, and survives a fork.

    Parameters
    ----------
    path : Path
    header : LogHeader
        That of the manifest.

    Attributes
    ----------
    words : memoryview of 8-byte words
        Of the header. The one at END moves: it tells the end of what is durable, with SUPERSEDED when another generation is
        current. To look at it is one load of 8 aligned bytes, without a system call.

    Raises
    ------
    StoreNotFoundError
        There is none: a merge may have removed it.
    CorruptStoreError, FormatVersionError, StorageError
    """

    def __init__(self, path: Path, header: LogHeader) -> None:
        self.path, self.header = path, header
        self._descriptor = open_log(path, header)
        self._given_back = finalize(self, os.close, self._descriptor)
        try:
            self._mapped = map_header(self._descriptor, path, mmap.PROT_READ)
            self.words = memoryview(self._mapped).cast("Q")
            told_end(self.word, path)
        except BaseException:
            self.close()
            raise

    @property
    def word(self) -> int:
        """The word at END."""
        return self.words[END]

    @property
    def told(self) -> int:
        """The place that the word at END tells."""
        return told_end(self.word, self.path)

    def read(self, place: int, number: int) -> Iterator[Records]:
        """Yield the records between a place and the end, in pieces; ``number`` is the number of the first record there.

        When the machine has stopped since the end was stored, whole records behind it count too: they may have been acknowledged.

        Raises
        ------
        CorruptStoreError
            A record is damaged; the error names the place.
        """
        return _read_durable(self._descriptor, self.path, self.header, self.words.__getitem__, place, number)

    @property
    def is_there(self) -> bool:
        """Whether the file still has a name."""
        return os.fstat(self._descriptor).st_nlink > 0

    @property
    def file_bytes(self) -> int:
        """Bytes that the file takes on disk."""
        return disk_bytes(os.fstat(self._descriptor))

    def close(self) -> None:
        """Give the file back. Closing twice is allowed."""
        if self._given_back.alive:
            if hasattr(self, "words"):
                self.words.release()
                self._mapped.close()
            self._given_back()


def open_log(path: Path, header: LogHeader, flags: int = os.O_RDONLY) -> int:
    """Open the log of a generation, and return its descriptor; ``header`` is what its manifest says.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """
    descriptor = open_file(path, flags)
    try:
        check_belongs(parse_header(read_at(descriptor, path, 0, HEADER_BYTES), path), path, header)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def map_header(descriptor: int, path: Path, protection: int) -> mmap.mmap:
    """Map the header of an open log.

    Raises
    ------
    StorageError
    """
    with refusing(path):
        return mmap.mmap(descriptor, HEADER_BYTES, prot=protection)


def log_end(descriptor: int, path: Path, header: LogHeader) -> int:
    """Check that an open log belongs to a manifest, which says that it has this header; return where its durable part ends.

    Raises
    ------
    CorruptStoreError, FormatVersionError
    """
    check_belongs(parse_header(read_at(descriptor, path, 0, HEADER_BYTES), path), path, header)

    def word(at: int) -> int:
        return int.from_bytes(read_at(descriptor, path, 8 * at, 8), "little")

    if _is_exact(word):
        return told_end(word(END), path)
    place = HEADER_BYTES
    for records in _read_durable(descriptor, path, header, word, place, 1):
        place = records.end
    return place


def _is_exact(word: Callable[[int], int]) -> bool:
    """Whether the end is what was stored last: the machine has not stopped since a writer opened the log."""
    return word(BOOT) == boot_word() != 0


def _read_durable(
    descriptor: int, path: Path, header: LogHeader, word: Callable[[int], int], place: int, number: int
) -> Iterator[Records]:
    """Yield the records between a place and the end of an open log, which a writer may open or append to meanwhile.

    ``word`` returns the word of the file's header at a place, as it is now. For the rest see :meth:`LogReader.read`.
    """
    exact = None
    while exact != _is_exact(word):  # a writer that opens the log makes its end exact
        exact = _is_exact(word)
        told = told_end(word(END), path)  # after the question: the writer stores the end first
        end = told if exact else os.fstat(descriptor).st_size
        for records in whole_records(descriptor, path, header, place, number, end):
            if exact != _is_exact(word):
                break  # it may be what that writer has not made durable yet
            yield checked(records, header, path)
            place, number = records.end, records.last + 1
    if exact:
        if place < told:
            raise damaged_at(path, place)
    else:
        check_tail(descriptor, path, header, place, told)


def check_belongs(header: LogHeader, path: Path, expected: LogHeader) -> None:
    """Refuse the log of another store or generation, or one that says something else than the manifest of its generation.

    Raises
    ------
    CorruptStoreError
    """
    if (header.identity, header.generation) != (expected.identity, expected.generation):
        what = "another store" if header.identity != expected.identity else f"generation {header.generation}"
        raise CorruptStoreError(
            f"{path}: the log of {what}: {RUN_REPAIR}", path=path, expected=expected.generation, got=header.generation
        )
    for name, wanted, got in zip(LogHeader._fields, expected, header, strict=True):
        if wanted != got:
            what = name.replace("_", " ")
            raise CorruptStoreError(
                f"{path}: {what} of the header is {got}, the manifest says {wanted}: {RUN_REPAIR}",
                path=path, expected=wanted, got=got,
            )  # fmt: skip


def whole_records(descriptor: int, path: Path, header: LogHeader, place: int, number: int, end: int) -> Iterator[Records]:
    """Yield the whole records from a place on, up to the first that is not whole, in pieces.

    Raises
    ------
    CorruptStoreError
        The disk cannot read a place.
    """
    wanted = PIECE_BYTES
    while place < end:
        data = read_at(descriptor, path, place, min(wanted, end - place))
        if len(data) < min(wanted, end - place):
            end = place + len(data)  # the file is cut short
        count, used, last, _, totals, *columns = _kernel.read_log(
            np.frombuffer(data, np.uint8), place, header.seed, number, header.words, 2**64 - 1
        )
        if count:
            yield Records(last - count + 1, last, place + used, _change(totals, columns))
            place, number, wanted = place + used, last + 1, PIECE_BYTES
            continue
        # Perhaps it is longer than what was read, unless the file ends there.
        length = int.from_bytes(data[_CHECKED_FROM : _CHECKED_FROM + 8], "little")
        if len(data) < wanted or data[:8] != RECORD_MAGIC or not len(data) < length <= end - place:
            return
        wanted = length + ALIGN


def checked(records: Records, header: LogHeader, path: Path) -> Records:
    """Return records of a log, unless they cannot be what a writer has logged.

    Raises
    ------
    CorruptStoreError
        More is counted than the rows that fit into the log can have added, or a string is not UTF-8.
    """
    totals, before = records.change.totals, header.totals
    most = records.end // (8 * max(header.words, 1) + 9)
    if not totals.fingerprints <= totals.ids <= before.ids + most or totals.fingerprints > before.fingerprints + most:
        raise CorruptStoreError(f"{path}: the log is malformed (counts of record {records.last}): {RUN_REPAIR}", path=path)
    if not all(map(can_be_id, records.change.strings)):
        where = f"a string of records {records.first} to {records.last}"
        raise CorruptStoreError(f"{path}: the log is malformed ({where}): {RUN_REPAIR}", path=path)
    return records


def can_be_id(string: bytes) -> bool:
    """Whether bytes of a log are the UTF-8 of a string id; none stand for a number that is not used."""
    try:
        string.decode()
    except UnicodeDecodeError:
        return False
    return len(string) <= MAX_ID_BYTES


def _change(totals: tuple[int, int, int, int], columns: list[Any]) -> Change:
    kinds, fingerprints, ids, lims, strings = columns
    data, cuts = strings.tobytes(), lims.tolist()
    return Change(
        Totals(*totals[:3], ID_KINDS[totals[3]]),
        kinds,
        fingerprints,
        ids,
        [data[start:end] for start, end in itertools.pairwise(cuts)],
    )


def check_tail(descriptor: int, path: Path, header: LogHeader, place: int, told: int) -> None:
    """Refuse a log whose records stop being whole at a place that was durable.

    It was if the end told in the header is behind it, or if a later record says so. Otherwise a machine stopped while the record
    was written, and nobody was told that it is there.

    Raises
    ------
    CorruptStoreError
    """
    if place < told or any(durable > place for _, durable, _ in later_records(descriptor, path, header, place)):
        raise damaged_at(path, place)


def damaged_at(path: Path, place: int) -> CorruptStoreError:
    """Return the error for a record that is not whole."""
    return CorruptStoreError(
        f"{path}: the log is damaged at byte {place} (a record is not whole): {RUN_REPAIR}", path=path, got=place
    )


def later_records(descriptor: int, path: Path, header: LogHeader, place: int) -> Iterator[tuple[int, int, Records]]:
    """Yield (place, what was durable when it was written, record) of each whole record from a place on, whatever lies between."""
    size = os.fstat(descriptor).st_size
    place += -place % ALIGN
    while (found := _find(descriptor, path, place, size)) is not None:
        head = read_at(descriptor, path, found, HEAD)
        length = int.from_bytes(head[_CHECKED_FROM : _CHECKED_FROM + 8], "little")
        place = found + ALIGN
        if not HEAD <= length <= size - found:
            continue
        data = read_at(descriptor, path, found, length + -length % ALIGN)
        count, used, last, durable, totals, *columns = _kernel.read_log(
            np.frombuffer(data, np.uint8), found, header.seed, _ANY, header.words, 1
        )
        if count:
            place = found + used
            yield found, durable, Records(last, last, place, _change(totals, columns))


def _find(descriptor: int, path: Path, place: int, size: int) -> int | None:
    """Return the next place where a record may begin."""
    while place < size:
        data = read_at(descriptor, path, place, min(PIECE_BYTES, size - place))
        at = data.find(RECORD_MAGIC)
        while at >= 0:
            if at % ALIGN == 0:
                return place + at
            at = data.find(RECORD_MAGIC, at + 1)
        place += max(len(data) - len(data) % ALIGN, ALIGN)
    return None
