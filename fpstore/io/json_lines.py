"""JSON lines as rows: regular blocks by the kernel, all others by Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal, DecimalException
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Flags, Words
from fpstore.base.arguments import show_json
from fpstore.base.keywords import keyword
from fpstore.base.strings import StringColumn, TextColumn
from fpstore.errors import InputError, show
from fpstore.io.fields import MAX_NAMES, field_names, field_reader, has_field, names_here
from fpstore.io.files import input_error
from fpstore.io.lines import BLANK, BrokenLines, LineParser, Row, json_problem
from fpstore.io.source import Batch, IdRule, Projection, batch_of_values

NAMED_ROWS = 100  # of a block, whose fields a message may name
_GAP = re.compile(r"[ \t\r\n]*")  # between the parts of JSON
_DECODERS = json.JSONDecoder(), json.JSONDecoder(parse_float=Decimal)


class JsonField(NamedTuple):
    """The values of a field in the lines of a block, and which lines have it."""

    values: Sequence[Any]
    exists: Flags


class JsonLines(LineParser):
    """Takes the JSON lines of one file apart."""

    _began = False  # whether rows have been read

    def rows(self, block: bytes, first: int) -> Iterator[Row]:
        """Yield the lines of a block that are not blank."""
        rows = (
            Row(line, raw)
            for line, raw in enumerate(block.split(b"\n")[:-1], first)
            if raw.strip(BLANK)
        )
        return rows if self.broken is None else self._intact_rows(rows, self.broken)

    def line_bounds(self, block: bytes) -> tuple[Words, Words] | None:
        if self.broken is not None and _kernel.read_json_lines(block, []) is None:
            return None
        return _kernel.nonblank_lines(block)

    def _intact_rows(self, rows: Iterator[Row], broken: BrokenLines) -> Iterator[Row]:
        for row in rows:
            if self.is_broken(row):
                broken.add(self.name, row.line)
            else:
                yield row

    def is_broken(self, row: Row) -> bool:
        try:
            _object(row.raw, exactly=False)
        except InputError:
            return True
        return False

    def regular_block(
        self, block: bytes, first: int, projection: Projection, rule: IdRule | None
    ) -> Batch | None:
        """Return the rows of a block whose lines are regular, by the fields that are read alone.

        None too if all rows lack a field, or if none may: an error names those that there are.
        """
        fields = _json_fields(block, projection)
        if not fields:
            return None
        rows = len(next(iter(fields.values())).exists)
        strict, has_ids = projection.strict_columns, None
        if projection.id is not None and projection.optional_id and rule is not None:
            has_ids = fields[projection.id].exists
            if not has_ids.any():
                del fields[projection.id]
                projection = replace(projection, id=None)
        for name, field in fields.items():
            needs_all = self.needs_all or name in strict
            if not (field.exists.all() if needs_all else field.exists.any()):
                return None
        row_error = self.row_error(range(first, first + rows))
        if has_ids is not None and rule is not None:
            rule.expect_each(has_ids.tolist(), row_error)
        self._began = True
        self.present_columns.update(fields)
        columns = {name: field.values for name, field in fields.items()}
        return batch_of_values(columns, projection, rule, row_error)

    def batch(self, rows: list[Row], projection: Projection, rule: IdRule | None) -> Batch:
        objects = []
        for row in rows:
            try:
                objects.append(_object(row.raw, exactly=projection.score is not None))
            except InputError as error:
                whole = None if objects or self._began else json_problem(row.raw)
                line = row.line if whole is None else None
                raise input_error(self.name, line, whole or str(error)) from None
        return self._batch(objects, [row.line for row in rows], projection, rule)

    def fields(self, row: Row) -> dict[str, Any]:
        try:
            return _object(row.raw, exactly=False)
        except InputError as error:
            raise input_error(self.name, row.line, str(error)) from None

    def extended_line(self, line: bytes, values: Mapping[str, Any]) -> bytes:
        body = line.rstrip(BLANK)
        fields = json.dumps(values, ensure_ascii=False)[1:].encode("utf-8")
        before = body[:-1].rstrip(BLANK)
        gap = b"" if before.endswith(b"{") else b", "
        return before + gap + fields + line[len(body) :]

    def with_field(self, row: Row, name: str, text: str) -> Row:
        """Return the line with another string in a field; it is escaped as the one before was."""
        line = row.raw.decode("utf-8")
        span = _value_span(line, name)
        assert span is not None
        start, end = span
        is_ascii = line[start:end].isascii()
        with suppress(UnicodeEncodeError):  # a lone surrogate, which only an escape writes
            return row._replace(
                raw=(line[:start] + json.dumps(text, ensure_ascii=is_ascii) + line[end:]).encode(
                    "utf-8"
                )
            )
        return row._replace(raw=(line[:start] + json.dumps(text) + line[end:]).encode("utf-8"))

    def _batch(
        self, rows: list[Any], lines: Sequence[int], projection: Projection, rule: IdRule | None
    ) -> Batch:
        self._began = True
        row_error, texts = self.row_error(lines), projection.texts
        columns = {name: list(map(field_reader(name), rows)) for name in projection.names}
        if projection.id is not None and projection.optional_id and rule is not None:
            has_ids = [has_field(row, projection.id) for row in rows]
            rule.expect_each(has_ids, row_error)
            if not has_ids[0]:
                del columns[projection.id]
                projection = replace(projection, id=None)
        strict = projection.strict_columns
        for name, values in columns.items():
            if None not in values:
                self.present_columns.add(name)
                continue
            enough = texts if name in texts else (name,)
            if self.needs_all or name in strict:
                for place, row in enumerate(rows):
                    if not any(has_field(row, field) for field in enough):
                        texts_too = (
                            f"; {keyword('text')} names the texts"
                            if name == projection.fingerprint
                            else ""
                        )
                        raise row_error(place, f"{_missing_fields(enough, row)}{texts_too})")
            if any(has_field(row, name) for row in rows):
                self.present_columns.add(name)
            elif len(self.other_columns) < MAX_NAMES:
                named = rows[:NAMED_ROWS]
                inner = chain.from_iterable(map(field_names, named))
                self.other_columns.update(dict.fromkeys(chain(chain.from_iterable(named), inner)))
        return batch_of_values(columns, projection, rule, row_error)


def _json_fields(block: bytes, projection: Projection) -> dict[str, JsonField] | None:
    """Return the columns of a projection in a block; None if the block is not regular.

    The kernel reads them, and what they do not need is never made a value of Python.
    """
    names = projection.names
    read_names = [*dict.fromkeys(chain(names, (name.partition(".")[0] for name in names)))]
    try:
        columns = _kernel.read_json_lines(block, list(map(str.encode, read_names)))
    except UnicodeEncodeError:  # no name in UTF-8
        return None
    if columns is None:
        return None

    fields = dict[str, JsonField]()
    for name, (kinds, data, ends) in zip(read_names, columns, strict=True):
        strings = StringColumn(data, ends)
        values: Sequence[Any]
        if (kinds != _kernel.JSON_STRING).any():
            values = _json_values(kinds, strings, exactly=projection.score is not None)
        else:
            values = TextColumn(strings) if name == projection.text else strings.texts()
        fields[name] = JsonField(values, kinds != _kernel.JSON_MISSING)
    return {name: _inner_field(name, fields) if "." in name else fields[name] for name in names}


def _json_values(kinds: Bytes, strings: StringColumn, exactly: bool) -> list[Any]:
    """Return values that the kernel has read; None for one that is missing."""
    tokens, is_other = strings.tolist(), kinds == _kernel.JSON_OTHER
    others = (
        token if is_token else b"null"
        for token, is_token in zip(tokens, is_other.tolist(), strict=True)
    )
    values: list[Any] = _DECODERS[exactly].decode("[" + b",".join(others).decode() + "]")
    for place in np.flatnonzero(kinds == _kernel.JSON_STRING).tolist():
        values[place] = tokens[place].decode()
    return values


def _inner_field(name: str, fields: Mapping[str, JsonField]) -> JsonField:
    """Return a field that may be inside of another one: see `fpstore.io.fields`."""
    own, outer_name = fields[name], name.partition(".")[0]
    if own.exists.all():
        return own
    outer = fields[outer_name]
    rows = [
        {name: value} if is_own else {outer_name: outer_value}
        for value, is_own, outer_value in zip(own.values, own.exists, outer.values, strict=True)
    ]
    exists = np.fromiter((has_field(row, name) for row in rows), bool, len(rows))
    return JsonField([*map(field_reader(name), rows)], exists)


def _missing_fields(names: Sequence[str], row: Mapping[str, Any]) -> str:
    """Return that a row lacks fields, and the beginning of the list of those it has."""
    lacking = (
        f"the field {show(names[0])} is"
        if len(names) == 1
        else f"the fields {', '.join(names)} are"
    )
    if not row:
        return f"{lacking} missing (the object is empty"
    shown = list(map(show, row))
    return f"{lacking} missing ({names_here('fields', names[0], shown, field_names(row))}"


def _value_span(line: str, name: str, start: int = 0) -> tuple[int, int] | None:
    """Return the bounds of a field's value in the JSON of an object; the last field counts.

    None if there is no such field.
    """
    whole: tuple[int, int] | None = None
    outer_name, _, inner_name = name.partition(".")
    outer: int | None = None
    at = _skip_blanks(line, _skip_blanks(line, start) + 1)
    while line[at] != "}":
        key, at = _DECODERS[0].raw_decode(line, at)
        value = _skip_blanks(line, _skip_blanks(line, at) + 1)  # behind the colon
        _, end = _DECODERS[0].raw_decode(line, value)
        if key == name:
            whole = value, end
        elif key == outer_name and inner_name:
            outer = value
        at = _skip_blanks(line, end)
        if line[at] == ",":
            at = _skip_blanks(line, at + 1)
    if whole is not None or outer is None or line[outer] != "{":
        return whole
    return _value_span(line, inner_name, outer)


def _skip_blanks(line: str, at: int) -> int:
    gap = _GAP.match(line, at)
    assert gap is not None
    return gap.end()


def _object(raw: bytes, exactly: bool) -> dict[str, Any]:
    """Return the object that a line of JSON holds, with exact decimals or with floats.

    InputError if it holds something else.
    """
    try:
        row = _DECODERS[exactly].decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        reason = "not valid UTF-8:"
    except json.JSONDecodeError as error:
        reason = f"not valid JSON: {error.msg} (column {error.colno}) in"
    except (ValueError, DecimalException):
        reason = "a number with too many digits in"
    except RecursionError:
        reason = "JSON nested too deeply in"
    else:
        if type(row) is not dict:
            raise InputError(f"expected a JSON object, got {show_json(row)}")
        return row
    raise InputError(f"{reason} {show(raw.decode('utf-8', 'backslashreplace'))}")
