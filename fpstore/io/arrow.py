"""Columns of Arrow tables: as fingerprints and ids, and the other way. pyarrow is imported when the first one is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arrays import lims_of, spans
from fpstore.base.strings import StringColumn
from fpstore.base.width import WIDTH_64, WIDTHS, Width
from fpstore.errors import InputError
from fpstore.io.check import check_string_id, first_too_large, rows_of_array, unsigned
from fpstore.io.columns import parse_texts
from fpstore.io.digits import Digits, read_digits
from fpstore.io.packages import import_package
from fpstore.io.source import IdColumn, IdKind, IdRule
from fpstore.io.wrong_width import too_large, wrong_width


def import_pyarrow(name: str, what: str = "Parquet") -> Any:
    """Return pyarrow, with ``pyarrow.parquet`` loaded; MissingExtraError names the input or output that needs it."""
    import_package("pyarrow.parquet", what, name)
    return import_package("pyarrow", what, name)


def is_text(column_type: Any) -> bool:
    """Return whether an Arrow type is that of strings."""
    from pyarrow import types

    return bool(types.is_string(column_type) or types.is_large_string(column_type))


def is_ordered(column_type: Any) -> bool:
    """Return whether an Arrow type is that of numbers, or of times, which are numbers of a unit."""
    from pyarrow import types

    number = types.is_integer(column_type) or types.is_floating(column_type) or types.is_decimal(column_type)
    return bool(number or (types.is_temporal(column_type) and not types.is_interval(column_type)))


def integers_of_times(column: Any) -> Any:
    """Return an array of times as integers of their unit, and any other array as it is."""
    from pyarrow import types

    if not types.is_temporal(column.type):
        return column
    return column.view("int32" if column.type.bit_width == 32 else "int64")


def kept_rows(table: Any, kept: npt.NDArray[np.bool_]) -> Any:
    """Return some rows of a table or a record batch, with the types that its columns have."""
    import pyarrow

    schema, plain = table.schema, _without_views(table.schema)
    if plain == schema:
        return table.filter(pyarrow.array(kept))
    return with_schema(with_schema(table, plain).filter(pyarrow.array(kept)), schema)


def with_schema(table: Any, schema: Any) -> Any:
    """Return a table or a record batch with other types of its columns, also where only the values of a dictionary differ."""
    import pyarrow
    from pyarrow import types

    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        if types.is_dictionary(field.type) and column.type != field.type:  # pyarrow casts no dictionary of views
            chunks = column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]
            values = [
                pyarrow.DictionaryArray.from_arrays(
                    chunk.indices, chunk.dictionary.cast(field.type.value_type), ordered=field.type.ordered
                )
                for chunk in chunks
            ]
            column = pyarrow.chunked_array(values, field.type) if isinstance(column, pyarrow.ChunkedArray) else values[0]
        columns.append(column.cast(field.type))
    return type(table).from_arrays(columns, schema=schema)


def writable(schema: Any) -> Any:
    """Return a schema that Parquet takes: no dictionary has values of a view."""
    import pyarrow

    fields = [field.with_type(_seen(field.type)) if pyarrow.types.is_dictionary(field.type) else field for field in schema]
    return pyarrow.schema(fields, schema.metadata)


def plain_type(column_type: Any) -> Any:
    """Return the type of the values of a dictionary; of a view, as Polars makes of strings, the plain one; or the type itself."""
    import pyarrow

    return _seen(column_type.value_type if pyarrow.types.is_dictionary(column_type) else column_type)


def _seen(column_type: Any) -> Any:
    """Return the plain type of a view, a type with those of views in it, or the type itself."""
    import pyarrow
    from pyarrow import types

    views = {"string_view": pyarrow.large_string(), "binary_view": pyarrow.large_binary()}
    if types.is_dictionary(column_type):
        return pyarrow.dictionary(column_type.index_type, _seen(column_type.value_type), column_type.ordered)
    if types.is_struct(column_type):
        return pyarrow.struct([field.with_type(_seen(field.type)) for field in column_type])
    makers = ((types.is_list, pyarrow.list_), (types.is_large_list, pyarrow.large_list))
    for is_kind, make in makers:
        if is_kind(column_type):
            field = column_type.value_field
            return make(field.with_type(_seen(field.type)))
    return views.get(str(column_type), column_type)


def _without_views(schema: Any) -> Any:
    import pyarrow

    return pyarrow.schema([field.with_type(_seen(field.type)) for field in schema], schema.metadata)


def without_views(schema: Any) -> Any:
    """Return a schema whose columns are no views, of which pyarrow cannot take some rows.

    Raises
    ------
    InputError
        There is a column of another type of which it cannot.
    """
    import pyarrow

    schema = _without_views(schema)
    for field in schema:
        some = pyarrow.record_batch([pyarrow.nulls(2, field.type)], ["c"])
        try:
            some.filter(pyarrow.array([True, False]))
        except pyarrow.ArrowNotImplementedError:
            raise InputError(
                f"column {field.name!r} has type {field.type}, of which pyarrow cannot take some rows: leave it out"
            ) from None
    return schema


def cast_to(schema: Any, batch: Any) -> Any:
    """Return a record batch with the types that a schema has for its columns."""
    import pyarrow

    plain = pyarrow.schema([schema.field(name) for name in batch.schema.names])
    if batch.schema.equals(plain):
        return batch
    return pyarrow.Table.from_batches([batch]).cast(plain).combine_chunks().to_batches()[0]


def find_column(schema: Any, name: str) -> Any:
    """Return the type of a column; InputError names those there are."""
    count = schema.names.count(name)
    if count != 1:
        what = "no column" if count == 0 else f"{count} columns"
        raise InputError(f"{what} named {name!r} (columns here: {', '.join(schema.names[:8])})")
    return schema.field(name).type


class FingerprintColumns:
    """Turns Arrow arrays of fingerprints into rows.

    Parameters
    ----------
    name : str
        The column, for messages.
    width : Width
    decimal : bool
        Strings hold decimal digits.
    signed : bool
        Take int32 and int64, and decimal digits after a minus, as the bits of a fingerprint.
    """

    def __init__(self, name: str, width: Width = WIDTH_64, decimal: bool = False, signed: bool = False) -> None:
        self._name, self._width, self._signed = name, width, signed
        self._digits = Digits(width, decimal, signed)

    def check_type(self, column_type: Any) -> None:
        """Raise InputError for a type whose values cannot be fingerprints of the width."""
        from pyarrow import types

        width, received = self._width, f"column {self._name!r} has type {column_type}"
        column_type = plain_type(column_type)
        bits = 0
        if is_text(column_type) or types.is_binary(column_type) or types.is_large_binary(column_type):
            return  # their lengths decide
        if types.is_fixed_size_binary(column_type):
            bits = 8 * column_type.byte_width
        elif types.is_unsigned_integer(column_type) or (self._signed and types.is_signed_integer(column_type)):
            bits = column_type.bit_width
            if (width.bits, bits) == (32, 64):
                return  # their values decide
        elif types.is_signed_integer(column_type):
            how = f'write it with table.column({self._name!r}).cast("uint64", safe=False)'
            if width.words == 1:
                how += ", or read it with signed=True (--signed)"
            raise InputError(f"{received}, fingerprints must be uint64; to keep the bits, {how}")
        if bits == width.bits:
            return
        if bits in WIDTHS:
            raise InputError(f"{received}: {wrong_width('fingerprints', bits, '', width)}")
        integers = f"uint{width.bits}, " if width.words == 1 else ""
        kinds = f"{integers}fixed_size_binary({width.bytes}), or strings of digits"
        raise InputError(f"{received}, fingerprints of {width.bits} bits must be {kinds}")

    def rows(self, column: Any, done: int) -> Words:
        """Return the fingerprints of an array whose first value has ``done`` before it."""
        from pyarrow import types

        width, column = self._width, dense(column)
        refuse_nulls(column, done, "fingerprint")
        if is_text(column.type):
            return self._rows_of_text(string_column(column, done, "fingerprint").texts(), done)
        if types.is_fixed_size_binary(column.type):
            data = np.frombuffer(column.buffers()[1] or b"", np.uint8)
            return width.from_bytes(data[column.offset * width.bytes : (column.offset + len(column)) * width.bytes])
        if not types.is_integer(column.type):
            bounds, content = pieces(column)
            other = np.flatnonzero(np.diff(bounds) != width.bytes)
            if len(other):
                size, row = int(np.diff(bounds)[other[0]]), done + int(other[0]) + 1
                if 8 * size in WIDTHS:
                    raise InputError(f"row {row}: {wrong_width('a fingerprint', 8 * size, '', width)}")
                raise InputError(f"row {row}: a fingerprint of {width.bits} bits has {width.bytes} bytes, got {size}")
            return width.from_bytes(np.frombuffer(content, np.uint8))
        values = column.to_numpy(zero_copy_only=False)
        numbers = unsigned(values, width)
        large = first_too_large(numbers, width)
        if large is not None:
            raise InputError(f"row {done + large + 1}: the fingerprint does not fit: {too_large(int(values[large]), width)}")
        return rows_of_array(numbers, width)

    def _rows_of_text(self, texts: list[str], done: int) -> Words:
        rows = parse_texts(texts, self._digits) if texts else self._width.empty(0)
        if rows is not None:
            return rows
        numbers: list[int] = []
        for row, text in enumerate(texts, done + 1):
            try:
                numbers.append(read_digits(text, self._digits))
            except InputError as error:
                raise InputError(f"row {row}: {error}") from None
        return self._width.rows(numbers)


def id_kind(name: str, column_type: Any) -> IdKind:
    """Return whether a column of ids holds integers or strings; InputError if neither."""
    from pyarrow import types

    column_type = plain_type(column_type)
    if types.is_integer(column_type):
        return "int"
    if is_text(column_type):
        return "str"
    raise InputError(f"column {name!r} has type {column_type}, ids must be integers or strings")


def ids_of_column(column: Any, done: int, rule: IdRule) -> IdColumn:
    """Return the ids of an array whose first value has ``done`` before it."""
    column = dense(column)
    kind: IdKind = "str" if is_text(column.type) else "int"
    rule.expect_kind(kind)
    if kind == "int":
        integers = _integers(column, done, "id")
        return integers if rule.kind == "int" else StringColumn.of([str(number) for number in integers.tolist()])
    refuse_nulls(column, done, "id")
    strings = string_column(column, done, "id")
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


def dense(column: Any) -> Any:
    """Return an array of its :func:`plain_type`."""
    plain = plain_type(column.type)
    if hasattr(column, "dictionary"):  # pyarrow decodes no dictionary of views
        return column.dictionary.cast(plain).take(column.indices)
    return column if plain == column.type else column.cast(plain)


def _integers(column: Any, done: int, what: str) -> Words:
    refuse_nulls(column, done, what)
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "i" and len(values) and values.min() < 0:
        row = int(np.argmax(values < 0))
        raise InputError(f"row {done + row + 1}: the {what} {values[row]} is negative")
    return np.ascontiguousarray(values, dtype=np.uint64)


def refuse_nulls(column: Any, done: int, what: str) -> None:
    """Raise InputError that names the first null of an array whose first value has ``done`` before it."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"row {done + row + 1}: the {what} is null")


