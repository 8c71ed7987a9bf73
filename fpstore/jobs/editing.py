"""Edits of the texts of a corpus: one column of texts, whose changes go to an output."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fpstore.base.resources import Resources
from fpstore.errors import InputError, show
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.edited import Edit, EditedRows
from fpstore.io.parquet import TableRows
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.outputs import Outputs
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


def write_edits(
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
