"""Where the words, the sentences and the numbers of a text are, in scripts with and without spaces between words."""

from __future__ import annotations

import re
from itertools import pairwise

# Scripts without spaces. A word of Chinese or Japanese has two characters most often; one of the others, more.
_HAN_AND_KANA = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_OTHERS = "\u0e00-\u0e7f\u0e80-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
_WORD = re.compile(rf"[{_HAN_AND_KANA}]{{1,2}}|[{_OTHERS}]{{1,4}}|(?:(?![{_HAN_AND_KANA}{_OTHERS}])\w)+")
# A run of full stops is looked at once, from its beginning: texts have long ones.
_SENTENCE_END = re.compile(
    r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019\u00bb)\]]*+(?:\s++|\Z)"
    r"|[\u3002\uff01\uff1f\uff61]++[\u201d\u2019\u300d\u300f\uff09]*+\s*+"
    r"|(?<!\n)\n[^\S\n]*+\n\s*+"
)
_LINE_END = re.compile(r"\n\s*+")
_FEWEST_SENTENCES = 3  # with fewer, each line is one: poems, programs, tables

Span = tuple[int, int]


def words(text: str) -> list[Span]:
    """Return where the words are: runs of word characters; in scripts without spaces, two characters, or four of longer ones."""
    return [match.span() for match in _WORD.finditer(text)]


def sentences(text: str) -> list[Span]:
    """Return where the sentences with words are, each up to the next one; of a text with few, the lines."""
    found = _between(text, _SENTENCE_END)
    return found if len(found) >= _FEWEST_SENTENCES else _between(text, _LINE_END)


def _between(text: str, end: re.Pattern[str]) -> list[Span]:
    bounds = [0, *(match.end() for match in end.finditer(text))]
    if bounds[-1] < len(text):
        bounds.append(len(text))
    return [(a, b) for a, b in pairwise(bounds) if _WORD.search(text, a, b)]
