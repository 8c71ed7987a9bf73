"""Fingerprints of HTML pages, made of their main texts without menus, footers and advertisements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fpstore.base.arguments import check_choice, check_flag
from fpstore.errors import InputError, show
from fpstore.hashing.base import FeatureSets, Fingerprinter, Hashed, Wrapper
from fpstore.io.packages import import_package

#: Packages that find the main text of a page: the first is the default, and finds more copies; the second is faster.
EXTRACTORS = ("trafilatura", "resiliparse")
_BEGINNINGS, _LOOKED_AT = ("<!doctype html", "<html"), 16
_LOGGERS = ("trafilatura", "htmldate")


@dataclass(frozen=True)
class MainText(Wrapper[str]):
    """Fingerprints of HTML pages: a fingerprinter of texts hashes the title and the main text of each page.

    A store that is built with it remembers that its texts are pages, and which package finds the main text. Readers of texts make
    it of their fingerprinter with ``html=True``, or with the name of the package. Another version of the package may find another
    main text.

    Parameters
    ----------
    fingerprinter : Fingerprinter
        One of texts, such as `SimHash`, which takes the title and the main text, on two lines.
    extractor : {"trafilatura", "resiliparse"}
        The package that finds the main text. resiliparse is about 13 times faster, and leaves more of the menus in:
        ``docs/texts.md`` has the figures.

    Raises
    ------
    InputError
        The fingerprinter is not one of texts, or is a `MainText` itself; or the extractor is unknown.
    MissingExtraError
        The package is not installed.

    Notes
    -----
    A. Barbaresi, *Trafilatura: A Web Scraping Library and Command-Line Tool for Text Discovery and Extraction*, ACL 2021
    (System Demonstrations), section 3; J. Bevendorff et al., *Elastic ChatNoir: Search Engine for the ClueWeb and the Common
    Crawl*, ECIR 2018 (resiliparse).

    Examples
    --------
    >>> from fpstore.hashing import MainText, SimHash
    >>> story = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 10
    >>> page = "<html><head><title>A fox</title></head><body><nav>{}</nav><article><p>{}</p></article></body></html>"
    >>> of_pages = MainText(SimHash())
    >>> of_pages.fingerprint(page.format("Home", story)) == of_pages.fingerprint(page.format("News and sports", story))
    True
    """

    name: ClassVar[str] = "main-text"
    version: ClassVar[int] = 1

    fingerprinter: Fingerprinter[Any]
    extractor: str = EXTRACTORS[0]

    def __post_init__(self) -> None:
        own = self.fingerprinter
        if isinstance(own, Fingerprinter) and own.items == "rows":
            raise InputError("html=True (--html) is for one column of pages, whose titles count too: name it alone", got=own)
        if not isinstance(own, Fingerprinter) or own.items != "texts" or isinstance(own, MainText):
            raise InputError(f"fingerprinter must be one of texts, such as SimHash(), got {type(own).__name__}", got=own)
        _extractor(check_choice(self.extractor, EXTRACTORS, "extractor"))

    @property
    def parameters(self) -> dict[str, Any]:
        """The description of the fingerprinter of the main texts, and the name of the extractor."""
        return {"fingerprinter": self.fingerprinter.describe(), "extractor": self.extractor}

    def lack(self, item: str) -> str:
        """Return the message."""
        return f"the page {show(item)} has no main text, and so no fingerprint: leave it out (is_empty() finds such pages)"

    def hashed(self, items: Sequence[str]) -> Hashed:
        """Return the fingerprints of some pages."""
        return self.fingerprinter.hashed(main_texts(items, self.extractor))

    def feature_sets(self, items: Sequence[str]) -> FeatureSets:
        """Return the features of some pages as sets."""
        return self.fingerprinter.feature_sets(main_texts(items, self.extractor))


def of_pages(fingerprinter: Fingerprinter[Any], html: bool | str) -> Fingerprinter[Any]:
    """Return a fingerprinter of pages of HTML if ``html`` says so, and otherwise the given fingerprinter of texts."""
    extractor = extractor_of(html)
    if extractor is None:
        return fingerprinter
    if not isinstance(fingerprinter, MainText):
        return MainText(fingerprinter, extractor)
    if html is not True and extractor != fingerprinter.extractor:
        raise InputError(
            f"html={html!r}: the fingerprinter has the extractor {fingerprinter.extractor}: give one of both", got=html
        )
    return fingerprinter


def extractor_of(html: bool | str) -> str | None:
    """Return the extractor that an argument ``html`` asks for: a flag, or the name of one of `EXTRACTORS`."""
    if isinstance(html, str):
        return check_choice(html, EXTRACTORS, "html")
    return EXTRACTORS[0] if check_flag(html, "html") else None


def are_pages(texts: Sequence[Any]) -> bool:
    """Return whether most of the first texts begin as pages of HTML do."""
    first = [text for text in texts[:_LOOKED_AT] if isinstance(text, str)]
    return sum(text[:100].lstrip("\ufeff \t\r\n").lower().startswith(_BEGINNINGS) for text in first) * 2 > len(first)


def main_texts(pages: Sequence[str], extractor: str = EXTRACTORS[0]) -> list[str]:
    """Return the title and the main text of each page; an empty text for a page that has no main text."""
    found = _extractor(extractor)
    return [_main_text(found, page) for page in pages]


def _main_text(extractor: Callable[[str], tuple[str, str]], page: str) -> str:
    try:
        title, text = extractor(page)
    except (ValueError, TypeError, RecursionError):  # a page that no parser understands
        return ""
    title, text = " ".join(title.split()), text.strip()
    return f"{title}\n{text}" if title and text and not text.startswith(title) else text


def _extractor(name: str) -> Callable[[str], tuple[str, str]]:
    """Return a function that finds the title and the main text of a page."""
    purpose = "the main text of pages of HTML (html=True, --html)"
    if name == "resiliparse":
        tree = import_package("resiliparse.parse.html", purpose).HTMLTree
        plain = import_package("resiliparse.extract.html2text", purpose).extract_plain_text

        def by_resiliparse(page: str) -> tuple[str, str]:
            parsed = tree.parse(page)
            return parsed.title or "", plain(parsed, main_content=True, alt_texts=False, list_bullets=False)

        return by_resiliparse
    import logging

    for logged in _LOGGERS:  # these loggers would write to standard error
        logger = logging.getLogger(logged)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    trafilatura = import_package("trafilatura", purpose)

    def by_trafilatura(page: str) -> tuple[str, str]:
        parsed = trafilatura.load_html(page)
        if parsed is None:
            return "", ""
        title = parsed.findtext(".//title") or ""  # read the title before the tree is pruned
        # Without the other algorithms that are tried for short texts: they take a third of the time, and find no more copies.
        found = trafilatura.bare_extraction(parsed, with_metadata=False, include_comments=False, fast=True)
        return title, "" if found is None else found.text or ""

    return by_trafilatura
