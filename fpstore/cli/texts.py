"""Texts on the command line: which files or columns are read, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fpstore.base.resources import parse_threads
from fpstore.cli import types
from fpstore.cli.documents import FOLDER_PARAMETERS, Notices, reader, suffix_option
from fpstore.cli.options import ROW_PARAMETERS, Decorator, Rows, grouped, refuse
from fpstore.errors import show

if TYPE_CHECKING:
    from fpstore.hashing import DocumentReader, Fingerprinter, TextReader

FIELD_FORMATS = ("parquet", "jsonl", "csv", "tsv")
READING_PARAMETERS = {"encoding", "html"}
OF_FINGERPRINTS = {"decimal", "signed", "fingerprint_field"}
CHUNK_ROWS = 1 << 14  # that are hashed before the first are used
_NUMBER = re.compile(r"[+-]?[0-9][0-9._]*")

Columns = str | tuple[str, ...] | dict[str, int]  # of texts: one, or several, with weights or without


@dataclass(frozen=True)
class Texts:
    """Where texts are: in the files of folders, or in a column."""

    suffix: tuple[str, ...]
    text_field: Columns | None
    encoding: str | None
    html: str | None

    def notices(self) -> Notices:
        """Return what counts the files or rows that are left out."""
        return Notices("file" if self.text_field is None else "row")

    def file_reader(
        self, paths: Sequence[str], fingerprinter: Fingerprinter[Any], notices: Notices, threads: int | None
    ) -> DocumentReader:
        """Return the reader of files and folders, of which each file is a document."""
        return reader(paths, fingerprinter, self.suffix, notices, threads=parse_threads(threads), **self.reading)

    @property
    def reading(self) -> dict[str, Any]:
        """How texts are read, as arguments of readers."""
        return {"encoding": self.encoding, "html": self.html or False}

    def row_reader(
        self, paths: Sequence[str], fingerprinter: Fingerprinter[Any], rows: Rows, notices: Notices, **more: Any
    ) -> TextReader:
        """Return the reader of columns of texts; ``more`` has further arguments of `TextReader`."""
        from fpstore.hashing import TextReader

        refuse(OF_FINGERPRINTS, "is for fingerprints, and does not go with --text-field")
        if rows.format is not None and rows.format not in FIELD_FORMATS:
            types.fail(f"--format {rows.format} has no column of texts: --text-field is for {', '.join(FIELD_FORMATS)}")
        assert self.text_field is not None
        made = TextReader(
            paths, fingerprinter, text=self.text_field, id=rows.id_field, id_type=rows.id_type, format=rows.format,
            on_notice=notices, **self.reading, **more,
        )  # fmt: skip
        notices.source = made
        return made


encoding_option = click.option(
    "--encoding",
    type=types.ENCODING,
    metavar="NAME",
    help="Encoding of texts, and of files of lines with texts. By default what a byte order mark says, or UTF-8; that of a text "
    "which is neither is guessed.",
)
html_option = click.option(
    "--html/--html-fast",
    default=None,
    callback=lambda ctx, parameter, value: None if value is None else "trafilatura" if value else "resiliparse",
    help="Texts are pages of HTML: make fingerprints of their titles and main texts, which the package trafilatura finds. With "
    "--html-fast it is resiliparse: 13 times as fast, but it finds fewer copies whose menus differ.",
)


def _read_columns(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> Columns | None:
    """Return the columns that are named, with weights if one has its own; None if none is named."""
    weights: dict[str, int | None] = {}
    for text in value:
        name, weight = _weighted(ctx, text)
        if not name:
            raise click.UsageError(f"--text-field: must be the name of a column, got {show(text)}", ctx)
        if name in weights:
            raise click.UsageError(f"--text-field: the column {show(name)} is named twice", ctx)
        weights[name] = weight
    if len(weights) < 2:
        return next(iter(weights), None)
    if not any(weights.values()):
        return tuple(weights)
    return {name: weight or 1 for name, weight in weights.items()}


def _weighted(ctx: click.Context, text: str) -> tuple[str, int | None]:
    """Return the name of a column and its weight: what stands behind the last =, if it is a number."""
    from fpstore.hashing.weights import MOST_WEIGHT

    name, equals, number = text.rpartition("=")
    if not equals or not _NUMBER.fullmatch(number):
        return text, None
    try:
        return name, types.whole(1, MOST_WEIGHT).convert(number, None, ctx)
    except click.UsageError:
        raise click.UsageError(
            f"--text-field: the weight in {show(text)} must be a whole number from 1 to {MOST_WEIGHT}; "
            f"a column with this name is {show(f'{text}=1')}",
            ctx,
        ) from None


def text_field_option(text: str) -> Decorator:
    """Return the option ``--text-field``."""
    return click.option(
        "--text-field",
        metavar="NAME[=WEIGHT]",
        multiple=True,
        callback=_read_columns,
        help=f"{text}. May be repeated: each field counts as much as its weight, a whole number, by default 1.",
    )


text_options = grouped(
    "texts",
    Texts,
    suffix_option,
    text_field_option(
        "Column or JSON field of texts, of which fingerprints are made: in Parquet, JSON lines, CSV or TSV with a header, "
        "or folders of such files"
    ),
    encoding_option,
    html_option,
)


def check_text_usage(inputs: Sequence[str], text: bool, texts: Texts) -> None:
    """Raise a usage error for options of texts that do not go together, or not with these inputs."""
    if text and texts.text_field is not None:
        types.fail("--text makes a document of each file, --text-field one of each row: give one of them")
    if text:
        if "-" in inputs:
            types.fail("--text reads files and folders, not standard input: write it to a file first")
        refuse(ROW_PARAMETERS, "does not go with --text")
    else:
        refuse(FOLDER_PARAMETERS, "needs --text")
        if texts.text_field is None:
            refuse(READING_PARAMETERS, "needs --text or --text-field")
