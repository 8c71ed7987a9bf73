"""Batches of queries: kernel calls for threads, scans, and columns of matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import is_run_start, list_lims, list_numbers
from fpstore.base.width import Distances, row_order, row_words
from fpstore.design.families import Design

T = TypeVar("T")
MatchColumns = tuple[npt.NDArray[np.int64], Words, Distances]  # lims, fingerprints, distances
More = npt.NDArray[np.bool_]  # whether each query has more matches
Nearest = tuple[MatchColumns, More]

# The most queries of one kernel call, which share the blocks that it opens:
PROBE_QUERIES = 1 << 18  # in a store of up to 2^22 fingerprints
FLIPPED_QUERIES = 1 << 20  # in a large store, where a query has several look-ups in a table
UNFLIPPED_QUERIES = 1 << 22  # in a large store of 64 bits, where a query has one
# in between, the fingerprints divided by this: about six look-ups share a block
SHARE_OF_STORE = 16
COLUMN_QUERIES = 1 << 17  # in column tables: with more, each query takes longer
SPLIT_QUERIES = 1 << 8  # fewer are not worth another thread
SCAN_BLOCKS = 1 << 13  # blocks and queries of one kernel call of a scan
SCAN_QUERIES = 1 << 8


def queries_at_once(design: Design, fingerprint_count: int = 0) -> int:
    """Return the most queries of one kernel call, which holds all its matches.

    Without a count they are as few as for a small store, for calls whose matches are bounded.
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
        return run(partial(work, threads=1), split_queries(queries, threads, at_once), threads)
    return run(partial(work, threads=threads), split_queries(queries, 1, at_once), 1)


def split_queries(queries: Words, threads: int, at_once: int) -> list[Words]:
    """Cut a batch evenly for the threads, into as few parts of at most ``at_once`` as possible."""
    count = max(-(-len(queries) // at_once), min(threads, len(queries) // SPLIT_QUERIES), 1)
    count = -(-count // threads) * threads if count > 1 else 1
    return [part for part in np.array_split(queries, count) if len(part)] or [queries]


def concatenate(columns: list[MatchColumns]) -> MatchColumns:
    """Concatenate the columns of one or more successive parts of a batch."""
    if len(columns) == 1:
        return columns[0]
    return (
        list_lims(np.concatenate([np.diff(c[0]) for c in columns])),
        np.concatenate([c[1] for c in columns]),
        np.concatenate([c[2] for c in columns]),
    )


def empty_matches(queries: Words) -> MatchColumns:
    return (
        np.zeros(len(queries) + 1, np.int64),
        queries[:0],
        np.empty(0, np.uint8 if row_words(queries) < 4 else np.uint16),
    )


def run(work: Callable[..., T], parts: list[Any], threads: int) -> list[T]:
    """Run ``work(part, stop=...)`` on each part, in threads if there are several, in order.

    This thread receives a Ctrl-C while the others work, and stops them. If it works itself, the
    kernel checks for signals.
    """
    if threads == 1 or len(parts) < 2:
        return [work(part, stop=None) for part in parts]
    from fpstore.base.pools import Pool  # which a single probe does not need

    stop = _kernel.Stop()
    with Pool(min(threads, len(parts))) as pool:
        try:
            jobs = [pool.submit(work, part, stop=stop) for part in parts]
            return [job.result() for job in jobs]
        except BaseException:
            stop.set()
            raise


def scan_table(kernel: _kernel.AnyTable, queries: Words, radius: int, threads: int) -> MatchColumns:
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
        return empty_matches(queries)
    columns = run(work, parts, threads)
    return collect(
        [(np.arange(len(c[0]) - 1) + part[0], c) for part, c in zip(parts, columns, strict=True)],
        len(queries),
    )


def collect(
    parts: Sequence[tuple[npt.NDArray[np.int64], MatchColumns]], query_count: int
) -> MatchColumns:
    """Put together one or more columns, each with the numbers of its queries."""
    query = np.concatenate([np.repeat(numbers, np.diff(c[0])) for numbers, c in parts])
    fingerprints = np.concatenate([c[1] for _, c in parts])
    distances = np.concatenate([c[2] for _, c in parts])
    order = row_order(query, distances, fingerprints)
    lims = list_lims(np.bincount(query, minlength=query_count))
    return lims, fingerprints[order], distances[order]


def unite(columns: Sequence[MatchColumns]) -> MatchColumns:
    """Put together the matches of the same queries in several sets; equal matches become one."""
    query_count, nonempty = len(columns[0][0]) - 1, [c for c in columns if len(c[1])]
    if len(nonempty) < 2:
        return nonempty[0] if nonempty else columns[0]
    queries = np.arange(query_count)
    lims, fingerprints, distances = collect([(queries, c) for c in nonempty], query_count)
    first = is_run_start(fingerprints)
    first[lims[:-1][np.diff(lims) > 0]] = True  # also if the query before has the same match
    if first.all():
        return lims, fingerprints, distances
    return (
        list_lims(np.bincount(list_numbers(lims)[first], minlength=query_count)),
        fingerprints[first],
        distances[first],
    )


# The nearest matches only


def keep_nearest(columns: MatchColumns, limit: int) -> Nearest:
    """Keep the first ``limit`` matches of each query, which are the nearest."""
    lims, fingerprints, distances = columns
    counts = np.diff(lims)
    more: More = counts > limit
    if not more.any():
        return columns, more
    near = np.arange(len(fingerprints)) - np.repeat(lims[:-1], counts) < limit
    return (list_lims(np.minimum(counts, limit)), fingerprints[near], distances[near]), more
