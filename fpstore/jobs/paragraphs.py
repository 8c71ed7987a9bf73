"""Boilerplate: paragraphs or lines that many documents have are counted by hashes, and removed from the texts."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arguments import check_choice, check_whole, printable
from fpstore.base.arrays import differs, lims_of, spans, stable_order
from fpstore.base.resources import Resources
from fpstore.disk.temporary import SpilledNumbers
from fpstore.errors import InputError, counted, show
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.arrow import import_pyarrow
from fpstore.io.edited import copy_edited, edited_batches, edited_schema
from fpstore.io.parquet import TableRows, write_batches
from fpstore.io.shards import Shards, copy_shards
from fpstore.io.sink import Sink
from fpstore.io.source import Projection, RowSource
from fpstore.jobs import UNITS
from fpstore.jobs.dedup_job import PATHS_ID, PATHS_TEXT
from fpstore.jobs.outputs import check_output, is_folder_of_shards

USUAL_MORE_THAN = 10  # documents: versions of a text, and quotations, are fewer
_CUTS = {"paragraph": r"\n\s*\n", "line": r"\n"}
_SPACES = b" \t\n\r\x0b\x0c"
_NO_BREAK = b"\xc2\xa0"
_EMPTY = xxhash.xxh3_64_intdigest(b"")
_LEAST_MERGED = 1 << 20  # hashes


class Boilerplate(NamedTuple):
    """The result of :func:`fpstore.remove_boilerplate`.

    Attributes
    ----------
    documents : int
        Rows, or files, of the corpus.
    changed : int
        Documents that lost something, those that are dropped too.
    dropped : int
        Documents of whose text nothing was left.
    repeated : int
        Different paragraphs or lines that were removed.
    removed : int
        Paragraphs or lines that were removed, counted at every occurrence.
    removed_bytes : int
        The bytes of texts that were removed, in UTF-8.
    table : pyarrow.Table or None
        The rows that are left of a table in memory; None for files.
    """

    documents: int
    changed: int
    dropped: int
    repeated: int
    removed: int
    removed_bytes: int
    table: Any = None

    def __repr__(self) -> str:
        changed = f"{self.changed:,} of {counted(self.documents, 'document')} changed, {self.dropped:,} of them dropped"
        return f"<fpstore.Boilerplate: {changed}, {self.removed_bytes:,} bytes removed>"


class Pieces:
    """Cuts texts into paragraphs or lines, and hashes each: 64 bits, without regard to case and white space."""

    def __init__(self, unit: str) -> None:
        self._cut = re.compile(f"({_CUTS[unit]})", re.ASCII)
        self._cut_bytes = re.compile(_CUTS[unit].encode())

    def hashes(self, text: str) -> list[int]:
        """Return the hash of each piece; those without a character have the same."""
        data = text.casefold().encode("utf-8", "surrogatepass")
        pieces = self._cut_bytes.split(data)
        if _NO_BREAK in data:
            pieces = [piece.replace(_NO_BREAK, b"") for piece in pieces]
        return [xxhash.xxh3_64_intdigest(piece.translate(None, _SPACES)) for piece in pieces]

    def without(self, text: str, gone: Sequence[bool]) -> str | None:
        """Return a text without some of its pieces and what separates them from the next; None if their number differs."""
        parts = self._cut.split(text)
        if len(parts) != 2 * len(gone) - 1:
            return None
        kept = [place for place, is_gone in enumerate(gone) if not is_gone]
        return "".join([part for place in kept for part in parts[2 * place : 2 * place + 1 + (place < kept[-1])]])


class PieceCounts:
    """Counts in how many documents each hash occurs: 12 bytes for each, and up to half of that for those that came last."""

    def __init__(self) -> None:
        self._hashes, self._counts = np.empty(0, np.uint64), np.empty(0, np.uint32)
        self._new: list[Words] = []
        self._waiting = 0

    def add(self, hashes: Words) -> None:
        """Note hashes, each once for each document that has it."""
        self._new.append(hashes)
        self._waiting += len(hashes)
        if self._waiting >= max(_LEAST_MERGED, len(self._hashes) // 2):
            self._merge()

    def above(self, most: int) -> Words:
        """Return the hashes that more documents have, ascending; not that of an empty piece."""
        self._merge()
        found: Words = self._hashes[(self._counts > most) & (self._hashes != np.uint64(_EMPTY))]
        return found

    def _merge(self) -> None:
        hashes = np.concatenate([self._hashes, *self._new])
        counts = np.concatenate([self._counts, np.ones(self._waiting, np.uint32)])
        order = stable_order(hashes)
        hashes, counts = hashes[order], counts[order]
        first = np.flatnonzero(differs(hashes))
        self._hashes = hashes[first]
        self._counts = np.add.reduceat(counts, first) if len(first) else counts
        self._new, self._waiting = [], 0


class Removal:
    """Removes the pieces with some hashes from texts.

    ``hashes`` has those of the pieces of all rows, and ``lims`` where the ones of each row begin. ``lost`` has the bytes that
    each row loses, and ``dropped`` the rows that are dropped; threads append to both.
    """

    def __init__(self, pieces: Pieces, hashes: Words, lims: Lims, repeated: Words) -> None:
        self._pieces, self._hashes, self._lims, self._repeated = pieces, hashes, lims, repeated
        self._touched = np.zeros(len(lims) - 1, bool)
        self.removed = 0
        self.lost: list[int] = []
        self.dropped: list[int] = []
        for rows in spans(lims, _LEAST_MERGED):
            gone = np.flatnonzero(self._gone(rows)) + lims[rows.start]
            self.removed += len(gone)
            self._touched[np.searchsorted(lims, gone, side="right") - 1] = True

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._touched)

    @property
    def changed(self) -> int:
        """How many rows lose something."""
        return int(self._touched.sum())

    def touches(self, rows: slice) -> Flags:
        """Return which rows lose something."""
        return self._touched[rows]

    def edited(self, row: int, text: Any) -> str | None:
        """Return the text of a row without these pieces; None if nothing is left. InputError if it is not the text of before."""
        gone = self._gone(slice(row, row + 1)).tolist()
        new = self._pieces.without(text, gone) if isinstance(text, str) else None
        if new is None:
            raise InputError(f"row {row + 1:,} changed while it was read")
        is_left = bool(new.strip())
        self.lost.append(_bytes_of(text) - (_bytes_of(new) if is_left else 0))
        if is_left:
            return new
        self.dropped.append(row)
        return None

    def _gone(self, rows: slice) -> Flags:
        hashes = self._hashes[self._lims[rows.start] : self._lims[rows.stop]]
        if not len(self._repeated):
            return np.zeros(len(hashes), bool)
        at = np.minimum(np.searchsorted(self._repeated, hashes), len(self._repeated) - 1)
        found: Flags = self._repeated[at] == hashes
        return found


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def remove_repeated(
    corpus: RowSource, text: str | bool, unit: str, more_than: int, resources: Resources,
    output: str | os.PathLike[str] | None, overwrite: bool,
) -> Boilerplate:  # fmt: skip
    """Remove what more documents have; without an output, only count. An error of an argument comes before the work."""
    check_choice(unit, UNITS[1:], "unit")
    check_whole(more_than, 1, 2**32 - 1, "more_than")
    if not (text is True or (isinstance(text, str) and text)):
        raise InputError(f"text must be the name of one column of texts, got {show(text)}", got=text)
    target = None if output is None else check_output(output, corpus, overwrite)
    to_shards = output is not None and is_folder_of_shards(output, corpus)
    if target is not None and not to_shards and corpus.suffix not in (None, target.suffix.lower()):
        advice = f"texts are changed in the format of the input: name a {corpus.suffix} file"
        raise InputError(f"{printable(target)}: {advice}", path=target)
    how = Projection(text=PATHS_TEXT, id=PATHS_ID) if text is True else Projection(text=str(text))
    edit, repeated = _counted(corpus, how, Pieces(unit), more_than, resources)
    table = None
    if isinstance(corpus, DocumentFiles):
        corpus.silence()
    if isinstance(corpus, TableRows):
        table = _edited_table(corpus, str(text), edit, target)
    elif target is None:
        _edit_all(corpus, how, edit)
    elif isinstance(corpus, DocumentFiles):
        corpus.copy_edited(edit, target)
    elif to_shards and isinstance(corpus, Shards):
        flags = np.broadcast_to(np.True_, edit.rows)
        copy_shards(corpus, flags, target, resources, copy=lambda shard, *of_it: copy_edited(shard, str(text), edit, *of_it))
    else:
        assert isinstance(corpus, Shards)
        copy_edited(corpus, str(text), edit, slice(0, edit.rows), target, resources.progress)
    return Boilerplate(edit.rows, edit.changed, len(edit.dropped), repeated, edit.removed, sum(edit.lost), table)


def _counted(corpus: RowSource, how: Projection, pieces: Pieces, more_than: int, resources: Resources) -> tuple[Removal, int]:
    """Return what removes the pieces that more rows have, and how many different ones these are."""
    counts, spilled, sizes, done = PieceCounts(), SpilledNumbers(np.uint64), list[npt.NDArray[np.int64]](), 0
    for batch in corpus.batches(how):
        hashes = [pieces.hashes(text) for text in batch.texts or ()]
        if batch.text_of_row is not None:
            hashes = [hashes[place] for place in batch.text_of_row.tolist()]
        sets = list(map(set, hashes))
        counts.add(np.fromiter(chain.from_iterable(sets), np.uint64, sum(map(len, sets))))
        of_rows = np.zeros(len(batch.flags), np.int64)
        of_rows[batch.flags] = list(map(len, hashes))
        sizes.append(of_rows)
        spilled.append(np.fromiter(chain.from_iterable(hashes), np.uint64, int(of_rows.sum())))
        done += len(of_rows)
        resources.report("counting", done)
    if not done:
        raise InputError(f"{corpus.label}: no rows")
    repeated = counts.above(more_than)
    return Removal(pieces, spilled.finish(), lims_of(np.concatenate(sizes)), repeated), len(repeated)


def _edit_all(corpus: RowSource, how: Projection, edit: Removal) -> None:
    """Edit all texts, and write nothing."""
    done = 0
    for batch in corpus.batches(how):
        rows = (done + np.flatnonzero(batch.flags)).tolist()
        for row, text in zip(rows, batch.row_texts(), strict=True):
            if edit.touches(slice(row, row + 1))[0]:
                edit.edited(row, text)
        done += len(batch.flags)
    corpus.check_unchanged()


def _edited_table(corpus: TableRows, column: str, edit: Removal, target: Any) -> Any:
    """Return the rows that are left of a table, and write them to a path if there is one."""
    schema = edited_schema(corpus, column)
    arrow = import_pyarrow("the table", "a table")
    table = arrow.Table.from_batches(edited_batches(corpus, column, edit, schema), schema)
    if target is not None:
        with Sink(target) as sink, sink.errors():
            write_batches(arrow, table.to_batches(), schema, sink)
    return table
