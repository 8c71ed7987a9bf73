"""The manifest: describes a store and names its current generation; replaced by a rename.

If the last merge failed, its error lies beside it: a line of text, which every process can read.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fpstore import _kernel
from fpstore.base.width import WIDTHS, WORD_BITS
from fpstore.design.blocks import AUTO, BLOCK_BYTES, CODECS, PREFER, STORAGE, BlockPacking
from fpstore.design.families import MAX_TABLES, Design
from fpstore.design.tables import COPIES, REFERENCES, ROWS, TAG_BITS
from fpstore.disk.files import RUN_REPAIR, open_descriptor, open_file, read_at, write_anew
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    StorageError,
    StoreNotFoundError,
    UnfinishedError,
)
from fpstore.format.record import ID_KINDS

MANIFEST_FILE = "manifest.json"
INDEX_FILE = "lsh.json"  # of an LSH index, a folder with two stores
SHARDS_FILE = "shards.json"  # of a sharded store, a folder with stores
TEMPORARY = ".tmp"
NEXT_MANIFEST = MANIFEST_FILE + TEMPORARY
ABSORBING = ".joined"  # ends the name of a folder for the strings of other stores
_GENERATION = re.compile(r"gen-[0-9]{8,}")
FORMAT_VERSION: int = _kernel.FORMAT_VERSION
MAX_MANIFEST_BYTES = 1 << 20
_SUPPORTED = (("format_version", (FORMAT_VERSION,)), ("width", WIDTHS), ("flags", (0,)))
IDENTITY_BYTES = 16
MERGE_ERROR_FILE = "merge.error"
MAX_ERROR_BYTES = 4096
# the file is empty
NO_ROOM = "the last merge failed, and the disk had no room for the reason: it is probably full"
MAX_RANK_BITS = 15  # a block has at most 32768 entries
_COUNT = range(2**64)
_FILE = {"bytes": _COUNT, "digest": _COUNT, "largest": _COUNT}
_TABLE = {
    "permutation": re.compile("([0-9a-f]{2})*"),
    "prefix_bits": range(WORD_BITS + 1),
    "flips": range(-1, WORD_BITS + 1),
}
# The schema of the members behind _SUPPORTED. A dict is an object of these members, a list an array
# of one such item or more (with an ellipsis, of none or more), a tuple one of several, a range a
# number in it, a pattern a text that matches, a type a value of it, and anything else that value.
_SCHEMA: dict[str, Any] = {
    "identity": re.compile(f"[0-9a-f]{{{2 * IDENTITY_BYTES}}}"),
    "design": {
        "name": str,
        "radius": range(max(WIDTHS) + 1),
        "tables": [
            (
                {**_TABLE, "kind": (COPIES, REFERENCES, ROWS), "tag_bits": range(TAG_BITS + 1)},
                _TABLE,
            )
        ],
    },
    "block_bytes": BLOCK_BYTES,
    "codec": CODECS,
    "filter": (AUTO, True, False),
    "fingerprinter": (None, {"name": str, "version": int, "parameters": dict}),
    "auto": (
        None,
        {"planned_for": _COUNT, "disk_budget": (None, int), "storage": STORAGE, "prefer": PREFER},
    ),
    "index_ids": bool,
    "generation": {
        "number": range(1, 2**63),
        "fingerprints": _COUNT,
        "ids": _COUNT,
        "next_row": _COUNT,
        "id_kind": ID_KINDS,
        "first_string": _COUNT,
        "set_digest": _COUNT,
        "filters": [range(MAX_TABLES), ...],
        "ids_file": _FILE,
        "dictionary": (
            None,
            {
                "strings": _FILE,
                "numbers": _FILE,
                "count": _COUNT,
                "hashes": _COUNT,
                "hash_digest": _COUNT,
            },
        ),
        "places": (
            None,
            {
                "places": _FILE,
                "ids": _COUNT,
                "id_digest": _COUNT,
                "rank_bits": range(MAX_RANK_BITS + 1),
            },
        ),
    },
}


class GenerationRecord(NamedTuple):
    """The record of one generation of files; docs/format.md describes its members."""

    number: int
    fingerprints: int  # in its tables
    ids: int  # in its id map
    next_row: int  # the id of the next row that comes without one
    id_kind: str
    first_string: int  # the number of the first string that is not in its dictionary
    set_digest: int
    filters: list[int]  # the tables that have a filter, ascending
    ids_file: dict[str, int]
    dictionary: dict[str, Any] | None  # of string ids
    places: dict[str, Any] | None  # of the index by id


class Manifest(NamedTuple):
    """The content of a manifest."""

    # 16 random bytes of the store; its log has them too, and so fits no other store
    identity: bytes
    design: Design
    block_bytes: int
    codec: str
    filter: bool | str  # whether the tables of later generations have filters
    fingerprinter: dict[str, Any] | None
    auto: dict[str, Any] | None  # the planner's arguments, if it chose the design
    index_ids: bool  # integer ids too; strings always are
    generation: GenerationRecord  # the current one

    @property
    def blocks(self) -> BlockPacking:
        return BlockPacking(self.block_bytes, self.codec, self.filter)

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


def content_checksum(content: dict[str, Any]) -> str:
    body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return f"{xxhash.xxh64_intdigest(body):016x}"


def manifest_data(content: dict[str, Any], most: int = MAX_MANIFEST_BYTES) -> bytes:
    """Return the bytes of a manifest with its checksum; InputError if they are over ``most``."""
    data = (
        json.dumps({**content, "checksum": content_checksum(content)}, indent=1) + "\n"
    ).encode()
    if len(data) > most:
        raise InputError(
            f"the parameters of the hasher take {len(data):,} bytes, and a manifest has at most "
            f"{most:,}: give fewer stop words or weights",
            expected=most,
            got=len(data),
        )
    return data


def check_version(content: dict[str, Any], version: int, file: Path) -> None:
    """Take the format version off the content of a manifest, and refuse any but ``version``.

    For indexes and sharded stores.
    """
    got = content.pop("format_version", None)
    if got != version:
        message = (
            f"{file}: format version {got!r} is not known (this fpstore reads {version}): upgrade "
            "fpstore to read it"
        )
        raise FormatVersionError(message, path=file, expected=version, got=got)


def write_manifest(folder: int, manifest: Manifest) -> None:
    """Write the manifest of a store whose folder is open, in one durable step.

    After an OSError the old one stays. The folder is a descriptor, so that a store that is renamed
    meanwhile gets its own manifest.
    """
    prepare_manifest(folder, manifest)
    publish_manifest(folder)


def prepare_manifest(folder: int, manifest: Manifest) -> None:
    """Write the next manifest of a store, durably, beside the current one.

    After an OSError there is none.
    """
    data = manifest_data(manifest.to_json())
    try:
        write_anew(NEXT_MANIFEST, data, folder)
    except BaseException:
        drop_next_manifest(folder)
        raise


def drop_next_manifest(folder: int) -> None:
    """Remove the next manifest, if there is one: it will not become current."""
    with suppress(OSError):
        os.unlink(NEXT_MANIFEST, dir_fd=folder)


def publish_manifest(folder: int) -> None:
    """Make the next manifest the current one, durably.

    After an OSError the old manifest stays, or the new one is in place, but not yet durable.
    """
    try:
        os.rename(NEXT_MANIFEST, MANIFEST_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        drop_next_manifest(folder)
        raise
    os.fsync(folder)


def read_manifest(path: Path, folder: int | None = None, name: str = MANIFEST_FILE) -> Manifest:
    """Read and check a manifest of a store, by default the current one.

    ``folder`` is the descriptor of the store, if it is open.
    """
    file = path / name
    try:
        with open_descriptor(file, folder=folder, of_user=True) as descriptor:
            data = read_at(descriptor, file, 0, MAX_MANIFEST_BYTES)
    except StoreNotFoundError as error:
        raise not_a_store_error(path) from error
    return parse_manifest(data, file)


def manifest_content(data: bytes, file: Path, advice: str) -> dict[str, Any]:
    """Return the content of a manifest without its checksum.

    CorruptStoreError, with advice, if it is damaged.
    """
    try:
        content: dict[str, Any] = json.loads(data)
        recorded = content.pop("checksum")
        got = content_checksum(content)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptStoreError(
            f"{file}: damaged ({type(error).__name__}): {advice}", path=file
        ) from error
    if recorded != got:
        raise CorruptStoreError(
            f"{file}: damaged (checksum differs): {advice}", path=file, expected=recorded, got=got
        )
    return content


def parse_manifest(data: bytes, file: Path) -> Manifest:
    content = manifest_content(data, file, RUN_REPAIR)
    width: Any = content.get("width")
    for key, supported in _SUPPORTED:
        value = content.pop(key, None)
        if isinstance(value, bool) or value not in supported:
            newer = isinstance(value, int) and value > max(supported)
            raise FormatVersionError(
                f"{file}: {key.replace('_', ' ')} {value!r} is not known (this fpstore reads "
                f"{', '.join(map(str, supported))})"
                + (": upgrade fpstore to read it" if newer else ""),
                path=file,
                expected=supported[0] if len(supported) == 1 else supported,
                got=value,
            )
    try:
        if (wrong := first_invalid_member(content, _SCHEMA)) is not None:
            raise ValueError(wrong or "members")
        manifest = Manifest(**content)._replace(
            identity=bytes.fromhex(content["identity"]),
            design=Design.from_json(content["design"]),
            generation=GenerationRecord(**content["generation"]),
        )
        _check(manifest, width)
    except (ValueError, CorruptStoreError) as error:
        raise CorruptStoreError(f"{file}: malformed ({error}): {RUN_REPAIR}", path=file) from error
    return manifest


def first_invalid_member(value: object, schema: Any, name: str = "") -> str | None:
    """Return the name of the first member that does not fit the schema, or None."""
    if isinstance(schema, dict):
        if not isinstance(value, dict) or set(value) != set(schema):
            return name
        return next(
            filter(
                None,
                (
                    first_invalid_member(value[key], schema[key], f"{name}.{key}".removeprefix("."))
                    for key in schema
                ),
            ),
            None,
        )
    if isinstance(schema, list):
        if not isinstance(value, list) or not 2 - len(schema) <= len(value) <= MAX_TABLES:
            return name
        return next(
            filter(None, (first_invalid_member(item, schema[0], name) for item in value)), None
        )
    # one of several; if none fits, the last choice, an object, names the member
    if isinstance(schema, tuple):
        misfits = [first_invalid_member(value, choice, name) for choice in schema]
        return None if None in misfits else misfits[-1]
    if isinstance(schema, range):
        fits = type(value) is int and value in schema
    elif isinstance(schema, re.Pattern):
        fits = isinstance(value, str) and schema.fullmatch(value) is not None
    elif isinstance(schema, type):
        fits = type(value) is schema
    else:
        fits = type(value) is type(schema) and value == schema
    return None if fits else name


def _check(manifest: Manifest, width: int) -> None:
    """Raise ValueError where the members of a manifest contradict each other."""
    record, design = manifest.generation, manifest.design
    for wrong, member in (
        ({table.width.bits for table in design.tables} != {width}, "width"),
        (
            record.filters != sorted({*record.filters} & {*range(len(design.tables))}),
            "generation.filters",
        ),
        (design.radius > width, "design.radius"),
        # The fields of an id record: the first id of a fingerprint may take none, each further one
        # takes a bit or more.
        (
            not record.fingerprints
            <= record.ids
            <= record.fingerprints + 8 * record.ids_file["bytes"],
            "generation.ids",
        ),
        (
            record.first_string != (record.dictionary or {"count": 0})["count"],
            "generation.first_string",
        ),
    ):
        if wrong:
            raise ValueError(member)


def manifest_bytes(path: Path) -> int:
    """Return the size of a store's manifest; 0 if it was removed."""
    try:
        return (path / MANIFEST_FILE).lstat().st_size
    except OSError:
        return 0


