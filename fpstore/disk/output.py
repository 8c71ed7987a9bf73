"""New files, written in order, in large pieces by a thread, into large pages of the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fpstore.base.aliases import Bytes
from fpstore.disk.files import write_all
from fpstore.disk.mapped import page_aligned

WRITE_BYTES = 1 << 21  # a large page


class Output:
    """A new file: :meth:`reserve` and :meth:`advance`, or :meth:`write`; then :meth:`finish`.

    A file of less than a piece is written when it is complete. Each piece fills a large page of the
    page cache, where the file system has such: then look-ups in the mapped file translate few
    addresses. With ``threaded``, a thread writes pieces while the next pieces are filled, which
    takes a second buffer.
    """

    def __init__(self, path: Path, threaded: bool = True) -> None:
        from fpstore.base.pools import Worker  # which a reader does not need

        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._buffer, self._spare = np.empty(0, np.uint8), np.empty(0, np.uint8)
        self._filled = self._written = 0  # bytes in the buffer, and in the pieces before it
        self._worker = Worker(True) if threaded else None

    def reserve(self, size: int) -> Bytes:
        """Return memory behind the written bytes, of at least this size.

        Valid until the next call.
        """
        if self._filled >= WRITE_BYTES:
            self._put_in_place()
        if len(self._buffer) < self._filled + size:
            larger = page_aligned(max(self._filled + size, WRITE_BYTES + size))
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
            piece = data[done : done + WRITE_BYTES - self._filled % WRITE_BYTES]
            self.reserve(len(piece))[: len(piece)] = piece
            self.advance(len(piece))
            done += len(piece)

    def _put_in_place(self) -> None:
        """Write full pieces, or have the thread write them after the pieces before them."""
        size = self._filled // WRITE_BYTES * WRITE_BYTES
        pieces, remainder = self._buffer[:size], self._buffer[size : self._filled]
        if self._worker is None:
            write_all(self._descriptor, pieces.data, self._written)
            self._buffer[: len(remainder)] = remainder  # it is shorter than a piece
        else:
            self._worker.wait()
            if len(self._spare) < len(self._buffer):
                self._spare = page_aligned(len(self._buffer))
            self._spare[: len(remainder)] = remainder
            self._worker.submit(write_all, self._descriptor, pieces.data, self._written)
            self._buffer, self._spare = self._spare, self._buffer
        self._filled, self._written = len(remainder), self._written + size

    def finish(self, start: bytes, end: bytes = b"", padding: int = 0) -> None:
        """Write the remaining bytes.

        Then ``end`` behind ``padding`` zero bytes, and ``start`` over the first bytes.

        The file is complete, but not durable.
        """
        if self._worker is not None:
            self._worker.wait()
            self._worker.end()
        write_all(self._descriptor, self._buffer[: self._filled].data, self._written)
        write_all(self._descriptor, end, self._written + self._filled + padding)
        write_all(self._descriptor, start, 0)
        self._buffer = self._spare = np.empty(0, np.uint8)

    def sync(self) -> None:
        """Make the file durable and close it."""
        os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        if self._worker is not None:
            self._worker.end()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
