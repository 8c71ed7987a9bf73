"""``fpstore delete``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
import numpy as np

from fpstore.cli import queries
from fpstore.cli.options import Talk, json_option, store_argument, talk_options
from fpstore.cli.output import count, print_json, shown
from fpstore.cli.verb import Verb
from fpstore.errors import InputError
from fpstore.io import check_fingerprints, parse_fingerprint
from fpstore.io.check import parse_integer_id
from fpstore.io.source import InputFile, located, storage_errors


@click.command(cls=Verb)
@store_argument
@click.argument("words", metavar="[ID...]", nargs=-1)
@click.option("--fingerprints", is_flag=True, help="The arguments and lines are fingerprints; delete them with all their ids.")
@click.option("--decimal", is_flag=True, help="Fingerprints are decimal, not hexadecimal.")
@click.option("--input", "inputs", multiple=True, metavar="FILE", help="Read one id per line from a file; - is standard input.")
@talk_options
@json_option
def delete(
    store: str, words: Sequence[str], fingerprints: bool, decimal: bool, inputs: Sequence[str], talk: Talk, as_json: bool
) -> None:
    """Remove documents from a store by their ids, or fingerprints with all their ids.

    When this returns, no process finds them any more. The next fpstore merge gives their space back. To find integer
    ids, the id map is read once per call, so give many at a time, unless the store was built with --index-ids. Ids
    that are not stored are ignored. With --input, each line is an id, unchanged; an id that contains a line feed must
    be given as an argument.

    $ fpstore delete crawl.fps 17 4711
    $ fpstore delete crawl.fps --input gone.txt --quiet
    $ fpstore delete crawl.fps --fingerprints 9d3a5b1c00f7e642 --json
    $ fpstore delete crawl.fps --fingerprints --decimal 42 --no-progress
    """
    import fpstore

    if not words and not inputs:
        raise click.UsageError("give ids, or --input FILE", click.get_current_context())
    if decimal and not fingerprints:
        raise click.UsageError("--decimal needs --fingerprints", click.get_current_context())
    lines = [line for path in inputs for line in _lines(path)]
    values: Any = queries.parse_words(words, decimal) if fingerprints else None
    if fingerprints:
        values = np.concatenate([values, check_fingerprints([line.read(parse_fingerprint, decimal) for line in lines])])
    with fpstore.open(store) as known:
        strings = known.snapshot().totals.id_kind == "string"
    if not fingerprints:
        values = [*words, *(line.text for line in lines)] if strings else _integers(words, lines)
    with fpstore.open(store, "r+") as opened:
        removed = opened.delete(fingerprints=values) if fingerprints else opened.delete(ids=values)
        holds = {"fingerprints": len(opened), "ids": len(opened.ids)}
    if as_json:
        print_json({"removed": removed, **holds})
    elif not talk.quiet:
        left = f"{count(holds['fingerprints'], 'fingerprint')} with {count(holds['ids'], 'id')} left"
        click.echo(f"{shown(store)}: {count(removed, 'id')} removed, {left}")


class _Line(NamedTuple):
    """A non-empty line of an input, and its place."""

    text: str
    name: str
    number: int

    def read(self, parse: Callable[[str, bool], int], decimal: bool) -> int:
        """Return the value that a function parses from it; its InputError names the line."""
        with located(self.name, self.number):
            return parse(self.text.strip(), decimal)


def _integers(words: Sequence[str], lines: Sequence[_Line]) -> list[int]:
    """Return integer ids given as arguments and as lines."""
    numbers = [parse_integer_id(word.strip(), plain=False) for word in words]
    return numbers + [line.read(parse_integer_id, False) for line in lines]


def _lines(path: str) -> list[_Line]:
    """Return the lines of a file. Only a line feed ends one, since an id may contain other line breaks of Unicode."""
    file = InputFile(path)
    with file.open() as stream, storage_errors(file.name):
        data = stream.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name}: not UTF-8 text ({error.reason})", path=file.name) from error
    lines = (_Line(line.removesuffix("\r"), file.name, number) for number, line in enumerate(text.split("\n"), 1))
    return [line for line in lines if line.text]
