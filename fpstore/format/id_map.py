"""The id map: the document ids of each fingerprint.

One record per block of the identity table holds that block's ids, bit-packed in rank order (docs/format.md, "Id record"), under
the last fingerprint of the block. A fingerprint is found in the table first, and its block and rank lead to its ids. String ids
are numbered through a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Counts, Lims, Words
from fpstore.base.arguments import printable
from fpstore.base.width import Width, rows_to_numbers
from fpstore.disk.sealed import SealedReader, SealedWriter
from fpstore.errors import ClosedStoreError, CorruptStoreError
from fpstore.format.table import Table

IDS_FILE = "ids.mdb"
PENDING_BLOCKS = 1 << 11
PENDING_IDS = 1 << 20
TICK_ROWS = 1 << 14
FIND_BLOCKS = 1 << 12


def record_seed(set_digest: int, key: int) -> int:
    """Return the checksum seed of the record of the block whose last entry is ``key``: the digest and all words of the key."""
    while key:
        set_digest += key
        key >>= 64
    return set_digest % 2**64


def seed_words(keys: Words) -> Words:
    """Return the term that :func:`record_seed` adds to the digest for each key."""
    return keys if keys.ndim == 1 else keys.sum(axis=1, dtype=np.uint64)


class IdMapWriter:
    """Writes the records of a table's blocks, in a file such as ``ids.mdb``.

    :meth:`add` fingerprints and ids in table order, and :meth:`close_blocks` as blocks are completed.
    """

    def __init__(self, path: Path, set_digest: int) -> None:
        self._writer = SealedWriter(path)
        self._digest = set_digest
        self._counts: list[Counts] = []
        self._fingerprints: list[Words] = []
        self._per_fingerprint: list[Words] = []
        self._ids: list[Words] = []
        self._waiting_blocks = self._waiting_ids = 0

    def add(self, fingerprints: Words, per_fingerprint: Words, ids: Words) -> None:
        """Append successive fingerprints, the number of ids of each, and all ids in order."""
        self._fingerprints.append(fingerprints)
        self._per_fingerprint.append(per_fingerprint)
        self._ids.append(ids)
        self._waiting_ids += len(ids)

    def close_blocks(self, entry_counts: Counts, last: bool = False) -> None:
        """Note completed blocks; records are written in batches."""
        self._counts.append(entry_counts)
        self._waiting_blocks += len(entry_counts)
        if self._waiting_blocks >= PENDING_BLOCKS or self._waiting_ids >= PENDING_IDS or last:
            self._flush()

    def _flush(self) -> None:
        entry_counts = np.concatenate(self._counts) if self._counts else np.empty(0, np.uint32)
        if not len(entry_counts):
            return
        fingerprints = np.concatenate(self._fingerprints)
        per_fingerprint = np.concatenate(self._per_fingerprint)
        ids = np.concatenate(self._ids)
        lasts = np.cumsum(entry_counts, dtype=np.int64) - 1
        done = int(lasts[-1]) + 1
        lims = np.zeros(done + 1, np.uint64)
        np.cumsum(per_fingerprint[:done], out=lims[1:])
        used = int(lims[-1])
        keys = fingerprints[lasts]
        blob, offsets = _kernel.pack_ids(ids[:used], lims, entry_counts, seed_words(keys), self._digest)
        self._writer.append(keys, [blob[start:end] for start, end in pairwise(offsets.tolist())])
        self._counts, self._waiting_blocks, self._waiting_ids = [], 0, len(ids) - used
        self._fingerprints, self._per_fingerprint = [fingerprints[done:].copy()], [per_fingerprint[done:].copy()]
        self._ids = [ids[used:].copy()]

    def finish(self) -> dict[str, int]:
        """Write the remaining records, make the file durable, and return its size, digest and largest record."""
        self._flush()
        return self._writer.finish()

    def abort(self) -> None:
        """Close without finishing."""
        self._writer.abort()


class IdMap:
    """Reads the records of a table's blocks, from a file such as ``ids.mdb``.

    Parameters
    ----------
    path : Path
    table : Table
        The table whose blocks the records are for.
    shape : dict
        As :meth:`IdMapWriter.finish` returned it.
    """

    def __init__(self, path: Path, table: Table, shape: dict[str, int]) -> None:
        self._reader = SealedReader(path, shape, Width(table.kernel.width).words)
        self._open_table: Table | None = table
        self._digest = table.kernel.set_digest
        self.path = path
        self.name = printable(path)  # in messages of the kernel

    @property
    def table(self) -> Table:
        """The table whose blocks the records are for; ClosedStoreError once it is closed."""
        if self._open_table is None:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        return self._open_table

    @property
    def file(self) -> _kernel.SealedFile:
        """The file of the records, for look-ups of single ones; ClosedStoreError once it is closed."""
        return self._reader.file

    def get(self, block: int, rank: int) -> list[int]:
        """Return the id numbers of one fingerprint, ascending."""
        key = self.table.kernel.key_of(block)
        record = self._reader.file.get(key, block)
        if record is None:
            raise self._missing(block)
        return _kernel.unpack_rank(record, record_seed(self._digest, key), rank, self.name)

    def blocks(self, first: int, fingerprints: Words, entry_counts: Counts) -> tuple[Words, Words]:
        """Return (ids per fingerprint, ids) of successive blocks, which have these fingerprints."""
        keys = fingerprints[np.cumsum(entry_counts, dtype=np.int64) - 1]
        return _kernel.unpack_records(self._records(first, keys), first, seed_words(keys), self._digest, self.name)

    def _records(self, first: int, keys: Words) -> list[bytes]:
        """Return the records of successive blocks with these keys. A missing record shows as damage of the next ones."""
        if not len(keys):
            return []
        _, records = self._reader.file.range(*rows_to_numbers(np.concatenate([keys[:1], keys[-1:]])))
        if len(records) != len(keys):
            raise CorruptStoreError(f"{self.path}: id records are missing from block {first} on", path=self.path, block=first)
        return records

    def find(self, wanted: Words) -> tuple[Words, Counts, Words]:
        """Return (blocks, ranks, ids) of all places that have a wanted id; the wanted ids ascend. This reads the whole map."""
        parts = []
        block_count = self.table.kernel.block_count
        for first in range(0, block_count, FIND_BLOCKS):
            keys = self.table.read_keys(first, min(first + FIND_BLOCKS, block_count))
            parts.append(_kernel.find_ids(self._records(first, keys), first, seed_words(keys), self._digest, wanted, self.name))
        if not parts:
            return np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint64)
        blocks, ranks, ids = (np.concatenate(column) for column in zip(*parts, strict=True))
        return blocks, ranks, ids

    def gather(self, blocks: Words, ranks: Counts) -> tuple[Lims, Words]:
        """Return (lims, ids) of many places; each record is read once."""
        distinct, record = np.unique(blocks, return_inverse=True)
        keys = self.table.kernel.keys_of(distinct)
        records = self._reader.file.get_many(keys, distinct)
        found = [record for record in records if record is not None]
        if len(found) != len(keys):
            raise self._missing(int(distinct[records.index(None)]))
        return _kernel.gather_ids(found, seed_words(keys), record.astype(np.uint64), ranks, self._digest, self.name)

    def _missing(self, block: int) -> CorruptStoreError:
        return CorruptStoreError(f"{self.path}: the id record of block {block} is missing", path=self.path, block=block)

    def verify(self, entry_counts: Iterable[Counts], tick: Callable[[int], None] = lambda rows: None) -> int:
        """Check that each block has exactly one good record, with the right number of fingerprints; return the id count.

        Parameters
        ----------
        entry_counts : iterable of ndarray of uint32
            Of successive blocks, in pieces.
        tick : callable
            Called now and then with the number of fingerprints checked since the last call.
        """
        self._reader.verify()
        total = block = waiting = 0
        records = self._reader.items()
        block_keys = iter(rows_to_numbers(self.table.block_keys))
        for block, expected in enumerate(chain.from_iterable(counts.tolist() for counts in entry_counts)):
            block_key = next(block_keys, None)
            key, record = next(records, (None, b""))
            if block_key is None or key != block_key:
                raise self._missing(block)
            counts, ids = _kernel.unpack_record(record, record_seed(self._digest, block_key), self.name)
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
        """Close the file, and let the table go."""
        self._reader.close()
        self._open_table = None
