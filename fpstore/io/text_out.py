"""Rows as delimited text and as JSON lines, which `fpstore.io.text` and `fpstore.io.jsonl` can read."""

import json
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from fpstore.base.aliases import NamedColumns
from fpstore.base.width import WIDTH_64, Width
from fpstore.errors import InputError, show
from fpstore.io.sink import Encoder, Sink

#: Characters that a cell of each dialect cannot hold, because they end a cell, and those that end a line.
_SEPARATORS = {"tsv": "\t", "csv": "", "txt": "\t ,"}
_LINE_BREAKS = {"\n": "\r\n", "\0": "\0"}
_QUOTED = ',"\r\n'  # where they occur in a cell of CSV
_DELIMITERS = {"tsv": "\t", "csv": ",", "txt": "\t"}

_json = json.JSONEncoder(ensure_ascii=False).encode


class TextEncoder(Encoder):
    """Rows as TSV, CSV or blank-separated text: fingerprints in hexadecimal, quoting only in CSV."""

    def __init__(self, sink: Sink, dialect: str, columns: Mapping[str, str], width: Width = WIDTH_64, end: str = "\n") -> None:
        self._sink = sink
        self._width = width
        self._dialect = dialect
        self._columns = columns
        self._delimiter = _DELIMITERS[dialect]
        self._end = end
        quotes_breaks = dialect == "csv" and end == "\n"
        self._forbidden = _SEPARATORS[dialect] + ("" if quotes_breaks else _LINE_BREAKS[end])

    def write_header(self) -> None:
        """Write the names of the columns."""
        names = self._cells("the header", list(self._columns))
        self._sink.write((self._delimiter.join(names) + self._end).encode("utf-8"))

    def write(self, data: NamedColumns) -> None:
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
        self._sink.write((self._end.join(lines) + self._end).encode("utf-8"))

    def _cells(self, name: str, values: list[str]) -> list[str]:
        joined = "".join(values)
        if any(character in joined for character in self._forbidden):
            value = next(value for value in values if set(value) & set(self._forbidden))
            held = "a line break" if self._end == "\n" else "a zero byte"
            raise InputError(
                f"{show(value)} in {name} cannot be written as {self._dialect}: it holds a separator or "
                f"{held}; write JSON lines (--json, or a file.jsonl) or Parquet (a file.parquet)"
            )
        if self._dialect == "csv" and any(character in joined for character in _QUOTED):
            return [_quote(value) if any(character in value for character in _QUOTED) else value for value in values]
        return values


class JsonlEncoder(Encoder):
    """Rows as one JSON object per line, with fingerprints as strings of hexadecimal digits."""

    def __init__(self, sink: Sink, columns: Mapping[str, str], width: Width = WIDTH_64, end: str = "\n") -> None:
        self._sink = sink
        self._width = width
        self._columns = columns
        self._end = end
        fields = [_json(name).replace("%", "%%") + ": %s" for name in columns]
        self._template = "{" + ", ".join(fields) + "}"

    def write(self, data: NamedColumns) -> None:
        """Append rows."""
        columns = []
        for name, values in data.items():
            kind = self._columns[name]
            texts = list(map(_json, values)) if isinstance(values, list) else _digits(values, kind, self._width)
            columns.append([f'"{text}"' for text in texts] if kind == "fingerprint" else texts)
        lines = map(self._template.__mod__, zip(*columns, strict=True))
        self._sink.write((self._end.join(lines) + self._end).encode("utf-8"))


def _quote(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def _digits(values: npt.NDArray[Any], kind: str, width: Width) -> list[str]:
    return width.texts(values) if kind == "fingerprint" else [str(number) for number in values.tolist()]
