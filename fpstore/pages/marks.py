"""Marks of the words in which two texts differ, for the macro ``marked`` of ``parts.html``."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import NamedTuple

from fpstore.base.strings import CUT

COMPARED_WORDS = 2000  # of a text
# each character of a script without spaces, other runs up to white space, and white space
_ALONE = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_WORDS = re.compile(rf"[{_ALONE}]|[^\s{_ALONE}]+|\s+")
_MARKS = re.compile(r"\W+")


class Span(NamedTuple):
    """A part of a text; ``differs`` if the other text has other words there."""

    text: str
    differs: bool


def compare_words(text: str, kept_text: str) -> tuple[list[Span], list[Span]]:
    """Return two texts in spans that the other one has or lacks, by words.

    Case and punctuation do not count, as they do not in the rule. Of a long text, the first words
    are compared.
    """
    words, kept_words = (_WORDS.findall(each) for each in (text, kept_text))
    shown, kept_shown = words[: 2 * COMPARED_WORDS], kept_words[: 2 * COMPARED_WORDS]
    places, kept_places = (
        [place for place, word in enumerate(each) if _folded(word)] for each in (shown, kept_shown)
    )
    matcher = SequenceMatcher(
        None,
        [_folded(shown[place]) for place in places],
        [_folded(kept_shown[place]) for place in kept_places],
        autojunk=False,
    )
    differing, kept_differing = set[int](), set[int]()
    for tag, start, end, kept_start, kept_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        # where an excerpt ends, its text may go on as the other one does
        if end < len(places) or not kept_text.endswith(CUT):
            differing.update(places[start:end])
        if kept_end < len(kept_places) or not text.endswith(CUT):
            kept_differing.update(kept_places[kept_start:kept_end])
    cut, kept_cut = len(shown) < len(words), len(kept_shown) < len(kept_words)
    return _spans(shown, differing, cut), _spans(kept_shown, kept_differing, kept_cut)


def _folded(word: str) -> str:
    """Return a word without case and punctuation; nothing for white space."""
    return _MARKS.sub("", word.casefold())


def _spans(words: list[str], differing: set[int], is_cut: bool) -> list[Span]:
    """Join words that are equal, or that differ, with what is between them."""
    spans = list[Span]()
    last = -1  # the last word that differs
    for place, word in enumerate(words):
        if place in differing:
            if spans and spans[-1].differs:
                spans[-1] = Span(spans[-1].text + word, True)
            elif len(spans) > 1 and last >= 0 and not _folded("".join(words[last + 1 : place])):
                between = spans.pop().text
                spans[-1] = Span(spans[-1].text + between + word, True)
            else:
                spans.append(Span(word, True))
            last = place
        elif spans and not spans[-1].differs:
            spans[-1] = Span(spans[-1].text + word, False)
        else:
            spans.append(Span(word, False))
    return [*spans, Span(CUT, False)] if is_cut else spans
