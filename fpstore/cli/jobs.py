"""The verbs that work on a whole store: ``pairs``, ``cluster`` and ``join``."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fpstore import Pairs, Store
from fpstore.api import open_store
from fpstore.base.width import Width
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, ROWS, Notices
from fpstore.cli.options import argument, option
from fpstore.cli.outputs import RESUME, resume_folder, resuming
from fpstore.cli.verb import Given, on_index, usage_errors, verb
from fpstore.errors import counted
from fpstore.format.manifest import is_openable
from fpstore.io import Reader, Writer, open_writer
from fpstore.jobs import GROUPINGS, REPRESENTATIVES
from fpstore.jobs.clusters import CLUSTER_COLUMNS, write_clusters
from fpstore.jobs.store_job import StoreJob, clusters_job, join_job, pairs_job

SAME = (
    "{} with the fingerprint of another one: fpstore cluster brings them together, --duplicates "
    "pairs them"
)
PAIR_COLUMNS = ("a", "b", "distance", "id_a", "id_b")
JOB = (options.OUTPUT, *options.LIMITS, RESUME, *options.RESULT)


@contextmanager
def _written(
    given: Given, job: StoreJob[Any], columns: tuple[str, ...], width: int = 64
) -> Iterator[tuple[Any, Writer]]:
    folder = resume_folder(given)
    if folder is not None:
        # an error of the output comes before a folder is made
        open_output(given, columns, width).abort()
    with (
        resuming(given, folder, job.identity) as checkpoint,
        open_output(given, columns, width) as writer,
    ):
        yield job.run(checkpoint), writer


def open_output(given: Given, columns: Any, width: int = 64) -> Writer:
    """Open the output of a job."""
    with usage_errors():
        form = "jsonl" if given.as_json else None
        return open_writer(given.output, format=form, columns=columns, width=width)


def _write_pairs(batches: Generator[Pairs, None, None], writer: Writer) -> tuple[int, int]:
    """Write a row per pair of ids.

    Return how many pairs of fingerprints differ, and how many do not.
    """
    found = equal = 0
    with closing(batches):  # threads end before what they have found is dropped
        for batch in batches:
            for data in batch.rows_of_ids():
                writer.write(data)
            found += int(np.count_nonzero(batch.distances))
            equal += int(np.count_nonzero(batch.distances == 0))
    return found, equal


@verb(
    options.STORE,
    options.PAIR_RADIUS,
    option(
        "--duplicates",
        "Also write each pair of documents that share a fingerprint, first and at distance 0.",
    ),
    *JOB,
)
def pairs(given: Given) -> None:
    """Find all pairs of near-duplicates in a store.

    The two fingerprints of a pair differ in at least one bit, and in at most --radius bits.

    Writes a line `a b distance id_a id_b` per pair of ids, the lesser fingerprint first. Cells are
    separated by tabs, fingerprints are hexadecimal, and there is no header. With --json, writes an
    object per line. Documents with the same fingerprint are no pair. With --duplicates they are: n
    such documents are n (n - 1) / 2 lines. fpstore cluster writes n lines for them.

    Of an LSH index, writes a line `id_a id_b similarity` per pair of documents that share a key and
    whose signatures differ in at most --radius bits. The similarity is estimated by signatures.

    $ fpstore pairs crawl.fps --radius 2
    $ fpstore pairs crawl.fps --radius 0 --duplicates --json
    $ fpstore pairs crawl.fps --output pairs.parquet --memory 4GiB --threads 2 --resume
    $ fpstore pairs crawl.fps --output pairs.csv
    $ fpstore pairs pages.lsh --radius 20 --output pairs.parquet
    """
    if index := on_index(given):
        index.pairs(given)
        return
    with open_store(given.store) as opened, given.bars() as bars:
        job = pairs_job(opened, given.radius, given.duplicates, given.resources(bars))
        with _written(given, job, PAIR_COLUMNS, opened.width) as (batches, writer):
            found, shared = _write_pairs(batches, writer)
        totals = job.snapshot.totals
        same = totals.ids - totals.fingerprints
    message = f"{counted(found, 'pair')} of fingerprints"
    if given.duplicates:
        message += f"; {counted(shared, 'fingerprint')} of several documents"
    elif same:
        message += f"; {SAME.format(counted(same, 'document'))}"
    given.note(message)


@verb(
    options.STORE,
    options.PAIR_RADIUS,
    option(
        "--group",
        "connected: chains of pairs make a cluster. greedy: all documents of a cluster are within "
        "the radius of its "
        "representative. By default greedy for pictures and MinHash, connected for all others.",
        GROUPINGS,
    ),
    option(
        "--keep",
        "The representative: the first document stored (of integer ids, the least), the one with "
        "the smallest id, or "
        "the one nearest to the majority of the fingerprints.",
        REPRESENTATIVES,
        "first",
    ),
    *JOB,
)
def cluster(given: Given) -> None:
    """Find the clusters of near-duplicates.

    Documents are in one cluster if pairs within the radius connect them, also in chains.

    Writes a line `id cluster representative` per document that is in a cluster of two or more,
    cluster by cluster, the representative first. Cells are separated by tabs, and there is no
    header. With --json, writes an object per line. Clusters are numbered from 0.

    Of an LSH index, by default --group is greedy, and --radius is in bits of signatures.

    $ fpstore cluster crawl.fps --radius 2
    $ fpstore cluster crawl.fps --output clusters.parquet --memory 4GiB --threads 2
    $ fpstore cluster crawl.fps --group greedy --keep smallest --json
    $ fpstore cluster pages.lsh --group connected
    """
    if index := on_index(given):
        index.cluster(given)
        return
    with open_store(given.store) as opened, given.bars() as bars:
        job = clusters_job(opened, given.radius, given.group, given.keep, given.resources(bars))
        with _written(given, job, CLUSTER_COLUMNS) as (found, writer):
            write_clusters(found, writer, bars)
    largest = (
        f", the largest of {counted(int(found.sizes.max()), 'document')}" if len(found) else ""
    )
    given.note(
        f"{counted(found.documents, 'document')}, {counted(len(found), 'cluster')}{largest}, "
        f"{counted(found.duplicates, 'duplicate')}"
    )


@verb(
    options.STORE,
    argument("other", "OTHER"),
    options.PAIR_RADIUS,
    content.TEXT_FIELD,
    options.ENCODING,
    *options.ROW_OPTIONS,
    *JOB,
)
def join(given: Given) -> None:
    """Find all pairs of two stores.

    OTHER is another store, or a file of fingerprints as fpstore build takes them. With --text-field
    it is a file of rows with texts, and the store knows how to make their fingerprints. Writes a
    line `a b distance id_a id_b` per pair of ids, where a is in STORE, and b in OTHER. Fingerprints
    that both have are pairs of distance 0. So a join finds the documents of a training set that are
    near documents of a benchmark; fpstore delete removes them.

    $ fpstore join crawl.fps monday.fps --radius 2
    $ fpstore join crawl.fps new.tsv --output pairs.jsonl --resume
    $ fpstore join crawl.fps hashes.csv --format csv --fingerprint-field hash --id-field url --decimal --signed
    $ fpstore join notes.fps corpus.parquet --text-field text --id-field id --radius 6
    $ fpstore join notes.fps questions.jsonl --text-field question --encoding utf-8
    """
    notices = Notices(ROWS)
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(given.store))
        theirs: Store | Reader
        if is_openable(Path(given.other)):
            of_files = (
                "format",
                *content.OF_FINGERPRINTS,
                "id_field",
                "id_type",
                "text_field",
                "encoding",
            )
            given.refuse("is for files, and OTHER is a store", *of_files)
            theirs = stack.enter_context(open_store(given.other))
            if (
                None not in (opened.fingerprinter, theirs.fingerprinter)
                and opened.fingerprinter != theirs.fingerprinter
            ):
                both = f"{given.store} and {given.other}"
                given.note(
                    f"{both}: their fingerprints were made in different ways, so distances may "
                    "mean nothing"
                )
        else:
            theirs = _other_rows(given, opened, notices)
        bars = stack.enter_context(given.bars())
        job = join_job(opened, theirs, given.radius, None, given.resources(bars))
        with _written(given, job, PAIR_COLUMNS, opened.width) as (batches, writer):
            found = sum(_write_pairs(batches, writer))
    notices.report(given)
    given.note(counted(found, "pair") + " of fingerprints")


def _other_rows(given: Given, store: Store, notices: Notices) -> Reader:
    """Return the reader of fingerprints, or of texts, of which the store knows how to make them."""
    content.refuse_foreign(given, FINGERPRINTS if given.text_field is None else ROWS)
    if given.text_field is None:
        return content.open_fingerprints(given, given.other, Width(store.width, stored=True))
    kind, maker, columns = content.known_kind(given, store)
    found: Reader = content.open_inputs(given, kind, given.other, maker, notices, columns)
    return found
