"""Temporary files without a name, and arrays in them, for data that exceeds a memory limit."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Bytes
from fpstore.disk.files import write_all
from fpstore.disk.mapped import PAGE_BYTES, page_aligned
from fpstore.disk.refusals import translate_refusals

BUFFER_BYTES = 1 << 21  # gathered in memory before a write; whole pages
CALL_BYTES = 1 << 23  # in one write or read
ANOTHER_FOLDER = "; TMPDIR names another folder"
_DIRECT = getattr(os, "O_DIRECT", 0)


@contextmanager
def translate_temporary_refusals(file: str = "a temporary file") -> Iterator[None]:
    """Turn errors of the system into StorageError, which names the folder of temporary files."""
    import tempfile

    with translate_refusals("TMPDIR"):
        folder = tempfile.gettempdir()
    with translate_refusals(f"{folder}: {file}", ANOTHER_FOLDER):
        yield


def nameless_file(folder: Path | None) -> io.FileIO:
    """Return a temporary file without a name.

    It vanishes when it is closed and no longer mapped.

    What the system refuses is an OSError if the folder is given, for the caller to name it, and
    else StorageError.
    """
    import tempfile

    with translate_temporary_refusals() if folder is None else nullcontext():
        file = tempfile.TemporaryFile(buffering=0, dir=folder)  # noqa: SIM115 - the caller closes it
        assert isinstance(file, io.FileIO)
        return file


def array_on_disk(
    shape: tuple[int, ...], dtype: npt.DTypeLike, folder: Path | None = None
) -> npt.NDArray[Any]:
    """Return an array of zeros in a file that has no name, and vanishes with the array.

    Its disk space is taken at once: a disk that fills later would end the process. Errors as of
    :func:`nameless_file`.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    with (
        translate_temporary_refusals(f"a temporary file of {size:,} bytes")
        if folder is None
        else nullcontext(),
        nameless_file(folder) as file,
    ):
        os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "r+", shape=shape)


