"""Fingerprints of HTML pages, made of their main texts without menus, footers and advertisements."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpstore.base.arguments import check_choice, check_flag
from fpstore.base.characters import visible
from fpstore.errors import InputError, show
from fpstore.hashing.base import FeatureSets, Fingerprinter, Hashed
from fpstore.hashing.wrapper import Wrapper
from fpstore.io.packages import import_package

#: Packages that find the main text of a page: the first is the default, and finds more copies; the second is faster.
EXTRACTORS = ("trafilatura", "resiliparse")
_BEGINNINGS, _LOOKED_AT = ("<!doctype html", "<html"), 16
_LOGGERS = ("trafilatura", "htmldate")
_PURPOSE = "the main text of pages of HTML (html=True, --html)"

#: The least share of a page's letters without menus that its main text has; of one with less, the whole text counts. By
#: ``tools/page_texts``, it is 0.3 to 1 in nine tenths of pages of news, and up to 0.2 where the items of a list are lost.
LEAST_SHARE = 0.25
_ASIDE = (
    "nav",
    "header",
    "footer",
    "aside",
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "math",
    "button",
    "select",
    "textarea",
    "iframe",
    "object",
)
_ROLES = frozenset(
    ("navigation", "banner", "contentinfo", "complementary", "search", "menu", "menubar")
)
# A block is a menu if it has so many links, which have most of its letters, and few each: links in
# a text are of more words.
_BLOCKS = frozenset(
    (
        "ul",
        "ol",
        "dl",
        "table",
        "tbody",
        "tr",
        "td",
        "div",
        "section",
        "form",
        "p",
        "span",
        "center",
    )
)
_MENU_LINKS, _MENU_SHARE, _LINK_LETTERS = 3, 0.8, 16
# then half of the letters do
_MENU_NAMES = re.compile(r"(?:^|[\s_-])(?:nav|menu|sidebar|breadcrumb|footer)", re.IGNORECASE)
# What does not end reaches to the end of the page, so that each character is looked at once.
_TAGS = re.compile(
    r"<(script|style)\b.*?(?:</\1\s*+>|\Z)|<!--.*?(?:-->|\Z)|<[^>]*+>?", re.DOTALL | re.IGNORECASE
)
_WORD = re.compile(r"\w+")


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
    version: ClassVar[int] = 2

    fingerprinter: Fingerprinter[Any]
    extractor: str = EXTRACTORS[0]

    def __post_init__(self) -> None:
        own = self.fingerprinter
        if isinstance(own, Fingerprinter) and own.items == "rows":
            raise InputError(
                "html=True (--html) is for one column of pages, whose titles count too: name it "
                "alone",
                got=own,
            )
        if not isinstance(own, Fingerprinter) or own.items != "texts" or isinstance(own, MainText):
            raise InputError(
                f"fingerprinter must be one of texts, such as SimHash(), got {type(own).__name__}",
                got=own,
                argument="fingerprinter",
            )
        _extractor(check_choice(self.extractor, EXTRACTORS, "extractor"))

    @property
    def parameters(self) -> dict[str, Any]:
        """The description of the fingerprinter of the main texts, and the name of the extractor."""
        return {"fingerprinter": self.fingerprinter.describe(), "extractor": self.extractor}

    def lack(self, item: str) -> str:
        """Return the message."""
        return (
            f"the page {show(item)} has no main text, and so no fingerprint: leave it out "
            "(is_empty() finds such pages)"
        )

    def hashed(self, items: Sequence[str]) -> Hashed:
        """Return the fingerprints of some pages."""
        texts = page_texts(items, self.extractor)
        found = self.fingerprinter.hashed([page.text for page in texts])
        return found._replace(
            whole_pages=np.array([page.is_whole for page in texts], bool) & found.known
        )

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
            f"html={html!r}: the fingerprinter has the extractor {fingerprinter.extractor}: give "
            "one of both",
            got=html,
        )
    return fingerprinter


def extractor_of(html: bool | str) -> str | None:
    """Return the extractor that an argument ``html`` asks for.

    A flag, or the name of one of `EXTRACTORS`.
    """
    if isinstance(html, str):
        return check_choice(html, EXTRACTORS, "html")
    return EXTRACTORS[0] if check_flag(html, "html") else None


def are_pages(texts: Sequence[Any]) -> bool:
    """Return whether most of the first texts begin as pages of HTML do."""
    first = [text for text in texts[:_LOOKED_AT] if isinstance(text, str)]
    return sum(
        visible(text[:100]).lstrip().lower().startswith(_BEGINNINGS) for text in first
    ) * 2 > len(first)


class PageText(NamedTuple):
    """The title and the main text of a page, or the whole text, if the main text has too few of the page's letters."""

    text: str
    is_whole: bool


