"""Verbs: commands whose help ends with examples, and the command line that a verb gets."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from fpstore.base import diagnostics, keywords
from fpstore.base.arguments import printable
from fpstore.base.resources import Resources, make_resources
from fpstore.cli.output import Bars, print_error, print_json
from fpstore.errors import InputError, StoreExistsError
from fpstore.format.manifest import is_index

EXAMPLE = "$ "
SHOWN_EXAMPLES, EXAMPLE_WIDTH = 3, 74  # of a help text; the reference has all
LINE_WIDTH = 80
WORDS = "words"  # of the metadata of a context: the command line
_EXTRA = "Got unexpected extra argument"  # click has no exception of its own for it

Decorator = Callable[[Any], Any]


def fail(message: str) -> NoReturn:
    raise click.UsageError(message, click.get_current_context())


def option_name(name: str) -> str:
    """Return the option of the running verb that sets a parameter, or an empty string."""
    params = click.get_current_context().command.params
    options = {param.name: param.opts[-1] for param in params}
    return options.get(f"{name}_field") or options.get(name, "")


@contextmanager
def translate_usage_errors() -> Iterator[None]:
    """Report refusals of the library inside the block as usage errors."""
    try:
        yield
    except InputError as error:
        fail(refusal(error, option_name(error.argument or "")))


def refusal(error: InputError, option: str) -> str:
    """Return the message of an error, with the option in place of its argument."""
    message = str(error)
    if not option:
        return message
    return f"{option}: {message.removeprefix(error.argument or '').lstrip()}"


def _keywords(params: list[click.Parameter]) -> dict[str, str]:
    """Return the options of a verb by the keywords of the library that they set."""
    options = {}
    for param in params:
        if isinstance(param, click.Option) and param.name:
            name, text = param.name.removesuffix("_field"), param.opts[-1]
            if param.is_flag:
                options[f"{name}=True"] = text
                options |= {f"{name}=False": off for off in param.secondary_opts}
            else:
                options[name] = text
    return options


class Arguments(SimpleNamespace):
    """The values of the arguments and options of a verb, by name."""

    def is_given(self, name: str) -> bool:
        """Return whether a parameter is on the command line, even with its default value."""
        return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE

    def refuse(self, reason: str, *names: str) -> None:
        """Raise a usage error for the first of these options on the command line."""
        for param in click.get_current_context().command.params:
            if param.name in names and self.is_given(param.name):
                fail(f"{param.opts[-1]} {reason}")

    def refuse_others(self, reason: str, *allowed: str) -> None:
        """Raise a usage error for the first option on the command line that is not allowed."""
        params = click.get_current_context().command.params
        names = [str(param.name) for param in params if isinstance(param, click.Option)]
        self.refuse(reason, *(name for name in names if name not in allowed))

    def note(self, message: str) -> None:
        """Write a message to standard error, unless quiet."""
        if not getattr(self, "quiet", False):
            print_error(message)

    def with_time(self, path: str, line: str) -> str:
        """Return a line about a store, with its path and the time since the command began."""
        return f"{printable(path)}: {line}, {time.monotonic() - self.began:.1f} s"

    def result(self, record: Any, line: str | None = None) -> None:
        """Print the record with --json, else the line, unless quiet."""
        if self.as_json:
            print_json(record)
        elif line is not None and not self.quiet:
            click.echo(line)

    def typed_options(self, *names: str) -> list[str]:
        """Return the options on the command line that set some parameters, as they were typed."""
        context, words = click.get_current_context(), list[str]()
        typed, _, _ = context.command.make_parser(context).parse_args([*context.meta[WORDS]])
        for param in context.command.params:
            if param.name not in names or not self.is_given(param.name):
                continue
            value = typed[param.name]
            if isinstance(param, click.Option) and param.is_flag:
                words += [param.opts[-1] if value else param.secondary_opts[-1]]
            else:
                values = value if param.multiple else [value]
                words += [word for value in values for word in (param.opts[-1], value)]
        return words

    def bars(self, source: Any = None) -> Bars:
        return Bars(not (self.quiet or self.no_progress), source)

    def resources(self, bars: Bars) -> Resources:
        return make_resources(getattr(self, "memory", None), self.threads, bars)

    def check_new(self, output: str) -> None:
        """Refuse a file that exists and that only --force replaces."""
        if output != "-" and Path(output).is_file() and not self.overwrite:
            raise StoreExistsError(f"{printable(output)} exists: --force replaces it", path=output)


class Verb(click.Command):
    """A command whose docstring has examples: lines that start with ``$``.

    The help ends with the first short ones. ``guesses`` are options that it lacks and that users
    try, with advice. ``failure`` is the exit code of an error.
    """

    def __init__(
        self,
        *args: Any,
        guesses: Mapping[str, str] | None = None,
        failure: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._guesses = guesses or {}
        self.failure = failure
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(text for text in paragraphs if not text.startswith(EXAMPLE))
        self.examples = [
            " ".join(line[len(EXAMPLE) :].split())
            for text in paragraphs
            for line in text.splitlines()
            if line.startswith(EXAMPLE)
        ]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [line for line in self.examples if len(line) <= EXAMPLE_WIDTH][:SHOWN_EXAMPLES]
        with formatter.section("Examples"):
            formatter.write("".join(f"  {EXAMPLE}{line}\n" for line in shown))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; an error about an obvious guess names the right form."""
        ctx.meta[WORDS] = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            meant = self._guesses.get(error.option_name)
            if meant is None:
                raise
            raise click.UsageError(f"No such option {error.option_name}: {meant}", ctx) from None
        except click.UsageError as error:
            if not has_output_option(self) or not error.message.startswith(_EXTRA):
                raise
            raise click.UsageError(f"{error.message}: --output names what to write", ctx) from None


