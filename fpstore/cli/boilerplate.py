"""The verb ``boilerplate``."""

from __future__ import annotations

from functools import partial

from fpstore.base.arguments import printable
from fpstore.base.resources import format_size
from fpstore.cli import content, options
from fpstore.cli.content import ROWS, TEXTS, Notices
from fpstore.cli.options import argument, option, whole_number
from fpstore.cli.output import print_table
from fpstore.cli.outputs import OUTPUT, OUTPUT_IS_LAST, open_list
from fpstore.cli.verb import Arguments, fail, verb
from fpstore.errors import plural
from fpstore.io.source import format_by_name
from fpstore.io.writers import forbidden_characters
from fpstore.jobs.boilerplate import (
    PIECE_COLUMNS,
    UNITS,
    USUAL_MORE_THAN,
    Boilerplate,
    BoilerplateJob,
    remove_corpus_boilerplate,
)
from fpstore.jobs.outputs import Listing


@verb(
    argument("inputs", "INPUT...", nargs=-1),
    OUTPUT,
    content.TEXT,
    option("--text-field NAME", "Column or JSON field of the texts.", options.NAME),
    content.SKIP_BAD,
    options.SUFFIXES,
    options.ENCODING,
    options.ROW_FORMAT,
    option(
        "--unit",
        "What is removed. Paragraphs are separated by blank lines.",
        UNITS,
        UNITS[0],
    ),
    option(
        "--more-than N",
        "The most documents that may have a paragraph or a line that stays.",
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
        "--within",
        "Count all occurrences, also several in one document, in place of documents.",
    ),
    option("--keep-first", "The first occurrence of a paragraph or a line stays."),
    option("--fold-digits", "Numbers do not count: Copyright 2001 is the same as Copyright 2012."),
    option(
        "--removed FILE",
        "Also write what is removed, the most frequent first: text, documents, occurrences, bytes.",
    ),
    option(
        "--force",
        "Replace OUTPUT and --removed, if they exist. A folder of rows is replaced if it holds "
        "only files of the same format. A folder of texts must be new or empty.",
        into="overwrite",
    ),
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
    $ fpstore boilerplate corpus.parquet plain.parquet --text-field text --more-than 1 --within \
        --keep-first --fold-digits --force
    $ fpstore boilerplate notes plain-notes --text --suffix .txt --encoding utf-8 --quiet
    """
    kind = content.declared_kind(args)
    if kind not in (TEXTS, ROWS):
        fail("name the column of texts with --text-field, or give --text: each file is a document")
    content.refuse_options_of_other_kinds(args, kind)
    job = BoilerplateJob(
        args.text or args.text_field,
        args.unit,
        args.more_than,
        args.least_chars,
        args.within,
        args.keep_first,
        args.fold_digits,
    )
    notices = Notices(kind)
    corpus = content.open_corpus(args, args.inputs, kind, notices)
    with args.bars(corpus) as bars:
        result = remove_corpus_boilerplate(
            corpus, job, args.resources(bars), args.output, args.overwrite, _listings(args)
        )
    notices.report(args)
    counts = {
        name: value for name, value in result._asdict().items() if name not in ("pieces", "table")
    }
    args.result({**counts, "kept": result.kept, "unit": args.unit, "more_than": args.more_than})
    if not (args.as_json or args.quiet):
        _print_summary(args, result)


def _listings(args: Arguments) -> list[Listing]:
    if args.removed is None:
        return []
    if forbidden_characters(format_by_name(args.removed)):
        fail(
            "--removed: the texts may have line breaks and tabs: name a .csv, .jsonl or .parquet "
            "file"
        )
    return [
        Listing(
            args.removed,
            partial(open_list, PIECE_COLUMNS),
            lambda edit: edit.pieces().batches(),
        )
    ]


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
        f"{args.unit.capitalize()}s of more than {args.more_than:,} "
        f"{'occurrences' if args.within else 'documents'}",
        ("", "", ""),
        rows,
        text_columns=(0, 2),
    )
