"""Copies of the rows of a corpus, in its own format: as they were read, or with changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from fpstore.base.aliases import Flags, Progress
from fpstore.base.pools import Worker
from fpstore.errors import InputError
from fpstore.io.arrow import (
    align_to_schema,
    cut_pieces,
    filter_rows,
    import_pyarrow,
    parquet_schema,
    without_views,
)
from fpstore.io.lines import LineRows
from fpstore.io.parquet import BATCH_BYTES, ParquetRows, TableRows
from fpstore.io.row_groups import write_batches
from fpstore.io.sink import Complete, Sink
from fpstore.io.source import RowFlags, RowSource

ArrowRows = ParquetRows | TableRows


class RowCopy(ABC):
    """Which rows an output has, and what is changed in them.

    A source may have some of the rows, such as those of one file: a slice says which.
    """

    count: int  # of all rows

    @abstractmethod
    def lines(
        self, source: LineRows, rows: slice, progress: Progress | None = None
    ) -> Iterator[bytes]:
        """Yield the header and the lines of the rows of a source, some at a time."""

    @abstractmethod
    def schema(self, source: ArrowRows) -> Any:
        """Return the schema of the rows of a source."""

    @abstractmethod
    def batches(
        self, source: ArrowRows, rows: slice, progress: Progress | None = None
    ) -> Iterator[Any]:
        """Yield the rows of a source as record batches of `schema`."""

    def write(
        self,
        source: RowSource,
        rows: slice,
        target: Any,
        progress: Progress | None = None,
        complete: Complete | None = None,
        threads: int = 1,
    ) -> None:
        """Write the rows of a source to a path, which appears when all of them are written.

        ``progress("copying", done, total)`` is called with rows, and ``complete`` before what is
        written appears. InputError if the source changed since it was read, or has no rows of a
        format that is copied.
        """
        if not isinstance(source, LineRows | ArrowRows):
            raise InputError(
                f"{source.label}: rows are copied of Parquet files, JSON lines, delimited text, "
                "folders and tables"
            )
        source.check_unchanged()
        with Sink(target, packed=isinstance(source, LineRows)) as sink:
            if isinstance(source, LineRows):
                _write_lines(self.lines(source, rows, progress), sink, threads)
            else:
                arrow, schema = import_pyarrow(sink.name), self.schema(source)
                with sink.errors():
                    batches = self.batches(source, rows, progress)
                    write_batches(arrow, batches, schema, sink, source.codec, threads)
            source.check_unchanged()
            sink.commit(complete)


def _write_lines(blocks: Iterable[bytes], sink: Sink, threads: int) -> None:
    """Write blocks of lines; with several threads, one writes while the caller takes the next."""
    with Worker(threads > 1) as worker:
        for block in blocks:
            worker.submit(sink.write, block)


class KeptRows(RowCopy):
    """The rows whose flags are set, as they were read."""

    def __init__(self, flags: Flags) -> None:
        self.flags, self.count = flags, len(flags)

    def lines(
        self, source: LineRows, rows: slice, progress: Progress | None = None
    ) -> Iterator[bytes]:
        yield source.header_line
        yield from source.kept_lines(RowFlags(self.flags[rows], progress))

    def schema(self, source: ArrowRows) -> Any:
        return parquet_schema(source.schema)

    def batches(
        self, source: ArrowRows, rows: slice, progress: Progress | None = None
    ) -> Iterator[Any]:
        schema, row_flags = self.schema(source), RowFlags(self.flags[rows], progress)
        plain = without_views(schema)
        for _, _, batch in source.record_batches():
            kept = filter_rows(batch, row_flags.take(batch.num_rows))
            for _, piece in cut_pieces(kept, BATCH_BYTES):
                yield align_to_schema(piece, plain).cast(schema)
        row_flags.finish()
