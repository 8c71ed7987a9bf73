"""The verbs that work on a whole store: ``pairs``, ``cluster`` and ``join``."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fpstore import Pairs, Store
from fpstore.api import open_store
from fpstore.base.width import Width, equal
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, ROWS, Notices
from fpstore.cli.options import argument, option
from fpstore.cli.outputs import RESUME, job_checkpoint, resume_folder
from fpstore.cli.verb import Arguments, index_module, translate_usage_errors, verb
from fpstore.errors import plural
from fpstore.format.manifest import is_openable
from fpstore.io import Reader, Writer, open_writer
from fpstore.jobs import GROUPINGS, REPRESENTATIVES
from fpstore.jobs.clusters import CLUSTER_COLUMNS, write_clusters
from fpstore.jobs.store_job import StoreJob, clusters_job, join_job, pairs_job

SAME = (
    "not listed: {} with the fingerprint of another one: fpstore cluster brings them together, "
    "--duplicates pairs them"
)
PAIR_COLUMNS = ("a", "b", "distance", "id_a", "id_b")
JOB = (options.OUTPUT, *options.LIMITS, RESUME, *options.RESULT)


@contextmanager
def _job_output(
    args: Arguments, job: StoreJob[Any], columns: tuple[str, ...], width: int = 64
) -> Iterator[tuple[Any, Writer]]:
    folder = resume_folder(args)
    if folder is not None:
        # an error of the output comes before a folder is made
        open_output(args, columns, width).abort()
    with (
        job_checkpoint(args, folder, job.identity) as checkpoint,
        open_output(args, columns, width) as writer,
    ):
        yield job.run(checkpoint), writer


def open_output(args: Arguments, columns: Any, width: int = 64) -> Writer:
    with translate_usage_errors():
        format_name = "jsonl" if args.as_json else None
        return open_writer(args.output, format=format_name, columns=columns, width=width)


def _write_pairs(batches: Generator[Pairs, None, None], writer: Writer) -> tuple[int, int]:
    """Return the number of pairs of two fingerprints, and of one with itself."""
    distinct = shared = 0
    with closing(batches):  # threads end before what they have found is dropped
        for batch in batches:
            for data in batch.rows_of_ids():
                writer.write(data)
            same = int(np.count_nonzero(equal(batch.rows_a, batch.rows_b)))
            distinct, shared = distinct + len(batch) - same, shared + same
    return distinct, shared


@verb(
    options.STORE,
    options.PAIR_RADIUS,
    option(
        "--duplicates",
        "Also write each pair of documents that share a fingerprint, first and at distance 0.",
    ),
    content.ORIENTED,
    *JOB,
)
def pairs(args: Arguments) -> None:
    """Find all pairs of near-duplicates in a store.

    The two fingerprints of a pair differ in at least one bit, and in at most --radius bits.

    Writes a line `a b distance id_a id_b` per pair of ids, the lesser fingerprint first. Cells are
    separated by tabs, fingerprints are hexadecimal, and there is no header. With --json, writes an
    object per line. Documents with the same fingerprint are no pair. With --duplicates they are: n
    such documents are n (n - 1) / 2 lines. fpstore cluster writes n lines for them.

    For an LSH index, writes a line `id_a id_b similarity` per pair of documents that share a key
    and whose signatures differ in at most --radius bits. The similarity is estimated by
    signatures.

    With --orientations 8, the pictures that a store was built of are read again, by the paths that
    their ids are.

    $ fpstore pairs crawl.fps --radius 2
    $ fpstore pairs crawl.fps --radius 0 --duplicates --json
    $ fpstore pairs crawl.fps --output pairs.parquet --memory 4GiB --threads 2 --resume
    $ fpstore pairs crawl.fps --output pairs.csv
    $ fpstore pairs photos.fps --orientations 8
    $ fpstore pairs pages.lsh --radius 20 --output pairs.parquet
    """
    if index := index_module(args):
        index.pairs(args)
        return
    with open_store(args.store) as opened, args.bars() as bars:
        options.check_radius_option(args.radius, opened.width)
        job = pairs_job(
            opened, args.radius, args.duplicates, args.resources(bars), args.orientations
        )
        with _job_output(args, job, PAIR_COLUMNS, opened.width) as (batches, writer):
            distinct, shared = _write_pairs(batches, writer)
        totals = job.snapshot.totals
        same = totals.ids - totals.fingerprints
    message = f"{plural(distinct, 'pair')} of fingerprints"
    if args.duplicates:
        message += f"; {plural(shared, 'fingerprint')} of several documents"
    elif same:
        message += f"; {SAME.format(plural(same, 'document'))}"
    args.note(message)


@verb(
    options.STORE,
    options.PAIR_RADIUS,
    option(
        "--group",
        "connected: chains of pairs make a cluster. greedy: all documents of a cluster are within "
        "the radius of its representative. By default greedy for pictures and MinHash, connected "
        "for all others.",
        GROUPINGS,
    ),
    option(
        "--keep",
        "The representative: the first document stored (of integer ids, the least), the one with "
        "the smallest id, or the one nearest to the majority of the fingerprints.",
        REPRESENTATIVES,
        "first",
    ),
    content.ORIENTED,
    *JOB,
)
def cluster(args: Arguments) -> None:
    """Find the clusters of near-duplicates.

    Documents are in one cluster if pairs within the radius connect them, also in chains.

    Writes a line `id cluster representative` per document that is in a cluster of two or more,
    cluster by cluster, the representative first. Cells are separated by tabs, and there is no
    header. With --json, writes an object per line. Clusters are numbered from 0.

    For an LSH index, by default --group is greedy, and --radius is in bits of signatures.

    With --orientations 8, the pictures that a store was built of are read again, by the paths that
    their ids are.

    $ fpstore cluster crawl.fps --radius 2
    $ fpstore cluster crawl.fps --output clusters.parquet --memory 4GiB --threads 2
    $ fpstore cluster crawl.fps --group greedy --keep smallest --json
    $ fpstore cluster pages.lsh --group connected
    """
    if index := index_module(args):
        index.cluster(args)
        return
    with open_store(args.store) as opened, args.bars() as bars:
        options.check_radius_option(args.radius, opened.width)
        job = clusters_job(
            opened, args.radius, args.group, args.keep, args.resources(bars), args.orientations
        )
        with _job_output(args, job, CLUSTER_COLUMNS) as (clusters, writer):
            write_clusters(clusters, writer, bars)
    largest = (
        f", the largest of {plural(int(clusters.sizes.max()), 'document')}" if len(clusters) else ""
    )
    args.note(
        f"{plural(clusters.documents, 'document')}, {plural(len(clusters), 'cluster')}{largest}, "
        f"{plural(clusters.duplicates, 'duplicate')}"
    )


@verb(
    options.STORE,
    argument("other", "OTHER"),
    options.PAIR_RADIUS,
    content.TEXT_FIELD,
    content.ROLES,
    content.SKIP_BAD,
    options.ENCODING,
    *options.ROW_OPTIONS,
    *JOB,
)
def join(args: Arguments) -> None:
    """Find all pairs of two stores.

    OTHER is another store, or a file of fingerprints as fpstore build takes them. With --text-field
    it is a file of rows with texts, and the store knows how to make their fingerprints. Writes a
    line `a b distance id_a id_b` per pair of ids, where a is in STORE, and b in OTHER. Fingerprints
    that both have are pairs of distance 0. So a join finds the documents of a training set that are
    near documents of a benchmark; fpstore delete removes them.

    $ fpstore join crawl.fps monday.fps --radius 2
    $ fpstore join crawl.fps new.tsv --output pairs.jsonl --resume
    $ fpstore join crawl.fps hashes.csv --format csv --fingerprint-field hash --id-field url \
        --decimal --signed
    $ fpstore join notes.fps corpus.parquet --text-field text --id-field id --radius 6
    $ fpstore join notes.fps questions.jsonl --text-field question --encoding utf-8
    """
    notices = Notices(ROWS)
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(args.store))
        other: Store | Reader
        if is_openable(Path(args.other)):
            of_files = (
                "format",
                *content.OF_FINGERPRINTS,
                "id_field",
                "id_type",
                "text_field",
                "roles",
                "skip_bad",
                "encoding",
            )
            args.refuse("is for files, and OTHER is a store", *of_files)
            other = stack.enter_context(open_store(args.other))
            if (
                None not in (opened.fingerprinter, other.fingerprinter)
                and opened.fingerprinter != other.fingerprinter
            ):
                stores = f"{args.store} and {args.other}"
                args.note(
                    f"{stores}: their fingerprints were made in different ways, so distances may "
                    "mean nothing"
                )
        else:
            other = _other_rows(args, opened, notices)
        options.check_radius_option(args.radius, opened.width)
        bars = stack.enter_context(args.bars())
        job = join_job(opened, other, args.radius, None, args.resources(bars))
        with _job_output(args, job, PAIR_COLUMNS, opened.width) as (batches, writer):
            rows = sum(_write_pairs(batches, writer))
    notices.report(args)
    args.note(plural(rows, "pair") + " of fingerprints")


def _other_rows(args: Arguments, store: Store, notices: Notices) -> Reader:
    """Return the reader of fingerprints, or of texts that the store can hash."""
    content.refuse_options_of_other_kinds(args, FINGERPRINTS if args.text_field is None else ROWS)
    if args.text_field is None:
        return content.open_fingerprints(args, args.other, Width(store.width, stored=True))
    kind, fingerprinter, columns = content.store_inputs(args, store)
    reader: Reader = content.open_inputs(args, kind, args.other, fingerprinter, notices, columns)
    return reader
