"""Designs: the tables of a store, such that every pair within the radius meets in one of them.

A table leads with some of the bits. A pair of fingerprints *meets* in a table when they differ in
at most ``flips`` of its leading ``prefix_bits``. A design is exact for a radius if, wherever that
many errors fall, there is a table in which the pair meets (Manku, Jain, Das Sarma, WWW 2007,
section 3; with flips, the general pigeonhole principle of Qin et al., ICDE 2018).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from types import MappingProxyType
from typing import Any

import numpy as np

from fpstore.base.arguments import check_whole
from fpstore.base.threads import cached_property
from fpstore.base.width import WORD_BITS, Width, check_width
from fpstore.design.covering import ProofBudget, covers
from fpstore.design.tables import (
    BLOCKS,
    COPIES,
    MAX_BUCKET_BITS,
    MAX_COLUMN_ENTRIES,
    MAX_RING,
    MIN_BUCKET_BITS,
    REFERENCES,
    ROWS,
    TAG_BITS,
    TableLookup,
    TableSpec,
    block_thresholds,
    identity_permutation,
    permutation_led_by,
    row_spec,
)
from fpstore.errors import CorruptStoreError, InputError, show

# the largest radius of look-ups is the width divided by this; beyond, a scan is cheaper
LOOKUP_DIVISOR = 4
MAX_TABLES = 500
MAX_VARIANTS = 1 << 20

# manku-N: the designs of the paper by their number of tables, with the largest radius for which
# each is exact without flips.
MANKU = {
    "manku-4": ("blocks-4-1", 3),
    "manku-10": ("blocks-5-2", 3),
    "manku-16": ("nested-4-4", 3),
    "manku-20": ("blocks-6-3", 3),
    "manku-28": ("blocks-8-2", 6),
}
SCAN, DEALT = "scan", "dealt"
_N = r"(0|[1-9][0-9]?)"
MAX_FINGERPRINTS = 2**63 - 1
NAME = rf"(blocks|striped|nested)-{_N}-{_N}|(flip)-{_N}|(columns|dealt)-{_N}(?:-{_N})?"


@dataclass(frozen=True, repr=False)
class Design:
    """The tables of a store, exact for every radius up to ``radius``.

    Names of designs: ``auto``; ``manku-4``, ``manku-10``, ``manku-16``, ``manku-20`` (radius 3) and
    ``manku-28`` (radius 6); ``blocks-M-C`` (C of M blocks lead), ``striped-M-C`` (the same with
    bits dealt in turn), ``nested-A-B``, ``flip-M`` (M disjoint leading blocks with flips);
    ``columns-M``, ``columns-M-B`` and ``dealt-M-B`` (column tables of M blocks, B bits number the
    buckets); ``scan``. A design that is not exact for the radius is refused.
    """

    name: str
    radius: int
    tables: tuple[TableSpec, ...]

    def __repr__(self) -> str:
        return f"<fpstore.Design: {self.name}, radius {self.radius}, {len(self.tables)} tables>"

    @property
    def width(self) -> Width:
        """The width of the fingerprints."""
        return self.tables[0].width

    @cached_property
    def ring(self) -> tuple[tuple[int, TableSpec], ...]:
        """The column tables that are looked up, with their places in the design.

        None in a design of blocks.
        """
        return tuple((place, table) for place, table in enumerate(self.tables) if table.in_ring)

    @property
    def key_bits(self) -> int:
        """The leading bits that fingerprints may share, if the design looks up only these.

        That is so for some designs of radius 0. For all others it is 0.
        """
        first = self.tables[0]
        keyed = (
            self.radius == 0 and len(self.tables) == 1 and first.kind == BLOCKS and first.flips == 0
        )
        return (
            first.prefix_bits
            if keyed and first.prefix_bits < min(self.width.bits, WORD_BITS)
            else 0
        )

    def thresholds(self, radius: int) -> list[int]:
        """Return the flips of each table of the ring for a radius up to the design's.

        A table with -1 need not be looked up.
        """
        if not self.ring:
            return []
        return block_thresholds(len(self.ring), radius)

    def lookups(
        self,
        fingerprint_count: int,
        radius: int | None = None,
        filter_bits: Mapping[int, int] = MappingProxyType({}),
    ) -> tuple[TableLookup, ...]:
        """Return the look-ups of a probe over a set of this size, for a radius up to the design's.

        Tables and flips that a smaller radius does not need are omitted. Where flips are needed,
        only about log2 n leading bits are used: more bits would lead to a block that is already
        open. ``filter_bits`` has the leading bits that the filter of a table holds: look-ups use
        these, since most then open no block.
        """
        radius = self.radius if radius is None else check_radius(radius, self.width.bits)
        fingerprint_count = check_whole(fingerprint_count, 0, MAX_FINGERPRINTS, "fingerprint_count")
        if self.ring:
            if fingerprint_count > MAX_COLUMN_ENTRIES:
                raise InputError(
                    f"a column table has at most {MAX_COLUMN_ENTRIES} fingerprints, {self.name} "
                    f"is to have {fingerprint_count}",
                    expected=MAX_COLUMN_ENTRIES,
                    got=fingerprint_count,
                )
            flips = zip(self.ring, self.thresholds(radius), strict=True)
            lookups = tuple(
                TableLookup(place, table.prefix_bits, t) for (place, table), t in flips if t >= 0
            )
            _check_variants(self, radius, lookups)
            return lookups
        return _lookups(
            self,
            max(fingerprint_count, 1).bit_length() - 1,
            radius,
            frozenset(dict(filter_bits).items()),
        )

    def scans(self, fingerprint_count: int, radius: int) -> bool:
        """Whether a probe of this radius compares every fingerprint."""
        return radius > self.radius or any(
            x.reads_all for x in self.lookups(fingerprint_count, radius)
        )

    def to_json(self) -> dict[str, object]:
        """Return the design as plain data."""
        return {
            "name": self.name,
            "radius": self.radius,
            "tables": [t.to_json() for t in self.tables],
        }

    @staticmethod
    def from_json(data: Mapping[str, object]) -> Design:
        """Rebuild a design written by :meth:`to_json`."""
        try:
            specs: Any = data["tables"]
            tables, radius = tuple(map(TableSpec.from_json, specs)), int(str(data["radius"]))
            _check_kinds(tables, radius)
            return Design(str(data["name"]), radius, tables)
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptStoreError(
                "the manifest's design is malformed: run fpstore repair"
            ) from error


# With flips, a look-up uses about log2 n - FLIP_SLACK_BITS leading bits, so that each meets about
# 2^FLIP_SLACK_BITS entries of a block that it has opened anyway, and fewer look-ups are needed.
FLIP_SLACK_BITS = 2


@lru_cache(maxsize=1024)
def _tables_for_radius(design: Design, radius: int) -> tuple[tuple[int, TableSpec], ...]:
    """Return the tables and flips that a radius needs, by position in the design.

    As few as can be proved in reasonable time.
    """
    # Flips are dropped first: a look-up in one more table costs less than the flips of another.
    specs, effort = list(enumerate(design.tables)), ProofBudget()
    with suppress(InputError):  # the effort is spent: the tables so far are exact
        for place, (table, spec) in enumerate(specs):
            for flips in reversed(range(spec.flips)):
                less = TableSpec(spec.permutation, spec.prefix_bits, flips)
                if not covers(
                    [less if i == place else s for i, (_, s) in enumerate(specs)], radius, effort
                ):
                    break
                specs[place] = (table, less)
        for place in range(len(specs) - 1, -1, -1):
            fewer = specs[:place] + specs[place + 1 :]
            specs = fewer if fewer and covers([s for _, s in fewer], radius, effort) else specs
    return tuple(specs)


def needed_tables(design: Design) -> tuple[tuple[int, TableSpec], ...]:
    """Return (place, table) of each look-up at the design's radius, with the needed flips."""
    return (
        ((0, design.tables[0]),)
        if design.radius == 0
        else _tables_for_radius(design, design.radius)
    )


