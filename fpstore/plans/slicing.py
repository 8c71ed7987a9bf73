"""Joins in slices: by which keys the rows of a pair come to one task, and how a task compares the rows of a slice.

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

MOST_UNCUT = 8  # slices that a task may take as one, where that takes less time
# of fewer rows in a slice, a join takes no longer than planning it from a sample
SAMPLED_FROM = 1 << 20
MORE_BITS = 2  # more slices than are needed are considered: a task has several


class Slicing(NamedTuple):
    """The tables of a join, and how each is cut into slices by the leading bits of its keys.

    The rows of a slice are compared as the buckets of the table say. Or, if the slices are joined
    as a ``whole``, by a join that is planned for them: then every pair has equal bits in one of the
    tables, and the first of these reports it.
    """

    design: JoinDesign
    bits: Sequence[int]  # of each table
    whole: bool

    def pairs(
        self, sides: Sequence[Words], table: int, resources: Resources
    ) -> Iterator[PairColumns]:
        """Yield the pairs of a slice of one set or of two that meet in this table, and in none before.

        Sets are of distinct rows, ascending. Of two, the first member of a pair is in the first.
        """
        if not self.whole:
            return _joined(sides, self.design, resources, table)
        radius, width = self.design.radius, self.design.width
        if len(sides) == 1:
            design = join_design(sides[0], radius, width, SAMPLED_FROM)
        else:
            few, many = sorted(sides, key=len)
            design = design_between(len(many), few, radius, width, many, SAMPLED_FROM)
        return (self._of_table(pairs, table) for pairs in _joined(sides, design, resources))

    def links(self, rows: Words, table: int, resources: Resources) -> Iterator[PairColumns]:
        """Yield pairs of a slice that connect the same rows as all of its pairs do."""
        design = self.design.alone(table)
        if self.whole:
            design = join_design(rows, self.design.radius, self.design.width, SAMPLED_FROM)
        return pairs_within(rows, design, resources, linked=True)

    def _of_table(self, pairs: PairColumns, table: int) -> PairColumns:
        """Return the pairs that are in no slice of an earlier table together."""
        difference, kept = np.ascontiguousarray(pairs.a ^ pairs.b), np.ones(len(pairs.a), bool)
        for before in range(table):
            kept &= (
                table_keys(self.design, before, difference)
                >> np.uint64(WORD_BITS - self.bits[before])
                != 0
            )
        return PairColumns(*(column[kept] for column in pairs))


def _joined(
    sides: Sequence[Words], design: JoinDesign, resources: Resources, only: int | None = None
) -> Iterator[PairColumns]:
    """Yield the pairs of a set, or of two."""
    if len(sides) == 1:
        return pairs_within(sides[0], design, resources, only=only)
    first, second = sides
    if len(first) <= len(second):  # it is faster if the smaller one is the first
        return pairs_between(first, second, design, resources, only=only)
    found = pairs_between(second, first, design, resources, only=only)
    return (PairColumns(pairs.b, pairs.a, pairs.distances) for pairs in found)


def plan_slicing(
    rows: int, radius: int, width: int, slice_rows: int, queries: int | None = None
) -> Slicing:
    """Return how to cut the join of so many rows, with themselves or with no more queries, into slices of about so many rows."""
    uncut, total = plan_join(rows, radius, width, queries=queries), rows + (queries or 0)
    bits = slice_bits(total, slice_rows)
    if not bits:
        return Slicing(uncut, [0] * len(uncut.tables), False)
    options = list(_cut(rows, radius, width, bits, queries))
    if not options or total <= MOST_UNCUT * slice_rows:
        least = [
            0 if flips else min(bits, table.prefix_bits)
            for table, flips in zip(uncut.tables, uncut.flips, strict=True)
        ]
        options.append(
            (work_nanoseconds(join_work(uncut, rows), rows, queries), Slicing(uncut, least, False))
        )
    return min(options, key=itemgetter(0))[1]


def _cut(
    rows: int, radius: int, width: int, bits: int, queries: int | None
) -> Iterator[tuple[float, Slicing]]:
    """Yield the estimated time and the slices of designs in which pairs meet in equal buckets."""
    exact = [
        design
        for design in designs(rows, radius, width)
        if design.tables[0].prefix_bits and not any(design.flips)
    ]
    for design in exact:
        some = [min(bits, table.prefix_bits) for table in design.tables]
        yield work_nanoseconds(join_work(design, rows), rows, queries), Slicing(design, some, False)
    if exact:
        design = max(exact, key=lambda design: design.tables[0].prefix_bits)
        most = min(table.prefix_bits for table in design.tables)
        for more in range(min(bits, most), min(bits + MORE_BITS, most) + 1):
            part, asked = max(rows >> more, 1), None if queries is None else max(queries >> more, 1)
            inside = join_work(plan_join(part, radius, width, queries=asked), part)
            time = len(design.tables) * work_nanoseconds(inside, part, asked) * rows / part
            yield time, Slicing(design, [more] * len(design.tables), True)


class Cut(NamedTuple):
    """The slices of columns, which are tables or bands, and how tasks share them."""

    bits: Sequence[int]  # leading ones of the keys of each column, which tell its slices apart
    units: int  # slices of a task

    @classmethod
    def of(cls, bits: Sequence[int], rows: int, slice_rows: int) -> Self:
        """Return what has about as many rows as a slice in a task, where slices are smaller."""
        return cls(bits, max(slice_rows // max(rows >> max(bits), 1), 1))

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return -(-sum(1 << one for one in self.bits) // self.units)

    def slices(self, task: int) -> list[tuple[int, int]]:
        """Return the column, and the number there, of each slice of a task."""
        every = (
            (column, number) for column, bits in enumerate(self.bits) for number in range(1 << bits)
        )
        return list(islice(every, task * self.units, (task + 1) * self.units))
