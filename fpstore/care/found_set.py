"""What can be recovered of a damaged store: which set its tables hold together, and which ids belong to which fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.care.salvage import IdRecords, intact_blocks
from fpstore.design.families import IDENTITY
from fpstore.format import huffman
from fpstore.format.table import FEED_KEYS
from fpstore.format.table_file import TableFile
from fpstore.query.delta import ADD, WIPE, Record

Words = npt.NDArray[np.uint64]
NONE = np.empty(0, np.uint64)
IDENTITY_ARRAY = np.frombuffer(IDENTITY, np.uint8)
HIGHEST = 2**64 - 1


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
    """

    def __init__(self, tables: Sequence[TableFile], count: int, digest: int, block_bytes: int) -> None:
        self._identity = next((table for table in tables if table.kernel.permutation == IDENTITY), None)
        self._block_bytes, self._digest = block_bytes, digest
        self.count = self._sum = 0
        self.gaps = list(self._find_gaps())
        self._extras = NONE
        self.expected = count
        for table in tables:
            if self.complete:
                break
            if table is not self._identity:
                self._fill(table)
        self.block_counts = self._count_blocks()

    @property
    def complete(self) -> bool:
        """Whether this is the very set that the store held."""
        return self.count == self.expected and self._sum == self._digest

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
        lows, highs = (np.array([getattr(gap, name) for gap in self.gaps], np.uint64) for name in ("low", "high"))
        found = [self._extras]
        for piece in intact_blocks(table):
            values = _kernel.permute(piece.values, permutation, True)
            place = np.searchsorted(lows, values, side="right") - 1
            inside = (place >= 0) & (values <= highs[np.maximum(place, 0)]) if len(lows) else np.zeros(len(values), bool)
            found.append(values[inside])
        extras = np.unique(np.concatenate(found))
        added = np.setdiff1d(extras, self._extras, assume_unique=True)
        self._note(added)
        self._extras = extras

    def in_gap(self, gap: Gap) -> Words:
        """Return what other tables have in a gap, ascending."""
        start, end = np.searchsorted(self._extras, np.array([gap.low, gap.high], np.uint64), side="left").tolist()
        if end < len(self._extras) and int(self._extras[end]) == gap.high:
            end += 1
        return self._extras[start:end]

    def parts(self) -> Iterator[tuple[int, Words, npt.NDArray[np.uint32]] | Gap]:
        """Yield (first block, values, counts) of intact blocks, and the gaps, in order."""
        gaps = iter(self.gaps)
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
            values = self.in_gap(part) if isinstance(part, Gap) else part[1]
            if len(values):
                yield values

    def _count_blocks(self) -> npt.NDArray[np.uint32] | None:
        """Return how many entries each block of the identity table had, when its writer would do the same again; else None."""
        if not self.gaps or not self.complete:
            return None
        from fpstore.building.generation_writer import add_histogram

        histogram = np.zeros(huffman.SYMBOLS, np.uint64)
        last = NONE
        for values in self.keys():
            add_histogram(last, values, histogram)
            last = values[-1:]
        code = huffman.code_lengths(histogram)
        encoder = _kernel.BlockEncoder(code, self._block_bytes, _kernel.block_seed(IDENTITY_ARRAY, code, self._digest))
        most = encoder.most_blocks(FEED_KEYS)
        blocks = np.empty(most * self._block_bytes + _kernel.OVERREAD_BYTES, np.uint8)
        keys, counts = np.empty(most, np.uint64), np.empty(most, np.uint32)
        found = []
        for values in self.keys():
            for start in range(0, len(values), FEED_KEYS):
                n = encoder.feed(np.ascontiguousarray(values[start : start + FEED_KEYS]), blocks, keys, counts)
                found.append(counts[:n].copy())
        found.append(encoder.finish()[2])
        made = np.concatenate(found)
        if self._identity is not None and len(made) != self._identity.kernel.block_count:
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
            else:
                yield from _units(part[0], part[1], part[2].tolist(), records)

    def _gap_units(self, gap: Gap, records: IdRecords) -> Iterator[Unit]:
        values = self.in_gap(gap)
        end = gap.end if self._identity is not None else self.block_count
        if self.block_counts is not None:
            yield from _units(gap.first, values, self.block_counts[gap.first : end].tolist(), records)
            return
        sizes = [0 if (record := records.get(block)) is None else len(record[0]) for block in range(gap.first, end)]
        if all(sizes) and sum(sizes) == len(values):
            yield from _units(gap.first, values, sizes, records)
            return
        if self._identity is None:
            yield Unit(values, np.zeros(len(values), np.uint64), NONE, False)
            return
        # Some are missing: a block has its ids if as many as it had lie between its key and the one before.
        keys = self._identity.block_keys
        start = 0
        for block, size in enumerate(sizes, gap.first):
            stop = len(values) if block + 1 == gap.end else max(int(np.searchsorted(values, keys[block], side="right")), start)
            if size and size == stop - start:
                yield from _units(block, values[start:stop], [size], records)
            else:
                yield Unit(values[start:stop], np.zeros(stop - start, np.uint64), NONE, False)
            start = stop