def pieces(array: Any) -> tuple[npt.NDArray[Any], bytes]:
    """Return where the values of an array of strings or bytes without nulls begin and end, and all of them joined."""
    bounds, data = _offsets(array), array.buffers()[2]
    return bounds, data[int(bounds[0]) : int(bounds[-1])].to_pybytes() if bounds[-1] > bounds[0] else b""


def _offsets(array: Any) -> npt.NDArray[Any]:
    kind = np.int64 if str(array.type).startswith("large_") else np.int32
    return np.frombuffer(array.buffers()[1], kind)[array.offset :][: len(array) + 1] if len(array) else np.zeros(1, kind)


def string_column(array: Any, done: int, what: str) -> StringColumn:
    """Return the strings of an array of type string or large_string, which has no nulls, and whose first has ``done`` before it.

    Raises
    ------
    InputError
        One is not UTF-8: not all that is in a file is.
    """
    bounds, content = pieces(array)
    strings = StringColumn(content, (bounds[1:] - bounds[0]).astype(np.uint64))
    try:
        if not content.isascii():
            array.validate(full=True)
    except ValueError:
        for row, string in enumerate(strings.tolist(), done + 1):
            try:
                string.decode()
            except UnicodeDecodeError as error:
                raise InputError(f"row {row}: the {what} is not valid UTF-8 ({error.reason})") from None
        raise
    return strings


