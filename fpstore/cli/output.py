"""What a verb writes besides files: lines on standard error, tables, JSON, progress bars; and streams that are closed."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import click

from fpstore.base.arguments import printable
from fpstore.cli.signals import raise_again
from fpstore.errors import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

CLOSED = "standard output is closed"
_ARGUMENT = re.compile(r"\b[a-z_]+=(?:'[^']*'|\w*)(?: \((--?[a-z][^)]*)\)|, (?=--?[a-z]))")
_PLAIN_WIDTH = 160  # of what is not written to a terminal
_GAP, _LEAST_WORDS = 2, 12  # between two columns, and of a column of words, which is wrapped


def complain(message: str) -> None:
    """Write a message as one line to standard error; of an argument of Python with its option, ``a=1 (--a)``, the option."""
    click.echo(f"fpstore: {one_line(_ARGUMENT.sub(lambda found: found[1] or '', message))}", err=True)


def print_json(value: Any) -> None:
    """Write one JSON value to standard output, indented, in UTF-8; a lone surrogate is escaped."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def _width() -> int | None:
    """Return the width of the terminal that standard output is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def say(text: str) -> None:
    """Write lines to standard output; a terminal has each wrapped between words."""
    if width := _width():
        options: Any = {"break_long_words": False, "break_on_hyphens": False}
        text = "\n".join(textwrap.fill(line, width, **options) for line in text.split("\n"))
    click.echo(text)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> None:
    """Write a table to standard output: in bold on a terminal, as plain text elsewhere.

    On a terminal that is too narrow for it, each cell has a line of its own, under the first cell of its row.

    Parameters
    ----------
    title : str
        A line above it.
    columns : sequence of str
        Headings. If all are empty, there is no heading line.
    rows : iterable of sequences of str
        The cells.
    left : sequence of int
        Columns aligned to the left; the others hold numbers.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = _width()
    table = Table(box=None, show_header=any(columns), header_style="bold", pad_edge=False)
    rows = list(rows)
    needed = 0
    for number, name in enumerate(columns):
        words, longest = number in left and number > 0, max(map(len, (name, *(row[number] for row in rows))))
        needed += _GAP * (number > 0) + (min(_LEAST_WORDS, longest) if words else longest)
        table.add_column(Text(name), justify="left" if number in left else "right", overflow="fold", no_wrap=not words)
    for row in rows:
        table.add_row(*map(Text, row))
    if terminal and terminal < needed and any(columns):
        say(title)
        for first, *cells in rows:
            say("\n".join([first, *(f"  {name}: {cell}" for name, cell in zip(columns[1:], cells, strict=True) if cell)]))
        return
    page = io.StringIO()
    width = max(terminal or _PLAIN_WIDTH, needed)  # a line that is too long is better than a number that is cut
    # A height, too: without both, Rich takes a width of 80 for terminals that it calls dumb.
    console = Console(
        file=page, width=width, height=24, force_terminal=terminal is not None, color_system="auto" if terminal else None
    )
    console.print(Text(title, style="bold"))
    console.print(table)
    text = "\n".join(line.rstrip() for line in page.getvalue().removesuffix("\n").split("\n"))
    click.echo(text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace"))


def shown(path: str) -> str:
    """Return a path in a form that can be printed on one line."""
    return printable(path)


def some_ids(ids: Sequence[int | str], most: int) -> str:
    """Return the first ids of a group, and how many more there are."""
    more = len(ids) - most
    return ", ".join(map(str, ids[:most])) + (f" and {more:,} more" if more > 0 else "")


class Source(Protocol):
    """An input that counts the bytes read."""

    @property
    def bytes_total(self) -> int | None:
        """All bytes, None when unknown."""

    @property
    def bytes_done(self) -> int:
        """Bytes read so far."""


class Bars:
    """A context manager, called as ``bars(phase, done, total)`` from any thread; shows one phase at a time.

    Parameters
    ----------
    wanted : bool
        False shows nothing; neither does a standard error that is not a terminal.
    source : Source, optional
        Gives the share done, in bytes, while a phase has no total.
    """

    def __init__(self, wanted: bool, source: Source | None = None) -> None:
        self._shown = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._source = source
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._phase = ""

    def __enter__(self) -> Self:
        if self._shown:
            self._progress = _bars()
            self._progress.start()
            if self._source is not None:
                self("reading", 0)  # so that a bar is there before the first rows are
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, phase: str, done: int, total: int | None = None) -> None:
        """Show how far a phase is: ``done`` of ``total`` rows. A signal that somebody has ignored is raised again."""
        raise_again()
        progress = self._progress
        if progress is None:
            return
        with self._lock:
            if self._task is None or phase != self._phase:
                self._next(progress, phase)
            assert self._task is not None
            share, whole = done, total
            source = self._source
            if total is None and source is not None and source.bytes_total is not None and source.bytes_done < source.bytes_total:
                share, whole = source.bytes_done, source.bytes_total
            progress.update(self._task, completed=share, total=whole, rows=done)

    def _next(self, progress: Progress, phase: str) -> None:
        if self._task is not None:
            progress.remove_task(self._task)
        self._phase = phase
        self._task = progress.add_task(phase, total=None, rows=0)


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows, and rows per second."""

        def render(self, task: Any) -> Text:
            rows = task.fields["rows"]
            if not rows:
                return Text("")
            rate = rows / task.elapsed if task.elapsed else 0.0
            return Text(f"{rows:,} ({rate / 1e6:.1f} M/s)" if rate >= 1e5 else f"{rows:,} ({rate:,.0f}/s)")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip


def occupy_closed_streams() -> None:
    """Keep other files from getting the number of a closed stream, and make writes to a closed standard output fail.

    Python uses None for such a stream, and silently drops what is printed to it.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            taken = os.open(os.devnull, mode)
            if taken != number:
                os.close(taken)
            elif number == 1 and sys.stdout is None:
                sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def output_is_closed() -> bool:
    """Whether standard output cannot be written to: it was closed, or opened for reading only."""
    if sys.stdout is None:
        return True
    try:
        return fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except (OSError, ValueError):  # not a file of the system
        return False
