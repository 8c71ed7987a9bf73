"""Texts on the command line: which files or columns are read, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fpstore.cli import types
from fpstore.cli.documents import FOLDER_PARAMETERS, Notices, reader, suffix_option
from fpstore.cli.options import ROW_PARAMETERS, Rows, grouped, refuse

if TYPE_CHECKING:
    from fpstore.hashing import DocumentReader, Fingerprinter, TextReader

FIELD_FORMATS = ("parquet", "jsonl", "csv", "tsv")
OF_FINGERPRINTS = {"decimal", "signed", "fingerprint_field"}
CHUNK_ROWS = 1 << 14  # that are hashed before the first are used


@dataclass(frozen=True)
class Texts:
    """Where texts are: in the files of folders, or in a column."""

    suffix: tuple[str, ...]
    text_field: str | None

    def notices(self) -> Notices:
        """Return what counts the files or rows that are left out."""
        return Notices("file" if self.text_field is None else "row")

    def file_reader(self, paths: Sequence[str], fingerprinter: Fingerprinter[Any], notices: Notices) -> DocumentReader:
        """Return the reader of files and folders, of which each file is a document."""
        return reader(paths, fingerprinter, self.suffix, notices)

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
            on_notice=notices, **more,
        )  # fmt: skip


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
