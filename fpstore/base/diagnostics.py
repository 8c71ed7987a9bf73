"""The logger ``fpstore``, silent until a program configures logging, and notices to users."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

# set while a verb of the command line runs, whose user sees no log
on_notice: Callable[[str], None] | None = None


@cache
def logger() -> logging.Logger:
    """Return the logger; the module ``logging`` is loaded on first use."""
    import logging

    fpstore_logger = logging.getLogger("fpstore")
    fpstore_logger.addHandler(logging.NullHandler())
    return fpstore_logger


def notify(message: str) -> None:
    """Report a fact about an input or a store as a whole; readers report rows themselves."""
    logger().warning("%s", message)
    if on_notice is not None:
        on_notice(message)


def notify_unused_filter(path: str, reason: str = "a page is damaged: run fpstore repair") -> None:
    """Report a filter that probes do without: their results are right, too."""
    notify(f"{path}: probes go on without this filter, and are slower: {reason}")
