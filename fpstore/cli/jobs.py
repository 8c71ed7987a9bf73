"""The verbs that work on a whole corpus: ``pairs``, ``cluster``, ``join`` and ``dedup``; and ``--resume``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import fpstore
from fpstore import Pairs, Store
from fpstore.api import opened_reference
from fpstore.base.arguments import printable
from fpstore.base.resources import shown_size
from fpstore.base.width import WIDTHS, Width, check_width
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, ROWS, TEXTS, Notices
from fpstore.cli.options import argument, option, whole
from fpstore.cli.output import not_compared_rows, print_table, shown_ids
from fpstore.cli.signals import going_on
from fpstore.cli.verb import Given, fail, output_is, usage_errors, verb
from fpstore.errors import counted
from fpstore.format.manifest import is_store
from fpstore.hashing.bands import minhash_in
from fpstore.hashing.binomial import binomial_cdf
from fpstore.hashing.corpora import open_corpus
from fpstore.io import Reader, Writer, open_writer
from fpstore.io.source import Projection, RowSource
from fpstore.io.tables import renamed
from fpstore.jobs import GROUPINGS, KEEP_RULES, REPRESENTATIVES, SEARCHES, UNITS, UNKNOWN
from fpstore.jobs.boilerplate import PIECE_COLUMNS, USUAL_MORE_THAN, remove_boilerplate_of
from fpstore.jobs.checkpoint import Checkpoint, JobIdentity
from fpstore.jobs.clusters import CLUSTER_COLUMNS, CORPUS_COLUMNS, write_clusters
from fpstore.jobs.dedup import Deduplication, deduplicate
from fpstore.jobs.dedup_job import DEDUP_METHOD, DedupJob, Likeness, dedup_job
from fpstore.jobs.outputs import Listing
from fpstore.jobs.reference import Reference
from fpstore.jobs.removed import REMOVED_COLUMNS, REMOVED_WITH_REFERENCE
from fpstore.jobs.store_job import StoreJob, clusters_job, join_job, pairs_job

SUFFIX = ".resume"
SAME = "{} with the fingerprint of another one: fpstore cluster brings them together, --duplicates pairs them"
PAIR_COLUMNS = ("a", "b", "distance", "id_a", "id_b")
SHOWN_FAMILIES, SHOWN_IDS = 5, 4
RESUME = option(
    "--resume",
    "Keep what is done in the folder OUTPUT.resume until the job is done, and begin with what is there: if the job ends early, "
    "the same command goes on.",
)
NOTED_CHANCE = 0.01  # pairs of unrelated texts within the radius, for each text
JOB = (options.OUTPUT, options.RENAME, *options.LIMITS, RESUME, *options.RESULT)


def resume_folder(given: Given) -> Path | None:
    """Return the folder that keeps the work, if --resume wants it; otherwise print a note about a folder that is there."""
    resume = given.resume or getattr(given, "add", False)
    if given.output == "-":
        if resume:
            fail("--resume needs an output file: name one with --output")
        return None
    folder = Path(f"{given.output.rstrip('/')}{SUFFIX}")
    with suppress(OSError):  # a name that is too long for a folder may do for a file
        if not resume and folder.is_dir():
            given.note(f"{printable(folder)} is of a job that did not end; --resume goes on with it")
    return folder if resume else None


@contextmanager
def resuming(given: Given, folder: Path | None, identity: Callable[[], JobIdentity]) -> Iterator[Checkpoint | None]:
    """Keep the work inside the block in a folder, which is removed at the end; without a folder, keep nothing.

    A note says at the end of the block what was found done, and the message of an interrupt says how to go on.
    """
    if folder is None:
        yield None
        return
    named = printable(folder)
    advice = f"; what was done is in {named}: the same command goes on with it"
    with going_on(lambda: advice if folder.exists() else ""), Checkpoint(folder.absolute(), identity()) as checkpoint:
        if checkpoint.resumed:
            given.note(f"{named}: what is finished in it is not done again")
        yield checkpoint
    if checkpoint.resumed and checkpoint.reused:
        given.note(checkpoint.summary())


@contextmanager
def _written(given: Given, job: StoreJob[Any], columns: tuple[str, ...], width: int = 64) -> Iterator[tuple[Any, Writer]]:
    folder = resume_folder(given)
    if folder is not None:
        _open_output(given, columns, width).abort()  # an error of the output comes before a folder is made
    with resuming(given, folder, job.identity) as checkpoint, _open_output(given, columns, width) as writer:
        yield job.run(checkpoint), writer


def _open_output(given: Given, columns: tuple[str, ...], width: int = 64, path: str | None = None) -> Writer:
    with usage_errors():
        form = "jsonl" if given.as_json and path is None else None
        return open_writer(path or given.output, format=form, columns=columns, width=width, names=given.names)


def _write_pairs(batches: Generator[Pairs, None, None], writer: Writer) -> tuple[int, int]:
    """Write a row per pair of ids; return how many pairs of fingerprints differ, and how many do not."""
    found = equal = 0
    with closing(batches):  # threads end before what they have found is dropped
        for batch in batches:
            for data in batch.rows_of_ids():
                writer.write(data)
            found += int(np.count_nonzero(batch.distances))
            equal += int(np.count_nonzero(batch.distances == 0))
    return found, equal


@verb(
    options.STORE, options.PAIR_RADIUS,
    option("--duplicates", "Also write each pair of documents that share a fingerprint, first and at distance 0."),
    *JOB,
)  # fmt: skip
def pairs(given: Given) -> None:
    """Find all pairs of near-duplicates in a store.

    The two fingerprints of a pair differ in at least one bit, and in at most --radius bits.

    Writes a line `a b distance id_a id_b` per pair of ids, the lesser fingerprint first. Cells are separated by tabs,
    fingerprints are hexadecimal, and there is no header. With --json, writes an object per line. Documents with the same
    fingerprint are no pair. With --duplicates they are: n such documents are n (n - 1) / 2 lines. fpstore cluster writes n
    lines for them.

    $ fpstore pairs crawl.fps --radius 2
    $ fpstore pairs crawl.fps --radius 0 --duplicates --json
    $ fpstore pairs crawl.fps --output pairs.parquet --memory 4GiB --threads 2 --resume
    $ fpstore pairs crawl.fps --rename id_a=url --rename id_b=other --output pairs.csv
    """
    with fpstore.open(given.store) as opened, given.bars() as bars:
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
    options.STORE, options.PAIR_RADIUS,
    option(
        "--group", "connected: chains of pairs make a cluster. greedy: all documents of a cluster are within the radius of its "
        "representative. By default greedy for pictures and MinHash, connected for all others.", GROUPINGS,
    ),
    option(
        "--keep", "The representative: the first document stored (of integer ids, the least), the one with the smallest id, or "
        "the one nearest to the majority of the fingerprints.", REPRESENTATIVES, "first",
    ),
    *JOB,
)  # fmt: skip
def cluster(given: Given) -> None:
    """Find the clusters of near-duplicates.

    Documents are in one cluster if pairs within the radius connect them, also in chains.

    Writes a line `id cluster representative` per document that is in a cluster of two or more, cluster by cluster, the
    representative first. Cells are separated by tabs, and there is no header. With --json, writes an object per line.
    Clusters are numbered from 0.

    $ fpstore cluster crawl.fps --radius 2
    $ fpstore cluster crawl.fps --output clusters.parquet --memory 4GiB --threads 2
    $ fpstore cluster crawl.fps --group greedy --keep smallest --json
    """
    with fpstore.open(given.store) as opened, given.bars() as bars:
        job = clusters_job(opened, given.radius, given.group, given.keep, given.resources(bars))
        with _written(given, job, CLUSTER_COLUMNS) as (found, writer):
            write_clusters(found, writer, bars)
    largest = f", the largest of {counted(int(found.sizes.max()), 'document')}" if len(found) else ""
    given.note(
        f"{counted(found.documents, 'document')}, {counted(len(found), 'cluster')}{largest}, "
        f"{counted(found.duplicates, 'duplicate')}"
    )


@verb(
    options.STORE, argument("other", "OTHER"), options.PAIR_RADIUS, content.TEXT_FIELD, options.ENCODING, *options.ROW_OPTIONS,
    *JOB,
)  # fmt: skip
def join(given: Given) -> None:
    """Find all pairs of two stores.

    OTHER is another store, or a file of fingerprints as fpstore build takes them. With --text-field it is a file of rows with
    texts, and the store knows how to make their fingerprints. Writes a line `a b distance id_a id_b` per pair of ids, where a is
    in STORE, and b in OTHER. Fingerprints that both have are pairs of distance 0. So a join finds the
    documents of a training set that are near documents of a benchmark; fpstore delete removes them.

    $ fpstore join crawl.fps monday.fps --radius 2
    $ fpstore join crawl.fps new.tsv --rename a=stored --rename b=new --output pairs.jsonl --resume
    $ fpstore join crawl.fps hashes.csv --format csv --fingerprint-field hash --id-field url --decimal --signed
    $ fpstore join notes.fps corpus.parquet --text-field text --id-field id --radius 6
    $ fpstore join notes.fps questions.jsonl --text-field question --encoding utf-8
    """
    notices = Notices(ROWS)
    with ExitStack() as stack:
        opened = stack.enter_context(fpstore.open(given.store))
        theirs: Store | Reader
        if is_store(Path(given.other)):
            of_files = ("format", *content.OF_FINGERPRINTS, "id_field", "id_type", "text_field", "encoding")
            given.refuse("is for files, and OTHER is a store", *of_files)
            theirs = stack.enter_context(fpstore.open(given.other))
            if None not in (opened.fingerprinter, theirs.fingerprinter) and opened.fingerprinter != theirs.fingerprinter:
                both = f"{given.store} and {given.other}"
                given.note(f"{both}: their fingerprints were made in different ways, so distances may mean nothing")
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


def _last(context: click.Context, _: click.Parameter, output: str) -> str:
    """Take the last argument, if there is one before it: click takes a single one for the last."""
    if not context.params["inputs"]:
        raise click.UsageError("Missing argument 'OUTPUT': INPUT... comes before it.")
    return output


@verb(
    argument("inputs", "INPUT...", nargs=-1),
    argument("output", "OUTPUT", callback=_last),
    *content.TEXTUAL, options.FINGERPRINT_FIELD, options.DECIMAL, options.SIGNED, options.ID_FIELD,
    option("--score-field NAME", "Column or JSON field of numbers or times, for --keep highest.", options.NAME),
    option(
        "--threshold X", "Jaccard similarity of near-duplicates, 0 to 1. With minhash, the radius is the least that finds 98% of "
        "the pairs of this similarity. With --verify, the bound of the exact similarity. By default 0.7.", click.FloatRange(0, 1),
    ),
    option(
        "-r --radius N", "Instead of --threshold, the largest distance of near-duplicates, in bits. By default, without minhash, "
        "3 of each 64 bits.", options.RADIUS,
    ),
    option(
        "--keep", "Of each cluster keep the first row, the one with the smallest id, the one nearest to the majority of the "
        "fingerprints, or the one with the highest score.", KEEP_RULES, "first",
    ),
    option(
        "--group", "connected: chains of near-duplicates make a cluster. greedy: all documents of a cluster are within the "
        "radius of the kept one. By default greedy for minhash, otherwise connected.", GROUPINGS,
    ),
    option(
        "--verify", "Read the texts of clusters again, and remove one only if it has the share --threshold of its pieces in "
        "common with the text that is kept, counted exactly.",
    ),
    option(
        "--search", "exact: compare all rows. bands: compare only texts that share some minima of MinHash, which is faster for "
        "many rows. auto: bands for more than 1,048,576 rows, unless you give --radius.", SEARCHES, "auto",
    ),
    option(
        "--against REFERENCE", "Also remove rows that are near a document of REFERENCE, a store or a file with the same columns, "
        "which stays as it is. Texts are hashed as the store hashed its own, and its radius applies unless you give another.",
    ),
    option(
        "--add", "Insert the kept rows into the store REFERENCE, with their ids, when OUTPUT is complete. A store that does not "
        "exist is made. OUTPUT.resume is kept until then: if the job ends early, the same command goes on.",
    ),
    option(
        "--unknown", "What becomes of rows that cannot be compared: null texts, fingerprints or ids, texts without words.",
        UNKNOWN, "keep",
    ),
    options.WIDTH, *content.SHINGLES,
    option(
        "--unit", "Remove documents; or, instead, the paragraphs or lines of texts that more than --more-than documents have. "
        "Paragraphs are separated by blank lines.", UNITS, "document",
    ),
    option(
        "--more-than N", "With --unit, the most documents that may have a paragraph or a line that stays.", options.COUNT,
        USUAL_MORE_THAN,
    ),
    option("--least-chars N", "With --unit, a paragraph or a line of fewer characters stays.", whole(0, 2**31 - 1), 0),
    option(
        "--clusters FILE", "Also write the clusters, as fpstore cluster does: .tsv, .csv, .jsonl or .parquet. The representative "
        "is the document kept; a line has the distance from it, too.",
    ),
    option(
        "--removed FILE", "Also write the rows that are removed: row, id, kept_row, kept, cluster, distance. With --against: "
        "row, id, kept, reference (1 if the kept document is there), distance. With --unit, what is removed from texts: text, "
        "documents, occurrences, bytes.",
    ),
    options.RENAME,
    option(
        "--force", "Replace OUTPUT, --clusters and --removed, if they exist. A folder of rows is replaced if it holds only files "
        "of the same format. A folder of texts must be new or empty.",
    ),
    *options.LIMITS, RESUME, *options.RESULT,
    guesses={
        **output_is("OUTPUT is the last argument, after all inputs"),
        "--image": "fpstore build --image makes a store of the pictures, and fpstore cluster lists the near-duplicates in it",
    },
)  # fmt: skip
def dedup(given: Given) -> None:
    """Remove the near-duplicates from a corpus.

    Of each cluster of near-duplicates one row is kept. Reads Parquet, JSON lines, CSV or TSV files with a header, and folders
    of such files, all with the same columns. Writes the kept rows to OUTPUT, in the same order, with all columns. OUTPUT has the
    extension of the inputs, or .jsonl or .parquet: the rows are converted then. Of several files or a folder, if OUTPUT has no
    extension of a format, it is a new folder for files of the same names. With --text, copies files to the folder OUTPUT. Then
    prints what was found, with --quiet only as --json. Rows may share an id: each row is a document. A null score is below all
    others; NaN is an error that names the row.

    A row whose text has no words, or whose text, fingerprint or id is null, is not compared. It is kept, unless you say
    --unknown drop; "not compared" of what is printed, in JSON "not_compared", counts such rows.

    $ fpstore dedup corpus.parquet clean.parquet --text-field text
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --threshold 0.8 --verify --removed removed.tsv --force
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --search bands --force
    $ fpstore dedup corpus.parquet clean.jsonl --text-field text
    $ fpstore dedup corpus.parquet plain.parquet --text-field text --unit paragraph --more-than 20
    $ fpstore dedup corpus.parquet plain.parquet --text-field text --unit line --least-chars 20 --removed lines.csv --force
    $ fpstore dedup shards clean-shards --text-field text --threads 2
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --id-field id --against crawl.minhash.fps --add --force
    $ fpstore dedup notes clean --text --suffix .txt --longest-sentences 3 --radius 0
    $ fpstore dedup hashes.csv clean.csv --fingerprint-field hash --decimal --signed --radius 2 --group greedy
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --clusters clusters.parquet --rename id=url --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --score-field score --keep highest --unknown drop --json --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --method simhash --width 128 --radius 10 --html --force
    $ fpstore dedup corpus.parquet titled.parquet --text-field title=4 --text-field text --id-field id --memory 4GiB --resume
    """
    if given.unit != "document":
        _remove_boilerplate(given)
        return
    given.refuse("is for --unit paragraph and --unit line", "more_than", "least_chars")
    kind = content.declared_kind(given)
    content.refuse_foreign(given, kind)
    _check_columns(given)
    maker = _maker(given, kind)
    how = Projection(
        id=given.id_field, score=given.score_field, width=check_width(given.width), decimal=given.decimal, signed=given.signed
    )
    likeness = Likeness(
        given.radius, content.own_width(given), threshold=given.threshold, group=given.group, keep=given.keep,
        verify=given.verify, search=given.search,
    )  # fmt: skip
    notices = Notices(kind)
    with ExitStack() as stack:
        reference = stack.enter_context(opened_reference(given.against, given.add, kind == TEXTS, given.encoding))
        with usage_errors():
            texts = given.text or given.text_field
            job = dedup_job(how, texts, given.fingerprint_field, likeness, given.unknown, maker, given.html, reference)
        corpus = open_corpus(given.inputs, kind == TEXTS, given.suffixes, notices, given.encoding, bool(given.html))
        notices.source, job = corpus, _planned(given, job, corpus)
        folder = resume_folder(given)
        bars = stack.enter_context(given.bars(corpus))
        found = deduplicate(
            corpus, job, given.resources(bars), given.output, given.force, folder, listings=_listings(given),
            open_checkpoint=partial(resuming, given), reference=reference,
        )  # fmt: skip
    notices.report(given)
    summary = _summary(job, found)
    if reference is not None:
        summary["near_reference"] = int(found.removed.in_reference.sum())
        _note_reference(given, reference, job, found)
    _note_chance(given, job, summary["documents"])
    given.result(summary)
    if not (given.as_json or given.quiet):
        _print_summary(summary, given.output, given.unknown)


def _note_reference(given: Given, reference: Reference, job: DedupJob, found: Deduplication) -> None:
    """Note what a store decides without a word: that it was made, how texts are hashed, and rows that it has already."""
    if reference.store is None and reference.adds:
        given.note(f"{printable(reference.path)}: made, as there was no such store")
    elif reference.store is not None and job.fingerprinter is not None and minhash_in(job.fingerprinter) is None:
        made = f"{job.fingerprinter.name}, radius {job.grouping.radius}"
        given.note(f"texts are compared as the store {printable(reference.path)} has them: {made}")
    again = 0
    for batch in found.removed.batches() if reference.adds and reference.store is not None else ():
        of_store = batch["reference"].astype(bool) & (batch["distance"] == 0)
        again += sum(str(batch["id"][n]) == str(batch["kept"][n]) for n in np.flatnonzero(of_store).tolist())
    if again:
        given.note(f"{counted(again, 'row')} removed, which the store has under the same id: was this batch added before?")


def _removed_columns(given: Given) -> tuple[str, ...]:
    return REMOVED_COLUMNS if given.against is None else REMOVED_WITH_REFERENCE


def _maker(given: Given, kind: str) -> Any:
    """Return the fingerprinter that the command line describes; None for fingerprints, and for that of a reference."""
    described = any(map(given.is_given, (*content.TEXT_MAKING, "width")))
    of_reference = given.against is not None and is_store(Path(given.against)) and not described
    return None if kind == FINGERPRINTS or of_reference else content.text_maker(given, DEDUP_METHOD)


def _planned(given: Given, job: DedupJob, corpus: RowSource) -> DedupJob:
    """Return the job with the search that suits the corpus; note what bands find."""
    with usage_errors():
        job = job.planned(corpus)
    if job.bands is not None:
        found = f"{job.recall:.1%} of the pairs of similarity {job.jaccard:.3g} are found"
        given.note(f"texts are compared if they share one of {job.bands.number} bands of {job.bands.size} minima: {found}")
    return job


def _summary(job: DedupJob, found: Deduplication) -> dict[str, Any]:
    clusters, documents, kept = found.clusters, len(found.kept), int(found.kept.sum())
    return {
        "documents": documents, "not_compared": found.not_compared, "clusters": len(clusters),
        "in_clusters": int(clusters.lims[-1]), "removed": documents - kept, "kept": kept,
        "sizes": clusters.histogram(), "largest": clusters.largest(SHOWN_FAMILIES),
        "search": "exact" if job.bands is None else "bands", "radius": job.grouping.radius,
        "similarity": job.jaccard, "recall": job.recall,
    }  # fmt: skip


def _remove_boilerplate(given: Given) -> None:
    """Remove the paragraphs or lines that many documents have."""
    known = {"inputs", "output", "text", "text_field", "suffixes", "encoding", "unit", "more_than", "force", "threads", "memory"}
    known |= {"quiet", "no_progress", "as_json", "least_chars", "removed", "names"}
    given.refuse("is for documents, not for --unit paragraph or line", *(vars(given).keys() - known))
    kind = content.declared_kind(given)
    if kind == FINGERPRINTS or isinstance(given.text_field, tuple | dict):
        fail("--unit: name one column of texts with --text-field, or give --text: each file is a document")
    content.refuse_foreign(given, kind)
    notices = Notices(kind)
    corpus = notices.source = open_corpus(given.inputs, kind == TEXTS, given.suffixes, notices, given.encoding)
    with given.bars(corpus) as bars:
        found = remove_boilerplate_of(
            corpus, given.text or given.text_field, given.unit, given.more_than, given.least_chars, given.resources(bars),
            given.output, given.force, _piece_listings(given),
        )  # fmt: skip
    notices.report(given)
    counts = {name: value for name, value in found._asdict().items() if name not in ("pieces", "table")}
    given.result({**counts, "kept": found.kept, "unit": given.unit, "more_than": given.more_than})
    if not (given.as_json or given.quiet):
        kinds = counted(found.repeated, f"different {given.unit}")
        rows = [
            ("documents", f"{found.documents:,}", ""),
            ("changed", f"{found.changed:,}", f"{found.dropped:,} of them dropped: nothing was left"),
            ("removed", f"{found.removed_pieces:,}", f"{kinds}, {shown_size(found.removed_bytes)}"),
            ("kept", f"{found.kept:,}", f"in {printable(given.output)}"),
        ]
        print_table(f"{given.unit.capitalize()}s of more than {given.more_than:,} documents", ("", "", ""), rows, left=(0, 2))


def _piece_listings(given: Given) -> list[Listing]:
    """Return the list of what is removed from texts, if it is asked for."""
    if given.removed is None:
        given.refuse("is for the columns of --removed", "names")
        return []
    if Path(given.removed).suffix.lower() in (".tsv", ".txt"):
        fail("--removed: the texts may have line breaks and tabs: name a .csv, .jsonl or .parquet file")
    with usage_errors():
        renamed(PIECE_COLUMNS, given.names)
    return [Listing(given.removed, partial(open_list, given, PIECE_COLUMNS), lambda edit: edit.pieces().batches())]


def _note_chance(given: Given, job: DedupJob, documents: int) -> None:
    """Note a radius at which unrelated texts are near each other."""
    radius, width = job.grouping.radius, job.projection.width.bits
    expected = binomial_cdf(radius, width, 0.5) * (documents - 1) / 2
    if expected >= NOTED_CHANCE and job.fingerprinter is not None and job.least_similarity is None and job.bands is None:
        given.note(
            f"at radius {radius} of {width} bits, unrelated texts are near each other by chance: in this corpus "
            f"{min(expected, 1):.0%} of the texts or more; raise --threshold or --width, or --verify"
        )


def _check_columns(given: Given) -> None:
    """Refuse new names of columns that --clusters and --removed do not have, and --add without a store, before the work."""
    if given.add and given.against is None:
        fail("--add inserts into the store that --against names")
    columns = (*(CORPUS_COLUMNS if given.clusters else ()), *(_removed_columns(given) if given.removed else ()))
    if not columns:
        given.refuse("is for the columns of --clusters and --removed", "names")
    with usage_errors():
        renamed(list(dict.fromkeys(columns)), given.names or {})


def _listings(given: Given) -> list[Listing]:
    """Return the files beside OUTPUT that the command line asks for."""
    found = []
    if given.clusters is not None:
        found.append(Listing(given.clusters, partial(open_list, given, CORPUS_COLUMNS), lambda found: found.clusters.batches()))
    if given.removed is not None:
        opened = partial(open_list, given, _removed_columns(given))
        found.append(Listing(given.removed, opened, lambda found: found.removed.batches()))
    return found


def open_list(given: Given, columns: tuple[str, ...], path: str) -> Writer:
    """Open a list beside the output, with the new names of its columns."""
    new = {name: new for name, new in (given.names or {}).items() if name in columns}
    with usage_errors():
        return open_writer(path, columns=columns, names=new or None, width=WIDTHS[-1])


def _print_summary(summary: dict[str, Any], output: str, unknown: str) -> None:
    share = summary["removed"] / max(summary["documents"], 1)
    rows = [
        ("documents", f"{summary['documents']:,}", ""),
        ("clusters", f"{summary['clusters']:,}", f"with {counted(summary['in_clusters'], 'document')}"),
        ("removed", f"{summary['removed']:,}", f"{share:.1%}"),
        ("kept", f"{summary['kept']:,}", f"in {printable(output)}"),
    ]
    if "near_reference" in summary:
        rows.insert(1, ("near reference", f"{summary['near_reference']:,}", "removed"))
    if summary["recall"] is not None:
        rows.append(
            ("recall", f"{summary['recall']:.1%}", f"of the pairs of texts whose similarity is {summary['similarity']:.3g}")
        )
    rows[1:1] = not_compared_rows(summary["not_compared"], unknown)
    print_table("Near-duplicates", ("", "", ""), rows, left=(0, 2))
    if summary["clusters"]:
        print_table("\nClusters by size", ("documents", "clusters"), [(size, f"{n:,}") for size, n in summary["sizes"].items()])
        largest = [(f"{len(ids):,}", shown_ids(ids, SHOWN_IDS)) for ids in summary["largest"]]
        print_table("\nThe largest clusters, the document that is kept first", ("documents", ""), largest, left=(1,))
