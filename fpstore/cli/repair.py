"""``fpstore repair``."""

from __future__ import annotations

import dataclasses

import click

from fpstore.cli.options import Talk, json_option, memory_option, store_argument, talk_options, threads_option
from fpstore.cli.output import complain, print_json, shown
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb


@click.command(cls=Verb)
@store_argument
@click.option("-o", "--output", metavar="NEW", help="The store to write; by default STORE.repaired.")
@click.option("--yes", is_flag=True, help="Put the new store in place of STORE, and keep that as STORE.damaged.")
@click.option(
    "--lost",
    metavar="FILE",
    help="Where to list losses, if there are any; by default STORE.lost.tsv, with -o NEW.lost.tsv.",
)
@threads_option
@memory_option
@talk_options
@json_option
def repair(
    store: str,
    output: str | None,
    yes: bool,
    lost: str | None,
    threads: int | None,
    memory: str | None,
    talk: Talk,
    as_json: bool,
) -> None:
    """Make a sound store from a damaged one.

    Each table holds the whole set, so one intact table restores all others. Ids, strings and the latest changes exist
    only once. The damaged store is never changed or deleted. Prints what was done and what is lost. The exit code is
    1 if something is lost. If nothing is wrong, nothing is written.

    $ fpstore repair crawl.fps
    $ fpstore repair crawl.fps -o repaired.fps --lost lost.tsv --json
    $ fpstore repair crawl.fps --yes --threads 2 --memory 1GiB --no-progress
    $ fpstore repair crawl.fps --yes --quiet
    """
    import fpstore

    if yes and output is not None:
        raise click.UsageError("--yes does not go with --output", click.get_current_context())
    with Bars(talk.bars) as bars:
        report = fpstore.repair(store, output, in_place=yes, lost=lost, memory=memory, threads=threads, progress=bars)
    if as_json:
        print_json({**dataclasses.asdict(report), "complete": report.complete})
    elif not talk.quiet:
        if report.sound:
            click.echo(f"{shown(store)}: sound: nothing to repair")
        for heading, lines in (("fault", report.faults), ("done", report.actions), ("lost", report.losses)):
            for line in lines:
                click.echo(shown(f"{heading}: {line}"))
        if report.output is not None and not yes:
            click.echo(shown(f"next: to use the new store, move {store} away and rename {report.output} to {store}"))
    if not report.complete:
        complain(f"{store}: repaired, but not all could be recovered")
        raise click.exceptions.Exit(1)
