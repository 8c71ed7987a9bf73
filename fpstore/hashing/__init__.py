"""From texts, pictures and vectors to fingerprints and sketches.

Hashers, their descriptions, and readers of files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fpstore.hashing.base import Fingerprinter, Hasher
from fpstore.hashing.codes import BitSample, Unary
from fpstore.hashing.fields import Fields
from fpstore.hashing.html import MainText
from fpstore.hashing.image import ImageHash
from fpstore.hashing.law import JaccardLaw, Law
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.precomputed import PrecomputedMinHash
from fpstore.hashing.projection import RandomProjection
from fpstore.hashing.pstable import PStable
from fpstore.hashing.registry import from_description
from fpstore.hashing.sentences import LongestSentences
from fpstore.hashing.simhash import SimHash
from fpstore.hashing.simminhash import SimMinHash
from fpstore.hashing.sketcher import Signed, Sketched, Sketcher, Values
from fpstore.hashing.vectors import HyperplaneHash

if TYPE_CHECKING:
    from fpstore.hashing.documents import Document, iter_documents
    from fpstore.hashing.readers import DocumentReader, ImageReader, TextReader, VectorReader

__all__ = [
    "BitSample",
    "Document",
    "DocumentReader",
    "Fields",
    "Fingerprinter",
    "Hasher",
    "HyperplaneHash",
    "ImageHash",
    "ImageReader",
    "JaccardLaw",
    "Law",
    "LongestSentences",
    "MainText",
    "MinHash",
    "PStable",
    "PrecomputedMinHash",
    "RandomProjection",
    "Signed",
    "SimHash",
    "SimMinHash",
    "Sketched",
    "Sketcher",
    "TextReader",
    "Unary",
    "Values",
    "VectorReader",
    "from_description",
    "iter_documents",
]


def __getattr__(name: str) -> Any:
    """Load the readers of files on first use: `import fpstore` needs only the fingerprinters."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(
        import_module("fpstore.hashing." + ("readers" if name.endswith("Reader") else "documents")),
        name,
    )
