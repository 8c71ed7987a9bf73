"""Rows of Parquet files, and of tables of Arrow, Polars and pandas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from fpstore.base.aliases import Flags, NamedColumns
from fpstore.base.threads import cached_property
from fpstore.base.width import WIDTH_64, Width
from fpstore.disk.refusals import refusal_error
from fpstore.errors import InputError, StorageError
from fpstore.io.arrow import (
    ArrowColumns,
    common_type,
    cut_pieces,
    distance_type,
    field_path,
    fields_schema,
    filter_rows,
    find_column,
    fingerprint_array,
    fingerprint_type,
    import_pyarrow,
    kinds_of_numbers,
    promoted_schema,
    read_fields,
    type_conflict_error,
    unified_schema,
    value_bytes,
    with_types,
    without_views,
)
from fpstore.io.files import error_location, input_error
from fpstore.io.row_groups import PAGE_STEP, RowGroups
from fpstore.io.sink import Encoder, Sink
from fpstore.io.source import (
    PART_BYTES,
    Batch,
    IdRule,
    Projection,
    RowFiles,
    RowSource,
    Skip,
)

DESCRIBED = {"name", "version", "parameters"}  # keys in the description of a fingerprinter
# key in the metadata of a file: how its fingerprints were made, as JSON
FINGERPRINTER = "fpstore.fingerprinter"
BATCH_ROWS, BATCH_BYTES = 1 << 14, 1 << 23  # decoded at once
# decoded before freed memory goes back to the system
RELEASED_BYTES = 1 << 26
MAX_GATHERED = 1 << 10  # batches that are joined, at most
READ_BYTES = 1 << 20  # in one read; by default pyarrow reads all of a column in a row group
DICTIONARY_BYTES = 1 << 24  # the largest column chunk that stays a dictionary


def open_rows(
    arrow: Any, path: str, names: Sequence[str] | None, most: int
) -> tuple[Any, list[int]]:
    """Open a file to read some of its columns, by default all, in batches.

    Return it, and how many rows of each row group to read at once.

    The rows are at most ``most``, and take about BATCH_BYTES when they are decoded. Each row of a
    dictionary may be a long text where the file has some bytes: columns that are small in all row
    groups come as dictionaries, and of others, the longest value in the dictionary counts.
    """
    with arrow.parquet.ParquetFile(path) as parquet:
        metadata, columns = parquet.metadata, parquet.schema_arrow.names
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [0] * len(groups)
    largest = dict[str, int]()  # by column, if it has dictionaries of strings
    for number, group in enumerate(groups):
        for column in map(group.column, range(group.num_columns)):
            name = column.path_in_schema
            if names is not None and not any(
                name == chosen or name.startswith(f"{chosen}.") for chosen in names
            ):
                continue
            size = column.total_uncompressed_size
            sizes[number] += size
            if (
                column.has_dictionary_page
                and column.physical_type == "BYTE_ARRAY"
                and name in columns
            ):
                largest[name] = max(largest.get(name, 0), size)
    row_bytes = [
        max(size // max(group.num_rows, 1), 1) for size, group in zip(sizes, groups, strict=True)
    ]
    small = [name for name, size in largest.items() if size <= DICTIONARY_BYTES]
    for name in largest.keys() - set(small):
        for number, longest in enumerate(_longest_values(arrow, path, name, len(groups))):
            row_bytes[number] = max(row_bytes[number], longest)
    return arrow.parquet.ParquetFile(
        path, read_dictionary=small, buffer_size=READ_BYTES, pre_buffer=False
    ), [max(min(most, BATCH_BYTES // size), 1) for size in row_bytes]


def _longest_values(arrow: Any, path: str, name: str, groups: int) -> Iterator[int]:
    """Yield the size of the longest value in the dictionary of a column, for each row group."""
    with arrow.parquet.ParquetFile(
        path, read_dictionary=[name], buffer_size=READ_BYTES, pre_buffer=False
    ) as parquet:
        for number in range(groups):
            batch = next(parquet.iter_batches(1, row_groups=[number], columns=[name]), None)
            yield (
                0 if batch is None else int(value_bytes(batch.column(0).dictionary).max(initial=0))
            )


def _fingerprinter(schema: Any) -> Any:
    """Return the description of a fingerprinter in the metadata; None without a valid one."""
    try:
        description = json.loads((schema.metadata or {}).get(FINGERPRINTER.encode(), b"null"))
    except (ValueError, RecursionError):
        return None
    return description if isinstance(description, dict) and set(description) == DESCRIBED else None


class ParquetRows(RowFiles):
    """Parquet files, whose columns that are read have types that can be promoted to one."""

    suffix = ".parquet"

    def __init__(self, paths: Sequence[str], again: bool = False) -> None:
        super().__init__(paths, again)
        self._arrow = import_pyarrow(self.names[0])
        self.schemas: list[Any] = []  # one for each file; equal successive schemas are one object
        self.codec = "snappy"
        self._groups: range | None = None  # the row groups that are read; None: all
        fingerprinters: list[Any] = []
        for file in self.files:
            if file.size is None:
                raise input_error(
                    file.name,
                    None,
                    "a Parquet input must be a regular file, because it is read from its end",
                )
            with (
                self._translate_errors(file.name),
                self._arrow.parquet.ParquetFile(file.path) as parquet,
            ):
                schema, metadata = parquet.schema_arrow, parquet.metadata
                fingerprinters.append(_fingerprinter(schema))
                self.rows_of_files.append(int(metadata.num_rows))
                if not self.schemas and metadata.num_row_groups and metadata.num_columns:
                    codec = metadata.row_group(0).column(0).compression
                    self.codec = "none" if codec == "UNCOMPRESSED" else codec
            before = self.schemas[-1] if self.schemas else schema
            self.schemas.append(before if schema.equals(before) else schema)
        self.rows = sum(self.rows_of_files)
        self.fingerprinter = (
            fingerprinters[0]
            if fingerprinters.count(fingerprinters[0]) == len(fingerprinters)
            else None
        )

    @cached_property
    def schema(self) -> Any:
        """The schema of all rows in one file; InputError for a column whose types no type holds."""
        first, *other_schemas = self.distinct_schemas
        return unified_schema(self.schemas, self.names) if other_schemas else first

    def check_schemas(self) -> None:
        if len(self.distinct_schemas) > 1:
            unified_schema(self.schemas, self.names)

    @property
    def distinct_schemas(self) -> list[Any]:
        """The schemas of the files, each once."""
        return list({id(schema): schema for schema in self.schemas}.values())

    def single_file(self, number: int) -> ParquetRows:
        """Return one of the files as a source of its own."""
        return ParquetRows([self.paths[number]], again=True)

    def row_groups(self, first: int, end: int) -> ParquetRows:
        """Return the rows of successive row groups of the only file."""
        (path,) = self.paths
        new = ParquetRows([path], again=True)
        new._groups = range(first, end)
        with self._translate_errors(self.names[0]):
            counts = row_group_sizes(self._arrow, path)
        new.rows_before, counts = sum(counts[:first]), counts[first:end]
        new.rows_of_files = [sum(counts)]
        new.rows = sum(counts)
        return new

    def resolve_columns(self, projection: Projection) -> Projection:
        """Return the columns that the files have.

        InputError for one that is missing, or has a type that it cannot have.
        """
        if projection.optional_id:
            has_ids = self.has_column(str(projection.id))
            projection = replace(
                projection, id=projection.id if has_ids else None, optional_id=False
            )
        self._columns(projection)
        return projection

    def has_column(self, name: str) -> bool:
        return any(field_path(schema, name) for schema in self.distinct_schemas)

    def batches(
        self, projection: Projection, rule: IdRule | None = None, skipped: int = 0
    ) -> Iterator[Batch]:
        projection = projection.begin()
        columns, promoted = self._columns(projection)
        for name, done, batch in self.record_batches(projection.names, skipped):
            batch = read_fields(batch, projection.names)
            for start, piece in cut_pieces(batch, PART_BYTES):
                with self._translate_errors(name):
                    rows = columns[name].rows(with_types(piece, promoted), name, done + start, rule)
                yield rows
        if not skipped:
            self._note_roles(projection)

    def _columns(self, projection: Projection) -> tuple[dict[str, ArrowColumns], dict[str, Any]]:
        """Return what reads each file, by its name, and the types that columns are promoted to.

        Texts and ids are read as each file has them. Scores of different kinds of numbers have keys
        that compare.
        """
        promoted = dict[str, Any]()
        for column in (projection.fingerprint, projection.score, projection.vector):
            if column is None or len(self.distinct_schemas) == 1:
                continue
            column_types = [self._column_type(place, column) for place in range(len(self.names))]
            kinds = kinds_of_numbers(column_types)
            if column == projection.score and len(kinds) > 1:
                projection = replace(projection, alike_scores=True)
            elif column != projection.fingerprint or (kinds and not kinds & {"float", "decimal"}):
                promoted[column] = common_type(column_types)
                if promoted[column] is None:
                    raise type_conflict_error(column, column_types, self.names)
        columns, readers = dict[str, ArrowColumns](), dict[int, ArrowColumns]()
        for name, schema in zip(self.names, self.schemas, strict=True):
            if id(schema) not in readers:
                with error_location(name):
                    fields = fields_schema(without_views(schema), projection.names)
                    readers[id(schema)] = ArrowColumns(
                        promoted_schema(fields, promoted), projection
                    )
            columns[name] = readers[id(schema)]
        return columns, promoted

    def _column_type(self, place: int, column: str) -> Any:
        with error_location(self.names[place]):
            return find_column(self.schemas[place], column)

    def record_batches(
        self, names: list[str] | None = None, skipped: int = 0
    ) -> Iterator[tuple[str, int, Any]]:
        """Yield the name of a file, the number of its rows before a batch, and the batch.

        ``skipped`` rows at the beginning are left out.
        """
        self.bytes_done = before = 0
        skip = Skip(skipped)
        for file in self.files:
            with self._translate_errors(file.name):
                parquet, most = open_rows(self._arrow, file.path, names, BATCH_ROWS)
            with parquet:
                done, count = self.rows_before, max(parquet.metadata.num_rows, 1)
                for batch in self._group_batches(parquet, file.name, most, names):
                    passed = skip.take(batch.num_rows)
                    if passed < batch.num_rows:
                        yield file.name, done + passed, batch.slice(passed)
                    done += batch.num_rows
                    self.bytes_done = before + (file.size or 0) * done // count
            before += file.size or 0
        skip.finish()

    def _group_batches(
        self, parquet: Any, name: str, most: Sequence[int], names: list[str] | None
    ) -> Iterator[Any]:
        """Yield the batches of one row group after the other.

        Pyarrow would hold what it has read until the last group.
        """
        pool, unreleased_bytes = self._arrow.default_memory_pool(), 0
        for group in self._groups or range(parquet.metadata.num_row_groups):
            with self._translate_errors(name):
                rows = parquet.iter_batches(
                    most[group], row_groups=[group], columns=names, use_threads=False
                )
                for batch in _gather(self._arrow, rows):
                    unreleased_bytes += batch.nbytes
                    yield batch
                    del batch
                    if unreleased_bytes >= RELEASED_BYTES:
                        pool.release_unused()
                        unreleased_bytes = 0

    @contextmanager
    def _translate_errors(self, name: str) -> Iterator[None]:
        with translate_parquet_errors(self._arrow, name):
            yield


def _gather(arrow: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """Join successive batches of a row group up to about PART_BYTES.

    Each costs all that follows a fixed time, and where a dictionary has a long value, they have few
    rows. The batches of a row group share its dictionaries.
    """
    pending, size = list[Any](), 0
    for batch in batches:
        pending.append(batch)
        size += sum(
            column.indices.nbytes if hasattr(column, "indices") else column.nbytes
            for column in batch.columns
        )
        if size >= PART_BYTES or len(pending) >= MAX_GATHERED:
            yield _join(arrow, pending)
            pending, size = [], 0
    if pending:
        yield _join(arrow, pending)


def _join(arrow: Any, batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    (joined,) = arrow.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def row_group_sizes(arrow: Any, file: Any) -> list[int]:
    """Return the number of rows of each row group; ``file`` is a path or a file of pyarrow."""
    metadata = arrow.parquet.read_metadata(file)
    return [int(metadata.row_group(number).num_rows) for number in range(metadata.num_row_groups)]


class TableRows(RowSource):
    """The rows of a table in memory, or of a stream of record batches, read one at a time.

    It has ``__arrow_c_stream__``: a table of pyarrow, a data frame of Polars or pandas. Rows that
    are read ``again`` are held.
    """

    suffix, codec = ".parquet", "snappy"
    names: Sequence[str] = ("the table",)

    def __init__(self, table: Any, again: bool = False, source: Any = None) -> None:
        """Take a table, and the object that it was made of, if it was made for this."""
        self._arrow = import_pyarrow("the table", "a table")
        self._source, self._table = table if source is None else source, table
        self._spent = False
        if again:
            with self._translate_column_errors():
                self._table = (
                    table if isinstance(table, self._arrow.Table) else self._arrow.table(table)
                )
            without_views(self._table.schema)
            self.rows, self.bytes_total = self._table.num_rows, self._table.nbytes

    def batches(
        self, projection: Projection, rule: IdRule | None = None, skipped: int = 0
    ) -> Iterator[Batch]:
        done, self.bytes_done, projection = skipped, 0, projection.begin()
        with self._stream(skipped) as stream:
            for name in projection.names:
                find_column(stream.schema, name)
            schema = fields_schema(stream.schema, projection.names)
            columns = ArrowColumns(
                without_views(
                    self._arrow.schema([schema.field(name) for name in projection.names])
                ),
                projection,
            )
            for record_batch in stream:
                fields = read_fields(record_batch, projection.names)
                for start, piece in cut_pieces(fields, PART_BYTES):
                    yield columns.rows(piece, self.names[0], done + start, rule)
                done += record_batch.num_rows
                self.bytes_done = (self.bytes_total or 0) * done // max(self.rows or 0, 1)
        if not skipped:
            self._note_roles(projection)

    @property
    def schema(self) -> Any:
        """The schema of a table that is read again."""
        return self._table.schema

    @property
    def distinct_schemas(self) -> list[Any]:
        return [self.schema]

    def record_batches(self) -> Iterator[tuple[str, int, Any]]:
        """Yield the name of the table, the number of rows before a batch, and the batch."""
        done = 0
        with self._stream() as stream:
            for batch in stream:
                yield self.names[0], done, batch
                done += batch.num_rows

    def check_unchanged(self) -> None:
        """Do nothing: a table in memory does not change."""

    def select_rows(self, flags: Flags) -> Any:
        """Return the rows whose flags are set, as a table of the kind that was given."""
        kind = type(self._source).__module__.partition(".")[0]
        if kind == "datasets":
            return self._source.select(np.flatnonzero(flags))
        if kind == "pandas":
            return self._source[flags]
        return self._source.filter(flags) if kind == "polars" else filter_rows(self._table, flags)

    def _stream(self, skipped: int = 0) -> Any:
        assert not skipped or self.paths, "no job with a checkpoint reads it"
        reader = self._arrow.RecordBatchReader
        if isinstance(self._table, reader):
            if self._spent:
                raise InputError(
                    "a record batch reader can be read only once: make a table of it, or another "
                    "reader"
                )
            self._spent = True
        if isinstance(self._table, self._arrow.Table):
            if skipped > self._table.num_rows:
                Skip(skipped - self._table.num_rows).finish()
            return self._table.slice(skipped).to_reader(max_chunksize=BATCH_ROWS)
        with self._translate_column_errors():
            return reader.from_stream(self._table)

    @contextmanager
    def _translate_column_errors(self) -> Iterator[None]:
        """Refuse a column of pyarrow, Polars or pandas, which has the interface, too."""
        try:
            yield
        except (TypeError, ValueError):
            kind = type(self._source).__name__
            raise InputError(
                f"rows in memory are a table with named columns, got {kind}: make it a column of "
                "a table",
                got=self._source,
            ) from None


@contextmanager
def translate_parquet_errors(arrow: Any, name: str, format_name: str = "Parquet") -> Iterator[None]:
    """Turn pyarrow's errors about a broken file into one line."""
    try:
        yield
    except (InputError, StorageError, MemoryError):  # pyarrow's own error of memory is one, too
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise refusal_error(name, error) from error
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise input_error(name, None, f"not a readable {format_name} file: {reason}") from error


