"""Rows in another format than they were read in.

JSON lines as Parquet, delimited text as both, Parquet and tables as JSON lines.

Types are kept, and what the other format cannot hold is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fpstore.base.aliases import Flags, Progress
from fpstore.base.arguments import printable
from fpstore.errors import InputError
from fpstore.io.arrow import check_json_type, flagged_rows, import_pyarrow, in_pieces
from fpstore.io.files import at, located
from fpstore.io.lines import LineRows
from fpstore.io.parquet import BATCH_BYTES, ParquetRows, TableRows, write_batches
from fpstore.io.sink import Complete, Sink
from fpstore.io.source import RowFlags, RowSource, suffix_of

#: Extensions of the formats that rows of a format can be written in.
TARGETS = {
    ".parquet": (".parquet", ".jsonl"),
    ".jsonl": (".jsonl", ".parquet"),
    ".csv": (".csv", ".jsonl", ".parquet"),
    ".tsv": (".tsv", ".jsonl", ".parquet"),
}
_NAMES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "list",
    dict: "object",
}
# lists and objects in each other; pyarrow reads 100 levels, of which a list takes two
MOST_NESTED = 40
_EXACT = 1 << 53  # the largest integers that all are doubles
_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def check_conversion(corpus: RowSource, target: Path) -> None:
    """Raise InputError for columns that the other format cannot hold, as far as that is known before the rows are read."""
    suffix = suffix_of(target)
    if suffix == ".parquet":
        import_pyarrow(printable(target))
        if isinstance(corpus, ParquetRows):
            corpus.check_schemas()
    if suffix == ".jsonl" and isinstance(corpus, ParquetRows | TableRows):
        for schema in corpus.distinct_schemas:
            for field in schema:
                with located(corpus.label):
                    if (count := schema.names.count(field.name)) > 1:
                        raise InputError(
                            f"{count} columns named {field.name!r}: a JSON object cannot repeat a "
                            "name"
                        )
                    check_json_type(field.name, field.type)


def copy_converted(
    corpus: RowSource,
    flags: Flags,
    target: Any,
    progress: Progress | None = None,
    complete: Complete | None = None,
) -> None:
    """Write the rows whose flags are set as Parquet or JSON lines, by the extension of the path.

    See `RowSource.copy`.
    """
    corpus.check_unchanged()
    with Sink(target) as sink:
        if isinstance(corpus, LineRows) and suffix_of(target) == ".parquet":
            arrow = import_pyarrow(sink.name)
            schema = _schema_of(arrow, corpus, RowFlags(flags, progress, "finding types"))
            with sink.errors():
                write_batches(
                    arrow,
                    _batches_of_lines(arrow, corpus, schema, RowFlags(flags, progress)),
                    schema,
                    sink,
                )
        else:
            assert isinstance(corpus, LineRows | ParquetRows | TableRows)
            rows = (
                _fields_of_lines(corpus, RowFlags(flags, progress))
                if isinstance(corpus, LineRows)
                else _rows_of_batches(corpus, RowFlags(flags, progress))
            )
            for name, line, fields in rows:
                try:
                    text = _encoded(fields).encode()
                except ValueError:
                    wrong = next(key for key, value in fields.items() if not _is_json(value))
                    raise at(
                        name, line, f"{wrong}: JSON has no NaN, no infinity and no lone surrogate"
                    ) from None
                sink.write(text + b"\n")
        corpus.check_unchanged()
        sink.commit(complete)


def _is_json(value: object) -> bool:
    try:
        _encoded(value).encode()
    except ValueError:
        return False
    return True


# Parquet and tables as JSON lines


def _rows_of_batches(
    corpus: ParquetRows | TableRows, flags: RowFlags
) -> Iterator[tuple[str, int | None, dict[str, Any]]]:
    """Yield the rows of record batches whose flags are set, with the name of their file."""
    for name, done, batch in corpus.record_batches():
        for _, some in in_pieces(flagged_rows(batch, flags.take(batch.num_rows)), BATCH_BYTES):
            try:
                rows = some.to_pylist()
            except UnicodeDecodeError as error:
                where = f"rows {done + 1:,} to {done + batch.num_rows:,}"
                raise at(
                    name, None, f"{where}: a string is not valid UTF-8 ({error.reason})"
                ) from None
            for row in rows:
                yield name, None, row
    flags.finish()


# JSON lines and delimited text as Parquet


class _Values:
    """What is known of the values of a field: one kind, or integers and other numbers, and null."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self.kind: type | None = None
        self.least = self.most = 0
        self.inner: dict[str, _Values] = {}  # of the fields of objects; "" has the items of lists

    def add(self, value: Any) -> None:
        """Note a value; InputError for one of another kind."""
        kind = type(value)
        if value is None:
            return
        if kind is not self.kind:
            self._mix(kind)
        if kind is int:
            self.least, self.most = min(self.least, value), max(self.most, value)
        elif kind is list:
            self._add_all("", value)
        elif kind is dict:
            for name, one in value.items():
                self._add_all(name, [one])

    def _mix(self, kind: type) -> None:
        if self.kind is None or (self.kind, kind) == (int, float):
            self.kind = kind
        elif (self.kind, kind) != (float, int):
            raise InputError(
                f"{_NAMES[kind]}, and {_NAMES[self.kind]} in earlier rows: a column of Parquet "
                "has one type"
            )

    def _add_all(self, name: str, values: list[Any]) -> None:
        inner = self.inner.get(name)
        if inner is None:
            if not _is_json(name):
                raise InputError("the name of a field has a lone surrogate: Parquet holds UTF-8")
            if self._depth == MOST_NESTED:
                raise InputError(
                    f"nested more than {MOST_NESTED} deep: readers of Parquet refuse it"
                )
            inner = self.inner[name] = _Values(self._depth + 1)
        try:
            for value in values:
                inner.add(value)
        except InputError as error:
            raise InputError(f"{name or 'an item'}: {error}") from None

    def arrow_type(self, arrow: Any) -> Any:
        """Return the Arrow type of all values; InputError if there is none."""
        plain = {None: arrow.null(), bool: arrow.bool_(), str: arrow.string()}
        if self.kind in plain:
            return plain[self.kind]
        if self.kind is list:
            return arrow.list_(self._inner_type(arrow, ""))
        if self.kind is dict:
            if not self.inner:
                raise InputError("an object without fields in all rows: Parquet has no such type")
            return arrow.struct([(name, self._inner_type(arrow, name)) for name in self.inner])
        if self.kind is float:
            if max(-self.least, self.most) > _EXACT:
                raise InputError(
                    "integers beyond 2^53 beside fractions: no number of Parquet holds both exactly"
                )
            return arrow.float64()
        if self.least >= -(1 << 63) and self.most < 1 << 63:
            return arrow.int64()
        if self.least >= 0 and self.most < 1 << 64:
            return arrow.uint64()
        raise InputError(
            "integers beyond 64 bits, or beyond 2^63 beside negative ones: make them strings"
        )

    def _inner_type(self, arrow: Any, name: str) -> Any:
        try:
            return (self.inner.get(name) or _Values()).arrow_type(arrow)
        except InputError as error:
            raise InputError(f"{name or 'an item'}: {error}") from None


