"""Table files: a writer that takes sorted keys in a stream, and a reader over a memory map."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Counts, Words
from fpstore.base.arguments import printable
from fpstore.base.threads import cached_property
from fpstore.base.width import leading_words
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN, Blocks
from fpstore.design.families import Design
from fpstore.design.filters import FilterShape
from fpstore.design.tables import TableSpec
from fpstore.disk.output import Output
from fpstore.disk.pages import LAZY, in_memory, map_cached
from fpstore.disk.refusals import refusing
from fpstore.errors import CorruptStoreError
from fpstore.format import huffman
from fpstore.format.filter import FilterWriter, filter_cutter, filter_name
from fpstore.format.table_file import TableFile

FEED_KEYS = 1 << 17  # in one call of the kernel: in between, a thread has to get the interpreter back
NOWHERE = np.uint64(2**64 - 1)  # the block that Table.locate gives for a fingerprint that is not there
INDEX_AT_OPEN = 16 << 20  # bytes of keys and directory to read ahead when a table is opened


def table_name(table: int) -> str:
    """Return the file name of a table."""
    return f"table-{table:03d}.fpt"


def key_columns(keys: Words) -> list[Words]:
    """Return the content of the key index: the leading words of all keys, then the words behind them."""
    return [keys] if keys.ndim == 1 else [leading_words(keys), np.ascontiguousarray(keys[:, 1:])]


class _Placed(Protocol):
    """The fields that the header of every table has."""

    @property
    def table(self) -> int: ...
    @property
    def table_count(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def permutation(self) -> bytes: ...
    @property
    def fingerprint_count(self) -> int: ...
    @property
    def set_digest(self) -> int: ...


def check_place(path: Path, kernel: _Placed, told: dict[str, tuple[int, int]], place: tuple[Design, int, int, int]) -> None:
    """Refuse a table that is not the one of this design with this number, fingerprint count and set digest.

    Parameters
    ----------
    path : Path
    kernel
        What its header says.
    told : dict
        What only tables of its kind have: the expected value, and that of the header.
    place : tuple of (design, table, fingerprint count, set digest)

    Raises
    ------
    CorruptStoreError
    """
    design, table, fingerprint_count, set_digest = place
    spec = design.tables[table]
    wanted: dict[str, tuple[object, object]] = {
        "table": (table, kernel.table),
        "table count": (len(design.tables), kernel.table_count),
        "width": (spec.width.bits, kernel.width),
        "permutation": (spec.permutation, kernel.permutation),
        **told,
        "fingerprint count": (fingerprint_count, kernel.fingerprint_count),
        "set digest": (set_digest, kernel.set_digest),
    }
    for what, (expected, got) in wanted.items():
        if expected != got:
            raise CorruptStoreError(
                f"{path}: {what} is {got!r}, the store expects {expected!r}: a file of another store or table?",
                path=path, expected=expected, got=got,
            )  # fmt: skip


class TableLayout(NamedTuple):
    """The facts that the writer of a table needs before its first key."""

    design: Design
    table: int
    blocks: Blocks
    fingerprint_count: int
    set_digest: int
    histogram: Words
    filter: FilterShape | None = None  # of the filter that is written beside the table

    @property
    def spec(self) -> TableSpec:
        """The table's place in the design."""
        return self.design.tables[self.table]

    @property
    def code(self) -> npt.NDArray[np.uint8]:
        """The lengths of the Huffman code; all 0 for Elias-Fano, which has none."""
        return huffman.code_lengths(self.histogram) if self.blocks.codec == HUFFMAN else np.zeros(huffman.SYMBOLS, np.uint8)