def main_texts(pages: Sequence[str], extractor: str = EXTRACTORS[0]) -> list[str]:
    """Return the texts of :func:`page_texts`."""
    return [page.text for page in page_texts(pages, extractor)]


def page_texts(
    pages: Sequence[str], extractor: str = EXTRACTORS[0], least_share: float = LEAST_SHARE
) -> list[PageText]:
    """Return what of each page is compared; an empty text for a page that has none."""
    extract = _extractor(extractor)
    return [_page_text(extract, page, least_share) for page in pages]


def whole_text(page: str) -> str:
    """Return the text of a page without tags, without elements that are beside its content, and without menus."""
    lxml_html, etree = import_package("lxml.html", _PURPOSE), import_package("lxml.etree", _PURPOSE)
    try:
        body = lxml_html.document_fromstring(page).find("body")
    except (ValueError, etree.LxmlError):  # a page that no parser understands
        return ""
    if body is None:
        return ""
    etree.strip_elements(body, *_ASIDE, etree.Comment, etree.ProcessingInstruction, with_tail=False)
    for element in body.xpath(".//*[@role]"):
        if element.get("role") in _ROLES and element.getparent() is not None:
            element.drop_tree()
    for menu in _menus(body):
        menu.drop_tree()
    return " ".join(" ".join(body.itertext()).split())


def _menus(body: Any) -> list[Any]:
    """Return the smallest blocks of links; what holds one is looked at without it."""
    # the letters, letters in links, and links of an element
    found, counts = [], dict[Any, tuple[int, int, int]]()
    for element in reversed(list(body.iter())):  # each comes behind the elements in it
        letters, linked, links = _letters(element.text or ""), 0, 0
        for child in element:
            inside = counts.pop(child)
            letters, linked, links = (
                letters + inside[0] + _letters(child.tail or ""),
                linked + inside[1],
                links + inside[2],
            )
        if element.tag == "a":
            linked, links = letters, 1
        is_menu = links >= _MENU_LINKS and _MENU_SHARE * letters <= linked <= _LINK_LETTERS * links
        if (is_menu and element.tag in _BLOCKS) or (
            0 < letters <= 2 * linked and _is_named_menu(element)
        ):
            found.append(element)
            letters = linked = links = 0
        counts[element] = letters, linked, links
    return found


def _is_named_menu(element: Any) -> bool:
    return element.tag != "a" and bool(
        _MENU_NAMES.search(f"{element.get('class', '')} {element.get('id', '')}")
    )


def _page_text(
    extract: Callable[[str], tuple[str, str]], page: str, least_share: float
) -> PageText:
    try:
        title, text = extract(page)
    except (ValueError, TypeError, RecursionError):  # a page that no parser understands
        title = text = ""
    # The letters between all tags are at least those of the whole text, and are counted in a tenth
    # of the time.
    if _letters(text) >= least_share * _letters(_TAGS.sub(" ", page)):
        return PageText(_titled(title, text), False)
    whole = whole_text(page)
    is_whole = _shared(text, whole) < least_share * _letters(whole)
    return PageText(_titled(title, whole if is_whole else text), is_whole)


def _titled(title: str, text: str) -> str:
    title, text = " ".join(visible(title).split()), visible(text).strip()
    return f"{title}\n{text}" if title and text and not text.startswith(title) else text


def _letters(text: str) -> int:
    return sum(map(len, text.split()))


def _shared(text: str, whole: str) -> int:
    """Return how many letters the words have that are in both texts."""
    words = Counter(_WORD.findall(text)) & Counter(_WORD.findall(whole))
    return sum(len(word) * count for word, count in words.items())


def _extractor(name: str) -> Callable[[str], tuple[str, str]]:
    """Return a function that finds the title and the main text of a page."""
    import_package("lxml.html", _PURPOSE)
    if name == "resiliparse":
        tree = import_package("resiliparse.parse.html", _PURPOSE).HTMLTree
        plain = import_package("resiliparse.extract.html2text", _PURPOSE).extract_plain_text

        def by_resiliparse(page: str) -> tuple[str, str]:
            parsed = tree.parse(page)
            return parsed.title or "", plain(
                parsed, main_content=True, alt_texts=False, list_bullets=False
            )

        return by_resiliparse
    import logging

    for logged in _LOGGERS:  # these loggers would write to standard error
        logger = logging.getLogger(logged)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    trafilatura = import_package("trafilatura", _PURPOSE)

    def by_trafilatura(page: str) -> tuple[str, str]:
        parsed = trafilatura.load_html(page)
        if parsed is None:
            return "", ""
        title = parsed.findtext(".//title") or ""  # read the title before the tree is pruned
        # Without the other algorithms that are tried for short texts: they take a third of the
        # time, and find no more copies.
        found = trafilatura.bare_extraction(
            parsed, with_metadata=False, include_comments=False, fast=True
        )
        return title, "" if found is None else found.text or ""

    return by_trafilatura
