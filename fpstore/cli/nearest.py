"""``fpstore nearest``."""

from __future__ import annotations

import click

from fpstore.cli import queries as asking
from fpstore.cli import types
from fpstore.cli.verb import Search

count_option = click.option(
    "-k", "--count", "most", type=types.COUNT, default=1, show_default=True, metavar="N", help="How many fingerprints per query."
)
# What users of other tools call it.
COUNT_GUESSES = dict.fromkeys(("-n", "--n", "--k", "--number", "--top", "--limit"), "-k N, or --count N, says how many")


@click.command(cls=Search, guesses=COUNT_GUESSES)
@asking.request_options(count_option, "--max-radius", help="Largest distance of a match, up to the width; by default any.")
def nearest(request: asking.Request) -> int:
    r"""Find the nearest stored fingerprints.

    The nearest fingerprints are found at any distance from a query FP. -k says how many per query, by default one. Of equally
    distant fingerprints the smallest come first. Small radii are looked up. A query that has too few matches there is
    answered by a scan. fpstore probe has the same output and exit codes.

    $ fpstore nearest crawl.fps 9d3a5b1c00f7e642
    $ fpstore nearest crawl.fps 9d3a5b1c00f7e642 0x2a --count 10 --max-radius 16
    $ fpstore nearest crawl.fps --decimal 42 -k 3 --json
    $ fpstore nearest crawl.fps 0x2a --max-radius 8 --quiet
    $ fpstore nearest crawl.fps --decimal --signed -- -1
    $ fpstore nearest crawl.fps --input queries.npy -k 5 --output matches.parquet --threads 2 --no-progress
    $ cut -f 1 crawl.tsv | fpstore nearest crawl.fps --input - --format txt
    $ fpstore nearest crawl.fps --input crawl.jsonl --fingerprint-field hash --output matches.jsonl
    $ fpstore nearest crawl.fps --input crawl.jsonl --fingerprint-field hash --id-field url --id-type str --json
    $ fpstore nearest crawl.fps --input new.tsv --with-queries
    $ fpstore nearest crawl.fps --input new.tsv --rename query_id=url --rename id=near --output matches.parquet
    $ tr "\n" "\0" < new.tsv | fpstore nearest crawl.fps --input - --null
    $ fpstore nearest notes.fps --text draft.txt
    $ fpstore nearest notes.fps --text notes --suffix .txt -k 2
    $ fpstore nearest notes.fps --text draft.txt --encoding utf-8 -k 2
    $ fpstore nearest site.fps --text site --html -k 2
    $ fpstore nearest notes.fps --input corpus.parquet --text-field text --id-field id -k 2
    $ fpstore nearest vectors.fps --vector embeddings.parquet --vector-field embedding -k 2
    $ fpstore nearest photos.fps --image new.png -k 3
    """
    import fpstore

    count = request.most
    assert count is not None
    with fpstore.open(request.store) as opened:
        return asking.run(
            opened,
            request,
            lambda part: opened.nearest(part, count, max_radius=request.radius, threads=request.threads),
            scanning=True,
        )
