"""Readers and writers of outside formats: NumPy, raw, delimited text, JSON lines and Parquet."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fpstore.io.reader import Reader, open_reader
    from fpstore.io.source import Chunk
    from fpstore.io.writers import Writer, open_writer

__all__ = ["Chunk", "Reader", "Writer", "open_reader", "open_writer"]

_HOMES = {
    "Chunk": "source",
    "Reader": "reader",
    "open_reader": "reader",
    "Writer": "writers",
    "open_writer": "writers",
}


def __getattr__(name: str) -> Any:
    """Load readers and writers on first use: `import fpstore` needs only `fpstore.io.check`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
