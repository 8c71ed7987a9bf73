"""Sizes of column tables, and the cost model of their look-ups.

A look-up reads a bucket from the directory, compares the tags of its entries, and computes the distance of those that are left.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, NamedTuple

from fpstore.design.families import LEAST_BUCKET_BITS, MOST_BUCKET_BITS, REFERENCES, ROWS, TAG_BITS, Design, TableSpec
from fpstore.width import WORD_BITS

if TYPE_CHECKING:
    from fpstore.design.planner import Sample

HEADER_BYTES = 4096
DIRECTORY_BYTES = 4  # of a bucket
TAG_BYTES = 2
PAGE_SHARE = 1 + 8 / 4096  # with the checksums of the pages
LINE_TAGS = 32  # tags in a cache line


class ColumnWork(NamedTuple):
    """The work of one query, in the units priced by :data:`NANOSECONDS`."""

    lookups: float  # a bucket found
    lines: float  # cache lines of tags read
    candidates: float  # tags compared
    copies: float  # entries whose distance was computed from a copy
    rows: float  # from a row


# Fitted by `python tools/bench costs`, AVX2.
NANOSECONDS = ColumnWork(lookups=8.0, lines=30.0, candidates=0.3, copies=20.0, rows=40.0)
QUERY_NS = 200.0  # of a query in each table of the ring


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
    return HEADER_BYTES + int((entries + (DIRECTORY_BYTES << spec.prefix_bits)) * PAGE_SHARE)


def work(design: Design, fingerprint_count: int, sample: Sample | None = None) -> ColumnWork:
    """Return the work of one query with the design's radius: of a uniform set, or of one like the sample."""
    flips = design.thresholds(design.radius)
    done = ColumnWork(0, 0, 0, 0, 0)
    for number, (_, table) in enumerate(design.ring):
        t, following = flips[number], flips[(number + 1) % len(flips)]
        for f in range(t + 1):
            buckets = comb(table.prefix_bits, f)
            found = fingerprint_count / 2.0**table.prefix_bits
            near = _near(table.tag_bits, t + following + 1 - f)
            if sample is not None:
                found = fingerprint_count * sample.share(table, table.prefix_bits) * sample.flipped(table, table.prefix_bits) ** f
                near = sample.near_tags(table, t + following + 1 - f)
            left = buckets * found * near
            copies, rows = (0.0, left) if table.kind == REFERENCES else (left, 0.0)
            more = ColumnWork(buckets, buckets * (1 + found / LINE_TAGS), buckets * found, copies, rows)
            done = ColumnWork(*(a + b for a, b in zip(done, more, strict=True)))
    return done


def _near(bits: int, most: int) -> float:
    """Return the share of random tags that differ in at most so many bits."""
    return sum(comb(bits, count) for count in range(min(most, bits) + 1)) / 2.0**bits


def nanoseconds(design: Design, fingerprint_count: int, sample: Sample | None = None) -> float:
    """Return the estimated time of one query, tables in memory, on one thread."""
    done = work(design, fingerprint_count, sample)
    looked_up = sum(t >= 0 for t in design.thresholds(design.radius))
    return QUERY_NS + looked_up * 20.0 + sum(amount * price for amount, price in zip(done, NANOSECONDS, strict=True))


def bucket_bits(block_count: int, width: int, fingerprint_count: int) -> list[int]:
    """Return the numbers of bucket bits that are worth considering for so many blocks."""
    length = width // block_count
    most = min(length, MOST_BUCKET_BITS)
    if width <= WORD_BITS:  # shorter buckets leave more bits to the rest
        most = min(most, max(width - TAG_BITS, LEAST_BUCKET_BITS))
    wanted = max(fingerprint_count.bit_length() - 6, LEAST_BUCKET_BITS)
    return sorted({b for b in (wanted - 2, wanted, wanted + 2, TAG_BITS, most) if LEAST_BUCKET_BITS <= b <= most})
