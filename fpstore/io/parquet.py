"""Parquet files, read and written by pyarrow, which is imported when the first one is opened."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from fpstore.aliases import Words
from fpstore.disk.refusals import refused
from fpstore.errors import InputError, MissingExtraError, StorageError
from fpstore.io.check import check_string_id
from fpstore.io.sink import Columns, Encoder, Sink
from fpstore.io.source import Batch, Fields, IdColumn, IdRule, InputFile, Source, at, located
from fpstore.string_column import StringColumn

_GROUP_ROWS = 1 << 18


def _pyarrow(name: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(
            f"{name}: Parquet needs the package pyarrow: pip install 'fpstore[parquet]'", path=name
        ) from error
    return pyarrow, pyarrow.parquet


class ParquetSource(Source):
    """The fingerprint and id columns of a Parquet file, read in batches of rows."""

    def __init__(self, file: InputFile, fields: Fields, batch_rows: int) -> None:
        super().__init__(file)
        if file.size is None:
            raise at(self.name, None, "a Parquet input must be a regular file, because it is read from its end")
        self._arrow, self._parquet = _pyarrow(self.name)
        self._batch_rows = batch_rows
        with self._errors(), self._parquet.ParquetFile(file.path) as parquet:
            schema = parquet.schema_arrow
            self.rows = int(parquet.metadata.num_rows)
        self._fingerprint_field = fields.fingerprint or "fingerprint"
        self._id_field = fields.id or "id"
        with located(self.name):
            self._check_fingerprint_type(self._column_type(schema, self._fingerprint_field))
            self.has_ids = fields.id is not None or self._id_field in schema.names
            if self.has_ids:
                self._id_kind = self._kind_of(self._column_type(schema, self._id_field))

    def _column_type(self, schema: Any, name: str) -> Any:
        count = schema.names.count(name)
        if count != 1:
            what = "no column" if count == 0 else f"{count} columns"
            raise InputError(f"{what} named {name!r} (columns here: {', '.join(schema.names[:8])})")
        return schema.field(name).type

    def _check_fingerprint_type(self, column_type: Any) -> None:
        types = self._arrow.types
        name = self._fingerprint_field
        if types.is_signed_integer(column_type):
            raise InputError(
                f"column {name!r} has type {column_type}, fingerprints must be uint64; to keep the bits, "
                f'write it with table.column({name!r}).cast("uint64", safe=False)'
            )
        if not types.is_unsigned_integer(column_type):
            text = types.is_string(column_type) or types.is_large_string(column_type)
            hint = "; hexadecimal digits are read from .tsv, .csv and .jsonl files" if text else ""
            raise InputError(f"column {name!r} has type {column_type}, fingerprints must be uint64{hint}")

    def _kind_of(self, column_type: Any) -> str:
        types = self._arrow.types
        if types.is_dictionary(column_type):
            column_type = column_type.value_type
        if types.is_integer(column_type):
            return "int"
        if types.is_string(column_type) or types.is_large_string(column_type):
            return "str"
        raise InputError(f"column {self._id_field!r} has type {column_type}, ids must be integers or strings")

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield batches of rows in the order of the file."""
        names = [self._fingerprint_field, *([self._id_field] if self.has_ids else [])]
        done = 0
        with self._errors():
            parquet = self._parquet.ParquetFile(self.file.path)
        with parquet:
            rows = parquet.iter_batches(batch_size=self._batch_rows, columns=names)
            while True:
                with self._errors():
                    batch = next(rows, None)
                if batch is None:
                    return
                with located(self.name), self._errors():
                    rule.expect(bool(self.has_ids))
                    fingerprints = self._integers(batch.column(self._fingerprint_field), done, "fingerprint")
                    ids = self._ids(batch.column(self._id_field), done, rule) if self.has_ids else None
                done += len(fingerprints)
                self.bytes_done = (self.bytes_total or 0) * done // max(self.rows or 0, 1)
                yield Batch(fingerprints, ids)

    def _integers(self, column: Any, done: int, what: str) -> Words:
        self._refuse_nulls(column, done, what)
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "i" and len(values) and values.min() < 0:
            row = int(np.argmax(values < 0))
            raise InputError(f"row {done + row + 1}: the {what} {values[row]} is negative")
        return np.ascontiguousarray(values, dtype=np.uint64)

    def _refuse_nulls(self, column: Any, done: int, what: str) -> None:
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise InputError(f"row {done + row + 1}: the {what} is null")

    def _ids(self, column: Any, done: int, rule: IdRule) -> IdColumn:
        rule.expect_kind("int" if self._id_kind == "int" else "str")
        if self._arrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if self._id_kind == "int":
            integers = self._integers(column, done, "id")
            return integers if rule.kind == "int" else StringColumn.of([str(number) for number in integers.tolist()])
        self._refuse_nulls(column, done, "id")
        strings = _string_column(column)
        if rule.kind == "str" and strings.sizes.all():
            return strings
        parse = rule.integer if rule.kind == "int" else check_string_id
        values: list[Any] = []
        for row, text in enumerate(strings.texts(), done + 1):
            try:
                values.append(parse(text))
            except InputError as error:
                raise InputError(f"row {row}: {error}") from None
        return np.array(values, dtype=np.uint64) if rule.kind == "int" else StringColumn.of(values)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn pyarrow's errors about a broken file into one line."""
        try:
            yield
        except (InputError, StorageError):
            raise
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise refused(self.name, error) from error
            reason = (str(error).splitlines() or ["no reason given"])[0]
            raise at(self.name, None, f"not a readable Parquet file: {reason}") from error


