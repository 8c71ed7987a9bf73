"""The planner: the costs of each design for a set of n fingerprints, and the choice of ``auto`` within the budgets.

Sizes follow from the code (docs/design.md), times from the constants of :mod:`fpstore.design.costs`, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import lgamma, log, log2
from typing import Any, NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.arguments import check_choice, check_whole
from fpstore.design import column_costs
from fpstore.design.block_bytes import check_block_bytes, default_block_bytes
from fpstore.design.costs import BATCH_QUERIES, COLD_BYTE_NS, COLD_READ_NS, lookup_nanoseconds, scan_nanoseconds
from fpstore.design.families import MANKU, SCAN, TAG_BITS, Design, TableLookup, TableSpec, check_radius, lookup_radius
from fpstore.design.families import design as make_design
from fpstore.errors import InputError
from fpstore.io import check_fingerprints
from fpstore.resources import parse_size, total_memory
from fpstore.width import WIDTH_64, WORD_BITS, Width, check_width, leading_words

# `auto` accepts twice the bytes for this many times the speed.
SPEED_FOR_TWICE_THE_BYTES = 1.5

CODE_BITS = 3.29  # mean code length of h on uniform keys
ENTRY_OVERHEAD_BITS = (20 + 8 + 1 - 8 + 2.7) * 8  # block header, key, directory, less the first fingerprint, padding
HEADER_BYTES = 4096  # of a table file
ID_BYTES = 4.0
FOLDER_BYTES = 20_480  # all else of a store: what an empty id map, an empty log and a manifest take
SAMPLE_SIZE = 1 << 14
MANY_ERRORS = 7  # above this radius, few striped blocks with flips are compared, too
STORAGE = ("hot", "cold")
PREFER = ("balance", "speed", "space")
NO_BUDGET = 1 << 62
COLUMN_BLOCKS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
MOST_COLUMN_ENTRIES = (1 << 32) - 1


@dataclass(frozen=True)
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
        Entries compared per probe, on uniform data.
    microseconds : float
        Estimated time of one probe in a batch of 4,096, one thread, tables in memory, on a processor with AVX2.
    cold_milliseconds : float
        Estimated time of one probe when every block comes from a solid-state disk, one read at a time.
    fits : bool
        Whether the design is within the budgets.
    reason : str
        Why it is not, or an empty string.
    chosen : bool
        Whether ``design="auto"`` takes this one, by :func:`preferred`.
    """

    design: Design
    bytes_per_fingerprint: float
    disk_bytes: int
    lookups: int
    candidates: float
    microseconds: float
    cold_milliseconds: float
    fits: bool
    reason: str
    chosen: bool = False

    @property
    def name(self) -> str:
        """The design's name."""
        return self.design.name


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


def table_bits(fingerprint_count: int, block_bytes: int | None = None, width: int = WORD_BITS) -> float:
    """Return the estimated bits per fingerprint of one table for uniform keys, including all overhead."""
    n = max(fingerprint_count, 1)
    block_bytes = default_block_bytes(width) if block_bytes is None else block_bytes
    entry = max(width - log2(max(n, 2)), 1.0) + CODE_BITS
    key_bytes = Width(width).words * 8  # in the index
    per_block = max((block_bytes * 8 - 20 * 8 - 22) / entry + 1, 1.0)
    # A file has whole blocks, and at least one.
    bits = max(entry + (ENTRY_OVERHEAD_BITS + (key_bytes - 8) * 8) / min(per_block, n), (block_bytes + 16 + key_bytes) * 8 / n)
    return bits + HEADER_BYTES * 8 / n


