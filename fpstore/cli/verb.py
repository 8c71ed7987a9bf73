"""Verbs: commands whose help ends with examples, and groups of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

EXAMPLE = "$ "
SHOWN_EXAMPLES, EXAMPLE_WIDTH = 3, 74  # of a help text; docs/cli.md has all
LINE_WIDTH = 80
_EXTRA = "Got unexpected extra argument"  # click has no exception of its own for it
_PATHS = {"A", "B", "DIR", "FILE", "FOLDER", "FP", "INPUT", "NEW", "OTHER", "OUTPUT", "PATH", "STORE"}  # what names a path


class _PathName(click.types.StringParamType):
    """A text that a shell completes as a path."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type="file")]


class _Shown(click.Command):
    """A command whose docstring has examples, lines that start with ``$``: the help ends with the first that fit a line.

    Attributes
    ----------
    examples : list of str
        All of them, without the ``$``.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(text for text in paragraphs if not text.startswith(EXAMPLE))
        self.examples = [line[len(EXAMPLE) :] for text in paragraphs for line in text.splitlines() if line.startswith(EXAMPLE)]
        for parameter in self.params:
            if (parameter.metavar or "").strip("[.]") in _PATHS and isinstance(parameter.type, click.types.StringParamType):
                parameter.type = _PathName()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the options."""
        shown = [line for line in self.examples if len(line) <= EXAMPLE_WIDTH][:SHOWN_EXAMPLES]
        if shown:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {EXAMPLE}{line}\n" for line in shown))


class Verb(_Shown):
    """A command that does something.

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


class VerbGroup(_Shown, click.Group):
    """A group, whose help lists the verbs by what they are for."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.sections: dict[str, list[str]] = {}

    def add_section(self, title: str, *verbs: click.Command) -> None:
        """Add verbs that are listed together."""
        for verb in verbs:
            self.add_command(verb)
        self.sections[title] = [verb.name or "" for verb in verbs]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs with their whole summaries."""
        width = max(map(len, self.commands))
        for title, names in (self.sections or {"Commands": list(self.commands)}).items():
            with formatter.section(title):
                summaries = ((name, self.commands[name].get_short_help_str(LINE_WIDTH)) for name in names)
                formatter.write_dl([(name.ljust(width), summary) for name, summary in summaries])
