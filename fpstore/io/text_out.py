"""Rows as delimited text and as JSON lines, which `fpstore.io.text` and `fpstore.io.jsonl` can read."""

import json
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from fpstore.errors import InputError, show
from fpstore.io.sink import Columns, Encoder, Sink
from fpstore.width import WIDTH_64, Width

#: Characters that a cell of each dialect cannot hold, because they end a cell.
_FORBIDDEN = {"tsv": "\t\r\n", "csv": "\r\n", "txt": "\t\r\n ,"}
_DELIMITERS = {"tsv": "\t", "csv": ",", "txt": "\t"}

_json = json.JSONEncoder(ensure_ascii=False).encode


class TextEncoder(Encoder):
    """Rows as TSV, CSV or blank-separated text: fingerprints in hexadecimal, quoting only in CSV."""

    def __init__(self, sink: Sink, dialect: str, columns: Mapping[str, str], header: bool, width: Width = WIDTH_64) -> None:
        self._sink = sink
        self._width = width
        self._dialect = dialect
        self._columns = columns
        self._delimiter = _DELIMITERS[dialect]
        if header:
            names = self._cells("the header", list(columns))
            sink.write((self._delimiter.join(names) + "\n").encode("utf-8"))

    def write(self, data: Columns) -> None:
        """Append rows."""
        cells = [
            values if isinstance(values, list) else _digits(values, self._columns[name], self._width)
            for name, values in data.items()
        ]
        checked = [
            self._cells(name, column) if isinstance(data[name], list) else column
            for name, column in zip(data, cells, strict=True)
        ]
        lines = map(self._delimiter.join, zip(*checked, strict=True))
        self._sink.write(("\n".join(lines) + "\n").encode("utf-8"))

    def _cells(self, name: str, values: list[str]) -> list[str]:
        joined = "".join(values)
        forbidden = _FORBIDDEN[self._dialect]
        if any(character in joined for character in forbidden):
            value = next(value for value in values if set(value) & set(forbidden))
            raise InputError(
                f"{show(value)} in {name} cannot be written as {self._dialect}: it holds a separator or a "
                "line break; write JSON lines (--json, or a file.jsonl) or Parquet (a file.parquet)"
            )
        if self._dialect == "csv" and ("," in joined or '"' in joined):
            return [_quote(value) if "," in value or '"' in value else value for value in values]
        return values


class JsonlEncoder(Encoder):
    """Rows as one JSON object per line, with fingerprints as strings of hexadecimal digits."""

    def __init__(self, sink: Sink, columns: Mapping[str, str], width: Width = WIDTH_64) -> None:
        self._sink = sink
        self._width = width
        self._columns = columns
        fields = [_json(name).replace("%", "%%") + ": %s" for name in columns]
        self._template = "{" + ", ".join(fields) + "}"

    def write(self, data: Columns) -> None:
        """Append rows."""
        columns = []
        for name, values in data.items():
            kind = self._columns[name]
            texts = list(map(_json, values)) if isinstance(values, list) else _digits(values, kind, self._width)
            columns.append([f'"{text}"' for text in texts] if kind == "fingerprint" else texts)
        lines = map(self._template.__mod__, zip(*columns, strict=True))
        self._sink.write(("\n".join(lines) + "\n").encode("utf-8"))


def _quote(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def _digits(values: npt.NDArray[Any], kind: str, width: Width) -> list[str]:
    return width.texts(values) if kind == "fingerprint" else [str(number) for number in values.tolist()]
