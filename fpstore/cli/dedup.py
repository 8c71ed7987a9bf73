"""The verb ``dedup``."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from fpstore.base.arguments import printable
from fpstore.cleaning import opened_reference
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, TEXTS, Notices
from fpstore.cli.options import argument, option
from fpstore.cli.output import not_compared_rows, print_table, shown_ids
from fpstore.cli.outputs import (
    OUTPUT,
    OUTPUT_IS_LAST,
    RESUME,
    open_list,
    resume_folder,
    resuming,
)
from fpstore.cli.task import PART_BYTES, PLANNING, plan_or_run, spec_of
from fpstore.cli.verb import Given, fail, usage_errors, verb
from fpstore.errors import counted
from fpstore.format.manifest import is_openable
from fpstore.hashing.corpora import open_corpus
from fpstore.hashing.wrapper import minhash_in
from fpstore.io.source import RowSource
from fpstore.jobs import GROUPINGS, KEEP_RULES, SEARCHES, UNKNOWN
from fpstore.jobs.clusters import CORPUS_COLUMNS
from fpstore.jobs.dedup import Deduplication, deduplicate
from fpstore.jobs.dedup_job import DEDUP_METHOD, DedupJob, DedupSpec
from fpstore.jobs.outputs import Listing
from fpstore.jobs.reference import Reference
from fpstore.jobs.removed import REMOVED_COLUMNS, REMOVED_WITH_REFERENCE

SLICE_ROWS = option(
    "--slice-rows N",
    "About how many rows a task of a plan compares. By default 4 million.",
    options.NUMBER_OF_ALL,
)
SHOWN_FAMILIES, SHOWN_IDS = 5, 4
NOTED_CHANCE = 0.01  # pairs of unrelated texts within the radius, for each text


@verb(
    argument("inputs", "INPUT...", nargs=-1),
    OUTPUT,
    *content.TEXTUAL,
    options.ROW_FORMAT,
    options.FINGERPRINT_FIELD,
    options.DECIMAL,
    options.SIGNED,
    options.ID_FIELD,
    option(
        "--score-field NAME",
        "Column or JSON field of numbers or times, for --keep highest.",
        options.NAME,
    ),
    option(
        "--threshold X",
        "Jaccard similarity of near-duplicates, 0 to 1. With minhash, the radius is the least "
        "that finds 98% of "
        "the pairs of this similarity. With --verify, the bound of the exact similarity. By "
        "default 0.7.",
        click.FloatRange(0, 1),
    ),
    option(
        "-r --radius N",
        "Instead of --threshold, the largest distance of near-duplicates, in bits. By default, "
        "without minhash, "
        "3 of each 64 bits: 1 at a width of 32, 3 at 64, 6 at 128, and 12 at 256 (24 for SimHash).",
        options.RADIUS,
    ),
    option(
        "--keep",
        "Of each cluster keep the first row, the one with the smallest id, the one nearest to the "
        "majority of the "
        "fingerprints, or the one with the highest score.",
        KEEP_RULES,
        "first",
    ),
    option(
        "--group",
        "connected: chains of near-duplicates make a cluster. greedy: all documents of a cluster "
        "are within the "
        "radius of the kept one. By default greedy for minhash, otherwise connected.",
        GROUPINGS,
    ),
    option(
        "--verify/--no-verify",
        "Read the texts of clusters again, and remove one only if it has the share --threshold of "
        "its "
        "pieces in common with the text that is kept, counted exactly; or do not. By default, "
        "that is done where the threshold "
        "is below 0.5 and unrelated texts with a common line would be removed: with minhash of "
        "256 bits, up to 0.4.",
    ),
    option(
        "--search",
        "exact: compare all rows. bands: compare only texts that share some minima of MinHash, "
        "which is faster for "
        "many rows, and better for a low --threshold. auto: bands for more than 1,048,576 rows, "
        "or if unrelated texts would be "
        "near each other by chance, unless you give --radius.",
        SEARCHES,
        "auto",
    ),
    option(
        "--against REFERENCE",
        "Also remove rows that are near a document of REFERENCE, a store or a file with the same "
        "columns, "
        "which stays as it is. Texts are hashed as the store hashed its own, and its radius "
        "applies unless you give another.",
    ),
    option(
        "--add",
        "Insert the kept rows into the store REFERENCE, with their ids, when OUTPUT is complete. "
        "A store that does not "
        "exist is made. OUTPUT.resume is kept until then: if the job ends early, the same command "
        "goes on.",
    ),
    option(
        "--unknown",
        "What becomes of rows that cannot be compared: null or blank texts, null fingerprints or "
        "ids.",
        UNKNOWN,
        "keep",
    ),
    options.WIDTH,
    *content.SHINGLES,
    option(
        "--clusters FILE",
        "Also write the clusters, as fpstore cluster does: .tsv, .csv, .jsonl or .parquet. The "
        "representative "
        "is the document kept; a line has the distance from it, too.",
    ),
    option(
        "--removed FILE",
        "Also write the rows that are removed: row, id, kept_row, kept, cluster, distance. With "
        "--against: "
        "row, id, kept, reference (1 if the kept document is there), distance.",
    ),
    option(
        "--force",
        "Replace OUTPUT, --clusters and --removed, if they exist. A folder of rows is replaced if "
        "it holds only files "
        "of the same format. A folder of texts must be new or empty.",
        into="overwrite",
    ),
    *PLANNING,
    PART_BYTES,
    SLICE_ROWS,
    *options.LIMITS,
    RESUME,
    *options.RESULT,
    guesses={
        **OUTPUT_IS_LAST,
        "--image": "fpstore build --image makes a store of the pictures, and fpstore cluster lists the "
        "near-duplicates in it",
    },
)
def dedup(given: Given) -> None:
    """Remove the near-duplicates from a corpus.

    Of each cluster of near-duplicates one row is kept. Reads Parquet, JSON lines, CSV or TSV files
    with a header, and folders of such files, all with the same columns. Writes the kept rows to
    OUTPUT, in the same order, with all columns. OUTPUT has the extension of the inputs. Of several
    files or a folder, if OUTPUT has no extension of a format, it is a new folder for files of the
    same names. With --text, copies files to the folder OUTPUT. Then prints what was found, with
    --quiet only as --json. Rows may share an id: each row is a document. A null score is below all
    others; NaN is an error that names the row.

    A row whose text is null or blank, or whose fingerprint or id is null, is not compared. It is
    kept, unless you say --unknown drop; "not compared" of what is printed, in JSON "not_compared",
    counts such rows.

    $ fpstore dedup corpus.parquet clean.parquet --text-field text
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --threshold 0.8 --verify --removed removed.tsv --force
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --search bands --force
    $ fpstore dedup shards clean-shards --text-field text --threads 2 --format parquet
    $ fpstore dedup shards planned-shards --text-field text --plan shards.plan --slice-rows 1M
    $ fpstore dedup shards by-processes --text-field text --processes 2
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --id-field id --against crawl.minhash.fps --add --force
    $ fpstore dedup notes clean --text --suffix .txt --longest-sentences 3 --radius 0
    $ fpstore dedup hashes.csv clean.csv --fingerprint-field hash --decimal --signed --radius 2 --group greedy
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --clusters clusters.parquet --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --score-field score --keep highest --unknown drop --json --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --method simhash --width 128 --radius 10 --html --force
    $ fpstore dedup corpus.parquet titled.parquet --text-field title=4 --text-field text --id-field id --memory 4GiB --resume
    """
    kind = content.declared_kind(given)
    content.refuse_foreign(given, kind)
    if given.add and given.against is None:
        fail("--add inserts into the store that --against names")
    maker = _maker(given, kind)
    notices = Notices(kind)
    spec = spec_of(
        DedupSpec,
        given,
        text=given.text or given.text_field,
        method=None,
        width=content.own_width(given),
        fingerprinter=maker,
    )
    with ExitStack() as stack:
        reference = stack.enter_context(opened_reference(spec, given.add))
        with usage_errors():
            job = spec.job(reference)
        if given.plan is not None or given.processes is not None:
            _plan(given, kind, spec, reference)
            return
        given.refuse("is for plans (--plan, --processes)", "part_bytes", "slice_rows")
        corpus = open_corpus(
            given.inputs,
            kind == TEXTS,
            suffixes=given.suffixes,
            on_notice=notices,
            encoding=given.encoding,
            html=bool(given.html),
            format=given.format,
        )
        notices.sources.append(corpus)
        job = _planned(given, job, corpus)
        folder = resume_folder(given)
        bars = stack.enter_context(given.bars(corpus))
        found = deduplicate(
            corpus,
            job,
            given.resources(bars),
            given.output,
            given.overwrite,
            folder,
            listings=_listings(given),
            open_checkpoint=partial(resuming, given),
            reference=reference,
        )
    notices.report(given)
    summary = _summary(job, found)
    if reference is not None:
        summary["near_reference"] = int(found.removed.in_reference.sum())
        _note_reference(given, reference, job, found)
    _note_chance(given, job, summary["documents"], reference)
    given.result(summary)
    if not (given.as_json or given.quiet):
        _print_summary(summary, given.output, given.unknown)


def _plan(given: Given, kind: str, spec: DedupSpec, reference: Reference | None) -> None:
    """Write a plan of the job, or run it in processes."""
    if kind == TEXTS:
        fail("--text: a plan is for rows of files, not for files that are texts")
    if reference is not None and reference.store is None:
        fail("--against: a plan compares with a store: fpstore build makes one of files")
    given.refuse("is not for plans", "add", "clusters", "resume", "overwrite")
    if given.slice_rows == 0:
        fail("--slice-rows: must be 1 or more")
    plan_or_run(given, spec, part_bytes=given.part_bytes, slice_rows=given.slice_rows)


def _note_reference(
    given: Given, reference: Reference, job: DedupJob, found: Deduplication
) -> None:
    """Note what a store decides without a word.

    That it was made, how texts are hashed, and rows that it has already.
    """
    if reference.store is None and reference.adds:
        given.note(f"{printable(reference.path)}: made, as there was no such store")
    elif (
        reference.store is not None
        and job.fingerprinter is not None
        and minhash_in(job.fingerprinter) is None
    ):
        made = f"{job.fingerprinter.name}, radius {job.grouping.radius}"
        given.note(f"texts are compared as the store {printable(reference.path)} has them: {made}")
    again = 0
    for batch in found.removed.batches() if reference.adds and reference.store is not None else ():
        of_store = batch["reference"].astype(bool) & (batch["distance"] == 0)
        again += sum(
            str(batch["id"][n]) == str(batch["kept"][n]) for n in np.flatnonzero(of_store).tolist()
        )
    if again:
        given.note(
            f"{counted(again, 'row')} removed, which the store has under the same id: was this "
            "batch added before?"
        )


def _removed_columns(given: Given) -> tuple[str, ...]:
    return REMOVED_COLUMNS if given.against is None else REMOVED_WITH_REFERENCE


def _maker(given: Given, kind: str) -> Any:
    """Return the fingerprinter that the command line describes.

    None for fingerprints, and for that of a reference.
    """
    described = any(map(given.is_given, (*content.TEXT_MAKING, "width")))
    of_reference = given.against is not None and is_openable(Path(given.against)) and not described
    return None if kind == FINGERPRINTS or of_reference else content.text_maker(given, DEDUP_METHOD)


def _planned(given: Given, job: DedupJob, corpus: RowSource) -> DedupJob:
    """Return the job with the search that suits the corpus; note what bands find."""
    with usage_errors():
        job = job.planned(corpus)
    if job.bands is not None:
        found = f"{job.recall:.1%} of the pairs of similarity {job.jaccard:.3g} are found"
        given.note(
            f"texts are compared if they share one of {job.bands.number} bands of "
            f"{job.bands.size} minima: {found}"
        )
    if job.can_verify and job.least_similarity is not None:
        given.note(
            "at so low a threshold, unrelated texts with a line in common are near each other by "
            "chance: texts of clusters are "
            "read again and compared exactly, and removed from a similarity of "
            f"{job.least_similarity:.3g} on; that takes up to "
            "about as long again, or longer if many texts are near each other; --no-verify leaves "
            "it out"
        )
    return job


def _summary(job: DedupJob, found: Deduplication) -> dict[str, Any]:
    clusters, documents, kept = found.clusters, len(found.kept), int(found.kept.sum())
    return {
        "documents": documents,
        "not_compared": found.not_compared,
        "clusters": len(clusters),
        "in_clusters": int(clusters.lims[-1]),
        "removed": documents - kept,
        "kept": kept,
        "sizes": clusters.histogram(),
        "largest": clusters.largest(SHOWN_FAMILIES),
        "search": "exact" if job.bands is None else "bands",
        "radius": job.grouping.radius,
        "similarity": job.jaccard,
        "recall": job.recall,
    }


def _note_chance(given: Given, job: DedupJob, documents: int, reference: Reference | None) -> None:
    """Note a radius at which unrelated texts are near each other, unless texts are compared."""
    if job.least_similarity is not None:
        return
    at = f"at radius {job.grouping.radius} of {job.projection.width.bits} bits, unrelated texts"
    expected, advice = job.chance(documents), _advice(job, reference)
    if expected >= NOTED_CHANCE and job.fingerprinter is not None and job.bands is None:
        share = f"{min(expected, 1):.0%} of the texts or more"
        given.note(f"{at} are near each other by chance: in this corpus {share}; {advice}")
    elif (
        given.verify is None
        and job.strangers(documents) >= NOTED_CHANCE
        and (job.fingerprinter is None or minhash_in(job.fingerprinter) is not None)
    ):
        given.note(
            f"{at} with a line in common may be near each other, and are removed then; {advice}"
        )


def _advice(job: DedupJob, reference: Reference | None) -> str:
    """Return what keeps unrelated texts apart."""
    if job.fingerprinter is None:
        return "fingerprints cannot be verified: lower --radius"
    if reference is not None and reference.corpus is None:
        return "a store has no texts to verify with: raise --threshold or --width"
    return "raise --threshold or --width, or --verify"


def _listings(given: Given) -> list[Listing]:
    """Return the files beside OUTPUT that the command line asks for."""
    found = []
    if given.clusters is not None:
        found.append(
            Listing(
                given.clusters,
                partial(open_list, CORPUS_COLUMNS),
                lambda found: found.clusters.batches(),
            )
        )
    if given.removed is not None:
        opened = partial(open_list, _removed_columns(given))
        found.append(Listing(given.removed, opened, lambda found: found.removed.batches()))
    return found


def _print_summary(summary: dict[str, Any], output: str, unknown: str) -> None:
    share = summary["removed"] / max(summary["documents"], 1)
    rows = [
        ("documents", f"{summary['documents']:,}", ""),
        (
            "clusters",
            f"{summary['clusters']:,}",
            f"with {counted(summary['in_clusters'], 'document')}",
        ),
        ("removed", f"{summary['removed']:,}", f"{share:.1%}"),
        ("kept", f"{summary['kept']:,}", f"in {printable(output)}"),
    ]
    if "near_reference" in summary:
        rows.insert(1, ("near reference", f"{summary['near_reference']:,}", "removed"))
    if summary["recall"] is not None:
        rows.append(
            (
                "recall",
                f"{summary['recall']:.1%}",
                f"of the pairs of texts whose similarity is {summary['similarity']:.3g}",
            )
        )
    rows[1:1] = not_compared_rows(summary["not_compared"], unknown)
    print_table("Near-duplicates", ("", "", ""), rows, left=(0, 2))
    if summary["clusters"]:
        print_table(
            "\nClusters by size",
            ("documents", "clusters"),
            [(size, f"{n:,}") for size, n in summary["sizes"].items()],
        )
        largest = [(f"{len(ids):,}", shown_ids(ids, SHOWN_IDS)) for ids in summary["largest"]]
        print_table(
            "\nThe largest clusters, the document that is kept first",
            ("documents", ""),
            largest,
            left=(1,),
        )
