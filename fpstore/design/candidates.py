"""The designs that are compared for a radius, a width and a number of fingerprints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from math import isqrt

from fpstore.base.width import WORD_BITS
from fpstore.design import column_costs
from fpstore.design.estimates import estimate
from fpstore.design.families import MANKU, SCAN, Design, design, lookup_radius
from fpstore.design.preference import knee
from fpstore.design.tables import MOST_COLUMN_ENTRIES, TAG_BITS
from fpstore.errors import InputError

MANY_ERRORS = 7  # above this radius, few striped blocks with flips are compared, too
COLUMN_BLOCKS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
MOST_TABLES = 100  # a design with more tables is not compared


def candidates_for(
    radius: int, skewed: bool = False, width: int = WORD_BITS, fingerprint_count: int = 1 << 20
) -> Iterator[Design]:
    """Yield the designs worth considering: the paper's, other blocks, nested, flips, striped for skew; columns; a scan."""
    if radius:
        yield design(SCAN, radius, width)
    if radius <= lookup_radius(width):
        yield from _with_lookups(radius, skewed, width)
        if fingerprint_count <= MOST_COLUMN_ENTRIES:
            yield from _with_columns(radius, width, fingerprint_count)


def _with_columns(radius: int, width: int, fingerprint_count: int) -> Iterator[Design]:
    """Yield the best column tables of uniform fingerprints for each number of them."""
    for block_count in COLUMN_BLOCKS:
        designs = []
        for bucket_bits in column_costs.bucket_bits(block_count, width, fingerprint_count):
            usual = bucket_bits == min(width // block_count, TAG_BITS)
            name = f"columns-{block_count}" if usual else f"columns-{block_count}-{bucket_bits}"
            with suppress(InputError):  # too many look-ups
                made = design(name, radius, width)
                made.lookups(fingerprint_count)
                designs.append(estimate(made, fingerprint_count))
        if designs:
            yield knee(designs).design


@lru_cache(maxsize=64)
def _with_lookups(radius: int, skewed: bool, width: int) -> tuple[Design, ...]:
    found = []
    names = [name for name, (_, most) in MANKU.items() if radius <= most]
    shapes = {MANKU[name][0] for name in names}
    for block_count in range(radius + 2, min(radius + 5, 12)):
        for leading_count in range(1, block_count - radius + 1):
            name = f"blocks-{block_count}-{leading_count}"
            if name not in shapes and leading_count < block_count:
                names.append(name)
    if 0 < radius < isqrt(MOST_TABLES):
        nest = f"nested-{radius + 1}-{radius + 1}"
        if nest not in shapes:
            names.append(nest)
    names += [f"flip-{count}" for count in range(1, radius + 2)]
    if skewed and radius:
        if radius > MANY_ERRORS:
            names += [f"blocks-{count}-1" for count in range(2, MANY_ERRORS + 2)]
        names += [name.replace("blocks", "striped") for name in [*shapes, *names] if name.startswith("blocks")]
    seen = set()
    for name in names:
        made = design(name, radius, width)
        if len(made.tables) <= MOST_TABLES and made.tables not in seen:
            seen.add(made.tables)
            found.append(made)
    return tuple(found)
