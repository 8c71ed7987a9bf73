"""``fpstore pairs``."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

import click
import numpy as np

from fpstore.cli.job_options import JobOptions, job_options
from fpstore.cli.options import (
    Talk,
    pair_radius_option,
    store_argument,
    talk_options,
    usage_errors,
)
from fpstore.cli.progress import Bars
from fpstore.cli.resume import resuming
from fpstore.cli.verb import Verb
from fpstore.errors import counted

if TYPE_CHECKING:
    from fpstore import Pairs
    from fpstore.io import Writer

SAME = "{} with the fingerprint of another one: fpstore cluster brings them together, --duplicates pairs them"
COLUMNS = ("a", "b", "distance", "id_a", "id_b")


@click.command(cls=Verb)
@store_argument
@pair_radius_option
@click.option(
    "--duplicates", is_flag=True, help="Also write each pair of documents that share a fingerprint, first and at distance 0."
)
@job_options
@talk_options
def pairs(
    store: str,
    radius: int | None,
    duplicates: bool,
    options: JobOptions,
    talk: Talk,
) -> None:
    """Find all pairs of near-duplicates in a store.

    The two fingerprints of a pair differ in at least one bit, and in at most --radius bits.

    Writes a line `a b distance id_a id_b` per pair of ids, the lesser fingerprint first. Cells are separated by tabs,
    fingerprints are hexadecimal, and there is no header. With --json, writes an object per line. Documents with the same
    fingerprint are no pair. With --duplicates they are: n such documents are n (n - 1) / 2 lines. fpstore cluster writes n
    lines for them.

    $ fpstore pairs crawl.fps --radius 2 --quiet
    $ fpstore pairs crawl.fps --output pairs.parquet --memory 4GiB --threads 2
    $ fpstore pairs crawl.fps --rename id_a=url --rename id_b=other --output pairs.csv
    $ fpstore pairs crawl.fps --radius 0 --duplicates
    $ fpstore pairs crawl.fps --json --no-progress
    $ fpstore pairs crawl.fps --output pairs.tsv --resume
    """
    import fpstore
    from fpstore.jobs.pairs import pairs_identity, pairs_of
    from fpstore.jobs.store_job import job_of

    folder = options.folder(talk)
    with fpstore.open(store) as opened, Bars(talk.bars) as bars:
        job = job_of(opened, radius, options.memory, options.threads, bars)
        identity = job.full_identity(pairs_identity(duplicates))
        if folder is not None:
            pairs_writer(options, opened.width).abort()  # what is wrong with the output is told before a folder is made
        with resuming(folder, lambda: identity, talk) as kept, pairs_writer(options, opened.width) as writer:
            found, shared = write_pairs(pairs_of(job.snapshot, job.radius, job.resources, duplicates, kept), writer)
        totals = job.snapshot.totals
        same = totals.ids - totals.fingerprints
    told = f"{counted(found, 'pair')} of fingerprints"
    if duplicates:
        told += f"; {counted(shared, 'fingerprint')} of several documents"
    elif same:
        told += f"; {SAME.format(counted(same, 'document'))}"
    talk.note(told)


def pairs_writer(options: JobOptions, width: int) -> Writer:
    """Open a file for a row per pair of ids, with other names for some of its columns."""
    from fpstore.io import open_writer

    form = "jsonl" if options.as_json else None
    with usage_errors():
        return open_writer(options.output, format=form, columns=COLUMNS, width=width, names=options.names)


def write_pairs(batches: Generator[Pairs, None, None], writer: Writer) -> tuple[int, int]:
    """Write a row per pair of ids; return how many pairs of fingerprints differ, and how many do not."""
    found = equal = 0
    with closing(batches):  # threads end before what they have found is dropped
        for batch in batches:
            for data in batch.rows_of_ids():
                writer.write(data)
            found += int(np.count_nonzero(batch.distances))
            equal += int(np.count_nonzero(batch.distances == 0))
    return found, equal
