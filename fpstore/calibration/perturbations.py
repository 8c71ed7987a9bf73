"""Near-duplicates made from texts.

Typing errors, other words, other sentences, other numbers, boilerplate, and lost ends.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

from fpstore.base.characters import ENDS, LINE_END, is_blank
from fpstore.calibration.seeded import Draws
from fpstore.errors import InputError, show
from fpstore.hashing.normal import is_unspaced

# at most one in four words or sentences is changed: otherwise the copy would be another text
MOST_CHANGED = 4
_POOL_WORDS, _POOL_TEXTS, _POOL_CHARS = 4096, 256, 1 << 14  # of a text, for the pool
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_HAN_DIGITS = "\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d"
_NUMBER = re.compile(
    r"(?P<date>(?<!\d)\d{4}(?P<mark>[-/.])\d{2}(?P=mark)\d{2}(?!\d))|(?P<digits>[0-9]+)"
    rf"|\b(?P<month>{'|'.join(_MONTHS)})\b"
    rf"|(?P<han>[{_HAN_DIGITS}\u3007\u5341\u767e\u5343\u842c\u4e07]++)(?=[\u5e74\u6708\u65e5\u53f7\u865f\u4eba\u91cc])"
)
# Scripts without spaces. A word of Chinese or Japanese has two characters most often; one of the
# others, more.
_HAN_AND_KANA = (
    "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Thai, Lao, Tibetan, Burmese, Khmer
_OTHERS = "\u0e00-\u0e7f\u0e80-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
_WORD = re.compile(
    rf"[{_HAN_AND_KANA}]{{1,2}}|[{_OTHERS}]{{1,4}}|(?:(?![{_HAN_AND_KANA}{_OTHERS}])\w)+"
)
# A run of full stops is looked at once, from its beginning: texts have long ones.
_SENTENCE_END = re.compile(
    r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019\u00bb)\]]*+(?:\s++|\Z)"
    r"|[\u3002\uff01\uff1f\uff61]++[\u201d\u2019\u300d\u300f\uff09]*+\s*+"
    rf"|(?<![{ENDS}]){LINE_END}[^\S{ENDS}]*+{LINE_END}\s*+"
)
_LINE_END = re.compile(rf"{LINE_END}\s*+")
_FEWEST_SENTENCES = 3  # with fewer, each line is one: poems, programs, tables
_NO_WORD = re.compile(r"[^\w\s]")
_OTHER_PUNCTUATION = (",", ";", ":", "-", "\u2014", "\u3001", "\uff0c", "\uff1b", "")
_SPACES = re.compile(r"\s+")
_OTHER_SPACES = (" ", "  ", "\n", "\t", "\u00a0")

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
    """Return where the words are: runs of word characters.

    In scripts without spaces, two characters, or four of longer ones.
    """
    return [match.span() for match in _WORD.finditer(text)]


def sentences(text: str) -> list[Span]:
    """Return where the sentences with words are, each up to the next one.

    Of a text with few, the lines.
    """
    found = _between(text, _SENTENCE_END)
    return found if len(found) >= _FEWEST_SENTENCES else _between(text, _LINE_END)


def _between(text: str, end: re.Pattern[str]) -> list[Span]:
    bounds = [0, *(match.end() for match in end.finditer(text))]
    if bounds[-1] < len(text):
        bounds.append(len(text))
    return [(a, b) for a, b in pairwise(bounds) if _WORD.search(text, a, b)]


class _Case(NamedTuple):
    """A text to change, the amount, the random numbers, the other texts, and the place of the text among them."""

    text: str
    amount: float
    draws: Draws
    material: Material
    place: int

    def count(self, of: int) -> int:
        """Return how many of some things change: the amount, or a share, but at least one.

        0 if that would be too many.
        """
        if self.amount >= 1:
            return int(self.amount) if self.amount * MOST_CHANGED <= of else 0
        return max(1, round(self.amount * of)) if of else 0

    def chosen(self, spans: Sequence[Span], count: int) -> list[Span]:
        """Draw some of the places in the text."""
        return [spans[place] for place in self.draws.places(len(spans), count)]


def _spliced(text: str, pieces: Iterable[tuple[Span, str]]) -> str:
    """Return a text with other pieces at some places, which are ascending."""
    out, done = [], 0
    for (a, b), piece in pieces:
        out += [text[done:a], piece]
        done = b
    return "".join([*out, text[done:]])


def _typos(case: _Case) -> str:
    """Substitute, swap or drop characters."""
    chars = list(case.text)
    places = [place for place, char in enumerate(chars) if char.isalnum()]
    for chosen in case.draws.places(len(places), case.count(len(places))):
        place = places[chosen]
        kind, after = case.draws.below(3), place + 1
        if kind == 0:
            chars[place] = ""
        elif (
            kind == 1
            and after < len(chars)
            and chars[after].isalnum()
            and chars[after] != chars[place]
        ):
            chars[place], chars[after] = chars[after], chars[place]
        else:
            letters = (
                case.material.unspaced if is_unspaced(case.text[place]) else case.material.spaced
            )
            chars[place] = case.draws.pick_other(letters, chars[place]) or "x"
    return "".join(chars)


def _words(case: _Case) -> str:
    """Put other words of the corpus in the place of words."""
    spans = words(case.text)
    pieces = []
    for a, b in case.chosen(spans, case.count(len(spans))):
        word = case.text[a:b]
        found = case.draws.pick_other(case.material.words, word)
        pieces.append(((a, b), word[::-1] if found is None else found))
    return _spliced(case.text, pieces)


def _drop(case: _Case) -> str:
    """Leave out sentences."""
    spans = sentences(case.text)
    return _spliced(case.text, [(span, "") for span in case.chosen(spans, case.count(len(spans)))])


def _swap(case: _Case) -> str:
    """Exchange sentences with the following sentences."""
    spans = sentences(case.text)
    pairs = [(spans[i], spans[i + 1]) for i in range(0, len(spans) - 1, 2)]
    pieces = []
    for place in case.draws.places(len(pairs), case.count(len(pairs))):
        first, second = pairs[place]
        pieces += [(first, case.text[slice(*second)]), (second, case.text[slice(*first)])]
    return _spliced(case.text, pieces)


def _repeat(case: _Case) -> str:
    """Repeat sentences."""
    spans = sentences(case.text)
    return _spliced(
        case.text, [((b, b), case.text[a:b]) for a, b in case.chosen(spans, case.count(len(spans)))]
    )


def _numbers(case: _Case) -> str:
    """Put other numbers of as many digits, other dates and other months in the place of numbers."""
    found = list(_NUMBER.finditer(case.text))
    share = min(case.amount, 1.0)
    places = case.draws.places(len(found), max(1, round(share * len(found))) if found else 0)
    return _spliced(
        case.text,
        [(found[place].span(), _other_number(found[place], case.draws)) for place in places],
    )


def _other_number(match: re.Match[str], draws: Draws) -> str:
    old = match[0]
    if match["date"]:
        mark, year = match["mark"], 1900 + draws.below(150)
        return f"{year}{mark}{1 + draws.below(12):02}{mark}{1 + draws.below(28):02}"
    if match["month"]:
        return draws.pick_other(_MONTHS, old) or old
    digits = _HAN_DIGITS if match["han"] else "123456789"
    # The first digit differs, and is not zero.
    return (draws.pick_other(digits, old[0]) or digits[0]) + "".join(
        draws.pick(digits) for _ in old[1:]
    )


def _boilerplate(case: _Case) -> str:
    """Put the beginning of another text before the text, and the end of one behind it."""
    others = len(case.material.texts) - 1
    length = max(1, round(case.amount * len(case.text) / 2))
    if others < 1:
        return case.text
    head, foot = (
        case.material.texts[(case.place + 1 + case.draws.below(others)) % (others + 1)]
        for _ in range(2)
    )
    return f"{head[:length]}\n{case.text}\n{foot[-length:]}"


def _truncate(case: _Case) -> str:
    """Leave out the end."""
    return case.text[: len(case.text) - round(min(case.amount, 1.0) * len(case.text))]


def _case(case: _Case) -> str:
    """Write words in capitals, or without capitals."""
    spans = [(a, b) for a, b in words(case.text) if case.text[a:b].swapcase() != case.text[a:b]]
    pieces = []
    for a, b in case.chosen(spans, case.count(len(spans))):
        word = case.text[a:b]
        pieces.append(((a, b), word.upper() if word != word.upper() else word.lower()))
    return _spliced(case.text, pieces)


def _punctuation(case: _Case) -> str:
    """Put other punctuation in the place of some, or none."""
    # Vowel signs of many scripts are neither word characters nor punctuation.
    spans = [
        match.span()
        for match in _NO_WORD.finditer(case.text)
        if unicodedata.category(match[0])[0] in "PS"
    ]
    chosen = case.chosen(spans, case.count(len(spans)))
    return _spliced(
        case.text,
        [
            ((a, b), case.draws.pick_other(_OTHER_PUNCTUATION, case.text[a:b]) or "")
            for a, b in chosen
        ],
    )


def _spaces(case: _Case) -> str:
    """Put other white space in the place of some."""
    spans = [match.span() for match in _SPACES.finditer(case.text)]
    chosen = case.chosen(spans, case.count(len(spans)))
    return _spliced(
        case.text,
        [((a, b), case.draws.pick_other(_OTHER_SPACES, case.text[a:b]) or " ") for a, b in chosen],
    )


_KINDS: dict[str, Callable[[_Case], str]] = {
    "typos": _typos,
    "words": _words,
    "drop": _drop,
    "swap": _swap,
    "repeat": _repeat,
    "numbers": _numbers,
    "boilerplate": _boilerplate,
    "truncate": _truncate,
    "case": _case,
    "punctuation": _punctuation,
    "spaces": _spaces,
}
TEXT_CHANGES = tuple(_KINDS)
_SHARES = {"numbers", "boilerplate", "truncate"}  # an amount of 1 is all of the text, not one thing


class TextChange(NamedTuple):
    """A way to make a near-duplicate, one of :data:`TEXT_CHANGES`.

    From 1 on, the amount is the number of words, sentences or characters that change; below 1,
    their share. For ``numbers``, ``boilerplate`` and ``truncate`` it is always a share: of the
    numbers, of the length of the text.
    """

    kind: str
    amount: float

    @property
    def name(self) -> str:
        """The kind and the amount, for people."""
        share = self.amount < 1 or self.kind in _SHARES
        return (
            f"{self.kind} {100 * self.amount:.3g}%" if share else f"{self.kind} {int(self.amount)}"
        )

    def copy(self, material: Material, place: int, seed: int = 0) -> str | None:
        """Return a changed copy of the text at a place, for which other texts give words and boilerplate.

        None if it cannot be changed in this way: it has no numbers, or too few words or sentences.
        At most one in :data:`MOST_CHANGED` is changed, unless a share says so. The same seed gives
        the same copy on every machine.
        """
        text = material.texts[place]
        made = _KINDS[self.kind](
            _Case(
                text, self.amount, Draws(seed, self.kind, str(self.amount), place), material, place
            )
        )
        return made if made != text and not is_blank(made) else None


def kind_and_amount(text: str) -> tuple[str, float | None]:
    """Return the parts of a change, ``typos=0.01`` or its name, ``typos 1%``.

    None for no amount, -1 for a wrong one.
    """
    kind, *given = re.split("[= ]", text, maxsplit=1)
    if not given:
        return kind, None
    number = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(%?)", given[0])
    return kind, -1.0 if number is None else float(Decimal(number[1]) / (100 if number[2] else 1))


def parse_change(text: str) -> TextChange:
    """Return a change given as ``words=2`` or ``typos=0.01``, or by its name, ``typos 1%``.

    InputError says what is wrong.
    """
    kind, amount = kind_and_amount(text)
    if kind not in _KINDS:
        raise InputError(
            f"a change is one of {', '.join(TEXT_CHANGES)} with an amount, as words=2 or "
            f"typos=0.01: got {show(text)}",
            got=text,
        )
    if kind in _SHARES and not 0 < (amount or 0) <= 1:
        raise InputError(
            f"{kind} takes a share above 0 and up to 1, as {kind}=0.1: got {show(text)}", got=text
        )
    if amount is None or amount <= 0 or (amount > 1 and amount != int(amount)):
        raise InputError(
            f"{kind} takes a whole number, or a share below 1, as {kind}=2 or {kind}=0.01: got "
            f"{show(text)}",
            got=text,
        )
    return TextChange(kind, amount)


#: The changes of a calibration that names none.
CHANGES = tuple(
    map(
        parse_change,
        (
            "typos=0.01",
            "typos=0.03",
            "words=1",
            "words=2",
            "words=5",
            "drop=1",
            "swap=1",
            "repeat=1",
            "numbers=1",
            "boilerplate=0.1",
            "truncate=0.1",
            "case=0.1",
            "punctuation=0.2",
            "spaces=0.1",
        ),
    )
)