class Sample:
    """A random sample of a set's fingerprints, and estimates from it.

    Parameters
    ----------
    fingerprints : ndarray of uint64, rows
    width : Width
    """

    def __init__(self, fingerprints: Words, width: Width) -> None:
        self._values = np.ascontiguousarray(fingerprints[:: max(len(fingerprints) // SAMPLE_SIZE, 1)][:SAMPLE_SIZE])
        self._width = width
        bits = np.unpackbits(width.to_bytes(self._values), axis=1)
        ones = bits.mean(axis=0) if len(self._values) else np.full(width.bits, 0.5)
        # How likely the other value of each source bit is, relative to its own.
        self._evenness = np.minimum(ones, 1 - ones) / np.maximum(ones, 1 - ones)

    def share(self, table: TableSpec, prefix_bits: int) -> float:
        """Return the share of the set that has the same leading bits in a table as one of its fingerprints."""
        permuted = _kernel.permute(self._values, np.frombuffer(table.permutation, np.uint8), False)
        leads = leading_words(permuted)
        leading = leads >> np.uint64(64 - prefix_bits) if prefix_bits else np.zeros_like(leads)
        _, counts = np.unique(leading, return_counts=True)
        m = len(self._values)
        pairs = float(np.sum(counts * (counts - 1.0)))
        return max(pairs / (m * (m - 1)), 2.0**-prefix_bits)

    def flipped(self, table: TableSpec, prefix_bits: int) -> float:
        """Return the average number of entries of a look-up with one flipped bit, relative to one with none."""
        return float(self._evenness[list(table.permutation[:prefix_bits])].mean()) if prefix_bits else 1.0

    def near_tags(self, table: TableSpec, most: int) -> float:
        """Return the share of pairs whose tags differ in at most so many bits."""
        permuted = _kernel.permute(self._values, np.frombuffer(table.permutation, np.uint8), False)
        leads = leading_words(permuted)
        tags = (leads << np.uint64(table.prefix_bits)) >> np.uint64(64 - table.tag_bits)
        distances = np.bitwise_count(tags ^ np.roll(tags, len(tags) // 2))
        return max(float((distances <= most).mean()), 1 / len(tags))

    @property
    def skewed(self) -> bool:
        """Whether some 16 successive bits take far fewer values than random bits would."""
        m = len(self._values)
        if m < SAMPLE_SIZE:
            return False
        bits = self._width.bits
        runs = [TableSpec(bytes((bit + start) % bits for bit in range(bits)), 16) for start in range(0, bits, 16)]
        return any(self.share(run, 16) > 1.5 / 2**16 for run in runs)


def estimate(
    candidate: Design,
    fingerprint_count: int,
    *,
    sample: Sample | None = None,
    disk_budget: int | None = None,
    memory_budget: int | None = None,
    block_bytes: int | None = None,
) -> Plan:
    """Return the estimated costs of a design over n fingerprints: uniform ones, or a set like the sample."""
    n = max(fingerprint_count, 1)
    costs = _ring_costs(candidate, n, sample) if candidate.ring else _block_costs(candidate, n, sample, block_bytes)
    disk_bytes = costs.bytes + int(n * ID_BYTES) + FOLDER_BYTES
    reason = ""
    if disk_budget is not None and disk_bytes > disk_budget:
        reason = "over the disk budget"
    elif memory_budget is not None and costs.bytes > memory_budget:
        reason = "over the memory budget"
    return Plan(
        candidate, costs.bytes / n, disk_bytes, costs.lookups, costs.candidates, costs.nanoseconds / 1000,
        costs.reads * COLD_READ_NS / 1e6, not reason, reason,
    )  # fmt: skip


class _Costs(NamedTuple):
    """Of all tables of a design, and of one query."""

    bytes: int
    lookups: int
    candidates: float
    nanoseconds: float
    reads: float


def _block_costs(candidate: Design, n: int, sample: Sample | None, block_bytes: int | None) -> _Costs:
    block_bytes = default_block_bytes(candidate.width.bits) if block_bytes is None else block_bytes
    bits = table_bits(n, block_bytes, candidate.width.bits)
    per_block = max(block_bytes * 8 / bits, 1.0)
    tables_bytes = int(n * bits / 8 * len(candidate.tables))
    looked_up = candidate.lookups(n)
    if looked_up == (TableLookup(0, 0, 0),):
        reads = 1 + n * bits / 8 * COLD_BYTE_NS / COLD_READ_NS
        return _Costs(tables_bytes, 1, float(n), scan_nanoseconds(n, candidate.width.words), reads)
    lookups = 0
    candidates = nanoseconds = reads = 0.0
    for lookup in looked_up:
        found = n / 2.0**lookup.prefix_bits
        if sample is not None:
            table = candidate.tables[lookup.table]
            own = n * sample.share(table, lookup.prefix_bits)
            others = sample.flipped(table, lookup.prefix_bits) * (lookup.variant_count - 1)
            found = own * (1 + others) / lookup.variant_count
        more_blocks = found / per_block
        lookups += lookup.variant_count
        candidates += lookup.variant_count * found
        in_batch = BATCH_QUERIES * lookup.variant_count
        nanoseconds += lookup.variant_count * lookup_nanoseconds(n, per_block, found, in_batch)
        reads += lookup.variant_count * (1 + more_blocks * block_bytes / 4096)
    return _Costs(tables_bytes, lookups, candidates, nanoseconds, reads)


def _ring_costs(candidate: Design, n: int, sample: Sample | None) -> _Costs:
    done = column_costs.work(candidate, n, sample)
    left = done.copies + done.rows
    # A page of the directory, one or more of tags, and one of each entry that is left.
    reads = done.lookups + done.lines * column_costs.LINE_TAGS * column_costs.TAG_BYTES / 4096 + done.lookups + left
    tables_bytes = sum(column_costs.file_bytes(table, n) for table in candidate.tables)
    time = column_costs.nanoseconds(candidate, n, sample)
    return _Costs(tables_bytes, int(done.lookups), done.candidates, time, reads)


def candidates_for(
    radius: int, skewed: bool = False, width: int = WORD_BITS, fingerprint_count: int = 1 << 20
) -> Iterator[Design]:
    """Yield the designs worth considering: the paper's, other blocks, nested, flips, striped for skew; columns; a scan."""
    if radius:
        yield make_design(SCAN, radius, width)
    if radius <= lookup_radius(width):
        yield from _with_lookups(radius, skewed, width)
        if fingerprint_count <= MOST_COLUMN_ENTRIES:
            yield from _with_columns(radius, width, fingerprint_count)


def _with_columns(radius: int, width: int, fingerprint_count: int) -> Iterator[Design]:
    """Yield the best column tables of uniform fingerprints for each number of them."""
    for block_count in COLUMN_BLOCKS:
        designs = []
        for bucket_bits in column_costs.bucket_bits(block_count, width, fingerprint_count):
            usual = bucket_bits == min(width // block_count, TAG_BITS)
            name = f"columns-{block_count}" if usual else f"columns-{block_count}-{bucket_bits}"
            with suppress(InputError):  # too many look-ups
                made = make_design(name, radius, width)
                made.lookups(fingerprint_count)
                designs.append(estimate(made, fingerprint_count))
        if designs:
            yield knee(designs).design


@lru_cache(maxsize=64)
def _with_lookups(radius: int, skewed: bool, width: int) -> tuple[Design, ...]:
    found = []
    names = [name for name, (_, most) in MANKU.items() if radius <= most]
    shapes = {MANKU[name][0] for name in names}
    for block_count in range(radius + 2, min(radius + 5, 12)):
        for leading_count in range(1, block_count - radius + 1):
            name = f"blocks-{block_count}-{leading_count}"
            if name not in shapes and leading_count < block_count:
                names.append(name)
    if radius:
        nest = f"nested-{radius + 1}-{radius + 1}"
        if nest not in shapes:
            names.append(nest)
    names += [f"flip-{count}" for count in range(1, radius + 2)]
    if skewed and radius:
        if radius > MANY_ERRORS:
            names += [f"blocks-{count}-1" for count in range(2, MANY_ERRORS + 2)]
        names += [name.replace("blocks", "striped") for name in [*shapes, *names] if name.startswith("blocks")]
    seen = set()
    for name in names:
        with suppress(InputError):  # too many tables
            made = make_design(name, radius, width)
            if len(made.tables) <= 100 and made.tables not in seen:
                seen.add(made.tables)
                found.append(made)
    return tuple(found)


def plan(
    n: int,
    radius: int = 3,
    *,
    disk_budget: int | str | None = None,
    memory_budget: int | str | None = None,
    storage: str = "hot",
    block_bytes: int | None = None,
    sample: Any = None,
    prefer: str = "balance",
    width: int = WORD_BITS,
) -> list[Plan]:
    """Estimate every design for a set of n fingerprints, the one that ``auto`` takes first.

    Parameters
    ----------
    n : int
        The number of fingerprints.
    radius : int
        The largest radius of probes, 0 to the width. Above a quarter of it, a scan is the only plan.
    disk_budget : int or str, optional
        Bytes that tables and ids may take on disk, such as ``"40GB"``.
    memory_budget : int or str, optional
        Bytes of memory for the tables in the page cache; by default half of this machine's memory if ``storage`` is hot.
    storage : {"hot", "cold"}
        Whether the tables will be in the page cache (rank by microseconds) or on disk (rank by reads).

    sample : array or sequence of fingerprints, optional
        A random sample of the set, of which 16,384 fingerprints are used. If it is skewed, the entries that look-ups meet are
        estimated from its shared prefixes, and striped designs are compared too.
    prefer : {"balance", "speed", "space"}
        What ``auto`` takes of the plans that fit: the best compromise (see :func:`knee`), the fastest, or the smallest.
    width : int
        Bits of a fingerprint: 32, 64, 128 or 256.

    Returns
    -------
    list of Plan
        The chosen design (see :func:`preferred`), then the others that fit, then those that do not, each group by estimated time.

    Raises
    ------
    InputError
        A negative n, a radius outside 0 to the width, an unknown width, kind of storage or preference.

    Examples
    --------
    >>> import fpstore
    >>> best = fpstore.plan(1 << 24, radius=3)[0]
    >>> best.fits
    True
    """
    checked = check_width(width)
    radius = check_radius(radius, width)
    n = check_whole(n, 0, 2**64, "n")
    check_choice(storage, STORAGE, "storage")
    check_choice(prefer, PREFER, "prefer")
    block_bytes = default_block_bytes(width) if block_bytes is None else check_block_bytes(block_bytes)
    disk_budget = None if disk_budget is None else parse_size(disk_budget, "disk_budget")
    memory_budget = None if memory_budget is None else parse_size(memory_budget, "memory_budget")
    rows = None if sample is None else check_fingerprints(sample, checked)
    return _ranked(n, radius, checked, rows, disk_budget, memory_budget, storage, block_bytes, prefer)


def _ranked(
    n: int,
    radius: int,
    width: Width,
    sample: Words | None,
    disk_budget: int | None,
    memory_budget: int | None,
    storage: str,
    block_bytes: int,
    prefer: str,
) -> list[Plan]:
    """Return the plans in the order of :func:`plan`; the sample is of rows."""
    if memory_budget is None and storage == "hot":
        memory_budget = total_memory() // 2
    measured = None if sample is None else Sample(sample, width)
    if measured is not None and not measured.skewed:
        measured = None
    plans = _plans(n, radius, width.bits, measured, disk_budget, memory_budget, block_bytes)
    plans.sort(key=lambda p: (not p.fits, _cost(p, storage), p.bytes_per_fingerprint))
    if plans[0].fits:
        best = preferred([p for p in plans if p.fits], storage, prefer)
        plans.remove(best)
        plans.insert(0, replace(best, chosen=True))
    return plans


def _plans(
    n: int, radius: int, width: int, sample: Sample | None, disk_budget: int | None, memory_budget: int | None, block_bytes: int
) -> list[Plan]:
    plans = []
    for candidate in candidates_for(radius, sample is not None, width, n):
        try:
            plans.append(
                estimate(
                    candidate, n, sample=sample, disk_budget=disk_budget, memory_budget=memory_budget, block_bytes=block_bytes
                )
            )  # fmt: skip
        except InputError:
            continue  # more look-ups than a probe may make
    return plans


def _cost(p: Plan, storage: str) -> float:
    return p.microseconds if storage == "hot" else p.cold_milliseconds


def weighted_cost(p: Plan, storage: str = "hot") -> float:
    """Return time x bytes^0.585, which ``auto`` minimizes: twice the bytes weigh as much as 1.5 times the time.

    So the best plan never takes more than twice the bytes of one that takes at most 1.5 times its time, nor more than four times
    the bytes of one that takes at most 2.25 times its time, and so on.
    """
    return _cost(p, storage) * float(p.bytes_per_fingerprint ** log2(SPEED_FOR_TWICE_THE_BYTES))


def knee(plans: Sequence[Plan], storage: str = "hot") -> Plan:
    """Return the plan with the lowest weighted cost (:func:`weighted_cost`), and among equals the smaller.

    Parameters
    ----------
    plans : sequence of Plan
        At least one.
    storage : {"hot", "cold"}
        Which of the two times counts.
    """
    return min(plans, key=lambda p: (weighted_cost(p, storage), p.bytes_per_fingerprint, p.name))


def preferred(plans: Sequence[Plan], storage: str = "hot", prefer: str = "balance") -> Plan:
    """Return the plan that ``auto`` takes of those that fit, one at least: the knee, the fastest or the smallest."""
    if prefer == "speed":
        return min(plans, key=lambda p: (_cost(p, storage), p.bytes_per_fingerprint, p.name))
    if prefer == "space":
        return min(plans, key=lambda p: (p.bytes_per_fingerprint, _cost(p, storage), p.name))
    return knee(plans, storage)


class Crossover(NamedTuple):
    """Where a scan becomes cheaper than every design with look-ups.

    Attributes
    ----------
    radius : int
        The smallest radius for which it is, for so many fingerprints.
    fingerprints : int or None
        The largest number for which it is, to two digits, at this radius; None if it is for every number.
    """

    radius: int
    fingerprints: int | None


def crossover(n: int, radius: int, storage: str = "hot", width: int = WORD_BITS) -> Crossover:
    """Return where a scan becomes cheaper, for n fingerprints and for a radius, on uniform data and without budgets."""
    block_bytes, most_radius = default_block_bytes(width), lookup_radius(width)

    def scans(count: int, within: int) -> bool:
        if within == 0:
            return False
        if within > most_radius:
            return True
        fastest = min(_plans(count, within, width, None, None, NO_BUDGET, block_bytes), key=lambda p: _cost(p, storage))
        return fastest.name == SCAN

    first = next(r for r in range(most_radius + 2) if scans(n, r))
    if radius > most_radius:
        return Crossover(first, None)
    most = 0
    for step in (10**e for e in range(18, -1, -1)):
        while most < 100 * step and scans(most + step, radius):
            most += step
    return Crossover(first, most)


def choose(
    n: int,
    radius: int,
    *,
    disk_budget: int | None = None,
    width: Width = WIDTH_64,
    storage: str = "hot",
    block_bytes: int | None = None,
    sample: Words | None = None,
    prefer: str = "balance",
) -> Plan:
    """Return the plan that ``design="auto"`` takes, where the sample is of rows; InputError if none fits the disk budget."""
    size = default_block_bytes(width.bits) if block_bytes is None else block_bytes
    plans = _ranked(n, radius, width, sample, disk_budget, None, storage, size, prefer)
    if not plans[0].fits:
        # A store over the memory budget works, with misses of the page cache; one over the disk budget cannot be built.
        plans = _ranked(n, radius, width, sample, disk_budget, None, "cold", size, prefer)
    if not plans[0].fits:
        least = min(plans, key=lambda p: p.disk_bytes)
        raise InputError(
            f"no design fits the disk budget: {least.name} is the smallest at {least.disk_bytes} bytes",
            expected=disk_budget,
        )
    return plans[0]
