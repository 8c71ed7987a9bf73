"""The manifest: describes a store and names its current generation; replaced as a whole, by a rename."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fpstore import _kernel
from fpstore.design.blocks import CODECS, Blocks
from fpstore.design.families import Design
from fpstore.disk.files import RUN_REPAIR, create_anew, open_file, read_at
from fpstore.disk.refusals import refusing
from fpstore.errors import CorruptStoreError, FormatVersionError, StorageError, StoreNotFoundError
from fpstore.format.record import ID_KINDS
from fpstore.width import WIDTHS

MANIFEST_FILE = "manifest.json"
TEMPORARY = ".tmp"
COMING_MANIFEST = MANIFEST_FILE + TEMPORARY
JOINED = ".joined"  # ends the name of a folder for the strings of other stores
_GENERATION = re.compile(r"gen-[0-9]{8,}")
FORMAT_VERSION: int = _kernel.FORMAT_VERSION
MOST_BYTES = 1 << 20
_KNOWN = (("format_version", (FORMAT_VERSION,)), ("width", WIDTHS), ("flags", (0,)))
_SHAPE = {"bytes", "digest", "largest"}
IDENTITY_BYTES = 16
MOST_RANK_BITS = 15  # a block has at most 32768 entries


class GenerationRecord(NamedTuple):
    """The record of one generation of files.

    Attributes
    ----------
    number : int
    fingerprints, ids : int
        The numbers of fingerprints in its tables and of ids in its id map.
    next_row : int
        The id of the next row that comes without one.
    id_kind : str
        ``row``, ``integer`` or ``string``.
    first_string : int
        The number of the first string that is not in its dictionary.
    set_digest : int
        The digest of its set of fingerprints.
    ids_file : dict
        The expected ``bytes``, ``digest`` and ``largest`` record of the id map.
    dictionary : dict or None
        Of string ids: ``strings`` and ``numbers`` are the shapes of these files, ``count`` is the number of strings (with
        unused numbers), ``hashes`` and ``hash_digest`` are the number and the digest of the distinct hashes.
    places : dict or None
        Of the index by id: ``places`` is the shape of that file, ``ids`` and ``id_digest`` are the number and the digest of the
        distinct ids, ``rank_bits`` says how many bits of a place are the rank.
    """

    number: int
    fingerprints: int
    ids: int
    next_row: int
    id_kind: str
    first_string: int
    set_digest: int
    ids_file: dict[str, int]
    dictionary: dict[str, Any] | None
    places: dict[str, Any] | None


class Manifest(NamedTuple):
    """The content of a manifest.

    Attributes
    ----------
    identity : bytes
        16 random bytes, made with the store. Its log names them, and so fits no other store.
    design : Design
    block_bytes : int
    codec : str
        How blocks are packed.
    fingerprinter : dict or None
        How the fingerprints were made.
    auto : dict or None
        The planner's arguments, if it chose the design.
    index_ids : bool
        Whether integer ids are indexed too; strings always are.
    generation : GenerationRecord
        The current one.
    """

    identity: bytes
    design: Design
    block_bytes: int
    codec: str
    fingerprinter: dict[str, Any] | None
    auto: dict[str, Any] | None
    index_ids: bool
    generation: GenerationRecord

    @property
    def blocks(self) -> Blocks:
        """The size of blocks, and their codec."""
        return Blocks(self.block_bytes, self.codec)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file, without its checksum."""
        return {
            "format_version": FORMAT_VERSION,
            "flags": 0,
            "width": self.design.width.bits,
            **self._asdict(),
            "identity": self.identity.hex(),
            "design": self.design.to_json(),
            "generation": self.generation._asdict(),
        }


def _checksum(content: dict[str, Any]) -> str:
    body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return f"{xxhash.xxh64_intdigest(body):016x}"


def write_manifest(folder: int, manifest: Manifest) -> None:
    """Write the manifest of a store whose folder is open, in one durable step.

    Parameters
    ----------
    folder : int
        The descriptor of the folder, so that a store that is renamed meanwhile gets its own manifest.
    manifest : Manifest

    Raises
    ------
    OSError
        The old manifest stays.
    """
    prepare_manifest(folder, manifest)
    publish_manifest(folder)


