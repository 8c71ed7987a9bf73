"""Filter files: which prefixes the entries of a table have; the table's keys determine them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Words
from fpstore.base.arguments import printable
from fpstore.design.families import MAX_VARIANTS, Design
from fpstore.design.filters import FilterShape
from fpstore.design.tables import TableLookup
from fpstore.disk.files import RUN_REPAIR
from fpstore.disk.mapped import LAZY, StoredFile
from fpstore.disk.output import Output
from fpstore.errors import CorruptStoreError

COMPARED_BYTES = 1 << 20


def filter_name(table: int) -> str:
    return f"filter-{table:03d}.fpf"


def filter_cutter(
    design: Design, table: int, count: int, set_digest: int, shape: FilterShape
) -> _kernel.FilterCutter:
    """Return the encoder of the filter of a table, which takes its ``count`` sorted keys.

    ``table`` is the table's number in the design.
    """
    permutation = np.frombuffer(design.tables[table].permutation, np.uint8)
    return _kernel.FilterCutter(
        permutation, count, set_digest, (table, len(design.tables)), tuple(shape)
    )


class FilterWriter:
    """Writes the filter of a table: :meth:`feed` the table's keys, then :meth:`finish`."""

    def __init__(self, path: Path, cutter: _kernel.FilterCutter) -> None:
        self._cutter = cutter
        self._file = Output(path, threaded=False)
        self._file.write(np.zeros(_kernel.HEADER_BYTES, np.uint8))

    def feed(self, keys: Words) -> None:
        """Append sorted, distinct, permuted keys."""
        self._file.write(self._cutter.feed(keys))

    def finish(self) -> None:
        """Complete the file, which is durable only after :meth:`sync`."""
        self._file.write(self._cutter.finish())
        self._file.finish(self._cutter.header)
        del self._cutter  # the writer may wait long for its sync

    def sync(self) -> None:
        """Make the file durable and close it."""
        self._file.sync()

    def abort(self) -> None:
        self._file.close()


class FilterReader(StoredFile):
    """A filter file, mapped for probes; its pages are verified when they are first used."""

    def __init__(self, path: Path, pages: str = LAZY) -> None:
        super().__init__(path)
        self.start()
        self.kernel = _kernel.Filter(self.map_for_probes(pages), printable(path))
        self.file_bytes = self.kernel.file_bytes

    def check_place(
        self, design: Design, table: int, fingerprint_count: int, set_digest: int
    ) -> None:
        """Refuse an intact file that belongs to another table, design or set."""
        kernel = self.kernel
        expected = (
            table,
            len(design.tables),
            design.tables[table].permutation,
            fingerprint_count,
            set_digest,
        )
        got = (
            kernel.table,
            kernel.table_count,
            kernel.permutation,
            kernel.fingerprint_count,
            kernel.set_digest,
        )
        # Look-ups go by the prefixes of the filter, where flips are needed, and else by the
        # prefixes of the table.
        bits, spec = kernel.shape[0], design.tables[table]
        fits = (
            bits <= spec.prefix_bits
            and TableLookup(table, bits, min(spec.flips, bits)).variant_count <= MAX_VARIANTS
        )
        if expected != got or not fits:
            raise CorruptStoreError(
                f"{self.path}: a filter of another store or table: {RUN_REPAIR}", path=self.path
            )

    def verify(self, design: Design, keys: Iterable[Words]) -> None:
        """Compare the file with the filter that follows from the keys of its table, in order."""
        self.check_size()
        kernel = self.kernel
        cutter = filter_cutter(
            design,
            kernel.table,
            kernel.fingerprint_count,
            kernel.set_digest,
            FilterShape(*kernel.shape),
        )
        at = _kernel.HEADER_BYTES
        for piece in keys:
            at = self._compare(at, cutter.feed(piece))
        self._compare(at, cutter.finish())
        self._compare(0, np.frombuffer(cutter.header, np.uint8))

    def _compare(self, at: int, expected: Bytes) -> int:
        for start in range(0, len(expected), COMPARED_BYTES):
            piece = expected[start : start + COMPARED_BYTES]
            wrong = np.flatnonzero(self.read_padded(at + start, len(piece)) != piece)
            if len(wrong):
                message = (
                    f"byte {at + start + int(wrong[0])} differs from what its table gives: "
                    f"{RUN_REPAIR}"
                )
                raise CorruptStoreError(f"{self.path}: {message}", path=self.path)
        return at + len(expected)
