"""The rows and the removed rows of each source of a corpus, by tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpstore.base.aliases import Flags
from fpstore.base.strings import StringColumn
from fpstore.io.labels import LabelCodes, LabelColumn, Labels
from fpstore.jobs.sources import Sources
from fpstore.work.pieces import Pieces, PieceWriter


def write_labels_of_rows(writer: PieceWriter, column: LabelColumn) -> None:
    """Write the source of each row of a part."""
    writer.add_ids("sources.values", StringColumn.from_strings(column.names.texts))
    writer.add("sources.codes", column.codes)


def write_counts(writer: PieceWriter, parts: Sequence[Pieces], flags: Sequence[Flags]) -> None:
    """Write how many rows some successive parts have of each source, and how many stay."""
    codes = LabelCodes()
    of_rows = [codes.encode(Labels(_read(part), part.read("sources.codes"))) for part in parts]
    rows, is_kept = np.concatenate(of_rows), np.concatenate(flags)
    writer.add_ids("sources.values", StringColumn.from_strings(codes.texts))
    for name, labels in (("sources.rows", rows), ("sources.kept", rows[is_kept])):
        writer.add(name, np.bincount(labels, minlength=len(codes.texts) + 1))


def read_counts(copied: Sequence[Pieces]) -> Sources:
    """Return the sources of a corpus, from the counts of all parts in order."""
    codes = LabelCodes()
    places = [
        codes.encode(Labels(values, np.arange(len(values) + 1, dtype=np.uint32)))
        for values in map(_read, copied)
    ]
    names = codes.values()
    rows, kept = np.zeros((2, len(names)), np.int64)
    for pieces, place in zip(copied, places, strict=True):
        rows[place] += pieces.read("sources.rows")
        kept[place] += pieces.read("sources.kept")
    return Sources.of_counts(names, rows, rows - kept)


def _read(pieces: Pieces) -> StringColumn:
    values = pieces.read_ids("sources.values")
    assert isinstance(values, StringColumn)
    return values
