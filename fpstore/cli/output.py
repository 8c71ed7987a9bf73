"""What a verb writes besides files: lines on standard error, tables, JSON, progress bars.

And streams that are closed.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import click

from fpstore.base.resources import format_size
from fpstore.cli.signals import raise_again
from fpstore.design.estimates import MIN_FINGERPRINTS_FOR_BYTES
from fpstore.errors import one_line, plural
from fpstore.io.sink import Sink

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

CLOSED = "standard output is closed"
_PLAIN_WIDTH = 160  # of what is not written to a terminal
_GAP, _MIN_WORDS = 2, 12  # between two columns, and of a column of words, which is wrapped


def print_error(message: str) -> None:
    click.echo(f"fpstore: {one_line(message)}", err=True)


def write_page(output: str, page: str) -> None:
    """Write a page in HTML to a file, a URI or, for ``-``, standard output."""
    with Sink(output) as sink:
        sink.write(page.encode())


def print_json(value: Any) -> None:
    """Write one JSON value, indented, in UTF-8; a lone surrogate is escaped."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def _terminal_width() -> int | None:
    return (
        shutil.get_terminal_size().columns
        if sys.stdout is not None and sys.stdout.isatty()
        else None
    )


def print_text(text: str) -> None:
    """Write lines; on a terminal, each is wrapped between words."""
    if width := _terminal_width():
        options: Any = {"break_long_words": False, "break_on_hyphens": False}
        text = "\n".join(textwrap.fill(line, width, **options) for line in text.split("\n"))
    click.echo(text)


