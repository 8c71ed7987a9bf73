"""``fpstore weights``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from fpstore.cli import types
from fpstore.cli.documents import Features, feature_options
from fpstore.cli.options import Talk, format_option, grouped, output_option, talk_options, width_option
from fpstore.cli.output import shown
from fpstore.cli.progress import Bars
from fpstore.cli.texts import FIELD_FORMATS, Texts, check_text_usage, text_options
from fpstore.cli.verb import Verb
from fpstore.errors import InputError, counted


@dataclass(frozen=True)
class Amounts:
    """How much is looked at, and kept."""

    sample: int
    most: int
    seed: int


amount_options = grouped(
    "amounts",
    Amounts,
    click.option(
        "--sample", type=types.whole(1, 1_000_000), default=10_000, show_default=True, metavar="N",
        help="Most documents that are looked at, drawn at random; they are held in memory.",
    ),
    click.option(
        "--most", type=types.whole(1, 65_536), default=4096, show_default=True, metavar="N",
        help="Number of frequent pieces whose weights are kept. All others weigh as much as one that a single document has.",
    ),
    click.option(
        "--seed", type=types.whole(0, 2**63 - 1), default=0, show_default=True, metavar="N", help="Seed of the sample."
    ),
)  # fmt: skip


@click.command(cls=Verb)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("--text", is_flag=True, help="Inputs are text files or folders of them; each file is a document.")
@text_options
@format_option
@feature_options
@width_option
@amount_options
@output_option("Where to write the weights")
@talk_options
def weights(
    inputs: Sequence[str],
    text: bool,
    texts: Texts,
    format: str | None,  # noqa: A002 - the name of the option
    features: Features,
    width: int,
    amounts: Amounts,
    output: str,
    talk: Talk,
) -> None:
    """Learn weights of words from a corpus.

    A word, or another piece of a text, counts less if many documents have it. Reads the texts as fpstore build does, takes a
    random sample, and counts in how many documents of the sample each piece is. With several --text-field, a document has the
    pieces of all columns; the weights of the columns do not matter here.

    Writes a file for --weights of build, hash text, dedup and compare, and for --setting weights=FILE of calibrate. The file
    has the options that say what a piece is, too. A store remembers the weights: insert and the searches need no file.

    $ fpstore weights corpus.parquet --text-field text --output weights.json
    $ fpstore weights notes --text --suffix .txt --sample 1000 --most 500 --seed 7 --quiet
    $ fpstore weights corpus.parquet --text-field title --text-field text --shingle words --shingle-size 2 --no-progress
    $ fpstore weights notes --text --shingle chars --weighting set --digits zero --feature-hash blake2b --width 128
    $ fpstore weights notes --text --tokenizer unicode --stop-words frequent.txt --encoding utf-8
    $ fpstore weights site --text --html
    $ cat pages.jsonl | fpstore weights - --text-field text --format jsonl --quiet
    """
    from fpstore.calibration.learning import Learning, learnt_weights
    from fpstore.hashing.corpora import open_corpus, open_rows
    from fpstore.hashing.weights_file import packed_weights
    from fpstore.io.sink import Sink
    from fpstore.io.source import Projection

    check_text_usage(inputs, text, texts)
    if not text and texts.text_field is None:
        types.fail("name the column of the texts with --text-field, or give --text for files that are texts")
    if format is not None and format not in FIELD_FORMATS:
        types.fail(f"--format {format} has no column of texts: --text-field is for {', '.join(FIELD_FORMATS)}")
    columns: Any = "text" if text else texts.text_field
    columns = columns if isinstance(columns, str) else tuple(columns)
    if texts.html and isinstance(columns, tuple):
        raise InputError("--html is for one column of pages, whose titles count too: name it alone")
    simhash, notices = features.simhash(width), texts.notices()
    projection = Projection(text=columns)
    rows: Any
    if text:
        rows = open_corpus(inputs, True, list(texts.suffix) or None, notices, texts.encoding, texts.html is not None)
    else:
        rows = open_rows(inputs, format, texts.encoding)
    notices.source = rows
    learning = Learning(amounts.sample, amounts.most, amounts.seed, texts.html or False)
    with Bars(talk.bars, rows) as bars:
        found = learnt_weights(rows, projection, simhash, learning, bars)
    with Sink(output) as sink:
        sink.write(packed_weights(found.simhash))
    notices.report(talk)
    kept = found.simhash.weights
    if output != "-" and not talk.quiet and kept is not None:
        looked_at = f"{found.looked_at:,} of {counted(found.documents, 'document')}"
        click.echo(f"{shown(output)}: weights of {counted(len(kept.hashes), 'piece')}, learnt from {looked_at}")
