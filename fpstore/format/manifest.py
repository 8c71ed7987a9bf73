"""The manifest: what a store is, and which generation of its files is current; replaced as a whole, by a rename."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fpstore import _kernel
from fpstore.design.families import Design
from fpstore.disk.files import open_file, read_at
from fpstore.errors import CorruptStoreError, FormatVersionError, StorageError, StoreNotFoundError

MANIFEST_FILE = "manifest.json"
TEMPORARY = ".tmp"
FORMAT_VERSION: int = _kernel.FORMAT_VERSION
MOST_BYTES = 1 << 20
_KNOWN = (("format_version", FORMAT_VERSION), ("width", 64), ("flags", 0))


IDENTITY_BYTES = 16


class GenerationRecord(NamedTuple):
    """One generation of files.

    Attributes
    ----------
    number : int
    fingerprints, ids : int
        How many its tables and its id map have.
    next_row : int
        The id of the next row that comes without one.
    id_kind : str
        ``row``, ``integer`` or ``string``.
    first_string : int
        The number of the first string that is not in its dictionary.
    set_digest : int
        Of its set of fingerprints.
    ids_file : dict
        What the id map must be: ``bytes``, ``digest``, ``largest``.
    strings_file : dict or None
        What the dictionary of strings must be.
    """

    number: int
    fingerprints: int
    ids: int
    next_row: int
    id_kind: str
    first_string: int
    set_digest: int
    ids_file: dict[str, int]
    strings_file: dict[str, int] | None


class Manifest(NamedTuple):
    """What a store is.

    Attributes
    ----------
    identity : bytes
        16 random bytes, made with the store: its files name it, and fit no other.
    design : Design
    block_bytes : int
    fingerprinter : dict or None
        How the fingerprints were made.
    auto : dict or None
        What the planner was asked for, when it chose the design.
    generation : GenerationRecord
        The current one.
    """

    identity: bytes
    design: Design
    block_bytes: int
    fingerprinter: dict[str, Any] | None
    auto: dict[str, Any] | None
    generation: GenerationRecord

    def to_json(self) -> dict[str, Any]:
        """Return what the file says, without its checksum."""
        return {
            **dict(_KNOWN),
            **self._asdict(),
            "identity": self.identity.hex(),
            "design": self.design.to_json(),
            "generation": self.generation._asdict(),
        }


def _checksum(content: dict[str, Any]) -> str:
    body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return f"{xxhash.xxh64_intdigest(body):016x}"


def write_manifest(folder: int, manifest: Manifest) -> None:
    """Make a manifest that of the store whose folder is open, in one durable step.

    Parameters
    ----------
    folder : int
        Its descriptor: a store that is renamed meanwhile keeps its own manifest.
    manifest : Manifest

    Raises
    ------
    OSError
        The old one stays.
    """
    content = manifest.to_json()
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=1) + "\n"
    temporary = MANIFEST_FILE + TEMPORARY
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o664, dir_fd=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, MANIFEST_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def read_manifest(path: Path, folder: int | None = None) -> Manifest:
    """Read and check the manifest of a store, by its path or its open folder.

    Raises
    ------
    StoreNotFoundError
        There is none.
    CorruptStoreError, FormatVersionError, StorageError
    """
    file = path / MANIFEST_FILE
    try:
        descriptor = open_file(file, folder=folder)
    except StoreNotFoundError as error:
        raise StoreNotFoundError(f"{path}: not an fpstore store (no {MANIFEST_FILE} in it)", path=path) from error
    try:
        data = read_at(descriptor, file, 0, MOST_BYTES)
    finally:
        os.close(descriptor)
    return parse_manifest(data, file)


def parse_manifest(data: bytes, file: Path) -> Manifest:
    """Check and parse the bytes of a manifest.

    Raises
    ------
    CorruptStoreError, FormatVersionError
    """
    try:
        content = json.loads(data)
        told = content.pop("checksum")
        got = _checksum(content)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptStoreError(f"{file}: damaged ({type(error).__name__}): run fpstore repair", path=file) from error
    if told != got:
        raise CorruptStoreError(f"{file}: damaged (checksum differs): run fpstore repair", path=file, expected=told, got=got)
    for key, known in _KNOWN:
        if (value := content.pop(key, None)) != known:
            newer = isinstance(value, int) and value > known
            raise FormatVersionError(
                f"{file}: {key.replace('_', ' ')} {value!r} is not known (this fpstore reads {known})"
                + (": upgrade fpstore to read it" if newer else ""),
                path=file, expected=known, got=value,
            )  # fmt: skip
    try:
        return Manifest(
            **{
                **content,
                "identity": bytes.fromhex(content["identity"]),
                "design": Design.from_json(content["design"]),
                "generation": GenerationRecord(**content["generation"]),
            }
        )
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptStoreError(f"{file}: malformed ({error}): run fpstore repair", path=file) from error


def manifest_bytes(path: Path) -> int:
    """Return what the manifest of a store takes; nothing where it was removed."""
    try:
        return (path / MANIFEST_FILE).stat().st_size
    except OSError:
        return 0


def is_store(path: Path) -> bool:
    """Whether a path looks like a store: a folder with a manifest."""
    return path.is_dir() and (path / MANIFEST_FILE).is_file()


def looks_like_store(path: Path) -> bool:
    """Whether a path is a store or what is left of one: a folder with a manifest, of whatever kind, or with generations."""
    return path.is_dir() and (os.path.lexists(path / MANIFEST_FILE) or bool(generation_numbers(path)))


def generation_folder(number: int) -> str:
    """Return the name of a generation's folder."""
    return f"gen-{number:08d}"


def generation_numbers(path: Path) -> list[int]:
    """Return the numbers of the generation folders of a store, ascending.

    Raises
    ------
    StorageError
    """
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", path=path) from error
    return sorted(int(name[4:]) for name in names if name.startswith("gen-") and name[4:].isdigit())
