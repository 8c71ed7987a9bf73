"""Parquet files, read and written by pyarrow, which is imported when the first one is opened."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Words
from fpstore.disk.refusals import refused
from fpstore.errors import InputError, MissingExtraError, StorageError
from fpstore.io.check import check_string_id, first_too_large, rows_of_array, too_large, wrong_width
from fpstore.io.columns import parse_texts
from fpstore.io.digits import read_digits
from fpstore.io.sink import Columns, Encoder, Sink
from fpstore.io.source import Batch, Fields, IdColumn, IdRule, InputFile, Source, at, located
from fpstore.string_column import StringColumn
from fpstore.width import WIDTH_64, WIDTHS, Width

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
        self._width, self._decimal = fields.width, fields.decimal
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
        types, width = self._arrow.types, self._width
        received = f"column {self._fingerprint_field!r} has type {column_type}"
        if types.is_signed_integer(column_type):
            raise InputError(
                f"{received}, fingerprints must be uint64; to keep the bits, "
                f'write it with table.column({self._fingerprint_field!r}).cast("uint64", safe=False)'
            )
        if self._is_text(column_type) or types.is_binary(column_type) or types.is_large_binary(column_type):
            return  # their lengths decide
        bits = 0
        if types.is_fixed_size_binary(column_type):
            bits = 8 * column_type.byte_width
        elif types.is_unsigned_integer(column_type):
            bits = column_type.bit_width
            if (width.bits, bits) == (32, 64):
                return  # their values decide
        if bits != width.bits:
            if bits in WIDTHS:
                raise InputError(f"{received}: {wrong_width('fingerprints', bits, '', width)}")
            kinds = (
                f"uint{width.bits}, " if width.words == 1 else ""
            ) + f"fixed_size_binary({width.bytes}), or strings of digits"
            raise InputError(f"{received}, fingerprints of {width.bits} bits must be {kinds}")

    def _is_text(self, column_type: Any) -> bool:
        return bool(self._arrow.types.is_string(column_type) or self._arrow.types.is_large_string(column_type))

    def _kind_of(self, column_type: Any) -> str:
        types = self._arrow.types
        if types.is_dictionary(column_type):
            column_type = column_type.value_type
        if types.is_integer(column_type):
            return "int"
        if self._is_text(column_type):
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
                    fingerprints = self._rows(batch.column(self._fingerprint_field), done)
                    ids = self._ids(batch.column(self._id_field), done, rule) if self.has_ids else None
                done += len(fingerprints)
                self.bytes_done = (self.bytes_total or 0) * done // max(self.rows or 0, 1)
                yield Batch(fingerprints, ids)

    def _rows(self, column: Any, done: int) -> Words:
        """Return the fingerprints of a column whose first has ``done`` before it."""
        types, width = self._arrow.types, self._width
        self._refuse_nulls(column, done, "fingerprint")
        if self._is_text(column.type):
            return self._rows_of_text(_string_column(column).texts(), done)
        if types.is_fixed_size_binary(column.type):
            data = np.frombuffer(column.buffers()[1] or b"", np.uint8)
            return width.from_bytes(data[column.offset * width.bytes : (column.offset + len(column)) * width.bytes])
        if not types.is_unsigned_integer(column.type):
            bounds, content = _pieces(column)
            other = np.flatnonzero(np.diff(bounds) != width.bytes)
            if len(other):
                size, row = int(np.diff(bounds)[other[0]]), done + int(other[0]) + 1
                if 8 * size in WIDTHS:
                    raise InputError(f"row {row}: {wrong_width('a fingerprint', 8 * size, '', width)}")
                raise InputError(f"row {row}: a fingerprint of {width.bits} bits has {width.bytes} bytes, got {size}")
            return width.from_bytes(np.frombuffer(content, np.uint8))
        values = column.to_numpy(zero_copy_only=False)
        large = first_too_large(values, width)
        if large is not None:
            raise InputError(f"row {done + large + 1}: the fingerprint does not fit: {too_large(int(values[large]), width)}")
        return rows_of_array(values, width)

    def _rows_of_text(self, texts: list[str], done: int) -> Words:
        rows = parse_texts(texts, self._decimal, self._width) if texts else self._width.empty(0)
        if rows is not None:
            return rows
        numbers = []
        for row, text in enumerate(texts, done + 1):
            try:
                numbers.append(read_digits(text, self._decimal, self._width))
            except InputError as error:
                raise InputError(f"row {row}: {error}") from None
        return self._width.rows(numbers)

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


def _pieces(array: Any) -> tuple[npt.NDArray[Any], bytes]:
    """Return where the values of an Arrow array of strings or bytes without nulls begin and end, and all of them joined."""
    _, offsets, data = array.buffers()
    kind = np.int64 if str(array.type).startswith("large_") else np.int32
    bounds = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1] if len(array) else np.zeros(1, kind)
    return bounds, data[int(bounds[0]) : int(bounds[-1])].to_pybytes() if bounds[-1] > bounds[0] else b""


def _string_column(array: Any) -> StringColumn:
    """Return the strings of an Arrow array of type string or large_string, which has no nulls."""
    bounds, content = _pieces(array)
    if not content.isascii():
        array.validate(full=True)  # not all that is in a file is UTF-8
    return StringColumn(content, (bounds[1:] - bounds[0]).astype(np.uint64))


class ParquetEncoder(Encoder):
    """Writes columns into a Parquet file, in row groups of a quarter of a million rows."""

    def __init__(self, sink: Sink, columns: Mapping[str, str], width: Width = WIDTH_64) -> None:
        if not sink.seekable:
            raise InputError("the Parquet format needs a file to write to")
        self._arrow, self._parquet = _pyarrow(sink.name)
        self._sink = sink
        self._columns = columns
        self._width = width
        self._writer: Any = None
        self._held: list[Any] = []
        self._held_rows = 0

    def write(self, data: Columns) -> None:
        """Append rows; the first ones decide whether a column of values holds integers or strings."""
        arrow = self._arrow
        if self._writer is None:
            self._open({name: isinstance(values, list) for name, values in data.items()})
        arrays = [
            self._array(values) if self._columns[name] == "fingerprint" else arrow.array(values) for name, values in data.items()
        ]
        self._held.append(arrow.record_batch(arrays, schema=self._schema))
        self._held_rows += len(arrays[0])
        if self._held_rows >= _GROUP_ROWS:
            self._flush()

    def _array(self, rows: Any) -> Any:
        if self._width.words == 1:
            return self._arrow.array(self._width.outside(rows))
        data = self._arrow.py_buffer(self._width.to_bytes(rows))
        return self._arrow.FixedSizeBinaryArray.from_buffers(self._fingerprint_type(), len(rows), [None, data])

    def _fingerprint_type(self) -> Any:
        if self._width.words > 1:
            return self._arrow.binary(self._width.bytes)
        return self._arrow.uint32() if self._width.bits == 32 else self._arrow.uint64()

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
        distance = arrow.uint8() if self._width.bits < 256 else arrow.uint16()
        types = {"fingerprint": self._fingerprint_type(), "distance": distance}
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
