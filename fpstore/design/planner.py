"""The planner: the designs worth comparing with their costs, and the choice of ``auto``."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from math import isqrt
from typing import Any, NamedTuple

from fpstore.base.aliases import Words
from fpstore.base.arguments import check_choice, check_whole
from fpstore.base.resources import parse_size, total_memory
from fpstore.base.width import WORD_BITS, Width, check_width
from fpstore.design.blocks import (
    AUTO,
    HUFFMAN,
    PREFER,
    STORAGE,
    BlockPacking,
    check_blocks,
    default_block_bytes,
)
from fpstore.design.costs import bucket_bits, time_space_cost
from fpstore.design.dealing import deal
from fpstore.design.estimates import Plan, Requirements, estimate
from fpstore.design.families import MANKU, SCAN, Design, check_radius, design, lookup_radius
from fpstore.design.sample import Sample
from fpstore.design.tables import MAX_COLUMN_ENTRIES, TAG_BITS, TableSpec
from fpstore.errors import InputError
from fpstore.io.check import check_fingerprints

MANY_ERRORS = 7  # above this radius, few striped blocks with flips are compared, too
COLUMN_BLOCKS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
MAX_RANKED_TABLES = 100  # a design with more tables is not compared
# The bytes and the time of packed tables that may take the place of column tables, as multiples.
MORE_BYTES, MORE_TIME = 1.15, 2.0
NO_BUDGET = 1 << 62
DEALT_PLANS = 2  # this many of the best column tables are also compared with dealt bits


def plan(
    n: int,
    radius: int = 3,
    *,
    disk_budget: int | str | None = None,
    memory_budget: int | str | None = None,
    storage: str = "hot",
    block_bytes: int | None = None,
    codec: str = HUFFMAN,
    filter: bool | str = AUTO,
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
        The largest radius of probes, 0 to the width. Above a quarter of it, a scan is the only
        plan.
    disk_budget : int or str, optional
        Bytes that tables and ids may take on disk, such as ``"40GB"``.
    memory_budget : int or str, optional
        Bytes of memory for the tables in the page cache; by default half of this machine's memory
        if ``storage`` is hot.
    storage : {"hot", "cold"}
        Whether the tables will be in the page cache (rank by the mean of both times) or on disk
        (rank by reads).
    block_bytes : int, optional
        128 to 4096, a power of two; by default 512, and 1024 above 64 bits.
    codec : {"huffman", "elias-fano"}
        How blocks are packed.
    filter : bool or "auto"
        Whether tables of blocks have filters; see :func:`fpstore.build`.
    sample : array or sequence of fingerprints, optional
        A random sample of the set; 16,384 fingerprints of it are used. If it is skewed, the entries
        that look-ups meet are estimated from its shared prefixes, and striped designs and columns
        with dealt bits are compared too.
    prefer : {"balance", "speed", "space"}
        What ``auto`` takes of the plans that fit: the best compromise (see
        :func:`~fpstore.design.planner.weighted_cost`), the fastest, or the smallest, with
        ``filter=True`` of those that have filters if there are any.
    width : int
        Bits of a fingerprint: 32, 64, 128 or 256.

    Returns
    -------
    list of Plan
        The chosen design, then the others that fit, then those that do not, each group by estimated
        time.

    Raises
    ------
    InputError
        A negative n, a radius outside 0 to the width, an unknown width, kind of storage or
        preference.

    Examples
    --------
    >>> import fpstore
    >>> best = fpstore.plan(1 << 24, radius=3)[0]
    >>> best.fits
    True
    """
    valid_width = check_width(width)
    radius = check_radius(radius, width)
    n = check_whole(n, 0, 2**64, "n")
    check_choice(storage, STORAGE, "storage")
    check_choice(prefer, PREFER, "prefer")
    blocks = check_blocks(block_bytes, codec, width, filter).resolve_filter(prefer, storage)
    disk_budget = None if disk_budget is None else parse_size(disk_budget, "disk_budget")
    memory_budget = None if memory_budget is None else parse_size(memory_budget, "memory_budget")
    rows = None if sample is None else check_fingerprints(sample, valid_width, "sample")
    return _rank_plans(
        n,
        radius,
        Requirements(valid_width, disk_budget, memory_budget, storage, blocks, prefer),
        rows,
    )


