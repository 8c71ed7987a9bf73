"""Changed copies of texts: typing errors, other words and numbers, lost parts, boilerplate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from fpstore.base.characters import ENDS, LINE_END, is_blank
from fpstore.calibration.changes import Change, ChangeKind
from fpstore.calibration.seeded import Draws
from fpstore.hashing.normal import is_unspaced

# at most one in four words or sentences is changed: otherwise the copy would be another text
CHANGED_DIVISOR = 4
_POOL_WORDS, _POOL_TEXTS, _POOL_CHARS = 4096, 256, 1 << 14  # of a text, for the pool
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_NUMBER = re.compile(r"[0-9]+")
# Scripts without spaces. A word of Chinese or Japanese has two characters most often; one of Thai,
# Lao, Tibetan, Burmese and Khmer, more.
_HAN_AND_KANA = (
    "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_OTHER_UNSPACED = "\u0e00-\u0e7f\u0e80-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
_WORD = re.compile(
    rf"[{_HAN_AND_KANA}]{{1,2}}|[{_OTHER_UNSPACED}]{{1,4}}|(?:(?![{_HAN_AND_KANA}{_OTHER_UNSPACED}])\w)+"
)
# A run of full stops is looked at once, from its beginning: texts have long ones.
_SENTENCE_END = re.compile(
    r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019\u00bb)\]]*+(?:\s++|\Z)"
    r"|[\u3002\uff01\uff1f\uff61]++[\u201d\u2019\u300d\u300f\uff09]*+\s*+"
    rf"|(?<![{ENDS}]){LINE_END}[^\S{ENDS}]*+{LINE_END}\s*+"
)
_LINE = re.compile(rf"{LINE_END}\s*+")
_MIN_SENTENCES = 3  # with fewer, each line is one: poems, programs, tables

Span = tuple[int, int]


class Material:
    """The parts of a sample of texts that changes use: words, characters, beginnings and ends."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        pool = [text[:_POOL_CHARS] for text in texts[:_POOL_TEXTS]]
        self.words = sorted({text[a:b] for text in pool for a, b in words(text)[:_POOL_WORDS]})
        letters = {char for word in self.words for char in word if char.isalpha()}
        self.unspaced = sorted(filter(is_unspaced, letters))
        self.spaced = sorted(letters - set(self.unspaced)) or list(_ALPHABET)


def words(text: str) -> list[Span]:
    """Return the spans of words: runs of word characters; two or four in scripts without spaces."""
    return [match.span() for match in _WORD.finditer(text)]


def sentences(text: str) -> list[Span]:
    """Return the spans of sentences with words, each up to the next one, or of lines.

    A text with few sentences has lines.
    """
    spans = _spans_between(text, _SENTENCE_END)
    return spans if len(spans) >= _MIN_SENTENCES else _spans_between(text, _LINE)


def _spans_between(text: str, end: re.Pattern[str]) -> list[Span]:
    bounds = [0, *(match.end() for match in end.finditer(text))]
    if bounds[-1] < len(text):
        bounds.append(len(text))
    return [(a, b) for a, b in pairwise(bounds) if _WORD.search(text, a, b)]


@dataclass(frozen=True)
class _Case:
    """A text to change, the amount, the random numbers, all texts, and its place among them."""

    text: str
    amount: float
    draws: Draws
    material: Material
    place: int

    def chosen(self, spans: Sequence[Span]) -> list[Span]:
        """Draw as many spans as the amount says, or a share of them, but at least one.

        Returns none if there would be too many.
        """
        count = max(1, round(self.amount * len(spans)))
        if self.amount >= 1:
            count = int(self.amount)
        if not spans or (self.amount >= 1 and count * CHANGED_DIVISOR > len(spans)):
            return []
        return [spans[place] for place in self.draws.places(len(spans), count)]


def _splice(text: str, pieces: Iterable[tuple[Span, str]]) -> str:
    """Return a text with other pieces at places that are ascending."""
    parts, done = [], 0
    for (a, b), piece in pieces:
        parts += [text[done:a], piece]
        done = b
    return "".join([*parts, text[done:]])


