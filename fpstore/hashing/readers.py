"""Readers of texts, documents, pictures and vectors as fingerprints and ids."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self, get_args

import numpy as np

from fpstore.base.aliases import Array
from fpstore.base.arguments import check_choice, check_flag, check_whole
from fpstore.base.pools import map_in_order
from fpstore.base.resources import MemoryBudget, parse_memory, parse_threads
from fpstore.base.strings import StringColumn
from fpstore.base.width import Width
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.corpora import HashTexts, hash_rows, open_source
from fpstore.hashing.decoding import PictureSource
from fpstore.hashing.documents import (
    NO_WORDS,
    SENTENCES,
    DocumentFiles,
    File,
    Notice,
    Paths,
    Walk,
    document_id,
    skip_reason,
    walk_pictures,
)
from fpstore.hashing.fields import TextColumns, column_fingerprinter
from fpstore.hashing.html import MainText, page_fingerprinter
from fpstore.hashing.image import ImageHash, Rejection, check_orientations
from fpstore.hashing.vector_base import Block, VectorFingerprinter
from fpstore.io.files import check_paths, error_location
from fpstore.io.messages import check_roles
from fpstore.io.reader import CHUNK_ROWS, MAX_CHUNK_ROWS, Reader, open_vectors
from fpstore.io.source import Batch, IdRule, IdType, Projection, RowSource, select_ids

RowNotice = Callable[[int, str], None]

_SKIP_REASONS = ("binary", "large", "memory", "damaged", "encoding", "rows", "other", "heif")
WAITING_FILES = 4  # for each thread: small pictures are decoded during a large picture
VECTOR_ROWS = 1 << 13  # of a chunk


class HashingReader(Reader):
    """A reader as in `fpstore.io`, for building a store, which makes the fingerprints.

    Every row has an id. Each iteration resets the counts and reads the input again.

    Attributes
    ----------
    fingerprinter : Fingerprinter
        The maker of the fingerprints: the argument or, for pages of HTML, a `MainText`, and for
        several columns, `Fields`.
    rows : None
        Unknown before the items are read, since some may have no fingerprint.
    left_out : Counter
        The number of files, rows or frames that were left out so far, by reason.
    row_numbers : bool
        Whether the ids are the numbers of the rows.
    """

    row_numbers = False
    _first_row = 0
    _hash_texts: HashTexts | None = None

    def __init__(
        self,
        sources: list[Any],
        projection: Projection,
        fingerprinter: Fingerprinter[Any],
        chunk_rows: int,
        on_notice: Any,
        id_type: IdType = "auto",
    ) -> None:
        super().__init__(sources, projection, id_type, chunk_rows)
        self.fingerprinter: Any = fingerprinter
        self.rows = None
        self.left_out: Counter[str] = Counter()
        if on_notice is not None and not callable(on_notice):
            raise InputError(
                f"on_notice must be a function of (row or path, reason), got {show(on_notice)}",
                argument="on_notice",
            )
        self._on_notice = on_notice

    @property
    def input_rows(self) -> int | None:
        """The rows, with those without a fingerprint; None if only reading counts them."""
        rows = [source.rows for source in self._sources]
        return None if None in rows else sum(rows)  # type: ignore[arg-type]

    @property
    def has_ids(self) -> bool:
        """True."""
        return True

    @property
    def next_row(self) -> int:
        """The number of the next row, counted with rows that are left out."""
        return self._first_row + self._done

    @property
    def whole_pages(self) -> int:
        """Pages compared so far by their whole texts, for short main texts: see `MainText`."""
        return sum(getattr(source, "whole_pages", 0) for source in self._sources)

    @property
    def broken(self) -> int:
        """Pictures in folders that were broken."""
        return self.left_out["broken"]

    @property
    def empty(self) -> int:
        """Null and blank texts, pages without a main text, and frames without a fingerprint."""
        return sum(
            self.left_out[reason] for reason in (NO_WORDS, "html", "blank", "quality", "small")
        )

    @property
    def skipped(self) -> int:
        """Files that were not read, or are no texts or pictures."""
        return sum(self.left_out[reason] for reason in _SKIP_REASONS)

    def with_hashing(self, hash_texts: HashTexts, most: int) -> Self:
        """Return a reader whose :meth:`columns` have the rows of ``hash_texts``.

        A chunk has at most ``most`` rows.
        """
        reader = copy(self)
        reader._hash_texts, reader._chunk_rows = hash_texts, min(self._chunk_rows, most)
        return reader

    def columns(self) -> Iterator[Batch]:
        """Yield rows of words, with strings in columns."""
        self.left_out.clear()
        row_count = 0
        for batch in super().columns():
            row_count += len(batch.fingerprints)
            yield batch
        if not row_count and not self._sources[0].unbuffered:
            raise InputError(self._no_rows_message())

    def _no_rows_message(self) -> str:
        reasons = ", ".join(
            f"{number:,} ({SENTENCES[reason]})" for reason, number in sorted(self.left_out.items())
        )
        item = self.fingerprinter.items.removesuffix("s").replace("row", "text")
        labels = ", ".join(source.label for source in self._sources)
        return f"{labels}: no {item} to make a fingerprint of" + (
            f"; left out: {reasons}" if reasons else ""
        )

    def _hash_rows(
        self, source: RowSource, projection: Projection, threads: int, rule: IdRule | None
    ) -> Iterator[Batch]:
        """Yield rows with fingerprints, after notices of the rows without."""
        for batch in hash_rows(
            source, projection, self.fingerprinter, threads, rule, hash_texts=self._hash_texts
        ):
            blank_reason = "html" if isinstance(self.fingerprinter, MainText) else NO_WORDS
            wrong = {row.place for row in batch.left_out if row.error}
            for place in np.flatnonzero(~batch.flags).tolist():
                row = self.next_row + place if batch.paths is None else batch.paths[place]
                self._leave_out(row, "error" if place in wrong else blank_reason)
            yield batch

    def _leave_out(self, row_or_path: Any, reason: str) -> None:
        self.left_out[reason] += 1
        self._notify(row_or_path, reason)

    def _notify(self, *arguments: Any) -> None:
        if self._on_notice is not None:
            self._on_notice(*arguments)


def _check_fingerprinter(fingerprinter: object, items: tuple[str, ...], example: str) -> None:
    if not isinstance(fingerprinter, Fingerprinter) or fingerprinter.items not in items:
        raise InputError(
            f"fingerprinter must be one of {items[0]}, such as {example}, got "
            f"{type(fingerprinter).__name__}",
            argument="fingerprinter",
        )


class TextReader(HashingReader):
    """Texts in a column, as chunks of fingerprints and ids.

    A reader as in `fpstore.io`, for building a store.

    A row whose text is null or blank has no fingerprint, and is left out. With several columns of
    texts, a row uses the columns that are not null; a row of JSON may lack some. The rows are read
    as a stream: the batches that wait for a thread are in memory, about a megabyte each.

    Parameters
    ----------
    source : path, iterable of paths, or table
        Files of Parquet, JSON lines, CSV or TSV with a header, all of one format, or folders of
        such files; ``"-"`` is standard input. Or a table, a record batch or a record batch reader
        of pyarrow, a data frame of Polars or pandas (which needs pyarrow), a lazy frame of Polars,
        which is collected, a relation of DuckDB, or another object with the Arrow C stream
        interface.
    fingerprinter : Fingerprinter
        A fingerprinter of texts, such as `SimHash`, or `Fields`.
    text : str, sequence of str, or mapping of str to int
        The column or JSON field of the texts; ``"doc.text"`` is a field in a struct or in an
        object. A row of JSON without the field has a null there. Or several with weights, as in
        ``{"title": 4, "text": 1}``: `Fields` makes the fingerprints. Names without weights have the
        weight 1, or the weights of ``fingerprinter`` if it is `Fields`. A single column needs no
        weight.
    id : str, optional
        The column of the ids, strings or integers. By default the id is the number of the row,
        counted from ``first_row`` over all files, with the rows that are left out.
    format : {"parquet", "jsonl", "csv", "tsv"}, optional
        By default from the extension of each path; "tsv" for standard input.
    encoding : str, optional
        The encoding of JSON lines, CSV and TSV; by default UTF-8, or that of a byte order mark.
    html : bool or str
        The texts are pages of HTML: the fingerprinter becomes the `MainText` of it, if it is not
        one already. A str names its extractor.
    roles : sequence of str, optional
        The texts are messages of chats: the contents of those with one of these roles.
    skip_bad : bool
        Skip lines that are broken, as blank lines are: they are no rows, and have no numbers. One
        is broken if it is no JSON object or not in its encoding, or has more or fewer cells than
        the header. A warning in the log counts them, and names the first ten.
    id_type : {"auto", "int", "str"}
        As for `fpstore.io.open_reader`.
    threads : int, optional
        Threads that make fingerprints; by default one per processor. The result does not depend on
        it.
    chunk_rows : int
        The most rows in a chunk.
    first_row : int
        The number of the first row.
    unbuffered : bool
        Yield rows of JSON lines from a pipe, a socket or a terminal without waiting for others. One
        thread makes their fingerprints. A chunk has no rows if only null and blank texts arrived.
    on_notice : callable, optional
        Called with the number of each row that is left out and the reason: ``"no words"`` for a
        null or blank text, or ``"html"`` for a page without a main text.

    Attributes
    ----------
    rows, has_ids, fingerprinter, bytes_total, bytes_done, left_out, row_numbers, next_row
        As for all readers that make fingerprints: see `HashingReader`.
    absent : list of str
        The columns of texts, among several, that no row read so far has.
    tagged : bool
        Whether most of the first texts look like pages of HTML, and are taken as plain texts.
    empty : int
        Rows left out so far, because the text is null or blank, or a page without a main text.

    Raises
    ------
    InputError
        An argument is wrong; a column is missing or has another type; while iterating, a row that
        does not parse, or no row has a fingerprint.
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
    ...     rows = '{"url": "a.org", "text": "some text"}', '{"url": "b.org", "text": ""}'
    ...     written = path.write_text(chr(10).join(rows))
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
        id: str | None = None,
        format: str | None = None,
        encoding: str | None = None,
        html: bool | str = False,
        roles: Any = None,
        skip_bad: bool = False,
        id_type: IdType = "auto",
        threads: int | None = None,
        chunk_rows: int = CHUNK_ROWS,
        first_row: int = 0,
        unbuffered: bool = False,
        on_notice: RowNotice | None = None,
    ) -> None:
        if not (id is None or (isinstance(id, str) and id)):
            raise InputError(
                f"id must be the name of a column, got {show(id)}", got=id, argument="id"
            )
        check_choice(id_type, get_args(IdType), "id_type")
        _check_fingerprinter(fingerprinter, ("texts", "rows"), "SimHash()")
        fingerprinter, columns = column_fingerprinter(fingerprinter, text)
        fingerprinter = page_fingerprinter(fingerprinter, html)
        self._threads = parse_threads(threads)
        self._first_row = check_whole(first_row, 0, 2**64 - 1, "first_row")
        chunk_rows = check_whole(chunk_rows, 1, MAX_CHUNK_ROWS, "chunk_rows")
        self._source = open_source(
            source,
            format=format,
            encoding=encoding,
            again=False,
            unbuffered=check_flag(unbuffered, "unbuffered"),
            skip_bad=skip_bad,
        )
        self.row_numbers = id is None
        projection = Projection(
            text=columns,
            id=id,
            width=Width(fingerprinter.width),
            strict=True,
            roles=check_roles(roles),
        )
        super().__init__([self._source], projection, fingerprinter, chunk_rows, on_notice, id_type)

    @property
    def absent(self) -> list[str]:
        """The columns of texts, among several, that no row read so far has."""
        return sorted(self._source.absent)

    @property
    def tagged(self) -> bool:
        """Whether most of the first texts look like pages of HTML, and are taken as plain texts."""
        return self._source.tagged

    def _read(self, source: RowSource, projection: Projection, rule: IdRule) -> Iterator[Batch]:
        for batch in self._hash_rows(source, projection, self._threads, rule):
            places = np.flatnonzero(batch.flags).astype(np.uint64) + np.uint64(self.next_row)
            self._note_places(batch)
            if self.row_numbers:
                rule.has_ids, rule.kind = True, "int"
                batch = batch._replace(ids=places)
            if len(places) or source.unbuffered:
                yield batch if len(places) else batch._replace(ids=None)


