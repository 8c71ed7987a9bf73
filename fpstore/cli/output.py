"""Output of the verbs: lines on standard error, tables, JSON, and numbers for people."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click

from fpstore.base.arguments import printable
from fpstore.errors import one_line

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