def _typos(case: _Case) -> str:
    """Substitute, exchange or drop characters."""
    chars = list(case.text)
    places = [(place, place + 1) for place, char in enumerate(chars) if char.isalnum()]
    for place, after in case.chosen(places):
        kind = case.draws.below(3)
        can_swap = after < len(chars) and chars[after].isalnum() and chars[after] != chars[place]
        if kind == 0:
            chars[place] = ""
        elif kind == 1 and can_swap:
            chars[place], chars[after] = chars[after], chars[place]
        else:
            is_han = is_unspaced(case.text[place])
            letters = case.material.unspaced if is_han else case.material.spaced
            chars[place] = case.draws.pick_other(letters, chars[place]) or "x"
    return "".join(chars)


def _words(case: _Case) -> str:
    """Put other words of the corpus in the place of words."""
    pieces = []
    for a, b in case.chosen(words(case.text)):
        word = case.text[a:b]
        other = case.draws.pick_other(case.material.words, word)
        pieces.append(((a, b), word[::-1] if other is None else other))
    return _splice(case.text, pieces)


def _drop(case: _Case) -> str:
    """Leave out sentences."""
    return _splice(case.text, [(span, "") for span in case.chosen(sentences(case.text))])


def _numbers(case: _Case) -> str:
    """Replace numbers by others with the same number of digits."""
    pieces = []
    for a, b in case.chosen([match.span() for match in _NUMBER.finditer(case.text)]):
        first = case.draws.pick_other("123456789", case.text[a]) or ""
        pieces.append(
            ((a, b), first + "".join(case.draws.pick("0123456789") for _ in range(a + 1, b)))
        )
    return _splice(case.text, pieces)


def _boilerplate(case: _Case) -> str:
    """Put the beginning of another text before the text, and the end of one behind it."""
    other_count = len(case.material.texts) - 1
    if other_count < 1:
        return case.text
    length = max(1, round(case.amount * len(case.text) / 2))
    head, foot = (
        case.material.texts[(case.place + 1 + case.draws.below(other_count)) % (other_count + 1)]
        for _ in range(2)
    )
    return f"{head[:length]}\n{case.text}\n{foot[-length:]}"


def _truncate(case: _Case) -> str:
    """Leave out the end."""
    return case.text[: len(case.text) - round(case.amount * len(case.text))]


_COUNTED = ("a whole number, or a share below 1", "2, or 0.01", 1e-9, 1e9, 1)
_SHARED = ("a share above 0 and up to 1", "0.1", 1e-9, 1.0)


class TextChange(Change):
    """A change of texts.

    From 1 on, the amount is the number of words, sentences or characters that change; below 1,
    their share. For ``numbers``, ``boilerplate`` and ``truncate`` it is always a share.
    """

    kinds: ClassVar = {
        "typos": ChangeKind(_typos, *_COUNTED),
        "words": ChangeKind(_words, *_COUNTED),
        "drop": ChangeKind(_drop, *_COUNTED),
        "numbers": ChangeKind(_numbers, *_SHARED),
        "boilerplate": ChangeKind(_boilerplate, *_SHARED),
        "truncate": ChangeKind(_truncate, *_SHARED),
    }
    usage = ("a change", " with an amount, as words=2 or typos=0.01")

    def copy(self, material: Material, place: int, seed: int = 0) -> str | None:
        """Return a changed copy of the text at a place; other texts give words and boilerplate.

        None if the text has no numbers, or too few words or sentences, for this change. The same
        seed gives the same copy on every machine.
        """
        text = material.texts[place]
        draws = Draws(seed, self.kind, str(self.amount), place)
        amount = self.amount
        if self.kind == "numbers":  # 1 is a share, too: all numbers
            amount = min(amount, 1 - 1e-9)
        changed = self.kinds[self.kind].make(_Case(text, amount, draws, material, place))
        return changed if changed != text and not is_blank(changed) else None


#: The changes of a calibration that names none.
CHANGES = (
    *("typos=0.01", "typos=0.03", "words=1", "words=5"),
    *("drop=1", "numbers=1", "boilerplate=0.1", "truncate=0.1"),
)