def prepare_manifest(folder: int, manifest: Manifest) -> None:
    """Write the coming manifest of a store, durably, beside the current one.

    Raises
    ------
    OSError
        There is none.
    """
    content = manifest.to_json()
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=1) + "\n"
    try:
        descriptor = create_anew(Path(COMING_MANIFEST), folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        drop_coming_manifest(folder)
        raise


def drop_coming_manifest(folder: int) -> None:
    """Remove the coming manifest, if there is one: it will not become current."""
    with suppress(OSError):
        os.unlink(COMING_MANIFEST, dir_fd=folder)


def publish_manifest(folder: int) -> None:
    """Make the coming manifest the current one, durably.

    Raises
    ------
    OSError
        The old manifest stays; or the new one is in place, but not yet durable.
    """
    try:
        os.rename(COMING_MANIFEST, MANIFEST_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        drop_coming_manifest(folder)
        raise
    os.fsync(folder)


def read_manifest(path: Path, folder: int | None = None, name: str = MANIFEST_FILE) -> Manifest:
    """Read and check the manifest of a store, given by its path or its open folder; by default the current one.

    Raises
    ------
    StoreNotFoundError
        There is no manifest.
    CorruptStoreError, FormatVersionError, StorageError
    """
    file = path / name
    try:
        descriptor = open_file(file, folder=folder, of_user=True)
    except StoreNotFoundError as error:
        raise not_a_store(path) from error
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
        raise CorruptStoreError(f"{file}: damaged ({type(error).__name__}): {RUN_REPAIR}", path=file) from error
    if told != got:
        raise CorruptStoreError(f"{file}: damaged (checksum differs): {RUN_REPAIR}", path=file, expected=told, got=got)
    width = content.get("width")
    for key, known in _KNOWN:
        value = content.pop(key, None)
        if isinstance(value, bool) or value not in known:
            newer = isinstance(value, int) and value > max(known)
            raise FormatVersionError(
                f"{file}: {key.replace('_', ' ')} {value!r} is not known (this fpstore reads {', '.join(map(str, known))})"
                + (": upgrade fpstore to read it" if newer else ""),
                path=file, expected=known[0] if len(known) == 1 else known, got=value,
            )  # fmt: skip
    try:
        manifest = Manifest(
            **{
                **content,
                "identity": bytes.fromhex(content["identity"]),
                "design": Design.from_json(content["design"]),
                "generation": GenerationRecord(**content["generation"]),
            }
        )
        _check(manifest, width)
    except (TypeError, KeyError, ValueError, AttributeError, CorruptStoreError) as error:
        raise CorruptStoreError(f"{file}: malformed ({error}): {RUN_REPAIR}", path=file) from error
    return manifest


def _check(manifest: Manifest, width: object) -> None:
    """Raise ValueError where a manifest with a right checksum says what cannot be."""
    record = manifest.generation
    dictionary, places = record.dictionary, record.places
    shapes = [record.ids_file, *([] if dictionary is None else [dictionary["strings"], dictionary["numbers"]])]
    shapes += [] if places is None else [places["places"]]
    counts = (record.number, record.fingerprints, record.ids, record.next_row, record.first_string, record.set_digest)
    for wrong, what in (
        (len(manifest.identity) != IDENTITY_BYTES, "identity"),
        ({table.width.bits for table in manifest.design.tables} != {width}, "width"),
        (not _is_count(manifest.block_bytes), "block bytes"),
        (manifest.codec not in CODECS, "codec"),
        (not isinstance(manifest.fingerprinter, dict | None), "fingerprinter"),
        (not isinstance(manifest.auto, dict | None), "auto"),
        (not all(map(_is_count, counts)), "counts"),
        (record.id_kind not in ID_KINDS, "kind of ids"),
        (any(set(shape) != _SHAPE or not all(map(_is_count, shape.values())) for shape in shapes), "files"),
        (
            dictionary is not None and not _has(dictionary, ("strings", "numbers"), ("count", "hashes", "hash_digest")),
            "dictionary",
        ),
        (places is not None and not _has(places, ("places",), ("ids", "id_digest", "rank_bits")), "index by id"),
        (places is not None and places["rank_bits"] > MOST_RANK_BITS, "index by id"),
        (not isinstance(manifest.index_ids, bool), "index_ids"),
    ):
        if wrong:
            raise ValueError(what)


def _has(record: dict[str, Any], shapes: tuple[str, ...], counts: tuple[str, ...]) -> bool:
    return set(record) == {*shapes, *counts} and all(_is_count(record[name]) for name in counts)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**64


def manifest_bytes(path: Path) -> int:
    """Return the size of a store's manifest; 0 if it was removed."""
    try:
        return (path / MANIFEST_FILE).lstat().st_size
    except OSError:
        return 0


def manifest_time(folder: int) -> float | None:
    """Return when the manifest of an open folder was written, in seconds since 1970; None if the store was removed."""
    try:
        return os.stat(MANIFEST_FILE, dir_fd=folder, follow_symlinks=False).st_mtime
    except OSError:
        return None


def is_store(path: Path) -> bool:
    """Whether a path looks like a store: a folder with a manifest."""
    return path.is_dir() and (path / MANIFEST_FILE).is_file()


def looks_like_store(path: Path) -> bool:
    """Whether a path is a store or what is left of one: a folder with a manifest, of whatever kind, or with generations."""
    return path.is_dir() and (os.path.lexists(path / MANIFEST_FILE) or bool(generation_numbers(path)))


def not_a_store(path: Path) -> StoreNotFoundError:
    """Return the error for a path that exists but has no manifest."""
    with suppress(StorageError):  # it may be removed just now
        if looks_like_store(path):
            return StoreNotFoundError(f"{path}: {MANIFEST_FILE} is missing: {RUN_REPAIR}", path=path)
    return StoreNotFoundError(f"{path}: not an fpstore store (no {MANIFEST_FILE} in it)", path=path)


def generation_folder(number: int) -> str:
    """Return the name of a generation's folder."""
    return f"gen-{number:08d}"


def is_generation_name(name: str) -> bool:
    """Whether a name is that of a generation's folder, or of one that a merge or a join is writing."""
    return _GENERATION.fullmatch(name.removesuffix(TEMPORARY).removesuffix(JOINED)) is not None


def generation_numbers(path: Path) -> list[int]:
    """Return the numbers of the generation folders of a store, ascending.

    Raises
    ------
    StorageError
    """
    with refusing(path):
        names = [entry.name for entry in path.iterdir()]
    return sorted(int(name[4:]) for name in names if _GENERATION.fullmatch(name))
