"""Copies of rows with new columns behind those that they have.

All else is as it was read: lines byte for byte, and the types of other columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

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
from fpstore.io.parquet import BATCH_BYTES, ParquetRows, TableRows, write_batches
from fpstore.io.sink import Complete, Sink
from fpstore.io.source import RowFlags, RowSource
from fpstore.io.tables import append_columns

OWN_ID = object()  # stands for the id of the row itself, which the copy reads
ExtensibleRows = LineRows | ParquetRows | TableRows
# of a column: whole numbers, flags, shares, or ids as the column of ids has them
NewKind = Literal["integer", "flag", "share", "id"]


class NewColumns(Protocol):
    """New columns of rows, which are counted over all files."""

    @property
    def kinds(self) -> Mapping[str, NewKind]:
        """The names of the columns, in order, and their kinds."""

    @property
    def id_column(self) -> str | None:
        """The column that has the ids; None: they are row numbers."""

    @property
    def id_kind(self) -> Literal["row", "int", "any int", "str"]:
        """Whether ids are row numbers, integers of the column, other integers too, or strings."""

    def values(self, rows: Words) -> dict[str, list[Any]]:
        """Return the values of rows in each column; None for a null, and OWN_ID for an id."""


def check_new_columns(corpus: RowSource, names: Iterable[str], advice: Mapping[str, str]) -> None:
    """Raise InputError for a column that the corpus has, as far as that is known before reading."""
    for name in names:
        if isinstance(corpus, LineRows):
            exists = name in corpus.columns or (corpus.typed and corpus.has_column(name))
        elif isinstance(corpus, ParquetRows | TableRows):
            exists = any(name in schema.names for schema in corpus.distinct_schemas)
        else:
            raise InputError(f"{corpus.label}: new columns are for rows, and these files are texts")
        if exists:
            raise _name_error(corpus.label, name, advice)


def _name_error(where: str, name: str, advice: Mapping[str, str]) -> InputError:
    return InputError(f"{where}: has a column {show(name)} already: {advice[name]}", got=name)


def copy_extended(
    corpus: ExtensibleRows,
    columns: NewColumns,
    advice: Mapping[str, str],
    flags: Flags,
    first: int,
    target: Any,
    progress: Progress | None = None,
    complete: Complete | None = None,
    schema_of: ExtensibleRows | None = None,
) -> None:
    """Write the rows whose flags are set with new columns; the number of the first row is given.

    ``schema_of`` has all rows, of which the corpus has some: they decide the types of new columns.
    """
    corpus.check_unchanged()
    with Sink(target, packed=isinstance(corpus, LineRows)) as sink:
        if isinstance(corpus, LineRows):
            _write_lines(corpus, columns, advice, flags, first, sink, progress)
        else:
            whole = corpus if schema_of is None or isinstance(schema_of, LineRows) else schema_of
            fields = new_fields(whole, columns)
            schema = _extended_schema(parquet_schema(corpus.schema), fields)
            batches = extended_batches(corpus, columns, schema, flags, first, progress)
            with sink.errors():
                write_batches(import_pyarrow(sink.name), batches, schema, sink, corpus.codec)
        corpus.check_unchanged()
        sink.commit(complete)


def _write_lines(
    corpus: LineRows,
    columns: NewColumns,
    advice: Mapping[str, str],
    flags: Flags,
    first: int,
    sink: Sink,
    progress: Progress | None,
) -> None:
    names = list(columns.kinds)
    header = corpus.header_line
    if header:
        sink.write(corpus.parser().extended_line(header, {name: name for name in names}))
    encoded, numbers = [name.encode() for name in names], np.flatnonzero(flags) + first
    done, read_id = 0, field_reader(columns.id_column or "")
    for parser, rows in corpus.kept_rows(RowFlags(flags, progress)):
        values = columns.values(numbers[done : done + len(rows)].astype(np.uint64))
        done += len(rows)
        lines = []
        for row, cells in zip(rows, zip(*values.values(), strict=True), strict=True):
            if corpus.typed and (b"\\u" in row.raw or any(name in row.raw for name in encoded)):
                _check_names(parser, row, names, advice)
            with error_location(parser.name, row.line):
                new = dict(zip(names, cells, strict=True))
                for name in names:
                    if new[name] is OWN_ID:
                        new[name] = _as_id(read_id(parser.fields(row)), columns)
                lines.append(parser.extended_line(corpus.output_line(parser, row), new))
        sink.write(b"".join(lines))


def _check_names(
    parser: LineParser, row: Row, names: Iterable[str], advice: Mapping[str, str]
) -> None:
    """Raise InputError for a JSON object that has one of the fields."""
    with error_location(parser.name, row.line):
        fields = parser.fields(row)
    for name in names:
        if name in fields:
            raise _name_error(f"{parser.name}:{row.line}", name, advice)


def _as_id(value: Any, columns: NewColumns) -> Any:
    """Return an id of a row as all ids are; None for one that is missing."""
    if value is None or value == "":
        return None
    return str(value) if columns.id_kind == "str" else value


def new_fields(corpus: ParquetRows | TableRows, columns: NewColumns) -> Any:
    """Return the fields of the new columns, as a schema."""
    pyarrow = import_pyarrow("new columns", "a table")

    types = {"integer": pyarrow.int64(), "flag": pyarrow.bool_(), "share": pyarrow.float64()}
    return pyarrow.schema(
        [
            (name, _id_type(corpus, columns) if kind == "id" else types[kind])
            for name, kind in columns.kinds.items()
        ]
    )


def _id_type(corpus: ParquetRows | TableRows, columns: NewColumns) -> Any:
    """Return the type of ids: that of their column, if it can have all of them."""
    pyarrow = import_pyarrow("new columns", "a table")

    kind, name = columns.id_kind, columns.id_column
    if kind == "row" or name is None:
        return pyarrow.int64() if kind == "row" else pyarrow.uint64()
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


def _extended_schema(schema: Any, fields: Any) -> Any:
    pyarrow = import_pyarrow("new columns", "a table")

    return pyarrow.schema([*schema, *fields], schema.metadata)


def extended_batches(
    corpus: ParquetRows | TableRows,
    columns: NewColumns,
    schema: Any,
    flags: Flags,
    first: int = 0,
    progress: Progress | None = None,
) -> Iterator[Any]:
    """Yield the rows whose flags are set as record batches of a schema with new columns."""
    pyarrow = import_pyarrow("new columns", "a table")

    count = len(schema) - len(columns.kinds)
    own = pyarrow.schema([schema.field(place) for place in range(count)], schema.metadata)
    fields = [schema.field(place) for place in range(count, len(schema))]
    plain, row_flags, done = without_views(own), RowFlags(flags, progress), first
    for _, _, batch in corpus.record_batches():
        is_kept = row_flags.take(batch.num_rows)
        numbers = np.flatnonzero(is_kept) + done
        done += batch.num_rows
        for start, piece in cut_pieces(filter_rows(batch, is_kept), BATCH_BYTES):
            piece = align_to_schema(piece, plain).cast(own)
            arrays = _new_arrays(columns, piece, numbers[start : start + piece.num_rows], fields)
            yield pyarrow.RecordBatch.from_arrays([*piece.columns, *arrays], schema=schema)
    row_flags.finish()


def _new_arrays(
    columns: NewColumns, batch: Any, rows: npt.NDArray[np.intp], fields: Iterable[Any]
) -> list[Any]:
    """Return the new columns of the rows of a batch as arrays of Arrow of the types of fields."""
    pyarrow = import_pyarrow("new columns", "a table")

    values = columns.values(rows.astype(np.uint64))
    for column in values.values():
        own = [place for place, value in enumerate(column) if value is OWN_ID]
        if own and columns.id_column is not None:
            ids = to_plain(read_fields(batch, [columns.id_column]).column(0)).take(own).to_pylist()
            for place, value in zip(own, ids, strict=True):
                column[place] = _as_id(value, columns)
    return [pyarrow.array(values[field.name], field.type) for field in fields]


def extended_table(corpus: TableRows, columns: NewColumns, flags: Flags) -> Any:
    """Return the rows of a table whose flags are set with new columns, as `select_rows` does."""
    pyarrow = import_pyarrow("new columns", "a table")

    table, fields = corpus.select_rows(flags), new_fields(corpus, columns)
    schema = _extended_schema(parquet_schema(corpus.schema), fields)
    batches = extended_batches(corpus, columns, schema, flags)
    new = pyarrow.Table.from_batches(batches, schema).select(list(columns.kinds))
    return append_columns(table, new)
