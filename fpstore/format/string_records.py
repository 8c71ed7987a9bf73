"""The records of a store's strings, and the parameters that all records share (docs/format.md, "Strings")."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from fpstore import _kernel
from fpstore.base.aliases import Words

if TYPE_CHECKING:
    from zstandard import ZstdCompressionDict, ZstdDecompressor

SEPARATOR = b"\xff"  # occurs in no UTF-8
RECORD_BYTES = 1 << 10  # the strings of a record, about; one look-up decompresses them
MOST_STRINGS = 1 << 8  # in a record
LAYOUT_KEYS = 2**64 - 2, 2**64 - 1  # two copies: without the layout, no record can be read
_LAYOUT = struct.Struct("<IQ")  # strings in a record; how many strings there were when the zstandard dictionary was trained
CHECKSUM_BYTES = 4
CONTENT_BYTES = 1 << 20  # of records that are decompressed together
Buffers = Any  # a sequence of buffers of zstandard


def with_checksum(key: int, content: bytes) -> bytes:
    """Return the value of a key: the low half of the XXH64 of the content, seeded with the key, then the content."""
    return struct.pack("<I", xxhash.xxh64_intdigest(content, key) & 0xFFFFFFFF) + content


def checked(key: int, value: bytes) -> bytes | None:
    """Return the content of a value, or None if it is damaged."""
    content = value[CHECKSUM_BYTES:]
    return content if with_checksum(key, content) == value else None


class StringLayout(NamedTuple):
    """The parameters that all records of a file share.

    Attributes
    ----------
    per_record : int
        The number of strings in a record.
    trained : int
        How many strings there were when the dictionary was trained.
    dictionary : bytes
        The zstandard dictionary; b"" if there is none.
    """

    per_record: int
    trained: int
    dictionary: bytes

    def pack(self) -> bytes:
        """Return its bytes in the file."""
        return _LAYOUT.pack(self.per_record, self.trained) + self.dictionary


def parse_layout(values: Iterable[bytes | None]) -> StringLayout | None:
    """Return the layout from the values of LAYOUT_KEYS, of which one is enough; None if all are damaged."""
    for key, value in zip(LAYOUT_KEYS, values, strict=True):
        content = None if value is None else checked(key, value)
        if content is not None and len(content) >= _LAYOUT.size:
            per_record, trained = _LAYOUT.unpack_from(content)
            if 1 <= per_record <= MOST_STRINGS:
                return StringLayout(per_record, trained, content[_LAYOUT.size :])
    return None


def strings_per_record(count: int, total_bytes: int) -> int:
    """Return how many strings of a set of this size share a record."""
    return min(max(RECORD_BYTES * count // total_bytes, 1), MOST_STRINGS) if total_bytes else MOST_STRINGS


def zstandard_dictionary(data: bytes) -> ZstdCompressionDict | None:
    """Return the dictionary as zstandard takes it."""
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
        return None if not strings or strings.pop() or len(strings) > self._layout.per_record else strings

    def contents(self, records: Words, values: Sequence[bytes | None]) -> Iterator[tuple[slice, Buffers | None]]:
        """Yield (which values, their decompressed buffers) in parts of some bytes; None, last, if a value is damaged."""
        start = 0
        while start < len(values):
            found = self._decompressed(records[start:], list(values[start:]))
            end = len(values) if found is None else start + len(found)
            yield slice(start, end), found
            start = end

    def _decompressed(self, records: Words, values: list[bytes | None]) -> Buffers | None:
        """Return the decompressed contents of the first values, or None if one is damaged."""
        frames = _kernel.checked_frames(values, records, CONTENT_BYTES)
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
            return self._zstandard.ZstdDecompressor(dict_data=zstandard_dictionary(self._layout.dictionary))
