"""Files compressed by gzip or zstandard, which are read as what they hold: recognized by their first bytes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, BinaryIO, cast

from fpstore.errors import InputError
from fpstore.io.files import InputFile, at, storage_errors

Read = Callable[[int], bytes]

#: Extensions of compressed files, and the names of their formats.
PACKED = {".gz": "gzip", ".zst": "zstandard"}

_HEAD_BYTES = 4
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x2a\x4d\x18"  # after one byte, 0x50 to 0x5f: a frame that holds no data
_MOST_WINDOW_BYTES = 1 << 27  # that a file may ask for to be read: as zstd allows without --long
_RLE_BLOCK = 1


def inner_name(path: str | os.PathLike[str]) -> str:
    """Return the last part of a path, without an extension that says how it is compressed."""
    name = PurePath(path).name
    stem, dot, extension = name.rpartition(".")
    return stem if stem and (dot + extension).lower() in PACKED else name


def packing_of(head: bytes) -> str | None:
    """Return the name of the compression of a file that begins with these bytes."""
    if head.startswith(_GZIP):
        return "gzip"
    skipped = head[1:4] == _SKIPPED and head[0] >> 4 == 5
    return "zstandard" if head.startswith(_ZSTD) or skipped else None


@contextmanager
def unpacked(file: InputFile, on_read: Callable[[int], None]) -> Iterator[Read]:
    """Open a file, and return the function that reads what it holds.

    Parameters
    ----------
    file : InputFile
    on_read : callable
        Called with the number of bytes of each read of the file itself.
    """
    with file.open() as stream:
        yield reading(stream, file.name, file.path, on_read)


def reading(stream: BinaryIO, name: str, path: str | os.PathLike[str], on_read: Callable[[int], None]) -> Read:
    """Return a function that reads up to so many bytes of what a stream holds, and none at its end.

    Parameters
    ----------
    stream : binary file
    name, path : str
        What messages call the file, and its path.
    on_read : callable
        As for `unpacked`.

    Raises
    ------
    InputError
        The extension says that it is compressed, and it is not; when it is read, it is damaged or ends too early.
    """
    with storage_errors(name):
        head = stream.read(_HEAD_BYTES)
    kind, named = packing_of(head), PACKED.get(PurePath(path).suffix.lower())
    raw = _Raw(stream, head, on_read)
    if kind is None:
        if named is not None:
            raise at(name, None, f"its extension says {named}, but its first bytes do not: rename it, or fetch it again")
        return raw.read
    return _guarded(_gzip(raw) if kind == "gzip" else _zstandard(raw), name, kind)


class _Raw:
    """The bytes of a stream, of which some are read already; counts them."""

    def __init__(self, stream: BinaryIO, head: bytes, on_read: Callable[[int], None]) -> None:
        self._stream, self._head, self._on_read = stream, head, on_read

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes."""
        data, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
        if size < 0 or len(data) < size:
            data += self._stream.read(size if size < 0 else size - len(data))
        self._on_read(len(data))
        return data


def _gzip(raw: _Raw) -> Read:
    import gzip

    return gzip.GzipFile(fileobj=raw, mode="rb").read  # type: ignore[call-overload,no-any-return]  # needs only read()


def _zstandard(raw: _Raw) -> Read:
    import zstandard

    frames = _Frames(raw)
    unpacker = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
    reader: Any = unpacker.stream_reader(cast(Any, frames), read_across_frames=True)  # it needs only read()

    def read(size: int) -> bytes:
        data: bytes = reader.read(size)
        if not data and not frames.is_between:
            raise EOFError("it ends within a frame")
        return data

    return read


def _guarded(read: Read, name: str, kind: str) -> Read:
    """Return the same function, whose errors about the content are InputError."""
    import zstandard

    def guarded(size: int) -> bytes:
        try:
            return read(size)
        except (zlib.error, EOFError, zstandard.ZstdError) as error:
            raise _damaged(name, kind, error) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise _damaged(name, kind, error) from error

    return guarded


def _damaged(name: str, kind: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return at(name, None, f"damaged {kind} file ({reason}): fetch or compress it again")


class _Frames:
    """Follows the frames and blocks of zstandard (RFC 8878, section 3.1), to know whether the input ends between two frames.

    The reader of the package zstandard takes a file that was cut off for one that has ended.
    """

    def __init__(self, raw: _Raw) -> None:
        self._raw = raw
        self._left = 0  # bytes until the next field that is looked at
        self._held = b""  # the beginning of that field
        self._field: Callable[[bytes], int] = self._begin
        self._wanted = 4
        self._checksum = False

    @property
    def is_between(self) -> bool:
        """Whether all frames that have begun have ended."""
        return not self._left and not self._held and self._field == self._begin

    def read(self, size: int) -> bytes:
        """Return up to so many bytes of the file."""
        data = self._raw.read(size)
        at_ = 0
        while at_ < len(data):
            if self._left:
                passed = min(self._left, len(data) - at_)
                self._left -= passed
                at_ += passed
                continue
            taken = data[at_ : at_ + self._wanted - len(self._held)]
            self._held += taken
            at_ += len(taken)
            if len(self._held) == self._wanted:
                field, self._held = self._held, b""
                self._left = self._field(field)
        return data

    def _next(self, field: Callable[[bytes], int], wanted: int, left: int) -> int:
        self._field, self._wanted = field, wanted
        return left

    def _begin(self, magic: bytes) -> int:
        return self._next(self._skip, 4, 0) if magic != _ZSTD else self._next(self._header, 1, 0)

    def _skip(self, size: bytes) -> int:
        return self._next(self._begin, 4, int.from_bytes(size, "little"))

    def _header(self, descriptor: bytes) -> int:
        flags = descriptor[0]
        single = flags >> 5 & 1
        self._checksum = bool(flags >> 2 & 1)
        content = (single, 2, 4, 8)[flags >> 6]
        return self._next(self._block, 3, (0 if single else 1) + (0, 1, 2, 4)[flags & 3] + content)

    def _block(self, header: bytes) -> int:
        value = int.from_bytes(header, "little")
        size = 1 if value >> 1 & 3 == _RLE_BLOCK else value >> 3
        if value & 1:  # the last
            return self._next(self._begin, 4, size + (4 if self._checksum else 0))
        return size
