"""The sets of rows that links connect."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.design.joins import JoinDesign
from fpstore.jobs.checkpoint import Checkpoint
from fpstore.jobs.joining import UNBOUNDED, links_within


def connected(
    rows: Words, design: JoinDesign, resources: Resources = UNBOUNDED, kept: Checkpoint | None = None
) -> npt.NDArray[np.uint32] | npt.NDArray[np.uint64]:
    """Return for each row of a set the first row that pairs within the design's radius connect with it.

    Connected are the rows of a pair, and what is connected with one that is connected. The links of a table connect the same rows
    as its pairs do (docs/design.md, "Groups"), and the pairs of all tables are all pairs.
    """
    sets, index = _kernel.Sets(len(rows)), _kernel.RowIndex(rows)
    for links in links_within(rows, design, resources, kept):
        sets.unite(index.places(links.a), index.places(links.b))
    return sets.names()