@lru_cache(maxsize=256)
def _lookups(
    design: Design, log2_count: int, radius: int, filter_bits: frozenset[tuple[int, int]]
) -> tuple[TableLookup, ...]:
    prefixes = dict(filter_bits)
    if radius == 0:
        return (TableLookup(0, min(design.width.bits, WORD_BITS), 0, 0 in prefixes),)
    result = []
    for table, spec in _tables_for_radius(design, radius):
        prefix = spec.prefix_bits
        if spec.flips:
            prefix = min(prefix, prefixes.get(table, max(log2_count - FLIP_SLACK_BITS, 0)))
        result.append(TableLookup(table, prefix, min(spec.flips, prefix), table in prefixes))
    _check_variants(design, radius, result)
    return tuple(result)


def _check_variants(design: Design, radius: int, lookups: Sequence[TableLookup]) -> None:
    for lookup in lookups:
        if lookup.variant_count > MAX_VARIANTS:
            raise InputError(
                f"design {design.name} needs {lookup.variant_count} look-ups in table "
                f"{lookup.table} at radius {radius}; "
                f"at most {MAX_VARIANTS} are allowed: choose a design with more tables"
            )


def _cut(source: Sequence[int], block_count: int) -> list[list[int]]:
    """Cut source bits into blocks whose lengths differ by at most one, longer ones first."""
    return [block.tolist() for block in np.array_split(np.array(source), block_count)]


