"""``fpstore export``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from fpstore.base.width import Width
from fpstore.cli.options import (
    Talk,
    json_option,
    null_option,
    output_option,
    rename_option,
    store_argument,
    talk_options,
    usage_errors,
)
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb
from fpstore.io import FORMATS, open_writer
from fpstore.io.reader import format_of

if TYPE_CHECKING:
    from fpstore import Store


@click.command(cls=Verb)
@store_argument
@output_option("Where to write: .tsv, .csv, .txt, .jsonl, .parquet, .npy, .u32 or .u64")
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Format of the output; by default from its extension.")
@json_option
@rename_option
@null_option("Lines")
@talk_options
def export(
    store: str, output: str, format_name: str | None, as_json: bool, names: dict[str, str], null: bool, talk: Talk
) -> None:
    """Write all fingerprints and ids of a store.

    Writes one row `fingerprint id` per id, which fpstore build can read, in ascending order of fingerprint. --json is
    --format jsonl. The formats npy, u32 and u64 hold each fingerprint once, without ids. An id that contains a tab or a line
    break is refused in TSV and txt: write such ids as CSV, JSON lines or Parquet.

    $ fpstore export crawl.fps --output crawl-copy.tsv
    $ fpstore export crawl.fps --json | head -n 3
    $ fpstore export crawl.fps --format csv --quiet
    $ fpstore export crawl.fps --null --output crawl-copy.tsv
    $ fpstore export crawl.fps --rename fingerprint=hash --rename id=url --output crawl-copy.parquet
    $ fpstore export crawl.fps -o crawl-copy.npy --no-progress
    """
    import fpstore

    if as_json and format_name not in (None, "jsonl"):
        raise click.UsageError(f"--json does not go with --format {format_name}", click.get_current_context())
    if as_json:
        format_name = "jsonl"
    plain = format_of(output, format_name) in ("npy", "u32", "u64")
    columns = ["fingerprint"] if plain else ["fingerprint", "id"]
    with fpstore.open(store) as opened, Bars(talk.bars) as bars:
        total, done = len(opened) if plain else len(opened.ids), 0
        with usage_errors():
            opening = open_writer(output, format=format_name, columns=columns, width=opened.width, names=names, null=null)
        with opening as writer:
            for data in _fingerprints(opened) if plain else _rows(opened):
                writer.write(data)
                done += len(data["fingerprint"])
                bars("exporting", done, total)


def _fingerprints(store: Store) -> Iterator[dict[str, Any]]:
    """Yield each fingerprint once."""
    width = Width(store.width)
    return ({"fingerprint": width.outside(rows)} for rows in store.snapshot().fingerprints())


def _rows(store: Store) -> Iterator[dict[str, Any]]:
    """Yield a row per id."""
    for fingerprints, lims, ids in store.items():
        yield {"fingerprint": np.repeat(fingerprints, np.diff(lims), axis=0), "id": ids}
