"""``fpstore pairs``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from fpstore.cli.options import (
    Talk,
    json_option,
    memory_option,
    output_option,
    pair_radius_option,
    store_argument,
    talk_options,
    threads_option,
)
from fpstore.cli.progress import Bars
from fpstore.cli.verb import Verb

if TYPE_CHECKING:
    from fpstore import Pairs

COLUMNS = ("a", "b", "distance", "id_a", "id_b")
MOST_ROWS = 1 << 20  # that are written together


@click.command(cls=Verb)
@store_argument
@pair_radius_option
@output_option("Where to write: .tsv, .csv, .jsonl or .parquet")
@json_option
@memory_option
@threads_option
@talk_options
def pairs(
    store: str, radius: int | None, output: str, as_json: bool, memory: str | None, threads: int | None, talk: Talk
) -> None:
    """Find all pairs of documents whose fingerprints differ, in at most so many bits.

    Writes a line `a b distance id_a id_b` per pair of ids, the lesser fingerprint first, separated by tabs, without a
    header, with fingerprints in hexadecimal; with --json, an object per line. Documents with the same fingerprint are not
    a pair here: fpstore cluster brings them together, and fpstore export lists them.

    $ fpstore pairs crawl.fps --radius 2 --quiet
    $ fpstore pairs crawl.fps --output pairs.parquet --memory 4GiB --threads 2
    $ fpstore pairs crawl.fps --json --no-progress
    """
    import fpstore
    from fpstore.io import open_writer

    with fpstore.open(store) as opened, Bars(talk.bars) as bars:
        found = 0
        with open_writer(output, format="jsonl" if as_json else None, columns=COLUMNS, width=opened.width) as writer:
            for batch in opened.pairs(radius, memory=memory, threads=threads):
                for data in rows_of_ids(batch):
                    writer.write(data)
                found += len(batch)
                bars("finding pairs", found)


def rows_of_ids(batch: Pairs) -> Iterator[dict[str, Any]]:
    """Yield the columns of some pairs, one row for each pair of ids."""
    lims, ids, place_a, place_b = batch.ids()
    sizes_a, sizes_b = np.diff(lims)[place_a], np.diff(lims)[place_b]
    a, b = batch.a, batch.b
    before = np.concatenate([[0], np.cumsum(sizes_a * sizes_b)])
    for start in range(0, int(before[-1]), MOST_ROWS):
        row = np.arange(start, min(start + MOST_ROWS, int(before[-1])))
        pair = np.searchsorted(before, row, side="right") - 1
        inside = row - before[pair]
        yield {
            "a": a[pair],
            "b": b[pair],
            "distance": batch.distances[pair].astype(np.uint64),
            "id_a": _taken(ids, lims[place_a[pair]] + inside // sizes_b[pair]),
            "id_b": _taken(ids, lims[place_b[pair]] + inside % sizes_b[pair]),
        }


def _taken(ids: Any, places: Any) -> Any:
    return [ids[place] for place in places.tolist()] if isinstance(ids, list) else ids[places]
