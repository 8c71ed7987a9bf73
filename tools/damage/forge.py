"""Forged metadata: one field of one record has another value, under checksums that are right."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import xxhash

from damage.files import Damage
from damage.stores import Store
from fpstore.disk.sealed import SealedWriter
from fpstore.errors import CorruptStoreError, FormatVersionError
from fpstore.format.log import HEADER_BYTES, LOG_FILE, RECORD_MAGIC, LogHeader
from fpstore.format.manifest import MANIFEST_FILE, generation_folder, parse_manifest
from fpstore.format.mapping import record_seed
from fpstore.format.strings import LAYOUT_KEYS, with_checksum

Way = tuple[str | int, ...]  # to a member of the manifest
NUMBERS = (
    *(0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 500),
    *(2**12, 2**15, 2**15 + 1, 2**16 - 1, 2**16, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32),
    *(2**40, 2**48, 2**56, 2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 2**64, 2**70, 10**400, 0.5, 1e300, "", "x", "row", "integer"),
    *("string", "scan", "rows", "references", "elias-fano", "huffman", "0" * 32, [], {}, [None]),
    *({"tables": {}}, *NUMBERS),
)
BLOCK_TABLE = {
    "flags": (12, 4),
    "width": (16, 2),
    "table": (18, 2),
    "table_count": (20, 2),
    "prefix_bits": (22, 2),
    "flips": (24, 2),
    "directory_bits": (26, 2),
    "block_bytes": (28, 4),
    "fingerprint_count": (32, 8),
    "block_count": (40, 8),
    "blocks_offset": (48, 8),
    "keys_offset": (56, 8),
    "directory_offset": (64, 8),
    "file_bytes": (72, 8),
    "set_digest": (80, 8),
    "permutation": (128, 1),
    "code_bits": (384, 1),
}
COLUMN_TABLE = {
    "flags": (12, 4),
    "width": (16, 2),
    "kind": (18, 2),
    "table": (20, 2),
    "table_count": (22, 2),
    "bucket_bits": (24, 2),
    "tag_bits": (26, 2),
    "allowance": (28, 2),
    "rest_bits": (30, 2),
    "count": (32, 8),
    "directory_offset": (40, 8),
    "tags_offset": (48, 8),
    "rest_offset": (56, 8),
    "checksums_offset": (64, 8),
    "file_bytes": (72, 8),
    "set_digest": (80, 8),
    "permutation": (128, 1),
}
FILTER = {
    "flags": (12, 4),
    "width": (16, 2),
    "table": (18, 2),
    "table_count": (20, 2),
    "prefix_bits": (22, 2),
    "bucket_bits": (24, 2),
    "bits_per_prefix": (26, 2),
    "fingerprint_count": (32, 8),
    "word_count": (40, 8),
    "starts_offset": (48, 8),
    "checksums_offset": (56, 8),
    "file_bytes": (64, 8),
    "set_digest": (72, 8),
    "permutation": (128, 1),
}
LOG_HEADER = {
    "version": (8, 4),
    "header_bytes": (12, 4),
    "identity": (16, 8),
    "generation": (32, 8),
    "first_string": (40, 8),
    "fingerprints": (48, 8),
    "ids": (56, 8),
    "next_row": (64, 8),
    "id_kind": (72, 2),
    "width": (74, 2),
    "reserved": (76, 4),
    "end": (512, 8),
    "boot": (520, 8),
}
LOG_RECORD = {
    "length": (16, 8),
    "number": (24, 8),
    "durable": (32, 8),
    "fingerprints": (40, 8),
    "ids": (48, 8),
    "next_row": (56, 8),
    "rows": (64, 8),
    "strings": (72, 8),
    "id_kind": (80, 4),
    "words": (84, 4),
}
ID_RECORD = {
    "id_bits": (4, 1),
    "count_bits": (5, 1),
    "count": (6, 2),
    "base": (8, 8),
    "fields": (16, 1),
}
LAYOUT = {"per_record": (4, 4), "trained": (8, 8), "dictionary": (16, 4)}
META = {  # of an LMDB file, from the start of a metadata page on
    "page_bytes": (40, 4),
    "flags": (44, 2),
    "depth": (94, 2),
    "branches": (96, 8),
    "leaves": (104, 8),
    "overflows": (112, 8),
    "entries": (120, 8),
    "root": (128, 8),
    "last_page": (136, 8),
    "transaction": (144, 8),
}
IDS, STRINGS = ("ids.mdb", "numbers.mdb", "places.mdb"), "strings.mdb"
SHAPES = {
    "ids.mdb": ("ids_file",),
    "strings.mdb": ("dictionary", "strings"),
    "numbers.mdb": ("dictionary", "numbers"),
    "places.mdb": ("places", "places"),
}


def choose_forgery(store: Store, chance: random.Random) -> Damage:
    """Return a forgery of a field; where several files have the field, of all of them."""
    current = _generation(store.path)
    files = sorted(path.name for path in (store.path / current).iterdir())
    tables = [name for name in files if name.endswith(".fpt")]
    filters = [name for name in files if name.endswith(".fpf")]
    sealed = [name for name in files if name in (*IDS, STRINGS)]
    kinds = ["manifest"] * 4 + [
        "log header",
        "log record",
        "log record",
        "table",
        "id record",
        "strings",
        "pages",
    ]
    if not _records((store.path / current / LOG_FILE).read_bytes()):
        kinds = [kind for kind in kinds if kind != "log record"]
    if filters:
        kinds.append("filter")
    kind = chance.choice(kinds)
    seed = chance.random()
    if kind == "manifest":
        content = json.loads((store.path / MANIFEST_FILE).read_bytes())
        way = chance.choice(list(_members(content)))
        name = ".".join("n" if isinstance(step, int) else step for step in way)
        return Damage(
            MANIFEST_FILE, f"manifest {name}", partial(_forge_manifest, way, random.Random(seed))
        )
    if kind.startswith("log"):
        fields = (
            LOG_HEADER
            if kind == "log header"
            else {**LOG_RECORD, "row": (0, 0), "kind": (0, 0), "string": (0, 0)}
        )
        field = chance.choice(list(fields))
        forge: Callable[..., None] = (
            _forge_log_header if kind == "log header" else _forge_log_record
        )
        return Damage(
            f"{current}/{LOG_FILE}", f"{kind} {field}", partial(forge, field, random.Random(seed))
        )
    if kind == "table":
        file = chance.choice(tables)
        columns = (store.path / current / file).read_bytes()[:8] == b"FPSTCOLS"
        field = chance.choice(list(COLUMN_TABLE if columns else BLOCK_TABLE))
        forge = partial(_forge_table, field, columns)
        return Damage(f"{current}/{file}", f"table {field}", partial(forge, random.Random(seed)))
    if kind == "filter":
        field = chance.choice([*FILTER, "words", "starts", "starts"])
        return Damage(
            f"{current}/{chance.choice(filters)}",
            f"filter {field}",
            partial(_forge_filter, field, random.Random(seed)),
        )
    file = STRINGS if kind == "strings" and STRINGS in sealed else chance.choice(sealed)
    if kind == "pages":
        field = chance.choice(list(META))
        return Damage(
            f"{current}/{file}", f"pages {field}", partial(_forge_pages, field, random.Random(seed))
        )
    if file == STRINGS:
        field = chance.choice([*LAYOUT, "content", "key"])
        return Damage(
            f"{current}/{file}",
            f"strings {field}",
            partial(_forge_strings, field, random.Random(seed)),
        )
    field = chance.choice([*ID_RECORD, "key"])
    return Damage(
        f"{current}/{file}",
        f"id record {field}",
        partial(_forge_id_record, field, random.Random(seed)),
    )


def _generation(store: Path) -> str:
    return generation_folder(
        json.loads((store / MANIFEST_FILE).read_bytes())["generation"]["number"]
    )


def _members(value: Any, way: Way = ()) -> Iterator[Way]:
    for key in (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        if (*way, key) != ("checksum",):
            yield (*way, key)
            yield from _members(value[key], (*way, key))


def _own(path: Path) -> None:
    """Let a file be changed that other copies of the store share."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


