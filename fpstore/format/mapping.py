"""A mapping from keys to numbers: a table of the keys, and a sealed file of records of numbers.

There are three: ids of the fingerprints of the first table; the places of ids in it, which is the
index by id; id numbers of the hashes of strings. A record (docs/format.md, "Id record") holds the
numbers of its block's keys, bit-packed in the order of the keys, under the last key of the block.
The table gives the block and rank of a key, and these lead to its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Counts, Groups, Lims, Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import NO_WORDS, list_lims
from fpstore.base.width import WIDTH_64, Width, rows_to_numbers
from fpstore.design.blocks import BlockPacking
from fpstore.design.families import design as make_design
from fpstore.disk.sealed import SealedReader, SealedWriter
from fpstore.errors import ClosedStoreError, CorruptStoreError
from fpstore.format import huffman
from fpstore.format.layout import NOWHERE, TableLayout
from fpstore.format.packed_table import PackedTable
from fpstore.format.table import Table, table_writer

IDS_FILE = "ids.mdb"
PLACES_FILES = ("places.fpt", "places.mdb")
LOOK_UPS = 1 << 16  # keys that are looked up at once
MAPPING_DESIGN = make_design("flip-1", 0)  # one table, in order of the keys
BLOCK_KEYS = 128  # or more in a block, so that the overhead of a block and of its record is small
BLOCK_BYTES = (128, 256, 512, 1024)
TICK_ROWS = 1 << 14
FIND_BLOCKS = 1 << 12
# P1 of XXH64: without it, (key, number) would count like (key + 1, number - 1)
SPREAD = np.uint64(0x9E3779B185EBCA87)


def mapping_layout(keys: huffman.KeySummary) -> TableLayout:
    """Return the layout of a table of 64-bit keys, in the least blocks of BLOCK_KEYS keys."""
    count = max(int(keys.counts.sum()), 1)
    tail_bits = int((keys.counts * huffman.tail_bits(WIDTH_64)).sum()) / count
    least = BLOCK_KEYS * (tail_bits + 2) / 8  # a code takes about 2 bits
    blocks = BlockPacking(next((size for size in BLOCK_BYTES if size >= least), BLOCK_BYTES[-1]))
    return TableLayout(MAPPING_DESIGN, 0, blocks, keys.count, keys.digest, keys.counts)


def pair_digest(keys: Words, numbers: Words) -> int:
    """Return the sum of a hash of each pair, modulo 2^64: it does not depend on their order."""
    return _kernel.digest(keys + numbers * SPREAD)


def groups_digest(groups: Iterable[Groups], tick: Callable[[int], None]) -> int:
    total = 0
    for keys, counts, numbers in groups:
        total += pair_digest(np.repeat(keys, counts.astype(np.int64)), numbers)
        tick(len(numbers))
    return total % 2**64


def record_seed(set_digest: int, key: int) -> int:
    """Return the checksum seed of a block's record: the digest plus the words of its last key."""
    while key:
        set_digest += key
        key >>= 64
    return set_digest % 2**64


def unpack_record(record: bytes, seed: int, name: str, block: int = 0) -> tuple[Words, Words]:
    """Return (numbers per key, numbers) of the record of one block."""
    return _kernel.unpack_records([record], block, np.zeros(1, np.uint64), seed, name)


def _seed_terms(keys: Words) -> Words:
    """Return the term that :func:`record_seed` adds to the digest for each key."""
    return keys if keys.ndim == 1 else keys.sum(axis=1, dtype=np.uint64)


class MappingWriter:
    """Writes the two files of a mapping: :meth:`add` keys in ascending order, then :meth:`finish`.

    The histogram, count and digest of the layout must be of the keys that will be added. If
    ``threaded``, a thread writes the numbers while the next keys are added.
    """

    def __init__(self, table: Path, numbers: Path, layout: TableLayout, threaded: bool) -> None:
        from fpstore.base.pools import Worker  # which a reader does not need

        self._background = Worker(threaded)
        self._width = layout.spec.width
        # the most entries of a block, and the numbers, so far
        self.largest_block = self.number_count = 0
        self.table = table_writer(table, layout)
        try:
            self._records = SealedWriter(numbers, self._width.words)
        except BaseException:
            self.table.abort()
            raise
        self._packer = _kernel.IdPacker(self._records.encoder, layout.set_digest)

    def add(self, keys: Words, counts: Words, numbers: Words) -> None:
        """Append distinct keys with the count of their numbers, and all numbers in order."""
        self.number_count += len(numbers)
        entry_counts = self._note_counts(self.table.feed(keys))
        group = keys, counts, numbers
        self._background.submit(self._pack, group, entry_counts)

    def _pack(self, group: Groups, entry_counts: Counts) -> None:
        """Write the records of the blocks that are complete with these keys and their numbers."""
        self._packer.feed(*group, entry_counts)
        self._records.write_pages()

    def _note_counts(self, entry_counts: Counts) -> Counts:
        self.largest_block = max(self.largest_block, int(entry_counts.max(initial=0)))
        return entry_counts

    def finish(self) -> dict[str, int]:
        """Complete the files; return the shape of the file of numbers, which is durable.

        The table is durable after its sync.
        """
        entry_counts = self._note_counts(self.table.finish())
        self._background.wait()
        self._background.end()
        group = self._width.empty(0), NO_WORDS, NO_WORDS
        self._pack(group, entry_counts)
        return self._records.finish()

    def abort(self) -> None:
        self._background.end()
        self.table.abort()
        self._records.abort()


