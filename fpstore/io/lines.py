"""Text inputs as blocks of whole lines, in bounded memory."""

from collections.abc import Iterator

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
        r"""Yield (whole lines, number of the first line). Each line ends in ``\n``; a byte order mark is removed."""
        line = 1
        held: list[bytes] = []
        held_bytes = 0
        mark = _UTF8_BOM
        with self.file.open() as stream:
            while True:
                with storage_errors(self.name):
                    data = stream.read(self._block_bytes)
                self.bytes_done += len(data)
                end = data.rfind(b"\n") + 1
                if data and not end:
                    held.append(data)
                    held_bytes += len(data)
                    if held_bytes > MAX_LINE_BYTES:
                        raise at(self.name, line, f"line longer than {MAX_LINE_BYTES >> 20} MiB; not text?")
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