def _string_column(array: Any) -> StringColumn:
    """Return the strings of an Arrow array of type string or large_string, which has no nulls."""
    _, offsets, data = array.buffers()
    kind = np.int32 if str(array.type) == "string" else np.int64
    bounds = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1] if len(array) else np.zeros(1, kind)
    content = data[int(bounds[0]) : int(bounds[-1])].to_pybytes() if bounds[-1] > bounds[0] else b""
    if not content.isascii():
        array.validate(full=True)  # not all that is in a file is UTF-8
    return StringColumn(content, (bounds[1:] - bounds[0]).astype(np.uint64))


class ParquetEncoder(Encoder):
    """Writes columns into a Parquet file, in row groups of a quarter of a million rows."""

    def __init__(self, sink: Sink, columns: Mapping[str, str]) -> None:
        if not sink.seekable:
            raise InputError("the Parquet format needs a file to write to")
        self._arrow, self._parquet = _pyarrow(sink.name)
        self._sink = sink
        self._columns = columns
        self._writer: Any = None
        self._held: list[Any] = []
        self._held_rows = 0

    def write(self, data: Columns) -> None:
        """Append rows; the first ones decide whether a column of values holds integers or strings."""
        arrow = self._arrow
        if self._writer is None:
            self._open({name: isinstance(values, list) for name, values in data.items()})
        arrays = [arrow.array(values) for values in data.values()]
        self._held.append(arrow.record_batch(arrays, schema=self._schema))
        self._held_rows += len(arrays[0])
        if self._held_rows >= _GROUP_ROWS:
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
        types = {"fingerprint": arrow.uint64(), "distance": arrow.uint8()}
        self._schema = arrow.schema(
            [
                (name, arrow.string() if strings.get(name) else types.get(kind, arrow.uint64()))
                for name, kind in self._columns.items()
            ]
        )
        # Fingerprints hardly repeat, so a dictionary of them would be discarded.
        repeated = [name for name, kind in self._columns.items() if kind != "fingerprint"]
        with self._sink.errors():
            self._writer = self._parquet.ParquetWriter(self._sink.file, self._schema, use_dictionary=repeated)

    def _flush(self) -> None:
        if self._held:
            table = self._arrow.Table.from_batches(self._held, schema=self._schema)
            self._held, self._held_rows = [], 0
            with self._sink.errors():
                self._writer.write_table(table)
