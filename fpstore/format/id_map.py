"""The id map: the document ids of each fingerprint.

One record per block of the identity table holds that block's ids, bit-packed in rank order (docs/format.md, "Id map"): a
fingerprint is found in the table first, and its block and rank lead to its ids. String ids are numbered through a dictionary.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.arguments import printable
from fpstore.disk.sealed import SealedReader, SealedWriter
from fpstore.errors import CorruptStoreError

IDS_FILE = "ids.mdb"
PENDING_BLOCKS = 1 << 11
PENDING_IDS = 1 << 20
TICK_ROWS = 1 << 14
FIND_BLOCKS = 1 << 12
LOCKED_BLOCKS = 1 << 8  # read at once while other readers wait


def block_key(block: int) -> bytes:
    """Return the LMDB key of a block's record: 8 bytes, big-endian, so that byte order is block order."""
    return struct.pack(">Q", block)


def record_seed(set_digest: int, block: int) -> int:
    """Return the checksum seed of a block's record."""
    return (set_digest + block) % 2**64


class IdMapWriter:
    """Writes ``ids.mdb``: :meth:`add` fingerprints' ids in table order and :meth:`close_blocks` as blocks are completed."""

    def __init__(self, path: Path, set_digest: int) -> None:
        self._writer = SealedWriter(path)
        self._digest = set_digest
        self._block = 0
        self._counts: list[npt.NDArray[np.uint32]] = []
        self._per_fingerprint: list[Words] = []
        self._ids: list[Words] = []
        self._waiting_blocks = self._waiting_ids = 0
        self._largest = 0

    def add(self, per_fingerprint: Words, ids: Words) -> None:
        """Append the ids of successive fingerprints: the number of ids of each, and all ids in order."""
        self._per_fingerprint.append(per_fingerprint)
        self._ids.append(ids)
        self._waiting_ids += len(ids)

    def close_blocks(self, entry_counts: npt.NDArray[np.uint32], last: bool = False) -> None:
        """Note completed blocks; records are written in batches."""
        self._counts.append(entry_counts)
        self._waiting_blocks += len(entry_counts)
        if self._waiting_blocks >= PENDING_BLOCKS or self._waiting_ids >= PENDING_IDS or last:
            self._flush()

    def _flush(self) -> None:
        entry_counts = np.concatenate(self._counts) if self._counts else np.empty(0, np.uint32)
        if not len(entry_counts):
            return
        per_fingerprint = np.concatenate(self._per_fingerprint)
        ids = np.concatenate(self._ids)
        fingerprints = int(entry_counts.sum(dtype=np.uint64))
        lims = np.zeros(fingerprints + 1, np.uint64)
        np.cumsum(per_fingerprint[:fingerprints], out=lims[1:])
        used = int(lims[-1])
        first = self._block
        blob, offsets = _kernel.pack_ids(ids[:used], lims, entry_counts, record_seed(self._digest, first))
        ends = offsets.tolist()
        records = [(block_key(first + i), blob[start:end]) for i, (start, end) in enumerate(pairwise(ends))]
        self._writer.run(lambda transaction: _append(transaction, records))
        self._largest = max(self._largest, int(np.diff(offsets).max()))
        self._block += len(entry_counts)
        self._counts, self._waiting_blocks, self._waiting_ids = [], 0, len(ids) - used
        self._per_fingerprint, self._ids = [per_fingerprint[fingerprints:].copy()], [ids[used:].copy()]

    def finish(self) -> dict[str, int]:
        """Write the remaining records, make the file durable, and return its size, digest and largest record."""
        self._flush()
        size, digest = self._writer.finish(self._largest)
        return {"bytes": size, "digest": digest, "largest": self._largest}

    def abort(self) -> None:
        """Close without finishing."""
        self._writer.abort()


def _append(transaction: Any, records: Sequence[tuple[bytes, bytes]]) -> None:
    transaction.cursor().putmulti(records, append=True)


