"""The files that jobs write: lists beside the output, and the folder of ``--resume``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from fpstore.base.arguments import check_path, is_uri, printable
from fpstore.base.width import WIDTHS
from fpstore.cli.options import argument, option
from fpstore.cli.signals import advice_on_interrupt
from fpstore.cli.verb import Arguments, fail, output_guess, translate_usage_errors
from fpstore.io import Writer, open_writer
from fpstore.work.checkpoint import Checkpoint, JobIdentity, remove_ended


def _check_output_argument(context: click.Context, _: click.Parameter, output: str) -> str:
    """Refuse a single argument, which click takes for the last."""
    if not context.params["inputs"]:
        raise click.UsageError(
            "Missing argument 'OUTPUT': name the file to write after the inputs."
        )
    return output


OUTPUT = argument("output", "OUTPUT", callback=_check_output_argument)
OUTPUT_IS_LAST = output_guess("OUTPUT is the last argument, after all inputs")
SUFFIX = ".resume"
RESUME = option(
    "--resume",
    "Keep what is done in the folder OUTPUT.resume until the job is done, and begin with what is "
    "there: if the job ends early, the same command goes on.",
)


def resume_folder(args: Arguments) -> Path | None:
    """Return the folder of --resume; without it, note a folder that is there."""
    resume = args.resume or getattr(args, "add", False)
    if args.output == "-":
        if resume:
            fail("--resume needs an output file: name one with --output")
        return None
    if is_uri(args.output):
        if resume:
            check_path(args.output, "the output")  # which refuses it
        return None
    folder = Path(f"{args.output.rstrip('/')}{SUFFIX}")
    remove_ended(folder)
    with suppress(OSError):  # a name that is too long for a folder may do for a file
        if not resume and folder.is_dir():
            args.note(f"{printable(folder)} is of a job that did not end; --resume goes on with it")
    return folder if resume else None


@contextmanager
def job_checkpoint(
    args: Arguments, folder: Path | None, identity: Callable[[], JobIdentity]
) -> Iterator[Checkpoint | None]:
    """Keep the work inside the block in a folder, which is removed at the end.

    Without a folder, keep nothing. The message of an interrupt says how to go on.
    """
    if folder is None:
        yield None
        return
    shown = printable(folder)
    advice = f"; what was finished is in {shown}: the same command goes on with it"
    with (
        advice_on_interrupt(lambda: advice if folder.exists() else ""),
        Checkpoint(folder.absolute(), identity()) as checkpoint,
    ):
        if checkpoint.resumed:
            args.note(f"{shown}: what is finished in it is not done again")
        yield checkpoint
    if checkpoint.resumed and checkpoint.reused:
        args.note(checkpoint.summary())


def open_list(columns: tuple[str, ...], path: str) -> Writer:
    with translate_usage_errors():
        return open_writer(path, columns=columns, width=WIDTHS[-1], header=True)
