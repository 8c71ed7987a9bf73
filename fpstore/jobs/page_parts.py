"""The parts that pages are made of: sections, pictures with captions, tables that scroll, and the page around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fpstore.jobs.markup import Html, element, joined
from fpstore.jobs.report_style import STYLE

# Nothing is loaded and nothing runs, whatever is in an id or a text.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(title: str, parts: Iterable[Html]) -> str:
    """Return a page: one file of HTML that needs nothing else, no network and no script."""
    head = joined(
        [
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("title", title),
            element("style", Html(STYLE)),
        ]
    )
    body = element("main", *parts)
    return f"<!DOCTYPE html>\n{element('html', element('head', head), element('body', body), lang='en')}\n"


def boxes(facts: Iterable[tuple[str, str]]) -> Html:
    """Return facts in boxes: a name and a value each."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in facts))


def section(title: str, *parts: Html) -> Html:
    """Return a section with a heading."""
    return element("section", element("h2", title), *parts)


def paragraph(words: str) -> Html:
    """Return a paragraph."""
    return element("p", words)


def figure(picture: Html, caption: str, keys: Html | None = None) -> Html:
    """Return a picture with a caption above it, and what its colours stand for."""
    return element("figure", element("figcaption", caption, " " if keys else "", keys or Html()), picture)


def keys(main: str, other: str) -> Html:
    """Return the colours and what they stand for."""
    first, second = element("span", class_="key"), element("span", class_="key other")
    return joined([element("br"), first, main, " ", second, other])


def folded(inner: Html) -> Html:
    """Return a table that is shown when it is asked for."""
    return element("details", element("summary", "Numbers"), inner)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = ()) -> Html:
    """Return a table of numbers, in a box that scrolls; the first column, and those of ``left``, hold words."""
    words = {0, *left}
    kinds = [None if number in words else "number" for number in range(len(columns))]
    head = [element("th", name, scope="col", class_=kind) for name, kind in zip(columns, kinds, strict=True)]
    lines_of = [
        element(
            "tr",
            *(
                element("th", cell, scope="row") if number == 0 else element("td", cell, class_=kind)
                for number, (cell, kind) in enumerate(zip(row, kinds, strict=True))
            ),
        )
        for row in rows
    ]
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *lines_of))
    return element("div", whole, class_="scroll", tabindex=0, role="group", aria_label=f"Table: {columns[0]}")


def few(value: float) -> str:
    """Return a number that may be small, with as many digits as tell something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
