"""Files compressed by gzip or zstandard, which are read as what they hold: recognized by their first bytes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, BinaryIO

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
_FED_BYTES = 1 << 10  # of a file of zstandard, at once: they may hold 32 MiB


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
    """Open a file, and return the function that reads what it holds; ``on_read`` gets the bytes of each read of the file."""
    with file.open() as stream:
        yield reading(stream, file.name, file.path, on_read)


def reading(stream: BinaryIO, name: str, path: str | os.PathLike[str], on_read: Callable[[int], None]) -> Read:
    """Return a function that reads up to a number of bytes of the content of a stream, and none at its end.

    InputError if the extension says that it is compressed, and it is not; when it is read, if it is damaged or ends too early.
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
        """Return up to ``size`` bytes."""
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

    unpacker = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
    frame: Any = None
    packed, ready = b"", bytearray()

    def read(size: int) -> bytes:
        nonlocal frame, packed
        while len(ready) < size and (packed := packed or raw.read(_FED_BYTES)):
            frame = frame or unpacker.decompressobj()
            ready.extend(frame.decompress(packed))
            packed = b""
            if frame.eof:
                frame, packed = None, frame.unused_data
        if frame is not None and len(ready) < size:
            raise EOFError("it ends within a frame")
        data = bytes(ready[:size])
        del ready[:size]
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
