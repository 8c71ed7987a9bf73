"""Edits of the texts of a corpus: one column of texts, whose changes go to an output."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import numpy as np

from fpstore.base.characters import is_blank
from fpstore.base.resources import Resources
from fpstore.errors import InputError, plural, show
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.edited import Edit, EditedRows
from fpstore.io.parquet import TableRows
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.outputs import Listing, Outputs
from fpstore.jobs.row_spec import PATHS_ID, PATHS_TEXT


def edited_column(text: str | bool) -> Projection:
    """Return the projection of one column of texts, or of files that are texts.

    InputError for anything else.
    """
    if text is True:
        return Projection(text=PATHS_TEXT, id=PATHS_ID)
    if isinstance(text, str) and text:
        return Projection(text=text, edits_texts=True)
    raise InputError(
        f"text must be the name of one column of texts, got {show(text)}",
        got=text,
        argument="text",
    )


class EditCounts:
    """Counts what an edit changes. Threads may add at once.

    ``changed`` documents are other than before, and of these ``dropped`` ones are gone.
    ``removed_bytes`` are in UTF-8.
    """

    def __init__(self) -> None:
        self.changed = self.dropped = self.removed_bytes = 0
        self._lock = threading.Lock()

    def add(self, text: str, new: str | None) -> str | None:
        """Count an edited text, and return it; None if the document goes, or nothing is left."""
        if new is not None and new != text and is_blank(new):
            new = None
        lost = utf8_size(text) - (0 if new is None else utf8_size(new))
        with self._lock:
            self.changed += new != text
            self.dropped += new is None
            self.removed_bytes += lost
        return new


def utf8_size(text: str) -> int:
    """Return the bytes of a text, which may have lone surrogates."""
    return len(text.encode("utf-8", "surrogatepass"))


def changed_row_error(row: int) -> InputError:
    """Return the error for a text that is not what it was when it was read first."""
    return InputError(f"row {row + 1:,} changed while it was read")


def describe_edits(result: Any) -> str:
    """Return the counts of a result in one line: documents, changed, dropped, removed_bytes."""
    documents = plural(result.documents, "document")
    return (
        f"<fpstore.{type(result).__name__}: {result.changed:,} of {documents} changed, "
        f"{result.dropped:,} of them dropped, {result.removed_bytes:,} bytes removed>"
    )


AnyEdit = TypeVar("AnyEdit", bound=Edit)


def edit_corpus(
    corpus: RowSource,
    projection: Projection,
    find: Callable[[], AnyEdit],
    resources: Resources,
    output: str | os.PathLike[str] | None,
    overwrite: bool,
    listings: Sequence[Listing],
) -> tuple[AnyEdit, Any]:
    """Edit the texts of a corpus, and write its rows and lists, which are of the edit.

    ``find`` reads the corpus, and returns the edit. An error of a path comes before. Return the
    edit, and the remaining rows of a table in memory; None for files.
    """
    outputs = Outputs(corpus, output, listings, overwrite)
    corpus.resolve_columns(projection)
    with ExitStack() as stack:
        outputs.open_lists(stack)
        corpus.limit_memory(resources.memory)
        edit = find()
        table = _write_edits(corpus, projection, edit, outputs, output, resources)
    return edit, table


def _write_edits(
    corpus: RowSource,
    projection: Projection,
    edit: Edit,
    outputs: Outputs,
    output: str | os.PathLike[str] | None,
    resources: Resources,
) -> Any:
    """Edit the texts of all rows, and write the rows and lists.

    Return the remaining rows of a table in memory; None for files. Without an output, texts of
    files are edited, and dropped.
    """
    table, column = None, str(projection.text)
    if isinstance(corpus, DocumentFiles):
        corpus.silence()
    if isinstance(corpus, TableRows) and not corpus.paths:
        table = EditedRows(edit, column).table(corpus)
    elif output is None:
        _edit_all(corpus, projection, edit)
    outputs.write_edited(edit, column, table, resources)
    return table


def _edit_all(corpus: RowSource, projection: Projection, edit: Edit) -> None:
    done = 0
    for batch in corpus.batches(projection):
        rows = (done + np.flatnonzero(batch.flags)).tolist()
        for row, text in zip(rows, batch.row_texts(), strict=True):
            if edit.changed_rows(slice(row, row + 1))[0]:
                edit.edit_text(row, text)
        done += len(batch.flags)
    corpus.check_unchanged()