class DocumentReader(HashingReader):
    r"""Text files as chunks of fingerprints and ids.

    A reader as in `fpstore.io`, for building a store.

    Each iteration resets the counts, walks the folders and reads the files again.

    Parameters
    ----------
    paths : path or iterable of paths
        Files and folders, in the order given; the files in a folder come in the order of their
        names. A path that is given twice is read twice. A symbolic link that is named is followed.
        In folders, a store of fpstore is skipped, and so are files and folders whose names begin
        with ``.`` or ``_``: a warning in the log counts them. Compressed files, such as
        ``a.txt.gz``, are read as what they hold. The id of a file is its path as given, or the
        folder as given and the path from there, with ``/`` between the parts. Bytes of a name that
        are not UTF-8 read ``\xff``.
    fingerprinter : Fingerprinter
        A fingerprinter of texts, such as `SimHash`.
    chunk_documents : int
        The most documents in a chunk.
    suffixes : iterable of str, optional
        In folders, read only files whose names end with one of these, such as ``[".txt", ".md"]``;
        case does not matter. Files among ``paths`` are always read.
    recursive : bool
        Whether to enter folders inside a folder.
    follow_symlinks : bool
        Whether to follow symbolic links found in folders; otherwise they are skipped. A folder
        inside itself is entered once.
    max_bytes : int, optional
        Larger files are not read; by default 2^30. The limit also holds for decompressed content.
    encoding : str, optional
        The encoding of all files. By default, a byte order mark says which of UTF-8, UTF-16 and
        UTF-32 it is; without a mark it is UTF-8 if it can be, or else what a page of HTML or XML
        declares. Otherwise bytes that are not UTF-8 are replaced by U+FFFD if they are few: one,
        and one more for each hundred characters. If there are more, the file is skipped.
    html : bool or str
        The files are pages of HTML: the fingerprinter becomes the `MainText` of it, if it is not
        one already. A str names its extractor.
    threads : int, optional
        Chunks that are hashed at the same time; by default one per processor. The result does not
        depend on it.
    on_notice : callable, optional
        Called with the path and the reason of each file in a folder that is skipped: ``"binary"``
        (a NUL byte in its first 8 KiB), ``"large"``, ``"damaged"`` (a compressed file that cannot
        be decompressed), ``"encoding"`` (it is not in its encoding: name another) or ``"rows"``
        (the extension is one of a format of rows, such as .jsonl, and `suffixes` does not name it).
        Or with ``"no words"`` for a blank text, which has no fingerprint (``"html"`` for a page
        without a main text). Also with the path of a file that is read and ``"read as NAME"``, if
        it declares its encoding, ``"replaced"``, if it has bytes that are not UTF-8, or ``"tags"``,
        if its name ends with .html, .htm or .xhtml and it is taken as a plain text.

    Attributes
    ----------
    rows, has_ids, fingerprinter, bytes_total, bytes_done, left_out
        As for all readers that make fingerprints: see `HashingReader`.
    skipped : int
        Files that were binary, damaged, not in their encoding, files of rows, or larger than
        `max_bytes`.
    empty : int
        Blank texts, and pages without a main text.

    Raises
    ------
    InputError
        An argument has the wrong type, or a named file is binary, holds rows, is larger than
        `max_bytes` or is not a regular file; or an iteration has found no text with a fingerprint.
    StorageError
        A file or folder is missing or cannot be read; `path` names it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fpstore.hashing import DocumentReader, SimHash
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = pathlib.Path(folder, "a.txt").write_text("some text")
    ...     [len(chunk.ids) for chunk in DocumentReader(folder, SimHash())]
    [1]
    """

    def __init__(
        self,
        paths: Paths,
        fingerprinter: Fingerprinter[str],
        chunk_documents: int = 1024,
        *,
        suffixes: Iterable[str] | None = None,
        recursive: bool = True,
        follow_symlinks: bool = False,
        max_bytes: int | None = None,
        encoding: str | None = None,
        html: bool | str = False,
        threads: int | None = None,
        on_notice: Notice | None = None,
    ) -> None:
        chunk_documents = check_whole(chunk_documents, 1, 1 << 30, "chunk_documents")
        _check_fingerprinter(fingerprinter, ("texts",), "SimHash()")
        walk = Walk(
            paths,
            suffixes,
            recursive=recursive,
            follow_symlinks=follow_symlinks,
            max_bytes=max_bytes,
            encoding=encoding,
        )
        self._threads = parse_threads(threads)
        fingerprinter = page_fingerprinter(fingerprinter, html)
        is_html = isinstance(fingerprinter, MainText)
        files = DocumentFiles(walk, self._leave_out, self._notify, is_html)
        projection = Projection(text="text", id="id", width=Width(fingerprinter.width), strict=True)
        super().__init__([files], projection, fingerprinter, chunk_documents, on_notice)

    @property
    def input_rows(self) -> int:
        """The number of files, from a walk."""
        return len(self._sources[0].paths)

    def _read(self, source: RowSource, projection: Projection, rule: IdRule) -> Iterator[Batch]:
        rule.has_ids, rule.kind = True, "str"
        return self._hash_rows(source, projection, self._threads, None)