class IdMapping:
    """Reads a mapping by its open table and the file of the numbers.

    The shape is what :meth:`MappingWriter.finish` returned.
    """

    def __init__(self, table: Table, path: Path, shape: dict[str, int]) -> None:
        self._reader = SealedReader(path, shape, Width(table.kernel.width).words)
        self._table: Table | None = table
        self._digest = table.kernel.set_digest
        self.path = path
        self.name = printable(path)  # in messages of the kernel

    @property
    def table(self) -> Table:
        """The table of the keys; ClosedStoreError once it is closed."""
        if self._table is None:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        return self._table

    @property
    def file(self) -> _kernel.SealedFile:
        """The file of the records; ClosedStoreError once it is closed."""
        return self._reader.file

    # By key

    def get(self, key: int) -> list[int]:
        """Return the numbers of a key, ascending; none if the key is not there."""
        place = self.table.kernel.locate_one(key)
        return [] if place is None else self.get_at(*place)

    def get_at(self, block: int, rank: int) -> list[int]:
        """Return the numbers of the key at a place, ascending."""
        key = self.table.kernel.key_of(block)
        record = self.file.get(key, block)
        if record is None:
            raise self._missing_block_error(block)
        return _kernel.unpack_rank(record, record_seed(self._digest, key), rank, self.name)

    def gather(self, keys: Words) -> tuple[Lims, Words]:
        """Return (lims, numbers) of keys; a key that is not there has none."""
        if len(keys) > LOOK_UPS:
            parts = [
                self.gather(keys[start : start + LOOK_UPS])
                for start in range(0, len(keys), LOOK_UPS)
            ]
            sizes = np.concatenate([np.diff(lims) for lims, _ in parts])
            return list_lims(sizes), np.concatenate([numbers for _, numbers in parts])
        blocks, ranks = self.table.kernel.locate(keys)
        here = blocks != NOWHERE
        if here.all():
            return self._gather_at(blocks, ranks)
        lims, numbers = self._gather_at(blocks[here], ranks[here])
        counts = np.zeros(len(keys), np.int64)
        counts[here] = np.diff(lims)
        return list_lims(counts), numbers

    def _gather_at(self, blocks: Words, ranks: Counts) -> tuple[Lims, Words]:
        """Return (lims, numbers) of many places; each record is read once."""
        distinct, inverse = np.unique(blocks, return_inverse=True)
        keys = self.table.kernel.keys_of(distinct)
        stored = self.file.get_many(keys, distinct)
        records = [record for record in stored if record is not None]
        if len(records) != len(keys):
            raise self._missing_block_error(int(distinct[stored.index(None)]))
        return _kernel.gather_ids(
            records, _seed_terms(keys), inverse.astype(np.uint64), ranks, self._digest, self.name
        )

    # In order

    def groups(self) -> Iterator[Groups]:
        """Yield everything as pieces (keys, how many numbers each has, the numbers), ascending."""
        block = 0
        for keys, entry_counts in self.table.pieces():
            yield keys, *self.blocks(block, keys, entry_counts)
            block += len(entry_counts)

    def blocks(self, first: int, keys: Words, entry_counts: Counts) -> tuple[Words, Words]:
        """Return (numbers per key, numbers) of successive blocks, which have these keys."""
        lasts = keys[np.cumsum(entry_counts, dtype=np.int64) - 1]
        return _kernel.unpack_records(
            self._block_records(first, lasts), first, _seed_terms(lasts), self._digest, self.name
        )

    def _block_records(self, first: int, lasts: Words) -> list[bytes]:
        """Return the records of successive blocks with these last keys.

        A missing record shows as damage of the next ones.
        """
        if not len(lasts):
            return []
        _, records = self.file.range(*rows_to_numbers(np.concatenate([lasts[:1], lasts[-1:]])))
        if len(records) != len(lasts):
            raise CorruptStoreError(
                f"{self.path}: id records are missing from block {first} on",
                path=self.path,
                block=first,
            )
        return records

    def places(self, rank_bits: int) -> Iterator[tuple[Words, Words]]:
        """Yield (numbers, places of their keys as in the index by id) in the order of the table."""
        first = 0
        for keys, entry_counts in self.table.pieces():
            counts, numbers = self.blocks(first, keys, entry_counts)
            sizes = entry_counts.astype(np.int64)
            blocks = np.repeat(np.arange(first, first + len(sizes), dtype=np.uint64), sizes)
            ranks = np.arange(len(blocks), dtype=np.uint64) - np.repeat(
                np.cumsum(sizes) - sizes, sizes
            ).astype(np.uint64)
            yield (
                numbers,
                np.repeat(blocks << np.uint64(rank_bits) | ranks, counts.astype(np.int64)),
            )
            first += len(sizes)

    def find(self, wanted: Words) -> tuple[Words, Counts, Words]:
        """Return (blocks, ranks, numbers) of all places of wanted numbers, which ascend.

        This reads the whole mapping.
        """
        parts = []
        block_count = self.table.kernel.block_count
        for first in range(0, block_count, FIND_BLOCKS):
            lasts = self.table.read_keys(first, min(first + FIND_BLOCKS, block_count))
            records = self._block_records(first, lasts)
            parts.append(
                _kernel.find_ids(
                    records, first, _seed_terms(lasts), self._digest, wanted, self.name
                )
            )
        if not parts:
            return NO_WORDS, np.empty(0, np.uint32), NO_WORDS
        blocks, ranks, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
        return blocks, ranks, numbers

    # Everything

    def verify(self, tick: Callable[[int], None]) -> int:
        """Check the table and the numbers; return how many numbers there are."""
        self.table.verify(tick)
        return self.verify_numbers((counts for _, counts in self.table.pieces()), tick)

    def verify_numbers(
        self, entry_counts: Iterable[Counts], tick: Callable[[int], None] = lambda rows: None
    ) -> int:
        """Check that each block has exactly one good record, for its number of keys.

        Return how many numbers there are. ``entry_counts`` are of successive blocks, in pieces.
        ``tick`` is called now and then with the number of keys checked since.
        """
        self._reader.verify()
        total = block = waiting = 0
        records = self._reader.items()
        lasts = iter(rows_to_numbers(self.table.block_keys))
        for block, expected in enumerate(
            chain.from_iterable(counts.tolist() for counts in entry_counts)
        ):
            last = next(lasts, None)
            key, record = next(records, (None, b""))
            if last is None or key != last:
                raise self._missing_block_error(block)
            counts, numbers = unpack_record(
                record, record_seed(self._digest, last), self.name, block
            )
            if len(counts) != expected:
                raise CorruptStoreError(
                    f"{self.path}: the id record of block {block} holds {len(counts)} "
                    f"fingerprints, the table {expected}",
                    path=self.path,
                    block=block,
                    expected=expected,
                    got=len(counts),
                )
            total += len(numbers)
            waiting += expected
            if waiting >= TICK_ROWS:
                tick(waiting)
                waiting = 0
        tick(waiting)
        if next(records, None) is not None:
            raise CorruptStoreError(
                f"{self.path}: there are more id records than blocks", path=self.path
            )
        return total

    def _missing_block_error(self, block: int) -> CorruptStoreError:
        return CorruptStoreError(
            f"{self.path}: the id record of block {block} is missing", path=self.path, block=block
        )

    @property
    def file_bytes(self) -> int:
        """The size on disk of the file of the numbers."""
        return self._reader.file_bytes

    @property
    def all_bytes(self) -> int:
        """The size on disk of both files."""
        return int(self.table.kernel.file_bytes) + self.file_bytes

    def close(self) -> None:
        self._reader.close()
        self._table = None


