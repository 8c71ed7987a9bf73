"""LMDB files read page by page, without LMDB: it trusts what it reads, and a damaged page can end the process.

What is read here is checked first, so nothing follows a damaged number. :func:`latest` leads to the tree of a sealed file;
:func:`entries` finds what is left of a damaged one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.disk.files import read_at, read_if_possible
from fpstore.errors import CorruptStoreError

Offsets = npt.NDArray[np.int64]

BRANCH, LEAF, META = 1, 2, 8
HEAD = 16  # bytes of a page before its pointers
NODE = 8  # bytes of a node before its key
BIG = 1  # flag of a node: its value lies on pages of its own
NOWHERE = 2**64 - 1
MAGIC, VERSION = 0xBEEFC0DE, 1
INTEGER_KEY = 8
NO_SUBDIR = 0x4000
FREE_FLAGS = INTEGER_KEY | NO_SUBDIR  # of the list of free pages, which also has those of the file
MAX_DEPTH = 32
PAGE_BYTES = (4096, 8192, 16384, 32768, 65536)

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


# --- Metadata pages ---------------------------------------------------------------------------------


def latest(path: Path, descriptor: int) -> Meta:
    """Check and parse both metadata pages, and return that of the last transaction.

    Raises
    ------
    CorruptStoreError
    """
    return max(_metas(path, descriptor), key=lambda meta: meta.transaction)


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


# --- Pages of trees ---------------------------------------------------------------------------------


class Nodes(NamedTuple):
    """The nodes of a page: keys, places of the values in it, their sizes (of a branch: page numbers)."""

    keys: list[bytes]
    starts: Offsets
    sizes: Offsets


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
        if bool((node_flags & ~BIG).any()):
            return None
        ends = starts + np.where(node_flags & BIG, 8, sizes)
    if int(ends.max()) > len(data):
        return None
    order = np.argsort(pointers)
    if bool((ends[order][:-1] > pointers[order][1:]).any()):
        return None
    first = pointers + NODE
    keys = [data[a:b] for a, b in zip(first.tolist(), starts.tolist(), strict=True)]
    return Nodes(keys, starts, sizes)


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