def _table(leading: Sequence[int], flips: int, bits: int) -> TableSpec:
    # A look-up goes by leading bits of one word. Those beyond it may differ: that only adds
    # candidates.
    prefix_bits = min(len(leading), WORD_BITS)
    return TableSpec(permutation_led_by(leading, bits), prefix_bits, min(flips, prefix_bits))


def blocks(
    block_count: int, leading_count: int, radius: int, bits: int = WORD_BITS
) -> list[TableSpec]:
    """Let each choice of ``leading_count`` of ``block_count`` blocks lead in a table.

    If the other blocks cannot hold all errors, even the best choice has some; the tables then need
    that many flips. Source: Manku, section 3.1.
    """
    if not 1 <= leading_count <= block_count <= bits:
        raise InputError(
            f"blocks-M-C needs 1 <= C <= M <= {bits}, got M={block_count}, C={leading_count}"
        )
    if comb(block_count, leading_count) > MAX_TABLES:
        raise InputError(f"blocks-{block_count}-{leading_count} has more than {MAX_TABLES} tables")
    cut = _cut(range(bits), block_count)
    full, extra = divmod(radius, block_count)
    flips = full * leading_count + max(0, extra - (block_count - leading_count))
    choices = itertools.combinations(cut, leading_count)
    return [_table(list(itertools.chain(*choice)), flips, bits) for choice in choices]


def striped_tables(
    block_count: int, leading_count: int, radius: int, bits: int = WORD_BITS
) -> list[TableSpec]:
    """Make tables like :func:`blocks`, of blocks whose bits are dealt in turn.

    Constant or skewed runs of bits then spoil no block. The identity table, which gives the order
    of the ids, is looked up only for the query itself.
    """
    dealt = [bit for start in range(block_count) for bit in range(start, bits, block_count)]
    tables = blocks(block_count, leading_count, radius, bits)
    return [
        TableSpec(identity_permutation(bits), min(bits, WORD_BITS)),
        *(
            _table([dealt[bit] for bit in t.permutation[: t.prefix_bits]], t.flips, bits)
            for t in tables
        ),
    ]


def nested_tables(
    outer_count: int, inner_count: int, radius: int, bits: int = WORD_BITS
) -> list[TableSpec]:
    """Let one of ``outer_count`` blocks lead, then one of ``inner_count`` blocks of the other bits.

    Source: Manku, section 3.1.2.
    """
    if not 2 <= outer_count <= bits or not 2 <= inner_count <= bits - bits // outer_count:
        raise InputError(
            f"nested-A-B at {bits} bits needs A of 2 to {bits}, and B of 2 to the number of bits "
            "outside a block, "
            f"got A={outer_count}, B={inner_count}"
        )
    if radius >= min(outer_count, inner_count):
        raise InputError(
            f"nested-{outer_count}-{inner_count} is exact up to radius "
            f"{min(outer_count, inner_count) - 1}, got {radius}"
        )
    if outer_count * inner_count > MAX_TABLES:
        raise InputError(f"nested-{outer_count}-{inner_count} has more than {MAX_TABLES} tables")
    tables = []
    for outer in _cut(range(bits), outer_count):
        remaining = [bit for bit in range(bits) if bit not in set(outer)]
        tables += [_table([*outer, *inner], 0, bits) for inner in _cut(remaining, inner_count)]
    return tables


def flip(block_count: int, radius: int, bits: int = WORD_BITS) -> list[TableSpec]:
    """Let each of ``block_count`` disjoint blocks lead one table with r_i flips.

    Sum(r_i + 1) = radius + 1 (GPH, ICDE 2018).
    """
    if not 1 <= block_count <= min(radius + 1, bits):
        raise InputError(
            f"flip-M at radius {radius} needs 1 <= M <= {min(radius + 1, bits)}, got "
            f"M={block_count}"
        )
    cut = _cut(range(bits), block_count)
    return [
        _table(block, flips, bits)
        for block, flips in zip(cut, block_thresholds(block_count, radius), strict=True)
    ]