def _units(first: int, values: Words, counts: Sequence[int], records: IdRecords) -> Iterator[Unit]:
    """Yield successive blocks with their ids."""
    start = 0
    for block, count in enumerate(counts, first):
        part = values[start : start + count]
        start += count
        record = records.get(block)
        if record is None or len(record[0]) != len(part):
            yield Unit(part, np.zeros(len(part), np.uint64), NONE, False)
        else:
            yield Unit(part, *record, True)


# --- Changes ----------------------------------------------------------------------------------------


class Changed:
    """What happened to one fingerprint since the tables were written."""

    __slots__ = ("added", "removed", "wiped")

    def __init__(self) -> None:
        self.wiped = False
        self.added: set[int] = set()
        self.removed: set[int] = set()

    def apply(self, kind: int, number: int) -> None:
        """Take up a change."""
        if kind == WIPE:
            self.wiped = True
            self.added.clear()
            self.removed.clear()
        elif kind == ADD:
            self.added.add(number)
            self.removed.discard(number)
        else:
            self.added.discard(number)
            self.removed.add(number)

    def ids(self, before: Sequence[int]) -> list[int]:
        """Return the ids that are left, ascending."""
        kept = set() if self.wiped else set(before) - self.removed
        return sorted(kept | self.added)


class Changes:
    """The changes of all records that were found, in order.

    After a gap it goes on: the last thing that happened to a pair decides, and what came after the gap is not in doubt. What the
    missing records added is lost, and what they removed comes back.
    """

    def __init__(self, records: Sequence[Record], first_name: int | None) -> None:
        self.of: dict[int, Changed] = {}
        self.names: dict[int, bytes] = {}
        following, expected = first_name, 1
        for record in records:
            if record.number != expected:
                following = None
            expected = record.number + 1
            if record.names:
                following = self._take_names(record, following)
            for kind, value, number in zip(record.kinds.tolist(), record.fingerprints.tolist(), record.ids.tolist(), strict=True):
                changed = self.of.get(value)
                if changed is None:
                    changed = self.of[value] = Changed()
                changed.apply(kind, number)
        self.touched = np.array(sorted(self.of), np.uint64)

    def _take_names(self, record: Record, first: int | None) -> int | None:
        """Note the strings of a record; the highest number that it adds is that of its last string."""
        last = max((i for i, name in enumerate(record.names) if name), default=None)
        added = record.ids[record.kinds == ADD]
        if first is None and last is not None and len(added):
            first = int(added.max()) - last
        if first is None:
            return None
        self.names.update((first + i, name) for i, name in enumerate(record.names) if name)
        return first + len(record.names)
