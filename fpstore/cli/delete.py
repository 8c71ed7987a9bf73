"""``fpstore delete``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import click
import numpy as np

from fpstore.base.width import Width
from fpstore.cli import queries
from fpstore.cli.given_ids import Line, given_ids, lines_of
from fpstore.cli.options import Talk, json_option, refuse, store_argument, talk_options
from fpstore.cli.output import print_json, shown
from fpstore.cli.verb import Verb
from fpstore.errors import InputError, counted
from fpstore.io import Chunk, open_reader, parse_fingerprint


@click.command(cls=Verb)
@store_argument
@click.argument("words", metavar="[ID...]", nargs=-1)
@click.option("--fingerprints", is_flag=True, help="The arguments and lines are fingerprints; delete them with all their ids.")
@click.option(
    "--pairs",
    is_flag=True,
    help="Delete pairs alone: arguments are a fingerprint and its id by turns; rows of --input have both, as for fpstore insert.",
)
@click.option("--decimal", is_flag=True, help="Fingerprints are decimal, not hexadecimal.")
@click.option("--input", "inputs", multiple=True, metavar="FILE", help="Read one id per line from a file; - is standard input.")
@click.option("-0", "--null", is_flag=True, help="Lines of --input end with a zero byte, so that ids may hold line feeds.")
@talk_options
@json_option
def delete(
    store: str,
    words: Sequence[str],
    fingerprints: bool,
    pairs: bool,
    decimal: bool,
    inputs: Sequence[str],
    null: bool,
    talk: Talk,
    as_json: bool,
) -> None:
    """Remove documents by ids, fingerprints or pairs.

    A fingerprint is removed with all its ids, a pair is a fingerprint and one of its ids.

    When this returns, no process finds them any more. The next fpstore merge gives their space back. To find integer
    ids, the id map is read once per call, so give many at a time, unless the store was built with --index-ids. The
    summary says how many ids, fingerprints or pairs were not stored ("missing" with --json). With --input, each line
    is an id, unchanged; an id that contains a line feed must be given as an argument, or with --null.

    $ fpstore delete crawl.fps 17 4711
    $ fpstore delete crawl.fps --input gone.txt --quiet
    $ find notes -type f -print0 | fpstore delete notes.fps --input - --null --quiet
    $ fpstore delete crawl.fps --fingerprints 9d3a5b1c00f7e642 --json
    $ fpstore delete crawl.fps --fingerprints --decimal 42 --no-progress
    $ fpstore delete crawl.fps --pairs 9d3a5b1c00f7e642 17
    $ fpstore delete crawl.fps --pairs --input new.tsv
    """
    import fpstore

    if not words and not inputs:
        raise click.UsageError("give ids, or --input FILE", _context())
    if pairs and (fingerprints or len(words) % 2):
        raise click.UsageError("--pairs takes a fingerprint and an id for each pair, without --fingerprints", _context())
    if decimal and not (fingerprints or pairs):
        raise click.UsageError("--decimal needs --fingerprints or --pairs", _context())
    if not inputs:
        refuse({"null"}, "needs --input")
    lines = [] if pairs else lines_of(inputs, null)
    with fpstore.open(store) as known:
        strings, width = known.snapshot().totals.id_kind == "string", known.width
    what: dict[str, Any]
    if pairs:
        reading: Any = {"decimal": decimal, "null": null, "id_type": "str" if strings else "int"}
        rows = open_reader(inputs, width=Width(width, stored=True), **reading) if inputs else ()
        what = _joined([*_pairs_of(words, decimal, width, strings), *rows])
    elif fingerprints:
        what = {"fingerprints": _given(words, lines, decimal, width)}
    else:
        what = {"ids": given_ids(words, lines, strings)}
    with fpstore.open(store, "r+") as opened:
        removed, missing = opened.delete(**what)
        holds = {"fingerprints": len(opened), "ids": len(opened.ids)}
        queries.merge_notice(opened, store, talk)
    if as_json:
        print_json({"removed": removed, "missing": missing, **holds})
    elif not talk.quiet:
        left = f"{counted(holds['fingerprints'], 'fingerprint')} with {counted(holds['ids'], 'id')} left"
        given = counted(missing, "pair" if pairs else "fingerprint" if fingerprints else "id")
        absent = f"; {given} {'was' if missing == 1 else 'were'} not stored" if missing else ""
        click.echo(f"{shown(store)}: {counted(removed, 'id')} removed, {left}{absent}")


def _context() -> click.Context:
    return click.get_current_context()


def _pairs_of(words: Sequence[str], decimal: bool, bits: int, strings: bool) -> list[Chunk]:
    """Return the pairs given as arguments."""
    ids: Any = given_ids(words[1::2], [], strings)
    fingerprints = queries.parse_words(words[::2], decimal, bits)
    return [Chunk(fingerprints, ids if strings else np.array(ids, np.uint64))] if words else []


def _joined(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return the fingerprints and the ids of all pairs."""
    ids = [chunk.ids for chunk in chunks if chunk.ids is not None]
    if len(ids) < len(chunks):
        raise InputError("--pairs needs an id in each row")
    if not chunks:
        return {"ids": []}
    joined: Any = list(chain(*ids)) if isinstance(ids[0], list) else np.concatenate(ids)
    return {"fingerprints": np.concatenate([chunk.fingerprints for chunk in chunks]), "ids": joined}


def _given(words: Sequence[str], lines: Sequence[Line], decimal: bool, bits: int) -> Any:
    """Return the fingerprints given as arguments and as lines."""
    width, parse = Width(bits), partial(parse_fingerprint, width=Width(bits, stored=True))
    read = width.outside(width.rows(line.read(parse, decimal) for line in lines))
    return np.concatenate([queries.parse_words(words, decimal, bits), read])
