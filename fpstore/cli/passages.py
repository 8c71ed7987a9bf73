"""The verb ``passages``."""

from __future__ import annotations

import click

from fpstore.base.arguments import printable
from fpstore.base.resources import format_size
from fpstore.cli import edits, options
from fpstore.cli.options import argument, option, whole_number
from fpstore.cli.output import print_table
from fpstore.cli.outputs import OUTPUT_IS_LAST
from fpstore.cli.verb import Arguments, fail, translate_usage_errors, verb
from fpstore.errors import plural
from fpstore.jobs.passage_job import (
    KEEP_PASSAGES,
    MAX_UNITS,
    USUAL_WORDS,
    PassageJob,
    passage_job,
)
from fpstore.jobs.passages import remove_corpus_passages
from fpstore.jobs.removed_passages import Passages, passage_columns

ACTIONS = ("cut", "list")


@verb(
    argument("inputs", "INPUT...", nargs=-1),
    argument("output", "[OUTPUT]", required=False),
    *edits.CORPUS,
    options.ID_FIELD,
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
        "The order of the documents: as in the corpus, the longest first, or the highest score "
        "first. The first occurrence of a passage stays.",
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
    options.replace_outputs("OUTPUT and --passages"),
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
    kind = edits.text_kind(args)
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
    listings = edits.text_listings(
        "--passages",
        args.passages,
        passage_columns(job.unit),
        lambda edit: edit.passages().batches(),
    )
    result = edits.edit_inputs(
        args,
        kind,
        inputs,
        lambda corpus, resources: remove_corpus_passages(
            corpus, job, resources, output, args.overwrite, listings
        ),
    )
    if result.longest < job.size:
        args.note(
            f"no text has {job.size:,} {job.unit}, the longest has {result.longest:,}: lower "
            f"--{job.unit}"
        )
    args.result({**edits.counts_of(result), job.unit: job.size, "keep": job.keep})
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
