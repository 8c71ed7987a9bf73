"""Joins in slices: the keys that bring a pair to one task, and the join of a slice.

The choice is by estimates, so it is the same in every task of a plan. See docs/design.md, "Beyond
one machine".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, Self

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS
from fpstore.design.joins import JoinDesign, designs, join_work, plan_join, work_nanoseconds
from fpstore.jobs.joining import PairColumns, pairs_between, pairs_within
from fpstore.jobs.pairs import design_between, join_design
from fpstore.plans.shuffle import slice_bits, table_keys

MAX_JOINED_SLICES = 8  # slices that a task may join as one, if that is faster
# in smaller slices, a join is as fast as its planning from a sample
SAMPLED_FROM = 1 << 20
MORE_BITS = 2  # of more slices than needed, since a task may have several


class Slicing(NamedTuple):
    """The tables of a join, and the leading bits of the keys that cut each into slices.

    The rows of a slice are compared in the buckets of the table. Or, if the slices are joined as a
    ``whole``, by a join that is planned for them: then every pair has equal bits in one of the
    tables, and the first of these reports it.
    """

    design: JoinDesign
    bits: Sequence[int]  # of each table
    whole: bool

    def pairs(
        self, sides: Sequence[Words], table: int, resources: Resources
    ) -> Iterator[PairColumns]:
        """Yield the pairs of a slice of one set or of two that meet in this table first.

        Sets have distinct, ascending rows. The first member of a pair is in the first set.
        """
        if not self.whole:
            return _join(sides, self.design, resources, table)
        radius, width = self.design.radius, self.design.width
        if len(sides) == 1:
            design = join_design(sides[0], radius, width, SAMPLED_FROM)
        else:
            few, many = sorted(sides, key=len)
            design = design_between(len(many), few, radius, width, many, SAMPLED_FROM)
        return (self._first_meetings(pairs, table) for pairs in _join(sides, design, resources))

    def links(self, rows: Words, table: int, resources: Resources) -> Iterator[PairColumns]:
        """Yield pairs of a slice that connect the same rows as all of its pairs."""
        design = self.design.single_table(table)
        if self.whole:
            design = join_design(rows, self.design.radius, self.design.width, SAMPLED_FROM)
        return pairs_within(rows, design, resources, linked=True)

    def _first_meetings(self, pairs: PairColumns, table: int) -> PairColumns:
        """Return the pairs that share no slice of an earlier table."""
        difference, is_first = np.ascontiguousarray(pairs.a ^ pairs.b), np.ones(len(pairs.a), bool)
        for earlier in range(table):
            is_first &= (
                table_keys(self.design, earlier, difference)
                >> np.uint64(WORD_BITS - self.bits[earlier])
                != 0
            )
        return PairColumns(*(column[is_first] for column in pairs))


def _join(
    sides: Sequence[Words], design: JoinDesign, resources: Resources, only: int | None = None
) -> Iterator[PairColumns]:
    if len(sides) == 1:
        return pairs_within(sides[0], design, resources, only=only)
    first, second = sides
    if len(first) <= len(second):  # it is faster if the smaller one is the first
        return pairs_between(first, second, design, resources, only=only)
    swapped = pairs_between(second, first, design, resources, only=only)
    return (PairColumns(pairs.b, pairs.a, pairs.distances) for pairs in swapped)


def plan_slicing(
    rows: int, radius: int, width: int, slice_rows: int, queries: int | None = None
) -> Slicing:
    """Plan the slices of the join of ``rows`` with themselves, or with at most as many queries.

    A slice has about ``slice_rows`` rows.
    """
    uncut, total = plan_join(rows, radius, width, queries=queries), rows + (queries or 0)
    bits = slice_bits(total, slice_rows)
    if not bits:
        return Slicing(uncut, [0] * len(uncut.tables), False)
    options = list(_cut_options(rows, radius, width, bits, queries))
    if not options or total <= MAX_JOINED_SLICES * slice_rows:
        uncut_bits = [
            0 if flips else min(bits, table.prefix_bits)
            for table, flips in zip(uncut.tables, uncut.flips, strict=True)
        ]
        options.append(
            (
                work_nanoseconds(join_work(uncut, rows), rows, queries),
                Slicing(uncut, uncut_bits, False),
            )
        )
    return min(options, key=itemgetter(0))[1]


def _cut_options(
    rows: int, radius: int, width: int, bits: int, queries: int | None
) -> Iterator[tuple[float, Slicing]]:
    """Yield the estimated time and the slices of designs whose pairs meet in equal buckets."""
    exact = [
        design
        for design in designs(rows, radius, width)
        if design.tables[0].prefix_bits and not any(design.flips)
    ]
    for design in exact:
        table_bits = [min(bits, table.prefix_bits) for table in design.tables]
        yield (
            work_nanoseconds(join_work(design, rows), rows, queries),
            Slicing(design, table_bits, False),
        )
    if exact:
        design = max(exact, key=lambda design: design.tables[0].prefix_bits)
        most = min(table.prefix_bits for table in design.tables)
        for cut_bits in range(min(bits, most), min(bits + MORE_BITS, most) + 1):
            part, part_queries = (
                max(rows >> cut_bits, 1),
                None if queries is None else max(queries >> cut_bits, 1),
            )
            inside = join_work(plan_join(part, radius, width, queries=part_queries), part)
            time = len(design.tables) * work_nanoseconds(inside, part, part_queries) * rows / part
            yield time, Slicing(design, [cut_bits] * len(design.tables), True)


class Cut(NamedTuple):
    """The slices of columns, which are tables or bands, and how tasks share them."""

    bits: Sequence[int]  # leading bits of the keys of each column that cut it into slices
    units: int  # slices of a task

    @classmethod
    def choose(cls, bits: Sequence[int], rows: int, slice_rows: int) -> Self:
        """Give a task several slices if they are small: about ``slice_rows`` rows together."""
        return cls(bits, max(slice_rows // max(rows >> max(bits), 1), 1))

    @property
    def tasks(self) -> int:
        return -(-sum(1 << bits for bits in self.bits) // self.units)

    def slices(self, task: int) -> list[tuple[int, int]]:
        """Return the column, and the number there, of each slice of a task."""
        all_slices = (
            (column, number) for column, bits in enumerate(self.bits) for number in range(1 << bits)
        )
        return list(islice(all_slices, task * self.units, (task + 1) * self.units))
