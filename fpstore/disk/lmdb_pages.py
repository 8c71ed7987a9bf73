"""LMDB files read page by page, without LMDB: it trusts what it reads, and a damaged page can end the process.

What is read here is checked first, so nothing follows a damaged number. :func:`check` says whether LMDB can follow a file safely;
:func:`entries` finds what is left of a damaged one.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.disk.files import read_at, read_if_possible
from fpstore.disk.refusals import refused
from fpstore.errors import CorruptStoreError, FpstoreError, StoreNotFoundError

Offsets = npt.NDArray[np.int64]

BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
HEAD = 16  # bytes of a page before its pointers
NODE = 8  # bytes of a node before its key
BIG, SUB = 1, 2  # flags of a node: its value lies on pages of its own; it is a named database
NOWHERE = 2**64 - 1
MAGIC, VERSION = 0xBEEFC0DE, 1
INTEGER_KEY = 8
NO_SUBDIR = 0x4000
FREE_FLAGS = INTEGER_KEY | NO_SUBDIR  # of the list of free pages, which also has those of the file
MAX_DEPTH = 32
PAGE_BYTES = (4096, 8192, 16384, 32768, 65536)
TORN_SECONDS = 0.001

_META = struct.Struct("<IIQQ")  # at HEAD: magic, version, address, map size
_DATABASE = struct.Struct("<IHHQQQQQ")


class Database(NamedTuple):
    """What a file says of one of its trees."""

    pad: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int


class Meta(NamedTuple):
    """One of the two pages from which a file is read."""

    page_bytes: int
    free: Database
    main: Database
    last_page: int
    transaction: int


class Item(NamedTuple):
    """A key, and where its value lies in the file."""

    key: bytes
    start: int
    size: int
    named: bool = False  # it is no value, but what there is to know of a named database


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a file for reading; yield its descriptor.

    Raises
    ------
    StoreNotFoundError, StorageError
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise StoreNotFoundError(f"{path}: missing ({error.strerror})", path=path) from error
    except OSError as error:
        raise refused(path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# --- Metadata pages ---------------------------------------------------------------------------------


def read_metas(path: Path, descriptor: int) -> tuple[Meta, Meta]:
    """Check and parse both metadata pages, of which LMDB believes the one with the later transaction.

    Raises
    ------
    CorruptStoreError
    """
    before: list[bytes] = []
    while True:
        try:
            return _metas(path, descriptor)
        except CorruptStoreError:
            data = [read_at(descriptor, path, at, 2 * HEAD + 256) for at in (0, *PAGE_BYTES)]
            if data == before:  # else a writer may be writing what is being read
                raise
        before = data
        time.sleep(TORN_SECONDS)


def latest(path: Path, descriptor: int) -> Meta:
    """Return the metadata page of the last transaction."""
    return max(read_metas(path, descriptor), key=lambda meta: meta.transaction)


def _metas(path: Path, descriptor: int) -> tuple[Meta, Meta]:
    size = os.fstat(descriptor).st_size
    first = _meta(path, read_at(descriptor, path, 0, PAGE_BYTES[0]), 0, size)
    second = _meta(path, read_at(descriptor, path, first.page_bytes, PAGE_BYTES[0]), 1, size)
    # Each commit writes the page that is older. Whether the older one once was the newer nobody can tell: LMDB has no checksums.
    later = max(first.transaction, second.transaction)
    if second.page_bytes != first.page_bytes or abs(first.transaction - second.transaction) > 1:
        raise _damaged(path, 0, "the metadata pages do not belong together")
    if later and ((first, second)[later & 1].transaction != later or first.transaction == second.transaction):
        raise _damaged(path, 0, "the metadata pages are in the wrong order")
    return first, second


def _meta(path: Path, data: bytes, number: int, size: int) -> Meta:
    if len(data) < HEAD + _META.size + 2 * _DATABASE.size + 16:
        raise _damaged(path, number, f"the file is cut short ({size} bytes)")
    page, _, flags = struct.unpack_from("<QHH", data)
    magic, version, _, _ = _META.unpack_from(data, HEAD)
    if (page, flags, magic, version) != (number, META, MAGIC, VERSION):
        raise _damaged(path, number, "it is not a metadata page of LMDB")
    at = HEAD + _META.size
    free, main = (Database(*_DATABASE.unpack_from(data, at + i * _DATABASE.size)) for i in range(2))
    last, transaction = struct.unpack_from("<QQ", data, at + 2 * _DATABASE.size)
    if free.pad not in PAGE_BYTES or (free.flags, main.flags) != (FREE_FLAGS, 0):
        raise _damaged(path, number, "the metadata is damaged")
    if not 1 <= last < size // free.pad:
        raise _damaged(path, number, f"the file is cut short ({size} bytes, {(last + 1) * free.pad} are in use)")
    return Meta(free.pad, free, main, last, transaction)


def _damaged(path: Path, page: int, what: str) -> CorruptStoreError:
    return CorruptStoreError(f"{path}: LMDB file is damaged (page {page}: {what})", path=path, got=page)


# --- Trees ------------------------------------------------------------------------------------------


class Tree:
    """The trees of a file as they were after one transaction, whose pages must not be written meanwhile.

    Parameters
    ----------
    path : Path
    descriptor : int
        Of the file, open.
    meta : Meta
    """

    def __init__(self, path: Path, descriptor: int, meta: Meta) -> None:
        self._path, self._descriptor, self._meta = path, descriptor, meta
        self._seen = np.zeros(meta.last_page + 1, bool)
        self._seen[:2] = True
        self.faults: list[FpstoreError] | None = None  # collected where they are asked for, else raised
        self.main = meta.main

    def check(self) -> None:
        """Go through every tree and the list of free pages.

        Raises
        ------
        CorruptStoreError
            LMDB would read or write where it should not, or not find what is there.
        """
        for database in self.databases().values():
            for _ in self.items(database):
                pass
        for item in self.items(self._meta.free):
            self._check_free(item)

    def databases(self) -> dict[bytes, Database]:
        """Return the named databases. Each page can be visited once: a second pass takes another :class:`Tree`."""
        named = [item for item in self.items(self.main) if item.named]
        return {item.key: Database(*_DATABASE.unpack(self.read(item.start, item.size))) for item in named}

    def _check_free(self, item: Item) -> None:
        pages = np.frombuffer(self.read(item.start, item.size), "<u8", item.size // 8)
        if len(pages) < 1 or item.size % 8 or pages[0] >= len(pages):
            raise self._fault(item.start // self._meta.page_bytes, "a list of free pages is damaged")
        free = pages[1 : int(pages[0]) + 1]
        if len(free) and (int(free.max()) > self._meta.last_page or bool((np.diff(free.astype(np.int64)) >= 0).any())):
            raise self._fault(item.start // self._meta.page_bytes, "a list of free pages is damaged")
        for page in free.tolist():
            self._visit(page)

    def _fault(self, page: int, what: str) -> CorruptStoreError:
        return _damaged(self._path, page, what)

    def _visit(self, page: int, count: int = 1) -> None:
        if page < 2 or page + count - 1 > self._meta.last_page:
            raise self._fault(page, "there is no such page")
        if self._seen[page : page + count].any():
            raise self._fault(page, "it is in use twice")
        self._seen[page : page + count] = True

    def items(self, database: Database) -> Iterator[Item]:
        """Yield the items of a database, in order, and check its tree on the way."""
        integers = database.flags == FREE_FLAGS
        if database.flags and not integers:
            raise self._fault(0, "a database has unknown flags")
        if database.root == NOWHERE:
            if database[2:7] != (0, 0, 0, 0, 0):
                raise self._fault(0, "a database is damaged")
            return
        yield from _Walk(self, database, integers).run()

    def read(self, start: int, count: int) -> bytes:
        """Read some bytes."""
        return read_at(self._descriptor, self._path, start, count)

    def page(self, number: int) -> bytes:
        """Read a page."""
        size = self._meta.page_bytes
        data = self.read(number * size, size)
        if len(data) < size:
            raise self._fault(number, "the file is cut short")
        return data


class _Walk:
    """One pass over a database; its pages are counted and must be as many as the database says."""

    def __init__(self, tree: Tree, database: Database, integers: bool) -> None:
        self._tree, self._database, self._integers = tree, database, integers
        self._counts = [0, 0, 0, 0]  # branches, leaves, pages of large values, entries
        self._last: bytes | None = None

    def run(self) -> Iterator[Item]:
        database, tree = self._database, self._tree
        if not 1 <= database.depth <= MAX_DEPTH:
            raise tree._fault(0, f"a database has depth {database.depth}")
        yield from self._page(database.root, database.depth)
        if self._counts != [database.branches, database.leaves, database.overflows, database.entries]:
            self._note(tree._fault(database.root, "a database does not have what was written"))

    def _page(self, number: int, depth: int) -> Iterator[Item]:
        tree = self._tree
        try:
            tree._visit(number)
            data = tree.page(number)
            kind = BRANCH if depth > 1 else LEAF
            nodes = parse_page(data, number, kind)
            if nodes is None:
                raise tree._fault(number, "it is damaged")
        except CorruptStoreError as error:
            if tree.faults is None:
                raise
            tree.faults.append(error)
            return
        self._counts[0 if kind == BRANCH else 1] += 1
        if kind == BRANCH:
            for i in range(len(nodes.starts)):
                if i and self._out_of_order(nodes.keys[i]):
                    self._note(tree._fault(number, "keys are out of order"))
                yield from self._page(int(nodes.sizes[i]), depth - 1)
            return
        self._counts[3] += len(nodes.starts)
        page_bytes = tree._meta.page_bytes
        for key, start, size, flags in zip(
            nodes.keys, nodes.starts.tolist(), nodes.sizes.tolist(), nodes.flags.tolist(), strict=True
        ):
            if self._last is not None and self._out_of_order(key):
                self._note(tree._fault(number, "keys are out of order"))
            self._last = key
            named = flags == SUB
            if flags not in (0, BIG) and not (named and self._database is tree.main and size == _DATABASE.size):
                self._note(tree._fault(number, "a value is damaged"))
                continue
            if flags != BIG:
                yield Item(key, number * page_bytes + start, size, named)
                continue
            (first,) = struct.unpack_from("<Q", data, start)
            try:
                yield Item(key, self._overflow(first, size), size)
            except CorruptStoreError as error:
                self._note(error)

    def _overflow(self, first: int, size: int) -> int:
        """Check the pages of a large value, and return where it starts."""
        tree, page_bytes = self._tree, self._tree._meta.page_bytes
        count = -(-(HEAD + size) // page_bytes)
        tree._visit(first, count)
        head = tree.read(first * page_bytes, HEAD)
        if len(head) < HEAD or struct.unpack("<QHHI", head)[::1] != (first, 0, OVERFLOW, count):
            raise tree._fault(first, "a large value is damaged")
        self._counts[2] += count
        return first * page_bytes + HEAD

    def _note(self, fault: CorruptStoreError) -> None:
        if self._tree.faults is None:
            raise fault
        self._tree.faults.append(fault)

    def _out_of_order(self, key: bytes) -> bool:
        last = self._last
        if last is None:
            return False
        if self._integers:
            return int.from_bytes(key, "little") <= int.from_bytes(last, "little")
        return key <= last


class Nodes(NamedTuple):
    """The nodes of a page: keys, places of the values in it, their sizes (of a branch: page numbers), flags."""

    keys: list[bytes]
    starts: Offsets
    sizes: Offsets
    flags: Offsets


def parse_page(data: bytes, number: int, kind: int) -> Nodes | None:
    """Return the nodes of a branch or leaf page, or None when it is no sound page of that kind and number."""
    page, _, flags, lower, upper = struct.unpack_from("<QHHHH", data)
    count = (lower - HEAD) // 2
    if (page, flags) != (number, kind) or lower % 2 or count < (2 if kind == BRANCH else 1) or not lower <= upper <= len(data):
        return None  # LMDB ends the process at a branch of fewer than two keys
    pointers = np.frombuffer(data, "<u2", count, HEAD).astype(np.int64)
    if int(pointers.min()) != upper or int(pointers.max()) > len(data) - NODE or bool((pointers & 1).any()):
        return None
    halves = np.frombuffer(data, "<u2").astype(np.int64)
    low, high, node_flags, key_bytes = (halves[pointers // 2 + i] for i in range(4))
    starts = pointers + NODE + key_bytes
    sizes = low | high << 16
    if kind == BRANCH:
        sizes |= node_flags << 32
        ends = starts
    else:
        if bool((node_flags & ~(BIG | SUB)).any()):
            return None
        ends = starts + np.where(node_flags & BIG, 8, sizes)
    if int(ends.max()) > len(data):
        return None
    order = np.argsort(pointers)
    if bool((ends[order][:-1] > pointers[order][1:]).any()):
        return None
    first = pointers + NODE
    keys = [data[a:b] for a, b in zip(first.tolist(), starts.tolist(), strict=True)]
    return Nodes(keys, starts, sizes, node_flags)


def check(path: Path, transaction: int | None = None) -> bool:
    """Check that LMDB can follow a file: its metadata, every page of its trees, and the list of free pages.

    Parameters
    ----------
    path : Path
    transaction : int, optional
        Which one is kept from being overwritten meanwhile; by default only the metadata pages are checked.

    Returns
    -------
    bool
        False when others have committed twice since: nothing tells any more where the transaction begins.

    Raises
    ------
    CorruptStoreError, StoreNotFoundError
    """
    with opened(path) as descriptor:
        metas = read_metas(path, descriptor)
        if transaction is None:
            return True
        meta = next((meta for meta in metas if meta.transaction == transaction), None)
        if meta is not None:
            Tree(path, descriptor, meta).check()
        return meta is not None


# --- What is left of a file -------------------------------------------------------------------------


def entries(path: Path, descriptor: int, wanted: Callable[[bytes], bool] = lambda key: True) -> Iterator[Item]:
    """Yield the items on every page that can be read, in use or not, in the order of the pages; nothing vouches for them."""
    size = os.fstat(descriptor).st_size
    page_bytes = _page_bytes(path, descriptor)
    for number in range(size // page_bytes + 1):
        data = read_if_possible(descriptor, path, number * page_bytes, page_bytes)
        if len(data) < HEAD or data[10:12] != b"\x02\x00":
            continue
        for key, start, length, big in _loose_nodes(data):
            if not wanted(key):
                continue
            at = number * page_bytes + start
            if big:
                (first,) = struct.unpack_from("<Q", data, start)
                at = first * page_bytes + HEAD
            if at + length <= size:
                yield Item(key, at, length)


def _loose_nodes(data: bytes) -> Iterator[tuple[bytes, int, int, bool]]:
    """Yield (key, start, size, whether it lies elsewhere) of each node of a leaf page that lies inside the page."""
    count = min(max((int.from_bytes(data[12:14], "little") - HEAD) // 2, 0), (len(data) - HEAD) // 2)
    for at in range(HEAD, HEAD + 2 * count, 2):
        pointer = int.from_bytes(data[at : at + 2], "little")
        if pointer + NODE > len(data):
            continue
        low, high, flags, key_bytes = struct.unpack_from("<HHHH", data, pointer)
        start, size = pointer + NODE + key_bytes, low | high << 16
        if start + (8 if flags & BIG else size) <= len(data):
            yield data[pointer + NODE : start], start, size, bool(flags & BIG)


def _page_bytes(path: Path, descriptor: int) -> int:
    """Return the size of pages: what the metadata says, if it can be believed."""
    at = HEAD + _META.size
    for start in (0, *PAGE_BYTES):
        data = read_if_possible(descriptor, path, start, at + 4)
        if len(data) == at + 4 and (size := int.from_bytes(data[at:], "little")) in PAGE_BYTES:
            return size
    return PAGE_BYTES[0]
