"""The costs of a design for a set of n fingerprints, before it is built.

Sizes follow from the code (docs/design.md), times from the constants of :mod:`fpstore.design.costs`, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lgamma, log, log2
from types import MappingProxyType
from typing import NamedTuple

from fpstore import _kernel
from fpstore.base.width import WIDTH_64, WORD_BITS, Width
from fpstore.design import column_costs
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN, Blocks, default_block_bytes
from fpstore.design.costs import (
    BATCH_QUERIES,
    COLD_BYTE_NS,
    COLD_READ_NS,
    filter_nanoseconds,
    lookup_nanoseconds,
    mean_nanoseconds,
    scan_nanoseconds,
    weighted,
)
from fpstore.design.families import Design
from fpstore.design.filters import FilterShape, filter_shapes
from fpstore.design.sample import Sample
from fpstore.design.tables import TableLookup

ENTRY_BITS = {  # for uniform keys, above log2(2^width / n)
    HUFFMAN: 3.40,  # the code of h, 3.29 in the mean, and the bits behind it, which are 0.11 more than log2 of the gap
    ELIAS_FANO: 1.96,  # between 1.91 and 2, as the mean gap is between two powers of two
}
DIRECTORY_BYTES = 0.75  # for each block: a slot of four to eight bytes for eight keys
ID_BYTES = 4.0
Shapes = Mapping[int, FilterShape]  # by table
NO_FILTERS: Shapes = MappingProxyType({})
FOLDER_BYTES = 20_480  # an empty id map, an empty log and a manifest


class Requirements(NamedTuple):
    """What decides about a design besides the number of fingerprints and the radius; see :func:`fpstore.plan`."""

    width: Width = WIDTH_64
    disk_budget: int | None = None
    memory_budget: int | None = None
    storage: str = "hot"
    blocks: Blocks | None = None
    prefer: str = "balance"


@dataclass(frozen=True, repr=False)
class Plan:
    """One design with its estimated costs.

    Attributes
    ----------
    design : Design
    filters : int
        The number of tables with a filter.
    bytes_per_fingerprint : float
        The bytes of all tables and filters, without ids.
    disk_bytes : int
        The bytes of tables, dense ids, and the files of an empty store.
    lookups : int
        Prefix look-ups per probe.
    candidates : float
        Entries compared per probe.
    microseconds : float
        The estimated time of a probe in a batch of 4,096, with one thread, tables in memory, and a processor with AVX2.
    single_microseconds : float
        The estimated time of a single probe, without the call from Python, which takes as long for every design.
    cold_milliseconds : float
        The estimated time of a probe when every block comes from a solid-state disk, one read at a time.
    fits : bool
        Whether the design is within the budgets.
    reason : str
        Why the design does not fit, or an empty string.
    chosen : bool
        Whether ``design="auto"`` takes this design.
    """

    design: Design
    filters: int
    bytes_per_fingerprint: float
    disk_bytes: int
    lookups: int
    candidates: float
    microseconds: float
    single_microseconds: float
    cold_milliseconds: float
    fits: bool
    reason: str
    chosen: bool = False

    def __repr__(self) -> str:
        costs = f"{self.bytes_per_fingerprint:.1f} bytes per fingerprint, {self.microseconds:.1f} microseconds"
        return f"<fpstore.Plan: {self.name}, radius {self.design.radius}, {costs}{', chosen' if self.chosen else ''}>"

    @property
    def name(self) -> str:
        """The design's name."""
        return self.design.name

    @property
    def mean_microseconds(self) -> float:
        """The mean of both times, the second with 3 microseconds for the call from Python. Designs are ranked by it."""
        return mean_nanoseconds(1000 * self.microseconds, 1000 * self.single_microseconds) / 1000


def limit_bits(fingerprint_count: int, width: int = WORD_BITS) -> float:
    """Return log2 C(2^width, n) / n: the fewest bits per fingerprint that a set of n can take on average."""
    n = fingerprint_count
    if n == 0:
        return 0.0
    if width <= 32:
        # (lgamma(N + 1) - lgamma(N - n + 1) - lgamma(n + 1)) of N = 2^width; with fewer values than a double tells apart
        return (lgamma(2.0**width + 1) - lgamma(2.0**width - n + 1) - lgamma(n + 1)) / log(2) / n
    # log2 of N (N - 1) ... (N - n + 1) / n!; the falling factorial is N^n to within n^2 / 2N.
    falling = float(width) * n - n * (n - 1) / 2 / 2.0**width / log(2)
    return (falling - lgamma(n + 1) / log(2)) / n


