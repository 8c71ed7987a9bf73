"""The logger ``fpstore``. It is silent until the program that uses fpstore configures logging."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

_LEFT_OUT = "%s: probes go on without this filter, and are slower: %s"
# What the command line does with a message, as its user sees no log.
left_out_listener: Callable[[str], None] | None = None
note_listener: Callable[[str], None] | None = None


@cache
def logger() -> logging.Logger:
    """Return the logger; the module ``logging`` is loaded on first use."""
    import logging

    found = logging.getLogger("fpstore")
    found.addHandler(logging.NullHandler())
    return found


def tell_left_out(path: str, reason: str = "a page is damaged: run fpstore repair") -> None:
    """Report to the log and to the listener that a filter is left out: probes are right without it."""
    logger().warning(_LEFT_OUT, path, reason)
    if left_out_listener is not None:
        left_out_listener(_LEFT_OUT % (path, reason))


def tell(message: str) -> None:
    """Report a fact about what is read to the log and to the listener."""
    logger().warning("%s", message)
    if note_listener is not None:
        note_listener(message)
