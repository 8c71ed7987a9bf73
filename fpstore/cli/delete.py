"""``fpstore delete``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from fpstore.cli import queries
from fpstore.cli.options import Talk, json_option, store_argument, talk_options
from fpstore.cli.output import count, print_json, shown
from fpstore.cli.verb import Verb
from fpstore.errors import InputError, StorageError
from fpstore.io import check_fingerprints
from fpstore.io.check import parse_integer_id


@click.command(cls=Verb)
@store_argument
@click.argument("words", metavar="[ID...]", nargs=-1)
@click.option("--fingerprints", is_flag=True, help="The words and lines are fingerprints, which go with all their ids.")
@click.option("--decimal", is_flag=True, help="Fingerprints are decimal, not hexadecimal.")
@click.option("--input", "inputs", multiple=True, metavar="FILE", help="Read one a line from a file, - for standard input.")
@talk_options
@json_option
def delete(
    store: str, words: Sequence[str], fingerprints: bool, decimal: bool, inputs: Sequence[str], talk: Talk, as_json: bool
) -> None:
    """Remove documents from a store by their ids, or fingerprints with all their ids.

    They are gone from all answers, in every process, when this returns; the space comes back with the next
    fpstore merge. Ids are found by reading the id map once, however many are given: give many at a time.
    What is not stored is passed over.

    $ fpstore delete crawl.fps 17 4711
    $ fpstore delete crawl.fps --input gone.txt --quiet
    $ fpstore delete crawl.fps --fingerprints 9d3a5b1c00f7e642 --json
    $ fpstore delete crawl.fps --fingerprints --decimal 42 --no-progress
    """
    import fpstore

    if not words and not inputs:
        raise click.UsageError("give ids, or --input FILE", click.get_current_context())
    with fpstore.open(store, "r+") as opened:
        given = [*words, *(line for path in inputs for line in _lines(path))]
        if fingerprints:
            removed = opened.delete(fingerprints=check_fingerprints([queries.parse_word(word, decimal) for word in given]))
        elif decimal:
            raise click.UsageError("--decimal needs --fingerprints", click.get_current_context())
        else:
            removed = opened.delete(ids=_ids(given, opened.stats()["id_kind"]))
        holds = {"fingerprints": len(opened), "ids": len(opened.ids)}
    if as_json:
        print_json({"removed": removed, **holds})
    elif not talk.quiet:
        left = f"{count(holds['fingerprints'], 'fingerprint')} with {count(holds['ids'], 'id')} left"
        click.echo(f"{shown(store)}: {count(removed, 'id')} removed, {left}")


def _lines(path: str) -> Iterator[str]:
    try:
        if path == "-":
            if sys.stdin is None:
                raise StorageError("standard input is closed")
            text = sys.stdin.buffer.read().decode("utf-8")
        else:
            text = Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason})", path=path) from error
    yield from (line for line in text.splitlines() if line)


def _ids(words: list[str], kind: str) -> Any:
    return words if kind == "string" else [parse_integer_id(word.strip(), plain=False) for word in words]
