"""External sort: input of any size in a fixed memory budget (partition by leading bits, sort each part, stream it out)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.width import empty_rows
from fpstore.disk.files import read_all
from fpstore.disk.pages import own_pages

# Bytes per row of one word while rows are sorted in memory, of pairs of a key and an id or of keys alone: the rows, and a scratch
# array of the same size.
PAIR_BYTES = 32
SORT_BYTES = 16
SPLIT_BITS = 8
COPY_ROWS = 1 << 18  # rows that are copied, read or written between two checks for a stop


def pair_bytes(words: int) -> int:
    """Return the bytes per row while pairs are sorted in memory, with keys of so many words."""
    return PAIR_BYTES * (words + 1) // 2


def sort_bytes(words: int) -> int:
    """Return the bytes per key of so many words while keys alone are sorted."""
    return SORT_BYTES * words


def sort_room(count: int, words: int) -> Words:
    """Return an array for so many rows of so many words; its memory goes back to the system when it is dropped."""
    array = own_pages(8 * count * words).view(np.uint64)
    return array if words == 1 else array.reshape(count, words)


class SortedRows(NamedTuple):
    """Sorted rows: distinct keys, the number of ids of each, and all ids in order; with memory that can be used again.

    ``per_key`` lies in ``memory``, which may be overwritten only after the counts have been used.
    """

    keys: Words
    per_key: Words
    ids: Words
    memory: Words


class NumberedRows(NamedTuple):
    """The same with ids of 32 or 64 bits; ``per_key`` is None if each key has one id."""

    keys: Words
    per_key: Words | None
    ids: Words | npt.NDArray[np.uint32]
    memory: Words


class Column:
    """A growing column of rows of words, in memory, or in a file if a path is given.

    The file is open only while it is written or read: there may be thousands of columns, and few open files.
    A column in memory can be moved to a file.
    """

    def __init__(self, path: Path | None = None, words: int = 1) -> None:
        self._parts: list[Words] = []
        self._path = path
        self._words = words
        self.rows = 0
        if path is not None:
            path.touch(exist_ok=False)

    def append(self, part: npt.NDArray[Any]) -> None:
        """Add rows at the end. In memory, the caller's array itself is kept: it must not change afterwards."""
        part = np.ascontiguousarray(part)
        self.rows += len(part)
        if self._path is None:
            self._parts.append(part)
        elif len(part):
            with self._path.open("ab") as file:
                for start in range(0, len(part), COPY_ROWS):
                    file.write(part[start : start + COPY_ROWS].data)

    def move_to(self, path: Path) -> None:
        """Continue in a file."""
        parts, self._parts = self._parts, []
        path.touch(exist_ok=False)
        self._path, self.rows = path, 0
        for part in parts:
            self.append(part)

    def pieces(self, rows: int = COPY_ROWS) -> Iterator[Words]:
        """Yield the rows in order, at most ``rows`` at a time."""
        if self._path is None:
            for part in self._parts:
                for start in range(0, len(part), rows):
                    yield part[start : start + rows]
            return
        for start in range(0, self.rows, rows):
            yield self._read(start, min(rows, self.rows - start))

    def _read(self, start: int, rows: int) -> Words:
        assert self._path is not None
        out = sort_room(rows, self._words)
        if rows:
            with self._path.open("rb") as file:
                if read_all(file.fileno(), out.data.cast("B"), start * 8 * self._words) < out.nbytes:
                    raise OSError("a temporary file is shorter than what was written to it")
        return out

    def part(self, start: int, rows: int) -> Words:
        """Return successive rows."""
        return self.whole()[start : start + rows] if self._path is None else self._read(start, rows)

    def mapped(self) -> Words:
        """Return all rows, of which there is at least one; those of a file are read as they are looked at."""
        return self.whole() if self._path is None else self._mapped_file(self._path)

    def _mapped_file(self, path: Path) -> Words:
        shape = self.rows if self._words == 1 else (self.rows, self._words)
        return np.memmap(path, np.uint64, "r", shape=shape)

    def whole(self) -> Words:
        """Return all rows in one array."""
        if self._path is not None:
            return self._read(0, self.rows)
        if len(self._parts) != 1:
            self._parts = [np.concatenate([empty_rows(0, self._words), *self._parts])]
        return self._parts[0]

    def close(self) -> None:
        """Drop the rows."""
        self._parts = []
        if self._path is not None:
            self._path.unlink()
            self._path = None


def in_pieces(parts: Iterable[Words]) -> Iterator[Words]:
    """Cut successive parts into pieces of at most COPY_ROWS."""
    for part in parts:
        for start in range(0, len(part), COPY_ROWS):
            yield part[start : start + COPY_ROWS]


def unless_stopped(pieces: Iterator[Words], stop: _kernel.Stop | None) -> Iterator[Words]:
    """Yield the pieces, with InterruptedError in place of the next once ``stop`` is set."""
    for piece in pieces:
        if stop is not None and stop.is_set():
            raise InterruptedError
        yield piece


