"""Parquet files of row groups that threads encode.

Each row group is encoded as a file in memory, by pyarrow. The file that is written has their column
chunks one after the other, and a footer with the new places (Apache Parquet, ``parquet.thrift``, in
the compact protocol of Apache Thrift).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fpstore.base.pools import map_in_order
from fpstore.io.sink import Sink

# of a row group, whichever is reached first
GROUP_ROWS, COPIED_BYTES = 1 << 18, 1 << 25
PAGE_STEP = 1 << 6  # rows after which a page that is written may end: readers decode it as a whole
_MAGIC, _LENGTH = b"PAR1", struct.Struct("<I")
# types of the compact protocol
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
# fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7
_CHUNK_OFFSETS, _CHUNK_METADATA = (2, 4, 6), 3  # of the metadata, and of indexes of pages
_PAGE_OFFSETS = (9, 10, 11, 14)  # of data, an index, a dictionary, a filter


class Value(NamedTuple):
    """A value of the compact protocol, with its type.

    A struct is a dictionary of values by field, a list has the type of its elements.
    """

    kind: int
    data: Any


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def read(self, kind: int) -> Any:
        if kind in _INTEGERS:
            number = self._varint()
            return number >> 1 ^ -(number & 1)
        if kind == _STRUCT:
            return self._fields()
        if kind in (_LIST, _SET):
            return self._elements()
        if kind in (_TRUE, _FALSE):
            return None
        return self._take({_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint())

    def _take(self, size: int) -> bytes:
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def _fields(self) -> dict[int, Value]:
        fields, field = dict[int, Value](), 0
        while header := self._take(1)[0]:
            field = field + (header >> 4) if header >> 4 else self.read(_INTEGERS[0])
            fields[field] = Value(header & 15, self.read(header & 15))
        return fields

    def _elements(self) -> tuple[int, list[Any]]:
        header = self._take(1)[0]
        size, kind = header >> 4, header & 15
        size = self._varint() if size == 15 else size
        # a flag in a list is a byte
        return kind, [self.read(_BYTE if kind in (_TRUE, _FALSE) else kind) for _ in range(size)]


def _encoded(kind: int, data: Any) -> bytes:
    if kind in _INTEGERS:
        return _varint(data << 1 if data >= 0 else ~(data << 1))
    if kind == _STRUCT:
        parts, before = list[bytes](), 0
        for field, value in data.items():
            step = field - before
            short = 0 < step < 16
            parts.append(bytes([(step << 4 if short else 0) | value.kind]))
            parts.append(b"" if short else _encoded(_INTEGERS[0], field))
            parts.append(_encoded(*value))
            before = field
        return b"".join([*parts, b"\0"])
    if kind in (_LIST, _SET):
        element, values = data
        size = len(values)
        header = bytes([min(size, 15) << 4 | element]) + (_varint(size) if size > 14 else b"")
        element = _BYTE if element in (_TRUE, _FALSE) else element
        return header + b"".join(_encoded(element, value) for value in values)
    if kind in (_TRUE, _FALSE):
        return b""
    return _varint(len(data)) + data if kind == _BINARY else bytes(data)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _split(file: memoryview) -> tuple[memoryview, dict[int, Value]]:
    """Return the column chunks of a file in memory, and its metadata."""
    end = len(file) - len(_MAGIC) - _LENGTH.size
    (length,) = _LENGTH.unpack(file[end : end + _LENGTH.size])
    return file[len(_MAGIC) : end - length], _Reader(file[end - length : end]).read(_STRUCT)


def _move(fields: dict[int, Value], names: Iterable[int], distance: int) -> None:
    for name in names:
        if name in fields and fields[name].data > 0:
            fields[name] = fields[name]._replace(data=fields[name].data + distance)


class JoinedFile:
    """A file of the row groups of others, which have the same schema."""

    def __init__(self, sink: Sink, empty: memoryview) -> None:
        """Begin with a file that has no rows, and the schema and the metadata of all."""
        self._sink = sink
        _, self._metadata = _split(empty)
        self._groups: list[dict[int, Value]] = []
        self._rows, self._size = 0, 0
        self._write(_MAGIC)

    def append(self, file: memoryview) -> None:
        chunks, metadata = _split(file)
        distance = self._size - len(_MAGIC)
        for group in metadata[_ROW_GROUPS].data[1]:
            _move(group, [_GROUP_OFFSET], distance)
            for chunk in group[_COLUMNS].data[1]:
                _move(chunk, _CHUNK_OFFSETS, distance)
                _move(chunk[_CHUNK_METADATA].data, _PAGE_OFFSETS, distance)
            if _ORDINAL in group:
                group[_ORDINAL] = group[_ORDINAL]._replace(data=len(self._groups))
            self._groups.append(group)
        self._rows += metadata[_NUM_ROWS].data
        self._write(chunks)

    def finish(self) -> None:
        metadata = self._metadata
        metadata[_NUM_ROWS] = metadata[_NUM_ROWS]._replace(data=self._rows)
        metadata[_ROW_GROUPS] = metadata[_ROW_GROUPS]._replace(data=(_STRUCT, self._groups))
        footer = _encoded(_STRUCT, metadata)
        self._write(footer + _LENGTH.pack(len(footer)) + _MAGIC)

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._size += len(data)


def write_batches(
    arrow: Any,
    batches: Iterable[Any],
    schema: Any,
    sink: Sink,
    compression: str = "snappy",
    threads: int = 1,
) -> None:
    """Write record batches as row groups, which threads encode while batches are taken.

    The bytes do not depend on the number of threads.
    """

    def encode(batches: list[Any]) -> memoryview:
        out = arrow.BufferOutputStream()
        with arrow.parquet.ParquetWriter(
            out, schema, compression=compression, write_batch_size=PAGE_STEP
        ) as writer:
            if batches:
                writer.write_table(arrow.Table.from_batches(batches, schema=schema))
        return memoryview(out.getvalue())

    file = JoinedFile(sink, encode([]))
    for _, group in map_in_order(encode, _gathered(batches), threads):
        file.append(group)
    file.finish()


def _gathered(batches: Iterable[Any]) -> Iterator[list[Any]]:
    groups = RowGroups(COPIED_BYTES)
    for batch in batches:
        if group := groups.add(batch):
            yield group
    if group := groups.take():
        yield group


class RowGroups:
    """Gathers record batches into row groups of GROUP_ROWS rows, or of about ``most_bytes``."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._batches: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, batch: Any) -> list[Any]:
        """Return the batches of the row group that this one completes, if any."""
        self._batches.append(batch)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        is_full = self._rows >= GROUP_ROWS or self._bytes >= self._most_bytes
        return self.take() if is_full else []

    def take(self) -> list[Any]:
        """Return the batches of the last row group, which may be none."""
        batches, self._batches = self._batches, []
        self._rows = self._bytes = 0
        return batches
