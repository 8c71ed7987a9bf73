"""Pages of HTML as sites have them, made by a seed.

Articles, lists, categories, products, missing pages and cookie walls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from itertools import pairwise
from typing import NamedTuple

CONSONANTS, VOWELS = "bdfghjklmnprstvwz", "aeiou"
MENU, ITEMS, TEASER = 40, 20, 14  # links of a menu, items of a list, words of an item
# what is before the items, an item of its number, name and text, and what is behind the items
LISTS = (
    ("", '<div class="item"><h3><a href="/{0}">{1}</a></h3><p>{2}</p></div>', ""),
    ('<ul class="list">', '<li><a href="/{0}">{1}</a> {2}</li>', "</ul>"),
    (
        '<div class="posts">',
        '<article class="teaser"><a href="/{0}"><h2>{1}</h2></a><p>{2}</p></article>',
        "</div>",
    ),
    ("<table>", '<tr><td><a href="/{0}">{1}</a></td><td>{2}</td></tr>', "</table>"),
)


class Sample(NamedTuple):
    """Pages of one kind, each with the number of the document that it shows.

    Pages of one document are copies.
    """

    kind: str
    pages: list[str]
    documents: list[int]


class Language:
    """Words of a made language.

    The word of rank r is as frequent as in texts that people write (Zipf's law).
    """

    def __init__(self, seed: int, count: int = 20_000) -> None:
        self.draws = random.Random(seed)
        syllables = [consonant + vowel for consonant in CONSONANTS for vowel in VOWELS]
        words = {
            "".join(self.draws.choices(syllables, k=self.draws.choice((1, 2, 2, 3, 3, 4)))): None
            for _ in range(2 * count)
        }
        self._words = list(words)[:count]
        self._weights = [1 / (rank + 3) for rank in range(len(self._words))]

    def words(self, count: int) -> list[str]:
        """Return words of a text."""
        return self.draws.choices(self._words, self._weights, k=count)

    def name(self, count: int) -> str:
        """Return words that are seldom, as in names."""
        return " ".join(self.draws.choices(self._words[200:], k=count)).title()

    def text(self, count: int) -> str:
        """Return sentences."""
        words = self.words(count)
        ends = [*range(0, count, 12), count]
        return " ".join(" ".join(words[a:b]).capitalize() + "." for a, b in pairwise(ends))

    def edited(self, text: str, share: float) -> str:
        """Return a text of which a share of the words became others."""
        words = text.split(" ")
        for place in self.draws.sample(range(len(words)), round(share * len(words))):
            words[place] = self.words(1)[0]
        return " ".join(words)


class Site:
    """The template of a site.

    A menu as a list in ``nav`` or a line in ``div``, links beside the content, and a footer.
    """

    def __init__(self, language: Language, number: int) -> None:
        self.name, self.number = language.name(2), number
        self._tags = (("nav", "footer", "aside"), ("div", "div", "div"))[number % 2]
        menu = [language.name(language.draws.choice((1, 1, 2))) for _ in range(MENU)]
        beside = [language.name(language.draws.choice((2, 3))) for _ in range(MENU // 4)]
        self._menu = (links if number % 2 == 0 else line_of_links)(menu)
        self._beside = links(beside)
        self._end = f"<p>{self.name} {language.text(30)}</p>{links(menu[:8])}"

    def page(self, title: str, content: str) -> str:
        """Return a page with some content."""
        top, bottom, side = self._tags
        return (
            f"<!DOCTYPE html><html><head><title>{escape(title)} | {self.name}</title></head><body>"
            f'<{top} class="menu">{self._menu}</{top}><div '
            f'id="content"><h1>{escape(title)}</h1>{content}</div>'
            f'<{side} class="side">{self._beside}</{side}><{bottom} '
            f'class="footer">{self._end}</{bottom}></body></html>'
        )


def link(name: str) -> str:
    return f"<a href=/{name.replace(' ', '-')}>{name}</a>"


def links(names: list[str]) -> str:
    """Return a list of links."""
    return f"<ul>{''.join(f'<li>{link(name)}</li>' for name in names)}</ul>"


def line_of_links(names: list[str]) -> str:
    """Return links with bars between them."""
    return f"<p>{' | '.join(map(link, names))}</p>"


def paragraphs(text: str, count: int = 4) -> str:
    """Return a text in paragraphs."""
    sentences = text.split(". ")
    size = max(1, len(sentences) // count)
    return "".join(
        f"<p>{'. '.join(sentences[place : place + size])}.</p>"
        for place in range(0, len(sentences), size)
    )


def copies_of_articles(language: Language, count: int, share: float = 0.0) -> Sample:
    """Return articles, each on two sites.

    The second one has other words in a share of the places.
    """
    sites = [Site(language, number) for number in range(8)]
    pages = []
    for number in range(count // 2):
        title, text = language.name(5), language.text(language.draws.randrange(150, 600))
        pages += [
            sites[number % 8].page(title, paragraphs(text)),
            sites[(number + 3) % 8].page(title, paragraphs(language.edited(text, share))),
        ]
    return Sample(
        "articles, each on two sites", pages, [number // 2 for number in range(len(pages))]
    )


def different(
    kind: str, of_site: Callable[[Language, Site], Iterator[str]]
) -> Callable[[Language, int], Sample]:
    """Return a function that makes pages of four sites, no two of which are copies."""

    def made(language: Language, count: int) -> Sample:
        sites = [Site(language, number) for number in range(4)]
        streams = [of_site(language, site) for site in sites]
        pages = [next(streams[number % 4]) for number in range(count)]
        return Sample(kind, pages, list(range(count)))

    return made


def _lists(language: Language, site: Site) -> Iterator[str]:
    before, item, after = LISTS[site.number % len(LISTS)]
    for number in range(1, 10_000):
        items = (
            item.format(place, language.name(4), language.text(TEASER)) for place in range(ITEMS)
        )
        pages = links([str(number + step) for step in range(1, 8)] + ["Older", "Newer"])
        yield site.page("News", before + "".join(items) + after + pages)


def _categories(language: Language, site: Site) -> Iterator[str]:
    while True:
        items = "".join(
            f'<li class="card"><a href="/p{item}">{language.name(3)}</a> '
            f"<span>{language.draws.randrange(5, 500)}.99</span></li>"
            for item in range(ITEMS)
        )
        yield site.page("Offers", f'<ul class="grid">{items}</ul>{links(["1", "2", "3", "Next"])}')


def _products(language: Language, site: Site, words: int = 60) -> Iterator[str]:
    shipping = language.text(120)
    while True:
        rows = "".join(
            f"<tr><th>{name}</th><td>{language.name(1)}</td></tr>"
            for name in ("Brand", "Colour", "Material", "Size")
        )
        content = (
            f"<p>{language.text(words)}</p><table>{rows}</table><h2>Shipping and "
            f"returns</h2>{paragraphs(shipping)}"
        )
        yield site.page(language.name(3), content)


def missing_pages(language: Language, count: int) -> Sample:
    """Return the pages that four sites have in place of pages that are missing."""
    sites = [(Site(language, number), language.text(25)) for number in range(4)]
    pages = []
    for number in range(count):
        site, text = sites[number % 4]
        pages.append(
            site.page(
                "Page not found", f"<p>Nothing is at /{language.words(1)[0]}/{number}. {text}</p>"
            )
        )
    return Sample("missing pages", pages, [number % 4 for number in range(count)])


def cookie_walls(language: Language, count: int) -> Sample:
    """Return walls before articles.

    One text of a provider, with the name of the site and of its partners.
    """
    text = language.text(110)
    pages = []
    for _ in range(count):
        name, partners = language.name(2), language.draws.randrange(20, 900)
        content = (
            f"<p>{name} and its {partners} partners: {text}</p><button>Accept "
            "all</button><button>Settings</button>"
        )
        pages.append(
            f"<html><head><title>{name}</title></head><body><div "
            f"class=wall><h2>{name}</h2>{content}</div></body></html>"
        )
    return Sample("cookie walls", pages, [0] * count)


lists = different("list pages", _lists)
categories = different("category pages", _categories)
products = different("products of one template", _products)
short_products = different(
    "products of one template, with 20 words of their own", partial(_products, words=20)
)


def turned_away(
    fingerprints: list[int | None], documents: list[int], radius: int
) -> tuple[int, int]:
    """Return how many pages a store turns away, each because of the nearest one before it.

    Copies, and others.
    """
    kept: list[int] = []
    right = wrong = 0
    for place, fingerprint in enumerate(fingerprints):
        if fingerprint is None:
            continue
        apart = [((fingerprint ^ (fingerprints[other] or 0)).bit_count(), other) for other in kept]
        distance, other = min(apart, default=(radius + 1, 0))
        if distance > radius:
            kept.append(place)
        elif documents[other] == documents[place]:
            right += 1
        else:
            wrong += 1
    return right, wrong
