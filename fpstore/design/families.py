"""Designs: the permuted tables that a store keeps, such that every pair within the radius meets in one of them.

A table leads with some of the 64 bits. A pair of fingerprints *meets* in a table when they differ in at most ``flips`` of
its leading ``prefix_bits``. A design is exact for a radius if, wherever that many errors fall, there is a table in which the
pair meets (Manku, Jain, Das Sarma, WWW 2007, section 3; with flips, the general pigeonhole principle of Qin et al.,
ICDE 2018).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.cached import cached_property
from fpstore.errors import CorruptStoreError, InputError, show
from fpstore.width import WIDTHS, WORD_BITS, Width, check_width

LOOKUP_SHARE = (
    4  # the largest radius of designs that look up parts of their tables is a quarter of the width: beyond, a scan is cheaper
)
MAX_TABLES = 500
MAX_VARIANTS = 1 << 20

# manku-N: the designs of the paper by their number of tables, with the largest radius for which each is exact without flips.
MANKU = {
    "manku-4": ("blocks-4-1", 3),
    "manku-10": ("blocks-5-2", 3),
    "manku-16": ("nested-4-4", 3),
    "manku-20": ("blocks-6-3", 3),
    "manku-28": ("blocks-8-2", 6),
}
SCAN, DEALT = "scan", "dealt"
# The kinds of tables: blocks of codes, or columns: copies of the fingerprints, references to rows, or the rows themselves.
BLOCKS, COPIES, REFERENCES, ROWS = "blocks", "copies", "references", "rows"
KINDS = (BLOCKS, COPIES, REFERENCES, ROWS)
TAG_BITS = 16
MOST_BUCKET_BITS = 19  # a directory of 2^19 buckets stays in the cache
LEAST_BUCKET_BITS = 8


@dataclass(frozen=True)
class TableSpec:
    """One table of a design.

    Parameters
    ----------
    permutation : bytes
        64 entries; entry i is the source bit of bit i, where 0 is the most significant bit.
    prefix_bits : int
        The number of leading bits (after the permutation) that a look-up fixes.
    flips : int
        The number of leading bits that may differ; of a column table, -1 if it is not looked up.
    kind : str
        One of KINDS. The leading bits of a column table are those that number its buckets.
    tag_bits : int
        Of a column table: the bits behind the leading ones that a look-up compares first.
    """

    permutation: bytes
    prefix_bits: int
    flips: int = 0
    kind: str = BLOCKS
    tag_bits: int = 0

    def __post_init__(self) -> None:
        bits = len(self.permutation)
        if bits not in WIDTHS or sorted(self.permutation) != list(range(bits)):
            raise InputError("a table's permutation must hold each of 32, 64, 128 or 256 bits once")
        most = min(bits, WORD_BITS)
        if not 0 <= self.prefix_bits <= most:
            raise InputError(f"prefix_bits must be 0 to {most}, got {self.prefix_bits}")
        if self.kind not in KINDS or not 0 <= self.tag_bits <= TAG_BITS:
            raise InputError(f"a table is of one of the kinds {', '.join(KINDS)}, with at most {TAG_BITS} bits of tag")
        if not (-1 if self.in_ring else 0) <= self.flips <= self.prefix_bits:
            raise InputError(f"flips must be 0 to prefix_bits ({self.prefix_bits}), got {self.flips}")

    @property
    def width(self) -> Width:
        """The width of the fingerprints."""
        return Width(len(self.permutation))

    @property
    def in_ring(self) -> bool:
        """Whether it is a column table that is looked up."""
        return self.kind in (COPIES, REFERENCES)

    @property
    def tag(self) -> frozenset[int]:
        """The source bits of the tag."""
        return frozenset(self.permutation[self.prefix_bits : self.prefix_bits + self.tag_bits])

    @property
    def leading(self) -> frozenset[int]:
        """The source bits that lead, where 0 is the most significant bit."""
        return frozenset(self.permutation[: self.prefix_bits])

    @property
    def key_words(self) -> int:
        """The words of a key that the table is sorted by."""
        return 1 if self.kind == REFERENCES else self.width.words

    @property
    def covers_all(self) -> bool:
        """Whether every pair meets in this table."""
        return self.flips >= self.prefix_bits

    @property
    def sort_bits(self) -> int:
        """The number of leading bits that must be sorted, in a set that was sorted before it was permuted.

        The bits after them keep their source order, so keys that tie on the leading bits are already in order.
        """
        bits = len(self.permutation) - 1
        while bits > 0 and self.permutation[bits - 1] < self.permutation[bits]:
            bits -= 1
        return max(bits, 1)

    def to_json(self) -> dict[str, object]:
        """Return the table as plain data."""
        data: dict[str, object] = {"permutation": self.permutation.hex(), "prefix_bits": self.prefix_bits, "flips": self.flips}
        return data if self.kind == BLOCKS else {**data, "kind": self.kind, "tag_bits": self.tag_bits}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TableSpec:
        """Rebuild a table written by :meth:`to_json`."""
        kind, tag_bits = str(data.get("kind", BLOCKS)), int(data.get("tag_bits", 0))
        return TableSpec(bytes.fromhex(data["permutation"]), int(data["prefix_bits"]), int(data["flips"]), kind, tag_bits)


@dataclass(frozen=True)
class TableLookup:
    """The look-up of a probe in one table: all entries whose leading bits equal the query's XOR one of the masks."""

    table: int
    prefix_bits: int
    flips: int

    @property
    def reads_all(self) -> bool:
        """Whether it meets every entry of its table."""
        return self.prefix_bits == 0

    @property
    def variant_count(self) -> int:
        """The number of prefix look-ups per query."""
        return sum(comb(self.prefix_bits, i) for i in range(self.flips + 1))

    @cached_property
    def masks(self) -> npt.NDArray[np.uint64]:
        """The masks, ascending: at most ``flips`` of the leading ``prefix_bits`` set."""
        masks = [
            sum(1 << (WORD_BITS - 1 - bit) for bit in bits)
            for count in range(self.flips + 1)
            for bits in itertools.combinations(range(self.prefix_bits), count)
        ]
        return np.array(sorted(masks), dtype=np.uint64)