class IdMap:
    """Reads ``ids.mdb`` of a generation."""

    def __init__(self, path: Path, set_digest: int, shape: dict[str, int]) -> None:
        self._reader = SealedReader(path, file_bytes=shape["bytes"], digest=shape["digest"], largest=shape["largest"])
        self._digest = set_digest
        self.path = path
        self._name = printable(path)  # in messages of the kernel

    def get(self, block: int, rank: int) -> list[int]:
        """Return the id numbers of one fingerprint, ascending."""
        return _kernel.unpack_rank(self._record(block), record_seed(self._digest, block), rank, self._name)

    def block(self, block: int) -> tuple[Words, Words]:
        """Return (ids per fingerprint, ids) of a whole block."""
        return _kernel.unpack_record(self._record(block), record_seed(self._digest, block), self._name)

    def blocks(self, first: int, count: int) -> tuple[Words, Words]:
        """Return (ids per fingerprint, ids) of successive blocks."""
        return _kernel.unpack_records(self._records(first, count), first, record_seed(self._digest, 0), self._name)

    def _records(self, first: int, count: int) -> list[bytes]:
        """Return the records of successive blocks. A missing one shows as damage of those that follow."""
        parts = [
            self._reader.successive(block_key(block), min(LOCKED_BLOCKS, first + count - block))
            for block in range(first, first + count, LOCKED_BLOCKS)
        ]
        records = [record for part in parts for record in part]
        if len(records) != count:
            raise CorruptStoreError(f"{self.path}: id records are missing from block {first} on", path=self.path, block=first)
        return records

    def find(self, wanted: Words, block_count: int) -> tuple[Words, npt.NDArray[np.uint32], Words]:
        """Return (blocks, ranks, ids) of all places that have a wanted id; the wanted ids ascend. This reads the whole map."""
        parts = []
        for first in range(0, block_count, FIND_BLOCKS):
            records = self._records(first, min(FIND_BLOCKS, block_count - first))
            parts.append(_kernel.find_ids(records, first, record_seed(self._digest, 0), wanted, self._name))
        if not parts:
            return np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint64)
        blocks, ranks, ids = (np.concatenate(column) for column in zip(*parts, strict=True))
        return blocks, ranks, ids

    def gather(self, blocks: Words, ranks: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.int64], Words]:
        """Return (lims, ids) of many places; each record is read once."""
        distinct, record = np.unique(blocks, return_inverse=True)
        keys = [block_key(block) for block in distinct.tolist()]
        records = self._reader.get_many(keys)
        found = [record for record in records if record is not None]
        if len(found) != len(keys):
            raise self._missing(int(distinct[records.index(None)]))
        return _kernel.gather_ids(found, distinct, record.astype(np.uint64), ranks, record_seed(self._digest, 0), self._name)

    def _record(self, block: int) -> bytes:
        record = self._reader.get(block_key(block))
        if record is None:
            raise self._missing(block)
        return record

    def _missing(self, block: int) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path}: the id record of block {block} is missing", path=self.path, block=block)

    def verify(self, entry_counts: Iterable[int], tick: Callable[[int], None] = lambda rows: None) -> int:
        """Check that each block has exactly one good record, with the right number of fingerprints; return the id count.

        ``tick`` is called now and then with the number of fingerprints checked since the last call.
        """
        self._reader.verify()
        total = block = waiting = 0
        records = self._reader.items()
        for block, expected in enumerate(entry_counts):
            key, record = next(records, (None, b""))
            if key != block_key(block):
                raise CorruptStoreError(f"{self.path}: the id record of block {block} is missing", path=self.path, block=block)
            counts, ids = _kernel.unpack_record(record, record_seed(self._digest, block), self._name)
            if len(counts) != expected:
                raise CorruptStoreError(
                    f"{self.path}: the id record of block {block} holds {len(counts)} fingerprints, the table {expected}",
                    path=self.path, block=block, expected=expected, got=len(counts),
                )  # fmt: skip
            total += len(ids)
            waiting += expected
            if waiting >= TICK_ROWS:
                tick(waiting)
                waiting = 0
        tick(waiting)
        if next(records, None) is not None:
            raise CorruptStoreError(f"{self.path}: there are more id records than blocks", path=self.path)
        return total

    @property
    def file_bytes(self) -> int:
        """Size of the file on disk."""
        return self._reader.file_bytes

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


def iter_entry_counts(pieces: Iterator[npt.NDArray[np.uint32]]) -> Iterator[int]:
    """Flatten arrays of entry counts."""
    for piece in pieces:
        yield from piece.tolist()
