"""Traditional and simplified Chinese, which the package opencc converts into each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from fpstore.io.packages import import_package

CHINESE = ("keep", "simplified", "traditional")
_TABLES = {"simplified": "t2s", "traditional": "s2t"}
# Ideographs and their radicals and marks: the package sees nothing else, such as NUL characters
# and lone surrogates, which it does not take.
_IDEOGRAPHS = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)


@cache
def chinese_converter(form: str) -> Callable[[str], str]:
    """Return the function that converts a text; MissingExtraError without the package.

    ``form`` is "simplified" or "traditional". Traditional characters have one simplified form;
    where a simplified one has several traditional forms, the words around it decide.
    """
    package = import_package("opencc", f"chinese={form!r}")
    convert = package.OpenCC(_TABLES[form]).convert

    def converted(text: str) -> str:
        if text.isascii():
            return text
        return _IDEOGRAPHS.sub(lambda run: str(convert(run[0])), text)

    return converted
