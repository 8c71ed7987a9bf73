"""``fpstore scan``."""

from __future__ import annotations

import click

from fpstore.cli import queries as asking
from fpstore.cli.verb import Search


@click.command(cls=Search, guesses=asking.LIMIT_GUESSES)
@asking.request_options(required=True, help="Largest distance of a match, up to the store's width.")
def scan(request: asking.Request) -> int:
    r"""Find matches within any radius, without look-ups.

    The first table is read once for many queries. The time grows with the number of stored fingerprints and the number
    of queries. fpstore probe has the same output and exit codes. With --limit, memory is bounded however many
    matches there are.

    $ fpstore scan crawl.fps 9d3a5b1c00f7e642 --radius 12
    $ fpstore scan crawl.fps --decimal 42 -r 20 --json --threads 2
    $ fpstore scan crawl.fps 0x2a -r 8 --quiet
    $ fpstore scan crawl.fps --decimal --signed -r 8 -- -1
    $ fpstore scan crawl.fps --input queries.npy -r 8 --output matches.tsv --no-progress
    $ cut -f 1 crawl.tsv | fpstore scan crawl.fps --input - --format txt -r 8
    $ fpstore scan crawl.fps --input crawl.jsonl --fingerprint-field hash -r 8
    $ fpstore scan crawl.fps --input queries.npy -r 30 --limit 5
    $ fpstore scan crawl.fps --input crawl.jsonl --fingerprint-field hash --id-field url --id-type str -r 8 --json
    $ fpstore scan crawl.fps --input new.tsv -r 8 --with-queries
    $ fpstore scan crawl.fps --input new.tsv -r 8 --rename query_id=url --rename id=near --output matches.parquet
    $ tr "\n" "\0" < new.tsv | fpstore scan crawl.fps --input - -r 8 --null
    $ fpstore scan notes.fps --text notes --suffix .txt -r 16
    $ fpstore scan notes.fps --text draft.txt --encoding utf-8 -r 16
    $ fpstore scan site.fps --text site --html -r 16
    $ fpstore scan notes.fps --input corpus.parquet --text-field text --id-field id -r 16
    $ fpstore scan vectors.fps --vector embeddings.parquet --vector-field embedding -r 8
    $ fpstore scan photos.fps --image new.png --radius 12
    """
    import fpstore

    with fpstore.open(request.store) as opened:
        radius = request.radius
        assert radius is not None
        return asking.run(
            opened, request, lambda part: opened.scan(part, radius, request.threads, limit=request.most), scanning=True
        )
