"""The normal form of a text, from which features are made; part of version 2 of `SimHash`."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpstore import _kernel
from fpstore.base.aliases import Counts, Words
from fpstore.base.arguments import check_choice, check_flag
from fpstore.base.characters import ENDS, LINE_END, visible
from fpstore.base.strings import Encoded, encoded, join_encoded
from fpstore.base.threads import clear_after_fork
from fpstore.errors import InputError
from fpstore.hashing.chinese import CHINESE, chinese_converter

DIGITS = ("keep", "zero")
MARKS = ("keep", "fold", "punctuation")
HYPHENS = ("keep", "join")  # hyphens that break words at the end of a line
_PAGE = 256  # code points whose normal forms are computed together
_IDEOGRAPH = "\u4e00"  # has no case, no other form, and is composed with nothing
# see _native/text/normal.hpp
_SAME, _UNIT, _SPACE, _REMOVED, _REPLACED, _UNKNOWN, _IGNORED = (kind << 29 for kind in range(7))
_FORM_SHIFT = 23
_MAX_FORM_BYTES = 63  # bytes
_ASCII_IGNORED, _ASCII_REMOVED = 0xFE, 0xFF
_LITERAL_MARK = b"\xff"  # before and behind a normal form in a text for the kernel
_LAST_PAIR = 0x1E000  # no canonical decomposition into two characters is at or above it
_HANGUL_VOWELS, _HANGUL_TAILS = range(0x1161, 0x1176), range(0x11A8, 0x11C3)
_SAMPLE_STEP = 512  # characters from one sample to the next, in the search for runs of marks
_SAMPLE = 16  # characters of a sample
LONG_RUN = _SAMPLE_STEP + _SAMPLE  # marks

#: Scripts that are written without spaces between words, as ranges of code points: Thai, Lao,
#: Tibetan, Myanmar, Khmer, kana, bopomofo, and ideographs with their marks.
_UNSPACED = (
    (0x0E00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x19E0, 0x19FF),
    (0x1A20, 0x1AAF),
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3038, 0x303B),
    (0x3041, 0x312F),
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x16FE0, 0x18D0F),
    (0x1AFF0, 0x1B2FF),
    (0x20000, 0x3FFFF),
)

#: The diacritics of Latin, Greek, Cyrillic, Hebrew, Arabic and Syriac, and the tatweel. Marks of
#: other scripts may be vowels.
_DIACRITICS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7-\u05c9"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
    "\u0711\u0730-\u074a\u0897-\u089f\u08ca-\u08e1\u08e3-\u08ff"
    "\u1ab0-\u1af0\u1dc0-\u1dff\u20d0-\u20f0\u2de0-\u2dff"
    "\ua66f-\ua672\ua674-\ua67d\ua69e\ua69f\ufb1e\ufe20-\ufe2f"
    "\U00010ecb-\U00010ecf\U00010ef0-\U00010eff\U0001e08f]+"
)
_BROKEN_WORD = re.compile(rf"[-\xad\u2010][^\S{ENDS}]*{LINE_END}\s*(?=(\S))")


def is_unspaced(char: str) -> bool:
    """Return whether a character belongs to a script that is written without spaces."""
    return bool(_unspaced_points()[ord(char)])


@cache
def _unspaced_points() -> NDArray[np.bool_]:
    """Return for each code point whether it belongs to a script that is written without spaces."""
    flags = np.zeros(sys.maxunicode + 1, bool)
    for first, last in _UNSPACED:
        flags[first : last + 1] = True
    return flags


@dataclass(frozen=True, kw_only=True)
class NormalForm:
    """The normal form of a text, which is cut into features; `SimHash` describes the parameters.

    In this order: words that are broken at the end of a line are joined (if `hyphens` says so);
    Chinese is converted (if `chinese` says so);
    ignored characters go (`fpstore.base.characters`), whatever the parameters are; NFKC (if
    `normalize`), without diacritics if `marks` is ``"fold"``; case; then each character is a word
    character (``str.isalnum``, ``_``, or a mark, which is of category M), white space
    (``str.isspace``) or punctuation (all others), and each has a replacement. With the units
    ``"auto"``, spaces are put around each letter and mark of a script that is written without them,
    so that it is a word. Runs of spaces become one space, and spaces at the ends none. If nothing
    remains, punctuation is kept: only a text without visible characters has an empty form.
    """

    units: str
    normalize: bool
    case: str
    punctuation: str
    marks: str
    digits: str
    spaces: str
    hyphens: str = "keep"
    chinese: str = "keep"

    def __post_init__(self) -> None:
        check_flag(self.normalize, "normalize")
        check_choice(self.case, ("fold", "lower", "keep"), "case")
        check_choice(self.punctuation, ("space", "keep", "remove"), "punctuation")
        check_choice(self.marks, MARKS, "marks")
        check_choice(self.digits, DIGITS, "digits")
        check_choice(self.spaces, ("single", "remove"), "spaces")
        check_choice(self.hyphens, HYPHENS, "hyphens")
        check_choice(self.chinese, CHINESE, "chinese")
        if self.chinese != "keep":
            chinese_converter(self.chinese)  # a package that is missing is told first
        if self.spaces == "remove" and self.units != "chars":
            raise InputError(
                "spaces='remove' needs shingle='chars': words are what spaces separate",
                got=self.spaces,
            )
        if self.marks == "fold" and not self.normalize:
            raise InputError(
                "marks='fold' needs normalize=True: a letter and its diacritic may be one "
                "character",
                got=self.marks,
            )

    def apply(self, text: str) -> str:
        return self.apply_to_prepared(self.prepare(text))

    def apply_to_prepared(self, text: str) -> str:
        return self.words_form(text) or replace(self, punctuation="keep").words_form(text)

    def words_form(self, text: str) -> str:
        """Return the form of a prepared text; empty for one without word characters."""
        return " ".join(self.translated(text).split())

    @property
    def prepares(self) -> bool:
        """Whether :meth:`prepare` may change a text."""
        return (self.hyphens, self.chinese) != ("keep", "keep")

    def prepare(self, text: str) -> str:
        """Return a text after the steps that look at more than one character.

        Hyphens and line ends that break words are removed, if `hyphens` says so, and Chinese is
        converted, if `chinese` says so.
        """
        if self.hyphens != "keep":
            text = _BROKEN_WORD.sub(_replace_hyphen, text)
        return text if self.chinese == "keep" else chinese_converter(self.chinese)(text)

    def translated(self, text: str) -> str:
        """Return the normal form of a text with all of its spaces."""
        return self.fold(self.compose(text)).translate(_pieces(self))

    def fold(self, text: str) -> str:
        """Return a text in the case that `case` says."""
        if self.case == "keep":
            return text
        return text.casefold() if self.case == "fold" else text.lower()

    def compose(self, text: str) -> str:
        """Return a text without ignored characters, in NFKC if `normalize` says so."""
        text = visible(text)
        if not self.normalize or text.isascii():
            return text
        return (
            nfkc(text)
            if self.marks != "fold"
            else unicodedata.normalize("NFC", _DIACRITICS.sub("", nfkd(text)))
        )

    def piece(self, char: str) -> str:
        """Return the replacement of a character that has its case and its NFKC form already."""
        if char.isspace():
            return " " if self.spaces == "single" else ""
        is_mark = self.marks != "punctuation" and unicodedata.category(char)[0] == "M"
        if not (char.isalnum() or char == "_" or is_mark):
            return {"space": " ", "keep": char, "remove": ""}[self.punctuation]
        if char.isdecimal():
            return "0" if self.digits == "zero" else char
        return f" {char} " if self.units == "auto" and is_unspaced(char) else char


class _Pieces(dict[int, str]):
    """The replacement of each character, computed at its first use."""

    def __init__(self, form: NormalForm) -> None:
        super().__init__()
        self._form = form

    def __missing__(self, point: int) -> str:
        self[point] = piece = self._form.piece(chr(point))
        return piece


@cache
def _pieces(form: NormalForm) -> _Pieces:
    return _Pieces(form)


class CharColumns(NamedTuple):
    """Normal forms of characters, of which the kernel makes tables."""

    ascii: bytes
    pages: NDArray[np.int32]
    entries: Counts
    pool: bytes


class KernelRows(NamedTuple):
    """The kernel's fingerprints of rows of texts (`_native/text/rows.hpp`)."""

    rows: Words
    states: NDArray[np.uint8]
    missing: Counts
    lines: Words


