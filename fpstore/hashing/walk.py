"""The files among given paths, and in folders among them, always in the same order."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fpstore.base.arguments import check_flag, check_path, check_whole, is_iterable, printable
from fpstore.base.threads import cached_property
from fpstore.disk.refusals import refused
from fpstore.errors import InputError
from fpstore.format.manifest import is_store
from fpstore.io import SUFFIXES
from fpstore.io.encodings import Decoded, check_encoding, decoded, is_wide, mark_of
from fpstore.io.files import MOST_BYTES, FileState
from fpstore.io.packed import inner_name, reading

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

HEAD_BYTES = 8192  # where a NUL byte is looked for
_PART_BYTES = 1 << 20


class File(NamedTuple):
    """A regular file, its state before it is read, and whether it was named rather than found in a folder."""

    path: Path
    state: FileState
    named: bool

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.state.size


class Skipped(NamedTuple):
    """The reason why a file was not read, as a word and as a sentence."""

    reason: str
    sentence: str


#: Extensions of files that hold many rows: a single fingerprint of the whole would be useless. A .txt file may be a text.
ROWS = tuple(suffix for suffix in SUFFIXES if suffix != ".txt")
BINARY = Skipped("binary", "a NUL byte in its first 8 KiB: not a text in UTF-8")
ROWS_SKIPPED = Skipped(
    "rows",
    "holds rows, not one text: --text-field NAME (TextReader in Python) makes a fingerprint of the text in each row; "
    "rows of fingerprints are read without --text, or by insert with --fingerprints",
)


def is_binary(head: bytes | bytearray, encoding: str | None) -> bool:
    """Return whether the first bytes of a file are no text."""
    return b"\0" in head and not is_wide(bytes(head), encoding)


class Walk:
    """Paths, which files to read in folders, and how much: see `iter_documents`."""

    def __init__(
        self,
        paths: Paths,
        suffixes: Iterable[str] | None,
        recursive: bool,
        follow_symlinks: bool,
        max_bytes: int | None,
        encoding: str | None = None,
    ) -> None:
        self.paths = _check_paths(paths)
        self.encoding = check_encoding(encoding)
        self._suffixes = None if suffixes is None else _check_suffixes(suffixes)
        self._recursive = check_flag(recursive, "recursive")
        self._follow = check_flag(follow_symlinks, "follow_symlinks")
        self._max_bytes = MOST_BYTES if max_bytes is None else check_whole(max_bytes, 0, 2**63 - 1, "max_bytes")

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
        """Yield the files to read: named files in the given order, files in a folder in the order of their names."""
        for path in self.paths:
            found = _stat(path)
            if stat.S_ISDIR(found.st_mode):
                yield from self._folder(path, found)
            else:
                yield File(path, FileState.of(str(path), found), named=True)

    def text(self, file: File) -> Decoded | Skipped:
        """Return the text of a file, or why it is skipped; for a named file, raise InputError instead of skipping it."""
        data = self.read(file)
        if isinstance(data, Skipped):
            return data
        found = decoded(data, self.encoding)
        if found is not None:
            return found
        known = self.encoding or mark_of(data)
        tried = "no encoding that is known explains its bytes" if known is None else f"its bytes are not {known}"
        return _skip(file, Skipped("encoding", f"{tried}: name its encoding (encoding=, --encoding)"))

    def too_large(self, file: File) -> Skipped | None:
        """Return why a file is skipped if it is larger than allowed; for a named file, raise InputError instead."""
        if file.size <= self._max_bytes:
            return None
        return _skip(file, _large(file.size, self._max_bytes))

    def read(self, file: File) -> bytes | Skipped:
        """Return the content of a file, or why it is skipped; for a named file, raise InputError instead of skipping it."""
        data: bytes | Skipped
        if Path(inner_name(file.path)).suffix.lower() in ROWS and (file.named or self._suffixes is None):
            return _skip(file, ROWS_SKIPPED)
        try:
            with file.path.open("rb") as stream:
                data = self._content(stream, file)
        except OSError as error:
            raise refused(file.path, error) from error
        return _skip(file, data) if isinstance(data, Skipped) else data

    def _content(self, stream: BinaryIO, file: File) -> bytes | Skipped:
        """Return the content of a file, or why it is skipped; it is not read further than the limit."""
        size = os.fstat(stream.fileno()).st_size
        if size > self._max_bytes:
            return _large(size, self._max_bytes)
        try:
            read = reading(stream, printable(file.path), file.path, lambda _: None)
            parts = [read(HEAD_BYTES)]
            if is_binary(parts[0], self.encoding):
                return BINARY
            held = len(parts[0])
            while parts[-1]:
                if held > self._max_bytes:
                    return Skipped("large", f"more than max_bytes={self._max_bytes} when decompressed")
                parts.append(read(_PART_BYTES))
                held += len(parts[-1])
        except InputError as error:
            return Skipped("damaged", str(error).removeprefix(f"{printable(file.path)}: "))
        return b"".join(parts)

    def _folder(self, top: Path, found: os.stat_result) -> Iterator[File]:
        # A stack of open folders instead of a recursion: a tree may be deeper than Python's stack.
        open_folders = [(iter(self._entries(top)), (found.st_dev, found.st_ino))]
        while open_folders:
            for path, entry in open_folders[-1][0]:
                if stat.S_ISREG(entry.st_mode):
                    if self._takes(path.name):
                        yield File(path, FileState.of(str(path), entry), named=False)
                elif self._recursive and stat.S_ISDIR(entry.st_mode) and not _holds_a_store(path):
                    identity = (entry.st_dev, entry.st_ino)
                    if all(identity != above for _, above in open_folders):
                        open_folders.append((iter(self._entries(path)), identity))
                        break
            else:
                open_folders.pop()

    def _takes(self, name: str) -> bool:
        """Whether a file in a folder is read; the extension of a compressed file is not looked at."""
        return (
            self._suffixes is None or name.lower().endswith(self._suffixes) or inner_name(name).lower().endswith(self._suffixes)
        )

    def _entries(self, folder: Path) -> list[tuple[Path, os.stat_result]]:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            raise refused(folder, error) from error
        return [(folder / name, _stat(folder / name, follow=self._follow)) for name in names]


def _stat(path: Path, *, follow: bool = True) -> os.stat_result:
    try:
        return path.stat(follow_symlinks=follow)
    except OSError as error:
        raise refused(path, error) from error


def _large(size: int, most: int) -> Skipped:
    return Skipped("large", f"{size} bytes, more than max_bytes={most}")


def _skip(file: File, skipped: Skipped) -> Skipped:
    if file.named:
        raise InputError(f"{file.path}: {skipped.sentence}", path=file.path)
    return skipped


def _holds_a_store(folder: Path) -> bool:
    with suppress(OSError):  # missing permission is reported when it is read
        return is_store(folder)
    return False


def _check_paths(paths: Paths) -> list[Path]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not is_iterable(paths):
        raise InputError(f"paths must be a path or an iterable of paths, got {type(paths).__name__}", got=type(paths))
    checked = []
    for path in paths:
        check_path(path)
        checked.append(Path(path))
        mode = _stat(checked[-1]).st_mode
        if _holds_a_store(checked[-1]):
            raise InputError(f"{path}: is a store, not a folder of files to make fingerprints of", path=path)
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise InputError(f"{path}: neither a file nor a folder", path=path)
    return checked


def _check_suffixes(suffixes: Iterable[str]) -> tuple[str, ...]:
    if not is_iterable(suffixes, str):
        raise InputError(f"suffixes must be a list such as ['.txt', '.md'], got {suffixes!r:.80}", got=suffixes)
    checked = tuple(suffixes)
    for suffix in checked:
        if not isinstance(suffix, str) or not suffix.startswith("."):
            raise InputError(f"a suffix must be a str such as '.txt', got {suffix!r:.80}", got=suffix)
    return tuple(suffix.lower() for suffix in checked)
