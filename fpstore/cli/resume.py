"""The option ``--resume``: what is done of a long job is kept in a folder beside the output."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from fpstore.cli.options import Talk
from fpstore.cli.output import shown
from fpstore.cli.signals import Interrupted
from fpstore.jobs.checkpoint import Checkpoint, JobIdentity

SUFFIX = ".resume"

resume_option = click.option(
    "--resume",
    is_flag=True,
    help="Keep what is done in the folder OUTPUT.resume until the job is done, and begin with what is there: if the job ends "
    "early, the same command goes on.",
)


def folder_of(output: str, wanted: bool, talk: Talk) -> Path | None:
    """Return the folder of what is done, if that is wanted; otherwise tell of one that is there."""
    if output == "-":
        if wanted:
            raise click.UsageError("--resume needs an output file: name one with --output", click.get_current_context())
        return None
    folder = Path(f"{output.rstrip('/')}{SUFFIX}")
    with suppress(OSError):  # a name that is too long for a folder may do for a file
        if not wanted and folder.is_dir():
            talk.note(f"{shown(str(folder))} is of a job that did not end; --resume goes on with it")
    return folder if wanted else None


@contextmanager
def resuming(folder: Path | None, identity: Callable[[], JobIdentity], talk: Talk) -> Iterator[Checkpoint | None]:
    """Keep what is done inside the block in a folder, which is removed at the end; without a folder, keep nothing.

    What was found done is told when the block ends, and on an interrupt how to go on.
    """
    if folder is None:
        yield None
        return
    try:
        with Checkpoint(folder.absolute(), identity()) as kept:
            if kept.resumed:
                talk.note(f"{shown(str(folder))}: what is finished in it is not done again")
            yield kept
    except (Interrupted, KeyboardInterrupt) as error:
        interrupted = error if isinstance(error, Interrupted) else Interrupted(signal.SIGINT)
        if folder.exists():
            interrupted.then = f"; what was done is in {shown(str(folder))}: the same command goes on with it"
        raise interrupted from None
    if kept.resumed and kept.reused:
        talk.note(kept.summary())
