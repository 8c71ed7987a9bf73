"""Pages in HTML: one file each, made of the templates here; jinja2 escapes all values."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpstore.base.resources import format_size
from fpstore.base.strings import CUT
from fpstore.errors import one_line, plural

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent / "templates"
LONG_ID = 160  # characters; of a longer one, both ends are shown
JOINERS = "\u200c\u200d\ufe0f"  # are not printable alone, but belong to words of many scripts


def render(template: str, **values: Any) -> str:
    """Return a page, which needs no network."""
    return _templates().get_template(template).render(values) + "\n"


def page_script(name: str) -> dict[str, Any]:
    """Return a script of the templates as ``script``, and its hash for the policy of the page."""
    script = (_FOLDER / name).read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"script": script, "script_hash": f"sha256-{digest}"}


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "cleaned": replace_controls,
        "counted": plural,
        "percent": "{:.1%}".format,
        "shortened": shorten_id,
        "sized": format_size,
        "thousands": "{:,}".format,
    }
    return environment


def visible(value: Any) -> Any:
    r"""Return a text with escapes such as ``\x07`` for characters that spoil a page.

    No page can hold them, or they change the text around them. A value that is not a text, or is a
    part of a page, is returned as it is.
    """
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isprintable():
        return value
    return "".join(c if c in JOINERS else one_line(c) for c in value)


def shorten_id(name: str) -> str:
    """Return an id, without the middle of a very long one."""
    half = LONG_ID // 2
    return name if len(name) <= LONG_ID else f"{name[:half]}{CUT}{name[-half:]}"


def replace_controls(text: str) -> str:
    """Return a text with U+FFFD for controls, which a text holds by accident."""
    return "".join(c if c.isprintable() or c in JOINERS else "\ufffd" for c in text)
