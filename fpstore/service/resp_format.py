"""RESP, the protocol of Redis and Valkey: requests in, replies out.

Source: the RESP specification of Redis, versions 2 and 3. A request is an array of bulk strings, or
a line of words (an inline command).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MAX_LINE = 64 << 10  # of an inline command, or a length
MAX_ARGUMENTS = 1 << 20
CRLF = b"\r\n"
FEW_ARGUMENTS = {b"*%d" % count: count for count in range(1, 17)}


class ProtocolError(Exception):
    """Bytes that are no request: the connection ends behind the reply."""


class ReplyError(NamedTuple):
    """The reply to a request that failed."""

    message: str
    code: str = "ERR"


class Status(NamedTuple):
    """A reply of one word, such as OK."""

    text: str


class RequestParser:
    """Cuts what a client sends into requests. No length from a client allocates anything."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._buffer = bytearray()
        self._arguments: list[bytes] = []
        self._left = 0  # of the arguments of the request that is being read
        self._size = 0  # of these

    @property
    def is_inside(self) -> bool:
        """Whether a request has begun that is not complete."""
        return bool(self._left or self._buffer)

    def feed(self, data: bytes) -> Iterator[list[bytes]]:
        """Yield the requests that are complete. ProtocolError for anything else."""
        if not (self._left or self._buffer):
            requests, data = _plain_requests(data)
            yield from requests
        self._buffer += data
        buffer, at = self._buffer, 0
        try:
            while at < len(buffer):
                if self._left:
                    end = self._bulk_end(at)
                    if end is None:
                        return
                    start = buffer.index(CRLF, at) + 2
                    self._arguments.append(bytes(buffer[start : end - 2]))
                    self._left -= 1
                    at = end
                elif buffer[at] == ord("*"):
                    line = self._line(at)
                    if line is None:
                        return
                    self._left = self._number(line[1:], MAX_ARGUMENTS, "arguments")
                    at += len(line) + 2
                    if not self._left:
                        continue
                else:
                    line = self._line(at)
                    if line is None:
                        return
                    at += len(line) + 2
                    self._arguments = line.split()
                if not self._left and self._arguments:
                    request, self._arguments, self._size = self._arguments, [], 0
                    yield request
        finally:
            del buffer[:at]

    def _bulk_end(self, at: int) -> int | None:
        """Return where a bulk string ends; None if it is not there yet."""
        line = self._line(at)
        if line is None:
            return None
        if line[:1] != b"$":
            raise ProtocolError("expected '$', a request is an array of bulk strings")
        length = self._number(line[1:], self._most - self._size, "bytes")
        end = at + len(line) + 2 + length + 2
        if len(self._buffer) < end:
            return None
        if self._buffer[end - 2 : end] != CRLF:
            raise ProtocolError("a bulk string does not end where its length says")
        self._size += length
        return end

    def _line(self, at: int) -> bytes | None:
        end = self._buffer.find(CRLF, at, at + MAX_LINE)
        if end < 0:
            if len(self._buffer) - at >= MAX_LINE:
                raise ProtocolError("a line is too long")
            return None
        return bytes(self._buffer[at:end])

    def _number(self, text: bytes, most: int, what: str) -> int:
        if not text.isdigit() or len(text) > 10:
            raise ProtocolError(f"invalid number of {what}")
        number = int(text)
        if number > most:
            raise ProtocolError(f"too many {what}: {number}")
        return number


def _plain_requests(data: bytes) -> tuple[list[list[bytes]], bytes]:
    """Return the first requests of a pipeline, and the bytes behind them.

    These requests are short arrays of strings without line ends: they are cut at line ends, three
    times as fast as by their lengths, which must be right.
    """
    requests, lines, at = list[list[bytes]](), data.split(CRLF), 0
    while at < len(lines) - 1 and (count := FEW_ARGUMENTS.get(lines[at])):
        end = at + 1 + 2 * count
        arguments = lines[at + 2 : end : 2]
        if end >= len(lines) or lines[at + 1 : end : 2] != [b"$%d" % len(a) for a in arguments]:
            break
        requests.append(arguments)
        at = end
    return requests, CRLF.join(lines[at:])


def encode(reply: object, version: int, out: bytearray) -> None:
    """Append a reply in a version of the protocol: 2 or 3."""
    match reply:
        case str():
            encode(reply.encode("utf-8", "surrogateescape"), version, out)
        case bytes():
            out += b"$%d\r\n%b\r\n" % (len(reply), reply)
        case None:
            out += b"_\r\n" if version == 3 else b"$-1\r\n"
        case bool() if version == 3:
            out += b"#t\r\n" if reply else b"#f\r\n"
        case int():
            out += b":%d\r\n" % reply
        case float() if version == 3:
            out += b",%b\r\n" % repr(reply).encode()
        case float():
            encode(repr(reply), version, out)
        case Status(text):
            out += b"+%b\r\n" % text.encode()
        case ReplyError(message, code):
            line = " ".join(message.split())
            out += f"-{code} {line}\r\n".encode("utf-8", "replace")
        case dict():
            out += b"%%%d\r\n" % len(reply) if version == 3 else b"*%d\r\n" % (2 * len(reply))
            for pair in reply.items():
                for item in pair:
                    encode(item, version, out)
        case list() | tuple():
            out += b"*%d\r\n" % len(reply)
            for item in reply:
                encode(item, version, out)
        case _:
            raise TypeError(type(reply))
