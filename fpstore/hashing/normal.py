"""The normal form of a text, from which shingles are made; part of version 1 of `SimHash`."""

import re
import unicodedata
from functools import cache

# The characters beyond ASCII for which str.isspace() is true.
_SPACES = "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_SEPARATOR = re.compile(r"[^\x00-\x7f\w]")
_SAMPLE_STEP = 512
_SAMPLE = 16


@cache
def ascii_table(words: bool, casefold: bool) -> bytes:
    """Return the table for ``bytes.translate`` that finishes `prepare`: separators to spaces, case folded.

    It does not change bytes beyond ASCII, nor bytes that `prepare` has already folded, so texts may be joined before
    it is applied.
    """
    out = bytearray(range(256))
    for code in range(128):
        char = chr(code)
        is_separator = not (char.isalnum() or char == "_") if words else char.isspace()
        out[code] = ord(" " if is_separator else char.lower() if casefold else char)
    return bytes(out)


def prepare(text: str, words: bool, normalize: bool, casefold: bool) -> bytes:
    r"""Return the UTF-8 bytes of a text, normalized except for the steps left to `ascii_table` and the kernel.

    The whole normal form is: NFKC (if ``normalize``); ``str.casefold`` (if ``casefold``); a space for every character
    that is not a word character (``\w`` of `re`; with ``words``) or that is white space (``str.isspace``; without);
    one space for each run of spaces, and none at either end; UTF-8, in which a lone surrogate takes three bytes
    (``surrogatepass``). ASCII is its own NFKC, so such a text needs nothing here. The kernel handles the runs.
    """
    if text.isascii():
        return text.encode("ascii")
    if normalize:
        text = nfkc(text)
    if casefold:
        text = text.casefold()
    if words:
        text = _SEPARATOR.sub(" ", text)
    else:
        for space in _SPACES:
            text = text.replace(space, " ")
    return text.encode("utf-8", "surrogatepass")


def nfkc(text: str) -> str:
    """Return the NFKC form, in time proportional to the length.

    `unicodedata.normalize` sorts a run of combining marks in the square of its length: hours for a hostile
    text of a few megabytes. It is linear where the marks are already in order, so long runs are put in order
    first.
    """
    if _has_long_run(text):
        text = _nfkd(text)
    return unicodedata.normalize("NFKC", text)


def _is_mark(char: str) -> bool:
    """Return whether a character sorts in canonical order, or decomposes into characters that do."""
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) != 0


def _has_long_run(text: str) -> bool:
    """Return whether there may be a run of `_SAMPLE_STEP` + `_SAMPLE` marks; never misses one."""
    return any(_is_mark(text[i]) and all(map(_is_mark, text[i + 1 : i + _SAMPLE])) for i in range(0, len(text), _SAMPLE_STEP))


def _nfkd(text: str) -> str:
    """Return the NFKD form: characters decomposed, runs of marks stably sorted by combining class."""
    out: list[str] = []
    run: list[str] = []
    for char in text:
        for part in unicodedata.normalize("NFKD", char):
            if unicodedata.combining(part):
                run.append(part)
            else:
                out += sorted(run, key=unicodedata.combining)
                run.clear()
                out.append(part)
    out += sorted(run, key=unicodedata.combining)
    return "".join(out)
