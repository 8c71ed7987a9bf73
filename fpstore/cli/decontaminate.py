"""The verb ``decontaminate``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from fpstore.base.arguments import printable
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, TEXTS, Notices
from fpstore.cli.options import argument, option, output_option, whole
from fpstore.cli.output import not_compared_rows, print_table
from fpstore.cli.outputs import open_list
from fpstore.cli.verb import Given, fail, usage_errors, verb
from fpstore.errors import counted
from fpstore.hashing.corpora import open_benchmark, open_corpus
from fpstore.io.source import FIELD_FORMATS
from fpstore.jobs import UNKNOWN
from fpstore.jobs.decontamination import USUAL_NGRAM, decontaminate_corpus, decontamination_job
from fpstore.jobs.hits import HIT_COLUMNS, NEAR_COLUMNS, Bounds
from fpstore.jobs.outputs import Listing

COMMON = 10  # rows of a corpus with an n-gram that may be a phrase: Brown et al., appendix C


@verb(
    argument("corpus", "CORPUS"),
    argument("benchmarks", "BENCHMARK...", nargs=-1, required=True),
    content.TEXT,
    option(
        "--text-field NAME",
        "Column or JSON field of the texts of CORPUS; may be repeated: several are one text.",
        multiple=True,
        callback=content.read_unweighted_columns,
    ),
    option(
        "--benchmark-field NAME",
        "Column or field of the texts of BENCHMARK. By default --text-field.",
        multiple=True,
        callback=content.read_unweighted_columns,
    ),
    options.SUFFIXES,
    option(
        "--format",
        "Format of the rows of CORPUS, in a folder of all files. By default from the extension.",
        FIELD_FORMATS,
    ),
    options.ENCODING,
    options.HTML,
    options.ID_FIELD,
    option(
        "--benchmark-id-field NAME",
        "Column or JSON field of the ids of BENCHMARK. By default the row number.",
        options.NAME,
    ),
    option(
        "--ngram N", "Number of words in a row that both texts have.", whole(1, 255), USUAL_NGRAM
    ),
    option(
        "--min-ngrams N",
        "Least number of different n-grams that a row shares with a row of BENCHMARK.",
        options.COUNT,
        1,
    ),
    option(
        "--min-share X",
        "Least share of the n-grams of the row of BENCHMARK, 0 to 1, in addition to --min-ngrams.",
        click.FloatRange(0, 1),
        0,
    ),
    option(
        "--ignore-common N",
        "N-grams that more than N rows of CORPUS have do not count, such as 10.",
        options.COUNT,
    ),
    option(
        "--threshold X",
        "Also remove near-duplicates of whole texts of BENCHMARK: Jaccard similarity of runs of "
        "three words, "
        "0 to 1, such as 0.7.",
        click.FloatRange(0, 1),
    ),
    option(
        "--unknown",
        "What becomes of rows that cannot be compared: null or blank texts, null ids.",
        UNKNOWN,
        "keep",
    ),
    output_option(
        "Where to write the kept rows: a file, or for many files and with --text a folder. By "
        "default they are only counted.",
        default=None,
    ),
    option(
        "--hits FILE",
        "Also write which row hit which row of BENCHMARK: row, id, benchmark, benchmark_row, "
        "benchmark_id, "
        "shared, share; with --threshold, distance.",
    ),
    option(
        "--force",
        "Replace the files of --output and --hits, if they exist. A folder of rows is replaced if "
        "it holds only files "
        "of the same format. A folder of texts must be new or empty.",
        into="overwrite",
    ),
    *options.LIMITS,
    *options.RESULT,
)
def decontaminate(given: Given) -> None:
    """Remove rows that contain texts of a benchmark.

    A row is removed if it shares an n-gram with a row of a benchmark: --ngram words in a row,
    wherever in the text, without regard to case, punctuation and line breaks. CORPUS is a Parquet,
    JSON lines, CSV or TSV file with a header, or a folder of such files; each BENCHMARK too, in any
    of these formats. With --text, each file of CORPUS is a text, and of BENCHMARK without
    --benchmark-field. The kept rows are written as fpstore dedup writes them.

    A text of fewer words than an n-gram hits only texts of the same words. Several columns are one
    text.

    $ fpstore decontaminate corpus.parquet pages.jsonl --text-field text
    $ fpstore decontaminate shards pages.jsonl --text-field text --format parquet
    $ fpstore decontaminate corpus.parquet pages.jsonl -o clean.parquet --text-field text --hits hits.tsv --unknown drop --force
    $ fpstore decontaminate corpus.parquet questions.jsonl --text-field text --benchmark-field question --ngram 8 --threshold 0.8
    $ fpstore decontaminate notes questions.jsonl -o clean --text --benchmark-field question --benchmark-id-field number
    $ fpstore decontaminate corpus.parquet pages.jsonl --text-field text --json --min-ngrams 5 --min-share 0.25 --ignore-common 10
    """
    kind = content.declared_kind(given)
    content.refuse_foreign(given, kind)
    if kind == FINGERPRINTS:
        fail("name the column of texts with --text-field, or give --text: each file is a text")
    listings = _listings(given)
    if (
        given.output is None
        and len(given.benchmarks) > 1
        and not Path(given.benchmarks[-1]).exists()
    ):
        fail(
            f"{printable(given.benchmarks[-1])}: no such file or folder; --output (-o) names what "
            "to write"
        )
    texts = given.text or given.text_field
    of_benchmark = texts if given.benchmark_field is None else given.benchmark_field
    with usage_errors():
        bounds = Bounds(given.min_ngrams, given.min_share, given.ignore_common)
        job = decontamination_job(
            texts,
            of_benchmark,
            given.id_field,
            given.benchmark_id_field,
            given.ngram,
            bounds,
            given.threshold,
            given.unknown,
            given.html,
        )
    notices = Notices(kind)
    corpus = open_corpus(
        given.corpus,
        kind == TEXTS,
        suffixes=given.suffixes,
        on_notice=notices,
        encoding=given.encoding,
        html=bool(given.html),
        format=given.format,
    )
    notices.sources.append(corpus)
    benchmarks = open_benchmark(
        given.benchmarks,
        of_benchmark is True,
        suffixes=given.suffixes,
        on_notice=notices,
        encoding=given.encoding,
    )
    with given.bars(corpus) as bars:
        found = decontaminate_corpus(
            corpus,
            benchmarks,
            job,
            given.resources(bars),
            given.output,
            given.overwrite,
            listings=listings,
        )
    notices.report(given)
    kept = int(found.kept.sum())
    summary = {
        "rows": len(found.kept),
        "not_compared": found.not_compared,
        "short": found.short,
        "hits": len(found.hits.rows),
        "ignored_ngrams": found.hits.ignored,
        "removed": len(found.kept) - kept,
        "kept": kept,
        "ngram": given.ngram,
        "benchmarks": [one._asdict() for one in found.benchmarks],
    }
    for one in found.benchmarks:
        if one.short + one.not_compared == one.rows:
            given.note(
                f"{one.name}: no text has {given.ngram} words, so only texts of the same words "
                "hit it: lower --ngram"
            )
    if bounds == Bounds() and (common := found.hits.without_rare_ngrams(COMMON)):
        given.note(
            f"{counted(common, 'row')} with hits, but only by n-grams that more than {COMMON} "
            "rows have, such as licences: "
            f"--ignore-common {COMMON} or --min-share leaves them out"
        )
    given.result(summary)
    if not (given.as_json or given.quiet):
        _print_summary(summary, given)


def _listings(given: Given) -> list[Listing]:
    """Return the list of hits, if it is asked for."""
    if given.hits is None:
        return []
    columns = HIT_COLUMNS if given.threshold is None else NEAR_COLUMNS
    return [Listing(given.hits, partial(open_list, columns), lambda found: found.hits.batches())]


def _print_summary(summary: dict[str, Any], given: Given) -> None:
    ngrams, rows = f"fewer than {given.ngram} words", max(summary["rows"], 1)
    lines = [("rows", f"{summary['rows']:,}", "")]
    lines += not_compared_rows(summary["not_compared"], given.unknown)
    if summary["short"]:
        lines.append(("short", f"{summary['short']:,}", f"{ngrams}: compared as whole texts"))
    if given.ignore_common is not None:
        lines.append(
            (
                "common",
                f"{summary['ignored_ngrams']:,}",
                f"n-grams in more than {given.ignore_common:,} rows, ignored",
            )
        )
    where = "" if given.output is None else f"in {printable(given.output)}"
    lines += [
        ("removed", f"{summary['removed']:,}", f"{summary['removed'] / rows:.1%}"),
        ("kept", f"{summary['kept']:,}", where),
    ]
    if given.output is None:
        lines[-2:] = [
            (
                "hits",
                f"{summary['hits']:,}",
                f"{summary['hits'] / rows:.1%}; --output writes the other rows",
            )
        ]
    print_table("Rows with texts of the benchmark", ("", "", ""), lines, left=(0, 2))
    table = [
        (
            printable(one["name"]),
            *(f"{one[what]:,}" for what in ("rows", "not_compared", "short", "hit")),
            f"{one['hit'] / max(one['rows'], 1):.1%}",
        )
        for one in summary["benchmarks"]
    ]
    print_table("\nBenchmark", ("", "rows", "blank", ngrams, "hit", ""), table, left=(0,))
