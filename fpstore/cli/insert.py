"""``fpstore insert``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
import numpy as np

from fpstore.cli import documents, queries, types
from fpstore.cli.documents import suffix_option
from fpstore.cli.options import (
    ROW_PARAMETERS,
    Rows,
    Talk,
    json_option,
    output_option,
    refuse,
    row_options,
    store_argument,
    talk_options,
    threads_option,
)
from fpstore.cli.output import complain, count, print_json, shown
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb
from fpstore.errors import InputError
from fpstore.io import Chunk, open_reader

CHUNK_ROWS = 1 << 16
UNMATCHED_PARAMETERS = {"radius", "output", "threads"}


@click.command(cls=Verb)
@store_argument
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--unmatched",
    is_flag=True,
    help="Insert only rows without a match in the store or earlier in the input; write the matches of the others.",
)
@click.option(
    "-r",
    "--radius",
    type=types.RADIUS,
    metavar="N",
    help="With --unmatched, the largest distance of a match; by default the store's radius.",
)
@output_option("With --unmatched, where to write the matches: .tsv, .csv, .jsonl or .parquet")
@row_options
@click.option("--id-field", metavar="NAME", help="JSON field or column of the ids; by default id.")
@click.option("--id-type", type=click.Choice(["auto", "int", "str"]), default="auto", show_default=True, help="Type of the ids.")
@click.option("--text", is_flag=True, help="Inputs are text files or folders; make fingerprints in the same way as the store's.")
@suffix_option
@click.option(
    "--sync",
    type=click.Choice(["commit", "batch", "none"]),
    default="commit",
    show_default=True,
    help="commit: each chunk of rows is durable before the next is read; batch, none: larger groups.",
)
@click.option(
    "--merge-at",
    type=types.SHARE,
    metavar="SHARE",
    help="Merge whenever the delta reaches this share of the tables, such as 0.1, and 65,536 changes.",
)
@threads_option
@talk_options
@json_option
def insert(
    store: str,
    inputs: Sequence[str],
    unmatched: bool,
    radius: int | None,
    output: str,
    rows: Rows,
    id_field: str | None,
    id_type: Any,
    text: bool,
    suffix: Sequence[str],
    sync: str,
    merge_at: float | None,
    threads: int | None,
    talk: Talk,
    as_json: bool,
) -> None:
    """Add fingerprints and ids, or texts, to a store; inputs are as for fpstore build.

    When this returns, the rows are durable, and every process that has the store open finds them. With --unmatched,
    a row is inserted only if the store has nothing within the radius; for the other rows, lines `query fingerprint
    distance id` are written, as by fpstore probe. Inserts are kept in a log beside the tables until fpstore merge.
    An id that is already stored keeps its old fingerprint too: to replace a document, fpstore delete its id first.

    $ fpstore insert crawl.fps new.tsv
    $ fpstore insert crawl.fps new.tsv --unmatched --radius 2 --output duplicates.tsv --threads 1
    $ fpstore insert crawl.fps new.jsonl --fingerprint-field hash --id-field url --id-type str
    $ cut -f 1,2 new.tsv | fpstore insert crawl.fps - --format tsv --sync batch --merge-at 0.1 --quiet
    $ fpstore insert crawl.fps new.csv --decimal
    $ fpstore insert notes.fps notes --text --suffix .txt --json --no-progress
    """
    import fpstore

    if not unmatched:
        refuse(UNMATCHED_PARAMETERS, "needs --unmatched")
    if text:
        if "-" in inputs:
            types.fail("--text reads files and folders, not standard input: write it to a file first")
        refuse(ROW_PARAMETERS, "does not go with --text")
    else:
        refuse(documents.FOLDER_PARAMETERS, "needs --text")
        documents.refuse_folders(inputs)
    notices = documents.Notices()
    began = time.monotonic()
    with fpstore.open(store, "r+", sync=sync, merge_at=merge_at) as opened:
        source: Any
        if text:
            source = documents.reader(inputs, queries.fingerprinter_of(opened), suffix, notices)
        else:
            source = open_reader(inputs, id_field=id_field, id_type=id_type, chunk_rows=CHUNK_ROWS, **rows.arguments)
        done = inserted = 0
        writing: AbstractContextManager[queries.Write | None] = nullcontext()
        if unmatched:
            json_lines = queries.is_json(output, False)
            writing = queries.json_lines_writer(output) if json_lines else queries.rows_writer(output, False)
        with Bars(talk.bars, source) as bars, writing as write:
            for chunk in source:
                if write is None:
                    inserted += opened.insert(chunk.fingerprints, chunk.ids)
                else:
                    ids = chunk.ids if chunk.ids is not None else _row_numbers(opened, len(chunk.fingerprints))
                    matches = opened.probe_insert_many(chunk.fingerprints, ids, radius, threads=threads)
                    write(Chunk(chunk.fingerprints, None), matches)
                    inserted += int(np.count_nonzero(matches.inserted))  # type: ignore[arg-type]
                done += len(chunk.fingerprints)
                bars("inserting", done, getattr(source, "rows", None))
        holds = {"fingerprints": len(opened), "ids": len(opened.ids)}
    notices.report(talk)
    if as_json and not (unmatched and output == "-"):
        print_json({"rows": done, "inserted": inserted, **holds})
    elif not talk.quiet:
        line = f"{shown(store)}: {count(inserted, 'row')} of {done:,} inserted, {time.monotonic() - began:.1f} s"
        if unmatched and output == "-":
            complain(line)
        else:
            click.echo(line)


def _row_numbers(opened: Any, rows: int) -> Any:
    totals = opened.snapshot().totals
    if totals.id_kind != "row" and totals.ids:
        raise InputError(f"{opened.path}: its rows have ids of their own: give one per row")
    return np.arange(totals.next_row, totals.next_row + rows, dtype=np.uint64)
