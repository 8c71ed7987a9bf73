"""Changes that copies of texts meet on their way: pure functions of a text and a generator.

A change returns the text itself where it has nothing to act on: a text without numbers, a program
in which no line is a comment. `CHANGES` names all of them.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Callable
from functools import partial
from random import Random

Change = Callable[[str, Random], str]

# Han and kana have no spaces between words: each character is one.
_UNSPACED = "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(
    rf"[{_UNSPACED}\U00020000-\U0003ffff]|(?:(?![{_UNSPACED}\U00020000-\U0003ffff])\w)+"
)
_NUMBER = re.compile(r"\d+")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*|\n+")
_PUNCTUATION = re.compile(r"[^\w\s]+")
_COMMENT = re.compile(r"^[^\S\n]*(?:#|//|;;|--\s)[^\n]*\n?", re.MULTILINE)
_DOCSTRING = re.compile(
    r'^[^\S\n]*[rRuU]?("""|\'\'\')(?:(?!\1).)*?\1[^\S\n]*\n?', re.MULTILINE | re.DOTALL
)
_NAME = re.compile(r"\b[A-Za-z_][A-Za-z_]{3,}\b")
_LINE_CHARS = 64  # of a wrapped line
_TRUNCATED, _LOST_HEAD, _EXCERPT = 0.5, 0.2, 0.1  # shares of the words
_MIN_HALVED, _MIN_EXCERPT = 6, 500  # words of a text that is cut
_MIN_PARTS = 3  # paragraphs or sentences of a text whose parts move
_NOISE = 0.01  # of the characters
_MIN_HYPHENATED = 6  # letters of a word that is broken
_ADS_EVERY = 200  # words

_MENU = (
    *("Home", "News", "Products", "Support", "Downloads", "About us", "Contact", "Careers"),
    *("Log in", "Register", "Search", "Site map", "Help", "Privacy", "Terms of use", "Cookies"),
    *("Press", "Partners", "Blog", "Forum", "Documentation", "Pricing", "Community", "Events"),
    *("Archive", "Subscribe", "Follow us", "Share this page", "Print", "Back to top", "Previous"),
    *("Next", "Related articles", "Most read", "Language", "English", "Deutsch", "Accessibility"),
)
_FOOT = (
    "All rights reserved",
    "This site uses cookies to offer a better experience",
    "Sign up for our weekly letter and never miss an offer",
    "Reproduction in whole or in part without permission is prohibited",
    "Last change of this page",
)
_AD_OPENINGS = ("Save", "Today only: save", "Members save", "Order now and save", "This week: save")
_AD_GOODS = ("garden chairs", "winter tyres", "running shoes", "phone plans", "coffee machines")
_AD_ENDINGS = (
    "while stocks last, with free delivery to your door",
    "and get a second one for half of the price",
    "when you register before the end of the month",
    "in all of our shops and on the web",
)
_TYPOGRAPHIC = str.maketrans({"'": "\u2019", '"': "\u201d", "-": "\u2010", " ": "\u00a0"})
_LIGATURES = {"ffi": "\ufb03", "ffl": "\ufb04", "ff": "\ufb00", "fi": "\ufb01", "fl": "\ufb02"}
_FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_SOFT_HYPHEN = "\u00ad"


def _unchanged(text: str, rng: Random) -> str:
    return text


def _upper(text: str, rng: Random) -> str:
    return text.upper()


def _spaces(text: str, rng: Random) -> str:
    """Wrap the words of each paragraph anew, behind an indent."""
    indent = " " * rng.randint(1, 8)
    fill = partial(
        textwrap.fill, width=_LINE_CHARS, initial_indent=indent, subsequent_indent=indent
    )
    return "\n\n\n".join(
        fill(part, break_long_words=False, break_on_hyphens=False)
        for part in _PARAGRAPH.split(text)
    )


def _punctuation(text: str, rng: Random) -> str:
    return _PUNCTUATION.sub(" ", text)


def _unicode_forms(text: str, rng: Random) -> str:
    """Decompose letters, and use typographic quotes, dashes, spaces and ligatures."""
    text = unicodedata.normalize("NFD", text).translate(_TYPOGRAPHIC)
    for letters, ligature in _LIGATURES.items():
        text = text.replace(letters, ligature)
    return text


def _full_width(text: str, rng: Random) -> str:
    return text.translate(_FULL_WIDTH)


def _soft_hyphens(text: str, rng: Random) -> str:
    """Put an invisible hyphen into each long word."""
    return _hyphenated(text, rng, _SOFT_HYPHEN, 1)


