"""Rows with new columns behind those that they have.

All else is as it was read: lines byte for byte, and the types of other columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Progress, Words
from fpstore.errors import InputError, show
from fpstore.io.arrow import (
    align_to_schema,
    common_type,
    cut_pieces,
    field_path,
    filter_rows,
    find_column,
    import_pyarrow,
    is_text,
    parquet_schema,
    plain_type,
    read_fields,
    to_plain,
    without_views,
)
from fpstore.io.fields import field_reader
from fpstore.io.files import error_location
from fpstore.io.lines import LineParser, LineRows, Row
from fpstore.io.parquet import BATCH_BYTES, TableRows
from fpstore.io.row_copy import ArrowRows, RowCopy
from fpstore.io.source import RowFlags, RowSource
from fpstore.io.tables import append_columns

OWN_ID = object()  # stands for the id of the row itself, which the copy reads
# of a column: whole numbers, flags, shares, or ids as the column of ids has them
NewKind = Literal["integer", "flag", "share", "id"]
IdsKind = Literal["row", "int", "any int", "str"]


class NewColumn(NamedTuple):
    """What a new column has, and what to do about a column of its name that there is already."""

    kind: NewKind
    advice: str


class NewColumns(ABC):
    """Columns that the rows of a corpus gain in an output, and their values.

    Attributes
    ----------
    columns : Mapping of str to NewColumn
        The columns by name, in order.
    id_column : str or None
        The column that has the ids; None: they are row numbers.
    id_kind : str
        Whether ids are row numbers, integers of the column, other integers too, or strings.
    """

    columns: Mapping[str, NewColumn]
    id_column: str | None
    id_kind: IdsKind

    @property
    @abstractmethod
    def flags(self) -> Flags:
        """A flag for each row of the corpus that is written."""

    @abstractmethod
    def values(self, rows: Words) -> dict[str, list[Any]]:
        """Return the values of rows in each column; None for a null, and OWN_ID for an id."""


def check_new_columns(corpus: RowSource, columns: Mapping[str, NewColumn]) -> None:
    """Raise InputError for a column that the corpus has, as far as that is known before reading."""
    for name, column in columns.items():
        if isinstance(corpus, LineRows):
            exists = name in corpus.columns or (corpus.typed and corpus.has_column(name))
        elif isinstance(corpus, ArrowRows):
            exists = any(name in schema.names for schema in corpus.distinct_schemas)
        else:
            raise InputError(f"{corpus.label}: new columns are for rows, and these files are texts")
        if exists:
            raise _name_error(corpus.label, name, column)


def _name_error(where: str, name: str, column: NewColumn) -> InputError:
    return InputError(f"{where}: has a column {show(name)} already: {column.advice}", got=name)


class ExtendedRows(RowCopy):
    """The rows of a corpus whose flags are set, with new columns behind their own.

    All rows decide the types of the new columns, also where a source has some of them.
    """

    def __init__(self, corpus: RowSource, new: NewColumns, flags: Flags) -> None:
        self._corpus, self._new, self._flags, self.count = corpus, new, flags, len(flags)

    def lines(
        self, source: LineRows, rows: slice, progress: Progress | None = None
    ) -> Iterator[bytes]:
        new, flags = self._new, self._flags[rows]
        names = list(new.columns)
        header = source.header_line
        if header:
            yield source.parser().extended_line(header, {name: name for name in names})
        encoded, numbers = [name.encode() for name in names], np.flatnonzero(flags) + rows.start
        done, read_id = 0, field_reader(new.id_column or "")
        for parser, kept in source.kept_rows(RowFlags(flags, progress)):
            values = new.values(numbers[done : done + len(kept)].astype(np.uint64))
            done += len(kept)
            lines = []
            for row, cells in zip(kept, zip(*values.values(), strict=True), strict=True):
                if source.typed and (b"\\u" in row.raw or any(name in row.raw for name in encoded)):
                    self._check_names(parser, row)
                with error_location(parser.name, row.line):
                    by_name = dict(zip(names, cells, strict=True))
                    for name in names:
                        if by_name[name] is OWN_ID:
                            by_name[name] = self._as_id(read_id(parser.fields(row)))
                    lines.append(parser.extended_line(source.output_line(parser, row), by_name))
            yield b"".join(lines)

    def schema(self, source: ArrowRows) -> Any:
        schema, new = parquet_schema(source.schema), self._new_schema(source)
        return import_pyarrow("new columns", "a table").schema([*schema, *new], schema.metadata)

    def batches(
        self, source: ArrowRows, rows: slice, progress: Progress | None = None
    ) -> Iterator[Any]:
        pyarrow = import_pyarrow("new columns", "a table")

        schema, new = self.schema(source), self._new_schema(source)
        own = parquet_schema(source.schema)
        plain, done = without_views(own), rows.start
        row_flags = RowFlags(self._flags[rows], progress)
        for _, _, batch in source.record_batches():
            is_kept = row_flags.take(batch.num_rows)
            numbers = np.flatnonzero(is_kept) + done
            done += batch.num_rows
            for start, piece in cut_pieces(filter_rows(batch, is_kept), BATCH_BYTES):
                piece = align_to_schema(piece, plain).cast(own)
                arrays = self._arrays(piece, numbers[start : start + piece.num_rows], new)
                yield pyarrow.RecordBatch.from_arrays([*piece.columns, *arrays], schema=schema)
        row_flags.finish()

    def table(self, source: TableRows) -> Any:
        """Return the rows of a table with new columns, as `select_rows` does."""
        batches = self.batches(source, slice(0, self.count))
        table = import_pyarrow("new columns", "a table").Table.from_batches(
            batches, self.schema(source)
        )
        return append_columns(
            source.select_rows(self._flags), table.select(list(self._new.columns))
        )

    def _check_names(self, parser: LineParser, row: Row) -> None:
        """Raise InputError for a JSON object that has one of the fields."""
        with error_location(parser.name, row.line):
            fields = parser.fields(row)
        for name, column in self._new.columns.items():
            if name in fields:
                raise _name_error(f"{parser.name}:{row.line}", name, column)

    def _as_id(self, value: Any) -> Any:
        """Return an id of a row as all ids are; None for one that is missing."""
        if value is None or value == "":
            return None
        return str(value) if self._new.id_kind == "str" else value

    def _new_schema(self, source: ArrowRows) -> Any:
        """Return the new columns with their types."""
        pyarrow = import_pyarrow("new columns", "a table")

        types = {"integer": pyarrow.int64(), "flag": pyarrow.bool_(), "share": pyarrow.float64()}
        return pyarrow.schema(
            [
                (name, self._id_type(source) if column.kind == "id" else types[column.kind])
                for name, column in self._new.columns.items()
            ]
        )

    def _id_type(self, source: ArrowRows) -> Any:
        """Return the type of ids: that of their column, if it can have all of them."""
        pyarrow = import_pyarrow("new columns", "a table")

        kind, name = self._new.id_kind, self._new.id_column
        if kind == "row" or name is None:
            return pyarrow.int64() if kind == "row" else pyarrow.uint64()
        corpus = self._corpus if isinstance(self._corpus, ArrowRows) else source
        column_type = common_type(
            plain_type(find_column(schema, name))
            for schema in corpus.distinct_schemas
            if field_path(schema, name)
        )
        if kind == "str":
            is_fit = column_type is not None and is_text(column_type)
            return column_type if is_fit else pyarrow.string()
        is_fit = kind == "int" and column_type is not None and pyarrow.types.is_integer(column_type)
        return column_type if is_fit else pyarrow.uint64()

    def _arrays(self, batch: Any, rows: npt.NDArray[np.intp], schema: Any) -> list[Any]:
        """Return the new columns of the rows of a batch as arrays of Arrow of a schema."""
        pyarrow = import_pyarrow("new columns", "a table")

        values = self._new.values(rows.astype(np.uint64))
        for column in values.values():
            own = [place for place, value in enumerate(column) if value is OWN_ID]
            if own and self._new.id_column is not None:
                ids = read_fields(batch, [self._new.id_column]).column(0)
                for place, value in zip(own, to_plain(ids).take(own).to_pylist(), strict=True):
                    column[place] = self._as_id(value)
        return [pyarrow.array(values[field.name], field.type) for field in schema]
