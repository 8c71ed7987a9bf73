"""``fpstore verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fpstore.cli.options import Talk, json_option, store_argument, talk_options
from fpstore.cli.output import complain, print_json, shown
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb
from fpstore.errors import counted


@click.command(cls=Verb)
@store_argument
@json_option
@talk_options
def verify(store: str, as_json: bool, talk: Talk) -> None:
    """Read every byte of a store and check it.

    Checks checksums, order, counts, keys, codes, id records, the log, and that all tables hold the same set. The exit
    code is 1 if something is wrong. Each fault is a line with the file and the block.

    $ fpstore verify crawl.fps
    $ fpstore verify crawl.fps --json --no-progress
    $ fpstore verify crawl.fps --quiet
    """
    import fpstore
    from fpstore.format.manifest import looks_like_store

    unread = ""
    try:
        with Bars(talk.bars) as bars, fpstore.open(store) as opened:
            report = opened.verify(progress=bars)
    except (fpstore.CorruptStoreError, fpstore.FormatVersionError, fpstore.StoreNotFoundError) as error:
        if not looks_like_store(Path(store)):
            raise
        report = fpstore.Report()
        report.note(error)
        unread = "; it cannot be opened, so the rest was not read"
    if as_json:
        print_json(
            {
                "ok": report.ok,
                "tables": report.tables,
                "blocks": report.blocks,
                "fingerprints": report.fingerprints,
                "ids": report.ids,
                "faults": report.faults,
            }
        )
    else:
        for fault in report.faults:
            click.echo(shown(describe(fault)))
        if report.ok and not talk.quiet:
            parts = (counted(report.tables, "table"), counted(report.blocks, "block"), counted(report.ids, "id"))
            click.echo(f"{shown(store)}: sound: {counted(report.fingerprints, 'fingerprint')}, {', '.join(parts)}")
    if not report.ok:
        complain(f"{store}: {counted(len(report.faults), 'fault')}{unread}: fpstore repair keeps what is intact")
        raise click.exceptions.Exit(1)


def describe(fault: dict[str, Any]) -> str:
    """Return a fault in one line, with the file and the block, unless the message already names them."""
    message = str(fault["message"])
    place = "" if fault["path"] is None or fault["path"] in message else f"{fault['path']}: "
    block = "" if fault["block"] is None or f"block {fault['block']}" in message else f"block {fault['block']}: "
    return place + block + message