def _hyphenation(text: str, rng: Random) -> str:
    """Break a word at each end of a line, as a page that was set in type does."""
    return _hyphenated(text, rng, "-\n", 10)


def _hyphenated(text: str, rng: Random, hyphen: str, every: int) -> str:
    """Put a hyphen into long words with as many words between them."""
    parts, done, wait = [], 0, 0
    for match in WORD.finditer(text):
        wait += 1
        if match.end() - match.start() >= _MIN_HYPHENATED and wait >= every:
            middle = (match.start() + match.end()) // 2
            parts += [text[done:middle], hyphen]
            done, wait = middle, 0
    return "".join([*parts, text[done:]])


def _accents(text: str, rng: Random) -> str:
    """Drop the accents of Latin letters."""
    out = []
    for char in text:
        base = unicodedata.normalize("NFD", char)
        out.append(base[0] if base[0].isascii() else char)
    return "".join(out)


def _mojibake(text: str, rng: Random) -> str:
    """Read UTF-8 as Windows-1252, in texts of mostly ASCII."""
    if sum(not char.isascii() for char in text) * 10 > len(text):
        return text
    return text.encode().decode("cp1252", "replace")


def _cut(text: str, first: float, last: float, min_words: int) -> str:
    """Keep the words between two shares of a text."""
    spans = [match.span() for match in WORD.finditer(text)]
    if len(spans) < min_words:
        return text
    words = spans[int(first * len(spans)) : max(int(last * len(spans)), 1)]
    return text[words[0][0] : words[-1][1]]


def _truncated(text: str, rng: Random) -> str:
    return _cut(text, 0, _TRUNCATED, _MIN_HALVED)


def _lost_head(text: str, rng: Random) -> str:
    return _cut(text, _LOST_HEAD, 1, _MIN_HALVED)


def _excerpt(text: str, rng: Random) -> str:
    """Keep a tenth of a long text, from anywhere in it."""
    start = rng.random() * (1 - _EXCERPT)
    return _cut(text, start, start + _EXCERPT, _MIN_EXCERPT)


def _parts(text: str) -> tuple[list[str], str]:
    """Return the paragraphs of a text, or the sentences of one with few, and what joins them."""
    paragraphs = [part for part in _PARAGRAPH.split(text) if part.strip()]
    if len(paragraphs) >= _MIN_PARTS:
        return paragraphs, "\n\n"
    sentences = [part for part in _SENTENCE.split(text) if part.strip()]
    return sentences, "\n"