class KeyedMapping(IdMapping):
    """A mapping that opens its table; ``names`` are the files of the table and of the numbers."""

    def __init__(
        self,
        folder: Path,
        names: tuple[str, str],
        key_count: int,
        key_digest: int,
        shape: dict[str, int],
    ) -> None:
        table = PackedTable(folder / names[0])
        table.check_place(MAPPING_DESIGN, 0, key_count, key_digest)
        super().__init__(table, folder / names[1], shape)


def bits_per_rank(most: int) -> int:
    """Return the bits of a rank within a place, where blocks have at most ``most`` entries."""
    return max(most - 1, 0).bit_length()


class IdIndex(KeyedMapping):
    """The index by id: the places in the first table of the fingerprints of an id number."""

    def __init__(self, folder: Path, record: dict[str, Any]) -> None:
        self._rank_bits = int(record["rank_bits"])
        super().__init__(folder, PLACES_FILES, record["ids"], record["id_digest"], record["places"])

    def gather_places(self, numbers: Words) -> tuple[Lims, Words, Counts]:
        """Return (lims, blocks, ranks) of ids; an id that has no place is not stored."""
        lims, places = self.gather(numbers)
        ranks = (places & np.uint64((1 << self._rank_bits) - 1)).astype(np.uint32)
        return lims, places >> np.uint64(self._rank_bits), ranks

    def get_places(self, number: int) -> list[tuple[int, int]]:
        """Return the (block, rank) pairs of one id, ascending."""
        bits = self._rank_bits
        return [(place >> bits, place & ((1 << bits) - 1)) for place in self.get(number)]

    def verify_with(self, ids: IdMapping, tick: Callable[[int], None] = lambda rows: None) -> None:
        """Check all of it, and that it agrees with the id map."""
        self.verify(tick)
        expected = (
            sum(pair_digest(numbers, places) for numbers, places in ids.places(self._rank_bits))
            % 2**64
        )
        if groups_digest(self.groups(), tick) != expected:
            raise CorruptStoreError(
                f"{self.path}: the index by id does not say the same as the id map: run fpstore "
                "repair",
                path=self.path,
            )
