"""Many strings in one piece of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import NO_WORDS, list_lims, spans
from fpstore.base.threads import cached_property

# strings that are made, copied or written together: memory is bounded in bytes, not in strings
STRINGS_BYTES = 1 << 22
CUT = "…"  # where a text goes on


def string_hash(string: bytes) -> int:
    """Return the XXH64 of a string: the key that leads to its number."""
    return _kernel.xxh64(string)


def cut_text(text: str, start: int, characters: int) -> str:
    """Return characters of a text from a place, with an ellipsis for what is left out."""
    end = start + characters
    return CUT * bool(start and text) + text[start:end] + CUT * (end < len(text))


def string_spans(strings: Sequence[str] | Sequence[bytes]) -> Iterator[slice]:
    """Yield slices of strings that have STRINGS_BYTES together, of text that is ASCII.

    A longer string is alone.
    """
    return spans(list_lims(np.fromiter(map(len, strings), np.int64, len(strings))), STRINGS_BYTES)


def string_columns(
    strings: StringColumn | Sequence[str] | Sequence[bytes],
) -> Iterator[StringColumn]:
    """Yield a column, or text or UTF-8 in columns of STRINGS_BYTES."""
    if isinstance(strings, StringColumn):
        yield strings
        return
    for span in string_spans(strings):
        yield StringColumn.from_strings(strings[span])


class StringColumn:
    """Strings in UTF-8, one after the other, and where each ends."""

    def __init__(self, data: bytes, ends: Words) -> None:
        self.data, self.ends = data, ends

    @classmethod
    def from_strings(cls, strings: Sequence[str] | Sequence[bytes]) -> StringColumn:
        encoded: list[Any] = [*strings]
        if encoded and isinstance(encoded[0], str):
            encoded = [*map(str.encode, encoded)]
        return cls(
            b"".join(encoded),
            np.cumsum(np.fromiter(map(len, encoded), np.uint64, len(encoded)), dtype=np.uint64),
        )

    @classmethod
    def from_spans(cls, data: bytes, starts: Words, ends: Words) -> StringColumn:
        """Return parts of a text in UTF-8, each of whole characters.

        UnicodeDecodeError if the text is something else.
        """
        if not data.isascii():
            data.decode()
        return cls(*_kernel.copy_spans(data, starts, ends))

    @classmethod
    def concatenate(cls, columns: Sequence[StringColumn]) -> StringColumn:
        if len(columns) == 1:
            return columns[0]
        before = np.cumsum([0, *(len(column.data) for column in columns)], dtype=np.uint64)
        ends = [column.ends + start for column, start in zip(columns, before[:-1], strict=True)]
        return cls(b"".join(column.data for column in columns), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def slice(self, start: int, end: int) -> StringColumn:
        low = int(self.ends[start - 1]) if start else 0
        ends = self.ends[start:end]
        return StringColumn(
            self.data[low : int(ends[-1]) if len(ends) else low], ends - np.uint64(low)
        )

    @property
    def sizes(self) -> Words:
        """The number of bytes of each string."""
        return np.diff(self.ends, prepend=np.uint64(0))

    def with_blanks(self, flags: npt.NDArray[np.bool_]) -> StringColumn:
        """Return the strings whose flags are set, and empty ones in place of the others."""
        if flags.all():
            return self
        ends = np.cumsum(np.where(flags, self.sizes, np.uint64(0)), dtype=np.uint64)
        return StringColumn(self.filter(flags).data, ends)

    def filter(self, flags: npt.NDArray[np.bool_]) -> StringColumn:
        """Return the strings whose flags are set."""
        if flags.all():
            return self
        return self.take(np.flatnonzero(flags))

    def take(self, places: npt.NDArray[np.intp]) -> StringColumn:
        """Return the strings at some places."""
        ends = self.ends[places]
        return StringColumn(*_kernel.copy_spans(self.data, ends - self.sizes[places], ends))

    def hashes(self) -> Words:
        """Return the :func:`string_hash` of each string."""
        return _kernel.hash_strings(self.data, self.ends)

    def join_separated(self) -> bytes:
        """Return all strings as one, each followed by a byte that occurs in no UTF-8."""
        return _kernel.join_strings(self.data, self.ends)

    def tolist(self) -> list[bytes]:
        """Return the strings one by one."""
        if b"\xff" in self.data:  # not UTF-8: decoding it fails later
            bounds = [0, *self.ends.tolist()]
            return list(map(self.data.__getitem__, map(slice, bounds, bounds[1:])))
        return self.join_separated().split(b"\xff")[:-1]

    def texts(self) -> list[str]:
        return [*map(bytes.decode, self.tolist())]


NO_STRINGS = StringColumn(b"", NO_WORDS)


class Encoded(NamedTuple):
    """Texts in UTF-8, one after the other: text i is at ``offsets[i]:offsets[i + 1]``.

    Lone surrogates take three bytes.
    """

    data: bytes
    offsets: Words

    def bounds(self, place: int) -> tuple[int, int]:
        """Return where a text starts and ends."""
        start, end = self.offsets[place : place + 2].tolist()
        return start, end


def encoded(texts: Sequence[str]) -> Encoded:
    """Return texts as the kernel takes them."""
    if isinstance(texts, TextColumn):
        return texts.encoded
    return join_encoded([text.encode("utf-8", "surrogatepass") for text in texts])


def join_encoded(parts: Sequence[bytes]) -> Encoded:
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return Encoded(b"".join(parts), list_lims(sizes).view(np.uint64))


def character_places(data: bytes, places: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return places of bytes in UTF-8 as places of characters."""
    counts = places.astype(np.int64)
    if not data.isascii():
        later_bytes = np.flatnonzero((np.frombuffer(data, np.uint8) & 0xC0) == 0x80)
        counts -= np.searchsorted(later_bytes, counts)
    return counts


class TextColumn(Sequence[str]):
    """Texts of a batch in UTF-8, which become strings of Python only if they are asked for."""

    def __init__(self, column: StringColumn) -> None:
        self.encoded = Encoded(column.data, np.concatenate([np.zeros(1, np.uint64), column.ends]))
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        places = range(len(self))[place]
        if isinstance(places, range):
            return [self[place] for place in places]
        start, end = self.encoded.bounds(places)
        return self.encoded.data[start:end].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    @cached_property
    def _texts(self) -> list[str]:
        return self._column.texts()

    def replace(self, texts: Mapping[int, bytes]) -> TextColumn:
        """Return the texts with others at some places, which ascend."""
        data, sizes = self.encoded.data, self._column.sizes
        view, parts, done = memoryview(data), list[bytes | memoryview](), 0
        for place, text in texts.items():
            start, end = self.encoded.bounds(place)
            parts += [view[done:start], text]
            done, sizes[place] = end, len(text)
        joined = b"".join([*parts, view[done:]])
        return TextColumn(StringColumn(joined, np.cumsum(sizes, dtype=np.uint64)))

    def filter(self, flags: npt.NDArray[np.bool_]) -> TextColumn:
        """Return the texts whose flags are set."""
        return TextColumn(self._column.filter(flags))

    @property
    def chars(self) -> npt.NDArray[np.uint32]:
        """The number of characters of each text."""
        return _kernel.count_characters(*self.encoded)

    def head(self, place: int, most: int) -> str:
        """Return up to ``most`` characters of the beginning of a text."""
        start, end = self.encoded.bounds(place)
        head = self.encoded.data[start : min(end, start + 4 * most)]
        return head.decode("utf-8", "ignore")[:most]
