"""What can be recovered of a damaged store: which set its tables hold together, and which ids belong to which fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.building.external_sort import PairSorter
from fpstore.building.target import temporary_prefix
from fpstore.care.salvage import Blocks, IdRecords, intact_blocks
from fpstore.care.word_array import SortedWords, WordArray
from fpstore.design.families import IDENTITY
from fpstore.disk.refusals import refusing
from fpstore.format import huffman
from fpstore.format.table import FEED_KEYS
from fpstore.format.table_file import TableFile

NONE = np.empty(0, np.uint64)
IDENTITY_ARRAY = np.frombuffer(IDENTITY, np.uint8)
HIGHEST = 2**64 - 1
GAP_WORDS = 4
PIECE_ROWS = 1 << 16


class Unit(NamedTuple):
    """Successive fingerprints, how many ids each has, the ids; without ``known``, what ids they have in the tables is lost."""

    values: Words
    counts: Words
    ids: Words
    known: bool


class Gap(NamedTuple):
    """Damaged blocks of the identity table: their numbers, and the least and the greatest fingerprint they may have held."""

    first: int
    end: int
    low: int
    high: int


class FoundSet:
    """The fingerprints of a damaged store: intact blocks of the identity table, and what other tables have of the others.

    Parameters
    ----------
    tables : sequence of TableFile
        Those with a sound header, all of the same set.
    count, digest : int
        Of the whole set.
    block_bytes : int
    target : Path
        The new store: temporary files go beside it.
    memory : int
        Budget in bytes. Half of it is for the time of the search.
    """

    def __init__(self, tables: Sequence[TableFile], count: int, digest: int, block_bytes: int, target: Path, memory: int) -> None:
        self._identity = next((table for table in tables if table.kernel.permutation == IDENTITY), None)
        self._block_bytes, self._digest = block_bytes, digest
        self._target, self._memory = target, memory
        self._folder = folder = target.parent
        self.count = self._sum = 0
        self._gaps = WordArray(folder, memory // 16)
        for gap in self._find_gaps():
            if gap.low <= gap.high:
                self._gaps.append(np.array(gap, np.uint64))
        self._intact = self.count, self._sum
        self._extras = SortedWords(folder, memory // 8)
        self.expected = count
        for table in tables:
            if self.complete or not len(self._gaps):
                break
            if table is not self._identity:
                self._fill(table)
        self.block_counts = self._count_blocks()

    @property
    def complete(self) -> bool:
        """Whether this is the very set that the store held."""
        return self.count == self.expected and self._sum == self._digest

    @property
    def has_gaps(self) -> bool:
        """Whether blocks of the identity table are damaged or missing."""
        return len(self._gaps) > 0

    @property
    def memory(self) -> int:
        """Bytes that this takes."""
        counts = 0 if self.block_counts is None else self.block_counts.memory
        return self._gaps.memory + self._extras.memory + counts

    def close(self) -> None:
        """Give memory and temporary files back."""
        for words in (self._gaps, self._extras, self.block_counts):
            if words is not None:
                words.close()

    def _find_gaps(self) -> Iterator[Gap]:
        table = self._identity
        if table is None:
            yield Gap(0, 0, 0, HIGHEST)
            return
        block, low = 0, 0
        for piece in intact_blocks(table):
            if piece.first > block:
                yield Gap(block, piece.first, low, int(piece.values[0]) - 1)
            self._note(piece.values)
            block, low = piece.first + len(piece.counts), int(piece.values[-1]) + 1
        if block < table.kernel.block_count:
            yield Gap(block, table.kernel.block_count, low, HIGHEST)

    def _note(self, values: Words) -> None:
        self.count += len(values)
        self._sum = (self._sum + _kernel.digest(values, IDENTITY_ARRAY)) % 2**64

    def _fill(self, table: TableFile) -> None:
        """Take from another table what falls into the gaps."""
        permutation = np.frombuffer(table.kernel.permutation, np.uint8)
        gaps = self._gaps.read(0, len(self._gaps)).reshape(-1, GAP_WORDS)
        lows, highs = gaps[:, 2].copy(), gaps[:, 3].copy()
        del gaps
        with sorting_folder(self._target) as folder:
            sorter = PairSorter(self._memory // 2, folder)
            for piece in intact_blocks(table):
                values = _kernel.permute(piece.values, permutation, True)
                place = np.searchsorted(lows, values, side="right") - 1
                inside = values[(place >= 0) & (values <= highs[np.maximum(place, 0)])]
                sorter.add(inside, np.zeros(len(inside), np.uint64))
            if not sorter.rows:
                return
            for values in self._extras_between(0, len(self._extras)):
                sorter.add(values, np.zeros(len(values), np.uint64))
            self._extras.close()
            self._extras = SortedWords(self._folder, self._memory // 8)
            self.count, self._sum = self._intact
            for group in sorter.groups(lambda rows: None):
                self._note(group.keys)
                self._extras.append(group.keys)

    def _extras_between(self, start: int, end: int) -> Iterator[Words]:
        for at in range(start, end, PIECE_ROWS):
            yield self._extras.read(at, min(at + PIECE_ROWS, end))

    def _places(self, gap: Gap) -> tuple[int, int]:
        """Return where what other tables have in a gap begins and ends."""
        return self._extras.below(gap.low), self._extras.below(gap.high, inclusive=True)

    def _each_gap(self) -> Iterator[Gap]:
        for at in range(0, len(self._gaps), GAP_WORDS):
            yield Gap(*self._gaps.read(at, at + GAP_WORDS).tolist())

    def parts(self) -> Iterator[Blocks | Gap]:
        """Yield intact blocks, and the gaps, in order."""
        gaps = self._each_gap()
        gap = next(gaps, None)
        if self._identity is not None:
            for piece in intact_blocks(self._identity):
                if gap is not None and gap.first < piece.first:
                    yield gap
                    gap = next(gaps, None)
                yield piece
        if gap is not None:
            yield gap

    def keys(self) -> Iterator[Words]:
        """Yield all fingerprints, ascending, in pieces."""
        for part in self.parts():
            if isinstance(part, Gap):
                yield from self._extras_between(*self._places(part))
            elif len(part.values):
                yield part.values

    def _count_blocks(self) -> WordArray | None:
        """Return how many entries each block of the identity table had, when its writer would do the same again; else None."""
        if not self.has_gaps or not self.complete:
            return None
        from fpstore.building.generation_writer import Histogram

        histogram = Histogram()
        for values in self.keys():
            histogram.add(values)
        code = huffman.code_lengths(histogram.counts)
        encoder = _kernel.BlockEncoder(code, self._block_bytes, _kernel.block_seed(IDENTITY_ARRAY, code, self._digest))
        most = encoder.most_blocks(FEED_KEYS)
        blocks = np.empty(most * self._block_bytes + _kernel.OVERREAD_BYTES, np.uint8)
        keys, counts = np.empty(most, np.uint64), np.empty(most, np.uint32)
        made = WordArray(self._folder, self._memory // 16)
        for values in self.keys():
            for start in range(0, len(values), FEED_KEYS):
                n = encoder.feed(np.ascontiguousarray(values[start : start + FEED_KEYS]), blocks, keys, counts)
                made.append(counts[:n].astype(np.uint64))
        made.append(encoder.finish()[2].astype(np.uint64))
        if self._identity is not None and len(made) != self._identity.kernel.block_count:
            made.close()
            return None
        return made

    @property
    def block_count(self) -> int:
        """How many blocks the identity table had, as far as that is known."""
        if self._identity is not None:
            return self._identity.kernel.block_count
        return 0 if self.block_counts is None else len(self.block_counts)

    def units(self, records: IdRecords) -> Iterator[Unit]:
        """Yield everything with its ids, ascending."""
        for part in self.parts():
            if isinstance(part, Gap):
                yield from self._gap_units(part, records)
                continue
            start = 0
            for block, count in enumerate(part.counts.tolist(), part.first):
                yield _unit(part.values[start : start + count], records.get(block))
                start += count

    def _gap_units(self, gap: Gap, records: IdRecords) -> Iterator[Unit]:
        start, end = self._places(gap)
        last = gap.end if self._identity is not None else self.block_count
        if self.block_counts is None:
            sizes = np.fromiter((records.rows(block) for block in range(gap.first, last)), np.uint64, last - gap.first)
            if not len(sizes) or not sizes.all() or int(sizes.sum()) != end - start:
                yield from self._units_by_keys(gap, start, end, sizes, records)
                return
        for block in range(gap.first, last):
            size = int(sizes[block - gap.first]) if self.block_counts is None else self.block_counts[block]
            yield _unit(self._extras.read(start, start + size), records.get(block))
            start += size

    def _units_by_keys(self, gap: Gap, start: int, end: int, sizes: Words, records: IdRecords) -> Iterator[Unit]:
        """Yield a gap of which some is missing: a block has its ids if as many as it had lie between two keys."""
        if self._identity is not None:
            for block, size in enumerate(sizes.tolist(), gap.first):
                key = self._identity.block_keys[block]
                stop = end if block + 1 == gap.end else min(max(self._extras.below(int(key), inclusive=True), start), end)
                if size and size == stop - start:
                    yield _unit(self._extras.read(start, stop), records.get(block))
                else:
                    yield from (_unit(values, None) for values in self._extras_between(start, stop))
                start = stop
        yield from (_unit(values, None) for values in self._extras_between(start, end))


def _unit(values: Words, record: tuple[Words, Words] | None) -> Unit:
    """Return a block with its ids, if its record is intact."""
    if record is None or len(record[0]) != len(values):
        return Unit(values, np.zeros(len(values), np.uint64), NONE, False)
    return Unit(values, *record, True)


@contextmanager
def sorting_folder(target: Path) -> Iterator[Path]:
    """Yield a folder for the files of a sort; what a process that was killed has left, the next build of the target removes.

    Raises
    ------
    StorageError
        The system refused a write.
    """
    import tempfile  # and with it all that packs and unpacks archives

    with (
        refusing(target.parent),
        tempfile.TemporaryDirectory(prefix=temporary_prefix(target), dir=target.parent) as name,
    ):
        yield Path(name)
