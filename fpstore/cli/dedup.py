"""``fpstore dedup``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from fpstore.cli import types
from fpstore.cli.cluster import COLUMNS, listing_writer, write_listing
from fpstore.cli.documents import SIMHASH_PARAMETERS, Notices, Shingles, shingle_options, suffix_option
from fpstore.cli.options import (
    Talk,
    grouped,
    json_option,
    memory_option,
    refuse,
    rename_option,
    talk_options,
    threads_option,
    usage_errors,
    width_option,
)
from fpstore.cli.output import print_json, print_table, shown, some_ids
from fpstore.cli.progress import Bars
from fpstore.cli.resume import folder_of, resume_option, resuming
from fpstore.cli.texts import Columns, encoding_option, html_option, text_field_option
from fpstore.cli.verb import Verb, output_is
from fpstore.errors import counted
from fpstore.jobs.choices import GROUPINGS, KEPT, UNKNOWN, Rules

if TYPE_CHECKING:
    from pathlib import Path

    from fpstore.base.width import Width
    from fpstore.hashing import Fingerprinter
    from fpstore.io.source import Projection, RowSource
    from fpstore.jobs.dedup import Duplicates

SHOWN_FAMILIES, SHOWN_IDS = 5, 4
_READING = {"decimal", "signed"}


@dataclasses.dataclass(frozen=True)
class CorpusColumns:
    """Which columns are read, and how: see `fpstore.dedup`."""

    text: bool
    text_field: Columns | None
    fingerprint_field: str | None
    id_field: str | None
    score_field: str | None
    decimal: bool
    signed: bool
    encoding: str | None
    html: str | None

    def projection(self, width: Width) -> Projection:
        """Return how columns are read, without the texts and fingerprints."""
        from fpstore.io.source import Projection

        return Projection(id=self.id_field, score=self.score_field, width=width, decimal=self.decimal, signed=self.signed)


columns_options = grouped(
    "columns",
    CorpusColumns,
    click.option("--text", is_flag=True, help="Each file is a document; OUTPUT is a folder that the kept files are copied to."),
    text_field_option("Column or JSON field of the texts, of which fingerprints are made"),
    click.option("--fingerprint-field", type=types.NAME, help="Column or JSON field of the fingerprints, if there are some."),
    click.option("--id-field", type=types.NAME, help="Column or JSON field of the ids; by default the row number is the id."),
    click.option("--score-field", type=types.NAME, help="Column or JSON field of numbers or times, for --keep highest."),
    click.option("--decimal", is_flag=True, help="Fingerprints in text are decimal, not hexadecimal."),
    click.option("--signed", is_flag=True, help="Signed integers are read as the bits of fingerprints."),
    encoding_option,
    html_option,
)
rule_options = grouped(
    "rules",
    Rules,
    click.option(
        "-r", "--radius", type=types.RADIUS, default=3, show_default=True, metavar="N",
        help="Largest distance of near-duplicates, in bits.",
    ),
    click.option(
        "--keep", type=click.Choice(KEPT), default="first", show_default=True,
        help="Of each cluster keep the first row, the one with the smallest id, the one nearest to the majority of the "
        "fingerprints, or the one with the highest score.",
    ),
    click.option(
        "--group", type=click.Choice(GROUPINGS), default="connected", show_default=True,
        help="connected: chains of near-duplicates make a cluster. greedy: all documents of a cluster are within the radius of "
        "the kept one.",
    ),
    click.option(
        "--unknown", type=click.Choice(UNKNOWN), default="keep", show_default=True,
        help="What becomes of rows that cannot be compared: the text is null or has no words, or the fingerprint or id is null.",
    ),
)  # fmt: skip


def _last(context: click.Context, _: click.Parameter, output: str) -> str:
    """Take the last argument, if there is one before it: click takes a single one for the last."""
    if not context.params["inputs"]:
        raise click.UsageError("Missing argument 'OUTPUT': INPUT... comes before it.")
    return output


@click.command(cls=Verb, guesses=output_is("OUTPUT is the last argument, after all inputs"))
@click.argument("inputs", metavar="INPUT...", nargs=-1)
@click.argument("output", metavar="OUTPUT", callback=_last)
@columns_options
@rule_options
@width_option
@shingle_options
@suffix_option
@click.option(
    "--clusters",
    metavar="FILE",
    help="Also write the clusters, as fpstore cluster does: .tsv, .csv, .jsonl or .parquet. A line is `id cluster "
    "representative`; the representative is the document kept. Distances are not in it.",
)
@rename_option
@click.option(
    "--force",
    is_flag=True,
    help="Replace the file OUTPUT and the file of --clusters, if they exist; the folder OUTPUT of --text must be new or empty.",
)
@memory_option
@threads_option
@resume_option
@json_option
@talk_options
def dedup(
    inputs: Sequence[str],
    output: str,
    columns: CorpusColumns,
    rules: Rules,
    width: int,
    shingles: Shingles,
    suffix: Sequence[str],
    clusters: str | None,
    names: dict[str, str],
    force: bool,
    memory: str | None,
    threads: int | None,
    resume: bool,
    as_json: bool,
    talk: Talk,
) -> None:
    """Remove the near-duplicates from a corpus.

    Of each cluster of near-duplicates one row is kept. Reads Parquet, JSON lines, CSV or TSV files with a header, and folders
    of such files, all with the same columns. Writes the kept rows to OUTPUT, in the same format and order, with all columns.
    With --text, copies files. Then prints what was found, with --quiet only as --json. Rows may share an id: each row is a
    document. A null score is below all others; NaN is an error that names the row.

    A row whose text has no words, or whose text, fingerprint or id is null, is not compared. It is kept, unless you say
    --unknown drop; "not compared" of what is printed, in JSON "not_compared", counts such rows.

    $ fpstore dedup corpus.parquet clean.parquet --text-field text
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --clusters clusters.parquet --rename id=url --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --score-field score --keep highest --unknown drop --json --force
    $ fpstore dedup hashes.csv clean.csv --fingerprint-field hash --decimal --signed --width 64 --radius 2 --group greedy
    $ fpstore dedup notes clean --text --suffix .txt --shingle chars --shingle-size 5 --weighting set --threads 1 --quiet
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --width 128 --radius 10 --force
    $ fpstore dedup corpus.parquet titled.parquet --text-field title=4 --text-field text
    $ fpstore dedup corpus.parquet weighed.parquet --text-field text --weights weights.json
    $ fpstore dedup notes uncopied --text --longest-sentences 3 --radius 0
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --encoding utf-8 --html --force --json
    $ fpstore dedup notes cleaner --text --tokenizer unicode --stop-words frequent.txt --digits zero --feature-hash fnv1a
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --id-field id --memory 4GiB --force --no-progress --resume
    """
    from fpstore.base.resources import Resources, parse_memory, parse_threads
    from fpstore.base.width import check_width
    from fpstore.hashing.corpora import open_corpus
    from fpstore.io.tables import renamed
    from fpstore.jobs.dedup import check_output, check_outside, dedup_job, find_duplicates, projection_and_maker, write_outputs

    if columns.fingerprint_field:
        refuse(SIMHASH_PARAMETERS | {"html"}, "is for texts, not for fingerprints")
    else:
        refuse(_READING, "is for a column of fingerprints")
    if not columns.text:
        refuse({"suffix"}, "is for folders of texts: with --text")
    if clusters is None:
        refuse({"names"}, "is for the columns of --clusters")
    maker: Fingerprinter[Any] | None = None if columns.fingerprint_field else shingles.fingerprinter(width)
    how = columns.projection(check_width(width))
    with usage_errors():
        renamed(COLUMNS, names)  # told before the work
        projection, maker = projection_and_maker(how, columns.text or columns.text_field, columns.fingerprint_field, maker)
        job = dedup_job(projection, rules, maker, columns.html or False)
    notices = Notices()
    html = columns.html is not None
    notices.source = corpus = open_corpus(inputs, columns.text, list(suffix) or None, notices, columns.encoding, html)
    folder = folder_of(output, resume, talk)
    target = check_output(output, corpus, force, folder=folder)
    listing = None if clusters is None else _listing(clusters, corpus, force, folder, target, names)
    if folder is not None:
        check_outside(corpus, folder)
    with Bars(talk.bars, corpus) as bars, resuming(folder, lambda: job.identity(corpus), talk) as kept:
        resources = Resources(parse_memory(memory), parse_threads(threads), bars)
        with nullcontext() if listing is None else listing_writer(str(listing), False, names) as writer:
            found = find_duplicates(corpus, job, resources, kept)
            if writer is not None:
                write_listing(found.clusters, writer, bars)
            write_outputs(partial(corpus.copy, found.kept, target, bars), target, kept, listing, writer)
    notices.report(talk)
    summary = summary_of(found)
    if as_json:
        print_json(summary)
    elif not talk.quiet:
        print_summary(summary, output, rules.unknown)


def _listing(clusters: str, corpus: RowSource, force: bool, folder: Path | None, target: Path, names: dict[str, str]) -> Path:
    """Return the path of the list of clusters; an error of it is told before the work, and before a folder is made."""
    from fpstore.jobs.dedup import check_output

    listing = check_output(clusters, corpus, force, folder=folder, of_rows=False)
    if listing.resolve().is_relative_to(target.resolve()):
        raise click.UsageError("OUTPUT and --clusters name the same file, or --clusters one in it")
    listing_writer(str(listing), False, names).abort()
    return listing


def summary_of(found: Duplicates) -> dict[str, Any]:
    """Return the numbers of what was found, and the largest clusters."""
    clusters, documents = found.clusters, len(found.kept)
    kept = int(found.kept.sum())
    return {
        "documents": documents,
        "not_compared": found.unknown,
        "clusters": len(clusters),
        "in_clusters": int(clusters.lims[-1]),
        "removed": documents - kept,
        "kept": kept,
        "sizes": clusters.histogram(),
        "largest": clusters.largest(SHOWN_FAMILIES),
    }


def print_summary(summary: dict[str, Any], output: str, unknown: str) -> None:
    """Print the same as tables."""
    share = summary["removed"] / max(summary["documents"], 1)
    rows = [
        ("documents", f"{summary['documents']:,}", ""),
        ("clusters", f"{summary['clusters']:,}", f"with {counted(summary['in_clusters'], 'document')}"),
        ("removed", f"{summary['removed']:,}", f"{share:.1%}"),
        ("kept", f"{summary['kept']:,}", f"in {shown(output)}"),
    ]
    if summary["not_compared"]:
        what = "kept" if unknown == "keep" else "removed"
        rows.insert(1, ("not compared", f"{summary['not_compared']:,}", f"null text or id, or no words; {what}"))
    print_table("Near-duplicates", ("", "", ""), rows, left=(0, 2))
    if summary["clusters"]:
        print_table("\nClusters by size", ("documents", "clusters"), [(size, f"{n:,}") for size, n in summary["sizes"].items()])
        largest = [(f"{len(ids):,}", some_ids(ids, SHOWN_IDS)) for ids in summary["largest"]]
        print_table("\nThe largest clusters, the document that is kept first", ("documents", ""), largest, left=(1,))