def _fields_of_lines(
    corpus: LineRows, flags: RowFlags
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield the fields of each row whose flag is set, with the name of its file and its line."""
    for parser, rows in corpus.kept_rows(flags):
        for row in rows:
            with located(parser.name, row.line):
                fields = parser.fields(row)
            yield parser.name, row.line, fields


def _schema_of(arrow: Any, corpus: LineRows, flags: RowFlags) -> Any:
    """Return the schema of the rows whose flags are set, from all of them."""
    found = _Values()
    for name, line, fields in _fields_of_lines(corpus, flags):
        try:
            found.add(fields)
        except InputError as error:
            raise at(name, line, str(error)) from None
    with located(corpus.label):
        return arrow.schema([(name, found._inner_type(arrow, name)) for name in found.inner])


def _batches_of_lines(arrow: Any, corpus: LineRows, schema: Any, flags: RowFlags) -> Iterator[Any]:
    for parser, rows in corpus.kept_rows(flags):
        fields = [parser.fields(row) for row in rows]
        try:
            yield arrow.RecordBatch.from_pylist(fields, schema)
        except UnicodeEncodeError:
            wrong = next(
                row for row, values in zip(rows, fields, strict=True) if not _is_json(values)
            )
            raise at(parser.name, wrong.line, "a lone surrogate: Parquet holds UTF-8") from None
