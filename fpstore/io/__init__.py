"""Readers and writers of outside formats: NumPy, raw, delimited text, JSON lines and Parquet."""

from fpstore.io.check import check_fingerprint, check_fingerprints, check_ids, format_fingerprint, parse_fingerprint
from fpstore.io.reader import Reader, open_reader
from fpstore.io.source import FORMATS, Chunk, IdType
from fpstore.io.writers import Writer, open_writer

__all__ = [
    "FORMATS",
    "Chunk",
    "IdType",
    "Reader",
    "Writer",
    "check_fingerprint",
    "check_fingerprints",
    "check_ids",
    "format_fingerprint",
    "open_reader",
    "open_writer",
    "parse_fingerprint",
]
