"""The planner: the costs of each design for a set of n fingerprints, and the choice of ``auto`` within the budgets.

Sizes follow from the code (docs/design.md), times from the constants of :mod:`fpstore.design.costs`, the same on every machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt, lgamma, log, log2, sqrt
from typing import Any, NamedTuple

from fpstore.aliases import Words
from fpstore.arguments import check_choice, check_whole
from fpstore.design import column_costs
from fpstore.design.block_bytes import check_block_bytes, default_block_bytes
from fpstore.design.costs import (
    BATCH_QUERIES,
    COLD_BYTE_NS,
    COLD_READ_NS,
    lookup_nanoseconds,
    scan_nanoseconds,
    single_scan_nanoseconds,
)
from fpstore.design.dealing import deal
from fpstore.design.families import DEALT, MANKU, SCAN, Design, check_radius, lookup_radius
from fpstore.design.families import design as make_design
from fpstore.design.sample import SAMPLE_SIZE, Sample
from fpstore.design.tables import TAG_BITS, TableLookup
from fpstore.errors import InputError
from fpstore.io import check_fingerprints
from fpstore.resources import parse_size, total_memory
from fpstore.width import WIDTH_64, WORD_BITS, Width, check_width

# `auto` accepts twice the bytes for this many times the speed.
SPEED_FOR_TWICE_THE_BYTES = 1.5

CODE_BITS = 3.29  # mean code length of h on uniform keys
ENTRY_OVERHEAD_BITS = (20 + 8 + 1 - 8 + 2.7) * 8  # block header, key, directory, less the first fingerprint, padding
HEADER_BYTES = 4096  # of a table file
ID_BYTES = 4.0
FOLDER_BYTES = 20_480  # all else of a store: what an empty id map, an empty log and a manifest take
MANY_ERRORS = 7  # above this radius, few striped blocks with flips are compared, too
STORAGE = ("hot", "cold")
PREFER = ("balance", "speed", "space")
NO_BUDGET = 1 << 62
DEALT_PLANS = 2  # the best column tables, of which those with dealt bits are compared, too
COLUMN_BLOCKS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
MOST_COLUMN_ENTRIES = (1 << 32) - 1
MOST_TABLES = 100  # of the designs that are compared


class Wishes(NamedTuple):
    """What a design is chosen by, besides the number of fingerprints and the radius; see :func:`plan`."""

    width: Width = WIDTH_64
    disk_budget: int | None = None
    memory_budget: int | None = None
    storage: str = "hot"
    block_bytes: int | None = None
    prefer: str = "balance"


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
    single_microseconds : float
        The same of a probe alone, which shares no block with others; without what every probe takes, whatever the design.
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
    single_microseconds: float
    cold_milliseconds: float
    fits: bool
    reason: str
    chosen: bool = False

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


def _block_costs(candidate: Design, n: int, sample: Sample | None, block_bytes: int | None) -> _Costs:
    block_bytes = default_block_bytes(candidate.width.bits) if block_bytes is None else block_bytes
    bits = table_bits(n, block_bytes, candidate.width.bits)
    per_block = max(block_bytes * 8 / bits, 1.0)
    tables_bytes = int(n * bits / 8 * len(candidate.tables))
    looked_up = candidate.lookups(n)
    if looked_up == (TableLookup(0, 0, 0),):
        reads = 1 + n * bits / 8 * COLD_BYTE_NS / COLD_READ_NS
        words = candidate.width.words
        return _Costs(tables_bytes, 1, float(n), scan_nanoseconds(n, words), single_scan_nanoseconds(n, words), reads)
    lookups = 0
    candidates = nanoseconds = single = reads = 0.0
    for lookup in looked_up:
        found = n / 2.0**lookup.prefix_bits
        if sample is not None:
            table = candidate.tables[lookup.table]
            found = n * sample.within(table, lookup.prefix_bits, lookup.flips) / lookup.variant_count
        more_blocks = found / per_block
        lookups += lookup.variant_count
        candidates += lookup.variant_count * found
        in_batch = BATCH_QUERIES * lookup.variant_count
        nanoseconds += lookup.variant_count * lookup_nanoseconds(n, per_block, found, in_batch)
        single += lookup.variant_count * lookup_nanoseconds(n, per_block, found, lookup.variant_count)
        reads += lookup.variant_count * (1 + more_blocks * block_bytes / 4096)
    return _Costs(tables_bytes, lookups, candidates, nanoseconds, single, reads)


def _ring_costs(candidate: Design, n: int, sample: Sample | None) -> _Costs:
    done = column_costs.work(candidate, n, sample)
    left = done.copies + done.rows
    # A page of the directory, one or more of tags, and one of each entry that is left.
    reads = done.lookups + done.lines * column_costs.LINE_TAGS * column_costs.TAG_BYTES / 4096 + done.lookups + left
    tables_bytes = sum(column_costs.file_bytes(table, n) for table in candidate.tables)
    time = column_costs.nanoseconds(candidate, n, sample)
    return _Costs(tables_bytes, int(done.lookups), done.candidates, time, time, reads)


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
    if 0 < radius < isqrt(MOST_TABLES):
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
        made = make_design(name, radius, width)
        if len(made.tables) <= MOST_TABLES and made.tables not in seen:
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
        Whether the tables will be in the page cache (rank by the geometric mean of both times) or on disk (rank by reads).

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
    return _ranked(n, radius, Wishes(checked, disk_budget, memory_budget, storage, block_bytes, prefer), rows)


def _ranked(n: int, radius: int, wishes: Wishes, sample: Words | None) -> list[Plan]:
    """Return the plans in the order of :func:`plan`; the sample is of rows."""
    storage = wishes.storage
    if wishes.memory_budget is None and storage == "hot":
        wishes = wishes._replace(memory_budget=total_memory() // 2)
    measured = None if sample is None else Sample(sample, wishes.width)
    if measured is not None and not measured.skewed:
        measured = None
    plans = _plans(n, radius, wishes, measured)
    plans.sort(key=lambda p: (not p.fits, _cost(p, storage), p.bytes_per_fingerprint))
    if plans[0].fits:
        best = preferred([p for p in plans if p.fits], storage, wishes.prefer)
        plans.remove(best)
        plans.insert(0, replace(best, chosen=True))
    return plans


def _plans(n: int, radius: int, wishes: Wishes, sample: Sample | None = None) -> list[Plan]:
    disk, memory, block_bytes = wishes.disk_budget, wishes.memory_budget, wishes.block_bytes
    plans = []
    for candidate in candidates_for(radius, sample is not None, wishes.width.bits, n):
        try:
            plans.append(estimate(candidate, n, sample=sample, disk_budget=disk, memory_budget=memory, block_bytes=block_bytes))
        except InputError:
            continue  # more look-ups than a probe may make
    if sample is not None:
        columns = sorted((p for p in plans if p.design.ring), key=weighted_cost)[:DEALT_PLANS]
        for p in columns:
            with suppress(InputError):  # no bits to deal
                dealt = deal(len(p.design.ring), p.design.ring[0][1].prefix_bits, radius, sample)
                plans.append(estimate(dealt, n, sample=sample, disk_budget=disk, memory_budget=memory))
    return plans


def _cost(p: Plan, storage: str) -> float:
    return p.mean_microseconds if storage == "hot" else p.cold_milliseconds


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
    wishes, most_radius = Wishes(Width(width), memory_budget=NO_BUDGET), lookup_radius(width)

    def scans(count: int, within: int) -> bool:
        if within == 0:
            return False
        if within > most_radius:
            return True
        fastest = min(_plans(count, within, wishes), key=lambda p: _cost(p, storage))
        return fastest.name == SCAN

    first = bisect_left(range(most_radius + 1), True, key=lambda r: scans(n, r))  # look-ups grow with the radius, scans do not
    if radius > most_radius:
        return Crossover(first, None)
    most = 0
    for step in (10**e for e in range(18, -1, -1)):
        while most < 100 * step and scans(most + step, radius):
            most += step
    return Crossover(first, most)


def make_for(described: str | Iterable[Any] | Design, radius: int, count: int, width: Width, sample: Words | None) -> Design:
    """Return the design of a name or of tables for so many fingerprints, with its bits dealt by the sample if its name says so.

    A design that is made stays as it is.

    Raises
    ------
    InputError
        It is unknown or not exact, or a probe would make too many look-ups.
    """
    made = make_design(described, radius, width.bits)
    named = isinstance(described, str) and described.startswith(DEALT)
    if named and sample is not None and len(sample) >= SAMPLE_SIZE:
        made = deal(len(made.ring), made.ring[0][1].prefix_bits, radius, Sample(sample, width))
    made.lookups(count)
    return made


def choose(n: int, radius: int, wishes: Wishes = Wishes(), sample: Words | None = None) -> Plan:  # noqa: B008 (it has no state)
    """Return the plan that ``design="auto"`` takes, where the sample is of rows; InputError if none fits the disk budget."""
    plans = _ranked(n, radius, wishes, sample)
    if not plans[0].fits:
        # A store over the memory budget works, with misses of the page cache; one over the disk budget cannot be built.
        plans = _ranked(n, radius, wishes._replace(storage="cold"), sample)
    if not plans[0].fits:
        least = min(plans, key=lambda p: p.disk_bytes)
        raise InputError(
            f"no design fits the disk budget: {least.name} is the smallest at {least.disk_bytes} bytes",
            expected=wishes.disk_budget,
        )
    return plans[0]
