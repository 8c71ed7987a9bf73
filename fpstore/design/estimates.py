"""Estimates of the costs of a design for a set of n fingerprints, before it is built.

Sizes follow from the code (docs/design.md), times from the constants of
:mod:`fpstore.design.costs`, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import lgamma, log, log2
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.base.width import WIDTH_64, WORD_BITS, Width
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN, BlockPacking, default_block_bytes
from fpstore.design.costs import (
    BATCH_QUERIES,
    COLD_BYTE_NS,
    COLD_READ_NS,
    COLUMN_NANOSECONDS,
    NANOSECONDS,
    TAG_BYTES,
    block_work,
    column_batch_nanoseconds,
    column_bytes,
    column_work,
    estimated_time,
    filter_nanoseconds,
    mean_nanoseconds,
    scan_nanoseconds,
    time_space_cost,
)
from fpstore.design.families import Design
from fpstore.design.filters import FilterShape, filter_shapes
from fpstore.design.sample import Sample
from fpstore.design.tables import TableLookup

ENTRY_BITS = {  # for uniform keys, above log2(2^width / n)
    # the code of h, 3.29 in the mean, and the bits behind it, which are 0.11 more than log2 of the
    # gap
    HUFFMAN: 3.40,
    ELIAS_FANO: 1.96,  # between 1.91 and 2, as the mean gap is between two powers of two
}
DIRECTORY_BYTES = 0.75  # for each block: a slot of four to eight bytes for eight keys
ID_BYTES = 4.0
Shapes = Mapping[int, FilterShape]  # by table
NO_FILTERS: Shapes = MappingProxyType({})
FOLDER_BYTES = 20_480  # an empty id map, an empty log and a manifest
# numbers of changes for which memory is estimated; an index begins between two of them
DELTA_CHANGES = (10_000, 100_000, 300_000)
# with fewer fingerprints, headers, pages and last blocks dominate bytes per fingerprint
MIN_FINGERPRINTS_FOR_BYTES = 1 << 12


class Requirements(NamedTuple):
    """What decides about a design besides the number of fingerprints and the radius.

    See :func:`fpstore.plan`.
    """

    width: Width = WIDTH_64
    disk_budget: int | None = None
    memory_budget: int | None = None
    storage: str = "hot"
    blocks: BlockPacking | None = None
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
        The estimated time of a probe in a batch of 4,096, with one thread, tables in memory, and a
        processor with AVX2.
    single_microseconds : float
        The estimated time of a single probe, without the call from Python, which takes as long for
        every design.
    cold_milliseconds : float
        The estimated time of a probe when every block comes from a solid-state disk, one read at a
        time.
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
        costs = (
            f"{self.bytes_per_fingerprint:.1f} bytes per fingerprint, {self.microseconds:.1f} "
            "microseconds"
        )
        return (
            f"<fpstore.Plan: {self.name}, radius {self.design.radius}, "
            f"{costs}{', chosen' if self.chosen else ''}>"
        )

    @property
    def name(self) -> str:
        """The design's name."""
        return self.design.name

    @property
    def mean_microseconds(self) -> float:
        """The mean of both times, the second with 3 microseconds for the call from Python.

        Designs are ranked by it.
        """
        return mean_nanoseconds(1000 * self.microseconds, 1000 * self.single_microseconds) / 1000

    @property
    def delta_bytes_per_change(self) -> Mapping[int, float]:
        """Bytes of memory of a change before a merge, by the number of changes.

        The text of a new string id is not included.
        """
        return {
            changes: delta_bytes(self.design.radius, self.design.width.bits, changes)
            for changes in DELTA_CHANGES
        }