def manifest_time(folder: int) -> float | None:
    """Return when the manifest of an open folder was written, in seconds since 1970.

    None if the store was removed.
    """
    try:
        return os.stat(MANIFEST_FILE, dir_fd=folder, follow_symlinks=False).st_mtime
    except OSError:
        return None


def is_store(path: Path) -> bool:
    """Whether a path looks like a store: a folder with a manifest."""
    return path.is_dir() and (path / MANIFEST_FILE).is_file()


def is_sharded(path: Path) -> bool:
    return path.is_dir() and (path / SHARDS_FILE).is_file()


def is_index(path: Path) -> bool:
    return path.is_dir() and (path / INDEX_FILE).is_file()


def is_openable(path: Path) -> bool:
    """Whether :func:`fpstore.open` would try to open a folder, of any kind."""
    return is_store(path) or is_sharded(path) or is_index(path)


def looks_like_store(path: Path) -> bool:
    """Whether a path is a folder with a manifest or with generations: perhaps a damaged store."""
    return path.is_dir() and (
        os.path.lexists(path / MANIFEST_FILE) or bool(generation_numbers(path))
    )


def not_a_store_error(path: Path) -> StoreNotFoundError:
    """Return the error for a path that exists but has no manifest."""
    with suppress(StorageError):  # it may be removed just now
        if looks_like_store(path):
            return StoreNotFoundError(
                f"{path}: {MANIFEST_FILE} is missing: {RUN_REPAIR}", path=path
            )
        if (path / INDEX_FILE).is_file():
            return StoreNotFoundError(
                f"{path}: is an LSH index, and this is for stores of fingerprints", path=path
            )
        if (path / SHARDS_FILE).is_file():
            return StoreNotFoundError(
                f"{path}: is a sharded store, and this is for one store: name one of its shards",
                path=path,
            )
        if any(path.glob("shard-*.fps")):
            advice = (
                "fpstore task finish PLAN, or fpstore.ShardedStore.combine, writes its "
                f"{SHARDS_FILE}"
            )
            return UnfinishedError(f"{path}: is an unfinished sharded store: {advice}", path=path)
    reason = "a file" if path.is_file() else f"no {MANIFEST_FILE} in it"
    return StoreNotFoundError(f"{path}: not an fpstore store ({reason})", path=path)


