"""What is left of a damaged store: intact blocks of tables, id records and strings, each vouched for by its checksum.

LMDB files are read page by page (:mod:`fpstore.disk.lmdb_pages`): what is looked for has a checksum of its own, so it does not
matter which page it is found on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.arguments import printable
from fpstore.care.word_array import WordArray
from fpstore.design.families import Design
from fpstore.disk import lmdb_pages as pages
from fpstore.disk.files import open_file, opened, read_at, read_if_possible
from fpstore.disk.seal import opened_seal
from fpstore.errors import CorruptStoreError, FpstoreError, StorageError, StoreNotFoundError
from fpstore.format import huffman
from fpstore.format.id_map import record_seed
from fpstore.format.strings import sealed_string
from fpstore.format.table_file import TableFile

CODE_OFFSET = 192  # in the header of a table
MOST_DIRECTORY_BITS = 32
MOST_VALUE = 1 << 17  # of a dictionary: above all sizes


class Blocks(NamedTuple):
    """Successive intact blocks of a table: the number of the first, their entries, how many each has."""

    first: int
    values: Words
    counts: npt.NDArray[np.uint32]


def intact_blocks(table: TableFile) -> Iterator[Blocks]:
    """Yield every block of a table that can be read, in order."""
    start, end = 0, table.kernel.block_count
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


def with_new_header(path: Path, design: Design, table: int, count: int, digest: int, block_bytes: int) -> TableFile:
    """Open a table whose header is damaged: all of it but the lengths of the codes is known from elsewhere.

    Whether they are right, the checksums of the blocks tell.

    Raises
    ------
    CorruptStoreError, StoreNotFoundError
    """
    with opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        code = read_at(descriptor, path, CODE_OFFSET, huffman.SYMBOLS)
    spec = design.tables[table]
    for bits in range(MOST_DIRECTORY_BITS + 1):
        blocks, rest = divmod(size - _kernel.HEADER_BYTES - 8 * (2**bits + 1), block_bytes + 8)
        if rest or not 0 < blocks < 2 ** (bits + 4):
            continue
        try:
            header = _kernel.make_header(
                np.frombuffer(spec.permutation, np.uint8), np.frombuffer(code, np.uint8), digest, count, blocks, block_bytes,
                table, len(design.tables), spec.prefix_bits, spec.flips,
            )  # fmt: skip
            return TableFile(path, header)
        except (FpstoreError, ValueError):
            continue
    raise CorruptStoreError(f"{path}: neither the header nor the size of the table is right", path=path)


class IdRecords:
    """The intact id records of a damaged or sound ``ids.mdb``.

    Parameters
    ----------
    path : Path or None
        None when there is none that can be trusted.
    set_digest : int
        Of the generation's tables; it seeds the checksums.
    blocks : int
        How many there must be.
    folder : Path
        For a temporary file.
    room : int
        Bytes of memory for the places of the records.
    """

    def __init__(self, path: Path | None, set_digest: int, blocks: int, folder: Path, room: int) -> None:
        self._path, self._digest = path or Path(), set_digest
        self._places = WordArray(folder, room)  # by block: where the record starts, and its size
        self._descriptor = -1
        self.found = 0
        if path is None:
            return
        with suppress(StoreNotFoundError, CorruptStoreError):
            self._descriptor = open_file(path)
        if self._descriptor < 0:
            return
        for item in pages.entries(path, self._descriptor, lambda key: len(key) == 8 and int.from_bytes(key, "big") < blocks):
            block = int.from_bytes(item.key, "big")
            if not self._places[2 * block + 1] and item.size >= 16 and self._unpacked(block, item.start, item.size) is not None:
                self._places[2 * block] = item.start
                self._places[2 * block + 1] = item.size
                self.found += 1

    def _unpacked(self, block: int, start: int, size: int) -> tuple[Words, Words] | None:
        try:
            return _kernel.unpack_record(
                read_if_possible(self._descriptor, self._path, start, size),
                record_seed(self._digest, block),
                printable(self._path),
            )
        except CorruptStoreError:
            return None

    def get(self, block: int) -> tuple[Words, Words] | None:
        """Return (ids per fingerprint, ids) of a block, or None when its record is lost."""
        start, size = self._places[2 * block], self._places[2 * block + 1]
        return self._unpacked(block, start, size) if size else None

    def rows(self, block: int) -> int:
        """Return how many fingerprints a block has, 0 when its record is lost."""
        record = self.get(block)
        return 0 if record is None else len(record[0])

    @property
    def memory(self) -> int:
        """Bytes that this takes."""
        return self._places.memory

    def close(self) -> None:
        """Give memory and files back."""
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
        Bytes of memory for the places of the strings.
    """

    def __init__(self, path: Path | None, first_free: int | None, folder: Path, room: int) -> None:
        self._path = path or Path()
        self._places = WordArray(folder, room)  # by number: where the value starts, and its size; 0 where it is lost
        self._count = 0
        self._descriptor = -1
        if path is not None:
            with suppress(StoreNotFoundError, CorruptStoreError):
                self._descriptor = open_file(path)
        if self._descriptor >= 0:
            self._scan(first_free)

    def _scan(self, first_free: int | None) -> None:
        path, descriptor = self._path, self._descriptor
        end = os.fstat(descriptor).st_size if first_free is None else first_free
        for item in pages.entries(path, descriptor, lambda key: len(key) == 8):
            number = int.from_bytes(item.key, "big")
            if number < end and 5 <= item.size < MOST_VALUE and not self._places[number]:
                value = read_if_possible(descriptor, path, item.start, item.size)
                if value == sealed_string(number, value[4:]):
                    self._places[number] = item.start * MOST_VALUE + item.size
                    self._count += 1

    def __len__(self) -> int:
        return self._count

    @property
    def end(self) -> int:
        """Above all numbers."""
        return len(self._places)

    @property
    def memory(self) -> int:
        """Bytes that this takes."""
        return self._places.memory

    def among(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        """Return whether the numbers from ``low`` to before ``high`` have a string."""
        known: npt.NDArray[np.bool_] = self._places.read(low, high) != 0
        return known

    def get(self, number: int) -> bytes | None:
        """Return the string of a number, or None when it is lost."""
        place = self._places[number]
        if not place:
            return None
        start, size = divmod(place, MOST_VALUE)
        return read_at(self._descriptor, self._path, start + 4, size - 4)

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
        opened_seal(path, descriptor)[0].check_all()
