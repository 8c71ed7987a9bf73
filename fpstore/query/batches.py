"""Batches of queries: kernel calls for threads, scans, and columns of matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import differs, lims_of, lists_of
from fpstore.base.width import Distances, order_of, words_of
from fpstore.design.families import Design

T = TypeVar("T")
MatchColumns = tuple[npt.NDArray[np.int64], Words, Distances]  # lims, fingerprints, distances
More = npt.NDArray[np.bool_]  # of each query, whether it has more matches
Nearest = tuple[MatchColumns, More]

# queries of one kernel call, which share the blocks that it opens: of a store of up to 2^22
PROBE_QUERIES = 1 << 18
FLIPPED_QUERIES = 1 << 20  # of a large one, where a query has several look-ups in a table
UNFLIPPED_QUERIES = 1 << 22  # and where it has one; of 64 bits
# by which the fingerprints of a store are divided for that: about six look-ups share a block
SHARE_OF_STORE = 16
# queries of a call that asks column tables; with more, each query takes longer
COLUMN_QUERIES = 1 << 17
SPLIT_QUERIES = 1 << 8  # fewer are not worth another thread
SCAN_BLOCKS = 1 << 13  # blocks and queries of one kernel call of a scan
SCAN_QUERIES = 1 << 8


def queries_at_once(design: Design, fingerprint_count: int = 0) -> int:
    """Return the most queries of one kernel call, which share the blocks of the store.

    A call holds all its matches. Without a count it is as for a small store: where matches are
    bounded.
    """
    if design.ring:
        return COLUMN_QUERIES
    flipped = any(table.flips > 0 for table in design.tables)
    most = FLIPPED_QUERIES if flipped else UNFLIPPED_QUERIES // design.width.words
    return max(min(fingerprint_count // SHARE_OF_STORE, most), PROBE_QUERIES)


def run_batch(
    work: Callable[..., T], queries: Words, threads: int, design: Design, at_once: int
) -> list[T]:
    """Run ``work(part, threads=..., stop=...)`` on each part of a batch, in order of the parts.

    A part has as many queries as it may, at most ``at_once``: they share the blocks that a kernel
    call opens. Each thread has parts of its own if there are as many, and the threads share each
    part if not.
    """
    calls = -(-len(queries) // at_once)
    if calls >= threads or design.ring:
        return run(partial(work, threads=1), cut(queries, threads, at_once), threads)
    return run(partial(work, threads=threads), cut(queries, 1, at_once), 1)


def cut(queries: Words, threads: int, at_once: int) -> list[Words]:
    """Cut a batch evenly for the threads, into as few parts of at most ``at_once`` as possible."""
    count = max(-(-len(queries) // at_once), min(threads, len(queries) // SPLIT_QUERIES), 1)
    count = -(-count // threads) * threads if count > 1 else 1
    return [part for part in np.array_split(queries, count) if len(part)] or [queries]


def joined(columns: list[MatchColumns]) -> MatchColumns:
    """Concatenate the columns of successive parts, at least one."""
    if len(columns) == 1:
        return columns[0]
    return (
        lims_of(np.concatenate([np.diff(c[0]) for c in columns])),
        np.concatenate([c[1] for c in columns]),
        np.concatenate([c[2] for c in columns]),
    )


def no_matches(queries: Words) -> MatchColumns:
    """Return the columns of no matches of these queries."""
    return (
        np.zeros(len(queries) + 1, np.int64),
        queries[:0],
        np.empty(0, np.uint8 if words_of(queries) < 4 else np.uint16),
    )


def run(work: Callable[..., T], parts: list[Any], threads: int) -> list[T]:
    """Run ``work(part, stop=...)`` on each part, in threads if there is enough to do.

    Return the results in order.

    This thread receives a Ctrl-C while the others work, and stops them. If it works itself, the
    kernel checks for signals.
    """
    if threads == 1 or len(parts) < 2:
        return [work(part, stop=None) for part in parts]
    from fpstore.base.pools import Pool  # which a single probe does not need

    stop = _kernel.Stop()
    with Pool(min(threads, len(parts))) as pool:
        try:
            return [job.result() for job in [pool.submit(work, part, stop=stop) for part in parts]]
        except BaseException:
            stop.set()
            raise


def scanned(kernel: _kernel.AnyTable, queries: Words, radius: int, threads: int) -> MatchColumns:
    """Compare each query with every entry of the identity table."""
    parts = [
        (q, b, min(b + SCAN_BLOCKS, kernel.block_count))
        for q in range(0, len(queries), SCAN_QUERIES)
        for b in range(0, kernel.block_count, SCAN_BLOCKS)
    ]

    def work(part: tuple[int, int, int], stop: _kernel.Stop | None) -> MatchColumns:
        first, start, end = part
        return kernel.scan(queries[first : first + SCAN_QUERIES], radius, start, end, stop=stop)

    if not parts:
        return no_matches(queries)
    columns = run(work, parts, threads)
    return collected(
        [(np.arange(len(c[0]) - 1) + part[0], c) for part, c in zip(parts, columns, strict=True)],
        len(queries),
    )


def collected(
    parts: Sequence[tuple[npt.NDArray[np.int64], MatchColumns]], query_count: int
) -> MatchColumns:
    """Put together columns, at least one, of some queries each, given with the numbers of these queries."""
    number = np.concatenate([np.repeat(numbers, np.diff(c[0])) for numbers, c in parts])
    found = np.concatenate([c[1] for _, c in parts])
    distances = np.concatenate([c[2] for _, c in parts])
    order = order_of(number, distances, found)
    return lims_of(np.bincount(number, minlength=query_count)), found[order], distances[order]


def united(columns: Sequence[MatchColumns]) -> MatchColumns:
    """Put together what several sets have for the same queries.

    A match that two of them have is one.
    """
    query_count, some = len(columns[0][0]) - 1, [c for c in columns if len(c[1])]
    if len(some) < 2:
        return some[0] if some else columns[0]
    lims, found, distances = collected([(np.arange(query_count), c) for c in some], query_count)
    first = differs(found)
    first[lims[:-1][np.diff(lims) > 0]] = True  # also if the query before has the same match
    if first.all():
        return lims, found, distances
    return (
        lims_of(np.bincount(lists_of(lims)[first], minlength=query_count)),
        found[first],
        distances[first],
    )


# The nearest matches only


def shortened(columns: MatchColumns, limit: int) -> Nearest:
    """Keep the first ``limit`` matches of each query, which are the nearest."""
    lims, fingerprints, distances = columns
    counts = np.diff(lims)
    more: More = counts > limit
    if not more.any():
        return columns, more
    kept = np.arange(len(fingerprints)) - np.repeat(lims[:-1], counts) < limit
    return (lims_of(np.minimum(counts, limit)), fingerprints[kept], distances[kept]), more
