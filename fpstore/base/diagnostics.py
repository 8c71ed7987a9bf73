"""The logger ``fpstore``. It is silent until the program that uses fpstore configures logging."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

# What the command line does with a message, as its user sees no log.
listener: Callable[[str], None] | None = None


@cache
def logger() -> logging.Logger:
    """Return the logger; the module ``logging`` is loaded on first use."""
    import logging

    found = logging.getLogger("fpstore")
    found.addHandler(logging.NullHandler())
    return found


def tell(message: str) -> None:
    """Report a fact about what is read to the log and to the listener."""
    logger().warning("%s", message)
    if listener is not None:
        listener(message)


def tell_left_out(path: str, reason: str = "a page is damaged: run fpstore repair") -> None:
    """Report that a filter is left out: probes are right without it."""
    tell(f"{path}: probes go on without this filter, and are slower: {reason}")
