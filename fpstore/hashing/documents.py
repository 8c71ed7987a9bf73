"""Folders of text files, as documents or as a reader of fingerprints and ids."""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fpstore.base.arguments import check_whole
from fpstore.base.resources import parse_threads
from fpstore.base.threads import in_order
from fpstore.base.width import Width
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter, Hashed
from fpstore.hashing.html import MainText, of_pages
from fpstore.hashing.walk import File, Paths, Skipped, Walk
from fpstore.io import Chunk
from fpstore.io.packed import inner_name

Notice = Callable[[Path, str], None]

_CHUNK_CHARS = 1 << 22
_PAGES = (".html", ".htm", ".xhtml")

#: Why files and rows are left out.
SENTENCES = {
    "binary": "binary, not text",
    "large": "too large",
    "damaged": "damaged compressed files",
    "encoding": "of no known encoding",
    "rows": "rows, not one text",
    "empty": "no words",
    "html": "no main text",
    "null": "no text",
    "other": "no picture",
    "broken": "broken pictures",
    "blank": "blank pictures",
    "quality": "nearly blank, of a quality below --min-quality",
    "small": "too few pixels",
}


class Document(NamedTuple):
    r"""A text file.

    Attributes
    ----------
    id : str
        Its path as given, or the folder as given and the path from there, with ``/`` between the parts. Bytes of a
        file name that are not UTF-8 read ``\xff``.
    path : pathlib.Path
        The same, to open the file with.
    text : str
        Its content, without a byte order mark.
    encoding : str
        The encoding that it was read in, as Python calls it.
    guessed : bool
        Whether that was guessed.
    replaced : int
        Characters U+FFFD in it that stand for bytes that are not UTF-8.
    """

    id: str
    path: Path
    text: str
    encoding: str = "utf-8"
    guessed: bool = False
    replaced: int = 0


def documents_of(
    walk: Walk, on_skip: Notice | None, on_note: Notice | None = None, *, html: bool = False
) -> Iterator[tuple[File, Document | None]]:
    """Yield each file with its document, or with None if it is skipped, after calling `on_skip`.

    What was guessed or replaced is told to `on_note`, as `DocumentReader` has it, and so is a file whose name says that it is a
    page of HTML, unless ``html`` says that all files are pages.
    """
    for file in walk.files():
        found = walk.text(file)
        if isinstance(found, Skipped):
            if on_skip is not None:
                on_skip(file.path, found.reason)
            yield file, None
        else:
            if on_note is not None and (found.guessed or found.replaced):
                on_note(file.path, f"read as {found.encoding}" if found.guessed else "replaced")
            if on_note is not None and not html and inner_name(file.path).lower().endswith(_PAGES):
                on_note(file.path, "tags")
            yield file, Document(id_of(file.path), file.path, *found)


def id_of(path: Path) -> str:
    """Return the id of a file."""
    # The str of a name that is not UTF-8 has lone surrogates; an id has none, so that it can be stored.
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def iter_documents(
    paths: Paths,
    *,
    suffixes: Iterable[str] | None = None,
    recursive: bool = True,
    follow_symlinks: bool = False,
    max_bytes: int | None = None,
    encoding: str | None = None,
    on_skip: Notice | None = None,
) -> Iterator[Document]:
    """Read text files, and those in folders in the order of their names.

    Parameters
    ----------
    paths : path or iterable of paths
        Files and folders, in the order given; a path that is given twice is read twice. A symbolic link that is
        named is followed. A store of fpstore inside a folder is skipped. Files that gzip or zstandard compressed, such as
        ``a.txt.gz``, are read as what they hold.
    suffixes : iterable of str, optional
        In folders, read only files whose names end with one of these, such as ``[".txt", ".md"]``; case does not
        matter. Files that are named are always read.
    recursive : bool
        Whether to enter folders inside a folder.
    follow_symlinks : bool
        Whether to follow symbolic links found in folders; otherwise they are skipped. A folder inside itself is
        entered once.
    max_bytes : int, optional
        Larger files are not read; by default 2^30. Of a compressed file, what it holds counts too.
    encoding : str, optional
        That of all files. By default, a byte order mark says which of UTF-8, UTF-16 and UTF-32 it is; without one it is UTF-8 if
        it can be, and is guessed from the bytes otherwise. If there is no good guess, bytes that are not UTF-8 are replaced by
        U+FFFD if they are few, at most one in ten characters, or the file is skipped.
    on_skip : callable, optional
        Called with the path and the reason of each file in a folder that is skipped: ``"binary"`` (a NUL byte in its
        first 8 KiB), ``"large"`` (larger than `max_bytes`), ``"damaged"`` (a compressed file that cannot be decompressed),
        ``"encoding"`` (no encoding explains it) or ``"rows"`` (the extension is that of a format of `fpstore.io` other than .txt,
        such as .jsonl, and `suffixes` does not name it). Entries that are neither files nor folders are ignored.

    Yields
    ------
    Document
        One text at a time; none for an empty folder.

    Raises
    ------
    InputError
        An argument has the wrong type, or a named file is binary, holds rows, is larger than `max_bytes` or is not a
        regular file.
    StorageError
        A file or folder is missing or cannot be read; `path` names it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fpstore.hashing import iter_documents
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = pathlib.Path(folder, "a.txt").write_text("some text")
    ...     [document.text for document in iter_documents(folder, suffixes=[".txt"])]
    ['some text']
    """
    walk = Walk(paths, suffixes, recursive, follow_symlinks, max_bytes, encoding)
    return (document for _, document in documents_of(walk, on_skip) if document is not None)


