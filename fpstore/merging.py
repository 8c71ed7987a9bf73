"""Writing a generation from what is sorted already, streamed, whatever its size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel, huffman, layout
from fpstore.design import IDENTITY, Design
from fpstore.ids import IdMapWriter
from fpstore.sorting import Column, permuted_parts
from fpstore.sources import Source
from fpstore.table import Layout, TableWriter

Words = npt.NDArray[np.uint64]
Progress = Callable[[str, int, int | None], None]
PHASE_MERGE = "merging"


class Written:
    """Where a new generation is written, and what its record says afterwards."""

    def __init__(
        self, folder: Path, design: Design, block_bytes: int, memory: int, threads: int, progress: Progress | None
    ) -> None:
        self.folder = folder
        self.design = design
        self.fingerprints = self.ids = self.digest = 0
        self.ids_file: dict[str, int] = {}
        self.used: npt.NDArray[np.bool_] | None = None  # which numbers of strings occur, where that is asked for
        self._block_bytes = block_bytes
        self._memory, self._threads = memory, threads
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def write(self, source: Source) -> None:
        """Write tables and ids, durable but for the folder's own name.

        Raises
        ------
        OSError
            The system refused a write.
        """
        histogram = np.zeros(huffman.SYMBOLS, np.uint64)
        last = np.empty(0, np.uint64)
        permutation = np.frombuffer(IDENTITY, np.uint8)
        for piece in self._sorted(source):
            add_histogram(last, piece, histogram)
            last = piece[-1:].copy()
            self.fingerprints += len(piece)
            self.digest = (self.digest + _kernel.digest(piece, permutation)) % 2**64
            self._tick(0)
        tables = range(1, len(self.design.tables))
        with ThreadPoolExecutor(self._threads) as pool:
            try:
                # Longest first: the identity table, whose ids are packed by Python.
                jobs = [pool.submit(self._identity, source, histogram), *(pool.submit(self._table, source, t) for t in tables)]
                for job in jobs:
                    job.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _sorted(self, source: Source) -> Iterator[Words]:
        keys = source.keys(self.design.tables[0])
        assert keys is not None, "the first table of every store is in order of the fingerprints"
        return keys

    def _identity(self, source: Source, histogram: Words) -> None:
        writer = TableWriter(self.folder / layout.table_name(0), self._layout(0, histogram))
        try:
            records = IdMapWriter(self.folder / layout.IDS_FILE, self.digest)
            try:
                for keys, counts, ids in source.groups():
                    if not len(keys):
                        continue
                    records.add(counts, ids)
                    records.close_blocks(writer.feed(keys))
                    self.ids += len(ids)
                    if self.used is not None:
                        self.used[ids] = True
                    self._tick(len(keys))
                records.close_blocks(writer.finish(), last=True)
                writer.sync()
                self.ids_file = records.finish()
            except BaseException:
                records.abort()
                raise
        except BaseException:
            writer.abort()
            raise

    def _table(self, source: Source, number: int) -> None:
        spec = self.design.tables[number]
        histogram = np.zeros(huffman.SYMBOLS, np.uint64)
        last = np.empty(0, np.uint64)
        column: Column | None = None
        keys = source.keys(spec)
        if keys is None:
            # Nowhere sorted so: sort it in parts, through a file.
            column = Column(self.folder / f"table-{number}.tmp")
            keys = permuted_parts(lambda: self._sorted(source), self.fingerprints, spec, self._share())
        try:
            for piece in keys:
                add_histogram(last, piece, histogram)
                last = piece[-1:].copy()
                if column is not None:
                    column.append(piece)
                self._tick(0)
            again = source.keys(spec) if column is None else column.pieces()
            assert again is not None
            writer = TableWriter(self.folder / layout.table_name(number), self._layout(number, histogram))
            try:
                for piece in again:
                    writer.feed(piece)
                    self._tick(len(piece))
                writer.finish()
                writer.sync()
            except BaseException:
                writer.abort()
                raise
        finally:
            if column is not None:
                column.close()

    def _layout(self, table: int, histogram: Words) -> Layout:
        return Layout(self.design, table, self._block_bytes, self.fingerprints, self.digest, histogram)

    def _share(self) -> int:
        return self._memory // min(self._threads, len(self.design.tables))

    def tick(self, rows: int = 0) -> None:
        """Count rows, and end here if :meth:`stop` was called."""
        self._tick(rows)

    def _tick(self, rows: int) -> None:
        if self._stop.is_set():
            raise InterruptedError
        with self._lock:
            self._done += rows
            if self._progress:
                self._progress(PHASE_MERGE, self._done, self.fingerprints * len(self.design.tables))

    def stop(self) -> None:
        """Have the write end soon, with InterruptedError."""
        self._stop.set()

    def record(self, number: int, rows: int) -> dict[str, Any]:
        """Return the generation record."""
        return {
            "number": number,
            "fingerprints": self.fingerprints,
            "ids": self.ids,
            "rows": rows,
            "set_digest": self.digest,
            "ids_file": self.ids_file,
        }


def add_histogram(last: Words, keys: Words, histogram: Words) -> None:
    """Count the first differing bits of successive keys, the first of which comes after ``last``."""
    if len(last) and len(keys):
        bad = _kernel.histogram(np.concatenate([last, keys[:1]]), histogram)
        assert bad == 2, "parts out of order"
    bad = _kernel.histogram(keys, histogram)
    assert bad == len(keys), "keys out of order"
