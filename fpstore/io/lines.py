"""Files of lines as rows.

Blocks of whole lines, in bounded memory, which a parser takes apart, such as `JsonLines`.
"""

from __future__ import annotations

import fcntl
import os
import select
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, compress
from typing import Any, NamedTuple, Self

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.diagnostics import notify
from fpstore.base.keywords import accepts, keyword
from fpstore.base.resources import parse_memory
from fpstore.errors import InputError, plural, show
from fpstore.io.digits import names_width
from fpstore.io.encodings import transcoded
from fpstore.io.fields import field_reader, has_field, names_here
from fpstore.io.files import (
    InputFile,
    error_location,
    input_error,
    translate_storage_errors,
    unpacked,
)
from fpstore.io.source import (
    Batch,
    IdRule,
    OmittedRow,
    Projection,
    RowError,
    RowFiles,
    RowFlags,
    Skip,
    id_or_none,
)

BLOCK_BYTES = 1 << 20  # in one read
# the limit of a line: these bytes or, if that is more, this part of the memory
LINE_BYTES, LINE_SHARE = 16 << 20, 8
NAMED_LINES = 10  # of those that are skipped
BLANK = b" \t\r\n"

_UTF8_BOM = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """A row: its first line, its bytes without the last line end, and its cells, if any."""

    line: int
    raw: bytes
    cells: Sequence[str] = ()


class BrokenLines:
    """Lines that are skipped, as blank lines are: their number, and the places of the first."""

    def __init__(self) -> None:
        self.count, self._first = 0, list[str]()

    def add(self, name: str, line: int) -> None:
        self.count += 1
        if len(self._first) < NAMED_LINES:
            self._first.append(f"{name}:{line}")

    def report(self) -> None:
        if self.count:
            unnamed = self.count - len(self._first)
            more = f" and {unnamed:,} more" if unnamed else ""
            notify(f"{plural(self.count, 'broken line')} skipped: {', '.join(self._first)}{more}")


