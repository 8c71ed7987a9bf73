"""Parquet files of row groups that threads encode.

Each row group is encoded as a file in memory, by pyarrow. The file that is written has their column
chunks one after the other, and a footer with the new places (Apache Parquet, ``parquet.thrift``, in
the compact protocol of Apache Thrift).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from fpstore.base.pools import map_in_order
from fpstore.io.sink import Sink
from fpstore.io.thrift import STRUCT, Struct, decode_struct, encode_struct

# of a row group, whichever is reached first: each thread has one in memory, twice
GROUP_ROWS, GROUP_BYTES = 1 << 18, 1 << 24
PAGE_STEP = 1 << 6  # rows after which a page that is written may end: readers decode it as a whole
_MAGIC, _LENGTH = b"PAR1", struct.Struct("<I")
# fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7
_CHUNK_OFFSETS, _CHUNK_METADATA = (2, 4, 6), 3  # of the metadata, and of indexes of pages
_PAGE_OFFSETS = (9, 10, 11, 14)  # of data, an index, a dictionary, a filter


def _split_file(file: memoryview) -> tuple[memoryview, Struct]:
    """Return the column chunks of a file in memory, and its metadata."""
    end = len(file) - len(_MAGIC) - _LENGTH.size
    (length,) = _LENGTH.unpack(file[end : end + _LENGTH.size])
    return file[len(_MAGIC) : end - length], decode_struct(file[end - length : end])


def _move(fields: Struct, numbers: Iterable[int], distance: int) -> None:
    """Add a distance to the places in a file that fields have; 0 stands for none."""
    for number in numbers:
        if number in fields and fields[number].value > 0:
            fields[number] = fields[number]._replace(value=fields[number].value + distance)


class JoinedFile:
    """A file of the row groups of others, which have the same schema."""

    def __init__(self, sink: Sink, empty: memoryview) -> None:
        """Begin with a file that has no rows, and the schema and the metadata of all."""
        self._sink = sink
        _, self._metadata = _split_file(empty)
        self._groups: list[Struct] = []
        self._rows, self._size = 0, 0
        self._write(_MAGIC)

    def append(self, file: memoryview) -> None:
        """Write the column chunks of another file."""
        chunks, metadata = _split_file(file)
        distance = self._size - len(_MAGIC)
        for group in metadata[_ROW_GROUPS].value[1]:
            _move(group, [_GROUP_OFFSET], distance)
            for chunk in group[_COLUMNS].value[1]:
                _move(chunk, _CHUNK_OFFSETS, distance)
                _move(chunk[_CHUNK_METADATA].value, _PAGE_OFFSETS, distance)
            if _ORDINAL in group:
                group[_ORDINAL] = group[_ORDINAL]._replace(value=len(self._groups))
            self._groups.append(group)
        self._rows += metadata[_NUM_ROWS].value
        self._write(chunks)

    def finish(self) -> None:
        """Write the footer."""
        metadata = self._metadata
        metadata[_NUM_ROWS] = metadata[_NUM_ROWS]._replace(value=self._rows)
        metadata[_ROW_GROUPS] = metadata[_ROW_GROUPS]._replace(value=(STRUCT, self._groups))
        footer = encode_struct(metadata)
        self._write(footer + _LENGTH.pack(len(footer)) + _MAGIC)

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._size += len(data)


def write_batches(
    arrow: Any,
    batches: Iterable[Any],
    schema: Any,
    sink: Sink,
    compression: str,
    threads: int,
) -> None:
    """Write record batches as row groups, which threads encode while batches are taken.

    The bytes do not depend on the number of threads.
    """

    def encode(batches: list[Any]) -> memoryview:
        out = io.BytesIO()
        with arrow.parquet.ParquetWriter(
            out, schema, compression=compression, write_batch_size=PAGE_STEP
        ) as writer:
            if batches:
                writer.write_table(arrow.Table.from_batches(batches, schema=schema))
        return out.getbuffer()

    file = JoinedFile(sink, encode([]))
    for _, group in map_in_order(encode, _gathered(batches), threads):
        file.append(group)
    file.finish()


def _gathered(batches: Iterable[Any]) -> Iterator[list[Any]]:
    groups = RowGroups()
    for batch in batches:
        if group := groups.add(batch):
            yield group
    if group := groups.take():
        yield group


class RowGroups:
    """Gathers record batches into row groups of GROUP_ROWS rows, or of about GROUP_BYTES."""

    def __init__(self) -> None:
        self._batches: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, batch: Any) -> list[Any]:
        """Return the batches of the row group that this one completes, if any."""
        self._batches.append(batch)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        is_full = self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES
        return self.take() if is_full else []

    def take(self) -> list[Any]:
        """Return the batches of the last row group, which may be none."""
        batches, self._batches = self._batches, []
        self._rows = self._bytes = 0
        return batches
