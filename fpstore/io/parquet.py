"""Parquet files, read and written by pyarrow, which is imported when the first one is opened."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fpstore.base.aliases import NamedColumns
from fpstore.base.width import WIDTH_64, Width
from fpstore.disk.refusals import refused
from fpstore.errors import InputError, StorageError
from fpstore.io.arrow import (
    FingerprintColumns,
    distance_type,
    find_column,
    fingerprint_array,
    fingerprint_type,
    id_kind,
    ids_of_column,
    import_pyarrow,
    in_pieces,
    value_bytes,
)
from fpstore.io.sink import Encoder, Sink
from fpstore.io.source import Batch, Fields, IdRule, InputFile, Source, at, located

GROUP_ROWS, GROUP_BYTES = 1 << 18, 1 << 24  # of a row group that is written: whichever is reached first
BATCH_BYTES = 1 << 23  # that are decoded at once
PAGE_STEP = 1 << 6  # rows after which a page that is written may end: readers decode it as a whole
READ_BYTES = 1 << 20  # of the file, at once: otherwise all that a row group has of a column
DICTIONARY_BYTES = 1 << 24  # of a column of a row group whose dictionary is not decoded


def open_rows(arrow: Any, path: str, names: Sequence[str] | None, most: int) -> tuple[Any, int]:
    """Open a file to read some of its columns, by default all, in batches; return it, and how many rows to read at once.

    The rows are at most ``most``, and take about BATCH_BYTES when they are decoded. Each row of a dictionary may be a long text
    where the file has some bytes: columns that are small in the file come as dictionaries, and of others, the longest value in
    their dictionaries counts.
    """
    with arrow.parquet.ParquetFile(path) as parquet:
        metadata = parquet.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    row_bytes, largest = 1, dict[str, int]()  # by column, if it has dictionaries of strings
    for group in groups:
        size = 0
        for column in map(group.column, range(group.num_columns)):
            name = column.path_in_schema
            if names is not None and not any(name == chosen or name.startswith(f"{chosen}.") for chosen in names):
                continue
            size += column.total_uncompressed_size
            if column.has_dictionary_page and column.physical_type == "BYTE_ARRAY" and name in parquet.schema_arrow.names:
                largest[name] = max(largest.get(name, 0), column.total_uncompressed_size)
        row_bytes = max(row_bytes, size // max(group.num_rows, 1))
    small = [name for name, size in largest.items() if size <= DICTIONARY_BYTES]
    for name in largest.keys() - set(small):
        with arrow.parquet.ParquetFile(path, read_dictionary=[name], buffer_size=READ_BYTES) as parquet:
            for number in range(len(groups)):
                for batch in parquet.iter_batches(1, row_groups=[number], columns=[name]):
                    row_bytes = max(row_bytes, int(value_bytes(batch.column(0).dictionary).max(initial=0)))
                    break
    rows = max(min(most, BATCH_BYTES // row_bytes), 1)
    return arrow.parquet.ParquetFile(path, read_dictionary=small, buffer_size=READ_BYTES), rows


class ParquetSource(Source):
    """The fingerprint and id columns of a Parquet file, read in batches of rows."""

    def __init__(self, file: InputFile, fields: Fields, batch_rows: int) -> None:
        super().__init__(file)
        if file.size is None:
            raise at(self.name, None, "a Parquet input must be a regular file, because it is read from its end")
        self._arrow = import_pyarrow(self.name)
        self._batch_rows = batch_rows
        with self._errors(), self._arrow.parquet.ParquetFile(file.path) as parquet:
            schema = parquet.schema_arrow
            self.rows = int(parquet.metadata.num_rows)
        self._fingerprint_field = fields.fingerprint or "fingerprint"
        self._id_field = fields.id or "id"
        with located(self.name):
            self._fingerprints = FingerprintColumns(self._fingerprint_field, fields.width, fields.decimal, fields.signed)
            self._fingerprints.check_type(find_column(schema, self._fingerprint_field))
            self.has_ids = fields.id is not None or self._id_field in schema.names
            if self.has_ids:
                id_kind(self._id_field, find_column(schema, self._id_field))

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield batches of rows in the order of the file."""
        names = [self._fingerprint_field, *([self._id_field] if self.has_ids else [])]
        done = 0
        with self._errors():
            parquet, most = open_rows(self._arrow, self.file.path, names, self._batch_rows)
        with parquet:
            rows = parquet.iter_batches(batch_size=most, columns=names, use_threads=False)
            while True:
                with self._errors():
                    batch = next(rows, None)
                if batch is None:
                    return
                for _, some in in_pieces(batch, READ_BYTES):
                    with located(self.name), self._errors():
                        rule.expect(bool(self.has_ids))
                        fingerprints = self._fingerprints.rows(some.column(self._fingerprint_field), done)
                        ids = ids_of_column(some.column(self._id_field), done, rule) if self.has_ids else None
                    done += len(fingerprints)
                    self.bytes_done = (self.bytes_total or 0) * done // max(self.rows or 0, 1)
                    yield Batch(fingerprints, ids)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with parquet_errors(self._arrow, self.name):
            yield


