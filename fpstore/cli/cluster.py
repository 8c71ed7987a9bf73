"""``fpstore cluster``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
from fpstore.jobs.choices import GROUPINGS, REPRESENTATIVES

if TYPE_CHECKING:
    from fpstore import Clusters
    from fpstore.io import Writer

COLUMNS = ("id", "cluster", "representative")


@click.command(cls=Verb)
@store_argument
@pair_radius_option
@click.option(
    "--group",
    type=click.Choice(GROUPINGS),
    help="connected: chains of pairs make a cluster. greedy: all documents of a cluster are within the radius of its "
    "representative. By default greedy for pictures, connected for all others.",
)
@click.option(
    "--representative",
    type=click.Choice(REPRESENTATIVES),
    default="first",
    show_default=True,
    help="The first document stored (of integer ids, the least), the one with the smallest id, or the one nearest to the "
    "majority of the fingerprints.",
)
@job_options
@talk_options
def cluster(
    store: str,
    radius: int | None,
    group: str | None,
    representative: str,
    options: JobOptions,
    talk: Talk,
) -> None:
    """Find the clusters of near-duplicates.

    Documents are in one cluster if pairs within the radius connect them, also in chains.

    Writes a line `id cluster representative` per document that is in a cluster of two or more, cluster by cluster, the
    representative first. Cells are separated by tabs, and there is no header. With --json, writes an object per line.
    Clusters are numbered from 0.

    $ fpstore cluster crawl.fps --radius 2 --no-progress
    $ fpstore cluster crawl.fps --output clusters.parquet --memory 4GiB --threads 2
    $ fpstore cluster crawl.fps --rename id=url --output clusters.csv
    $ fpstore cluster crawl.fps --group greedy --representative smallest --json --quiet
    $ fpstore cluster crawl.fps --output clusters.tsv --resume
    """
    import fpstore
    from fpstore.jobs.clusters import clusters_identity, clusters_of, grouping_of
    from fpstore.jobs.store_job import job_of

    folder = options.folder(talk)
    with fpstore.open(store) as opened, Bars(talk.bars) as bars:
        job = job_of(opened, radius, options.memory, options.threads, bars)
        grouping = grouping_of(job.radius, group, representative, opened.fingerprinter)
        if folder is not None:
            listing_writer(options.output, options.as_json, options.names).abort()  # its errors are told before a folder is made
        keeping = resuming(folder, lambda: job.full_identity(clusters_identity(grouping)), talk)
        with keeping as kept, listing_writer(options.output, options.as_json, options.names) as writer:
            found = clusters_of(job.snapshot, grouping, job.resources, kept)
            write_listing(found, writer, bars)
    talk.note(summary(found))


def listing_writer(output: str, as_json: bool, names: dict[str, str]) -> Writer:
    """Open a file for a row per document in a cluster, with other names for some of its columns."""
    from fpstore.io import open_writer

    with usage_errors():
        return open_writer(output, format="jsonl" if as_json else None, columns=COLUMNS, names=names)


def write_listing(found: Clusters, writer: Writer, bars: Bars) -> None:
    """Write the documents in clusters, some at a time."""
    total, done = int(found.lims[-1]), 0
    for data in found.batches():
        bars("writing clusters", done, total)
        writer.write(data)
        done += len(data["id"])


def summary(found: Clusters) -> str:
    """Return in a line what was found."""
    largest = f", the largest of {counted(int(found.sizes.max()), 'document')}" if len(found) else ""
    return (
        f"{counted(found.documents, 'document')}, {counted(len(found), 'cluster')}{largest}, "
        f"{counted(found.duplicates, 'duplicate')}"
    )
