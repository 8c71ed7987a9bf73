"""Which encoding a text has.

As it was named, by its byte order mark, UTF-8 if it is that, or as a page declares it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import NamedTuple

from fpstore.base.keywords import keyword
from fpstore.errors import InputError, show
from fpstore.io.files import input_error

UTF8 = "utf-8"
#: Byte order marks; the mark of UTF-32 comes first, because it begins with the mark of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_MARK_BYTES = 4
_WESTERN = "cp1252"
_READ_AS_WESTERN = ("iso8859-1", "ascii")  # as all browsers read them
_DECLARATION = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_DECLARED_BYTES = 1024
_MAX_REPLACED = 100  # one character, and one more for each hundred


class DecodedText(NamedTuple):
    """A text, and how it was decoded.

    The encoding may be ``declared`` by a page; ``replaced`` counts U+FFFD for bytes that are not
    UTF-8.
    """

    text: str
    encoding: str
    declared: bool = False
    replaced: int = 0


def check_encoding(name: str | None) -> str | None:
    """Return the name that Python has for an encoding of texts, or None.

    InputError if there is none.
    """
    if name is None:
        return None
    try:
        codec = codecs.lookup(name)
        "".encode(codec.name)  # some codecs make other things than texts
    except (LookupError, TypeError, ValueError):
        raise InputError(
            "encoding must be the name of one, such as utf-8, cp1252 or shift_jis, got "
            f"{show(name)}",
            got=name,
            argument="encoding",
        ) from None
    return codec.name


def encoding_of_mark(head: bytes) -> str | None:
    """Return the encoding that a byte order mark says, if there is one."""
    return next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)


def is_wide(head: bytes, encoding: str | None) -> bool:
    """Whether a text may have zero bytes, because its characters have two or four."""
    return (encoding or encoding_of_mark(head) or "").startswith(("utf-16", "utf-32"))


def decode_text(data: bytes, encoding: str | None = None) -> DecodedText | None:
    """Return the text that some bytes are, without a byte order mark, or None if they are no text.

    Without a mark or a name, they are UTF-8 if they can be. Otherwise the encoding is what a page
    declares. If it declares none and only a few bytes are not UTF-8, these are replaced by U+FFFD.
    """
    name = encoding or encoding_of_mark(data) or UTF8
    try:
        return DecodedText(data.decode(name).removeprefix("\ufeff"), name)
    except UnicodeError:
        if name != UTF8 or encoding is not None:
            return None
    declared = _declared_encoding(data)
    if declared is not None:
        try:
            return DecodedText(data.decode(declared), declared, declared=True)
        except UnicodeError:  # the declaration is wrong
            pass
    text = data.decode(UTF8, "replace")
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())
    return (
        None
        if (replaced - 1) * _MAX_REPLACED > len(text)
        else DecodedText(text, UTF8, replaced=replaced)
    )


def _declared_encoding(data: bytes) -> str | None:
    """Return the encoding that a page of HTML or XML declares, if there is one."""
    match = _DECLARATION.search(data[:_DECLARED_BYTES])
    if match is None:
        return None
    try:
        name = check_encoding(match[1].decode("ascii"))
    except InputError:
        return None
    return _WESTERN if name in _READ_AS_WESTERN else None if name == UTF8 else name


def transcoded(
    read_bytes: Callable[[int], bytes], encoding: str | None, name: str
) -> Callable[[int], bytes]:
    """Return a function that reads a stream as UTF-8; InputError for bytes of no character.

    Without a name of the encoding, it is what a byte order mark says; without a mark, the stream is
    not changed.
    """
    head = b""
    while len(head) < _MARK_BYTES and (more := read_bytes(_MARK_BYTES - len(head))):
        head += more
    source_encoding = encoding or encoding_of_mark(head) or UTF8

    def read_with_start(size: int) -> bytes:
        nonlocal head
        data, head = head[:size], head[size:]
        return data + (read_bytes(size - len(data)) if size > len(data) else b"")

    if source_encoding in (UTF8, "utf-8-sig"):
        return read_with_start
    decoder = codecs.getincrementaldecoder(source_encoding)("strict")

    def read_text(size: int) -> bytes:
        while True:
            data = read_with_start(size)
            try:
                out = decoder.decode(data, final=not data).encode(UTF8)
            except UnicodeError as error:
                raise input_error(
                    name,
                    None,
                    f"not valid {source_encoding}: {error}; name another {keyword('encoding')}",
                ) from None
            if out or not data:
                return out

    return read_text
