"""The normal form of a text, from which shingles are made; part of version 1 of `SimHash`."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpstore import _kernel
from fpstore.aliases import Counts, Words
from fpstore.disk.fork import around_fork

# The characters beyond ASCII for which str.isspace() is true.
_SPACES = "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_SEPARATOR = re.compile(r"[^\x00-\x7f\w]")
_PAGE = 256  # code points whose normal forms are found together
_REPLACED, _UNKNOWN = 1 << 30, 2 << 30  # kinds of entries: see _native/text/normal.hpp
_MOST_FORM = 63  # bytes
_LAST_PAIR = 0x1E000  # no canonical decomposition into two characters is at or above it
_HANGUL_VOWELS, _HANGUL_TAILS = range(0x1161, 0x1176), range(0x11A8, 0x11C3)
_SAMPLE_STEP = 512
_SAMPLE = 16


@cache
def ascii_table(words: bool, casefold: bool) -> bytes:
    """Return the table for ``bytes.translate`` that finishes `prepare`: separators to spaces, case folded.

    It does not change bytes beyond ASCII, nor bytes that `prepare` has already folded, so texts may be joined before
    it is applied.
    """
    out = bytearray(range(256))
    for code in range(128):
        char = chr(code)
        is_separator = not (char.isalnum() or char == "_") if words else char.isspace()
        out[code] = ord(" " if is_separator else char.lower() if casefold else char)
    return bytes(out)


def prepare(text: str, words: bool, normalize: bool, casefold: bool) -> bytes:
    r"""Return the UTF-8 bytes of a text, normalized except for the steps left to `ascii_table` and the kernel.

    The whole normal form is: NFKC (if ``normalize``); ``str.casefold`` (if ``casefold``); a space for every character
    that is not a word character (``\w`` of `re`; with ``words``) or that is white space (``str.isspace``; without);
    one space for each run of spaces, and none at either end; UTF-8, in which a lone surrogate takes three bytes
    (``surrogatepass``). ASCII is its own NFKC, so such a text needs nothing here. The kernel handles the runs.
    """
    if text.isascii():
        return text.encode("ascii")
    if normalize:
        text = nfkc(text)
    if casefold:
        text = text.casefold()
    if words:
        text = _SEPARATOR.sub(" ", text)
    else:
        for space in _SPACES:
            text = text.replace(space, " ")
    return text.encode("utf-8", "surrogatepass")


class Prepared(NamedTuple):
    """Texts as `prepare` returns them, one after the other: text i is at ``offsets[i]:offsets[i + 1]``."""

    data: bytes
    offsets: Words


class _CharTables(NamedTuple):
    """Normal forms of characters, as the kernel takes them."""

    pages: NDArray[np.int32]
    entries: Counts
    pool: bytes


class CharMap:
    """Normal forms of single characters, found when they are first met: most texts need no more.

    A character whose form depends on its neighbours is none of them: one that starts, decomposed, with a combining mark or with
    what may be composed with the character before it. Of all others, the forms of the characters of a text are, one after the
    other, that of the text: nothing is reordered or composed across their bounds (Unicode Standard Annex 15).
    """

    def __init__(self, words: bool, normalize: bool, casefold: bool) -> None:
        self._how = words, normalize, casefold
        self._lock = Lock()
        none = np.empty(0, np.uint32)
        self._tables = _CharTables(np.full(0x110000 // _PAGE, -1, np.int32), none, b"")

    def prepare(self, texts: Sequence[str]) -> Prepared:
        """Return what `prepare` returns for each of some texts."""
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        offsets = _offsets(list(map(len, parts)))
        data = b"".join(parts)
        if data.isascii():
            return Prepared(data, offsets)
        while True:
            found, ends, unknown, missing = _kernel.normalize_texts(data, offsets, *self._tables)
            if not len(missing):
                break
            self._add(missing.tolist())
        if not len(unknown):
            return Prepared(found, np.concatenate([np.zeros(1, np.uint64), ends]))
        bounds = [0, *ends.tolist()]
        parts = [found[start:end] for start, end in pairwise(bounds)]
        for place in unknown.tolist():
            parts[place] = prepare(texts[place], *self._how)
        return Prepared(b"".join(parts), _offsets(list(map(len, parts))))

    def _add(self, missing: list[int]) -> None:
        """Find the forms of the characters in some pages."""
        with self._lock:
            pages, entries, pool = self._tables
            pages, longer = pages.copy(), bytearray(pool)
            more: list[int] = []
            for page in missing:
                if pages[page] < 0:
                    pages[page] = (len(entries) + len(more)) // _PAGE
                    more += [self._entry(chr(point), longer) for point in range(page * _PAGE, (page + 1) * _PAGE)]
            self._tables = _CharTables(pages, np.concatenate([entries, np.array(more, np.uint32)]), bytes(longer))

    def _entry(self, char: str, pool: bytearray) -> int:
        if self._how[1] and _depends(char):
            return _UNKNOWN
        form = prepare(char, *self._how)
        if form == char.encode("utf-8", "surrogatepass"):
            return 0
        if len(form) > _MOST_FORM:
            return _UNKNOWN
        place = pool.find(form)
        if place < 0:
            place = len(pool)
            pool += form
        return _REPLACED | len(form) << 24 | place


def _offsets(sizes: list[int]) -> Words:
    offsets = np.zeros(len(sizes) + 1, np.uint64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _depends(char: str) -> bool:
    """Return whether the NFKC form of a text may not be that of a character in it beside those of its neighbours."""
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.combining(first) != 0 or first in _composed_with()


@cache
def _composed_with() -> frozenset[str]:
    """Return the characters that may be composed with the one before them."""
    pairs = (unicodedata.decomposition(chr(point)) for point in range(0x80, _LAST_PAIR))
    seconds = {chr(int(pair.split()[1], 16)) for pair in pairs if pair.count(" ") == 1 and pair[0] != "<"}
    return frozenset(seconds | set(map(chr, [*_HANGUL_VOWELS, *_HANGUL_TAILS])))


@cache
def char_map(words: bool, normalize: bool, casefold: bool) -> CharMap:
    """Return the normal forms for some parameters of `prepare`."""
    return CharMap(words, normalize, casefold)


around_fork(in_child=char_map.cache_clear)  # a thread that is not in the child may have held a lock


def nfkc(text: str) -> str:
    """Return the NFKC form, in time proportional to the length.

    `unicodedata.normalize` sorts a run of combining marks in the square of its length: hours for a hostile
    text of a few megabytes. It is linear where the marks are already in order, so long runs are put in order
    first.
    """
    if _has_long_run(text):
        text = _nfkd(text)
    return unicodedata.normalize("NFKC", text)


def _is_mark(char: str) -> bool:
    """Return whether a character sorts in canonical order, or decomposes into characters that do."""
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) != 0


def _has_long_run(text: str) -> bool:
    """Return whether there may be a run of `_SAMPLE_STEP` + `_SAMPLE` marks; never misses one."""
    return any(_is_mark(text[i]) and all(map(_is_mark, text[i + 1 : i + _SAMPLE])) for i in range(0, len(text), _SAMPLE_STEP))


def _nfkd(text: str) -> str:
    """Return the NFKD form: characters decomposed, runs of marks stably sorted by combining class."""
    out: list[str] = []
    run: list[str] = []
    for char in text:
        for part in unicodedata.normalize("NFKD", char):
            if unicodedata.combining(part):
                run.append(part)
            else:
                out += sorted(run, key=unicodedata.combining)
                run.clear()
                out.append(part)
    out += sorted(run, key=unicodedata.combining)
    return "".join(out)
