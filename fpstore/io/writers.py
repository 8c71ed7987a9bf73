"""Writing result and export rows.

TSV, CSV, JSON lines, Parquet, and plain arrays of fingerprints.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, Literal, Self

import numpy as np

from fpstore.base.aliases import NamedColumns
from fpstore.base.arguments import check_flag, check_path, is_uri
from fpstore.base.width import Width, check_width
from fpstore.errors import InputError, show
from fpstore.io.binary import RAW_BITS, RawEncoder
from fpstore.io.check import check_fingerprints, check_ids
from fpstore.io.parquet import ParquetEncoder
from fpstore.io.reader import check_format
from fpstore.io.sink import Complete, Encoder, Sink
from fpstore.io.source import FORMATS, LINE_FORMATS, Chunk

ColumnKind = Literal["fingerprint", "distance", "share", "value", "text", "label"]

_UNWRITABLE = {"tsv": "\t\r\n", "txt": "\t ,\r\n"}  # ends of cells and lines
_QUOTED = ',"\r\n'  # where they occur in a cell of CSV
_DELIMITERS = {"tsv": "\t", "csv": ",", "txt": "\t"}

_json = json.JSONEncoder(ensure_ascii=False).encode
#: Kinds of the columns that fpstore itself writes; others hold values: integers or strings.
_KINDS: dict[str, ColumnKind] = {
    "fingerprint": "fingerprint",
    "query": "fingerprint",
    "a": "fingerprint",
    "b": "fingerprint",
    "distance": "distance",
    "share": "share",
    "contained": "share",
    "similarity": "share",
    "rule": "text",
    "shard": "text",
    "kept_shard": "text",
    "reference": "text",
    "text": "text",
    "kept_text": "text",
    "source": "label",
}


class Writer:
    """Writes rows of named columns; made by `open_writer`.

    As a context manager, it commits at the end of the block. If the block raises, nothing is left
    at the target.

    Attributes
    ----------
    rows : int
        Rows written so far.
    """

    def __init__(
        self,
        sink: Sink,
        encoder: Encoder,
        columns: Mapping[str, ColumnKind],
        width: Width,
    ) -> None:
        self._sink = sink
        self._width = width
        self._encoder = encoder
        self._columns = columns
        self._strings: dict[str, bool] = {}
        self._closed = False
        self.rows = 0

    def write(self, data: Mapping[str, Any] | Chunk | Iterable[Sequence[Any]]) -> None:
        """Append rows.

        Parameters
        ----------
        data : mapping, Chunk or iterable of tuples
            One array or list for each column, all of one length; or a `Chunk`; or tuples in the
            order of the columns.

        Raises
        ------
        InputError
            Columns are missing, unknown or of different lengths, or hold values that the format
            cannot. Nothing was written.
        StorageError
            The system refused a write. Nothing is left at the target.
        """
        if self._closed:
            raise InputError(f"{self._sink.name}: the writer is closed")
        columns = self._check(self._by_name(data))
        count = len(next(iter(columns.values())))
        if not count:
            return
        try:
            self._encoder.write(columns)
        except InputError:
            raise
        except BaseException:
            self.abort()
            raise
        for name, values in columns.items():
            self._strings[name] = isinstance(values, list)
        self.rows += count

    def flush(self) -> None:
        """Let readers of a stream or a pipe see the rows written so far.

        Parquet holds them back until there are enough.
        """
        if not self._closed:
            self._sink.flush()

    def close(self, complete: Complete | None = None) -> None:
        """Finish the output, so that it appears under the target's name.

        A second call does nothing.

        ``complete`` is called with the temporary name of a complete file, before it is renamed.
        """
        if self._closed:
            return
        try:
            self._encoder.finish()
            self._sink.commit(complete)
        except BaseException:
            self.abort()
            raise
        self._closed = True

    def abort(self) -> None:
        """Drop the output; nothing appears at the target."""
        if not self._closed:
            self._closed = True
            self._encoder.abort()
            self._sink.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _by_name(self, data: Mapping[str, Any] | Chunk | Iterable[Sequence[Any]]) -> dict[str, Any]:
        names = list(self._columns)
        if isinstance(data, Chunk):
            data = {"fingerprint": data.fingerprints} | (
                {} if data.ids is None else {"id": data.ids}
            )
        elif not isinstance(data, Mapping):
            rows = list(data)
            wrong = next((row for row in rows if len(row) != len(names)), None)
            if wrong is not None:
                raise InputError(f"a row of {len(wrong)} values for the columns {', '.join(names)}")
            data = {name: [row[index] for row in rows] for index, name in enumerate(names)}
        if set(data) != set(names):
            raise InputError(
                f"columns {', '.join(map(str, data))} given, {', '.join(names)} expected"
            )
        return {name: data[name] for name in names}

    def _check(self, data: dict[str, Any]) -> NamedColumns:
        columns: NamedColumns = {}
        count = len(next(iter(data.values())))
        for name, values in data.items():
            if len(values) != count:
                raise InputError(
                    f"column {name!r} has {len(values)} rows, the columns before it {count}"
                )
            kind = self._columns[name]
            if kind == "share":
                columns[name] = np.asarray(values, np.float64)
                continue
            if kind == "text":
                columns[name] = _check_texts(name, values)
                continue
            if kind == "label":
                columns[name] = list(values)
                continue
            try:
                checked = (
                    check_fingerprints(values, self._width)
                    if kind == "fingerprint"
                    else check_ids(values, count)
                )
            except InputError as error:
                raise InputError(f"column {name!r}: {error}") from None
            if kind == "distance":
                if isinstance(checked, list) or checked.max(initial=0) > self._width.bits:
                    raise InputError(
                        f"column {name!r} must hold distances of 0 to {self._width.bits} bits"
                    )
                checked = checked.astype(np.uint8 if self._width.bits < 256 else np.uint16)
            strings = isinstance(checked, list)
            if count and self._strings.get(name, strings) != strings:
                raise InputError(f"column {name!r} mixes integers and strings")
            columns[name] = checked
        return columns


def open_writer(
    path_or_stream: str | os.PathLike[str] | IO[Any],
    *,
    format: str | None = None,
    columns: Sequence[str] | Mapping[str, ColumnKind],
    header: bool = False,
    width: int = 64,
    fingerprinter: Mapping[str, Any] | None = None,
) -> Writer:
    """Open a file or a stream for writing rows.

    Parameters
    ----------
    path_or_stream : path or stream
        A path is written under a temporary name and renamed by ``close``. ``"-"`` is standard
        output. A stream is flushed, not closed.
    format : str, optional
        "npy", "u32", "u64", "tsv", "csv", "txt", "jsonl" or "parquet"; by default from the
        extension of the path, and "tsv" for a stream. Lines are compressed if ``.gz``, ``.zst``,
        ``.bz2`` or ``.xz`` ends the path, as in ``a.jsonl.gz``.
    columns : sequence of str or mapping
        Column names in order. "fingerprint", "query", "a" and "b" hold fingerprints, "distance"
        holds distances, "share", "contained" and "similarity" hold shares (float; NaN is a null),
        "rule", "shard", "kept_shard", "reference", "text" and "kept_text" hold strings, "source"
        holds strings and None, a null, and others hold integers or strings. A mapping to
        "fingerprint", "distance", "share", "label" or "value" overrides this, and to "text", a
        column of strings also if it has no rows.
    header : bool
        Begin delimited text with a line of column names.
    width : int
        The bits of a fingerprint: 32, 64, 128 or 256. Text has ``width / 4`` hexadecimal digits.
        Parquet has uint32, uint64 or ``fixed_size_binary(width / 8)``, and ``.npy`` uint32, uint64
        or uint8 of shape (n, width / 8).
    fingerprinter : mapping, optional
        How the fingerprints were made, as `Fingerprinter.describe` returns it: Parquet remembers it
        in its metadata, and a store that is built of the file does.

    Returns
    -------
    Writer
        A context manager with ``write(data)`` and ``close()``.

    Raises
    ------
    InputError
        The format is unknown, or cannot hold these columns.
    StorageError
        The target cannot be opened.
    MissingExtraError
        Parquet without pyarrow.

    Examples
    --------
    >>> import sys
    >>> with open_writer(sys.stdout, format="jsonl", columns=["fingerprint", "id"]) as writer:
    ...     writer.write({"fingerprint": [42], "id": ["a.txt"]})
    {"fingerprint": "000000000000002a", "id": "a.txt"}
    """
    header = check_flag(header, "header")
    checked_width = check_width(width)
    if not isinstance(path_or_stream, str | os.PathLike) and not hasattr(path_or_stream, "write"):
        raise InputError(f"a path or a stream to write to is expected, got {show(path_or_stream)}")
    if (
        isinstance(path_or_stream, str | os.PathLike)
        and path_or_stream != "-"
        and not is_uri(path_or_stream)
    ):
        check_path(path_or_stream)
    many = isinstance(columns, Mapping | Sequence) and not isinstance(columns, str | bytes)
    if not (many and all(isinstance(name, str) for name in columns)):
        raise InputError(
            f"columns must be a list of names, got {show(columns)}", argument="columns"
        )
    kinds = (
        dict(columns)
        if isinstance(columns, Mapping)
        else {name: _KINDS.get(name, "value") for name in columns}
    )
    if not kinds or len(kinds) != len(columns):
        raise InputError(
            f"columns must have distinct names, got {show(list(columns))}", argument="columns"
        )
    if format is None and (
        path_or_stream == "-" or not isinstance(path_or_stream, str | os.PathLike)
    ):
        format = "tsv"  # noqa: A001
    # hold nothing else
    plain = [] if list(kinds.values()) == ["fingerprint"] else ["npy", *RAW_BITS]
    shown = [format_name for format_name in FORMATS if format_name not in plain]
    name = check_format(
        path_or_stream if isinstance(path_or_stream, str | os.PathLike) else "-",
        format,
        shown=shown,
    )
    if name in plain:
        raise InputError(
            f"the {name} format holds one column of fingerprints, not {', '.join(kinds)}"
        )
    if RAW_BITS.get(name, checked_width.bits) != checked_width.bits:
        raise InputError(
            f"the {name} format holds fingerprints of {RAW_BITS[name]} bits, but the width is "
            f"{checked_width.bits}: use npy"
        )
    if (
        path_or_stream == "-"
        and name in RAW_BITS
        and sys.stdout is not None
        and sys.stdout.isatty()
    ):
        raise InputError(
            f"format {name} is binary, which a terminal does not show: name a file, or pipe it"
        )
    sink = Sink(path_or_stream, packed=name in LINE_FORMATS)
    try:
        if name == "npy" or name in RAW_BITS:
            encoder: Encoder = RawEncoder(sink, name == "npy", checked_width)
        elif name == "parquet":
            encoder = ParquetEncoder(sink, kinds, checked_width, fingerprinter)
        else:
            encoder = lines = LineEncoder(sink, name, kinds, checked_width)
            if header:
                lines.write_header()
    except BaseException:
        sink.abort()
        raise
    return Writer(sink, encoder, kinds, checked_width)


def _check_texts(name: str, values: Any) -> list[str]:
    """Return a column of strings, which may be empty."""
    texts = list(values)
    wrong = next((value for value in texts if not isinstance(value, str)), None)
    if wrong is not None:
        raise InputError(f"column {name!r} must hold strings, got {show(wrong)}")
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"column {name!r} has a string that UTF-8 cannot encode") from None
    return texts


def forbidden_characters(format_name: str) -> str:
    """Return the characters that no string may have in a format."""
    return _UNWRITABLE.get(format_name, "")


class LineEncoder(Encoder):
    """Rows as lines of delimited text, with quotes only in CSV, or of JSON objects.

    Fingerprints are hexadecimal digits.
    """

    def __init__(
        self, sink: Sink, format_name: str, columns: Mapping[str, ColumnKind], width: Width
    ) -> None:
        self._sink, self._format, self._columns, self._width = sink, format_name, columns, width
        self._join: Callable[[Iterable[str]], str] = _DELIMITERS.get(format_name, "").join
        if format_name == "jsonl":
            template = ", ".join(_json(name).replace("%", "%%") + ": %s" for name in columns)
            self._join = f"{{{template}}}".__mod__
        self._forbidden = forbidden_characters(format_name)

    def write_header(self) -> None:
        """Write the names of the columns, which objects have anyway."""
        if self._format != "jsonl":
            self._write([self._join(self._cells("the header", list(self._columns)))])

    def write(self, data: NamedColumns) -> None:
        cells = []
        for name, values in data.items():
            if self._columns[name] == "label":
                cells.append(self._labels(name, values))
            elif isinstance(values, list):
                cells.append(self._cells(name, values))
            elif self._columns[name] == "share":
                unknown = "null" if self._format == "jsonl" else ""
                cells.append([str(n) if n == n else unknown for n in values.tolist()])
            elif self._columns[name] != "fingerprint":
                cells.append(list(map(str, values.tolist())))
            else:
                digits = self._width.texts(values)
                cells.append(
                    [f'"{text}"' for text in digits] if self._format == "jsonl" else digits
                )
        self._write(map(self._join, zip(*cells, strict=True)))

    def _write(self, lines: Iterable[str]) -> None:
        self._sink.write(("\n".join(lines) + "\n").encode("utf-8"))

    def _labels(self, name: str, values: Iterable[str | None]) -> list[str]:
        """Return the cells of labels: a null is empty in delimited text."""
        if self._format == "jsonl":
            return ["null" if value is None else _json(value) for value in values]
        return self._cells(name, [value or "" for value in values])

    def _cells(self, name: str, values: list[str]) -> list[str]:
        if self._format == "jsonl":
            return list(map(_json, values))
        joined = "".join(values)
        if any(character in joined for character in self._forbidden):
            value = next(value for value in values if set(value) & set(self._forbidden))
            raise InputError(
                f"{show(value)} in {name} cannot be written as {self._format}: it holds a "
                "separator or a line break; write JSON lines (a file.jsonl) or Parquet "
                "(a file.parquet)"
            )
        if self._format == "csv" and any(character in joined for character in _QUOTED):
            return [
                '"' + value.replace('"', '""') + '"' if set(value) & set(_QUOTED) else value
                for value in values
            ]
        return values
