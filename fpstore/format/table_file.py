"""A table file read in parts, for whole tables and damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Counts, Words
from fpstore.base.threads import cached_property
from fpstore.base.width import Width, ascending, leading_words, rows_to_numbers
from fpstore.design.tables import TableSpec
from fpstore.disk.files import read_at
from fpstore.errors import CorruptStoreError, StorageError
from fpstore.format import huffman
from fpstore.format.parts import FileInParts

PIECE_BYTES = 1 << 18  # of blocks, read at once: with their keys they stay in the second-level cache
INDEX_PIECE = 1 << 17  # keys or slots of the directory that are read or checked at once
DECODE_ROOM = 2 * _kernel.MAX_ENTRIES
DECODE_MORE = 8  # rows behind them that the kernel may overwrite
SPARSE = 64  # blocks between keys that are read one by one


class TableFile(FileInParts[_kernel.TableParts]):
    """A table file.

    Parameters and errors are those of :class:`~fpstore.format.parts.FileInParts`.
    """

    def __init__(self, path: Path, header: bytes | None = None) -> None:
        super().__init__(path, _kernel.TableParts, header)

    @property
    def spec(self) -> TableSpec:
        """The table as a design describes it."""
        return TableSpec(self.kernel.permutation, self.kernel.prefix_bits, self.kernel.flips)

    @cached_property
    def block_keys(self) -> Words:
        """The key index: the last entry of each block, in order."""
        return self.read_keys(0, self.kernel.block_count)

    def read_keys(self, start: int, end: int) -> Words:
        """Return the keys of successive blocks."""
        kernel, width = self.kernel, Width(self.kernel.width)
        leads = self._words(kernel.keys_offset + 8 * start, end - start)
        if width.words == 1:
            return leads
        rest_words = width.words - 1
        at = kernel.keys_offset + 8 * (kernel.block_count + rest_words * start)
        return np.column_stack([leads, self._words(at, rest_words * (end - start)).reshape(-1, rest_words)])

    def sample_keys(self, step: int) -> Words:
        """Return the key of every ``step``-th block, from the first on."""
        count = self.kernel.block_count
        if step < SPARSE:
            return self.read_keys(0, count)[::step].copy()
        none = Width(self.kernel.width).empty(0)
        return np.concatenate([none, *(self.read_keys(block, block + 1) for block in range(0, count, step))])

    def _words(self, at: int, count: int) -> Words:
        words = np.empty(count, np.uint64)
        for start in range(0, count, INDEX_PIECE):
            piece = words[start : start + INDEX_PIECE]
            data = read_at(self._descriptor, self.path, at + 8 * start, 8 * len(piece))
            if len(data) < 8 * len(piece):
                end = at + 8 * start + len(data)
                raise CorruptStoreError(f"{self.path}: cut short at byte {end}", path=self.path, got=end)
            piece[:] = np.frombuffer(data, "<u8")
        return words

    # Blocks

    def decode(self, start: int, end: int, into: Words | None = None) -> tuple[Words, Counts, int]:
        """Return (permuted keys, entry counts, next block) of some successive blocks, at least one.

        The keys are put into an array, if one is given that has room for them.

        Raises
        ------
        CorruptStoreError
            A block is damaged or cannot be read; its number is in ``block``. The blocks before it were not returned.
        StorageError
        """
        count = min(end - start, max(PIECE_BYTES // self.kernel.block_bytes, 1))
        while True:
            try:
                blocks, keys = self._read(start, count)
                break
            except (CorruptStoreError, StorageError) as error:
                if count == 1:
                    error.block = start
                    raise
                count = (count + 1) // 2
        values, counts = self.kernel.decode(blocks, keys, start, DECODE_ROOM, into)
        return values, counts, start + len(counts)

    def _read(self, start: int, count: int) -> tuple[npt.NDArray[np.uint8], Words]:
        """Return blocks, padded as far as a decoder may read, and their keys, preceded by the key of the block before."""
        kernel = self.kernel
        before = min(start, 1)
        keys = self.read_keys(start - before, start + count)
        if not before:
            keys = np.concatenate([Width(kernel.width).row(0), keys])
        at = _kernel.HEADER_BYTES + start * kernel.block_bytes
        data = read_at(self._descriptor, self.path, at, count * kernel.block_bytes)
        if len(data) < count * kernel.block_bytes:
            raise CorruptStoreError(f"{self.path}: cut short at byte {at + len(data)}", path=self.path, got=at + len(data))
        return np.frombuffer(data + bytes(_kernel.OVERREAD_BYTES), np.uint8), keys

    def pieces(self, start: int = 0) -> Iterator[tuple[Words, Counts]]:
        """Yield (permuted keys, entry counts of their blocks) from block ``start`` on, in order, in bounded pieces."""
        end = self.kernel.block_count
        while start < end:
            values, counts, start = self.decode(start, end)
            yield values, counts

    def keys_in_turn(self) -> Iterator[Words]:
        """Yield the permuted keys in order, in pieces of which each is valid until the next."""
        start, end = 0, self.kernel.block_count
        # Memory that is used again: each new page would have to be cleared.
        room = Width(self.kernel.width).empty(DECODE_ROOM + DECODE_MORE)
        while start < end:
            values, _, start = self.decode(start, end, room)
            yield values

    # Everything

    def verify(self, tick: Callable[[int], None] = lambda rows: None) -> None:
        """Read and check everything; see :meth:`verified_keys`."""
        for _ in self.verified_keys(tick):
            pass

    def verified_keys(self, tick: Callable[[int], None] = lambda rows: None) -> Iterator[Words]:
        """Yield the permuted keys in order, and check everything: index, directory, blocks, order, count and set digest.

        Of each block, the checksum, the lengths and the key are checked before its keys are yielded. ``tick`` is called with
        the number of keys of each piece.

        Raises
        ------
        CorruptStoreError, StorageError
            The first fault.
        """
        self.check_size()
        kernel = self.kernel
        permutation = np.frombuffer(kernel.permutation, dtype=np.uint8)
        histogram = np.zeros(huffman.SYMBOLS, dtype=np.uint64)
        last = Width(kernel.width).empty(0)
        count = digest = 0
        for values, _ in self.pieces():
            joined = np.concatenate([last, values])
            bad = _kernel.histogram(joined, histogram)
            if bad != len(joined):
                raise CorruptStoreError(
                    f"{self.path}: entry {count + bad - len(last)} is out of order",
                    path=self.path,
                    expected=rows_to_numbers(joined[bad - 1 : bad])[0],
                    got=rows_to_numbers(joined[bad : bad + 1])[0],
                )
            digest += _kernel.digest(values, permutation)
            count += len(values)
            last = values[-1:]
            tick(len(values))
            yield values
        self.check_index()
        for what, expected, got in (
            ("fingerprint count", kernel.fingerprint_count, count),
            ("set digest", kernel.set_digest, digest % 2**64),
        ):
            if expected != got:
                raise CorruptStoreError(
                    f"{self.path}: {what} is {got}, the header says {expected}",
                    path=self.path,
                    expected=expected,
                    got=got,
                )

    def check_index(self) -> None:
        """Check that the keys ascend, and that the directory belongs to them.

        Raises
        ------
        CorruptStoreError, StorageError
        """
        kernel, keys = self.kernel, self.block_keys
        for start in range(0, len(keys), INDEX_PIECE):
            piece = keys[start : start + INDEX_PIECE + 1]
            wrong = np.flatnonzero(~ascending(piece))
            if len(wrong):
                block = start + int(wrong[0]) + 1
                raise CorruptStoreError(f"{self.path}: block {block}: key index is out of order", path=self.path, block=block)
        leads = leading_words(keys)
        slots = (kernel.file_bytes - kernel.directory_offset) // 8 - 1
        for start in range(0, slots + 1, INDEX_PIECE):
            found = self._words(kernel.directory_offset + 8 * start, min(INDEX_PIECE, slots + 1 - start))
            if not np.array_equal(found, _directory_part(leads, slots, start, len(found))):
                raise CorruptStoreError(f"{self.path}: key directory does not match the keys", path=self.path)


def _directory_part(keys: Words, slots: int, start: int, count: int) -> Words:
    """Return slots of the directory: the number of keys whose leading bits are below each slot; after the last slot, all keys."""
    lowest = np.arange(start, min(start + count, slots), dtype=np.uint64)
    lowest <<= np.uint64(65 - slots.bit_length() if slots > 1 else 0)
    part: Words = np.searchsorted(keys, lowest).astype(np.uint64)
    return part if len(part) == count else np.append(part, np.uint64(len(keys)))
