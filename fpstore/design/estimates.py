"""The costs of a design for a set of n fingerprints, before it is built.

Sizes follow from the code (docs/design.md), times from the constants of :mod:`fpstore.design.costs`, the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log, log2, sqrt
from typing import NamedTuple

from fpstore import _kernel
from fpstore.design import column_costs
from fpstore.design.blocks import ELIAS_FANO, HUFFMAN, Blocks, default_block_bytes
from fpstore.design.costs import BATCH_QUERIES, COLD_BYTE_NS, COLD_READ_NS, lookup_nanoseconds, scan_nanoseconds
from fpstore.design.families import Design
from fpstore.design.sample import Sample
from fpstore.design.tables import TableLookup
from fpstore.width import WIDTH_64, WORD_BITS, Width

ENTRY_BITS = {  # of uniform keys, above log2(2^width / n)
    HUFFMAN: 3.40,  # the code of h, 3.29 in the mean, and the bits behind it, which are 0.11 more than log2 of the gap
    ELIAS_FANO: 1.96,  # between 1.91 and 2, as the mean gap is between two powers of two
}
DIRECTORY_BYTES = 0.75  # of a block: a slot of four to eight bytes for eight keys
ID_BYTES = 4.0
FOLDER_BYTES = 20_480  # all else of a store: what an empty id map, an empty log and a manifest take


class Requirements(NamedTuple):
    """What a design is chosen by, besides the number of fingerprints and the radius; see :func:`fpstore.plan`."""

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
    bytes_per_fingerprint : float
        Of all tables, without ids.
    disk_bytes : int
        Tables, dense ids, and the files of an empty store.
    lookups : int
        Prefix look-ups per probe.
    candidates : float
        Entries compared per probe.
    microseconds : float
        Estimated time of one probe in a batch of 4,096, one thread, tables in memory, on a processor with AVX2.
    single_microseconds : float
        The same of a probe alone, which shares no block with others; without what every probe takes, whatever the design.
    cold_milliseconds : float
        Estimated time of one probe when every block comes from a solid-state disk, one read at a time.
    fits : bool
        Whether the design is within the budgets.
    reason : str
        Why it is not, or an empty string.
    chosen : bool
        Whether ``design="auto"`` takes this one, by :func:`~fpstore.design.preference.preferred`.
    """

    design: Design
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
        """The geometric mean of both times, by which designs are ranked: stores are asked one query at a time, and many."""
        return sqrt(self.microseconds * self.single_microseconds)


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
    block_bytes, codec = blocks or Blocks(default_block_bytes(width))
    entry = max(width - log2(max(n, 2)), 1.0) + ENTRY_BITS[codec]
    key_bytes = Width(width).words * 8  # in the index
    room = block_bytes * 8 - min(entry, WORD_BITS) / 2  # half of what is coded of an entry is left over
    # With a code, a header of 16 bytes, with the leading word of the first entry in it; else one of 8 bytes.
    per_block = 1 + (room - 64 - key_bytes * 8) / entry if codec == HUFFMAN else (room - 64) / entry
    # A file has whole blocks, and at least one.
    bits = max((block_bytes + key_bytes + DIRECTORY_BYTES) * 8 / per_block, (block_bytes + 16 + key_bytes) * 8 / n)
    return bits + _kernel.HEADER_BYTES * 8 / n


def estimate(
    candidate: Design, fingerprint_count: int, required: Requirements | None = None, sample: Sample | None = None
) -> Plan:
    """Return the estimated costs of a design over n fingerprints: uniform ones, or a set like the sample."""
    n = max(fingerprint_count, 1)
    required = required or Requirements(candidate.width)
    costs = _ring_costs(candidate, n, sample) if candidate.ring else _block_costs(candidate, n, sample, required.blocks)
    disk_bytes = costs.bytes + int(n * ID_BYTES) + FOLDER_BYTES
    reason = ""
    if required.disk_budget is not None and disk_bytes > required.disk_budget:
        reason = "over the disk budget"
    elif required.memory_budget is not None and costs.bytes > required.memory_budget:
        reason = "over the memory budget"
    return Plan(
        candidate, costs.bytes / n, disk_bytes, costs.lookups, costs.candidates, costs.nanoseconds / 1000,
        costs.single_nanoseconds / 1000, costs.reads * COLD_READ_NS / 1e6, not reason, reason,
    )  # fmt: skip


