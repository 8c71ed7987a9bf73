"""``fpstore probe``."""

from __future__ import annotations

import click

from fpstore.cli import queries as asking
from fpstore.cli.verb import Search


@click.command(cls=Search, guesses=asking.LIMIT_GUESSES)
@asking.request_options(help="Largest distance of a match, up to the store's width; by default the store's radius.")
def probe(request: asking.Request) -> int:
    r"""Find all stored fingerprints within the radius.

    Writes a line `query fingerprint distance id` per id of each match. Cells are separated by tabs, fingerprints are
    hexadecimal, and there is no header. With --json, writes an object per query: {"query": ..., "matches":
    [{"fingerprint": ..., "distance": ..., "ids": [...]}]}. With --text, the object begins with "document", the path. With
    --input, it begins with "row", the number of the query from 0 on, and "query_id" if the input has ids. Parquet has these
    fields as columns; lines have them with --with-queries. With --text-field, the queries are the texts in a column of
    --input; a row without words has no answer.

    Lines that come through a pipe, a socket or a terminal are answered at once. So a program can hold this command open,
    write a line and read a line: with --json, each query has an object, even without a match.

    A radius above the store's is answered by a scan, with a note of what to build instead. With --limit, objects have
    "more": whether there are more matches. The exit code is 0 if a query has a match, 1 if none has, and 2 after an error.

    $ fpstore probe crawl.fps 9d3a5b1c00f7e642 0x2a --radius 2
    $ fpstore probe crawl.fps --decimal 42 --json
    $ fpstore probe crawl.fps 0x2a --quiet
    $ fpstore probe crawl.fps --decimal --signed -- -1
    $ fpstore probe crawl.fps --input queries.npy --output matches.parquet --threads 2 --no-progress
    $ cut -f 1 crawl.tsv | fpstore probe crawl.fps --input - --format txt
    $ fpstore probe crawl.fps --input crawl.jsonl --fingerprint-field hash --output matches.jsonl
    $ fpstore probe crawl.fps --input queries.npy --limit 10 --json
    $ fpstore probe crawl.fps --input crawl.jsonl --fingerprint-field hash --id-field url --id-type str --json
    $ fpstore probe crawl.fps --input new.tsv --with-queries
    $ fpstore probe crawl.fps --input new.tsv --rename query_id=url --rename id=near --output matches.parquet
    $ tr "\n" "\0" < new.tsv | fpstore probe crawl.fps --input - --null
    $ fpstore probe notes.fps --text draft.txt
    $ fpstore probe notes.fps --text notes --suffix .txt --json
    $ fpstore probe notes.fps --text draft.txt --encoding utf-8
    $ fpstore probe site.fps --text site --html
    $ fpstore probe notes.fps --input corpus.parquet --text-field text --id-field id
    $ fpstore probe vectors.fps --vector embeddings.npy --with-queries
    $ fpstore probe vectors.fps --vector embeddings.parquet --vector-field embedding --id-field name --json
    $ fpstore probe photos.fps --image new.png
    """
    import fpstore

    with fpstore.open(request.store) as opened:
        radius = opened.radius if request.radius is None else request.radius
        scanning = asking.scan_notice(opened, request.radius, request.talk)
        ask = opened.scan if scanning else opened.probe_many
        return asking.run(opened, request, lambda part: ask(part, radius, request.threads, limit=request.most), scanning)