def generation_folder(number: int) -> str:
    return f"gen-{number:08d}"


def is_generation_name(name: str) -> bool:
    """Whether a folder with this name is a generation, or one that is being written."""
    return _GENERATION.fullmatch(name.removesuffix(TEMPORARY).removesuffix(ABSORBING)) is not None


def generation_numbers(path: Path) -> list[int]:
    """Return the numbers of the generation folders of a store, ascending."""
    with translate_refusals(path):
        names = [entry.name for entry in path.iterdir()]
    return sorted(int(name[4:]) for name in names if _GENERATION.fullmatch(name))


# The error of the last merge


def set_merge_error(folder: int, message: str | None) -> None:
    """Write the error of a merge into the open folder of a store; None removes the old one.

    A failure is ignored: a full disk leaves an empty file, and without open files there is none.
    """
    with suppress(OSError):
        if message is None:
            os.unlink(MERGE_ERROR_FILE, dir_fd=folder)
            return
        write_anew(
            MERGE_ERROR_FILE, message.encode("utf-8", "backslashreplace")[:MAX_ERROR_BYTES], folder
        )


def merge_error(folder: int) -> str | None:
    """Return the error of the last merge of a store whose folder is open, or None."""
    try:
        descriptor = open_file(Path(MERGE_ERROR_FILE), folder=folder)
    except (StoreNotFoundError, StorageError):
        return None
    except CorruptStoreError:
        return f"unknown: {MERGE_ERROR_FILE} is not a regular file: remove it"
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_nlink > 1:
            return f"unknown: {MERGE_ERROR_FILE} is a hard link: remove it"
        return file.read(MAX_ERROR_BYTES).decode("utf-8", "backslashreplace") or NO_ROOM