class LineLimit(NamedTuple):
    """The most bytes of a line, or of a row of several lines; a caller's memory may limit them."""

    bytes: int = LINE_BYTES
    of_memory: bool = False

    @classmethod
    def from_memory(cls, memory: int, of_memory: bool) -> Self:
        """Return the limit that an amount of memory allows."""
        return cls(max(memory // LINE_SHARE, LINE_BYTES), of_memory)

    def __str__(self) -> str:
        advice = (
            f": with more {keyword('memory')}, a line may take an eighth of it"
            if self.of_memory
            else ""
        )
        return f"longer than {self.bytes >> 20} MiB{advice}"


class LineParser(ABC):
    """Takes the lines of one file apart, in one reading."""

    typed = True  # ids have a type of their own
    limit = LineLimit()  # the limit of a row of several lines
    header: Row | None = None  # the first row, where it must have the names of the columns

    def __init__(self, name: str) -> None:
        self.name = name
        self.present_columns = set[str]()  # that a row has had, where rows may lack some
        self.other_columns = dict[str, None]()  # of rows without a column that is read
        self.needs_all = False  # whether a row that lacks a column is wrong
        self.broken: BrokenLines | None = None  # where lines that are broken are no rows

    def blocks(self, blocks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Yield blocks of whole rows below the header, and the number of the first line of each."""
        yield from blocks

    def find_columns(self, projection: Projection) -> None:  # noqa: B027 - most formats have no header
        """Raise InputError if the header lacks a column."""

    @abstractmethod
    def rows(self, block: bytes, first: int) -> Iterator[Row]:
        """Yield the rows of a block whose first line has a number.

        A line that is broken is counted, and is no row, if there are ``broken`` ones; otherwise, it
        is a row, or an error.
        """

    def line_bounds(self, block: bytes) -> tuple[Words, Words] | None:
        """Return where each row of a block starts and ends, if rows are lines, and stay as such."""
        return None

    @abstractmethod
    def is_broken(self, row: Row) -> bool:
        """Whether a row is broken in a way that could be skipped."""

    def regular_block(
        self, block: bytes, first: int, projection: Projection, rule: IdRule | None
    ) -> Batch | None:
        """Return the rows of a regular block.

        None, or InputError, means that the block must be read row by row.
        """
        return None

    @abstractmethod
    def batch(self, rows: list[Row], projection: Projection, rule: IdRule | None) -> Batch:
        """Return the columns of some rows."""

    @abstractmethod
    def fields(self, row: Row) -> dict[str, Any]:
        """Return all fields of a row; in delimited text, all are strings."""

    def encode_header(self, names: Sequence[str]) -> bytes:
        """Return the bytes of a header with these names; none in a format without headers."""
        return b""

    @abstractmethod
    def with_field(self, row: Row, name: str, text: str) -> Row:
        """Return a row with another text in a field, and all else as it stands."""

    @abstractmethod
    def extended_line(self, line: bytes, values: Mapping[str, Any]) -> bytes:
        """Return a line with its end, and more fields behind those that it has.

        Values are None, bool, int, float and str.
        """

    def line_for_header(self, row: Row, names: Sequence[str]) -> bytes:
        """Return the bytes of a row in a file whose header has these names, if it has a header."""
        return row.raw

    def row_error(self, lines: Sequence[int]) -> RowError:
        """Return what makes the errors of rows that begin in some lines."""
        return lambda place, message: input_error(self.name, lines[place], message)


class LineRows(RowFiles):
    """Files of lines: JSON lines or delimited text.

    Rows are copied byte for byte; a blank line is no row, and is not copied. With ``skip_bad``,
    neither is a line that is broken: one that is no JSON object or not in its encoding, or a row
    with more or fewer cells than the header.

    ``parser`` makes the `LineParser` of a file from its name. ``unbuffered``: yield the lines that
    have come through a pipe, a socket or a terminal, without waiting for others, and those before a
    bad one. If the caller cannot choose, ``skip_bad`` is None.
    """

    def __init__(
        self,
        paths: Sequence[str],
        suffix: str,
        parser: Callable[[str], LineParser],
        again: bool = False,
        encoding: str | None = None,
        unbuffered: bool = False,
        skip_bad: bool | None = None,
    ) -> None:
        super().__init__(paths, again, encoding)
        self.skip_bad, self._is_reported = bool(skip_bad), False
        self.suffix, self._parser = suffix, parser
        self._limit = (
            LineLimit.from_memory(parse_memory(None), of_memory=False) if again else LineLimit()
        )
        self.typed = parser("").typed
        self.unbuffered = (
            unbuffered and self.encoding is None and any(file.arrives for file in self.files)
        )
        self._may_skip = skip_bad is False and not self.unbuffered
        if skip_bad and self.unbuffered:
            raise InputError(
                f"{keyword('skip_bad', True)} is for files: a line that is answered as it comes is "
                "not skipped"
            )
        self.headers = list[Row]()  # the headers of files that are read again
        for file in self.files if again and not self.typed else ():
            line_parser = parser(file.name)
            next(self._blocks(file, line_parser), None)
            self.headers += [] if line_parser.header is None else [line_parser.header]
        self.columns = self._all_columns()
        self.bytes_done = 0
        self._leaves_out_wrong = False

    def leave_out_wrong(self, leave_out: bool) -> None:
        self._leaves_out_wrong = leave_out

    def batches(
        self, projection: Projection, rule: IdRule | None = None, skipped: int = 0
    ) -> Iterator[Batch]:
        self.bytes_done, skip, projection = 0, Skip(skipped), projection.begin()
        absent = AbsentColumns(projection if self.typed and not skipped else Projection())
        self.absent, self.lacks_columns = absent.texts, bool(absent.columns)
        self.rows_of_files, broken = [], BrokenLines()
        for file in self.files:
            parser, count, remaining_before = self._parser(file.name), 0, skip.remaining
            parser.broken = broken if self.skip_bad else None
            for block, first in self._blocks(file, parser, projection):
                for batch in self._parse_block(parser, block, first, projection, rule, skip):
                    count += len(batch.flags)
                    yield batch
                if absent.columns:
                    absent.update(parser)
                    self.absent, self.lacks_columns = absent.texts, bool(absent.problem())
            self.rows_of_files.append(remaining_before - skip.remaining + count)
        skip.finish()
        if not self._is_reported:
            broken.report()
            self._is_reported = True
        if not skipped:
            self._note_roles(projection)
        if not self.is_part and any(self.rows_of_files) and (problem := absent.problem()):
            raise InputError(f"{self.label}: {problem}")

    def single_file(self, number: int) -> LineRows:
        """Return one of the files as a source of its own."""
        source = LineRows(
            [self.paths[number]],
            str(self.suffix),
            self._parser,
            again=True,
            encoding=self.encoding,
            skip_bad=self.skip_bad,
        )
        source._limit = self._limit
        return source

    def limit_memory(self, memory: int) -> None:
        self._limit = LineLimit.from_memory(memory, of_memory=True)

    def has_column(self, name: str) -> bool:
        """Whether the header or the first row has a field.

        If it cannot be read, there is none, and what reads all says why.
        """
        with suppress(InputError):
            return self._first_row_has_field(name)
        return False

    def _first_row_has_field(self, name: str) -> bool:
        for file in self.files:
            parser = self._parser(file.name)
            rows = (
                row
                for block, first in self._blocks(file, parser)
                for row in parser.rows(block, first)
            )
            first_row = next(rows, None)
            if parser.header is not None:
                return name in parser.header.cells
            if first_row is not None:
                return has_field(parser.fields(first_row), name)
        return False

    def _all_columns(self) -> Sequence[str]:
        """Return the columns of the first file, and the columns that other files add."""
        headers = [header.cells for header in self.headers]
        if all(cells == headers[0] for cells in headers):
            return headers[0] if headers else []
        return list(dict.fromkeys(name for cells in headers for name in cells))

    @property
    def header_line(self) -> bytes:
        """The header of one file of all rows, in a format that has headers."""
        if not self.headers:
            return b""
        header = self.headers[0]
        if header.cells == self.columns:
            return header.raw + b"\n"
        return self._parser("").encode_header(self.columns) + b"\n"

    def output_line(self, parser: LineParser, row: Row) -> bytes:
        """Return a row as it stands in one file of all rows, with the end of its line."""
        is_same = parser.header is None or parser.header.cells == self.columns
        with error_location(parser.name, row.line):
            return (row.raw if is_same else parser.line_for_header(row, self.columns)) + b"\n"

    def parser(self) -> LineParser:
        """Return a parser of no file, which writes headers."""
        return self._parser("")

    def kept_lines(self, flags: RowFlags) -> Iterator[bytes]:
        """Yield the rows whose flags are set as one file of all rows has them, some at a time."""
        for parser, block, first in self._row_blocks():
            bounds = parser.line_bounds(block)
            if bounds is None:
                rows = list(parser.rows(block, first))
                kept = compress(rows, flags.take(len(rows)).tolist())
                yield b"".join([self.output_line(parser, row) for row in kept])
            else:
                starts, ends = bounds
                is_kept = flags.take(len(starts))
                yield _kernel.copy_spans(block, starts[is_kept], ends[is_kept])[0]
        flags.finish()

    def kept_rows(self, flags: RowFlags) -> Iterator[tuple[LineParser, list[Row]]]:
        """Yield the rows whose flags are set, some at a time, with the parser of their file."""
        for parser, rows in self.all_rows():
            yield parser, list(compress(rows, flags.take(len(rows)).tolist()))
        flags.finish()

    def all_rows(self) -> Iterator[tuple[LineParser, list[Row]]]:
        """Yield all rows, some at a time, with the parser of their file."""
        for parser, block, first in self._row_blocks():
            yield parser, list(parser.rows(block, first))

    def _row_blocks(self) -> Iterator[tuple[LineParser, bytes, int]]:
        """Yield blocks of whole rows with the parser of their file, and their first lines."""
        self.bytes_done = 0
        for file in self.files:
            parser = self._parser(file.name)
            parser.broken = BrokenLines() if self.skip_bad else None
            for block, first in self._blocks(file, parser):
                yield parser, block, first

    def _blocks(
        self, file: InputFile, parser: LineParser, projection: Projection | None = None
    ) -> Iterator[tuple[bytes, int]]:
        """Yield whole rows in UTF-8 below the header, and the number of the first line.

        With a projection, the header must have its columns.
        """
        parser.limit, parser.needs_all = self._limit, self.unbuffered
        lines = line_blocks(
            file,
            self._count,
            self.unbuffered and file.arrives,
            self.encoding,
            self._limit,
        )
        for block in chain(parser.blocks(lines), [None]):
            if projection is not None:
                parser.find_columns(projection)
            if block is not None:
                yield block

    def _parse_block(
        self,
        parser: LineParser,
        block: bytes,
        first: int,
        projection: Projection,
        rule: IdRule | None,
        skip: Skip,
    ) -> Iterator[Batch]:
        """Yield the rows of a block.

        If a row is bad, those before it too where somebody may wait for their answers.
        """
        before = None if rule is None else vars(rule).copy()

        def tried(parse: Callable[[], Batch | None]) -> tuple[Batch | None, InputError | None]:
            try:
                return parse(), None
            except InputError as error:
                if rule is not None and before is not None:
                    vars(rule).update(before)
                return None, error

        if not skip.remaining:
            batch, _ = tried(lambda: parser.regular_block(block, first, projection, rule))
            if batch is not None:
                yield batch
                return
        rows: list[Row] = []
        _, unread = tried(lambda: rows.extend(parser.rows(block, first)))
        rows = rows[skip.take(len(rows)) :]
        batch, error = tried(lambda: parser.batch(rows, projection, rule) if rows else None)
        if error is not None and self._leaves_out_wrong:
            for row in rows:
                batch, error = tried(partial(parser.batch, [row], projection, rule))
                if batch is not None and rule is not None:
                    # a wrong row behind this one must not undo what this row has decided
                    before = vars(rule).copy()
                yield _omitted_row(parser, row, projection, error) if batch is None else batch
            return
        if error is not None:  # find the wrong row, and the rows before it
            errors = (tried(partial(parser.batch, [row], projection, rule))[1] for row in rows)
            good, error = next(
                ((place, error) for place, error in enumerate(errors) if error is not None),
                (0, error),
            )
            batch = (
                parser.batch(rows[:good], projection, rule) if good and self.unbuffered else None
            )
        if batch is not None and (self.unbuffered or unread is None):
            yield batch
        if error is not None:
            raise self._with_advice(error) if parser.is_broken(rows[good]) else error
        if unread is not None:
            raise self._with_advice(unread)

    def _with_advice(self, error: InputError) -> InputError:
        """Return the error of a line that is broken, which names the way to go on, if any."""
        if error.line is None or not self._may_skip or not accepts("skip_bad", True):
            return error
        if names_width(str(error)):  # then no line has another one
            return error
        advice = f"{keyword('skip_bad', True)} skips such lines"
        return InputError(f"{error}; {advice}", path=error.path, line=error.line)


def _omitted_row(
    parser: LineParser, row: Row, projection: Projection, error: InputError | None
) -> Batch:
    """Return a row that is wrong, with its id if that can be read."""
    value = None
    with suppress(InputError):
        value = (
            id_or_none(field_reader(projection.id)(parser.fields(row)))
            if projection.id is not None
            else None
        )
    texts: list[Any] | None = [] if projection.texts else None
    return Batch(
        projection.width.empty(0),
        known=np.zeros(1, bool),
        texts=texts,
        left_out=[OmittedRow(0, value, str(error))],
    )


def line_blocks(
    file: InputFile,
    on_read: Callable[[int], None],
    unbuffered: bool = False,
    encoding: str | None = None,
    limit: LineLimit = LineLimit(),  # noqa: B008 - it is immutable
) -> Iterator[tuple[bytes, int]]:
    """Yield whole lines in UTF-8, each with its end, and the number of the first.

    A byte order mark is removed.

    ``on_read`` is called with the bytes of each read of the file. With ``unbuffered``, the lines
    that have come are yielded, and wait for no others; otherwise, a file that is compressed is read
    as what it holds.
    """
    line, pieces, piece_bytes = 1, list[bytes](), 0
    mark = _UTF8_BOM
    with _open_stream(file, on_read) if unbuffered else unpacked(file, on_read) as read:
        if not unbuffered:
            with translate_storage_errors(file.name):
                read = transcoded(read, encoding, file.name)
        while True:
            with translate_storage_errors(file.name):
                data = read(BLOCK_BYTES)
            end = data.rfind(b"\n") + 1
            if data and not end:
                pieces.append(data)
                piece_bytes += len(data)
                if piece_bytes > limit.bytes:
                    whole = json_problem(pieces[0]) if line == 1 else None
                    if whole is not None:
                        raise input_error(file.name, None, whole)
                    raise input_error(file.name, line, f"line {limit}; not text?")
                continue
            block = b"".join([*pieces, memoryview(data)[:end]])
            if not data and block:
                block += b"\n"
            if block:
                yield block.removeprefix(mark), line
                mark = b""
                line += _kernel.count_lines(block)
            if not data:
                return
            pieces, piece_bytes = [data[end:]], len(data) - end


@contextmanager
def _open_stream(
    file: InputFile, on_read: Callable[[int], None]
) -> Iterator[Callable[[int], bytes]]:
    """Open a pipe, a socket or a terminal; the function reads what has come, or waits for bytes.

    A pipe is given room for a whole block, so that a program that is faster than its reader fills
    blocks.
    """
    with file.open() as stream:
        descriptor = stream.fileno()
        arrivals = select.poll()
        arrivals.register(descriptor, select.POLLIN)
        with suppress(OSError):  # not a pipe, or the system allows no more
            if fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) < BLOCK_BYTES:
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, BLOCK_BYTES)

        def read(size: int) -> bytes:
            data: bytes = stream.read1(size)  # type: ignore[attr-defined]  # of buffered streams
            if not data and not os.get_blocking(descriptor):  # nothing has come, or this is the end
                arrivals.poll()
                data = stream.read1(size)  # type: ignore[attr-defined]
            on_read(len(data))
            return data

        yield read


class AbsentColumns:
    """The columns that no row has had so far, in a format whose rows may lack some.

    A row without a field has a null there, but a name that no row has was mistyped.
    """

    def __init__(self, projection: Projection) -> None:
        optional = {projection.id} if projection.optional_id else set()
        self._groups = [
            *([projection.texts] if projection.texts else []),
            *((name,) for name in projection.names if name not in {*projection.texts, *optional}),
        ]
        self._several = projection.texts if len(projection.texts) > 1 else ()
        self.columns = set(chain.from_iterable(self._groups))
        self._others = dict[str, None]()
        self._noted = False

    @property
    def texts(self) -> list[str]:
        """The columns of texts among several."""
        return [name for name in self._several if name in self.columns]

    def update(self, parser: LineParser) -> None:
        """Note the columns of a block; report once if there is more to read, and one is missing."""
        problem = "" if self._noted or not self._others else self.problem()
        self.columns -= parser.present_columns
        self._others.update(parser.other_columns)
        if problem and self.problem():
            notify(f"{parser.name}: {problem} so far")
        self._noted = self._noted or bool(problem)

    def problem(self) -> str:
        """Return which columns no row has; of several texts, one is enough."""
        group = next((group for group in self._groups if self.columns.issuperset(group)), None)
        if group is None:
            return ""
        noun = "field" if len(group) == 1 else "fields"
        names = " or ".join(map(show, group))
        here = names_here("fields", group[0], list(self._others), self._others)
        return f"no row has the {noun} {names} ({here})"


def json_problem(begin: bytes) -> str | None:
    """Return the problem of a file that is one value of JSON and not lines, by its first line."""
    first = begin.lstrip(b"\xef\xbb\xbf \t\r\n")
    if first.startswith(b"["):
        return (
            "is one JSON array, not JSON lines: jq -c '.[]' FILE.json > FILE.jsonl writes a line "
            "for each item"
        )
    if first.startswith(b"{") and first.rstrip(BLANK)[-1:] in (b"{", b"[", b","):
        return (
            "is JSON over several lines, not JSON lines: jq -c . FILE.json > FILE.jsonl writes a "
            "line for each object"
        )
    return None
