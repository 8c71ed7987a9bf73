"""The verbs that say which fingerprints suit a corpus.

``calibrate``, ``compare`` and ``weights``.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from fpstore.base.arguments import check_path, printable
from fpstore.base.width import WORD_BITS
from fpstore.calibration.calibration import (
    COPIES,
    GROUP,
    LEAST_SAMPLE,
    MOST_SAMPLE,
    MOST_WRONG,
    SAMPLE,
    Calibration,
    Options,
    Suggestion,
    calibrate_pictures,
    calibrate_texts,
    text_columns,
)
from fpstore.calibration.comparison import Comparison
from fpstore.calibration.learning import learn_weights
from fpstore.calibration.measures import Measured, Rate
from fpstore.calibration.settings import PDQ
from fpstore.cli import content, options
from fpstore.cli.content import PICTURES, ROWS, TEXTS, Notices
from fpstore.cli.options import argument, option, output_option, whole
from fpstore.cli.output import print_facts, print_json, print_table
from fpstore.cli.verb import Given, fail, usage_errors, verb
from fpstore.errors import InputError, counted, one_line
from fpstore.hashing import Fingerprinter, ImageHash, MinHash, SimHash
from fpstore.hashing.corpora import corpus_paths, open_corpus, open_source
from fpstore.hashing.documents import ROW_SUFFIXES, DocumentFiles, Walk
from fpstore.hashing.page_text import main_texts
from fpstore.hashing.registry import dump_weights
from fpstore.hashing.text import TextHash
from fpstore.io.sink import Sink
from fpstore.io.source import Projection
from fpstore.jobs import GROUPINGS

TEXT_OPTIONS = {
    "shingle": "--shingle",
    "size": "--shingle-size",
    "weighting": "--weighting",
    "width": "--width",
    "digits": "--digits",
    "marks": "--marks",
    "hyphens": "--hyphens",
    "hash": "--feature-hash",
    "tokenizer": "--tokenizer",
}
IMAGE_OPTIONS = {"method": "--image-hash", "width": "--width", "min_quality": "--min-quality"}
SHOWN_CHARACTERS = 60
COLUMNS = ("feature", "in A", "in B")
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
        "threshold=X at that of a Jaccard similarity: method=minhash,threshold=0.75. May be "
        "repeated. By default some usual ones.",
        into="settings",
        multiple=True,
    ),
    option(
        "--change KIND=AMOUNT",
        "A change by which near-duplicates are made, such as words=2 or, as a share, typos=0.01: "
        "typos, words, drop (of sentences), numbers, boilerplate, truncate. With --image resize, "
        "crop, watermark, corner, border or caption (shares), jpeg (quality), blur (pixels), "
        "brightness (factor), rotate or turn (degrees), and grey or mirror without an amount. The "
        "names that are printed are taken, too: 'resize 50%'. May be repeated.",
        into="changes",
        multiple=True,
    ),
    option(
        "--most-wrong SHARE",
        "Greatest share of the removed documents that may be removed wrongly: they share less than "
        "--resemblance of their runs of three words with the document that is kept.",
        click.FloatRange(0, 1),
        MOST_WRONG,
    ),
    option("--group", "How dedup groups near-duplicates.", GROUPINGS, GROUP),
    option(
        "--sample N",
        "Most documents or pictures whose distances are measured; all their pairs are compared. Up "
        "to 50,000 texts are grouped.",
        whole(LEAST_SAMPLE, MOST_SAMPLE),
        SAMPLE,
    ),
    option("--copies N", "Most copies for each kind of change.", whole(1, MOST_SAMPLE), COPIES),
    option(
        "--resemblance SHARE",
        "Documents that share this part of their runs of five characters, or more, are of one "
        "family; by default 0.5. With --image, pictures whose brightnesses correlate as much; by "
        "default 0.9.",
        options.SHARE,
    ),
    option("--seed N", "Seed of the sample and of the changes.", whole(0, 2**64 - 1), 0),
    options.THREADS,
    *options.RESULT,
)
def calibrate(given: Given) -> None:
    """Measure which fingerprint and radius fit a corpus.

    Takes a random sample of the documents or pictures, keeps one of each family of near-duplicates,
    makes changed copies of some, and compares fingerprints for each setting: of copies with their
    originals (near-duplicates), and of the others with each other (strangers). Of texts, it also
    groups up to 50,000 as fpstore dedup does. Prints for each setting the radius that finds the
    most copies without taking in strangers or removing too many documents wrongly. The first row is
    the suggestion.

    $ fpstore calibrate stories --text --suffix .txt
    $ fpstore calibrate site --text --html --encoding utf-8
    $ fpstore calibrate corpus.parquet --text-field text --format parquet --json
    $ fpstore calibrate stories --text --setting method=minhash,threshold=0.75 --most-wrong 0.01 --group connected
    $ fpstore calibrate stories draft.txt --text --change words=2 --change drop=1 --sample 100 --copies 50 --seed 7 --no-progress
    $ fpstore calibrate corpus.parquet --text-field text --resemblance 0.8 --threads 1 --quiet
    $ fpstore calibrate photos --image --change resize=0.5 --setting method=difference --setting method=perceptual,width=256
    """
    result = _calibration(given)
    if given.as_json:
        print_json(result.to_dict())
    else:
        _print_calibration(result)


def _calibration(given: Given) -> Calibration:
    kind = content.declared_kind(given)
    if given.image:
        refused = ("format", "encoding", "html", "most_wrong", "group")
        given.refuse("does not go with --image", *refused)
    if kind not in (TEXTS, PICTURES):
        given.refuse("is for folders: with --text or --image", "suffixes")
    notices, columns = Notices(TEXTS), None
    with usage_errors():
        wanted = Options.checked(
            given.image,
            given.settings or None,
            given.changes or None,
            given.most_wrong,
            given.group,
            given.sample,
            given.copies,
            given.resemblance,
            given.seed,
        )
        if not given.image:
            columns = text_columns(given.text or given.text_field)
    if columns is None:
        warnings.filterwarnings("ignore", module=r"PIL\b")  # the notices report what cannot be read
        if not given.settings and PDQ not in {each.name for each in wanted.settings}:
            given.note("method=pdq is not compared: pip install pdqhash")
        walk = Walk(corpus_paths(given.inputs), given.suffixes)
        with given.bars() as bars:
            result = calibrate_pictures(walk, wanted, given.resources(bars), notices)
    else:
        corpus = open_corpus(
            given.inputs,
            kind == TEXTS,
            suffixes=given.suffixes,
            on_notice=notices,
            encoding=given.encoding,
            html=bool(given.html),
            format=given.format,
        )
        with given.bars(corpus) as bars:
            result = calibrate_texts(corpus, columns, wanted, given.resources(bars), given.html)
    notices.report(given)
    return result


def build_options(made: Fingerprinter[Any]) -> list[str] | None:
    """Return the options of ``build`` and ``dedup`` that make a fingerprinter.

    None if there are none for some parameter.
    """
    names: dict[str, str] = {
        ImageHash: IMAGE_OPTIONS,
        SimHash: TEXT_OPTIONS,
        MinHash: TEXT_OPTIONS,
    }.get(type(made), {})
    if not names or (isinstance(made, TextHash) and callable(made.tokenizer)):
        return None
    usual = type(made)()
    changed = {
        key: value
        for key, value in made.parameters.items()
        if value not in (usual.parameters[key], None)
    }
    if not changed.keys() <= names.keys():
        return None
    first = ["--method", made.name] if isinstance(made, TextHash) else ["--image"]
    return [*first, *(word for key, value in changed.items() for word in (names[key], str(value)))]


def _percent(rate: Rate) -> str:
    low, high = (f"{100 * end:.1f}" for end in rate.interval)
    return f"{rate.value:.1%} ({low}{EN_DASH}{high})" if rate.total else ""


def _row(one: Suggestion) -> tuple[str, ...]:
    first = (one.measured.setting.name, str(one.measured.width))
    of_texts = one.removed is not None or one.measured.setting.fingerprinter.items == "texts"
    if one.radius is None:
        return (*first, "none", *[""] * (5 if of_texts else 2))
    # 95 in 100 times the true share is lower
    strangers = f"{one.strangers.count:,} (<{one.strangers.interval[1]:.0e})"
    if one.removed is None or one.wrong is None:
        return (*first, str(one.radius), _percent(one.recall), strangers)
    threshold = "" if one.threshold is None else f"{one.threshold:.2f}"
    removed = f"{one.removed.count:,}"
    return (
        *first,
        str(one.radius),
        threshold,
        _percent(one.recall),
        strangers,
        removed,
        _percent(one.wrong),
    )


def _radii(width: int) -> list[int]:
    """Return the radii that the second table shows: at 64 bits up to 24, at other widths in proportion."""
    return sorted({round(radius * width / WORD_BITS) for radius in SHOWN_RADII})


def _print_distances(measured: Measured) -> None:
    radii = _radii(measured.width)
    kinds = {**measured.copies, "all": measured.all_copies}
    rows = [
        [name, *(f"{each.within(radius).value:.0%}" for radius in radii)]
        for name, each in kinds.items()
    ]
    print_table(
        f"\nCopies found with {measured.setting.name}, by radius", ["kind", *map(str, radii)], rows
    )


def _print_calibration(result: Calibration) -> None:
    first, evidence = result.suggestions[0], result.evidence
    columns = ["setting", "width", "radius"]
    wish = ""
    if result.grouped is not None:
        columns += ["threshold", "recall", "strangers", "removed", "wrong"]
        wish = f", at most {100 * result.most_wrong:.3g}% removed wrongly"
    else:
        columns += ["recall", "strangers"]
    title = f"Settings for {result.documents:,} {result.items}{wish}, the suggested one first"
    print_table(title, columns, [_row(each) for each in result.suggestions], left=(0,))
    _print_distances(first.measured)
    copies = sum(each.shape[1] for each in evidence.copies.values())
    strangers = evidence.originals * (evidence.originals - 1) // 2
    facts = [
        (result.items, f"{result.documents + result.empty:,}"),
        *([("empty or blank, left out", f"{result.empty:,}")] if result.empty else []),
        *([("grouped as by dedup", f"{result.grouped:,}")] if result.grouped else []),
        ("compared", f"{evidence.originals:,}"),
        *([("near-duplicates of these", f"{evidence.alike:,}")] if evidence.alike else []),
        ("changed copies", f"{copies:,}"),
        ("strangers", counted(strangers, "pair")),
    ]
    print_facts("\nLooked at", facts)
    if not first.fits:
        click.echo("\nNo setting fits: allow more with --most-wrong, or compare others.")
        return
    taken = build_options(first.measured.setting.fingerprinter)
    if taken is not None:
        click.echo("\nTake the first setting with")
        shown, radius = " ".join(taken), f"--radius {first.radius}"
        if first.removed is not None:
            threshold = first.measured.setting.threshold
            chosen = radius if threshold is None else f"--threshold {threshold}"
            click.echo(f"fpstore dedup {shown} {chosen} --group {result.group}")
        click.echo(f"fpstore build {shown} {radius}")


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
def compare(given: Given) -> None:
    """Compare the fingerprints of two texts.

    A and B are text files; one of them may be - for standard input. The features of a text are the
    pieces that make its fingerprint, with their weights. The features whose weights differ most
    pull the texts apart: they are listed first. The resemblance is the share of the features that
    both texts have; the weighted resemblance is the share of the weights.

    $ fpstore compare draft.txt notes/one.txt
    $ fpstore compare draft.txt notes/one.txt --shingle chars --shingle-size 5 --weighting set --limit 5
    $ cat notes/two.txt | fpstore compare - draft.txt --json --quiet
    """
    if given.a == given.b == "-":
        fail("only one of A and B can be standard input")
    maker, notices = content.text_maker(given), Notices(TEXTS)
    text_a, text_b = (_read(path, notices, given) for path in (given.a, given.b))
    for name, text in ((given.a, text_a), (given.b, text_b)):
        if maker.is_empty(text):
            raise InputError(f"{_named(name)}: {maker.lack(text)}", path=name)
    found = Comparison(maker, text_a, text_b)
    notices.report(given)
    if given.as_json:
        print_json(_record(found, given.limit if given.is_given("limit") else None))
    else:
        _print_comparison(found, given)


def _named(path: str) -> str:
    return "standard input" if path == "-" else printable(path)


def _read(path: str, notices: Notices, given: Given) -> str:
    if path == "-":
        text = content.standard_input(notices, given.encoding)
    else:
        if (named := check_path(path)).is_dir():
            raise InputError(f"{printable(path)}: is a folder; name a text file in it", path=path)
        if named.suffix.lower() in ROW_SUFFIXES:
            what = (
                "holds rows, not one text; compare takes text files: write the texts of two rows "
                "to files of their own"
            )
            raise InputError(f"{printable(path)}: {what}", path=path)
        files = DocumentFiles(
            Walk(Path(path), encoding=given.encoding), on_note=notices, html=bool(given.html)
        )
        (document,) = files.documents()  # one that is no text is an error
        text = document.text
    return main_texts([text], given.html)[0] if given.html else text


def _record(found: Comparison, limit: int | None) -> dict[str, Any]:
    digits = found.width // 4
    return {
        "fingerprint_a": f"{found.fingerprint_a:0{digits}x}",
        "fingerprint_b": f"{found.fingerprint_b:0{digits}x}",
        "width": found.width,
        "distance": found.distance,
        "features_a": len(found.features_a),
        "features_b": len(found.features_b),
        "shared": found.shared,
        "resemblance": found.jaccard,
        "weighted_resemblance": found.weighted_jaccard,
        "differing": [
            {"feature": text, "weight_a": a, "weight_b": b}
            for text, a, b in found.differing[:limit]
        ],
    }


def _print_comparison(found: Comparison, given: Given) -> None:
    record, limit = _record(found, None), given.limit
    only_a, only_b = (
        sum(not one[f"weight_{other}"] for one in record["differing"]) for other in "ba"
    )
    both = len(found.differing) - only_a - only_b
    rows = [
        (
            f"A, {_named(given.a)}",
            record["fingerprint_a"],
            f"{record['features_a']:,} features, {only_a:,} only in A",
        ),
        (
            f"B, {_named(given.b)}",
            record["fingerprint_b"],
            f"{record['features_b']:,} features, {only_b:,} only in B",
        ),
        ("distance", f"{found.distance}", f"of {found.width} bits"),
        ("shared", f"{found.shared:,}", f"features, {both:,} with different weights"),
        ("resemblance", f"{found.jaccard:.3f}", f"{found.weighted_jaccard:.3f} weighted"),
    ]
    print_table("Two texts", ("", "", ""), rows, left=(0, 2))
    if not found.differing:
        return
    differing = [
        (_shown(one.text), f"{one.weight_a:g}", f"{one.weight_b:g}")
        for one in found.differing[:limit]
    ]
    print_table("\nFeatures whose weights differ most", COLUMNS, differing)
    if len(found.differing) > limit:
        click.echo(f"and {len(found.differing) - limit:,} more: --limit shows them.")


def _shown(feature: str) -> str:
    line = one_line(feature)
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"


@verb(
    options.INPUTS,
    *content.TEXTUAL,
    options.FORMAT,
    *content.FEATURES,
    options.WIDTH,
    option(
        "--sample N",
        "Most documents that are looked at, drawn at random and held in memory.",
        whole(1, 1_000_000),
        10_000,
    ),
    option(
        "--most N",
        "Number of frequent pieces whose weights are kept. All others weigh as much as one of a "
        "single document.",
        whole(1, 65_536),
        4096,
    ),
    option("--seed N", "Seed of the sample.", whole(0, 2**63 - 1), 0),
    output_option("Where to write the weights."),
    *options.TALK,
)
def weights(given: Given) -> None:
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
    $ cat pages.jsonl | fpstore weights - --text-field text --format jsonl --shingle words --shingle-size 2 --quiet
    """
    kind = content.declared_kind(given)
    if kind not in (TEXTS, ROWS):
        fail(
            "name the column of the texts with --text-field, or give --text for files that are "
            "texts"
        )
    content.refuse_foreign(given, kind)
    columns: Any = "text" if kind == TEXTS else given.text_field
    columns = columns if isinstance(columns, str) else tuple(columns)
    if given.html and isinstance(columns, tuple):
        raise InputError("--html is for one column of pages, whose titles count too: name it alone")
    maker, notices = content.features_maker(given), Notices(kind)
    rows: Any
    if kind == TEXTS:
        content.check_inputs(kind, given.inputs, "")
        rows = open_corpus(
            given.inputs,
            True,
            suffixes=given.suffixes,
            on_notice=notices,
            encoding=given.encoding,
            html=bool(given.html),
        )
    else:
        rows = open_source(given.inputs, format=given.format, encoding=given.encoding, again=False)
    notices.sources.append(rows)
    with given.bars(rows) as bars:
        found = learn_weights(
            rows,
            Projection(text=columns),
            maker,
            sample=given.sample,
            most=given.most,
            seed=given.seed,
            html=given.html,
            progress=bars,
        )
    with Sink(given.output) as sink:
        sink.write(dump_weights(found.fingerprinter))
    notices.report(given)
    kept = found.fingerprinter.weights
    if given.output != "-" and not given.quiet and kept is not None:
        looked_at = f"{found.sample_size:,} of {counted(found.documents, 'document')}"
        click.echo(
            f"{printable(given.output)}: weights of {counted(len(kept.hashes), 'piece')}, learnt "
            f"from {looked_at}"
        )