class _Costs(NamedTuple):
    """Of all tables of a design, and of one query."""

    bytes: int
    lookups: int
    candidates: float
    nanoseconds: float
    single_nanoseconds: float
    reads: float


def _block_costs(candidate: Design, n: int, sample: Sample | None, blocks: Blocks | None) -> _Costs:
    blocks = blocks or Blocks(default_block_bytes(candidate.width.bits))
    bits = table_bits(n, blocks, candidate.width.bits)
    per_block = max(blocks.bytes * 8 / bits, 1.0)
    tables_bytes = int(n * bits / 8 * len(candidate.tables))
    met = _met(candidate, n, candidate.radius, sample)
    batch, single = (
        _block_nanoseconds(candidate, n, met, _Packed(per_block, blocks.codec), queries) for queries in (BATCH_QUERIES, 1)
    )
    if _reads_all(met):
        return _Costs(tables_bytes, 1, float(n), batch, single, 1 + n * bits / 8 * COLD_BYTE_NS / COLD_READ_NS)
    lookups = sum(lookup.variant_count for lookup, _ in met)
    candidates = sum(lookup.variant_count * found for lookup, found in met)
    reads = sum(lookup.variant_count * (1 + found / per_block * blocks.bytes / 4096) for lookup, found in met)
    return _Costs(tables_bytes, lookups, candidates, batch, single, reads)


_Met = list[tuple[TableLookup, float]]  # look-ups, each with the entries that one of its variants meets


def _met(design: Design, n: int, radius: int, sample: Sample | None) -> _Met:
    looked_up = design.lookups(n, radius)
    if sample is None or looked_up == (_WHOLE,):
        return [(lookup, n / 2.0**lookup.prefix_bits) for lookup in looked_up]
    return [
        (lookup, n * sample.within(design.tables[lookup.table], lookup.prefix_bits, lookup.flips) / lookup.variant_count)
        for lookup in looked_up
    ]


_WHOLE = TableLookup(0, 0, 0)


def _reads_all(met: _Met) -> bool:
    return [lookup for lookup, _ in met] == [_WHOLE]


class _Packed(NamedTuple):
    per_block: float  # entries
    codec: str


def _block_nanoseconds(design: Design, n: int, met: _Met, packed: _Packed, queries: int) -> float:
    if _reads_all(met):
        return scan_nanoseconds(n, design.width.words, queries)
    return sum(
        lookup.variant_count * lookup_nanoseconds(n, *packed, found, queries * lookup.variant_count) for lookup, found in met
    )


def _ring_costs(candidate: Design, n: int, sample: Sample | None) -> _Costs:
    done = column_costs.work(candidate, n, candidate.radius, sample)
    left = done.copies + done.rows
    # A page of the directory, one or more of tags, and one of each entry that is left.
    reads = 2 * done.lookups + done.candidates * column_costs.TAG_BYTES / _kernel.PAGE_BYTES + left
    tables_bytes = sum(column_costs.file_bytes(table, n) for table in candidate.tables)
    time = column_costs.nanoseconds(done)
    return _Costs(tables_bytes, int(done.lookups), done.candidates, time, time, reads)


def probe_nanoseconds(design: Design, fingerprint_count: int, radius: int, queries: int, blocks: Blocks) -> float:
    """Return the estimated time of one of so many queries of a radius over a uniform set, tables in memory, on one thread.

    The radius is at most the design's.
    """
    n = max(fingerprint_count, 1)
    if design.ring:
        return column_costs.batch_nanoseconds(column_costs.work(design, n, radius), design, queries)
    packed = _Packed(max(blocks.bytes * 8 / table_bits(n, blocks, design.width.bits), 1.0), blocks.codec)
    return _block_nanoseconds(design, n, _met(design, n, radius, None), packed, queries)
