"""Cost model of look-ups: amounts of work and measured prices.

The times were measured on a processor with AVX2 but not AVX-512, or on one restricted to AVX2 (``FPSTORE_ISA=avx2``). AVX-512
opens and compares blocks faster, so there designs with many candidates are cheaper than estimated. A design must not depend on
the machine that chose it, so these constants are used everywhere.
"""

from __future__ import annotations

from math import exp, log2
from typing import NamedTuple

from fpstore.design.blocks import ELIAS_FANO, HUFFMAN

SPEED_FOR_TWICE_THE_BYTES = 3  # `auto` takes twice the bytes for this many times the speed
BATCH_QUERIES = 1 << 12  # the batch that is priced; larger batches share more blocks
COLD_READ_NS = 100_000.0  # a random page of a solid-state disk, read alone
COLD_BYTE_NS = 1.0  # a byte of a file that is read from its start to its end

# As in the kernel (Portable, Avx2 and Avx512 in _native/isa).
EXPAND_FROM = 64  # a look-up that expects this many entries compares whole blocks
SWEEP_LOOKUPS = 1 << 11  # a table with fewer look-ups is not swept
SWEEP_DENSITY = 4 / 5  # a table with fewer look-ups per block is not swept


class ProbeWork(NamedTuple):
    """The average work of one look-up, in the units priced by :data:`NANOSECONDS`."""

    lookups: float  # directory, key, place in the block
    blocks: float  # read, checked, codes decoded
    decoded: float  # entries decoded one by one and compared
    expanded: float  # whole blocks decoded
    compared: float  # entries of these blocks compared


# By codec; fitted by `python tools/bench costs`, AVX2.
NANOSECONDS = {
    HUFFMAN: ProbeWork(lookups=43.0, blocks=270.0, decoded=0.4, expanded=56.0, compared=0.19),
    ELIAS_FANO: ProbeWork(lookups=36.0, blocks=128.0, decoded=0.96, expanded=88.0, compared=0.07),
}

# Of a look-up that asks a filter, and what each that the cache does not have adds: by `tools/bench filters`, times 1.8, by
# which the processor of the other prices was slower.
FILTER_NS, FILTER_MISS_NS = 28.0, 45.0
OPENED_TESTS = 25.0  # the price of an opened block, in tests of a word, when the shape of a filter is chosen
CACHE_BYTES = 32 << 20  # a typical share of a processor's cache
CALL_NS = 3_000.0  # the Python code around a single probe

# Of one query in one entry of a scan, in a batch that shares the decoding of the blocks, and of decoding an entry; and what each
# further word of a fingerprint adds. Fitted in the same way.
SCAN_ENTRY_NS, SCAN_WORD_NS = 0.75, 0.03
DECODE_ENTRY_NS, DECODE_WORD_NS = 3.4, 1.8


def scan_nanoseconds(fingerprint_count: int, words: int, queries: int) -> float:
    """Return the estimated time of one query of a scan in a batch of ``queries``, tables in memory, on one thread.

    All queries share the decoding of the blocks.
    """
    compared = SCAN_ENTRY_NS + (words - 1) * SCAN_WORD_NS
    decoded = DECODE_ENTRY_NS + (words - 1) * DECODE_WORD_NS
    return max(fingerprint_count, 1) * (compared + decoded / queries)


def work(fingerprint_count: int, per_block: float, found: float, lookups: float) -> ProbeWork:
    """Return the work of one look-up in a table.

    Parameters
    ----------
    fingerprint_count : int
    per_block : float
        Entries per block.
    found : float
        Entries with the prefix, on average.
    lookups : float
        Look-ups of the batch in this table. If there are many, they share the blocks that they open.
    """
    blocks = max(fingerprint_count / per_block, 1.0)
    spanned = min(1 + found / per_block, blocks)
    opened = spanned
    if lookups >= max(SWEEP_LOOKUPS, SWEEP_DENSITY * blocks):
        density = lookups / blocks
        # A block is opened once if any look-up spans it.
        opened = min((1 - exp(-density * spanned)) / density, spanned)
    if found < EXPAND_FROM:
        return ProbeWork(1, opened, found, 0, 0)
    return ProbeWork(1, opened, 0, opened, spanned * per_block)


def lookup_nanoseconds(fingerprint_count: int, per_block: float, codec: str, found: float, lookups: float) -> float:
    """Return the estimated time of one look-up, tables in memory, on one thread."""
    done = work(fingerprint_count, per_block, found, lookups)
    return sum(amount * price for amount, price in zip(done, NANOSECONDS[codec], strict=True))


def filter_nanoseconds(size: int) -> float:
    """Return the estimated time of one look-up, for the size of all filters together."""
    return FILTER_NS + FILTER_MISS_NS * max(1 - CACHE_BYTES / max(size, 1), 0.0)


def mean_nanoseconds(in_batch: float, alone: float) -> float:
    """Return the mean of the time of a probe in a batch and of a single probe with its call from Python."""
    return (in_batch + alone + CALL_NS) / 2


def weighted(time: float, size: float) -> float:
    """Return time x bytes^e, with e such that twice the bytes weigh as much as SPEED_FOR_TWICE_THE_BYTES times the time."""
    return time * float(size ** log2(SPEED_FOR_TWICE_THE_BYTES))
