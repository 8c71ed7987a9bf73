"""``fpstore join``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fpstore.cli.job_options import JobOptions, job_options
from fpstore.cli.options import (
    ROW_PARAMETERS,
    Rows,
    Talk,
    pair_radius_option,
    refuse,
    row_options,
    store_argument,
    talk_options,
)
from fpstore.cli.pairs import pairs_writer, write_pairs
from fpstore.cli.progress import Bars
from fpstore.cli.resume import resuming
from fpstore.cli.verb import Verb
from fpstore.errors import counted
from fpstore.format.manifest import is_store

if TYPE_CHECKING:
    from fpstore import Store
    from fpstore.io import Reader


@click.command(cls=Verb)
@store_argument
@click.argument("other", metavar="OTHER")
@pair_radius_option
@row_options
@job_options
@talk_options
def join(
    store: str,
    other: str,
    radius: int | None,
    rows: Rows,
    options: JobOptions,
    talk: Talk,
) -> None:
    """Find all pairs of two stores.

    OTHER is another store, or a file of fingerprints as fpstore build takes them. Writes a line `a b distance id_a id_b` per
    pair of ids, where a is in STORE, and b in OTHER. Fingerprints that both have are pairs of distance 0. So a join finds the
    documents of a training set that are near documents of a benchmark; fpstore delete removes them.

    $ fpstore join crawl.fps monday.fps --radius 2 --no-progress
    $ fpstore join crawl.fps new.tsv --output pairs.parquet --memory 4GiB --threads 2 --quiet
    $ fpstore join crawl.fps new.tsv --rename a=stored --rename b=new --output pairs.jsonl
    $ fpstore join crawl.fps crawl.jsonl --fingerprint-field hash --id-field url --id-type str --json
    $ fpstore join crawl.fps hashes.csv --format csv --fingerprint-field hash --id-field url --decimal --signed
    $ fpstore join crawl.fps monday.fps --output pairs.tsv --resume
    """
    import fpstore
    from fpstore.base.width import Width
    from fpstore.io import open_reader
    from fpstore.jobs.between import join_of
    from fpstore.jobs.store_job import job_of, side_of

    folder = options.folder(talk)
    with ExitStack() as stack:
        opened = stack.enter_context(fpstore.open(store))
        theirs: Store | Reader
        if is_store(Path(other)):
            refuse(ROW_PARAMETERS, "is for files, and OTHER is a store")
            theirs = stack.enter_context(fpstore.open(other))
            if None not in (opened.fingerprinter, theirs.fingerprinter) and opened.fingerprinter != theirs.fingerprinter:
                talk.note(f"{store} and {other}: their fingerprints were made in different ways, so distances may mean nothing")
        else:
            theirs = open_reader(other, width=Width(opened.width, stored=True), **rows.arguments)
        bars = stack.enter_context(Bars(talk.bars))
        job = job_of(opened, radius, options.memory, options.threads, bars)
        side, identity = side_of(opened, theirs)
        if folder is not None:
            pairs_writer(options, opened.width).abort()  # what is wrong with the output is told before a folder is made
        keeping = resuming(folder, lambda: job.full_identity(identity()), talk)
        with keeping as kept, pairs_writer(options, opened.width) as writer:
            found = sum(write_pairs(join_of(job.snapshot, side, job.radius, job.resources, kept), writer))
    talk.note(counted(found, "pair") + " of fingerprints")
