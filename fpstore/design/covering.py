"""Whether tables are exact for a radius.

Wherever its errors fall, some table must meet the pair.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fpstore.design.tables import TableSpec
from fpstore.errors import InputError

MAX_VISITS = 1 << 18  # classes of bits that a proof visits, about three seconds


class Effort:
    """The work that is left for proofs."""

    def __init__(self, visits: int = MAX_VISITS) -> None:
        self._left = visits

    def spend(self, visits: int) -> None:
        """Count visits of classes; InputError when none are left."""
        self._left -= visits
        if self._left < 0:
            raise InputError("it takes too long to prove that these tables are exact")


def covers(tables: Sequence[TableSpec], radius: int, effort: Effort | None = None) -> bool:
    """Whether, for every placement of ``radius`` errors, some table has at most its flips on the leading bits.

    Bits that lead in the same tables are equivalent, so errors are placed on classes of bits. The
    search tries to defeat every table, by placing more errors on its leading bits than it has
    flips. It branches on the undefeated table with the fewest classes, one of which must get an
    error, and drops a class when all placements with it have been tried. Two facts keep the search
    small: a class can be skipped if another one with enough room hits the same undefeated tables
    and more; and the classes that hit the most undefeated tables bound what the remaining errors
    can do. It may still take time that is exponential in the errors, so it ends with an InputError
    when the effort is spent.
    """
    effort = effort or Effort()
    if any(table.in_ring for table in tables):
        return _covers_in_ring([table for table in tables if table.in_ring], radius)
    apart = _blocks_apart(tables)
    if apart is not None:
        # To defeat all takes flips + 1 errors in each, if it has that many bits.
        return (
            any(flips >= bits.bit_count() for bits, flips in apart)
            or sum(flips + 1 for _, flips in apart) > radius
        )
    # for each source bit, the tables in which it leads, as bits
    members_of = [0] * len(tables[0].permutation)
    for i, table in enumerate(tables):
        for bit in table.permutation[: table.prefix_bits]:
            members_of[bit] |= 1 << i

    def defeat(needs: dict[int, int], classes: Mapping[int, int], left: int) -> bool:
        """Place at most ``left`` errors so that each undefeated table (one bit each) gets as many as it needs."""
        if not needs:
            return True
        if max(needs.values()) > left:
            return False
        effort.spend(len(classes))
        still = sum(needs)
        merged: Counter[int] = Counter()
        for members, room in classes.items():
            if room and members & still:
                merged[members & still] += room
        rooms = merged.items()
        hits = itertools.chain.from_iterable(
            [members.bit_count()] * min(room, left) for members, room in rooms
        )
        if sum(sorted(hits, reverse=True)[:left]) < sum(needs.values()):
            return False
        worthwhile = _worthwhile(merged, max(needs.values()))
        choices = min(([m for m in worthwhile if m & table] for table in needs), key=len)
        for members in choices:
            rest = {t: n - bool(t & members) for t, n in needs.items()}
            worthwhile[members] -= 1
            if defeat({t: n for t, n in rest.items() if n}, worthwhile, left - 1):
                return True
            del worthwhile[members]
        return False

    return not defeat(
        {1 << i: t.flips + 1 for i, t in enumerate(tables)}, Counter(members_of), radius
    )


@lru_cache(maxsize=1 << 12)  # a proof for fewer flips asks for all tables again
def _leading(permutation: bytes, prefix_bits: int) -> int:
    """Return the source bits that lead, as bits of a number."""
    return sum(1 << bit for bit in permutation[:prefix_bits])


def _blocks_apart(tables: Sequence[TableSpec]) -> list[tuple[int, int]] | None:
    """Return the leading bits and flips of tables that share no leading bit.

    None if two tables share one.

    Tables whose pairs all meet in another one are left out: that one leads with some of their bits
    and has as many flips.
    """
    apart: list[tuple[int, int]] = []
    used = 0
    for table in sorted(tables, key=lambda t: (t.prefix_bits, -t.flips)):
        bits = _leading(table.permutation, table.prefix_bits)
        if not bits & used:
            apart.append((bits, table.flips))
            used |= bits
        elif not any(flips >= table.flips and other | bits == bits for other, flips in apart):
            return None
    return apart


def _worthwhile(classes: Mapping[int, int], most: int) -> dict[int, int]:
    """Drop each class whose errors, at most ``most``, could also lie on another class that hits all its tables."""
    kept: dict[int, int] = {}
    roomy: list[int] = []
    for members in sorted(classes, key=int.bit_count, reverse=True):
        if any(members & other == members for other in roomy):
            continue
        kept[members] = classes[members]
        if kept[members] >= most:
            roomy.append(members)
    return kept


def _covers_in_ring(tables: Sequence[TableSpec], radius: int) -> bool:
    """Whether the look-ups of column tables cover a radius.

    Bucket i and the tag of the table before it belong to block i, and no two blocks share a bit. By
    the pigeonring principle (Qin and Xiao, VLDB 2018) some block i has at most t_i errors, and it
    and the next one together at most t_i + t_(i+1) + 1, if the t_i + 1 add up to more than the
    radius.
    """
    seen: set[int] = set()
    for place, table in enumerate(tables):
        block = table.tag | tables[(place + 1) % len(tables)].leading
        if seen & block:
            return False
        seen |= block
    return sum(table.flips + 1 for table in tables) > radius
