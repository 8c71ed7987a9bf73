"""New files that are written in order, in large pieces by a thread: past the page cache, or into large pages of it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore.base.threads import Job, Pool
from fpstore.disk.files import write_all
from fpstore.disk.pages import own_pages

Bytes = npt.NDArray[np.uint8]

PIECE_BYTES = 1 << 21  # a large page
_DIRECT = getattr(os, "O_DIRECT", 0)


class Output:
    """A new file: data goes to :meth:`room` and :meth:`advance`, or to :meth:`write`; then :meth:`finish` and :meth:`sync`.

    A file of less than a piece is written by the caller's thread, when it is complete.

    Parameters
    ----------
    path : Path
        The file to create.
    direct : bool
        Pieces pass by the page cache where the file system allows it: for what is read once, in order. Otherwise each fills a
        large page of the cache, where the file system has such: then look-ups in the mapped file translate few addresses.
    beside : bool
        A thread writes pieces while the next ones are filled, which takes a second buffer. Otherwise the caller's writes them.

    Attributes
    ----------
    is_direct : bool
        Whether pieces pass by the page cache.
    """

    def __init__(self, path: Path, direct: bool = True, beside: bool = True) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._buffer, self._other = np.empty(0, np.uint8), np.empty(0, np.uint8)
        self._filled = self._written = 0  # bytes of the buffer, and those in the pieces before
        self.is_direct, self._direct, self._beside = False, direct, beside
        self._pool: Pool | None = None
        self._job: Job[None] | None = None

    def room(self, size: int) -> Bytes:
        """Return memory behind the written bytes, of at least this size; valid until the next call."""
        if self._filled >= PIECE_BYTES:
            self._put()
        if len(self._buffer) < self._filled + size:
            larger = own_pages(max(self._filled + size, PIECE_BYTES + size))
            larger[: self._filled] = self._buffer[: self._filled]
            self._buffer = larger
        return self._buffer[self._filled :]

    def advance(self, size: int) -> None:
        """Append the first bytes of the room."""
        self._filled += size

    def write(self, data: Bytes) -> None:
        """Append a copy of some bytes."""
        done = 0
        while done < len(data):
            # To the end of a piece: so the buffer need not grow, which takes another one meanwhile.
            piece = data[done : done + PIECE_BYTES - self._filled % PIECE_BYTES]
            self.room(len(piece))[: len(piece)] = piece
            self.advance(len(piece))
            done += len(piece)

    def _put(self) -> None:
        """Write full pieces, or have the thread write them once it has written the pieces before."""
        size = self._filled // PIECE_BYTES * PIECE_BYTES
        pieces, rest = self._buffer[:size], self._buffer[size : self._filled]
        if self._written == 0:
            self.is_direct = self._direct and set_direct(self._descriptor, True)
        if self._beside:
            self._hand_over(pieces, rest)
        else:
            write_piece(self._descriptor, pieces, self._written)
            self._buffer[: len(rest)] = rest  # it is shorter than a piece
        self._filled, self._written = len(rest), self._written + size

    def _hand_over(self, pieces: Bytes, rest: Bytes) -> None:
        if self._pool is None:
            self._pool = Pool(1)
        self._wait()
        if len(self._other) < len(self._buffer):
            self._other = own_pages(len(self._buffer))
        self._other[: len(rest)] = rest
        self._job = self._pool.submit(write_piece, self._descriptor, pieces, self._written)
        self._buffer, self._other = self._other, self._buffer

    def _wait(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def finish(self, start: bytes) -> None:
        """Write the rest, and other bytes over the start of the file: the file is complete, but not durable.

        Raises
        ------
        OSError
        """
        self._wait()
        if self._pool is not None:
            self._pool.shutdown()
        if self.is_direct:
            set_direct(self._descriptor, False)
        write_all(self._descriptor, self._buffer[: self._filled].data, self._written)
        write_all(self._descriptor, start, 0)
        self._buffer = self._other = np.empty(0, np.uint8)

    def sync(self) -> None:
        """Make the file durable and close it."""
        os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        if self._pool is not None:
            self._pool.cancel()
            self._pool.shutdown()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def set_direct(descriptor: int, direct: bool) -> bool:
    """Pass by the page cache, or not; return False where the file system has no such way."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT if direct else flags & ~_DIRECT)
    except OSError:
        return False
    return bool(_DIRECT)


def write_piece(descriptor: int, piece: Bytes, at: int) -> None:
    """Write a piece; what the way past the page cache cannot write, such as the rest of a piece cut short, takes the other."""
    written = 0
    try:
        written = os.pwrite(descriptor, piece.data, at)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    if written < len(piece):
        set_direct(descriptor, False)
        write_all(descriptor, piece[written:].data, at + written)
