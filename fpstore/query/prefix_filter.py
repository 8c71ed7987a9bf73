"""Prefix filters: which prefixes the entries of tables have, in the memory of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.design.families import Design
from fpstore.disk.pages import huge_pages
from fpstore.format.table import TableReader
from fpstore.query.batches import run
from fpstore.resources import parse_threads


class PrefixFilter(NamedTuple):
    """One bit for each value of some leading bits, which is set where an entry of the table begins with it.

    Attributes
    ----------
    words : ndarray of uint64
        Bit i is bit i % 64 of word i // 64.
    bits : int
        How many leading bits.
    """

    words: Words
    bits: int


def prefix_filters(design: Design, tables: Sequence[TableReader]) -> dict[int, PrefixFilter]:
    """Read tables of blocks, on all processors, and return a filter of each for which one is worth its memory, by table.

    Raises
    ------
    CorruptStoreError
        A block of a table is damaged.
    """
    wanted = design.filter_bits(tables[0].kernel.fingerprint_count)

    def fill(table: int, stop: _kernel.Stop | None) -> PrefixFilter:
        bits = wanted[table]
        words = huge_pages(2**bits // 8).view(np.uint64)
        tables[table].in_order.mark_prefixes(words, bits, stop)
        return PrefixFilter(words, bits)

    return dict(zip(wanted, run(fill, list(wanted), parse_threads(None)), strict=True))
