"""Filter files: which prefixes the entries of a table have. The keys of the table make one; probes map it."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.aliases import Bytes, Words
from fpstore.design.families import MAX_VARIANTS, Design
from fpstore.design.filters import FilterShape
from fpstore.design.tables import TableLookup
from fpstore.disk.files import RUN_REPAIR, read_at
from fpstore.disk.output import Output
from fpstore.disk.pages import LAZY, in_memory, map_cached
from fpstore.errors import CorruptStoreError
from fpstore.format.parts import FileInParts

PIECE_BYTES = 1 << 20


def filter_name(table: int) -> str:
    """Return the file name of the filter of a table."""
    return f"filter-{table:03d}.fpf"


class FilterParts:
    """The bytes of a filter file behind its header, as they follow from the keys of its table.

    Parameters
    ----------
    design : Design
    table : int
        Its number in the design.
    fingerprint_count, set_digest : int
        Of the table.
    shape : FilterShape
    """

    def __init__(self, design: Design, table: int, fingerprint_count: int, set_digest: int, shape: FilterShape) -> None:
        permutation = np.frombuffer(design.tables[table].permutation, np.uint8)
        place = table, len(design.tables)
        self._cutter = _kernel.FilterCutter(permutation, fingerprint_count, set_digest, place, tuple(shape))
        self._page = np.empty(0, np.uint8)  # the last one, as far as it goes
        self._sums: list[Words] = []
        self._pages = 0

    def feed(self, keys: Words) -> Bytes:
        """Return the pages that the next sorted keys complete."""
        return self._summed(self._cutter.feed(keys))

    def finish(self) -> tuple[Bytes, Bytes]:
        """Return the last pages, and all that is behind them: checksums."""
        pages = self._summed(np.concatenate([self._cutter.finish(), self._cutter.starts()]), last=True)
        return pages, np.concatenate([np.empty(0, np.uint64), *self._sums]).view(np.uint8)

    @property
    def header(self) -> bytes:
        """The header, once all else is complete."""
        return self._cutter.header

    def _summed(self, data: Bytes, last: bool = False) -> Bytes:
        joined = np.concatenate([self._page, data])
        whole = len(joined) if last else len(joined) // _kernel.PAGE_BYTES * _kernel.PAGE_BYTES
        pages, self._page = joined[:whole], joined[whole:].copy()
        sums = _kernel.page_checksums(pages, self._cutter.seed, self._pages)
        self._sums.append(sums)
        self._pages += len(sums)
        return pages


class FilterWriter:
    """Writes the filter of a table: :meth:`feed` the keys that the table is fed, then :meth:`finish`.

    Parameters
    ----------
    path : Path
        The file to create.
    parts : FilterParts
    """

    def __init__(self, path: Path, parts: FilterParts) -> None:
        self._parts = parts
        self._file = Output(path, direct=False)
        self._file.write(np.zeros(_kernel.HEADER_BYTES, np.uint8))

    def feed(self, keys: Words) -> None:
        """Append sorted, distinct, permuted keys."""
        self._file.write(self._parts.feed(keys))

    def finish(self) -> None:
        """Write what is left: the file is complete, but durable only after :meth:`sync`."""
        for data in self._parts.finish():
            self._file.write(data)
        self._file.finish(self._parts.header)
        del self._parts  # the writer may wait long for its sync

    def sync(self) -> None:
        """Make the file durable and close it."""
        self._file.sync()

    def abort(self) -> None:
        """Close the file, finished or not."""
        self._file.close()


class FilterReader(FileInParts[_kernel.Filter]):
    """A filter file, mapped for probes; its pages are verified when they are first used.

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
        def mapped(header: Bytes, size: int, name: str) -> _kernel.Filter:
            self._bytes = in_memory(path, self.fileno(), pages, mmap.MADV_RANDOM)
            return _kernel.Filter(self._bytes, name)

        super().__init__(path, mapped)

    def check_place(self, design: Design, table: int, fingerprint_count: int, set_digest: int) -> None:
        """Refuse an intact file that belongs to another table, design or set.

        Raises
        ------
        CorruptStoreError
        """
        kernel = self.kernel
        wanted = table, len(design.tables), design.tables[table].permutation, fingerprint_count, set_digest
        got = kernel.table, kernel.table_count, kernel.permutation, kernel.fingerprint_count, kernel.set_digest
        # Look-ups go by the prefixes of the filter, where flips are needed, and else by those of the table.
        bits, spec = kernel.shape[0], design.tables[table]
        fits = bits <= spec.prefix_bits and TableLookup(table, bits, min(spec.flips, bits)).variant_count <= MAX_VARIANTS
        if wanted != got or not fits:
            raise CorruptStoreError(f"{self.path}: a filter of another store or table: {RUN_REPAIR}", path=self.path)

    def map_cached(self) -> None:
        """See :func:`fpstore.disk.pages.map_cached`."""
        map_cached(self._descriptor, self._bytes)

    def verify(self, design: Design, keys: Iterable[Words], tick: Callable[[int], None] = lambda rows: None) -> None:
        """Compare the file with what follows from the keys of its table, in order; call ``tick`` with the number of each piece.

        Raises
        ------
        CorruptStoreError, StorageError
            The first difference.
        """
        kernel = self.kernel
        parts = FilterParts(design, kernel.table, kernel.fingerprint_count, kernel.set_digest, FilterShape(*kernel.shape))
        at = _kernel.HEADER_BYTES
        for piece in keys:
            at = self._compare(at, parts.feed(piece))
            tick(len(piece))
        for data in parts.finish():
            at = self._compare(at, data)
        self._compare(0, np.frombuffer(parts.header, np.uint8))

    def _compare(self, at: int, expected: Bytes) -> int:
        for start in range(0, len(expected), PIECE_BYTES):
            piece = expected[start : start + PIECE_BYTES]
            got = np.frombuffer(read_at(self._descriptor, self.path, at + start, len(piece)), np.uint8)
            if not np.array_equal(got, piece):
                wrong = np.flatnonzero(got != piece[: len(got)])
                byte = at + start + (int(wrong[0]) if len(wrong) else len(got))
                raise CorruptStoreError(
                    f"{self.path}: byte {byte} differs from what its table gives: {RUN_REPAIR}", path=self.path
                )
        return at + len(expected)