class TableWriter:
    """Writes one table, and its filter beside it: :meth:`feed` sorted permuted keys, then :meth:`finish`.

    Parameters
    ----------
    path : Path
        The file to create.
    layout : TableLayout
        The histogram and the count must be those of the keys that will be fed.
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
        self._file = Output(path, direct=False)
        try:
            self._file.write(np.zeros(_kernel.HEADER_BYTES, np.uint8))
            if layout.filter is not None:
                cutter = filter_cutter(layout.design, layout.table, layout.fingerprint_count, layout.set_digest, layout.filter)
                self._filter = FilterWriter(path.with_name(filter_name(layout.table)), cutter)
        except BaseException:
            self._file.close()
            raise

    def feed(self, keys: Words) -> Counts:
        """Append sorted, distinct, permuted keys; return the entry counts of the blocks that were completed."""
        counts = []
        for start in range(0, len(keys), FEED_KEYS):
            room = self._file.room(self._room)
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
        """Write the last block, the index, the header and the filter, and return the last block's entry count, if any.

        The files are complete, but durable only after :meth:`sync`.
        """
        layout = self._layout
        if self._fed != layout.fingerprint_count:
            raise CorruptStoreError(f"{self.path}: it would hold {self._fed} keys instead of {layout.fingerprint_count}")
        block, key, count = self._encoder.finish()
        self._file.write(block)
        keys = np.concatenate([*self._keys, key])
        self._keys = []  # the writer may wait long for its sync
        for part in key_columns(keys):
            self._file.write(part.reshape(-1).view(np.uint8))
        self._file.write(_kernel.make_directory(keys).view(np.uint8))
        header = _kernel.make_header(
            self._permutation, self._code, layout.set_digest, self._fed, len(keys), layout.blocks.bytes, layout.table,
            len(layout.design.tables), layout.spec.prefix_bits, layout.spec.flips,
        )  # fmt: skip
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
        """Close the files, finished or not."""
        try:
            self._file.close()
        finally:
            if self._filter is not None:
                self._filter.abort()


class TableReader:
    """A table file: mapped for probes, which the kernel verifies, and read with ``pread`` for everything else.

    Parameters
    ----------
    path : Path
    pages : str
        See :func:`fpstore.open`.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """

    def __init__(self, path: Path, pages: str = LAZY) -> None:
        self.path = path
        self.file = TableFile(path)  # so that a header that cannot be read is an error, not a signal
        # Probes need only the blocks that they look into, and a small key index at once.
        self._mapping = in_memory(path, self.file.fileno(), pages, mmap.MADV_RANDOM)
        self.kernel = _kernel.Table(self._mapping, printable(path))
        if self.index_bytes <= INDEX_AT_OPEN:
            with refusing(path):
                os.posix_fadvise(self.file.fileno(), self.kernel.keys_offset, self.index_bytes, os.POSIX_FADV_WILLNEED)

    @cached_property
    def in_order(self) -> _kernel.Table:
        """The table for scans; see :meth:`read_in_order`."""
        return self.read_in_order()

    def read_in_order(self) -> _kernel.Table:
        """Return the table through a separate mapping for which the system reads ahead."""
        return _kernel.Table(in_memory(self.path, self.file.fileno(), LAZY, mmap.MADV_NORMAL), printable(self.path))

    @property
    def index_bytes(self) -> int:
        """The bytes of the file by which blocks are found: keys and directory."""
        return self.kernel.file_bytes - self.kernel.keys_offset

    def sample_keys(self, step: int) -> Words:
        """Return the key of every ``step``-th block, from the first on."""
        return self.file.sample_keys(step)

    def check_place(self, design: Design, table: int, fingerprint_count: int, set_digest: int) -> None:
        """Refuse an intact file that belongs to another place in the design or another set."""
        spec, kernel = design.tables[table], self.kernel
        told = {"prefix bits": (spec.prefix_bits, kernel.prefix_bits), "flips": (spec.flips, kernel.flips)}
        check_place(self.path, kernel, told, (design, table, fingerprint_count, set_digest))

    def map_cached(self) -> None:
        """See :func:`fpstore.disk.pages.map_cached`."""
        map_cached(self.file.fileno(), self._mapping)

    def check_codec(self, codec: str) -> None:
        """Refuse a table of another codec than the store's: a probe reads all its tables alike."""
        got = HUFFMAN if any(self.kernel.code_bits) else ELIAS_FANO
        if got != codec:
            raise CorruptStoreError(
                f"{self.path}: codec is {got}, the store expects {codec}", path=self.path, expected=codec, got=got
            )

    def pieces(self, start: int = 0) -> Iterator[tuple[Words, Counts]]:
        """Yield (permuted keys, entry counts of their blocks) from block ``start`` on, in order, in bounded pieces."""
        return self.file.pieces(start)

    def verify(self, tick: Callable[[int], None] = lambda rows: None) -> None:
        """Read and check everything; call ``tick`` with the number of entries of each piece."""
        self.file.verify(tick)