def columns(
    block_count: int, radius: int, bits: int = WORD_BITS, bucket_bits: int | None = None
) -> list[TableSpec]:
    """Let each of ``block_count`` disjoint blocks number the buckets of a column table.

    Its tag is of the next block. Above 64 bits, the first table has the rows, and the others refer
    to them.
    """
    length = bits // block_count if block_count else 0
    cut = [range(place * length, (place + 1) * length) for place in range(block_count)]
    return column_tables(
        cut, min(length, TAG_BITS) if bucket_bits is None else bucket_bits, radius, bits
    )


def column_tables(
    cut: Sequence[Sequence[int]], bucket_bits: int, radius: int, bits: int, family: str = "columns"
) -> list[TableSpec]:
    """Return the column tables of disjoint blocks of source bits of equal length.

    The first ``bucket_bits`` of a block number the buckets of its table, and the first bits of the
    next block are its tag. Copies, up to 64 bits, begin with a table in the order of the
    fingerprints: the first two blocks are the leading bits.
    """
    length = len(cut[0]) if cut else 0
    most = min(length, MAX_BUCKET_BITS)
    if not MIN_BUCKET_BITS <= bucket_bits <= most:
        fits = (
            f"to {most}"
            if most >= MIN_BUCKET_BITS
            else f"or more: use at most {bits // MIN_BUCKET_BITS} blocks"
        )
        raise InputError(
            f"{family}-{len(cut)}-{bucket_bits}: {len(cut)} blocks of {bits} bits have {length} "
            "each, and the number of a bucket "
            f"has {MIN_BUCKET_BITS} {fits}"
        )
    if max(block_thresholds(len(cut), radius)) >= bucket_bits:
        raise InputError(
            f"{family}-{len(cut)} at radius {radius} would look at every bucket: use more blocks, "
            "or scan"
        )
    wide = bits > WORD_BITS
    specs = [row_spec(bits)] if wide else []
    for place, flips in enumerate(block_thresholds(len(cut), radius)):
        block, behind = cut[place], (place + 1) % len(cut)
        tag: Sequence[int] = cut[behind][:TAG_BITS]
        # The tag of the table in the order of the fingerprints follows its bucket. No other tag has
        # these bits.
        if len(cut) == 1 or (not wide and place == 0):
            tag = range(
                bucket_bits, min(bucket_bits + TAG_BITS, bits if len(cut) == 1 else 2 * length)
            )
        elif not wide and behind == 0:
            tag = cut[0][: min(TAG_BITS, bucket_bits)]
        permutation = permutation_led_by([*block[:bucket_bits], *tag], bits)
        specs.append(
            TableSpec(permutation, bucket_bits, flips, REFERENCES if wide else COPIES, len(tag))
        )
    return specs


def deal_in_turn(block_count: int, bits: int) -> tuple[list[list[int]], int]:
    """Return disjoint blocks of equal length, of bits dealt in turn, and the number that lead.

    The blocks that lead, two for copies, keep their bits. InputError if there are not two more
    blocks.
    """
    length = bits // block_count if block_count else 0
    leading_blocks = 0 if bits > WORD_BITS else 2
    free, count = range(leading_blocks * length, bits), block_count - leading_blocks
    if count < 2:
        raise InputError(
            f"dealt-M-B at {bits} bits needs at least {leading_blocks + 2} blocks, got "
            f"M={block_count}"
        )
    dealt = [list(free[start::count])[:length] for start in range(count)]
    leading = [list(range(place * length, (place + 1) * length)) for place in range(leading_blocks)]
    return leading + dealt, leading_blocks


def lookup_radius(width: int) -> int:
    """Return the largest radius of designs that look up parts of their tables."""
    return width // LOOKUP_DIVISOR


def check_radius(radius: object, most: int = WORD_BITS, name: str = "radius") -> int:
    """Return the radius as an int; InputError if it is no whole number from 0 to ``most``."""
    if (
        isinstance(radius, (bool, np.bool_))
        or not isinstance(radius, (int, np.integer))
        or not 0 <= radius <= most
    ):
        raise InputError(
            f"{name} must be a whole number from 0 to {most}, got {show(radius)}", argument=name
        )
    return int(radius)


def check_design(name: object, radius: object, width: int = WORD_BITS) -> str:
    """Return ``auto`` or the name of a design that is exact for the radius, or raise InputError."""
    if not isinstance(name, str):
        raise InputError(
            f"design must be auto or the name of a design, got {show(name)}",
            got=name,
            argument="design",
        )
    if name != "auto":
        design(name, check_radius(radius, width), width)
    return name


