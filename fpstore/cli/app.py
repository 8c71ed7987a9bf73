"""The command ``fpstore``: its verbs, and how errors and signals end it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from typing import Any

import click
from click.shell_completion import CompletionItem

from fpstore import __version__
from fpstore.cli.options import argument
from fpstore.cli.output import CLOSED, occupy_closed_streams, output_is_closed, print_error
from fpstore.cli.signals import Interrupted, raise_signals
from fpstore.cli.verb import LINE_WIDTH, Arguments, Verbs, unknown_verb_error, verb
from fpstore.errors import (
    CorruptStoreError,
    FpstoreError,
    StoreLockedError,
    UnfinishedError,
)
from fpstore.start import ENDINGS

EXIT_USAGE, EXIT_NOT_YET = 2, 3
EXIT_SIGNAL = 128  # plus the number of the signal, as in shells
# Raised by click 8.2 where 8.1 prints the help.
_NO_ARGUMENTS: type[click.UsageError] | tuple[()] = getattr(
    click.exceptions, "NoArgsIsHelpError", ()
)

_VERBS = {  # by their purpose; the modules of the others are not imported
    "Make a store": {
        "build": "build",
        "plan": "build",
        "calibrate": "calibrate",
        "compare": "calibrate",
        "weights": "calibrate",
        "hash": "build",
    },
    "Ask": dict.fromkeys(("probe", "scan", "nearest", "ids"), "questions"),
    "Change": dict.fromkeys(
        ("insert", "delete", "merge", "absorb", "redesign", "split"), "changes"
    ),
    "Clean a corpus": {
        "dedup": "dedup",
        "decontaminate": "decontaminate",
        "boilerplate": "boilerplate",
        "review": "review",
        "passages": "passages",
        "pairs": "jobs",
        "cluster": "jobs",
        "join": "jobs",
    },
    "Low thresholds, other measures": {"lsh": "lsh"},
    "Many processes or machines": {"task": "task", "serve": "serve"},
    "Take care": dict.fromkeys(("stats", "report", "verify", "repair", "backup", "export"), "care"),
    "Begin": {"demo": "demo", "help": "app"},
}


class Program(Verbs):
    """The command line: a failure is one line on standard error and an exit code.

    ``failure`` is the exit code of the verb that runs.
    """

    modules = _VERBS

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line, and exit unless ``standalone_mode`` is false."""
        if not standalone_mode:
            return super().main(*args, **{**extra, "standalone_mode": False})
        occupy_closed_streams()
        with raise_signals():
            code = self._run(*args, **extra)
        sys.exit(code)

    def _run(self, *args: Any, **extra: Any) -> int:
        self.failure, self.running = 1, ""
        try:
            result = super().main(
                *args, **{**extra, "prog_name": "fpstore", "standalone_mode": False}
            )
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a failed write is still reported
        except BrokenPipeError:
            return _reader_is_gone()
        except Interrupted as error:
            return _exit_by_signal(error.signal, error.then)
        except click.Abort:
            return _exit_by_signal(signal.SIGINT)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "fpstore"
            if error.ctx and isinstance(error, _NO_ARGUMENTS):
                click.echo(error.ctx.get_help(), err=True)
                return EXIT_USAGE
            print_error(f"{error.format_message()} (see {path} --help)")
            return EXIT_USAGE
        except (FpstoreError, click.ClickException, MemoryError, OSError) as error:
            print_error(_describe(error, self.running))
            _flush_or_drop_output()
            return (
                EXIT_NOT_YET
                if self.failure == 1 and isinstance(error, (StoreLockedError, UnfinishedError))
                else self.failure
            )
        except Exception as error:
            if os.environ.get("FPSTORE_TRACEBACK"):
                traceback.print_exc()
            kind = type(error).__name__
            print_error(
                f"internal error ({kind}: {error}); please report it: FPSTORE_TRACEBACK=1 shows "
                "where it is"
            )
            return self.failure
        return result if isinstance(result, int) else 0

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; pass on unchanged the exceptions that click would handle in its own way."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted(signal.SIGINT) from None
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            raise click.exceptions.Exit(_reader_is_gone()) from None


def _describe(error: BaseException, running: str) -> str:
    if isinstance(error, FpstoreError):
        advise = isinstance(error, CorruptStoreError) and not {
            "repair",
            "backup",
            "remove",
            "anew",
        }.intersection(str(error).split())
        return f"{error}{': fpstore repair keeps what is intact' if advise else ''}"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, MemoryError):
        return "out of memory: work on fewer rows at a time"
    assert isinstance(error, OSError)
    if error.filename is None and output_is_closed():
        return CLOSED
    place = "standard output" if error.filename is None else os.fsdecode(error.filename)
    return f"{place}: {error.strerror or error}"


def _exit_by_signal(number: signal.Signals, advice: str = "") -> int:
    print_error(ENDINGS.get(number, number.name) + advice)
    return EXIT_SIGNAL + number


def _reader_is_gone() -> int:
    _drop_output()
    return EXIT_SIGNAL + signal.SIGPIPE


def _flush_or_drop_output() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Stop all writing to standard output, even by the interpreter when it exits."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):  # not a real file: nothing is flushed to it
        pass


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": LINE_WIDTH},
)
@click.version_option(__version__, prog_name="fpstore", message="%(prog)s %(version)s")
def main() -> None:
    """Find near-duplicates of texts, pictures and vectors.

    A store keeps fingerprints of 32, 64, 128 or 256 bits on disk. It finds all fingerprints within
    a Hamming radius.

    Exit code 0 means success. 1 means an error, which has one line on standard error, or a fault
    that verify found. 2 means a wrong command line. 3 means not yet: another process has the store
    open for writing, or tasks of a plan that must come before have not run; the same command
    succeeds later. 130 follows Ctrl-C, 143 follows SIGTERM, and 141 a pipe that its reader has
    closed. The exit codes of probe, scan and nearest are those of grep: 0 means that a
    query has a match, 1 that none has, 2 any error.

    $ fpstore build crawl.fps crawl.tsv
    $ fpstore probe crawl.fps 9d3a5b1c00f7e642
    $ fpstore help probe
    """


def _names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in main.verbs() if name.startswith(incomplete)]


@verb(argument("words", "[VERB]", nargs=-1, shell_complete=_names))
def help_(args: Arguments) -> None:
    """Show the help of a verb, or the list of verbs.

    `fpstore VERB --help` shows the same.

    A shell completes verbs, options and paths after one command. Put it into the file that the
    shell reads when it starts: for bash, eval "$(_FPSTORE_COMPLETE=bash_source fpstore)"; for zsh,
    the same with zsh_source; for fish, _FPSTORE_COMPLETE=fish_source fpstore | source.

    $ fpstore help
    $ fpstore help build
    """
    ctx = click.get_current_context()
    shown = ctx.find_root()
    for word in args.words:
        command = (
            shown.command.get_command(shown, word)
            if isinstance(shown.command, click.Group)
            else None
        )
        if command is None:
            raise unknown_verb_error(word, shown)
        shown = click.Context(command, parent=shown, info_name=word)
    click.echo(shown.get_help())