class DocumentReader:
    """Text files as chunks of fingerprints and ids: a reader like those of `fpstore.io`, for building a store.

    Each iteration resets the counts, walks the folders and reads the files again.

    Parameters
    ----------
    paths : path or iterable of paths
        Files and folders, as in `iter_documents`.
    fingerprinter : Fingerprinter
        A fingerprinter of texts, such as `SimHash`.
    chunk_documents : int
        The most documents in a chunk; a chunk also ends when it holds 4 million characters.
    suffixes, recursive, follow_symlinks, max_bytes, encoding
        As in `iter_documents`.
    html : bool or str
        The files are pages of HTML: the fingerprinter becomes the `MainText` of it, if it is not one already. A str names its
        extractor.
    threads : int, optional
        Chunks of which fingerprints are made at the same time; by default one per processor. The result does not depend on it.
    on_notice : callable, optional
        Called with the path of each skipped file and the reason: ``"binary"``, ``"large"``, ``"damaged"``, ``"encoding"`` or
        ``"rows"`` as in `iter_documents`, or ``"empty"`` for a text without words, which has no fingerprint
        (``"html"`` for a page without a main text). Also with the path
        of a file that is read and ``"read as NAME"``, if its encoding was guessed, ``"replaced"``, if it has bytes that are
        not UTF-8, or ``"tags"``, if its name ends with .html, .htm or .xhtml and it is taken as a plain text.

    Attributes
    ----------
    rows : None
        Not known before the files are read.
    has_ids : bool
        True.
    fingerprinter : Fingerprinter
        With ``html=True`` a `MainText`.
    bytes_total : int
        The total size of the files to be read or skipped, from a walk at the first use.
    bytes_done : int
        The total size of those done so far.
    skipped : int
        Files that were binary, damaged, of no known encoding, files of rows, or larger than `max_bytes`.
    empty : int
        Texts without words, and pages without a main text.

    Raises
    ------
    InputError, StorageError
        As for `iter_documents`; also if `chunk_documents` is not a positive integer, or an iteration has found no text
        with a fingerprint.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fpstore.hashing import DocumentReader, SimHash
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = pathlib.Path(folder, "a.txt").write_text("some text")
    ...     [len(chunk.ids) for chunk in DocumentReader(folder, SimHash())]
    [1]
    """

    rows: None = None
    has_ids = True

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
        self._chunk_documents = check_whole(chunk_documents, 1, 1 << 30, "chunk_documents")
        if not isinstance(fingerprinter, Fingerprinter) or fingerprinter.items != "texts":
            raise InputError(f"fingerprinter must be one of texts such as SimHash(), got {type(fingerprinter).__name__}")
        if on_notice is not None and not callable(on_notice):
            raise InputError(f"on_notice must be a function of (path, reason), got {show(on_notice)}")
        self._walk = Walk(paths, suffixes, recursive, follow_symlinks, max_bytes, encoding)
        self._threads = parse_threads(threads)
        self.fingerprinter = of_pages(fingerprinter, html)
        self._on_notice = on_notice
        self._reasons: Counter[str] = Counter()
        self.bytes_done = self.skipped = self.empty = self._made = 0

    @property
    def bytes_total(self) -> int:
        """The sizes of all files, in bytes."""
        return self._walk.bytes_total

    def __iter__(self) -> Iterator[Chunk]:
        self._reasons.clear()
        self.bytes_done = self.skipped = self.empty = self._made = 0
        for documents, found in in_order(self._hashed, self._batches(), self._threads):
            yield from self._chunk(documents, found)
        if not self._made:
            left_out = ""
            if self.skipped or self.empty:
                reasons = (f"{number:,} ({SENTENCES[reason]})" for reason, number in sorted(self._reasons.items()))
                left_out = f"; left out: {', '.join(reasons)}"
            raise InputError(f"{self._walk.names}: no text to make a fingerprint of{left_out}")

    def _batches(self) -> Iterator[list[Document]]:
        held: list[Document] = []
        chars = 0
        for file, document in documents_of(self._walk, self._skip, self._notify, html=isinstance(self.fingerprinter, MainText)):
            self.bytes_done += file.size
            if document is None:
                continue
            held.append(document)
            chars += len(document.text)
            if len(held) >= self._chunk_documents or chars >= _CHUNK_CHARS:
                yield held
                held, chars = [], 0
        yield held

    def _hashed(self, documents: list[Document]) -> Hashed:
        return self.fingerprinter.hashed([document.text for document in documents])

    def _skip(self, path: Path, reason: str) -> None:
        self.skipped += 1
        self._reasons[reason] += 1
        self._notify(path, reason)

    def _notify(self, path: Path, reason: str) -> None:
        if self._on_notice is not None:
            self._on_notice(path, reason)

    def _chunk(self, documents: list[Document], found: Hashed) -> Iterator[Chunk]:
        for i in np.flatnonzero(~found.known).tolist():
            self.empty += 1
            reason = "html" if isinstance(self.fingerprinter, MainText) else "empty"
            self._reasons[reason] += 1
            self._notify(documents[i].path, reason)
        kept = found.known
        if kept.any():
            self._made += int(kept.sum())
            ids = [document.id for document in documents]
            yield Chunk(Width(self.fingerprinter.width).outside(found.rows[kept]), list(itertools.compress(ids, kept)))
