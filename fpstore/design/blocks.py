"""How a table packs its fingerprints: the codec of its blocks, and their size."""

from __future__ import annotations

import operator
from typing import NamedTuple

from fpstore.base.arguments import check_choice, is_flag
from fpstore.errors import InputError, show

HUFFMAN = "huffman"  # differing bits, Huffman-coded (Manku, section 3.3)
ELIAS_FANO = "elias-fano"
CODECS = (HUFFMAN, ELIAS_FANO)
AUTO = "auto"
STORAGE = ("hot", "cold")  # where tables are when they are probed: in the page cache, or on disk
PREFER = ("balance", "speed", "space")
DEFAULT_BLOCK_BYTES = 512  # up to 64 bits
DEFAULT_WIDE_BLOCK_BYTES = 1024  # above 64 bits: a block then has as many fingerprints
BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)


class BlockPacking(NamedTuple):
    """How the fingerprints of a table are packed."""

    bytes: int  # of a block
    codec: str = HUFFMAN
    # which tables have filters: all that save time, none, or where filters pay for their bytes
    filter: bool | str = AUTO

    def resolve_filter(self, prefer: str, storage: str = "hot") -> BlockPacking:
        """Return these blocks with ``filter`` decided where it is ``auto``.

        ``speed`` takes all filters, ``space`` none. Tables on disk have none either: each look-up
        would read a page of a filter, too.
        """
        choice = False if storage == "cold" else {"speed": True, "space": False}.get(prefer, AUTO)
        return self._replace(filter=choice) if self.filter == AUTO else self


def default_block_bytes(width: int) -> int:
    return DEFAULT_BLOCK_BYTES if width <= 64 else DEFAULT_WIDE_BLOCK_BYTES


def check_block_bytes(value: object) -> int:
    """Return a valid size of blocks, or raise InputError."""
    try:
        size = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        size = 0
    if size not in BLOCK_BYTES:
        raise InputError(
            f"block_bytes must be one of {', '.join(map(str, BLOCK_BYTES))}, got {show(value)}",
            got=value,
            argument="block_bytes",
        )
    return size


def check_blocks(
    block_bytes: object, codec: str, width: int, filter: object = AUTO
) -> BlockPacking:
    """Return how to pack fingerprints of a width, or raise InputError; None is the default size."""
    check_choice(codec, CODECS, "codec")
    size = default_block_bytes(width) if block_bytes is None else check_block_bytes(block_bytes)
    return BlockPacking(size, codec, _check_filter(filter))


def _check_filter(value: object) -> bool | str:
    if isinstance(value, str) and value == AUTO:
        return AUTO
    if not is_flag(value):
        raise InputError(
            f"filter must be True, False or 'auto', got {show(value)}", got=value, argument="filter"
        )
    return bool(value)
