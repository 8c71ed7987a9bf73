"""``fpstore calibrate``."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fpstore.base.arguments import check_whole, printable
from fpstore.cli import types
from fpstore.cli.documents import Notices, suffix_option
from fpstore.cli.options import Talk, check_output, grouped, json_option, refuse, talk_options, threads_option, usage_errors
from fpstore.cli.output import print_json, print_table
from fpstore.cli.plan import parse_count
from fpstore.cli.progress import Bars
from fpstore.cli.texts import READING_PARAMETERS, encoding_option, html_option
from fpstore.cli.verb import Verb
from fpstore.errors import StoreExistsError

if TYPE_CHECKING:
    from fpstore.calibration.advice import Wish
    from fpstore.calibration.job import Amounts, Calibration
    from fpstore.calibration.settings import Setting
    from fpstore.hashing import Fingerprinter

LEAST_SAMPLE, MOST_SAMPLE = 2, 10_000
TEXT_OPTIONS = {
    "shingle": "--shingle", "size": "--shingle-size", "weighting": "--weighting", "width": "--width", "digits": "--digits",
    "hash": "--feature-hash", "tokenizer": "--tokenizer",
}  # fmt: skip
IMAGE_OPTIONS = {"method": "--image-hash", "width": "--width", "min_quality": "--min-quality"}


@dataclasses.dataclass(frozen=True)
class Documents:
    """Where texts or pictures are, and pairs."""

    text: bool
    image: bool
    text_field: str | None
    id_field: str | None
    pairs: str | None
    suffix: Sequence[str]
    encoding: str | None
    html: str | None


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much is looked at, and for what."""

    documents: int | None
    recall: float | None
    false_pairs: float | None
    sample: int
    copies: int
    resemblance: float | None
    seed: int

    @property
    def wish(self) -> Wish:
        """What is wanted."""
        from fpstore.calibration.advice import Wish

        if self.documents is not None:
            check_whole(self.documents, 2, 2**64, "documents")
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

    def parsed(self, image: bool) -> list[Setting]:
        """Return the settings, or the usual ones, for pictures or for texts."""
        from fpstore.calibration.settings import parse_setting, usual_settings
        from fpstore.hashing import ImageHash, SimHash

        kind = ImageHash if image else SimHash
        return [parse_setting(text, kind) for text in self.settings or usual_settings(image)]


