"""Elements of a page in HTML: what is put into them is text, and is escaped, unless it was made here."""

from __future__ import annotations

import html
from collections.abc import Iterable

from fpstore.errors import one_line

VOID = {"meta", "br", "img"}
JOINERS = "\u200c\u200d\ufe0f"  # are not printable alone, but belong to words of many scripts


class Html(str):
    """A part of a page, which is not escaped again."""

    __slots__ = ()


def visible(text: str) -> str:
    r"""Return a text without what no page can hold or what changes the text around it: as ``\x07``, ``\u202e`` or ``\xff``."""
    if text.isprintable():
        return text
    return "".join(c if c in JOINERS else one_line(c) for c in text)


def escaped(text: str) -> Html:
    """Return a text as a part of a page, for any place in it."""
    return text if isinstance(text, Html) else Html(html.escape(visible(text), quote=True))


def element(name: str, /, *children: str, **attributes: str | int | None) -> Html:
    """Return an element.

    Parameters
    ----------
    name : str
    children : str
        Texts, and what this function returned.
    attributes : str, int or None
        ``class_`` is ``class``, and ``text_anchor`` is ``text-anchor``. None leaves one out.
    """
    given = {key.rstrip("_").replace("_", "-"): str(value) for key, value in attributes.items() if value is not None}
    opened = "".join([f"<{name}", *(f' {key}="{escaped(value)}"' for key, value in given.items()), ">"])
    return Html(opened if name in VOID else f"{opened}{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Return parts one after the other."""
    return Html("".join(map(escaped, parts)))
