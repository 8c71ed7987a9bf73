"""Designs of column tables: disjoint blocks of bits, each of which numbers the buckets of a table."""

from __future__ import annotations

from collections.abc import Sequence

from fpstore.base.width import WORD_BITS
from fpstore.design.tables import (
    COPIES,
    LEAST_BUCKET_BITS,
    MOST_BUCKET_BITS,
    REFERENCES,
    TAG_BITS,
    TableSpec,
    row_spec,
    spread,
)
from fpstore.errors import InputError


def columns(block_count: int, radius: int, bits: int = WORD_BITS, bucket_bits: int | None = None) -> list[TableSpec]:
    """Each of ``block_count`` disjoint blocks numbers the buckets of a column table, whose tag is of the next block.

    Above 64 bits, the first table has the rows, and the others refer to them.
    """
    length = bits // block_count if block_count else 0
    cut = [range(place * length, (place + 1) * length) for place in range(block_count)]
    return column_tables(cut, min(length, TAG_BITS) if bucket_bits is None else bucket_bits, radius, bits)


def column_tables(
    cut: Sequence[Sequence[int]], bucket_bits: int, radius: int, bits: int, family: str = "columns"
) -> list[TableSpec]:
    """Return the column tables of disjoint blocks of source bits of equal length.

    The first ``bucket_bits`` of a block number the buckets of its table, and the first bits of the next block are its tag.

    Copies, up to 64 bits, begin with a table in the order of the fingerprints: the first two blocks are the leading bits.
    """
    length = len(cut[0]) if cut else 0
    most = min(length, MOST_BUCKET_BITS)
    if not LEAST_BUCKET_BITS <= bucket_bits <= most:
        fits = f"to {most}" if most >= LEAST_BUCKET_BITS else f"or more: use at most {bits // LEAST_BUCKET_BITS} blocks"
        raise InputError(
            f"{family}-{len(cut)}-{bucket_bits}: {len(cut)} blocks of {bits} bits have {length} each, and the number of a bucket "
            f"has {LEAST_BUCKET_BITS} {fits}"
        )
    if max(spread(len(cut), radius)) >= bucket_bits:
        raise InputError(f"{family}-{len(cut)} at radius {radius} would look at every bucket: use more blocks, or scan")
    wide = bits > WORD_BITS
    specs = [row_spec(bits)] if wide else []
    for place, flips in enumerate(spread(len(cut), radius)):
        block, behind = cut[place], (place + 1) % len(cut)
        tag: Sequence[int] = cut[behind][:TAG_BITS]
        # The tag of the table in the order of the fingerprints follows its bucket. No other tag has these bits.
        if len(cut) == 1 or (not wide and place == 0):
            tag = range(bucket_bits, min(bucket_bits + TAG_BITS, bits if len(cut) == 1 else 2 * length))
        elif not wide and behind == 0:
            tag = cut[0][: min(TAG_BITS, bucket_bits)]
        lead = [*block[:bucket_bits], *tag]
        leads = set(lead)
        permutation = bytes([*lead, *(bit for bit in range(bits) if bit not in leads)])
        specs.append(TableSpec(permutation, bucket_bits, flips, REFERENCES if wide else COPIES, len(tag)))
    return specs


def deal_in_turn(block_count: int, bits: int) -> tuple[list[list[int]], int]:
    """Return disjoint blocks of equal length, of bits dealt in turn, and the number of leading blocks that stay: two for copies.

    Raises
    ------
    InputError
        There are not two blocks to deal to.
    """
    length = bits // block_count if block_count else 0
    kept = 0 if bits > WORD_BITS else 2
    free, count = range(kept * length, bits), block_count - kept
    if count < 2:
        raise InputError(f"dealt-M-B at {bits} bits needs at least {kept + 2} blocks, got M={block_count}")
    dealt = [list(free[start::count])[:length] for start in range(count)]
    return [list(range(place * length, (place + 1) * length)) for place in range(kept)] + dealt, kept