def table_bits(fingerprint_count: int, blocks: Blocks | None = None, width: int = WORD_BITS) -> float:
    """Return the estimated bits per fingerprint of one table for uniform keys, including all overhead."""
    n = max(fingerprint_count, 1)
    block_bytes, codec, _ = blocks or Blocks(default_block_bytes(width))
    entry = max(width - log2(max(n, 2)), 1.0) + ENTRY_BITS[codec]
    key_bytes = Width(width).words * 8  # in the key index
    room = block_bytes * 8 - min(entry, WORD_BITS) / 2  # half of the coded part of an entry is left over
    # The header has 16 bytes with a code, the leading word of the first entry included; 8 bytes without one.
    per_block = 1 + (room - 64 - key_bytes * 8) / entry if codec == HUFFMAN else (room - 64) / entry
    # A file has whole blocks, and at least one.
    bits = max((block_bytes + key_bytes + DIRECTORY_BYTES) * 8 / per_block, (block_bytes + 16 + key_bytes) * 8 / n)
    return bits + _kernel.HEADER_BYTES * 8 / n


def estimate(
    candidate: Design, fingerprint_count: int, required: Requirements | None = None, sample: Sample | None = None
) -> Plan:
    """Return the estimated costs of a design over n fingerprints: a uniform set, or a set like the sample."""
    n = max(fingerprint_count, 1)
    required = required or Requirements(candidate.width)
    blocks = required.blocks or Blocks(default_block_bytes(candidate.width.bits))
    shapes = filters_of(candidate, n, blocks)
    costs = _ring_costs(candidate, n, sample) if candidate.ring else _block_costs(candidate, n, sample, blocks, shapes)
    disk_bytes = costs.bytes + int(n * ID_BYTES) + FOLDER_BYTES
    reason = ""
    if required.disk_budget is not None and disk_bytes > required.disk_budget:
        reason = "over the disk budget"
    elif required.memory_budget is not None and costs.bytes > required.memory_budget:
        reason = "over the memory budget"
    return Plan(
        candidate, len(shapes), costs.bytes / n, disk_bytes, costs.lookups, costs.candidates, costs.nanoseconds / 1000,
        costs.single_nanoseconds / 1000, costs.reads * COLD_READ_NS / 1e6, not reason, reason,
    )  # fmt: skip


class _Costs(NamedTuple):
    """The work of one query in all tables of a design."""

    bytes: int
    lookups: int
    candidates: float
    nanoseconds: float
    single_nanoseconds: float
    reads: float


def _block_costs(candidate: Design, n: int, sample: Sample | None, blocks: Blocks, shapes: Shapes) -> _Costs:
    bits = table_bits(n, blocks, candidate.width.bits)
    packed = _packed(bits, n, blocks, shapes)
    tables_bytes = int(n * bits / 8 * len(candidate.tables)) + packed.filter_bytes
    met = _met(candidate, n, candidate.radius, shapes, sample)
    batch, single = (_block_nanoseconds(candidate, n, met, packed, queries) for queries in (BATCH_QUERIES, 1))
    if _reads_all(met):
        return _Costs(tables_bytes, 1, float(n), batch, single, 1 + n * bits / 8 * COLD_BYTE_NS / COLD_READ_NS)
    lookups = sum(each.lookup.variant_count for each in met)
    candidates = sum(each.lookup.variant_count * each.found for each in met)
    reads = 0.0
    for each in met:
        opened = 1 + each.found / packed.per_block * blocks.bytes / 4096
        reads += each.lookup.variant_count * (each.passing * opened + int(each.lookup.filtered))
    return _Costs(tables_bytes, lookups, candidates, batch, single, reads)


class _Met(NamedTuple):
    """The entries that a probe meets in one table."""

    lookup: TableLookup
    found: float  # entries, for one variant of the prefix
    passing: float  # the share of the variants that open a block


