"""From documents to 64-bit fingerprints: fingerprinters, their descriptions, and folders of text files."""

from typing import TYPE_CHECKING, Any

from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.registry import from_description
from fpstore.hashing.text import SimHash

if TYPE_CHECKING:
    from fpstore.hashing.documents import Document, DocumentReader, iter_documents

__all__ = ["Document", "DocumentReader", "Fingerprinter", "SimHash", "from_description", "iter_documents"]


def __getattr__(name: str) -> Any:
    """Load the readers of folders on first use: `import fpstore` needs only the fingerprinters."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fpstore.hashing import documents

    return getattr(documents, name)
