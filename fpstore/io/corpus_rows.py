"""Corpora in files of lines: JSON lines, and delimited text with a header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fpstore.base.aliases import Progress
from fpstore.errors import InputError, cut, show
from fpstore.io.corpus import Chosen, CorpusFiles, Flags, KeptRows, Part, Skip, part_of
from fpstore.io.delimited import DelimitedText, Dialect, Row
from fpstore.io.jsonl import fields_of, parse_object
from fpstore.io.lines import line_blocks
from fpstore.io.sink import Complete, Sink
from fpstore.io.source import InputFile, at, located

PART_BYTES = 1 << 20
_BLANK = b" \t\r\n"


class _LineFiles(CorpusFiles):
    """Files of lines."""

    def _blocks(self, file: InputFile) -> Iterator[tuple[bytes, int]]:
        """Yield whole lines in UTF-8, and the number of the first."""
        return line_blocks(file, self._count, arrives=self.arrives and file.arrives, encoding=self.encoding)


class JsonlCorpus(_LineFiles):
    """Files of JSON lines. A blank line is no row, and is not copied."""

    suffix = ".jsonl"

    def can_arrive(self) -> bool:
        """Whether the rows come through a pipe, a socket or a terminal."""
        return self.encoding is None and any(file.arrives for file in self.files)

    def parts(self, chosen: Chosen, skipped: int = 0) -> Iterator[Part]:
        """Yield the chosen columns of all rows but some at the beginning."""
        self.bytes_done, skip = 0, Skip(skipped)
        self.absent = set(chosen.text) if isinstance(chosen.text, tuple) and not skipped else set()
        for file in self.files:
            for block, first in self._blocks(file):
                rows, lines = [], []
                filled = [row for row in enumerate(block.split(b"\n")[:-1], first) if row[1].strip(_BLANK)]
                for number, line in skip.of(filled):
                    with located(file.name, number):
                        rows.append(parse_object(line, exactly=chosen.score is not None))
                    lines.append(number)
                if filled and not rows:
                    continue
                columns = {name: [row.get(name) for row in rows] for name in chosen.names}
                self.absent -= self._check_fields(file, rows, lines, columns, chosen.texts)
                yield part_of(columns, chosen, file.name, lines)
        skip.finish()

    @staticmethod
    def _check_fields(
        file: InputFile, rows: list[dict[str, Any]], lines: list[int], columns: dict[str, list[Any]], texts: tuple[str, ...]
    ) -> set[str]:
        """Refuse rows without a field, or without all of several texts: null is a value, and a name that was mistyped is not.

        Return the fields that some row has.
        """
        found = set()
        for name, values in columns.items():
            enough = texts if name in texts else (name,)
            if None in values:
                for row, line in zip(rows, lines, strict=True):
                    if not any(field in row for field in enough):
                        lacking = f"the field {show(name)} is" if len(enough) == 1 else f"the fields {', '.join(enough)} are"
                        raise at(file.name, line, f"{lacking} missing{fields_of(row)}")
            if any(name in row for row in rows):
                found.add(name)
        return found

    def copy(self, kept: Flags, target: Any, progress: Progress | None = None, complete: Complete | None = None) -> None:
        """Write the rows that are kept, byte for byte."""
        flags = KeptRows(kept, progress)
        self.check_unchanged()
        with Sink(target, complete) as sink:
            for file in self.files:
                for block, _ in self._blocks(file):
                    lines = [line for line in block.split(b"\n")[:-1] if line.strip(_BLANK)]
                    some = flags.take(len(lines)).tolist()
                    sink.write(b"".join([line + b"\n" for line, keep in zip(lines, some, strict=True) if keep]))
            flags.finish()
            self.check_unchanged()


class DelimitedCorpus(_LineFiles):
    """Files of delimited text, whose first row has the names of the columns. A cell in quotes may hold line breaks.

    Parameters
    ----------
    paths : sequence of str
    dialect : {"csv", "tsv"}
        Cells are separated by commas, and may be quoted; or by tabs, and are as they stand.
    again, encoding
        As for `CorpusFiles`. The headers of files that are read once are read with their rows.
    """

    typed = False

    def __init__(self, paths: Sequence[str], dialect: Dialect, again: bool = True, encoding: str | None = None) -> None:
        super().__init__(paths, again, encoding)
        self._dialect = dialect
        self.suffix = f".{dialect}"
        self._header: list[str] = []
        if again:
            for file in self.files:
                self._check_header(next(self._rows(file), None), file)
            self.bytes_done = 0

    def parts(self, chosen: Chosen, skipped: int = 0) -> Iterator[Part]:
        """Yield the chosen columns of all rows but some at the beginning."""
        self.bytes_done, skip = 0, Skip(skipped)
        for file in self.files:
            for rows in map(skip.of, self._batches(file, chosen.names)):
                if not rows:
                    continue
                columns: dict[str, list[Any]] = {}
                for name in chosen.names:
                    place = self._place(name)
                    cells = [row.cells[place] for row in rows]
                    columns[name] = cells if name in chosen.texts else [cell or None for cell in cells]
                yield part_of(columns, chosen, file.name, [row.line for row in rows])
        skip.finish()

    def copy(self, kept: Flags, target: Any, progress: Progress | None = None, complete: Complete | None = None) -> None:
        """Write the header and the rows that are kept, byte for byte."""
        flags = KeptRows(kept, progress)
        self.check_unchanged()
        with Sink(target, complete) as sink:
            sink.write(self._check_header(next(self._rows(self.files[0]), None), self.files[0]).raw)
            for file in self.files:
                for rows in self._batches(file):
                    some = flags.take(len(rows)).tolist()
                    sink.write(b"".join([row.raw for row, keep in zip(rows, some, strict=True) if keep]))
            flags.finish()
            self.check_unchanged()

    def _place(self, name: str) -> int:
        if self._header.count(name) != 1:
            what = f"{self._header.count(name)} columns" if name in self._header else "no column"
            advice = ": these are JSON lines: give --format jsonl" if self._header[0].startswith("{") else ""
            raise InputError(f"{what} named {name!r} (columns here: {', '.join(map(cut, self._header[:8]))}){advice}")
        return self._header.index(name)

    def _check_header(self, header: Row | None, file: InputFile) -> Row:
        """Return the first row of a file, which has the names of the columns; those of the first file are those of all."""
        if header is None:
            raise at(file.name, None, "is empty: a first line with the names of the columns is expected")
        self._header = self._header or header.cells
        if header.cells != self._header:
            raise at(file.name, header.line, f"has other columns than {self.files[0].name}")
        return header

    def _batches(self, file: InputFile, names: Sequence[str] = ()) -> Iterator[list[Row]]:
        """Yield the rows below the header, some at a time; InputError if the header lacks one of some names."""
        held: list[Row] = []
        size = 0
        rows = self._rows(file)
        self._check_header(next(rows, None), file)
        with located(file.name):
            for name in names:
                self._place(name)
        for row in rows:
            if len(row.cells) != len(self._header):
                quoted = self._dialect == "tsv" and any(cell.startswith('"') for cell in row.cells)
                advice = ": TSV has no quoted cells, write CSV if texts have line breaks or tabs" if quoted else ""
                raise at(file.name, row.line, f"has {len(row.cells)} cells, the header has {len(self._header)}{advice}")
            held.append(row)
            size += len(row.raw)
            if size >= PART_BYTES:
                yield held
                held, size = [], 0
        if held:
            yield held

    def _rows(self, file: InputFile) -> Iterator[Row]:
        """Yield the rows with the bytes that they were read from."""
        text = DelimitedText(file.name, self._dialect)
        for block, first in text.blocks(self._blocks(file)):
            yield from text.rows(block, first)
