"""Proofs that tables are exact: wherever the errors of a radius fall, the pair meets in a table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fpstore.design.tables import TableSpec
from fpstore.errors import InputError

MAX_VISITS = 1 << 18  # classes of bits that a proof visits, about three seconds


class ProofBudget:
    """The work that may still be spent on proofs."""

    def __init__(self, visits: int = MAX_VISITS) -> None:
        self._remaining = visits

    def spend(self, visits: int) -> None:
        """Count visits of classes; InputError when none are left."""
        self._remaining -= visits
        if self._remaining < 0:
            raise InputError("it takes too long to prove that these tables are exact")


def covers(tables: Sequence[TableSpec], radius: int, effort: ProofBudget | None = None) -> bool:
    """Whether, wherever ``radius`` errors fall, a table has at most its flips on its leading bits.

    Bits that lead in the same tables are equivalent, so errors are placed on classes of bits. The
    search tries to defeat every table, by placing more errors on its leading bits than it has
    flips. It branches on the undefeated table with the fewest classes, one of which must get an
    error, and drops a class when all placements with it have been tried. Two facts keep the search
    small: a class can be skipped if another one with enough room hits the same undefeated tables
    and more; and the classes that hit the most undefeated tables bound what the remaining errors
    can do. The time may still be exponential in the errors, so the search ends with an InputError
    when the effort is spent.
    """
    effort = effort or ProofBudget()
    if any(table.in_ring for table in tables):
        return _covers_in_ring([table for table in tables if table.in_ring], radius)
    disjoint = _disjoint_blocks(tables)
    if disjoint is not None:
        # To defeat all takes flips + 1 errors in each, if it has that many bits.
        return (
            any(flips >= bits.bit_count() for bits, flips in disjoint)
            or sum(flips + 1 for _, flips in disjoint) > radius
        )
    # for each source bit, the tables in which it leads, as bits
    members_by_bit = [0] * len(tables[0].permutation)
    for i, table in enumerate(tables):
        for bit in table.permutation[: table.prefix_bits]:
            members_by_bit[bit] |= 1 << i

    def defeat(needs: dict[int, int], classes: Mapping[int, int], errors: int) -> bool:
        """Whether at most ``errors`` errors give each undefeated table (a bit) what it needs."""
        if not needs:
            return True
        if max(needs.values()) > errors:
            return False
        effort.spend(len(classes))
        undefeated = sum(needs)
        merged: Counter[int] = Counter()
        for members, room in classes.items():
            if room and members & undefeated:
                merged[members & undefeated] += room
        rooms = merged.items()
        hits = itertools.chain.from_iterable(
            [members.bit_count()] * min(room, errors) for members, room in rooms
        )
        if sum(sorted(hits, reverse=True)[:errors]) < sum(needs.values()):
            return False
        worthwhile = _drop_covered(merged, max(needs.values()))
        choices = min(([m for m in worthwhile if m & table] for table in needs), key=len)
        for members in choices:
            after = {t: n - bool(t & members) for t, n in needs.items()}
            worthwhile[members] -= 1
            if defeat({t: n for t, n in after.items() if n}, worthwhile, errors - 1):
                return True
            del worthwhile[members]
        return False

    return not defeat(
        {1 << i: t.flips + 1 for i, t in enumerate(tables)}, Counter(members_by_bit), radius
    )


@lru_cache(maxsize=1 << 12)  # a proof for fewer flips needs all tables again
def _leading(permutation: bytes, prefix_bits: int) -> int:
    """Return the source bits that lead, as bits of a number."""
    return sum(1 << bit for bit in permutation[:prefix_bits])


def _disjoint_blocks(tables: Sequence[TableSpec]) -> list[tuple[int, int]] | None:
    """Return the leading bits and flips of tables that share no leading bit.

    None if two tables share one. A table is left out if all its pairs meet in another one, which
    leads with some of its bits and has as many flips.
    """
    disjoint: list[tuple[int, int]] = []
    used = 0
    for table in sorted(tables, key=lambda t: (t.prefix_bits, -t.flips)):
        bits = _leading(table.permutation, table.prefix_bits)
        if not bits & used:
            disjoint.append((bits, table.flips))
            used |= bits
        elif not any(flips >= table.flips and other | bits == bits for other, flips in disjoint):
            return None
    return disjoint


def _drop_covered(classes: Mapping[int, int], most: int) -> dict[int, int]:
    """Drop each class whose errors could also lie on another class that hits all its tables.

    There are at most ``most`` errors.
    """
    worthwhile: dict[int, int] = {}
    roomy: list[int] = []
    for members in sorted(classes, key=int.bit_count, reverse=True):
        if any(members & other == members for other in roomy):
            continue
        worthwhile[members] = classes[members]
        if worthwhile[members] >= most:
            roomy.append(members)
    return worthwhile


def _covers_in_ring(tables: Sequence[TableSpec], radius: int) -> bool:
    """Whether the look-ups of column tables cover a radius.

    Bucket i and the tag of the table before it belong to block i, and no two blocks share a bit. By
    the pigeonring principle (Qin and Xiao, VLDB 2018) some block i has at most t_i errors, and it
    and the next one together at most t_i + t_(i+1) + 1, if the t_i + 1 add up to more than the
    radius.
    """
    used: set[int] = set()
    for place, table in enumerate(tables):
        block = table.tag | tables[(place + 1) % len(tables)].leading
        if used & block:
            return False
        used |= block
    return sum(table.flips + 1 for table in tables) > radius
