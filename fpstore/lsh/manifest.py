"""The manifest of an LSH index: its hasher, its bands, and the two stores that belong to it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from fpstore.disk.files import open_descriptor, open_folder, read_at, write_anew
from fpstore.errors import CorruptStoreError, StoreNotFoundError
from fpstore.format.manifest import (
    IDENTITY_BYTES,
    INDEX_FILE,
    MAX_MANIFEST_BYTES,
    TEMPORARY,
    check_version,
    first_invalid_member,
    manifest_content,
    manifest_data,
)
from fpstore.lsh.keys import MAX_DOCUMENTS, MAX_SIGNATURE_BYTES

DOCUMENTS, KEYS = "documents", "keys"  # the folders of the stores
VERSION = 1
RESTORE = "restore all of the index from one copy, or build it again"
LOST = "take it from a backup, or build the index again"
_IDENTITY = re.compile(f"[0-9a-f]{{{2 * IDENTITY_BYTES}}}")
_SCHEMA: dict[str, Any] = {
    "hasher": {"name": str, "version": int, "parameters": dict},
    "threshold": (float, int),
    "recall": float,
    "bands": range(1, 257),
    "rows": range(1, 257),
    "probes": range(1, 1025),
    "key_bits": range(1, 64),
    "radius": range(8 * MAX_SIGNATURE_BYTES + 1),
    "documents": _IDENTITY,
    "keys": _IDENTITY,
    "next_number": range(MAX_DOCUMENTS + 1),
    "keys_generation": range(1, 2**63),
}


class IndexManifest(NamedTuple):
    """The content of the manifest of an index."""

    hasher: dict[str, Any]  # its description
    threshold: float
    recall: float
    bands: int
    rows: int  # values of a sketch in a band
    probes: int  # keys of each band that an item is looked up by
    key_bits: int
    radius: int  # of signatures
    documents: str  # the identity of the store of documents
    keys: str  # the identity of the store of keys
    next_number: int  # no document that was ever merged has this number or a greater one
    keys_generation: int  # of the store of keys after the last merge, which may have failed

    @property
    def form(self) -> tuple[int, int, int]:
        """The bands, the values of each, and the keys of each that a probe looks up."""
        return self.bands, self.rows, self.probes

    @property
    def values(self) -> int:
        """The values of a sketch that the keys need."""
        return self.bands * self.rows


def check_part(path: Path, manifest: IndexManifest, name: str, identity: str) -> None:
    """Refuse a store in the place of ``documents`` or ``keys`` that is another one."""
    expected = getattr(manifest, name)
    if identity != expected:
        part_name = next(
            (part for part in (DOCUMENTS, KEYS) if getattr(manifest, part) == identity), None
        )
        reason = (
            "belongs to another index"
            if part_name is None
            else f"holds the {part_name} of this index"
        )
        raise CorruptStoreError(
            f"{path / name}: {reason}: {RESTORE}", path=path / name, expected=expected, got=identity
        )


def missing_part_error(path: Path) -> CorruptStoreError:
    return CorruptStoreError(f"{path}: is missing: {LOST}", path=path)


def write_index_manifest(folder: int, manifest: IndexManifest) -> None:
    """Write the manifest into the open folder of an index in one durable step.

    After an OSError the old one stays.
    """
    data = manifest_data({"format_version": VERSION, **manifest._asdict()})
    temporary = INDEX_FILE + TEMPORARY
    try:
        write_anew(temporary, data, folder)
        os.rename(temporary, INDEX_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def put_manifest(path: Path, manifest: IndexManifest) -> None:
    """Write the manifest of a new index."""
    folder = open_folder(path)
    try:
        write_index_manifest(folder, manifest)
    finally:
        os.close(folder)


def read_index_manifest(path: Path, folder: int | None = None) -> IndexManifest:
    """Read and check the manifest of an index by its path or its open folder."""
    file = path / INDEX_FILE
    if folder is None and not path.exists():
        raise StoreNotFoundError(f"{path}: no such LSH index", path=path)
    try:
        with open_descriptor(file, folder=folder, of_user=True) as descriptor:
            data = read_at(descriptor, file, 0, MAX_MANIFEST_BYTES)
    except StoreNotFoundError as error:
        raise StoreNotFoundError(
            f"{path}: not an LSH index (no {INDEX_FILE} in it)", path=path
        ) from error
    content = manifest_content(data, file, LOST)
    check_version(content, VERSION, file)
    malformed = first_invalid_member(content, _SCHEMA)
    if malformed is None and not (isfinite(content["threshold"]) and 0 <= content["recall"] <= 1):
        malformed = "threshold or recall"
    if malformed is not None:
        raise CorruptStoreError(f"{file}: malformed ({malformed}): {LOST}", path=file)
    return IndexManifest(**content)