def _rank_plans(n: int, radius: int, required: Requirements, sample: Words | None) -> list[Plan]:
    """Return the plans in the order of :func:`plan`; the sample is of rows."""
    storage = required.storage
    if required.memory_budget is None and storage == "hot":
        required = required._replace(memory_budget=total_memory() // 2)
    measured = None if sample is None else Sample(sample, required.width)
    if measured is not None and not measured.is_skewed:
        measured = None
    plans = (
        list(_uniform(n, radius, required))
        if measured is None
        else _plans(n, radius, required, measured)
    )
    plans.sort(key=lambda p: (not p.fits, cost(p, storage), p.bytes_per_fingerprint))
    if plans[0].fits:
        fitting = [p for p in plans if p.fits]
        if (
            required.prefer == "space"
            and required.blocks is not None
            and required.blocks.filter is True
        ):
            # filters are required, and a scan without them is the smallest
            fitting = [p for p in fitting if p.filters] or fitting
        best = choose_plan(fitting, storage, required.prefer)
        plans.remove(best)
        plans.insert(0, replace(best, chosen=True))
    return plans


def _plans(n: int, radius: int, required: Requirements, sample: Sample | None = None) -> list[Plan]:
    plans = []
    for candidate in candidates_for(radius, sample is not None, required.width.bits, n):
        with suppress(InputError):  # more look-ups than a probe may make
            plans.append(estimate(candidate, n, required, sample))
    if sample is not None:
        columns = sorted((p for p in plans if p.design.ring), key=weighted_cost)[:DEALT_PLANS]
        for p in columns:
            with suppress(InputError):  # no bits to deal
                dealt = deal(len(p.design.ring), p.design.ring[0][1].prefix_bits, radius, sample)
                plans.append(estimate(dealt, n, required, sample))
    return plans


@lru_cache(maxsize=32)  # a build plans twice, and a program may make many equal stores
def _uniform(n: int, radius: int, required: Requirements) -> tuple[Plan, ...]:
    return tuple(_plans(n, radius, required))


class Crossover(NamedTuple):
    """The set and the radius at which a scan becomes cheaper than every design with look-ups."""

    radius: int  # the smallest at which a scan is cheaper, for this number of fingerprints
    # the largest number, to two digits, for which it is at this radius; None if for every number
    fingerprints: int | None


def crossover(n: int, radius: int, storage: str = "hot", width: int = WORD_BITS) -> Crossover:
    """Return where a scan becomes cheaper, for n fingerprints and for a radius.

    Data are uniform, and there are no budgets.
    """
    blocks, most_radius = (
        BlockPacking(default_block_bytes(width)).resolve_filter("speed", storage),
        lookup_radius(width),
    )
    required = Requirements(Width(width), memory_budget=NO_BUDGET, blocks=blocks)

    def scans(count: int, within: int) -> bool:
        if within == 0:
            return False
        if within > most_radius:
            return True
        fastest = min(_plans(count, within, required), key=lambda p: cost(p, storage))
        return fastest.name == SCAN

    # look-ups grow with the radius, scans do not
    first = bisect_left(range(most_radius + 1), True, key=lambda r: scans(n, r))
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
    required: Requirements = Requirements(),  # noqa: B008 - it has no state
    sample: Words | None = None,
) -> Plan:
    """Return the plan that ``design="auto"`` takes, where the sample is of rows.

    InputError if none fits the disk budget.
    """
    plans = _rank_plans(n, radius, required, sample)
    if not plans[0].fits:
        # A store over the memory budget works, with misses of the page cache; one over the disk
        # budget cannot be built.
        plans = _rank_plans(n, radius, required._replace(storage="cold"), sample)
    if not plans[0].fits:
        least = min(plans, key=lambda p: p.disk_bytes)
        raise InputError(
            f"no design fits the disk budget: {least.name} is the smallest at {least.disk_bytes} "
            "bytes",
            expected=required.disk_budget,
        )
    return plans[0]


# The designs that are compared for a radius, a width and a number of fingerprints


def candidates_for(
    radius: int, skewed: bool = False, width: int = WORD_BITS, fingerprint_count: int = 1 << 20
) -> Iterator[Design]:
    """Yield the designs worth considering.

    The paper's designs, other blocks, nested, flips, striped for skew; columns; a scan.
    """
    if radius:
        yield design(SCAN, radius, width)
    if radius <= lookup_radius(width):
        yield from _with_lookups(radius, skewed, width)
        if fingerprint_count <= MAX_COLUMN_ENTRIES:
            yield from _with_columns(radius, width, fingerprint_count)


