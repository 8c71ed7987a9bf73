"""The verb ``boilerplate``."""

from __future__ import annotations

from fpstore.base.arguments import printable
from fpstore.base.resources import format_size
from fpstore.cli import edits, options
from fpstore.cli.options import argument, option, whole_number
from fpstore.cli.output import print_table
from fpstore.cli.outputs import OUTPUT, OUTPUT_IS_LAST
from fpstore.cli.verb import Arguments, verb
from fpstore.errors import plural
from fpstore.jobs.boilerplate import (
    COUNTED,
    PIECE_COLUMNS,
    UNITS,
    USUAL_MORE_THAN,
    Boilerplate,
    BoilerplateJob,
    remove_corpus_boilerplate,
)


@verb(
    argument("inputs", "INPUT...", nargs=-1),
    OUTPUT,
    *edits.CORPUS,
    option(
        "--unit",
        "What is removed. Paragraphs are separated by blank lines.",
        UNITS,
        UNITS[0],
    ),
    option(
        "--more-than N",
        "Remove a paragraph or a line that more than N documents have, or that occurs more than N "
        "times: see --count.",
        options.COUNT,
        USUAL_MORE_THAN,
    ),
    option(
        "--least-chars N",
        "A paragraph or a line of fewer characters stays.",
        whole_number(0, 2**31 - 1),
        0,
    ),
    option(
        "--count",
        "What --more-than counts: documents, or all occurrences, also several in one document.",
        COUNTED,
        COUNTED[0],
    ),
    option("--keep-first", "The first occurrence of a paragraph or a line stays."),
    option("--fold-digits", "Numbers do not count: Copyright 2001 is the same as Copyright 2012."),
    option(
        "--removed FILE",
        "Also write what is removed, the most frequent first: text, documents, occurrences, bytes. "
        "Lines have a header.",
    ),
    options.replace_outputs("OUTPUT and --removed"),
    *options.LIMITS,
    *options.RESULT,
    guesses=OUTPUT_IS_LAST,
)
def boilerplate(args: Arguments) -> None:
    """Remove paragraphs or lines of many documents.

    A paragraph that is in more than --more-than documents is removed from all of them. Case, white
    space and invisible characters do not count. Copies of documents count, so remove them first
    with fpstore dedup. A document of which nothing is left is dropped; one without a text stays.
    OUTPUT has the format of the inputs: a file, of several files or a folder a new folder, with
    --text a folder of texts.

    $ fpstore boilerplate corpus.parquet plain.parquet --text-field text
    $ fpstore boilerplate corpus.parquet plain.parquet --text-field text --unit line \
        --more-than 20 --least-chars 20 --removed lines.csv --force
    $ fpstore boilerplate corpus.parquet plain.parquet --text-field text --more-than 1 \
        --count occurrences --keep-first --fold-digits --force
    $ fpstore boilerplate notes plain-notes --text --suffix .txt --encoding utf-8 --quiet
    """
    kind = edits.text_kind(args)
    job = BoilerplateJob(
        args.text or args.text_field,
        args.unit,
        args.more_than,
        args.least_chars,
        args.count,
        args.keep_first,
        args.fold_digits,
    )
    listings = edits.text_listings(
        "--removed",
        args.removed,
        PIECE_COLUMNS,
        lambda edit: edit.pieces().batches(),
    )
    result = edits.edit_inputs(
        args,
        kind,
        args.inputs,
        lambda corpus, resources: remove_corpus_boilerplate(
            corpus, job, resources, args.output, args.overwrite, listings
        ),
    )
    args.result({**edits.counts_of(result), "unit": args.unit, "more_than": args.more_than})
    if not (args.as_json or args.quiet):
        _print_summary(args, result)


def _print_summary(args: Arguments, result: Boilerplate) -> None:
    removed = plural(result.repeated, f"different {args.unit}")
    rows = [
        ("documents", f"{result.documents:,}", ""),
        ("changed", f"{result.changed:,}", f"{result.dropped:,} of them dropped: nothing was left"),
        (
            "removed",
            f"{result.removed_pieces:,}",
            f"{removed}, {format_size(result.removed_bytes)}",
        ),
        ("kept", f"{result.kept:,}", f"in {printable(args.output)}"),
    ]
    print_table(
        f"{args.unit.capitalize()}s of more than {plural(args.more_than, args.count[:-1])}",
        ("", "", ""),
        rows,
        text_columns=(0, 2),
    )
