"""Text inputs as blocks of whole lines, in bounded memory."""

import fcntl
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from fpstore.errors import InputError
from fpstore.io.encodings import transcoded
from fpstore.io.packed import unpacked
from fpstore.io.source import Batch, Fields, InputFile, Source, at, storage_errors

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20

_UTF8_BOM = b"\xef\xbb\xbf"


class LineSource(Source):
    """An input made of lines."""

    def __init__(self, file: InputFile, fields: Fields, block_bytes: int = BLOCK_BYTES) -> None:
        super().__init__(file)
        self.fields = fields
        self.end = b"\0" if fields.null else b"\n"
        self.arrives = fields.unbuffered and file.arrives
        self._block_bytes = block_bytes

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield the blocks of the input, as `line_blocks` does."""
        return line_blocks(self.file, self._count, self._block_bytes, self.end, self.arrives)

    def parsed(self, block: bytes, first: int, parse: Callable[[bytes, int], Batch]) -> Iterator[Batch]:
        """Yield the rows of a block; if a line is bad, those before it too where somebody may wait for their answers."""
        try:
            batch = parse(block, first)
        except InputError as error:
            good = error.line - first if isinstance(error.line, int) else 0
            if self.arrives and good:
                yield parse(b"".join(line + self.end for line in block.split(self.end)[:good]), first)
            raise
        yield batch

    def _count(self, size: int) -> None:
        self.bytes_done += size


def line_blocks(
    file: InputFile,
    on_read: Callable[[int], None],
    block_bytes: int = BLOCK_BYTES,
    line_end: bytes = b"\n",
    arrives: bool = False,
    encoding: str | None = None,
) -> Iterator[tuple[bytes, int]]:
    """Yield (whole lines, number of the first line). Each line has its end; a byte order mark is removed.

    A file that is compressed is read as what it holds, unless its lines are taken as they come.

    Parameters
    ----------
    file : InputFile
    on_read : callable
        Called with the number of bytes of each read of the file.
    block_bytes : int
        Bytes to read at a time.
    line_end : bytes
        A line feed or a zero byte.
    arrives : bool
        Yield the lines that have come, without waiting for a block of them.
    encoding : str, optional
        That of the file; by default UTF-8, or what a byte order mark says. Lines are yielded in UTF-8.
    """
    line = 1
    held: list[bytes] = []
    held_bytes = 0
    mark = _UTF8_BOM
    with _came(file, on_read) if arrives else unpacked(file, on_read) as read:
        if not arrives:
            with storage_errors(file.name):
                read = transcoded(read, encoding, file.name)
        while True:
            with storage_errors(file.name):
                data = read(block_bytes)
            end = data.rfind(line_end) + 1
            if data and not end:
                held.append(data)
                held_bytes += len(data)
                if held_bytes > MAX_LINE_BYTES:
                    raise at(file.name, line, f"line longer than {MAX_LINE_BYTES >> 20} MiB; not text?")
                continue
            block = b"".join([*held, data[:end]])
            if not data and block:
                block += line_end
            if block:
                block = block.removeprefix(mark)
                mark = b""
                yield block, line
                line += block.count(line_end)
            if not data:
                return
            held = [data[end:]]
            held_bytes = len(held[0])


@contextmanager
def _came(file: InputFile, on_read: Callable[[int], None]) -> Iterator[Callable[[int], bytes]]:
    """Open a stream, and return the function that reads what has come."""
    with file.open() as stream:
        read_next = reading_what_came(stream)

        def read(size: int) -> bytes:
            data = read_next(size)
            on_read(len(data))
            return data

        yield read


def reading_what_came(stream: BinaryIO) -> Callable[[int], bytes]:
    """Return a function that reads what has come through a pipe, a socket or a terminal, up to so many bytes.

    It waits only while nothing has come, and returns no bytes at the end. A pipe is given room for a whole block, so that a
    program that is faster than its reader fills blocks.
    """
    descriptor = stream.fileno()
    arrivals = select.poll()
    arrivals.register(descriptor, select.POLLIN)
    with suppress(OSError):  # not a pipe, or the system allows no more
        if fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) < BLOCK_BYTES:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, BLOCK_BYTES)
    ended = False

    def read_once(size: int) -> bytes:
        nonlocal ended
        data: bytes = stream.read1(size)  # type: ignore[attr-defined]  # of buffered streams
        if not data and not os.get_blocking(descriptor):  # nothing has come, or this is the end
            arrivals.poll()
            data = stream.read1(size)  # type: ignore[attr-defined]
        ended = not data
        return data

    def read(size: int) -> bytes:
        if ended:  # a terminal would go on after it
            return b""
        parts = [read_once(size)]
        left = size - len(parts[0])
        while not ended and left > 0 and arrivals.poll(0):
            parts.append(read_once(left))
            left -= len(parts[-1])
        return b"".join(parts)

    return read
