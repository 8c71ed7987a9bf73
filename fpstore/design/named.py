"""The name of a design, from tables of it."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb

from fpstore.base.width import WORD_BITS
from fpstore.design.families import DEALT, MANKU, SCAN, Design, design, lookup_radius
from fpstore.design.tables import BLOCKS, ROWS, TAG_BITS, TableSpec, identity
from fpstore.errors import InputError


def named_like(known: Mapping[int, TableSpec], table_count: int, radius: int | None = None) -> Design | None:
    """Return the named design that has these tables, by default for the largest radius for which it has them."""
    width = next(iter(known.values())).width.bits
    whole = TableSpec(identity(width), 0)
    if table_count == 1 and known.get(0) == whole:
        return Design(SCAN, width if radius is None else radius, (whole,))
    most = lookup_radius(width)
    kept = next((spec for spec in known.values() if spec.kind != ROWS), next(iter(known.values())))
    names = _block_names(table_count, width) if kept.kind == BLOCKS else _column_names(table_count, kept)
    for tried in range(most, -1, -1) if radius is None else (radius,):
        for name in names:
            try:
                made = design(name, tried, width)
            except InputError:
                continue
            if len(made.tables) == table_count and all(made.tables[i] == spec for i, spec in known.items()):
                return made
    return None


def _column_names(table_count: int, kept: TableSpec) -> list[str]:
    """Return the names of designs of columns with a number of tables, one of which is known."""
    block_count = table_count - (kept.width.bits > WORD_BITS)
    if kept.kind == ROWS or block_count < 1:  # nothing tells the bits of the buckets
        return [f"columns-{block_count}"]
    named = f"{block_count}-{kept.prefix_bits}"
    usual = min(kept.width.bits // block_count, TAG_BITS) == kept.prefix_bits
    return [f"columns-{block_count}" if usual else f"columns-{named}", f"{DEALT}-{named}"]


def _block_names(table_count: int, width: int) -> list[str]:
    """Return the names of designs of blocks that may have a number of tables."""
    names = [*MANKU, *(f"flip-{m}" for m in range(1, lookup_radius(width) + 2))]
    for m in range(1, width + 1):
        names += [f"blocks-{m}-{c}" for c in range(1, m + 1) if comb(m, c) == table_count]
        names += [f"striped-{m}-{c}" for c in range(1, m + 1) if comb(m, c) + 1 == table_count]
        names += [f"nested-{m}-{table_count // m}"] if table_count % m == 0 else []
    return names
