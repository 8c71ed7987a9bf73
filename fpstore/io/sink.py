"""The target of written bytes: a file that appears whole or not at all, or a stream."""

import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self, cast
from weakref import finalize

from fpstore.base.aliases import NamedColumns
from fpstore.base.arguments import check_path, is_uri, printable
from fpstore.disk.folders import remove_abandoned, shorten_name, try_lock
from fpstore.errors import InputError
from fpstore.io.files import compression_by_name, compressor, translate_storage_errors
from fpstore.io.remote import RemoteFile, ScratchFolder

# called with the temporary name of a complete file or folder, before it is renamed
Complete = Callable[[Path], None]
COMPRESSED_AT_ONCE = 1 << 18  # bytes


class Sink:
    """The target of a writer: a path, a stream, or ``-`` for standard output.

    A path is written under a temporary name beside it and renamed by `commit`; devices and pipes
    are written directly. A stream is flushed, never closed. A text stream gets UTF-8 through its
    binary buffer if it has one. The start of a ``seekable`` sink can be overwritten at the end.

    If it is ``packed``, a path whose extension names a compression is compressed so.
    """

    def __init__(self, target: str | os.PathLike[str] | IO[Any], packed: bool = False) -> None:
        self._temporary: Path | None = None
        self._encode = True
        self._compressor: Any = None
        self._waiting = bytearray()  # for the compressor
        self._remote: RemoteFile | None = None  # which the file is copied to, if a URI names it
        if target == "-":
            target = sys.stdout
        if isinstance(target, str | os.PathLike):
            self.name = printable(os.fspath(target))
            self._owned = True
            if is_uri(target):
                self._remote = RemoteFile(str(target))
                self._scratch = ScratchFolder()
                target = self._scratch.path / PurePosixPath(str(target)).name
            kind = compression_by_name(target) if packed else None
            self._compressor = None if kind is None else compressor(kind)
            with self.errors():
                self.file = self._open(check_path(target))
            return
        self.name = str(getattr(target, "name", type(target).__name__))
        self._owned = False
        self.seekable = False
        target.flush()
        buffer = getattr(target, "buffer", None)
        self._encode = buffer is not None or not isinstance(target, io.TextIOBase)
        self.file = target if buffer is None else buffer

    def _open(self, path: Path) -> IO[bytes]:
        self._path = path.resolve()  # replace the target of a symbolic link, not the link
        if self._path.is_dir():
            raise InputError(f"{self.name}: is a folder, not a file", path=self.name)
        self.seekable = not self._path.exists() or self._path.is_file()
        if not self.seekable:
            return self._path.open("wb")
        beginning = f".{shorten_name(self._path.name, 40)}."
        remove_abandoned(self._path.parent, f"{escape(beginning)}{'[0-9a-f]' * 8}.tmp")
        while True:
            temporary = self._path.with_name(f"{beginning}{os.urandom(4).hex()}.tmp")
            # An interrupt may come before the caller has a sink to abort.
            opened: list[IO[bytes]] = []
            self._dropped = finalize(self, _drop, temporary, opened)
            file = temporary.open("xb")
            opened.append(file)
            with suppress(
                OSError
            ):  # a file system without locks: no process removes abandoned files
                if not try_lock(file.fileno(), temporary):
                    self._dropped()
                    continue
            self._temporary = temporary
            return file

    def write(self, data: bytes | memoryview) -> None:
        with self.errors():
            if not self._encode:
                cast(IO[str], self.file).write(bytes(data).decode("utf-8"))
                return
            if self._compressor is None:
                _write_all(self.file, data)
                return
            self._waiting += data
            self._compress(len(self._waiting) // COMPRESSED_AT_ONCE * COMPRESSED_AT_ONCE)

    def _compress(self, size: int) -> None:
        """Compress waiting bytes in pieces that do not depend on how they were written."""
        with memoryview(self._waiting) as waiting:
            for start in range(0, size, COMPRESSED_AT_ONCE):
                piece = waiting[start : min(start + COMPRESSED_AT_ONCE, size)]
                _write_all(self.file, self._compressor.compress(piece))
                piece.release()
        del self._waiting[:size]

    def overwrite(self, data: bytes) -> None:
        """Replace the first bytes; only if `seekable`."""
        with self.errors():
            self.file.seek(0)
            self.file.write(data)
            self.file.seek(0, os.SEEK_END)

    def flush(self) -> None:
        """Let readers of a stream see the written rows; of a compressed file, those of a block."""
        with self.errors():
            self.file.flush()

    def commit(self, complete: Complete | None = None) -> None:
        """Make the output durable, and visible under its name; a second call does nothing.

        ``complete`` is called with the temporary name of a complete file, before it is renamed.
        """
        with self.errors():
            if not self._owned:
                self.file.flush()
                return
            if self.file.closed:
                return
            if self._compressor is not None:
                self._compress(len(self._waiting))
                _write_all(self.file, self._compressor.flush())
                self._compressor = None
            self.file.flush()
            if self._temporary is None:
                self.file.close()
                return
            os.fsync(self.file.fileno())
            if complete is not None:
                complete(self._temporary)
            self._temporary.replace(self._path)  # while it is locked
            self._temporary = None
            self._dropped.detach()
            self.file.close()
            if self._remote is not None:
                self._remote.upload(self._path)
                self._scratch.remove()

    def abort(self) -> None:
        """Remove the output; bytes that a stream has received stay."""
        if not self._owned:
            return
        with suppress(OSError):  # closing flushes, and so fails again
            self.file.close()
        if self._temporary is not None:
            self._dropped()
            self._temporary = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.commit()
        except BaseException:
            self.abort()
            raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn an error of the system into `StorageError`; let a closed pipe pass."""
        with translate_storage_errors(self.name):
            yield


def _write_all(file: IO[bytes], data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:  # an unbuffered stream may accept only a part
        view = view[file.write(view) :]


def _drop(path: Path, opened: list[IO[bytes]]) -> None:
    for file in opened:
        with suppress(OSError):
            file.close()
    with suppress(OSError):  # it may be in no folder
        path.unlink()


class Encoder(ABC):
    """Turns columns into the bytes of one format, and writes them to a sink."""

    @abstractmethod
    def write(self, data: NamedColumns) -> None:
        """Append rows; an `InputError` is raised before anything is written."""

    def finish(self) -> None:  # noqa: B027 - most formats buffer nothing
        """Write the buffered rows."""

    def abort(self) -> None:  # noqa: B027 - likewise
        """Drop the buffered rows."""
