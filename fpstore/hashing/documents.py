"""Text files, and folders of text files in a fixed order, as documents and as rows."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fpstore.base.aliases import Flags, Progress
from fpstore.base.arguments import check_flag, check_path, check_whole, is_iterable, printable
from fpstore.base.keywords import accepts, keyword
from fpstore.base.strings import StringColumn
from fpstore.base.threads import cached_property
from fpstore.disk.folders import new_folder
from fpstore.disk.refusals import refusal_error, translate_refusals
from fpstore.errors import InputError, StorageError
from fpstore.format.manifest import is_openable
from fpstore.hashing.base import batched
from fpstore.io.edited import Edit
from fpstore.io.encodings import (
    UTF8,
    DecodedText,
    check_encoding,
    decode_text,
    encoding_of_mark,
    is_wide,
)
from fpstore.io.files import (
    HIDDEN,
    HIDDEN_AMONG_PICTURES,
    MAX_FILE_BYTES,
    FileState,
    HiddenNames,
    check_paths,
    counting_reader,
    inner_name,
    is_hidden,
)
from fpstore.io.shards import relative_path
from fpstore.io.sink import Complete
from fpstore.io.source import SUFFIXES, Batch, IdRule, Projection, RowFlags, RowSource, Skip

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Notice = Callable[[Path, str], None]

BATCH_DOCUMENTS, BATCH_CHARS = 1024, 1 << 20
_PAGES = (".html", ".htm", ".xhtml")

#: The reason for a text that is null or blank, or has no words that count.
NO_WORDS = "no words"
#: Why files and rows are left out, by the reasons in notices and lists.
SENTENCES = {
    "binary": "binary, not text",
    "large": "too large",
    "memory": "too large for the memory budget",
    "damaged": "damaged compressed files",
    "encoding": "not in UTF-8 (name another encoding)",
    "rows": "rows, not one text",
    NO_WORDS: "blank",
    "error": "wrong",
    "html": "no main text",
    "other": "no picture",
    "heif": "HEIC pictures, which need pip install pillow-heif",
    "broken": "broken pictures",
    "blank": "blank pictures",
    "quality": "nearly blank, of a quality below the least quality",
    "small": "too few pixels",
    "zero": "all components 0",
}
HEAD_BYTES = 8192  # which a binary file has a NUL byte in
_PART_BYTES = 1 << 20
#: Extensions of files of many rows, which are no single text. Other extensions may be.
ROW_SUFFIXES = tuple(suffix for suffix in SUFFIXES if suffix not in (".txt", ".json"))
NOT_BINARY = "a NUL byte in its first 8 KiB: not a text in UTF-8"


class File(NamedTuple):
    """A regular file, its state before it is read, and whether a caller named it itself."""

    path: Path
    state: FileState
    is_explicit: bool

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.state.size


def skip_reason(file: File, error: InputError) -> str:
    """Return why a file in a folder is skipped; raise the error for another file or fault."""
    reason = getattr(error, "reason", None)
    if file.is_explicit or reason is None:
        raise error
    return str(reason)


def is_binary(head: bytes | bytearray, encoding: str | None) -> bool:
    return b"\0" in head and not is_wide(bytes(head), encoding)


class Walk:
    """The files of paths, in order, and their texts: see `DocumentReader`."""

    def __init__(
        self,
        paths: Paths,
        suffixes: Iterable[str] | None = None,
        *,
        recursive: bool = True,
        follow_symlinks: bool = False,
        max_bytes: int | None = None,
        encoding: str | None = None,
        hidden: tuple[str, ...] = HIDDEN,
    ) -> None:
        self.paths = _check_paths(paths)
        self._hidden = hidden
        self.encoding = check_encoding(encoding)
        self._suffixes = None if suffixes is None else _check_suffixes(suffixes)
        self._recursive = check_flag(recursive, "recursive")
        self._follow = check_flag(follow_symlinks, "follow_symlinks")
        self._hidden_reported = False
        self._max_bytes = (
            MAX_FILE_BYTES
            if max_bytes is None
            else check_whole(max_bytes, 0, 2**63 - 1, "max_bytes")
        )

    @property
    def names(self) -> str:
        """The paths and suffixes, for a message."""
        shown = ", ".join(map(str, self.paths[:3]))
        more = f" and {len(self.paths) - 3} more" if len(self.paths) > 3 else ""
        return shown + more + (f" (only {', '.join(self._suffixes)})" if self._suffixes else "")

    @cached_property
    def bytes_total(self) -> int:
        """The sizes of all files, from a walk at the first use."""
        return sum(file.size for file in self.files())

    def files(self) -> Iterator[File]:
        """Yield the files to read, in the order of the paths, and of the names in each folder."""
        hidden = HiddenNames(self._hidden)
        for path in self.paths:
            status = _stat(path)
            if stat.S_ISDIR(status.st_mode):
                yield from self._folder_files(path, status, hidden)
            else:
                yield File(path, FileState.from_path(str(path), status), is_explicit=True)
        if not self._hidden_reported:
            self._hidden_reported = True
            hidden.report()

    def text(self, file: File) -> DecodedText:
        """Return the text of a file.

        An InputError that skips the file in a folder has a ``reason``.
        """
        if Path(inner_name(file.path)).suffix.lower() in ROW_SUFFIXES and (
            file.is_explicit or self._suffixes is None
        ):
            fingerprints = (
                f"leave {keyword('text', True)} out"
                if accepts("text", True)
                else f"give {keyword('fingerprints', True)}"
            )
            advice = (
                f"name the column of texts with {keyword('text')}; if it holds fingerprints, "
                f"{fingerprints}"
            )
            raise _refusal(file, "rows", f"holds rows, not one text: {advice}")
        try:
            with file.path.open("rb") as stream:
                self.check_size(file, os.fstat(stream.fileno()).st_size)
                data = b"".join(self._content(stream, file))
        except OSError as error:
            raise refusal_error(file.path, error) from error
        text = decode_text(data, self.encoding)
        if text is None:
            encoding = self.encoding or encoding_of_mark(data) or UTF8
            advice = f"name its encoding with {keyword('encoding')}"
            raise _refusal(file, "encoding", f"its bytes are not {encoding}: {advice}")
        return text

    def check_size(self, file: File, size: int) -> None:
        if size > self._max_bytes:
            raise _refusal(file, "large", f"{size} bytes, more than max_bytes={self._max_bytes}")

    def _content(self, stream: BinaryIO, file: File) -> Iterator[bytes]:
        """Yield the content of a file in parts, up to the limit."""
        total, name = 0, printable(file.path)
        try:
            read = counting_reader(stream, name, file.path, lambda _: None)
            for data in chain([read(HEAD_BYTES)], iter(lambda: read(_PART_BYTES), b"")):
                if not total and is_binary(data, self.encoding):
                    raise _refusal(file, "binary", NOT_BINARY)
                total += len(data)
                if total > self._max_bytes:
                    raise _refusal(
                        file, "large", f"more than max_bytes={self._max_bytes} when decompressed"
                    )
                yield data
        except InputError as error:
            if hasattr(error, "reason"):
                raise
            raise _refusal(file, "damaged", str(error).removeprefix(f"{name}: ")) from None

    def _folder_files(
        self, top: Path, status: os.stat_result, hidden: HiddenNames
    ) -> Iterator[File]:
        # A stack of open folders instead of a recursion: a tree may be deeper than Python's stack.
        open_folders = [(iter(self._entries(top, hidden)), (status.st_dev, status.st_ino))]
        while open_folders:
            for path, entry in open_folders[-1][0]:
                if stat.S_ISREG(entry.st_mode):
                    if self._has_suffix(path.name):
                        yield File(path, FileState.from_path(str(path), entry), is_explicit=False)
                elif self._recursive and stat.S_ISDIR(entry.st_mode) and not _holds_a_store(path):
                    identity = (entry.st_dev, entry.st_ino)
                    if all(identity != above for _, above in open_folders):
                        open_folders.append((iter(self._entries(path, hidden)), identity))
                        break
            else:
                open_folders.pop()

    def _has_suffix(self, name: str) -> bool:
        """Whether a name ends with a suffix, with or without the extension of a compressed file."""
        return (
            self._suffixes is None
            or name.lower().endswith(self._suffixes)
            or inner_name(name).lower().endswith(self._suffixes)
        )

    def _entries(self, folder: Path, hidden: HiddenNames) -> list[tuple[Path, os.stat_result]]:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            raise refusal_error(folder, error) from error
        visible = list[str]()
        for name in names:
            if is_hidden(name, self._hidden):
                hidden.add(folder / name)
            else:
                visible.append(name)
        return [(folder / name, _stat(folder / name, follow=self._follow)) for name in visible]


def walk_pictures(paths: Paths, suffixes: Iterable[str] | None = None, **options: Any) -> Walk:
    """Return the files of paths that may be pictures."""
    return Walk(paths, suffixes, hidden=HIDDEN_AMONG_PICTURES, **options)


def _stat(path: Path, *, follow: bool = True) -> os.stat_result:
    try:
        return path.stat(follow_symlinks=follow)
    except OSError as error:
        raise refusal_error(path, error) from error


def _refusal(file: File, reason: str, sentence: str) -> InputError:
    return InputError(f"{file.path}: {sentence}", path=file.path, reason=reason)


def _holds_a_store(folder: Path) -> bool:
    with suppress(OSError):  # missing permission is reported when it is read
        return is_openable(folder)
    return False


def _check_paths(paths: Paths) -> list[Path]:
    checked = list(map(Path, check_paths(paths)))
    for path in checked:
        mode = _stat(path).st_mode
        if _holds_a_store(path):
            raise InputError(
                f"{path}: is a store, not a folder of files to make fingerprints of", path=path
            )
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise InputError(f"{path}: neither a file nor a folder", path=path)
    return checked


def _check_suffixes(suffixes: Iterable[str]) -> tuple[str, ...]:
    if not is_iterable(suffixes, str):
        raise InputError(
            f"suffixes must be a list such as ['.txt', '.md'], got {suffixes!r:.80}",
            got=suffixes,
            argument="suffixes",
        )
    checked = tuple(suffixes)
    for suffix in checked:
        if not isinstance(suffix, str) or not suffix.startswith("."):
            raise InputError(
                f"a suffix must be a str such as '.txt', got {suffix!r:.80}", got=suffix
            )
    return tuple(suffix.lower() for suffix in checked)


class Document(NamedTuple):
    r"""A text file.

    Attributes
    ----------
    id : str
        The path of the caller; in a folder, the folder of the caller and the path from there, with
        ``/`` between the parts. Bytes of a file name that are not UTF-8 read ``\xff``.
    path : pathlib.Path
        The path to open the file with.
    text : str
        The content, without a byte order mark.
    encoding : str
        The encoding that the file was read in, as Python calls it.
    declared : bool
        Whether the page declares the encoding.
    replaced : int
        Characters U+FFFD in the text that stand for bytes that are not UTF-8.
    """

    id: str
    path: Path
    text: str
    encoding: str = "utf-8"
    declared: bool = False
    replaced: int = 0


class DocumentFiles(RowSource):
    """Text files as rows: each is a document with a text, whose id is its path.

    ``on_skip`` is called with the path of each file that is skipped, and the reason; ``on_note``
    with the path of a file that is read and ``"read as NAME"`` or ``"replaced"``, or ``"tags"`` for
    a page of HTML, unless ``html`` says that pages are expected.
    """

    def __init__(
        self,
        walk: Walk,
        on_skip: Notice | None = None,
        on_note: Notice | None = None,
        html: bool = False,
    ) -> None:
        self.walk = walk
        self._on_skip, self._on_note, self._html = on_skip, on_note, html
        self._read_states: list[FileState] = []
        self._first_states: list[FileState] | None = None
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
        """Yield the documents behind the rows of ``skip``, whose files are only checked."""
        self.bytes_done, self._read_states = 0, []
        for file in self.walk.files():
            self.bytes_done += file.size
            try:
                content = self.walk.text(file)
            except InputError as error:
                reason = skip_reason(file, error)
                if self._on_skip is not None:
                    self._on_skip(file.path, reason)
                continue
            if self._on_note is not None and (content.declared or content.replaced):
                self._on_note(
                    file.path, f"read as {content.encoding}" if content.declared else "replaced"
                )
            if (
                self._on_note is not None
                and not self._html
                and inner_name(file.path).lower().endswith(_PAGES)
            ):
                self._on_note(file.path, "tags")
            self._read_states.append(file.state)  # before it was read
            if skip is None or not skip.take(1):
                yield Document(document_id(file.path), file.path, *content)
        self._first_states = self._first_states or self._read_states

    def silence(self) -> None:
        """Send no notices in later readings, which would repeat them."""
        self._on_skip = self._on_note = None

    def check_unchanged(self) -> None:
        """Raise InputError if the last reading was of other files than the first."""
        if self._read_states != self._first_states:
            raise InputError(f"{self.label}: changed while it was read")

    def batches(
        self, projection: Projection, rule: IdRule | None = None, skipped: int = 0
    ) -> Iterator[Batch]:
        """Yield the texts and the ids of the files behind the first ``skipped`` ones."""
        if projection.roles is not None:
            raise InputError(f"{keyword('roles')} is for a column of texts: files have no messages")
        skip = Skip(skipped)
        for documents in batched(
            self.documents(skip),
            lambda document: len(document.text) + BATCH_CHARS // BATCH_DOCUMENTS,
            BATCH_CHARS,
        ):
            yield Batch(
                ids=StringColumn.from_strings([document.id for document in documents]),
                known=np.ones(len(documents), bool),
                texts=[document.text for document in documents],
                paths=[document.path for document in documents],
            )
        skip.finish()

    def states(self) -> list[FileState]:
        """Return the state of each file, in order."""
        return [FileState.from_path(str(file.path)) for file in self.walk.files()]

    def check_names(self) -> None:
        """Raise InputError for inputs of one name, whose copies would collide."""
        names = [path.resolve().name for path in self.walk.paths]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(
                f"two inputs have the name {twice!r}, so their copies would collide: name a "
                "folder above them"
            )

    def copy_kept(
        self,
        flags: Flags,
        target: Any,
        progress: Progress | None = None,
        complete: Complete | None = None,
    ) -> None:
        """Copy the files with a flag to a new folder, under their paths in the input folders."""
        row_flags = RowFlags(flags, progress)
        folder = check_path(target, "the output")
        try:
            with new_folder(folder, complete) as temporary:
                for state in (state for state in self._read_states if row_flags.take(1)[0]):
                    place = temporary / relative_path(self.walk.paths, Path(state.path))
                    self._copy(state, place)
                row_flags.finish()
        except StorageError:
            raise
        except OSError as error:
            # shutil names the file that it reads
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            raise refusal_error(
                folder if full else Path(error.filename or folder), error
            ) from error

    def _copy(self, state: FileState, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(state.path, place)
        if FileState.from_path(state.path) != state:
            raise InputError(f"{printable(state.path)}: changed while it was read", path=state.path)

    def copy_edited(self, edit: Edit, target: Any, complete: Complete | None = None) -> None:
        """Write the files to a new folder with their texts as they are edited.

        An unchanged file is copied. An edited file is written in UTF-8, without the extension of a
        compressed file.
        """
        folder = check_path(target, "the output")
        with translate_refusals(folder), new_folder(folder, complete) as temporary:
            for number, document in enumerate(self.documents()):
                _copy_edited(
                    document,
                    number,
                    edit,
                    temporary / relative_path(self.walk.paths, document.path),
                )
            self.check_unchanged()


def _copy_edited(document: Document, number: int, edit: Edit, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if not edit.changed_rows(slice(number, number + 1))[0]:
        shutil.copyfile(document.path, place)
    elif document.replaced:
        advice = f"name its encoding with {keyword('encoding')}, or leave it out"
        raise InputError(
            f"{printable(document.path)}: has bytes that are not UTF-8, and would be changed: "
            f"{advice}",
            path=document.path,
        )
    elif (text := edit.edit_text(number, document.text)) == document.text:
        shutil.copyfile(document.path, place)
    elif text is not None:
        place.with_name(inner_name(place)).write_bytes(text.encode("utf-8"))


def document_id(path: Path) -> str:
    # The str of a name that is not UTF-8 has lone surrogates, which a store cannot hold.
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
    """Yield the texts of files, and of the text files in folders in the order of their names.

    Parameters
    ----------
    paths, suffixes, recursive, follow_symlinks, max_bytes, encoding
        As for `DocumentReader`.
    on_skip : callable, optional
        Called with the path and the reason of each file in a folder that is skipped, as
        ``on_notice`` of `DocumentReader` is.

    Yields
    ------
    Document
        A text file. An empty folder has none.

    Raises
    ------
    InputError
        An argument has the wrong type, or a named file is binary, holds rows, is larger than
        `max_bytes` or is not a regular file.
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
    walk = Walk(
        paths,
        suffixes,
        recursive=recursive,
        follow_symlinks=follow_symlinks,
        max_bytes=max_bytes,
        encoding=encoding,
    )
    return DocumentFiles(walk, on_skip=on_skip).documents()
