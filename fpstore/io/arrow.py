"""Columns of Arrow tables as rows, and back; pyarrow is imported at the first use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Array, Flags, Words
from fpstore.base.arguments import MAX_ID_BYTES
from fpstore.base.arrays import list_lims, order_keys, spans
from fpstore.base.keywords import keyword
from fpstore.base.strings import StringColumn, TextColumn
from fpstore.base.width import WIDTHS, Width
from fpstore.errors import InputError
from fpstore.io.check import first_too_large, rows_of_array, unsigned
from fpstore.io.digits import too_large, wrong_width
from fpstore.io.files import error_location, input_error
from fpstore.io.labels import NULL, Labels
from fpstore.io.messages import CONTENT_NAMES, NOT_EDITED, ROLE_NAMES
from fpstore.io.packages import import_package
from fpstore.io.source import (
    Batch,
    IdColumn,
    IdRule,
    Projection,
    RowError,
    column_fingerprints,
    column_ids,
    column_keys,
    column_problem,
    column_scores,
    convert_values,
    text_values,
)
from fpstore.io.tables import arrow_array


def import_pyarrow(name: str, user: str = "Parquet") -> Any:
    """Return pyarrow, with ``pyarrow.parquet`` loaded.

    MissingExtraError names the input or output that needs it.
    """
    import_package("pyarrow.parquet", user, name)
    return import_package("pyarrow", user, name)


def is_text(column_type: Any) -> bool:
    """Return whether an Arrow type is string or large_string."""
    from pyarrow import types

    return bool(types.is_string(column_type) or types.is_large_string(column_type))


def filter_rows(table: Any, flags: Flags) -> Any:
    """Return the rows of a table or a record batch whose flags are set; types stay."""
    schema, plain = table.schema, _schema_without_views(table.schema)
    if plain == schema:
        return table.filter(arrow_array(flags))
    return table.cast(plain).filter(arrow_array(flags)).cast(schema)


def with_texts(batch: Any, column: str, texts: list[str | None], flags: Flags, schema: Any) -> Any:
    """Return the flagged rows of a record batch, cast to a schema, with new texts in a column."""
    import pyarrow

    plain, path = batch.cast(_schema_without_views(batch.schema)), field_path(schema, column)
    index = batch.schema.get_field_index(path[0])
    new = _with_values(
        plain.column(index), path[1:], pyarrow.array(texts, plain_type(find_column(schema, column)))
    )
    field = schema.field(path[0]).with_type(new.type)
    return align_to_schema(filter_rows(plain.set_column(index, field, new), flags), schema)


def common_type(column_types: Iterable[Any]) -> Any:
    """Return the type that a column of several types is promoted to; None if there is none.

    Null, dictionaries and views become the type of the others, small numbers that of larger ones,
    and a string stays a string.
    """
    import pyarrow
    from pyarrow import types

    distinct = list(
        dict.fromkeys(column_type for column_type in column_types if not types.is_null(column_type))
    )
    if len(distinct) > 1:
        distinct = list(dict.fromkeys(map(plain_type, distinct)))
    if len(distinct) < 2:
        return distinct[0] if distinct else pyarrow.null()
    if 0 < sum(map(is_text, distinct)) < len(distinct):
        return None
    try:
        both = [pyarrow.schema([("", column_type)]) for column_type in distinct]
        return pyarrow.unify_schemas(both, promote_options="permissive").field(0).type
    except (pyarrow.ArrowTypeError, pyarrow.ArrowInvalid):
        return None


def kinds_of_numbers(column_types: Iterable[Any]) -> set[str]:
    """Return the kinds of numbers: "unsigned", "signed", "float" or "decimal"."""
    from pyarrow import types

    kinds = {
        "unsigned": types.is_unsigned_integer,
        "signed": types.is_signed_integer,
        "float": types.is_floating,
        "decimal": types.is_decimal,
    }
    plain_types = list(map(plain_type, column_types))
    return {kind for kind, is_kind in kinds.items() if any(map(is_kind, plain_types))}


def unified_schema(schemas: Sequence[Any], names: Sequence[str]) -> Any:
    """Return the schema that has the columns of all files.

    InputError for a column whose types do not agree.
    """
    import pyarrow

    fields = list[Any]()
    for name in dict.fromkeys(name for schema in schemas for name in schema.names):
        places = [place for place, schema in enumerate(schemas) if name in schema.names]
        for place in places:
            with error_location(names[place]):
                find_column(schemas[place], name)
        columns = [schemas[place].field(name) for place in places]
        common = common_type(field.type for field in columns)
        if common is None:
            raise type_conflict_error(
                name, [field.type for field in columns], [names[place] for place in places]
            )
        nullable = len(places) < len(schemas) or any(field.nullable for field in columns)
        fields.append(columns[0].with_type(common).with_nullable(nullable))
    return pyarrow.schema(fields, schemas[0].metadata)


def type_conflict_error(name: str, column_types: Sequence[Any], names: Sequence[str]) -> InputError:
    """Return the error for a column whose types in the files no type holds."""
    place = next(
        place for place in range(1, len(names)) if common_type(column_types[: place + 1]) is None
    )
    first = next(
        n
        for n in range(place)
        if common_type([column_types[n], column_types[place]]) is None or n == place - 1
    )
    message = (
        f"the column {name!r} is {column_types[place]} here, and {column_types[first]} in "
        f"{names[first]}"
    )
    return input_error(names[place], None, f"{message}: make them alike, or leave the column out")


def align_to_schema(batch: Any, schema: Any) -> Any:
    """Return a record batch with the columns of a schema; types are promoted to its types."""
    import pyarrow

    try:
        if batch.schema.names == schema.names:
            return batch.cast(schema)
        columns = list[Any]()
        for field in schema:
            index = batch.schema.get_field_index(field.name)
            column = pyarrow.nulls(batch.num_rows, field.type) if index < 0 else batch.column(index)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pyarrow.RecordBatch.from_arrays(columns, schema=schema)
    except pyarrow.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"a value does not fit the type that its column has in all files: {reason}"
        ) from error


def promoted_schema(schema: Any, promoted: Mapping[str, Any]) -> Any:
    for name, column_type in promoted.items():
        schema = schema.set(schema.names.index(name), schema.field(name).with_type(column_type))
    return schema


def with_types(batch: Any, promoted: Mapping[str, Any]) -> Any:
    return align_to_schema(batch, promoted_schema(batch.schema, promoted)) if promoted else batch


def parquet_schema(schema: Any) -> Any:
    """Return a schema that Parquet takes: no dictionary has values of a view."""
    import pyarrow

    fields = [
        field.with_type(_replace_views(field.type))
        if pyarrow.types.is_dictionary(field.type)
        else field
        for field in schema
    ]
    return pyarrow.schema(fields, schema.metadata)


def plain_type(column_type: Any) -> Any:
    """Return a type without dictionaries and views; Polars has views of strings."""
    import pyarrow

    return _replace_views(
        column_type.value_type if pyarrow.types.is_dictionary(column_type) else column_type
    )


def _replace_views(column_type: Any) -> Any:
    import pyarrow
    from pyarrow import types

    views = {"string_view": pyarrow.large_string(), "binary_view": pyarrow.large_binary()}
    if types.is_dictionary(column_type):
        return pyarrow.dictionary(
            column_type.index_type, _replace_views(column_type.value_type), column_type.ordered
        )
    if types.is_struct(column_type):
        return pyarrow.struct(
            [field.with_type(_replace_views(field.type)) for field in column_type]
        )
    makers = ((types.is_list, pyarrow.list_), (types.is_large_list, pyarrow.large_list))
    for is_kind, make in makers:
        if is_kind(column_type):
            field = column_type.value_field
            return make(field.with_type(_replace_views(field.type)))
    return views.get(str(column_type), column_type)


def _schema_without_views(schema: Any) -> Any:
    import pyarrow

    return pyarrow.schema(
        [field.with_type(_replace_views(field.type)) for field in schema], schema.metadata
    )


def without_views(schema: Any) -> Any:
    """Return a schema whose columns are no views.

    InputError for a type whose columns pyarrow cannot filter.
    """
    import pyarrow

    schema = _schema_without_views(schema)
    for field in schema:
        sample = pyarrow.record_batch([pyarrow.nulls(2, field.type)], ["c"])
        try:
            sample.filter(arrow_array(np.array([True, False])))
        except pyarrow.ArrowNotImplementedError:
            raise InputError(
                f"column {field.name!r} has type {field.type}; pyarrow cannot take some rows of "
                "this type: leave the column out"
            ) from None
    return schema


def find_column(schema: Any, name: str) -> Any:
    """Return the type of a column, or of a field in a struct.

    InputError if there is none or several of the name, with the names of some columns.
    """
    if len(path := field_path(schema, name)) > 1:
        return _field_at(schema, path).type
    if problem := column_problem(name, schema.names, list(_inner_names(schema))):
        raise InputError(problem)
    return schema.field(name).type


def field_path(fields: Any, name: str) -> list[str]:
    """Return the names of a column, of the struct in it, and so on, up to the field of a name.

    ``fields`` is a schema or a struct. The list is empty if there is no such field.
    """
    from pyarrow import types

    names = [field.name for field in fields]
    if name in names:
        return [name]
    outer, dot, inner = name.partition(".")
    if not dot or names.count(outer) != 1 or not types.is_struct(fields.field(outer).type):
        return []
    path = field_path(fields.field(outer).type, inner)
    return [outer, *path] if path else []


def _field_at(fields: Any, path: Sequence[str]) -> Any:
    field = fields.field(path[0])
    return field if len(path) == 1 else _field_at(field.type, path[1:])


def _inner_names(fields: Any, prefix: str = "") -> Iterator[str]:
    """Yield the names of the fields in structs."""
    from pyarrow import types

    for field in fields:
        if prefix:
            yield f"{prefix}{field.name}"
        if types.is_struct(field.type):
            yield from _inner_names(field.type, f"{prefix}{field.name}.")


def fields_schema(schema: Any, names: Sequence[str]) -> Any:
    """Return a schema with a column for each field in a struct that is named."""
    for name in names:
        if len(path := field_path(schema, name)) > 1:
            schema = schema.append(_field_at(schema, path).with_name(name).with_nullable(True))
    return schema


def read_fields(batch: Any, names: Sequence[str]) -> Any:
    """Return some columns of a record batch, and fields in structs as columns."""
    import pyarrow
    from pyarrow import compute

    columns = list[Any]()
    for name in names:
        outer, *inner = field_path(batch.schema, name)
        column = batch.column(outer)
        columns.append(compute.struct_field(column, inner) if inner else column)
    fields = fields_schema(batch.schema, names)
    return pyarrow.RecordBatch.from_arrays(
        columns, schema=pyarrow.schema([fields.field(name) for name in names])
    )


def with_field_type(fields: Any, path: Sequence[str], field_type: Any) -> Any:
    """Return a schema or a struct in which a field has another type."""
    import pyarrow

    field = fields.field(path[0])
    if len(path) > 1:
        field_type = with_field_type(field.type, path[1:], field_type)
    changed = [field.with_type(field_type) if f.name == field.name else f for f in fields]
    if isinstance(fields, pyarrow.Schema):
        return pyarrow.schema(changed, fields.metadata)
    return pyarrow.struct(changed)


def _with_values(column: Any, path: Sequence[str], values: Any) -> Any:
    """Return an array of structs in which a field has other values."""
    import pyarrow

    if not path:
        return values
    fields = list(column.type)
    columns = [column.field(number) for number in range(len(fields))]
    place = [field.name for field in fields].index(path[0])
    columns[place] = _with_values(columns[place], path[1:], values)
    return pyarrow.StructArray.from_arrays(
        columns,
        fields=[field.with_type(inner.type) for field, inner in zip(fields, columns, strict=True)],
        mask=column.is_null(),
    )


class ArrowColumns:
    """Turns record batches of a schema without views into rows.

    InputError for a column that is missing, or of another type. A column of type null is read as a
    column of a type that its values could have.
    """

    def __init__(self, schema: Any, projection: Projection) -> None:
        import pyarrow
        from pyarrow import types

        self._projection = projection
        self._null_types = dict[str, Any]()  # types for columns of type null

        def plain(name: str, content: str, null_type: Any) -> Any:
            column_type = plain_type(find_column(schema, name))
            if not types.is_null(column_type):
                return column_type
            self._null_types[content] = null_type
            return null_type

        for name in projection.texts:
            column_type = plain(name, "text", pyarrow.string())
            if not is_text(column_type) and (projection.edits_texts or not has_parts(column_type)):
                advice = f": {NOT_EDITED}" if has_parts(column_type) else ""
                raise InputError(
                    f"column {name!r} has type {column_type}, texts must be strings{advice}"
                )
        if projection.fingerprint is not None:
            column_type = plain(
                projection.fingerprint, "fingerprint", fingerprint_type(projection.width)
            )
            _check_fingerprint_type(projection, column_type, schema)
        if projection.id is not None:
            column_type = plain(projection.id, "id", pyarrow.uint64())
            if not types.is_integer(column_type) and not is_text(column_type):
                raise InputError(
                    f"column {projection.id!r} has type {column_type}, ids must be integers or "
                    "strings"
                )
        if projection.vector is not None:
            check_lists(find_column(schema, projection.vector))
        if projection.score is not None:
            column_type = plain(projection.score, "score", pyarrow.int64())
            is_number = (
                types.is_integer(column_type)
                or types.is_floating(column_type)
                or types.is_decimal(column_type)
            )
            is_time = types.is_temporal(column_type) and not types.is_interval(column_type)
            if not is_number and not is_time:
                raise InputError(
                    f"column {projection.score!r} has type {column_type}, scores must be numbers "
                    "or times"
                )
        keys = () if projection.key is None else (projection.key,)
        for name in (*keys, *projection.labels):
            column_type = plain_type(find_column(schema, name))
            if not (
                types.is_null(column_type) or types.is_integer(column_type) or is_text(column_type)
            ):
                raise InputError(
                    f"column {name!r} has type {column_type}, its values must be strings or "
                    "integers"
                )

    def rows(self, batch: Any, name: str, done: int, rule: IdRule | None) -> Batch:
        """Return the rows of a batch; ``done`` rows of the file come before it."""
        projection = self._projection
        known = np.ones(batch.num_rows, bool)
        for group in projection.needed:
            known &= np.logical_or.reduce([_is_valid(batch.column(column)) for column in group])
        places = np.flatnonzero(known)

        def row_error(place: int, message: str) -> InputError:
            return input_error(name, None, f"row {done + int(places[place]) + 1}: {message}")

        labels = tuple(
            _labels(to_plain(batch.column(column)), column, name, done)
            for column in projection.labels
        )
        if not known.all():
            batch = filter_rows(batch, known)
        rows = Batch(known=known, row_error=row_error, labels=labels)
        if isinstance(projection.text, tuple):
            columns: list[Sequence[Any]] = [
                _texts(to_plain(batch.column(column)), column, projection, row_error)[0]
                for column in projection.text
            ]
            rows = rows._replace(texts=list(zip(*columns, strict=True)))
        elif projection.text is not None:
            texts, text_of_row = _texts(
                batch.column(projection.text), projection.text, projection, row_error
            )
            rows = rows._replace(texts=texts, text_of_row=text_of_row)
        if projection.fingerprint is not None:
            column = self._dense_column(batch, projection.fingerprint, "fingerprint")
            rows = rows._replace(fingerprints=_fingerprints(column, projection, row_error))
        if projection.id is not None:
            column = self._dense_column(batch, projection.id, "id")
            # a column without values does not decide the type of ids
            deciding = None if "id" in self._null_types else rule
            rows = rows._replace(ids=_ids(column, deciding, row_error))
        if projection.vector is not None:
            with error_location(name):
                vectors = array_of_lists(batch.column(projection.vector), done)
            rows = rows._replace(vectors=vectors)
        if projection.score is not None:
            column = self._dense_column(batch, projection.score, "score")
            rows = rows._replace(scores=_scores(column, projection, row_error))
        if projection.key is not None:
            values = to_plain(batch.column(projection.key)).to_pylist()
            keys = column_keys(values, projection.key, projection.key_rule, row_error)
            rows = rows._replace(keys=keys)
        return rows

    def _dense_column(self, batch: Any, name: str, content: str) -> Any:
        column = to_plain(batch.column(name))
        null_type = self._null_types.get(content)
        return column if null_type is None else column.cast(null_type)


def _check_fingerprint_type(projection: Projection, column_type: Any, schema: Any) -> None:
    """Raise InputError for a plain type whose values cannot be fingerprints."""
    from pyarrow import types

    name, width = str(projection.fingerprint), projection.width
    received = f"column {name!r} has type {schema.field(name).type}"
    if is_text(column_type) or types.is_binary(column_type) or types.is_large_binary(column_type):
        return  # their lengths decide
    if types.is_signed_integer(column_type) and not projection.signed:
        how = f'write it with table.column({name!r}).cast("uint64", safe=False)'
        if width.words == 1:
            how += f", or read it with {keyword('signed', True)}"
        raise InputError(f"{received}, fingerprints must be uint64; to keep the bits, {how}")
    is_integer = types.is_integer(column_type)
    bits = column_type.bit_width if is_integer or types.is_fixed_size_binary(column_type) else 0
    # whether 64 bits fit into 32 is decided by the values
    if bits == width.bits or (is_integer and (width.bits, bits) == (32, 64)):
        return
    if bits in WIDTHS:
        raise InputError(f"{received}: {wrong_width('fingerprints', bits, '', width)}")
    integers = f"uint{width.bits}, " if width.words == 1 else ""
    kinds = f"{integers}fixed_size_binary({width.bytes}), or strings of digits"
    raise InputError(f"{received}, fingerprints of {width.bits} bits must be {kinds}")


def _fingerprints(column: Any, projection: Projection, row_error: RowError) -> Words:
    from pyarrow import types

    width = projection.width
    refuse_nulls(column, "fingerprint", row_error)
    if is_text(column.type):
        return column_fingerprints(
            string_column(column, "fingerprint", row_error).texts(), projection.digits, row_error
        )
    if types.is_fixed_size_binary(column.type):
        data = np.frombuffer(column.buffers()[1] or b"", np.uint8)
        return width.from_bytes(
            data[column.offset * width.bytes : (column.offset + len(column)) * width.bytes]
        )
    if not types.is_integer(column.type):
        bounds, content = joined_values(column)
        odd = np.flatnonzero(np.diff(bounds) != width.bytes)
        if len(odd):
            size = int(np.diff(bounds)[odd[0]])
            message = f"a fingerprint of {width.bits} bits has {width.bytes} bytes, got {size}"
            raise row_error(
                int(odd[0]),
                wrong_width("a fingerprint", 8 * size, "", width)
                if 8 * size in WIDTHS
                else message,
            )
        return width.from_bytes(np.frombuffer(content, np.uint8))
    values = plain_values(column)
    numbers = unsigned(values, width)
    large = first_too_large(numbers, width)
    if large is not None:
        raise row_error(
            large, f"the fingerprint does not fit: {too_large(int(values[large]), width)}"
        )
    return rows_of_array(numbers, width)


def _ids(column: Any, rule: IdRule | None, row_error: RowError) -> IdColumn:
    refuse_nulls(column, "id", row_error)
    if not is_text(column.type):
        values = plain_values(column)
        if values.dtype.kind == "i" and len(values) and values.min() < 0:
            row = int(np.argmax(values < 0))
            raise row_error(row, f"the id {values[row]} is negative")
        integers = np.ascontiguousarray(values, dtype=np.uint64)
        return integers if rule is None else rule.unify_type(integers, row_error)
    strings = string_column(column, "id", row_error)
    sizes = strings.sizes
    if len(sizes) and not (sizes.all() and sizes.max() <= MAX_ID_BYTES):
        return column_ids(strings.texts(), rule, row_error)  # which names the row
    return strings if rule is None else rule.unify_type(strings, row_error)


def _scores(column: Any, projection: Projection, row_error: RowError) -> Words:
    from pyarrow import types

    if types.is_temporal(column.type):
        # integers of the unit
        column = column.view("int32" if column.type.bit_width == 32 else "int64")
    plain = str(column.type).removeprefix("u").startswith(("int", "float", "double"))
    if plain and not projection.alike_scores:  # all batches have this type
        is_valid, values = plain_values(column.is_valid()), plain_values(column)
        if not np.isnan(values).any():  # below, an error names the row
            return np.stack(
                [is_valid.astype(np.uint64), np.where(is_valid, order_keys(values), np.uint64(0))],
                axis=1,
            )
    return column_scores(column.to_pylist(), str(projection.score), row_error)


def has_parts(column_type: Any) -> bool:
    """Return whether a type has texts in several parts: lists of strings, or of messages."""
    from pyarrow import types

    column_type = plain_type(column_type)
    if not (types.is_list(column_type) or types.is_large_list(column_type)):
        return False
    item = plain_type(column_type.value_type)
    names = {field.name for field in item} if types.is_struct(item) else set()
    return is_text(item) or bool(names & set(ROLE_NAMES) and names & set(CONTENT_NAMES))


def _labels(column: Any, name: str, file: str, done: int) -> Labels:
    """Return the labels of a plain array; ``done`` rows of the file come before it."""
    import pyarrow

    if not is_text(column.type):
        column = column.cast(pyarrow.string())
    encoded = column.dictionary_encode()
    values = string_column(
        encoded.dictionary,
        name,
        lambda value, message: input_error(
            file,
            None,
            f"row {done + 1 + int(np.argmax(dictionary_codes(encoded) == value))}: {message}",
        ),
    )
    codes = dictionary_codes(encoded) + 1
    codes[~_is_valid(encoded)] = NULL
    return Labels(values, codes.astype(np.uint32))


def _texts(
    column: Any, name: str, projection: Projection, row_error: RowError
) -> tuple[Sequence[Any], npt.NDArray[np.intp] | None]:
    """Return the texts of an array, and which of them each row has; None without a dictionary."""
    from pyarrow import types

    def named_error(place: int, message: str) -> InputError:
        return row_error(place, f"{name}: {message}")

    def texts(values: Any) -> Sequence[Any]:
        if not is_text(values.type) or projection.roles:
            return text_values(values.to_pylist(), name, projection, named_error)
        if not values.null_count:
            return TextColumn(string_column(values, "text", named_error))
        string_column(values.fill_null(""), "text", named_error)  # which refuses what is not UTF-8
        return values.to_pylist()  # type: ignore[no-any-return]

    if not types.is_dictionary(column.type) or column.null_count or projection.roles:
        return texts(to_plain(column)), None
    used, which = np.unique(dictionary_codes(column), return_inverse=True)
    try:
        return texts(to_plain(column.dictionary).take(arrow_array(used))), which
    except InputError:  # of a value of the dictionary: the first row that has it is named
        string_column(to_plain(column).fill_null(""), "text", named_error)
        raise


def _is_valid(column: Any) -> Flags:
    """Return which values are not null, also of a dictionary with a null among its values."""
    is_valid: Flags = plain_values(column.is_valid())
    if getattr(getattr(column, "dictionary", None), "null_count", 0):
        values = plain_values(column.dictionary.is_valid())
        is_valid = is_valid & values[dictionary_codes(column)]
    return is_valid


def to_plain(column: Any) -> Any:
    """Return an array of its :func:`plain_type`."""
    plain = plain_type(column.type)
    if hasattr(column, "dictionary"):  # pyarrow decodes no dictionary of views
        return column.dictionary.cast(plain).take(column.indices)
    return column if plain == column.type else column.cast(plain)


def refuse_nulls(column: Any, noun: str, row_error: RowError) -> None:
    """Raise InputError for the first null of an array."""
    if column.null_count:
        raise row_error(int(np.argmax(plain_values(column.is_null()))), f"the {noun} is null")


def plain_values(array: Any) -> npt.NDArray[Any]:
    """Return the values of an array of numbers or flags, with 0 for a null.

    ``to_numpy`` of the array would import pandas, which takes longer than a small job.
    """
    from pyarrow import types

    data, rows = array.buffers()[1] or b"", slice(array.offset, array.offset + len(array))
    if types.is_boolean(array.type):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        values = bits[rows].view(bool)
    else:
        values = np.frombuffer(data, array.type.to_pandas_dtype())[rows]
    if not array.null_count:
        return values
    return np.where(plain_values(array.is_valid()), values, values.dtype.type(0))


def joined_values(array: Any) -> tuple[npt.NDArray[Any], bytes]:
    """Return the bounds of the values in an array of strings or bytes, and their joined bytes.

    The array has no nulls.
    """
    bounds, data = _offsets(array), array.buffers()[2]
    start, end = int(bounds[0]), int(bounds[-1])
    return bounds, b"" if data is None else _kernel.copy_bytes(data, start, end)


def _offsets(array: Any) -> npt.NDArray[Any]:
    kind = np.int64 if str(array.type).startswith("large_") else np.int32
    return (
        np.frombuffer(array.buffers()[1], kind)[array.offset :][: len(array) + 1]
        if len(array)
        else np.zeros(1, kind)
    )


def string_column(array: Any, noun: str, row_error: RowError) -> StringColumn:
    """Return the strings of an array of type string or large_string without nulls.

    InputError for one that is not UTF-8.
    """
    bounds, content = joined_values(array)
    strings = StringColumn(content, (bounds[1:] - bounds[0]).astype(np.uint64))
    try:
        if not content.isascii():
            array.validate(full=True)  # not all that is in a file is UTF-8
    except ValueError:
        convert_values(strings.tolist(), partial(_decode, noun), row_error)
        raise
    return strings


def _decode(noun: str, string: bytes) -> str:
    try:
        return string.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"the {noun} is not valid UTF-8 ({error.reason})") from None


def dictionary_codes(column: Any) -> npt.NDArray[np.intp]:
    """Return which value of its dictionary each value of an array is; a null is the first."""
    return plain_values(column.indices).astype(np.intp)


def value_bytes(column: Any) -> npt.NDArray[np.int64]:
    """Return how many bytes each value of an array takes when it is decoded.

    Strings and bytes are counted one by one; other types have a mean.
    """
    from pyarrow import types

    kind, count = column.type, len(column)
    if types.is_dictionary(kind):
        return np.append(value_bytes(column.dictionary), 0)[dictionary_codes(column)]
    sizes: npt.NDArray[Any]
    if str(kind) in ("string_view", "binary_view") and count:
        # a length, then where the bytes are
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
        sizes = np.where(plain_values(column.is_valid()), views[column.offset :][:count, 0], 0)
    elif is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        sizes = np.diff(_offsets(column))
    else:
        sizes = np.full(count, column.nbytes // max(count, 1))
    return sizes.astype(np.int64)


def cut_pieces(batch: Any, most: int) -> Iterator[tuple[int, Any]]:
    """Cut a batch into pieces of bounded size after decoding, with the first row of each piece.

    A longer row is alone.

    A dictionary is not decoded before: a value may be long, and each row a byte.
    """
    sizes = np.full(batch.num_rows, np.dtype(np.uint64).itemsize)
    for column in batch.columns:
        sizes += value_bytes(column)
    for rows in spans(list_lims(sizes), most):
        yield rows.start, batch.slice(rows.start, rows.stop - rows.start)


def arrays_of_column(column: Any, rows: int) -> Iterator[Array]:
    """Yield the vectors of an array of Arrow in parts, without copies where there are no nulls."""
    done = 0
    for chunk in getattr(column, "chunks", [column]):
        for start in range(0, len(chunk), rows):
            part = chunk.slice(start, rows)
            yield array_of_lists(part, done)
            done += len(part)


def check_lists(column_type: Any) -> None:
    """Raise InputError for an Arrow type other than lists of numbers."""
    from pyarrow import types

    kinds = (types.is_floating, types.is_integer, types.is_boolean)
    is_list = (
        types.is_fixed_size_list(column_type)
        or types.is_list(column_type)
        or types.is_large_list(column_type)
    )
    if not is_list or not any(is_kind(column_type.value_type) for is_kind in kinds):
        raise InputError(
            f"vectors must be lists of numbers, got a column of type {column_type}",
            argument="vectors",
        )


def array_of_lists(column: Any, done: int) -> Array:
    """Return an array of lists of numbers as an array of two dimensions.

    ``done`` vectors come before it.
    """
    from pyarrow import compute

    check_lists(column.type)
    refuse_nulls(
        column,
        "",
        lambda place, _: InputError(f"vector {done + place}: is null: leave such rows out"),
    )
    sizes = np.asarray(compute.list_value_length(column))
    size = int(sizes[0]) if len(sizes) else 0
    odd = np.flatnonzero(sizes != size)
    if len(odd):
        raise InputError(
            f"vector {done + int(odd[0])}: has {int(sizes[odd[0]])} numbers, and vector "
            f"{done} has {size}: "
            "all must have as many as one another"
        )
    numbers = column.flatten()
    hole = "holds a null: vectors have a number in every place"
    refuse_nulls(numbers, "", lambda place, _: InputError(f"vector {done + place // size}: {hole}"))
    array: Array = plain_values(numbers).reshape(len(column), size)
    return array


def fingerprint_type(width: Width) -> Any:
    """Return the Arrow type of fingerprints: uint32, uint64, or above fixed_size_binary."""
    import pyarrow

    if width.words > 1:
        return pyarrow.binary(width.bytes)
    return pyarrow.uint32() if width.bits == 32 else pyarrow.uint64()


def fingerprint_array(rows: Any, width: Width) -> Any:
    return arrow_array(width.to_array(rows))


def distance_type(width: Width) -> Any:
    import pyarrow

    return pyarrow.uint8() if width.bits < 256 else pyarrow.uint16()
