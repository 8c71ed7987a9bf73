"""Tokenizers by name: packages that cut texts into words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from fpstore.io.packages import import_package

Tokenizer = Callable[[str], Iterable[Any]]

_LEVELS = 5
_KEYWORDS = 64


def _unicode() -> Tokenizer:
    """Words after Unicode Standard Annex 29, by the package regex."""
    regex = import_package("regex", "tokenizer='unicode'")
    pattern = regex.compile(r"\b\w.*?\b", regex.WORD | regex.DOTALL)
    found: Tokenizer = pattern.findall
    return found


def _jieba() -> Tokenizer:
    """Chinese keywords by TF-IDF, with weights of 1 to 5, by the package jieba."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba leaves a file open
        analyse = import_package("jieba.analyse", "tokenizer='jieba'")
    import_package("jieba", "tokenizer='jieba'").setLogLevel(logging.WARNING)  # jieba logs loading times

    def keywords(text: str) -> list[tuple[str, int]]:
        found = analyse.extract_tags(text, topK=_KEYWORDS, withWeight=True)
        most = max((weight for _, weight in found), default=1.0)
        return [(word, max(1, -int(-_LEVELS * weight // most))) for word, weight in found]

    return keywords


NAMED = {"jieba": _jieba, "unicode": _unicode}


@cache
def tokenizer_named(name: str) -> Tokenizer:
    """Return a tokenizer; MissingExtraError if its package is not installed."""
    return NAMED[name]()
