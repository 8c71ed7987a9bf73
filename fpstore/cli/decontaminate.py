"""The verb ``decontaminate``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from fpstore.base.arguments import printable
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, Notices
from fpstore.cli.options import argument, option, output_option, whole_number
from fpstore.cli.output import not_compared_rows, print_table
from fpstore.cli.outputs import open_list
from fpstore.cli.verb import Arguments, fail, translate_usage_errors, verb
from fpstore.errors import plural
from fpstore.hashing.corpora import open_benchmark
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
    content.ROLES,
    content.SKIP_BAD,
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
        "--ngram N",
        "Number of words in a row that both texts have.",
        whole_number(1, 255),
        USUAL_NGRAM,
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
        "three words, 0 to 1, such as 0.7.",
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
        "benchmark_id, shared, share; with --threshold, distance.",
    ),
    options.replace_outputs("the files of --output and --hits"),
    *options.LIMITS,
    *options.RESULT,
)
def decontaminate(args: Arguments) -> None:
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
    $ fpstore decontaminate corpus.parquet pages.jsonl -o clean.parquet --text-field text \
        --hits hits.tsv --unknown drop --force
    $ fpstore decontaminate corpus.parquet questions.jsonl --text-field text \
        --benchmark-field question --ngram 8 --threshold 0.8
    $ fpstore decontaminate notes questions.jsonl -o clean --text --benchmark-field question \
        --benchmark-id-field number
    $ fpstore decontaminate corpus.parquet pages.jsonl --text-field text --json --min-ngrams 5 \
        --min-share 0.25 --ignore-common 10
    """
    kind = content.declared_kind(args)
    content.refuse_options_of_other_kinds(args, kind)
    if kind == FINGERPRINTS:
        fail("name the column of texts with --text-field, or give --text: each file is a text")
    listings = _listings(args)
    if args.output is None and len(args.benchmarks) > 1 and not Path(args.benchmarks[-1]).exists():
        fail(
            f"{printable(args.benchmarks[-1])}: no such file or folder; --output (-o) names what "
            "to write"
        )
    texts = args.text or args.text_field
    of_benchmark = texts if args.benchmark_field is None else args.benchmark_field
    with translate_usage_errors():
        bounds = Bounds(args.min_ngrams, args.min_share, args.ignore_common)
        job = decontamination_job(
            texts,
            of_benchmark,
            args.id_field,
            args.benchmark_id_field,
            args.ngram,
            bounds,
            args.threshold,
            args.unknown,
            args.html,
            args.roles,
        )
    notices = Notices(kind)
    corpus = content.open_corpus(args, args.corpus, kind, notices)
    benchmarks = open_benchmark(
        args.benchmarks,
        of_benchmark is True,
        suffixes=args.suffixes,
        on_notice=notices,
        encoding=args.encoding,
    )
    with args.bars(corpus) as bars:
        result = decontaminate_corpus(
            corpus,
            benchmarks,
            job,
            args.resources(bars),
            args.output,
            args.overwrite,
            listings=listings,
        )
    notices.report(args)
    kept_rows = int(result.kept.sum())
    summary = {
        "rows": len(result.kept),
        "not_compared": result.not_compared,
        "short": result.short,
        "hits": len(result.hits.rows),
        "ignored_ngrams": result.hits.ignored,
        "removed": len(result.kept) - kept_rows,
        "kept": kept_rows,
        "ngram": args.ngram,
        "benchmarks": [benchmark._asdict() for benchmark in result.benchmarks],
    }
    for benchmark in result.benchmarks:
        if benchmark.short + benchmark.not_compared == benchmark.rows:
            args.note(
                f"{benchmark.name}: no text has {args.ngram} words, so only texts of the same "
                "words hit it: lower --ngram"
            )
    if bounds == Bounds() and (common := result.hits.without_rare_ngrams(COMMON)):
        args.note(
            f"{plural(common, 'row')} hit only by n-grams that more than {COMMON} rows have, such "
            f"as licences: --ignore-common {COMMON} keeps them"
        )
    args.result(summary)
    if not (args.as_json or args.quiet):
        _print_summary(summary, args)


def _listings(args: Arguments) -> list[Listing]:
    if args.hits is None:
        return []
    columns = HIT_COLUMNS if args.threshold is None else NEAR_COLUMNS
    return [Listing(args.hits, partial(open_list, columns), lambda result: result.hits.batches())]


def _print_summary(summary: dict[str, Any], args: Arguments) -> None:
    ngrams, rows = f"fewer than {args.ngram} words", max(summary["rows"], 1)
    lines = [("rows", f"{summary['rows']:,}", "")]
    lines += not_compared_rows(summary["not_compared"], args.unknown)
    if summary["short"]:
        lines.append(("short", f"{summary['short']:,}", f"{ngrams}: compared as whole texts"))
    if args.ignore_common is not None:
        lines.append(
            (
                "common",
                f"{summary['ignored_ngrams']:,}",
                f"n-grams in more than {args.ignore_common:,} rows, ignored",
            )
        )
    place = "" if args.output is None else f"in {printable(args.output)}"
    lines += [
        ("removed", f"{summary['removed']:,}", f"{summary['removed'] / rows:.1%}"),
        ("kept", f"{summary['kept']:,}", place),
    ]
    if args.output is None:
        lines[-2:] = [
            (
                "hits",
                f"{summary['hits']:,}",
                f"{summary['hits'] / rows:.1%}; --output writes the other rows",
            )
        ]
    print_table("Rows with texts of the benchmark", ("", "", ""), lines, text_columns=(0, 2))
    table = [
        (
            printable(benchmark["name"]),
            *(f"{benchmark[column]:,}" for column in ("rows", "not_compared", "short", "hit")),
            f"{benchmark['hit'] / max(benchmark['rows'], 1):.1%}",
        )
        for benchmark in summary["benchmarks"]
    ]
    print_table("\nBenchmark", ("", "rows", "blank", ngrams, "hit", ""), table, text_columns=(0,))
