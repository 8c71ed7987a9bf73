"""From documents to fingerprints: fingerprinters, their descriptions, and readers of text files and of columns of texts."""

from typing import TYPE_CHECKING, Any

from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.registry import from_description
from fpstore.hashing.text import SimHash

if TYPE_CHECKING:
    from fpstore.hashing.documents import Document, DocumentReader, iter_documents
    from fpstore.hashing.text_reader import TextReader

__all__ = ["Document", "DocumentReader", "Fingerprinter", "SimHash", "TextReader", "from_description", "iter_documents"]


def __getattr__(name: str) -> Any:
    """Load the readers on first use: `import fpstore` needs only the fingerprinters."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fpstore.hashing import documents, text_reader

    return getattr(text_reader if name == "TextReader" else documents, name)
