"""Fingerprints of HTML pages: those of their main texts, without menus, footers and advertisements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fpstore.arguments import check_flag
from fpstore.errors import InputError, show
from fpstore.hashing.base import Fingerprinter, Hashed
from fpstore.hashing.batches import batches_of_texts
from fpstore.io.packages import import_package

_LOGGERS = ("trafilatura", "htmldate")


@dataclass(frozen=True)
class MainText(Fingerprinter[str]):
    """Fingerprints of HTML pages: of each, a fingerprinter of texts takes the title and the main text.

    A store that is built with it remembers that its texts are pages. Readers of texts make it of their fingerprinter with
    ``html=True``. The package trafilatura finds the main text; another version of it may find another one.

    Parameters
    ----------
    fingerprinter : Fingerprinter
        One of texts, such as `SimHash`, which takes the title and the main text, on two lines.

    Raises
    ------
    InputError
        The fingerprinter is not one of texts, or is a `MainText` itself.
    MissingExtraError
        trafilatura is not installed.

    Notes
    -----
    A. Barbaresi, *Trafilatura: A Web Scraping Library and Command-Line Tool for Text Discovery and Extraction*, ACL 2021
    (System Demonstrations), section 3.

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

    def __post_init__(self) -> None:
        own = self.fingerprinter
        if isinstance(own, Fingerprinter) and own.items == "rows":
            raise InputError("html=True (--html) is for one column of pages, whose titles count too: name it alone", got=own)
        if not isinstance(own, Fingerprinter) or own.items != "texts" or isinstance(own, MainText):
            raise InputError(f"fingerprinter must be one of texts, such as SimHash(), got {type(own).__name__}", got=own)
        _trafilatura()

    @property
    def width(self) -> int:
        """Bits of a fingerprint."""
        return self.fingerprinter.width

    @property
    def parameters(self) -> dict[str, Any]:
        """The description of the fingerprinter of the main texts."""
        return {"fingerprinter": self.fingerprinter.describe()}

    def lack(self, item: str) -> str:
        """Say that a page has no main text."""
        return f"the page {show(item)} has no main text, and so no fingerprint: leave it out (is_empty() finds such pages)"

    def hashed(self, items: Sequence[str]) -> Hashed:
        """Return the fingerprints of some pages."""
        return self.fingerprinter.hashed(main_texts(items))

    def batches(self, items: Iterable[str]) -> Iterator[Sequence[str]]:
        """Cut pages into batches of about a million characters."""
        return batches_of_texts(items)


def of_pages(fingerprinter: Fingerprinter[Any], html: bool) -> Fingerprinter[Any]:
    """Return the fingerprinter of texts that are pages of HTML if the flag is set, and otherwise the one given."""
    return MainText(fingerprinter) if check_flag(html, "html") and not isinstance(fingerprinter, MainText) else fingerprinter


def main_texts(pages: Sequence[str]) -> list[str]:
    """Return the title and the main text of each page; an empty text for a page that has no main text."""
    trafilatura = _trafilatura()
    return [_main_text(trafilatura, page) for page in pages]


def _main_text(trafilatura: Any, page: str) -> str:
    try:
        tree = trafilatura.load_html(page)
        if tree is None:
            return ""
        title = " ".join((tree.findtext(".//title") or "").split())
        found = trafilatura.bare_extraction(tree, with_metadata=False, include_comments=False)
    except (ValueError, TypeError, RecursionError):  # what no parser understands
        return ""
    text = "" if found is None else (found.text or "").strip()
    return f"{title}\n{text}" if title and text and not text.startswith(title) else text


def _trafilatura() -> Any:
    import logging

    for name in _LOGGERS:  # which would write to standard error where nobody has asked for it
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    return import_package("trafilatura", "the main text of pages of HTML (html=True, --html)")
