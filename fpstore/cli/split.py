"""``fpstore split``."""

from __future__ import annotations

import click

from fpstore.change.join import MOST_BITS
from fpstore.cli import types
from fpstore.cli.options import Talk, json_option, memory_option, store_argument, talk_options, threads_option
from fpstore.cli.output import print_json, shown
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb, output_is
from fpstore.errors import counted


@click.command(cls=Verb, guesses=output_is("the folder to write to is the second argument"))
@store_argument
@click.argument("folder", metavar="FOLDER")
@click.option(
    "--bits",
    type=types.whole(1, MOST_BITS),
    required=True,
    metavar="N",
    help="Number of leading bits, 1 to 8: 2 to 256 stores.",
)
@threads_option
@memory_option
@click.option(
    "--force",
    is_flag=True,
    help="Replace stores in FOLDER that have the names of new ones, each once the new one is complete; nothing else is replaced.",
)
@talk_options
@json_option
def split(
    store: str, folder: str, bits: int, threads: int | None, memory: str | None, force: bool, talk: Talk, as_json: bool
) -> None:
    """Write the content of a store to several stores.

    The leading bits of a fingerprint say which store gets it. The new stores are named after these bits, such as
    FOLDER/00.fps to FOLDER/11.fps. STORE does not change.
    fpstore merge joins the parts again.

    $ fpstore split crawl.fps shards --bits 2
    $ fpstore split crawl.fps shards --bits 2 --force --threads 1 --memory 1GiB --quiet
    $ fpstore split crawl.fps shards --bits 2 --force --json --no-progress
    """
    import fpstore

    with Bars(talk.bars) as bars, fpstore.open(store) as opened:
        paths = opened.split(folder, bits, overwrite=force, memory=memory, threads=threads, progress=bars)
    rows = []
    for path in paths:
        with fpstore.open(path) as part:
            rows.append((str(path), len(part), len(part.ids)))
    if as_json:
        print_json([{"path": path, "fingerprints": fingerprints, "ids": ids} for path, fingerprints, ids in rows])
    elif not talk.quiet:
        for name, fingerprints, ids in rows:
            click.echo(f"{shown(name)}: {counted(fingerprints, 'fingerprint')}, {counted(ids, 'id')}")
