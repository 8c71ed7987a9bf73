"""Rows with some of their texts changed.

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
from fpstore.io.parquet import BATCH_BYTES, TableRows
from fpstore.io.row_copy import ArrowRows, RowCopy
from fpstore.io.source import RowFlags


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


class EditedRows(RowCopy):
    """All rows of a corpus but those that go, with the texts of a column as they are edited."""

    def __init__(self, edit: Edit, column: str) -> None:
        self.edit, self.count, self._column = edit, edit.rows, column

    def lines(
        self, source: LineRows, rows: slice, progress: Progress | None = None
    ) -> Iterator[bytes]:
        yield source.header_line
        read_text, first = field_reader(self._column), rows.start
        for parser, lines in source.kept_rows(self._flags(rows, progress)):
            written: list[Row | None] = list(lines)
            for place in self._changed(first, len(lines)):
                before = read_text(parser.fields(lines[place]))
                text = self.edit.edit_text(first + place, before)
                if text is None:
                    written[place] = None
                elif text != before:  # otherwise the line stays, byte for byte
                    written[place] = parser.with_field(lines[place], self._column, text)
            first += len(lines)
            yield b"".join([source.output_line(parser, row) for row in written if row is not None])

    def schema(self, source: ArrowRows) -> Any:
        """Return the schema of the copy: the column of texts has no dictionary."""
        schema = parquet_schema(source.schema)
        column_type = plain_type(find_column(schema, self._column))
        return with_field_type(schema, field_path(schema, self._column), column_type)

    def batches(
        self, source: ArrowRows, rows: slice, progress: Progress | None = None
    ) -> Iterator[Any]:
        schema, flags, first = self.schema(source), self._flags(rows, progress), rows.start
        for _, _, batch in source.record_batches():
            flags.take(batch.num_rows)
            for _, piece in cut_pieces(batch, BATCH_BYTES):
                texts = to_plain(read_fields(piece, [self._column]).column(0)).to_pylist()
                stays = np.ones(len(texts), bool)
                for place in self._changed(first, len(texts)):
                    texts[place] = self.edit.edit_text(first + place, texts[place])
                    stays[place] = texts[place] is not None
                first += len(texts)
                yield with_texts(piece, self._column, texts, stays, schema)
        flags.finish()

    def table(self, source: TableRows) -> Any:
        """Return the rows of a table as a ``pyarrow.Table``."""
        batches = self.batches(source, slice(0, self.count))
        return import_pyarrow("the table", "a table").Table.from_batches(
            batches, self.schema(source)
        )

    def _flags(self, rows: slice, progress: Progress | None) -> RowFlags:
        return RowFlags(np.ones(rows.stop - rows.start, bool), progress)

    def _changed(self, first: int, count: int) -> list[int]:
        """Return which of successive rows may be changed."""
        return np.flatnonzero(self.edit.changed_rows(slice(first, first + count))).tolist()
