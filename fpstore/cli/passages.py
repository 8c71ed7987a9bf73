"""The verb ``passages``."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from fpstore.base.arguments import printable
from fpstore.base.resources import format_size
from fpstore.cli import content, options
from fpstore.cli.content import ROWS, TEXTS, Notices
from fpstore.cli.options import argument, option, whole_number
from fpstore.cli.output import print_table
from fpstore.cli.outputs import OUTPUT_IS_LAST, open_list
from fpstore.cli.verb import Arguments, fail, translate_usage_errors, verb
from fpstore.errors import plural
from fpstore.io.source import format_suffix
from fpstore.io.writers import forbidden_characters
from fpstore.jobs.outputs import Listing
from fpstore.jobs.passage_job import (
    KEEP_PASSAGES,
    MAX_UNITS,
    USUAL_WORDS,
    PassageJob,
    passage_job,
)
from fpstore.jobs.passages import PassageEdit, remove_corpus_passages
from fpstore.jobs.removed_passages import Passages, passage_columns

ACTIONS = ("cut", "list")


@verb(
    argument("inputs", "INPUT...", nargs=-1),
    argument("output", "[OUTPUT]", required=False),
    content.TEXT,
    option("--text-field NAME", "Column or JSON field of the texts.", options.NAME),
    options.ID_FIELD,
    content.SKIP_BAD,
    options.SUFFIXES,
    options.ENCODING,
    options.ROW_FORMAT,
    option(
        "--words N",
        f"The least words of a passage. By default {USUAL_WORDS}.",
        whole_number(1, MAX_UNITS),
    ),
    option(
        "--bytes N",
        "The least bytes of a passage, in place of --words: for scripts without spaces.",
        whole_number(1, MAX_UNITS),
    ),
    option(
        "--action",
        "Cut the passages, or list them with --passages: then there is no OUTPUT.",
        ACTIONS,
        ACTIONS[0],
    ),
    option(
        "--keep",
        "The documents that are taken first, whose passages stay: the first in the corpus, the "
        "longest, or those with the highest score.",
        KEEP_PASSAGES,
        KEEP_PASSAGES[0],
    ),
    option(
        "--score-field NAME",
        "Column or JSON field of numbers or times, for --keep highest.",
        options.NAME,
    ),
    option(
        "--drop-above X",
        "Drop documents of which more than this share of the words occurs before, 0 to 1, and cut "
        "nothing.",
        click.FloatRange(0, 1),
    ),
    option("--whole-lines", "Cut only whole lines, for source code."),
    option(
        "--passages FILE",
        "Also write the passages that go: row, id, start, end, words or bytes, occurrences, and "
        "the first 80 bytes of the text.",
    ),
    option(
        "--force",
        "Replace OUTPUT and --passages, if they exist. A folder of rows is replaced if it holds "
        "only files of the same format. A folder of texts must be new or empty.",
        into="overwrite",
    ),
    *options.LIMITS,
    *options.RESULT,
    guesses=OUTPUT_IS_LAST,
)
def passages(args: Arguments) -> None:
    """Cut passages that occur before.

    A word is cut if it lies in a run of at least --words words that occurs before, in an earlier
    document or earlier in the same one. Words are what white space separates; case and punctuation
    count. Every such run is found. A document of which nothing is left is dropped; one without a
    text stays. OUTPUT has the format of the inputs: a file, of several files or a folder a new
    folder, with --text a folder of texts.

    $ fpstore passages corpus.parquet cut.parquet --text-field text
    $ fpstore passages corpus.parquet --text-field text --action list --passages passages.csv \
        --id-field id
    $ fpstore passages pages.jsonl cut.jsonl --text-field text --bytes 200 --keep highest \
        --score-field score
    $ fpstore passages corpus.parquet cut.parquet --text-field text --words 20 --drop-above 0.5 \
        --force
    $ fpstore passages notes cut-notes --text --suffix .txt --words 20 --whole-lines --quiet
    """
    kind = content.declared_kind(args)
    if kind not in (TEXTS, ROWS):
        fail("name the column of texts with --text-field, or give --text: each file is a document")
    content.refuse_options_of_other_kinds(args, kind)
    inputs, output = _places(args)
    with translate_usage_errors():
        job = passage_job(
            args.text or args.text_field,
            args.words,
            args.bytes,
            args.keep,
            args.score_field,
            args.id_field,
            args.drop_above,
            args.whole_lines,
        )
    notices = Notices(kind)
    corpus = content.open_corpus(args, inputs, kind, notices)
    with args.bars(corpus) as bars:
        result = remove_corpus_passages(
            corpus, job, args.resources(bars), output, args.overwrite, _listings(args, job)
        )
    notices.report(args)
    if result.longest < job.size:
        args.note(
            f"no text has {job.size:,} {job.unit}, the longest has {result.longest:,}: lower "
            f"--{job.unit}"
        )
    counts = {
        name: value for name, value in result._asdict().items() if name not in ("removed", "table")
    }
    args.result({**counts, "kept": result.kept, job.unit: job.size, "keep": job.keep})
    if not (args.as_json or args.quiet):
        _print_summary(args, job, result, output)


def _places(args: Arguments) -> tuple[tuple[str, ...], str | None]:
    """Return the inputs and the output: with --action list, all arguments are inputs."""
    if args.output is None:
        fail("Missing argument 'INPUT...'.")
    if args.action == "list":
        if args.passages is None:
            fail("--action list needs a file to write: name one with --passages")
        return (*args.inputs, args.output), None
    if not args.inputs:  # click takes a single argument for the last
        fail("Missing argument 'OUTPUT': name the file to write after the inputs.")
    return args.inputs, args.output


def _listings(args: Arguments, job: PassageJob) -> list[Listing]:
    if args.passages is None:
        return []
    if forbidden_characters(format_suffix(args.passages).removeprefix(".")):
        fail(
            "--passages: the texts may have line breaks and tabs: name a .csv, .jsonl or .parquet "
            "file"
        )

    def batches(edit: PassageEdit) -> Any:
        return edit.passages().batches()

    return [Listing(args.passages, partial(open_list, passage_columns(job.unit)), batches)]


def _print_summary(args: Arguments, job: PassageJob, result: Passages, output: str | None) -> None:
    verb = "changed" if job.drop_above is None else "dropped"
    rows = [("documents", f"{result.documents:,}", "")]
    if result.short:
        rows.append(("short", f"{result.short:,}", f"fewer than {job.size:,} {job.unit}"))
    rows += [
        (
            verb,
            f"{result.changed:,}",
            f"{result.dropped:,} of them dropped: nothing was left"
            if job.drop_above is None
            else f"more than {job.drop_above:.0%} of their {job.unit} occur before",
        ),
        ("removed", f"{result.removed_passages:,}", format_size(result.removed_bytes)),
        (
            "kept",
            f"{result.kept:,}",
            f"listed in {printable(args.passages)}; nothing is cut"
            if output is None
            else f"in {printable(output)}",
        ),
    ]
    print_table(
        f"Passages of {plural(job.size, job.unit.removesuffix('s'))} that occur before",
        ("", "", ""),
        rows,
        text_columns=(0, 2),
    )