@lru_cache
def delta_bytes(radius: int, width: int, changes: int) -> float:
    """Return the bytes of memory per change of a delta, which is made for it."""
    delta = _kernel.Delta(radius, np.arange(width, dtype=np.uint8))
    fingerprints = np.frombuffer(np.random.default_rng(0).bytes(changes * width // 8), np.uint8)
    ids, kinds = np.arange(changes, dtype=np.uint64), np.zeros(changes, np.uint8)
    delta.load(changes)
    delta.apply(kinds, Width(width).from_bytes(fingerprints), ids, kinds, 1)
    delta.index()
    return delta.memory_bytes / changes


def limit_bits(fingerprint_count: int, width: int = WORD_BITS) -> float:
    """Return log2 C(2^width, n) / n: the least mean bits per fingerprint of a set of n."""
    n = fingerprint_count
    if n == 0:
        return 0.0
    if width <= 32:
        # lgamma(N + 1) - lgamma(N - n + 1) - lgamma(n + 1) of N = 2^width; doubles are exact enough
        # for so few values
        return (lgamma(2.0**width + 1) - lgamma(2.0**width - n + 1) - lgamma(n + 1)) / log(2) / n
    # log2 of N (N - 1) ... (N - n + 1) / n!; the falling factorial is N^n to within n^2 / 2N.
    falling = float(width) * n - n * (n - 1) / 2 / 2.0**width / log(2)
    return (falling - lgamma(n + 1) / log(2)) / n


def table_bits(
    fingerprint_count: int, blocks: BlockPacking | None = None, width: int = WORD_BITS
) -> float:
    """Return the estimated bits per fingerprint of a table for uniform keys, with all overhead."""
    n = max(fingerprint_count, 1)
    block_bytes, codec, _ = blocks or BlockPacking(default_block_bytes(width))
    entry = max(width - log2(max(n, 2)), 1.0) + ENTRY_BITS[codec]
    key_bytes = Width(width).words * 8  # in the key index
    # half of the coded part of an entry stays unused at the end of a block
    room = block_bytes * 8 - min(entry, WORD_BITS) / 2
    # The header has 16 bytes with a code, the leading word of the first entry included; 8 bytes
    # without one.
    per_block = 1 + (room - 64 - key_bytes * 8) / entry if codec == HUFFMAN else (room - 64) / entry
    # A file has whole blocks, and at least one.
    bits = max(
        (block_bytes + key_bytes + DIRECTORY_BYTES) * 8 / per_block,
        (block_bytes + 16 + key_bytes) * 8 / n,
    )
    return bits + _kernel.HEADER_BYTES * 8 / n


def estimate(
    candidate: Design,
    fingerprint_count: int,
    required: Requirements | None = None,
    sample: Sample | None = None,
) -> Plan:
    """Return the estimated costs of a design over n fingerprints, uniform or like the sample."""
    n = max(fingerprint_count, 1)
    required = required or Requirements(candidate.width)
    blocks = required.blocks or BlockPacking(default_block_bytes(candidate.width.bits))
    shapes = choose_filters(candidate, n, blocks)
    costs = (
        _ring_costs(candidate, n, sample)
        if candidate.ring
        else _BlockModel(candidate, n, blocks, shapes, sample).costs()
    )
    disk_bytes = costs.bytes + int(n * ID_BYTES) + FOLDER_BYTES
    reason = ""
    if required.disk_budget is not None and disk_bytes > required.disk_budget:
        reason = "over the disk budget"
    elif required.memory_budget is not None and costs.bytes > required.memory_budget:
        reason = "over the memory budget"
    return Plan(
        candidate,
        len(shapes),
        costs.bytes / n,
        disk_bytes,
        costs.lookups,
        costs.candidates,
        costs.nanoseconds / 1000,
        costs.single_nanoseconds / 1000,
        costs.reads * COLD_READ_NS / 1e6,
        not reason,
        reason,
    )


class _Costs(NamedTuple):
    """The work of one query in all tables of a design."""

    bytes: int
    lookups: int
    candidates: float
    nanoseconds: float
    single_nanoseconds: float
    reads: float


class _LookupLoad(NamedTuple):
    """The entries that a probe meets in one table."""

    lookup: TableLookup
    entries: float  # for one variant of the prefix
    passing: float  # the share of the variants that open a block


_WHOLE = TableLookup(0, 0, 0)


class _BlockModel:
    """The bytes and the time of tables of blocks with n fingerprints, for probes of a radius."""

    def __init__(
        self,
        design: Design,
        n: int,
        blocks: BlockPacking,
        shapes: Shapes,
        sample: Sample | None = None,
        radius: int | None = None,
    ) -> None:
        bits = table_bits(n, blocks, design.width.bits)
        self._design, self._n, self._blocks, self._shapes, self._sample = (
            design,
            n,
            blocks,
            shapes,
            sample,
        )
        self._table_bytes = n * bits / 8
        self._per_block = max(blocks.bytes * 8 / bits, 1.0)
        self._filter_bytes = sum(shape.file_bytes(n) for shape in shapes.values())
        lookups = design.lookups(
            n, radius, {table: shape.prefix_bits for table, shape in shapes.items()}
        )
        self._reads_all = lookups == (_WHOLE,)
        self._loads = (
            [_LookupLoad(_WHOLE, float(n), 1.0)]
            if self._reads_all
            else list(map(self._load, lookups))
        )

    def _load(self, lookup: TableLookup) -> _LookupLoad:
        shape = self._shapes[lookup.table] if lookup.filtered else None
        passing = (
            1.0 if shape is None else shape.passing_share(self._entries(lookup, shape.prefix_bits))
        )
        return _LookupLoad(lookup, self._entries(lookup, lookup.prefix_bits), passing)

    def _entries(self, lookup: TableLookup, prefix_bits: int) -> float:
        if self._sample is None:
            return self._n / 2.0**prefix_bits
        table = self._design.tables[lookup.table]
        return (
            self._n * self._sample.within(table, prefix_bits, lookup.flips) / lookup.variant_count
        )

    def nanoseconds(self, queries: int) -> float:
        """Return the time of one query of a batch."""
        if self._reads_all:
            return scan_nanoseconds(self._n, self._design.width.words, queries)
        total = 0.0
        for lookup, entries, passing in self._loads:
            opened = lookup.variant_count * passing
            if lookup.filtered:
                total += lookup.variant_count * filter_nanoseconds(self._filter_bytes)
            if opened:
                work = block_work(self._n, self._per_block, entries / passing, queries * opened)
                total += opened * estimated_time(work, NANOSECONDS[self._blocks.codec])
        return total

    def costs(self) -> _Costs:
        """Return the bytes, and the work of one query."""
        size = int(self._table_bytes * len(self._design.tables)) + self._filter_bytes
        batch, single = self.nanoseconds(BATCH_QUERIES), self.nanoseconds(1)
        if self._reads_all:
            return _Costs(
                size,
                1,
                float(self._n),
                batch,
                single,
                1 + self._table_bytes * COLD_BYTE_NS / COLD_READ_NS,
            )
        lookups = sum(load.lookup.variant_count for load in self._loads)
        candidates = sum(load.lookup.variant_count * load.entries for load in self._loads)
        reads = 0.0
        for load in self._loads:
            opened = 1 + load.entries / self._per_block * self._blocks.bytes / 4096
            reads += load.lookup.variant_count * (load.passing * opened + int(load.lookup.filtered))
        return _Costs(size, lookups, candidates, batch, single, reads)


def choose_filters(design: Design, fingerprint_count: int, blocks: BlockPacking) -> Shapes:
    """Return the shapes of filters by table: all if they are wanted, otherwise those that pay."""
    if blocks.filter is False or fingerprint_count == 0:
        return NO_FILTERS
    shapes = filter_shapes(design, fingerprint_count)
    if blocks.filter is True or not shapes:
        return shapes

    def cost(shapes: Shapes) -> float:
        costs = _BlockModel(design, fingerprint_count, blocks, shapes).costs()
        return time_space_cost(
            mean_nanoseconds(costs.nanoseconds, costs.single_nanoseconds), costs.bytes
        )

    return shapes if cost(shapes) < cost(NO_FILTERS) else NO_FILTERS


def _ring_costs(candidate: Design, n: int, sample: Sample | None) -> _Costs:
    work = column_work(candidate, n, candidate.radius, sample)
    # A page of the directory, one or more pages of tags, and one page for each entry with a near
    # tag.
    reads = (
        2 * work.lookups
        + work.candidates * TAG_BYTES / _kernel.PAGE_BYTES
        + (work.copies + work.rows)
    )
    tables_bytes = sum(column_bytes(table, n) for table in candidate.tables)
    time = estimated_time(work, COLUMN_NANOSECONDS)
    return _Costs(tables_bytes, int(work.lookups), work.candidates, time, time, reads)


def probe_nanoseconds(
    design: Design, fingerprint_count: int, radius: int, queries: int, blocks: BlockPacking
) -> float:
    """Return the estimated time of one query of a batch on one thread, tables in memory.

    The set is uniform; the radius is at most the design's.
    """
    n = max(fingerprint_count, 1)
    if design.ring:
        return column_batch_nanoseconds(column_work(design, n, radius), design, queries)
    return _BlockModel(
        design, n, blocks, choose_filters(design, n, blocks), radius=radius
    ).nanoseconds(queries)
