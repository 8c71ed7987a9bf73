"""Rows of delimited text, ``.tsv``, ``.csv`` and ``.txt``: one reader, for files of fingerprints and for corpora."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from fpstore.errors import InputError, show
from fpstore.io.lines import MAX_LINE_BYTES
from fpstore.io.source import at

Dialect = Literal["tsv", "csv", "txt"]

SEPARATORS: dict[Dialect, bytes] = {"tsv": b"\t", "csv": b",", "txt": b"\t, "}
_TXT_GAP = re.compile(r"[ \t]*,[ \t]*|[ \t]+")
_BLANK = b" \t"

# Where rows of CSV end. What is wrong with a row is found when it is taken apart.
_CLOSED = rb'[^"]*+(?:""[^"]*+)*+"[^,\n]*+'  # behind the quote that opens a cell
_CELL = rb'(?:"' + _CLOSED + rb'|[^",\n][^,\n]*+|)'
_MORE = rb"(?:," + _CELL + rb")*+\n"
_CSV_ROW, _CSV_COMMENT = _CELL + _MORE, rb"#[^\n]*+\n"
_CSV_ROWS = re.compile(rb"(?:" + _CSV_ROW + rb")*+")
_CSV_ROWS_AND_COMMENTS = re.compile(rb"(?:" + _CSV_COMMENT + rb"|" + _CSV_ROW + rb")*+")
_CSV_REST = re.compile(_CLOSED + _MORE)
_LINE = rb"[^%(end)s]*+%(end)s"
_NO_ROWS = rb"(?:[ \t\r]*+%(end)s|#[^%(end)s]*+%(end)s)*+"


class Row(NamedTuple):
    """A row: its first line, its bytes as they stand in the file, and its cells."""

    line: int
    raw: bytes
    cells: list[str]


class DelimitedText:
    """Takes blocks of lines apart: those of one file.

    Parameters
    ----------
    name : str
        The file, for messages.
    dialect : {"tsv", "csv", "txt"}
        Cells are separated by tabs, and are as they stand; or by commas, and may be quoted, with line breaks in them; or by tabs,
        commas or blanks.
    end : bytes
        The end of a line: a line feed or a zero byte. Those with a zero byte have one row each.
    loose : bool
        As files of fingerprints are: lines of blanks are no rows, and bytes that are not UTF-8 become surrogates. Otherwise they
        are an error.

    Attributes
    ----------
    comments : bool
        Whether lines that begin with ``#`` are no rows.
    """

    def __init__(self, name: str, dialect: Dialect, end: bytes = b"\n", loose: bool = False) -> None:
        self._name, self._dialect, self._end, self._loose = name, dialect, end, loose
        self._in_quotes = dialect == "csv" and end == b"\n"  # whether rows may have more than one line
        self._break = "\n" if self._in_quotes else ""
        self._first_row = re.compile(_NO_ROWS % {b"end": end} + (_CSV_ROW if self._in_quotes else _LINE % {b"end": end}))
        self.comments = loose

    def blocks(self, blocks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Yield blocks that end where a row ends, and the number of the first line of each.

        The first row is alone in its block: if it is a header, it may say that there are no comments.
        """
        held: list[bytes] = []
        held_line = held_bytes = 0
        seen = False
        for block, line in blocks:
            start = 0
            if held:
                rest = _CSV_REST.match(block)
                start = rest.end() if rest else len(block)
                held.append(block[:start])
                held_bytes += start
                if held_bytes > MAX_LINE_BYTES:
                    raise at(self._name, held_line, f"a row longer than {MAX_LINE_BYTES >> 20} MiB: is a quote not closed?")
                if not rest:
                    continue
                yield b"".join(held), held_line
                held, seen = [], True
            first = None if seen else self._first_row.match(block, start)
            if first:
                yield block[: first.end()], line
                start, seen = first.end(), True
            stop = self._last_end(block, start)
            if stop > start:
                yield block[start:stop], line + block.count(self._end, 0, start)
            if stop < len(block):
                held, held_line, held_bytes = [block[stop:]], line + block.count(self._end, 0, stop), len(block) - stop
        if held:
            yield b"".join(held), held_line

    def _last_end(self, block: bytes, start: int) -> int:
        """Return where the last row of a block of lines ends."""
        if not self._in_quotes or block.find(b'"', start) < 0:
            return len(block)
        found = (_CSV_ROWS_AND_COMMENTS if self.comments else _CSV_ROWS).match(block, start)
        assert found
        return found.end()

    def rows(self, block: bytes, first: int) -> Iterator[Row]:
        """Yield the rows of a block; the error names the first line of a bad one.

        Parameters
        ----------
        block : bytes
            Whole rows.
        first : int
            The number of its first line.
        """
        import csv

        lines = block.split(self._end)[:-1]
        start = stop = 0

        def of_row() -> Iterator[str]:
            nonlocal stop
            while stop < len(lines) and (stop == start or self._in_quotes):
                stop += 1
                yield self._decoded(lines[stop - 1], first + stop - 1) + self._break

        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
        quoted = csv.reader(of_row(), strict=True)
        while stop < len(lines):
            start, text = stop, self._without_return(lines[stop])
            if not (text.strip(_BLANK) if self._loose else text) or (self.comments and text.startswith(b"#")):
                stop += 1
                continue
            if self._dialect == "csv" and b'"' in text:
                try:
                    cells = next(quoted)
                except csv.Error as error:
                    raise self._not_csv(str(error), text, first + start) from None
                if self._without_return(lines[stop - 1]).endswith((b"\n", b"\r")):  # which csv.reader drops
                    raise self._not_csv("a line break outside quotes at the end of the row", text, first + start)
            else:
                stop += 1
                cells = self._split(self._decoded(text, first + start))
            yield Row(first + start, self._end.join(lines[start:stop]) + self._end, cells)

    def _not_csv(self, reason: str, text: bytes, line: int) -> InputError:
        return at(self._name, line, f"not valid CSV: {reason} in {show(text.decode('utf-8', 'backslashreplace'))}")

    def _without_return(self, line: bytes) -> bytes:
        return line.removesuffix(b"\r") if self._end == b"\n" else line

    def _decoded(self, text: bytes, line: int) -> str:
        try:
            return text.decode("utf-8", "surrogateescape" if self._loose else "strict")
        except UnicodeDecodeError:
            shown = show(text.decode("utf-8", "backslashreplace"))
            raise at(self._name, line, f"not valid UTF-8: {shown}; --encoding (encoding=) names another") from None

    def _split(self, text: str) -> list[str]:
        if self._dialect == "txt":
            return _TXT_GAP.split(text.strip(" \t"))
        return text.split("," if self._dialect == "csv" else "\t")