class ImageReader(HashingReader):
    """Pictures as chunks of fingerprints and ids.

    A reader as in `fpstore.io`, for building a store.

    The id of a picture is its path, as in `DocumentReader`. If the fingerprinter has
    ``frame="all"``, a file of several frames has a fingerprint of each, and the ids are ``path#0``,
    ``path#1`` and so on. Each iteration resets the counts, walks the folders and reads the files
    again.

    Parameters
    ----------
    paths : path or iterable of paths
        Files and folders, as in `DocumentReader`.
    fingerprinter : ImageHash
        The maker of the fingerprints.
    chunk_pictures : int
        The most frames in a chunk.
    suffixes, recursive, follow_symlinks, max_bytes
        As in `DocumentReader`.
    threads : int, optional
        Files that are decoded at the same time; by default one per processor. The result does not
        depend on it.
    orientations : {1, 8}
        With 8, a frame has eight successive rows of one id: see `ImageHash.orientations`.
    memory : int or str, optional
        Bytes, such as ``"2GiB"``, that the files which are decoded at the same time take, by their
        sizes in pixels; by default a quarter of this machine's memory, and at least 64 MiB.
    on_notice : callable, optional
        Called, in the order of the files, with the path of each file that is left out, and the
        reason: for a file in a folder ``"other"`` (not a picture), ``"heif"`` (HEIC, without the
        package pillow-heif), ``"broken"`` (truncated or damaged), ``"large"`` (larger than
        `max_bytes`, or than the limits of Pillow) or ``"memory"`` (it alone takes more than
        `memory`); for every file ``"blank"``, ``"quality"`` or ``"small"`` for a frame without a
        fingerprint: see `ImageHash`.

    Attributes
    ----------
    rows, has_ids, fingerprinter, bytes_total, bytes_done, left_out
        As for all readers that make fingerprints: see `HashingReader`.
    skipped : int
        Files in folders that were no pictures, or too large.
    broken : int
        Pictures in folders that were broken.
    empty : int
        Frames without a fingerprint.

    Raises
    ------
    InputError
        An argument is wrong. A named file is not a picture, broken or too large; or an iteration
        has found no picture with a fingerprint.
    MissingExtraError
        A package is not installed; the message says how to install it.
    StorageError
        A file or folder is missing or cannot be read; `path` names it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> from fpstore.hashing import ImageHash, ImageReader
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.linear_gradient("L").rotate(30).save(pathlib.Path(folder, "a.png"))
    ...     [len(chunk.ids) for chunk in ImageReader(folder, ImageHash())]
    [1]
    """

    def __init__(
        self,
        paths: Paths,
        fingerprinter: ImageHash,
        chunk_pictures: int = 64,
        *,
        suffixes: Iterable[str] | None = None,
        recursive: bool = True,
        follow_symlinks: bool = False,
        max_bytes: int | None = None,
        threads: int | None = None,
        orientations: int = 1,
        memory: int | str | None = None,
        on_notice: Notice | None = None,
    ) -> None:
        chunk_pictures = check_whole(chunk_pictures, 1, 1 << 30, "chunk_pictures")
        self._orientations = check_orientations(orientations)
        self._threads, self._memory = parse_threads(threads), parse_memory(memory)
        _check_fingerprinter(fingerprinter, ("pictures",), "ImageHash()")
        self._walk = walk_pictures(
            paths,
            suffixes,
            recursive=recursive,
            follow_symlinks=follow_symlinks,
            max_bytes=max_bytes,
        )
        self._rejection = ""  # of the last picture without a fingerprint
        projection = Projection(id="id", width=Width(fingerprinter.width))
        chunk_rows = chunk_pictures * self._orientations
        super().__init__(
            [DocumentFiles(self._walk)], projection, fingerprinter, chunk_rows, on_notice
        )

    def _read(self, source: RowSource, projection: Projection, rule: IdRule) -> Iterator[Batch]:
        source.bytes_done, width = 0, Width(self.width)
        rule.has_ids, rule.kind = True, "str"
        work = partial(self._frames, MemoryBudget(self._memory))
        for file, frames in map_in_order(work, self._walk.files(), self._threads, WAITING_FILES):
            source.bytes_done += file.size
            if isinstance(frames, str):
                self._leave_out(file.path, frames)
                continue
            fingerprints, ids, name = list[int](), list[str](), document_id(file.path)
            for number, value in enumerate(frames):
                if isinstance(value, Rejection):
                    self._rejection = f"{name} {value.sentence}"
                    self._leave_out(file.path, value.reason)
                else:
                    fingerprints += value
                    frame_id = name if len(frames) == 1 else f"{name}#{number}"
                    ids += [frame_id] * len(value)
            yield Batch(width.rows(fingerprints), StringColumn.from_strings(ids))

    def _frames(self, budget: MemoryBudget, file: File) -> list[tuple[int, ...] | Rejection] | str:
        """Return the fingerprints of the frames of a file, or why the file is skipped."""
        try:
            self._walk.check_size(file, file.size)
            every = self.fingerprinter.frame == "all"
            picture = PictureSource(file.path, os.fspath(file.path))
            fingerprints: list[tuple[int, ...] | Rejection] = self.fingerprinter.frame_fingerprints(
                picture, every=every, orientations=self._orientations, budget=budget
            )
        except InputError as error:
            return skip_reason(file, error)
        return fingerprints

    def _no_rows_message(self) -> str:
        if self.empty == self.left_out.total() == 1:
            return f"{self._rejection}, so it has no fingerprint"
        return super()._no_rows_message()


