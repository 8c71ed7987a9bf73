"""Text inputs as blocks of whole lines, in bounded memory."""

from collections.abc import Callable, Iterator

from fpstore.io.source import InputFile, Source, at, storage_errors

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20

_UTF8_BOM = b"\xef\xbb\xbf"


class LineSource(Source):
    """An input made of lines."""

    def __init__(self, file: InputFile, block_bytes: int = BLOCK_BYTES) -> None:
        super().__init__(file)
        self._block_bytes = block_bytes

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield the blocks of the input, as `line_blocks` does."""
        return line_blocks(self.file, self._count, self._block_bytes)

    def _count(self, size: int) -> None:
        self.bytes_done += size


def line_blocks(file: InputFile, on_read: Callable[[int], None], block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[bytes, int]]:
    r"""Yield (whole lines, number of the first line). Each line ends in ``\n``; a byte order mark is removed.

    Parameters
    ----------
    file : InputFile
    on_read : callable
        Called with the number of bytes of each read.
    block_bytes : int
        Bytes to read at a time.
    """
    line = 1
    held: list[bytes] = []
    held_bytes = 0
    mark = _UTF8_BOM
    with file.open() as stream:
        while True:
            with storage_errors(file.name):
                data = stream.read(block_bytes)
            on_read(len(data))
            end = data.rfind(b"\n") + 1
            if data and not end:
                held.append(data)
                held_bytes += len(data)
                if held_bytes > MAX_LINE_BYTES:
                    raise at(file.name, line, f"line longer than {MAX_LINE_BYTES >> 20} MiB; not text?")
                continue
            block = b"".join([*held, data[:end]])
            if not data and block:
                block += b"\n"
            if block:
                block = block.removeprefix(mark)
                mark = b""
                yield block, line
                line += block.count(b"\n")
            if not data:
                return
            held = [data[end:]]
            held_bytes = len(held[0])
