"""What is left of a damaged store: intact blocks of tables, id records, names and log records, each vouched for by its checksum.

LMDB files are read page by page (:mod:`fpstore.pages`): what is looked for has a checksum of its own, so it does not matter which
page it is found on.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel, huffman, layout, pages
from fpstore.delta import Record, unpack
from fpstore.design import Design
from fpstore.environment import DIGEST_BYTES, PAD_BYTES, file_digest
from fpstore.errors import CorruptStoreError, FpstoreError, StoreNotFoundError
from fpstore.ids import record_seed
from fpstore.journal import LOG, META
from fpstore.logcheck import read_log
from fpstore.names import sealed_name
from fpstore.refusals import refused
from fpstore.table import DECODE_ROOM, TableReader

Words = npt.NDArray[np.uint64]
Note = Callable[[FpstoreError], None]
ADDRESSES = "Q"
CODE_OFFSET = 192  # in the header of a table
MOST_DIRECTORY_BITS = 32


class Blocks(NamedTuple):
    """Successive intact blocks of a table: the number of the first, their entries, how many each has."""

    first: int
    values: Words
    counts: npt.NDArray[np.uint32]


def intact_blocks(table: TableReader) -> Iterator[Blocks]:
    """Yield every block of a table that can be read, in order."""
    start, end = 0, table.kernel.block_count
    while start < end:
        try:
            values, counts, after = table.in_order.decode(start, end, DECODE_ROOM)
        except CorruptStoreError as error:
            bad = error.block if isinstance(error.block, int) and start <= error.block < end else start
            while start < bad:
                values, counts, after = table.in_order.decode(start, bad, DECODE_ROOM)
                yield Blocks(start, values, counts)
                start = after
            start = bad + 1
            continue
        yield Blocks(start, values, counts)
        start = after


def with_new_header(path: Path, design: Design, table: int, count: int, digest: int, block_bytes: int) -> TableReader:
    """Open a table whose header is damaged: all of it but the lengths of the codes is known from elsewhere.

    Whether they are right, the checksums of the blocks tell.

    Raises
    ------
    CorruptStoreError, StoreNotFoundError
    """
    with pages.opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        code = os.pread(descriptor, huffman.SYMBOLS, CODE_OFFSET)
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
            return TableReader(path, header)
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
    """

    def __init__(self, path: Path | None, set_digest: int, blocks: int) -> None:
        self._path, self._digest = path, set_digest
        self._starts = array(ADDRESSES, bytes(8 * blocks))
        self._sizes = array(ADDRESSES, bytes(8 * blocks))
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
        for item in pages.entries(self._descriptor, lambda key: len(key) == 8 and int.from_bytes(key, "big") < blocks):
            block = int.from_bytes(item.key, "big")
            if not self._sizes[block] and item.size >= 16 and self._unpacked(block, item.start, item.size) is not None:
                self._starts[block], self._sizes[block] = item.start, item.size
                self.found += 1

    def _unpacked(self, block: int, start: int, size: int) -> tuple[Words, Words] | None:
        try:
            return _kernel.unpack_record(
                os.pread(self._descriptor, size, start), record_seed(self._digest, block), str(self._path)
            )
        except CorruptStoreError:
            return None

    def get(self, block: int) -> tuple[Words, Words] | None:
        """Return (ids per fingerprint, ids) of a block, or None when its record is lost."""
        return self._unpacked(block, self._starts[block], self._sizes[block]) if self._sizes[block] else None

    def close(self) -> None:
        """Give the file back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class SalvagedNames:
    """The intact names of dictionaries: numbers to strings."""

    def __init__(self, *paths: Path) -> None:
        self._places: dict[int, tuple[int, int, int]] = {}
        self._descriptors: list[int] = []
        for path in paths:
            if path.exists():
                try:
                    self._descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                except OSError as error:
                    self.close()
                    raise refused(path, error) from error
                self._scan(self._descriptors[-1])

    def _scan(self, descriptor: int) -> None:
        for item in pages.entries(descriptor, lambda key: len(key) == 8):
            number = int.from_bytes(item.key, "big")
            if number not in self._places and item.size >= 5:
                value = os.pread(descriptor, item.size, item.start)
                if value == sealed_name(number, value[4:]):
                    self._places[number] = (descriptor, item.start + 4, item.size - 4)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def get(self, number: int) -> bytes | None:
        """Return the string of a number, or None when it is lost."""
        place = self._places.get(number)
        return None if place is None else os.pread(place[0], place[2], place[1])

    def close(self) -> None:
        """Give the files back."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def find_records(path: Path, names: tuple[bytes, ...]) -> dict[bytes, list[dict[str, Any]]]:
    """Return the intact metadata records with these keys, wherever they are in a file."""
    found: dict[bytes, list[dict[str, Any]]] = {name: [] for name in names}
    try:
        with pages.opened(path) as descriptor:
            for item in pages.entries(descriptor, lambda key: key in found):
                try:
                    record = layout.unpack_record(os.pread(descriptor, item.size, item.start), path, item.key.decode())
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
                for item in pages.entries(descriptor, lambda key: len(key) == 8):
                    number = int.from_bytes(item.key, "big")
                    if number in records:
                        continue
                    try:
                        record = unpack(os.pread(descriptor, item.size, item.start), path)
                    except (FpstoreError, ValueError, IndexError):
                        continue
                    records.setdefault(record.number, record)
    except StoreNotFoundError as error:
        note(error)
    return [records[number] for number in sorted(records)], complete


def check_seal(path: Path) -> int:
    """Check the size and the digest of a sealed LMDB file without LMDB, and return the digest.

    Raises
    ------
    CorruptStoreError, StoreNotFoundError
    """
    with pages.opened(path) as descriptor:
        meta = pages.latest(path, descriptor)
        size, used = os.fstat(descriptor).st_size, (meta.last_page + 1) * meta.page_bytes
        digest = int.from_bytes(os.pread(descriptor, DIGEST_BYTES, size - DIGEST_BYTES), "little")
        if size < used + PAD_BYTES or digest != file_digest(descriptor, used):
            raise CorruptStoreError(f"{path}: LMDB file is damaged (digest differs)", path=path)
        return digest


def is_foreign(path: Path, digest: int | None) -> bool:
    """Whether a sealed file is intact, but not the one that has this digest: it is of another store, or of another time."""
    try:
        return digest is not None and check_seal(path) != digest
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
