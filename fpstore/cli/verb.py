"""Verbs: commands whose help shows the example lines of the docstring unchanged."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import click

EXAMPLE = "$ "
_EXTRA = "Got unexpected extra argument"  # click has no exception of its own for it


class Verb(click.Command):
    """A command; a paragraph of its docstring that starts with ``$`` is not wrapped.

    Parameters
    ----------
    *args
        Those of click.
    guesses : dict of str to str, optional
        By names of options that this command does not have, and that users try: what they meant.
    **settings
        Those of click.
    """

    failure = 1  # the exit code of an error

    def __init__(self, *args: Any, guesses: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = keep_lines(self.help)
        self._guesses = guesses or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; an error of an obvious guess names the right form."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            meant = self._guesses.get(error.option_name)
            if meant is None:
                raise
            raise click.UsageError(f"No such option {error.option_name}: {meant}", ctx) from None
        except click.UsageError as error:
            if not names_output(self) or not error.message.startswith(_EXTRA):
                raise
            raise click.UsageError(f"{error.message}: --output names what to write", ctx) from None


def output_is(where: str) -> dict[str, str]:
    """Return the guesses of a command that names its output otherwise than with an option."""
    return dict.fromkeys(("-o", "--output"), where)


def names_output(command: click.Command) -> bool:
    """Return whether an option of a command names what it writes."""
    return any("--output" in parameter.opts for parameter in command.params)


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