def _another(chance: random.Random, data: bytearray, at: int, size: int) -> None:
    """Put another number in place of one."""
    old = int.from_bytes(data[at : at + size], "little")
    number = chance.choice(
        [*NUMBERS, old + 1, old - 1, 2 * old, old // 2, old ^ 1 << chance.randrange(8 * size)]
    )
    data[at : at + size] = (number % 256**size).to_bytes(size, "little")


# --- Manifest -------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what a manifest says, and put its checksum right."""
    content = json.loads(path.read_bytes())
    content.pop("checksum")
    change(content)
    body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    path.unlink()
    path.write_text(
        json.dumps({**content, "checksum": f"{xxhash.xxh64_intdigest(body):016x}"}),
        encoding="utf-8",
    )


def _forge_manifest(way: Way, chance: random.Random, path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        place: Any = content
        for step in way[:-1]:
            place = place[step]
        old = place[way[-1]]
        near = [old + 1, old - 1, 2 * old] if isinstance(old, int) else []
        how = chance.random()
        if how < 0.1 and isinstance(place, dict):
            del place[way[-1]]
        elif how < 0.15 and isinstance(place, list):
            place += place
        else:
            place[way[-1]] = chance.choice([*VALUES, *near, *near])

    before = _generation(path.parent)
    rewrite(path, change)
    if chance.random() < 0.7:
        _follow(path, before)


def _follow(path: Path, folder: str) -> None:
    """Let the files of a generation say what its manifest says, as far as it can be read."""
    try:
        manifest = parse_manifest(path.read_bytes(), path)
    except (CorruptStoreError, FormatVersionError):
        return
    record, generation = manifest.generation, path.parent / folder
    number = generation_folder(record.number)
    if number != folder:
        generation.rename(path.parent / number)
        generation = path.parent / number
    log = generation / LOG_FILE
    data, header = bytearray(log.read_bytes()), LogHeader.from_manifest(manifest)
    records = _records(bytes(data))
    packed = header.pack()
    data[: len(packed)] = packed
    for place in records:
        _seal_record(data, place, header.seed)
    log.write_bytes(data)
    for table in generation.glob("table-*.fpt"):
        _own(table)
        image = bytearray(table.read_bytes())
        struct.pack_into("<Q", image, 32, record.fingerprints)
        struct.pack_into("<Q", image, 80, record.set_digest)
        _seal_table(image)
        table.write_bytes(image)


# --- Log ------------------------------------------------------------------------------------------


def _forge_log_header(field: str, chance: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    _another(chance, data, *LOG_HEADER[field])
    data[80:88] = xxhash.xxh64_intdigest(bytes(data[:80])).to_bytes(8, "little")
    path.write_bytes(data)


def _records(data: bytes) -> list[int]:
    """Return the places of the records of a log."""
    places, at = [], HEADER_BYTES
    while data[at : at + 8] == RECORD_MAGIC:
        places.append(at)
        at += -(-int.from_bytes(data[at + 16 : at + 24], "little") // 8) * 8
    return places


def _seal_record(data: bytearray, place: int, seed: int) -> None:
    end = place + int.from_bytes(data[place + 16 : place + 24], "little")
    checksum = xxhash.xxh64_intdigest(bytes(data[place + 16 : end]), seed ^ place)
    data[place + 8 : place + 16] = checksum.to_bytes(8, "little")


def _forge_log_record(field: str, chance: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    places = _records(bytes(data))
    place = chance.choice([*places, places[-1]])
    rows, strings = struct.unpack_from("<QQ", data, place + 64)
    words = int.from_bytes(data[place + 84 : place + 88], "little")
    kinds = place + 88 + 8 * (words + 1) * rows
    if field in LOG_RECORD:
        at, size = LOG_RECORD[field]
        _another(chance, data, place + at, size)
    elif field == "row" and rows:
        _another(chance, data, place + 88 + 8 * chance.randrange((words + 1) * rows), 8)
    elif field == "kind" and rows:
        data[kinds + chance.randrange(rows)] = chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 255])
    elif strings:
        at = kinds + rows
        if chance.random() < 0.5:
            _another(chance, data, at, 4)
        else:
            data[at + 4] = chance.choice([0, 10, 128, 255])
    identity, generation = bytes(data[16:32]), int.from_bytes(data[32:40], "little")
    _seal_record(data, place, xxhash.xxh64_intdigest(identity, generation))
    path.write_bytes(data)


# --- Tables ---------------------------------------------------------------------------------------


def _seal_table(data: bytearray) -> None:
    """Correct the checksum of a header, and of the pages of a column table, which include it."""
    checksum = xxhash.xxh64_intdigest(bytes(data[:4088]))
    data[4088:4096] = checksum.to_bytes(8, "little")
    if data[:8] != b"FPSTCOLS":
        return
    end = int.from_bytes(data[64:72], "little")
    for page, at in enumerate(range(4096, min(end, len(data)), 4096)):
        sums = xxhash.xxh64_intdigest(
            bytes(data[at : min(at + 4096, end)]), (checksum + page) % 2**64
        )
        if end + 8 * page + 8 <= len(data):
            data[end + 8 * page : end + 8 * page + 8] = sums.to_bytes(8, "little")


def _forge_table(field: str, columns: bool, chance: random.Random, path: Path) -> None:
    _own(path)
    data = bytearray(path.read_bytes())
    at, size = (COLUMN_TABLE if columns else BLOCK_TABLE)[field]
    _another(chance, data, at + (chance.randrange(64) if size == 1 else 0), size)
    _seal_table(data)
    path.write_bytes(data)
    manifest = path.parent.parent / MANIFEST_FILE
    count, digest = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<Q", data, 80)[0]
    names = {
        "hashes.fpt": ("dictionary", "hashes", "hash_digest"),
        "places.fpt": ("places", "ids", "id_digest"),
    }
    if field not in ("fingerprint_count", "count", "set_digest") or chance.random() < 0.3:
        return

    def change(content: dict[str, Any]) -> None:
        record = content["generation"]
        if path.name in names:
            part, counted, digested = names[path.name]
            record[part].update({counted: count, digested: digest})
        else:
            record.update(fingerprints=count, set_digest=digest)

    rewrite(manifest, change)
    _follow(manifest, path.parent.name)


# --- Filters --------------------------------------------------------------------------------------


def _seal_filter(data: bytearray) -> None:
    """Put the checksums right of a header, and of the pages that are in the file."""
    data[4088:4096] = xxhash.xxh64_intdigest(bytes(data[:4088])).to_bytes(8, "little")
    end, digest = struct.unpack_from("<Q", data, 56)[0], struct.unpack_from("<Q", data, 72)[0]
    seed = xxhash.xxh64_intdigest(bytes(data[16:32] + data[128:384]), digest)
    for page, at in enumerate(range(4096, min(end, len(data)), 4096)):
        checksum = xxhash.xxh64_intdigest(
            bytes(data[at : min(at + 4096, end)]), (seed + page) % 2**64
        )
        if end + 8 * page + 8 <= len(data):
            data[end + 8 * page : end + 8 * page + 8] = checksum.to_bytes(8, "little")


def _forge_filter(field: str, chance: random.Random, path: Path) -> None:
    """Change a field of the header, and let its size fit where that is few bytes.

    Or change a word or a start.
    """
    _own(path)
    data = bytearray(path.read_bytes())
    starts, end = struct.unpack_from("<QQ", data, 48)
    if field == "words":
        data[4096:starts] = chance.randbytes(starts - 4096)
    elif field == "starts":
        for _ in range(chance.randint(1, 4)):
            _another(chance, data, starts + 4 * chance.randrange((end - starts) // 4), 4)
    else:
        at, size = FILTER[field]
        _another(chance, data, at + (chance.randrange(64) if size == 1 else 0), size)
    bucket_bits = struct.unpack_from("<H", data, 24)[0]
    words = struct.unpack_from("<Q", data, 40)[0]
    if field in ("bucket_bits", "word_count", "prefix_bits") and bucket_bits < 20 and words < 2**16:
        starts = 4096 + 8 * words
        end = starts + (4 * (2**bucket_bits + 1) + 7) // 8 * 8
        size = end + -(-(end - 4096) // 4096) * 8
        struct.pack_into("<QQQ", data, 48, starts, end, size)
        data = data[:size] + bytes(size - len(data[:size]))
    _seal_filter(data)
    path.write_bytes(data)


# --- LMDB files -----------------------------------------------------------------------------------


def _shape(path: Path, size: int, digest: int, largest: int | None = None) -> None:
    """Let the manifest say how large a changed file is."""

    def change(content: dict[str, Any]) -> None:
        place = content["generation"]
        for step in SHAPES[path.name]:
            place = place[step]
        place.update(
            bytes=size, digest=digest, largest=place["largest"] if largest is None else largest
        )

    rewrite(path.parent.parent / MANIFEST_FILE, change)


def _forge_records(path: Path, change: Callable[[dict[bytes, bytes]], None]) -> None:
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        records = dict(transaction.cursor())
    change(records)
    path.unlink()
    keys = np.array(
        [list(struct.unpack(f">{len(key) // 8}Q", key)) for key in sorted(records)], np.uint64
    )
    values = [records[key] for key in sorted(records)]
    writer = SealedWriter(path, keys.shape[-1])
    writer.append_list(keys.ravel() if keys.shape[-1] == 1 else keys, values)
    shape = writer.finish()
    _shape(path, shape["bytes"], shape["digest"], shape["largest"])


def _forge_id_record(field: str, chance: random.Random, path: Path) -> None:
    content = json.loads((path.parent.parent / MANIFEST_FILE).read_bytes())["generation"]
    digests = {
        "ids.mdb": ("set_digest",),
        "numbers.mdb": ("dictionary", "hash_digest"),
        "places.mdb": ("places", "id_digest"),
    }
    set_digest: Any = content
    for step in digests[path.name]:
        set_digest = set_digest[step]

    def change(records: dict[bytes, bytes]) -> None:
        key = chance.choice(sorted(records))
        if field == "key":
            value = records.pop(key)
            key = bytes(byte ^ chance.choice([0, 0, 1, 255]) for byte in key)
        else:
            value = records[key]
        data = bytearray(value)
        if field != "key":
            at, size = ID_RECORD[field]
            _another(
                chance,
                data,
                min(
                    at + (chance.randrange(len(data)) if field == "fields" else 0), len(data) - size
                ),
                size,
            )
        checksum = xxhash.xxh64_intdigest(
            bytes(data[4:]), record_seed(set_digest, int.from_bytes(key, "big"))
        )
        records[key] = (checksum & 0xFFFFFFFF).to_bytes(4, "little") + bytes(data[4:])

    _forge_records(path, change)


def _forge_strings(field: str, chance: random.Random, path: Path) -> None:
    def change(records: dict[bytes, bytes]) -> None:
        layout = [key.to_bytes(8, "big") for key in LAYOUT_KEYS]
        keys = (
            layout
            if field in LAYOUT
            else [chance.choice([key for key in sorted(records) if key not in layout])]
        )
        data = bytearray(records[keys[0]])
        if field in LAYOUT:
            at, size = LAYOUT[field]
            _another(chance, data, min(at, len(data) - 4), size) if at + size <= len(
                data
            ) else data.extend(chance.randbytes(99))
        elif field == "content":
            _another(chance, data, 4 + chance.randrange(min(len(data) - 4, 16)), 1)
        for key in keys:
            moved = int.from_bytes(key, "big") + (
                chance.choice([1, 255, 2**40]) if field == "key" else 0
            )
            records[moved.to_bytes(8, "big")] = with_checksum(moved, bytes(data[4:]))

    _forge_records(path, change)


def _forge_pages(field: str, chance: random.Random, path: Path) -> None:
    _own(path)
    data = bytearray(path.read_bytes())
    later = max((0, 4096), key=lambda page: int.from_bytes(data[page + 144 : page + 152], "little"))
    used = (int.from_bytes(data[later + 136 : later + 144], "little") + 1) * 4096
    at, size = META[field]
    for page in (later,) if chance.random() < 0.7 else (0, 4096):
        _another(chance, data, page + at, size)
    first = b"".join(
        _hash(bytes(data[start : min(start + 4096, used)])) for start in range(0, used, 4096)
    )
    second = b"".join(_hash(first[start : start + 4096]) for start in range(0, len(first), 4096))
    digest = xxhash.xxh64_intdigest(second, used)
    tail = first + second + digest.to_bytes(8, "little")
    data[len(data) - len(tail) :] = tail
    path.write_bytes(data)
    _shape(path, len(data), digest)


def _hash(data: bytes) -> bytes:
    return xxhash.xxh64_intdigest(data).to_bytes(8, "little")
