"""From documents to 64-bit fingerprints: fingerprinters, their descriptions, and folders of text files."""

from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.documents import Document, DocumentReader, iter_documents
from fpstore.hashing.registry import from_description
from fpstore.hashing.text import SimHash

__all__ = ["Document", "DocumentReader", "Fingerprinter", "SimHash", "from_description", "iter_documents"]
