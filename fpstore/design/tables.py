"""One table of a design: the leading bits, how many may differ, and the kind of file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.threads import cached_property
from fpstore.base.width import WIDTHS, WORD_BITS, Width
from fpstore.errors import InputError

# The kinds of tables: blocks of codes, or columns: copies of the fingerprints, references to rows,
# or the rows themselves.
BLOCKS, COPIES, REFERENCES, ROWS = "blocks", "copies", "references", "rows"
TABLE_KINDS = (BLOCKS, COPIES, REFERENCES, ROWS)
TAG_BITS = _kernel.TAG_BITS
# the directory of a column table has the place of each bucket in 32 bits
MAX_COLUMN_ENTRIES = (1 << 32) - 1
MAX_BUCKET_BITS = _kernel.MAX_BUCKET_BITS  # a directory of 2^19 buckets stays in the cache
MIN_BUCKET_BITS = _kernel.MIN_BUCKET_BITS
MAX_RING = _kernel.MAX_RING  # the most column tables of a design that are looked up
ROWS_SHARE_BITS = 4  # log2 of the fewest rows, about, in a bucket of a row file


def identity_permutation(bits: int) -> bytes:
    """Return the permutation that leaves every bit at its place."""
    return bytes(range(bits))


@lru_cache(maxsize=1 << 13)  # plans need the same values thousands of times
def ball_size(bits: int, most: int) -> int:
    """Return how many values of ``bits`` bits differ from a value in at most ``most`` bits."""
    return sum(comb(bits, count) for count in range(min(most, bits) + 1))


def permutation_led_by(leading: Sequence[int], bits: int) -> bytes:
    """Return the permutation in which ``leading`` bits lead, and the others follow in order."""
    return bytes([*leading, *sorted(set(range(bits)).difference(leading))])


@dataclass(frozen=True, repr=False)
class TableSpec:
    """One table of a design.

    Parameters
    ----------
    permutation : bytes
        An entry for each bit; entry i is the source bit of bit i, where 0 is the most significant
        bit.
    prefix_bits : int
        The number of leading bits (after the permutation) that a look-up fixes.
    flips : int
        The number of leading bits that may differ; -1 for a column table that is not looked up.
    kind : str
        One of TABLE_KINDS. The leading bits of a column table number its buckets.
    tag_bits : int
        The bits behind the leading bits that a look-up in a column table compares first.
    """

    permutation: bytes
    prefix_bits: int
    flips: int = 0
    kind: str = BLOCKS
    tag_bits: int = 0

    def __repr__(self) -> str:
        tag = f", tag {self.tag_bits}" if self.tag_bits else ""
        shape = (
            f"{self.kind} of {len(self.permutation)} bits, prefix {self.prefix_bits}, flips "
            f"{self.flips}{tag}"
        )
        return f"<fpstore.TableSpec: {shape}>"

    def __post_init__(self) -> None:
        bits = len(self.permutation)
        if bits not in WIDTHS or sorted(self.permutation) != list(range(bits)):
            raise InputError("a table's permutation must hold each of 32, 64, 128 or 256 bits once")
        most = min(bits, WORD_BITS)
        if not 0 <= self.prefix_bits <= most:
            raise InputError(
                f"prefix_bits must be 0 to {most}, got {self.prefix_bits}", argument="prefix_bits"
            )
        if self.kind not in TABLE_KINDS or not 0 <= self.tag_bits <= TAG_BITS:
            raise InputError(
                f"a table is of one of the kinds {', '.join(TABLE_KINDS)}, with at most "
                f"{TAG_BITS} bits of tag"
            )
        if not (-1 if self.in_ring else 0) <= self.flips <= self.prefix_bits:
            raise InputError(
                f"flips must be 0 to prefix_bits ({self.prefix_bits}), got {self.flips}",
                argument="flips",
            )

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
    def sort_bits(self) -> int:
        """The number of leading bits that must be sorted, in a set that was sorted beforehand.

        The bits after them keep their source order. So keys that tie on the leading bits are
        already in order when the set is permuted.
        """
        bits = len(self.permutation) - 1
        while bits > 0 and self.permutation[bits - 1] < self.permutation[bits]:
            bits -= 1
        return max(bits, 1)

    def to_json(self) -> dict[str, object]:
        """Return the table as plain data."""
        data: dict[str, object] = {
            "permutation": self.permutation.hex(),
            "prefix_bits": self.prefix_bits,
            "flips": self.flips,
        }
        return (
            data if self.kind == BLOCKS else {**data, "kind": self.kind, "tag_bits": self.tag_bits}
        )

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TableSpec:
        """Rebuild a table written by :meth:`to_json`."""
        kind, tag_bits = str(data.get("kind", BLOCKS)), int(data.get("tag_bits", 0))
        return TableSpec(
            bytes.fromhex(data["permutation"]),
            int(data["prefix_bits"]),
            int(data["flips"]),
            kind,
            tag_bits,
        )


@dataclass(frozen=True)
class TableLookup:
    """The look-up of a probe in one table.

    It meets all entries whose leading bits equal the query's XOR one of the masks.
    """

    table: int
    prefix_bits: int
    flips: int
    filtered: bool = False  # whether the filter of the table is looked up first

    @property
    def reads_all(self) -> bool:
        """Whether it meets every entry of its table."""
        return self.prefix_bits == 0

    @property
    def variant_count(self) -> int:
        """The number of prefix look-ups per query."""
        return ball_size(self.prefix_bits, self.flips)

    @cached_property
    def masks(self) -> npt.NDArray[np.uint64]:
        """The masks, ascending: at most ``flips`` of the leading ``prefix_bits`` set."""
        masks = [
            sum(1 << (WORD_BITS - 1 - bit) for bit in bits)
            for count in range(self.flips + 1)
            for bits in itertools.combinations(range(self.prefix_bits), count)
        ]
        return np.array(sorted(masks), dtype=np.uint64)


def row_spec(width: int) -> TableSpec:
    """Return the table of the rows that references lead to."""
    return TableSpec(identity_permutation(width), TAG_BITS, 0, ROWS)


def row_bucket_bits(fingerprint_count: int) -> int:
    """Return the bits of the buckets of a row file: few for few rows.

    Each bucket takes four bytes.
    """
    return min(max(fingerprint_count.bit_length() - ROWS_SHARE_BITS, MIN_BUCKET_BITS), TAG_BITS)


def near_share(bits: int, most: int) -> float:
    """Return the share of uniform values of ``bits`` bits within ``most`` bits of a value."""
    return ball_size(bits, most) / 2.0**bits


def block_thresholds(block_count: int, radius: int) -> list[int]:
    """Return a threshold t_i >= -1 for each block, with sum(t_i + 1) = radius + 1.

    Source: GPH, ICDE 2018.
    """
    base, extra = divmod(radius + 1, block_count)
    return [base - 1 + (place >= block_count - extra) for place in range(block_count)]
