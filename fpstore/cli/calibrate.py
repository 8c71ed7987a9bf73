"""``fpstore calibrate``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fpstore.arguments import printable
from fpstore.cli import types
from fpstore.cli.documents import Notices, suffix_option
from fpstore.cli.options import Talk, check_output, grouped, json_option, refuse, talk_options, threads_option, usage_errors
from fpstore.cli.output import print_json, print_table
from fpstore.cli.plan import parse_count
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb
from fpstore.errors import StoreExistsError

if TYPE_CHECKING:
    from fpstore.calibration.advice import Wish
    from fpstore.calibration.job import Amounts, Calibration

LEAST_SAMPLE, MOST_SAMPLE = 2, 10_000


@dataclasses.dataclass(frozen=True)
class Texts:
    """Where texts and pairs are."""

    text: bool
    text_field: str | None
    id_field: str | None
    pairs: str | None
    suffix: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much is looked at, and for what."""

    documents: int | None
    recall: float | None
    false_pairs: float | None
    sample: int
    copies: int
    resemblance: float
    seed: int

    @property
    def wish(self) -> Wish:
        """What is wanted."""
        from fpstore.calibration.advice import Wish

        return Wish(self.documents or 0, self.recall, self.false_pairs).checked()

    @property
    def amounts(self) -> Amounts:
        """How much is looked at."""
        from fpstore.calibration.job import Amounts

        return Amounts(self.sample, self.copies, self.resemblance, self.seed).checked()


@dataclasses.dataclass(frozen=True)
class Chosen:
    """What is compared, and by which near-duplicates."""

    settings: Sequence[str]
    changes: Sequence[str]


texts_options = grouped(
    "texts",
    Texts,
    click.option("--text", is_flag=True, help="Each file is a document; its path is its id."),
    click.option("--text-field", metavar="NAME", help="Column or JSON field of the texts."),
    click.option("--id-field", metavar="NAME", help="Column or JSON field of the ids that --pairs names."),
    click.option(
        "--pairs", metavar="FILE",
        help="Pairs with labels, instead of changed copies: Parquet, JSON lines, CSV or TSV with the columns text_a, text_b and "
        "label; or, with documents, a, b (their ids) and label. The label is 1 for near-duplicates, 0 for others.",
    ),
    suffix_option,
)  # fmt: skip
chosen_options = grouped(
    "chosen",
    Chosen,
    click.option(
        "--setting", "settings", multiple=True, metavar="LIST",
        help="Parameters of SimHash, such as shingle=words,size=2, or weights=FILE of fpstore weights; may be repeated. By "
        "default some usual ones are compared.",
    ),
    click.option(
        "--change", "changes", multiple=True, metavar="KIND=AMOUNT",
        help="A change by which near-duplicates are made, such as words=2 or typos=0.01: typos, words, drop, swap or repeat (of "
        "sentences), numbers, boilerplate, truncate, case, punctuation, spaces; may be repeated. An amount below 1 is a share.",
    ),
)  # fmt: skip
limits_options = grouped(
    "limits",
    Limits,
    click.option(
        "-n", "--documents", type=types.Checked("number", parse_count), metavar="N",
        help="Number of documents for which to choose, such as 1e8 or 50M; by default those of the corpus.",
    ),
    click.option("--recall", type=types.SHARE, metavar="SHARE", help="Share of near-duplicates to find, such as 0.95."),
    click.option(
        "--false-pairs", type=types.SHARE, metavar="N",
        help="Most pairs of strangers within the radius; without --recall, by default one for each hundred documents.",
    ),
    click.option(
        "--sample", type=types.whole(LEAST_SAMPLE, MOST_SAMPLE), default=1500, show_default=True, metavar="N",
        help="Most documents that are looked at; all their pairs are compared.",
    ),
    click.option(
        "--copies", type=types.whole(1, MOST_SAMPLE), default=300, show_default=True, metavar="N",
        help="Most copies for each kind of change.",
    ),
    click.option(
        "--resemblance", type=types.SHARE, default=0.5, show_default=True, metavar="SHARE",
        help="Documents that share this part of their shingles, or more, are not strangers.",
    ),
    click.option(
        "--seed", type=types.whole(0, 2**63 - 1), default=0, show_default=True, metavar="N",
        help="Seed of the sample and of the changes.",
    ),
)  # fmt: skip


