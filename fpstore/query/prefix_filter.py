"""Prefix filters: which prefixes the entries of tables have, in the memory of this process."""

from __future__ import annotations

from collections.abc import Sequence

from fpstore import _kernel
from fpstore.aliases import Words
from fpstore.design.families import Design
from fpstore.disk.pages import huge_pages
from fpstore.format.table import TableReader
from fpstore.query.batches import run
from fpstore.resources import parse_threads


def prefix_filters(design: Design, tables: Sequence[TableReader]) -> dict[int, Words]:
    """Read the tables that gain from a prefix filter, on all processors, and return their filters, by table.

    A filter of b bits has one bit for each value of the b leading bits of an entry, set where an entry has it: bit i is bit
    i % 64 of word i // 64. :meth:`fpstore.Design.filter_bits` says of how many bits it is.

    Raises
    ------
    CorruptStoreError
        A block of a table is damaged.
    MemoryLimitError
    """
    wanted = design.filter_bits(tables[0].kernel.fingerprint_count) if tables else {}

    def fill(table: int, stop: _kernel.Stop | None) -> Words:
        words: Words = huge_pages(2 ** wanted[table] // 8).view("u8")
        tables[table].read_in_order().mark_prefixes(words, stop)
        words.flags.writeable = False
        return words

    return dict(zip(wanted, run(fill, list(wanted), parse_threads(None)), strict=True))