def design(name: str, radius: int = 3, width: int = WORD_BITS) -> Design:
    """Make a design from its name; InputError if it is not exact for the radius.

    Names are ``manku-4``, ``manku-10``, ``manku-16``, ``manku-20``, ``manku-28``, ``blocks-M-C``,
    ``striped-M-C``, ``nested-A-B``, ``flip-M``, ``columns-M``, ``columns-M-B``, ``dealt-M-B``,
    ``scan`` (the identity table alone, read as a whole; above a quarter of the width, it is the
    only design).

    Examples
    --------
    >>> from fpstore.design.families import design
    >>> [t.prefix_bits for t in design("flip-2", radius=3).tables]
    [32, 32]
    """
    check_width(width)
    radius = check_radius(radius, width)
    if name != SCAN and radius > lookup_radius(width):
        raise InputError(
            f"{show(name)} at radius {radius}: above radius {lookup_radius(width)}, look-ups cost "
            "more than a scan: use scan or auto"
        )
    return Design(name, radius, _tables(name, radius, width))


def _check_columns(table: TableSpec) -> None:
    """Refuse a column table that no file can hold."""
    width = table.width.bits
    if table.kind == BLOCKS:
        return
    if (table.kind == COPIES) != (width <= WORD_BITS):
        allowed = COPIES if width <= WORD_BITS else f"{REFERENCES} and {ROWS}"
        raise InputError(f"column tables of {width} bits are {allowed}, got {table.kind}")
    if table.kind == ROWS:
        if table != row_spec(width):
            raise InputError(
                f"a table of rows has the identity permutation, {TAG_BITS} prefix_bits, no flips "
                "and no tag"
            )
        return
    most = min(MAX_BUCKET_BITS, width)
    if (
        not MIN_BUCKET_BITS <= table.prefix_bits <= most
        or table.prefix_bits + table.tag_bits > width
    ):
        raise InputError(
            f"a column table of {width} bits has {MIN_BUCKET_BITS} to {most} prefix_bits, and "
            f"with tag_bits at most {width}, "
            f"got {table.prefix_bits} and {table.tag_bits}"
        )


def _check_kinds(tables: Sequence[TableSpec], radius: int) -> None:
    """Refuse tables of different kinds, and flips of column tables that are not the radius's."""
    for table in tables:
        _check_columns(table)
    kinds = [table.kind for table in tables]
    if set(kinds) not in ({BLOCKS}, {COPIES}) and not (
        kinds[0] == ROWS and set(kinds[1:]) == {REFERENCES}
    ):
        raise InputError(
            "a design has tables of blocks, or of copies, or rows and then references, got "
            f"{', '.join(kinds)}"
        )
    flips = [table.flips for table in tables if table.in_ring]
    if len(flips) > MAX_RING:
        raise InputError(f"a design has at most {MAX_RING} column tables, got {len(flips)}")
    if flips and flips != block_thresholds(len(flips), radius):
        needed = ", ".join(map(str, block_thresholds(len(flips), radius)))
        raise InputError(
            f"the flips of {len(flips)} column tables at radius {radius} are {needed}, got "
            f"{', '.join(map(str, flips))}"
        )


@lru_cache(maxsize=1024)
def _tables(name: str, radius: int, width: int) -> tuple[TableSpec, ...]:
    return tuple(_make_tables(name, radius, width))


def _make_tables(name: str, radius: int, width: int) -> list[TableSpec]:
    if name == SCAN:
        return [TableSpec(identity_permutation(width), 0)]
    full_name = name
    if name in MANKU:
        full_name, most = MANKU[name]
        if radius > most:
            raise InputError(
                f"{name} is exact up to radius {most}, got {radius}: use {full_name}, the same "
                "shape with flips, or auto"
            )
    match = re.fullmatch(NAME, full_name)
    if match is None:
        raise InputError(
            f"unknown design {show(name)}: use auto, {', '.join(MANKU)}, blocks-M-C, striped-M-C, "
            "nested-A-B, flip-M, "
            "columns-M-B, dealt-M-B or scan (fpstore plan lists them)"
        )
    if match[4]:
        return flip(int(match[5]), radius, width)
    if match[6] == DEALT:
        cut, _ = deal_in_turn(int(match[7]), width)
        return column_tables(
            cut, int(match[8]) if match[8] else min(len(cut[0]), TAG_BITS), radius, width, DEALT
        )
    if match[6]:
        return columns(int(match[7]), radius, width, int(match[8]) if match[8] else None)
    family = {"blocks": blocks, "striped": striped_tables, "nested": nested_tables}[match[1]]
    return family(int(match[2]), int(match[3]), radius, width)
