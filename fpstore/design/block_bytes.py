"""The sizes of blocks."""

from __future__ import annotations

from fpstore.errors import InputError, show

DEFAULT_BLOCK_BYTES = 512  # of fingerprints of up to 64 bits
DEFAULT_WIDE_BLOCK_BYTES = 1024  # of wider ones, so that a block has as many
BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)


def default_block_bytes(width: int) -> int:
    """Return the size of blocks where none is asked for."""
    return DEFAULT_BLOCK_BYTES if width <= 64 else DEFAULT_WIDE_BLOCK_BYTES


def check_block_bytes(value: object) -> int:
    """Return a valid size of blocks.

    Raises
    ------
    InputError
    """
    if isinstance(value, bool) or value not in BLOCK_BYTES:
        raise InputError(f"block_bytes must be one of {', '.join(map(str, BLOCK_BYTES))}, got {show(value)}", got=value)
    return int(value)
