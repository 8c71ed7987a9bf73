"""The files among some paths and in the folders among them, always in the same order."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fpstore.errors import InputError, StorageError
from fpstore.refusals import refused

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_HEAD_BYTES = 8192  # where a NUL byte is looked for


class File(NamedTuple):
    """A regular file, its size in bytes, and whether it was named rather than found in a folder."""

    path: Path
    size: int
    named: bool


class Skipped(NamedTuple):
    """Why a file was not read: in a word, and in a sentence."""

    reason: str
    sentence: str


class Walk:
    """Paths, what to take of the folders among them, and how much to read: see `iter_documents`."""

    def __init__(
        self,
        paths: Paths,
        suffixes: Iterable[str] | None,
        recursive: bool,
        follow_symlinks: bool,
        max_bytes: int | None,
    ) -> None:
        self._paths = _check_paths(paths)
        self._suffixes = None if suffixes is None else _check_suffixes(suffixes)
        self._recursive = recursive
        self._follow = follow_symlinks
        if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 0):
            raise InputError(f"max_bytes is None or an integer from 0, not {max_bytes!r}", got=max_bytes)
        self._max_bytes = max_bytes

    def files(self) -> Iterator[File]:
        """Yield the files to read: named ones in the order given, those in a folder in the order of names."""
        for path in self._paths:
            found = _stat(path)
            if stat.S_ISDIR(found.st_mode):
                yield from self._folder(path, found)
            else:
                yield File(path, found.st_size, named=True)

    def read(self, file: File) -> bytes | Skipped:
        """Return what a file holds, or why it is skipped; raises InputError instead if it was named."""
        data: bytes | Skipped
        try:
            with file.path.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                if self._max_bytes is not None and size > self._max_bytes:
                    data = Skipped("large", f"{size} bytes, more than max_bytes={self._max_bytes}")
                elif b"\0" in stream.read(_HEAD_BYTES):
                    data = Skipped("binary", "a NUL byte in its first 8 KiB: not a text in UTF-8")
                else:
                    stream.seek(0)
                    data = stream.read()
        except OSError as error:
            raise _refused(file.path, error) from error
        if isinstance(data, Skipped) and file.named:
            raise InputError(f"{file.path}: {data.sentence}", path=file.path)
        return data

    def _folder(self, top: Path, found: os.stat_result) -> Iterator[File]:
        # A stack of open folders, not a recursion: a tree may be deeper than Python's stack.
        open_folders = [(iter(self._entries(top)), (found.st_dev, found.st_ino))]
        while open_folders:
            for path, entry in open_folders[-1][0]:
                if stat.S_ISREG(entry.st_mode):
                    if self._suffixes is None or path.name.lower().endswith(self._suffixes):
                        yield File(path, entry.st_size, named=False)
                elif self._recursive and stat.S_ISDIR(entry.st_mode):
                    identity = (entry.st_dev, entry.st_ino)
                    if all(identity != above for _, above in open_folders):
                        open_folders.append((iter(self._entries(path)), identity))
                        break
            else:
                open_folders.pop()

    def _entries(self, folder: Path) -> list[tuple[Path, os.stat_result]]:
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            raise _refused(folder, error) from error
        return [(folder / name, _stat(folder / name, follow=self._follow)) for name in names]


def _stat(path: Path, *, follow: bool = True) -> os.stat_result:
    try:
        return path.stat(follow_symlinks=follow)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> StorageError:
    return refused(path, error)


def _check_paths(paths: Paths) -> list[Path]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if isinstance(paths, (bytes, bytearray)) or not isinstance(paths, Iterable):
        raise InputError(f"a path or paths are wanted, not {type(paths).__name__}", got=type(paths))
    checked = []
    for path in paths:
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(name, str) or not name or "\0" in name:
            raise InputError(f"a path is a str or a pathlib.Path, not empty and without NUL: got {path!r}", got=path)
        checked.append(Path(name))
        mode = _stat(checked[-1]).st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise InputError(f"{path}: neither a file nor a folder", path=path)
    return checked


def _check_suffixes(suffixes: Iterable[str]) -> tuple[str, ...]:
    if isinstance(suffixes, (str, bytes)) or not isinstance(suffixes, Iterable):
        raise InputError(f"suffixes is a list such as ['.txt', '.md'], not {suffixes!r}", got=suffixes)
    checked = tuple(suffixes)
    for suffix in checked:
        if not isinstance(suffix, str) or not suffix.startswith("."):
            raise InputError(f"a suffix is a str such as '.txt', not {suffix!r}", got=suffix)
    return tuple(suffix.lower() for suffix in checked)