@dataclass(frozen=True)
class Design:
    """The tables of a store, exact for every radius up to ``radius``."""

    name: str
    radius: int
    tables: tuple[TableSpec, ...]

    @property
    def width(self) -> Width:
        """The width of the fingerprints."""
        return self.tables[0].width

    @property
    def ring(self) -> tuple[tuple[int, TableSpec], ...]:
        """The column tables that are looked up, with their places in the design; none in a design of blocks."""
        return tuple((place, table) for place, table in enumerate(self.tables) if table.in_ring)

    def thresholds(self, radius: int) -> list[int]:
        """Return the flips of each table of the ring for a radius up to the design's; -1 if it need not be looked up."""
        return spread(len(self.ring), radius)

    def lookups(self, fingerprint_count: int, radius: int | None = None) -> tuple[TableLookup, ...]:
        """Return the look-ups of a probe over a set of this size, for a radius up to the design's.

        Tables and flips that a smaller radius does not need are omitted. Where flips are needed, only about log2 n
        leading bits are used: flips below that would lead to a block that is already open.
        """
        radius = self.radius if radius is None else radius
        if self.ring:
            flips = zip(self.ring, self.thresholds(radius), strict=True)
            looks = tuple(TableLookup(place, table.prefix_bits, t) for (place, table), t in flips if t >= 0)
            _check_variants(self, radius, looks)
            return looks
        return _lookups(self, max(fingerprint_count, 1).bit_length() - 1, radius)

    def scans(self, fingerprint_count: int, radius: int) -> bool:
        """Whether a probe of this radius compares every fingerprint."""
        return radius > self.radius or any(x.reads_all for x in self.lookups(fingerprint_count, radius))

    def to_json(self) -> dict[str, object]:
        """Return the design as plain data."""
        return {"name": self.name, "radius": self.radius, "tables": [t.to_json() for t in self.tables]}

    @staticmethod
    def from_json(data: Mapping[str, object]) -> Design:
        """Rebuild a design written by :meth:`to_json`."""
        try:
            tables: Any = data["tables"]
            return Design(
                str(data["name"]),
                int(str(data["radius"])),
                tuple(map(TableSpec.from_json, tables)),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptStoreError("the manifest's design is malformed: run fpstore repair") from error


# With flips, a look-up uses about log2 n - FLIP_SLACK_BITS leading bits, so that each meets about 2^FLIP_SLACK_BITS entries of a
# block that it has opened anyway, and fewer look-ups are needed. Swept by `tools/bench sweep`; see docs/design.md.
FLIP_SLACK_BITS = 2


@lru_cache(maxsize=1024)
def _needed(design: Design, radius: int) -> tuple[tuple[int, TableSpec], ...]:
    """Return the tables and flips that a radius needs, by position in the design."""
    # Flips are dropped first: a look-up in one more table costs less than the flips of another.
    specs = list(enumerate(design.tables))
    for place, (table, spec) in enumerate(specs):
        while spec.flips > 0:
            less = TableSpec(spec.permutation, spec.prefix_bits, spec.flips - 1)
            if not covers([less if i == place else s for i, (_, s) in enumerate(specs)], radius):
                break
            spec = less
            specs[place] = (table, spec)
    for place in range(len(specs) - 1, -1, -1):
        fewer = specs[:place] + specs[place + 1 :]
        if fewer and covers([s for _, s in fewer], radius):
            specs = fewer
    return tuple(specs)


@lru_cache(maxsize=256)
def _lookups(design: Design, log2_count: int, radius: int) -> tuple[TableLookup, ...]:
    if radius == 0:
        return (TableLookup(0, min(design.width.bits, WORD_BITS), 0),)
    result = []
    for table, spec in _needed(design, radius):
        prefix = spec.prefix_bits
        if spec.flips:
            prefix = min(prefix, max(log2_count - FLIP_SLACK_BITS, 0))
        result.append(TableLookup(table, prefix, min(spec.flips, prefix)))
    _check_variants(design, radius, result)
    return tuple(result)


def _check_variants(design: Design, radius: int, lookups: Sequence[TableLookup]) -> None:
    for lookup in lookups:
        if lookup.variant_count > MAX_VARIANTS:
            raise InputError(
                f"design {design.name} needs {lookup.variant_count} look-ups in table {lookup.table} at radius {radius}; "
                f"at most {MAX_VARIANTS} are allowed: choose a design with more tables"
            )


def covers(tables: Sequence[TableSpec], radius: int) -> bool:
    """Whether, for every placement of ``radius`` errors, some table has at most its flips on the leading bits.

    Bits that lead in the same tables are equivalent, so errors are placed on classes of bits. The search tries to defeat every
    table, by placing more errors on its leading bits than it has flips. It branches on the undefeated table with the fewest
    classes, one of which must get an error, and drops a class when all placements with it have been tried. Two facts keep the
    search small: a class can be skipped if another one with enough room hits the same undefeated tables and more; and the
    classes that hit the most undefeated tables bound what the remaining errors can do.
    """
    if any(table.in_ring for table in tables):
        return _covers_in_ring([table for table in tables if table.in_ring], radius)
    apart = _blocks_apart(tables)
    if apart is not None:
        # To defeat all takes flips + 1 errors in each, if it has that many bits.
        return any(flips >= bits.bit_count() for bits, flips in apart) or sum(flips + 1 for _, flips in apart) > radius
    members_of = [0] * len(tables[0].permutation)  # for each source bit, the tables in which it leads, as bits
    for i, table in enumerate(tables):
        for bit in table.permutation[: table.prefix_bits]:
            members_of[bit] |= 1 << i

    def defeat(needs: dict[int, int], classes: Mapping[int, int], left: int) -> bool:
        """Place at most ``left`` errors so that each undefeated table (one bit each) gets as many as it needs."""
        if not needs:
            return True
        if max(needs.values()) > left:
            return False
        still = sum(needs)
        merged: Counter[int] = Counter()
        for members, room in classes.items():
            if room and members & still:
                merged[members & still] += room
        rooms = merged.items()
        hits = itertools.chain.from_iterable([members.bit_count()] * min(room, left) for members, room in rooms)
        if sum(sorted(hits, reverse=True)[:left]) < sum(needs.values()):
            return False
        worthwhile = _worthwhile(merged, max(needs.values()))
        choices = min(([m for m in worthwhile if m & table] for table in needs), key=len)
        for members in choices:
            rest = {t: n - bool(t & members) for t, n in needs.items()}
            worthwhile[members] -= 1
            if defeat({t: n for t, n in rest.items() if n}, worthwhile, left - 1):
                return True
            del worthwhile[members]
        return False

    return not defeat({1 << i: t.flips + 1 for i, t in enumerate(tables)}, Counter(members_of), radius)


def _blocks_apart(tables: Sequence[TableSpec]) -> list[tuple[int, int]] | None:
    """Return the leading bits and flips of tables that share no leading bit; None if there are others.

    Tables whose pairs all meet in another one are left out: that one leads with some of their bits and has as many flips.
    """
    apart: list[tuple[int, int]] = []
    used = 0
    for table in sorted(tables, key=lambda t: (t.prefix_bits, -t.flips)):
        bits = sum(1 << bit for bit in table.permutation[: table.prefix_bits])
        if not bits & used:
            apart.append((bits, table.flips))
            used |= bits
        elif not any(flips >= table.flips and other | bits == bits for other, flips in apart):
            return None
    return apart


def _worthwhile(classes: Mapping[int, int], most: int) -> dict[int, int]:
    """Drop each class whose errors, at most ``most``, could also lie on another class that hits all its tables."""
    kept: dict[int, int] = {}
    roomy: list[int] = []
    for members in sorted(classes, key=int.bit_count, reverse=True):
        if any(members & other == members for other in roomy):
            continue
        kept[members] = classes[members]
        if kept[members] >= most:
            roomy.append(members)
    return kept


def _covers_in_ring(tables: Sequence[TableSpec], radius: int) -> bool:
    """Whether the look-ups of column tables cover a radius.

    Bucket i and the tag of the table before it belong to block i, and no two blocks share a bit. By the pigeonring principle (Qin
    and Xiao, VLDB 2018) some block i has at most t_i errors, and it and the next one together at most t_i + t_(i+1) + 1, if the
    t_i + 1 add up to more than the radius.
    """
    seen: set[int] = set()
    for place, table in enumerate(tables):
        block = table.tag | tables[(place + 1) % len(tables)].leading
        if seen & block:
            return False
        seen |= block
    return sum(table.flips + 1 for table in tables) > radius


def spread(block_count: int, radius: int) -> list[int]:
    """Return thresholds t_i for so many blocks, at least -1 each, with sum(t_i + 1) = radius + 1 (GPH, ICDE 2018)."""
    base, extra = divmod(radius + 1, block_count)
    return [base - 1 + (place >= block_count - extra) for place in range(block_count)]


def columns(block_count: int, radius: int, bits: int = WORD_BITS, bucket_bits: int | None = None) -> list[TableSpec]:
    """Each of ``block_count`` disjoint blocks numbers the buckets of a column table, whose tag is of the next block.

    Above 64 bits, the first table has the rows, and the others refer to them.
    """
    length = bits // block_count if block_count else 0
    cut = [range(place * length, (place + 1) * length) for place in range(block_count)]
    return column_tables(cut, min(length, TAG_BITS) if bucket_bits is None else bucket_bits, radius, bits)


def column_tables(cut: Sequence[Sequence[int]], bucket_bits: int, radius: int, bits: int) -> list[TableSpec]:
    """Return the column tables of disjoint blocks of source bits, all as long.

    The first ``bucket_bits`` of a block number the buckets of its table, and the first bits of the next block are its tag.

    Copies, up to 64 bits, begin with a table in the order of the fingerprints: the first two blocks are the leading bits.
    """
    length = len(cut[0]) if cut else 0
    if not LEAST_BUCKET_BITS <= bucket_bits <= min(length, MOST_BUCKET_BITS):
        raise InputError(
            f"columns-M-B at {bits} bits needs M blocks, and numbers of buckets of B bits: at least {LEAST_BUCKET_BITS}, at most "
            f"{MOST_BUCKET_BITS} and those of a block; got M={len(cut)}, B={bucket_bits}"
        )
    if max(spread(len(cut), radius)) >= bucket_bits:
        raise InputError(f"columns-{len(cut)} at radius {radius} would look at every bucket: use more blocks, or scan")
    wide = bits > WORD_BITS
    specs = [TableSpec(identity(bits), TAG_BITS, 0, ROWS)] if wide else []
    for place, flips in enumerate(spread(len(cut), radius)):
        block, behind = cut[place], (place + 1) % len(cut)
        tag: Sequence[int] = cut[behind][:TAG_BITS]
        # The tag of the table in the order of the fingerprints follows its bucket. No other tag has these bits.
        if not wide and place == 0:
            tag = range(bucket_bits, min(bucket_bits + TAG_BITS, bits if len(cut) == 1 else 2 * length))
        elif not wide and behind == 0:
            tag = cut[0][: min(TAG_BITS, bucket_bits)]
        lead = [*block[:bucket_bits], *tag]
        leads = set(lead)
        permutation = bytes([*lead, *(bit for bit in range(bits) if bit not in leads)])
        specs.append(TableSpec(permutation, bucket_bits, flips, REFERENCES if wide else COPIES, len(tag)))
    return specs


def deal_in_turn(block_count: int, bits: int) -> tuple[list[list[int]], int]:
    """Return disjoint blocks, all as long, of bits dealt in turn, and how many lead undealt: the first two of copies.

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


def block_lengths(block_count: int, bits: int) -> list[int]:
    """Cut ``bits`` into blocks whose lengths differ by at most one, longer ones first."""
    short, longer = divmod(bits, block_count)
    return [short + 1] * longer + [short] * (block_count - longer)


def _cut(source: Sequence[int], block_count: int) -> list[list[int]]:
    cuts = [0, *itertools.accumulate(block_lengths(block_count, len(source)))]
    return [list(source[a:b]) for a, b in itertools.pairwise(cuts)]


def _table(leading: Sequence[int], flips: int, bits: int) -> TableSpec:
    # A look-up goes by leading bits of one word. Those beyond it may differ: that only adds candidates.
    leads = set(leading)
    rest = [bit for bit in range(bits) if bit not in leads]
    prefix_bits = min(len(leading), WORD_BITS)
    return TableSpec(bytes([*leading, *rest]), prefix_bits, min(flips, prefix_bits))


def identity(bits: int) -> bytes:
    """Return the permutation that leaves every bit at its place."""
    return bytes(range(bits))


def blocks(block_count: int, leading_count: int, radius: int, bits: int = WORD_BITS) -> list[TableSpec]:
    """Every choice of ``leading_count`` of ``block_count`` blocks leads in one table (Manku, section 3.1).

    If the other blocks cannot hold all errors, even the best choice has some; the tables then need that many flips.
    """
    if not 1 <= leading_count <= block_count <= bits:
        raise InputError(f"blocks-M-C needs 1 <= C <= M <= {bits}, got M={block_count}, C={leading_count}")
    if comb(block_count, leading_count) > MAX_TABLES:
        raise InputError(f"blocks-{block_count}-{leading_count} has more than {MAX_TABLES} tables")
    cut = _cut(range(bits), block_count)
    full, extra = divmod(radius, block_count)
    flips = full * leading_count + max(0, extra - (block_count - leading_count))
    chosen = itertools.combinations(cut, leading_count)
    return [_table([bit for block in leading for bit in block], flips, bits) for leading in chosen]


def striped(block_count: int, leading_count: int, radius: int, bits: int = WORD_BITS) -> list[TableSpec]:
    """Like :func:`blocks`, but with the bits dealt to the blocks in turn, so that constant or skewed runs of bits spoil no block.

    The identity table, which gives the order of the ids, is looked up only for the query itself.
    """
    dealt = [bit for start in range(block_count) for bit in range(start, bits, block_count)]
    tables = blocks(block_count, leading_count, radius, bits)
    return [
        TableSpec(identity(bits), min(bits, WORD_BITS)),
        *(_table([dealt[bit] for bit in t.permutation[: t.prefix_bits]], t.flips, bits) for t in tables),
    ]


def nested(outer_count: int, inner_count: int, radius: int, bits: int = WORD_BITS) -> list[TableSpec]:
    """One of ``outer_count`` blocks leads, then one of ``inner_count`` blocks of the other bits (Manku, section 3.1.2)."""
    if not 2 <= outer_count <= bits or not 2 <= inner_count <= bits - bits // outer_count:
        raise InputError(f"nested-A-B needs A and B of at least 2, got A={outer_count}, B={inner_count}")
    if radius >= min(outer_count, inner_count):
        raise InputError(
            f"nested-{outer_count}-{inner_count} is exact up to radius {min(outer_count, inner_count) - 1}, got {radius}"
        )
    if outer_count * inner_count > MAX_TABLES:
        raise InputError(f"nested-{outer_count}-{inner_count} has more than {MAX_TABLES} tables")
    tables = []
    for outer in _cut(range(bits), outer_count):
        others = [bit for bit in range(bits) if bit not in set(outer)]
        tables += [_table([*outer, *inner], 0, bits) for inner in _cut(others, inner_count)]
    return tables


def flip(block_count: int, radius: int, bits: int = WORD_BITS) -> list[TableSpec]:
    """Each of ``block_count`` disjoint blocks leads one table with r_i flips; sum(r_i + 1) = radius + 1 (GPH, ICDE 2018)."""
    if not 1 <= block_count <= min(radius + 1, bits):
        raise InputError(f"flip-M at radius {radius} needs 1 <= M <= {min(radius + 1, bits)}, got M={block_count}")
    base, extra = divmod(radius + 1 - block_count, block_count)
    cut = _cut(range(bits), block_count)
    return [_table(block, base + (i >= block_count - extra), bits) for i, block in enumerate(cut)]


def lookup_radius(width: int) -> int:
    """Return the largest radius of designs that look up parts of their tables."""
    return width // LOOKUP_SHARE


def check_radius(radius: object, most: int = WORD_BITS) -> int:
    """Return the radius as an int, or raise :class:`InputError` if it is not a whole number from 0 to ``most``."""
    if isinstance(radius, (bool, np.bool_)) or not isinstance(radius, (int, np.integer)) or not 0 <= radius <= most:
        raise InputError(f"radius must be a whole number from 0 to {most}, got {show(radius)}")
    return int(radius)


def check_design(name: object, radius: object, width: int = WORD_BITS) -> str | list[Mapping[str, object] | TableSpec]:
    """Return a design for :func:`fpstore.build`, ``auto`` or one that is exact for the radius; otherwise raise InputError."""
    if isinstance(name, (bytes, Mapping)) or not isinstance(name, Iterable):
        raise InputError(f"design must be auto, the name of a design or a list of tables, got {show(name)}", got=name)
    described = name if isinstance(name, str) else list(name)
    if described != "auto":
        design(described, check_radius(radius, width), width)
    return described


def design(name: str | Iterable[Mapping[str, object] | TableSpec], radius: int = 3, width: int = WORD_BITS) -> Design:
    """Make a design from its name, or from a list of table descriptions.

    Parameters
    ----------
    name : str or iterable of dict
        ``manku-4``, ``manku-10``, ``manku-16``, ``manku-20``, ``manku-28``, ``blocks-M-C``, ``striped-M-C``, ``nested-A-B``,
        ``flip-M``, ``columns-M``, ``columns-M-B``, ``dealt-M-B``, ``scan`` (the identity table alone, read as a whole); or
        tables, each a :class:`TableSpec` or a dict with ``permutation`` (source bits, most significant first), ``prefix_bits``
        and ``flips``. The first table must
        be the identity: the id map follows its blocks.
    radius : int
        The largest radius for which it must be exact, 0 to the width; above a quarter of it, ``scan`` is the only design.
    width : int
        Bits of a fingerprint: 32, 64, 128 or 256.

    Raises
    ------
    InputError
        The name is unknown, the design is not exact for the radius, or the tables leave some pair uncovered.

    Examples
    --------
    >>> from fpstore.design.families import design
    >>> [t.prefix_bits for t in design("flip-2", radius=3).tables]
    [32, 32]
    """
    check_width(width)
    radius = check_radius(radius, width)
    if isinstance(name, str):
        if name != SCAN and radius > lookup_radius(width):
            raise InputError(
                f"{show(name)} at radius {radius}: above radius {lookup_radius(width)}, look-ups cost more than a scan: "
                "use scan or auto"
            )
        return Design(name, radius, tuple(_named(name, radius, width)))
    tables = tuple(t if isinstance(t, TableSpec) else _described(t) for t in name)
    if not tables:
        raise InputError("a design needs at least one table")
    if len(tables) > MAX_TABLES:
        raise InputError(f"a design has at most {MAX_TABLES} tables, got {len(tables)}")
    if any(len(table.permutation) != width for table in tables):
        widths = ", ".join(sorted({str(len(table.permutation)) for table in tables}))
        raise InputError(f"these tables are for fingerprints of {widths} bits, but the width is {width}")
    if tables[0].permutation != identity(width):
        raise InputError(f"the first table of a design must have the identity permutation (0, 1, ..., {width - 1})")
    if radius > lookup_radius(width) and not any(table.covers_all for table in tables):
        raise InputError(
            f"above radius {lookup_radius(width)}, look-ups cost more than a scan, got radius {radius}: use scan or auto"
        )
    if not covers(tables, radius):
        raise InputError(f"these {len(tables)} tables are not exact for radius {radius}: some pairs meet in none of them")
    return Design("custom", radius, tables)


def _described(table: Mapping[str, object]) -> TableSpec:
    try:
        bits = table["permutation"]
        if not isinstance(bits, (list, tuple, bytes)):
            raise TypeError
        permutation, prefix_bits = bytes(bits), int(str(table["prefix_bits"]))
        flips = int(str(table.get("flips", 0)))
    except (KeyError, ValueError, TypeError) as error:
        raise InputError("a table description is a dict with permutation (source bits), prefix_bits and flips") from error
    return TableSpec(permutation, prefix_bits, flips)


def _named(name: str, radius: int, width: int) -> list[TableSpec]:
    if name == SCAN:
        return [TableSpec(identity(width), 0)]
    full = name
    if name in MANKU:
        full, most = MANKU[name]
        if radius > most:
            raise InputError(f"{name} is exact up to radius {most}, got {radius}: {full} keeps its shape and adds flips")
    match = re.fullmatch(
        r"(blocks|striped|nested)-(\d{1,2})-(\d{1,2})|(flip)-(\d{1,2})|(columns|dealt)-(\d{1,2})(?:-(\d{1,2}))?", full
    )
    if match is None:
        raise InputError(
            f"unknown design {show(name)}: use auto, {', '.join(MANKU)}, blocks-M-C, striped-M-C, nested-A-B, flip-M, columns-M, "
            "dealt-M or scan (fpstore plan lists them)"
        )
    if match[4]:
        return flip(int(match[5]), radius, width)
    if match[6] == DEALT:
        cut, _ = deal_in_turn(int(match[7]), width)
        return column_tables(cut, int(match[8]) if match[8] else min(len(cut[0]), TAG_BITS), radius, width)
    if match[6]:
        return columns(int(match[7]), radius, width, int(match[8]) if match[8] else None)
    family = {"blocks": blocks, "striped": striped, "nested": nested}[match[1]]
    return family(int(match[2]), int(match[3]), radius, width)


def named_like(known: Mapping[int, TableSpec], table_count: int, radius: int | None = None) -> Design | None:
    """Return the named design that has these tables, by default for the largest radius for which it has them."""
    width = next(iter(known.values())).width.bits
    whole = TableSpec(identity(width), 0)
    if table_count == 1 and known.get(0) == whole:
        return Design(SCAN, width if radius is None else radius, (whole,))
    most = lookup_radius(width)
    names = [*MANKU, *(f"flip-{m}" for m in range(1, most + 2))]
    for m in range(1, width + 1):
        names += [f"blocks-{m}-{c}" for c in range(1, m + 1) if comb(m, c) == table_count]
        names += [f"striped-{m}-{c}" for c in range(1, m + 1) if comb(m, c) + 1 == table_count]
        names += [f"nested-{m}-{table_count // m}"] if table_count % m == 0 else []
    for tried in range(most, -1, -1) if radius is None else (radius,):
        for name in names:
            try:
                tables = tuple(_named(name, tried, width))
            except InputError:
                continue
            if len(tables) == table_count and all(tables[i] == spec for i, spec in known.items()):
                return Design(name, tried, tables)
    return None
