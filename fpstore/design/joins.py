"""Designs of joins: the tables in which all pairs within a radius meet, and the choice among them.

A join sorts its own tables, compares the rows of near buckets, and frees the tables. Its tables are
a ring of column tables: the bits of a bucket, and behind them a tag of the next block (see
``_native/columns/request.hpp`` for why that is exact). Each row of a bucket is compared with the
rows of the buckets that differ from it in few bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from operator import itemgetter, mul
from typing import NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.threads import cached_property
from fpstore.base.width import WORD_BITS, Width
from fpstore.design.dealing import exchange
from fpstore.design.families import columns, lookup_radius
from fpstore.design.sample import Sample
from fpstore.design.tables import (
    COPIES,
    MAX_BUCKET_BITS,
    MIN_BUCKET_BITS,
    ROWS,
    TAG_BITS,
    TableSpec,
    ball_size,
    block_thresholds,
    near_share,
    permutation_led_by,
)

MAX_BLOCKS = 40
SAMPLED_PLANS = 8  # the sample compares this many of the best plans for a uniform set
DEALT_PLANS = 3  # this many of the best plans are also compared with dealt bits
# below, all pairs are compared in about a second, which planning from a sample takes, too
SAMPLED_FROM = 1 << 15
DEALING_NANOSECONDS = 1e9  # the time to deal bits for these plans
PIECE_ROWS = 1 << 16


class JoinWork(NamedTuple):
    """The work of a join for each of its rows, priced by :data:`NANOSECONDS`."""

    sorted: float  # words permuted and sorted
    meetings: float  # buckets that a row is compared with
    candidates: float  # tags compared
    survivors: float  # distances computed


# Estimates by runs of tools/bench pairs: sorting and comparing tags on uniform sets, survivors on
# clustered sets.
NANOSECONDS = JoinWork(sorted=10.0, meetings=6.0, candidates=0.1, survivors=4.0)
# a row of the arrays that are sorted in: the system clears their pages when they are first written
FRESH = 20.0
SINGLE_BIT = 0.4  # of the price of a candidate, where tags differ in one bit at most
# a bucket of more rows is split, and a row is compared with about GROUP_ROWS others
SPLIT_ROWS, GROUP_ROWS = 512, 96


@dataclass(frozen=True)
class JoinDesign:
    """The tables of a join."""

    name: str
    radius: int
    tables: tuple[TableSpec, ...]
    flips: tuple[int, ...]  # for each table, in how many bits of the bucket a pair may differ
    both: tuple[int, ...]  # and in how many of bucket and tag together

    @property
    def width(self) -> Width:
        return self.tables[0].width

    def single_table(self, table: int) -> JoinDesign:
        """Return the design of one table, in which pairs also meet that meet in others."""
        return JoinDesign(
            self.name, self.radius, (self.tables[table],), (self.flips[table],), (self.both[table],)
        )

    @cached_property
    def bucket_masks(self) -> Words:
        """The bits of the buckets of each table, as rows."""
        return self._masks([table.permutation[: table.prefix_bits] for table in self.tables])

    @cached_property
    def tag_masks(self) -> Words:
        """The bits of the tags of each table, as rows."""
        return self._masks([sorted(table.tag) for table in self.tables])

    def _masks(self, sets: Sequence[Sequence[int]]) -> Words:
        bits = self.width.words * WORD_BITS
        return Width(bits).rows(sum(1 << (bits - 1 - bit) for bit in chosen) for chosen in sets)


def scan_design(radius: int, width: int, bits: Sequence[int] | None = None) -> JoinDesign:
    """Return the design that compares every pair, first by a tag of the first of these bits."""
    tag = range(width)[:TAG_BITS] if bits is None else bits[:TAG_BITS]
    return JoinDesign(
        "scan",
        radius,
        (TableSpec(permutation_led_by(tag, width), 0, 0, tag_bits=len(tag)),),
        (0,),
        (radius,),
    )


def varying_bits(rows: Words, width: Width, first: Words | None = None) -> list[int]:
    """Return the bits in which rows differ from each other, or from the row of ``first``."""
    first = rows[:1] if first is None else first
    differing = np.zeros_like(first)
    for piece in (rows[start : start + PIECE_ROWS] for start in range(0, len(rows), PIECE_ROWS)):
        differing |= np.bitwise_or.reduce(piece ^ first, axis=0)
    return np.flatnonzero(np.unpackbits(width.to_bytes(differing))).tolist() if len(rows) else []


def designs(
    count: int, radius: int, width: int, bits: Sequence[int] | None = None
) -> Iterator[JoinDesign]:
    """Yield the designs that are worth comparing for a set of rows.

    ``bits`` are the bits in which the rows differ, the most even ones first.
    """
    yield scan_design(radius, width, bits)
    varying = tuple(range(width) if bits is None else bits)
    if radius > lookup_radius(width):
        return
    usual = max(count.bit_length() - 5, MIN_BUCKET_BITS)
    for blocks in range(1, min(MAX_BLOCKS, radius + 1) + 1):
        most = min(len(varying) // blocks, usual, MAX_BUCKET_BITS)
        # larger buckets are fewer, which may cost less
        for bucket in {*range(most - 4, most + 1, 2), min(most, TAG_BITS)}:
            if bucket > max(
                block_thresholds(blocks, radius)
            ):  # otherwise every bucket would be looked up
                yield _block_design(blocks, bucket, radius, width, varying)


@lru_cache(maxsize=512)  # a set of another size has mostly the same ones
def _block_design(
    blocks: int, bucket: int, radius: int, width: int, bits: tuple[int, ...]
) -> JoinDesign:
    """Return the design of blocks of successive bits."""
    length = len(bits) // blocks
    # the first table is in the order of the fingerprints
    if len(bits) == width and bucket >= MIN_BUCKET_BITS:
        tables = [table for table in columns(blocks, radius, width, bucket) if table.kind != ROWS]
        return _ring(f"columns-{blocks}-{bucket}", tables, radius)
    cut = [bits[place * length : (place + 1) * length] for place in range(blocks)]
    return _ring(f"columns-{blocks}-{bucket}", _tables(cut, bucket, radius, width), radius)


def dealt_design(
    design: JoinDesign, sample: Sample, bits: Sequence[int] | None = None
) -> JoinDesign:
    """Return a design of as many blocks, to which the bits are dealt by a sample.

    All blocks then separate rows about equally well.
    """
    even_bits = sample.order_by_evenness(range(design.width.bits) if bits is None else bits)
    blocks = len(design.tables)
    length = len(even_bits) // blocks
    bucket = min(design.tables[0].prefix_bits, length)
    cut = np.array(even_bits[: blocks * length]).reshape(length, blocks).T.copy()
    if blocks > 1 and bucket:
        exchange(cut, bucket, max(*block_thresholds(blocks, design.radius), 1), sample)
    tables = _tables(
        [sample.order_by_evenness(block) for block in cut.tolist()],
        bucket,
        design.radius,
        design.width.bits,
    )
    return _ring(f"dealt-{blocks}-{bucket}", tables, design.radius)


def _tables(cut: Sequence[Sequence[int]], bucket: int, radius: int, width: int) -> list[TableSpec]:
    """Return the tables of a ring of blocks.

    The first bits of a block are its bucket, the first of the next one its tag.
    """
    out = []
    for place, flips in enumerate(block_thresholds(len(cut), radius)):
        block, behind = cut[place], cut[(place + 1) % len(cut)]
        tag = behind[:TAG_BITS] if len(cut) > 1 else block[bucket : bucket + TAG_BITS]
        out.append(
            TableSpec(
                permutation_led_by([*block[:bucket], *tag], width), bucket, flips, COPIES, len(tag)
            )
        )
    return out


def _ring(name: str, tables: Sequence[TableSpec], radius: int) -> JoinDesign:
    """Return the design of a ring for no more blocks than the radius needs.

    None of its tables is left out.
    """
    thresholds = block_thresholds(len(tables), radius)
    both = tuple(
        min(t + thresholds[(place + 1) % len(tables)] + 1, radius)
        for place, t in enumerate(thresholds)
    )
    return JoinDesign(name, radius, tuple(tables), tuple(thresholds), both)


def join_work(design: JoinDesign, count: int, sample: Sample | None = None) -> JoinWork:
    """Return the work of comparing one row with ``count`` rows, uniform or like the sample."""
    meetings = candidates = survivors = 0.0
    for table, flips, both in zip(design.tables, design.flips, design.both, strict=True):
        meetings += ball_size(table.prefix_bits, flips)
        if sample is None:
            in_bucket = [
                comb(table.prefix_bits, f) / 2.0**table.prefix_bits for f in range(flips + 1)
            ]
            near = [near_share(table.tag_bits, both - f) for f in range(flips + 1)]
            compared, near_rows = count * sum(in_bucket), count * sum(map(mul, in_bucket, near))
        else:
            bucket = sample.distances(table.permutation[: table.prefix_bits])
            tag = sample.distances(sorted(table.tag))
            near_buckets = bucket <= flips
            compared = count * float(np.mean(near_buckets))
            near_rows = count * float(np.mean(near_buckets & (bucket + tag <= both)))
        # see _native/pairs/join.hpp: tags that differ in one bit, and large buckets that are split
        if flips == 0 and both == 1:
            split = compared > SPLIT_ROWS
            compared = SINGLE_BIT * (GROUP_ROWS if split else compared)
            meetings += 2 if split else 0
        candidates += compared
        survivors += near_rows
    return JoinWork(len(design.tables) * design.width.words, meetings, candidates, survivors)


def work_nanoseconds(work: JoinWork, count: int, queries: int | None = None) -> float:
    """Return the estimated time of the join of ``count`` rows on one thread.

    They are joined with themselves, where each pair of buckets is compared once, or with
    ``queries`` other rows.
    """
    compared = sum(amount * price for amount, price in zip(work[1:], NANOSECONDS[1:], strict=True))
    ordered = work.sorted * NANOSECONDS.sorted + FRESH
    return (
        count * (ordered + compared / 2)
        if queries is None
        else (count + queries) * ordered + queries * compared
    )


def join_nanoseconds(design: JoinDesign, count: int, queries: int) -> float:
    """Return the estimated time of the join of two uniform sets, on one thread."""
    return work_nanoseconds(join_work(design, count), count, queries)


def plan_join(
    count: int,
    radius: int,
    width: int,
    sample: Sample | None = None,
    queries: int | None = None,
    bits: Sequence[int] | None = None,
) -> JoinDesign:
    """Return the design with the least estimated time for the pairs of ``count`` rows.

    The rows are joined with themselves or with queries. They are uniform unless there is a sample
    of them, and differ in ``bits``, by default in all.
    """

    def with_times(
        plans: Iterable[JoinDesign], sample: Sample | None
    ) -> list[tuple[float, JoinDesign]]:
        return sorted(
            (
                (work_nanoseconds(join_work(plan, count, sample), count, queries), plan)
                for plan in plans
            ),
            key=itemgetter(0),
        )

    plans = with_times(designs(count, radius, width, bits), None)
    if sample is None or not sample.is_skewed:
        return plans[0][1]
    even_bits = sample.order_by_evenness(range(width) if bits is None else bits)
    best = [design for _, design in plans[:SAMPLED_PLANS]]
    sampled = with_times([*best, scan_design(radius, width, even_bits)], sample)
    least, first = sampled[0]
    near = _mean_meetings(first, sample) * count
    near_time = work_nanoseconds(JoinWork(0, 0, near, near), count, queries)
    saved = least - plans[0][0] - near_time  # at most
    if saved > DEALING_NANOSECONDS:
        dealable = [design for design in best if design.tables[0].prefix_bits][:DEALT_PLANS]
        sampled += with_times([dealt_design(design, sample, bits) for design in dealable], sample)
    return min(sampled, key=itemgetter(0))[1]


def _mean_meetings(design: JoinDesign, sample: Sample) -> float:
    """Return the mean number of tables in which a pair within twice the radius meets.

    The mean is over all pairs of the sample. The bits in which pairs differ may be anywhere: how
    bits are dealt makes no difference.
    """
    bits = design.width.bits
    most = min(2 * design.radius, bits)
    shares = (
        np.bincount(sample.distances(range(bits)).ravel(), minlength=most + 1)[: most + 1]
        / sample.pairs
    )
    total = 0.0
    for table, flips, both in zip(design.tables, design.flips, design.both, strict=True):
        free = bits - table.prefix_bits - table.tag_bits
        for distance, share in enumerate(shares.tolist()):
            ways = sum(
                comb(table.prefix_bits, f) * comb(table.tag_bits, g) * comb(free, distance - f - g)
                for f in range(flips + 1)
                for g in range(both - f + 1)
                if distance >= f + g
            )
            total += share * ways / comb(bits, distance)
    return total