class VectorReader(HashingReader):
    """Files of vectors as chunks of fingerprints and ids.

    A reader as in `fpstore.io`, for building a store.

    Each iteration reads the files again, in pieces: memory does not grow with them.

    Parameters
    ----------
    paths : path or iterable of paths
        ``.npy`` files with an array of shape (n, dimension), and ``.parquet`` files with a column
        of lists.
    fingerprinter : HyperplaneHash, BitSample, Unary
        Or a function from the dimension of the first file to a fingerprinter.
    vector_field, id_field : str, optional
        The columns of Parquet files; by default "vector", and "id" if the files have it. Without
        ids, the id of a vector is its number among all vectors, from ``first_row``.
    id_type : {"auto", "int", "str"}
        The type of ids; "auto" takes the type in the file.
    first_row : int
        The number of the first vector, for files without ids.
    on_notice : callable, optional
        Called with the path and the number in the file of each vector that has no fingerprint, and
        is left out.

    Attributes
    ----------
    rows, has_ids, fingerprinter, bytes_total, bytes_done, left_out, row_numbers, next_row
        As for all readers that make fingerprints: see `HashingReader`.

    Raises
    ------
    InputError
        A file is not in its format, some files have ids and others none, the fingerprinter has
        another dimension, a vector holds NaN or infinity; or an iteration has found no vector with
        a fingerprint.
    StorageError
        A file cannot be read.
    MissingExtraError
        Parquet without pyarrow.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from fpstore import HyperplaneHash
    >>> from fpstore.hashing import VectorReader
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.npy")
    ...     np.save(path, np.ones((3, 8), np.float32))
    ...     [chunk.ids.tolist() for chunk in VectorReader(path, HyperplaneHash(dimension=8))]
    [[0, 1, 2]]
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        fingerprinter: VectorFingerprinter | Callable[[int], VectorFingerprinter],
        *,
        vector_field: str | None = None,
        id_field: str | None = None,
        id_type: IdType = "auto",
        first_row: int = 0,
        on_notice: Callable[[str, int], object] | None = None,
    ) -> None:
        files = [open_vectors(path, VECTOR_ROWS) for path in check_paths(paths)]
        if not files:
            raise InputError("no files of vectors are given")
        self._first_row = check_whole(first_row, 0, 2**64 - 1, "first_row")
        projection = Projection(
            vector=vector_field or "vector",
            id=id_field or "id",
            strict=True,
            optional_id=id_field is None,
            names_columns=vector_field is not None or id_field is not None,
        )
        fingerprinter = _vector_fingerprinter(fingerprinter, files[0], projection)
        projection = replace(projection, width=Width(fingerprinter.width))
        super().__init__(files, projection, fingerprinter, VECTOR_ROWS, on_notice, id_type)
        self.row_numbers = self._projections[0].id is None

    def _read(self, source: RowSource, projection: Projection, rule: IdRule) -> Iterator[Batch]:
        done, (name,) = 0, source.names
        with error_location(name):
            rule.expect(projection.id is not None)
        for batch in source.batches(projection, rule):
            assert batch.vectors is not None
            for block in self._blocks(name, batch.vectors, done):
                with error_location(name):
                    hashed = self.fingerprinter.hashed(block)
                rows, known = hashed.rows, hashed.known
                for place in np.flatnonzero(~known).tolist():
                    self.left_out["zero"] += 1
                    self._notify(name, block.first + place)
                start, stop = block.first - done, block.first - done + len(block)
                ids = select_ids(batch.ids, slice(start, stop))
                if ids is None:
                    ids = np.arange(start, stop, dtype=np.uint64) + np.uint64(self.next_row)
                # Unbuffered, so that these rows come before the error of a later file.
                yield Batch(rows[known], select_ids(ids, known), unbuffered=True)
            done += len(batch.vectors)
            self._done += len(batch.vectors)

    def _blocks(self, name: str, vectors: Array, done: int) -> Iterator[Block]:
        with error_location(name):
            yield from self.fingerprinter.blocks(vectors, done)


def _vector_fingerprinter(
    fingerprinter: VectorFingerprinter | Callable[[int], VectorFingerprinter],
    first: RowSource,
    projection: Projection,
) -> VectorFingerprinter:
    """Return the fingerprinter, or call it with the dimension of the first file."""
    if isinstance(fingerprinter, VectorFingerprinter):
        return fingerprinter
    if not callable(fingerprinter):
        raise _fingerprinter_error(fingerprinter)
    batch = next(first.batches(replace(first.resolve_columns(projection), id=None)), None)
    with error_location(first.label):
        if batch is None or batch.vectors is None:
            raise InputError("no vectors, which would give the dimension")
        result: object = fingerprinter(batch.vectors.shape[1])
    if not isinstance(result, VectorFingerprinter):
        raise _fingerprinter_error(result)
    return result


def _fingerprinter_error(got: object) -> InputError:
    return InputError(
        "fingerprinter must be one of vectors, such as HyperplaneHash(dimension=384), got "
        f"{show(got)}",
        got=got,
        argument="fingerprinter",
    )