class SpillFile:
    """A temporary file without a name: bytes are appended, and read from any place.

    Reads and writes bypass the page cache where that is possible. Several threads may read at the
    same time, while none appends. Errors as of :func:`nameless_file`.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file, self._is_named = nameless_file(folder), folder is not None
        self.close = finalize(self, self._file.close)
        self._descriptor = self._file.fileno()
        # the end of the file, from a page's start on
        self._buffer, self._filled = page_aligned(BUFFER_BYTES), 0
        self._is_behind = False  # the file, compared with the buffer
        self.size = 0
        _set_direct(self._descriptor, True)

    def append(self, data: Bytes) -> None:
        """Append bytes, without a copy if both the array and the file are aligned to pages."""
        done = 0
        if not self._filled and data.ctypes.data % PAGE_BYTES == 0:
            done = len(data) // PAGE_BYTES * PAGE_BYTES
            for start in range(0, done, CALL_BYTES):
                self._put(data[start : min(start + CALL_BYTES, done)], self.size + start)
        self.size += done
        while done < len(data):
            piece = data[done : done + BUFFER_BYTES - self._filled]
            self._buffer[self._filled : self._filled + len(piece)] = piece
            self._filled, self._is_behind = self._filled + len(piece), True
            self.size, done = self.size + len(piece), done + len(piece)
            if self._filled == BUFFER_BYTES:
                self._write()
                self._filled = 0

    def align(self) -> int:
        """Let the file end with a page, and return its size."""
        if self._filled:
            self.append(np.zeros(-self._filled % PAGE_BYTES, np.uint8))
            self._write()
            self._filled = 0
        return self.size

    def _write(self) -> None:
        """Write the buffer, up to the end of a page."""
        if self._is_behind:
            size = -(-self._filled // PAGE_BYTES) * PAGE_BYTES
            self._put(self._buffer[:size], self.size - self._filled)
            self._is_behind = False

    def _put(self, piece: Bytes, at: int) -> None:
        with self._translate_errors():
            _write(self._descriptor, piece, at)

    def _translate_errors(self) -> AbstractContextManager[None]:
        return nullcontext() if self._is_named else translate_temporary_refusals()

    def read(self, at: int, out: Bytes) -> None:
        """Fill an array with the bytes from a place on; an error if they are not all there."""
        self._write()
        room = page_aligned(min(CALL_BYTES, len(out) + 2 * PAGE_BYTES))
        done = 0
        while done < len(out):
            before = (at + done) % PAGE_BYTES  # bytes of the page before what is wanted
            wanted = min(len(out) - done, len(room) - PAGE_BYTES - before)
            size = -(-(before + wanted) // PAGE_BYTES) * PAGE_BYTES
            with self._translate_errors():
                got = min(
                    self._read_pages(room[:size], at + done - before, before + 1) - before, wanted
                )
            out[done : done + got] = room[before : before + got]
            done += got

    def _read_pages(self, room: Bytes, at: int, least: int) -> int:
        got = 0
        try:
            got = os.preadv(self._descriptor, [room.data], at)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            _set_direct(self._descriptor, False)
            got = os.preadv(self._descriptor, [room.data], at)
        if got < least:
            raise OSError("shorter than what was written to it")
        return got

    def map(self) -> Bytes:
        """Return the bytes, one or more, mapped: they are read as they are looked at."""
        self._write()
        with self._translate_errors():
            return np.memmap(self._file, np.uint8, "r", shape=(self.size,))


class SpilledNumbers:
    """Numbers of one type that lie in a file without a name, and not in memory.

    StorageError as of `SpillFile`.
    """

    def __init__(self, kind: npt.DTypeLike) -> None:
        self._empty, self._file = np.empty(0, kind), SpillFile(None)

    def append(self, numbers: npt.NDArray[Any]) -> None:
        self._file.append(numbers.view(np.uint8))

    def finish(self) -> npt.NDArray[Any]:
        numbers = self._file.map().view(self._empty.dtype) if self._file.size else self._empty
        self._file.close()  # the mapping stays
        return numbers


class NumbersWriter:
    """Collects numbers, in memory up to a bound in bytes, otherwise in a temporary file."""

    def __init__(self, kind: npt.DTypeLike, memory: int) -> None:
        self._kind, self._memory = np.dtype(kind), memory
        self._pieces: list[npt.NDArray[Any]] = []
        self._spilled: SpilledNumbers | None = None
        self.size = 0

    def append(self, numbers: npt.NDArray[Any]) -> None:
        """Add numbers behind those that are there, without a copy while they are in memory."""
        self._pieces.append(numbers)
        self.size += len(numbers)
        if self._spilled is None and self.size * self._kind.itemsize > self._memory:
            self._spilled = SpilledNumbers(self._kind)
        if self._spilled is not None:
            for piece in self._pieces:
                self._spilled.append(piece)
            self._pieces = []

    def finish(self) -> npt.NDArray[Any]:
        """Return all numbers, in memory or mapped; nothing can be added then."""
        if self._spilled is not None:
            return self._spilled.finish()
        if len(self._pieces) == 1:
            return self._pieces[0]
        numbers = np.empty(self.size, self._kind)
        end = len(numbers)
        while self._pieces:  # from the last one on, to give each back once it is copied
            piece = self._pieces.pop()
            numbers[end - len(piece) : end] = piece
            end -= len(piece)
        return numbers


def _set_direct(descriptor: int, direct: bool) -> None:
    """Pass by the page cache, or not; where the file system has no such way, nothing happens."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if direct else flags & ~_DIRECT)


def _write(descriptor: int, piece: Bytes, at: int) -> None:
    """Write a piece, past the page cache if that works, and otherwise through it."""
    written = 0
    try:
        written = os.pwrite(descriptor, piece.data, at)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    if written < len(piece):
        _set_direct(descriptor, False)
        write_all(descriptor, piece[written:].data, at + written)