def _with_columns(radius: int, width: int, fingerprint_count: int) -> Iterator[Design]:
    """Yield the best column tables of uniform fingerprints for each number of them."""
    for block_count in COLUMN_BLOCKS:
        plans = []
        for bits in bucket_bits(block_count, width, fingerprint_count):
            usual = bits == min(width // block_count, TAG_BITS)
            name = f"columns-{block_count}" if usual else f"columns-{block_count}-{bits}"
            with suppress(InputError):  # too many look-ups
                candidate = design(name, radius, width)
                candidate.lookups(fingerprint_count)
                plans.append(estimate(candidate, fingerprint_count))
        if plans:
            yield best_plan(plans).design


@lru_cache(maxsize=64)
def _with_lookups(radius: int, skewed: bool, width: int) -> tuple[Design, ...]:
    names = [name for name, (_, most) in MANKU.items() if radius <= most]
    shapes = {MANKU[name][0] for name in names}
    for block_count in range(radius + 2, min(radius + 5, 12)):
        for leading_count in range(1, block_count - radius + 1):
            name = f"blocks-{block_count}-{leading_count}"
            if name not in shapes and leading_count < block_count:
                names.append(name)
    if 0 < radius < isqrt(MAX_RANKED_TABLES):
        nest = f"nested-{radius + 1}-{radius + 1}"
        if nest not in shapes:
            names.append(nest)
    names += [f"flip-{count}" for count in range(1, radius + 2)]
    if skewed and radius:
        if radius > MANY_ERRORS:
            names += [f"blocks-{count}-1" for count in range(2, MANY_ERRORS + 2)]
        names += [
            name.replace("blocks", "striped")
            for name in [*shapes, *names]
            if name.startswith("blocks")
        ]
    designs: dict[tuple[TableSpec, ...], Design] = {}
    for name in names:
        candidate = design(name, radius, width)
        if len(candidate.tables) <= MAX_RANKED_TABLES:
            designs.setdefault(candidate.tables, candidate)
    return tuple(designs.values())


# Which of the plans that fit is the best


def cost(p: Plan, storage: str) -> float:
    """Return the time by which plans are ranked, in microseconds or milliseconds."""
    return p.mean_microseconds if storage == "hot" else p.cold_milliseconds


def weighted_cost(p: Plan, storage: str = "hot") -> float:
    """Return time x bytes^1.585, which ``auto`` minimizes.

    Twice the bytes weigh as much as three times the time.
    """
    return time_space_cost(cost(p, storage), p.bytes_per_fingerprint)


def best_plan(plans: Sequence[Plan], storage: str = "hot") -> Plan:
    """Return the plan with the lowest :func:`weighted_cost`, and among equals the smaller."""
    return min(plans, key=lambda p: (weighted_cost(p, storage), p.bytes_per_fingerprint, p.name))


def balance(plans: Sequence[Plan], storage: str) -> Plan:
    """Return the best plan, or packed tables in place of columns that are hardly better.

    Packed tables take the place of columns where they take no more than MORE_BYTES of their bytes
    and MORE_TIME of their time.
    """
    best = best_plan(plans, storage)
    if not best.design.ring:
        return best
    most_bytes, most_time = MORE_BYTES * best.bytes_per_fingerprint, MORE_TIME * cost(best, storage)
    packed = [
        p
        for p in plans
        if not p.design.ring
        and p.bytes_per_fingerprint <= most_bytes
        and cost(p, storage) <= most_time
    ]
    return best_plan(packed, storage) if packed else best


def choose_plan(plans: Sequence[Plan], storage: str, prefer: str) -> Plan:
    """Return the plan that ``auto`` takes of the plans that fit.

    The balance, the fastest or the smallest.
    """
    if prefer == "speed":
        return min(plans, key=lambda p: (cost(p, storage), p.bytes_per_fingerprint, p.name))
    if prefer == "space":
        return min(plans, key=lambda p: (p.bytes_per_fingerprint, cost(p, storage), p.name))
    return balance(plans, storage)
