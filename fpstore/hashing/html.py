"""Fingerprints of HTML pages, made of their main texts without menus and advertisements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpstore.base.arguments import check_choice
from fpstore.base.keywords import keyword
from fpstore.errors import InputError, show
from fpstore.hashing.base import FeatureSets, Fingerprinter, Hashed
from fpstore.hashing.page_text import (
    EXTRACTORS,
    check_extractor,
    extractor_function,
    main_texts,
    page_texts,
)
from fpstore.hashing.wrapper import Wrapper


@dataclass(frozen=True)
class MainText(Wrapper[str]):
    """Fingerprints of HTML pages.

    A fingerprinter of texts hashes the title and the main text of each page.

    Where the package keeps less than a quarter of a page's letters, as of lists, the text of the
    whole page counts instead: without tags, elements such as ``nav`` and ``footer``, and blocks of
    short links.

    A store that is built with it remembers that its texts are pages, and which package finds the
    main text. Readers of texts make it of their fingerprinter with ``html=True``, or with the name
    of the package. Another version of the package may find another main text.

    Parameters
    ----------
    fingerprinter : Fingerprinter
        One of texts, such as `SimHash`, which takes the title and the main text, on two lines.
    extractor : {"trafilatura", "resiliparse"}
        The package that finds the main text. resiliparse takes a fifth of the time, and leaves more
        of the menus in: ``docs/guides/texts.md`` has the figures.

    Raises
    ------
    InputError
        The fingerprinter is not one of texts, or is a `MainText` itself; or the extractor is
        unknown.
    MissingExtraError
        The package is not installed.

    Notes
    -----
    A. Barbaresi, *Trafilatura: A Web Scraping Library and Command-Line Tool for Text Discovery and
    Extraction*, ACL 2021 (System Demonstrations), section 3; J. Bevendorff et al., *Elastic
    ChatNoir: Search Engine for the ClueWeb and the Common Crawl*, ECIR 2018 (resiliparse).

    Examples
    --------
    >>> from fpstore.hashing import MainText, SimHash
    >>> story = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 10
    >>> page = "<html><body><nav>{}</nav><article><p>{}</p></article></body></html>"
    >>> fingerprinter = MainText(SimHash())
    >>> a = fingerprinter.fingerprint(page.format("Home", story))
    >>> a == fingerprinter.fingerprint(page.format("News and sports", story))
    True
    """

    name: ClassVar[str] = "main-text"
    version: ClassVar[int] = 2

    fingerprinter: Fingerprinter[Any]
    extractor: str = EXTRACTORS[0]

    def __post_init__(self) -> None:
        inner = self.fingerprinter
        if isinstance(inner, Fingerprinter) and inner.items == "rows":
            raise InputError(
                f"{keyword('html', True)} is for one column of pages, whose titles count too: "
                "name it alone",
                got=inner,
            )
        if (
            not isinstance(inner, Fingerprinter)
            or inner.items != "texts"
            or isinstance(inner, MainText)
        ):
            raise InputError(
                "fingerprinter must be one of texts, such as SimHash(), got "
                f"{type(inner).__name__}",
                got=inner,
                argument="fingerprinter",
            )
        extractor_function(check_choice(self.extractor, EXTRACTORS, "extractor"))

    @property
    def parameters(self) -> dict[str, Any]:
        """The description of the fingerprinter of the main texts, and the name of the extractor."""
        return {"fingerprinter": self.fingerprinter.describe(), "extractor": self.extractor}

    def empty_message(self, item: str) -> str:
        """Return the message that a page has no main text."""
        return (
            f"the page {show(item)} has no main text, and so no fingerprint: leave it out "
            "(is_empty() finds such pages)"
        )

    def hashed(self, items: Sequence[str]) -> Hashed:
        """Return the fingerprints of a batch of pages."""
        texts = page_texts(items, self.extractor)
        hashed = self.fingerprinter.hashed([page.text for page in texts])
        whole = np.array([page.is_whole for page in texts], bool)
        return hashed._replace(whole_pages=whole & hashed.known)

    def feature_sets(self, items: Sequence[str]) -> FeatureSets:
        """Return the features of a batch of pages as sets."""
        return self.fingerprinter.feature_sets(main_texts(items, self.extractor))

    def hashed_sets(self, items: Sequence[str], /, *, fingerprints: bool = False) -> Hashed:
        """Return the features of a batch of pages, with or without fingerprints."""
        texts = page_texts(items, self.extractor)
        hashed = self.fingerprinter.hashed_sets(
            [page.text for page in texts], fingerprints=fingerprints
        )
        whole = np.array([page.is_whole for page in texts], bool)
        return hashed._replace(whole_pages=whole & hashed.known)


def page_fingerprinter(fingerprinter: Fingerprinter[Any], html: bool | str) -> Fingerprinter[Any]:
    """Wrap a fingerprinter of texts in `MainText`, unless ``html`` is false or it is wrapped."""
    extractor = check_extractor(html)
    if extractor is None:
        return fingerprinter
    if not isinstance(fingerprinter, MainText):
        return MainText(fingerprinter, extractor)
    if html is not True and extractor != fingerprinter.extractor:
        raise InputError(
            f"html={html!r}: the fingerprinter has the extractor {fingerprinter.extractor}: give "
            "one of both",
            got=html,
        )
    return fingerprinter
