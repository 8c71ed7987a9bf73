"""``fpstore merge``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fpstore.cli import types
from fpstore.cli.build import summary
from fpstore.cli.options import Talk, json_option, memory_option, store_argument, talk_options, threads_option
from fpstore.cli.output import print_json, shown
from fpstore.cli.progress import Bars
from fpstore.cli.queries import origin_notice
from fpstore.cli.verb import Verb
from fpstore.errors import InputError, counted

if TYPE_CHECKING:
    from fpstore.store import Store


@click.command(cls=Verb)
@store_argument
@click.argument("others", metavar="[OTHER...]", nargs=-1)
@click.option("--renumber", is_flag=True, help="Renumber the integer ids of each OTHER, in turn, from the largest so far.")
@click.option("--design", metavar="NAME", help="Change to another design: auto, or a name that fpstore plan lists.")
@click.option(
    "--at",
    type=types.SHARE,
    metavar="SHARE",
    help="Merge only if the delta has reached this share of the tables, such as 0.1, and 65,536 changes.",
)
@threads_option
@memory_option
@talk_options
@json_option
def merge(
    store: str,
    others: Sequence[str],
    renumber: bool,
    design: str | None,
    at: float | None,
    threads: int | None,
    memory: str | None,
    talk: Talk,
    as_json: bool,
) -> None:
    """Fold changes and other stores into the tables.

    The new tables are written beside the old ones, so there must be space for both, and replace them in one step.
    Readers go on all the time. The other stores do not change. While another process has the store open for
    writing, this command is refused: let that process merge, with fpstore.open(..., merge_at=0.1) or Store.merge().
    With --json, writes what fpstore stats --json does, and whether there was anything to merge ("merged").

    $ fpstore merge crawl.fps
    $ fpstore merge crawl.fps monday.fps tuesday.fps --threads 2 --memory 1GiB --no-progress
    $ fpstore merge numbers.fps shard.fps --renumber --quiet
    $ fpstore merge crawl.fps --design flip-2 --json
    $ fpstore merge crawl.fps --at 0.1
    """
    import fpstore
    from fpstore.change.merging import changes_due

    began = time.monotonic()
    if at is not None and (others or design is not None):
        types.fail("--at is for a merge of the delta alone: leave out other stores and --design")
    if renumber and not others:
        types.fail("--renumber needs an OTHER store")
    with fpstore.open(store) as opened:
        types.usage_error_for_design(design, opened.radius, opened.width)
    for other in others:  # before STORE is opened for writing
        with fpstore.open(other) as read:
            if read.fingerprinter is None:
                with fpstore.open(store) as known:
                    origin_notice(known, store, other, talk)
            if read.path.samefile(store):
                raise InputError(f"{store}: cannot be merged with itself", path=store)
    with _writer(store) as opened:
        generation = opened.snapshot().generation.record.number
        changes = opened.snapshot().delta.kernel.operations
        due = None if at is None else changes_due(opened.snapshot(), at)
        with Bars(talk.bars) as bars:
            opened.merge(
                *others,
                renumber=renumber,
                design=design,
                at=at,
                memory=memory,
                threads=threads,
                progress=bars,
            )
        stats = opened.stats()
    merged = stats["generation"] != generation
    if as_json:
        print_json({"merged": merged, **stats})
    elif not talk.quiet and not merged:
        wanted = "" if due is None else f"; --at {at:g} merges from {due:,} on"
        click.echo(f"{shown(store)}: nothing to merge yet: {counted(changes, 'change')} since the last merge{wanted}")
    elif not talk.quiet:
        click.echo(f"{shown(store)}: generation {stats['generation']}, {summary(stats)}, {time.monotonic() - began:.1f} s")


def _writer(store: str) -> Store:
    """Open a store for writing; if another process has it, say how that process can merge."""
    import fpstore

    try:
        return fpstore.open(store, "r+")
    except fpstore.StoreLockedError as error:
        raise fpstore.StoreLockedError(
            f"{error}. To merge in that process, call Store.merge() there, or open the store with fpstore.open(path, 'r+', "
            "merge_at=0.1) for merges in the background",
            path=error.path,
            got=error.got,
        ) from None
