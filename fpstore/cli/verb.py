"""Verbs: commands whose help shows the example lines of the docstring unchanged."""

from __future__ import annotations

import inspect
from typing import Any

import click

EXAMPLE = "$ "


class Verb(click.Command):
    """A command; a paragraph of its docstring that starts with ``$`` is not wrapped."""

    failure = 1  # the exit code of an error

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = keep_lines(self.help)


class Search(Verb):
    """A command with the exit codes of grep: 0 if there is a match, 1 if there is none, 2 after an error."""

    failure = 2


class VerbGroup(click.Group):
    """A group, likewise."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = keep_lines(self.help)


def keep_lines(text: str | None) -> str | None:
    """Mark paragraphs of examples with click's marker for unwrapped text."""
    return None if text is None else inspect.cleandoc(text).replace(f"\n\n{EXAMPLE}", f"\n\n\b\n{EXAMPLE}")


def examples(text: str | None) -> list[str]:
    """Return the commands of the examples in a help text."""
    return [line.removeprefix(EXAMPLE) for line in (text or "").splitlines() if line.startswith(EXAMPLE)]
