"""The manifest of a sharded store: its shards in order, and what they hold."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from fpstore.base.width import WIDTHS
from fpstore.disk.files import open_descriptor, read_at, write_anew
from fpstore.disk.folders import remove_abandoned, sync_folder, temporary_folder
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import CorruptStoreError, StoreNotFoundError
from fpstore.format.manifest import (
    IDENTITY_BYTES,
    SHARDS_FILE,
    TEMPORARY,
    check_version,
    first_invalid_member,
    manifest_content,
    manifest_data,
)
from fpstore.format.record import ID_KINDS

VERSION = 1
MAX_BYTES = 1 << 26
LOST = "take it from a backup, or combine the shards again"
_TEMPORARY_PREFIX = f".{SHARDS_FILE}."
_NAME = re.compile(r"shard-[0-9]{5,}\.fps")
_COUNT = range(2**64)
_SCHEMA: dict[str, Any] = {
    "width": WIDTHS,
    "radius": range(max(WIDTHS) + 1),
    "id_kind": ID_KINDS,
    "fingerprinter": (None, {"name": str, "version": int, "parameters": dict}),
    "fingerprints": _COUNT,
    "ids": _COUNT,
    "repeated_strings": bool,
    "plan": (None, str),
}
_SHARD: dict[str, Any] = {
    "name": str,
    "identity": re.compile(f"[0-9a-f]{{{2 * IDENTITY_BYTES}}}"),
    "generation": range(1, 2**63),
    "records": _COUNT,
    "fingerprints": _COUNT,
    "ids": _COUNT,
    "first_row": _COUNT,
    "rows": _COUNT,
    "bounds": (None, [re.compile("[0-9a-f]+"), ...]),
}


class Shard(NamedTuple):
    """One shard; docs/format.md describes its members."""

    name: str  # of its folder
    identity: str  # in hexadecimal digits, as in its own manifest
    generation: int  # the number of its generation
    # in its log: with the generation and the identity, they say that nothing has changed
    records: int
    fingerprints: int
    ids: int
    first_row: int  # the id of its row 0, if ids are row numbers
    rows: int  # how many row numbers it has used
    # hexadecimal digits: no fingerprint is less than the first or greater than the second
    bounds: list[str] | None


class ShardsManifest(NamedTuple):
    """The content of the manifest of a sharded store."""

    width: int
    radius: int
    id_kind: str
    fingerprinter: dict[str, Any] | None
    fingerprints: int  # distinct ones in all shards
    ids: int  # distinct pairs of fingerprint and id in all shards
    repeated_strings: bool  # whether a string is an id in several shards
    plan: str | None  # the digest of the plan that made the shards
    shards: list[Shard]

    @property
    def data(self) -> bytes:
        content = {
            "format_version": VERSION,
            **self._asdict(),
            "shards": [shard._asdict() for shard in self.shards],
        }
        return manifest_data(content, MAX_BYTES)


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.fps"


def is_shard_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def write_shards(path: Path, manifest: ShardsManifest) -> None:
    """Write the manifest of a sharded store, in one durable step.

    After a StorageError the old one stays. Several processes may do so at once: each writes a file
    of its own.
    """
    file = path / SHARDS_FILE
    with translate_refusals(file):
        remove_abandoned(path, f"{_TEMPORARY_PREFIX}*{TEMPORARY}")
        with temporary_folder(path, _TEMPORARY_PREFIX, TEMPORARY) as folder:
            write_anew(folder / SHARDS_FILE, manifest.data)
            (folder / SHARDS_FILE).replace(file)
        sync_folder(path)


def read_shards(path: Path) -> ShardsManifest:
    file = path / SHARDS_FILE
    try:
        with open_descriptor(file, of_user=True) as descriptor:
            data = read_at(descriptor, file, 0, MAX_BYTES)
    except StoreNotFoundError as error:
        raise StoreNotFoundError(
            f"{path}: not a sharded store (no {SHARDS_FILE} in it)", path=path
        ) from error
    content = manifest_content(data, file, LOST)
    check_version(content, VERSION, file)
    member = _invalid_member(content)
    if member is not None:
        raise CorruptStoreError(f"{file}: malformed ({member}): {LOST}", path=file)
    return ShardsManifest(**{**content, "shards": [Shard(**shard) for shard in content["shards"]]})


def _invalid_member(content: dict[str, Any]) -> str | None:
    """Return the name of a member that cannot be right, or None."""
    shards = content.get("shards")
    if not isinstance(shards, list) or not shards:
        return "shards"
    for number, shard in enumerate(shards):
        if (name := first_invalid_member(shard, _SHARD, f"shards.{number}")) is not None:
            return name
    common = {name: value for name, value in content.items() if name != "shards"}
    if (member := first_invalid_member(common, _SCHEMA)) is not None:
        return member or "members"
    return _contradiction(content, [Shard(**shard) for shard in shards])


def _contradiction(content: dict[str, Any], shards: list[Shard]) -> str | None:
    digits, by_row = content["width"] // 4, content["id_kind"] == "row"
    firsts = accumulate((shard.rows for shard in shards), initial=0)
    for number, (shard, first) in enumerate(zip(shards, firsts, strict=False)):
        bounds = shard.bounds
        for wrong, name in (
            (shard.name != shard_name(number), "name"),
            (
                shard.first_row != (first if by_row else 0) or (shard.rows and not by_row),
                "first_row",
            ),
            (shard.ids < shard.fingerprints, "ids"),
            (bounds is None and shard.fingerprints > 0, "bounds"),
            (
                bounds is not None
                and (len(bounds) != 2 or {*map(len, bounds)} != {digits} or bounds[0] > bounds[1]),
                "bounds",
            ),
        ):
            if wrong:
                return f"shards.{number}.{name}"
    for wrong, name in (
        (len({shard.identity for shard in shards}) < len(shards), "shards"),
        (content["fingerprints"] > sum(shard.fingerprints for shard in shards), "fingerprints"),
        (
            not content["fingerprints"] <= content["ids"] <= sum(shard.ids for shard in shards),
            "ids",
        ),
    ):
        if wrong:
            return name
    return None
