"""The text files of folders as a corpus: each file is a row."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_path, printable
from fpstore.base.strings import StringColumn
from fpstore.disk.folders import remove_abandoned, short_name, sync_folder, temporary_folder
from fpstore.disk.refusals import refused
from fpstore.errors import InputError, StorageError
from fpstore.hashing.documents import Document, Notice, documents_of
from fpstore.hashing.walk import Paths, Walk
from fpstore.io.corpus import Chosen, Corpus, FileState, Flags, KeptRows, Part, Skip, state_of
from fpstore.io.sink import Complete

PART_DOCUMENTS, PART_CHARS = 1024, 1 << 20
TEMPORARY_BYTES = len("..12345678.tmp")  # around a name


class TextCorpus(Corpus):
    """Text files, each of which is a document; its id is its path.

    Parameters
    ----------
    paths : path or iterable of paths
        Files and folders.
    suffixes : iterable of str, optional
        In folders, read only files whose names end with one of these.
    on_notice : callable, optional
        Called with the path of each file that is skipped, and the reason, and as by `DocumentReader`.
    encoding : str, optional
        As for `iter_documents`.
    html : bool
        The files are pages of HTML, and nobody needs to be told of it.
    """

    def __init__(
        self,
        paths: Paths,
        suffixes: Iterable[str] | None = None,
        on_notice: Notice | None = None,
        encoding: str | None = None,
        html: bool = False,
    ) -> None:
        self._html = html
        self._walk = Walk(paths, suffixes, True, False, None, encoding)
        self._on_notice = on_notice
        self._read: list[FileState] = []
        self.names = [str(path) for path in self._walk.paths]
        files = list(self._walk.files())
        self.paths = [str(file.path) for file in files]
        self.bytes_total = sum(file.size for file in files)
        self._tops = [path.resolve() for path in self._walk.paths]
        names = [top.name for top in self._tops]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"two inputs have the name {twice!r}, so their copies would collide: name a folder above them")

    def parts(self, chosen: Chosen, skipped: int = 0) -> Iterator[Part]:
        """Yield the texts and the ids of all files but some at the beginning, which are read to see whether they are texts."""
        self.bytes_done, self._read, skip = 0, [], Skip(skipped)
        held: list[Document] = []
        chars = 0
        for file, document in documents_of(self._walk, self._on_notice, self._on_notice, html=self._html):
            self.bytes_done += file.size
            if document is None:
                continue
            self._read.append(file.state)  # before it was read
            if not skip.of([document]):
                continue
            held.append(document)
            chars += len(document.text)
            if len(held) >= PART_DOCUMENTS or chars >= PART_CHARS:
                yield _part(held)
                held, chars = [], 0
        if held:
            yield _part(held)
        skip.finish()

    def states(self) -> list[FileState]:
        """Return the state of each file, in order."""
        return [state_of(str(file.path)) for file in self._walk.files()]

    def copy(self, kept: Flags, target: Any, progress: Progress | None = None, complete: Complete | None = None) -> None:
        """Copy the files that are kept to a new folder, each under the path that it has in the folder that was given."""
        flags = KeptRows(kept, progress)
        folder = check_path(target, "the output").resolve()  # of a link, what it leads to
        beginning = f".{short_name(folder.name, TEMPORARY_BYTES)}."
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
        for given, top in zip(self._walk.paths, self._tops, strict=True):
            if path.is_relative_to(given):
                inside = path.relative_to(given)
                return inside if len(self._tops) == 1 and inside.parts else Path(top.name) / inside
        raise InputError(f"{path}: is in none of the folders", path=path)


def _part(documents: list[Document]) -> Part:
    ids = StringColumn.of([document.id for document in documents])
    return Part(np.ones(len(documents), bool), [document.text for document in documents], None, ids)


def _copy(state: FileState, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(state.path, place)
    if state_of(state.path) != state:
        raise InputError(f"{printable(state.path)}: changed while it was read", path=state.path)
