"""Sealed files: LMDB files that never change again, ended by checksums of their pages.

LMDB has no checksums and trusts what it reads: a damaged page can give a wrong answer or end the process. A seal lets each page
be checked before LMDB reads it. After the pages and a hole, a sealed file has the XXH64 of each 4 KiB of the pages (level
1), the XXH64 of each 512 of these (level 2), and last the digest: the XXH64 of level 2, seeded with the number of sealed bytes.
The digest protects level 2,  level 2 protects level 1, and level 1 the pages. Checking one page needs one part of each level.
docs/format.md is normative.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path

import xxhash

from fpstore import _kernel
from fpstore.disk import lmdb_pages as pages
from fpstore.disk.files import RUN_REPAIR, open_file, read_at
from fpstore.errors import CorruptStoreError

CHUNK_BYTES = 4096
GROUP_CHUNKS = 512
HASH_BYTES = DIGEST_BYTES = 8
PAD_BYTES = 1 << 18
PIECE_BYTES = GROUP_CHUNKS * CHUNK_BYTES


def tail_bytes(used: int) -> int:
    """Return the size of the checksums at the end of a file, from the size of its pages."""
    chunks = -(-used // CHUNK_BYTES)
    return HASH_BYTES * (chunks + -(-chunks // GROUP_CHUNKS)) + DIGEST_BYTES


def seal(path: Path, used: int, room: int = 0) -> tuple[int, int]:
    """Pad a finished file after its ``used`` bytes, append their checksums, and return its size and its digest."""
    groups, second = [], []
    with os.fdopen(open_file(path, os.O_RDWR), "r+b") as file:
        for start in range(0, used, PIECE_BYTES):
            groups.append(_hashes(read_at(file.fileno(), path, start, min(used - start, PIECE_BYTES))))
            second.append(xxhash.xxh64_intdigest(groups[-1]).to_bytes(HASH_BYTES, "little"))
        level = b"".join(second)
        digest = xxhash.xxh64_intdigest(level, used)
        size = used + room + PAD_BYTES + tail_bytes(used)
        file.truncate(used)
        file.truncate(size)
        file.seek(size - tail_bytes(used))
        file.writelines([*groups, level, digest.to_bytes(DIGEST_BYTES, "little")])
        file.flush()
        os.fsync(file.fileno())
    return size, digest


def _hashes(data: bytes) -> bytes:
    """Return the XXH64 of each chunk."""
    view = memoryview(data)
    return b"".join(
        xxhash.xxh64_intdigest(view[at : at + CHUNK_BYTES]).to_bytes(HASH_BYTES, "little")
        for at in range(0, len(data), CHUNK_BYTES)
    )


class Seal:
    """The checksums of a sealed file. They and the pages are read with ``pread``.

    Parameters
    ----------
    path : Path
    descriptor : int
        The file's descriptor, which stays open as long as this object is used.
    used : int
        Bytes of its pages.

    Attributes
    ----------
    level_two : bytes
        The checksums of level 2, which fit the digest.

    Raises
    ------
    CorruptStoreError, StorageError
    """

    def __init__(self, path: Path, descriptor: int, used: int) -> None:
        self._path, self._descriptor, self._used = path, descriptor, used
        self._chunks = -(-used // CHUNK_BYTES)
        size = os.fstat(descriptor).st_size
        self._first_level = size - tail_bytes(used)
        if self._first_level < used + PAD_BYTES:
            raise CorruptStoreError(f"{path}: LMDB file is cut short or damaged ({size} bytes)", path=path, got=size)
        at = self._first_level + HASH_BYTES * self._chunks
        end = read_at(descriptor, path, at, size - at)
        self.level_two, self.digest = end[:-DIGEST_BYTES], int.from_bytes(end[-DIGEST_BYTES:], "little")
        if self.digest != (got := xxhash.xxh64_intdigest(self.level_two, used)):
            raise CorruptStoreError(
                f"{path}: LMDB file is damaged (digest differs): {RUN_REPAIR}", path=path, expected=self.digest, got=got
            )
        self._groups: dict[int, bytes] = {}
        self._checked = bytearray(self._chunks)

    def check(self, start: int, count: int) -> None:
        """Check the chunks that contain these bytes, unless they have been checked."""
        if not 0 <= start < start + count <= self._used:
            raise CorruptStoreError(f"{self._path}: LMDB file is damaged: there is no byte {start}", path=self._path, got=start)
        for chunk in range(start // CHUNK_BYTES, (start + count - 1) // CHUNK_BYTES + 1):
            if not self._checked[chunk]:
                group, place = divmod(chunk, GROUP_CHUNKS)
                at = chunk * CHUNK_BYTES
                hashes = self._groups.get(group) or self._group(group)
                data = read_at(self._descriptor, self._path, at, min(self._used - at, CHUNK_BYTES))
                self._compare(chunk, data, hashes[place * HASH_BYTES : (place + 1) * HASH_BYTES])
                self._checked[chunk] = 1

    def check_all(self) -> None:
        """Check every page and every checksum."""
        for group in range(len(self.level_two) // HASH_BYTES):
            at = group * PIECE_BYTES
            expected = self._read_group(group)
            data = read_at(self._descriptor, self._path, at, min(self._used - at, PIECE_BYTES))
            if _hashes(data) != expected:
                for place in range(len(expected) // HASH_BYTES):
                    chunk = data[place * CHUNK_BYTES : (place + 1) * CHUNK_BYTES]
                    self._compare(group * GROUP_CHUNKS + place, chunk, expected[place * HASH_BYTES : (place + 1) * HASH_BYTES])

    def _compare(self, chunk: int, data: bytes, expected: bytes) -> None:
        if xxhash.xxh64_intdigest(data).to_bytes(HASH_BYTES, "little") != expected:
            raise CorruptStoreError(
                f"{self._path}: LMDB file is damaged at byte {chunk * CHUNK_BYTES} (checksum differs): {RUN_REPAIR}",
                path=self._path,
                got=chunk * CHUNK_BYTES,
            )

    def _group(self, group: int) -> bytes:
        hashes = self._groups[group] = self._read_group(group)
        return hashes

    def _read_group(self, group: int) -> bytes:
        count = min(self._chunks - group * GROUP_CHUNKS, GROUP_CHUNKS) * HASH_BYTES
        hashes = read_at(self._descriptor, self._path, self._first_level + group * GROUP_CHUNKS * HASH_BYTES, count)
        expected = self.level_two[group * HASH_BYTES : (group + 1) * HASH_BYTES]
        if xxhash.xxh64_intdigest(hashes).to_bytes(HASH_BYTES, "little") != expected:
            raise CorruptStoreError(f"{self._path}: LMDB file is damaged (its checksums are damaged)", path=self._path)
        return hashes


def opened_seal(path: Path, descriptor: int) -> tuple[Seal, pages.Meta]:
    """Read and check the metadata pages of a sealed file; return its checksums and its last transaction."""
    meta = pages.latest(path, descriptor)
    seal_of = Seal(path, descriptor, (meta.last_page + 1) * meta.page_bytes)
    seal_of.check(0, 2 * meta.page_bytes)
    return seal_of, meta


class CheckedPages:
    """The pages from the root of a tree to a key, checked the first time that LMDB is about to read them.

    Parameters
    ----------
    path : Path
    descriptor : int
    key_bytes : int
        Of every key.
    """

    def __init__(self, path: Path, descriptor: int, key_bytes: int) -> None:
        self._path, self._descriptor = path, descriptor
        self._key_bytes, self._end = key_bytes, 1 << 8 * key_bytes
        self.seal, self._meta = opened_seal(path, descriptor)
        self._branches: dict[int, tuple[list[int], list[int]]] = {}
        self._leaves = bytearray(self._meta.last_page + 1)
        tree = self._meta.main
        if tree.root != pages.NOWHERE and not (2 <= tree.root <= self._meta.last_page and 1 <= tree.depth <= pages.MAX_DEPTH):
            raise CorruptStoreError(f"{path}: LMDB file is damaged: a tree has no root", path=path, got=tree.root)
        if tree.entries * (pages.NODE + key_bytes) > self.used:
            raise CorruptStoreError(f"{path}: LMDB file is damaged: {tree.entries} keys do not fit", path=path, got=tree.entries)

    @property
    def entries(self) -> int:
        """The number of keys in the tree."""
        return self._meta.main.entries

    @property
    def used(self) -> int:
        """Bytes of pages."""
        return (self._meta.last_page + 1) * self._meta.page_bytes

    def in_memory(self, size: int, longest: int, whole: bool) -> _kernel.SealedFile:
        """Return the file, of ``size`` bytes, for look-ups of single values of at most ``longest`` bytes.

        It reads with the same descriptor, and checks pages as they are used, unless the ``whole`` file has been checked.
        """
        meta = self._meta
        depth = 0 if meta.main.root == pages.NOWHERE else meta.main.depth
        tree = meta.page_bytes, meta.last_page, meta.main.root, depth, meta.main.entries
        words = self._key_bytes // HASH_BYTES
        return _kernel.SealedFile(self._descriptor, size, tree, words, longest, self.seal.level_two, whole)

    def reach(self, key: int) -> int:
        """Check the pages on the way to a key; return the first key that may lie on a later page, or one above all keys.

        Raises
        ------
        CorruptStoreError, StorageError
        """
        tree = self._meta.main
        if tree.root == pages.NOWHERE:
            return self._end
        page, after = tree.root, self._end
        for _ in range(tree.depth - 1):
            keys, children = self._branches.get(page) or self._branch(page)
            i = bisect_right(keys, key)
            if i < len(keys):
                after = keys[i]
            page = children[i - 1]
        if not self._leaves[page]:
            self._check_page(page)
            self._leaves[page] = 1
        return after

    def reach_range(self, first: int, last: int) -> None:
        """Check the pages of all keys from one to another."""
        while first <= last:
            first = self.reach(first)

    def _branch(self, page: int) -> tuple[list[int], list[int]]:
        """Return the keys of a branch page, where the first counts as the least, and the pages below."""
        self._check_page(page)
        size = self._meta.page_bytes
        nodes = pages.parse_page(read_at(self._descriptor, self._path, page * size, size), page, pages.BRANCH)
        if (
            nodes is None
            or any(len(key) != self._key_bytes for key in nodes.keys[1:])
            or int(nodes.sizes.max()) > self._meta.last_page
            or int(nodes.sizes.min()) < 2
        ):
            raise CorruptStoreError(f"{self._path}: LMDB file is damaged (page {page})", path=self._path, got=page)
        branch = self._branches[page] = [0, *(int.from_bytes(key, "big") for key in nodes.keys[1:])], nodes.sizes.tolist()
        return branch

    def _check_page(self, page: int) -> None:
        self.seal.check(page * self._meta.page_bytes, self._meta.page_bytes)
