"""The sources of a corpus on the command line: tables, and a note of losses."""

from __future__ import annotations

from typing import Any

from fpstore.base.arguments import printable
from fpstore.cli.output import print_table
from fpstore.cli.verb import Arguments
from fpstore.errors import plural
from fpstore.jobs.sources import LEAST_ROWS, NOTED_SHARE, SOURCE_COLUMNS, Sources, percent


def note_losses(args: Arguments, sources: Sources) -> None:
    """Note sources that lost nearly all of their rows, unless a bound allows it."""
    lost = sources.above(NOTED_SHARE)
    if args.most_removed is None and len(lost):
        args.note(
            f"{plural(len(lost), 'source')} lost more than {NOTED_SHARE} of the rows: "
            f"{lost.describe()}; --most-removed {NOTED_SHARE} stops before OUTPUT is written"
        )


def print_sources(sources: dict[str, Any]) -> None:
    """Print the sources of a summary as tables."""
    titles = {
        "largest": f"\nSources by rows, of {sources['count']:,}",
        "most_removed": f"\nSources by the share removed, of {LEAST_ROWS} rows or more",
    }
    for name, title in titles.items():
        rows = [
            (
                "null" if record["source"] is None else printable(record["source"]),
                f"{record['rows']:,}",
                f"{record['removed']:,}",
                percent(record["share"]),
            )
            for record in sources[name]
        ]
        if rows:
            print_table(title, SOURCE_COLUMNS, rows)
