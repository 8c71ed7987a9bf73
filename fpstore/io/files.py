"""Files that are read: named or standard input, checked first.

A compressed file is read as what it holds.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple, Self

from fpstore.base.arguments import check_path, is_iterable, printable
from fpstore.base.diagnostics import notify
from fpstore.disk.refusals import refusal_error
from fpstore.errors import InputError, StorageError, show

STDIN_NAME = "<stdin>"
MAX_FILE_BYTES = 1 << 30  # the most bytes of a text, which lies in memory as a whole
Read = Callable[[int], bytes]
#: Extensions of compressed files, and the names of their formats.
PACKED = {".gz": "gzip", ".zst": "zstandard", ".bz2": "bzip2", ".xz": "xz"}
_HEAD_BYTES = 10
_NAMED = 3
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_XZ = b"\xfd7zXZ\0"
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # behind the head, a block or the end
_SKIPPED = b"\x2a\x4d\x18"  # after one byte, 0x50 to 0x5f: a frame that holds no data
_MAX_WINDOW_BYTES = 1 << 27  # the limit of zstd without --long
_GZIP_BITS = 16 + zlib.MAX_WBITS
_MAX_XZ_BYTES = 1 << 28  # of memory; xz -9 takes 65 MiB
# at once; 32 MiB in the first two
_FED_BYTES = {"gzip": 1 << 14, "zstandard": 1 << 10, "bzip2": 1 << 16, "xz": 1 << 16}
# at once: a kilobyte of bzip2 may hold a gigabyte
_UNPACKED_BYTES = {"bzip2": 1 << 20, "xz": 1 << 20}


def input_error(name: str, line: int | None, message: str) -> InputError:
    """Return the error for one line of an input, or for the input as a whole."""
    where = name if line is None else f"{name}:{line}"
    return InputError(f"{where}: {message}", path=name, line=line)


@contextmanager
def error_location(name: str, line: int | None = None) -> Iterator[None]:
    """Put ``name:line:`` in front of the message of an `InputError` from inside."""
    try:
        yield
    except InputError as error:
        raise input_error(name, line, str(error)) from None


def check_paths(
    source: object, expected: str = "paths must be a path or an iterable of paths"
) -> list[str]:
    """Return the paths of a caller; one may be - for standard input.

    InputError for something else.
    """
    if isinstance(source, str | os.PathLike):
        source = [source]
    if not is_iterable(source):
        raise InputError(f"{expected}, got {type(source).__name__} {show(source)}", got=source)
    paths = list(source)
    for path in paths:
        if not (isinstance(path, str) and path == "-"):
            check_path(path)
    if paths.count("-") > 1:
        raise InputError("standard input is named more than once")
    return [os.fspath(path) for path in paths]


HIDDEN = (".", "_")  # begin the names of hidden files and folders, as for pyarrow.dataset
HIDDEN_AMONG_PICTURES = (".",)  # cameras begin names with _ in some colour spaces


def is_hidden(name: str, beginnings: tuple[str, ...] = HIDDEN) -> bool:
    """Whether a file or folder in a folder is left out, by its name."""
    return name.startswith(beginnings)


class HiddenNames:
    """Counts what is hidden in folders, to report it once."""

    def __init__(self, beginnings: tuple[str, ...] = HIDDEN) -> None:
        self._beginnings = " or ".join(beginnings)
        self._count, self._first = 0, list[str]()

    def add(self, path: str | os.PathLike[str]) -> None:
        """Count a file or a folder."""
        self._count += 1
        if len(self._first) < _NAMED:
            self._first.append(printable(path))

    def report(self) -> None:
        """Report how many there were, and the first of them."""
        if self._count:
            more = f" and {self._count - _NAMED:,} more" if self._count > _NAMED else ""
            names = ", ".join(self._first)
            notify(
                f"{self._count:,} left out of folders, where names that begin with "
                f"{self._beginnings} are hidden: {names}{more}"
            )


class FileState(NamedTuple):
    """The path of a file, its size, its inode, and the time of its last change in nanoseconds."""

    path: str
    size: int
    inode: int
    changed: int

    @classmethod
    def from_path(cls, path: str, status: os.stat_result | None = None) -> Self:
        """Return the state of a file, which the caller may have asked for already."""
        if status is None:
            with translate_storage_errors(printable(path)):
                status = Path(path).stat()
        return cls(path, status.st_size, status.st_ino, status.st_mtime_ns)


class InputFile:
    """A named file or standard input, checked before anything is read; a stream has no size.

    It ``arrives`` if it is a pipe, a socket or a terminal, whose bytes come when another program or
    a person sends them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.is_stdin = self.path == "-"
        self.name = STDIN_NAME if self.is_stdin else printable(self.path)
        self.size: int | None = None
        self._spent = False
        if self.is_stdin:
            self.arrives = _is_stream(_mode_of_stdin())
            return
        with translate_storage_errors(self.name):
            status = check_path(self.path).stat()
            self.arrives = _is_stream(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                raise InputError(f"{self.name}: is a folder, not a file", path=self.name)
            if stat.S_ISREG(status.st_mode):
                self.size = status.st_size
                # report missing permission before any work is done
                with Path(self.path).open("rb"):
                    pass

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open for reading from the start; standard input can be read once."""
        if not self.is_stdin:
            with ExitStack() as stack:
                with translate_storage_errors(self.name):
                    file = stack.enter_context(Path(self.path).open("rb"))
                yield file
            return
        if self._spent:
            raise InputError("standard input can be read only once")
        if sys.stdin is None:
            raise StorageError("standard input is closed")
        self._spent = True
        yield sys.stdin.buffer


def _mode_of_stdin() -> int:
    try:
        return os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or not a file of the system
        return 0


def _is_stream(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


@contextmanager
def translate_storage_errors(name: str) -> Iterator[None]:
    """Turn errors of the system into `StorageError`; a closed pipe passes through."""
    try:
        yield
    except (BrokenPipeError, StorageError):
        raise
    except FileNotFoundError as error:
        raise StorageError(f"{name}: no such file or folder", path=name) from error
    except OSError as error:
        raise refusal_error(name, error) from error
    except RuntimeError as error:  # pathlib's error for a circle of symbolic links
        raise StorageError(f"{name}: {error}", path=name) from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        # The error of open() and stat() for a path with a NUL character.
        raise StorageError(f"{name!r}: {error}", path=name) from error


def inner_name(path: str | os.PathLike[str]) -> str:
    """Return the last part of a path, without an extension that says how it is compressed."""
    name = PurePath(path).name
    stem, dot, extension = name.rpartition(".")
    return stem if stem and (dot + extension).lower() in PACKED else name


@contextmanager
def unpacked(file: InputFile, on_read: Callable[[int], None]) -> Iterator[Read]:
    """Open a file, and return the function that reads what it holds.

    ``on_read`` gets the bytes of each read of the file.
    """
    with file.open() as stream:
        yield counting_reader(stream, file.name, file.path, on_read)


def counting_reader(
    stream: BinaryIO, name: str, path: str | os.PathLike[str], on_read: Callable[[int], None]
) -> Read:
    """Return a function that reads the decompressed content of a stream; no bytes at its end.

    InputError if the extension says that it is compressed, and it is not; when it is read, if it is
    damaged or ends too early.
    """
    with translate_storage_errors(name):
        head = stream.read(_HEAD_BYTES)
    kind = _compression_of(head)
    named_packing = compression_by_name(path)

    def read(size: int) -> bytes:
        nonlocal head
        data, head = head[:size], head[size:]
        if len(data) < size:
            data += stream.read(size - len(data))
        on_read(len(data))
        return data

    if kind is None and named_packing is not None:
        raise input_error(
            name,
            None,
            f"its extension says {named_packing}, but its first bytes do not: rename it, or fetch "
            "it again",
        )
    return read if kind is None else _decompressing_reader(read, name, kind)


def _compression_of(head: bytes) -> str | None:
    """Return how a stream with these first bytes is compressed; None if it is not."""
    if head.startswith(_ZSTD) or (head[1:4] == _SKIPPED and head[0] >> 4 == 5):
        return "zstandard"
    if _BZIP2.match(head):
        return "bzip2"
    return "gzip" if head.startswith(_GZIP) else "xz" if head.startswith(_XZ) else None


def compression_by_name(path: str | os.PathLike[str]) -> str | None:
    """Return the compression that the extension of a path names; None if it names none."""
    return PACKED.get(PurePath(path).suffix.lower())


def compressor(kind: str) -> Any:
    """Return an object that compresses one frame, with ``compress`` and ``flush``.

    The same data give the same bytes: there are no times and names in them.
    """
    if kind == "zstandard":
        import zstandard

        return zstandard.ZstdCompressor(write_checksum=True).compressobj()
    if kind == "bzip2":
        from bz2 import BZ2Compressor

        return BZ2Compressor()
    if kind == "xz":
        from lzma import LZMACompressor

        return LZMACompressor()
    return zlib.compressobj(wbits=_GZIP_BITS)


def _frame_decompressor(kind: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """Return a maker of objects that decompress one frame, and their errors for damage."""
    if kind == "zstandard":
        import zstandard

        return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj, (
            zstandard.ZstdError,
        )
    if kind == "bzip2":
        from bz2 import BZ2Decompressor

        return BZ2Decompressor, (OSError, ValueError)
    if kind == "xz":
        from lzma import FORMAT_XZ, LZMADecompressor, LZMAError

        return partial(LZMADecompressor, FORMAT_XZ, _MAX_XZ_BYTES), (LZMAError,)
    return partial(zlib.decompressobj, _GZIP_BITS), (zlib.error,)


def _decompressing_reader(raw: Read, name: str, kind: str) -> Read:
    """Return a function that reads what the frames of a compressed stream hold."""
    make, errors = _frame_decompressor(kind)
    most = (_UNPACKED_BYTES[kind],) if kind in _UNPACKED_BYTES else ()
    frame: Any = None
    packed, ready = b"", bytearray()

    def unpack(size: int) -> None:
        nonlocal frame, packed
        while len(ready) < size and (
            has_unread_bytes() or (packed := packed or raw(_FED_BYTES[kind]))
        ):
            # zero bytes may fill up a block behind a frame
            if frame is None and kind in ("gzip", "xz") and not (packed := packed.lstrip(b"\0")):
                continue
            frame = frame or make()
            try:
                ready.extend(frame.decompress(packed, *most))
            except errors as error:
                raise damaged(error) from error
            packed = b""
            if frame.eof:
                frame, packed = None, frame.unused_data
        if frame is not None and len(ready) < size:
            raise damaged("it ends within a frame")

    def has_unread_bytes() -> bool:
        """Whether the frame has taken bytes of which it has not returned all."""
        return frame is not None and bool(most) and not frame.needs_input

    def damaged(reason: object) -> InputError:
        return input_error(
            name,
            None,
            f"damaged {kind} file ({' '.join(str(reason).split())}): fetch or compress it again",
        )

    def read(size: int) -> bytes:
        unpack(size)
        data = bytes(ready[:size])
        del ready[:size]
        return data

    return read
