"""The sizes of blocks."""

from __future__ import annotations

from fpstore.errors import InputError, show

DEFAULT_BLOCK_BYTES = 512
BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)


def check_block_bytes(value: object) -> int:
    """Return a valid size of blocks.

    Raises
    ------
    InputError
    """
    if isinstance(value, bool) or value not in BLOCK_BYTES:
        raise InputError(f"block_bytes must be one of {', '.join(map(str, BLOCK_BYTES))}, got {show(value)}", got=value)
    return int(value)
