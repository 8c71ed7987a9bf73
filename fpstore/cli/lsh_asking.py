"""The verbs of ``fpstore lsh`` that ask an index, and take care of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fpstore
from fpstore import lsh as indexes
from fpstore.base.arguments import printable
from fpstore.base.resources import shown_size
from fpstore.cli import content, options
from fpstore.cli.answers import is_json
from fpstore.cli.care import printed_repair, printed_report
from fpstore.cli.content import TEXTS, Notices
from fpstore.cli.jobs import open_output
from fpstore.cli.lsh import INDEX, READING, given_texts, summary, texts_of
from fpstore.cli.options import argument, option, whole
from fpstore.cli.output import print_facts, print_json
from fpstore.cli.questions import FAILED, MATCHED, UNMATCHED
from fpstore.cli.verb import Given, output_is, verb
from fpstore.errors import InputError, counted
from fpstore.hashing.documents import NO_WORDS, SENTENCES
from fpstore.io import open_writer
from fpstore.io.sink import Sink
from fpstore.io.tables import values_at
from fpstore.jobs import GROUPINGS, REPRESENTATIVES
from fpstore.jobs.clusters import CLUSTER_COLUMNS, write_clusters
from fpstore.lsh import LshStore, Matches
from fpstore.lsh.given import Given as GivenPiece
from fpstore.lsh.given import asked_of
from fpstore.lsh.keys import MOST_SIGNATURE_BYTES
from fpstore.lsh.manifest import DOCUMENTS, KEYS, is_index

COLUMNS = ("query", "id", "similarity")
PAIR_COLUMNS = ("id_a", "id_b", "similarity")
FLOATS: dict[str, Any] = {"similarity": "share"}
RADIUS = option(
    "-r --radius N",
    "Largest distance of the signatures of a match, in bits. By default the index's.",
    whole(0, 8 * MOST_SIGNATURE_BYTES),
)
JOB = (RADIUS, options.OUTPUT, *options.LIMITS, *options.RESULT)
Write = Callable[[Any, Matches], None]  # of the ids of queries, and their matches


@verb(
    INDEX,
    argument("inputs", "INPUT...", nargs=-1, required=True),
    RADIUS,
    *READING,
    options.OUTPUT,
    options.JSON,
    options.THREADS,
    option(
        "-q --quiet",
        "Write nothing but errors: the exit code says whether there is a match.",
        is_eager=True,
    ),
    options.NO_PROGRESS,
    guesses=content.KNOWN_GUESSES,
    failure=FAILED,
)
def probe(given: Given) -> int:
    """Find the documents that are like some texts.

    An INPUT is a text file or a folder of them, or - for a text on standard input; or with
    --text-field a file of rows with texts, as for fpstore lsh build.

    Writes a line `query id similarity` per match, separated by tabs, the most similar first. The
    query is the path, the id of the row or, without --id-field, its number. The similarity is
    estimated by signatures. With --json, writes an object per query: {"query": ..., "matches":
    [{"id": ..., "similarity": ...}]}. The exit code is 0 if a query has a match, 1 if none has, and
    2 after an error.

    $ fpstore lsh probe pages.lsh draft.txt
    $ fpstore lsh probe pages.lsh notes --suffix .txt --json
    $ fpstore lsh probe titled.lsh corpus.parquet --text-field text --id-field id --output matches.parquet --threads 1
    $ fpstore lsh probe pages.lsh pages.jsonl --text-field text --radius 20 --no-progress
    $ cat draft.txt | fpstore lsh probe pages.lsh - --quiet
    """
    if given.quiet:
        given.refuse("does not go with --quiet, which writes nothing", "output")
    notices, found, done = Notices(TEXTS), False, 0
    with indexes.open(given.store) as index, given.bars() as bars:
        pieces = _asked(given, index, notices)
        with _writer(given) as write:
            for asked, ids in pieces:
                matches = index.probe_many(asked, radius=given.radius, threads=given.threads)
                found, done = found or len(matches.distances) > 0, done + len(matches)
                write(ids.texts() if hasattr(ids, "texts") else ids, matches)
                bars("probing", done)
    notices.report(given)
    return MATCHED if found else UNMATCHED


def _asked(given: Given, index: LshStore, notices: Notices) -> Iterator[GivenPiece]:
    """Yield the texts of the inputs; ``-`` is a text on standard input, if they are files."""
    if given.text_field is not None or "-" not in given.inputs:
        yield from given_texts(index, texts_of(given, index, notices, **_chunks(given)))
        return
    paths = given.inputs
    for path in paths:
        given.inputs = [path] if path != "-" else []
        if path != "-":
            yield from given_texts(index, texts_of(given, index, notices))
            continue
        text = content.standard_input(notices, given.encoding)
        number, rows = index.bands
        asked = asked_of(next(index.hasher.sketched([text], number * rows)), index.bands)
        if not len(asked.rows):
            raise InputError(
                f"standard input: {SENTENCES[NO_WORDS]}, so nothing is near it", path="-"
            )
        yield GivenPiece(asked, ["-"])


def _chunks(given: Given) -> dict[str, Any]:
    return {} if given.text_field is None else {"chunk_rows": content.CHUNK_ROWS}


@contextmanager
def _writer(given: Given) -> Iterator[Write]:
    """Yield what writes the matches of some queries, as rows or as objects."""
    if given.quiet:
        yield lambda ids, matches: None
    elif is_json(given.output, given.as_json):
        encode = json.JSONEncoder(ensure_ascii=False).encode
        with Sink(given.output) as sink:

            def write_objects(ids: Any, matches: Matches) -> None:
                for query, found in zip(
                    ids if isinstance(ids, list) else ids.tolist(), matches, strict=True
                ):
                    listed = [{"id": match.id, "similarity": match.similarity} for match in found]
                    sink.write(f"{encode({'query': query, 'matches': listed})}\n".encode())
                sink.flush()

            yield write_objects
    else:
        with open_writer(
            given.output,
            columns=dict[str, Any].fromkeys(COLUMNS, "value") | FLOATS,
        ) as writer:

            def write_rows(ids: Any, matches: Matches) -> None:
                query = values_at(ids, np.repeat(np.arange(len(matches)), np.diff(matches.lims)))
                writer.write(
                    {"query": query, "id": matches.read_ids(), "similarity": matches.similarities}
                )
                writer.flush()

            yield write_rows


@verb(INDEX, *JOB)
def pairs(given: Given) -> None:
    """Find all pairs of similar documents in an index.

    Writes a line `id_a id_b similarity` per pair that shares a key and lies within the radius.
    Cells are separated by tabs, and there is no header. With --json, writes an object per line. The
    similarity is estimated by signatures. Where a text has many thousand copies, fpstore lsh
    cluster writes a line for each, not for each two.

    $ fpstore lsh pairs pages.lsh
    $ fpstore lsh pairs pages.lsh --radius 20 --output pairs.parquet --threads 1 --memory 1GiB
    $ fpstore lsh pairs notes.lsh --json --quiet
    """
    with indexes.open(given.store) as index, given.bars() as bars:
        resources = {"memory": given.memory, "threads": given.threads, "progress": bars}
        with open_output(given, dict.fromkeys(PAIR_COLUMNS, "value") | FLOATS) as writer:
            for batch in index.pairs(given.radius, **resources):
                for columns in batch.rows_of_ids():
                    writer.write(columns)
            found = writer.rows
    given.note(f"{counted(found, 'pair')} of documents")


@verb(
    INDEX,
    option(
        "--group",
        "greedy: all documents of a cluster are within the radius of its representative. "
        "connected: chains of pairs "
        "make a cluster.",
        GROUPINGS,
        "greedy",
    ),
    option(
        "--keep",
        "The representative: the first document that was inserted, the one with the smallest id, "
        "or the one nearest to "
        "the majority of the signatures.",
        REPRESENTATIVES,
        "first",
    ),
    *JOB,
)
def cluster(given: Given) -> None:
    """Find the clusters of similar documents in an index.

    Writes a line `id cluster representative` per document that is in a cluster of two or more,
    cluster by cluster, the representative first. Cells are separated by tabs, and there is no
    header. With --json, writes an object per line.

    $ fpstore lsh cluster pages.lsh
    $ fpstore lsh cluster pages.lsh --group connected --keep smallest --output clusters.parquet --json
    """
    with indexes.open(given.store) as index, given.bars() as bars:
        resources = {"memory": given.memory, "threads": given.threads, "progress": bars}
        with open_output(given, CLUSTER_COLUMNS) as writer:
            found = index.clusters(given.radius, group=given.group, keep=given.keep, **resources)
            write_clusters(found, writer, bars)
    given.note(
        f"{counted(found.documents, 'document')}, {counted(len(found), 'cluster')}, "
        f"{counted(found.duplicates, 'duplicate')}"
    )


@verb(INDEX, options.JSON)
def stats(given: Given) -> None:
    """Show the contents and the sizes of an index.

    $ fpstore lsh stats pages.lsh
    $ fpstore lsh stats pages.lsh --json
    """
    with indexes.open(given.store) as index:
        found, hasher = index.stats(), index.hasher
    if given.as_json:
        print_json(found)
        return
    sizes = found["bytes"]
    facts = {
        "documents": f"{found['documents']:,}",
        "ids": f"{found['ids']:,} ({found['id_kind']})",
        "hasher": found["hasher"]["name"],
        "measure": hasher.law.measure,
        "threshold": f"{found['threshold']:g}, found with the probability {found['recall']:g}",
        "bands": f"{found['bands']} of {found['rows']} values",
        "radius": f"{found['radius']} of {hasher.signature_bits} bits",
        "keys": f"{found['keys']:,} of {found['key_bits']} bits, with numbers of "
        f"{found['number_bits']}",
        **{
            f"bytes of {name}": f"{sizes[name]:,} ({shown_size(sizes[name])})"
            for name in (DOCUMENTS, KEYS)
        },
        "bytes a document": f"{found['bytes_per_document']:.1f}",
    }
    print_facts(printable(given.store), facts.items())


@verb(INDEX, *options.RESULT)
def verify(given: Given) -> None:
    """Read every byte of an index and check it.

    Both stores are checked as by fpstore verify, and that every document has keys. The exit code is
    1 if something is wrong.

    $ fpstore lsh verify pages.lsh
    $ fpstore lsh verify pages.lsh --json
    """
    unread = ""
    try:
        with given.bars() as bars, indexes.open(given.store) as index:
            report = index.verify(progress=bars)
    except (fpstore.CorruptStoreError, fpstore.StoreNotFoundError) as error:
        if not is_index(Path(given.store)):
            raise
        report = fpstore.Report()
        report.note(error)
        unread = "; it cannot be opened, so the rest was not read"
    printed_report(given, report, unread, "document", "fpstore lsh repair")


@verb(
    INDEX,
    argument("path", "PATH"),
    option(
        "--force",
        "Replace PATH, if it is an index already, once the copy is complete. Nothing else is ever "
        "replaced.",
    ),
    *options.RESULT,
    guesses=output_is("the copy is the second argument"),
)
def backup(given: Given) -> None:
    """Copy an index, even while it is in use.

    PATH gets the index as it is at one moment, complete or not at all. The copy is not verified.

    $ fpstore lsh backup pages.lsh copy.lsh
    $ fpstore lsh backup pages.lsh copy.lsh --force --json
    """
    with given.bars() as bars, indexes.open(given.store) as index:
        index.backup(given.path, overwrite=given.force, progress=bars)
    with indexes.open(given.path) as copied:
        found = copied.stats()
    given.result(found, given.timed(given.path, summary(found)))


@verb(
    INDEX,
    option("-o --output NEW", "The index to write. By default INDEX.repaired."),
    *options.LIMITS,
    *options.RESULT,
)
def repair(given: Given) -> None:
    """Make a sound index from a damaged one.

    The damaged index is never changed. A document that has lost some of its keys is found less
    often. Prints what was done and what is lost. The exit code is 1 if something is lost. If
    nothing is wrong, nothing is written. lsh.json must be intact.

    $ fpstore lsh repair pages.lsh
    $ fpstore lsh repair pages.lsh -o repaired.lsh --json
    """
    with given.bars() as bars:
        report = indexes.repair(
            given.store, given.output, memory=given.memory, threads=given.threads, progress=bars
        )
    printed_repair(given, report, moves=True, noun="index")
