"""Links: pairs within a radius, as many as connect what all of them connect; and the sets that they make."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.design.joins import JoinDesign
from fpstore.jobs.joining import BATCH_PAIRS, PairColumns, TableSorter
from fpstore.width import places_of

HELD_LINKS = 1 << 22  # between two passes over the set


def links_within(rows: Words, design: JoinDesign) -> Iterator[PairColumns]:
    """Yield links of a set in memory: fewer from each table than the set has rows, however many pairs there are.

    Parameters
    ----------
    rows : Words
        Distinct rows, ascending; they are left as they are.
    design : JoinDesign
    """
    sorter = TableSorter(rows, writable=True)
    for table, flips, both in zip(design.tables, design.flips, design.both, strict=True):
        ordered = sorter.sorted(table)
        permutation = np.frombuffer(table.permutation, np.uint8)
        linking = _kernel.Linking(*ordered, permutation, flips, both, table.tag_bits, design.radius)
        while not linking.done:
            yield PairColumns(*linking.more(BATCH_PAIRS))


def connected(rows: Words, design: JoinDesign) -> npt.NDArray[np.integer]:
    """Return for each row of a set the first of those that it is connected with by pairs within the design's radius.

    Connected are the rows of a pair, and what is connected with one that is connected. A table is searched from every row that
    no search has reached, so its links connect the same rows as its pairs do; and the pairs of all tables are all pairs.
    """
    sets = _kernel.Sets(len(rows))
    held: list[PairColumns] = []
    for links in links_within(rows, design):
        held.append(links)
        if sum(len(part.a) for part in held) >= HELD_LINKS:
            _unite(sets, rows, held)
    _unite(sets, rows, held)
    return sets.names()


def _unite(sets: _kernel.Sets, rows: Words, held: list[PairColumns]) -> None:
    a, b = (np.concatenate([rows[:0], *ends]) for ends in ([part.a for part in held], [part.b for part in held]))
    held.clear()
    sets.unite(places_of(rows, a).astype(np.uint64), places_of(rows, b).astype(np.uint64))
