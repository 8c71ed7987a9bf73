"""``fpstore compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fpstore.base.arguments import check_path, printable
from fpstore.cli import types
from fpstore.cli.documents import Notices, Shingles, shingle_options, standard_input
from fpstore.cli.options import Talk, json_option, width_option
from fpstore.cli.output import print_json, print_table
from fpstore.cli.texts import encoding_option, html_option
from fpstore.cli.verb import Verb
from fpstore.errors import InputError, one_line

if TYPE_CHECKING:
    from fpstore.calibration.comparison import Comparison

SHOWN, SHOWN_CHARACTERS = 20, 60
COLUMNS = ("feature", "in A", "in B")


@click.command(cls=Verb)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@shingle_options
@width_option
@click.option(
    "--limit", type=types.COUNT, default=SHOWN, show_default=True, metavar="N",
    help="Most differing features that are shown; JSON has all by default.",
)  # fmt: skip
@encoding_option
@html_option
@json_option
def compare(
    a: str, b: str, shingles: Shingles, width: int, limit: int, encoding: str | None, html: str | None, as_json: bool
) -> None:
    """Compare the fingerprints of two texts.

    A and B are text files; one of them may be - for standard input. The features of a text are the pieces that make its
    fingerprint, with their weights. The features whose weights differ most pull the texts apart: they are listed first. The
    resemblance is the share of the features that both texts have; the weighted resemblance is the share of the weights.

    $ fpstore compare draft.txt notes/one.txt
    $ fpstore compare draft.txt notes/one.txt --shingle chars --shingle-size 5 --weighting set --digits zero --limit 5
    $ fpstore compare draft.txt notes/one.txt --feature-hash blake2b --stop-words frequent.txt --width 128
    $ fpstore compare draft.txt notes/one.txt --tokenizer unicode
    $ fpstore compare draft.txt notes/one.txt --weights weights.json
    $ fpstore compare draft.txt notes/one.txt --longest-sentences 5
    $ fpstore compare draft.txt notes/one.txt --encoding utf-8
    $ fpstore compare site/page.html site/other.html --html
    $ cat notes/two.txt | fpstore compare - draft.txt --json
    """
    from fpstore.calibration.comparison import Comparison

    if a == b == "-":
        raise click.UsageError("only one of A and B can be standard input")
    maker = shingles.fingerprinter(width)
    notices = Notices()
    text_a, text_b = (_read(path, notices, encoding, html) for path in (a, b))
    for name, text in ((a, text_a), (b, text_b)):
        if maker.is_empty(text):
            raise InputError(f"{_named(name)}: {maker.lack(text)}", path=name)
    found = Comparison(maker, text_a, text_b)
    notices.report(Talk(False, True))
    if as_json:
        print_json(_record(found, None if _is_default() else limit))
    else:
        _print(found, a, b, limit)


def _is_default() -> bool:
    source = click.get_current_context().get_parameter_source("limit")
    return source is click.core.ParameterSource.DEFAULT


def _named(path: str) -> str:
    return "standard input" if path == "-" else printable(path)


def _read(path: str, notices: Notices, encoding: str | None, html: str | None) -> str:
    """Return a text: a file that --text would take."""
    from fpstore.hashing.html import main_texts

    text = standard_input(notices, encoding) if path == "-" else _read_file(path, notices, encoding, html)
    return text if html is None else main_texts([text], html)[0]


def _read_file(path: str, notices: Notices, encoding: str | None, html: str | None) -> str:
    from fpstore.hashing.documents import DocumentFiles
    from fpstore.hashing.walk import Walk

    if check_path(path).is_dir():
        raise InputError(f"{printable(path)}: is a folder; name a text file in it", path=path)
    walk = Walk(Path(path), None, True, False, None, encoding)
    (document,) = DocumentFiles(walk, on_note=notices, html=html is not None).documents()  # one that is no text is an error
    return document.text


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
        "differing": [{"feature": text, "weight_a": a, "weight_b": b} for text, a, b in found.differing[:limit]],
    }


def _print(found: Comparison, a: str, b: str, limit: int) -> None:
    digits = found.width // 4
    only = [sum(not (one.weight_b, one.weight_a)[side] for one in found.differing) for side in (0, 1)]
    both = len(found.differing) - sum(only)
    rows = [
        (f"A, {_named(a)}", f"{found.fingerprint_a:0{digits}x}", f"{len(found.features_a):,} features, {only[0]:,} only in A"),
        (f"B, {_named(b)}", f"{found.fingerprint_b:0{digits}x}", f"{len(found.features_b):,} features, {only[1]:,} only in B"),
        ("distance", f"{found.distance}", f"of {found.width} bits"),
        ("shared", f"{found.shared:,}", f"features, of which {both:,} have different weights"),
        ("resemblance", f"{found.jaccard:.3f}", f"{found.weighted_jaccard:.3f} weighted"),
    ]
    print_table("Two texts", ("", "", ""), rows, left=(0, 2))
    if not found.differing:
        return
    shown = [(_shown(one.text), f"{one.weight_a:g}", f"{one.weight_b:g}") for one in found.differing[:limit]]
    print_table("\nFeatures whose weights differ most", COLUMNS, shown)
    if len(found.differing) > limit:
        click.echo(f"and {len(found.differing) - limit:,} more: --limit shows them.")


def _shown(feature: str) -> str:
    """Return a feature on one line, without the rest of a long one."""
    line = one_line(feature)
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"