Work = Callable[[Encoded, _kernel.CharTables], KernelRows]


class CharMap:
    """Normal forms of single characters, computed at first use: most texts need no more.

    A character has no entry if its form depends on its neighbours: it may be composed with the
    character before it, or it changes and starts, decomposed, with a combining mark. The normal
    form of a text without such characters is the forms of its characters in order, if marks are in
    the order of their combining classes (Unicode Standard Annex 15, section 9).
    """

    def __init__(self, form: NormalForm) -> None:
        self._form = form
        self._lock = Lock()
        self._numbers: dict[bytes, int] = {}  # of the different pages, in their order
        # of characters that stay as they are in NFKC and in their case, by their properties
        self._plain_entries: dict[tuple[object, ...], int] = {}
        none = np.empty(0, np.uint32)
        table = bytes(self._ascii(chr(code)) for code in range(128))
        self._set(CharColumns(table, np.full(0x110000 // _PAGE, -1, np.int32), none, b""))

    def hashed(
        self, texts: Sequence[str], work: Work, fields: int = 1
    ) -> tuple[Words, NDArray[np.bool_]]:
        """Return the fingerprints of rows of texts, and which rows have features.

        The kernel makes them in ``work``. The texts are ``fields`` texts of each row, in order.
        """
        rows, states = self._rows(self._encode(texts), work, fields)
        return rows, states == _STATE_KNOWN

    def sets(
        self, texts: Sequence[str], work: Callable[..., tuple[Any, Any]], fields: int = 1
    ) -> tuple[Any, Any]:
        """Return the kernel's features of rows of texts, and the words of each row."""
        return self._sets(self._encode(texts), work, fields)

    def _rows(self, batch: Encoded, work: Work, fields: int) -> tuple[Words, NDArray[np.uint8]]:
        rows, states, missing, lines = work(batch, self.tables)
        places = np.flatnonzero(states == _STATE_UNKNOWN)
        if len(places):
            texts = self._unknown_texts(batch, places, fields, missing, lines)
            rows[places], states[places] = self._rows(texts, work, fields)
        return rows, states

    def _sets(
        self, batch: Encoded, work: Callable[..., tuple[Any, Any]], fields: int
    ) -> tuple[Any, Any]:
        features, (rows, states, missing, lines) = work(*batch, self.tables)
        places = np.flatnonzero(states == _STATE_UNKNOWN)
        if not len(places):
            return features, rows
        texts = self._unknown_texts(batch, places, fields, missing, lines)
        return _replace_sets(features, rows, places, *self._sets(texts, work, fields))

    def _unknown_texts(
        self, batch: Encoded, rows: NDArray[np.intp], fields: int, missing: Counts, lines: Words
    ) -> Encoded:
        """Return the texts of rows of unknown form, for the kernel to take them once more.

        If pages were missing, they are as they were, and the pages are there. Otherwise their lines
        are in their normal forms.
        """
        if len(missing):
            self._add_pages(missing.tolist())
            lines = lines[:0]
        places = (rows[:, None] * fields + np.arange(fields)).ravel()
        return self._with_forms(batch, places.tolist(), lines)

    def _encode(self, texts: Sequence[str]) -> Encoded:
        return encoded(list(map(self._form.prepare, texts)) if self._form.prepares else texts)

    def _with_forms(self, batch: Encoded, places: list[int], lines: Words) -> Encoded:
        """Return the texts at places, with normal forms in place of the lines, which are marked.

        A line is the start and the end of a part of a text, or of a whole text.
        """
        first_lines = np.searchsorted(lines[:, 0], batch.offsets)
        texts = []
        for place in places:
            first, stop = batch.bounds(place)
            copied_to, parts = first, []
            for start, end in lines[first_lines[place] : first_lines[place + 1]].tolist():
                line = batch.data[start:end].decode("utf-8", "surrogatepass")
                is_whole = (start, end) == (first, stop)
                form = (
                    self._form.apply_to_prepared(line) if is_whole else self._form.translated(line)
                )
                data = form.encode("utf-8", "surrogatepass")
                parts += [batch.data[copied_to:start], _LITERAL_MARK, data, _LITERAL_MARK]
                copied_to = end
            texts.append(b"".join([*parts, batch.data[copied_to:stop]]))
        return join_encoded(texts)

    def _ascii(self, char: str) -> int:
        if not visible(char):
            return _ASCII_IGNORED
        piece = self._form.piece(char if self._form.case == "keep" else char.lower())
        return ord(piece) if piece else _ASCII_REMOVED

    def _add_pages(self, missing: list[int]) -> None:
        with self._lock:
            pages, pool = self.columns.pages.copy(), bytearray(self.columns.pool)
            for page in missing:
                if pages[page] < 0:
                    entries = np.array(self._page_entries(page, pool), np.uint32).tobytes()
                    pages[page] = self._numbers.setdefault(entries, len(self._numbers))
            all_entries = np.frombuffer(b"".join(self._numbers), np.uint32)
            self._set(CharColumns(self.columns.ascii, pages, all_entries, bytes(pool)))

    def _set(self, columns: CharColumns) -> None:
        self.columns, self.tables = columns, _kernel.CharTables(*columns)

    def _page_entries(self, page: int, pool: bytearray) -> list[int]:
        """Return the entries of a page, whose normal forms are computed together.

        A character that takes no part in them stands between the others.
        """
        chars = _page_text(page)
        mark = "\n" if page else _IDEOGRAPH
        joined = mark.join(chars)
        composed = self._form.compose(joined)
        folded = self._form.fold(composed)
        firsts = [parts[0] for parts in unicodedata.normalize("NFKD", joined).split(mark)]
        seconds, unspaced = _second_characters(), _unspaced_points()[page * _PAGE :][:_PAGE]
        is_plain = joined == composed == folded and seconds.isdisjoint(firsts)
        if is_plain and chars.isalpha() and unspaced.all() == unspaced.any():
            return [self._entry(chars[0], chars[0], chars[0], firsts[0], pool)] * _PAGE
        kinds = zip(
            map(unicodedata.combining, chars),
            map(unicodedata.category, chars),
            map(str.isspace, chars),
            map(str.isalnum, chars),
            unspaced.tolist(),
            strict=True,
        )
        columns = zip(chars, composed.split(mark), folded.split(mark), firsts, kinds, strict=True)
        entries = []
        for char, whole, form, first, kind in columns:
            # "_" and " " are like no other character
            is_plain = page > 0 and char == whole == form and first not in seconds
            entry = self._plain_entries.get(kind) if is_plain else None
            if entry is None:
                entry = self._entry(char, whole, form, first, pool)
                if is_plain:
                    self._plain_entries[kind] = entry
            entries.append(entry)
        return entries

    def _entry(self, char: str, composed: str, folded: str, first: str, pool: bytearray) -> int:
        """Return the entry of a character.

        It is made of the character's composed form, of this in its case, and of the first character
        of its NFKD form.
        """
        if not composed:
            return _IGNORED
        # the neighbouring letters decide on the form of a sigma
        if self._form.case == "lower" and "\u03a3" in composed:
            return _UNKNOWN
        changes, combining = False, 0
        if self._form.normalize:
            changes, combining = composed != char, unicodedata.combining(char)
            if first in _second_characters() or (changes and unicodedata.combining(first)):
                return _UNKNOWN
        piece = folded.translate(_pieces(self._form))
        if not changes:
            if piece == char != " ":
                return _SAME | combining
            kinds = {f" {char} ": _UNIT, " ": _SPACE, "": _REMOVED}
            if piece in kinds:
                return kinds[piece] | combining
            if combining:
                return _UNKNOWN
        form = piece.encode("utf-8", "surrogatepass")
        if len(form) > _MAX_FORM_BYTES:
            return _UNKNOWN
        place = pool.find(form)
        if place < 0:
            place = len(pool)
            pool += form
        return _REPLACED | len(form) << _FORM_SHIFT | place


def _replace_sets(
    features: NDArray[Any], rows: Words, places: NDArray[np.intp], others: Any, other_rows: Words
) -> tuple[Any, Words]:
    """Return features of rows with those of others at some places; a row begins with its end."""
    ends, other_ends = rows[:, 0].astype(np.int64), other_rows[:, 0].astype(np.int64)
    pieces, done, other_done = [], 0, 0
    for place, other_end in zip(places.tolist(), other_ends.tolist(), strict=True):
        start = int(ends[place - 1]) if place else 0
        pieces += [features[done:start], others[other_done:other_end]]
        done, other_done = int(ends[place]), other_end
    sizes = np.diff(ends, prepend=0)
    sizes[places] = np.diff(other_ends, prepend=0)
    rows = rows.copy()
    rows[places] = other_rows
    rows[:, 0] = np.cumsum(sizes)
    return np.concatenate([*pieces, features[done:]]), rows


_STATE_KNOWN, _STATE_UNKNOWN = 0, 2


def _page_text(page: int) -> str:
    """Return the characters of a page, in order."""
    points = np.arange(page * _PAGE, (page + 1) * _PAGE, dtype="<u4")
    return points.tobytes().decode("utf-32-le", "surrogatepass")


@cache
def _second_characters() -> frozenset[str]:
    """Return the characters that may be composed with the character before them."""
    seconds = set()
    for chars in map(_page_text, range(_LAST_PAIR // _PAGE)):
        if not unicodedata.is_normalized("NFD", chars):
            pairs = filter(None, map(unicodedata.decomposition, chars))
            seconds |= {
                chr(int(pair.split()[1], 16))
                for pair in pairs
                if pair.count(" ") == 1 and pair[0] != "<"
            }
    return frozenset(seconds | set(map(chr, [*_HANGUL_VOWELS, *_HANGUL_TAILS])))


@cache
def char_map(form: NormalForm) -> CharMap:
    """Return the tables of a form, which are shared by its users in this process."""
    return CharMap(form)


clear_after_fork(char_map)  # a thread that is not in the child may have held a lock


def nfkc(text: str) -> str:
    """Return the NFKC form, in time proportional to the length.

    `unicodedata.normalize` sorts a run of combining marks in the square of its length: hours for a
    hostile text of a few megabytes. It is linear where the marks are already in order, so long runs
    are put in order first.
    """
    if has_long_run(text):
        text = _sorted_nfkd(text)
    return unicodedata.normalize("NFKC", text)


def nfkd(text: str) -> str:
    """Return the NFKD form, in time proportional to the length: see `nfkc`."""
    return _sorted_nfkd(text) if has_long_run(text) else unicodedata.normalize("NFKD", text)


def _replace_hyphen(match: re.Match[str]) -> str:
    """Return the replacement of a hyphen at the end of a line.

    It is empty between letters of which the second is no capital.
    """
    before = match.string[match.start() - 1 : match.start()]
    is_in_word = before.isalpha() or (before != "" and unicodedata.category(before)[0] == "M")
    return "" if is_in_word and match[1].isalpha() and not match[1].isupper() else match[0]


def _is_mark(char: str) -> bool:
    """Return whether a character, or its decomposition, takes part in canonical order."""
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) != 0


def has_long_run(text: str) -> bool:
    """Return whether there may be a run of `LONG_RUN` marks; never misses one."""
    return any(
        _is_mark(text[i]) and all(map(_is_mark, text[i + 1 : i + _SAMPLE]))
        for i in range(0, len(text), _SAMPLE_STEP)
    )


def _sorted_nfkd(text: str) -> str:
    """Return the NFKD form. Runs of marks are sorted by combining class."""
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
