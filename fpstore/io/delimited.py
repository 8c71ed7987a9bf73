"""Delimited text, ``.tsv``, ``.csv`` and ``.txt``.

Files of fingerprints with optional ids, and corpora with a header.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

from fpstore.base.keywords import keyword
from fpstore.errors import InputError, show
from fpstore.io.digits import looks_like_fingerprint, parse_block
from fpstore.io.files import error_location, input_error
from fpstore.io.lines import LineParser, Row
from fpstore.io.source import Batch, IdRule, Projection, batch_of_values, column_problem

Dialect = Literal["tsv", "csv", "txt"]

SEPARATORS: dict[Dialect, bytes] = {"tsv": b"\t", "csv": b",", "txt": b"\t, "}
_TXT_GAP = re.compile(r"[ \t]*,[ \t]*|[ \t]+")
_BLANK = b" \t"

_ENDS = "\t\r\n"  # of cells and lines of TSV

# Where rows of CSV end. A row is checked later, when it is split into cells.
_CLOSED = rb'[^"]*+(?:""[^"]*+)*+"[^,\n]*+'  # behind the quote that opens a cell
_CELL = rb'(?:"' + _CLOSED + rb'|[^",\n][^,\n]*+|)'
_MORE = rb"(?:," + _CELL + rb")*+\n"
_CSV_ROW, _CSV_COMMENT = _CELL + _MORE, rb"#[^\n]*+\n"
_CSV_ROWS = re.compile(rb"(?:" + _CSV_ROW + rb")*+")
_CSV_ROWS_AND_COMMENTS = re.compile(rb"(?:" + _CSV_COMMENT + rb"|" + _CSV_ROW + rb")*+")
_CSV_ROW_END = re.compile(_CLOSED + _MORE)
_NO_ROWS = rb"(?:[ \t\r]*+\n|#[^\n]*+\n)*+"
_FIRST_ROW = {True: re.compile(_NO_ROWS + _CSV_ROW), False: re.compile(_NO_ROWS + rb"[^\n]*+\n")}


class DelimitedText(LineParser):
    """Takes the delimited text of one file apart.

    Cells of TSV are separated by tabs, and are as they stand; cells of CSV may be quoted, with line
    breaks in them; cells of txt are separated by tabs, commas or blanks. With a projection, the
    file holds fingerprints in these columns: a header may be missing, and lines of blanks or after
    a ``#`` are no rows. Otherwise, the file has a header.
    """

    typed = False

    def __init__(self, name: str, dialect: Dialect, projection: Projection | None = None) -> None:
        super().__init__(name)
        self._dialect, self._loose = dialect, projection
        self._is_csv = dialect == "csv"  # rows of CSV may have several lines
        self._comments = projection is not None
        self._places: dict[str, int] = {}  # columns that are read, by name
        self._cells: int | None = None  # in each row, by the header

    def blocks(self, blocks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Yield blocks of whole rows below the header, and the number of the first line of each."""
        began = False
        for block, line in self._whole_rows(blocks):
            row = None if began else next(self.rows(block, line), None)
            if row is not None:
                began = True
                if self._is_header(row):
                    continue
            if began:
                yield block, line

    def _is_header(self, row: Row) -> bool:
        """Whether the first row has the names of columns, which are noted."""
        if self._loose is None:
            self.header, self._cells = row, len(row.cells)
            return True
        with error_location(self.name, row.line):
            return self._is_header_of_fingerprints(row.cells, self._loose)

    def _is_header_of_fingerprints(self, cells: Sequence[str], projection: Projection) -> bool:
        names = [cell.strip(" \t").lower() for cell in cells]
        fingerprint, identifier = str(projection.fingerprint), str(projection.id)
        self._places = {fingerprint: 0, identifier: 1}
        if fingerprint.lower() not in names:
            if projection.names_columns:
                raise InputError(f"no header line that names the column {show(fingerprint)}")
            return False
        if (
            not projection.names_columns
            and len(cells) < 3
            and looks_like_fingerprint(names[0], projection.digits)
        ):
            return False  # a fingerprint with the id "fingerprint"
        place = names.index(fingerprint.lower())
        self._places = {fingerprint: place}
        if identifier.lower() in names:
            self._places[identifier] = names.index(identifier.lower())
        elif not projection.optional_id:
            raise InputError(f"the header does not name the column {show(identifier)}")
        elif len(names) == 2:
            self._places[identifier] = 1 - place
        self._cells, self._comments = len(names), place == 0
        return True

    def find_columns(self, projection: Projection) -> None:
        """Note the places of columns; InputError if the header lacks one."""
        names = [] if self.header is None else self.header.cells
        for name in projection.names if names else ():
            if problem := column_problem(name, names):
                advice = (
                    f": these are JSON lines: give {keyword('format', 'jsonl')}"
                    if names[0].startswith("{")
                    else ""
                )
                raise input_error(self.name, None, problem + advice)
            self._places[name] = names.index(name)

    def regular_block(
        self, block: bytes, first: int, projection: Projection, rule: IdRule | None
    ) -> Batch | None:
        """Return the rows of a block of fingerprints and ids that is regular."""
        regular = [*self._places.values()] in ([0], [0, 1]) and self._cells in (1, 2, None)
        if (
            self._loose is None
            or rule is None
            or not regular
            or (self._dialect == "csv" and b'"' in block)
        ):
            return None
        plain = rule.id_type == "auto"
        columns = parse_block(block, SEPARATORS[self._dialect], projection.digits, rule.kind, plain)
        if columns is None:
            return None
        fingerprints, ids = columns
        if len(fingerprints):
            if self._cells not in (None, 1 + (ids is not None)):
                return None
            rule.expect(ids is not None)

        def row_error(place: int, message: str) -> InputError:
            return input_error(
                self.name, next(islice(self.rows(block, first), place, None)).line, message
            )

        return Batch(fingerprints, ids, row_error=row_error)

    def batch(self, rows: list[Row], projection: Projection, rule: IdRule | None) -> Batch:
        row_error = self.row_error([row.line for row in rows])
        for place, row in enumerate(rows):
            if len(row.cells) != self._cells and (self._cells is not None or len(row.cells) > 2):
                raise row_error(place, self._cells_message(row.cells))
        if self._loose is not None:
            place_of_id = self._places.get(str(projection.id))
            has_ids = [place_of_id is not None and place_of_id < len(row.cells) for row in rows]
            if rule is not None:
                rule.expect_each(has_ids, row_error)
            if not has_ids[0]:
                projection = replace(projection, id=None)
        columns: dict[str, list[Any]] = {
            name: [row.cells[self._places[name]] for row in rows] for name in projection.names
        }
        filled = {
            *projection.texts,
            *((projection.fingerprint, projection.id) if projection.strict else ()),
        }
        for name in columns.keys() - filled:
            columns[name] = [cell or None for cell in columns[name]]
        return batch_of_values(columns, projection, rule, row_error, typed=False)

    def fields(self, row: Row) -> dict[str, Any]:
        """Return the cells of a row, by the names in the header.

        InputError if two have one name, or if there is not a cell for each name.
        """
        names = [] if self.header is None else self.header.cells
        if len(set(names)) < len(names):
            raise InputError(f"two columns have one name: {', '.join(map(show, names))}")
        if len(row.cells) != len(names):
            raise input_error(self.name, row.line, self._cells_message(row.cells))
        return dict(zip(names, row.cells, strict=True))

    def with_field(self, row: Row, name: str, text: str) -> Row:
        assert self.header is not None
        cells = list(row.cells)
        cells[self.header.cells.index(name)] = text
        return row._replace(raw=self._same_end(row, cells), cells=cells)

    def extended_line(self, line: bytes, values: Mapping[str, Any]) -> bytes:
        cells = [_cell(value) for value in values.values()]
        separator = SEPARATORS[self._dialect][:1]
        if self._dialect != "csv" and any(set(cell) & set(_ENDS) for cell in cells):
            raise InputError(
                f"{show(next(cell for cell in cells if set(cell) & set(_ENDS)))} cannot be written "
                "as TSV: it holds a tab or a line break"
            )
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        return body + separator + self._encode(cells) + line[len(body) :]

    def line_for_header(self, row: Row, names: Sequence[str]) -> bytes:
        """Return the row with a cell for each name, empty where the row has none."""
        fields = self.fields(row)
        return self._same_end(row, [fields.get(name, "") for name in names])

    def encode_header(self, names: Sequence[str]) -> bytes:
        return self._encode(names)

    def _encode(self, cells: Sequence[str]) -> bytes:
        import csv

        written = io.StringIO()
        if self._dialect == "csv":
            # cells with either are quoted
            csv.writer(written, lineterminator="\r\n").writerow(cells)
        else:
            written.write("\t".join(cells))
        return written.getvalue().removesuffix("\r\n").encode("utf-8")

    def _same_end(self, row: Row, cells: Sequence[str]) -> bytes:
        """Return a row of other cells, whose line ends as that of a row does."""
        return self._encode(cells) + (b"\r" if row.raw.endswith(b"\r") else b"")

    def _cells_message(self, cells: Sequence[str]) -> str:
        if self._loose is None:
            quoted = self._dialect == "tsv" and any(cell.startswith('"') for cell in cells)
            advice = (
                ": TSV has no quoted cells, write CSV if texts have line breaks or tabs"
                if quoted
                else ""
            )
            return f"has {len(cells)} cells, the header has {self._cells}{advice}"
        if self._cells is not None:
            return f"columns: {len(cells)}, but the header names {self._cells}"
        return (
            f"columns: {len(cells)}; expected a fingerprint and an optional id (more columns need "
            "a header line that names them)"
        )

    def _whole_rows(self, blocks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Yield blocks that end where a row ends, and the number of the first line of each.

        The first row is alone in its block: if it is a header, it may say that there are no
        comments.
        """
        pieces: list[bytes] = []
        first_line = piece_bytes = 0
        began = False
        for block, line in blocks:
            start = 0
            if pieces:
                row_end = _CSV_ROW_END.match(block)
                start = row_end.end() if row_end else len(block)
                pieces.append(block[:start])
                piece_bytes += start
                if piece_bytes > self.limit.bytes:
                    raise input_error(
                        self.name, first_line, f"a row {self.limit}; is a quote not closed?"
                    )
                if not row_end:
                    continue
                yield b"".join(pieces), first_line
                pieces, began = [], True
            first = None if began else _FIRST_ROW[self._is_csv].match(block, start)
            if first:
                yield block[: first.end()], line
                start, began = first.end(), True
            stop = self._last_end(block, start)
            if stop > start:
                yield block[start:stop], line + block.count(b"\n", 0, start)
            if stop < len(block):
                pieces, first_line, piece_bytes = (
                    [block[stop:]],
                    line + block.count(b"\n", 0, stop),
                    len(block) - stop,
                )
        if pieces:
            yield b"".join(pieces), first_line

    def _last_end(self, block: bytes, start: int) -> int:
        if not self._is_csv or block.find(b'"', start) < 0:
            return len(block)
        rows = (_CSV_ROWS_AND_COMMENTS if self._comments else _CSV_ROWS).match(block, start)
        assert rows
        return rows.end()

    def rows(self, block: bytes, first: int) -> Iterator[Row]:
        """Yield the rows of a block; the error names the first line of a bad one."""
        import csv

        lines = block.split(b"\n")[:-1]
        start = stop = 0

        def of_row() -> Iterator[str]:
            nonlocal stop
            while stop < len(lines):
                stop += 1
                yield self._decode(lines[stop - 1], first + stop - 1) + "\n"

        csv.field_size_limit(max(csv.field_size_limit(), self.limit.bytes))
        quoted = csv.reader(of_row(), strict=True)

        def broken_row(error: InputError) -> None:
            """Count a row that is broken, and go on behind it; raise the error if none may be."""
            nonlocal quoted
            if self.broken is None or (self._loose is None and self._cells is None):
                raise error
            self.broken.add(self.name, first + start)
            quoted = csv.reader(of_row(), strict=True)

        while stop < len(lines):
            start, text = stop, lines[stop].removesuffix(b"\r")
            if not (text.strip(_BLANK) if self._loose else text) or (
                self._comments and text.startswith(b"#")
            ):
                stop += 1
                continue
            try:
                if self._is_csv and b'"' in text:
                    try:
                        cells = next(quoted)
                    except csv.Error as error:
                        raise self._not_csv(str(error), text, first + start) from None
                    # which csv.reader drops
                    if lines[stop - 1].removesuffix(b"\r").endswith(b"\r"):
                        raise self._not_csv(
                            "a line break outside quotes at the end of the row", text, first + start
                        )
                else:
                    stop += 1
                    cells = self._split(self._decode(text, first + start))
                row = Row(first + start, b"\n".join(lines[start:stop]), cells)
                if self.broken is not None:
                    self._check_intact(row)
            except InputError as error:
                broken_row(error)
                continue
            yield row

    def is_broken(self, row: Row) -> bool:
        try:
            self._check_intact(row)
        except InputError:
            return True
        return False

    def _check_intact(self, row: Row) -> None:
        """Raise InputError for a row that --skip-bad would skip."""
        if self._loose is None:
            if self._cells is not None and len(row.cells) != self._cells:
                raise input_error(self.name, row.line, self._cells_message(row.cells))
        elif self._places:
            self.batch([row], self._loose, None)

    def _not_csv(self, reason: str, text: bytes, line: int) -> InputError:
        return input_error(
            self.name,
            line,
            f"not valid CSV: {reason} in {show(text.decode('utf-8', 'backslashreplace'))}",
        )

    def _decode(self, text: bytes, line: int) -> str:
        try:
            return text.decode("utf-8", "surrogateescape" if self._loose else "strict")
        except UnicodeDecodeError:
            shown = show(text.decode("utf-8", "backslashreplace"))
            raise input_error(
                self.name, line, f"not valid UTF-8: {shown}; {keyword('encoding')} names another"
            ) from None

    def _split(self, text: str) -> list[str]:
        if self._dialect == "txt":
            return _TXT_GAP.split(text.strip(" \t"))
        return text.split("," if self._dialect == "csv" else "\t")


def _cell(value: Any) -> str:
    """Return the text of a value; nothing for None."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
