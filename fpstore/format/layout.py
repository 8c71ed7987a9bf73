"""Names and records of a store folder: what is where, and how its metadata is written and checked.

The bytes of a table file are known to the kernel alone (``_native/header.cpp``, ``_native/codec.inc``); docs/format.md is
normative.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

from fpstore import _kernel
from fpstore.errors import CorruptStoreError, FormatVersionError

FORMAT_VERSION: int = _kernel.FORMAT_VERSION
STORE_FILE = "store.mdb"
IDS_FILE = "ids.mdb"
NAMES_FILE = "names.mdb"
JOURNAL_FILE = "journal.mdb"
META = b"meta"
STORE_KEY = b"store"
GENERATION_KEY = b"generation"


def generation_name(number: int) -> str:
    """Return the folder name of a generation."""
    return f"gen-{number:08d}"


def table_name(table: int) -> str:
    """Return the file name of a table."""
    return f"table-{table:03d}.fpt"


def pack_record(record: dict[str, Any]) -> bytes:
    """Serialise a metadata record: XXH64 of the rest (8 bytes, little-endian), then UTF-8 JSON with sorted keys."""
    body = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    return xxhash.xxh64_intdigest(body).to_bytes(8, "little") + body


def unpack_record(data: bytes | None, path: Path, name: str) -> dict[str, Any]:
    """Check and parse a metadata record."""
    if data is None or len(data) < 8:
        raise CorruptStoreError(f"{path}: the {name} record is missing", path=path)
    if xxhash.xxh64_intdigest(data[8:]) != int.from_bytes(data[:8], "little"):
        raise CorruptStoreError(f"{path}: the {name} record is damaged (checksum differs)", path=path)
    record = json.loads(data[8:])
    if not isinstance(record, dict):
        raise CorruptStoreError(f"{path}: the {name} record is not an object", path=path)
    return record


def check_store_record(record: dict[str, Any], path: Path) -> None:
    """Refuse versions, widths and flags that this fpstore does not know."""
    for key, known in (("format_version", FORMAT_VERSION), ("width", 64), ("flags", 0)):
        got = record.get(key)
        newer = isinstance(got, int) and got > known
        if got != known:
            raise FormatVersionError(
                f"{path}: {key.replace('_', ' ')} {got!r} is not known (this fpstore reads {known})"
                + (": upgrade fpstore to read it" if newer else ""),
                path=path,
                expected=known,
                got=got,
            )


def is_store(path: Path) -> bool:
    """Whether a path looks like a store: a folder with a store file."""
    return path.is_dir() and (path / STORE_FILE).is_file()
