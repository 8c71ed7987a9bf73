"""Rows with a column of texts, as a reader of fingerprints and ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import check_choice, check_flag, check_whole
from fpstore.base.resources import parse_threads
from fpstore.base.strings import StringColumn
from fpstore.base.width import Width
from fpstore.errors import InputError, counted, show
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.corpora import open_rows
from fpstore.hashing.fields import TextColumns, maker_of_columns
from fpstore.hashing.hashed_rows import Read, hashed_rows
from fpstore.hashing.html import MainText, of_pages
from fpstore.io.corpus import Chosen, Flags, Rows
from fpstore.io.reader import CHUNK_ROWS, MOST_CHUNK_ROWS, Reader
from fpstore.io.source import Batch, BatchSource, Chunk, IdColumn, IdRule, IdType, located

RowNotice = Callable[[int, str], None]

NAMED = 3  # files in a message


class TextReader(Reader):
    """Texts in a column, as chunks of fingerprints and ids: a reader like those of `fpstore.io`, for building a store.

    A row whose text is null or has no words has no fingerprint, and is left out. Of several columns of texts, a row uses those
    that are not null; a row of JSON may lack some. The rows are read as a stream: those that wait for a thread are in memory,
    about a megabyte each.

    Parameters
    ----------
    source : path, iterable of paths, or table
        Files of Parquet, JSON lines, CSV or TSV with a header, all of one format, or folders of such files; ``"-"`` is standard
        input. Or a table, a record batch or a record batch reader of pyarrow, a data frame of Polars or pandas (which needs
        pyarrow), or another object with the Arrow C stream interface.
    fingerprinter : Fingerprinter
        A fingerprinter of texts, such as `SimHash`, or `Fields`.
    text : str, sequence of str, or mapping of str to int
        The column or JSON field of the texts. Or several, whose weights say how much each counts, as in
        ``{"title": 4, "text": 1}``: the fingerprints are those of `Fields`. Names without weights count 1, or what the given
        `Fields` say. One column alone needs no weight.
    id : str, optional
        That of the ids, strings or integers. By default the id is the number of the row, counted from ``first_row`` over all
        files, with the rows that are left out.
    format : {"parquet", "jsonl", "csv", "tsv"}, optional
        By default from the extension of each path; "tsv" for standard input.
    encoding : str, optional
        That of JSON lines, CSV and TSV; by default UTF-8, or what a byte order mark says.
    html : bool or str
        The texts are pages of HTML: the fingerprinter becomes the `MainText` of it, if it is not one already. A str names its
        extractor.
    id_type : {"auto", "int", "str"}
        As for `fpstore.io.open_reader`.
    threads : int, optional
        Threads that make fingerprints; by default one per processor. The result does not depend on it.
    chunk_rows : int
        The most rows in a chunk.
    first_row : int
        The number of the first row.
    unbuffered : bool
        Yield the rows of JSON lines that have come through a pipe, a socket or a terminal, without waiting for others. One thread
        makes their fingerprints. A chunk has no rows if only rows without words have come.
    on_notice : callable, optional
        Called with the number of each row that is left out and the reason: ``"null"``, ``"empty"`` for a text without words, or
        ``"html"`` for a page without a main text.

    Attributes
    ----------
    rows : None
        Not known before the texts are read.
    has_ids : bool
        True.
    fingerprinter : Fingerprinter
        What makes the fingerprints: with ``html=True`` a `MainText`, for several columns `Fields`.
    row_numbers : bool
        Whether the ids are the numbers of the rows.
    next_row : int
        The number of the row after those read so far.
    absent : list of str
        Of several columns of texts, those that no row read so far has.
    tagged : bool
        Whether most of the first texts look like pages of HTML, and are taken as plain texts.
    null, empty : int
        Rows left out so far, because the text is null, or has no words (a page no main text).
    bytes_total, bytes_done : int or None
        As for `fpstore.io.Reader`.
    width : int
        The bits of a fingerprint.

    Raises
    ------
    InputError
        An argument is wrong; a column is missing or has another type; while iterating, a row that does not parse, or no row has a
        fingerprint.
    StorageError
        A file is missing or cannot be read.
    MissingExtraError
        Parquet or a table without pyarrow, HTML without trafilatura.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fpstore.hashing import SimHash, TextReader
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pages.jsonl")
    ...     written = path.write_text('{"url": "a.org", "text": "some text"}' + chr(10) + '{"url": "b.org", "text": ""}')
    ...     reader = TextReader(path, SimHash(), text="text", id="url")
    ...     print([chunk.ids for chunk in reader], reader.empty)
    [['a.org']] 1
    """

    def __init__(
        self,
        source: Any,
        fingerprinter: Fingerprinter[Any],
        *,
        text: TextColumns,
        id: str | None = None,  # noqa: A002 - the word that users know
        format: str | None = None,  # noqa: A002
        encoding: str | None = None,
        html: bool | str = False,
        id_type: IdType = "auto",
        threads: int | None = None,
        chunk_rows: int = CHUNK_ROWS,
        first_row: int = 0,
        unbuffered: bool = False,
        on_notice: RowNotice | None = None,
    ) -> None:
        if not (id is None or (isinstance(id, str) and id)):
            raise InputError(f"id must be the name of a column, got {show(id)}", got=id)
        if on_notice is not None and not callable(on_notice):
            raise InputError(f"on_notice must be a function of (row, reason), got {show(on_notice)}")
        check_choice(id_type, get_args(IdType), "id_type")
        if not isinstance(fingerprinter, Fingerprinter) or fingerprinter.items not in ("texts", "rows"):
            raise InputError(f"fingerprinter must be one of texts, such as SimHash(), got {type(fingerprinter).__name__}")
        fingerprinter, columns = maker_of_columns(fingerprinter, text)
        fingerprinter = of_pages(fingerprinter, html)
        width = Width(fingerprinter.width)
        chosen = Chosen(text=columns, id=id, width=width, every_id=True, alike_ids=id_type == "auto")
        read = open_rows(source, format, encoding)
        read.arrives = self._empty_too = check_flag(unbuffered, "unbuffered") and read.can_arrive()
        self._texts = _TextSource(read, chosen, fingerprinter, parse_threads(threads), on_notice)
        self._texts.first_row = check_whole(first_row, 0, 2**64 - 1, "first_row")
        super().__init__([self._texts], id_type, check_whole(chunk_rows, 1, MOST_CHUNK_ROWS, "chunk_rows"), width)
        self.fingerprinter = fingerprinter
        self.row_numbers = id is None

    @property
    def next_row(self) -> int:
        """The number of the row after those read so far."""
        return self._texts.first_row + self._texts.done

    @property
    def absent(self) -> list[str]:
        """Of several columns of texts, those that no row read so far has: a row of JSON may lack some."""
        return self._texts.absent

    @property
    def tagged(self) -> bool:
        """Whether most of the first texts look like pages of HTML, and are taken as plain texts."""
        return self._texts.tagged

    @property
    def null(self) -> int:
        """Rows left out so far because the text is null."""
        return self._texts.null

    @property
    def empty(self) -> int:
        """Rows left out so far because the text has no words."""
        return self._texts.empty

    def placed(self) -> Iterator[tuple[Chunk, Words, int]]:
        """Yield chunks with the numbers of their rows.

        Yields
        ------
        chunk : Chunk
        places : ndarray of uint64, shape (rows,)
            The number of each row in the input, in which rows that are left out count.
        end : int
            The number of the next row that is not left out, as far as rows were read.
        """
        places = self._texts.places = _Places()
        try:
            for chunk in self:
                yield chunk, places.take(len(chunk.fingerprints)), places.next(self.next_row)
        finally:
            if self._texts.places is places:
                self._texts.places = None


class _Places:
    """The numbers of the rows that have a fingerprint, until they are asked for."""

    def __init__(self) -> None:
        self._held: deque[Words] = deque()

    def add(self, places: Words) -> None:
        """Add those of some rows."""
        self._held.append(places)

    def next(self, end: int) -> int:
        """Return the next one, or the number of the row after all."""
        return next((int(places[0]) for places in self._held if len(places)), end)

    def take(self, count: int) -> Words:
        """Return those of the next rows."""
        taken = [np.empty(0, np.uint64)]
        while count:
            places = self._held.popleft()
            if len(places) > count:
                self._held.appendleft(places[count:])
            taken.append(places[:count])
            count -= len(taken[-1])
        return np.concatenate(taken)


class _TextSource(BatchSource):
    """Hashes rows, and yields those that have a fingerprint."""

    def __init__(
        self, rows: Rows, chosen: Chosen, fingerprinter: Fingerprinter[Any], threads: int, on_notice: RowNotice | None
    ) -> None:
        self._label = ", ".join(rows.names[:NAMED]) + ("" if len(rows.names) <= NAMED else " and more")
        super().__init__(self._label, rows.bytes_total)
        self.has_ids = True
        self.typed, self.arrives = rows.typed, rows.arrives
        self.first_row = self.done = self.null = self.empty = 0
        self.places: _Places | None = None
        self._rows, self._chosen, self._fingerprinter, self._threads = rows, chosen, fingerprinter, threads
        self._on_notice = on_notice

    @property
    def absent(self) -> list[str]:
        """Columns of texts that no row has."""
        return sorted(self._rows.absent)

    @property
    def tagged(self) -> bool:
        """Whether texts look like pages."""
        return self._rows.tagged

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Read and hash the rows; InputError if none has a fingerprint."""
        self.done = self.null = self.empty = made = 0
        rule.has_ids = True
        for read in hashed_rows(self._rows, self._chosen, self._fingerprinter, self._threads):
            self.bytes_done = self._rows.bytes_done
            batch = self._batch(read, rule)
            made += len(batch.fingerprints)
            if len(batch.fingerprints) or self.arrives:
                yield batch
        if not made and not self.arrives:
            left_out = f": {self.null:,} without a text, {self.empty:,} without words" if self.done else ""
            rows = counted(self.done, "row") if self.done else "no rows"
            raise InputError(f"{self._label}: no text to make a fingerprint of, {rows}{left_out}")

    def _batch(self, read: Read, rule: IdRule) -> Batch:
        """Return the rows of a part that have a fingerprint, and count the others."""
        known, given = read.part.known, read.given
        assert given is not None
        first = self.first_row + self.done
        self._leave_out(first, given, known)
        places = np.flatnonzero(known).astype(np.uint64) + np.uint64(first)
        if self.places is not None:
            self.places.add(places)
        before = self.done
        self.done += len(known)
        if not len(places):
            return Batch(read.fingerprints, None)
        if self._chosen.id is None:
            rule.kind = "int"
            return Batch(read.fingerprints, places)
        ids, rows = read.part.ids, (np.flatnonzero(known) + before).tolist()
        if self.typed and rows:
            rule.expect_kind("str" if isinstance(ids, StringColumn) else "int")
        if rule.kind is None:
            return Batch(read.fingerprints, ids, lambda: self._integers(ids, IdRule("auto", True, "int"), rows))
        if rule.kind == "int":
            return Batch(read.fingerprints, self._integers(ids, rule, rows))
        return Batch(read.fingerprints, StringColumn.of([str(number) for number in ids]) if isinstance(ids, np.ndarray) else ids)

    def _integers(self, ids: IdColumn, rule: IdRule, rows: list[int]) -> Words:
        """Return ids as integers; the error names the row of one that is none."""
        if isinstance(ids, np.ndarray):
            return ids
        assert ids is not None
        numbers = np.empty(len(ids), np.uint64)
        for place, (row, text) in enumerate(zip(rows, ids.texts(), strict=True)):
            with located(self._label):
                try:
                    numbers[place] = rule.integer(text)
                except InputError as error:
                    raise InputError(f"row {row + 1}: {error}") from None
        return numbers

    def _leave_out(self, first: int, given: Flags, known: Flags) -> None:
        """Count the rows of a part without a text or without words, and tell of each."""
        if known.all():
            return
        empty = given & ~known
        self.null += len(given) - int(np.count_nonzero(given))
        self.empty += int(np.count_nonzero(empty))
        if self._on_notice is not None:
            lack = "html" if isinstance(self._fingerprinter, MainText) else "empty"
            for place in np.flatnonzero(~known).tolist():
                self._on_notice(first + place, lack if empty[place] else "null")
