"""Cost model of look-ups: amounts of work and measured prices, in blocks and in column tables.

The times were measured on a processor with AVX2 but not AVX-512, or on one restricted to AVX2
(``FPSTORE_ISA=avx2``). AVX-512 opens and compares blocks faster, so there designs with many
candidates are cheaper than estimated. A design must not depend on the machine that chose it, so
these constants are used everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, exp, expm1, log2
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.width import WORD_BITS
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN
from fpstore.design.families import Design
from fpstore.design.sample import Sample
from fpstore.design.tables import (
    MAX_BUCKET_BITS,
    MIN_BUCKET_BITS,
    REFERENCES,
    ROWS,
    TAG_BITS,
    TableSpec,
    near_share,
    row_bucket_bits,
)

SPEED_FOR_TWICE_THE_BYTES = 3  # `auto` takes twice the bytes for this many times the speed
BATCH_QUERIES = 1 << 12  # the batch that is priced; larger batches share more blocks
COLD_READ_NS = 100_000.0  # a random page of a solid-state disk, read alone
COLD_BYTE_NS = 1.0  # a byte of a file that is read from its start to its end
CACHE_BYTES = 32 << 20  # a typical share of a processor's cache
CALL_NS = 3_000.0  # the Python code around a single probe

# As in the kernel (Portable, Avx2 and Avx512 in _native/isa).
EXPAND_FROM = 64  # a look-up that expects this many entries compares whole blocks
SWEEP_LOOKUPS = 1 << 11  # a table with fewer look-ups is not swept
SWEEP_DENSITY = 4 / 5  # a table with fewer look-ups per block is not swept


class ProbeWork(NamedTuple):
    """The average work of one look-up in a table of blocks, priced by :data:`NANOSECONDS`."""

    lookups: float  # directory, key, place in the block
    blocks: float  # read, checked, codes decoded
    decoded: float  # entries decoded one by one and compared
    expanded: float  # whole blocks decoded
    compared: float  # entries of these blocks compared


class ColumnWork(NamedTuple):
    """The work of one query in column tables, priced by :data:`COLUMN_NANOSECONDS`.

    A look-up reads a bucket from the directory, compares the tags of its entries, and computes the
    distance of the entries whose tags are near.
    """

    queries: float  # 1
    lookups: float  # a look-up of a bucket, and the first line of its tags
    misses: float  # look-ups whose tags the cache does not have
    lines: float  # further cache lines of tags
    copies: float  # entries whose distance was computed from a copy
    rows: float  # entries whose distance was computed from a row

    @property
    def candidates(self) -> float:
        """The number of tags compared."""
        return self.lines * LINE_TAGS


# By codec; fitted by `python tools/bench costs`, AVX2.
NANOSECONDS = {
    HUFFMAN: ProbeWork(lookups=43.0, blocks=270.0, decoded=0.4, expanded=56.0, compared=0.19),
    ELIAS_FANO: ProbeWork(lookups=36.0, blocks=128.0, decoded=0.96, expanded=88.0, compared=0.07),
}
# Fitted by `python tools/bench column-costs`, AVX2.
COLUMN_NANOSECONDS = ColumnWork(
    queries=220.0, lookups=45.0, misses=75.0, lines=18.0, copies=11.0, rows=90.0
)
# nanoseconds to compare a line of tags that is in the cache: by runs of tools/bench join
CACHED_LINE = 2.5

# A look-up in a filter, and what a miss of the cache adds. By `tools/bench filters`, times 1.8: the
# processor of the other prices was slower by that.
FILTER_NS, FILTER_MISS_NS = 28.0, 45.0

# Comparing one query with one entry of a scan, in a batch that shares the decoding of the blocks;
# decoding an entry; and what each further word of a fingerprint adds. Fitted in the same way.
SCAN_ENTRY_NS, SCAN_WORD_NS = 0.75, 0.03
DECODE_ENTRY_NS, DECODE_WORD_NS = 3.4, 1.8

DIRECTORY_BYTES = 4  # of a column table, for each bucket
TAG_BYTES = 2
PAGE_SHARE = 1 + 8 / _kernel.PAGE_BYTES  # with the checksums of the pages
LINE_TAGS = 32  # tags in a cache line


def estimated_time(amounts: Iterable[float], prices: Iterable[float]) -> float:
    """Return the estimated time of some work on one thread, tables in memory."""
    return sum(amount * price for amount, price in zip(amounts, prices, strict=True))


def time_space_cost(time: float, size: float) -> float:
    """Return time x bytes^e: twice the bytes weigh SPEED_FOR_TWICE_THE_BYTES times the time."""
    return time * float(size ** log2(SPEED_FOR_TWICE_THE_BYTES))


def mean_nanoseconds(in_batch: float, alone: float) -> float:
    """Return the mean time of a probe in a batch and of a single probe from Python."""
    return (in_batch + alone + CALL_NS) / 2


# Tables of blocks


def scan_nanoseconds(fingerprint_count: int, words: int, queries: int) -> float:
    """Return the estimated time of one query of a scan in a batch.

    The queries share the decoding of the blocks.
    """
    compared = SCAN_ENTRY_NS + (words - 1) * SCAN_WORD_NS
    decoded = DECODE_ENTRY_NS + (words - 1) * DECODE_WORD_NS
    return max(fingerprint_count, 1) * (compared + decoded / queries)


def block_work(
    fingerprint_count: int, per_block: float, matches: float, lookups: float
) -> ProbeWork:
    """Return the work of one look-up that meets ``matches`` entries with its prefix.

    If the batch has many look-ups in this table, they share the blocks that they open.
    """
    blocks = max(fingerprint_count / per_block, 1.0)
    spanned = min(1 + matches / per_block, blocks)
    opened = spanned
    if lookups >= max(SWEEP_LOOKUPS, SWEEP_DENSITY * blocks):
        density = lookups / blocks
        # A block is opened once if any look-up spans it.
        opened = min((1 - exp(-density * spanned)) / density, spanned)
    if matches < EXPAND_FROM:
        return ProbeWork(1, opened, matches, 0, 0)
    return ProbeWork(1, opened, 0, opened, spanned * per_block)


def filter_nanoseconds(size: int) -> float:
    """Return the estimated time of one look-up, for the size of all filters together."""
    return FILTER_NS + FILTER_MISS_NS * max(1 - CACHE_BYTES / max(size, 1), 0.0)


# Column tables


def column_bytes(spec: TableSpec, fingerprint_count: int) -> int:
    bits = spec.width.bits
    if spec.kind == ROWS:
        entry, bucket_bits = bits // 8, row_bucket_bits(fingerprint_count)
    else:
        references = max(fingerprint_count - 1, 0).bit_length()
        copies = max(bits - spec.prefix_bits - TAG_BITS, 0)
        rest_bits = references if spec.kind == REFERENCES else copies
        entry, bucket_bits = TAG_BYTES + -(-rest_bits // 8), spec.prefix_bits
    return _kernel.HEADER_BYTES + int(
        (entry * fingerprint_count + (DIRECTORY_BYTES << bucket_bits)) * PAGE_SHARE
    )


def column_work(
    design: Design, fingerprint_count: int, radius: int, sample: Sample | None = None
) -> ColumnWork:
    """Return the work of one query in a uniform set, or the mean work in a set like the sample."""
    if sample is not None:
        return _work_in_sample(design, fingerprint_count, radius, sample)
    flips = design.thresholds(radius)
    work, missed = ColumnWork(1, 0, 0, 0, 0, 0), missed_share(design, fingerprint_count)
    for number, (_, table) in enumerate(design.ring):
        t, following = flips[number], flips[(number + 1) % len(flips)]
        for f in range(t + 1):
            buckets = comb(table.prefix_bits, f)
            candidates = buckets * fingerprint_count / 2.0**table.prefix_bits
            near = near_share(table.tag_bits, t + following + 1 - f)
            work = _add_lookups(work, table, missed, buckets, candidates, candidates * near)
    return work


def missed_share(design: Design, fingerprint_count: int) -> float:
    """Return the share of look-ups whose tags the cache does not have."""
    read = sum(
        TAG_BYTES * fingerprint_count + (DIRECTORY_BYTES << table.prefix_bits)
        for _, table in design.ring
    )
    return max(1 - CACHE_BYTES / read, 0.0)


def _add_lookups(
    work: ColumnWork,
    table: TableSpec,
    missed: float,
    lookups: float,
    candidates: float,
    near: float,
) -> ColumnWork:
    copies, rows = (0.0, near) if table.kind == REFERENCES else (near, 0.0)
    return ColumnWork(
        work.queries,
        work.lookups + lookups,
        work.misses + lookups * missed,
        work.lines + candidates / LINE_TAGS,
        work.copies + copies,
        work.rows + rows,
    )


def _work_in_sample(
    design: Design, fingerprint_count: int, radius: int, sample: Sample
) -> ColumnWork:
    """Return the mean work of the sample's queries, each with its best thresholds.

    Thresholds for each query: GPH, ICDE 2018.
    """
    tables = [table for _, table in design.ring]
    buckets = [sample.distances(table.permutation[: table.prefix_bits]) for table in tables]
    tags = [sample.distances(tuple(table.tag)) for table in tables]
    most = min((radius + 1) // len(tables) + _kernel.SPARE_THRESHOLDS, radius + 1)  # as the kernel
    lookups = [np.cumsum([comb(table.prefix_bits, f) for f in range(most)]) for table in tables]
    scale = fingerprint_count / max(buckets[0].shape[1], 1)
    costs = []
    for distances, lookup_counts in zip(buckets, lookups, strict=True):
        entries = (
            np.stack([np.count_nonzero(distances <= f, axis=1) for f in range(most)], axis=1)
            * scale
        )
        cost = entries + _kernel.LOOKUP_ENTRIES * lookup_counts
        costs.append(np.hstack([np.zeros((len(entries), 1)), cost]))
    thresholds = cheapest(costs, radius + 1)
    work, missed = ColumnWork(1, 0, 0, 0, 0, 0), missed_share(design, fingerprint_count)
    for number, table in enumerate(tables):
        t, following = thresholds[:, number, None], thresholds[:, (number + 1) % len(tables), None]
        # no distance is below 0, so a table that is not looked up meets nothing
        candidates = buckets[number] <= t
        near = candidates & (buckets[number] + tags[number] <= t + following + 1)
        lookup_count = np.concatenate([[0], lookups[number]])[thresholds[:, number] + 1].mean()
        rows = max(len(candidates), 1)
        work = _add_lookups(
            work,
            table,
            missed,
            float(lookup_count),
            candidates.sum() * scale / rows,
            near.sum() * scale / rows,
        )
    return work


def cheapest(costs: Sequence[npt.NDArray[np.float64]], total: int) -> npt.NDArray[np.int64]:
    """Return for each query the thresholds t of the tables with the least cost.

    The t + 1 add up to ``total``. The costs of each table have a row for each query, by t + 1: from
    no look-up (t is -1) to the largest threshold.
    """
    queries = len(costs[0])
    least = np.full((queries, total + 1), np.inf)
    least[:, 0] = 0
    choices = []
    for cost in costs:
        after = np.full_like(least, np.inf)
        choice = np.zeros(least.shape, np.int64)
        for allowed in range(min(cost.shape[1], total + 1)):
            trial = least[:, : total + 1 - allowed] + cost[:, allowed, None]
            better = trial < after[:, allowed:]
            after[:, allowed:][better] = trial[better]
            choice[:, allowed:][better] = allowed
        least = after
        choices.append(choice)
    remaining = np.full(queries, total)
    out = np.empty((queries, len(costs)), np.int64)
    for table in range(len(costs) - 1, -1, -1):
        allowed = choices[table][np.arange(queries), remaining]
        out[:, table] = allowed - 1
        remaining = remaining - allowed
    return out


def column_batch_nanoseconds(work: ColumnWork, design: Design, queries: int) -> float:
    """Return the time of a query in a batch, which looks up the buckets of a table in order.

    Queries share buckets: with d queries per bucket, (1 - exp(-d)) / d buckets are read for each.
    """
    if queries < _kernel.ORDERED_QUERIES:  # smaller batches keep their order
        return estimated_time(work, COLUMN_NANOSECONDS)
    per_bucket = queries / 2.0 ** max(table.prefix_bits for _, table in design.ring)
    read = -expm1(-per_bucket) / per_bucket
    shared = work._replace(misses=read * work.misses, lines=read * work.lines)
    return estimated_time(shared, COLUMN_NANOSECONDS) + CACHED_LINE * ((1 - read) * work.lines)


def bucket_bits(block_count: int, width: int, fingerprint_count: int) -> list[int]:
    """Return the numbers of bucket bits that are worth considering for a number of blocks."""
    length = width // block_count
    most = min(length, MAX_BUCKET_BITS)
    if width <= WORD_BITS:  # shorter buckets leave more bits to the rest
        most = min(most, max(width - TAG_BITS, MIN_BUCKET_BITS))
    usual = max(fingerprint_count.bit_length() - 6, MIN_BUCKET_BITS)
    return sorted(
        {b for b in (usual - 2, usual, usual + 2, TAG_BITS, most) if MIN_BUCKET_BITS <= b <= most}
    )
