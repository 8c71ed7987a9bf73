"""Packed tables, whose entries are coded in blocks: one reader, and one writer that streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Counts, Words
from fpstore.base.arguments import printable
from fpstore.base.threads import cached_property
from fpstore.base.width import Width, is_ascending, leading_words, rows_to_numbers
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN
from fpstore.design.families import Design
from fpstore.design.tables import TableSpec
from fpstore.disk.mapped import LAZY, StoredFile
from fpstore.disk.output import Output
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import CorruptStoreError, StorageError
from fpstore.format import huffman
from fpstore.format.filter import FilterWriter, filter_cutter, filter_name
from fpstore.format.layout import TableLayout, check_facts

# in one call of the kernel: between calls, a thread gets the interpreter back
FEED_KEYS = 1 << 17
INDEX_AT_OPEN = 16 << 20  # bytes of keys and directory to read ahead when a table is opened
# of blocks, read at once: with their keys they stay in the second-level cache
BLOCKS_BYTES = 1 << 18
DECODE_ROOM = 2 * _kernel.MAX_ENTRIES
DECODE_MORE = 8  # rows behind them that the kernel may overwrite
SPARSE = 64  # blocks between keys that are read one by one


class PackedWriter:
    """Writes a packed table and its filter: :meth:`feed` sorted permuted keys, then :meth:`finish`.

    The histogram and the count of the layout must be of the keys that will be fed.
    """

    def __init__(self, path: Path, layout: TableLayout) -> None:
        self.path, self._layout = path, layout
        self._permutation = np.frombuffer(layout.spec.permutation, dtype=np.uint8)
        self._code = layout.code
        seed = _kernel.block_seed(self._permutation, self._code, layout.set_digest)
        width = layout.spec.width
        self._encoder = _kernel.BlockEncoder(self._code, layout.blocks.bytes, seed, width.bits)
        most = self._encoder.most_blocks(FEED_KEYS)
        self._room = most * layout.blocks.bytes + _kernel.OVERREAD_BYTES
        self._block_keys = width.empty(most)
        self._counts = np.empty(most, np.uint32)
        self._keys: list[Words] = []
        self._fed = 0
        self._filter: FilterWriter | None = None
        self._file = Output(path)
        try:
            self._file.write(np.zeros(_kernel.HEADER_BYTES, np.uint8))
            if layout.filter is not None:
                cutter = filter_cutter(
                    layout.design,
                    layout.table,
                    layout.fingerprint_count,
                    layout.set_digest,
                    layout.filter,
                )
                self._filter = FilterWriter(path.with_name(filter_name(layout.table)), cutter)
        except BaseException:
            self._file.close()
            raise

    def feed(self, keys: Words) -> Counts:
        """Append sorted, distinct, permuted keys.

        Return the entry counts of the blocks that were completed.
        """
        counts = []
        for start in range(0, len(keys), FEED_KEYS):
            room = self._file.reserve(self._room)
            piece = keys[start : start + FEED_KEYS]
            n = self._encoder.feed(piece, room, self._block_keys, self._counts)
            if self._filter is not None:
                self._filter.feed(piece)
            self._file.advance(n * self._layout.blocks.bytes)
            self._keys.append(self._block_keys[:n].copy())
            counts.append(self._counts[:n].copy())
        self._fed += len(keys)
        return np.concatenate(counts) if counts else np.empty(0, np.uint32)

    def finish(self) -> Counts:
        """Complete the files; return the entry count of the last block, if any.

        The files are durable only after :meth:`sync`.
        """
        layout = self._layout
        if self._fed != layout.fingerprint_count:
            raise CorruptStoreError(
                f"{self.path}: it would hold {self._fed} keys instead of {layout.fingerprint_count}"
            )
        block, key, count = self._encoder.finish()
        self._file.write(block)
        keys = np.concatenate([*self._keys, key])
        self._keys = []  # the writer may wait long for its sync
        self._file.write(leading_words(keys).view(np.uint8))
        if keys.ndim > 1:
            self._file.write(np.ascontiguousarray(keys[:, 1:]).reshape(-1).view(np.uint8))
        self._file.write(make_directory(keys).view(np.uint8))
        header = _kernel.make_header(
            self._permutation,
            self._code,
            layout.set_digest,
            self._fed,
            len(keys),
            layout.blocks.bytes,
            layout.table,
            len(layout.design.tables),
            layout.spec.prefix_bits,
            layout.spec.flips,
        )
        self._file.finish(header)
        if self._filter is not None:
            self._filter.finish()
        return count

    def sync(self) -> None:
        """Make the files durable and close them."""
        self._file.sync()
        if self._filter is not None:
            self._filter.sync()

    def abort(self) -> None:
        try:
            self._file.close()
        finally:
            if self._filter is not None:
                self._filter.abort()


class PackedTable(StoredFile):
    """A packed table: the kernel verifies what probes read of the mapping; the rest is ``pread``.

    For ``pages`` see :func:`fpstore.open`. With None, the table is not mapped and has no
    ``kernel``: a damaged file must not be mapped.
    """

    def __init__(self, path: Path, pages: str | None = LAZY) -> None:
        super().__init__(path)
        self.header = _kernel.TableParts(self.start(), self.size, printable(path))
        self.file_bytes = self.header.file_bytes
        if pages is not None:
            # Probes need only the blocks that they look into, and a small key index at once.
            self.kernel = _kernel.Table(self.map_for_probes(pages), printable(path))
            if self.index_bytes <= INDEX_AT_OPEN:
                with translate_refusals(path):
                    os.posix_fadvise(
                        self.fileno(),
                        self.header.keys_offset,
                        self.index_bytes,
                        os.POSIX_FADV_WILLNEED,
                    )

    @cached_property
    def for_scans(self) -> _kernel.Table:
        """The table for scans, through a separate mapping for which the system reads ahead."""
        return _kernel.Table(self.map_for_scans(), printable(self.path))

    @property
    def spec(self) -> TableSpec:
        return TableSpec(self.header.permutation, self.header.prefix_bits, self.header.flips)

    @property
    def index_bytes(self) -> int:
        """The size of keys and directory, which lead to blocks."""
        return self.header.file_bytes - self.header.keys_offset

    # Checks

    def check_place(
        self, design: Design, table: int, fingerprint_count: int, set_digest: int
    ) -> None:
        """Refuse an intact file that belongs to another place in the design or another set."""
        spec = design.tables[table]
        check_facts(
            self.path,
            self.header,
            table=table,
            table_count=len(design.tables),
            width=spec.width.bits,
            permutation=spec.permutation,
            prefix_bits=spec.prefix_bits,
            flips=spec.flips,
            fingerprint_count=fingerprint_count,
            set_digest=set_digest,
        )

    def check_codec(self, codec: str) -> None:
        """Refuse a table of another codec than the store's: a probe reads all its tables alike."""
        got = HUFFMAN if any(self.header.code_bits) else ELIAS_FANO
        if got != codec:
            message = f"{self.path}: codec is {got}, the store expects {codec}"
            raise CorruptStoreError(message, path=self.path, expected=codec, got=got)

    # The key index

    @cached_property
    def block_keys(self) -> Words:
        """The key index: the last entry of each block, in order."""
        return self.read_keys(0, self.header.block_count)

    def read_keys(self, start: int, end: int) -> Words:
        header, width = self.header, Width(self.header.width)
        leads = self._words(header.keys_offset + 8 * start, end - start)
        if width.words == 1:
            return leads
        rest_words = width.words - 1
        at = header.keys_offset + 8 * (header.block_count + rest_words * start)
        return np.column_stack(
            [leads, self._words(at, rest_words * (end - start)).reshape(-1, rest_words)]
        )

    def sample_keys(self, step: int) -> Words:
        """Return the key of every ``step``-th block, from the first on."""
        count = self.header.block_count
        if step < SPARSE:
            return self.read_keys(0, count)[::step].copy()
        none = Width(self.header.width).empty(0)
        return np.concatenate(
            [none, *(self.read_keys(block, block + 1) for block in range(0, count, step))]
        )

    def _words(self, at: int, count: int) -> Words:
        return self.read_padded(at, 8 * count).view(np.uint64)

    # Blocks

    def decode(self, start: int, end: int, into: Words | None = None) -> tuple[Words, Counts, int]:
        """Return (permuted keys, entry counts, next block) of successive blocks, at least one.

        The keys go into the array ``into`` if it has room for them. The error for a block that is
        damaged or cannot be read has its number in ``block``; the blocks before it were not
        returned.
        """
        count = min(end - start, max(BLOCKS_BYTES // self.header.block_bytes, 1))
        while True:
            try:
                blocks, keys = self._read(start, count)
                break
            except (CorruptStoreError, StorageError) as error:
                if count == 1:
                    error.block = start
                    raise
                count = (count + 1) // 2
        values, counts = self.header.decode(blocks, keys, start, DECODE_ROOM, into)
        return values, counts, start + len(counts)

    def _read(self, start: int, count: int) -> tuple[npt.NDArray[np.uint8], Words]:
        """Return blocks, padded as far as a decoder may read, and their keys.

        The keys are preceded by the key of the block before.
        """
        header = self.header
        before = min(start, 1)
        keys = self.read_keys(start - before, start + count)
        if not before:
            keys = np.concatenate([Width(header.width).row(0), keys])
        at = _kernel.HEADER_BYTES + start * header.block_bytes
        return self.read_padded(at, count * header.block_bytes, _kernel.OVERREAD_BYTES), keys

    def pieces(self, start: int = 0, reuse: bool = False) -> Iterator[tuple[Words, Counts]]:
        """Yield (permuted keys, entry counts of their blocks) in order, in bounded pieces.

        They begin with block ``start``. With ``reuse``, keys are valid until the next piece, which
        takes their memory: new pages would have to be cleared.
        """
        end = self.header.block_count
        room = Width(self.header.width).empty(DECODE_ROOM + DECODE_MORE) if reuse else None
        while start < end:
            values, counts, start = self.decode(start, end, room)
            yield values, counts

    # Everything

    def verify(self, tick: Callable[[int], None] = lambda rows: None) -> None:
        """Read and check everything; see :meth:`verify_keys`."""
        for _ in self.verify_keys(tick):
            pass

    def verify_keys(self, tick: Callable[[int], None] = lambda rows: None) -> Iterator[Words]:
        """Yield the permuted keys in order, and check everything.

        The checksum, the lengths and the key of each block are checked before its keys are yielded.
        Index, directory, order, count and set digest are checked at the end. ``tick`` is called
        with the number of keys of each piece.
        """
        self.check_size()
        header = self.header
        permutation = np.frombuffer(header.permutation, dtype=np.uint8)
        histogram = np.zeros(huffman.SYMBOLS, dtype=np.uint64)
        last = Width(header.width).empty(0)
        count = digest = 0
        for values, _ in self.pieces():
            joined = np.concatenate([last, values])
            bad = _kernel.histogram(joined, histogram)
            if bad != len(joined):
                before, got = rows_to_numbers(joined[bad - 1 : bad + 1])
                message = f"{self.path}: entry {count + bad - len(last)} is out of order"
                raise CorruptStoreError(message, path=self.path, expected=before, got=got)
            digest += _kernel.digest(values, permutation)
            count += len(values)
            last = values[-1:]
            tick(len(values))
            yield values
        self.check_index()
        for field, expected, got in (
            ("fingerprint count", header.fingerprint_count, count),
            ("set digest", header.set_digest, digest % 2**64),
        ):
            if expected != got:
                message = f"{self.path}: {field} is {got}, the header says {expected}"
                raise CorruptStoreError(message, path=self.path, expected=expected, got=got)

    def check_index(self) -> None:
        """Check that the keys ascend, and that the directory belongs to them."""
        header, keys = self.header, self.block_keys
        wrong = np.flatnonzero(~is_ascending(keys))
        if len(wrong):
            block = int(wrong[0]) + 1
            raise CorruptStoreError(
                f"{self.path}: block {block}: key index is out of order",
                path=self.path,
                block=block,
            )
        directory = self._words(
            header.directory_offset, (header.file_bytes - header.directory_offset) // 8
        )
        if not np.array_equal(directory, make_directory(keys)):
            raise CorruptStoreError(
                f"{self.path}: key directory does not match the keys", path=self.path
            )


def make_directory(keys: Words) -> Words:
    """Return the directory: how many block keys have leading bits below each value, and all.

    The keys are sorted.
    """
    bits = max(len(keys).bit_length() - 4, 0)  # 8 to 15 keys for each value
    bounds = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits if bits else 0)
    return np.append(np.searchsorted(leading_words(keys), bounds), len(keys)).astype(np.uint64)
