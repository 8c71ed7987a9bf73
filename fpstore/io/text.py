"""Delimited text, ``.tsv``, ``.csv`` and ``.txt``: a fingerprint, then an optional id, in each row."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.strings import StringColumn
from fpstore.errors import InputError, show
from fpstore.io.check import check_string_id
from fpstore.io.columns import parse_block
from fpstore.io.delimited import SEPARATORS, DelimitedText, Dialect
from fpstore.io.digits import is_like_fingerprint, read_digits
from fpstore.io.lines import BLOCK_BYTES, LineSource
from fpstore.io.source import Batch, Fields, IdColumn, IdRule, InputFile, at, located


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
        self._text = DelimitedText(file.name, dialect, self.end, loose=True)

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield the rows of successive blocks."""
        layout: Layout | None = None
        self._text.comments = True
        for block, line in self._text.blocks(self.blocks()):
            if layout is None:
                layout, block = self._find_layout(block, line)
                self._text.comments = layout is None or layout.fingerprint == 0
            if layout is not None and block:
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
        """Parse a block of whole lines: at once if it is regular, otherwise row by row."""
        if layout.regular and not (self._dialect == "csv" and b'"' in block):
            fields = self.fields
            columns = parse_block(block, SEPARATORS[self._dialect], fields.digits, rule.kind, rule.plain, self.end)
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
        """Parse a block row by row; the error names the first line of the first bad row."""
        fingerprints: list[int] = []
        integers: list[int] = []
        strings: list[str] = []
        for row in self._text.rows(block, line):
            try:
                _check_width(row.cells, layout)
                fingerprints.append(read_digits(row.cells[layout.fingerprint], self.fields.digits))
                has_id = layout.id is not None and layout.id < len(row.cells)
                identifier = check_string_id(row.cells[layout.id or 0]) if has_id else None
                rule.expect(identifier is not None)
                if identifier is not None and rule.kind == "int":
                    integers.append(rule.integer(identifier))
                elif identifier is not None:
                    strings.append(identifier)
            except InputError as error:
                raise at(self.name, row.line, str(error)) from None
        ids: IdColumn = None
        if rule.has_ids and fingerprints:
            ids = np.array(integers, dtype=np.uint64) if rule.kind == "int" else StringColumn.of(strings)
        return self.fields.width.rows(fingerprints), ids

    def _find_layout(self, block: bytes, line: int) -> tuple[Layout | None, bytes]:
        """Return the layout that the first row of a file tells, and the block without a header; None if there is no row."""
        row = next(self._text.rows(block, line), None)
        if row is None:
            return None, b""
        with located(self.name, row.line):
            layout = self._header(row.cells)
        return (Layout(), block) if layout is None else (layout, b"")

    def _header(self, cells: list[str]) -> Layout | None:
        """Return the layout that a header line describes; None if the line is data."""
        names = [cell.strip(" \t").lower() for cell in cells]
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


def _check_width(cells: list[str], layout: Layout) -> None:
    count = len(cells)
    if layout.width is not None and count != layout.width:
        raise InputError(f"columns: {count}, but the header names {layout.width}")
    if layout.width is None and count > 2:
        raise InputError(
            f"columns: {count}; expected a fingerprint and an optional id (more columns need a header line that names them)"
        )
