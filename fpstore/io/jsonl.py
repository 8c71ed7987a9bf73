"""JSON lines: one object per line, with the fingerprint and the optional id in named fields."""

import json
from collections.abc import Iterator
from decimal import Decimal, DecimalException
from functools import partial
from typing import cast

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.strings import StringColumn
from fpstore.errors import InputError, show
from fpstore.io.check import MAX_U64, check_fingerprints, check_ids, check_string_id
from fpstore.io.columns import parse_texts
from fpstore.io.digits import negative, of_signed, read_digits
from fpstore.io.lines import BLOCK_BYTES, LineSource
from fpstore.io.source import Batch, Fields, IdColumn, IdKind, IdRule, InputFile, at
from fpstore.io.wrong_width import too_large

_decode = json.JSONDecoder().decode
_decode_exactly = json.JSONDecoder(parse_float=Decimal).decode
_raw_decode = json.JSONDecoder().raw_decode


class JsonlSource(LineSource):
    """One JSON lines input."""

    def __init__(self, file: InputFile, fields: Fields, block_bytes: int = BLOCK_BYTES) -> None:
        super().__init__(file, fields, block_bytes)
        self._digits, self._width = fields.digits, fields.width
        self._fingerprint_field = fields.fingerprint or "fingerprint"
        self._id_field = fields.id or "id"
        self._needs_id = fields.id is not None

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield the rows of successive blocks."""
        for block, first in self.blocks():
            yield from self.parsed(block, first, partial(self._batch, rule))

    def _batch(self, rule: IdRule, block: bytes, first: int) -> Batch:
        return self._parse_alike(block, rule) or self.parse_lines(block, first, rule)

    def _parse_alike(self, block: bytes, rule: IdRule) -> Batch | None:
        """Parse a block of uniform rows, column by column; None if they are not uniform, or one is wrong."""
        try:
            lines = block.decode("utf-8").split(self.end.decode())[:-1]
            decoded = list(map(_raw_decode, lines))
            if any(line[end:] not in ("", "\r") for line, (_, end) in zip(lines, decoded, strict=True)):
                return None
            rows = [row for row, _ in decoded]
            if set(map(type, rows)) != {dict}:
                return None
            fingerprints = self._fingerprints([row[self._fingerprint_field] for row in rows])
            has_ids = any(self._id_field in row for row in rows)
            if fingerprints is None or rule.has_ids not in (None, has_ids) or self._needs_id > has_ids:
                return None
            if not has_ids:
                rule.has_ids = False
                return Batch(fingerprints, None)
            values = [row[self._id_field] for row in rows]
            if not set(map(type, values)) <= {int, str}:
                return None
            ids = check_ids(values, len(values))
        except (ValueError, KeyError, RecursionError):
            return None
        kind: IdKind = "int" if isinstance(ids, np.ndarray) else "str"
        if rule.kind not in (None, kind):
            return None
        rule.has_ids, rule.kind = True, kind
        return Batch(fingerprints, ids if isinstance(ids, np.ndarray) else StringColumn.of(ids))

    def _fingerprints(self, values: list[object]) -> Words | None:
        if set(map(type, values)) == {int}:
            numbers = cast(list[int], values)
            if self._digits.signed and min(numbers) < 0:
                numbers = [of_signed(number, self._width) for number in numbers]
            return check_fingerprints(numbers, self._width)
        if set(map(type, values)) != {str}:
            return None
        return parse_texts(cast(list[str], values), self._digits)

    def parse_lines(self, block: bytes, first: int, rule: IdRule) -> Batch:
        """Parse a block row by row; the error names the first bad line."""
        fingerprints: list[int] = []
        ids: list[int | str] = []
        for line, raw in enumerate(block.split(self.end)[:-1], first):
            if not raw.strip(b" \t\r\n"):
                continue
            try:
                row = parse_object(raw)
                fingerprints.append(self._fingerprint(row))
                identifier = self._id(row, rule)
            except InputError as error:
                raise at(self.name, line, str(error)) from None
            if identifier is not None:
                ids.append(identifier)
        return Batch(self._width.rows(fingerprints), _column(ids, rule))

    def _fingerprint(self, row: dict[str, object]) -> int:
        field = self._fingerprint_field
        if field not in row:
            raise InputError(f"the field {show(field)} is missing{fields_of(row)}")
        value = row[field]
        if type(value) is int:
            if self._digits.signed:
                value = of_signed(value, self._width)
            if value < 0:
                raise InputError(f"{show(value)} is not a fingerprint: {negative(self._digits)}")
            if value >> self._width.bits:
                raise InputError(f"the fingerprint does not fit: {too_large(value, self._width)}")
            return value
        if type(value) is str:
            return read_digits(value, self._digits)
        raise InputError(f"{_show_json(value)} is not a fingerprint: expected an integer or a string of digits")

    def _id(self, row: dict[str, object], rule: IdRule) -> int | str | None:
        field = self._id_field
        present = field in row
        if self._needs_id and not present:
            raise InputError(f"the field {show(field)} is missing{fields_of(row)}")
        rule.expect(present)
        if not present:
            return None
        value = row[field]
        if type(value) is int:
            if not 0 <= value <= MAX_U64:
                raise InputError(f"the id {show(value)} is out of range 0 to 2^64-1")
            rule.expect_kind("int")
            return str(value) if rule.kind == "str" else value
        if type(value) is str:
            check_string_id(value)
            rule.expect_kind("str")
            return rule.integer(value) if rule.kind == "int" else value
        raise InputError(f"the id {_show_json(value)} is neither an integer nor a string")


def parse_object(raw: bytes, exactly: bool = False) -> dict[str, object]:
    """Return the object that a line of JSON holds, with exact decimals or with floats; InputError if it holds something else."""
    try:
        row = (_decode_exactly if exactly else _decode)(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"not valid UTF-8: {show(raw.decode('utf-8', 'backslashreplace'))}") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"not valid JSON: {error.msg} (column {error.colno}) in {show(raw.decode('utf-8', 'backslashreplace'))}"
        ) from None
    except (ValueError, DecimalException):
        raise InputError(f"a number with too many digits in {show(raw.decode('utf-8', 'backslashreplace'))}") from None
    except RecursionError:
        raise InputError(f"JSON nested too deeply in {show(raw.decode('utf-8', 'backslashreplace'))}") from None
    if type(row) is not dict:
        raise InputError(f"expected a JSON object, got {_show_json(row)}")
    return row


def _column(ids: list[int | str], rule: IdRule) -> IdColumn:
    if not ids:
        return None
    return np.array(ids, dtype=np.uint64) if rule.kind == "int" else StringColumn.of([str(item) for item in ids])


def _show_json(value: object) -> str:
    return show(json.dumps(value, default=float)).strip("'")


def fields_of(row: dict[str, object]) -> str:
    """Return the names of the fields of an object, for a message."""
    return f" (fields here: {', '.join(map(show, list(row)[:8]))})" if row else " (the object is empty)"
