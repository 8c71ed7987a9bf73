"""Sizes of column tables, and the cost model of their look-ups.

A look-up reads a bucket from the directory, compares the tags of its entries, and computes the distance of those that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, expm1
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.width import WORD_BITS
from fpstore.design.costs import CACHE_BYTES
from fpstore.design.families import Design
from fpstore.design.sample import Sample
from fpstore.design.tables import (
    LEAST_BUCKET_BITS,
    MOST_BUCKET_BITS,
    REFERENCES,
    ROWS,
    TAG_BITS,
    TableSpec,
    near_share,
    row_bucket_bits,
)

DIRECTORY_BYTES = 4  # for each bucket
TAG_BYTES = 2
PAGE_SHARE = 1 + 8 / _kernel.PAGE_BYTES  # with the checksums of the pages
LINE_TAGS = 32  # tags in a cache line


class ColumnWork(NamedTuple):
    """The work of one query, in the units priced by :data:`NANOSECONDS`."""

    queries: float  # 1
    lookups: float  # a bucket found, and the first line of its tags
    misses: float  # look-ups whose tags the cache does not have
    lines: float  # further cache lines of tags
    copies: float  # entries whose distance was computed from a copy
    rows: float  # entries whose distance was computed from a row

    @property
    def candidates(self) -> float:
        """The tags compared."""
        return self.lines * LINE_TAGS


# Fitted by `python tools/bench column-costs`, AVX2.
NANOSECONDS = ColumnWork(queries=220.0, lookups=45.0, misses=75.0, lines=18.0, copies=11.0, rows=90.0)
ORDERED_QUERIES = _kernel.ORDERED_QUERIES  # smaller batches are asked as they come
CACHED_LINE = 2.5  # nanoseconds to compare a line of tags that is in the cache: by runs of tools/bench join


def entry_bytes(spec: TableSpec, fingerprint_count: int) -> int:
    """Return the bytes of an entry of a column table."""
    bits = spec.width.bits
    if spec.kind == ROWS:
        return bits // 8
    rest = max(fingerprint_count - 1, 0).bit_length() if spec.kind == REFERENCES else max(bits - spec.prefix_bits - TAG_BITS, 0)
    return TAG_BYTES + -(-rest // 8)


def file_bytes(spec: TableSpec, fingerprint_count: int) -> int:
    """Return the size of the file of a column table."""
    entries = entry_bytes(spec, fingerprint_count) * fingerprint_count
    bucket_bits = row_bucket_bits(fingerprint_count) if spec.kind == ROWS else spec.prefix_bits
    return _kernel.HEADER_BYTES + int((entries + (DIRECTORY_BYTES << bucket_bits)) * PAGE_SHARE)


def work(design: Design, fingerprint_count: int, radius: int, sample: Sample | None = None) -> ColumnWork:
    """Return the work of one query in a uniform set, or the mean work in a set like the sample."""
    if sample is not None:
        return _work_in_sample(design, fingerprint_count, radius, sample)
    flips = design.thresholds(radius)
    done, missed = ColumnWork(1, 0, 0, 0, 0, 0), missed_share(design, fingerprint_count)
    for number, (_, table) in enumerate(design.ring):
        t, following = flips[number], flips[(number + 1) % len(flips)]
        for f in range(t + 1):
            buckets = comb(table.prefix_bits, f)
            found = fingerprint_count / 2.0**table.prefix_bits
            near = near_share(table.tag_bits, t + following + 1 - f)
            done = _more(done, table, missed, buckets, buckets * found, buckets * found * near)
    return done


def missed_share(design: Design, fingerprint_count: int) -> float:
    """Return the share of look-ups whose tags the cache does not have."""
    met = sum(TAG_BYTES * fingerprint_count + (DIRECTORY_BYTES << table.prefix_bits) for _, table in design.ring)
    return max(1 - CACHE_BYTES / met, 0.0)


def _more(done: ColumnWork, table: TableSpec, missed: float, lookups: float, candidates: float, left: float) -> ColumnWork:
    copies, rows = (0.0, left) if table.kind == REFERENCES else (left, 0.0)
    more = ColumnWork(0, lookups, lookups * missed, candidates / LINE_TAGS, copies, rows)
    return ColumnWork(*(a + b for a, b in zip(done, more, strict=True)))


def _work_in_sample(design: Design, fingerprint_count: int, radius: int, sample: Sample) -> ColumnWork:
    """Return the average work of the sample's queries, each with the thresholds that suit it best (GPH, ICDE 2018)."""
    tables = [table for _, table in design.ring]
    buckets = [sample.distances(table.permutation[: table.prefix_bits]) for table in tables]
    tags = [sample.distances(tuple(table.tag)) for table in tables]
    most = min((radius + 1) // len(tables) + _kernel.SPARE_THRESHOLDS, radius + 1)  # as the kernel
    lookups = [np.cumsum([comb(table.prefix_bits, f) for f in range(most)]) for table in tables]
    scale = fingerprint_count / max(buckets[0].shape[1], 1)
    costs = []
    for near, looked_up in zip(buckets, lookups, strict=True):
        entries = np.stack([np.count_nonzero(near <= f, axis=1) for f in range(most)], axis=1) * scale
        costs.append(np.hstack([np.zeros((len(entries), 1)), entries + _kernel.LOOKUP_ENTRIES * looked_up]))
    thresholds = cheapest(costs, radius + 1)
    done, missed = ColumnWork(1, 0, 0, 0, 0, 0), missed_share(design, fingerprint_count)
    for number, table in enumerate(tables):
        t, following = thresholds[:, number, None], thresholds[:, (number + 1) % len(tables), None]
        met = buckets[number] <= t  # no distance is below 0, so a table that is not looked up meets nothing
        left = met & (buckets[number] + tags[number] <= t + following + 1)
        looked_up = np.concatenate([[0], lookups[number]])[thresholds[:, number] + 1].mean()
        rows = max(len(met), 1)
        done = _more(done, table, missed, float(looked_up), met.sum() * scale / rows, left.sum() * scale / rows)
    return done


def cheapest(costs: Sequence[npt.NDArray[np.float64]], total: int) -> npt.NDArray[np.int64]:
    """Return for each query the thresholds of the tables with the least cost: the t + 1 of each add up to ``total``.

    Parameters
    ----------
    costs : sequence of ndarray of float64, (queries, most + 1)
        Of each table, by t + 1, from not looked up to the largest threshold.
    total : int

    Returns
    -------
    ndarray of int64, (queries, tables)
        The thresholds, -1 for a table that is not looked up.
    """
    queries = len(costs[0])
    least = np.full((queries, total + 1), np.inf)
    least[:, 0] = 0
    choices = []
    for cost in costs:
        after = np.full_like(least, np.inf)
        choice = np.zeros(least.shape, np.int64)
        for allowed in range(min(cost.shape[1], total + 1)):
            tried = least[:, : total + 1 - allowed] + cost[:, allowed, None]
            better = tried < after[:, allowed:]
            after[:, allowed:][better] = tried[better]
            choice[:, allowed:][better] = allowed
        least = after
        choices.append(choice)
    left = np.full(queries, total)
    out = np.empty((queries, len(costs)), np.int64)
    for table in range(len(costs) - 1, -1, -1):
        allowed = choices[table][np.arange(queries), left]
        out[:, table] = allowed - 1
        left = left - allowed
    return out


def nanoseconds(done: ColumnWork) -> float:
    """Return the estimated time of the work of one query, tables in memory, on one thread."""
    return sum(amount * price for amount, price in zip(done, NANOSECONDS, strict=True))


def batch_nanoseconds(done: ColumnWork, design: Design, queries: int) -> float:
    """Return the time of a query in a batch, which meets the buckets of a table in order: queries share buckets.

    With d queries per bucket, (1 - exp(-d)) / d buckets are read for each.
    """
    if queries < ORDERED_QUERIES:
        return nanoseconds(done)
    per_bucket = queries / 2.0 ** max(table.prefix_bits for _, table in design.ring)
    read = -expm1(-per_bucket) / per_bucket
    cached = (1 - read) * done.lines
    shared = done._replace(misses=read * done.misses, lines=read * done.lines)
    return nanoseconds(shared) + CACHED_LINE * cached


def bucket_bits(block_count: int, width: int, fingerprint_count: int) -> list[int]:
    """Return the numbers of bucket bits that are worth considering for a number of blocks."""
    length = width // block_count
    most = min(length, MOST_BUCKET_BITS)
    if width <= WORD_BITS:  # shorter buckets leave more bits to the rest
        most = min(most, max(width - TAG_BITS, LEAST_BUCKET_BITS))
    wanted = max(fingerprint_count.bit_length() - 6, LEAST_BUCKET_BITS)
    return sorted({b for b in (wanted - 2, wanted, wanted + 2, TAG_BITS, most) if LEAST_BUCKET_BITS <= b <= most})
