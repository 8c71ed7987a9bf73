"""Many queries in parts, in bounded memory however many matches there are."""

from __future__ import annotations

from collections.abc import Iterator

from fpstore.base.aliases import Words
from fpstore.query.batches import MatchColumns, queries_at_once
from fpstore.query.snapshot import Snapshot

FIRST_BATCH = 1 << 12


def probed_in_parts(
    snapshot: Snapshot, queries: Words, radius: int, threads: int, matches: int
) -> Iterator[tuple[Words, MatchColumns]]:
    """Yield successive queries and their columns of matches; see :meth:`fpstore.Store.probe_batches`."""
    start, size = 0, FIRST_BATCH
    while start < len(queries):
        part = queries[start : start + size]
        columns = snapshot.probe_columns(part, radius, threads, max(matches // threads, 1) if len(part) > 1 else None)
        # The tables keep to the bound; the matches of the delta are known only now.
        if columns is None or (len(part) > 1 and len(columns[1]) > matches):
            size = max(len(part) // 2, 1)
            continue
        yield part, columns
        start += len(part)
        if len(columns[1]) < matches // 4:
            size = min(size * 2, queries_at_once(snapshot.generation.design) * threads)