class Verbs(Verb, click.Group):
    """A group of verbs, in sections by purpose; only the module of the verb that runs is imported.

    ``modules`` has for each section the verbs, with their modules in `fpstore.cli`.
    """

    modules: Mapping[str, Mapping[str, str]]

    def __init__(
        self, *args: Any, modules: Mapping[str, Mapping[str, str]] | None = None, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        if modules is not None:
            self.modules = modules
        self._modules = {
            name: module for verbs in self.modules.values() for name, module in verbs.items()
        }

    @property
    def sections(self) -> dict[str, list[str]]:
        return {title: list(verbs) for title, verbs in self.modules.items()}

    def verbs(self) -> dict[str, Verb]:
        return {name: self.get_command(None, name) for name in self._modules}  # type: ignore[misc]

    def all_verbs(self) -> dict[str, Verb]:
        """Return all verbs by their full names, also of groups."""
        verbs: dict[str, Verb] = {}
        for name, command in self.verbs().items():
            verbs[name] = command
            if isinstance(command, Verbs):
                verbs |= {f"{name} {inner}": verb for inner, verb in command.all_verbs().items()}
        return verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> Verb | None:
        if cmd_name not in self._modules:
            return None
        module = import_module(f"fpstore.cli.{self._modules[cmd_name]}")
        command: Verb = getattr(module, f"{cmd_name}_", None) or getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        verbs, width = self.verbs(), max(map(len, self._modules))
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), verbs[name].get_short_help_str(LINE_WIDTH))
                        for name in names
                    ]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; tell the program its name and the exit code of its errors."""
        if args[0] not in self._modules and not args[0].startswith("-"):
            raise unknown_verb_error(args[0], ctx)
        name, command, remaining = super().resolve_command(ctx, args)
        program: Any = ctx.find_root().command
        if isinstance(command, Verb):
            program.failure = command.failure
            program.running = " ".join([*ctx.command_path.split()[1:], command.name or ""])
        return name, command, remaining


def unknown_verb_error(word: str, ctx: click.Context) -> click.UsageError:
    from difflib import get_close_matches

    verbs = ctx.command.list_commands(ctx) if isinstance(ctx.command, click.Group) else []
    meant = "".join(f". Did you mean {name!r}?" for name in get_close_matches(word, verbs, 1))
    return click.UsageError(f"No such command {word!r}{meant}", ctx)


def verb(*options: Decorator, **settings: Any) -> Callable[[Callable[[Arguments], Any]], Verb]:
    """Make a function of the arguments a verb with these options; settings are those of `Verb`."""

    def decorate(function: Callable[[Arguments], Any]) -> Verb:
        def run(**values: Any) -> Any:
            args = Arguments(began=time.monotonic(), **values)
            diagnostics.on_notice = args.note
            keywords.options = _keywords(click.get_current_context().command.params)
            try:
                return function(args)
            finally:
                diagnostics.on_notice = keywords.options = None

        run.__doc__ = function.__doc__
        command: Any = run
        for option in reversed(options):
            command = option(command)
        wrapped: Verb = click.command(function.__name__.rstrip("_"), cls=Verb, **settings)(command)
        return wrapped

    return decorate


def index_module(args: Arguments) -> Any:
    """Return the module of the verbs for an LSH index; None if the folder is no index."""
    return import_module("fpstore.cli.index") if is_index(Path(args.store)) else None


def output_guess(where: str) -> dict[str, str]:
    """Return the guesses of a command whose output is an argument."""
    return dict.fromkeys(("-o", "--output"), where)


def has_output_option(command: click.Command) -> bool:
    return any("--output" in parameter.opts for parameter in command.params)
