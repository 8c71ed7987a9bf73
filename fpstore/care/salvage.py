"""What is left of a damaged store: intact blocks of tables, id records and strings, each vouched for by its checksum.

LMDB files are read page by page (:func:`fpstore.disk.sealed.left_items`): what is looked for has a checksum of its own, so it
does not matter which page it is found on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import printable
from fpstore.base.width import WORD_BITS, Width
from fpstore.building.external_sort import Sorter
from fpstore.building.target import sorting_folder
from fpstore.care.word_array import SortedArray, WordArray
from fpstore.design.families import Design
from fpstore.design.tables import BLOCKS
from fpstore.disk.files import open_file, opened, read_at, read_if_possible
from fpstore.disk.sealed import WORD_BYTES, left_items, opened_seal
from fpstore.errors import CorruptStoreError, FpstoreError, StorageError, StoreNotFoundError
from fpstore.format import huffman
from fpstore.format.column_table import ColumnTable, block_counts
from fpstore.format.id_map import record_seed
from fpstore.format.layout import ColumnLayout
from fpstore.format.packed_table import PackedTable
from fpstore.format.string_records import LAYOUT_KEYS, RecordReader, StringLayout, checked, parse_layout
from fpstore.format.table import Table

CODE_OFFSET = 384  # in the header of a table
MOST_DIRECTORY_BITS = 32
LEAST_BYTES = 16  # of an id record
FOUND_AT_ONCE = 1 << 12


class Blocks(NamedTuple):
    """Successive intact blocks of a table: the number of the first, their entries, how many each has."""

    first: int
    values: Words
    counts: npt.NDArray[np.uint32]


def intact_blocks(table: Table) -> Iterator[Blocks]:
    """Yield every block of a table that can be read, in order; of a column table, blocks of ids."""
    return _blocks_of_columns(table) if isinstance(table, ColumnTable) else _blocks(table)


def _blocks_of_columns(table: ColumnTable) -> Iterator[Blocks]:
    size, count = _kernel.ROWS_IN_BLOCK, table.header.count
    for run in table.known:
        first = -(-run.first // size) * size
        end = run.end if run.end == count else run.end // size * size
        for start, values in table.read_known(run._replace(first=first, end=max(end, first))):
            yield Blocks(start // size, values, block_counts(len(values)))


def _blocks(table: PackedTable) -> Iterator[Blocks]:
    start, end = 0, table.header.block_count
    while start < end:
        try:
            values, counts, after = table.decode(start, end)
        except (CorruptStoreError, StorageError) as error:
            bad = error.block if isinstance(error.block, int) and start <= error.block < end else start
            while start < bad:
                values, counts, after = table.decode(start, bad)
                yield Blocks(start, values, counts)
                start = after
            start = bad + 1
            continue
        yield Blocks(start, values, counts)
        start = after


def known_values(table: Table) -> Iterator[Words]:
    """Yield every fingerprint of a table that can be read, in the order of the table, in pieces."""
    permutation = np.frombuffer(table.header.permutation, np.uint8)
    if isinstance(table, PackedTable):
        pieces = (piece.values for piece in intact_blocks(table))
    else:
        pieces = (values for run in table.known for _, values in table.read_known(run))
    for values in pieces:
        yield _kernel.permute(values, permutation, True)


def with_new_header(path: Path, design: Design, table: int, count: int, digest: int, block_bytes: int) -> Table:
    """Open a table whose header is damaged: all of it but the lengths of the codes of blocks is known from elsewhere.

    Whether they are right, the checksums of blocks or pages tell.

    Raises
    ------
    CorruptStoreError, StoreNotFoundError
    """
    if design.tables[table].kind == BLOCKS:
        return _blocks_with_new_header(path, design, table, count, digest, block_bytes)
    cutter = ColumnLayout.of(design, table, count, digest).cutter()
    return ColumnTable(path, None, cutter.header, cutter.file_bytes)


def _blocks_with_new_header(path: Path, design: Design, table: int, count: int, digest: int, block_bytes: int) -> PackedTable:
    with opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        code = read_at(descriptor, path, CODE_OFFSET, huffman.SYMBOLS)
    spec = design.tables[table]
    for bits in range(MOST_DIRECTORY_BITS + 1):
        blocks, rest = divmod(size - _kernel.HEADER_BYTES - 8 * (2**bits + 1), block_bytes + WORD_BYTES * spec.width.words)
        if rest or not 0 < blocks < 2 ** (bits + 4):
            continue
        try:
            header = _kernel.make_header(
                np.frombuffer(spec.permutation, np.uint8), np.frombuffer(code, np.uint8), digest, count, blocks, block_bytes,
                table, len(design.tables), spec.prefix_bits, spec.flips,
            )  # fmt: skip
            return PackedTable(path, None, header)
        except (FpstoreError, ValueError):
            continue
    raise CorruptStoreError(f"{path}: neither the header nor the size of the table is right", path=path)


class IdRecords:
    """The intact id records of a damaged or sound ``ids.mdb``, by their keys: each is the last fingerprint of a block.

    Parameters
    ----------
    path : Path or None
        None when there is none that can be trusted.
    set_digest : int
        Of the generation's tables; it seeds the checksums.
    words : int
        Of a fingerprint.
    target : Path
        The new store: temporary files go beside it.
    memory : int
        Budget in bytes.

    Attributes
    ----------
    keys : SortedArray
    """

    def __init__(self, path: Path | None, set_digest: int, words: int, target: Path, memory: int) -> None:
        self._path, self._digest = path or Path(), set_digest
        self._width = Width(WORD_BITS * words)
        self.keys = SortedArray(target.parent, memory // 4, words)
        self._places = WordArray(target.parent, memory // 4)  # for each key: where the record starts, and its size
        self._descriptor = -1
        if path is None:
            return
        with suppress(StoreNotFoundError, CorruptStoreError):
            self._descriptor = open_file(path)
        if self._descriptor >= 0:
            self._find(target, memory)

    def _find(self, target: Path, memory: int) -> None:
        found = WordArray(target.parent, memory // 4)  # in the order of the pages
        with sorting_folder(target) as folder:
            sorter = Sorter(memory // 4, folder, words=self._width.words)
            records = self._intact()
            for batch in iter(lambda: list(islice(records, FOUND_AT_ONCE)), []):
                keys = self._width.rows(key for key, _, _ in batch)
                sorter.add(keys, np.arange(sorter.rows, sorter.rows + len(keys), dtype=np.uint64))
                found.append(np.array([place for _, *place in batch], np.uint64).ravel())
            if sorter.rows:
                for group in sorter.groups(lambda rows: None):
                    self.keys.append(group.keys)
                    firsts = np.cumsum(group.counts) - group.counts  # a page that is not in use may have a copy
                    for number in group.ids[firsts].tolist():
                        self._places.append(found.read(2 * number, 2 * number + 2))
        found.close()

    def _intact(self) -> Iterator[tuple[int, int, int]]:
        """Yield (key, start, size) of each record, in the order of the pages."""
        for item in left_items(self._path, self._descriptor, self._width.bytes):
            key = int.from_bytes(item.key, "big")
            if item.size >= LEAST_BYTES and self._unpacked(key, item.start, item.size) is not None:
                yield key, item.start, item.size

    def _unpacked(self, key: int, start: int, size: int) -> tuple[Words, Words] | None:
        try:
            data = read_if_possible(self._descriptor, self._path, start, size)
            return _kernel.unpack_record(data, record_seed(self._digest, key), printable(self._path))
        except CorruptStoreError:
            return None

    def __len__(self) -> int:
        return len(self.keys)

    def get(self, number: int) -> tuple[Words, Words] | None:
        """Return (ids per fingerprint, ids) of the record with the ``number``-th key, or None if it cannot be read again."""
        start, size = self._places.read(2 * number, 2 * number + 2).tolist()
        return self._unpacked(self.keys[number], start, size)

    @property
    def memory(self) -> int:
        """Bytes that this takes."""
        return self.keys.memory + self._places.memory

    def close(self) -> None:
        """Give memory and files back."""
        self.keys.close()
        self._places.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class SalvagedStrings:
    """The intact strings of a dictionary, by number; they stay where they are.

    Parameters
    ----------
    path : Path or None
        None when there is none that can be trusted.
    first_free : int or None
        Above all numbers, where that is known.
    folder : Path
        For a temporary file.
    room : int
        Bytes of memory for the places of the records.
    """

    def __init__(self, path: Path | None, first_free: int | None, folder: Path, room: int) -> None:
        self._path = path or Path()
        self._places = WordArray(folder, room)  # by record: where the value starts, and its size; 0 where it is lost
        self._layout: StringLayout | None = None
        self._last: tuple[int, list[bytes]] = -1, []  # the record that was read last
        self.records = 0
        self._descriptor = -1
        if path is not None:
            with suppress(StoreNotFoundError, CorruptStoreError):
                self._descriptor = open_file(path)
        if self._descriptor >= 0:
            self._scan(first_free)
        self._reader = None if self._layout is None else RecordReader(self._layout)

    def _scan(self, first_free: int | None) -> None:
        path, descriptor = self._path, self._descriptor
        size = os.fstat(descriptor).st_size
        end = size if first_free is None else min(first_free, size)
        copies: dict[int, bytes] = {}
        for item in left_items(path, descriptor, WORD_BYTES):
            record = int.from_bytes(item.key, "big")
            if item.size > size or not (record < end or record in LAYOUT_KEYS):
                continue
            value = read_if_possible(descriptor, path, item.start, item.size)
            if checked(record, value) is None:
                continue
            if record in LAYOUT_KEYS:
                copies[record] = value
            elif not self._places[2 * record + 1]:
                self._places[2 * record], self._places[2 * record + 1] = item.start, item.size
                self.records += 1
        self._layout = parse_layout(map(copies.get, LAYOUT_KEYS))

    @property
    def per_record(self) -> int:
        """The number of strings in a record; 0 if no string can be read."""
        return 0 if self._layout is None else self._layout.per_record

    @property
    def end(self) -> int:
        """Above all numbers."""
        return len(self._places) // 2 * self.per_record

    @property
    def memory(self) -> int:
        """Bytes that this takes."""
        return self._places.memory

    def among(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        """Return whether the numbers from ``low`` to before ``high``, or to the end, have a string."""
        return np.array([self.get(number) is not None for number in range(low, min(high, self.end))], bool)

    def get(self, number: int) -> bytes | None:
        """Return the string of a number, or None when it is lost."""
        if not self.per_record:
            return None
        record, rank = divmod(number, self.per_record)
        strings = self._read(record)
        return (strings[rank] or None) if rank < len(strings) else None

    def _read(self, record: int) -> list[bytes]:
        number, strings = self._last
        if number != record:
            start, size = self._places[2 * record], self._places[2 * record + 1]
            value = read_if_possible(self._descriptor, self._path, start, size) if size else b""
            strings = (None if self._reader is None else self._reader.strings(record, value)) or []
            self._last = record, strings
        return strings

    def close(self) -> None:
        """Give memory and files back."""
        self._places.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def check_seal(path: Path) -> None:
    """Check every page of a sealed LMDB file without LMDB.

    Raises
    ------
    CorruptStoreError, StoreNotFoundError
    """
    with opened(path) as descriptor:
        opened_seal(path, descriptor).check_all()
