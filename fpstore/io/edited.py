"""Copies of rows with some of their texts changed.

Every other column, and every row whose text stays, are as they were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from fpstore.base.aliases import Flags, Progress
from fpstore.io.arrow import (
    cut_pieces,
    field_path,
    find_column,
    import_pyarrow,
    parquet_schema,
    plain_type,
    read_fields,
    to_plain,
    with_field_type,
    with_texts,
)
from fpstore.io.fields import field_reader
from fpstore.io.lines import LineRows, Row
from fpstore.io.parquet import BATCH_BYTES, ParquetRows, TableRows, write_batches
from fpstore.io.sink import Complete, Sink
from fpstore.io.source import RowFlags

EditableRows = LineRows | ParquetRows | TableRows


class Edit(Protocol):
    """Changes texts of rows, which are counted over all files."""

    @property
    def rows(self) -> int:
        """How many rows there are."""

    def changed_rows(self, rows: slice) -> Flags:
        """Return which rows may be changed."""

    def edit_text(self, row: int, text: Any) -> str | None:
        """Return the new text of a row; None if the row goes.

        InputError if the text is another one than before.
        """


def copy_edited(
    corpus: EditableRows,
    column: str,
    edit: Edit,
    rows: slice,
    target: Any,
    progress: Progress | None = None,
    complete: Complete | None = None,
) -> None:
    """Write some rows, which are all of a source, with the texts of a column as they are edited."""
    corpus.check_unchanged()
    flags = RowFlags(np.ones(rows.stop - rows.start, bool), progress)
    with Sink(target, packed=isinstance(corpus, LineRows)) as sink:
        if isinstance(corpus, LineRows):
            _write_lines(corpus, column, edit, rows.start, flags, sink)
        else:
            arrow, schema = import_pyarrow(sink.name), edited_schema(corpus, column)
            with sink.errors():
                write_batches(
                    arrow,
                    edit_batches(corpus, column, edit, schema, rows.start, flags),
                    schema,
                    sink,
                    corpus.codec,
                )
        corpus.check_unchanged()
        sink.commit(complete)


def write_table(table: Any, target: Any, complete: Complete | None = None) -> None:
    with Sink(target) as sink:
        with sink.errors():
            write_batches(import_pyarrow(sink.name), table.to_batches(), table.schema, sink)
        sink.commit(complete)


def edited_schema(corpus: ParquetRows | TableRows, column: str) -> Any:
    """Return the schema of the copy: the column of texts has no dictionary."""
    schema = parquet_schema(corpus.schema)
    column_type = plain_type(find_column(schema, column))
    return with_field_type(schema, field_path(schema, column), column_type)


def edit_batches(
    corpus: ParquetRows | TableRows,
    column: str,
    edit: Edit,
    schema: Any,
    first: int = 0,
    flags: RowFlags | None = None,
) -> Iterator[Any]:
    """Yield the rows that stay as record batches of a schema.

    The number of the first row is given.
    """
    for _, _, batch in corpus.record_batches():
        if flags is not None:
            flags.take(batch.num_rows)
        for _, piece in cut_pieces(batch, BATCH_BYTES):
            texts = to_plain(read_fields(piece, [column]).column(0)).to_pylist()
            stays = np.ones(len(texts), bool)
            for place in np.flatnonzero(
                edit.changed_rows(slice(first, first + len(texts)))
            ).tolist():
                texts[place] = edit.edit_text(first + place, texts[place])
                stays[place] = texts[place] is not None
            first += len(texts)
            yield with_texts(piece, column, texts, stays, schema)
    if flags is not None:
        flags.finish()


def _write_lines(
    corpus: LineRows, column: str, edit: Edit, first: int, flags: RowFlags, sink: Sink
) -> None:
    sink.write(corpus.header_line)
    read_text = field_reader(column)
    for parser, lines in corpus.kept_rows(flags):
        written: list[Row | None] = list(lines)
        for place in np.flatnonzero(edit.changed_rows(slice(first, first + len(lines)))).tolist():
            before = read_text(parser.fields(lines[place]))
            text = edit.edit_text(first + place, before)
            if text is None:
                written[place] = None
            elif text != before:  # otherwise the line stays, byte for byte
                written[place] = parser.with_field(lines[place], column, text)
        first += len(lines)
        sink.write(
            b"".join([corpus.output_line(parser, row) for row in written if row is not None])
        )