def codes_of(column: Any) -> npt.NDArray[np.intp]:
    """Return which value of its dictionary each value of an array is; that of a null is the first."""
    codes: npt.NDArray[np.intp] = column.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.intp)
    return codes


def value_bytes(column: Any) -> npt.NDArray[np.int64]:
    """Return how many bytes each value of an array takes when it is decoded: of strings and bytes, its own; of others, a mean."""
    from pyarrow import types

    kind, count = column.type, len(column)
    if types.is_dictionary(kind):
        return np.append(value_bytes(column.dictionary), 0)[codes_of(column)]
    sizes: npt.NDArray[Any]
    if str(kind) in ("string_view", "binary_view") and count:
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)  # a length, then where the bytes are
        sizes = np.where(column.is_valid().to_numpy(zero_copy_only=False), views[column.offset :][:count, 0], 0)
    elif is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        sizes = np.diff(_offsets(column))
    else:
        sizes = np.full(count, column.nbytes // max(count, 1))
    return sizes.astype(np.int64)


def in_pieces(batch: Any, most: int, once: str | None = None) -> Iterator[tuple[int, Any]]:
    """Cut a batch into pieces that take at most so many bytes when they are decoded, with the row at which each begins.

    A longer row is alone. A dictionary, of which a value may be long and each row a byte, is not decoded before.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    most : int
    once : str, optional
        A column of which each distinct value is decoded once in a piece, if it has a dictionary.
    """
    from pyarrow import types

    shared = batch.column(once) if once is not None and types.is_dictionary(batch.schema.field(once).type) else None
    sizes = np.full(batch.num_rows, np.dtype(np.uint64).itemsize)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        sizes += 0 if shared is not None and name == once else value_bytes(column)
    for rows in spans(lims_of(sizes), most) if shared is None else _spans_of_distinct(shared, sizes, most):
        yield rows.start, batch.slice(rows.start, rows.stop - rows.start)


def _spans_of_distinct(column: Any, others: npt.NDArray[np.int64], most: int) -> Iterator[slice]:
    """Yield slices of rows that take at most so many bytes when the values of a dictionary are decoded once in each."""
    codes, sizes = codes_of(column), value_bytes(column)
    order = np.argsort(codes, kind="stable")
    before = np.full(len(codes), -1)  # the row before that has the same value
    before[order[1:]] = np.where(np.diff(codes[order]), -1, order[:-1])
    start = 0
    while start < len(codes):
        new = np.where(before[start:] < start, sizes[start:], 0)
        rows = next(spans(lims_of(new + others[start:]), most))
        yield slice(start, start := start + rows.stop)


def distinct_texts(column: Any) -> tuple[list[str], npt.NDArray[np.intp] | None]:
    """Return the texts of an array, and which of them is that of each row: None if it has no dictionary."""
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return dense(column).to_pylist(), None
    used, which = np.unique(codes_of(column), return_inverse=True)
    return dense(column.dictionary).take(_array(used)).to_pylist(), which


def _array(values: npt.NDArray[Any]) -> Any:
    import pyarrow

    return pyarrow.array(values)


def fingerprint_type(width: Width) -> Any:
    """Return the Arrow type of fingerprints: uint32, uint64, or above fixed_size_binary."""
    import pyarrow

    if width.words > 1:
        return pyarrow.binary(width.bytes)
    return pyarrow.uint32() if width.bits == 32 else pyarrow.uint64()


def fingerprint_array(rows: Any, width: Width) -> Any:
    """Return rows as an Arrow array."""
    import pyarrow

    if width.words == 1:
        return pyarrow.array(width.outside(rows))
    data = pyarrow.py_buffer(width.to_bytes(rows))
    return pyarrow.FixedSizeBinaryArray.from_buffers(fingerprint_type(width), len(rows), [None, data])


def distance_type(width: Width) -> Any:
    """Return the Arrow type of distances."""
    import pyarrow

    return pyarrow.uint8() if width.bits < 256 else pyarrow.uint16()
