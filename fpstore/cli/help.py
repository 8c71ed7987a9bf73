"""``fpstore help``."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from fpstore.cli.verb import Verb


def _group_of(ctx: click.Context) -> click.Group:
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    return group


def _names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _group_of(ctx).commands if name.startswith(incomplete)]


@click.command("help", cls=Verb)
@click.argument("words", metavar="[VERB]", nargs=-1, shell_complete=_names)
def help_(words: tuple[str, ...]) -> None:
    """Show the help of a verb, or the list of verbs.

    `fpstore VERB --help` shows the same. docs/cli.md has all verbs on one page.

    A shell completes verbs, options and paths after one command. Put it into the file that the shell reads when it starts:
    for bash, eval "$(_FPSTORE_COMPLETE=bash_source fpstore)"; for zsh, the same with zsh_source; for fish,
    _FPSTORE_COMPLETE=fish_source fpstore | source.

    $ fpstore help
    $ fpstore help build
    $ fpstore help hash text
    """
    ctx = click.get_current_context()
    shown = ctx.find_root()
    for word in words:
        command = shown.command.get_command(shown, word) if isinstance(shown.command, click.Group) else None
        if command is None:
            raise click.UsageError(f"No such command {word!r}", ctx)
        shown = click.Context(command, parent=shown, info_name=word)
    click.echo(shown.get_help())