def not_compared_rows(
    count: int, unknown: str, reason: str = "null or blank text, or null id"
) -> list[tuple[str, str, str]]:
    """Return the rows of a table about documents that were not compared: one, or none."""
    fate = "removed" if unknown == "drop" else "kept"
    return [("not compared", f"{count:,}", f"{reason}; {fate}")] if count else []


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    text_columns: Sequence[int] = (0,),
) -> None:
    """Write a table to standard output: in bold on a terminal, as plain text elsewhere.

    On a terminal that is too narrow for it, each cell has a line of its own, under the first cell
    of its row. If all columns are empty strings, there is no heading line. The columns at the
    places ``text_columns`` hold words, the others numbers.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = _terminal_width()
    table = Table(box=None, show_header=any(columns), header_style="bold", pad_edge=False)
    rows = list(rows)
    needed = 0
    for number, name in enumerate(columns):
        words, longest = (
            number in text_columns and number > 0,
            max(map(len, (name, *(row[number] for row in rows)))),
        )
        needed += _GAP * (number > 0) + (min(_MIN_WORDS, longest) if words else longest)
        table.add_column(
            Text(name),
            justify="left" if number in text_columns else "right",
            overflow="fold",
            no_wrap=not words,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    if terminal and terminal < needed and any(columns):
        print_text(title)
        for first, *cells in rows:
            print_text(
                "\n".join(
                    [
                        first,
                        *(
                            f"  {name}: {cell}"
                            for name, cell in zip(columns[1:], cells, strict=True)
                            if cell
                        ),
                    ]
                )
            )
        return
    page = io.StringIO()
    # a line that is too long is better than a number that is cut
    width = max(terminal or _PLAIN_WIDTH, needed)
    # A height, too: without both, Rich takes a width of 80 for terminals that it calls dumb.
    console = Console(
        file=page,
        width=width,
        height=24,
        force_terminal=terminal is not None,
        color_system="auto" if terminal else None,
    )
    console.print(Text(title, style="bold"))
    console.print(table)
    text = "\n".join(line.rstrip() for line in page.getvalue().removesuffix("\n").split("\n"))
    click.echo(text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace"))


def print_facts(title: str, facts: Iterable[Sequence[str]]) -> None:
    print_table(title, ("", ""), facts, text_columns=(0, 1))


def summary(stats: dict[str, Any]) -> str:
    """Return the contents and the size of a store or an LSH index, in one line."""
    if "bands" in stats:
        bands = f"{stats['bands']} bands of {stats['rows']}, radius {stats['radius']}"
        size = format_size(stats["bytes"]["total"])
        return f"{plural(stats['documents'], 'document')}, {bands}, {size}"
    fingerprints, size = stats["fingerprints"], stats["bytes"]["total"]
    parts = [
        plural(fingerprints, "fingerprint"),
        plural(stats["ids"], "id")
        + (" (row numbers)" if stats["id_kind"] == "row" and stats["ids"] else ""),
        f"radius {stats['radius']}",
        f"{stats['design']['name']} ({plural(len(stats['design']['tables']), 'table')})",
        format_size(size),
    ]
    if fingerprints >= MIN_FINGERPRINTS_FOR_BYTES:
        parts.append(f"{size / fingerprints:.1f} bytes per fingerprint")
    return ", ".join(parts)


def format_ids(ids: Sequence[int | str], most: int, count: int | None = None) -> str:
    """Return the first of ``count`` ids, by default all, and the number of the others."""
    hidden = (len(ids) if count is None else count) - most
    return ", ".join(map(str, ids[:most])) + (f" and {hidden:,} more" if hidden > 0 else "")


class Bars:
    """Progress bars: a context manager, called as ``bars(phase, done, total)`` from any thread.

    They are shown if they are ``visible`` and standard error is a terminal, one phase at a time
    with its speed. ``bytes_total`` and ``bytes_done`` of a ``source`` give the share done while a
    phase has no total, and the bytes that a phase reads in a second.
    """

    def __init__(self, visible: bool, source: Any = None) -> None:
        self._shown = visible and sys.stderr is not None and sys.stderr.isatty()
        self._source = source
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._phase = ""
        self._bytes_before = 0  # the phase

    def __enter__(self) -> Self:
        if self._shown:
            self._progress = _bars()
            self._progress.start()
            if self._source is not None:
                self("reading", 0)  # so that a bar is there before the first rows are
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, phase: str, done: int, total: int | None = None) -> None:
        """Show ``done`` of ``total`` rows; raise a signal again that other code has swallowed."""
        raise_again()
        progress, source = self._progress, self._source
        if progress is None:
            return
        with self._lock:
            if self._task is None or phase != self._phase:
                if self._task is not None:
                    progress.remove_task(self._task)
                self._phase, self._task = phase, progress.add_task(phase, total=None, rate="")
                self._bytes_before = 0 if source is None else source.bytes_done
            share, share_total = done, total
            if (
                total is None
                and source is not None
                and source.bytes_total is not None
                and source.bytes_done < source.bytes_total
            ):
                share, share_total = source.bytes_done, source.bytes_total
            elapsed = progress.tasks[-1].elapsed
            rate = done / elapsed if elapsed else 0.0
            speed = f"{rate / 1e6:.1f} M/s" if rate >= 1e5 else f"{rate:,.0f}/s"
            if source is not None and elapsed and source.bytes_done != self._bytes_before:
                if source.bytes_done < self._bytes_before:  # a reading from the start
                    self._bytes_before = 0
                speed += f", {format_size((source.bytes_done - self._bytes_before) / elapsed)}/s"
            progress.update(
                self._task,
                completed=share,
                total=share_total,
                rate=f"{done:,} ({speed})" if done else "",
            )


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    columns = (
        "{task.description}",
        BarColumn(),
        "{task.fields[rate]}",
        TimeRemainingColumn(),
        "left",
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def occupy_closed_streams() -> None:
    """Keep files from the numbers of closed streams; a write to a closed output fails.

    Python uses None for such a stream, and silently drops what is printed to it.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, mode)
            if descriptor != number:
                os.close(descriptor)
            elif number == 1 and sys.stdout is None:
                sys.stdout = open(  # noqa: SIM115
                    1, "w", encoding="utf-8", errors="backslashreplace", closefd=False
                )


def output_is_closed() -> bool:
    """Return whether standard output was closed, or opened for reading only."""
    if sys.stdout is None:
        return True
    try:
        return fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except (OSError, ValueError):  # not a file of the system
        return False