class ParquetEncoder(Encoder):
    """Writes columns into a Parquet file."""

    def __init__(
        self,
        sink: Sink,
        columns: Mapping[str, str],
        width: Width = WIDTH_64,
        fingerprinter: Mapping[str, Any] | None = None,
    ) -> None:
        if not sink.seekable:
            raise InputError("the Parquet format needs a file to write to")
        self._arrow = import_pyarrow(sink.name)
        self._sink, self._columns, self._width = sink, columns, width
        self._metadata = (
            None if fingerprinter is None else {FINGERPRINTER: json.dumps(fingerprinter)}
        )
        self._writer: Any = None

    def write(self, data: NamedColumns) -> None:
        """Append rows; the first rows decide whether a column of values has integers or strings."""
        if self._writer is None:
            self._open({name: isinstance(values, list) for name, values in data.items()})
        arrays = [
            fingerprint_array(values, self._width)
            if self._columns[name] == "fingerprint"
            else self._arrow.array(
                values, self._arrow.string() if isinstance(values, list) else None
            )
            for name, values in data.items()
        ]
        batch = self._arrow.record_batch(arrays, schema=self._schema)
        self._write_group(self._groups.add(batch))

    def finish(self) -> None:
        if self._writer is None:
            self._open({})
        self._write_group(self._groups.take())
        with self._sink.errors():
            self._writer.close()

    def abort(self) -> None:
        """Close pyarrow's writer while its file is open: its finalizer would come too late."""
        if self._writer is not None:
            with suppress(OSError, self._arrow.ArrowException):
                self._writer.close()

    def _open(self, strings: Mapping[str, bool]) -> None:
        arrow = self._arrow
        types = {
            "fingerprint": fingerprint_type(self._width),
            "distance": distance_type(self._width),
            "share": arrow.float64(),
            "text": arrow.string(),
            "label": arrow.string(),
        }
        self._schema = arrow.schema(
            [
                (name, arrow.string() if strings.get(name) else types.get(kind, arrow.uint64()))
                for name, kind in self._columns.items()
            ],
            metadata=self._metadata,
        )
        # Fingerprints hardly repeat, so a dictionary of them would be discarded.
        repeated = [name for name, kind in self._columns.items() if kind != "fingerprint"]
        with self._sink.errors():
            self._writer = arrow.parquet.ParquetWriter(
                self._sink.file, self._schema, use_dictionary=repeated, write_batch_size=PAGE_STEP
            )
        self._groups = RowGroups()

    def _write_group(self, batches: list[Any]) -> None:
        if batches:
            with self._sink.errors():
                self._writer.write_table(
                    self._arrow.Table.from_batches(batches, schema=self._schema)
                )