class PairSorter:
    """Sorts (fingerprint, id) rows: :meth:`add` them in any order, then iterate over :meth:`groups`.

    Parameters
    ----------
    memory : int
        Budget in bytes. Beyond it, rows are spilled to one file per value of their leading 8 bits; a part that is still too
        large is split by the next 8 bits, and so on.
    folder : Path
        The folder for temporary files.
    rows : int, optional
        The number of rows that will be added, if it is known.
    words : int
        The words of a fingerprint.
    """

    def __init__(self, memory: int, folder: Path, rows: int | None = None, words: int = 1) -> None:
        self._most = memory // pair_bytes(words)  # rows in memory
        self._folder = folder
        self._words = words
        self._parts: dict[int, Column] | None = None
        fits = rows is not None and rows <= self._most
        self._pairs: Words = sort_room(rows if fits and rows else 0, words + 1)
        self.rows = 0

    def add(self, fingerprints: Words, ids: Words | None) -> None:
        """Append rows; without ids, they are numbered by their place."""
        start, self.rows = self.rows, self.rows + len(fingerprints)
        if ids is None:
            ids = np.arange(start, self.rows, dtype=np.uint64)
        if self._parts is None and self.rows > self._most:
            self._parts = {}
            for first in range(0, start, COPY_ROWS):
                _split(self._pairs[first : min(first + COPY_ROWS, start)], 0, self._parts, self._folder)
            self._pairs = self._pairs[:0].copy()
        if self._parts is None and len(self._pairs) < self.rows:
            larger = sort_room(max(self.rows, min(self.rows * 3 // 2, self._most)), self._words + 1)
            for first in range(0, start, COPY_ROWS):
                place = slice(first, min(first + COPY_ROWS, start))
                larger[place] = self._pairs[place]
            self._pairs = larger
        for first in range(0, len(fingerprints), COPY_ROWS):
            piece = slice(first, first + COPY_ROWS)
            count = len(fingerprints[piece])
            at = start + first
            in_memory = self._parts is None
            pairs = self._pairs[at : at + count] if in_memory else np.empty((count, self._words + 1), np.uint64)
            pairs[:, : self._words] = fingerprints[piece].reshape(count, self._words)
            pairs[:, self._words] = ids[piece]
            if self._parts is not None:
                _split(pairs, 0, self._parts, self._folder)

    @property
    def spilled(self) -> bool:
        """Whether the rows did not fit into the budget."""
        return self._parts is not None

    def groups(self, tick: Callable[[int], None]) -> Iterator[SortedRows]:
        """Yield the sorted rows in parts, grouped by key; call ``tick`` with the number of rows sorted."""
        if self._parts is None:
            pairs, self._pairs = self._pairs[: self.rows], self._pairs[:0].copy()
            if self.rows:
                yield _sorted_groups(pairs)
                tick(self.rows)
            return
        yield from self._parts_in_order(self._parts, SPLIT_BITS, tick)

    def _parts_in_order(self, parts: dict[int, Column], depth: int, tick: Callable[[int], None]) -> Iterator[SortedRows]:
        for digit in sorted(parts):
            column = parts.pop(digit)
            rows = column.rows
            if rows > self._most and depth < 64 * self._words:
                finer: dict[int, Column] = {}
                for piece in column.pieces():
                    _split(piece, depth, finer, self._folder)
                column.close()
                yield from self._parts_in_order(finer, depth + SPLIT_BITS, tick)
                continue
            pairs = column.whole()
            column.close()
            yield _sorted_groups(pairs)
            tick(rows)


def _split(pairs: Words, depth: int, parts: dict[int, Column], folder: Path) -> None:
    """Append each row to the part of its 8 bits at ``depth``."""
    digits = ((pairs[:, depth // 64] << np.uint64(depth % 64)) >> np.uint64(64 - SPLIT_BITS)).astype(np.uint8)
    order = np.argsort(digits, kind="stable")
    pairs = pairs[order]
    ends = np.cumsum(np.bincount(digits, minlength=1 << SPLIT_BITS))
    start = 0
    for digit, end in enumerate(ends.tolist()):
        if end > start:
            if digit not in parts:
                parts[digit] = Column(folder / f"pairs-{depth:02d}-{digit:03d}.tmp", pairs.shape[1])
            parts[digit].append(pairs[start:end])
        start = end


def _sorted_groups(rows: Words) -> SortedRows:
    count, words = len(rows), rows.shape[1] - 1
    pairs = rows.reshape(-1)
    out = sort_room(len(pairs), 1)
    _kernel.sort_pairs(pairs, out, words)
    key_count, id_count = _kernel.group_pairs(pairs, out, words)
    keys, ids = out[: key_count * words], out[count * words : count * words + id_count]
    return SortedRows(keys if words == 1 else keys.reshape(-1, words), pairs[:key_count], ids, pairs)