@click.command(cls=Verb)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@texts_options
@chosen_options
@limits_options
@click.option(
    "-o", "--output", metavar="FILE", callback=lambda ctx, parameter, value: value and check_output(ctx, parameter, value),
    help="Also write a page in HTML, with pictures.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@threads_option
@json_option
@talk_options
def calibrate(
    inputs: Sequence[str],
    texts: Texts,
    chosen: Chosen,
    limits: Limits,
    output: str | None,
    force: bool,
    threads: int | None,
    as_json: bool,
    talk: Talk,
) -> None:
    """Measure which fingerprint and which radius find the near-duplicates of a corpus.

    Takes a random sample of the documents, makes changed copies of some, and compares fingerprints for each setting: of copies
    with their documents (near-duplicates), and of all other pairs (strangers). Prints for each setting the radius that finds most
    within a bound of false pairs, the expected number of these, and what the radius costs. The first row is the suggestion.

    $ fpstore calibrate stories --text --suffix .txt
    $ fpstore calibrate corpus.parquet --text-field text --documents 50M --false-pairs 1e6 --output page.html --threads 1 --quiet
    $ fpstore calibrate pages.jsonl --text-field text --setting shingle=words,size=1 --setting size=2 --recall 0.9 --json
    $ fpstore calibrate stories --text --setting weights=weights.json --setting size=1
    $ fpstore calibrate stories draft.txt --text --change words=2 --change drop=1 --sample 100 --copies 50 --seed 7 --no-progress
    $ fpstore calibrate corpus.parquet --text-field text --id-field id --pairs pairs.csv --resemblance 0.8
    $ fpstore calibrate --pairs labelled.jsonl --output page.html --force
    """
    from fpstore.calibration.page import page_of
    from fpstore.io.sink import Sink

    if texts.pairs is not None:
        refuse({"changes", "sample", "copies", "seed"}, "is for copies that are changed, not for pairs with labels")
    else:
        refuse({"id_field"}, "is for --pairs")
    if not texts.text:
        refuse({"suffix"}, "is for folders of texts: with --text")
    if as_json and output == "-":
        raise click.UsageError("--json and --output - both write to standard output")
    if output not in (None, "-") and Path(output or "").is_file() and not force:
        raise StoreExistsError(f"{printable(output or '')} exists: --force replaces it", path=output)
    found = _calibration(inputs, texts, chosen, limits, threads, talk)
    if output is not None:
        with Sink(output) as sink:
            sink.write(page_of(found).encode())
    if as_json:
        print_json(found.to_dict())
    elif output != "-":
        print_calibration(found)


def _calibration(
    inputs: Sequence[str], texts: Texts, chosen: Chosen, limits: Limits, threads: int | None, talk: Talk
) -> Calibration:
    """Return the calibration that the command line asks for; what cannot be is a usage error."""
    from fpstore.calibration.job import calibrated, from_corpus, from_pairs
    from fpstore.calibration.perturbations import CHANGES, parse_change
    from fpstore.calibration.settings import SETTINGS, parse_setting
    from fpstore.hashing.corpora import open_corpus
    from fpstore.io.corpus import Chosen as Columns
    from fpstore.jobs.dedup import chosen_columns
    from fpstore.resources import Resources, parse_threads

    if not inputs and (texts.pairs is None or texts.text or texts.text_field):
        raise click.UsageError("name files or folders of documents, or --pairs with texts")
    with usage_errors():
        settings = list(map(parse_setting, chosen.settings or SETTINGS))
        changes = list(map(parse_change, chosen.changes)) or CHANGES
        amounts, wish = limits.amounts, limits.wish
        columns = chosen_columns(Columns(id=texts.id_field), texts.text or texts.text_field, None) if inputs else None
    notices = Notices()
    corpus = open_corpus(inputs, texts.text, list(texts.suffix) or None, notices) if inputs else None
    with Bars(talk.bars, corpus) as bars:
        resources = Resources(0, parse_threads(threads), bars)
        if texts.pairs is not None:
            facts, evidence = from_pairs(open_corpus([texts.pairs], texts=False), corpus, columns, amounts)
        else:
            assert corpus is not None
            assert columns is not None
            facts, evidence = from_corpus(corpus, columns, changes, amounts, resources)
        found = calibrated(facts, evidence, settings, wish, resources)
    notices.report(talk)
    return found


def print_calibration(found: Calibration) -> None:
    """Print the suggestions, what the first one finds, and what was looked at."""
    from fpstore.calibration.tables import SUMMARY, facts_of, recall_table, summary_rows, wanted

    print_table(f"Settings for {wanted(found)}, the suggested one first", SUMMARY, summary_rows(found), left=(0, 6))
    first = found.suggestions[0]
    headings, rows = recall_table(first.measured)
    print_table(f"\nNear-duplicates found with {first.measured.setting.name}, by radius", headings, rows)
    print_table("\nLooked at", ("", ""), facts_of(found))
    if not all(one.observed for one in found.suggestions if one.radius is not None):
        click.echo("\n~ is extrapolated below the distances that the sample has met: docs/calibration.md says how.")
    if first.radius is None:
        click.echo("\nNo setting meets the wish: allow more false pairs, ask for less recall, or compare other settings.")
