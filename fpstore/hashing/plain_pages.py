"""Pages of HTML among plain texts: each page is compared by its text without tags."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html.entities import html5
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fpstore import _kernel
from fpstore.base.characters import IGNORED
from fpstore.base.strings import TextColumn
from fpstore.base.threads import clear_after_fork
from fpstore.errors import InputError
from fpstore.hashing.base import FeatureSets, Fingerprinter, Hashed
from fpstore.hashing.fields import text_chars
from fpstore.hashing.html import MainText
from fpstore.hashing.wrapper import Wrapper

AUTO = "auto"  # how pages are compared: by their texts without tags
_HEAD_CHARS = 1024
_HEAD_BYTES = 4 * _HEAD_CHARS
_SPACE = rf"[\s{IGNORED}]*"
# a declaration of XML and comments may come before the type
_BEGINNING = re.compile(
    rf"{_SPACE}(?:<\?xml[^>]*>{_SPACE})?(?:<!--.*?-->{_SPACE})*<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
_HEAD = re.compile(r"<html\b[^>]*>.*<body\b", re.IGNORECASE | re.DOTALL)
# A < that no letter, slash, ! or ? follows is a character of the text. A tag without an end reaches
# to the end of the page, so that each character is read once.
_TAG = re.compile(
    r"<(script|style)\b.*?(?:</\1\s*+>|\Z)|<!--.*?(?:-->|\Z)|<[a-z/!?][^>]*+>?",
    re.DOTALL | re.IGNORECASE,
)
# Eight digits that no zero begins are beyond the last character, as any more of them are; int()
# refuses thousands.
_NUMBER = re.compile(r"&#0*([0-9]{1,8})[0-9]*")


def is_page(text: str) -> bool:
    """Return whether a text looks like a page of HTML.

    It begins with ``<!doctype html`` or ``<html``, behind white space, ignored characters, comments
    and a declaration of XML; or its first 1,024 characters have the tags ``html`` and ``body``.
    """
    if "<" not in (head := text[:_HEAD_CHARS]):
        return False
    return _BEGINNING.match(head) is not None or _HEAD.search(head) is not None


def without_tags(page: str) -> str:
    """Return the text of a page without tags, scripts, styles and comments, entities resolved."""
    return html.unescape(_NUMBER.sub(r"&#\1", _TAG.sub(" ", page)))


@dataclass(frozen=True)
class PlainPages(Wrapper[Any]):
    """Passes texts to another fingerprinter, but of pages of HTML their texts without tags.

    Menus and footers stay, unlike with `MainText`, and no package is needed.

    Parameters
    ----------
    fingerprinter : Fingerprinter
        One of texts, or of rows of texts.

    Raises
    ------
    InputError
        The fingerprinter is not one of texts, or takes pages itself.

    Examples
    --------
    >>> from fpstore.hashing import SimHash
    >>> page = "<!DOCTYPE html><html><body><p>Salt &amp; pepper</p></body></html>"
    >>> PlainPages(SimHash()).fingerprint(page) == SimHash().fingerprint("Salt & pepper")
    True
    """

    name: ClassVar[str] = "plain-pages"
    version: ClassVar[int] = 1

    fingerprinter: Fingerprinter[Any]

    def __post_init__(self) -> None:
        inner = self.fingerprinter
        if (
            not isinstance(inner, Fingerprinter)
            or inner.items not in ("texts", "rows")
            or isinstance(inner, MainText | PlainPages)
        ):
            raise InputError(
                "fingerprinter must be one of texts, such as SimHash(), got "
                f"{type(inner).__name__}",
                got=inner,
                argument="fingerprinter",
            )

    @property
    def items(self) -> str:  # type: ignore[override]
        """What it takes: what `fingerprinter` takes."""
        return self.fingerprinter.items

    @property
    def parameters(self) -> dict[str, Any]:
        """The description of the fingerprinter of the texts."""
        return {"fingerprinter": self.fingerprinter.describe()}

    def batches(self, items: Iterable[Any], /) -> Iterator[Sequence[Any]]:
        """Cut items into batches as `fingerprinter` does."""
        return self.fingerprinter.batches(items)

    def empty_message(self, item: Any, /) -> str:
        """Return the message that an item has no fingerprint."""
        return self.fingerprinter.empty_message(item)

    def hashed(self, items: Sequence[Any]) -> Hashed:
        """Return the fingerprints of a batch of texts, and which are pages."""
        plain = PlainTexts.of(items)
        return plain.describe(self.fingerprinter.hashed(plain.texts))

    def feature_sets(self, items: Sequence[Any]) -> FeatureSets:
        """Return the features of a batch of texts as sets."""
        return self.fingerprinter.feature_sets(PlainTexts.of(items).texts)

    def hashed_sets(self, items: Sequence[Any], /, *, fingerprints: bool = False) -> Hashed:
        """Return the features of a batch of texts, with or without fingerprints."""
        plain = PlainTexts.of(items)
        return plain.describe(
            self.fingerprinter.hashed_sets(plain.texts, fingerprints=fingerprints)
        )


class PlainTexts(NamedTuple):
    """Texts, or rows of texts, with pages as plain texts.

    ``page_chars`` has the characters of each item with a page, by its place. Tags leave spaces, so
    a run of white space in it counts as one character.
    """

    texts: Sequence[Any]
    page_chars: dict[int, int]

    @classmethod
    def of(cls, items: Sequence[Any]) -> Self:
        page_chars = dict[int, int]()
        if isinstance(items, TextColumn):
            plain = dict[int, bytes]()
            for place in _kernel.page_candidates(*items.encoded, _HEAD_BYTES).tolist():
                if is_page(items.head(place, _HEAD_CHARS)):
                    start, end = items.encoded.bounds(place)
                    plain[place], page_chars[place] = _plain_page(items.encoded.data, start, end)
            return cls(items.replace(plain) if plain else items, page_chars)
        texts = list(items)
        for place, item in enumerate(items):
            if isinstance(item, str):
                if is_page(item):
                    texts[place] = without_tags(item)
                    page_chars[place] = _visible_chars(texts[place])
            elif isinstance(item, tuple) and any(text and is_page(text) for text in item):
                texts[place] = tuple(without_tags(t) if t and is_page(t) else t for t in item)
                page_chars[place] = sum(map(_visible_chars, filter(None, texts[place])))
        return cls(texts, page_chars)

    def describe(self, hashed: Hashed) -> Hashed:
        """Return fingerprints with the pages, and with the characters of the plain texts."""
        pages = np.zeros(len(self.texts), bool)
        places = list(self.page_chars)
        pages[places] = True
        hashed = hashed._replace(pages=pages & hashed.known)
        if not self.page_chars:
            return hashed
        chars = text_chars(self.texts)
        chars[places] = list(self.page_chars.values())
        return hashed._replace(text_chars=chars)


def _plain_page(data: bytes, start: int, end: int) -> tuple[bytes, int]:
    """Return the text of a page without tags, as `without_tags` does, and its characters."""
    found = _page_texts().plain(data, start, end)
    if found is None:
        text = without_tags(data[start:end].decode())
        return text.encode(), _visible_chars(text)
    return found


@cache
def _page_texts() -> _kernel.PageTexts:
    names, texts = zip(*html5.items(), strict=True)
    return _kernel.PageTexts([*map(str.encode, names)], [*map(str.encode, texts)])


clear_after_fork(_page_texts)


def _visible_chars(text: str) -> int:
    return len(" ".join(text.split()))
