"""The verbs that say which fingerprints suit a corpus.

``calibrate``, ``compare`` and ``weights``.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import click

from fpstore.base.arguments import check_path, printable
from fpstore.base.width import WORD_BITS
from fpstore.calibration.calibration import Calibration, measure, text_columns
from fpstore.calibration.comparison import Comparison
from fpstore.calibration.learning import learn_weights
from fpstore.calibration.measures import Measurement
from fpstore.calibration.pictures import read_pictures
from fpstore.calibration.rates import Rate
from fpstore.calibration.removals import RuleMeasurement
from fpstore.calibration.settings import (
    COPIES,
    MAX_SAMPLE,
    MAX_WRONG,
    MIN_SAMPLE,
    PDQ,
    SAMPLE,
    CalibrationOptions,
)
from fpstore.calibration.texts import read_texts
from fpstore.cli import content, options
from fpstore.cli.content import PICTURES, ROWS, TEXTS, Notices
from fpstore.cli.options import argument, option, output_option, whole_number
from fpstore.cli.output import print_facts, print_json, print_table
from fpstore.cli.verb import Arguments, fail, translate_usage_errors, verb
from fpstore.errors import InputError, one_line, plural, shorten
from fpstore.hashing import Fingerprinter, ImageHash, MinHash, SimHash
from fpstore.hashing.corpora import corpus_paths, open_source
from fpstore.hashing.documents import ROW_SUFFIXES, DocumentFiles, Walk, walk_pictures
from fpstore.hashing.page_text import main_texts
from fpstore.hashing.registry import dump_weights
from fpstore.io.files import PACKED
from fpstore.io.sink import Sink
from fpstore.io.source import SUFFIXES as ROW_FORMATS
from fpstore.io.source import Projection, RowSource, format_suffix
from fpstore.jobs.outputs import output_kind

TEXT_PARAMETERS = (
    "shingle",
    "weighting",
    "width",
    "digits",
    "marks",
    "hyphens",
    "chinese",
    "tokenizer",
)
TEXT_OPTIONS = {
    **{name: f"--{name}" for name in TEXT_PARAMETERS},
    "size": "--shingle-size",
    "hash": "--feature-hash",
}
PIECES = {*TEXT_OPTIONS.values()} - {"--width", "--weighting"}
IMAGE_OPTIONS = {"method": "--image-hash", "width": "--width", "min_quality": "--min-quality"}
INPUT_OPTIONS = (  # of calibrate, dedup and build; build_options has --image
    "text",
    "text_field",
    "roles",
    "skip_bad",
    "suffixes",
    "encoding",
    "html",
    "format",
)
MANY_NEAR = 0.1  # of the grouped documents
SHOWN_RADII = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)  # at 64 bits
EN_DASH = "\u2013"


@verb(
    argument("inputs", "INPUT...", nargs=-1, required=True),
    *content.TEXTUAL,
    content.IMAGE,
    options.ROW_FORMAT,
    option(
        "--setting LIST",
        "Parameters of SimHash, such as shingle=words,size=2, method=minhash,size=3 or "
        "weights=FILE, or with --image of ImageHash, such as method=pdq or "
        "method=difference,width=256. With radius=N it is measured at this radius, and with "
        "threshold=X at the radius of a Jaccard similarity: method=minhash,threshold=0.75. May be "
        "repeated. By default some usual ones.",
        into="settings",
        multiple=True,
    ),
    option(
        "--change KIND=AMOUNT",
        "A change by which near-duplicates are made, such as words=2 or, as a share, typos=0.01: "
        "typos, words, drop (of sentences), numbers, boilerplate, truncate. With --image resize, "
        "crop, watermark, corner, border or caption (shares), jpeg (quality), blur (pixels), "
        "brightness (factor), rotate or turn (degrees), and grey or mirror without an amount. May "
        "be repeated.",
        into="changes",
        multiple=True,
    ),
    option(
        "--most-wrong SHARE",
        "Greatest share of the removed documents that may be removed wrongly: the document that is "
        "kept has less than 80% of their runs of three words, and the similarity of both is below "
        "0.5, or below --resemblance.",
        click.FloatRange(0, 1),
        MAX_WRONG,
    ),
    option(
        "--sample N",
        "Most documents or pictures whose distances are measured; all their pairs are compared. "
        "Up to 10,000 texts are grouped.",
        whole_number(MIN_SAMPLE, MAX_SAMPLE),
        SAMPLE,
    ),
    option(
        "--copies N", "Most copies for each kind of change.", whole_number(1, MAX_SAMPLE), COPIES
    ),
    option(
        "--resemblance SHARE",
        "Documents that share this part of their runs of five characters, or more, are of one "
        "family; by default 0.5. With --image, pictures whose brightnesses correlate as much; by "
        "default 0.9.",
        options.SHARE,
    ),
    option("--seed N", "Seed of the sample and of the changes.", whole_number(0, 2**64 - 1), 0),
    options.THREADS,
    *options.RESULT,
)
def calibrate(args: Arguments) -> None:
    """Measure which rule, fingerprint and radius fit.

    Takes a random sample of the documents or pictures, keeps one of each family of near-duplicates,
    and makes changed copies of some. Up to 10,000 texts are searched and decided as by fpstore
    dedup. The first table has the rules, where texts decide: which copies each finds, and what it
    removes, rightly and wrongly. The second table is for stores and dedup --estimate. For each
    setting, it has the radius that finds the most copies without taking in other documents
    (strangers) or removing too many documents wrongly. The first row of a table is the suggestion.
    The last lines are commands with your inputs and options.

    $ fpstore calibrate stories --text --suffix .txt
    $ fpstore calibrate site --text --html --encoding utf-8
    $ fpstore calibrate corpus.parquet --text-field text --format parquet --json
    $ fpstore calibrate stories --text --setting method=minhash,threshold=0.75 \
        --most-wrong 0.01
    $ fpstore calibrate stories draft.txt --text --change words=2 --change drop=1 --sample 100 \
        --copies 50 --seed 7 --no-progress
    $ fpstore calibrate corpus.parquet --text-field text --resemblance 0.8 --threads 1 --quiet
    $ fpstore calibrate photos --image --change resize=0.5 --setting method=difference \
        --setting method=perceptual,width=256
    """
    result, output = _calibration(args)
    if args.as_json:
        print_json(result.to_dict())
        return
    if result.rules:
        _print_rules(result)
    _print_settings(result)
    _print_copies(result.suggestions[0].measured)
    _print_sample(result)
    _print_advice(args, result, output)


def _calibration(args: Arguments) -> tuple[Calibration, str]:
    """Return the calibration, and the name of an output of dedup."""
    kind, notices = content.declared_kind(args), Notices(TEXTS)
    if args.image:
        refused = ("format", "encoding", "html", "roles", "skip_bad", "most_wrong")
        args.refuse("does not go with --image", *refused)
    if kind not in (TEXTS, PICTURES):
        args.refuse("is for folders: with --text or --image", "suffixes")
    with translate_usage_errors():
        choice = CalibrationOptions(
            args.image,
            args.settings or None,
            args.changes or None,
            args.most_wrong,
            args.sample,
            args.copies,
            args.resemblance,
            args.seed,
        )
        columns = None if args.image else text_columns(args.text or args.text_field, args.roles)
    output = ""
    if columns is None:
        warnings.filterwarnings("ignore", module=r"PIL\b")  # the notices report what cannot be read
        if not args.settings and PDQ not in {setting.name for setting in choice.settings}:
            args.note("method=pdq is not compared: pip install pdqhash")
        walk = walk_pictures(corpus_paths(args.inputs), args.suffixes)
        with args.bars() as bars:
            resources = args.resources(bars)
            result = measure(read_pictures(walk, choice, resources, notices), choice, resources)
    else:
        corpus = content.open_corpus(args, args.inputs, kind, notices)
        with args.bars(corpus) as bars:
            resources = args.resources(bars)
            sample = read_texts(corpus, columns, choice, args.html, resources)
            result = measure(sample, choice, resources)
        output = _clean_path(args.inputs, corpus)
    notices.report(args)
    return result, output


def _clean_path(inputs: Sequence[str], corpus: RowSource) -> str:
    """Return a path for the output of `dedup`, of the kind that its inputs need."""
    folder = _free_path("clean", inputs)
    if output_kind(folder, corpus) != "rows" or corpus.suffix is None:
        return folder
    stem = name = Path(inputs[0]).name
    while Path(stem).suffix.lower() in (*ROW_FORMATS, *PACKED):
        stem = Path(stem).stem
    same = format_suffix(name) == corpus.suffix
    return _free_path(f"{stem}.clean{name[len(stem) :] if same else corpus.suffix}", inputs)


def build_options(fingerprinter: Fingerprinter[Any]) -> list[str] | None:
    """Return the options of ``build`` that make a fingerprinter; None if a parameter has none."""
    if type(fingerprinter) is ImageHash:
        words, names = ["--image"], IMAGE_OPTIONS
    elif type(fingerprinter) in (SimHash, MinHash):
        words, names = ["--method", fingerprinter.name], TEXT_OPTIONS
    else:
        return None
    if callable(getattr(fingerprinter, "tokenizer", None)):
        return None
    usual = type(fingerprinter)().parameters
    for key, value in fingerprinter.parameters.items():
        if value not in (usual[key], None):
            if key not in names:
                return None
            words += [names[key], str(value)]
    return words


def rule_options(measured: RuleMeasurement) -> list[str] | None:
    """Return the options of ``dedup`` for a rule; None if a parameter has none."""
    words = build_options(measured.setting.fingerprinter)
    if words is None:
        return None
    options = dict(zip(words[::2], words[1::2], strict=True))
    shown = [word for name in options if name in PIECES for word in (name, options[name])]
    if measured.setting.threshold is not None and not measured.is_lossless:
        shown += ["--threshold", str(measured.setting.threshold)]
    return [*shown, *["--lossless"] * measured.is_lossless]


def _percent(rate: Rate | None) -> str:
    if rate is None or not rate.total:
        return ""
    low, high = (f"{100 * end:.1f}" for end in rate.interval)
    return f"{rate.value:.1%} ({low}{EN_DASH}{high})"


def _print_rules(result: Calibration) -> None:
    rows = [
        [
            measured.setting.name
            if (words := rule_options(measured)) is None
            else " ".join(words) or "as by default",
            *(_percent(rate) for rate in (measured.found, measured.contained, measured.wrong)),
            f"{measured.near:,}",
        ]
        for measured in result.rules
    ]
    for row, measured in zip(rows, result.rules, strict=True):
        row.insert(2, f"{measured.removed.count:,}")
    columns = ["rule", "found", "removed", "contained", "wrong", "near"]
    print_table(f"Rules of dedup, where texts decide, for {_scope(result)}", columns, rows)
    first = result.rules[0]
    if first.near > MANY_NEAR * first.removed.total:
        click.echo(
            f"{plural(first.near, 'document')} share much of their text with others and stay, as "
            "pages of one template do."
        )
    click.echo()


def _scope(result: Calibration) -> str:
    limit = (
        ""
        if result.options.images
        else f", at most {100 * result.options.most_wrong:.3g}% removed wrongly"
    )
    count = f"{result.sample.documents:,} {result.options.items}"
    return f"{count}{limit}, the suggested one first"


def _print_settings(result: Calibration) -> None:
    columns = ["setting", "width", "radius", "recall", "strangers"]
    rows = list[list[str]]()
    for suggestion in result.suggestions:
        setting, strangers = suggestion.measured.setting, suggestion.strangers
        cells = [setting.name, str(suggestion.measured.width), "none", "", ""]
        if suggestion.radius is not None:
            # 95 in 100 times the true share is lower
            near = f"{strangers.count:,} (<{strangers.interval[1]:.0e})"
            cells[2:] = [str(suggestion.radius), _percent(suggestion.recall), near]
        rows.append(cells)
    if not result.options.images:
        columns = [*columns[:3], "threshold", *columns[3:], "removed", "wrong"]
        for cells, suggestion in zip(rows, result.suggestions, strict=True):
            cells.insert(3, "" if suggestion.threshold is None else f"{suggestion.threshold:.2f}")
            cells += [
                f"{suggestion.removed.count:,}" if suggestion.removed else "",
                _percent(suggestion.wrong),
            ]
    print_table(f"Settings for {_scope(result)}", columns, rows)


def _print_copies(measured: Measurement) -> None:
    radii = sorted({round(radius * measured.width / WORD_BITS) for radius in SHOWN_RADII})
    rows = [
        [name, *(f"{distances.within(radius).value:.0%}" for radius in radii)]
        for name, distances in {**measured.copies, "all": measured.all_copies}.items()
    ]
    title = f"\nCopies found with {measured.setting.name}, by radius"
    print_table(title, ["kind", *map(str, radii)], rows)


def _print_sample(result: Calibration) -> None:
    sample, count = result.sample, len(result.sample.strangers)
    facts = {
        result.options.items: sample.documents + sample.empty,
        "empty or blank, left out": sample.empty,
        "grouped as by dedup": sample.grouped,
        "compared": count,
        "near-duplicates of these": sample.alike,
        "changed copies": sum(pairs.shape[1] for pairs in sample.copies.values()),
    }
    rows = [(name, f"{number:,}") for name, number in facts.items() if number]
    print_facts("\nSample", [*rows, ("strangers", plural(count * (count - 1) // 2, "pair"))])


def _print_advice(args: Arguments, result: Calibration, output: str) -> None:
    """Print commands for the first rule and the first setting, which can be run as they are."""
    inputs, typed = args.inputs, args.typed_options(*INPUT_OPTIONS)
    first, commands, rule = result.suggestions[0], list[list[str]](), None
    setting = build_options(first.measured.setting.fingerprinter) if first.fits else None
    if setting is not None:
        setting += ["--radius", str(first.radius)]
    if result.rules:
        rule = rule_options(result.rules[0]) if result.rules[0].fits else None
    elif setting is not None and not result.options.images:
        rule = [*setting, "--group", "greedy"]
    if rule is not None:
        commands.append(["dedup", *inputs, output, *typed, *rule])
    if setting is not None:
        name = Path(inputs[0]).resolve().name.partition(".")[0] or "store"
        commands.append(["build", _free_path(f"{name}.fps", inputs), *inputs, *typed, *setting])
    for name, ranked in (("rule", result.rules), ("setting", result.suggestions)):
        if ranked and not ranked[0].fits:
            click.echo(f"\nNo {name} fits: allow more with --most-wrong, or compare others.")
    if commands:
        click.echo("\nTake the first rows with")
    for command in commands:
        click.echo(printable(f"fpstore {shlex.join(command)}"))


def _free_path(name: str, inputs: Sequence[str]) -> str:
    """Return a path of this name, or a numbered one, that is neither taken nor in an input."""
    folder, folders = Path(), [Path(path).resolve() for path in inputs if Path(path).is_dir()]
    while any(folder.resolve().is_relative_to(path) for path in folders) and (
        folder.resolve() != folder.resolve().parent
    ):
        folder /= ".."
    names = (name if not number else f"{number + 1}-{name}" for number in count())
    return str(next(folder / name for name in names if not (folder / name).exists()))


@verb(
    argument("a", "A"),
    argument("b", "B"),
    *content.SHINGLES,
    options.WIDTH,
    option(
        "--limit N",
        "Most differing features that are shown; JSON has all by default.",
        options.COUNT,
        20,
    ),
    options.ENCODING,
    options.HTML,
    options.QUIET,
    options.JSON,
)
def compare(args: Arguments) -> None:
    """Compare the fingerprints of two texts.

    A and B are text files; one of them may be - for standard input. The features of a text are the
    pieces that make its fingerprint, with their weights. The features whose weights differ most
    pull the texts apart: they are listed first. The resemblance is the share of the features that
    both texts have; the weighted resemblance is the share of the weights.

    $ fpstore compare draft.txt notes/one.txt
    $ fpstore compare draft.txt notes/one.txt --shingle chars --shingle-size 5 --weighting set \
        --limit 5
    $ cat notes/two.txt | fpstore compare - draft.txt --json --quiet
    """
    if args.a == args.b == "-":
        fail("only one of A and B can be standard input")
    fingerprinter, notices = content.text_fingerprinter_option(args), Notices(TEXTS)
    text_a, text_b = (_read(path, notices, args) for path in (args.a, args.b))
    for name, text in ((args.a, text_a), (args.b, text_b)):
        if fingerprinter.is_empty(text):
            raise InputError(f"{_input_name(name)}: {fingerprinter.empty_message(text)}", path=name)
    comparison = Comparison(fingerprinter, text_a, text_b)
    notices.report(args)
    if args.as_json:
        record = comparison.to_dict()
        if args.is_given("limit"):
            del record["differing"][args.limit :]
        print_json(record)
    else:
        _print_comparison(comparison, args)


def _input_name(path: str) -> str:
    return "standard input" if path == "-" else printable(path)


def _read(path: str, notices: Notices, args: Arguments) -> str:
    if path == "-":
        text = content.standard_input(notices, args.encoding)
    else:
        if (file := check_path(path)).is_dir():
            raise InputError(f"{printable(path)}: is a folder; name a text file in it", path=path)
        if file.suffix.lower() in ROW_SUFFIXES:
            problem = (
                "holds rows, not one text; compare takes text files: write the texts of two rows "
                "to files of their own"
            )
            raise InputError(f"{printable(path)}: {problem}", path=path)
        files = DocumentFiles(
            Walk(Path(path), encoding=args.encoding), on_note=notices, html=bool(args.html)
        )
        (document,) = files.documents()  # one that is no text is an error
        text = document.text
    return main_texts([text], args.html)[0] if args.html else text


def _print_comparison(comparison: Comparison, args: Arguments) -> None:
    record, differing = comparison.to_dict(), comparison.differing
    only_a = sum(not feature.weight_b for feature in differing)
    only_b = sum(not feature.weight_a for feature in differing)
    reweighted = len(differing) - only_a - only_b
    rows = [
        (
            f"{name}, {_input_name(path)}",
            fingerprint,
            f"{features:,} features, {only:,} only in {name}",
        )
        for name, path, fingerprint, features, only in (
            ("A", args.a, record["fingerprint_a"], record["features_a"], only_a),
            ("B", args.b, record["fingerprint_b"], record["features_b"], only_b),
        )
    ]
    rows += [
        ("distance", f"{comparison.distance}", f"of {comparison.width} bits"),
        ("shared", f"{comparison.shared:,}", f"features, {reweighted:,} with different weights"),
        ("resemblance", f"{comparison.jaccard:.3f}", f"{comparison.weighted_jaccard:.3f} weighted"),
    ]
    print_table("Two texts", ("", "", ""), rows, text_columns=(0, 2))
    if not differing:
        return
    cells = [
        (shorten(one_line(feature.text)), f"{feature.weight_a:g}", f"{feature.weight_b:g}")
        for feature in differing[: args.limit]
    ]
    print_table("\nFeatures whose weights differ most", ("feature", "in A", "in B"), cells)
    if len(differing) > args.limit:
        click.echo(f"and {len(differing) - args.limit:,} more: --limit shows them.")


@verb(
    options.INPUTS,
    *content.TEXTUAL,
    options.FORMAT,
    *content.FEATURES,
    options.WIDTH,
    option(
        "--sample N",
        "Largest number of documents in the sample, which is drawn at random and held in memory.",
        whole_number(1, 1_000_000),
        10_000,
    ),
    option(
        "--most N",
        "Number of frequent pieces whose weights are kept. All others weigh as much as one of a "
        "single document.",
        whole_number(1, 65_536),
        4096,
    ),
    option("--seed N", "Seed of the sample.", whole_number(0, 2**63 - 1), 0),
    output_option("Where to write the weights."),
    *options.TALK,
)
def weights(args: Arguments) -> None:
    """Learn weights of words from a corpus.

    A word, or another piece of a text, counts less if many documents have it. Reads the texts as
    fpstore build does, takes a random sample, and counts in how many documents of the sample each
    piece is. With several --text-field, a document has the pieces of all columns; the weights of
    the columns do not matter here.

    Writes a file for --weights of build, hash, dedup and compare, and for --setting weights=FILE of
    calibrate. The file has the options that say what a piece is, too. A store remembers the
    weights: insert and the searches need no file.

    $ fpstore weights corpus.parquet --text-field text --output weights.json
    $ fpstore weights notes --text --suffix .txt --sample 1000 --most 500 --seed 7 --quiet
    $ cat pages.jsonl | fpstore weights - --text-field text --format jsonl --shingle words \
        --shingle-size 2 --quiet
    """
    kind = content.declared_kind(args)
    if kind not in (TEXTS, ROWS):
        fail(
            "name the column of the texts with --text-field, or give --text for files that are "
            "texts"
        )
    content.refuse_options_of_other_kinds(args, kind)
    columns: Any = "text" if kind == TEXTS else args.text_field
    columns = columns if isinstance(columns, str) else tuple(columns)
    if args.html and isinstance(columns, tuple):
        raise InputError("--html is for one column of pages, whose titles count too: name it alone")
    fingerprinter, notices = content.features_option(args), Notices(kind)
    rows: Any
    if kind == TEXTS:
        content.check_inputs(kind, args.inputs, "")
        rows = content.open_corpus(args, args.inputs, kind, notices)
    else:
        rows = open_source(
            args.inputs,
            format=args.format,
            encoding=args.encoding,
            again=False,
            skip_bad=args.skip_bad,
        )
        notices.sources.append(rows)
    with args.bars(rows) as bars:
        learnt, sampled, documents = learn_weights(
            rows,
            Projection(text=columns, roles=args.roles),
            fingerprinter,
            sample=args.sample,
            most=args.most,
            seed=args.seed,
            html=args.html,
            progress=bars,
        )
    with Sink(args.output) as sink:
        sink.write(dump_weights(learnt))
    notices.report(args)
    if args.output != "-" and not args.quiet and learnt.weights is not None:
        click.echo(
            f"{printable(args.output)}: weights of {plural(len(learnt.weights.hashes), 'piece')}, "
            f"learnt from {sampled:,} of {plural(documents, 'document')}"
        )
