"""What no reader sees in a text: characters that are ignored, white space, line ends."""

from __future__ import annotations

import re

#: Characters without which texts are compared, in a pattern: Unicode's Default_Ignorable_Code_Point
#: (soft hyphens, joiners, marks of direction, fillers, variation selectors, tags, and code points
#: that are reserved for more), and control characters that are not white space.
IGNORED = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
#: What ends a line, as characters of a pattern: the mandatory breaks of Unicode Standard Annex 14.
#: CR LF is one of them.
ENDS = r"\n\v\f\r\x85\u2028\u2029"
LINE_END = rf"(?>\r\n|[{ENDS}])"
#: What ends a paragraph: a paragraph separator, or lines without a visible character. White space
#: is as in ``str.isspace``, which includes Unicode's White_Space.
PARAGRAPH_END = rf"(?:{LINE_END}[\s{IGNORED}]*{LINE_END}|\u2029)"

_IGNORED = re.compile(f"[{IGNORED}]+")
_BLANK = re.compile(rf"[\s{IGNORED}]*")


def visible(text: str) -> str:
    """Return a text without the characters that are ignored."""
    return _IGNORED.sub("", text)


def is_blank(text: str) -> bool:
    """Return whether a text has nothing but white space and ignored characters."""
    return _BLANK.fullmatch(text) is not None
