"""The verb ``review``."""

from __future__ import annotations

from pathlib import Path, PurePath

import click

from fpstore.base.arguments import is_uri, printable
from fpstore.cli import options
from fpstore.cli.options import argument, check_output_path, option, whole_number
from fpstore.cli.output import write_page
from fpstore.cli.verb import Arguments, fail, output_guess, verb
from fpstore.errors import plural
from fpstore.io.files import inner_name
from fpstore.jobs.picture_review import picture_review_page
from fpstore.jobs.review import MAX_PAIRS, USUAL_PAIRS, review_page


@verb(
    argument("removed", "REMOVED"),
    argument("output", "[OUTPUT]", required=False, callback=check_output_path),
    option(
        "--pairs N",
        "The most pairs on the page, which are the most doubtful ones.",
        whole_number(1, MAX_PAIRS),
        USUAL_PAIRS,
    ),
    option(
        "--image",
        "REMOVED is a list of pictures, from fpstore dedup --image --removed REMOVED.",
    ),
    option("--force", "Replace OUTPUT, if it exists.", into="overwrite"),
    *options.TALK,
    guesses=output_guess("the page is the second argument"),
)
def review(args: Arguments) -> None:
    """Write a page in HTML of rows that dedup removed.

    REMOVED is a list with texts, from fpstore dedup --removed REMOVED --excerpts-of 400. The page
    shows each row that went beside the row that stays for it, with the words that differ. The most
    doubtful come first: those of which the row that stays has the least share. The page has boxes
    to choose rules and sources, or files where the list has no sources. It is one file that needs
    no network and no script. OUTPUT is by default REMOVED with the extension .html.

    With --image, the page shows groups of pictures side by side, with their sizes, dates and
    distances. It has boxes to choose which pictures stay, and saves the choices as a list, which
    fpstore dedup --image --choices FILE applies. --pairs counts pictures that go, and those at the
    largest distances come first.

    $ fpstore review removed.parquet
    $ fpstore review copies.tsv --image
    $ fpstore review removed.parquet doubtful.html --pairs 100 --force
    """
    if Path(args.removed).is_dir():
        fail(f"{printable(args.removed)}: is a folder: name a list of removed rows")
    output = args.output or _usual_output(args.removed)
    if output == "-" or is_uri(output) or Path(output).suffix.lower() not in (".html", ".htm"):
        fail(f"{printable(output)}: the page is a file on a disk: name one as review.html")
    args.check_new(output)
    with args.bars() as bars:
        make_page = picture_review_page if args.image else review_page
        page, count = make_page(args.removed, args.pairs, bars)
    write_page(output, page)
    if not args.quiet:
        noun = "removed picture" if args.image else "pair"
        click.echo(args.with_time(output, plural(count, noun)))


def _usual_output(removed: str) -> str:
    """Return the name of a list with the extension .html, in the current folder for a URI."""
    path = PurePath(removed.rpartition("/")[2] if is_uri(removed) else removed)
    return str(path.with_name(inner_name(path)).with_suffix(".html"))
