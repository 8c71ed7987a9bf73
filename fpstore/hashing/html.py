"""The main text of HTML pages, without menus, footers and advertisements. trafilatura is imported when the first page is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fpstore.arguments import check_flag
from fpstore.errors import InputError
from fpstore.io.packages import import_package

_LOGGERS = ("trafilatura", "htmldate")


def check_html(html: bool, columns: object = None) -> bool:
    """Return the flag; an error if it is set and trafilatura is not installed, or if there are several columns of texts."""
    wanted = check_flag(html, "html")
    if wanted:
        if isinstance(columns, tuple):
            raise InputError("html=True (--html) is for one column of pages, whose titles count too: name it alone", got=columns)
        _trafilatura()
    return wanted


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
    return import_package("trafilatura", "html=True (--html)")