@contextmanager
def parquet_errors(arrow: Any, name: str) -> Iterator[None]:
    """Turn pyarrow's errors about a broken file into one line."""
    try:
        yield
    except (InputError, StorageError, MemoryError):  # pyarrow's own error of memory is one, too
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise refused(name, error) from error
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise at(name, None, f"not a readable Parquet file: {reason}") from error


class ParquetEncoder(Encoder):
    """Writes columns into a Parquet file, in row groups of GROUP_ROWS rows, or of about GROUP_BYTES."""

    def __init__(self, sink: Sink, columns: Mapping[str, str], width: Width = WIDTH_64) -> None:
        if not sink.seekable:
            raise InputError("the Parquet format needs a file to write to")
        self._arrow = import_pyarrow(sink.name)
        self._sink = sink
        self._columns = columns
        self._width = width
        self._writer: Any = None
        self._held: list[Any] = []
        self._held_rows = self._held_bytes = 0

    def write(self, data: NamedColumns) -> None:
        """Append rows; the first ones decide whether a column of values holds integers or strings."""
        arrow = self._arrow
        if self._writer is None:
            self._open({name: isinstance(values, list) for name, values in data.items()})
        arrays = [
            fingerprint_array(values, self._width) if self._columns[name] == "fingerprint" else arrow.array(values)
            for name, values in data.items()
        ]
        self._held.append(arrow.record_batch(arrays, schema=self._schema))
        self._held_rows += len(arrays[0])
        self._held_bytes += self._held[-1].nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write the remaining rows and the footer."""
        if self._writer is None:
            self._open({})
        self._flush()
        with self._sink.errors():
            self._writer.close()

    def abort(self) -> None:
        """Close pyarrow's writer while its file is open; otherwise it would try to when it is collected."""
        self._held = []
        if self._writer is not None:
            with suppress(OSError, self._arrow.ArrowException):
                self._writer.close()

    def _open(self, strings: Mapping[str, bool]) -> None:
        arrow = self._arrow
        types = {"fingerprint": fingerprint_type(self._width), "distance": distance_type(self._width)}
        self._schema = arrow.schema(
            [
                (name, arrow.string() if strings.get(name) else types.get(kind, arrow.uint64()))
                for name, kind in self._columns.items()
            ]
        )
        # Fingerprints hardly repeat, so a dictionary of them would be discarded.
        repeated = [name for name, kind in self._columns.items() if kind != "fingerprint"]
        with self._sink.errors():
            self._writer = self._arrow.parquet.ParquetWriter(
                self._sink.file, self._schema, use_dictionary=repeated, write_batch_size=PAGE_STEP
            )

    def _flush(self) -> None:
        if self._held:
            table = self._arrow.Table.from_batches(self._held, schema=self._schema)
            self._held, self._held_rows, self._held_bytes = [], 0, 0
            with self._sink.errors():
                self._writer.write_table(table)