def _met(design: Design, n: int, radius: int, shapes: Shapes, sample: Sample | None) -> list[_Met]:
    looked_up = design.lookups(n, radius, {table: shape.prefix_bits for table, shape in shapes.items()})
    if looked_up == (_WHOLE,):
        return [_Met(_WHOLE, float(n), 1.0)]

    def found(lookup: TableLookup, prefix_bits: int) -> float:
        if sample is None:
            return n / 2.0**prefix_bits
        return n * sample.within(design.tables[lookup.table], prefix_bits, lookup.flips) / lookup.variant_count

    met = []
    for lookup in looked_up:
        passing = 1.0
        if lookup.filtered:
            shape = shapes[lookup.table]
            passing = shape.passing(found(lookup, shape.prefix_bits))
        met.append(_Met(lookup, found(lookup, lookup.prefix_bits), passing))
    return met


_WHOLE = TableLookup(0, 0, 0)


def _reads_all(met: list[_Met]) -> bool:
    return [each.lookup for each in met] == [_WHOLE]


class _Packed(NamedTuple):
    per_block: float  # entries
    codec: str
    filter_bytes: int  # the filters of all tables


def _packed(bits: float, n: int, blocks: Blocks, shapes: Shapes) -> _Packed:
    """Return how tables of n entries of a width are packed."""
    filter_bytes = sum(shape.file_bytes(n) for shape in shapes.values())
    return _Packed(max(blocks.bytes * 8 / bits, 1.0), blocks.codec, filter_bytes)


def _block_nanoseconds(design: Design, n: int, met: list[_Met], packed: _Packed, queries: int) -> float:
    if _reads_all(met):
        return scan_nanoseconds(n, design.width.words, queries)
    total = 0.0
    for lookup, found, passing in met:
        opened = lookup.variant_count * passing
        if lookup.filtered:
            total += lookup.variant_count * filter_nanoseconds(packed.filter_bytes)
        if opened:
            total += opened * lookup_nanoseconds(n, packed.per_block, packed.codec, found / passing, queries * opened)
    return total


def filters_of(design: Design, fingerprint_count: int, blocks: Blocks) -> Shapes:
    """Return the shapes of filters by table: all filters if they are wanted, otherwise the filters that pay."""
    if blocks.filter is False or fingerprint_count == 0:
        return NO_FILTERS
    shapes = filter_shapes(design, fingerprint_count)
    if blocks.filter is True or not shapes:
        return shapes
    with_them, without = (_weighted(_block_costs(design, fingerprint_count, None, blocks, each)) for each in (shapes, NO_FILTERS))
    return shapes if with_them < without else NO_FILTERS


def _weighted(costs: _Costs) -> float:
    return weighted(mean_nanoseconds(costs.nanoseconds, costs.single_nanoseconds), costs.bytes)


def _ring_costs(candidate: Design, n: int, sample: Sample | None) -> _Costs:
    done = column_costs.work(candidate, n, candidate.radius, sample)
    left = done.copies + done.rows
    # A page of the directory, one or more pages of tags, and one page for each entry that is left.
    reads = 2 * done.lookups + done.candidates * column_costs.TAG_BYTES / _kernel.PAGE_BYTES + left
    tables_bytes = sum(column_costs.file_bytes(table, n) for table in candidate.tables)
    time = column_costs.nanoseconds(done)
    return _Costs(tables_bytes, int(done.lookups), done.candidates, time, time, reads)


def probe_nanoseconds(design: Design, fingerprint_count: int, radius: int, queries: int, blocks: Blocks) -> float:
    """Return the estimated time of one query of a batch over a uniform set, tables in memory, on one thread.

    The radius is at most the design's.
    """
    n = max(fingerprint_count, 1)
    if design.ring:
        return column_costs.batch_nanoseconds(column_costs.work(design, n, radius), design, queries)
    shapes = filters_of(design, n, blocks)
    packed = _packed(table_bits(n, blocks, design.width.bits), n, blocks, shapes)
    return _block_nanoseconds(design, n, _met(design, n, radius, shapes, None), packed, queries)
