"""Text files, and folders of them, as documents and as a source of rows."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_path, printable
from fpstore.base.strings import StringColumn
from fpstore.base.threads import cached_property
from fpstore.disk.folders import remove_abandoned, short_name, sync_folder, temporary_folder
from fpstore.disk.refusals import refused
from fpstore.errors import InputError, StorageError
from fpstore.hashing.batches import batched
from fpstore.hashing.walk import Paths, Skipped, Walk
from fpstore.io.files import FileState
from fpstore.io.packed import inner_name
from fpstore.io.sink import Complete
from fpstore.io.source import Batch, Flags, IdRule, KeptRows, Projection, RowSource, Skip

Notice = Callable[[Path, str], None]

BATCH_DOCUMENTS, BATCH_CHARS = 1024, 1 << 20
_PAGES = (".html", ".htm", ".xhtml")
_TEMPORARY_BYTES = len("..12345678.tmp")  # around a name

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
    "zero": "all components 0",
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


class DocumentFiles(RowSource):
    """Text files as rows: each is a document with a text, whose id is its path.

    Parameters
    ----------
    walk : Walk
        The files.
    on_skip : callable, optional
        Called with the path of each file that is skipped, and the reason.
    on_note : callable, optional
        Called with the path of a file that is read and what was guessed or replaced, as `DocumentReader` has it, or ``"tags"``
        for one whose name says that it is a page of HTML.
    html : bool
        The files are pages of HTML, and nobody needs to be told of it.
    """

    def __init__(self, walk: Walk, on_skip: Notice | None = None, on_note: Notice | None = None, html: bool = False) -> None:
        self.walk = walk
        self._on_skip, self._on_note, self._html = on_skip, on_note, html
        self._read: list[FileState] = []
        self.names = [str(path) for path in walk.paths]
        self.folders = [path for path in walk.paths if path.is_dir()]
        self.encoding = walk.encoding

    @cached_property
    def paths(self) -> list[str]:  # type: ignore[override]
        """The paths of all files, from a walk at the first use."""
        return [str(file.path) for file in self.walk.files()]

    @property
    def label(self) -> str:
        """The files and suffixes, for a message."""
        return self.walk.names

    @property
    def bytes_total(self) -> int:  # type: ignore[override]
        """The sizes of all files, from a walk at the first use."""
        return self.walk.bytes_total

    def documents(self, skip: Skip | None = None) -> Iterator[Document]:
        """Yield the documents behind some that are read only to see whether they are texts."""
        self.bytes_done, self._read = 0, []
        for file in self.walk.files():
            found = self.walk.text(file)
            self.bytes_done += file.size
            if isinstance(found, Skipped):
                if self._on_skip is not None:
                    self._on_skip(file.path, found.reason)
                continue
            if self._on_note is not None and (found.guessed or found.replaced):
                self._on_note(file.path, f"read as {found.encoding}" if found.guessed else "replaced")
            if self._on_note is not None and not self._html and inner_name(file.path).lower().endswith(_PAGES):
                self._on_note(file.path, "tags")
            self._read.append(file.state)  # before it was read
            if skip is None or not skip.of(1):
                yield Document(id_of(file.path), file.path, *found)

    def batches(self, projection: Projection, rule: IdRule | None = None, skipped: int = 0) -> Iterator[Batch]:
        """Yield the texts and the ids of the files."""
        skip = Skip(skipped)
        for held in batched(
            self.documents(skip), lambda document: len(document.text) + BATCH_CHARS // BATCH_DOCUMENTS, BATCH_CHARS
        ):
            ids = StringColumn.of([document.id for document in held])
            texts, paths = [document.text for document in held], [document.path for document in held]
            yield Batch(ids=ids, known=np.ones(len(held), bool), texts=texts, paths=paths)
        skip.finish()

    def states(self) -> list[FileState]:
        """Return the state of each file, in order."""
        return [FileState.of(str(file.path)) for file in self.walk.files()]

    def check_names(self) -> None:
        """Raise InputError for inputs of one name, whose copies would collide."""
        names = [path.resolve().name for path in self.walk.paths]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"two inputs have the name {twice!r}, so their copies would collide: name a folder above them")

    def copy(self, kept: Flags, target: Any, progress: Progress | None = None, complete: Complete | None = None) -> None:
        """Copy the files that are kept to a new folder, each under the path that it has in the folder that was given."""
        flags = KeptRows(kept, progress)
        folder = check_path(target, "the output").resolve()  # of a link, what it leads to
        beginning = f".{short_name(folder.name, _TEMPORARY_BYTES)}."
        try:
            remove_abandoned(folder.parent, f"{escape(beginning)}{'[0-9a-f]' * 8}.tmp")
            with temporary_folder(folder.parent, beginning, ".tmp") as temporary:
                for state in (state for state in self._read if flags.take(1)[0]):
                    _copy(state, temporary / self._relative(Path(state.path)))
                flags.finish()
                if complete is not None:
                    complete(temporary)
                temporary.replace(folder)
            sync_folder(folder.parent)
        except StorageError:
            raise
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # shutil names the file that it reads
            raise refused(folder if full else Path(error.filename or folder), error) from error

    def _relative(self, path: Path) -> Path:
        """Return the place of a file below the folder that was given; of several folders, with their names."""
        for given in self.walk.paths:
            if path.is_relative_to(given):
                inside = path.relative_to(given)
                return inside if len(self.walk.paths) == 1 and inside.parts else Path(given.resolve().name) / inside
        raise InputError(f"{path}: is in none of the folders", path=path)


def _copy(state: FileState, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(state.path, place)
    if FileState.of(state.path) != state:
        raise InputError(f"{printable(state.path)}: changed while it was read", path=state.path)


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
    """Read text files, and the text files in folders in the order of their names.

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
    return DocumentFiles(walk, on_skip=on_skip).documents()
