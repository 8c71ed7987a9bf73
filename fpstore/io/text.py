"""Delimited text, ``.tsv``, ``.csv`` and ``.txt``: a fingerprint, then an optional id, on each line."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from fpstore.aliases import Words
from fpstore.errors import InputError, show
from fpstore.io.check import check_string_id
from fpstore.io.columns import parse_block
from fpstore.io.digits import is_like_fingerprint, read_digits
from fpstore.io.lines import BLOCK_BYTES, LineSource
from fpstore.io.source import Batch, Fields, IdColumn, IdRule, InputFile, at, located
from fpstore.string_column import StringColumn

Dialect = Literal["tsv", "csv", "txt"]

_SEPARATORS: dict[Dialect, bytes] = {"tsv": b"\t", "csv": b",", "txt": b"\t, "}
_TXT_GAP = re.compile(rb"[ \t]*,[ \t]*|[ \t]+")
_BLANK = b" \t"


class Layout(NamedTuple):
    """The places of the columns. ``width`` is the number of columns in the header, None without a header."""

    fingerprint: int = 0
    id: int | None = 1
    width: int | None = None

    @property
    def regular(self) -> bool:
        """Whether the first column is the fingerprint and the second, if any, the id."""
        return self.fingerprint == 0 and self.id in (1, None) and self.width in (1, 2, None)


class TextSource(LineSource):
    """One delimited text input."""

    typed = False

    def __init__(self, file: InputFile, fields: Fields, dialect: Dialect, block_bytes: int = BLOCK_BYTES) -> None:
        super().__init__(file, fields, block_bytes)
        self._dialect = dialect

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield the rows of successive blocks."""
        layout: Layout | None = None
        for block, line in self.blocks():
            if layout is None:
                layout, skip = self._find_layout(block, line)
                if layout is None:
                    continue
                line += block[:skip].count(self.end)
                block = block[skip:]
            if block:
                yield from self.parsed(block, line, partial(self._batch, layout, rule))

    def _batch(self, layout: Layout, rule: IdRule, block: bytes, line: int) -> Batch:
        fingerprints, ids = self._parse(block, line, layout, rule)
        if ids is None or rule.kind is not None:
            return Batch(fingerprints, ids)

        def as_integers() -> Words:
            integers = IdRule("auto", rule.has_ids, "int")
            return np.asarray(self._parse(block, line, layout, integers)[1], dtype=np.uint64)

        return Batch(fingerprints, ids, as_integers)

    def _parse(self, block: bytes, line: int, layout: Layout, rule: IdRule) -> tuple[Words, IdColumn]:
        """Parse a block of whole lines: at once if it is regular, otherwise line by line."""
        if layout.regular and not (self._dialect == "csv" and b'"' in block):
            fields = self.fields
            columns = parse_block(block, _SEPARATORS[self._dialect], fields.digits, rule.kind, rule.plain, self.end)
            if columns is not None:
                fingerprints, ids = columns
                has_ids = ids is not None
                if not len(fingerprints):
                    return fingerprints, None
                if layout.width in (None, 1 + has_ids) and rule.has_ids in (None, has_ids):
                    rule.has_ids = has_ids
                    return columns
        return self.parse_lines(block, line, layout, rule)

    def parse_lines(self, block: bytes, line: int, layout: Layout, rule: IdRule) -> tuple[Words, IdColumn]:
        """Parse a block line by line; the error names the first bad line."""
        fingerprints: list[int] = []
        integers: list[int] = []
        strings: list[str] = []
        comments = layout.fingerprint == 0
        for number, raw in enumerate(block.split(self.end)[:-1], line):
            text = self._without_return(raw)
            if not text.strip(_BLANK) or (comments and text.startswith(b"#")):
                continue
            try:
                cells = self._split(text)
                _check_width(cells, layout)
                cell = cells[layout.fingerprint].decode("utf-8", "backslashreplace")
                fingerprints.append(read_digits(cell, self.fields.digits))
                has_id = layout.id is not None and layout.id < len(cells)
                identifier = _decode_id(cells[layout.id or 0]) if has_id else None
                rule.expect(identifier is not None)
                if identifier is not None and rule.kind == "int":
                    integers.append(rule.integer(identifier))
                elif identifier is not None:
                    strings.append(identifier)
            except InputError as error:
                raise at(self.name, number, str(error)) from None
        ids: IdColumn = None
        if rule.has_ids and fingerprints:
            ids = np.array(integers, dtype=np.uint64) if rule.kind == "int" else StringColumn.of(strings)
        return self.fields.width.rows(fingerprints), ids

    def _without_return(self, line: bytes) -> bytes:
        return line if self.fields.null else line.removesuffix(b"\r")

    def _split(self, text: bytes) -> list[bytes]:
        if self._dialect == "txt":
            return _TXT_GAP.split(text.strip(_BLANK))
        if self._dialect == "csv" and b'"' in text:
            return _split_quoted(text)
        return text.split(_SEPARATORS[self._dialect])

    def _find_layout(self, block: bytes, line: int) -> tuple[Layout | None, int]:
        """Return the layout from the first data line, and the number of bytes to skip; None if there is no such line."""
        start = 0
        while start < len(block):
            end = block.index(self.end, start)
            text = self._without_return(block[start:end])
            if text.strip(_BLANK) and not text.startswith(b"#"):
                with located(self.name, line):
                    layout = self._header(self._split(text))
                return (Layout(), start) if layout is None else (layout, end + 1)
            start = end + 1
            line += 1
        return None, 0

    def _header(self, cells: list[bytes]) -> Layout | None:
        """Return the layout that a header line describes; None if the line is data."""
        names = [cell.decode("utf-8", "backslashreplace").strip(" \t").lower() for cell in cells]
        fields = self.fields
        named = fields.fingerprint is not None or fields.id is not None
        name = fields.fingerprint or "fingerprint"
        if name.lower() not in names:
            if named:
                raise InputError(f"no header line that names the column {show(name)}")
            return None
        if not named and len(cells) < 3 and is_like_fingerprint(names[0], fields.digits):
            return None  # a fingerprint with the id "fingerprint"
        fingerprint = names.index(name.lower())
        wanted_id = (fields.id or "id").lower()
        identifier: int | None = None
        if wanted_id in names:
            identifier = names.index(wanted_id)
        elif fields.id is not None:
            raise InputError(f"the header does not name the column {show(fields.id)}")
        elif len(names) == 2:
            identifier = 1 - fingerprint
        return Layout(fingerprint, identifier, len(names))


def _check_width(cells: list[bytes], layout: Layout) -> None:
    count = len(cells)
    if layout.width is not None and count != layout.width:
        raise InputError(f"columns: {count}, but the header names {layout.width}")
    if layout.width is None and count > 2:
        raise InputError(
            f"columns: {count}; expected a fingerprint and an optional id (more columns need a header line that names them)"
        )


def _split_quoted(text: bytes) -> list[bytes]:
    import csv

    if text.endswith((b"\n", b"\r")):  # which csv.reader would drop
        raise InputError(
            f"not valid CSV: a line break outside quotes at the end of {show(text.decode('utf-8', 'backslashreplace'))}"
        )
    try:
        rows = list(csv.reader([text.decode("utf-8")], strict=True))
    except UnicodeDecodeError:
        raise InputError(f"not valid UTF-8: {show(text.decode('utf-8', 'backslashreplace'))}") from None
    except csv.Error as error:
        raise InputError(f"not valid CSV: {error} in {show(text.decode('utf-8'))}") from None
    return [cell.encode("utf-8") for cell in rows[0]]


def _decode_id(cell: bytes) -> str:
    try:
        return check_string_id(cell.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"the id {show(cell.decode('utf-8', 'backslashreplace'))} is not valid UTF-8") from None
