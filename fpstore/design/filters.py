"""Filters: which tables of a design save time with one, and its shape.

A filter is a Bloom filter of the prefixes of a table (docs/format.md, "Filter file"): a look-up
that would find nothing mostly opens no block.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import exp, expm1
from types import MappingProxyType
from typing import NamedTuple

from fpstore import _kernel
from fpstore.design.families import FLIP_SLACK_BITS, MAX_VARIANTS, Design, needed_tables
from fpstore.design.tables import ball_size

# Measured by `tools/bench filters`.
BITS_PER_PREFIX = 6
# behind the log2 n leading bits: one in 64 of the possible prefixes is then in the table
FINER_BITS = 6
MAX_PREFIX_BITS = 40
SET_BITS = 3  # of a word, by a prefix
BUCKET_PREFIXES_BITS = 8  # log2 of the prefixes of a bucket, which has a few lines of the cache
MIN_FINGERPRINTS = 1 << 6  # in a smaller set, a table is one block
# the price of an opened block, in tests of a word, when the shape of a filter is chosen
OPENED_TESTS = 25.0
MAX_FINGERPRINTS = 1 << 35  # a filter has at most 2^32 - 1 words


class FilterShape(NamedTuple):
    """The shape of a filter."""

    prefix_bits: int  # leading bits of an entry that the filter holds
    bucket_bits: int  # leading bits that choose a bucket of words
    bits_per_prefix: int  # of the filter, for each distinct prefix

    def passing_share(self, entries: float) -> float:
        """Return the share of look-ups that pass, if a look-up meets a mean of ``entries``."""
        in_table = 1 - exp(-entries)
        # A word has the prefixes of a Poisson distribution: the mean of the cube of its share of
        # set bits, to the second order.
        unset, mean = exp(-SET_BITS / self.bits_per_prefix), 64 / self.bits_per_prefix
        variance = (unset * SET_BITS / 64) ** 2 * mean
        return in_table + (1 - in_table) * ((1 - unset) ** 3 + 3 * (1 - unset) * variance)

    def file_bytes(self, fingerprint_count: int) -> int:
        """Return the size of the filter's file for a set of uniform fingerprints."""
        prefixes = 2.0**self.prefix_bits * -expm1(-fingerprint_count / 2.0**self.prefix_bits)
        content = prefixes * self.bits_per_prefix / 8 + 4 * (1 << self.bucket_bits)
        return _kernel.HEADER_BYTES + int(content * (1 + 8 / _kernel.PAGE_BYTES))


@lru_cache(maxsize=1024)
def filter_shapes(design: Design, fingerprint_count: int) -> Mapping[int, FilterShape]:
    """Return the shapes of the filters of a design that save time, by table.

    Column tables have none. Nor have tables that a probe of the design's radius does not look up,
    tables in which most prefixes occur, and tables of too many fingerprints for a filter.
    """
    if design.ring or not MIN_FINGERPRINTS <= fingerprint_count <= MAX_FINGERPRINTS:
        return MappingProxyType({})
    shapes = {
        table: _shape(spec.prefix_bits, spec.flips, fingerprint_count)
        for table, spec in needed_tables(design)
    }
    return MappingProxyType({table: shape for table, shape in shapes.items() if shape is not None})


@lru_cache(maxsize=1024)
def _shape(prefix_bits: int, flips: int, fingerprint_count: int) -> FilterShape | None:
    """Return the shape with which a probe of a table takes least time.

    Longer prefixes pass less often, but have more flips.
    """
    log2_count = fingerprint_count.bit_length() - 1

    def cost(shape: FilterShape) -> float:
        lookups = ball_size(shape.prefix_bits, flips)
        return lookups * (
            1 + OPENED_TESTS * shape.passing_share(fingerprint_count / 2.0**shape.prefix_bits)
        )

    most = min(prefix_bits, log2_count + FINER_BITS, MAX_PREFIX_BITS)
    allowed = (b for b in range(log2_count, most + 1) if ball_size(b, flips) <= MAX_VARIANTS)
    buckets = max(log2_count - BUCKET_PREFIXES_BITS, 0)
    shapes = [FilterShape(bits, min(buckets, bits), BITS_PER_PREFIX) for bits in allowed]
    best = min(shapes, key=cost, default=None)
    without = ball_size(min(prefix_bits, max(log2_count - FLIP_SLACK_BITS, 0)), flips)
    return best if best is not None and cost(best) < without * OPENED_TESTS else None
