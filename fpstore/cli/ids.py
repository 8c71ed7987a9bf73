"""``fpstore ids``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from fpstore.cli import match_writers
from fpstore.cli.given_ids import given_ids, lines_of
from fpstore.cli.options import Talk, ends_with_null, json_option, null_option, output_option, store_argument, talk_options
from fpstore.cli.verb import Verb
from fpstore.errors import counted
from fpstore.io import open_writer
from fpstore.io.reader import format_of


@click.command(cls=Verb)
@store_argument
@click.argument("words", metavar="[ID...]", nargs=-1)
@click.option("--input", "inputs", multiple=True, metavar="FILE", help="Read one id per line from a file; - is standard input.")
@output_option("Where to write: .tsv, .csv, .jsonl or .parquet")
@json_option
@null_option("Lines of --input and of the output")
@talk_options
def ids(store: str, words: Sequence[str], inputs: Sequence[str], output: str, as_json: bool, null: bool, talk: Talk) -> None:
    """Find the fingerprints of ids.

    Writes a line `fingerprint id` for each fingerprint of each ID, in the order of the ids, separated by tabs; with
    --json, an object per line. To find integer ids, the id map is read once per call, so give many at a time, unless
    the store was built with --index-ids. Ids that are not stored have no line, and their number is told on standard
    error; the exit code is 0. With --input, each line is an id, unchanged; an id that contains a line feed must be
    given as an argument, or with --null.

    $ fpstore ids crawl.fps far small
    $ fpstore ids crawl.fps --input gone.txt --json --quiet
    $ find notes -type f -print0 | fpstore ids notes.fps --input - --null --quiet
    $ fpstore ids crawl.fps --input gone.txt --output gone.parquet --no-progress
    """
    import fpstore

    if not words and not inputs:
        raise click.UsageError("give ids, or --input FILE", click.get_current_context())
    as_json = match_writers.is_json(output, as_json)
    form = "jsonl" if as_json else format_of(output, None)
    writes_null = ends_with_null(null, bool(inputs), form)
    lines = lines_of(inputs, null)
    with fpstore.open(store) as opened:
        strings, width = opened.snapshot().totals.id_kind == "string", opened.width
        wanted: Any = given_ids(words, lines, strings)
        lims, fingerprints = opened.fingerprints_of(wanted)
    sizes = np.diff(lims)
    places = np.repeat(np.arange(len(wanted)), sizes)
    found: Any = [wanted[place] for place in places.tolist()]
    with open_writer(output, format=form, columns=["fingerprint", "id"], width=width, null=writes_null) as writer:
        writer.write({"fingerprint": fingerprints, "id": found})
    absent = int(np.count_nonzero(sizes == 0))
    if absent:
        talk.note(f"{counted(absent, 'id')} of {len(wanted):,} {'is' if absent == 1 else 'are'} not stored")
