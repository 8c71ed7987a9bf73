"""The strings of a store by number: many in a record, compressed together (docs/format.md, "Strings")."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.arguments import MAX_ID_BYTES
from fpstore.disk.sealed import SealedReader, SealedWriter, record_key, record_keys
from fpstore.errors import CorruptStoreError
from fpstore.string_column import StringColumn

if TYPE_CHECKING:
    from zstandard import ZstdCompressionDict, ZstdCompressor, ZstdDecompressor

STRINGS_FILE = "strings.mdb"
MAX_STRING_BYTES = MAX_ID_BYTES
SEPARATOR = b"\xff"  # occurs in no UTF-8
RECORD_BYTES = 1 << 10  # of strings, about, in a record: one look-up decompresses so many
MOST_STRINGS = 1 << 8  # in a record
LEVEL = 3
DICTIONARY_KEYS = b"\xff" * 7 + b"\xfe", b"\xff" * 8  # two copies: without it, no record can be read
_DICTIONARY = struct.Struct("<II")  # strings in a record; how many strings there were when it was trained
MOST_DICTIONARY_BYTES = 1 << 16
DICTIONARY_SHARE = 100  # the strings are so many times as large as the dictionary
SAMPLE_RECORDS, SAMPLE_BYTES = 1 << 12, 1 << 22  # about so much a dictionary is trained on
CHECKSUM_BYTES = 4
BATCH_RECORDS, BATCH_BYTES = 1 << 11, 1 << 22  # are written together
MOST_RECORD_BYTES = MOST_STRINGS * (MAX_STRING_BYTES + 1)
RECORDS_AT_ONCE, VALUE_BYTES = 1 << 12, 1 << 21  # about so many are read together, at most
CONTENT_BYTES = 1 << 20  # of records that are decompressed together
NOWHERE = np.uint64(2**64 - 1)
Buffers = Any  # a sequence of buffers of zstandard
NO_STRINGS = StringColumn(b"", np.empty(0, np.uint64))


def sealed(key: bytes, content: bytes) -> bytes:
    """Return the value of a key: the low half of the XXH64 of the content, seeded with the key, then the content."""
    return struct.pack("<I", xxhash.xxh64_intdigest(content, int.from_bytes(key, "big")) & 0xFFFFFFFF) + content


def opened(key: bytes, value: bytes) -> bytes | None:
    """Return the content of a value, or None if it is damaged."""
    content = value[CHECKSUM_BYTES:]
    return content if sealed(key, content) == value else None


class StringLayout(NamedTuple):
    """What all records of a file share.

    Attributes
    ----------
    per_record : int
        The number of strings in a record.
    trained : int
        How many strings there were when the dictionary was trained.
    dictionary : bytes
        Of :func:`train`.
    """

    per_record: int
    trained: int
    dictionary: bytes

    def pack(self) -> bytes:
        """Return its bytes in the file."""
        return _DICTIONARY.pack(self.per_record, self.trained) + self.dictionary


def parse_layout(values: Iterable[bytes | None]) -> StringLayout | None:
    """Return the layout from the values of DICTIONARY_KEYS, of which one is enough; None if all are damaged."""
    for key, value in zip(DICTIONARY_KEYS, values, strict=True):
        content = None if value is None else opened(key, value)
        if content is not None and len(content) >= _DICTIONARY.size:
            per_record, trained = _DICTIONARY.unpack_from(content)
            if 1 <= per_record <= MOST_STRINGS:
                return StringLayout(per_record, trained, content[_DICTIONARY.size :])
    return None


def strings_per_record(count: int, total_bytes: int) -> int:
    """Return how many strings of a set of this size share a record."""
    return min(max(RECORD_BYTES * count // total_bytes, 1), MOST_STRINGS) if total_bytes else MOST_STRINGS


class Sample:
    """Some records of a set of strings, evenly spread: what a dictionary is trained on.

    Attributes
    ----------
    records : list of bytes
        Uncompressed; SAMPLE_BYTES at most.
    """

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self._step, self._seen, self._bytes = 1, 0, 0

    def add(self, strings: StringColumn) -> None:
        """Take the strings of the next record, or leave them out."""
        if self._seen % self._step == 0:
            self.records.append(strings.separated())
            self._bytes += len(self.records[-1])
        self._seen += 1
        while self._bytes > SAMPLE_BYTES and len(self.records) > 1:
            del self.records[1::2]
            self._step *= 2
            self._bytes = sum(map(len, self.records))


def train(sample: Sample, total_bytes: int) -> bytes:
    """Train a dictionary for a set of strings of this size; b"" if it is too small for one."""
    import zstandard

    size = min(MOST_DICTIONARY_BYTES, total_bytes // DICTIONARY_SHARE)
    if size < 1 << 8:
        return b""
    try:
        return zstandard.train_dictionary(size, list(sample.records), level=LEVEL).as_bytes()
    except zstandard.ZstdError:  # there is nothing to learn
        return b""


def _dictionary(data: bytes) -> ZstdCompressionDict | None:
    import zstandard

    return zstandard.ZstdCompressionDict(data) if data else None


class RecordReader:
    """Reads the values of a file.

    Parameters
    ----------
    layout : StringLayout
    """

    def __init__(self, layout: StringLayout) -> None:
        import zstandard

        self._layout = layout
        self._zstandard = zstandard
        self._free: list[ZstdDecompressor] = []  # each is for one thread at a time

    def content(self, record: int, value: bytes) -> bytes | None:
        """Return what a value decompresses to, or None if it is damaged."""
        frame = _kernel.open_frame(value, record)
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
        return None if not strings or strings.pop() or len(strings) > self._layout.per_record else strings

    def contents(self, records: Words, values: Sequence[bytes | None]) -> Iterator[tuple[slice, Buffers | None]]:
        """Yield (which values, what they decompress to, as buffers) in parts of some bytes; None, last, if one is damaged."""
        start = 0
        while start < len(values):
            found = self._decompressed(records[start:], list(values[start:]))
            end = len(values) if found is None else start + len(found)
            yield slice(start, end), found
            start = end

    def _decompressed(self, records: Words, values: list[bytes | None]) -> Buffers | None:
        """Return what the first values decompress to, or None if one is damaged."""
        frames = _kernel.open_frames(values, records, CONTENT_BYTES)
        if frames is None:
            return None
        data, segments, sizes = frames
        try:
            zstd = self._decompressor()
            found: Buffers = zstd.multi_decompress_to_buffer(
                self._zstandard.BufferWithSegments(data, segments), decompressed_sizes=sizes
            )
        except self._zstandard.ZstdError:
            return None
        self._free.append(zstd)
        return found

    def _decompressor(self) -> ZstdDecompressor:
        try:
            return self._free.pop()
        except IndexError:  # all are in use
            return self._zstandard.ZstdDecompressor(dict_data=_dictionary(self._layout.dictionary))


class StringWriter:
    """Writes strings in the order of their numbers, from 0 on.

    Parameters
    ----------
    path : Path
        The file to create.
    layout : StringLayout
    threads : int
    """

    def __init__(self, path: Path, layout: StringLayout, threads: int = 1) -> None:
        import zstandard

        known = _dictionary(layout.dictionary)
        if known is not None:
            known.precompute_compress(level=LEVEL)
        self._compressor: ZstdCompressor = zstandard.ZstdCompressor(
            level=LEVEL, dict_data=known, write_checksum=False, write_content_size=True, write_dict_id=False
        )
        self._zstandard = zstandard
        self._layout = layout
        self._threads = threads
        self._waiting = NO_STRINGS  # of the record that is not full yet
        self._values: list[bytes] = []  # to be written together
        self._written = self._largest = self._held = 0
        self._writer = SealedWriter(path)

    def add(self, strings: StringColumn) -> None:
        """Append strings; an empty one stands for a number that is not in use."""
        waiting = StringColumn.joined([self._waiting, strings]) if len(self._waiting) else strings
        step = self._layout.per_record
        whole = len(waiting) // step * step
        self._compress(waiting.part(0, whole))
        self._waiting = waiting.part(whole, len(waiting))

    def _compress(self, strings: StringColumn) -> None:
        """Append records of strings, of which the last may be short."""
        if not len(strings):
            return
        count, step = len(strings), self._layout.per_record
        lasts = np.minimum(np.arange(step, count + step, step), count)
        ends = strings.ends[lasts - 1] + lasts.astype(np.uint64)  # with the separators
        segments = np.stack([np.append(np.uint64(0), ends[:-1]), np.diff(ends, prepend=np.uint64(0))], axis=1)
        records = self._zstandard.BufferWithSegments(strings.separated(), segments.tobytes())
        frames = self._compressor.multi_compress_to_buffer(records, threads=self._threads)
        self.copy(_kernel.seal_frames(frames, self._written + len(self._values)))

    def copy(self, values: list[bytes]) -> None:
        """Append values as they lie in the same place of a file of the same layout."""
        self._values += values
        self._held += sum(map(len, values))
        if len(self._values) >= BATCH_RECORDS or self._held >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        values = self._values
        keys = record_keys(np.arange(self._written, self._written + len(values), dtype=np.uint64))
        items = list(zip(keys, values, strict=True))
        self._writer.run(lambda transaction: _append(transaction, items))
        self._written += len(values)
        self._largest = max(self._largest, max(map(len, values), default=0))
        self._values, self._held = [], 0

    def finish(self) -> dict[str, int]:
        """Make the file durable, and return its size, digest and largest value."""
        self._compress(self._waiting)
        self._flush()
        items = [(key, sealed(key, self._layout.pack())) for key in DICTIONARY_KEYS]
        self._writer.run(lambda transaction: _append(transaction, items))
        self._largest = max(self._largest, len(items[0][1]))
        size, digest = self._writer.finish(self._largest)
        return {"bytes": size, "digest": digest, "largest": self._largest}

    def abort(self) -> None:
        """Close without finishing."""
        self._writer.abort()


def _append(transaction: Any, items: list[tuple[bytes, bytes]]) -> None:
    transaction.cursor().putmulti(items, append=True)


class Wanted(NamedTuple):
    """Which strings of decompressed records are wanted: of content i, which has ``counts[i]``, ``ranks[lims[i]:lims[i + 1]]``."""

    contents: Buffers
    counts: Words
    lims: Words
    ranks: Words


class Strings:
    """Reads strings by number.

    Parameters
    ----------
    path : Path
    shape : dict
        As :meth:`StringWriter.finish` returned it.
    count : int
        The number of strings, unused numbers included.
    """

    def __init__(self, path: Path, shape: dict[str, int], count: int) -> None:
        self.path = path
        self.count = count
        self._reader = SealedReader(path, file_bytes=shape["bytes"], digest=shape["digest"], largest=shape["largest"])
        self._last: tuple[int, bytes] = -1, b""  # the record that was read last, and what it decompresses to

    @cached_property
    def layout(self) -> StringLayout:
        """What all records share.

        Raises
        ------
        CorruptStoreError
        """
        layout = parse_layout(map(self._reader.get, DICTIONARY_KEYS))
        if layout is None:
            raise self._damaged("the dictionary of the strings is damaged")
        return layout

    @property
    def per_record(self) -> int:
        """The number of strings in a record."""
        return self.layout.per_record

    def _damaged(self, what: str) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path}: {what}: run fpstore repair", path=self.path)

    def _unknown(self, number: int) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path}: id number {number} has no string", path=self.path)

    @cached_property
    def _records(self) -> RecordReader:
        return RecordReader(self.layout)

    def _counts(self, records: Words) -> Words:
        """Return how many strings each of some records has."""
        per_record = np.uint64(self.per_record)
        counts: Words = np.minimum(np.uint64(self.count) - records * per_record, per_record)
        return counts

    def parse(self, record: int, value: bytes | None) -> list[bytes]:
        """Return the strings of a record, of which there are as many as its place says.

        Raises
        ------
        CorruptStoreError
        """
        strings = None if value is None else self._records.strings(record, value)
        if strings is None or len(strings) != min(self.per_record, self.count - record * self.per_record):
            raise self._damaged_record(record)
        return strings

    def _damaged_record(self, record: int) -> CorruptStoreError:
        first = record * self.per_record
        return self._damaged(f"the strings of id numbers {first} to {first + self.per_record - 1} are damaged")

    def encoded(self, number: int) -> bytes:
        """Return the UTF-8 of the string of a number.

        Raises
        ------
        CorruptStoreError
            There is none.
        """
        return self.string(number).encode()

    def string(self, number: int) -> str:
        """Return the string of a number; see :meth:`encoded`."""
        if number >= self.count:
            raise self._unknown(number)
        per_record = self.layout.per_record
        record = number // per_record
        last, content = self._last
        if last != record:
            value = self._reader.get(record_key(record), record)
            read = None if value is None else self._records.content(record, value)
            if read is None:
                raise self._damaged_record(record)
            content = read
            self._last = record, content
        first = record * per_record
        string = _kernel.string_at(content, min(per_record, self.count - first), number - first)
        if not string:
            raise self._damaged_record(record) if string is None else self._unknown(number)
        return string

    def several(self, numbers: Words) -> list[bytes]:
        """Return the UTF-8 of the strings of ascending numbers. Each record is read once.

        Raises
        ------
        CorruptStoreError
        """
        out: list[bytes] = []

        def pick(wanted: Wanted, rows: slice) -> bool:
            picked = _kernel.pick_strings(*wanted)
            out.extend(picked or ())
            return picked is not None

        self._for_wanted(numbers, pick)
        if not all(out):
            raise self._unknown(int(numbers[out.index(b"")]))
        return out

    def place(self, numbers: Words, places: Words, out: list[str]) -> None:
        """Put the strings of ascending numbers at these places of a list. Each record is read once.

        Raises
        ------
        CorruptStoreError
        """
        self._for_wanted(numbers, lambda wanted, rows: _kernel.place_strings(*wanted, places[rows], out))

    def _for_wanted(self, numbers: Words, take: Callable[[Wanted, slice], bool]) -> None:
        """Call ``take(wanted, rows)`` for parts of ascending numbers; it returns whether the strings could be taken."""
        if len(numbers) and int(numbers[-1]) >= self.count:
            raise self._unknown(int(numbers[-1]))
        records = numbers // np.uint64(self.per_record)
        ranks = numbers - records * np.uint64(self.per_record)
        lims = np.append(np.flatnonzero(np.diff(records, prepend=NOWHERE)), len(numbers))
        distinct = records[lims[:-1]]
        first = 0
        while first < len(distinct):
            some = distinct[first : first + RECORDS_AT_ONCE]
            values = self._reader.get_many(some, some, VALUE_BYTES)
            some, bounds = some[: len(values)], lims[first : first + len(values) + 1]
            for part, contents in self._records.contents(some, values):
                rows = slice(int(bounds[part.start]), int(bounds[part.stop]))
                within = (bounds[part.start : part.stop + 1] - rows.start).astype(np.uint64)
                if contents is None or not take(Wanted(contents, self._counts(some[part]), within, ranks[rows]), rows):
                    raise self._fault(some, values, numbers[rows])
            first += len(values)

    def _fault(self, records: Words, values: Sequence[bytes | None], numbers: Words) -> CorruptStoreError:
        """Return why strings of some records cannot be read."""
        for record, value in zip(records.tolist(), values, strict=True):
            try:
                self.parse(record, value)
            except CorruptStoreError as error:
                return error
        for number in numbers.tolist():
            try:
                self.string(number)
            except CorruptStoreError as error:
                return error
        return self._damaged("strings cannot be read")

    def records(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (first record, values of it and those that follow) in order, as they lie in the file."""
        items = islice(self._reader.items(), -(-self.count // self.per_record))
        first, size = 0, 0
        values: list[bytes] = []
        for record, (key, value) in enumerate(items):
            if key != record_key(record):
                raise self._damaged(f"record {record} of the strings is missing")
            values.append(value)
            size += len(value)
            if len(values) == RECORDS_AT_ONCE or size >= VALUE_BYTES:
                yield first, values
                first, size, values = record + 1, 0, []
        if values:
            yield first, values

    def columns_of(self, first: int, values: list[bytes]) -> Iterator[StringColumn]:
        """Yield the strings of successive records, in parts of some bytes.

        Raises
        ------
        CorruptStoreError
        """
        records = np.arange(first, first + len(values), dtype=np.uint64)
        for some, contents in self._records.contents(records, values):
            column = None if contents is None else _kernel.join_contents(contents, self._counts(records[some]))
            if column is None:
                raise self._fault(records, values, np.empty(0, np.uint64))
            yield StringColumn(*column)

    def intact(self, first: int, values: list[bytes]) -> bool:
        """Whether the values of successive records have the right checksums."""
        return all(_kernel.open_frame(value, record) is not None for record, value in enumerate(values, first))

    def columns(self) -> Iterator[tuple[int, StringColumn]]:
        """Yield (number of the first string, strings) in order of the numbers; those not in use are empty."""
        number = 0
        for first, values in self.records():
            for column in self.columns_of(first, values):
                yield number, column
                number += len(column)

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, string in UTF-8) in order of the numbers, without the numbers that are not in use."""
        for first, column in self.columns():
            for number, string in enumerate(column.tolist(), first):
                if string:
                    yield number, string

    def check_pages(self) -> None:
        """Check every page of the file."""
        self._reader.verify()

    @property
    def file_bytes(self) -> int:
        """Size of the file on disk."""
        return self._reader.file_bytes

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
