"""``fpstore report``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fpstore.base.arguments import check_path, printable
from fpstore.cli.options import (
    Talk,
    is_given,
    memory_option,
    output_option,
    pair_radius_option,
    store_argument,
    talk_options,
    threads_option,
)
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb
from fpstore.errors import StoreExistsError


@click.command(cls=Verb)
@store_argument
@output_option("Where to write the page", force=True)
@click.option("--force", is_flag=True, help="Replace the file of --output, if it exists.")
@pair_radius_option
@click.option(
    "--no-pairs",
    is_flag=True,
    help="Leave out pairs, clusters and families, which read all fingerprints, into memory or a temporary file.",
)
@click.option(
    "--files-in",
    metavar="FOLDER",
    help="Folder in which the ids are paths of texts or pictures, to show their beginnings or thumbnails.",
)
@memory_option
@threads_option
@talk_options
def report(
    store: str,
    output: str,
    force: bool,
    radius: int | None,
    no_pairs: bool,
    files_in: str | None,
    memory: str | None,
    threads: int | None,
    talk: Talk,
) -> None:
    """Write a page in HTML about a store.

    The page shows clusters and families of near-duplicates, pairs, sizes, skew and codes. It is one file that needs no network
    and no script. The same store makes the same page. If ids are paths, as `fpstore build --text` and `--image` make them, the
    page shows the texts and pictures of files that have not changed since. It finds the files in the current folder, or in the
    folder --files-in.

    $ fpstore report crawl.fps --output report.html --radius 2 --memory 2GiB --quiet
    $ fpstore report notes.fps --output report.html --force --files-in . --threads 1 --no-progress
    $ fpstore report crawl.fps --no-pairs > report.html
    """
    import fpstore
    from fpstore.base.resources import Resources, parse_memory, parse_threads
    from fpstore.care.stats import describe
    from fpstore.design.families import check_radius
    from fpstore.io.sink import Sink
    from fpstore.jobs.report import figures_of
    from fpstore.jobs.report_files import Files
    from fpstore.jobs.report_page import page_of

    if not is_given("output") and sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("a report is a page in HTML, which a terminal does not show: name a file, as --output report.html")
    if no_pairs and radius is not None:
        raise click.UsageError("--radius is for pairs: leave out --no-pairs")
    if output != "-" and Path(output).is_file() and not force:
        raise StoreExistsError(f"{printable(output)} exists: --force replaces it", path=output)
    with fpstore.open(store) as opened, Bars(talk.bars) as bars:
        snapshot = opened.snapshot()
        figures = figures_of(
            snapshot,
            describe(snapshot, opened.stats()["bytes"]["delta"]),
            None if no_pairs else opened.radius if radius is None else check_radius(radius, opened.width),
            Files(None if files_in is None else check_path(files_in, "--files-in"), opened.fingerprinter),
            Resources(parse_memory(memory), parse_threads(threads), bars),
        )
    if figures.missing:
        folder = check_path("." if files_in is None else files_in, "--files-in")
        talk.note(f"{figures.missing}: paths are read from {folder}; --files-in names another folder")
    with Sink(output) as sink:
        sink.write(page_of(figures).encode())
