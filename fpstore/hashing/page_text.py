"""Which text of an HTML page counts: the main text that a package finds, or the whole text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fpstore.base.arguments import check_choice, check_flag
from fpstore.base.characters import visible
from fpstore.io.packages import import_package

#: Packages that find the main text of a page: the first is the default, and finds more copies; the
#: second is faster.
EXTRACTORS = ("trafilatura", "resiliparse")
_BEGINNINGS = ("<!doctype html", "<html")
_TYPE_SAMPLE = 16  # texts that decide whether a column has pages
_LOGGERS = ("trafilatura", "htmldate")
_PURPOSE = "the main text of pages of HTML"

#: The least share of the letters of a page without menus that the main text must have. Below it,
#: the whole text counts. The share is 0.3 to 1 in nine tenths of pages of news, and up to 0.2 where
#: the items of a list are lost (``tools/page_texts``).
MIN_SHARE = 0.25
_SKIPPED_TAGS = (
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
_SKIPPED_ROLES = frozenset(
    ("navigation", "banner", "contentinfo", "complementary", "search", "menu", "menubar")
)
_MENU_TAGS = frozenset(
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
# A block is a menu if it has several links, with most of its letters, and with few letters each:
# links in a text have more words.
_MENU_LINKS, _MENU_SHARE, _LINK_LETTERS = 3, 0.8, 16
# A block with a class or an id of these is a menu if links have half of its letters.
_MENU_NAMES = re.compile(r"(?:^|[\s_-])(?:nav|menu|sidebar|breadcrumb|footer)", re.IGNORECASE)
# A tag without an end reaches to the end of the page, so that each character is read once.
TAGS = re.compile(
    r"<(script|style)\b.*?(?:</\1\s*+>|\Z)|<!--.*?(?:-->|\Z)|<[^>]*+>?", re.DOTALL | re.IGNORECASE
)
_WORD = re.compile(r"\w+")


def check_extractor(html: bool | str) -> str | None:
    """Return the extractor for ``html``: a flag, or one of `EXTRACTORS`. None for False."""
    if isinstance(html, str):
        return check_choice(html, EXTRACTORS, "html")
    return EXTRACTORS[0] if check_flag(html, "html") else None


def are_pages(texts: Sequence[Any]) -> bool:
    """Return whether most of the first texts begin as pages of HTML do."""
    sample = [text for text in texts[:_TYPE_SAMPLE] if isinstance(text, str)]
    pages = sum(visible(text[:100]).lstrip().lower().startswith(_BEGINNINGS) for text in sample)
    return pages * 2 > len(sample)


class PageText(NamedTuple):
    """The title of a page with its main text or, if that is too short, its whole text."""

    text: str
    is_whole: bool


def main_texts(pages: Sequence[str], extractor: str = EXTRACTORS[0]) -> list[str]:
    """Return the texts of `page_texts`."""
    return [page.text for page in page_texts(pages, extractor)]


def page_texts(
    pages: Sequence[str], extractor: str = EXTRACTORS[0], least_share: float = MIN_SHARE
) -> list[PageText]:
    """Return the text of each page that is compared; an empty text for a page without text."""
    extract = extractor_function(extractor)
    return [_page_text(extract, page, least_share) for page in pages]


def whole_text(page: str) -> str:
    """Return the text of a page without tags, menus, and elements such as ``nav``."""
    lxml_html, etree = import_package("lxml.html", _PURPOSE), import_package("lxml.etree", _PURPOSE)
    try:
        body = lxml_html.document_fromstring(page).find("body")
    except (ValueError, etree.LxmlError):  # a page that no parser understands
        return ""
    if body is None:
        return ""
    skipped = (*_SKIPPED_TAGS, etree.Comment, etree.ProcessingInstruction)
    etree.strip_elements(body, *skipped, with_tail=False)
    for element in body.xpath(".//*[@role]"):
        if element.get("role") in _SKIPPED_ROLES and element.getparent() is not None:
            element.drop_tree()
    for menu in _menus(body):
        menu.drop_tree()
    return " ".join(" ".join(body.itertext()).split())


def _menus(body: Any) -> list[Any]:
    """Return the smallest blocks of links. An element that holds a menu is judged without it."""
    menus = []
    # the letters, letters in links, and links of an element
    counts = dict[Any, tuple[int, int, int]]()
    for element in reversed(list(body.iter())):  # children come before their parent
        letters, linked, links = _letters(element.text or ""), 0, 0
        for child in element:
            child_letters, child_linked, child_links = counts.pop(child)
            letters += child_letters + _letters(child.tail or "")
            linked += child_linked
            links += child_links
        if element.tag == "a":
            linked, links = letters, 1
        is_menu = links >= _MENU_LINKS and _MENU_SHARE * letters <= linked <= _LINK_LETTERS * links
        if (is_menu and element.tag in _MENU_TAGS) or (
            0 < letters <= 2 * linked and _is_named_menu(element)
        ):
            menus.append(element)
            letters = linked = links = 0
        counts[element] = letters, linked, links
    return menus


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
    # The text between all tags has at least the letters of the whole text, and counting them takes
    # a tenth of the time.
    if _letters(text) >= least_share * _letters(TAGS.sub(" ", page)):
        return PageText(_add_title(title, text), False)
    whole = whole_text(page)
    is_whole = _count_shared_letters(text, whole) < least_share * _letters(whole)
    return PageText(_add_title(title, whole if is_whole else text), is_whole)


def _add_title(title: str, text: str) -> str:
    title, text = " ".join(visible(title).split()), visible(text).strip()
    return f"{title}\n{text}" if title and text and not text.startswith(title) else text


def _letters(text: str) -> int:
    return sum(map(len, text.split()))


def _count_shared_letters(text: str, whole: str) -> int:
    """Count the letters of the words that are in both texts."""
    words = Counter(_WORD.findall(text)) & Counter(_WORD.findall(whole))
    return sum(len(word) * count for word, count in words.items())


def extractor_function(name: str) -> Callable[[str], tuple[str, str]]:
    """Return the function from a page to its title and main text."""
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

    for logger_name in _LOGGERS:  # these loggers would write to standard error
        logger = logging.getLogger(logger_name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    trafilatura = import_package("trafilatura", _PURPOSE)

    def by_trafilatura(page: str) -> tuple[str, str]:
        parsed = trafilatura.load_html(page)
        if parsed is None:
            return "", ""
        title = parsed.findtext(".//title") or ""  # read the title before the tree is pruned
        # fast: the fallbacks for short texts take a third of the time, and find no more copies
        document = trafilatura.bare_extraction(
            parsed, with_metadata=False, include_comments=False, fast=True
        )
        return title, "" if document is None else document.text or ""

    return by_trafilatura