def _only_field(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> str | None:
    """Return the one column that is named."""
    if len(value) > 1:
        raise click.UsageError("--text-field: a calibration looks at one column of texts: name the one that tells most", ctx)
    return next(iter(value), None)


documents_options = grouped(
    "given",
    Documents,
    click.option("--text", is_flag=True, help="Each file is a document; its path is its id."),
    click.option("--image", is_flag=True, help="Files are pictures; those in folders are looked for."),
    click.option(
        "--text-field", metavar="NAME", multiple=True, callback=_only_field,
        help="Column or JSON field of the texts. Of several, calibrate the one that tells most.",
    ),
    click.option("--id-field", type=types.NAME, help="Column or JSON field of the ids that --pairs names."),
    click.option(
        "--pairs", metavar="FILE",
        help="Pairs with labels, instead of changed copies: Parquet, JSON lines, CSV or TSV with the columns text_a, text_b and "
        "label; or, with documents, a, b (their ids) and label. The label is 1 for near-duplicates, 0 for others.",
    ),
    suffix_option,
    encoding_option,
    html_option,
)  # fmt: skip
chosen_options = grouped(
    "chosen",
    Chosen,
    click.option(
        "--setting", "settings", multiple=True, metavar="LIST",
        help="Parameters of SimHash, such as shingle=words,size=2 or weights=FILE of fpstore weights, or with --image of "
        "ImageHash, such as method=pdq or method=difference,width=256; may be repeated. By default some usual ones are compared.",
    ),
    click.option(
        "--change", "changes", multiple=True, metavar="KIND=AMOUNT",
        help="A change by which near-duplicates are made, such as words=2 or, as a share, typos=0.01: typos, words, drop, swap "
        "or repeat (of sentences), numbers, boilerplate, truncate, case, punctuation, spaces. With --image resize, crop or "
        "watermark (shares), jpeg (quality), blur (pixels), brightness (factor), rotate (degrees), and grey or mirror without "
        "an amount. The names that are printed are taken, too: 'resize 50%'. May be repeated.",
    ),
)  # fmt: skip
limits_options = grouped(
    "limits",
    Limits,
    click.option(
        "-n", "--documents", type=types.Checked("number", parse_count), metavar="N",
        help="Number of documents or pictures for which to choose, such as 1e8 or 50M; by default those of the inputs.",
    ),
    click.option("--recall", type=types.SHARE, metavar="SHARE", help="Share of near-duplicates to find, such as 0.95."),
    click.option(
        "--false-pairs", type=types.SHARE, metavar="N",
        help="Most pairs of strangers within the radius; without --recall, by default one for each hundred documents.",
    ),
    click.option(
        "--sample", type=types.whole(LEAST_SAMPLE, MOST_SAMPLE), default=1500, show_default=True, metavar="N",
        help="Most documents or pictures that are looked at; all their pairs are compared.",
    ),
    click.option(
        "--copies", type=types.whole(1, MOST_SAMPLE), default=300, show_default=True, metavar="N",
        help="Most copies for each kind of change.",
    ),
    click.option(
        "--resemblance", type=types.SHARE, metavar="SHARE",
        help="Documents that share this part of their shingles, or more, are of one family; by default 0.5. With --image, "
        "pictures whose brightnesses correlate as much; by default 0.9.",
    ),
    click.option(
        "--seed", type=types.whole(0, 2**64 - 1), default=0, show_default=True, metavar="N",
        help="Seed of the sample and of the changes.",
    ),
)  # fmt: skip


@click.command(cls=Verb)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@documents_options
@chosen_options
@limits_options
@click.option(
    "-o", "--output", metavar="FILE", callback=lambda ctx, parameter, value: value and check_output(ctx, parameter, value),
    help="Also write a page in HTML, with pictures.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file of --output, if it exists.")
@threads_option
@json_option
@talk_options
def calibrate(
    inputs: Sequence[str],
    given: Documents,
    chosen: Chosen,
    limits: Limits,
    output: str | None,
    force: bool,
    threads: int | None,
    as_json: bool,
    talk: Talk,
) -> None:
    """Measure which fingerprint and radius fit a corpus.

    Takes a random sample of the documents or pictures, keeps one of each family of near-duplicates, makes changed copies of some,
    and compares fingerprints for each setting: of copies with their originals (near-duplicates), and of the others with each
    other (strangers). Prints for each setting the radius that finds most within a bound of false pairs, the expected number of
    these, and what the radius costs. The first row is the suggestion.

    $ fpstore calibrate stories --text --suffix .txt
    $ fpstore calibrate site --text --html --encoding utf-8
    $ fpstore calibrate corpus.parquet --text-field text --documents 50M --false-pairs 1e6 --output page.html --threads 1 --quiet
    $ fpstore calibrate pages.jsonl --text-field text --setting shingle=words,size=1 --setting size=2 --recall 0.9 --json
    $ fpstore calibrate stories --text --setting weights=weights.json --setting size=1
    $ fpstore calibrate stories draft.txt --text --change words=2 --change drop=1 --sample 100 --copies 50 --seed 7 --no-progress
    $ fpstore calibrate corpus.parquet --text-field text --id-field id --pairs pairs.csv --resemblance 0.8
    $ fpstore calibrate --pairs labelled.jsonl --output page.html --force
    $ fpstore calibrate photos --image --change resize=0.5 --change jpeg=20 --change crop=0.05
    $ fpstore calibrate photos --image --suffix .png --setting method=difference --setting method=perceptual,width=256
    """
    from fpstore.calibration.shown import page_of
    from fpstore.io.sink import Sink

    _check_usage(inputs, given)
    if as_json and output == "-":
        raise click.UsageError("--json and --output - both write to standard output")
    if output not in (None, "-") and Path(output or "").is_file() and not force:
        raise StoreExistsError(f"{printable(output or '')} exists: --force replaces it", path=output)
    found = _calibration(inputs, given, chosen, limits, threads, talk)
    if output is not None:
        with Sink(output) as sink:
            sink.write(page_of(found).encode())
    if as_json:
        print_json(found.to_dict())
    elif output != "-":
        print_calibration(found)


def _check_usage(inputs: Sequence[str], given: Documents) -> None:
    """Raise a usage error for options that do not go together."""
    if given.image:
        refuse({"text", "text_field", "id_field", "pairs", *READING_PARAMETERS}, "does not go with --image")
    if given.pairs is not None:
        refuse({"changes", "sample", "copies", "seed", "html"}, "is for copies that are changed, not for pairs with labels")
    else:
        refuse({"id_field"}, "is for --pairs")
    if not (given.text or given.image):
        refuse({"suffix"}, "is for folders: with --text or --image")
    if not inputs and (given.image or given.pairs is None or given.text or given.text_field):
        raise click.UsageError("name files or folders of documents or pictures, or --pairs with texts")


def _calibration(
    inputs: Sequence[str], given: Documents, chosen: Chosen, limits: Limits, threads: int | None, talk: Talk
) -> Calibration:
    """Return the calibration that the command line asks for; what cannot be is a usage error."""
    notices = Notices()
    of = _of_images if given.image else _of_texts
    found = of(inputs, given, chosen, limits, Reporting(threads, talk, notices))
    notices.report(talk)
    return found


class Reporting(NamedTuple):
    """Threads, and where progress and what is left out are reported."""

    threads: int | None
    talk: Talk
    notices: Notices


def _of_texts(inputs: Sequence[str], given: Documents, chosen: Chosen, limits: Limits, reporting: Reporting) -> Calibration:
    from fpstore.base.resources import Resources, parse_threads
    from fpstore.calibration.job import calibrated, from_corpus, from_pairs
    from fpstore.calibration.measures import each_measured
    from fpstore.calibration.perturbations import CHANGES, parse_change
    from fpstore.hashing.corpora import open_corpus
    from fpstore.io.source import Projection
    from fpstore.jobs.dedup import projection_of

    with usage_errors():
        settings = chosen.parsed(image=False)
        changes = list(map(parse_change, chosen.changes)) or CHANGES
        amounts, wish = limits.amounts._replace(html=given.html or False), limits.wish
        columns = projection_of(Projection(id=given.id_field), given.text or given.text_field, None) if inputs else None
    corpus = None
    if inputs:
        html = given.html is not None
        corpus = open_corpus(inputs, given.text, list(given.suffix) or None, reporting.notices, given.encoding, html)
    with Bars(reporting.talk.bars, corpus) as bars:
        resources = Resources(0, parse_threads(reporting.threads), bars)
        if given.pairs is not None:
            facts, evidence = from_pairs(open_corpus([given.pairs], texts=False), corpus, columns, amounts)
        else:
            assert corpus is not None
            assert columns is not None
            facts, evidence = from_corpus(corpus, columns, changes, amounts, resources)
        return calibrated(facts, evidence, each_measured(evidence, settings, resources), wish)


def _of_images(inputs: Sequence[str], given: Documents, chosen: Chosen, limits: Limits, reporting: Reporting) -> Calibration:
    from fpstore.base.resources import Resources, parse_threads
    from fpstore.calibration.image_changes import IMAGE_CHANGES, parse_image_change
    from fpstore.calibration.image_evidence import ImageWork
    from fpstore.calibration.job import calibrated, from_images
    from fpstore.calibration.settings import PDQ_SETTINGS
    from fpstore.hashing.corpora import paths_of
    from fpstore.hashing.walk import Walk

    warnings.filterwarnings("ignore", module=r"PIL\b")  # what cannot be read is told by the notices
    with usage_errors():
        settings = chosen.parsed(image=True)
        changes = list(map(parse_image_change, chosen.changes)) or IMAGE_CHANGES
        amounts, wish = limits.amounts, limits.wish
    if not chosen.settings and {one.name for one in settings}.isdisjoint(PDQ_SETTINGS):
        reporting.talk.note("method=pdq is not compared: pip install pdqhash")
    walk = Walk(paths_of(inputs), list(given.suffix) or None, True, False, None)
    work = ImageWork(settings, changes, amounts.copies, amounts.seed)
    with Bars(reporting.talk.bars) as bars:
        resources = Resources(0, parse_threads(reporting.threads), bars)
        facts, looked_at = from_images(walk, work, amounts, reporting.notices, resources)
        return calibrated(facts, looked_at.evidence, looked_at.each_measured(settings), wish)


def build_options(made: Fingerprinter[Any]) -> list[str] | None:
    """Return the options of ``fpstore build`` that make a fingerprinter; None if there are none for some parameter."""
    from fpstore.hashing import ImageHash, SimHash

    names, usual = (IMAGE_OPTIONS, ImageHash()) if isinstance(made, ImageHash) else (TEXT_OPTIONS, SimHash())
    if type(made) is not type(usual) or (isinstance(made, SimHash) and callable(made.tokenizer)):
        return None
    changed = {key: value for key, value in made.parameters.items() if value not in (usual.parameters[key], None)}
    if not changed.keys() <= names.keys():
        return None
    return [word for key, value in changed.items() for word in (names[key], str(value))]


def print_calibration(found: Calibration) -> None:
    """Print the suggestions, what the first one finds, and what was looked at."""
    from fpstore.calibration.shown import SUMMARY, facts_of, recall_table, summary_rows, wanted

    print_table(f"Settings for {wanted(found)}, the suggested one first", SUMMARY, summary_rows(found), left=(0, 6))
    first = found.suggestions[0]
    headings, rows = recall_table(first.measured)
    print_table(f"\nNear-duplicates found with {first.measured.setting.name}, by radius", headings, rows)
    print_table("\nLooked at", ("", ""), facts_of(found))
    options = build_options(first.measured.setting.fingerprinter)
    if options is not None and first.radius is not None:
        click.echo(f"\nfpstore build takes the first setting as {' '.join([*options, '--radius', str(first.radius)])}")
    if not all(one.observed for one in found.suggestions if one.radius is not None):
        click.echo("\n~ is extrapolated below the distances that the sample has met: docs/calibration.md says how.")
    if first.radius is None:
        click.echo("\nNo setting meets the wish: allow more false pairs, ask for less recall, or compare other settings.")
