"""The strings of a store by number: many in a record, compressed together (docs/format.md, "Strings")."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from fpstore.aliases import Words
from fpstore.arguments import MAX_ID_BYTES
from fpstore.disk.sealed import SealedReader, SealedWriter
from fpstore.errors import CorruptStoreError

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


def record_key(record: int) -> bytes:
    """Return the LMDB key of a record: its number in 8 bytes, big-endian."""
    return struct.pack(">Q", record)


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


def joined(strings: Sequence[bytes]) -> bytes:
    """Return the strings of a record as one, each followed by SEPARATOR."""
    return SEPARATOR.join([*strings, b""])


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

    def add(self, strings: Sequence[bytes]) -> None:
        """Take the next record, or leave it out."""
        if self._seen % self._step == 0:
            self.records.append(joined(strings))
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
    """Decompresses the records of a file.

    Parameters
    ----------
    layout : StringLayout
    """

    def __init__(self, layout: StringLayout) -> None:
        import zstandard

        self._layout = layout
        self._zstandard = zstandard
        self._free: list[ZstdDecompressor] = []  # each is for one thread at a time

    def strings(self, content: bytes) -> list[bytes] | None:
        """Return the strings of a record, or None if this is not a record."""
        zstandard = self._zstandard
        try:
            if not 0 <= zstandard.frame_content_size(content) <= MOST_RECORD_BYTES:  # so much is allocated
                return None
            zstd = self._decompressor()
            strings = zstd.decompress(content, allow_extra_data=False).split(SEPARATOR)
        except zstandard.ZstdError:
            return None
        self._free.append(zstd)
        return None if strings.pop() or len(strings) > self._layout.per_record else strings

    def _decompressor(self) -> ZstdDecompressor:
        with suppress(IndexError):  # all are in use
            return self._free.pop()
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
        self._layout = layout
        self._threads = threads
        self._waiting: list[bytes] = []  # of the record that is not full yet
        self._records: list[bytes] = []  # to be written together
        self._plain: list[int] = []  # those of them that are to be compressed
        self._written = self._largest = self._held = 0
        self.per_record = layout.per_record
        self._writer = SealedWriter(path)

    def add(self, strings: Iterable[bytes]) -> None:
        """Append strings; b"" stands for a number that is not in use."""
        self._waiting.extend(strings)
        step = self.per_record
        whole = len(self._waiting) // step * step
        for start in range(0, whole, step):
            self._take(self._waiting[start : start + step])
        self._waiting = self._waiting[whole:]

    def _take(self, strings: list[bytes]) -> None:
        self._plain.append(len(self._records))
        self._take_content(joined(strings))

    def copy(self, content: bytes) -> None:
        """Append a whole record as it lies in a file of the same layout; the next string begins a record."""
        assert not self._waiting
        self._take_content(content)

    def _take_content(self, content: bytes) -> None:
        self._records.append(content)
        self._held += len(content)
        if len(self._records) == BATCH_RECORDS or self._held >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        records = self._records
        if self._plain:
            plain: list[bytes | bytearray | memoryview] = [records[i] for i in self._plain]
            frames = self._compressor.multi_compress_to_buffer(plain, threads=self._threads)
            for at, i in enumerate(self._plain):
                records[i] = frames[at].tobytes()
        keys = map(record_key, range(self._written, self._written + len(records)))
        items = [(key, sealed(key, content)) for key, content in zip(keys, records, strict=True)]
        self._writer.run(lambda transaction: _append(transaction, items))
        self._written += len(items)
        self._largest = max(self._largest, max((len(value) for _, value in items), default=0))
        self._records, self._plain, self._held = [], [], 0

    def finish(self) -> dict[str, int]:
        """Make the file durable, and return its size, digest and largest value."""
        if self._waiting:
            self._take(self._waiting)
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
        self._last: tuple[int, list[bytes]] = -1, []  # the record that was read last

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

    def parse(self, record: int, value: bytes | None) -> list[bytes]:
        """Return the strings of a record, of which there are as many as its place says.

        Raises
        ------
        CorruptStoreError
        """
        content = None if value is None else opened(record_key(record), value)
        strings = None if content is None else self._records.strings(content)
        first = record * self.per_record
        if strings is None or len(strings) != min(self.per_record, self.count - first):
            raise self._damaged(f"the strings of id numbers {first} to {first + self.per_record - 1} are damaged")
        return strings

    def _record(self, record: int) -> list[bytes]:
        number, strings = self._last
        if number != record:
            strings = self.parse(record, self._reader.get(record_key(record), record))
            self._last = record, strings
        return strings

    def encoded(self, number: int) -> bytes:
        """Return the UTF-8 of the string of a number.

        Raises
        ------
        CorruptStoreError
            There is none.
        """
        if number < self.count:
            string = self._record(number // self.per_record)[number % self.per_record]
            if string:
                return string
        raise self._unknown(number)

    def string(self, number: int) -> str:
        """Return the string of a number; see :meth:`encoded`."""
        return self.encoded(number).decode()

    def several(self, numbers: Words) -> list[bytes]:
        """Return the UTF-8 of the strings of ascending numbers. Each record is read once.

        Raises
        ------
        CorruptStoreError
        """
        out: list[bytes] = []
        if not len(numbers):
            return out
        if int(numbers[-1]) >= self.count:
            raise self._unknown(int(numbers[-1]))
        records = numbers // np.uint64(self.per_record)
        distinct, starts = np.unique(records, return_index=True)
        ends = [*starts[1:].tolist(), len(numbers)]
        values = self._reader.get_many([record_key(record) for record in distinct.tolist()], distinct.tolist())
        ranks = (numbers - records * np.uint64(self.per_record)).tolist()
        for record, value, start, end in zip(distinct.tolist(), values, starts.tolist(), ends, strict=True):
            strings = self.parse(record, value)
            out += [strings[rank] for rank in ranks[start:end]]
        if not all(out):
            raise self._unknown(int(numbers[out.index(b"")]))
        return out

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield (record, value) in order, as they lie in the file."""
        for record, (key, value) in enumerate(islice(self._reader.items(), -(-self.count // self.per_record))):
            if key != record_key(record):
                raise self._damaged(f"record {record} of the strings is missing")
            yield record, value

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, string in UTF-8) in order of the numbers, without the numbers that are not in use."""
        for record, value in self.records():
            for number, string in enumerate(self.parse(record, value), record * self.per_record):
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
