"""A mapping from 64-bit keys to numbers: a sorted table of the keys, and a file with the numbers of each block of it.

The index by id is one, from an id number to the places of its fingerprints: their blocks and ranks in the identity table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Counts, Groups, Lims, Words
from fpstore.base.arrays import lims_of
from fpstore.base.threads import Job, Pool
from fpstore.base.width import WIDTH_64
from fpstore.design.blocks import Blocks
from fpstore.design.families import design as make_design
from fpstore.errors import CorruptStoreError
from fpstore.format import huffman
from fpstore.format.id_map import IdMap, IdMapWriter
from fpstore.format.layout import NOWHERE, TableLayout
from fpstore.format.packed_table import PackedTable
from fpstore.format.table import Table, table_writer

PLACES_FILES = ("places.fpt", "places.mdb")
LOOK_UPS = 1 << 16  # keys that are looked up at once
MAPPING_DESIGN = make_design("flip-1", 0)  # one table, in order of the keys
BLOCK_KEYS = 128  # or more in a block, so that the overhead of a block and of its record is small
BLOCK_BYTES = (128, 256, 512, 1024)


def mapping_blocks(histogram: Words) -> Blocks:
    """Return the blocks for the keys with this histogram: of the least size that holds BLOCK_KEYS keys, but a small one."""
    count = max(int(histogram.sum()), 1)
    tails = int((histogram * huffman.tail_bits(WIDTH_64)).sum()) / count
    wanted = BLOCK_KEYS * (tails + 2) / 8  # a code takes about 2 bits
    return Blocks(next((size for size in BLOCK_BYTES if size >= wanted), BLOCK_BYTES[-1]))


SPREAD = np.uint64(0x9E3779B185EBCA87)  # P1 of XXH64: without it, (key, number) would count like (key + 1, number - 1)


def pair_digest(keys: Words, numbers: Words) -> int:
    """Return the sum of a hash of each pair, modulo 2^64: it does not depend on their order."""
    return _kernel.digest(keys + numbers * SPREAD)


def digest_of(groups: Iterable[Groups], tick: Callable[[int], None]) -> int:
    """Return the sum of :func:`pair_digest` over (keys, how many numbers each has, the numbers), modulo 2^64."""
    total = 0
    for keys, counts, numbers in groups:
        total += pair_digest(np.repeat(keys, counts.astype(np.int64)), numbers)
        tick(len(numbers))
    return total % 2**64


class MappingFiles(NamedTuple):
    """The paths of a mapping: of the table of its keys, and of the numbers."""

    table: Path
    numbers: Path


def open_mapping(files: MappingFiles, key_count: int, key_digest: int, shape: dict[str, int]) -> Mapping:
    """Open a mapping whose table has ``key_count`` keys with this set digest; ``shape`` is that of the file of the numbers.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """
    table = PackedTable(files.table)
    table.check_place(MAPPING_DESIGN, 0, key_count, key_digest)
    return Mapping(table, files.numbers, shape)


class MappingWriter:
    """Writes a mapping: :meth:`add` keys with their numbers, ascending, then :meth:`finish`.

    Parameters
    ----------
    files : MappingFiles
        The files to create.
    layout : TableLayout
        Of the table; its histogram, count and digest must be those of the keys that will be added.
    beside : bool
        Whether a thread writes the numbers while the next keys are added.

    Attributes
    ----------
    largest_block : int
        The most entries of a block so far.
    number_count : int
        How many numbers were added.
    """

    def __init__(self, files: MappingFiles, layout: TableLayout, beside: bool = False) -> None:
        self._pool = Pool(1) if beside else None
        self._job: Job[None] | None = None
        self.table = table_writer(files.table, layout)
        self.largest_block = self.number_count = 0
        try:
            self._numbers = IdMapWriter(files.numbers, layout.set_digest)
        except BaseException:
            self.table.abort()
            raise

    def add(self, keys: Words, counts: Words, numbers: Words) -> None:
        """Append distinct keys: how many numbers each has, and all numbers in order."""
        self.number_count += len(numbers)
        entry_counts = self.table.feed(keys)
        self.largest_block = max(self.largest_block, int(entry_counts.max(initial=0)))
        self._wait()
        if self._pool is None:
            self._put(keys, counts, numbers, entry_counts)
        else:
            self._job = self._pool.submit(self._put, keys, counts, numbers, entry_counts)

    def _put(self, keys: Words, counts: Words, numbers: Words, entry_counts: Counts) -> None:
        self._numbers.add(keys, counts, numbers)
        self._numbers.close_blocks(entry_counts)

    def _wait(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def finish(self) -> dict[str, int]:
        """Complete the files and return the shape of that of the numbers, which is durable; the table is so after its sync."""
        entry_counts = self.table.finish()
        self.largest_block = max(self.largest_block, int(entry_counts.max(initial=0)))
        self._wait()
        self._end_thread()
        self._numbers.close_blocks(entry_counts, last=True)
        return self._numbers.finish()

    def abort(self) -> None:
        """Close the files without finishing."""
        self._end_thread()
        self.table.abort()
        self._numbers.abort()

    def _end_thread(self) -> None:
        if self._pool is not None:
            self._pool.cancel()
            self._pool.shutdown()


class Mapping:
    """Reads a mapping; see :func:`open_mapping`.

    Parameters
    ----------
    table : Table
        The open table of the keys.
    numbers : Path
        The file of the numbers.
    shape : dict
        The expected ``bytes``, ``digest`` and ``largest`` record of the file of the numbers.
    """

    def __init__(self, table: Table, numbers: Path, shape: dict[str, int]) -> None:
        self.numbers = IdMap(numbers, table, shape)

    @property
    def table(self) -> Table:
        """The table of the keys; ClosedStoreError once it is closed."""
        return self.numbers.table

    def gather(self, keys: Words) -> tuple[Lims, Words]:
        """Return (lims, numbers) of keys; a key that is not there has none.

        Parameters
        ----------
        keys : ndarray of uint64, shape (n,)
        """
        if len(keys) > LOOK_UPS:
            parts = [self.gather(keys[start : start + LOOK_UPS]) for start in range(0, len(keys), LOOK_UPS)]
            sizes = np.concatenate([np.diff(lims) for lims, _ in parts])
            return lims_of(sizes), np.concatenate([numbers for _, numbers in parts])
        blocks, ranks = self.table.kernel.locate(keys)
        here = blocks != NOWHERE
        if here.all():
            return self.numbers.gather(blocks, ranks)
        found, numbers = self.numbers.gather(blocks[here], ranks[here])
        counts = np.zeros(len(keys), np.int64)
        counts[here] = np.diff(found)
        return lims_of(counts), numbers

    def get(self, key: int) -> list[int]:
        """Return the numbers of a key, ascending; none if the key is not there."""
        place = self.table.kernel.locate_one(key)
        return [] if place is None else self.numbers.get(*place)

    def groups(self) -> Iterator[Groups]:
        """Yield everything as pieces (keys, how many numbers each has, the numbers), ascending."""
        block = 0
        for keys, entry_counts in self.table.pieces():
            counts, numbers = self.numbers.blocks(block, keys, entry_counts)
            block += len(entry_counts)
            yield keys, counts, numbers

    def verify(self, tick: Callable[[int], None] = lambda rows: None) -> int:
        """Check all of it; return how many numbers there are."""
        self.table.verify(tick)
        return self.numbers.verify((counts for _, counts in self.table.pieces()), tick)

    @property
    def file_bytes(self) -> int:
        """Bytes that both files take on disk."""
        return int(self.table.kernel.file_bytes) + self.numbers.file_bytes

    def close(self) -> None:
        """Close the file of the numbers, and let the table go."""
        self.numbers.close()


# The index by id


def places_files(folder: Path) -> MappingFiles:
    """Return the files of the index."""
    return MappingFiles(*(folder / name for name in PLACES_FILES))


def bits_of_ranks(most: int) -> int:
    """Return how many bits of a place are for the rank, where no block has more than ``most`` entries."""
    return max(most - 1, 0).bit_length()


def placed_ids(table: Table, ids: IdMap, rank_bits: int) -> Iterator[tuple[Words, Words]]:
    """Yield everything as pieces (id numbers, their places), in the order of the table."""
    first = 0
    for keys, entry_counts in table.pieces():
        counts, numbers = ids.blocks(first, keys, entry_counts)
        sizes = entry_counts.astype(np.int64)
        blocks = np.repeat(np.arange(first, first + len(sizes), dtype=np.uint64), sizes)
        ranks = np.arange(len(blocks), dtype=np.uint64) - np.repeat(np.cumsum(sizes) - sizes, sizes).astype(np.uint64)
        yield numbers, np.repeat(blocks << np.uint64(rank_bits) | ranks, counts.astype(np.int64))
        first += len(sizes)


class IdIndex:
    """Reads the index.

    Parameters
    ----------
    folder : Path
        Of the generation.
    record : dict
        Its description in the manifest.
    """

    def __init__(self, folder: Path, record: dict[str, Any]) -> None:
        self._rank_bits = int(record["rank_bits"])
        self._mapping = open_mapping(places_files(folder), record["ids"], record["id_digest"], record["places"])

    @property
    def name(self) -> str:
        """The path of the file that has the places, for messages of the kernel."""
        return self._mapping.numbers.name

    def gather(self, numbers: Words) -> tuple[Lims, Words, Counts]:
        """Return (lims, blocks, ranks) of ids; an id that has no place is not stored."""
        lims, places = self._mapping.gather(numbers)
        ranks = (places & np.uint64((1 << self._rank_bits) - 1)).astype(np.uint32)
        return lims, places >> np.uint64(self._rank_bits), ranks

    def get(self, number: int) -> list[tuple[int, int]]:
        """Return the (block, rank) pairs of one id, ascending."""
        bits = self._rank_bits
        return [(place >> bits, place & ((1 << bits) - 1)) for place in self._mapping.get(number)]

    def verify(self, table: Table, ids: IdMap, tick: Callable[[int], None] = lambda rows: None) -> None:
        """Check all of it, and that it says the same as the id map.

        Raises
        ------
        CorruptStoreError
        """
        self._mapping.verify(tick)
        expected = sum(pair_digest(numbers, places) for numbers, places in placed_ids(table, ids, self._rank_bits)) % 2**64
        if digest_of(self._mapping.groups(), tick) != expected:
            path = self._mapping.numbers.path
            raise CorruptStoreError(f"{path}: the index by id does not say the same as the id map: run fpstore repair", path=path)

    @property
    def file_bytes(self) -> int:
        """Bytes that both files take on disk."""
        return self._mapping.file_bytes

    def close(self) -> None:
        """Close the files."""
        self._mapping.close()
