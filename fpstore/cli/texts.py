"""Texts on the command line: which files or columns are read, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fpstore.cli import types
from fpstore.cli.documents import FOLDER_PARAMETERS, Notices, reader, suffix_option
from fpstore.cli.options import ROW_PARAMETERS, Rows, grouped, refuse
from fpstore.resources import parse_threads

if TYPE_CHECKING:
    from fpstore.hashing import DocumentReader, Fingerprinter, TextReader

FIELD_FORMATS = ("parquet", "jsonl", "csv", "tsv")
READING_PARAMETERS = {"encoding", "html"}
OF_FINGERPRINTS = {"decimal", "signed", "fingerprint_field"}
CHUNK_ROWS = 1 << 14  # that are hashed before the first are used


@dataclass(frozen=True)
class Texts:
    """Where texts are: in the files of folders, or in a column."""

    suffix: tuple[str, ...]
    text_field: str | None
    encoding: str | None
    html: bool

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
        return {"encoding": self.encoding, "html": self.html}

    def row_reader(
        self, paths: Sequence[str], fingerprinter: Fingerprinter[Any], rows: Rows, notices: Notices, **more: Any
    ) -> TextReader:
        """Return the reader of a column of texts; ``more`` has further arguments of `TextReader`."""
        from fpstore.hashing import TextReader

        refuse(OF_FINGERPRINTS, "is for fingerprints, and does not go with --text-field")
        if not self.text_field:
            types.fail("--text-field: must be the name of a column, got ''")
        if rows.format is not None and rows.format not in FIELD_FORMATS:
            types.fail(f"--format {rows.format} has no column of texts: --text-field is for {', '.join(FIELD_FORMATS)}")
        return TextReader(
            paths, fingerprinter, text=self.text_field or "", id=rows.id_field, id_type=rows.id_type, format=rows.format,
            on_notice=notices, **self.reading, **more,
        )  # fmt: skip


encoding_option = click.option(
    "--encoding",
    type=types.ENCODING,
    metavar="NAME",
    help="Encoding of texts, and of files of lines with texts. By default what a byte order mark says, or UTF-8; that of a text "
    "which is neither is guessed.",
)
html_option = click.option(
    "--html",
    is_flag=True,
    help="Texts are pages of HTML; make fingerprints of their titles and main texts. A store remembers it. Needs fpstore[html].",
)
text_options = grouped(
    "texts",
    Texts,
    suffix_option,
    click.option(
        "--text-field",
        metavar="NAME",
        help="Column or JSON field of texts, of which fingerprints are made: in Parquet, JSON lines, CSV or TSV with a header, "
        "or folders of such files.",
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