def _dropped(text: str, rng: Random) -> str:
    """Leave out one paragraph or sentence in ten."""
    parts, joint = _parts(text)
    if len(parts) < _MIN_PARTS:
        return text
    gone = set(rng.sample(range(len(parts)), max(len(parts) // 10, 1)))
    return joint.join(part for place, part in enumerate(parts) if place not in gone)


def _order(text: str, rng: Random) -> str:
    """Shuffle paragraphs or sentences."""
    parts, joint = _parts(text)
    if len(parts) < _MIN_PARTS:
        return text
    return joint.join(rng.sample(parts, len(parts)))


def _repeated(text: str, rng: Random) -> str:
    """Put one paragraph or sentence twice."""
    parts, joint = _parts(text)
    if len(parts) < _MIN_PARTS:
        return text
    place = rng.randrange(len(parts))
    return joint.join([*parts[:place], parts[place], *parts[place:]])


def _navigation(text: str, rng: Random) -> str:
    """Put a menu before the text, and another one with the small print of a site behind it."""
    menu = rng.sample(_MENU, 22)
    foot = [*rng.sample(_FOOT, 2), f"Copyright {rng.randint(1996, 2026)}"]
    return "\n".join([*menu[:12], text, *menu[12:], *foot])


def _ads(text: str, rng: Random) -> str:
    """Put an advertisement into the middle of a text, and one more for each 200 words."""
    spans = [match.span() for match in WORD.finditer(text)]
    if len(spans) < 2:
        return text
    count = 1 + len(spans) // _ADS_EVERY
    places = sorted(spans[len(spans) * at // (count + 1)][0] for at in range(1, count + 1))
    parts, done = [], 0
    for place in places:
        offer = f"{rng.choice(_AD_OPENINGS)} {rng.randint(10, 70)}% on {rng.choice(_AD_GOODS)}"
        parts += [text[done:place], f"\n{offer} {rng.choice(_AD_ENDINGS)}!\n"]
        done = place
    return "".join([*parts, text[done:]])


def _notice(text: str, rng: Random) -> str:
    """Put a notice of copyright before the text."""
    owner = rng.choice(("the contributors", "Example Press Limited", "the editors of this archive"))
    notice = (
        f"Copyright (c) {rng.randint(1990, 2026)} by {owner}. You may copy and pass on this text\n"
        "in any form, as long as this notice stays with it and no fee is charged for it.\n"
        "It comes without any warranty, and no liability is accepted for its use."
    )
    return f"{notice}\n\n{text}"


def _markup(text: str, rng: Random) -> str:
    """Make HTML of the paragraphs."""
    parts = (f'<p class="text-{rng.randint(1, 9)}">{part}</p>' for part in _PARAGRAPH.split(text))
    return '<div id="content">\n' + "\n".join(parts) + "\n</div>"


def _quoted(text: str, rng: Random) -> str:
    """Quote each line, as an answer to a letter does."""
    return "\n".join(f"> {line}" for line in textwrap.wrap(text, _LINE_CHARS) or [text])


def _line_numbers(text: str, rng: Random) -> str:
    """Put a number before each line; a text of one long line is wrapped first."""
    lines = text.splitlines()
    if len(lines) < _MIN_PARTS:
        lines = textwrap.wrap(text, _LINE_CHARS)
    first = rng.randint(1, 200)
    return "\n".join(f"{number:5} {line}" for number, line in enumerate(lines, first))


def _noise(text: str, rng: Random) -> str:
    """Drop, double, swap or replace one character in a hundred, as typing and scanning do."""
    chars = list(text)
    places = [place for place, char in enumerate(chars) if char.isalnum()]
    if not places:
        return text
    for place in rng.sample(places, max(round(_NOISE * len(places)), 1)):
        kind = rng.randrange(4)
        if kind == 0:
            chars[place] = ""
        elif kind == 1:
            chars[place] *= 2
        elif kind == 2 and place:
            chars[place - 1], chars[place] = chars[place], chars[place - 1]
        else:
            chars[place] = text[rng.choice(places)]
    return "".join(chars)


def _words(share: float, text: str, rng: Random) -> str:
    """Replace a share of the words, at least one, by other words of the text."""
    spans = [match.span() for match in WORD.finditer(text)]
    pool = sorted({text[a:b] for a, b in spans})
    if len(pool) < 2:
        return text
    parts, done = [], 0
    for a, b in sorted(rng.sample(spans, max(round(share * len(spans)), 1))):
        word = rng.choice(pool)
        while word == text[a:b]:
            word = rng.choice(pool)
        parts += [text[done:a], word]
        done = b
    return "".join([*parts, text[done:]])


def _numbers(text: str, rng: Random) -> str:
    """Replace each number by another one of as many digits."""

    def other(match: re.Match[str]) -> str:
        digits = len(match[0])
        number = match[0]
        while number == match[0]:
            number = str(rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits))
        return number

    return _NUMBER.sub(other, text)


def _names(text: str, rng: Random) -> str:
    """Rename one name in twenty everywhere: words of letters with a capital or an underscore."""
    names = sorted({name for name in _NAME.findall(text) if not name.islower() or "_" in name})
    if not names:
        return text
    chosen = rng.sample(names, max(len(names) // 20, 1))
    others = {name: name[::-1].capitalize() for name in chosen}
    return _NAME.sub(lambda match: others.get(match[0], match[0]), text)


def _comments(text: str, rng: Random) -> str:
    """Remove the comments and docstrings of a program."""
    return _COMMENT.sub("", _DOCSTRING.sub("", text))


#: Each kind of change by its name.
CHANGES: dict[str, Change] = {
    "unchanged": _unchanged,
    "upper case": _upper,
    "spaces": _spaces,
    "punctuation removed": _punctuation,
    "Unicode forms": _unicode_forms,
    "full width": _full_width,
    "soft hyphens": _soft_hyphens,
    "accents dropped": _accents,
    "wrong encoding": _mojibake,
    "truncated to half": _truncated,
    "first fifth lost": _lost_head,
    "excerpt of a tenth": _excerpt,
    "parts dropped": _dropped,
    "order": _order,
    "part repeated": _repeated,
    "navigation": _navigation,
    "ads": _ads,
    "notice": _notice,
    "HTML": _markup,
    "quoted": _quoted,
    "line numbers": _line_numbers,
    "hyphenation": _hyphenation,
    "character noise": _noise,
    "1% of words": partial(_words, 0.01),
    "5% of words": partial(_words, 0.05),
    "10% of words": partial(_words, 0.1),
    "numbers": _numbers,
    "names": _names,
    "comments removed": _comments,
}
#: The kinds that act on programs alone.
CODE_ONLY = ("comments removed",)
