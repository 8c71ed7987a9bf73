"""What is left of a damaged store: intact blocks of tables, id records, names and log records, each vouched for by its checksum.

LMDB files are read page by page (:mod:`fpstore.pages`): what is looked for has a checksum of its own, so it does not matter which
page it is found on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.arguments import printable
from fpstore.care.log_check import read_log
from fpstore.design.families import Design
from fpstore.disk import lmdb_pages as pages
from fpstore.disk.files import read_at, read_if_possible
from fpstore.disk.refusals import refused
from fpstore.disk.seal import opened_seal
from fpstore.disk.word_array import WordArray
from fpstore.errors import CorruptStoreError, FpstoreError, StorageError, StoreNotFoundError
from fpstore.format import huffman, layout
from fpstore.format.id_map import record_seed
from fpstore.format.strings import sealed_string
from fpstore.format.table_file import TableFile
from fpstore.query.delta import Record, unpack
from fpstore.query.journal import LOG, META

Words = npt.NDArray[np.uint64]
Note = Callable[[FpstoreError], None]
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
    with pages.opened(path) as descriptor:
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
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise refused(path, error) from error
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
    """The intact names of dictionaries: numbers to strings, which stay where they are.

    Parameters
    ----------
    paths : sequence of Path
    folder : Path
        For a temporary file.
    room : int
        Bytes of memory for the places of the strings.
    """

    def __init__(self, paths: Sequence[Path], folder: Path, room: int) -> None:
        self._places = WordArray(folder, room)  # by number: where the value starts, its size, its file; 0 where it is lost
        self._count = 0
        self._files: list[tuple[Path, int]] = []
        for path in paths:
            if path.exists():
                try:
                    self._files.append((path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
                except OSError as error:
                    self.close()
                    raise refused(path, error) from error
                self._scan(len(self._files) - 1)

    def _scan(self, file: int) -> None:
        path, descriptor = self._files[file]
        most = os.fstat(descriptor).st_size  # numbers cannot exceed the file size
        for item in pages.entries(path, descriptor, lambda key: len(key) == 8):
            number = int.from_bytes(item.key, "big")
            if number < most and 5 <= item.size < MOST_VALUE and not self._places[number]:
                value = read_if_possible(descriptor, path, item.start, item.size)
                if value == sealed_string(number, value[4:]):
                    self._places[number] = (item.start * MOST_VALUE + item.size) * 2 + file
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
        place, file = divmod(self._places[number], 2)
        if not place:
            return None
        start, size = divmod(place, MOST_VALUE)
        path, descriptor = self._files[file]
        return read_at(descriptor, path, start + 4, size - 4)

    def close(self) -> None:
        """Give memory and files back."""
        self._places.close()
        while self._files:
            os.close(self._files.pop()[1])


def find_records(path: Path, names: tuple[bytes, ...]) -> dict[bytes, list[dict[str, Any]]]:
    """Return the intact metadata records with these keys, wherever they are in a file."""
    found: dict[bytes, list[dict[str, Any]]] = {name: [] for name in names}
    try:
        with pages.opened(path) as descriptor:
            for item in pages.entries(path, descriptor, lambda key: key in found):
                try:
                    data = read_if_possible(descriptor, path, item.start, item.size)
                    record = layout.unpack_record(data, path, item.key.decode())
                except (CorruptStoreError, json.JSONDecodeError):
                    continue
                if record not in found[item.key]:
                    found[item.key].append(record)
    except StoreNotFoundError:
        pass
    return found


def read_records(path: Path, note: Note) -> tuple[list[Record], bool]:
    """Return the intact log records of a journal, in order of their numbers, and whether these are certainly all.

    What the last transaction can be followed to comes first. Numbers that this leaves out are looked for on all pages: these
    may be of a transaction that was never completed, or older copies of the same records.
    """
    records: dict[int, Record] = {}
    complete = False
    try:
        with pages.opened(path) as descriptor:
            try:
                meta = pages.latest(path, descriptor)
                tree = pages.Tree(path, descriptor, meta)
                faults: list[FpstoreError] = []
                tree.faults = faults
                databases = tree.databases()
                items = tree.items(databases[LOG]) if LOG in databases else iter(())
                records = {record.number: record for record in read_log(path, items, descriptor, faults.append)}
                complete = not faults and {META, LOG} <= set(databases)
                for fault in faults[:1]:
                    note(fault)
            except FpstoreError as error:
                note(error)
            if not complete:
                for item in pages.entries(path, descriptor, lambda key: len(key) == 8):
                    number = int.from_bytes(item.key, "big")
                    if number in records:
                        continue
                    try:
                        record = unpack(read_if_possible(descriptor, path, item.start, item.size), path)
                    except (FpstoreError, ValueError, IndexError):
                        continue
                    records.setdefault(record.number, record)
    except StoreNotFoundError as error:
        note(error)
    return [records[number] for number in sorted(records)], complete


def check_seal(path: Path) -> None:
    """Check every page of a sealed LMDB file without LMDB.

    Raises
    ------
    CorruptStoreError, StoreNotFoundError
    """
    with pages.opened(path) as descriptor:
        opened_seal(path, descriptor)[0].check_all()


def is_foreign(path: Path, digest: int | None) -> bool:
    """Whether a sealed file has checksums that are right, but not this digest: it is of another store, or of another time."""
    if digest is None:
        return False
    try:
        with pages.opened(path) as descriptor:
            return opened_seal(path, descriptor)[0].digest != digest
    except (CorruptStoreError, StoreNotFoundError):
        return False


def check_pages(path: Path) -> None:
    """Check the pages of a journal to which nobody is writing.

    Raises
    ------
    CorruptStoreError, StoreNotFoundError
    """
    with pages.opened(path) as descriptor:
        pages.Tree(path, descriptor, pages.latest(path, descriptor)).check()
