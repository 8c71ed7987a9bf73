"""JSON lines: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal, DecimalException
from typing import Any

from fpstore.errors import InputError, show
from fpstore.io.files import located
from fpstore.io.lines import LineParser, Row
from fpstore.io.source import Batch, IdRule, Projection, batch_of_values, show_json

_BLANK = b" \t\r\n"
_DECODERS = json.JSONDecoder(), json.JSONDecoder(parse_float=Decimal)


class JsonLines(LineParser):
    """Takes the JSON lines of one file apart."""

    def rows(self, block: bytes, first: int) -> Iterator[Row]:
        """Yield the lines of a block that are not blank."""
        return (Row(line, raw) for line, raw in enumerate(block.split(self.end)[:-1], first) if raw.strip(_BLANK))

    def whole(self, block: bytes, first: int, projection: Projection, rule: IdRule | None) -> Batch | None:
        """Return the rows of a block that has an object in each line."""
        decode = _DECODERS[projection.score is not None].raw_decode
        try:
            lines = block.decode("utf-8").split(self.end.decode())[:-1]
            decoded = list(map(decode, lines))
        except (ValueError, RecursionError, DecimalException):
            return None
        objects = [row for row, _ in decoded]
        if any(line[end:] not in ("", "\r") for line, (_, end) in zip(lines, decoded, strict=True)):
            return None
        if set(map(type, objects)) != {dict}:
            return None
        return self._batch(objects, range(first, first + len(lines)), projection, rule)

    def batch(self, rows: list[Row], projection: Projection, rule: IdRule | None) -> Batch:
        """Return the columns of some rows."""
        objects = []
        for row in rows:
            with located(self.name, row.line):
                objects.append(_object(row.raw, exactly=projection.score is not None))
        return self._batch(objects, [row.line for row in rows], projection, rule)

    def _batch(self, rows: list[Any], lines: Sequence[int], projection: Projection, rule: IdRule | None) -> Batch:
        wrong, texts = self.wrong(lines), projection.texts
        columns = {name: [row.get(name) for row in rows] for name in projection.names}
        if projection.id is not None and projection.optional_id and rule is not None:
            has_ids = [projection.id in row for row in rows]
            rule.expect_each(has_ids, wrong)
            if not has_ids[0]:
                del columns[projection.id]
                projection = replace(projection, id=None)
        for name, values in columns.items():
            enough = texts if name in texts else (name,)
            if None in values:  # null is a value, and a name that was mistyped is not
                for place, row in enumerate(rows):
                    if not any(field in row for field in enough):
                        lacking = f"the field {show(name)} is" if len(enough) == 1 else f"the fields {', '.join(enough)} are"
                        raise wrong(place, f"{lacking} missing{_fields_of(row)}")
            if len(texts) > 1 and any(name in row for row in rows):
                self.found.add(name)
        return batch_of_values(columns, projection, rule, wrong)


def _object(raw: bytes, exactly: bool) -> dict[str, Any]:
    """Return the object that a line of JSON holds, with exact decimals or with floats; InputError if it holds something else."""
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


def _fields_of(row: dict[str, Any]) -> str:
    """Return the names of the fields of an object, for a message."""
    return f" (fields here: {', '.join(map(show, list(row)[:8]))})" if row else " (the object is empty)"
