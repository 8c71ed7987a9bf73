"""The strings of a store by number, compressed many to a record (docs/format.md, "Strings")."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Words
from fpstore.base.arrays import NO_WORDS
from fpstore.base.strings import NO_STRINGS, StringColumn
from fpstore.base.threads import cached_property
from fpstore.disk.files import RUN_REPAIR
from fpstore.disk.sealed import SealedReader, SealedWriter
from fpstore.errors import CorruptStoreError

if TYPE_CHECKING:
    from zstandard import ZstdCompressionDict, ZstdCompressor, ZstdDecompressor

STRINGS_FILE = "strings.mdb"
SEPARATOR = b"\xff"  # occurs in no UTF-8
RECORD_BYTES = 1 << 10  # the strings of a record, about; one look-up decompresses them
MAX_STRINGS = 1 << 8  # in a record
LAYOUT_KEYS = 2**64 - 2, 2**64 - 1  # two copies: without the layout, no record can be read
# strings in a record; how many strings there were when the zstandard dictionary was trained
_LAYOUT = struct.Struct("<IQ")
CHECKSUM_BYTES = 4
CONTENT_BYTES = 1 << 20  # of records that are decompressed together
LEVEL = 3  # of zstandard
RECORDS_AT_ONCE, VALUE_BYTES = 1 << 12, 1 << 21  # per read, about
NO_RECORD = np.uint64(2**64 - 1)
Buffers = Any  # a sequence of buffers of zstandard


def with_checksum(key: int, content: bytes) -> bytes:
    """Return the value of a key: the low half of a seeded XXH64 of the content, then the content.

    The seed is the key.
    """
    return struct.pack("<I", xxhash.xxh64_intdigest(content, key) & 0xFFFFFFFF) + content


def verify_value(key: int, value: bytes) -> bytes | None:
    """Return the content of a value, or None if it is damaged."""
    content = value[CHECKSUM_BYTES:]
    return content if with_checksum(key, content) == value else None


class StringLayout(NamedTuple):
    """The parameters that all records of a file share."""

    per_record: int  # the number of strings in a record
    trained: int  # the number of strings when the dictionary was trained
    dictionary: bytes  # of zstandard; b"" if there is none

    def pack(self) -> bytes:
        return _LAYOUT.pack(self.per_record, self.trained) + self.dictionary


def parse_layout(values: Iterable[bytes | None]) -> StringLayout | None:
    """Return the layout by one intact value of LAYOUT_KEYS; None if all are damaged."""
    for key, value in zip(LAYOUT_KEYS, values, strict=True):
        content = None if value is None else verify_value(key, value)
        if content is not None and len(content) >= _LAYOUT.size:
            per_record, trained = _LAYOUT.unpack_from(content)
            if 1 <= per_record <= MAX_STRINGS:
                return StringLayout(per_record, trained, content[_LAYOUT.size :])
    return None


def strings_per_record(count: int, total_bytes: int) -> int:
    return (
        min(max(RECORD_BYTES * count // total_bytes, 1), MAX_STRINGS)
        if total_bytes
        else MAX_STRINGS
    )


def zstandard_dictionary(data: bytes) -> ZstdCompressionDict | None:
    import zstandard

    return zstandard.ZstdCompressionDict(data) if data else None


class RecordReader:
    """Reads the values of a file; several threads may."""

    def __init__(self, layout: StringLayout) -> None:
        import zstandard

        self._layout = layout
        self._zstandard = zstandard
        self._free: list[ZstdDecompressor] = []  # each is for one thread at a time

    def content(self, record: int, value: bytes) -> bytes | None:
        """Return the decompressed content of a value, or None if it is damaged."""
        frame = _kernel.checked_frame(value, record)
        if frame is None:
            return None
        try:
            zstd = self._decompressor()
            content = zstd.decompress(frame)
        except self._zstandard.ZstdError:
            return None
        self._free.append(zstd)
        return content

    def strings(self, record: int, value: bytes) -> list[bytes] | None:
        """Return the strings of a value, or None if it is damaged."""
        content = self.content(record, value)
        strings = [] if content is None else content.split(SEPARATOR)
        return (
            None
            if not strings or strings.pop() or len(strings) > self._layout.per_record
            else strings
        )

    def contents(
        self, records: Words, values: Sequence[bytes | None]
    ) -> Iterator[tuple[slice, Buffers | None]]:
        """Yield (slice of the values, their decompressed buffers) in parts of some bytes.

        The buffers are None, and the part is the last, if a value is damaged.
        """
        start = 0
        while start < len(values):
            buffers = self._decompress(records[start:], list(values[start:]))
            end = len(values) if buffers is None else start + len(buffers)
            yield slice(start, end), buffers
            start = end

    def _decompress(self, records: Words, values: list[bytes | None]) -> Buffers | None:
        """Return the decompressed contents of the first values, or None if one is damaged."""
        frames = _kernel.checked_frames(values, records, CONTENT_BYTES)
        if frames is None:
            return None
        data, segments, sizes = frames
        try:
            zstd = self._decompressor()
            buffers: Buffers = zstd.multi_decompress_to_buffer(
                self._zstandard.BufferWithSegments(data, segments), decompressed_sizes=sizes
            )
        except self._zstandard.ZstdError:
            return None
        self._free.append(zstd)
        return buffers

    def _decompressor(self) -> ZstdDecompressor:
        try:
            return self._free.pop()
        except IndexError:  # all are in use
            return self._zstandard.ZstdDecompressor(
                dict_data=zstandard_dictionary(self._layout.dictionary)
            )


class StringWriter:
    """Writes strings in the order of their numbers, from 0 on."""

    def __init__(self, path: Path, layout: StringLayout, threads: int = 1) -> None:
        import zstandard

        dictionary = zstandard_dictionary(layout.dictionary)
        if dictionary is not None:
            dictionary.precompute_compress(level=LEVEL)
        self._compressor: ZstdCompressor = zstandard.ZstdCompressor(
            level=LEVEL,
            dict_data=dictionary,
            write_checksum=False,
            write_content_size=True,
            write_dict_id=False,
        )
        self._zstandard = zstandard
        self._layout = layout
        self._threads = threads
        self._waiting = NO_STRINGS  # of the record that is not full yet
        self._written = 0  # records
        self._writer = SealedWriter(path)

    def add(self, strings: StringColumn) -> None:
        """Append strings; an empty one stands for a number that is not in use."""
        waiting = (
            StringColumn.concatenate([self._waiting, strings]) if len(self._waiting) else strings
        )
        step = self._layout.per_record
        whole = len(waiting) // step * step
        # with the data of the other strings: a copy would take as long as joining them
        self._compress(StringColumn(waiting.data, waiting.ends[:whole]))
        self._waiting = waiting.slice(whole, len(waiting))

    def _compress(self, strings: StringColumn) -> None:
        """Append records of strings; the last may be short."""
        if len(strings):
            count = -(-len(strings) // self._layout.per_record)
            records = np.arange(self._written, self._written + count, dtype=np.uint64)
            self._put(records, *self.encode(records, strings))

    def encode(self, records: Words, strings: StringColumn) -> tuple[Bytes, Words]:
        """Return the values of these records, of which the last may be short, and their offsets."""
        count, step = len(strings), self._layout.per_record
        lasts = np.minimum(np.arange(step, count + step, step), count)
        ends = strings.ends[lasts - 1] + lasts.astype(np.uint64)  # with the separators
        segments = np.stack(
            [np.append(np.uint64(0), ends[:-1]), np.diff(ends, prepend=np.uint64(0))], axis=1
        )
        contents = self._zstandard.BufferWithSegments(strings.join_separated(), segments.tobytes())
        frames = self._compressor.multi_compress_to_buffer(contents, threads=self._threads)
        return _kernel.checked_values(records, frames)

    def copy(self, values: list[bytes]) -> None:
        """Append values of the same places in a file of the same layout.

        No record may be half full.
        """
        assert not len(self._waiting)
        records = np.arange(self._written, self._written + len(values), dtype=np.uint64)
        self._writer.append_list(records, values)
        self._written += len(records)

    def _put(self, records: Words, values: Bytes, offsets: Words) -> None:
        self._writer.append(records, values, offsets)
        self._written += len(records)

    def finish(self) -> dict[str, int]:
        """Make the file durable, and return its size, digest and largest value."""
        self._compress(self._waiting)
        values = [with_checksum(key, self._layout.pack()) for key in LAYOUT_KEYS]
        self._writer.append_list(np.array(LAYOUT_KEYS, np.uint64), values)
        return self._writer.finish()

    def abort(self) -> None:
        self._writer.abort()


class Strings:
    """Reads strings by number.

    ``shape`` is what :meth:`StringWriter.finish` returned; ``count`` is the number of strings, with
    unused numbers.
    """

    def __init__(self, path: Path, shape: dict[str, int], count: int) -> None:
        self.path = path
        self.count = count
        self._reader = SealedReader(path, shape)
        if count > MAX_STRINGS * (entries := self._reader.file.entries):
            self.close()
            raise self._damage_error(f"{entries} records cannot hold {count} strings")
        self._last: tuple[int, bytes] = -1, b""  # the record that was read last, and its content

    @cached_property
    def layout(self) -> StringLayout:
        layout = parse_layout(map(self._reader.file.get, LAYOUT_KEYS))
        if layout is None:
            raise self._damage_error("the layout of the strings is damaged")
        return layout

    @property
    def per_record(self) -> int:
        return self.layout.per_record

    def _damage_error(self, fault: str) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path}: {fault}: {RUN_REPAIR}", path=self.path)

    def _unknown_number_error(self, number: int) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path}: id number {number} has no string", path=self.path)

    @cached_property
    def _records(self) -> RecordReader:
        return RecordReader(self.layout)

    def _counts(self, records: Words) -> Words:
        """Return how many strings each of the records has."""
        per_record = np.uint64(self.per_record)
        counts: Words = np.minimum(np.uint64(self.count) - records * per_record, per_record)
        return counts

    def _record_error(self, record: int) -> CorruptStoreError:
        first = record * self.per_record
        return self._damage_error(
            f"the strings of id numbers {first} to {first + self.per_record - 1} are damaged"
        )

    def string(self, number: int) -> str:
        """Return the string of a number; CorruptStoreError if there is none."""
        if number >= self.count:
            raise self._unknown_number_error(number)
        per_record = self.layout.per_record
        record, rank = divmod(number, per_record)
        if self._last[0] != record:
            value = self._reader.file.get(record, record)
            content = None if value is None else self._records.content(record, value)
            if content is None:
                raise self._record_error(record)
            self._last = record, content
        string = _kernel.string_at(self._last[1], min(per_record, self.count - number + rank), rank)
        if not string:
            raise (
                self._record_error(record) if string is None else self._unknown_number_error(number)
            )
        return string

    def get_many(self, numbers: Words) -> list[bytes]:
        """Return the UTF-8 of the strings of ascending numbers. Each record is read once."""
        out = [""] * len(numbers)
        self.place(numbers, np.arange(len(numbers), dtype=np.uint64), out)
        return [*map(str.encode, out)]

    def place(
        self, numbers: Words, places: Words, out: list[str], most: int | None = None
    ) -> int | None:
        """Put the strings of ascending numbers at places of a list. Each record is read once.

        Return the number of their bytes; None as soon as it exceeds ``most``.
        """
        size = 0
        for rows, within, records, values, contents in self._read_records(numbers):
            counts = self._counts(records)
            ranks = self._ranks(numbers[rows])
            length = contents and _kernel.place_strings(
                contents, counts, within, ranks, places[rows], out
            )
            if length is None:
                raise self._fault(records, values, numbers[rows])
            size += length
            if most is not None and size > most:
                return None
        return size

    def selected(self, numbers: Words) -> Iterator[StringColumn]:
        """Yield the strings of distinct ascending numbers, in parts of some bytes.

        Only their records are read.
        """
        for rows, within, records, values, contents in self._read_records(numbers):
            counts = self._counts(records)
            column = contents and _kernel.join_contents(contents, counts)
            if column is None:
                raise self._fault(records, values, numbers[rows])
            selected = np.zeros(int(counts.sum()), bool)
            starts = np.repeat(np.cumsum(counts) - counts, np.diff(within).astype(np.int64))
            selected[starts + self._ranks(numbers[rows])] = True
            strings = StringColumn(*column).filter(selected)
            if (empty := np.flatnonzero(strings.sizes == 0)).size:
                raise self._unknown_number_error(int(numbers[rows][empty[0]]))
            yield strings

    def _ranks(self, numbers: Words) -> Words:
        """Return the places of strings in their records."""
        ranks: Words = numbers % np.uint64(self.per_record)
        return ranks

    def _read_records(
        self, numbers: Words
    ) -> Iterator[tuple[slice, Words, Words, list[bytes | None], Buffers | None]]:
        """Read each record of ascending numbers once, in parts of some bytes.

        Yield (slice of the numbers, where the numbers of each record start in it, the records,
        their values, and their contents, or None if a value is damaged).
        """
        if len(numbers) and int(numbers[-1]) >= self.count:
            raise self._unknown_number_error(int(numbers[-1]))
        records = numbers // np.uint64(self.per_record)
        lims = np.append(np.flatnonzero(np.diff(records, prepend=NO_RECORD)), len(numbers))
        distinct = records[lims[:-1]]
        first = 0
        while first < len(distinct):
            batch = distinct[first : first + RECORDS_AT_ONCE]
            values = self._reader.file.get_many(batch, batch, VALUE_BYTES)
            batch, bounds = batch[: len(values)], lims[first : first + len(values) + 1]
            for part, contents in self._records.contents(batch, values):
                rows = slice(int(bounds[part.start]), int(bounds[part.stop]))
                within = (bounds[part.start : part.stop + 1] - rows.start).astype(np.uint64)
                yield rows, within, batch[part], values[part], contents
            first += len(values)

    def _fault(
        self, records: Words, values: Sequence[bytes | None], numbers: Words
    ) -> CorruptStoreError:
        """Return the error for strings of these records that cannot be read."""
        for record, value, count in zip(
            records.tolist(), values, self._counts(records).tolist(), strict=True
        ):
            content = None if value is None else self._records.content(record, value)
            if content is None or _kernel.string_at(content, count, 0) is None:
                return self._record_error(record)
        for number in numbers.tolist():
            try:
                self.string(number)
            except CorruptStoreError as error:
                return error
        return self._damage_error("strings cannot be read")

    def records(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (first record, values of successive records) in order, as they lie in the file."""
        items = islice(self._reader.items(), -(-self.count // self.per_record))
        first, size = 0, 0
        values: list[bytes] = []
        for record, (key, value) in enumerate(items):
            if key != record:
                raise self._damage_error(f"record {record} of the strings is missing")
            values.append(value)
            size += len(value)
            if len(values) == RECORDS_AT_ONCE or size >= VALUE_BYTES:
                yield first, values
                first, size, values = record + 1, 0, []
        if values:
            yield first, values

    def decode_records(self, records: Words, values: list[bytes]) -> Iterator[StringColumn]:
        """Yield the strings of records, in parts of some bytes."""
        for part, contents in self._records.contents(records, values):
            column = (
                None
                if contents is None
                else _kernel.join_contents(contents, self._counts(records[part]))
            )
            if column is None:
                raise self._fault(records, values, NO_WORDS)
            yield StringColumn(*column)

    def check(self, records: Words, values: list[bytes]) -> None:
        """Raise CorruptStoreError unless the values of records have the right checksums."""
        for record, value in zip(records.tolist(), values, strict=True):
            if _kernel.checked_frame(value, record) is None:
                raise self._record_error(record)

    def columns(self) -> Iterator[tuple[int, StringColumn]]:
        """Yield (number of the first string, strings) in order of the numbers.

        A string that is not in use is empty.
        """
        number = 0
        for first, values in self.records():
            records = np.arange(first, first + len(values), dtype=np.uint64)
            for column in self.decode_records(records, values):
                yield number, column
                number += len(column)

    def check_pages(self) -> None:
        self._reader.verify()

    @property
    def file_bytes(self) -> int:
        """The size on disk."""
        return self._reader.file_bytes

    def close(self) -> None:
        self._reader.close()
