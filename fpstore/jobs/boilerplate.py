"""Boilerplate: paragraphs or lines of many documents are counted by hashes, and removed."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arguments import check_choice, check_flag, check_whole
from fpstore.base.arrays import NO_WORDS, is_run_start, list_lims, spans, stable_order
from fpstore.base.characters import LINE_END, PARAGRAPH_END, is_blank, visible
from fpstore.base.resources import Resources
from fpstore.disk.temporary import SpilledNumbers
from fpstore.errors import InputError
from fpstore.io.source import Projection, RowSource
from fpstore.io.tables import TabularBatches
from fpstore.jobs.editing import (
    EditCounts,
    changed_row_error,
    describe_edits,
    edit_corpus,
    edited_column,
    utf8_size,
)
from fpstore.jobs.outputs import Listing

USUAL_MORE_THAN = 10  # documents: versions of a text, and quotations, are fewer
_CUTS = {"paragraph": PARAGRAPH_END, "line": LINE_END}
# the same for ASCII whose only line ends are line feeds, ten times as fast
_PLAIN_CUTS = {"paragraph": r"\n[\x00-\x20\x7f]*\n", "line": r"\n"}
UNITS = tuple(_CUTS)
COUNTED = ("documents", "occurrences")
_ASCII_BLANKS = bytes(code for code in range(128) if is_blank(chr(code)))
_NUMBER, _ASCII_NUMBER = re.compile(r"\d+"), re.compile(rb"[0-9]+")
_EMPTY = xxhash.xxh3_64_intdigest(b"")
_MIN_MERGED_HASHES = 1 << 20  # hashes
_ROWS_AT_ONCE = 1 << 16
PIECE_COLUMNS = ("text", "documents", "occurrences", "bytes")


class RemovedPieces(TabularBatches):
    """The paragraphs or lines that :func:`fpstore.remove_boilerplate` removed.

    The most frequent come first.

    Attributes
    ----------
    texts : list of str
        Each as it was first removed, without white space around it.
    documents, occurrences : ndarray of uint64, shape (n,)
        How many documents have it, and how often it was removed.
    bytes : ndarray of uint64, shape (n,)
        The bytes of all removed occurrences, in UTF-8.
    """

    def __init__(
        self, texts: list[str], documents: Words, occurrences: Words, bytes: Words
    ) -> None:
        self.texts = texts
        self.documents = documents
        self.occurrences = occurrences
        self.bytes = bytes

    def __len__(self) -> int:
        return len(self.texts)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the columns in batches of at most 65,536 rows.

        They are ``text``, ``documents``, ``occurrences`` and ``bytes``.
        """
        for start in range(0, max(len(self), 1), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            columns = (
                self.texts[rows],
                self.documents[rows],
                self.occurrences[rows],
                self.bytes[rows],
            )
            yield dict(zip(PIECE_COLUMNS, columns, strict=True))


class Boilerplate(NamedTuple):
    """The result of :func:`fpstore.remove_boilerplate`.

    Attributes
    ----------
    documents : int
        Rows, or files, of the corpus.
    changed : int
        Documents that lost a piece, dropped ones too.
    dropped : int
        Documents without text after the removal.
    repeated : int
        Different paragraphs or lines that were removed.
    removed_pieces : int
        Paragraphs or lines that were removed, counted at every occurrence.
    removed_bytes : int
        The bytes of texts that were removed, in UTF-8.
    pieces : RemovedPieces
        The paragraphs or lines that were removed, the most frequent first; ``to_arrow`` makes a
        table.
    table : pyarrow.Table or None
        The remaining rows of a table in memory; None for files.
    """

    documents: int
    changed: int
    dropped: int
    repeated: int
    removed_pieces: int
    removed_bytes: int
    pieces: RemovedPieces
    table: Any = None

    @property
    def kept(self) -> int:
        """Documents that remain."""
        return self.documents - self.dropped

    def __repr__(self) -> str:
        return describe_edits(self)


def _visible_chars(piece: str) -> str:
    return "".join(visible(piece).split())


class Pieces:
    """Cuts texts into paragraphs or lines, and hashes each with 64 bits.

    Case, white space and ignored characters do not count. A piece with fewer other characters than
    ``least_chars`` has the hash of an empty one. With ``fold_digits``, a number is as any other.
    """

    def __init__(self, unit: str, least_chars: int = 0, fold_digits: bool = False) -> None:
        self._least, self._folds = least_chars, fold_digits
        self._cut, self._plain_cut = (
            re.compile(f"({cuts[unit]})") for cuts in (_CUTS, _PLAIN_CUTS)
        )

    def hashes(self, text: str) -> list[int]:
        """Return the hash of each piece."""
        folded = text.casefold()
        pieces = self.parts(folded)[::2]
        if text.isascii():  # four times as fast
            encoded = [piece.encode().translate(None, _ASCII_BLANKS) for piece in pieces]
            counted = [piece if len(piece) >= self._least else b"" for piece in encoded]
            if self._folds:
                counted = [_ASCII_NUMBER.sub(b"0", piece) for piece in counted]
            return list(map(xxhash.xxh3_64_intdigest, counted))
        visible_pieces = list(map(_visible_chars, pieces))
        originals = visible_pieces
        if len(folded) > len(text):  # some letters have become several
            originals = list(map(_visible_chars, self.parts(text)[::2]))
        texts = [
            piece if len(chars) >= self._least else ""
            for piece, chars in zip(visible_pieces, originals, strict=True)
        ]
        if self._folds:
            texts = [_NUMBER.sub("0", piece) for piece in texts]
        return [xxhash.xxh3_64_intdigest(piece.encode("utf-8", "surrogatepass")) for piece in texts]

    def parts(self, text: str) -> list[str]:
        """Return the pieces of a text, and the separators between them."""
        is_plain = text.isascii() and not ("\r" in text or "\v" in text or "\f" in text)
        return (self._plain_cut if is_plain else self._cut).split(text)


class PieceCounts:
    """Counts how often each hash is added: the documents that have it, or its occurrences.

    It takes 12 bytes for each hash, and up to half of that for the last ones.
    """

    def __init__(self) -> None:
        self._hashes, self._counts = NO_WORDS, np.empty(0, np.uint32)
        self._new: list[Words] = []
        self._waiting = 0

    def add(self, hashes: Words) -> None:
        """Add hashes, of which some may be equal."""
        self._new.append(hashes)
        self._waiting += len(hashes)
        if self._waiting >= max(_MIN_MERGED_HASHES, len(self._hashes) // 2):
            self._merge()

    def more_frequent_than(self, most: int) -> Words:
        """Return the hashes that were added more than ``most`` times, ascending.

        The hash of an empty piece is left out.
        """
        self._merge()
        is_frequent = (self._counts > most) & (self._hashes != np.uint64(_EMPTY))
        hashes: Words = self._hashes[is_frequent]
        return hashes

    def _merge(self) -> None:
        hashes = np.concatenate([self._hashes, *self._new])
        counts = np.concatenate([self._counts, np.ones(self._waiting, np.uint32)])
        order = stable_order(hashes)
        hashes, counts = hashes[order], counts[order]
        first = np.flatnonzero(is_run_start(hashes))
        self._hashes = hashes[first]
        self._counts = np.add.reduceat(counts, first) if len(first) else counts
        self._new, self._waiting = [], 0


class BoilerplateEdit:
    """Removes the pieces with repeated hashes from texts, and notes them.

    Threads edit different rows. ``hashes`` has the pieces of all rows; row i has those at
    ``lims[i]:lims[i + 1]``. ``repeated`` are the hashes to remove, ascending; with ``keep_first``
    the first occurrence of each stays.
    """

    def __init__(
        self, pieces: Pieces, hashes: Words, lims: Lims, repeated: Words, keep_first: bool
    ) -> None:
        self._pieces = pieces
        self._hashes = hashes
        self._lims = lims
        self._repeated = repeated
        self.rows, count = len(lims) - 1, len(repeated)
        self._touched = np.zeros(self.rows, bool)
        # rows of the first occurrences that stay, and of the first ones that go
        self._stays, self._first = np.full(count, self.rows), np.full(count, self.rows)
        self._texts = [""] * count
        self._documents, self._occurrences = (np.zeros(count, np.uint64) for _ in range(2))
        self._bytes = np.zeros(count, np.uint64)
        self._lock, self._counts = threading.Lock(), EditCounts()
        for rows in spans(lims, _MIN_MERGED_HASHES):
            places = self._places(rows)
            repeated_pieces = np.flatnonzero(places >= 0)
            row = np.searchsorted(lims, repeated_pieces + lims[rows.start], side="right") - 1
            places = places[repeated_pieces]
            order = np.lexsort((row, places))
            is_new = is_run_start(np.stack([places[order], row[order]], axis=1))
            np.add.at(self._documents, places[order][is_new], np.uint64(1))
            if keep_first:
                seen, firsts = np.unique(places, return_index=True)
                firsts = firsts[self._stays[seen] == self.rows]
                self._stays[places[firsts]] = row[firsts]
                goes = np.ones(len(places), bool)
                goes[firsts] = False
                row, places = row[goes], places[goes]
            self._touched[row] = True
            np.minimum.at(self._first, places, row)
            np.add.at(self._occurrences, places, np.uint64(1))

    def changed_rows(self, rows: slice) -> Flags:
        """Return which rows lose a piece."""
        return self._touched[rows]

    def edit_text(self, row: int, text: Any) -> str | None:
        """Return the text of a row without repeated pieces; None if nothing remains.

        InputError if the text has changed since the first reading.
        """
        places = self._places(slice(row, row + 1))
        seen, firsts = np.unique(places, return_index=True)
        places[firsts[(seen >= 0) & (self._stays[seen] == row)]] = -1
        parts = self._pieces.parts(text) if isinstance(text, str) else []
        if len(parts) != 2 * len(places) - 1:
            raise changed_row_error(row)
        self._note(row, places, parts)
        return self._counts.add(text, _drop_pieces(parts, (places >= 0).tolist()))

    def _note(self, row: int, places: npt.NDArray[np.intp], parts: list[str]) -> None:
        repeated_pieces = np.flatnonzero(places >= 0)
        texts = [parts[2 * at] for at in repeated_pieces.tolist()]
        sizes, places = np.array(list(map(utf8_size, texts)), np.uint64), places[repeated_pieces]
        for place, piece in zip(reversed(places.tolist()), reversed(texts), strict=True):
            if self._first[place] == row:
                self._texts[place] = piece
        with self._lock:
            np.add.at(self._bytes, places, sizes)

    def _places(self, rows: slice) -> npt.NDArray[np.intp]:
        """Return for each piece of rows its place in ``repeated``, or -1."""
        hashes = self._hashes[self._lims[rows.start] : self._lims[rows.stop]]
        if not len(self._repeated):
            return np.full(len(hashes), -1)
        at = np.minimum(np.searchsorted(self._repeated, hashes), len(self._repeated) - 1)
        return np.where(self._repeated[at] == hashes, at, -1)

    def pieces(self) -> RemovedPieces:
        """Return the removed pieces, when all rows are edited."""
        order = np.lexsort((self._first, -self._documents.astype(np.int64)))
        texts = [
            self._texts[place].strip().encode("utf-8", "replace").decode()
            for place in order.tolist()
        ]
        return RemovedPieces(
            texts,
            self._documents[order],
            self._occurrences[order],
            self._bytes[order],
        )

    def result(self, table: Any) -> Boilerplate:
        """Return the counts, with a table of remaining rows, when all rows are edited."""
        counts = self._counts
        return Boilerplate(
            self.rows,
            counts.changed,
            counts.dropped,
            len(self._repeated),
            int(self._occurrences.sum()),
            counts.removed_bytes,
            self.pieces(),
            table,
        )


def _drop_pieces(parts: list[str], is_removed: Sequence[bool]) -> str:
    """Return a text without some of its pieces, and without the separators behind them."""
    remaining = [place for place, removed in enumerate(is_removed) if not removed]
    return "".join(
        part
        for place in remaining
        for part in parts[2 * place : 2 * place + 1 + (place < remaining[-1])]
    )


@dataclass(frozen=True)
class BoilerplateJob:
    """Which pieces of which texts are boilerplate: see :func:`fpstore.remove_boilerplate`.

    InputError for a wrong value.
    """

    text: str | bool
    unit: str
    more_than: int
    least_chars: int
    count: str
    keep_first: bool
    fold_digits: bool

    def __post_init__(self) -> None:
        check_choice(self.unit, UNITS, "unit")
        check_whole(self.more_than, 1, 2**32 - 1, "more_than")
        check_whole(self.least_chars, 0, 2**31 - 1, "least_chars")
        check_choice(self.count, COUNTED, "count")
        check_flag(self.keep_first, "keep_first")
        check_flag(self.fold_digits, "fold_digits")
        edited_column(self.text)

    @property
    def projection(self) -> Projection:
        """The column of texts."""
        return edited_column(self.text)


def remove_corpus_boilerplate(
    corpus: RowSource,
    job: BoilerplateJob,
    resources: Resources,
    output: str | os.PathLike[str] | None,
    overwrite: bool,
    listings: Sequence[Listing] = (),
) -> Boilerplate:
    """Remove repeated pieces; without an output, only count.

    An error of a path comes before the work. Listings are of the `BoilerplateEdit`.
    """
    edit, table = edit_corpus(
        corpus,
        job.projection,
        lambda: _count_pieces(corpus, job, resources),
        resources,
        output,
        overwrite,
        listings,
    )
    return edit.result(table)


def _count_pieces(corpus: RowSource, job: BoilerplateJob, resources: Resources) -> BoilerplateEdit:
    """Count the pieces of all rows, and return the edit that removes repeated ones."""
    pieces = Pieces(job.unit, job.least_chars, job.fold_digits)
    counts = PieceCounts()
    spilled = SpilledNumbers(np.uint64)
    sizes = list[npt.NDArray[np.int64]]()
    done = 0
    for batch in corpus.batches(job.projection):
        hashes = [pieces.hashes(text) for text in batch.texts or ()]
        if batch.text_of_row is not None:
            hashes = [hashes[place] for place in batch.text_of_row.tolist()]
        counted = hashes if job.count == "occurrences" else list(map(set, hashes))
        counts.add(np.fromiter(chain.from_iterable(counted), np.uint64, sum(map(len, counted))))
        row_sizes = np.zeros(len(batch.flags), np.int64)
        row_sizes[batch.flags] = list(map(len, hashes))
        sizes.append(row_sizes)
        spilled.append(np.fromiter(chain.from_iterable(hashes), np.uint64, int(row_sizes.sum())))
        done += len(row_sizes)
        resources.report("counting", done)
    if not done:
        raise InputError(f"{corpus.label}: no rows")
    return BoilerplateEdit(
        pieces,
        spilled.finish(),
        list_lims(np.concatenate(sizes)),
        counts.more_frequent_than(job.more_than),
        job.keep_first,
    )
