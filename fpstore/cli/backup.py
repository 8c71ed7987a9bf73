"""``fpstore backup``."""

from __future__ import annotations

import time

import click

from fpstore.cli.build import summary
from fpstore.cli.options import Talk, json_option, store_argument, talk_options
from fpstore.cli.output import print_json, shown
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb, output_is


@click.command(cls=Verb, guesses=output_is("the copy is the second argument"))
@store_argument
@click.argument("path", metavar="PATH")
@click.option(
    "--force",
    is_flag=True,
    help="Replace PATH, if it is a store already, once the copy is complete; nothing else is ever replaced.",
)
@talk_options
@json_option
def backup(store: str, path: str, force: bool, talk: Talk, as_json: bool) -> None:
    """Copy a store, even while it is in use.

    PATH gets the store as it is at one moment. Other processes can go on inserting and merging. The copy is an ordinary
    store. It appears complete or not at all. The copy is not verified. So verify the store first, and keep two copies: then a
    copy of a damaged store does not replace the last good one.

    $ fpstore backup crawl.fps crawl-backup.fps
    $ fpstore backup crawl.fps crawl-backup.fps --force --json
    $ fpstore backup crawl.fps monday.fps --force --quiet
    $ fpstore backup crawl.fps weekly.fps --no-progress
    """
    import fpstore

    began = time.monotonic()
    with Bars(talk.bars) as bars, fpstore.open(store) as opened:
        opened.backup(path, overwrite=force, progress=bars)
    if not as_json and talk.quiet:
        return
    with fpstore.open(path) as copied:
        stats = copied.stats()
    if as_json:
        print_json(stats)
    else:
        click.echo(f"{shown(path)}: {summary(stats)}, {time.monotonic() - began:.1f} s")
